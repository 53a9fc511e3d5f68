"""Where kernels are launched from C++, and with which grids, blocks and arguments."""
