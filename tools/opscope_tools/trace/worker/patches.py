"""What keeps sizes symbolic while a model is built and run, applied for the length of one trace.

Each patch names what it stands in for: initialisers that take roots of sizes, `int()` on symbolic floats, norms that
want a tuple. `Rewriter` answers a few functions itself because their own code would turn sizes into numbers
(`torch.tensor(size)`, `torch.histc(bins=size)`) or split a fused operator (`scaled_dot_product_attention`).
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import linecache
import math
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from opscope_schemas.notes import UNPADDED
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from opscope_tools.trace.worker.loops import joined, symbolic_range
from opscope_tools.trace.worker.recorder import active_recorder
from opscope_tools.trace.worker.training import attention, result_of


class _IntMeta(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.int | torch.SymInt)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, builtins.int)


class SymbolicInt(builtins.int, metaclass=_IntMeta):
    """`int` for model code: rounds a symbolic float to a symbolic integer where the builtin would make it a number."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], torch.SymInt | torch.SymFloat):
            return torch.sym_int(args[0])
        return builtins.int(*args, **kwargs)


class _FloatMeta(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.float | torch.SymFloat)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, builtins.float)


class SymbolicFloat(builtins.float, metaclass=_FloatMeta):
    """`float` for model code: a symbolic number stays one."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], torch.SymInt | torch.SymFloat):
            return torch.sym_float(args[0])
        return builtins.float(*args, **kwargs)


def _symbolic(value: object) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat)


def _function(name: str, value: Any) -> Any:
    """A function of a symbolic number: torch's own where it has one, else a number that nothing may depend on.

    A binary logarithm becomes a number: what takes it, counts with it.
    """
    if name == "log2":
        return math.log2(value)
    mine = torch.sym_sqrt if name == "sqrt" else vars(torch).get(f"_sym_{name}")
    if mine is not None:
        return mine(torch.sym_float(value))
    return value.node.shape_env.create_unbacked_symfloat()


class SymbolicMath(ModuleType):
    """The module `math` for model code: functions of a symbolic number give one, where the real ones round it to a number."""

    def __getattr__(self, name: str) -> Any:
        real = getattr(math, name)
        if not callable(real) or name in ("ceil", "floor", "trunc"):  # these ask the number itself
            return real

        def function(*args: Any, **kwargs: Any) -> Any:
            if name == "prod":
                return functools.reduce(lambda a, b: a * b, args[0], kwargs.get("start", 1))
            if not any(map(_symbolic, args)):
                return real(*args, **kwargs)
            if name == "pow":
                return args[0] ** args[1]
            return _function(name, next(filter(_symbolic, args)))

        return function


_DTYPE = re.compile(r"\btorch\.\w+\(.*\bdtype=(int|float)\b")
#: tensors of up to this many known values keep them on the way: grids of patches, sizes of images
KNOWN_VALUES = 1 << 16
_UTILITIES = (
    "modeling_rope_utils", "modeling_utils", "modeling_layers", "configuration_utils",
    "vision_utils", "pytorch_utils",
)  # fmt: skip


@functools.lru_cache(maxsize=512)
def _as_dtypes(file: str) -> frozenset[str]:
    """The builtins that a file gives to torch as the name of a dtype, which takes no stand-in for them."""
    return frozenset(_DTYPE.findall("".join(linecache.getlines(file))))


@contextlib.contextmanager
def symbolic_numbers(packages: tuple[str, ...]) -> Iterator[None]:
    """Give the modules of `packages` (and transformers' shared modelling code) the `int`, `float` and `math` above."""
    wanted = [f"transformers.{name}" for name in _UTILITIES]
    chosen = [
        module
        for name, module in list(sys.modules.items())
        if module is not None and (name in wanted or any(name == p or name.startswith(p + ".") for p in packages))
    ]
    saved: list[tuple[dict[str, Any], str, Any]] = []
    for module in chosen:
        names = vars(module)
        dtypes = _as_dtypes(getattr(module, "__file__", None) or "")
        given = {"int": SymbolicInt, "float": SymbolicFloat, "range": symbolic_range, "math": SymbolicMath("math")}
        for name, mine in given.items():
            if (
                name not in dtypes
                and (name == "math") == (names.get(name) is math)
                and (name == "math" or name not in names)
            ):
                saved.append((names, name, names.get(name)))
                names[name] = mine
    try:
        with _as_values():
            yield
    finally:
        for names, name, value in saved:
            if value is None:
                names.pop(name, None)
            else:
                names[name] = value


@contextlib.contextmanager
def _as_values() -> Iterator[None]:
    """Symbols behave as the numbers they stand for where a config is copied, checked or written down."""
    from huggingface_hub import dataclasses as strict
    from torch._subclasses import fake_tensor
    from transformers import pytorch_utils

    saved: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        saved.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, value)

    for kind in (torch.SymInt, torch.SymFloat, torch.SymBool):
        put(kind, "__deepcopy__", lambda self, _: self)
    for name in ("log", "exp", "sqrt", "sin", "cos"):  # what numpy asks of a number that it does not know
        for kind in (torch.SymInt, torch.SymFloat):
            put(kind, name, lambda self, name=name: _function(name, self))
    put(fake_tensor, "CONSTANT_NUMEL_LIMIT", KNOWN_VALUES)
    put(pytorch_utils, "is_torchdynamo_compiling", lambda: True)  # symbols have no hash for its cached methods
    check = getattr(strict, "type_validator", None)
    if check is not None:
        put(strict, "type_validator", lambda name, value, kind: None if _symbolic(value) else check(name, value, kind))
    try:
        yield
    finally:
        for owner, name, value in reversed(saved):
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def _nothing(tensor: Any = None, *_: Any, **__: Any) -> Any:
    return tensor


class _Values:
    """A small tensor of settings whose values a constructor looks at: it has data, outside of the fake mode."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    @classmethod
    def of(cls, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return cls(value)
        return type(value)(map(cls.of, value)) if isinstance(value, list | tuple) else value

    def __iter__(self) -> Iterator[Any]:
        with unset_fake_temporarily():
            return iter([_Values.of(item) for item in self._tensor])

    def __getitem__(self, key: Any) -> Any:
        with unset_fake_temporarily():
            return _Values.of(self._tensor[key])

    def __len__(self) -> int:
        return len(self._tensor)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tensor, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            with unset_fake_temporarily():
                return _Values.of(found(*args, **kwargs))

        return call if callable(found) else found


def _settings(factory: Callable[..., Any]) -> Callable[..., Any]:
    """A factory that constructors make tables of settings with (rates of dropped paths), explicitly on the CPU."""

    def made(*args: Any, **kwargs: Any) -> Any:
        if str(kwargs.get("device")) != "cpu" or any(map(_symbolic, [*args, *kwargs.values()])):
            return factory(*args, **kwargs)
        with unset_fake_temporarily():
            return _Values(factory(*args, **kwargs))

    return made


@functools.cache
def _fills() -> dict[int, object]:
    """The functions that fill tensors, by identity."""
    named = vars(torch.nn.init).items()
    return {id(value): value for name, value in named if name.endswith("_") and not name.startswith("_")}


#: identity of a module -> the module, how many names it had when it was looked through, and those that are functions which fill
_LOOKED_THROUGH: dict[int, tuple[object, int, list[str]]] = {}


def _fills_in(module: object) -> list[str]:
    """The names by which a module holds functions that fill tensors; it is looked through again once it has more names or fewer."""
    held = getattr(module, "__dict__", {})
    _, size, names = _LOOKED_THROUGH.get(id(module), (module, -1, []))
    fills = _fills()
    if size != len(held):
        names = [name for name, value in [*held.items()] if id(value) in fills]
        _LOOKED_THROUGH[id(module)] = module, len(held), names
    return [name for name in names if id(held.get(name)) in fills]  # since then they may be bound to something else


@contextlib.contextmanager
def no_initialisation() -> Iterator[None]:
    """Weights keep no values here: initialisers, which compute with sizes, do nothing."""
    saved: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        saved.append((owner, name, vars(owner).get(name, getattr(owner, name))))
        setattr(owner, name, value)

    for module in list(sys.modules.values()):  # others hold them by name
        for name in _fills_in(module):
            put(module, name, _nothing)
    for kind in vars(torch.nn.modules).values():
        if isinstance(kind, type) and "reset_parameters" in vars(kind):
            put(kind, "reset_parameters", _nothing)
    put(torch.nn.modules.conv._ConvNd, "reset_parameters", _nothing)
    import transformers

    put(transformers.PreTrainedModel, "initialize_weights", _nothing)
    put(transformers.GenerationConfig, "from_model_config", lambda *_, **__: transformers.GenerationConfig())
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
def conversions() -> Iterator[None]:
    """A module whose forward converts its weights swaps them for others. torch refuses that where something refers to them weakly,
    which fake tensors are referred to by; nothing asks for a weight by that."""
    swap = torch.utils.swap_tensors

    def swapped(one: Any, other: Any) -> None:
        if not (isinstance(one, FakeTensor) and isinstance(other, FakeTensor)):
            swap(one, other)
            return
        vars_of = one.__dict__, other.__dict__
        other.__dict__, one.__dict__ = vars_of
        torch._C._swap_tensor_impl(one, other)

    torch.utils.swap_tensors = swapped
    try:
        yield
    finally:
        torch.utils.swap_tensors = swap


@contextlib.contextmanager
def settings_with_values() -> Iterator[None]:
    """Constructors may look at the tables of settings that they make."""
    saved = torch.linspace
    torch.linspace = _settings(saved)
    try:
        yield
    finally:
        torch.linspace = saved


@contextlib.contextmanager
def as_in_inference() -> Iterator[None]:
    """What transformers does otherwise while it thinks it is traced: it keeps masks that mask nothing, and looks for no padding."""
    from transformers import masking_utils, modeling_utils

    # transformers 4 does not take fake tensors for a trace
    saved = [(m, m.is_tracing) for m in (masking_utils, modeling_utils) if hasattr(m, "is_tracing")]
    for module, _ in saved:
        module.is_tracing = lambda *_: False
    try:
        yield
    finally:
        for module, real in saved:
            module.is_tracing = real


def _of_one(size: Any) -> bool:
    return type(size) is int and size == 1


def _viewed(rule: Callable[..., Any], mode: Any, operator: Any, tensor: Any, *shape: Any, **options: Any) -> Any:
    """A view by torch's rule for fake tensors, where dimensions of one have the strides that a view of data gives them.

    From the right, as ATen's computeStride: the last keeps the tensor's last stride, others go over all that stands right of them.
    """
    view = rule(mode, operator, tensor, *shape, **options)
    sizes, strides = view.shape, list(view.stride())
    if not any(map(_of_one, sizes)) or any(type(size) is int and size == 0 for size in sizes):
        return view
    for dim in reversed(range(len(sizes))):
        if not _of_one(sizes[dim]):
            continue
        if dim + 1 < len(sizes):
            strides[dim] = sizes[dim + 1] * strides[dim + 1]
        else:
            strides[dim] = tensor.stride(-1) if tensor.dim() else 1
    return view.as_strided(sizes, strides)


@contextlib.contextmanager
def strides_of_views() -> Iterator[None]:
    """Views have the strides of real ones, by which torch chooses layouts and so kernels: of a convolution, say.

    Where torch has no rule of its own for views of fake tensors, they go through ATen's.
    """
    rules, views = (
        fake_impls.op_implementations_dict,
        (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default),
    )
    saved = {operator: rules[operator] for operator in views if operator in rules}
    rules.update({operator: functools.partial(_viewed, rule) for operator, rule in saved.items()})
    try:
        yield
    finally:
        rules.update(saved)


#: ways of resampling that are one operator each
_RESAMPLED = ("nearest", "linear", "bilinear", "bicubic", "trilinear")


def _asked() -> None:
    """The model asks a tensor for its values."""
    if (recorder := active_recorder()) is not None:
        recorder.reads_value()


class Rewriter(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """Answers a few functions itself; `report(operator, inputs, outputs, arguments)` hears of each.

    `assumed` collects in words what was assumed of data that a trace does not have.
    """

    def __init__(
        self, report: Callable[[str, list[Any], list[Any], dict[str, Any]], None], *, real: bool = False
    ) -> None:
        super().__init__()
        self._report = report
        #: whether tensors have values, which answers then must have too
        self._real = real
        self.assumed: dict[str, None] = {}
        self._table: dict[Any, Callable[..., Any]] = {
            torch.nn.functional.scaled_dot_product_attention: self._sdpa,
            torch.tensor: self._tensor,
            torch.histc: self._histc,
            torch.nn.functional.pad: self._pad,
            torch.stack: functools.partial(self._joined, torch.stack, "aten.stack"),
            torch.cat: functools.partial(self._joined, torch.cat, "aten.cat"),
            torch.concat: functools.partial(self._joined, torch.cat, "aten.cat"),
            torch.baddbmm: self._baddbmm,
            torch.nn.functional.group_norm: self._group_norm,
            torch.arange: self._arange,
            torch.linalg.solve_triangular: self._solve_triangular,
            torch.polar: self._polar,
            torch.masked_scatter: self._masked_scatter,
            torch.Tensor.masked_scatter: self._masked_scatter,
            torch.nn.functional.interpolate: self._interpolate,
            torch.Tensor.baddbmm: self._baddbmm,
            torch.Tensor.__bool__: self._truth,
            torch.Tensor.__contains__: self._contains,
            torch.nn.functional.dropout: self._dropout,
            torch.Tensor.__getitem__: self._item,
            torch.nn.functional.one_hot: self._one_hot,
            torch.Tensor.unbind: self._unbind,
            torch.Tensor.__format__: self._format,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        handler = self._table.get(func)
        if kwargs and kwargs.get("dtype") is SymbolicInt:
            kwargs = {**kwargs, "dtype": torch.int64}  # model code that means the builtin
        if handler is None:
            return func(*args, **(kwargs or {}))
        return handler(*args, **(kwargs or {}))

    def _sdpa(
        self, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
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
        if not enable_gqa and query.shape[:-2] != key.shape[:-2]:  # no fused kernel takes heads that are broadcast
            if attn_mask is not None and attn_mask.dtype == torch.bool:  # the parts add their mask
                zero, never = (
                    torch.scalar_tensor(v, dtype=query.dtype, device=query.device) for v in (0.0, -torch.inf)
                )
                attn_mask = torch.where(attn_mask, zero, never)
            return torch.ops.aten._scaled_dot_product_attention_math(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale
            )[0]
        inputs = [query, key, value] + ([attn_mask] if attn_mask is not None else [])
        if self._real:
            with _disable_current_modes():
                out = torch.nn.functional.scaled_dot_product_attention(
                    query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
                ).contiguous()
        else:
            out = result_of(query, value)
        arguments = {"causal": bool(is_causal), "gqa": bool(enable_gqa), "dropout": dropout_p > 0}
        self._report("opscope.sdpa", inputs, [out], arguments)
        return attention(self._report, arguments, out, inputs)

    def _dropout(self, tensor: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        """The fused operator, as a GPU runs it."""
        if not training or not 0 < p < 1:
            return torch.nn.functional.dropout(tensor, p, training, inplace)
        dropped = torch.native_dropout(tensor, p, True)[0]
        return tensor.copy_(dropped) if inplace else dropped

    def _item(self, tensor: Any, index: Any) -> Any:
        """Slices and numbers of a tensor with a gradient: what takes all of a dimension is no operator, whose gradient would copy.

        torch leaves such a slice out where sizes are numbers.
        """
        places = index if isinstance(index, tuple) else (index,)
        plain = all(
            item is None or item is ... or isinstance(item, slice | torch.SymInt) or type(item) is int
            for item in places
        )
        if not (tensor.requires_grad and torch.is_grad_enabled() and plain and any(map(_symbolic, tensor.shape))):
            return torch.Tensor.__getitem__(tensor, index)
        named, dim, found = sum(item is not None and item is not ... for item in places), 0, tensor
        for item in places:
            if item is ...:
                dim += tensor.dim() - named
            elif item is None:
                found, dim = found.unsqueeze(dim), dim + 1
            elif not isinstance(item, slice):
                found = found.select(dim, item)
            else:
                whole = item.start in (None, 0) and item.step in (None, 1)
                if not (whole and (item.stop is None or bool(found.shape[dim] <= item.stop))):
                    found = torch.ops.aten.slice.Tensor(found, dim, item.start, item.stop, item.step or 1)
                dim += 1
        return torch.ops.aten.alias.default(found) if found is tensor else found

    def _truth(self, tensor: Any) -> bool:
        """Whether a mask is all ones decides the path: it is, where nobody padded. Other data has no answer here."""
        file = sys._getframe(2).f_code.co_filename
        if file.endswith(("transformers/masking_utils.py", "transformers/modeling_attn_mask_utils.py")):
            _asked()
            self.assumed[UNPADDED] = None
            return True
        if file.endswith("torch/__init__.py") and sys._getframe(2).f_code.co_name == "_check_tensor_all_with":
            _asked()
            self.assumed["The checks that a model makes of its inputs' values hold."] = None
            return True
        return bool(torch.Tensor.__bool__(tensor))

    def _contains(self, tensor: Any, element: Any) -> bool:
        """Whether there is padding among token ids only decides whether to warn: it is looked for, and not found."""
        # above this: the mode, torch's own handing over, `__contains__`
        if sys._getframe(4).f_code.co_name != "warn_if_padding_and_no_attention_mask":
            return bool(torch.Tensor.__contains__(tensor, element))
        _asked()
        (element == tensor).any()
        return False

    def _tensor(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(data, torch.SymInt | torch.SymFloat):
            default = torch.int64 if isinstance(data, torch.SymInt) else torch.get_default_dtype()
            return torch.empty((), dtype=kwargs.get("dtype") or default, device=kwargs.get("device"))
        if isinstance(data, list | tuple):  # values that the model looks at are numbers
            data = tree_map(lambda item: builtins.int(item) if isinstance(item, torch.SymInt) else item, data)
        return torch.tensor(data, *args, **kwargs)

    def _solve_triangular(self, a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
        """The solution of a triangular system: of the right side's shape, its columns one after another in memory."""
        if not any(map(_symbolic, [*a.shape, *b.shape])):
            return torch.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unitriangular)
        out = b.new_empty((*b.shape[:-2], b.shape[-1], b.shape[-2])).transpose(-2, -1)
        self._report(
            "aten.linalg_solve_triangular",
            [a, b],
            [out],
            {"upper": upper, "left": left, "unitriangular": unitriangular},
        )
        return out

    def _masked_scatter(self, tensor: Any, mask: Any, source: Any) -> Any:
        """Features put in the place of placeholders: the operator expands to numbers what may be symbols."""
        if not any(map(_symbolic, [*tensor.shape, *mask.shape, *source.shape])):
            return torch.masked_scatter(tensor, mask, source)
        out = torch.empty_like(tensor)
        self._report("aten.masked_scatter", [tensor, mask, source], [out], {})
        return out

    def _polar(self, radius: Any, angle: Any, **options: Any) -> Any:
        """Complex numbers by radius and angle, whose shape function takes numbers only."""
        shape = torch.broadcast_shapes(radius.shape, angle.shape)
        if options or not any(map(_symbolic, shape)):
            return torch.polar(radius, angle, **options)
        out = radius.new_empty(shape, dtype=radius.dtype.to_complex())
        self._report("aten.polar", [radius, angle], [out], {})
        return out

    def _arange(self, *bounds: Any, **options: Any) -> Any:
        """A range: one between fractions is one of numbers, and one of numbers has values."""
        if not any(map(_symbolic, [*bounds, *options.values()])):
            out = torch.arange(*bounds, **options)
            if isinstance(out, FakeTensor) and 0 < out.numel() <= KNOWN_VALUES:
                with _disable_current_modes():  # no operator of the model's
                    out.constant = torch.arange(*bounds, **options)
                out.fake_mode.fake_tensor_converter.add_constant_storage_mapping(out)
            return out
        fractions = any(isinstance(b, torch.SymFloat) for b in bounds)
        if fractions:  # how many steps lie between them is a matter of rounding, which no formula tells
            bounds = tuple(float(b) if isinstance(b, torch.SymFloat) else b for b in bounds)
        return torch.arange(*bounds, **options)

    def _interpolate(
        self, tensor: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None,
        recompute_scale_factor: Any = None, antialias: bool = False,
    ) -> Any:  # fmt: skip
        """Resampling of or to symbolic sizes, of which the operators make numbers."""
        spatial = len(tensor.shape) - 2
        sizes = list(size) if isinstance(size, tuple | list) else [size] * spatial
        factors = list(scale_factor) if isinstance(scale_factor, tuple | list) else [scale_factor] * spatial
        if mode not in _RESAMPLED or not any(map(_symbolic, [*tensor.shape, *sizes, *factors])):
            return torch.nn.functional.interpolate(
                tensor, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
            )
        if size is None:
            sizes = [torch.sym_int(old * factor) for old, factor in zip(tensor.shape[2:], factors, strict=True)]
        out = tensor.new_empty((*tensor.shape[:2], *sizes))
        name = f"aten.{'_' if antialias else ''}upsample_{mode}{spatial}d{'_aa' if antialias else ''}"
        self._report(name, [tensor], [out], {"align_corners": align_corners})
        return out

    def _group_norm(self, tensor: Any, num_groups: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
        """The norm in a symbolic number of groups, of which the operator itself makes a number."""
        if not _symbolic(num_groups):
            return torch.nn.functional.group_norm(tensor, num_groups, weight, bias, eps)
        out = torch.empty_like(tensor)
        statistics = [tensor.new_empty((tensor.shape[0], num_groups)) for _ in range(2)]
        given = [t for t in (tensor, weight, bias) if t is not None]
        self._report("aten.native_group_norm", given, [out, *statistics], {"eps": eps})
        return out

    def _baddbmm(self, tensor: Any, batch1: Any, batch2: Any, **scale: Any) -> Any:
        """The batched product whose shape function takes numbers only."""
        if not any(map(_symbolic, [*batch1.shape, *batch2.shape])):
            return torch.baddbmm(tensor, batch1, batch2, **scale)
        out = batch1.new_empty((*batch1.shape[:2], batch2.shape[2]))
        self._report("aten.baddbmm", [tensor, batch1, batch2], [out], scale)
        return out

    def _pad(self, tensor: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
        """Padding of or by symbolic sizes, of which the operator itself makes numbers."""
        if mode != "constant" or not any(map(_symbolic, [*pad, *tensor.shape])):
            return torch.nn.functional.pad(tensor, pad, mode, value)
        shape = list(tensor.shape)
        for place in range(len(pad) // 2):
            shape[-1 - place] = shape[-1 - place] + pad[2 * place] + pad[2 * place + 1]
        layout = torch._prims_common.suggest_memory_format(tensor)
        out = torch.empty(shape, dtype=tensor.dtype, device=tensor.device, memory_format=layout)
        self._report("aten.constant_pad_nd", [tensor], [out], {})
        return out

    def _joined(self, function: Any, name: str, tensors: Any, dim: int = 0, **options: Any) -> Any:
        """What the steps of a folded loop appended to a list, stacked or put after another: of symbolic length."""
        dim, recorder = options.pop("axis", dim), active_recorder()
        made = None
        if recorder is not None and recorder.parts and not options and isinstance(tensors, list | tuple):
            made = joined(recorder, tensors, dim, new=function is torch.stack)
        if made is None:
            return function(tensors, dim, **options)
        out, parts = made
        self._report(name, parts, [out], {"dim": dim})
        return out

    def _one_hot(self, tensor: Any, num_classes: Any = -1) -> Any:
        out = torch.nn.functional.one_hot(tensor, num_classes)
        if (recorder := active_recorder()) is not None:
            recorder.routing.one_hot(tensor, out)
        return out

    def _unbind(self, tensor: Any, dim: int = 0) -> Any:
        """The rows of a tensor; of one that holds the experts which were met, a step that stands for all."""
        recorder = active_recorder()
        steps = recorder.routing.steps(tensor) if recorder is not None and dim == 0 else None
        return torch.Tensor.unbind(tensor, dim) if steps is None else steps

    def _format(self, tensor: Any, spec: str) -> str:
        """A known number as text, as a tensor with values gives it: part of a module's name, say."""
        known = getattr(tensor, "constant", None) if tensor.dim() == 0 else None
        if tensor.dim() == 0:
            _asked()
        if known is None:
            return str(torch.Tensor.__format__(tensor, spec))
        with _disable_current_modes():
            return format(known.item(), spec)

    def _histc(self, tensor: Any, bins: Any = 100, **given: Any) -> Any:
        if self._real:
            with _disable_current_modes():
                out = torch.histc(tensor, bins, **given)
        else:
            out = tensor.new_empty((bins,))
        self._report("aten.histc", [tensor], [out], {})
        return out
