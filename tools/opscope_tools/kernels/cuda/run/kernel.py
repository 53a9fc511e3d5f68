"""The abstract run of a CUDA kernel: its parts are made and joined here, and handed the kernel's body.

Nothing is executed. A branch that constants decide is followed so; one that threads decide is run for those threads;
of one that parameters decide the side that does the work is counted, `conditions` says so, and the other one is run on a copy
of the state for what stands there; what data decides is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from opscope_tools.kernels.cuda.cute.values import Tensor, Tma
from opscope_tools.kernels.cuda.names.functions import Function, Library
from opscope_tools.kernels.cuda.names.scope import Scope, generic
from opscope_tools.kernels.cuda.names.values import INT, UNKNOWN, Type, Value, pointer, whole
from opscope_tools.kernels.cuda.run.calls import Calls
from opscope_tools.kernels.cuda.run.decisions import Guards
from opscope_tools.kernels.cuda.run.expressions import Expressions
from opscope_tools.kernels.cuda.run.functions import Functions
from opscope_tools.kernels.cuda.run.loops import Loops
from opscope_tools.kernels.cuda.run.state import State
from opscope_tools.kernels.cuda.run.statements import Statements
from opscope_tools.kernels.cuda.run.tensors import as_value
from opscope_tools.kernels.cuda.run.variables import Declarations
from opscope_tools.kernels.run.events import TooManyStepsError, Unknown
from opscope_tools.kernels.run.log import EVERY, Log, Lost
from opscope_tools.kernels.values.expressions import Quantity, leaf, render
from opscope_tools.kernels.values.threads import whole as whole_block

#: nodes that one run looks at
MOST_STEPS = 120_000


def run_cuda(
    function: Function, library: Library, block: Mapping[str, Any], given: Mapping[str, Any], compile_time: frozenset[str],
    handed: Mapping[int | str, Any],
) -> Log:  # fmt: skip
    """Run a kernel abstractly. `block`: threads along x, y, z; `given`: template parameters of one value; `handed`: what all
    launches give of CuTe's values."""
    log = Log(MOST_STEPS)
    missing = log.sums.not_counted
    if function.unread:
        missing.setdefault(function.unread, Lost())
        log.met(Unknown(line=function.code.source.line(function.start), what=function.unread, loses=EVERY))
        return log
    scope = Scope(function, library, compile_time=compile_time)
    _template(scope, given)
    _parameters(scope, given, handed, log)
    state = State(log, scope, dict(block), whole_block(dict(block)))
    try:
        _run(state)
    except TooManyStepsError:
        missing.setdefault("what comes behind the first steps of a very long run", Lost())
    except RecursionError:
        missing.setdefault("expressions that are nested too deeply", Lost())
    else:
        if not log.sums.entries and function.code.left_out(function.start, function.end):
            missing.setdefault("what stands in branches of #if that are not taken: the rest does nothing", Lost())
    return log


def _run(state: State) -> None:
    """Make the parts of a run, join them and hand them the kernel."""
    guards = Guards(state.log)
    expressions = Expressions(guards)
    functions, loops = Functions(expressions), Loops(expressions)
    calls = expressions.calls = Calls(expressions, functions)
    statements = Statements(expressions, guards, calls, Declarations(expressions, functions), loops)
    functions.statements = loops.statements = statements
    functions.run(state)


def _template(scope: Scope, given: Mapping[str, Any]) -> None:
    """The template parameters: types, numbers and functions."""
    for parameter in scope.function.template:
        name, value = parameter.name, given.get(parameter.name)
        if parameter.type:
            told = scope.read_type(str(value)) if name in given else None
            scope.types[name] = told or generic(name)
        elif isinstance(value, int):
            scope.declare(name, whole(int(value)))
        elif isinstance(value, str) and scope.called(value):
            scope.declare(name, Value(UNKNOWN, function=value))
        else:
            scope.declare(name, Value(INT, Quantity(name)))


def _parameters(scope: Scope, given: Mapping[str, Any], handed: Mapping[int | str, Any], log: Log) -> None:
    """The parameters: numbers keep their names, and a value that is given decides tests alone."""
    scope.cute.update({name: value for name, value in handed.items() if isinstance(name, str)})
    for place, (kind, name) in enumerate(scope.function.parameters):
        if (of_cute := handed.get(place)) is not None:
            if kind.name in scope.types and not kind.pointers:
                scope.cute[kind.name] = of_cute
            if isinstance(of_cute, Tma) and of_cute.tensor.base is not None:
                base = replace(of_cute.tensor.base, origin=(name,))
                of_cute = replace(of_cute, tensor=replace(of_cute.tensor, base=base))
            if isinstance(of_cute, Tensor) and of_cute.base is not None:
                element = Type("generic", f"{kind.name}::value_type", f"sizeof({kind.name}::value_type)")
                of_cute = replace(of_cute, base=replace(of_cute.base, type=pointer(element), origin=(name,)))
            scope.declare(name, as_value(of_cute) or Value(UNKNOWN))
            continue
        of = scope.type_of(kind)
        space = "global" if of.kind in {"pointer", "object", "unknown"} else ""
        number = leaf(name) if of.kind in {"int", "unknown"} else None
        log.names[name] = ""
        if number is not None and isinstance(given.get(name), int):
            log.answers.equal[render(number)] = int(given[name])
        origin = (name,) if space and not re.fullmatch(r"dim3|\w+\d", of.name) else ()
        scope.declare(name, Value(of, number, space=space, origin=origin))


__all__ = ["run_cuda"]
