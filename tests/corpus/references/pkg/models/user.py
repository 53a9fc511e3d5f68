import pkg
import pkg.layers
from pkg import *
from ..layers import Alias  #! import pkg.layers.Attention
from elsewhere import rotate

try:
    from unknown_module import Module
except ImportError:
    Module = object


class Sub(Module):
    def forward(self, q):
        return rotate(q)


class Made(pkg.PublicAttention):  #! subclass pkg.layers.Attention
    pass


class Again(Alias):  #! subclass pkg.layers.Attention
    pass


def use(q, k):
    made = pkg.layers.Attention(None)  #! instantiate pkg.layers.Attention
    made.forward(q, k)  #! call pkg.layers.Attention.forward
    pkg.rotate(q, k)  #! call pkg.ops.rotate
    return Wide.forward(made, q, k), register  #! read pkg.ops.register
