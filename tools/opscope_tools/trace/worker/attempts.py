"""From a request to a trace: which model to run, on which inputs, and how many of its sizes can be symbols.

The widest trace is tried first: every size a symbol. Where the model's code does not bear that, the run's sizes stay
symbols and the config's are numbers; in the end all are numbers. Fewer symbols make a narrower record, never a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from opscope_schemas.errors import ConfigError, OpscopeError, TraceError

from opscope_tools.trace.protocol import ModelSpec, Trace, TraceRequest
from opscope_tools.trace.worker import configs, fields, models
from opscope_tools.trace.worker.fence import fenced
from opscope_tools.trace.worker.fitted import fitted
from opscope_tools.trace.worker.inputs import reads_only_tokens
from opscope_tools.trace.worker.inspection import built
from opscope_tools.trace.worker.layers import ModuleSession
from opscope_tools.trace.worker.recorder import UnfoldedError
from opscope_tools.trace.worker.session import CUTS, LEVELS, InputsError, Session, TooLongError, UntraceableError, quiet
from opscope_tools.trace.worker.sharing import SharedLayerError
from opscope_tools.trace.worker.stacks import stacks_of
from opscope_tools.trace.worker.writing import written

Say = Callable[[str], None]
#: sets of inputs that are tried before a model counts as one that runs on none of them
_SETS = 20
_FITTED = "their formulas are fitted to runs at several sizes, and checked at some that chose none."
_WHY = "numbers here, because: "
_SAID = {
    "all": "on other inputs", "alike": "as many key/value heads as heads",
    "uncut": "sizes of images and patches are numbers", "run": "the config's sizes are numbers",
    "none": "all sizes are numbers",
}  # fmt: skip


def trace(request: TraceRequest, say: Say) -> Trace:
    """Trace one pass; raises `TraceError` or `ConfigError` with the reason."""
    with fenced(request.model):
        try:
            return _traced(request, say)
        except ConfigError:
            raise
        except (TraceError, Exception) as error:
            raise _explained(request.model, error) from error


def _explained(spec: ModelSpec, error: Exception) -> Exception:
    """The error; where the model cannot even be built from the values that were given, what is wrong with these."""
    if not (spec.content or spec.overrides) or isinstance(error, UntraceableError):
        return error
    try:
        if models.resolve(spec)[1][0][1] is not None:
            built(spec)
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
                found = _widest(request, model_class, config_class, say)
        except OpscopeError as error:
            if len(candidates) == 1 or isinstance(error, ConfigError):
                raise
            problems.append(f"{model_class.__name__}: {error.message}")
            continue
        qualified = f"{target.__module__}.{target.__qualname__}"
        if request.phase == "encode" or any(call.class_name == qualified for call in found.calls):
            return found
        problems.append(f"{model_class.__name__} does not call it in this phase")
    raise TraceError(
        f"{request.model.class_name or request.model.model_type} was not reached by any trace: {'; '.join(problems)}.",
        next_step="Name a class that the model's forward calls, or the model class itself.",
    )


def _widest(request: TraceRequest, model_class: Any, config_class: Any, say: Say) -> Trace:
    """The trace with as many symbols as the model's code bears."""
    if config_class is None:
        return _by_itself(request, model_class)
    way = Way()
    if not reads_only_tokens(model_class):
        way = _runnable(request, model_class, config_class)
    try:
        return _recorded(request, model_class, config_class, "all", way)
    except UntraceableError:
        raise
    except TraceError as error:
        first = error
    if way == Way():
        way = _runnable(request, model_class, config_class)
    return _narrower(request, model_class, config_class, way, say, first)


def _by_itself(request: TraceRequest, module_class: Any) -> Trace:
    """The trace of a module without a config: on the first shapes that it runs on, sizes symbols where they can be."""
    first: TraceError | None = None
    for level in ("all", "run", "none"):
        for chosen in range(_SETS):
            session = ModuleSession(request, module_class, level, chosen=chosen)
            try:
                session.run()
            except (InputsError, UntraceableError) as error:
                first = first or error
                break
            except TraceError as error:
                first = first or error
                continue
            if level != "all" and first is not None:
                session.assumptions[f"Sizes are {_WHY}{first.message}"] = None
            return written(session, None)
    assert first is not None
    raise first


def _narrower(
    request: TraceRequest, model_class: Any, config_class: Any, way: Way, say: Say, first: TraceError
) -> Trace:
    """A trace with fewer symbols than the one that ended in `first`."""
    names = fields.sizes(configs.make_config(config_class, request.model))
    without = {
        "all": way == Way(),
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
            return _recorded(request, model_class, config_class, level, way, why.get(level, ""))
        except TraceError as error:
            first = error if level == "all" else first
    raise first


@dataclass(frozen=True)
class Way:
    """How a model can be run: on which set of inputs, in which dtype."""

    chosen: int = 0
    dtype: torch.dtype = torch.bfloat16


def _recorded(request: TraceRequest, model_class: Any, config_class: Any, level: str, way: Way, why: str = "") -> Trace:
    """The trace of a session that ran."""
    session = _ran(request, model_class, config_class, level, way)
    if request.fit and fitted(session, lambda at: _ran(request, model_class, config_class, level, way, at=at)):
        session.assumptions[f"Sizes that could not be symbols ({', '.join(sorted(session.fitted))}): {_FITTED}"] = None
    if why:
        session.assumptions[why] = None
    return written(session, stacks_of(model_class, config_class, request.model))


def _runnable(request: TraceRequest, model_class: Any, config_class: Any) -> Way:
    """The first set of inputs that the model runs on with plain numbers: then symbols are what a trace fails on."""
    problems: list[TraceError] = []
    for dtype in (torch.bfloat16, torch.float32):
        for chosen in range(_SETS):
            try:
                _ran(request, model_class, config_class, "none", Way(chosen, dtype))
            except UntraceableError:
                raise
            except InputsError as error:
                problems.append(error)
                break
            except TraceError as error:
                problems.append(error)
                continue
            return Way(chosen, dtype)
    problem = min(problems, key=_vagueness)
    raise TraceError(
        problem.message.replace("could not be run on symbolic sizes", "cannot be run as it is configured"),
        next_step=problem.next_step or "Look at the fields that this line needs, and give them with config.",
        location=problem.location,
    )


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
    session = Session(
        request, model_class, config_class, level, fold=fold, share=share, chosen=way.chosen, dtype=way.dtype, at=at
    )
    try:
        session.run()
    except SharedLayerError:
        return again(share=False)
    except UnfoldedError:
        return again(fold=False)
    return session


__all__ = ["trace"]
