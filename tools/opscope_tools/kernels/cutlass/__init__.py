"""CUTLASS 3 operators, `kernel::GemmUniversal<Problem, Mainloop, Epilogue>`: kernels that are written as a type."""
