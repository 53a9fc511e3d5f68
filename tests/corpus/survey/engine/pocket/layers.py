import torch
import triton
from torch import nn

try:
    import flash_attn
except ImportError:
    flash_attn = None


@triton.jit
def rope_kernel(x):
    pass


class Attention(nn.Module):
    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v)


class TinyForCausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = torch.cuda.CUDAGraph()

    @torch.compile
    def forward(self, x):
        return x
