"""Two ways to look at what a run computes: the products of it, and every operator with its FLOPs and bytes.

`products(run)` and `walked(run)` call `run` under a dispatch mode that sees each operator with its real tensors, and
under a function mode that keeps `scaled_dot_product_attention` one operator. Rules: cost_products.py, cost_flops.py,
cost_bytes.py. Nothing here imports opscope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from cost_bytes import moved
from cost_flops import arithmetic
from cost_operator import Ran, find, ran
from cost_products import BESIDE, PRODUCTS
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

#: allocations, metadata, checks, and what has no effect in a model that is not trained
FREE = frozenset((
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided _local_scalar_dense lift lift_fresh "
    "is_nonzero item dropout device is_same_size _assert_async _assert_scalar _assert_tensor_metadata resize_ "
    "resize_as_ set_ as_strided_ squeeze_ unsqueeze_ transpose_ t_ swapaxes_ detach_ is_pinned sym_size sym_numel "
    "sym_stride sym_storage_offset _linalg_check_errors"
).split())  # fmt: skip
#: views that do not say so
VIEWS = frozenset((
    "_unsafe_view detach alias _reshape_alias unsafe_split unsafe_split_with_sizes unsafe_chunk resolve_conj resolve_neg"
).split())  # fmt: skip
#: what sounds like a product or holds one
_PRODUCT_LIKE = ("mm", "conv", "attention", "linear", "lstm", "gru", "rnn", "einsum", "bilinear", "matmul")


def _only_meta(call: Ran) -> bool:
    """What no run with data makes: a move between real memory and the meta device."""
    return call.name == "_to_copy" and call.inputs[0].is_meta != call.outputs[0].is_meta


class NoRuleError(AssertionError):
    """The reference itself lacks something; it is never the model that says so."""


class Walk(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """FLOPs and bytes of every operator by the written conventions, each tensor at its own element size."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.products = self.read = self.write = 0
        self.paused = self.recording = False
        self.ops: list[tuple[str, int, int, int]] = []
        #: numbers as tensors on the meta device: a run with data makes those of `where` too, and none for `x[mask] = 0`
        self._numbers: list[Ran] = []

    def __enter__(self) -> Any:
        self.recording = True
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        self.recording = False
        return super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func._schema.name.rpartition("::")[2]
        if not (self.paused or func.is_view or name in FREE or name in VIEWS):
            call = ran(func, args, kwargs, out)
            if name == "scalar_tensor" and call.outputs[0].is_meta:
                self._numbers.append(call)
                return out
            for number in self._numbers if name == "where" else ():
                self.see(number)
            self._numbers.clear()
            if not _only_meta(call):
                self.see(call)
        return out

    def see(self, call: Ran) -> None:
        product = find(call.name, PRODUCTS)
        flops = find(call.name, BESIDE)(call) if product else arithmetic(call)
        if flops is None:
            raise NoRuleError(f"the reference has no rule for {'complex ' * call.is_complex}{call.name}")
        products = int(product(call)) if product else 0
        read, write = moved(call)
        self.flops, self.products = self.flops + flops + products, self.products + products
        self.read, self.write = self.read + read, self.write + write
        self.ops.append((call.name, flops + products, read, write))


class Products(Walk):
    """Only the matrix products; an operator that sounds like one and has no rule raises."""

    def see(self, call: Ran) -> None:
        product = find(call.name, PRODUCTS)
        if product:
            self.products += int(product(call))
        elif any(word in call.name for word in _PRODUCT_LIKE) and arithmetic(call) is None:
            raise NoRuleError(f"the reference does not know whether {call.name} is a product")


class Fused(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """Hands `scaled_dot_product_attention` to a walk as one operator: q, k, v and mask in, the output out.

    Who looks the function up when calling it gets `attend` in its place: torch's own `multi_head_attention_forward` is
    itself a call that the mode sees, and is off within.
    """

    NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")

    def __init__(self, walk: Walk) -> None:
        super().__init__()
        self._walk = walk
        self._replaced = patch.object(torch.nn.functional, "scaled_dot_product_attention", self.attend)

    def __enter__(self) -> Any:
        self._replaced.start()
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        self._replaced.stop()
        return super().__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is scaled_dot_product_attention and not self._walk.paused:
            return self.attend(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def attend(self, *args: Any, **kwargs: Any) -> Any:
        arguments = dict(zip(self.NAMES, args, strict=False)) | kwargs
        query, key = arguments["query"], arguments["key"]
        if query.shape[:-2] != key.shape[:-2] and not arguments.get("enable_gqa"):
            return scaled_dot_product_attention(*args, **kwargs)  # no fused kernel takes it: torch runs its parts
        was, self._walk.paused = self._walk.paused, True
        try:
            out = _as_kernels_leave_it(scaled_dot_product_attention(*args, **kwargs), query)
        finally:
            self._walk.paused = was
        if self._walk.recording and not was:
            inputs = [arguments[n] for n in self.NAMES[:4] if isinstance(arguments.get(n), torch.Tensor)]
            self._walk.see(Ran("sdpa", arguments, inputs, [out]))
        return out


def _as_kernels_leave_it(out: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """In the layout of torch's flash kernel, which keeps that of q; the meta device's own attention leaves another."""
    if query.dim() != 4:
        return out.contiguous()
    like = torch.empty_strided(query.shape, query.stride(), dtype=torch.bfloat16, device="meta")
    if out.shape != query.shape:  # values of another width are padded to that of q and k, token by token
        return out.transpose(1, 2).contiguous().transpose(1, 2)
    strides = torch.ops.aten._scaled_dot_product_flash_attention(like, like, like)[0].stride()
    return torch.empty_strided(out.shape, strides, dtype=out.dtype, device=out.device).copy_(out)


def _look(walk: Walk, run: Callable[[], None]) -> None:
    with torch.no_grad(), Fused(walk), walk:
        run()


def products(run: Callable[[], None]) -> int:
    """Matrix-product FLOPs, 2 per multiply-add, of what runs inside."""
    walk = Products()
    _look(walk, run)
    return walk.products


def walked(run: Callable[[], None]) -> Walk:
    """Every operator of what runs inside."""
    walk = Walk()
    _look(walk, run)
    return walk
