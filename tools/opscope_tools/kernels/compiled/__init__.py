"""Kernels compiled without a GPU, in processes of their own with limits; nothing of the analysed repository is run."""
