"""What the abstract runs of CUDA and of Triton kernels share."""
