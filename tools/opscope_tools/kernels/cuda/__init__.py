"""CUDA kernels: their text, syntax, names, the abstract run of their bodies, and their launches."""
