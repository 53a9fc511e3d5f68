"""Small real calls of torch's operators, to hold cost rules against: torch's own samples, and calls of what they leave out.

`calls(see)` hands every call of an operator to `see(overload, arguments, keyword arguments, result)`: those that torch's
samples of each public function make (shapes, dtypes, broadcasting, optional arguments), those of composite operators by
their own name, then `MORE`: operators that no public function reaches on this machine, on the meta device where only
another machine has a kernel.
"""

from __future__ import annotations

import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
See = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]
#: samples of each function by dtype
_SAMPLES = {torch.float32: 3, torch.complex64: 2, torch.int64: 1, torch.bfloat16: 1}


def _functions() -> list[Any]:
    """torch's list of its functions with samples. Its module imports a tool for expected output, which is not needed here."""
    stub = types.ModuleType("expecttest")
    stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]  # what the module inherits from
    sys.modules.setdefault("expecttest", stub)
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


class _Dispatched(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Hands on what reaches the dispatcher."""

    def __init__(self, see: See) -> None:
        super().__init__()
        self._see = see

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._see(func, args, kwargs or {}, result)
        return result


def _samples(function: Any, dtype: torch.dtype, count: int) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    if dtype in function.dtypes:
        made = iter(function.sample_inputs("cpu", dtype, requires_grad=False))
        for _, sample in zip(range(count), made, strict=False):
            yield (sample.input, *sample.args), sample.kwargs


_FAILED = object()


def _call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result; `_FAILED` where the sample is none for this function, or this machine has no kernel."""
    try:
        return function(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError, ImportError):
        return _FAILED


def calls(see: See, names: Iterable[str]) -> None:
    """Every call; `names` are the operators that are wanted by their own name where nothing dispatches to them."""
    found: set[str] = set()

    def seen(func: Any, args: Any, kwargs: Any, result: Any) -> None:
        found.add(func._schema.name.partition("::")[2])
        see(func, args, kwargs, result)

    with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated functions, degenerate samples
        functions = _functions()
        for function in functions:
            for dtype, count in _SAMPLES.items():
                for args, kwargs in _samples(function, dtype, count):
                    with _Dispatched(seen):
                        _call(function, args, kwargs)
        for name, args, kwargs in _more():
            _named(name, args, kwargs, seen)
        known: dict[str, list[Any]] = {}
        for function in functions:
            for alias in (function.name, *(a.name for a in function.aliases)):
                for short in {alias.rpartition(".")[2], alias.replace(".", "_")}:
                    known.setdefault(short, []).append(function)
        for name in sorted(set(names) - found):
            for function in known.get(name, known.get(name.removesuffix("_copy"), [])):
                dtype = torch.float32 if torch.float32 in function.dtypes else torch.int64
                for args, kwargs in _samples(function, dtype, 4):
                    _named(name, args, kwargs, seen)


def _named(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], see: See) -> None:
    """A call of an operator by its own name, by the overload that takes the arguments."""
    packet = getattr(aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        chosen = getattr(packet, overload)
        given = tuple(_listed(v, d.type) for v, d in zip(args, chosen._schema.arguments, strict=False))
        types_ = {d.name: d.type for d in chosen._schema.arguments}
        kwargs = {k: _listed(v, types_.get(k)) for k, v in kwargs.items()}
        result = _call(chosen, given, kwargs) if len(given) == len(args) else _FAILED
        if result is not _FAILED:
            see(chosen, given, kwargs, result)
            return


def _listed(value: Any, kind: Any) -> Any:
    """A number where the schema has a list, as the dispatcher gets it."""
    return [value] if isinstance(value, int) and str(kind) == "List[int]" else value


# ---------------------------------------------------------------- what samples leave out

More = tuple[str, tuple[Any, ...], dict[str, Any]]


def _more() -> Iterator[More]:
    for group in (_bits, _checks, _copies, _windows, _norms, _products, _attention, _images, _recurrent, _sequences):
        for name, *args in group():
            kwargs = args.pop() if args and isinstance(args[-1], dict) else {}
            yield name, tuple(args), kwargs


def _r(*shape: int, **options: Any) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(len(shape)), **options)


def _meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _bits() -> Iterator[tuple[Any, ...]]:
    for sign in ("and", "or", "xor", "lshift", "rshift"):
        for place in ("", "i"):
            for other in (torch.tensor([[1], [2]]), torch.tensor(1), 2):
                yield f"__{place}{sign}__", torch.arange(6).reshape(2, 3), other
    for name in ("cummax", "cummin"):
        yield f"_{name}_helper", _r(3, 4), torch.empty(3, 4), torch.empty(3, 4, dtype=torch.int64), 1
    yield "_is_all_true", _r(3, 4) > 0
    yield "_is_any_true", _r(3, 4) > 0
    yield "_unique", torch.tensor([3, 1, 3]), True, True
    for name in ("unique_dim", "unique_dim_consecutive"):
        yield name, torch.tensor([[3, 1], [3, 1]]), 0, {"return_inverse": True}
        yield name, _r(3, 4), 1


def _checks() -> Iterator[tuple[Any, ...]]:
    one, x = torch.tensor(True), _r(3, 4)
    yield "_assert_async", one, "is true"
    yield "_assert_scalar", 1, "is one"
    yield "_assert_tensor_metadata", x, [3, 4]
    yield "_has_compatible_shallow_copy_type", x, x
    yield "is_nonzero", one
    yield "is_pinned", x
    yield "is_same_size", x, x
    for name in ("numel", "size", "sym_numel", "sym_size", "sym_stride", "sym_storage_offset", "lift", "imag"):
        yield name, x if name != "imag" else torch.complex(x, x)
    yield "set_", _r(2), _r(3)
    yield "dropout", x, 0.5, False
    yield "_neg_view", x
    yield "_reshape_alias", x, [4, 3], [3, 1]
    yield "unsafe_split_with_sizes", x, [1, 2]


def _copies() -> Iterator[tuple[Any, ...]]:
    x = _r(3, 4)
    yield "copy", x, _r(4)
    yield "detach_copy", x
    yield "_reshape_copy", x, [4, 3]
    yield "view_as_real_copy", torch.complex(x, x)
    yield "native_channel_shuffle", _r(2, 4, 3, 3), 2
    yield "zero", x
    for dtype in (torch.int64, torch.float32):
        yield "random", _r(3).to(dtype)
    yield "_unsafe_index", x, [torch.tensor([0, 2]), None]
    yield "_unsafe_index_put", x, [torch.tensor([0, 2])], _r(2, 4)
    yield "_index_put_impl_", x.clone(), [torch.tensor([0, 2])], _r(2, 4), True
    yield "index_fill", x, 1, torch.tensor([0, 2]), 1.0


def _windows() -> Iterator[tuple[Any, ...]]:
    for name in ("bartlett", "blackman", "hamming", "hann", "kaiser"):
        yield f"{name}_window", 5
    yield "_efficientzerotensor", [3, 4]
    yield "randperm", 5
    yield "range", 1, 7, 2


def _norms() -> Iterator[tuple[Any, ...]]:
    x, weight, bias = _r(2, 4, 6), _r(4), _r(4)
    for affine in ((weight, bias), (weight, None), (None, None)):
        yield "_native_batch_norm_legit_no_training", x, *affine, bias, weight, 0.1, 1e-5
        yield "_batch_norm_no_update", x, *affine, bias, weight, 0.1, 1e-5
        yield "_native_batch_norm_legit_functional", x, *affine, bias, weight, True, 0.1, 1e-5
        yield "batch_norm", x, *affine, bias, weight, False, 0.1, 1e-5, False
    yield "_fused_rms_norm", x, [6], _r(6), 1e-5
    yield "_fused_rms_norm", x, [4, 6], None, 1e-5
    yield "_weight_norm_interface", _r(4, 3, 2), _r(4, 1, 1)
    yield "_weight_norm", _r(4, 3), _r(4, 1)
    yield "frobenius_norm", x, [1]
    for reduction in (0, 1, 2):
        yield "kl_div", _r(3, 4), _r(3, 4), reduction
        yield "nll_loss", _r(3, 4), torch.tensor([0, 1, 3]), None, reduction
    yield "nll_loss", _r(3, 4), torch.tensor([0, 1, 3]), _r(4)
    yield "native_dropout", x, 0.5, True
    yield "_fused_dropout", _meta(3, 4), 0.5


def _products() -> Iterator[tuple[Any, ...]]:
    a, b, c = _r(3, 4), _r(4, 5), _r(5)
    options: dict[str, Any]
    for options in ({}, {"use_gelu": True}, {"beta": 0}, {"beta": 2, "alpha": 3}):
        yield "_addmm_activation", c, a, b, options
    yield "_int_mm", torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 8, dtype=torch.int8)
    ends = torch.tensor([2, 5, 8], dtype=torch.int32)
    experts = _r(3, 16, 32, dtype=torch.bfloat16)
    yield "_grouped_mm", _r(8, 16, dtype=torch.bfloat16), experts, ends
    yield "_grouped_mm", _r(2, 16, dtype=torch.bfloat16), experts, torch.tensor([1, 2, 2], dtype=torch.int32)
    yield (
        "_weight_int8pack_mm",
        _r(3, 32, dtype=torch.bfloat16),
        torch.ones(16, 32, dtype=torch.int8),
        _r(16, dtype=torch.bfloat16),
    )
    x, weight, bias = _r(2, 4, 6), _r(6, 4, 3), _r(6)
    settings = ([1], [1], [1], False, [0], 1, False, False, False, True)
    yield "_convolution", x, weight, bias, *settings
    yield "_convolution", x, weight, None, *settings
    yield "_euclidean_dist", a, _r(5, 4)
    yield "conv_tbc", _r(6, 2, 4), _r(3, 4, 5), c
    image, filters = _r(1, 4, 6, 5), _r(8, 4, 3, 2)
    for more in (None, _r(8)):
        yield "_slow_conv2d_forward", image, filters, [3, 2], more, [1, 1], [0, 0]
        yield "thnn_conv2d", image, filters, [3, 2], more
        yield "slow_conv_dilated2d", image, filters, [3, 2], more, [1, 1], [0, 0], [2, 2]
        yield "slow_conv_transpose2d", image, _r(4, 8, 3, 2), [3, 2], more, [2, 2]
        yield "mkldnn_convolution", image, filters, more, [0, 0], [1, 1], [1, 1], 1
    space, cubes = _r(1, 2, 4, 4, 4), _r(3, 2, 2, 2, 2)
    yield "slow_conv3d_forward", space, cubes, [2, 2, 2], None, [1] * 3, [0] * 3
    yield "slow_conv_dilated3d", space, cubes, [2, 2, 2], _r(3)
    yield "slow_conv_transpose3d", space, _r(2, 3, 2, 2, 2), [2, 2, 2]
    yield "_transform_bias_rescale_qkv", _r(2, 3, 24), _r(24), 2


def _attention() -> Iterator[tuple[Any, ...]]:
    q, k, v = _r(2, 3, 4, 8), _r(2, 3, 5, 8), _r(2, 3, 5, 8)
    for mask in (None, _r(1, 1, 4, 5), _r(1, 1, 4, 5) > 0):
        yield "_scaled_dot_product_attention_math", q, k, v, mask
        yield "_scaled_dot_product_flash_attention_for_cpu", q, k, v, 0.0, False, {"attn_mask": mask}
    mq, mk = _meta(2, 3, 64, 32), _meta(2, 3, 96, 32)
    yield "_scaled_dot_product_flash_attention", mq, mk, mk, 0.0, True
    yield "_scaled_dot_product_efficient_attention", mq, mk, mk, None, True
    yield "_scaled_dot_product_efficient_attention", mq, mk, mk, _meta(2, 3, 64, 96), False
    yield "_scaled_dot_product_cudnn_attention", mq, mk, mk, None, True
    yield "_scaled_dot_product_attention_math_for_mps", _meta(2, 3, 4, 8), _meta(2, 3, 5, 8), _meta(2, 3, 5, 8)
    yield "_scaled_dot_product_fused_attention_overrideable", mq, mk, mk
    by_token, keys = _meta(2, 64, 3, 32), _meta(2, 96, 3, 32)
    yield "_flash_attention_forward", by_token, keys, keys, None, None, 64, 96, 0.0, True, False
    yield "_efficient_attention_forward", by_token, keys, keys, None, None, None, None, None, 0.0, 1


def _images() -> Iterator[tuple[Any, ...]]:
    image, places = _r(1, 2, 12, 10), _r(1, 3, 2, 2)
    for name in ("bicubic2d", "lanczos2d", "bilinear2d"):
        yield f"_upsample_{name}_aa", image, [6, 7], False
        yield f"_upsample_{name}_aa", image, [20, 3], False
    for kind in ("upsample_nearest", "_upsample_nearest_exact"):
        yield f"{kind}2d", image, [5, 7]
        yield f"{kind}3d", _r(1, 2, 3, 4, 2), [2, 5, 3]
    for kind in ("reflection", "replication"):
        yield f"{kind}_pad2d", image, [1, 2, 0, 1]
        yield f"{kind}_pad3d", _r(1, 2, 3, 4, 5), [1, 2, 0, 1, 1, 1]
    for mode in (0, 1, 2):
        for aligned in (False, True):
            yield "grid_sampler", image, places, mode, 0, aligned
            yield "_grid_sampler_2d_cpu_fallback", image, places, mode, 2, aligned
    yield "max_pool1d", _r(1, 2, 6), [2]
    yield "max_pool1d_with_indices", _r(1, 2, 6), [2]
    yield "max_pool2d", image, [2, 2]
    yield "max_pool3d", _r(1, 2, 4, 4, 4), [2, 2, 2]
    yield "col2im", _r(1, 8, 12), [4, 5], [2, 2], [1, 1], [0, 0], [1, 1]


def _recurrent() -> Iterator[tuple[Any, ...]]:
    x, step, hidden, cell = _r(3, 2, 3), _r(2, 3), _r(2, 4), _r(2, 4)
    for kind, gates in (("lstm", 4), ("rnn_tanh", 1), ("rnn_relu", 1)):
        flat = (_r(gates * 4, 3), _r(gates * 4, 4), _r(gates * 4), _r(gates * 4))
        state = [_r(1, 2, 4), _r(1, 2, 4)] if kind == "lstm" else _r(1, 2, 4)
        yield kind, x, state, list(flat), True, 1, 0.0, False, False, False
        yield kind, x, state, list(flat[:2]), False, 1, 0.0, False, False, False
        yield f"{kind}_cell", step, [hidden, cell] if kind == "lstm" else hidden, *flat
        yield f"{kind}_cell", step, [hidden, cell] if kind == "lstm" else hidden, *flat[:2]
    sizes, no = [2, 2, 2], False
    weights = (_r(16, 3), _r(16, 4), _r(16), _r(16))
    yield "mkldnn_rnn_layer", x, *weights, hidden[None], cell[None], no, sizes, 2, 4, 1, True, no, no, no


def _sequences() -> Iterator[tuple[Any, ...]]:
    yield "_pack_padded_sequence", _r(4, 2, 3), torch.tensor([4, 2]), False
    yield "_pad_packed_sequence", _r(6, 3), torch.tensor([2, 2, 1, 1]), False, 0.0, 4
    for mode in (0, 1, 2):
        bags = (_r(10, 4), torch.tensor([1, 1, 7, 3]), torch.tensor([0, 1]), False, mode)
        yield "_embedding_bag", *bags
        yield "embedding_bag", *bags
    yield "_embedding_bag", *bags[:4], 0, False, _r(4)
