"""What names mean in CUDA source: kernels and functions, their template arguments, types, structures and scopes."""
