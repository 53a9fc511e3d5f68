"""How many layers of each kind a stack has, as a formula of the config.

A stack (a ModuleList whose length is a depth of the config) may hold one kind of layer or several: dense before
sparse ones, every sixth attending globally. The model is built again some layers deeper, on the meta device, and its
layers are compared: the count of each kind is then a function of the depth, for which a formula over the depth and the
config's other small integers is sought, and a formula that names such a field is tried at another value of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from opscope_schemas.formula import Formula

from opscope_tools.trace.protocol import ModelSpec
from opscope_tools.trace.variables import is_depth
from opscope_tools.trace.worker import configs, fields, patches
from opscope_tools.trace.worker.alike import signature
from opscope_tools.trace.worker.sharing import SharedLayerError, shared

#: layers beyond the configured ones that are looked at for a pattern: periods and leading dense layers are shorter
_FURTHER = 12
#: formulas are sought over fields up to this value
_LARGEST = 64

Counts = tuple[int, ...]
#: a layer's signature, and what each list of the config that is as long as its own says of it
Layer = tuple[Any, dict[str, str]]


@dataclass
class Stack:
    """A list of layers: the depth variable it follows, its layers' kinds as configured and further on."""

    variable: str
    length: int
    kinds: list[Any]
    #: the config's lists that say something of each layer
    lists: frozenset[str] = frozenset()
    _found: dict[Any, Formula | None] = field(default_factory=dict)


class Stacks:
    """The stacks of one model class under one config."""

    def __init__(self, model_class: Any, config_class: Any, spec: ModelSpec, *, share: bool = True) -> None:
        self._model_class, self._config_class, self._spec = model_class, config_class, spec
        self._share = share
        self._stacks: dict[str, Stack] = {}
        #: whether the lists that follow a depth are known: the deeper model could be built
        self.compared = False
        config = configs.make_config(config_class, spec)
        self._names = fields.sizes(config)
        self._fields = {
            name: value
            for name, value in fields.small_fields(config).items()
            if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LARGEST
        }
        self._depths = {
            n: v for n in self._names if is_depth(n) and type(v := fields.at(config, self._names[n])) is int
        }
        if self._depths and hasattr(model_class, "_from_config"):
            self._compare()

    # ---- looking

    def _lists(self, changes: dict[str, int]) -> dict[str, list[Layer]] | None:
        """The layers of every list, by path, under some changes; None where the config does not take them."""
        overrides = {**self._spec.overrides, **{self._names.get(n, n): v for n, v in changes.items()}}
        try:
            config = configs.make_config(self._config_class, self._spec.model_copy(update={"overrides": overrides}))
            model = self._built(config)
        except Exception:  # a config that does not stretch: its layers are counted, not generalised
            return None
        lists = [
            (f"{i}.{name}", v)
            for i, part in enumerate(fields.all_parts(config))
            for name, v in vars(part).items()
            if isinstance(v, list | tuple)
        ]
        found: dict[str, list[Layer]] = {}
        known: dict[int, Any] = {}
        for path, module in model.named_modules():
            if isinstance(module, torch.nn.ModuleList) and len(module):
                marks = [(name, v) for name, v in lists if len(v) == len(module)]
                found[path] = [
                    (signature(child, known), {name: str(v[i]) for name, v in marks}) for i, child in enumerate(module)
                ]
        return found

    def _built(self, config: Any) -> Any:
        """The model on the meta device, alike layers built once where that holds."""
        with torch.device("meta"), patches.no_initialisation():
            if self._share:
                with contextlib.suppress(SharedLayerError), shared(self._model_class, config):
                    return self._model_class._from_config(config)
            return self._model_class._from_config(config)

    def _compare(self) -> None:
        steps = {name: _FURTHER + i for i, name in enumerate(self._depths)}
        base = self._lists({})
        further = self._lists({n: v + steps[n] for n, v in self._depths.items()})
        groups = [self._depths]
        self.compared = base is not None and further is not None
        if further is None:  # not all at once: one by one
            groups = [{n: v} for n, v in self._depths.items()]
        for group in groups:
            deeper = further if further is not None else self._lists({n: v + steps[n] for n, v in group.items()})
            for path, layers in (base or {}).items():
                beyond = (deeper or {}).get(path, [])
                variable = next(
                    (n for n in group if len(beyond) - len(layers) == steps[n] and len(layers) == self._depths[n]), ""
                )
                if not variable:
                    continue
                names = (
                    layers[0][1].keys() & beyond[0][1].keys()
                )  # a list that stays as it is only happened to be as long
                kinds, reached = _kinds(layers, names), _kinds(beyond, names)
                if reached[: len(kinds)] == kinds:
                    self._stacks[path] = Stack(variable, len(kinds), reached, frozenset(names))

    # ---- counting

    def fields(self) -> dict[str, int]:
        """The config's small integers that the counts found so far name."""
        used = {
            n for stack in self._stacks.values() for f in stack._found.values() if f is not None for n in f.variables()
        }
        return {name: value for name, value in self._fields.items() if name in used}

    def variable(self, path: str) -> str:
        """The depth variable that the list at `path` follows; '' where none is known."""
        return self._stacks[path].variable if path in self._stacks else ""

    def count(self, path: str, members: frozenset[int]) -> Formula | None:
        """How many layers are alike those at the indices `members`, as a formula; None where no pattern shows."""
        stack = self._stacks.get(path)
        if stack is None:
            return None
        chosen = {stack.kinds[i] for i in members}
        if not set(stack.kinds) <= set(stack.kinds[: stack.length]):
            return None  # further down stands a kind that does not run at this depth
        if {i for i in range(stack.length) if stack.kinds[i] in chosen} != members:
            return self._tail(stack, members)  # calls differ where modules do not
        if members not in stack._found:
            stack._found[members] = self._formula(path, stack, chosen)
        return stack._found[members]

    @staticmethod
    def _tail(stack: Stack, members: frozenset[int]) -> Formula | None:
        """Of layers that are all alike, the first few may be called otherwise (a residual changes its dtype after them).

        From where two calls in a row are alike all later ones are: each gets what the one before hands on.
        """
        first = min(members)
        if (
            len(set(stack.kinds)) > 1
            or first > 2
            or members not in (frozenset(range(first, stack.length)), frozenset({first}))
        ):
            return None
        if len(members) > 1:
            return Formula.var(stack.variable) - first
        return Formula.const(1) if first < stack.length - 2 else None

    def _formula(self, path: str, stack: Stack, chosen: set[Any]) -> Formula | None:
        running: list[int] = [0]
        for kind in stack.kinds:
            running.append(running[-1] + (kind in chosen))
        counts = tuple(running[1:])
        depth = Formula.var(stack.variable)
        if counts == tuple(range(1, len(counts) + 1)):
            return depth
        for name, make, expected in self._candidates(depth, counts):
            if name.isdigit() or self._follows(path, stack, chosen, name, expected):
                return make
        return None

    def _candidates(self, depth: Formula, counts: Counts) -> Iterator[tuple[str, Formula, Callable[[int, int], int]]]:
        """Formulas that give `counts` at every depth from 1 on: those over fields first, then over plain numbers."""
        known = {
            **{n: v for n, v in self._fields.items() if n not in self._depths},
            **{str(k): k for k in range(1, 25)},
        }
        for name, value in known.items():
            k = Formula.const(int(name)) if name.isdigit() else Formula.var(name)
            for formula, number in _shapes(depth, k):
                if all(number(d, value) == c for d, c in enumerate(counts, 1)):
                    yield name, formula, number

    def _follows(
        self, path: str, stack: Stack, chosen: set[Any], name: str, expected: Callable[[int, int], int]
    ) -> bool:
        """Whether the count still holds where the field `name` is one more."""
        other = self._fields[name] + 1
        seen = self._lists({name: other, stack.variable: len(stack.kinds)})
        layers = (seen or {}).get(path)
        if layers is None:
            return False
        return sum(kind in chosen for kind in _kinds(layers, stack.lists)) == expected(len(stack.kinds), other)


def _kinds(layers: list[Layer], names: Iterable[str]) -> list[Any]:
    """What tells the layers apart: their signatures and what the lists of these names say of them."""
    return [(kind, *(marks.get(name) for name in sorted(names))) for kind, marks in layers]


def _shapes(n: Formula, k: Formula) -> list[tuple[Formula, Callable[[int, int], int]]]:
    """Counts that stacks have: the first k, every k-th, and what these leave."""
    return [
        (Formula.minimum(n, k), lambda d, v: min(d, v)),
        (n - Formula.minimum(n, k), lambda d, v: d - min(d, v)),
        (n // k, lambda d, v: d // v),
        (n - n // k, lambda d, v: d - d // v),
        (n.ceildiv(k), lambda d, v: -(-d // v)),
        (n - n.ceildiv(k), lambda d, v: d + (-d // v)),
    ]


_known: dict[tuple[Any, str], Stacks] = {}


def stacks_of(model_class: Any, config_class: Any, spec: ModelSpec) -> Stacks:
    """The stacks, from memory where the same were asked for."""
    key = (model_class, spec.model_dump_json())
    if key not in _known:
        if len(_known) > 16:
            _known.clear()
        _known[key] = Stacks(model_class, config_class, spec)
    return _known[key]
