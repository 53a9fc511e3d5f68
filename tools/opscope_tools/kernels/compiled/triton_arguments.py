"""The arguments of one Triton launch in one case (triton_case.py): constexprs, sizes, strides, warps and stages together."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from opscope_tools.kernels.compiled.triton_case import Case, CaseInterpreter, CaseScope, Guess, RefusedError, search
from opscope_tools.kernels.compiled.triton_tensors import TYPES, tensor
from opscope_tools.kernels.host.interpreter import ModuleScope
from opscope_tools.kernels.host.modules import PyModule
from opscope_tools.kernels.host.reaching import HostFunction, Place, enclosing
from opscope_tools.kernels.host.worlds import DroppedError, Function, ImportRef, UnresolvedError, is_concrete
from opscope_tools.kernels.records import LaunchRef
from opscope_tools.kernels.triton.decorators import Context
from opscope_tools.kernels.triton.definitions import FunctionNode, decorator_name, launched
from opscope_tools.kernels.triton.parameters import parameters
from opscope_tools.kernels.values.conditions import canonical
from opscope_tools.kernels.values.expressions import Expression, Opaque, Quantity

#: what a launch says to the compiler, be it a parameter of the kernel too
OPTIONS = ("num_warps", "num_stages")
#: an input that is a size, by how it is written: a name, a tensor's dimension
_SIZE = re.compile(r"\w+|[\w.]+\.shape\[-?\d+\]")
_FAILURES = (UnresolvedError, RecursionError)


@dataclass(frozen=True)
class Argument:
    """What a launch passes for one parameter: a plain value, `tl.X`, or a `Expression` (a tensor), with where it comes from."""

    value: Any
    said: str
    #: triton's name of the type that a tensor holds, '' where source does not say
    element: str = ""


@dataclass
class Bound:
    """One case of one launch: what it passes, and the sizes that this rests on though source does not say them."""

    launch: LaunchRef | None = None
    arguments: dict[str, Argument] = field(default_factory=dict)
    options: dict[str, int] = field(default_factory=dict)
    assumed: dict[str, int] = field(default_factory=dict)

    def passes(self, given: Mapping[str, Any]) -> bool:
        """Whether these are the values of its constexprs, as far as it says any."""
        return all(name not in self.arguments or self.arguments[name].value == value for name, value in given.items())


def bound(
    launch: LaunchRef, kernel: FunctionNode, context: Context, given: Mapping[str, Any], guess: Guess, element: str,
    *, full: bool = False,
) -> Bound | None:  # fmt: skip
    """A case of this launch; None where none was found under which it is reached.

    `given`: values of parameters that a caller asks for; `guess`: a usual value by name; `element`: what tensors hold;
    `full`: inputs whose default is None are given.
    """
    module = context.modules.load(launch.file)
    call = next((n for n in module.calls if n.lineno == launch.line and launched(n)), None) if module else None
    if module is None or call is None:
        return None
    site = _Site(module, call, kernel, context)

    def make(answers: dict[str, Any]) -> Case:
        told = site.told
        return Case(guess, element, full, answers, dict(told.hints), dict(told.ranks), told.dense, told.elements)

    found = search(make, site.work, {})
    if found is None:
        site.doubted = "; under no inputs that were tried is the launch reached"
        found = search(make, site.work, {})
    if found is None:
        return None
    result: Bound
    result, case = found
    preset: dict[str, Any] = {}
    for name, value in given.items():  # an input that is passed as it is takes the value asked for
        if name not in result.arguments or result.arguments[name].value == value:
            continue
        for key in site.inputs.get(name, ()):
            if key in preset or isinstance(case.answers.get(key), str):
                continue
            tried = search(make, site.work, {**preset, key: value})
            if tried is not None and tried[0].arguments[name].value == value:
                preset[key], (result, case) = value, tried
                break
    result.launch = launch
    result.assumed = {
        case.hints.get(key, key): value for key, value in case.answers.items()
        if type(value) is int and key not in preset and key not in case.defaults and _SIZE.fullmatch(case.hints.get(key, key))
    }  # fmt: skip
    return result


class _Site:
    def __init__(self, module: PyModule, call: ast.Call, kernel: FunctionNode, context: Context) -> None:
        self.module, self.call, self.context = module, call, context
        self.names = [a.arg for a, *_ in parameters(kernel)]
        self.constexprs = {a.arg for a, _, _, constexpr in parameters(kernel) if constexpr}
        self.chain = enclosing(module, call)
        self.place = self.chain[0].place_of(call)
        self.told = _told(self.chain[0])
        if (through := _decorated(self.chain[0], module, context)) is not None:
            self.told.dense.update(dict.fromkeys(self.chain[0].parameters(), through))
        for name, argument in [*zip(self.names, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]:
            size = re.fullmatch(r"(\w+)\.(?:shape\[|size\()(-?\d+)[\])]", ast.unparse(argument))
            if name and size and size[1] in self.chain[0].parameters():
                index = int(size[2]) + (self.told.ranks.get(size[1], 0) if size[2].startswith("-") else 0)
                self.told.hints.setdefault(f"{size[1]}.shape[{index}]", name)
        #: parameter -> inputs that its value was worked out from
        self.inputs: dict[str, tuple[str, ...]] = {}
        self.doubted = ""

    def scope(self, case: Case, place: Place | None) -> CaseScope:
        scope = CaseScope(self.module, self.chain, place)
        scope.case = case
        return scope

    def work(self, case: Case) -> Bound:
        """Every argument in this case; raises `RefusedError` where it does not come to the launch."""
        self.context.checkpoint()
        run = CaseInterpreter(self.context, case)
        try:
            self._unpack(case, run)
            if not self.doubted:
                self._reached(case, run)
            scope = self.scope(case, self.place)
            result = Bound()
            for name, node in self._passed(run, scope):
                case.asked.clear()
                case.reason = ""
                self._bind(result, name, node, run, scope)
        except DroppedError as error:
            raise RefusedError(str(error)) from error
        return result

    def _unpack(self, case: Case, run: CaseInterpreter) -> None:
        """Note how many dimensions `a, b = x.shape` says that x has, and what it calls them."""
        for place in self.chain[0].all_places:
            statement = place.statement
            if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Tuple):
                continue
            targets = statement.targets[0].elts
            if not ast.unparse(statement.value).endswith((".shape", ".size()")) or _stars(targets):
                continue
            try:
                value = run.eval(statement.value, self.scope(case, place))
            except _FAILURES:
                continue
            text = value.text.replace("{", "").replace("}", "") if isinstance(value, Expression) else ""
            if text.endswith((".shape", ".size()")):
                base = tensor(text.rpartition(".")[0]).base
                case.ranks.setdefault(base, len(targets))
                for index, target in enumerate(targets):
                    if isinstance(target, ast.Name) and target.id != "_":
                        case.hints.setdefault(f"{base}.shape[{index}]", target.id)

    def _passed(self, run: CaseInterpreter, scope: CaseScope) -> Iterator[tuple[str, ast.expr | tuple[Any]]]:
        """(parameter or option, expression); the items of `**table` as values in a tuple."""
        for name, argument in zip(self.names, self.call.args, strict=False):
            if isinstance(argument, ast.Starred):
                break
            yield name, argument
        for keyword in self.call.keywords:
            if keyword.arg is not None:
                yield keyword.arg, keyword.value
                continue
            try:
                table = run.eval(keyword.value, scope)
            except _FAILURES:
                continue
            for name, value in table.items() if isinstance(table, dict) else ():
                yield str(name), (value,)

    def _bind(self, result: Bound, name: str, node: Any, run: CaseInterpreter, scope: CaseScope) -> None:
        case = scope.case
        try:
            value = node[0] if isinstance(node, tuple) else run.eval(node, scope)
        except _FAILURES:
            return
        if name in self.constexprs or name not in self.names:
            value = case.number(value, name)
        option = name not in self.names or name in OPTIONS  # a parameter of such a name is both
        if option and isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 64:
            result.options[name] = value
        if name not in self.names:
            return
        self.inputs[name] = tuple(case.asked)
        written = "" if isinstance(node, tuple) else ast.unparse(node)
        element = ""
        if isinstance(value, ImportRef):
            found = value.dotted.removeprefix("triton.language.")
            value = f"tl.{found}" if found != value.dotted and "." not in found else value
        elif isinstance(value, Expression):
            element = TYPES.get(case.held(value.text.replace("{", "").replace("}", "")), "")
        if not is_concrete(value) and not isinstance(value, Expression):
            return
        result.arguments[name] = Argument(value, self._said(written, case), element)

    def _said(self, written: str, case: Case) -> str:
        """Where a value comes from: the launch, the inputs that it rests on."""
        if case.reason and ".stride(" in written:
            return f"the launch passes {written}, {case.reason}"
        inputs = [f"{case.hints.get(k, k)} = {case.answers[k]!r}" for k in case.asked if k in case.answers]
        tail = (
            f" with {', '.join(inputs[:4])}" if inputs and [i.rpartition(" = ")[0] for i in inputs] != [written] else ""
        )
        assumed = ", assumed" if inputs and not tail else ""
        return f"launch, line {self.call.lineno}{tail}{assumed}"

    def _reached(self, case: Case, run: CaseInterpreter) -> None:
        """Raises `RefusedError` where a test around the launch fails, an assertion before it, or a refusal holds."""
        host = self.chain[0]
        for place in host.all_places:
            statement = place.statement
            if self.place is None or place.order >= self.place.order or isinstance(host.node, ast.Module):
                break
            if isinstance(statement, ast.Assert) and self._on_the_way(place):
                if tests := self._tests(place.branch):
                    self._hold([*tests, (statement.test, False, place)], case, run, refusal=True)
                else:
                    self._hold([(statement.test, True, place)], case, run)
            elif isinstance(statement, ast.Raise | ast.Return) and place.branch and self._on_the_way(place):
                self._hold(self._tests(place.branch), case, run, refusal=True)
        if self.place is not None:
            self._hold(self._tests(self.place.branch), case, run)

    def _on_the_way(self, place: Place) -> bool:
        """Whether the statement is in no other branch than the launch's own, an `if` that only refuses apart."""
        return self.place is not None and all(
            inner not in [c for c, b in self.place.branch if b != block] for inner, block in place.branch
        )

    def _tests(self, branch: Any) -> list[tuple[ast.expr, bool, Place]]:
        order = {id(p.statement): p for p in self.chain[0].all_places}
        return [
            (compound.test, block == "body", order[id(compound)])
            for compound, block in branch if isinstance(compound, ast.If)
        ]  # fmt: skip

    def _hold(
        self, tests: list[tuple[ast.expr, bool, Place]], case: Case, run: CaseInterpreter, refusal: bool = False
    ) -> None:
        case.asked.clear()
        case.compared.clear()
        outcomes = []
        for test, wanted, place in tests:
            try:
                value = run.eval(test, self.scope(case, place))
            except _FAILURES:
                value = Opaque("?")
            known = is_concrete(value)
            if isinstance(value, Quantity) and not refusal:  # the launch is reached, so it holds
                plain, positive = canonical(value.text)
                case.answers.setdefault(plain, wanted == positive)
            outcomes.append(known and bool(value) == wanted if refusal else not known or bool(value) == wanted)
            if not outcomes[-1]:
                break
        if (refusal and tests and all(outcomes)) or (not refusal and not all(outcomes)):
            raise RefusedError


@dataclass
class _Told:
    """What the host function says of its own tensors by unpacking and asserting: parameter -> fact."""

    hints: dict[str, str] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    dense: dict[str, str] = field(default_factory=dict)
    elements: dict[str, str] = field(default_factory=dict)


def _told(host: HostFunction) -> _Told:
    told = _Told()
    for place in host.all_places:
        statement = place.statement
        if isinstance(statement, ast.Assert):
            for test in statement.test.values if isinstance(statement.test, ast.BoolOp) else [statement.test]:
                _asserted(ast.unparse(test), statement.lineno, host, told)
    return told


def _asserted(test: str, line: int, host: HostFunction, told: _Told) -> None:
    name = test.partition(".")[0]
    if name not in host.parameters() or name in host.definitions:
        return
    if test in (f"{name}.is_contiguous()", f"{name}.stride(-1) == 1"):
        told.dense[name] = f"asserted, line {line}"
    held = test.removeprefix(f"{name}.dtype == torch.")
    if held in TYPES:
        told.elements[name] = held
    for ending in (".ndim == ", ".dim() == "):
        number = test.removeprefix(f"{name}{ending}")
        if number.isdigit():
            told.ranks[name] = int(number)


def _stars(nodes: list[ast.expr]) -> bool:
    return any(isinstance(n, ast.Starred) for n in nodes)


def _decorated(host: HostFunction, module: PyModule, context: Context) -> str | None:
    """A decorator of the function that makes its tensors contiguous, where its source is in the repository."""
    for node in getattr(host.node, "decorator_list", []):
        dotted = decorator_name(node, module)
        found = context.modules.resolve(dotted, module.path) if "." in dotted else (module, dotted)
        functions = [f for f in found[0].functions if f.name == found[1]] if found else []
        if any(isinstance(n, ast.Attribute) and n.attr == "contiguous" for f in functions for n in ast.walk(f)):
            return f"by @{dotted.rpartition('.')[2]}"
    return None


def heuristics(
    kernel: FunctionNode, module: PyModule, context: Context, values: Mapping[str, Any], guess: Guess, element: str
) -> dict[str, Any]:
    """The constexprs that `@triton.heuristics` computes of the arguments `values`; those left out that are not settled."""
    found: dict[str, Any] = {}
    for node in kernel.decorator_list:
        if not isinstance(node, ast.Call) or decorator_name(node, module).rpartition(".")[2] != "heuristics":
            continue
        table = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "values"), None)
        run = CaseInterpreter(context, Case(guess, element))
        try:
            rules = run.eval(table, ModuleScope(module)) if table is not None else None
        except _FAILURES:
            continue
        for name, rule in rules.items() if isinstance(rules, dict) else ():
            try:
                value = run.invoke(rule, [{**values, **found}], {}) if isinstance(rule, Function) else None
            except (*_FAILURES, DroppedError):
                continue
            if isinstance(value, bool | int | float | str):
                found[str(name)] = value
    return found


def unspecialised(kernel: FunctionNode) -> set[str]:
    """Parameters that `@triton.jit(do_not_specialize=...)` names: nothing is assumed of their values."""
    found: set[str] = set()
    names = [a.arg for a, *_ in parameters(kernel)]
    for node in kernel.decorator_list:
        for keyword in node.keywords if isinstance(node, ast.Call) else ():
            if keyword.arg == "do_not_specialize":
                try:
                    given = ast.literal_eval(keyword.value)
                except (ValueError, SyntaxError):
                    continue
                found.update(names[g] if isinstance(g, int) and g < len(names) else str(g) for g in given)
    return found


__all__ = ["OPTIONS", "Argument", "Bound", "bound", "heuristics", "unspecialised"]
