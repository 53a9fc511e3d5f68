"""What the tools call: traces from the cache or the worker, and the document that holds at given values.

A trace follows one way through the model's branches and records the conditions for it. Where values break a condition
the model is run again at them on plain numbers, every layer by itself: another way to the same figures, that can disagree.
If it agrees the general document stands; else the model is traced on symbols whose branches are decided there. So a number
is never taken from a formula outside its conditions.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from opscope_cache import keys
from opscope_cache.store import Store, recall
from opscope_cache.trees import IMPORTED, tree_at
from opscope_schemas.analysis import Evaluated, ModelTreeResult, is_element
from opscope_schemas.common import Repository
from opscope_schemas.errors import CancelledError, OpscopeError, TraceError, WorkerError
from opscope_schemas.formula import Rational, evaluate, holds, variables
from opscope_schemas.notes import OF_MORE, OWN_TRACE, SECOND_TRACE
from pydantic import TypeAdapter, ValidationError

from opscope_tools.children import UNLIMITED, Limits
from opscope_tools.running.workspace import DEFAULT_PACKAGES
from opscope_tools.trace import document as documents
from opscope_tools.trace.client import Worker
from opscope_tools.trace.dataflow import dataflow, evaluated
from opscope_tools.trace.document import CallTree
from opscope_tools.trace.flights import Flights, Running
from opscope_tools.trace.protocol import CallRecord, InspectRequest, ModelSpec, Trace, TraceRequest
from opscope_tools.trace.variables import RUN_HINTS, is_depth

T = TypeVar("T")
_KEPT = 32
#: the size of which decode steps are served in any number
_BATCH = "batch_size"
#: conditions of a document at values that do not meet them
_ELSEWHERE = "The formulas of a trace for any sizes, not shown here, hold where {}, which is not so at these values"
#: seconds between two looks at whether a caller that waits has given up
_POLL_SECONDS = 0.05
#: what the worker says of a configuration: its whole numbers by name
_CONFIGURED = TypeAdapter(dict[str, int])


@dataclass(frozen=True)
class Found:
    """The trace to read, the call in it that the document is about, and the totals at the values asked for."""

    tree: CallTree
    call: CallRecord
    values: Mapping[str, Rational] | None
    notes: tuple[str, ...] = ()


class TraceEngine:
    """Traces over the given repositories, transformers, torch and what the user trusts, which workers may import."""

    def __init__(
        self, repositories: Sequence[Repository], store: Store, *, python: str, timeout: float = 600.0,
        limits: Limits = UNLIMITED,
    ) -> None:  # fmt: skip
        self._store = store
        self._python = python
        self._imports = list(repositories)
        #: held, so that they are watched and not listed with every question
        self._trees = [tree_at(r.root, r.packages, IMPORTED) for r in self._imports]
        named = [r for r in self._imports if not r.installed]
        installed = [r.root / package for r in self._imports if r.installed for package in r.packages]
        self._worker = Worker(python, installed=installed, timeout=timeout, limits=limits)
        #: for requests that import a trusted repository: its code, which may change whatever lies in its process, shares none
        #: with others
        self._trusting = Worker(
            python, packages=[r.root / package for r in named for package in r.packages],
            roots=[root for r in named if not r.packages for root in _search_roots(r.root)],
            installed=installed, timeout=timeout, limits=limits,
        )  # fmt: skip
        self._trusted = {str(r.root) for r in named}
        #: whether transformers or torch themselves are a folder that is trusted
        self._own_stack = any(r.name in DEFAULT_PACKAGES for r in named)
        self._recent: OrderedDict[str, CallTree] = OrderedDict()
        self._lock = threading.Lock()
        self._flights = Flights()
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._imported = ""

    def warm(self) -> None:
        """Have the worker import what every trace needs, meanwhile; whatever goes wrong, the first trace says."""

        def asked() -> None:
            with contextlib.suppress(OpscopeError):
                self._worker.ask("warm", {}, cancelled=self._closed, progress=lambda _: None)

        threading.Thread(target=asked, name="opscope-warm", daemon=True).start()

    def _key(self, kind: str, request: TraceRequest | InspectRequest) -> str:
        return f"{kind}/" + keys.digest(keys.engine_version(), self._python, self._sources(), request.model_dump_json())

    def _sources(self) -> str:
        """Fingerprint of what the worker imports."""
        return keys.digest(
            *(
                f"{r.name}@{r.version}:{r.root}:{tree.now().fingerprint}"
                for r, tree in zip(self._imports, self._trees, strict=True)
            )
        )

    def _ask(
        self, kind: str, request: TraceRequest | InspectRequest, running: Running, read: Callable[[Any], T]
    ) -> tuple[T, bool]:
        """The worker's answer as `read` takes it, and whether it may be kept: a worker never outlives a change of what it imported.

        Raises `WorkerError` for what is no answer: code that is traced could write one.
        """
        with self._my_turn(running):
            before = self._sources()
            if self._imported not in ("", before):
                self.close()
            worker = self._trusting if self._imports_trusted(request.model) else self._worker
            self._imported = before
            answer = worker.ask(
                kind, request.model_dump(mode="json"), cancelled=running.cancelled, progress=running.progress
            )
            try:
                return read(answer), self._sources() == before
            except ValidationError:
                worker.close()
                raise WorkerError(
                    "The trace worker gave something that is no answer.",
                    next_step="Try again; a new worker is started.",
                ) from None

    def _imports_trusted(self, model: ModelSpec) -> bool:
        named = (one for one in (model.definition, model.factory) if one is not None)
        return self._own_stack or any(one.root in self._trusted for one in named)

    @contextlib.contextmanager
    def _my_turn(self, running: Running) -> Iterator[None]:
        """The worker to oneself: one that is ended because its sources changed must not be tracing for somebody else."""
        if not self._turn.acquire(blocking=False):
            running.progress("waiting for another trace to end")
            while not self._turn.acquire(timeout=_POLL_SECONDS):
                if running.cancelled.is_set():
                    raise CancelledError("The call was cancelled.")
        try:
            yield
        finally:
            self._turn.release()

    def trace(self, request: TraceRequest, running: Running) -> CallTree:
        """The trace, from memory, disk or the worker."""
        key = self._key("trace", request)
        with self._lock:
            if key in self._recent:
                self._recent.move_to_end(key)
                return self._recent[key]
        tree: CallTree = self._flights.shared(key, lambda all_: self._traced(key, request, all_), running)
        return tree

    def _traced(self, key: str, request: TraceRequest, running: Running) -> CallTree:
        kept = recall(self._store, key, Trace.model_validate_json)
        if kept is None:
            made, sound = self._ask("trace", request, running, Trace.model_validate)
            if not sound:
                return CallTree(made)
            self._store.put(key, made.model_dump_json())
        tree = CallTree(made if kept is None else kept)
        with self._lock:
            self._recent[key] = tree
            while len(self._recent) > _KEPT:
                self._recent.popitem(last=False)
        return tree

    def inspect(self, model: ModelSpec, running: Running) -> ModelTreeResult:
        """The model's tree on the meta device."""
        request = InspectRequest(model=model)
        key = self._key("inspect", request)

        def inspected(all_: Running) -> ModelTreeResult:
            known = recall(self._store, key, ModelTreeResult.model_validate_json)
            if known is not None:
                return known
            result, sound = self._ask("inspect", request, all_, ModelTreeResult.model_validate)
            if sound:
                self._store.put(key, result.model_dump_json())
            return result

        shared: ModelTreeResult = self._flights.shared(key, inspected, running)
        return shared

    def find(
        self,
        request: TraceRequest,
        class_name: str,
        instance: str,
        given: Mapping[str, Rational] | None,
        running: Running,
        *,
        special: bool = True,
        several: bool = True,
    ) -> Found:
        """The trace that holds at `given` (or the general one), and the analysed call in it. Without `special` no trace is
        made that holds at `given` alone, which a loop over the tokens makes long: raises `TraceError` where it would be.
        With `several` one of several sequences stands for that of one where both say the same at `given`, and need not elsewhere."""
        tree = self.trace(request, running)
        call = documents.find_instance(tree, class_name, instance)
        if given is None:
            return Found(tree, call, None)
        values = documents.assignment(tree.trace.variables, given)
        follows = self._configured(request, tree, given, running)
        values = documents.assignment(tree.trace.variables, {**follows, **given}) if follows else values
        _refuse_beyond_rows(tree, call, values)
        beyond = _beyond_positions(values)
        try:
            found = self._at(request, class_name, instance, given, running, tree, call, values, special, several)
        except TraceError as error:
            if not beyond:
                raise
            raise TraceError(
                error.message, next_step=f"{beyond[0]} Give fewer tokens, or a config with more."
            ) from None
        return replace(found, notes=(*found.notes, *beyond))

    def _at(
        self, request: TraceRequest, class_name: str, instance: str, given: Mapping[str, Rational], running: Running,
        tree: CallTree, call: CallRecord, values: dict[str, Rational], special: bool, several: bool,
    ) -> Found:  # fmt: skip
        """The trace that holds at `values`: the general one, or one made anew."""
        own = documents.independent(tree.trace.variables, values)
        if own:  # a size that this config derives was set apart from what it follows: that is another configuration
            model = request.model.model_copy(update={"overrides": {**request.model.overrides, **own}})
            there = request.model_copy(update={"model": model})
            return self.find(there, class_name, instance, given, running, special=special, several=several)
        broken, fitted, deeper = _apart(tree, values)
        if not (broken or fitted or deeper):
            return Found(tree, call, values)
        running.progress("tracing again at these values")
        ones = self._beside(request, tree, values, running)
        if ones is not None and _called_alike(tree, ones, values):
            own_call = documents.find_instance(ones, class_name, instance)
            if _figures(ones, own_call, values) == _figures(tree, call, values) and _kept_alike(
                (ones, own_call), (tree, call), values
            ):
                return Found(tree, call, values)
            why = _ELSEWHERE.format(broken) if broken else "The stack of layers differs"
            found = Found(ones, own_call, values, (f"{why}: {OWN_TRACE}",))
            return self._of_any_batch(request, class_name, instance, tree, found, running) if several else found
        if not special:
            raise TraceError(
                f"No trace for more than these values holds at them: it would need {broken or fitted or deeper}."
            )
        hints = {name: int(value) for name, value in values.items() if not is_element(name)}
        there = request.model_copy(update={"hints": hints, "fit": False})
        plain = self.trace(there.model_copy(update={"plain": True}), running)
        if not _called_alike(tree, plain, values):
            raise TraceError(
                f"{tree.trace.model_class.rpartition('.')[2]} does not run on these values; other inputs than those of its "
                "document would have to be given.",
                next_step="Look at the forward for what it asserts of its inputs (a longest sequence, a size of images).",
            )
        figures = _figures(plain, documents.find_instance(plain, class_name, instance), values)
        same = figures is not None and _figures(tree, call, values) == figures
        if same and not broken:
            return Found(tree, call, values, (SECOND_TRACE,))
        anew, called = self._special(there, class_name, instance, values, running)
        if same and _kept_alike((anew, called), (tree, call), values):
            return Found(tree, call, values, (SECOND_TRACE,))
        if _figures(anew, called, values) != figures:
            said = "The formulas of a trace on symbols say otherwise: this document is of a run on plain numbers, at these alone."
            return Found(plain, documents.find_instance(plain, class_name, instance), values, (said,))
        other = "The fitted formulas say otherwise" if fitted else "The stack of layers differs"
        why = _ELSEWHERE.format(broken) if broken else other
        return Found(anew, called, values, (f"{why}: {OWN_TRACE}",))

    def _special(
        self, request: TraceRequest, class_name: str, instance: str, values: Mapping[str, Rational], running: Running
    ) -> tuple[CallTree, CallRecord]:
        """The trace on symbols whose branches are decided at `values`, and the analysed call in it."""
        found = self.trace(request, running)
        still = documents.broken_guard(found.trace, values)
        if still:
            raise TraceError(f"No trace holds at these values: it would need {still}.")
        return found, documents.find_instance(found, class_name, instance)

    def _beside(
        self, request: TraceRequest, tree: CallTree, values: Mapping[str, Rational], running: Running
    ) -> CallTree | None:
        """The trace of one token, one sequence, a length beyond the window, or of the configuration's own sizes, where
        conditions break by that: all other sizes are symbols in it, so that it serves every point there. None where they
        break by something else, or it does not hold at the values either."""
        guards = [variables(guard) for guard in documents.broken_guards(tree.trace, values)]
        apart = [
            n
            for n in sorted(set().union(*guards))
            if n in values and not is_element(n) and values[n] != tree.trace.point.get(n)
        ]
        hints = {n: int(values[n]) for n in apart if n not in RUN_HINTS or values[n] == 1}
        if tree.trace.fixed.keys() & (
            set(apart) - set(hints)
        ):  # a trace at another number of them holds at that number alone
            return None
        for name in set(apart) - set(hints):
            beside = [
                int(values[n]) for guard in guards if name in guard for n in guard - RUN_HINTS.keys() if n in values
            ]
            if beside and values[name] >= max(beside):
                hints[name] = 2 * max(beside) + 3  # beyond a window: one trace for all that lies there
        if not hints or request.hints:
            return None
        try:
            found = self.trace(request.model_copy(update={"hints": hints}), running)
        except TraceError:
            return None
        return None if any(_apart(found, values)) else found

    def _of_any_batch(
        self, request: TraceRequest, class_name: str, instance: str, tree: CallTree, alone: Found, running: Running
    ) -> Found:
        """In place of `alone`, a trace of one sequence, the same of several where that says no other figures of one: a decode step is of
        one token for every batch. `tree` is the general trace that holds for neither."""
        values, several = dict(alone.values or {}), tree.trace.point.get(_BATCH, 1)
        elsewhere = {**values, _BATCH: several}
        broken = documents.broken_guard(tree.trace, elsewhere)
        if values.get(_BATCH) != 1 or several == 1 or not broken:
            return alone
        more = self._beside(request, tree, elsewhere, running)
        if more is None or not _called_alike(more, alone.tree, values):
            return alone
        call = documents.find_instance(more, class_name, instance)
        figures = _figures(more, call, values)
        same = figures is not None and figures == _figures(alone.tree, alone.call, values)
        if same and _kept_alike((more, call), (alone.tree, alone.call), values):
            return Found(more, call, values, (f"{_ELSEWHERE.format(broken)}: {OF_MORE}",))
        return alone

    def _configured(
        self, request: TraceRequest, tree: CallTree, given: Mapping[str, Rational], running: Running
    ) -> dict[str, int]:
        """What the config class makes of its other fields where some are given: it knows which follow from which, and
        refuses those that do not go together."""
        keys = {name: v.config_key for v in tree.trace.variables if v.config_key for name in (v.name, v.config_key)}
        own = {keys[name]: int(value) for name, value in given.items() if name in keys}
        if not own or not tree.trace.config_class:
            return {}
        model = request.model.model_copy(update={"overrides": {**request.model.overrides, **own}})
        key = self._key("configure", InspectRequest(model=model))
        kept = recall(self._store, key, _CONFIGURED.validate_json)
        if kept is None:
            made, sound = self._ask("configure", InspectRequest(model=model), running, _CONFIGURED.validate_python)
            if sound:
                self._store.put(key, json.dumps(made))
        found = made if kept is None else kept
        followers = {v.name for v in tree.trace.variables if v.config_key and v.kind != "derived"}
        return {n: x for n, x in found.items() if n in followers and keys[n] not in own}

    def close(self) -> None:
        """End the workers."""
        self._closed.set()
        self._worker.close()
        self._trusting.close()


def _search_roots(root: Path) -> list[Path]:
    """Where the modules of a repository that is no package are imported from: its folder, and `src` in it."""
    return [root, *(folder for folder in (root / "src",) if folder.is_dir())]


def _apart(tree: CallTree, values: Mapping[str, Rational]) -> tuple[str, list[str], list[str]]:
    """What of a trace's record values leave: a condition, sizes that were fitted and depths that are others."""
    trace = tree.trace
    fitted = [v.name for v in trace.variables if v.kind == "fitted" and values.get(v.name) != trace.point[v.name]]
    deeper = [n for n in values if is_depth(n) and values[n] != trace.point.get(n)]
    return documents.broken_guard(trace, values), fitted, deeper


def _called_alike(general: CallTree, special: CallTree, values: Mapping[str, Rational]) -> bool:
    """Whether a trace at the values calls the model as the general one does: the same inputs, of the sizes that it says."""
    ours, theirs = general.trace.inputs, special.trace.inputs
    if [(i.name, len(i.shape)) for i in ours] != [(i.name, len(i.shape)) for i in theirs]:
        return False
    if any(values.get(name, default) != default for name, default in general.trace.fixed.items()):
        return True  # which of the numbers in the general trace's sizes are these cannot be told
    sizes = [pair for a, b in zip(ours, theirs, strict=True) for pair in zip(a.shape, b.shape, strict=True)]
    # a size that is a number in the general trace is one of its own point
    return all(evaluate(a, values) == evaluate(b, values) for a, b in sizes if variables(a))


def _refuse_beyond_rows(tree: CallTree, call: CallRecord, values: Mapping[str, Rational]) -> None:
    """Raises `TraceError` where the call looks up rows that a table of positions has not."""
    for condition in set(tree.trace.ends) & set(documents.guards_of(tree, call)):
        asked, has = condition.split(" <= ")
        if not holds(condition, values):
            raise TraceError(
                f"A run ends in an error: it looks up {evaluate(asked, values)} positions, and the model has weights for {evaluate(has, values)}.",
                next_step=f"Give values with {condition}, or a config with more positions.",
            )


def _beyond_positions(values: Mapping[str, Rational]) -> tuple[str, ...]:
    """A note where a run would leave the positions that the model was made for."""
    limits = [values[name] for name in ("max_position_embeddings", "n_positions", "max_seq_len") if name in values]
    length = values.get("seq_len", 0) + values.get("cache_len", 0)
    if not limits or length <= min(limits):
        return ()
    return (f"{length} positions are more than the {min(limits)} that the config makes room for.",)


def _kept_alike(
    one: tuple[CallTree, CallRecord], other: tuple[CallTree, CallRecord], values: Mapping[str, Rational]
) -> bool:
    """Whether two traces have the same peak and the same cache there. That they cost the same does not say so: a layer with a
    window keeps fewer tokens where there are more than the window, and no longer grows."""
    if one[0].trace.phase == "train":  # what is saved for the way back is among the figures
        return True
    first, second = (evaluated(dataflow(*each), values) for each in (one, other))
    names = ("peak_activations", "cache_before", "cache_after", "cache_per_token")
    return all(getattr(first, name) == getattr(second, name) for name in names)


def _figures(tree: CallTree, call: CallRecord, values: Mapping[str, Rational]) -> Evaluated | None:
    from opscope_schemas.errors import ValuesError

    try:
        found = documents.evaluated(documents.module_analysis(tree, call), values)
    except (ValuesError, KeyError):
        return None
    return found.model_copy(update={"values": {}})
