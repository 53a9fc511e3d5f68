"""How many layers of each kind a stack has, as a formula of the config.

A stack (a ModuleList whose length is a depth of the config) may hold one kind of layer or several: dense before
sparse ones, every sixth attending globally. The model is built again, on the meta device, deeper than any small number of
its config, and its layers are compared: the count of each kind is then a function of the depth. That a stack begins as a
deeper one does is not taken for granted: other depths are looked at (a config may make its last layer another one, or
want four at least), and that nothing outside of the layers takes a shape from their number. A formula over a field of
the config is taken only where that field is seen to move the layers as the formula says, below its value and above it;
else a plain number stands in it, and where that fits none either the count holds for the traced depth alone.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from opscope_schemas.formula import Formula

from opscope_tools.trace.protocol import ModelSpec
from opscope_tools.trace.variables import is_depth
from opscope_tools.trace.worker import configs, fields, patches
from opscope_tools.trace.worker.alike import OBJECTS, signature
from opscope_tools.trace.worker.sharing import SharedLayerError, shared

#: layers beyond the configured ones that are looked at for a pattern, at least
_FURTHER = 64
#: formulas are sought over fields up to this value, and a stack is looked at past it
_LARGEST = 96
#: depths from 1 on at which the lists of a config are looked at
_SHALLOW = 25
#: how many other values of a field are tried, and how many of these have to be seen to move the layers
_PROBES, _PROOFS = 6, 2

Counts = tuple[int, ...]
#: a layer's signature, and what each list of the config that is as long as its own says of it
Layer = tuple[Any, dict[str, str]]
#: name of a list of the config, with the number of the part that holds it -> what it holds
Lists = dict[str, list[str]]
#: in place of a stack's path: what of the model is in none
_OUTSIDE = ""


@dataclass
class Stack:
    """A list of layers: the depth variable it follows, its layers' kinds as configured and further on."""

    variable: str
    length: int
    kinds: list[Any]
    #: the config's lists that say something of each layer
    lists: frozenset[str] = frozenset()
    #: how many layers stand before one of a kind that does not run at the configured depth
    limit: int | None = None
    #: the depth below which its layers are others, or none can be built
    least: int = 1
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
        variables = {path.rpartition(".")[2]: name for name, path in reversed(self._names.items())}
        self._fields = {
            variables.get(name, name): value
            for name, value in fields.small_fields(config).items()
            if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LARGEST
        }
        self._seen: dict[tuple[tuple[str, int], ...], dict[str, list[Layer]] | None] = {}
        self._depths = {
            n: v for n in self._names if is_depth(n) and type(v := fields.at(config, self._names[n])) is int
        }
        if self._depths and hasattr(model_class, "_from_config"):
            self._compare()

    # ---- looking

    def _lists(self, changes: dict[str, int]) -> dict[str, list[Layer]] | None:
        """The layers of every list, by path, under some changes; None where the config does not take them."""
        key = tuple(sorted(changes.items()))
        if key not in self._seen:
            self._seen[key] = self._looked_at(changes)
        return self._seen[key]

    def _looked_at(self, changes: dict[str, int]) -> dict[str, list[Layer]] | None:
        overrides = {**self._spec.overrides, **{self._names.get(n, n): v for n, v in changes.items()}}
        try:
            config = configs.make_config(self._config_class, self._spec.model_copy(update={"overrides": overrides}))
            model = self._built(config)
        except Exception:  # a config that does not stretch: its layers are counted, not generalised
            return None
        lists = _lists_of(config)
        found: dict[str, list[Layer]] = {}
        known: dict[int, Any] = {OBJECTS: {}}
        for path, module in model.named_modules():
            if isinstance(module, torch.nn.ModuleList) and len(module):
                marks = [(name, v) for name, v in lists.items() if len(v) == len(module)]
                found[path] = [
                    (signature(child, known), {name: v[i] for name, v in marks}) for i, child in enumerate(module)
                ]
        held = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
        outside = [(n, tuple(t.shape)) for n, t in held if not any(n.startswith(f"{path}.") for path in found)]
        return {**found, _OUTSIDE: [(sorted(outside), {})]}

    def _built(self, config: Any) -> Any:
        """The model on the meta device, alike layers built once where that holds."""
        with torch.device("meta"), patches.no_initialisation():
            if self._share:
                with contextlib.suppress(SharedLayerError), shared(self._model_class, config):
                    return self._model_class._from_config(config)
            return self._model_class._from_config(config)

    def _compare(self) -> None:
        reach = max([v for n, v in self._fields.items() if n not in self._depths], default=0)
        steps = {name: max(_FURTHER, reach + 2 - v) + i for i, (name, v) in enumerate(self._depths.items())}
        base = self._lists({}) or {}
        lengths = {len(layers) for layers in base.values()}
        alone = {n: self._lists({n: v + steps[n]}) for n, v in self._depths.items() if v in lengths}
        if not alone or None in alone.values():  # not one by one: all at once
            further = self._lists({n: v + steps[n] for n, v in self._depths.items()})
            alone = {n: found if found is not None else further for n, found in alone.items()}
        self.compared = bool(base) and None not in alone.values()
        for name, deeper in alone.items():
            if (deeper or {}).get(_OUTSIDE) != base.get(_OUTSIDE):
                continue  # what is no layer has a shape that follows from how many there are
            for path, layers in base.items():
                beyond = (deeper or {}).get(path, [])
                if len(beyond) - len(layers) != steps[name] or len(layers) != self._depths[name]:
                    continue
                # a list that stays as it is only happened to be as long
                names = layers[0][1].keys() & beyond[0][1].keys()
                kinds, reached = _kinds(layers, names), _kinds(beyond, names)
                least = self._least(name, path, beyond, names)
                if reached[: len(kinds)] == kinds and least is not None:
                    last = next((i for i, kind in enumerate(reached) if kind not in kinds), None)
                    self._stacks[path] = Stack(name, len(kinds), reached[:last], frozenset(names), last, least)

    def _least(self, variable: str, path: str, layers: list[Layer], names: Iterable[str]) -> int | None:
        """The depth from which on every stack begins as the deepest does and has a layer of each kind that lists tell, since what runs
        outside of the layers, such as a mask for each kind, may follow them; None where it is none below the configured one."""
        here = self._depths[variable]
        broken = 0
        if names:
            shallow = (*range(1, min(_SHALLOW, len(layers))), here + 1)
            broken = max((d for d in shallow if not self._begins(variable, d, layers, names)), default=0)
        if broken < here - 1 and len(set(_kinds(layers, names))) > 1:
            near = [d for d in (here - 1, here + 1) if d > broken]
            found = [(self._lists({variable: d}) or {}).get(path, []) for d in near]
            whole = _kinds(layers, names)
            if any(_kinds(one, names) != whole[:d] for one, d in zip(found, near, strict=True)):
                return None
        said = [marks for _, *marks in _kinds(layers[:here], names)]
        each = max(map(said.index, said)) + 1
        return max(broken + 1, each) if broken < here else None

    def _begins(self, variable: str, depth: int, layers: list[Layer], names: Iterable[str]) -> bool:
        """Whether at that depth the config's lists are what the deepest one's begin with; it may refuse the depth."""
        overrides = {**self._spec.overrides, self._names.get(variable, variable): depth}
        try:
            config = configs.make_config(self._config_class, self._spec.model_copy(update={"overrides": overrides}))
        except Exception:
            return False
        held = _lists_of(config)
        return all(held.get(name) == [marks[name] for _, marks in layers[:depth]] for name in names)

    def leasts(self) -> dict[str, int]:
        """Depth variable -> the depth from which on the stacks that follow it are what the formulas say, where that is not 1."""
        found: dict[str, int] = {}
        for stack in self._stacks.values():
            found[stack.variable] = max(found.get(stack.variable, 1), stack.least)
        return {name: least for name, least in found.items() if least > 1}

    def limits(self) -> dict[str, int]:
        """Depth variable -> the layers beyond which kinds stand that do not run at the traced depth."""
        return {stack.variable: stack.limit for stack in self._stacks.values() if stack.limit is not None}

    # ---- counting

    def fields(self) -> dict[str, int]:
        """Variable -> value of the config's small integers that the counts found so far name."""
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
        if {i for i in range(stack.length) if stack.kinds[i] in chosen} != members:
            return self._tail(stack, members)  # calls differ where modules do not
        return self._counted(path, stack, frozenset(chosen)) or self._remainder(path, stack, chosen)

    def _counted(self, path: str, stack: Stack, chosen: frozenset[Any]) -> Formula | None:
        if chosen not in stack._found:
            stack._found[chosen] = self._formula(path, stack, chosen)
        return stack._found[chosen]

    def _remainder(self, path: str, stack: Stack, chosen: set[Any]) -> Formula | None:
        """What all the other kinds leave of the stack."""
        others = dict.fromkeys(kind for kind in stack.kinds if kind not in chosen)
        counts = [self._counted(path, stack, frozenset((kind,))) for kind in others]
        if not counts or any(count is None for count in counts):
            return None
        return Formula.var(stack.variable) - sum((c for c in counts if c is not None), Formula({}))

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

    def _formula(self, path: str, stack: Stack, chosen: frozenset[Any]) -> Formula | None:
        running: list[int] = [0]
        for kind in stack.kinds:
            running.append(running[-1] + (kind in chosen))
        counts = tuple(running[1:])
        depth = Formula.var(stack.variable)
        if counts == tuple(range(1, len(counts) + 1)):
            return depth
        for name, make, expected in self._candidates(depth, counts):
            if name.isdigit() or self._moves(path, stack, chosen, name, expected):
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

    def _moves(
        self, path: str, stack: Stack, chosen: frozenset[Any], name: str, expected: Callable[[int, int], int]
    ) -> bool:
        """Whether the field `name` is seen to move the layers as the formula says, wherever it would."""
        value, depth = self._fields[name], len(stack.kinds)
        others = dict.fromkeys((value + 1, value - 1, 2 * value + 1, value // 2, 1, 2, 3))
        probes = [v for v in others if v >= 1 and v != value and _differs(expected, value, v, depth)]
        proofs = 0
        for other in probes[:_PROBES]:
            layers = (self._lists({name: other, stack.variable: depth}) or {}).get(path)
            if layers is None:
                continue
            kinds = _relabelled(_kinds(layers, stack.lists), stack.kinds)
            running = list(itertools.accumulate(kind in chosen for kind in kinds))
            if running != [expected(d, other) for d in range(1, depth + 1)]:
                return False
            proofs += 1
            if proofs == _PROOFS:
                break
        return proofs > 0


def _lists_of(config: Any) -> Lists:
    """Every list of a config and of its parts, its items as text."""
    return {
        f"{i}.{name}": [str(item) for item in held]
        for i, part in enumerate(fields.all_parts(config))
        for name, held in vars(part).items()
        if isinstance(held, list | tuple)
    }


def _differs(expected: Callable[[int, int], int], value: int, other: int, depth: int) -> bool:
    """Whether a formula says anything else of a stack at another value of its field."""
    return any(expected(d, value) != expected(d, other) for d in range(1, depth + 1))


def _relabelled(kinds: list[Any], known: list[Any]) -> list[Any]:
    """Layers that another value of a field made otherwise, each as the known kind that comes first where it does."""
    if set(kinds) <= set(known):
        return kinds
    names = dict(zip(dict.fromkeys(kinds), dict.fromkeys(known), strict=False))
    return [names.get(kind, kind) for kind in kinds]


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
