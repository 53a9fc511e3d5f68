import triton

@triton.jit
def broken(x:
