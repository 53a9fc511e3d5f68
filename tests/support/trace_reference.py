"""The independent reference: what a real run on concrete tensors executes, counted by another piece of code.

A model is built by transformers with real integers and run eagerly, on the meta device or, where it looks at its data,
on the CPU; a dispatch mode looks at every operator. `matmul_flops` uses eager attention and batched experts, so that every product is an ordinary mm or bmm.
`walk` runs the default kernels in bfloat16 and applies the counting conventions to shapes and storages as they are.
Nothing here imports opscope.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, TypeVar

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

T = TypeVar("T")


def config_of(model_type: str, overrides: dict[str, Any]) -> Any:
    return AutoConfig.for_model(model_type, **overrides)


def run(model: Any, phase: str, batch: int, seq: int, cache: int, mode: TorchDispatchMode) -> None:
    """One recorded pass; a decode pass follows an unrecorded prefill of `cache` tokens."""
    past, device = None, model.device
    with torch.no_grad():
        if phase == "decode":
            past = model(
                input_ids=torch.ones((batch, cache), dtype=torch.int64, device=device), use_cache=True
            ).past_key_values
        ids = torch.ones((batch, seq), dtype=torch.int64, device=device)
        with mode:
            model(input_ids=ids, past_key_values=past, use_cache=True)


def on_some_device(attempt: Callable[[str], T]) -> T:
    """`attempt` on the meta device; where that cannot be (an `.item()`, a kernel without shapes), on the CPU."""
    try:
        return attempt("meta")
    except (RuntimeError, NotImplementedError):
        return attempt("cpu")


def attention_of(model_type: str) -> str:
    """The fused operator, or eager attention for a model that does not take it."""
    kind = AutoModelForCausalLM._model_mapping[type(config_of(model_type, {}))]
    return "sdpa" if getattr(kind, "_supports_sdpa", False) else "eager"


class _Products(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """2 FLOPs per multiply-add of every matrix product and convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name in ("mm", "bmm", "mv", "dot"):
            self.flops += 2 * out.numel() * args[0].shape[-1]
        elif name in ("addmm", "baddbmm"):
            self.flops += 2 * out.numel() * args[1].shape[-1]
        elif name == "convolution":
            self.flops += 2 * out.numel() * math.prod(args[1].shape[1:])
        elif name in ("_grouped_mm", "linear") or "attention" in name:
            raise AssertionError(f"{name} has no place in a run with eager attention and batched experts")
        return out


def matmul_flops(model_type: str, overrides: dict[str, Any], phase: str, batch: int, seq: int, cache: int) -> int:
    """Matrix-product FLOPs of a concrete run on the meta device."""
    transformers.logging.set_verbosity_error()
    config = config_of(model_type, overrides)

    def attempt(device: str) -> int:
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(
                config, attn_implementation="eager", experts_implementation="batched_mm"
            )
        mode = _Products()
        run(model.eval(), phase, batch, seq, cache, mode)
        return int(mode.flops)

    return on_some_device(attempt)


# ---------------------------------------------------------------- every operator, FLOPs and bytes

_PER_OUTPUT = {
    **dict.fromkeys((
    "add sub rsub mul div neg pow exp sqrt rsqrt reciprocal sin cos tanh abs log square floor_divide"
).split(), 1),
    "sigmoid": 4, "softplus": 3, "polar": 4, "log1p": 1, "elu": 2, "addcmul": 2, "erf": 1, "expm1": 1, "atan2": 1, "leaky_relu": 1, "silu": 5,
}  # fmt: skip
_PER_INPUT = ("sum", "mean", "cumsum")
_NO_ARITHMETIC = (
    "clone _to_copy copy_ cat stack where masked_fill masked_fill_ eq ne lt le gt ge logical_and "
    "logical_not logical_or scatter minimum maximum sign round flip roll clamp_min cummax __rshift__ __lshift__ bitwise_and bitwise_or bitwise_not __and__ __or__ max topk sort argsort "
    "histc amax relu clamp constant_pad_nd repeat expand_copy any all one_hot __iand__ triu tril clamp_ "
    "floor"
).split()
_MADE = [
    "arange",
    "zeros",
    "ones",
    "full",
    "zeros_like",
    "ones_like",
    "full_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "scalar_tensor",
]
_FREE = [
    "empty",
    "empty_like",
    "new_empty",
    "_local_scalar_dense",
    "lift_fresh",
    "dropout",
    "device",
    "is_same_size",
    "_assert_async",
]


class Walk(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """FLOPs and bytes of every operator by the written conventions, on real tensors; w_bytes = a_bytes = 2."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.read = self.write = 0
        self.paused = self.recording = False
        self.ops: list[tuple[str, int, int, int]] = []

    def __enter__(self) -> Any:
        self.recording = True
        return super().__enter__()

    @staticmethod
    def _stored(t: torch.Tensor) -> int:
        return int(int(t.element_size()) * math.prod(n for n, s in zip(t.shape, t.stride(), strict=True) if s != 0))

    def _count(self, name: str, flops: int, read: int, write: int) -> None:
        self.flops, self.read, self.write = self.flops + flops, self.read + read, self.write + write
        self.ops.append((name, flops, read, write))

    def sdpa(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, out: torch.Tensor
    ) -> None:
        scores = math.prod(q.shape[:-1]) * k.shape[-2]
        per_score = 2 * (q.shape[-1] + v.shape[-1]) + 4 + (1 if mask is not None and mask.dtype != torch.bool else 0)
        read = sum(self._stored(t) for t in (q, k, v) + ((mask,) if mask is not None else ()))
        self._count("sdpa", scores * per_score, read, out.numel() * out.element_size())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func._schema.name.rpartition("::")[2]
        if self.paused or name in _FREE or func.is_view or name in ("_unsafe_view", "detach", "alias"):
            return out
        inputs = [t for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        outputs = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
        distinct = {
            (t.untyped_storage()._cdata, t.storage_offset(), tuple(t.shape), t.stride(), t.dtype): t for t in inputs
        }
        read = sum(self._stored(t) for t in distinct.values())
        write = sum(t.numel() * t.element_size() for t in outputs)
        n = outputs[0].numel() if outputs else 0
        base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        if name in ("mm", "bmm"):
            flops = 2 * n * inputs[0].shape[-1]
        elif name in ("addmm", "baddbmm"):
            beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
            flops = 2 * n * inputs[1].shape[-1] + n * ((beta != 0) + (beta not in (0, 1)) + (alpha != 1))
        elif name == "_grouped_mm":
            flops = 2 * n * inputs[0].shape[-1]
            w = inputs[1]
            read = (
                self._stored(inputs[0])
                + min(w.shape[0], inputs[0].shape[0]) * w[0].numel() * 2
                + self._stored(inputs[2])
            )
        elif name == "convolution":
            flops = 2 * n * math.prod(inputs[1].shape[1:]) + (n if len(inputs) > 2 else 0)
        elif name == "index_select":
            flops, read = 0, n * inputs[0].element_size() + self._stored(inputs[1])
        elif name == "embedding":
            flops, read = 0, n * 2 + self._stored(inputs[1])
        elif name in ("index", "gather"):
            flops, read = 0, n * inputs[0].element_size() + sum(self._stored(t) for t in inputs[1:])
        elif name in ("index_put_", "scatter_"):
            flops, read = 0, sum(self._stored(t) for t in inputs[1:])
            write = max(t.numel() for t in inputs[1:]) * inputs[0].element_size()
        elif name == "copy_":
            flops, read = 0, self._stored(inputs[-1])
        elif name == "native_layer_norm":
            flops = (5 + len(inputs) - 1) * n + 2 * (n // inputs[0].shape[-1])
        elif name == "_softmax":
            flops = 3 * n
        elif name == "gelu":
            flops = (8 if kwargs.get("approximate") == "tanh" else 5) * n
        elif base in ("fill", "zero") or name in _MADE:
            flops, read = 0, 0
        elif base in _NO_ARITHMETIC:
            flops = 0
        elif base in _PER_INPUT:
            flops = inputs[0].numel()
        elif base in _PER_OUTPUT:
            flops = _PER_OUTPUT[base] * n
        else:
            raise AssertionError(f"the reference has no rule for {name}")
        self._count(name, flops, read, write)
        return out


class _Fused(torch.overrides.TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """Hands `scaled_dot_product_attention` to the walk as one operator."""

    def __init__(self, walk: Walk) -> None:
        super().__init__()
        self._walk = walk

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not torch.nn.functional.scaled_dot_product_attention or not self._walk.recording:
            return func(*args, **kwargs)
        self._walk.paused = True
        out = func(*args, **kwargs).contiguous()
        self._walk.paused = False
        mask = kwargs.get("attn_mask", args[3] if len(args) > 3 else None)
        self._walk.sdpa(args[0], args[1], args[2], mask, out)
        return out


def walk(model_type: str, overrides: dict[str, Any], phase: str, batch: int, seq: int, cache: int) -> Walk:
    """FLOPs and bytes of a concrete run with the default kernels, in bfloat16 on the CPU."""
    transformers.logging.set_verbosity_error()

    model = AutoModelForCausalLM.from_config(
        config_of(model_type, overrides), attn_implementation=attention_of(model_type), dtype=torch.bfloat16
    )
    mode = Walk()
    with _Fused(mode):
        run(model.eval(), phase, batch, seq, cache, mode)
    return mode
