"""Layers that are built alike are built once, so that building does not grow with depth.

While `shared` holds, a layer's constructor is handed a stand-in for its index that notes every use, and reads of the
config's lists by it. A later layer whose constructor takes the same arguments, and whose index would answer every noted
use alike, would come out the same: it becomes a copy of the first one. A copy has its own settings but no children, and
neither runs nor lets anybody at them: the recorder folds it into the first, and where it does not, `SharedLayerError`
asks for a trace whose layers are all built. What a stand-in cannot hear of (state outside the arguments), the last
copy of each kind shows: it is built in truth as well, and compared.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
import transformers
from opscope_schemas.errors import OpscopeError, TraceError

from opscope_tools.trace.worker import fields
from opscope_tools.trace.worker.alike import FIRST, IDENTITY, INDEX, PLACES, signature
from opscope_tools.trace.worker.noting import PLAIN, Index, NotedList, NotedTuple, Use
from opscope_tools.trace.worker.surroundings import surroundings

#: transformers' base class of layers
_MARK = "GradientCheckpointingLayer"


class SharedLayerError(TraceError):
    """A layer is no copy of the one it was taken for, or is needed itself: every layer must be built."""


# ---- copies


class _Withheld(dict[str, Any]):
    """The children of a copy: to whoever walks the tree there are none, to whoever asks for one it is refused."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__()
        self._names = names

    def __contains__(self, name: object) -> bool:
        return _refuse() if name in self._names else False

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse()


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise SharedLayerError("A layer that was taken for a copy of another is needed itself.")


@dataclass
class Kind:
    """Layers that are built alike: the first, how it used its index, and the last that became a copy."""

    first: Any
    index: int | None
    uses: list[Use]
    #: own attributes that hold the index
    held: tuple[str, ...] = ()
    last: tuple[Any, Callable[[], Any], torch.dtype] | None = None
    shape: Any = None
    known: dict[int, Any] = field(default_factory=dict)

    def fits(self, index: int | None) -> bool:
        return (index is None) == (self.index is None) and (
            index is None or all(use.same_at(index) for use in self.uses)
        )

    def copy_to(self, module: Any, index: int | None, again: Callable[[], Any]) -> None:
        """Make `module`, fresh from its class, a copy."""
        if self.last is None:
            self.shape = signature(self.first, self.known)
        for name, value in vars(self.first).items():
            vars(module)[name] = value.copy() if isinstance(value, dict | set | list) else value
        vars(module).update(dict.fromkeys(self.held, index))
        vars(module)["_modules"] = _Withheld(frozenset(self.first._modules))
        vars(module).update({FIRST: self.first, INDEX: index, "forward": _refuse})
        self.last = (module, again, torch.get_default_dtype())

    def check(self) -> None:
        """Raise where the last copy is not what its constructor builds."""
        if self.last is None:
            return
        copy, again, dtype = self.last
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            real = again()
        finally:
            torch.set_default_dtype(before)
        if signature(real, self.known) != self.shape or any(vars(real).get(n) != vars(copy).get(n) for n in self.held):
            raise SharedLayerError(f"The last {type(real).__name__} is built otherwise than the first.")


def _settle(module: Any, index: Index) -> tuple[str, ...]:
    """Put numbers back where modules kept the index or what they computed from it; the module's own names for it.

    Raises where something else kept one: no copy could have its own there.
    """
    held: list[str] = []
    places: set[tuple[str, str]] = set()
    for path, part in module.named_modules():
        for name in [n for n, v in vars(part).items() if type(v) is Index]:
            place = name in IDENTITY and vars(part)[name] is index
            if place and part is module:
                held.append(name)
            if place:
                places.add((path, name))
            vars(part)[name] = index.value if place else vars(part)[name].settled()
    # each is known to its kin, to this loop and to the question; the index to the callers as well
    if any(sys.getrefcount(kin) > 3 for kin in index.kin if kin is not index):
        raise SharedLayerError(f"{type(module).__name__} keeps numbers that it computed from its index.")
    vars(module)[PLACES] = frozenset(places)
    return tuple(held)


# ---- constructors


@dataclass
class Sharing:
    """What was built so far, by class and arguments. `copies` counts the layers that were not built."""

    kinds: dict[Any, list[Kind]] = field(default_factory=dict)
    copies: int = 0
    #: inside a layer, and while copies are checked, everything is built
    _off: bool = False
    #: arguments whose identity is a key
    _alive: list[Any] = field(default_factory=list)

    def construct(self, module: Any, init: Callable[..., Any], given: inspect.BoundArguments, name: str) -> None:
        """Run `init`, or make `module` a copy of one that was built by it alike."""
        index = given.arguments.get(name)
        others = {k: v for k, v in given.arguments.items() if k != name}
        if self._off or type(index) not in (int, type(None)) or any(map(_holds_weights, others.values())):
            init(module, *given.args, **given.kwargs)
            return
        self._alive.extend(others.values())
        told, beside = tuple((k, _key(v), _fields(v)) for k, v in others.items()), surroundings(type(module))
        kinds = self.kinds.setdefault((type(module), told, beside), [])
        for kind in kinds:
            if kind.fits(index):
                kind.copy_to(module, index, functools.partial(_made, type(module), given))
                self.copies += 1
                return
        self._off = True
        try:
            made = _first(module, init, given, name, index)
            if surroundings(type(module)) == beside:  # what it changed, a copy would not
                kinds.append(made)
        finally:
            self._off = False

    def check(self) -> None:
        """Build the last copy of each kind in truth; raises `SharedLayerError` where it differs."""
        self._off = True
        for kinds in self.kinds.values():
            for kind in kinds:
                kind.check()


def _first(module: Any, init: Callable[..., Any], given: inspect.BoundArguments, name: str, index: int | None) -> Kind:
    """Build `module` with an eye on its index."""
    if index is None:
        init(module, *given.args, **given.kwargs)
        return Kind(module, None, [])
    noting = Index(index)
    given.arguments[name] = noting
    args, kwargs = given.args, given.kwargs
    given.arguments[name] = index
    references = sys.getrefcount(noting)
    init(module, *args, **kwargs)
    held = _settle(module, noting)
    if sys.getrefcount(noting) > references:
        raise SharedLayerError(f"{type(module).__name__} keeps its index in other places than its attributes.")
    return Kind(module, index, noting.uses, held)


def _made(kind: Any, given: inspect.BoundArguments) -> Any:
    return kind(*given.args, **given.kwargs)


def _holds_weights(value: Any) -> bool:
    """Whether an argument brings modules or weights along, which then belong to several layers."""
    kind = type(value)  # `isinstance` would ask a config for its class by way of its own, slow code
    if issubclass(kind, list | tuple):
        return any(map(_holds_weights, value))
    return issubclass(kind, torch.nn.Module | torch.Tensor)


def _key(value: Any) -> Any:
    """What two equal arguments share: plain values by type and value, symbols by expression, the rest by identity."""
    kind = type(value)
    if issubclass(kind, torch.SymInt | torch.SymFloat):
        return ("symbol", str(value.node.expr))
    return (kind, value) if issubclass(kind, PLAIN) else id(value)


def _fields(value: Any) -> Any:
    """A config's fields as they stand: a model may change one between two layers."""
    if not isinstance(value, fields.CONFIG_BASE):
        return None
    return tuple([(k, (type(v), v) if isinstance(v, PLAIN) else id(v)) for k, v in vars(value).items()])


# ---- applying


@functools.lru_cache(maxsize=4096)
def _parameters(function: Any) -> tuple[inspect.Signature, str]:
    """A constructor's signature, and which parameter is the layer's index."""
    found = inspect.signature(function)
    found = found.replace(parameters=list(found.parameters.values())[1:])  # without the module itself
    return found, next((n for n in found.parameters if n in IDENTITY), "")


def _wrapped(sharing: Sharing, init: Any) -> Any:
    accepted, name = _parameters(init)

    @functools.wraps(init)
    def constructor(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self).__init__ is not constructor:  # part of a subclass's constructor
            init(self, *args, **kwargs)
            return
        sharing.construct(self, init, accepted.bind(*args, **kwargs), name)

    return constructor


def _layers_of(owners: list[Any]) -> Iterator[Any]:
    """The classes beside these that are layers: those with an index, and those marked as layers."""
    names = {owner.__module__ for owner in owners}
    packages = {name.rpartition(".")[0] for name in names} - {""}
    found: dict[Any, None] = {}
    for name, module in list(sys.modules.items()):
        if module is not None and (name in names or name.rpartition(".")[0] in packages):
            for kind in vars(module).values():
                if isinstance(kind, type) and issubclass(kind, torch.nn.Module) and "__init__" in vars(kind):
                    found[kind] = None
    for kind in found:
        if _MARK in (base.__name__ for base in kind.__mro__) or _parameters(kind.__init__)[1]:
            yield kind


@contextlib.contextmanager
def shared(model_class: Any, config: Any, *, wanted: bool = True) -> Iterator[Sharing]:
    """Share layers among what is built within; on leaving, the last copies are checked and all is as before."""
    sharing = Sharing()
    if not wanted or not issubclass(model_class, transformers.PreTrainedModel):
        yield sharing
        return
    parts = fields.all_parts(config)
    saved: list[tuple[Any, Any]] = []
    lists: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for kind in _layers_of([model_class, *map(type, parts)]):
            saved.append((kind, kind.__init__))
            kind.__init__ = _wrapped(sharing, kind.__init__)
        for part in parts:
            for name, value in vars(part).items():
                if type(value) in (list, tuple):
                    lists.append((vars(part), name, value))
                    vars(part)[name] = NotedList(value) if isinstance(value, list) else NotedTuple(value)
        yield sharing
        sharing.check()
    except OpscopeError:
        raise
    except Exception as error:  # what ties weights by name, say, misses those of copies
        raise SharedLayerError(f"The model is not built where layers are copies: {error}") from error
    finally:
        for kind, init in saved:
            kind.__init__ = init
        for held, name, value in lists:
            held[name] = value


__all__ = ["SharedLayerError", "Sharing", "shared"]
