"""From a request to a trace: which model to run, on which inputs, and how many of its sizes can be symbols.

The widest trace is tried first: every size a symbol. Where the model's code does not bear that, the run's sizes stay
symbols and the config's are numbers; in the end all are numbers. Fewer symbols make a narrower record, never a wrong one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from opscope_schemas.errors import ConfigError, OpscopeError, TraceError

from opscope_tools.trace.protocol import ModelSpec, Trace, TraceRequest
from opscope_tools.trace.worker import absent, configs, fields, inspection, models
from opscope_tools.trace.worker import layers as by_itself
from opscope_tools.trace.worker.blueprint import Blueprint, variants
from opscope_tools.trace.worker.definitions import imported
from opscope_tools.trace.worker.fence import fenced
from opscope_tools.trace.worker.fitted import fitted
from opscope_tools.trace.worker.inputs import reads_only_tokens
from opscope_tools.trace.worker.layers import ModuleSession
from opscope_tools.trace.worker.recorder import UnfoldedError
from opscope_tools.trace.worker.session import (
    CUTS,
    LEVELS,
    Data,
    DataError,
    InputsError,
    Session,
    TooLongError,
    UntraceableError,
    quiet,
)
from opscope_tools.trace.worker.sharing import SharedLayerError
from opscope_tools.trace.worker.stacks import stacks_of
from opscope_tools.trace.worker.writing import written

Say = Callable[[str], None]
#: CPU seconds that a module by itself may take on symbols
_PATIENCE = 20.0
#: CPU seconds of a run on numbers up to which a dozen of them may be made to fit formulas
_QUICK = 2.0
#: sets of inputs that are tried before a model counts as one that runs on none of them
_SETS = 20
#: weights of a model that is run with values, at most, and sets of inputs that are tried so
_LARGEST, _TRIED = 400_000_000, 4
_FITTED = "their formulas are fitted to runs at several sizes, and checked at some that chose none."
_WHY = "numbers here, because: "
_SAID = {
    "all": "on other inputs", "alike": "as many key/value heads as heads",
    "uncut": "sizes of images and patches are numbers", "run": "the config's sizes are numbers",
    "none": "all sizes are numbers",
}  # fmt: skip


#: traces made lately, by model and what was asked of it beside a class of its own; how many are kept
_lately: dict[tuple[Any, Any, str, str], Trace] = {}
_KEPT = 8
#: passes in which a layer that was taken for a copy of another was needed itself: from then on all are built, which changes no record
_unshared: set[tuple[Any, str, str, Way]] = set()
#: requests in one of whose passes layers only looked alike: at other points too, all run
_unfolded: set[tuple[Any, str, str, Way]] = set()
#: passes that ended where heads were no multiple of key/value heads, and ran where they are as many
_alike: set[tuple[Any, str, str]] = set()
#: passes that took too long on symbols, by how the model was built, with what was said then: at other sizes of a run they would again
_slow: dict[tuple[Any, ...], TooLongError] = {}


def trace(request: TraceRequest, say: Say) -> Trace:
    """Trace one pass; raises `TraceError` or `ConfigError` with the reason."""
    with fenced(request.model):
        try:
            return _traced_with_stand_ins(request, say)
        except ConfigError:
            raise
        except (TraceError, Exception) as error:
            raise _explained(request.model, error) from error


def _traced_with_stand_ins(request: TraceRequest, say: Say) -> Trace:
    """The trace; where it ends for want of a package whose kernels are known, the trace with stand-ins for them."""
    try:
        return _traced(request, say)
    except OpscopeError as error:
        definition = request.model.definition
        own = definition is None or definition.module.startswith(("torch.", "transformers."))  # these do without
        if definition is None or own or not absent.names_known(str(error)):
            raise
        first = error
    say("tracing again: kernels of packages that are not installed by their definitions")
    with absent.importable(definition):
        try:
            found = _traced(request, say)
        except OpscopeError as error:
            raise (first if absent.names_known(str(error)) else error) from error
        return found.model_copy(update={"assumptions": (*found.assumptions, *filter(None, [absent.remark()]))})


def _explained(spec: ModelSpec, error: Exception) -> Exception:
    """The error; where the model cannot even be built from the values that were given, what is wrong with these."""
    if not (spec.content or spec.overrides) or isinstance(error, UntraceableError):
        return error
    try:
        if models.resolve(spec)[1][0][1] is not None:
            inspection.built(spec)
    except OpscopeError as plain:
        return plain
    except Exception:  # not for want of a value: the first error says more
        return error
    if isinstance(error, OpscopeError):
        return error
    name = (spec.class_name or spec.model_type).rpartition(".")[2]
    return TraceError(
        f"{name} cannot be traced with these values: {configs.reason_of(error)}.",
        next_step="Give other values, or leave config out for the defaults.",
    )


def _traced(request: TraceRequest, say: Say) -> Trace:
    target, candidates = models.resolve(request.model)
    problems: list[str] = []
    for model_class, config_class in candidates:
        say(f"tracing {model_class.__name__} ({request.phase})")
        try:
            with quiet():
                found = _once(request, model_class, config_class, say)
        except OpscopeError as error:
            if len(candidates) == 1 or isinstance(error, ConfigError):
                raise
            problems.append(f"{model_class.__name__}: {error.message.rstrip('.')}")
            continue
        qualified = f"{target.__module__}.{target.__qualname__}"
        if request.phase == "encode" or any(call.class_name == qualified for call in found.calls):
            return found
        problems.append(f"{model_class.__name__} does not call it in this phase")
    raise TraceError(
        f"{request.model.class_name or request.model.model_type} was not reached by any trace: {'; '.join(problems)}.",
        next_step="Name a class that the model's forward calls, or the model class itself.",
    )


def _once(request: TraceRequest, model_class: Any, config_class: Any, say: Say) -> Trace:
    """The widest trace; classes that one model calls are all found in its own, which is made once."""
    spec = request.model
    if config_class is None or spec.definition is None:
        return _widest(request, model_class, config_class, say)
    alike = request.model_copy(update={"model": spec.model_copy(update={"class_name": "", "definition": None})})
    key = model_class, config_class, spec.definition.root, alike.model_dump_json()
    found = _lately.pop(key, None) or _widest(request, model_class, config_class, say)
    _lately[key] = found  # the last of them
    while len(_lately) > _KEPT:
        del _lately[next(iter(_lately))]
    return found


def _widest(request: TraceRequest, model_class: Any, config_class: Any, say: Say) -> Trace:
    """The trace with as many symbols as the model's code bears."""
    if config_class is None:
        return _by_itself(request, model_class, say)
    looked = not reads_only_tokens(model_class)
    way = tried = _runnable(request, model_class, config_class) if looked else Way()
    if request.plain:
        return _on_numbers(request, model_class, config_class, way)
    if way.data:
        return _recorded(request, model_class, config_class, "none", way)
    key = (model_class, request.phase, request.attention)
    # the two differ in heads that are as many as key/value heads by default, and in nothing else
    level = "alike" if key in _alike else "all"
    first: TraceError
    built = *key, request.model.model_dump_json()
    if built in _slow:
        first = _slow[built]
    else:
        try:
            return _recorded(request, model_class, config_class, level, way)
        except UntraceableError:
            raise
        except TooLongError as error:
            first = _slow[built] = error
        except TraceError as error:
            first = error
    if not looked:
        way = _runnable(request, model_class, config_class)
    if way.data:
        return _recorded(request, model_class, config_class, "none", way)
    if isinstance(first, LostError) and way.loses:
        return _recorded(request, model_class, config_class, level, way)
    return _narrower(request, model_class, config_class, way, say, first, again=way != tried)


def _on_numbers(request: TraceRequest, model_class: Any, config_class: Any, way: Way) -> Trace:
    """The trace without symbols and without folding, of which nothing is generalised."""
    ran = partial(_ran, request, model_class, config_class, "none", fold=False, share=False)
    try:
        session = ran(way)
    except UntraceableError:
        raise
    except TraceError:
        if not reads_only_tokens(model_class):
            raise
        session = ran(_runnable(request, model_class, config_class))
    return written(session, None)


def _by_itself(request: TraceRequest, module_class: Any, say: Say) -> Trace:
    """The trace of a module without a config, from the first way to build and call it that runs on numbers; then its sizes
    are symbols where its code bears them and the figures stay the same."""
    spec = request.model
    factory = imported(spec.factory) if spec.factory is not None else None
    first: TraceError | None = None
    for blueprint in variants(module_class, {**spec.content, **spec.overrides}, factory, named=spec.overrides):
        for dtype in (torch.bfloat16, torch.float32):
            try:
                return _widest_by_itself(request, module_class, blueprint, dtype, say)
            except UntraceableError:
                raise
            except TraceError as error:
                first = first or error
    assert first is not None
    raise first


def _widest_by_itself(
    request: TraceRequest, module_class: Any, blueprint: Blueprint, dtype: torch.dtype, say: Say
) -> Trace:
    arguments: Any = None
    at: dict[str, int] = {}
    data: Data = ""
    slow = f"{module_class.__name__} takes too long on symbolic sizes."

    def ran(level: str, more: dict[str, int] | None = None) -> ModuleSession:
        nonlocal arguments
        for fold in (True, False):
            session = ModuleSession(
                request, module_class, blueprint, level, arguments=arguments, at={**at, **(more or {})}, dtype=dtype, fold=fold,
                data=data,
            )  # fmt: skip
            limit = contextlib.nullcontext() if level == "none" else configs.deadline(_PATIENCE, slow)
            try:
                with limit:
                    session.run()
            except UnfoldedError:
                continue
            finally:
                arguments = session.arguments
            return session
        raise TraceError(f"{module_class.__name__} runs differently from one time to the next.")

    try:
        ran("none")
    except DataError:
        if _weights_of(blueprint) > _LARGEST:
            raise
        data = "real"
        return written(ran("none"), None)
    except TraceError:
        if arguments is None:
            raise
        at = {d.name: d.value for a in arguments for d in a.dims if d.kind == "run"}  # at these it ran
    begun = time.process_time()
    plain = ran("none")  # a module that nothing ran on: what looked for its input may have left something in it
    if request.plain:
        return written(plain, None)
    quick = time.process_time() - begun < _QUICK
    problem: TraceError | None = None
    for level in by_itself.LEVELS[:-1]:
        if problem is not None and problem.message == slow and level not in by_itself.PLAINER:
            continue
        say(f"tracing {module_class.__name__} again: symbols for {by_itself.SAID[level]}")
        try:
            session = ran(level)
            by_itself.check_same(plain, session)
        except TraceError as error:
            problem = problem or error
            continue
        return _written_by_itself(session, problem, partial(ran, level), fit=quick)
    return _written_by_itself(plain, problem, partial(ran, "none"), fit=quick)


def _weights_of(blueprint: Blueprint) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in blueprint.build(blueprint.sizes).parameters())


def _written_by_itself(
    session: ModuleSession, problem: TraceError | None, run: Callable[[dict[str, int]], Any], *, fit: bool
) -> Trace:
    if problem is not None:
        session.assumptions[f"{by_itself.NUMBERS[session.level]} {_WHY}{problem.message}"] = None
        if fit and session.request.fit and fitted(session, run):
            session.assumptions[f"Sizes that could not be symbols ({', '.join(sorted(session.fitted))}): {_FITTED}"] = (
                None
            )
    return written(session, None)


def _narrower(
    request: TraceRequest, model_class: Any, config_class: Any, way: Way, say: Say, first: TraceError, *, again: bool
) -> Trace:
    """A trace with fewer symbols than the one that ended in `first`; `again`: that was on other inputs, so all are tried."""
    names = fields.sizes(configs.make_config(config_class, request.model))
    without = {
        "all": not again,
        "alike": not any(n.endswith("num_kv_heads") for n in names),
        "uncut": reads_only_tokens(model_class) and not any(n.endswith(CUTS) for n in names),
    }
    levels = LEVELS if not isinstance(first, TooLongError) else ("uncut", "none")
    for level in (name for name in levels if not without.get(name)):  # what changes nothing need not be tried
        why = {
            "uncut": f"Sizes of images and of what they are cut into are {_WHY}{first.message}",
            "run": f"The config's sizes are {_WHY}{first.message}",
            "none": f"All sizes are {_WHY}{first.message}",
        }
        say(f"tracing again: {_SAID[level]}")
        try:
            found = _recorded(request, model_class, config_class, level, way, why.get(level, ""))
        except TraceError as error:
            first = error if level == "all" else first
            continue
        if level == "alike":
            _alike.add((model_class, request.phase, request.attention))
        return found
    raise first


class LostError(TraceError):
    """On these symbols operators have no cost, because a size of theirs depends on data."""


@dataclass(frozen=True)
class Way:
    """How a model can be run: on which set of inputs, in which dtype, on tensors that hold what."""

    chosen: int = 0
    dtype: torch.dtype = torch.bfloat16
    data: Data = ""
    #: whether sizes of operators depend on data even so
    loses: bool = False
    #: where tokens alone fill a decode pass's cache, the sizes of what the set has beside them
    beside_tokens: tuple[tuple[str, int], ...] | None = None


def _recorded(request: TraceRequest, model_class: Any, config_class: Any, level: str, way: Way, why: str = "") -> Trace:
    """The trace of a session that ran. Raises `LostError` where data makes a size that it need not make on numbers."""
    session = _ran(request, model_class, config_class, level, way)
    if session.recorder.lost_to_data and not way.loses:
        raise LostError(f"{model_class.__name__} makes sizes of data.")
    if request.fit and fitted(session, lambda at: _ran(request, model_class, config_class, level, way, at=at)):
        session.assumptions[f"Sizes that could not be symbols ({', '.join(sorted(session.fitted))}): {_FITTED}"] = None
    if why:
        session.assumptions[why] = None
    return written(session, stacks_of(model_class, config_class, session.spec))


def _runnable(request: TraceRequest, model_class: Any, config_class: Any) -> Way:
    """The first set of inputs that the model runs on with plain numbers: then symbols are what a trace fails on.

    Where data decides, or makes sizes of operators, the inputs are known, or failing that all tensors have values.
    """
    problems: dict[Way, TraceError] = {}
    partly: Way | None = None
    for way in _ways():
        if partly is not None and replace(way, data="") != partly:
            continue  # of that set it is known that it runs
        if any(isinstance(p, InputsError) and w.dtype == way.dtype and w.data == way.data for w, p in problems.items()):
            continue  # there are no more sets
        if way.data and not _may_help(way, problems):
            continue
        if way.data == "real" and _weights(model_class, config_class, request.model) > _LARGEST:
            continue
        try:
            session = _ran(request, model_class, config_class, "none", way)
        except UntraceableError:
            raise
        except TraceError as error:
            problems[way] = error
            continue
        if not session.recorder.lost_to_data:
            return _filled_with_tokens(session, way, partial(_ran, request, model_class, config_class, "none"))
        partly = partly or way
        problems[way] = DataError(f"{model_class.__name__} makes sizes of data.")
    if partly is not None:
        return replace(partly, loses=True)
    problem = min(problems.values(), key=lambda p: (_vagueness(p), not isinstance(p, DataError)))
    raise TraceError(
        problem.message.replace("could not be run on symbolic sizes", "cannot be run as it is configured"),
        next_step=problem.next_step or "Look at the fields that this line needs, and give them with config.",
        location=problem.location,
    )


def _filled_with_tokens(session: Session, way: Way, ran: Callable[[Way], Session]) -> Way:
    """`way`, with tokens alone where a decode pass is the same after these as after those with images or audio among them: what these
    leave in the cache is then what other tokens leave, and their towers, which settle sizes and run long, need not run to fill it."""
    if "input_ids" not in session.filled_with or session.filled_with <= {"input_ids", "attention_mask"}:
        return way
    try:
        other = ran(replace(way, beside_tokens=()))
    except OpscopeError:
        return way
    one, two = (written(s, None) for s in (session, other))
    # sizes are numbers here: the two differ in how many there are
    sizes = {name: getattr(one, name) for name in ("variables", "point", "guards", "decided")}
    if two.model_copy(update=sizes) != one:
        return way
    beside = {name: size for name, size in session.settled.items() if name not in other.settled}
    return replace(way, beside_tokens=tuple(beside.items()))


def _ways() -> Iterator[Way]:
    kinds: tuple[Data, ...] = ("", "known", "real")
    for data in kinds:
        for dtype in (torch.bfloat16, torch.float32):
            yield from (Way(chosen, dtype, data) for chosen in range(_SETS))


def _may_help(way: Way, problems: dict[Way, TraceError]) -> bool:
    """Whether values may be what the set of inputs lacked: data decided, or the model has run on it for a while."""
    before = problems.get(replace(way, data=""))
    if before is None or way.data == "known":
        return isinstance(before, DataError)
    tried = sum(w.data == "real" for w in problems)
    return tried < _TRIED and _vagueness(before) < 2 and any(isinstance(p, DataError) for p in problems.values())


def _weights(model_class: Any, config_class: Any, spec: ModelSpec) -> int:
    model = inspection.bare(model_class, configs.make_config(config_class, spec))
    return sum(p.numel() for p in model.parameters())


def _vagueness(problem: TraceError) -> int:
    """How little an error says: a set that lacks an argument says less than one that the model tried to run."""
    if isinstance(problem, InputsError):
        return 2
    return int(any(word in problem.message for word in ("missing", "have to specify", "must specify", "NoneType")))


def _ran(
    request: TraceRequest, model_class: Any, config_class: Any, level: str, way: Way, *, fold: bool = True,
    share: bool = True, at: dict[str, int] | None = None,
) -> Session:  # fmt: skip
    """A session that ran: every layer built where one that was shared is needed itself, and none folded where layers
    only look alike in one of two passes."""
    again = partial(_ran, request, model_class, config_class, level, way, at=at)
    pass_ = model_class, request.phase, level, way
    asked = model_class, request.model_dump_json(), level, way
    session = Session(
        request,
        model_class,
        config_class,
        level,
        fold=fold and asked not in _unfolded,
        share=share and pass_ not in _unshared,
        chosen=way.chosen,
        dtype=way.dtype,
        at=at,
        data=way.data,
        beside_tokens=way.beside_tokens,
    )
    try:
        session.run()
    except SharedLayerError:
        _unshared.add(pass_)
        return again(share=False)
    except UnfoldedError:
        _unfolded.add(asked)
        return again(fold=False)
    return session


__all__ = ["trace"]
