"""A package whose lines say what they refer to: `#! kind name` is a verified reference, `#? kind name` an unverified."""
from .layers import Attention as PublicAttention  #! import pkg.layers.Attention
from .layers import *
from .ops import rotate  #! import pkg.ops.rotate
