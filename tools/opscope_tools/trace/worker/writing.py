"""A session that ran, written down as a `Trace`: every formula as text, under the conditions that the run took."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

import torch
from opscope_schemas.analysis import TensorInfo, Variable
from opscope_schemas.errors import OpscopeError, TraceError, ValuesError
from opscope_schemas.formula import Formula, Rational, evaluate, variables

from opscope_tools.trace.operators import ZERO, Cost, moved
from opscope_tools.trace.operators.types import times
from opscope_tools.trace.protocol import (
    BesideRecord,
    CallRecord,
    CarriedRecord,
    IdleRecord,
    KeptRecord,
    OpRecord,
    SavedRecord,
    TensorRecord,
    Trace,
    ViewRecord,
)
from opscope_tools.trace.variables import CONFIG, ELEMENT, RUN_HINTS, is_depth
from opscope_tools.trace.worker import fields, models
from opscope_tools.trace.worker.alike import first_of
from opscope_tools.trace.worker.beside import between_layers, once_a_layer
from opscope_tools.trace.worker.floors import Floors
from opscope_tools.trace.worker.flow import Kept
from opscope_tools.trace.worker.positions import room
from opscope_tools.trace.worker.recorder import CallEvent, OpEvent
from opscope_tools.trace.worker.stacks import Stacks
from opscope_tools.trace.worker.stored import StoredWeights

#: settings that a reader of a reference wants, from the module itself
_SETTINGS = (
    "in_features",
    "out_features",
    "num_embeddings",
    "embedding_dim",
    "normalized_shape",
    "num_heads",
    "head_dim",
)

#: a place in a list, in the path of what it holds
_IN_LIST = re.compile(r"(?<![^.])\d+(?![^.])")
#: a text of fewer terms than this can be read
_MANY = 500
#: what is added up over weights: how many there are, or their bytes
Measure = Callable[[Any], Formula]


@functools.cache
def _asks_for_a_window(kind: type) -> bool:
    """Whether a module's forward reads `sliding_window` of a configuration."""
    try:
        return re.search(r"config\W{1,4}sliding_window", inspect.getsource(kind.forward)) is not None  # type: ignore[attr-defined]  # modules have one
    except (AttributeError, OSError, TypeError):
        return False


class Writer:
    """Writes one session's record down. `stacks` counts layers, where the model is built from a config."""

    def __init__(self, session: Any, stacks: Stacks | None) -> None:
        self.session = session
        self.stacks = stacks
        self.symbols = session.symbols
        self._shapes: dict[str, str] = {}
        self._texts: dict[Formula, str] = {}
        #: layer of a stack and what is measured -> its weights
        self._weights: dict[tuple[int, Measure], Formula] = {}
        #: depth variable -> whether the record holds for any value of it
        self._general: dict[str, bool] = {}
        #: stack -> whether work outside of its layers depends on how many there are
        self._beside: dict[str, bool] = {}
        #: module -> how many layers its call stands for
        self._layers: dict[int, Formula] = {}
        #: identity of a module -> memory of its weights and their names
        self._named: dict[int, dict[int, str]] = {}
        self._within = session.recorder.flow.held_by_others()
        #: modules that were called, and the memory of weights that were read
        self._called = {id(event.module) for event in session.recorder.calls}
        self._read = {storage for op in session.recorder.ops for storage in op.weights}

    def written(self) -> Trace:
        s = self.session
        guards = self.symbols.conditions()
        if s.fitted:  # what the base alone decided belongs to its own sizes
            guards = [g for g in guards if g in s.agreed] + list(s.fit_conditions)
        self._merged = self._replaced()
        self.symbols.merge(self._merged)
        layers = {event.index: self._repeat(event) for event in s.recorder.calls}
        self._layers = {id(event.module): layers[event.index] for event in s.recorder.calls}
        floors = Floors(s.recorder, layers, self._point())
        names = self._names()
        calls = tuple(
            self._call(event, layers[event.index] * event.loops, floors.of(event), names[event.index])
            for event in s.recorder.calls
        )
        ops = tuple(self._op(op) for op in s.recorder.ops)
        guards += self._fixed_guards(calls)
        paddings = {e.index: p for e in s.recorder.calls if type(p := getattr(e.module, "padding_idx", None)) is int}
        positions, ends = room(ops, paddings, s.phase, self._point())
        guards += [condition for condition in positions if condition not in guards]
        kind = s.model_class
        return Trace(
            model_class=f"{kind.__module__}.{kind.__qualname__}",
            config_class=f"{s.config_class.__module__}.{s.config_class.__qualname__}" if s.config_class else "",
            model_type=getattr(s.config_class, "model_type", ""), phase=s.phase, attention=s.attention, logits=s.logits, dtype=str(s.dtype).removeprefix("torch."),
            calls=calls, ops=ops, variables=self._variables(), guards=tuple(guards), decided=self._decided(guards), looked_up=positions, ends=ends, merged=tuple(sorted(self._merged)), point=self._point(),
            inputs=tuple(self._input(given, at) for at, given in enumerate(s.given)),
            assumptions=tuple(s.assumptions),
            tensors=tuple(self._tensors()), cache_before=self._cache(s.recorder.flow.before),
            cache_after=self._cache(s.recorder.flow.after),
            idle=tuple(self._idle(s.model, "")),
            carried=tuple(CarriedRecord(call=c, read=read, made=made) for c, read, made in s.recorder.flow.carried),
            beside=tuple(BesideRecord(call=c, tensors=held) for c, held in s.recorder.flow.beside),
            **self._trained(),
        )  # fmt: skip

    # ---- text

    def _replaced(self) -> dict[str, Formula]:
        """Symbols that the run made equal to others, or to numbers."""
        found = {}
        for symbol, target in self.symbols.env.equal.items():
            name = self.symbols.name_of(symbol)
            if name and name not in self.session.fitted:
                found[name] = self.symbols.converted(target)
        return found

    def text(self, formula: Formula) -> str:
        if formula not in self._texts:
            self._texts[formula] = _readable(self.symbols.simplified(formula.substitute(self._merged)))
        return self._texts[formula]

    def _shape(self, shape: str) -> str:
        if shape not in self._shapes:
            self._shapes[shape] = shape if shape == "?" else self.text(Formula.parse(shape))
        return self._shapes[shape]

    def _infos(self, found: Any) -> Any:
        return tuple(i.model_copy(update={"shape": tuple(self._shape(s) for s in i.shape)}) for i in found)

    def _input(self, given: Any, at: int) -> Any:
        from opscope_schemas.analysis import ModelInput

        sizes = self.session.given_shapes[at] if self.session.fitted else map(self.symbols.formula, given.shape)
        shape = tuple(self.text(size) for size in sizes)
        return ModelInput(name=given.name, shape=shape, dtype=str(given.dtype).removeprefix("torch."), data=given.data)

    # ---- records

    def _names(self) -> dict[int, set[str]]:
        """By call: the variables that its own figures have before what the run decided is put into them."""
        found: dict[int, set[str]] = {}

        def note(index: int, formulas: Iterable[Formula], infos: Iterable[TensorInfo]) -> None:
            names = found.setdefault(index, set())
            names.update(*(formula.variables() for formula in formulas))
            names.update(*(variables(size) for info in infos for size in info.shape if size != "?"))

        for event in self.session.recorder.calls:
            note(event.index, [self._sum(event.module, event.path, self._elements)], (*event.inputs, *event.outputs))
        for op in self.session.recorder.ops:
            cost = op.cost or Cost()
            note(op.call, (op.repeat, cost.flops, cost.matmul_flops, cost.read, cost.write), (*op.inputs, *op.outputs))
        return found

    def _decided(self, guards: list[str]) -> dict[str, tuple[int, ...]]:
        """By condition: the calls that ran when it was asked for, or whose module was being built; -1 for neither."""
        of_class: dict[Any, list[int]] = {}
        for event in self.session.recorder.calls:
            of_class.setdefault(type(event.module), []).append(event.index)
        found = {}
        for guard in guards:
            if guard in self.symbols.askers:
                places = [of_class.get(a, [-1]) if not isinstance(a, int) else [a] for a in self.symbols.askers[guard]]
                found[guard] = tuple(sorted({index for several in places for index in several}))
        return found

    def _call(
        self, event: CallEvent, repeat: Formula, floor: tuple[Formula, Formula], names: set[str]
    ) -> CallRecord:  # fmt: skip
        kind, frames = type(event.module), self.session.recorder.frames
        file, line = frames.definition(kind)
        forward_file, forward_line = frames.forward_definition(kind)
        if event.forward is not None:
            forward_file, forward_line = frames.code_definition(event.forward)
        return CallRecord(
            index=event.index, order=event.order, end=event.end, parent=event.parent, path=event.path,
            class_name=f"{kind.__module__}.{kind.__qualname__}", file=file, line=line,
            forward_file=forward_file, forward_line=forward_line, site=event.site,
            repeat=self.text(repeat), parameters=self.text(self._sum(event.module, event.path, self._elements)),
            weights=self.text(self._sum(event.module, event.path, self._stored_bytes)),
            description=self._description(event.module), window=self._window(event.module),
            causal=bool(getattr(event.module, "is_causal", False)),
            inputs=self._infos(event.inputs), outputs=self._infos(event.outputs), reads=tuple(event.reads),
            floor_read=self.text(floor[0]), floor_write=self.text(floor[1]), names=tuple(sorted(names)),
        )  # fmt: skip

    def _op(self, op: OpEvent) -> OpRecord:
        cost = op.cost or Cost()
        return OpRecord(
            order=op.order, call=op.call, site=op.site, operator=op.operator, derivation=cost.derivation or op.reason,
            flops=self.text(cost.flops), matmul_flops=self.text(cost.matmul_flops), read=self.text(cost.read),
            write=self.text(cost.write), causal_saving=self.text(cost.causal_saving), counted=op.cost is not None,
            moves_whole=op.cost is not None and moved(op.ran) == (op.cost.read, op.cost.write),
            inputs=self._infos(op.inputs), outputs=self._infos(op.outputs),
            repeat=self.text(op.repeat), reads=op.step.reads, weights=self._weights_read(op), writes=op.step.writes, after=op.step.after, carried=op.carried,
            views=tuple(ViewRecord(tensor=t, view=v, size=self.text(s), within=self._within.get(v, ())) for t, v, s in op.views),
            backward=op.backward,
        )  # fmt: skip

    def _trained(self) -> dict[str, Any]:
        """What a training step saves."""
        training = self.session.recorder.training
        if training is None:
            return {}
        saved = tuple(
            SavedRecord(call=s.call, site=s.site, info=self._infos((s.info,))[0], size=self.text(s.size), kind=s.kind)
            for s in training.written(self.session.recorder.calls)
        )
        return {"saved": saved, "layers": tuple(sorted(training.layers(self.session.recorder.calls)))}

    # ---- tensors

    def _weights_read(self, op: OpEvent) -> tuple[str, ...]:
        """As the module names them, of which a list's are all one; what it was handed has no name."""
        module = self.session.recorder.calls[op.call].module
        if id(module) not in self._named:
            held = [*module.named_buffers(), *module.named_parameters()]
            self._named[id(module)] = {w.untyped_storage()._cdata: _IN_LIST.sub("*", name) for name, w in held}
        names = self._named[id(module)]
        return tuple(names[storage] for storage in op.weights if storage in names)

    def _tensors(self) -> Iterator[TensorRecord]:
        """The tensors that an operator touches, or during which one runs, and what the pass returns."""
        recorder = self.session.recorder
        touched = {i for op in recorder.ops for i in (*op.step.reads, *op.step.writes)}
        touched |= {kept.index for kept in (*recorder.flow.before, *recorder.flow.after)}
        orders = sorted(op.order for op in recorder.ops)
        for held in recorder.flow.tensors:
            until = max(held.last, held.held)
            if (
                held.index in touched
                or held.kind == "output"
                or bisect_right(orders, held.born) < bisect_right(orders, until)
            ):
                yield TensorRecord(
                    index=held.index, kind=held.kind, info=self._infos((held.info,))[0],
                    size="" if held.size is None else self.text(held.size),
                    born=held.born, last=held.last, held=until, alias_of=held.alias_of,
                )  # fmt: skip

    def _cache(self, kept: list[Kept]) -> tuple[KeptRecord, ...]:
        return tuple(
            KeptRecord(index=k.index, info=self._infos((k.info,))[0], size="" if k.size is None else self.text(k.size),
                       call=self._user_of(k.index))
            for k in kept
        )  # fmt: skip

    def _user_of(self, tensor: int) -> int:
        """The call that writes a tensor of the cache, else that reads it; -1: none does."""
        ops = self.session.recorder.ops
        wrote = (op.call for op in ops if tensor in op.step.writes)
        return next(wrote, next((op.call for op in ops if tensor in op.step.reads), -1))

    def _repeat(self, event: CallEvent) -> Formula:
        """How often a call and its folded siblings run: a formula of the depth where they are a kind of layer."""
        container = self.session.model.get_submodule(event.container) if event.container else None
        if not isinstance(container, torch.nn.ModuleList) or event.members is None:
            return Formula.const(event.repeat)
        variable = self.stacks.variable(event.container) if self.stacks else ""
        # a layer that runs several times in a pass is no single member of its stack
        count = self.stacks.count(event.container, event.members) if variable and self.stacks else None
        whole = count is not None and event.repeat == len(event.members)
        recorder = self.session.recorder
        whole = whole and event.container not in recorder.gathered | recorder.decided_by_place
        whole = whole and self._alone(event.container)
        known = self.stacks is not None and self.stacks.compared
        for name in [variable] if variable else [] if known else self._depths_of(len(container)):
            self._general[name] = self._general.get(name, True) and whole
        return count if whole and count is not None else Formula.const(event.repeat)

    def _alone(self, container: str) -> bool:
        """Whether the number of a stack's layers decides nothing that runs outside of them."""
        if container not in self._beside and self.stacks is not None:
            recorder, depth = self.session.recorder, len(self.session.model.get_submodule(container))
            known = {event.container for event in recorder.calls if self.stacks.variable(event.container)}
            self._beside[container] = between_layers(recorder, container, known) or once_a_layer(
                recorder, container, depth
            )
        return not self._beside.get(container, False)

    def _depths_of(self, length: int) -> list[str]:
        configured = self.session.configured
        return [n for n, v in configured.items() if v == length and is_depth(n)]

    def _sizes_of(self, tensor: Any) -> tuple[Formula, ...]:
        shape = self.session.shapes.get(id(tensor), tensor.shape)
        return tuple(size if isinstance(size, Formula) else self.symbols.formula(size) for size in shape)

    def _elements(self, tensor: Any) -> Formula:
        return times(self._sizes_of(tensor))

    def _stored_bytes(self, tensor: Any) -> Formula:
        """Bytes of a weight as the checkpoint stores it, with what lies beside it."""
        stored: StoredWeights | None = self.session.stored
        memory = tensor.untyped_storage()._cdata
        found = stored.by_memory.get(memory) if stored is not None else None
        shape = self._sizes_of(tensor)
        if found is not None:
            return times(shape) * found.element + found.beside(shape)
        own = tensor.dtype == self.session.dtype
        return times(shape) * (Formula.var("w_bytes") if own else Formula.const(tensor.element_size()))

    def _sum(self, module: Any, path: str, measure: Measure, seen: set[int] | None = None) -> Formula:
        """What the weights of the subtree measure, shared ones once; a stack's layers are counted by kind."""
        if first_of(module) is not module:  # a copy stands for a layer with weights of its own
            return self._sum(first_of(module), path, measure)
        seen = set() if seen is None else seen
        total = ZERO
        for tensor in module._parameters.values():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                total = total + measure(tensor)
        if (
            isinstance(module, torch.nn.ModuleList)
            and (stacked := self._stacked(module, path, measure, seen)) is not None
        ):
            return total + stacked
        for name, child in module.named_children():
            total = total + self._sum(child, f"{path}.{name}" if path else name, measure, seen)
        return total

    def _stacked(self, module: Any, path: str, measure: Measure, seen: set[int]) -> Formula | None:
        """The weights of a stack as a sum over its kinds of layers; None where a kind has no formula."""
        if self.stacks is None or not self.stacks.variable(path):
            return None
        groups: dict[Formula, set[int]] = {}
        for name, child in module.named_children():
            alike = (id(first_of(child)), measure)
            if alike not in self._weights:
                self._weights[alike] = self._sum(child, f"{path}.{name}", measure, set())
            groups.setdefault(self._weights[alike], set()).add(int(name))
        total = ZERO
        for weights, members in groups.items():
            count = self.stacks.count(path, frozenset(members))
            if count is None:
                return None
            total = total + count * weights
        seen.update(id(p) for p in module.parameters())
        return total

    def _idle(self, module: Any, path: str) -> Iterator[IdleRecord]:
        """The largest parts with weights of which nothing ran; of a stack those of each layer that ran, as often as it stands for one."""
        if isinstance(module, torch.nn.ModuleList | torch.nn.ModuleDict):
            for name, child in module.named_children():
                times, place = self._layers.get(id(child), ZERO), f"{path}.{name}"
                shown = place if times == Formula.const(1) else f"{path}.*"
                for found in self._idle(child, place) if times != ZERO else ():
                    number = self.text(Formula.parse(found.parameters) * times)
                    inner = found.path.removeprefix(place)
                    yield found.model_copy(update={"path": f"{shown}{inner}", "parameters": number})
            return
        for name, child in module.named_children():
            below = f"{path}.{name}" if path else name
            weights = {weight.untyped_storage()._cdata for weight in child.parameters()}
            if any(id(part) in self._called for part in child.modules()) or weights & self._read:
                yield from self._idle(child, below)
            elif weights:
                kind = type(child)
                number = self.text(self._sum(child, below, self._elements))
                yield IdleRecord(path=below, class_name=f"{kind.__module__}.{kind.__qualname__}", parameters=number)

    def _description(self, module: Any) -> str:
        parts = []
        for name in () if self.session.fitted else _SETTINGS:
            value = getattr(module, name, None)
            if isinstance(value, int | torch.SymInt) and not isinstance(value, bool):
                with contextlib.suppress(OpscopeError):
                    parts.append(f"{name}={self.text(self.symbols.formula(value))}")
        return ", ".join(parts)

    def _window(self, module: Any) -> str:
        """What the module says of how far its attention looks back, or its configuration where its forward asks that."""
        value = getattr(module, "sliding_window", None)
        if not hasattr(module, "sliding_window") and _asks_for_a_window(type(module)):  # type: ignore[arg-type]  # a class is hashable
            value = getattr(getattr(module, "config", None), "sliding_window", None)
        if not isinstance(value, int | torch.SymInt) or isinstance(value, bool):
            return ""
        with contextlib.suppress(OpscopeError):
            return self.text(self.symbols.formula(value))
        return ""

    # ---- variables

    def _numbers(self) -> dict[str, int]:
        """Config sizes that are numbers in this trace."""
        s = self.session
        return {n: v for n, v in s.configured.items() if n not in s.symbolic and n not in s.computed and type(v) is int}

    def _fixed_guards(self, calls: tuple[CallRecord, ...]) -> list[str]:
        s = self.session
        used = {name for call in calls for name in _depths_in(call.repeat)}
        found = []
        for name, value in {**self._numbers(), **s.settled}.items():
            if name in s.fitted:
                continue
            if is_depth(name):
                if not (name in used and self._general.get(name, False)):
                    found.append(f"{{{name}}} == {value}")
                elif self.stacks is not None:
                    limits, leasts = self.stacks.limits(), self.stacks.leasts()
                    found += [f"{{{name}}} <= {limits[name]}"] if name in limits else []
                    found += [f"{{{name}}} >= {leasts[name]}"] if name in leasts else []
            elif name not in s.symbolic or name in s.settled:
                found.append(f"{{{name}}} == {value}")
        return found

    def _point(self) -> dict[str, Rational]:
        s = self.session
        point: dict[str, Rational] = {
            **self.symbols.hints,
            **s.settled,
            **self._numbers(),
            **dict.fromkeys(ELEMENT, s.dtype.itemsize),
        }
        point["kv_bytes"] = self._cache_element()
        point |= {name: _plain(value) for name, (_, value) in self._stored_variables().items()}
        for name, formula in (*self._merged.items(), *s.computed.items()):
            point[name] = evaluate(str(formula), point)
        return point

    def _stored_variables(self) -> dict[str, tuple[str, Fraction]]:
        stored: StoredWeights | None = self.session.stored
        return stored.variables() if stored is not None else {}

    def _cache_element(self) -> Rational:
        """Bytes per element of the KV cache: as the checkpoint's config wants it, else those of the model's dtype."""
        stored: StoredWeights | None = self.session.stored
        wanted = stored.cache if stored is not None else None
        return self.session.dtype.itemsize if wanted is None else _plain(wanted)

    def _settled(self, name: str) -> int | None:
        """The number that a symbol was settled to, if it was."""
        formula = self._merged.get(name)
        value = formula.constant() if formula is not None else None
        return int(value) if value is not None else None

    def _variables(self) -> Any:
        s = self.session
        found = [models.variable(name, "", value, fixed=True) for name, value in s.settled.items()]
        found += [models.variable(name, "", value) for name, value in s.beside_tokens or ()]  # which nothing depends on
        for name in self.symbols.hints:
            if name not in s.names:
                settled = self._settled(name)
                default = settled if settled is not None else s.defaults.get(name)
                definition = s.following.get(name, "") if settled is None else ""
                found.append(models.variable(name, "", default, fixed=settled is not None, definition=definition))
        given = {name: str(tie.formula) for name, tie in s.ties.items()}
        for name, key in s.names.items():
            value = s.configured[name]
            if name in s.computed:
                follows = models.variable(name, "", value, definition=given[name])
                found.append(follows.model_copy(update={"kind": "derived"}))
            elif type(value) is int:
                fixed = not self._general.get(name, False) if is_depth(name) else name not in s.symbolic
                fixed = fixed or self._settled(name) is not None
                found.append(models.variable(name, key, value, fixed=fixed, definition=given.get(name, "")))
        known = {v.name for v in found}
        if self.stacks is not None:
            paths = {n: fields.path_of(s.config, n) or n for n in self.stacks.fields()}
            found += [models.variable(n, paths[n], v) for n, v in self.stacks.fields().items() if n not in known]
        if "head_dim" not in {v.name for v in found} and {"hidden_size", "num_heads"} <= s.symbolic.keys():
            value = s.configured["hidden_size"] // s.configured["num_heads"]
            key = fields.path_of(s.config, "head_dim")
            follows = models.variable("head_dim", key, value, definition="{hidden_size} // {num_heads}")
            found.append(follows.model_copy(update={"kind": "derived"}))
        found = [v.model_copy(update={"kind": "fitted"}) if v.name in s.fitted else v for v in found]
        for name in ELEMENT:
            element = models.variable(name, "", s.dtype.itemsize)
            found.append(
                element.model_copy(update={"default": self._cache_element()}) if name == "kv_bytes" else element
            )
        for name, (meaning, value) in self._stored_variables().items():
            found.append(Variable(name=name, meaning=meaning, default=_plain(value)))
        order = {n: i for i, n in enumerate([*RUN_HINTS, *CONFIG])}
        return tuple(sorted(found, key=lambda v: order.get(v.name, 99)))


def _readable(formula: Formula) -> str:
    """The formula's text; raises `TraceError` where it is too long to be read again, which fewer symbols mend."""
    text = str(formula)
    if len(formula.terms) > _MANY:
        try:
            Formula.parse(text)
        except ValuesError as error:
            raise TraceError(error.message) from error
    return text


def _plain(value: Fraction) -> int | Fraction:
    return int(value) if value.denominator == 1 else value


def _depths_in(repeat: str) -> frozenset[str]:
    return Formula.parse(repeat).variables()


def written(session: Any, stacks: Stacks | None) -> Trace:
    """The trace of a session that ran."""
    return Writer(session, stacks).written()


__all__ = ["Writer", "written"]
