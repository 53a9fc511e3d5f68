"""Which classes are modules of torch."""

from __future__ import annotations

from opscope_tools.source.python.names import ClassSymbol, Resolver

MODULE = "torch.nn.modules.module.Module"


def is_module(resolver: Resolver, symbol: ClassSymbol) -> bool:
    """Whether the class is a torch.nn.Module, as far as source tells."""
    return any(
        (base if isinstance(base, str) else base.qualified_name) in {MODULE, "torch.nn.Module"}
        for base in resolver.mro(symbol)
    )
