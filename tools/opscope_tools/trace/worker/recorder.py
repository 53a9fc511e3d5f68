"""What runs, line by line: every module call and every operator of one pass, with its cost and its source line.

`Recorder` is a dispatch mode (it sees each operator that reaches torch's dispatcher, below autograd and composite
operators) and stands behind every `nn.Module` call. Siblings of a `ModuleList` that are alike (same classes, shapes
and settings) and are called with arguments alike run once: the others return the first one's result and add to its
`repeat`, so cost does not grow with depth. What a layer asks of its own index is held against the sibling's (places.py).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from opscope_schemas.analysis import Site, TensorInfo
from opscope_schemas.errors import TraceError
from opscope_schemas.formula import Formula
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from opscope_tools.trace import operators
from opscope_tools.trace.operators import ONE, ZERO, Call, Cost, Tensor
from opscope_tools.trace.worker.alike import alike_siblings
from opscope_tools.trace.worker.flow import Flow, Step, keys_and_values
from opscope_tools.trace.worker.frames import Frames, names_in
from opscope_tools.trace.worker.places import Layer, Place, Settings, Uses, asks_beyond, decides
from opscope_tools.trace.worker.routed import Routing
from opscope_tools.trace.worker.stored import StoredWeights
from opscope_tools.trace.worker.surroundings import surroundings
from opscope_tools.trace.worker.symbols import NoFormulaError, Symbols
from opscope_tools.trace.worker.training import Training, stand_in

#: operators that read some rows of a weight and not all of it
_GATHERS = frozenset((
    "aten.embedding aten.index_select aten._grouped_mm transformers.grouped_mm_fallback aten.index aten.gather aten.take "
    "aten._unsafe_index aten._embedding_bag aten._embedding_bag_forward_only"
).split())  # fmt: skip
#: operators whose results Python or the shapes of other tensors depend on
_READERS = frozenset((
    "aten._local_scalar_dense aten.is_nonzero aten.equal aten.nonzero aten.masked_select aten._unique2 aten.unique_dim "
    "aten.unique_consecutive aten.bincount"
).split())  # fmt: skip
#: operators that a mask chooses elements for: how many these are, the host asks first
_MASKED = frozenset("aten.index aten.index_put aten.index_put_ aten._index_put_impl_ aten._unsafe_index".split())
_module_call = torch.nn.Module.__call__
_active: list[Recorder] = []


def traced_call(module: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands in for `nn.Module.__call__`; its frame marks where a module begins on the stack."""
    if not _active:
        return _module_call(module, *args, **kwargs)
    return _active[-1].call(module, args, kwargs, sys._getframe(1))


def active_recorder() -> Recorder | None:
    """The recorder that stands behind module calls now."""
    return _active[-1] if _active else None


@dataclass
class OpEvent:
    """One operator call, as recorded."""

    order: int
    call: int
    site: Site
    operator: str
    #: None where it is not known, for the reason given
    cost: Cost | None
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    #: the call as the cost rule saw it, and per input which dimensions are stored (not broadcast)
    ran: Call = field(default_factory=lambda: Call("", (), ()))
    masks: tuple[tuple[bool, ...], ...] = ()
    #: storage -> bytes that this operator reads of a weight
    weights: dict[int, Formula] = field(default_factory=dict)
    step: Step = field(default_factory=Step)
    #: how often it runs per call, in a loop whose steps are alike; what it reads of the step before, by order
    repeat: Formula = ONE
    carried: tuple[int, ...] = ()
    #: per input that is no weight: its tensor, which view of it, its bytes
    views: tuple[tuple[int, int, Formula], ...] = ()
    reason: str = ""
    #: how many experts' weights it reads, in a step that stands for a loop over experts
    experts: Formula = ONE
    #: whether a gradient's node ran it
    backward: bool = False


@dataclass
class CallEvent:
    """One module call, as recorded."""

    index: int
    order: int
    parent: int
    module: Any
    path: str
    site: Site | None
    #: order of the last event in it
    end: int = 0
    container: str = ""
    repeat: int = 1
    #: how often a loop whose steps are alike makes it
    loops: Formula = ONE
    #: which children of its list the call stands for; None where it stands for itself alone
    members: frozenset[int] | None = None
    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    #: of the inputs that something in it reads, and of the outputs that it makes: none is only handed on
    input_bytes: Formula = ZERO
    output_bytes: Formula = ZERO
    cache_read: Formula = ZERO
    cache_written: Formula = ZERO
    #: the function that really ran as the forward, where a decorator put another in its place
    forward: Any = None
    #: where its lines read values of tensors
    reads: dict[Site, None] = field(default_factory=dict)
    #: whether a gradient flows through it, and the tensors by which it could be run again, with their bytes
    takes_gradient: bool = False
    kept: dict[int, tuple[TensorInfo, Formula]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Ran:
    """A layer that ran: its call, what it returned and was given, what it asked of its index, and whether it has something since
    that it had not before. For tensors others stand here, so that those are freed when the model lets them go."""

    event: CallEvent | None
    result: Any
    given: list[Any]
    uses: Uses
    keeps: bool


@dataclass(frozen=True)
class Parts:
    """What the steps of a loop appended to a list, one each; most did not run."""

    #: weak references
    tensors: tuple[Any, ...]
    #: how many there are, as a symbol
    count: Any

    def begin(self, tensors: Any) -> bool:
        """Whether these come first among `tensors`."""
        return len(tensors) >= len(self.tensors) and all(r() is t for r, t in zip(self.tensors, tensors, strict=False))


def tensors_in(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor in arguments or results, with the path to it."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors_in(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from tensors_in(item, f"{name}[{index}]")


class _Memory:
    """A tensor like another, in memory of its own, to hand out again once nobody holds it: as an allocator would."""

    def __init__(self, like: Any) -> None:
        if isinstance(like, FakeTensor):
            with no_dispatch():  # what the fake mode would do, without its bookkeeping
                memory = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device="meta")
            self.tensor = FakeTensor(like.fake_mode, memory, like.device)
            del memory
        else:
            self.tensor = torch.empty_like(like)
        self._storage = self.tensor.untyped_storage()
        self._uses = torch._C._storage_Use_Count(self._storage._cdata)

    def free(self) -> bool:
        """Whether no tensor but this one, which only the recorder holds, lies in the memory."""
        alone = sys.getrefcount(self.tensor) <= 2  # by this object, and by the call itself
        return alone and bool(torch._C._storage_Use_Count(self._storage._cdata) <= self._uses)


class UnfoldedError(TraceError):
    """A layer runs whose state an earlier pass left out, because it was alike another then: folding must be off."""


class Recorder(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Records one pass of `model` while `recording`; folds alike siblings also while not."""

    def __init__(
        self,
        model: Any,
        symbols: Symbols,
        dtype: torch.dtype,
        *,
        fold: bool = True,
        stored: StoredWeights | None = None,
        training: bool = False,
        plain: bool = False,
        valued: bool = False,
    ) -> None:
        """`plain`: sizes are numbers. `valued`: tensors have values, by which what runs is decided."""
        super().__init__()
        self.routing = Routing(symbols.formula, wanted=not (training or valued))
        self.plain = plain
        self.symbols = symbols
        self.stored = stored
        self.frames = Frames(traced_call.__code__)
        self.calls: list[CallEvent] = []
        self.ops: list[OpEvent] = []
        #: whether an operator has no cost because a size of it depends on data
        self.lost_to_data = False
        #: lines that read data which decides what runs
        self.decided: dict[str, None] = {}
        self.recording = False
        self._order = 0
        self._stack: list[int] = []
        self._modules: list[Any] = []
        self._dtype = dtype
        #: alike siblings, called alike -> those that ran, each otherwise for what its index told it
        self._memo: defaultdict[Any, list[_Ran]] = defaultdict(list)
        #: lists of modules whose loops are known
        self._asked: set[str] = set()
        #: layers that another ran for which has kept something since: they have not
        self._stateless: set[int] = set()
        #: lists of modules of which what runs is decided by their place among their siblings
        self.decided_by_place: set[str] = set()
        #: storage -> the list of layers and the call that its tensor came out of, and what keeps its place from being another's
        self._lineage: dict[int, tuple[str, int]] = {}
        self._kept: dict[int, Any] = {}
        self._handed = 0
        #: result of a layer that was folded -> memory of its shape that was handed out for its siblings
        self._pools: dict[int, list[_Memory]] = {}
        #: first part -> the parts that a loop's steps appended to a list
        self.parts: dict[int, Parts] = {}
        #: memory of parts of steps that did not run -> how many steps there are, and what keeps its place from being another's
        self.left_out: dict[int, tuple[Any, StorageWeakRef]] = {}
        #: how many calls were answered by an alike sibling's result
        self.folded = 0
        #: call and list of layers that it runs -> orders of the first and the last of these
        self.spans: dict[tuple[int, str], tuple[int, int]] = {}
        #: lists of layers of which several results are read together
        self.gathered: set[str] = set()
        modules = list(model.named_modules())
        self._paths = {id(module): path for path, module in modules}
        self._lengths = {path: len(module) for path, module in modules if isinstance(module, torch.nn.ModuleList)}
        #: memory of weights, held: of one that a forward converts in place another tensor would get the place
        self._memory = [
            tensor.untyped_storage()
            for tensor in [*model.parameters(), *model.buffers()]
            if isinstance(tensor, torch.Tensor)
        ]
        self._weights = {storage._cdata for storage in self._memory}
        #: storages of a KV cache's keys and values, and what keeps their places from being another's
        self._cached: dict[int, Any] = {}
        #: storages of the states of another kind that a cache holds, and those that the pass has written
        self._states: dict[int, Any] = {}
        self._changed: set[int] = set()
        #: those of both that the pass made, or that the floor has
        self._counted: set[int] = set()
        #: when an operator last read, and last wrote, a storage
        self._read: dict[int, int] = {}
        self._written: dict[int, int] = {}
        #: whether a KV cache takes new keys and values: what is made then lies in it
        self.caching = False
        self.flow = Flow(self._weights, self._measured)
        self._alike = alike_siblings(model) if fold else {}
        self._settings = Settings(module for module in model.modules() if id(module) in self._alike)
        #: modules that a pass which only fills the cache left out
        self._left_out: set[int] = set()
        #: what a training step adds; None in any other pass
        self.training = (
            Training(self._kept_memory, self.flow.before_order, frozenset(self._weights)) if training else None
        )

    def leave_out(self, tensors: Iterable[Any], steps: Any) -> None:
        """Note parts of so many steps, most of which did not run."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self.left_out[storage._cdata] = (steps, StorageWeakRef(storage))

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Stand behind every module call."""
        torch.nn.Module.__call__ = traced_call
        _active.append(self)
        try:
            yield
        finally:
            _active.pop()
            torch.nn.Module.__call__ = _module_call

    @contextlib.contextmanager
    def phase(self, *, record: bool) -> Iterator[None]:
        """One pass: what is alike is found anew in it."""
        self._memo.clear()
        self._counted.clear()
        self._changed.clear()
        self.recording = record
        try:
            with self, self.active():
                yield
        finally:
            self.recording = False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What runs meanwhile is not the model's."""
        before, self.recording = self.recording, False
        try:
            yield
        finally:
            self.recording = before

    def running(self) -> int | None:
        """The index of the call that runs; None outside of the recorded pass."""
        return self._stack[-1] if self.recording and self._stack else None

    # ---- module calls

    def call(self, module: Any, args: Any, kwargs: Any, caller: Any) -> Any:
        """Run `module`, or hand back what an alike sibling returned."""
        layer: Layer | None = None
        alike = self._alike.get(id(module))
        if alike is not None:
            layer = Layer(module, args, kwargs)
            self._ask_loop(module, caller)
            beside = surroundings(*map(type, module.modules()))
            key: tuple[Any, ...] = (alike, self._settings.of(module), beside, *layer.others)
            now = [t for _, t in tensors_in((args, kwargs))]
            if self.training is not None:
                key = (*key, tuple(t.requires_grad for t in now))
            ran = next(
                (
                    one
                    for one in self._memo[key]
                    if layer.does_the_same(one.uses) and all(map(self._of_one_shape, one.given, now))
                ),
                None,
            )
            if ran is not None:
                if id(module) in self._stateless:
                    raise UnfoldedError(f"{self._paths[id(module)]} keeps something from one call to the next.")
                if ran.keeps:
                    self._stateless.add(id(module))
                event, result, then = ran.event, ran.result, ran.given
                layer.hand_on(ran.uses)
                self.folded += 1
                if self.training is not None and any(
                    a is b and a.requires_grad for a, b in zip(then, now, strict=True)
                ):
                    raise UnfoldedError(f"Layers of {alike[0]} share a tensor whose gradients are added up.")
                if event is not None:
                    self.flow.again((event.index, event.order, event.end), self._next(), then, now)
                    self._ran(event)
                first, result = result, self._own(result, then, now)
                if self.training is not None and event is not None:
                    self._saved_again(event, [*zip(then, now, strict=True), *_pairs(first, result)])
                self._descend(module, result)
                self._settings.ran(module)
                if event is not None:
                    event.repeat += 1
                    event.members = (event.members or frozenset()) | {_place(self._paths[id(module)])}
                else:
                    self._left_out.add(id(module))
                for hook in module._forward_hooks.values():  # what collects the states of all layers
                    hook(module, args, result)
                return result
            if self.recording and id(module) in self._left_out:
                raise UnfoldedError(
                    f"{self._paths[id(module)]} differs from its sibling in one pass but not in another."
                )
        event = self._enter(module, args, kwargs, caller) if self.recording else None
        self._modules.append(module)
        uses: Uses = {}
        try:
            if layer is None:
                result = _module_call(module, *args, **kwargs)
            else:
                with layer.listening() as (placed, named, uses):
                    result = _module_call(module, *placed, **named)
        except (TypeError, RuntimeError) as error:
            if layer is not None and Place.__name__ in str(error):
                raise UnfoldedError(
                    f"{self._paths[id(module)]} gives its index to what takes plain numbers."
                ) from error
            raise
        finally:
            self._modules.pop()
            if event is not None:
                self._stack.pop()
        if event is not None:
            self._leave(event, args, kwargs, result)
        if layer is not None:
            if any(type(leaf) is Place for leaf in tree_leaves(result)):
                raise UnfoldedError(f"{self._paths[id(module)]} returns its index.")
            keeps = self._settings.ran(module)
            heard = any(part._forward_hooks for part in module.modules() if part is not module)
            # one that stood for it would leave out what it changed, and what its parts tell those who listen
            if not heard and surroundings(*map(type, module.modules())) == beside:
                left, given = self._remembered(result, [t for _, t in tensors_in((args, kwargs))])
                self._memo[key].append(_Ran(event, left, given, uses, keeps))
            if heard or decides(uses):
                self.decided_by_place.add(self._paths[id(module)].rpartition(".")[0])
            self._descend(module, result)
        return result

    def _ask_loop(self, module: Any, caller: Any) -> None:
        """Note where the loop that calls a stack's layers would do otherwise with those of a deeper one."""
        container = self._paths[id(module)].rpartition(".")[0]
        if container not in self._asked:
            self._asked.add(container)
            while caller.f_back is not None and names_in(caller).get("self") is module:  # a base class's own `__call__`
                caller = caller.f_back
            if asks_beyond(caller, self._lengths[container]):
                self.decided_by_place.add(container)

    def _of_one_shape(self, one: Any, other: Any) -> bool:
        """Whether two tensors whose sizes are alike at hand are so wherever these are symbols."""
        return all(map(self.symbols.one_size, one.shape, other.shape))

    def _remembered(self, result: Any, given: list[Any]) -> tuple[Any, list[Any]]:
        """What a layer returned and was given, with tensors alike in the place of the model's, which the record takes for them."""
        if self.training is not None:  # which of them are one, and what a gradient flows to, matters there
            return result, given
        alike: dict[int, Any] = {}

        def like(tensor: Any) -> Any:
            if tensor.untyped_storage()._cdata in self._weights:
                return tensor
            if id(tensor) not in alike:
                with self.paused():
                    alike[id(tensor)] = _Memory(tensor).tensor
                self.flow.named(alike[id(tensor)], tensor)
            return alike[id(tensor)]

        return tree_map_only(torch.Tensor, like, result), [like(tensor) for tensor in given]

    def _own(self, result: Any, then: list[Any], now: list[Any]) -> Any:
        """What an alike sibling returned, in memory of its own: arguments handed through are this call's."""
        through = {id(a): b for a, b in zip(then, now, strict=True)}

        def fresh(tensor: Any) -> Any:
            if id(tensor) in through or tensor.untyped_storage()._cdata in self._weights:
                return through.get(id(tensor), tensor)
            pool = self._pools.setdefault(id(tensor), [])
            memory = next((memory for memory in pool if memory.free()), None)
            if memory is None:
                memory = _Memory(tensor)
                pool.append(memory)
            if self.recording:
                self.flow.stands_for(memory.tensor, tensor, self._order, memory.free)
            return memory.tensor

        if self.training is None:
            return tree_map_only(torch.Tensor, fresh, result)
        firsts = {
            id(t): t
            for _, t in tensors_in(plain_result(result))
            if id(t) not in through and t.untyped_storage()._cdata not in self._weights
        }
        memories = [_Memory(t) for t in firsts.values()]
        made = [memory.tensor for memory in memories]
        for memory, first in zip(memories, firsts.values(), strict=True):
            self.flow.stands_for(memory.tensor, first, self._order, memory.free)
        own = stand_in(self.paused, made, list(firsts.values()), list({id(t): t for t in now}.values()))
        self._note_node(sys._getframe(3))
        through.update(zip(firsts, own, strict=True))
        return tree_map_only(torch.Tensor, lambda t: through.get(id(t), t), result)

    def _saved_again(self, event: CallEvent, pairs: list[tuple[Any, Any]]) -> None:
        assert self.training is not None
        self.training.again(event, pairs)

    def _descend(self, module: Any, result: Any) -> None:
        """Remember which layer's call a tensor came out of."""
        self._handed += 1
        origin = (self._paths[id(module)].rpartition(".")[0], self._handed)
        for _, tensor in tensors_in(result):
            storage = tensor.untyped_storage()._cdata
            self._lineage[storage] = origin
            self._kept[storage] = StorageWeakRef(tensor.untyped_storage())

    def _note_gathered(self, tensors: Iterable[Any]) -> None:
        """What reads several layers' results depends on how many there are."""
        origins = {self._lineage.get(t.untyped_storage()._cdata) for t in tensors} - {None}
        seen: set[str] = set()
        for container, _ in (o for o in origins if o is not None):
            (self.gathered if container in seen else seen).add(container)

    def _enter(self, module: Any, args: Any, kwargs: Any, caller: Any) -> CallEvent:
        parent = self._stack[-1] if self._stack else -1
        site = None
        if parent >= 0:
            site, code = self.frames.site(caller, type(self.calls[parent].module))
            self._note_forward(self.calls[parent], code)
        path = self._paths.get(id(module), type(module).__name__)
        named = list(tensors_in(_bound(module, args, kwargs)))
        event = CallEvent(
            index=len(self.calls), order=self._next(), parent=parent, module=module, path=path, site=site,
            container=path.rpartition(".")[0], members=_members(path), inputs=self._infos(named),
        )  # fmt: skip
        self.calls.append(event)
        self._ran(event)
        self._stack.append(event.index)
        if self.training is not None:
            taken = {t.untyped_storage()._cdata: t for _, t in named if t.requires_grad}
            event.kept = {storage: self._kept_memory(t) for storage, t in taken.items()}
        return event

    def _ran(self, event: CallEvent) -> None:
        place = event.parent, event.container
        self.spans[place] = self.spans.get(place, (self._order, 0))[0], self._order

    def _leave(self, event: CallEvent, args: Any, kwargs: Any, result: Any) -> None:
        event.end = self._order
        given = list(tensors_in((args, kwargs)))
        event.input_bytes = self._distinct_bytes([(n, t) for n, t in given if _since(event, self._read, t)])
        named = list(tensors_in(plain_result(result)))
        self._note_gathered(tensor for _, tensor in named)
        event.outputs = self._infos(named)
        held = {t.untyped_storage()._cdata for _, t in given} | self._weights
        made = [(n, t) for n, t in named if t.untyped_storage()._cdata not in held or _since(event, self._written, t)]
        event.output_bytes = self._distinct_bytes(made)
        event.takes_gradient = self.training is not None and any(t.requires_grad for _, t in named)

    def _note_forward(self, event: CallEvent, code: Any) -> None:
        if code is not None and code not in self.frames.codes(type(event.module)):
            event.forward = code

    def returned(self, result: Any, cache: Any) -> None:
        """The pass is over: what it gave, and the cache that it left."""
        self.flow.leave(tensors_in(plain_result(result)), cache, self._next())

    def _next(self) -> int:
        self._order += 1
        return self._order

    def keep(self, cache: Any) -> None:
        """The keys and values that a KV cache holds lie in it."""
        for tensor in keys_and_values(cache):
            self._keep(tensor)

    def _keep(self, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        if tensor.dtype == self._dtype and storage._cdata not in self._weights:
            self._cached[storage._cdata] = StorageWeakRef(storage)
            if self.recording:
                self._counted.add(storage._cdata)

    def _touched(self, event: CallEvent, name: str, inputs: list[Any], outputs: list[Any]) -> None:
        """An operator reads and writes memory; what it takes of an earlier pass's cache is read for the first time.

        That is keys and values that are read and not updated, those of cross attention, and states of any other kind.
        """
        read = inputs[1:] if name.rpartition(".")[2] == "copy_" else inputs
        for tensor in read:
            storage = tensor.untyped_storage()._cdata
            self._read[storage] = self._order
            kept = storage in self._states or (storage in self._cached and not self.caching)
            if kept and storage not in self._counted:
                self._counted.add(storage)
                event.cache_read = event.cache_read + self._distinct_bytes([("", tensor)])
        self._written.update((tensor.untyped_storage()._cdata, self._order) for tensor in outputs)
        for tensor in [*outputs, *(read if name in operators.CHANGES_STATE else ())]:
            if tensor.untyped_storage()._cdata in self._states:
                self._change(event, tensor)

    def _change(self, event: CallEvent, state: Any) -> None:
        if (storage := state.untyped_storage()._cdata) not in self._changed:
            self._changed.add(storage)
            event.cache_written = event.cache_written + self._distinct_bytes([("", state)])

    def state_update(self, state: Any) -> None:
        """A cache took a new state of another kind than keys and values."""
        storage = state.untyped_storage()
        if storage._cdata not in self._states:
            self._states[storage._cdata] = StorageWeakRef(storage)
            self._counted.add(storage._cdata)
        if self.recording and self._stack:
            self._change(self.calls[self._stack[-1]], state)

    def cache_update(self, old: list[Any], new: list[Any]) -> None:
        """A KV cache took `new` tensors beside the `old` ones it held."""
        if self.recording and self._stack:
            event = self.calls[self._stack[-1]]
            with contextlib.suppress(NoFormulaError):
                event.cache_read = event.cache_read + self._distinct_bytes([("", t) for t in old])
                written = self._distinct_bytes([("", t) for t in new])
                event.cache_written = event.cache_written + written.substitute({"a_bytes": Formula.var("kv_bytes")})

    # ---- operators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for _, tensor in tensors_in((args, kwargs)) if self.left_out else ():
            if (steps := self.left_out.get(tensor.untyped_storage()._cdata)) is not None:
                int(steps[0])  # read by itself and not with all others: what runs depends on how many there are
        if self.recording and self._stack:
            self._note_node(sys._getframe(1))
        found = self.routing.nonzero(args[0]) if func is torch.ops.aten.nonzero.default else None
        result = func(*args, **kwargs) if found is None else found
        self.routing.saw(_name_of(func), args, result)
        if func is torch.ops.aten.native_layer_norm.default:  # a GPU keeps mean and scale of each row in full precision
            result = (result[0], *(kept.float() if kept.dtype.itemsize < 4 else kept for kept in result[1:]))
        if self.recording and (self._stack or self._in_backward):
            name = _name_of(func)
            if self._stack and (name in _READERS or _reads_mask(name, args)):
                site = self.reads_value()
                self.decided.update({f"{site.file}:{site.line}": None} if site and name in _READERS else {})
            if hasattr(func, "is_view") and func.is_view:
                self._note_view(name, args, result)
            else:
                arguments = arguments_of(func, args, kwargs)
                inputs = [tensor for _, tensor in tensors_in((args, kwargs))]
                self._report(name, inputs, [t for _, t in tensors_in(result)], arguments)
        return result

    def _note_view(self, name: str, args: Any, result: Any) -> None:
        """A view whose values are known is worked out by itself, in memory of its own: it stands for what it views all the same."""
        given = [tensor for _, tensor in tensors_in(args)]
        known = {tensor.untyped_storage()._cdata for tensor in given}
        made = [tensor for _, tensor in tensors_in(result) if tensor.untyped_storage()._cdata not in known]
        if made:
            self.flow.passed(name, given, made, self._order + 1)

    def reads_value(self) -> Site | None:
        """Python asks a tensor for its values: where, if it is the model that runs."""
        if not self.recording or not self._stack:
            return None
        event = self.calls[self._stack[-1]]
        site, _ = self.frames.site(sys._getframe(1), type(event.module))
        event.reads.update({} if site is None else {site: None})
        return site

    @property
    def _in_backward(self) -> bool:
        return self.training is not None and self.training.backward

    def _note_node(self, frame: Any) -> None:
        """The node that autograd just made belongs to the line that runs."""
        if self.training is None or not self._stack or (number := self.training.newest()) is None:
            return
        self.training.note(number, self._here(frame))

    def _here(self, frame: Any) -> tuple[int, Site]:
        """The call that runs, and its line."""
        event = self.calls[self._stack[-1]]
        site, _ = self.frames.site(frame, type(event.module))
        if site is None:
            file, line = self.frames.forward_definition(type(event.module))
            site = Site(file=file, line=line)
        return event.index, site

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """What runs is the graph of gradients."""
        assert self.training is not None
        self.recording = self.training.backward = True
        try:
            with self:
                yield
        finally:
            self.recording = self.training.backward = False

    def save(self, tensor: Any) -> None:
        """Autograd saves a tensor."""
        if self.training is not None and self.recording and self._stack:
            frame = sys._getframe(1)
            self.training.save(tensor, self._order, lambda: self._here(frame))

    def _kept_memory(self, tensor: Any) -> tuple[TensorInfo, Formula]:
        """What a tensor is, and the bytes of all the memory that it lies in."""
        known = self._tensor(tensor)
        held = self.symbols.formula(tensor.untyped_storage().nbytes()).divided(Formula.const(tensor.element_size()))
        dense = held is None or self.symbols.same(held, known.stored)
        return self._infos([("", tensor)])[0], known.bytes if held is None or dense else held * known.element

    def report(self, name: str, inputs: list[Any], outputs: list[Any], arguments: dict[str, Any]) -> None:
        """Record one operator that has no kernel here. Raises `TraceError` where a gradient would have to flow through it."""
        lost = self.training is not None and torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
        if lost and name != "opscope.sdpa" and any(t.is_floating_point() for t in outputs):
            raise TraceError(f"{name} is computed in a way whose backward is not known.")
        self._report(name, inputs, outputs, arguments)

    def _report(self, name: str, inputs: list[Any], outputs: list[Any], arguments: dict[str, Any]) -> None:
        """Record one operator issued by the innermost module, from the current stack; backwards by the node that runs."""
        place = self.training.place() if self.training is not None and self.training.backward else None
        if not self.recording or not (self._stack or place):
            return
        event = self.calls[self._stack[-1] if place is None else place[0]]
        for made in outputs if self.caching else ():
            self._keep(made)
        if place is None:
            self._note_gathered(inputs)
        reason = ""
        if name == "opscope.sdpa":
            masked = len(inputs) > 3 and bool(getattr(self._modules[-1], "is_causal", False))
            arguments = {**arguments, "causal": arguments.get("causal") or masked}
        try:
            arguments = tree_map_only(torch.SymInt, self.symbols.formula, arguments)
            arguments = tree_map_only(torch.Tensor, lambda _: "a tensor", arguments)  # none outlives the call
            call = Call(name, [self._tensor(t) for t in inputs], [self._tensor(t) for t in outputs], arguments)
            cost = operators.cost_of(call)
        except NoFormulaError as problem:
            if not problem.depends_on_data:
                raise  # fewer symbols can say it
            self.lost_to_data = True
            call, cost, reason = Call(name, (), ()), operators.free(name), problem.message.rstrip(".")
        weights = weight_reads(call, cost)
        cost, often, experts = self.routing.counted(cost, inputs, call.inputs, outputs)
        if cost is not None and (cost.free or not (cost.flops.terms or cost.read.terms or cost.write.terms)):
            self.flow.passed(name, inputs, outputs, self._order + 1)
            return
        site, code = self.frames.site(sys._getframe(1), type(event.module)) if place is None else (place[1], None)
        self._note_forward(event, code)
        if site is None:
            file, line = self.frames.forward_definition(type(event.module))
            site = Site(file=file, line=line)
        order = self._next()
        self._touched(event, name, inputs, outputs)
        step = self.flow.ran(order, inputs, outputs)
        self.ops.append(
            OpEvent(
                order=order, call=event.index, site=site, operator=name, cost=cost,
                inputs=self._infos([("", t) for t in inputs]), outputs=self._infos([("", t) for t in outputs]),
                weights={storage: size * experts for storage, size in weights.items()}, ran=call, repeat=often, experts=experts, masks=tuple(tuple(_stored(t)) for t in inputs),
                step=step, views=tuple(self.flow.views(inputs, call.inputs)),
                reason="" if cost else reason or operators.reason_of(name), backward=place is not None,
            )
        )  # fmt: skip

    def _tensor(self, tensor: Any) -> Tensor:
        shape = tuple(self.symbols.formula(size) for size in tensor.shape)
        stored = Formula.const(1)
        for size, kept in zip(shape, _stored(tensor), strict=True):
            stored = stored * size if kept else stored
        storage = tensor.untyped_storage()._cdata
        weight = storage in self._weights
        dtype = str(tensor.dtype).removeprefix("torch.")
        scales = ZERO
        quantised = self.stored.element(storage) if self.stored is not None and weight else None
        if quantised is not None and self.stored is not None:
            element = quantised
            scales = self.stored.beside(storage, shape, self.symbols.formula)
        elif tensor.dtype == self._dtype:
            element = Formula.var("w_bytes" if weight else "kv_bytes" if storage in self._cached else "a_bytes")
        else:
            element = Formula.const(tensor.element_size())
        # the same view of the same memory; symbolic offsets and strides by their expressions, since they do not hash
        key = (storage, _plainly(tensor.storage_offset()), shape, tuple(map(_plainly, tensor.stride())), dtype)
        return Tensor(shape, dtype, element, stored, weight, key, scales)

    def _infos(self, named: list[tuple[str, Any]]) -> tuple[TensorInfo, ...]:
        found = []
        for name, tensor in named:
            try:
                shape = tuple(str(self.symbols.formula(size)) for size in tensor.shape)
            except NoFormulaError:
                shape = tuple("?" for _ in tensor.shape)
            found.append(TensorInfo(name=name, shape=shape, dtype=str(tensor.dtype).removeprefix("torch.")))
        return tuple(found)

    def _measured(self, tensor: Any) -> tuple[TensorInfo, Formula | None]:
        """What a tensor is, and its bytes; None where they depend on data."""
        try:
            size = self._tensor(tensor).bytes
        except NoFormulaError:
            size = None
        return self._infos([("", tensor)])[0], size

    def _distinct_bytes(self, named: list[tuple[str, Any]]) -> Formula:
        total, seen = ZERO, set()
        for _, raw in named:
            try:
                tensor = self._tensor(raw)
            except NoFormulaError:
                continue
            if tensor.key not in seen:
                seen.add(tensor.key)
                total = total + tensor.bytes
        return total


@functools.cache
def _name_of(func: Any) -> str:
    return func._schema.name.replace("::", ".") if hasattr(func, "_schema") else str(func)


def _reads_mask(name: str, args: Any) -> bool:
    """Whether an operator takes elements by a mask, whose ones are counted before it runs."""
    chosen = args[1] if name in _MASKED else ()
    return any(t.dtype in (torch.bool, torch.uint8) for _, t in tensors_in(chosen))


def weight_reads(call: Call, cost: Cost | None) -> dict[int, Formula]:
    """Storage -> bytes that an operator reads of a weight: of a table that it gathers rows from, those rows."""
    found = {}
    for tensor in call.inputs:
        if tensor.weight and cost is not None and isinstance(tensor.key, tuple):
            others = sum((t.bytes for t in call.inputs if t is not tensor), ZERO)
            gathered = call.name in _GATHERS and not tensor.dtype.startswith(("int", "uint", "bool"))
            found[tensor.key[0]] = Formula.minimum(cost.read - others, tensor.bytes) if gathered else tensor.bytes
    return found


def _since(event: CallEvent, when: dict[int, int], tensor: Any) -> bool:
    """Whether the memory of a tensor was used in a call."""
    return when.get(tensor.untyped_storage()._cdata, -1) > event.order


def _pairs(first: Any, result: Any) -> list[tuple[Any, Any]]:
    """The tensors of two results alike."""
    return [
        (a, b) for (_, a), (_, b) in zip(tensors_in(plain_result(first)), tensors_in(plain_result(result)), strict=True)
    ]


def plain_result(result: Any) -> Any:
    """A model's output class as a plain dictionary of what holds tensors, and so those inside it."""
    if hasattr(result, "to_tuple") and hasattr(result, "items"):
        return {k: plain_result(v) for k, v in result.items() if isinstance(v, torch.Tensor | tuple | list | dict)}
    return result


def _stored(tensor: Any) -> list[bool]:
    """Per dimension whether it lies in memory: a broadcast one has stride 0."""
    return [not (isinstance(stride, int) and stride == 0) for stride in tensor.stride()]


def _plainly(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _place(path: str) -> int:
    """The index of a list's child, by its path."""
    return int(path.rpartition(".")[2])


def _members(path: str) -> frozenset[int] | None:
    last = path.rpartition(".")[2]
    return frozenset({int(last)}) if last.isdigit() else None


def arguments_of(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Non-tensor arguments by schema name."""
    found = dict(kwargs)
    if hasattr(func, "_schema"):
        for declared, value in zip(func._schema.arguments, args, strict=False):
            found[declared.name] = value
    return {k: v for k, v in found.items() if not isinstance(v, torch.Tensor)}


def _bound(module: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments by the forward's parameter names."""
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {**{f"args[{i}]": a for i, a in enumerate(args)}, **kwargs}
    flat: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        flat.update(value) if kind is inspect.Parameter.VAR_KEYWORD else flat.update({name: value})
    return flat
