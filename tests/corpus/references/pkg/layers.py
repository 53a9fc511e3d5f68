from __future__ import annotations

import pkg.ops as operations
from . import ops
from .config import ModelConfig, OtherConfig  #! import pkg.config.ModelConfig
from .ops import TABLE, register  #! import pkg.ops.TABLE #! import pkg.ops.register
from .ops import rotate as turn  #! import pkg.ops.rotate


class Module:
    def __init__(self):
        pass

    def run(self, *args):
        return self.forward(*args)  #? call pkg.layers.Attention.forward

    def forward(self, *args):
        raise NotImplementedError


class Attention(Module):  #! subclass pkg.layers.Module
    def __init__(self, config: ModelConfig):  #! annotation pkg.config.ModelConfig
        super().__init__()
        self.config = config
        self.width = config.width  #! read pkg.config.ModelConfig.width
        self.heads = getattr(config, "num_heads", 1)  #! read pkg.config.ModelConfig.n_head

    def forward(self, q, k):
        q, k = turn(q, k)  #! call pkg.ops.rotate
        q, k = operations.rotate(  #! call pkg.ops.rotate
            *ops.rotate(q, k)  #! call pkg.ops.rotate
        )
        if self.config.n_head:  #! read pkg.config.ModelConfig.n_head
            return TABLE["a"](q, k)  #! read pkg.ops.TABLE
        return q.rotate(k)

    def shadow(self, rotate, TABLE):
        TABLE["a"] = rotate
        return rotate(TABLE)

    def local(self, q, k):
        rotate = max
        return rotate(q, k), self.width

    def late(self, q, k):
        from .ops import rotate  #! import pkg.ops.rotate

        return [rotate(x, k) for x in q], [rotate for rotate in q]  #! call pkg.ops.rotate


class Wide(Attention):  #! subclass pkg.layers.Attention
    def forward(self, q, k):
        return super().forward(q, k)  #! call pkg.layers.Attention.forward


class Block(Module):  #! subclass pkg.layers.Module
    def __init__(self, config):
        self.attn = Attention(config)  #! instantiate pkg.layers.Attention
        self.parts = ModuleList([Attention(config) for _ in range(config.n_head)])  #! instantiate pkg.layers.Attention #! read pkg.config.ModelConfig.n_head
        self.stack = ModuleList([Attention(config), Attention(config)])  #! instantiate pkg.layers.Attention
        self.size = config.width  #! read pkg.config.ModelConfig.width

    def forward(self, q, k):
        q = self.attn.forward(q, k)  #! call pkg.layers.Attention.forward
        q = self.attn(q, k)  #! call pkg.layers.Attention.forward
        for part in self.parts:
            q = part(q, k)  #! call pkg.layers.Attention.forward
        for index, part in enumerate(self.stack[:2]):
            q = part(q, k)  #! call pkg.layers.Attention.forward
        return self.other.forward(q)  #? call pkg.layers.Attention.forward


class Model(Module):  #! subclass pkg.layers.Module
    config: ModelConfig  #! annotation pkg.config.ModelConfig
    parts = ["Attention"]  #! string pkg.layers.Attention

    def __init__(self, config: "ModelConfig | None"):  #! annotation pkg.config.ModelConfig
        self.block = Block(config)

    def forward(self, x):
        for_other = OtherConfig().width
        return self.config.width + for_other + x.width  #! read pkg.config.ModelConfig.width #? read pkg.config.ModelConfig.width


@register("b")  #! decorator pkg.ops.register
def second(q, k):
    return isinstance(q, Attention)  #! read pkg.layers.Attention


def build(layer: Attention | None = None):  #! annotation pkg.layers.Attention
    config = ModelConfig(width=3, n_head=4)  #! instantiate pkg.config.ModelConfig #! write pkg.config.ModelConfig.width #! write pkg.config.ModelConfig.n_head
    config.width += 1  #! write pkg.config.ModelConfig.width
    return Attention(config), layer.forward(1, 2)  #! instantiate pkg.layers.Attention #! call pkg.layers.Attention.forward


Alias = Attention  #! read pkg.layers.Attention
