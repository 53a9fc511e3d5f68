"""CuTe in CUDA sources: layouts, tensors, tiled copies and products, as host functions make them and kernels use them."""
