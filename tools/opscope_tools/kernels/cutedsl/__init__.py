"""CuTe-DSL: kernels that `@cute.kernel` marks, read along the classes and host functions that launch them."""
