"""What is told of a kernel, worked out from what its run saw."""
