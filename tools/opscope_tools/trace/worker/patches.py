"""What keeps sizes symbolic while a model is built and run, applied for the length of one trace.

Each patch names what it stands in for: initialisers that take roots of sizes, `int()` on symbolic floats, norms that
want a tuple. `Rewriter` answers a few functions itself because their own code would turn sizes into numbers
(`torch.tensor(size)`, `torch.histc(bins=size)`) or split a fused operator (`scaled_dot_product_attention`).
"""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _IntMeta(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.int)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, builtins.int)


class SymbolicInt(builtins.int, metaclass=_IntMeta):
    """`int` for model code: rounds a symbolic float to a symbolic integer where the builtin would make it a number."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], torch.SymInt | torch.SymFloat):
            return torch.sym_int(args[0])
        return builtins.int(*args, **kwargs)


_UTILITIES = ("modeling_rope_utils", "modeling_utils", "modeling_layers")


@contextlib.contextmanager
def symbolic_int(packages: tuple[str, ...]) -> Iterator[None]:
    """Give the modules of `packages` (and transformers' shared modelling code) the `int` above."""
    wanted = [f"transformers.{name}" for name in _UTILITIES]
    chosen = [
        module
        for name, module in list(sys.modules.items())
        if module is not None and (name in wanted or any(name == p or name.startswith(p + ".") for p in packages))
    ]
    changed = [m for m in chosen if "int" not in vars(m)]
    for module in changed:
        vars(module)["int"] = SymbolicInt
    try:
        yield
    finally:
        for module in changed:
            vars(module).pop("int", None)


def _nothing(tensor: Any = None, *_: Any, **__: Any) -> Any:
    return tensor


@contextlib.contextmanager
def no_initialisation() -> Iterator[None]:
    """Weights keep no values here: initialisers, which compute with sizes, do nothing."""
    saved: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        saved.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    for name in dir(torch.nn.init):
        if name.endswith("_") and not name.startswith("_"):
            put(torch.nn.init, name, _nothing)
    for kind in vars(torch.nn.modules).values():
        if isinstance(kind, type) and "reset_parameters" in vars(kind):
            put(kind, "reset_parameters", _nothing)
    put(torch.nn.modules.conv._ConvNd, "reset_parameters", _nothing)
    import transformers

    put(transformers.PreTrainedModel, "initialize_weights", _nothing)
    norm = torch.nn.LayerNorm.__init__

    def with_tuple(self: Any, normalized_shape: Any, *args: Any, **kwargs: Any) -> None:
        norm(
            self,
            (normalized_shape,) if isinstance(normalized_shape, torch.SymInt) else normalized_shape,
            *args,
            **kwargs,
        )

    put(torch.nn.LayerNorm, "__init__", with_tuple)
    rms = torch.nn.RMSNorm.__init__

    def rms_with_tuple(self: Any, normalized_shape: Any, *args: Any, **kwargs: Any) -> None:
        rms(
            self,
            (normalized_shape,) if isinstance(normalized_shape, torch.SymInt) else normalized_shape,
            *args,
            **kwargs,
        )

    put(torch.nn.RMSNorm, "__init__", rms_with_tuple)
    try:
        yield
    finally:
        for owner, name, value in reversed(saved):
            setattr(owner, name, value)


@contextlib.contextmanager
def masks_as_in_inference() -> Iterator[None]:
    """transformers keeps every mask while it thinks it is traced; inference drops masks that mask nothing. Follow that."""
    from transformers import masking_utils

    saved = masking_utils.is_tracing
    masking_utils.is_tracing = lambda *_: False
    try:
        yield
    finally:
        masking_utils.is_tracing = saved


class Rewriter(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """Answers a few functions itself; `report(operator, inputs, outputs, arguments)` hears of each.

    `assumed` collects in words what was assumed of data that a trace does not have.
    """

    def __init__(self, report: Callable[[str, list[Any], list[Any], dict[str, Any]], None]) -> None:
        super().__init__()
        self._report = report
        self.assumed: dict[str, None] = {}
        self._table: dict[Any, Callable[..., Any]] = {
            torch.nn.functional.scaled_dot_product_attention: self._sdpa,
            torch.tensor: self._tensor,
            torch.histc: self._histc,
            torch.Tensor.__bool__: self._truth,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        handler = self._table.get(func)
        if kwargs and kwargs.get("dtype") is SymbolicInt:
            kwargs = {**kwargs, "dtype": torch.int64}  # model code that means the builtin
        if handler is None:
            return func(*args, **(kwargs or {}))
        return handler(*args, **(kwargs or {}))

    def _sdpa(
        self, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,  # noqa: ARG002
        is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,  # noqa: ARG002
    ) -> Any:  # fmt: skip
        """The fused operator: the shapes are checked as the real one checks them, the scores never exist."""
        if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
            raise RuntimeError(f"attention over q {tuple(query.shape)}, k {tuple(key.shape)}, v {tuple(value.shape)}")
        for mine, theirs in zip(query.shape[:-2], key.shape[:-2], strict=True):
            shared = enable_gqa and mine % theirs == 0
            if not (shared or mine == theirs or theirs == 1 or mine == 1):
                raise RuntimeError(
                    f"attention of {tuple(query.shape)} on keys of {tuple(key.shape)}: the heads do not divide"
                )
        inputs = [query, key, value] + ([attn_mask] if attn_mask is not None else [])
        out = query.new_empty((*query.shape[:-1], value.shape[-1]))
        self._report("opscope.sdpa", inputs, [out], {"causal": bool(is_causal), "gqa": bool(enable_gqa)})
        return out

    def _truth(self, tensor: Any) -> bool:
        """Whether a mask is all ones decides the path: it is, where nobody padded. Other data has no answer here."""
        if sys._getframe(2).f_code.co_filename.endswith("transformers/masking_utils.py"):
            self.assumed["No padding and no packed sequences: masks that the model makes itself are all ones."] = None
            return True
        return bool(torch.Tensor.__bool__(tensor))

    def _tensor(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(data, torch.SymInt | torch.SymFloat):
            default = torch.int64 if isinstance(data, torch.SymInt) else torch.get_default_dtype()
            return torch.empty((), dtype=kwargs.get("dtype") or default, device=kwargs.get("device"))
        return torch.tensor(data, *args, **kwargs)

    def _histc(self, tensor: Any, bins: Any = 100, **_: Any) -> Any:
        out = tensor.new_empty((bins,))
        self._report("aten.histc", [tensor], [out], {})
        return out
