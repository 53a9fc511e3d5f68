"""The text of C, C++ and CUDA files."""
