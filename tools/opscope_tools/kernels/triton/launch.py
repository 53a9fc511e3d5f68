"""A Triton launch site: the grid in the kernel's own constants, the constexpr arguments, warps and stages.

Each quantity is worked out on its own, once per way in which the tests that it depends on can turn out, and the results
are merged; so a value is listed with exactly the conditions that matter to it.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opscope_schemas.tiling import Autotune, BoundValue, Constraint, Launch, TileSize

from opscope_tools.kernels.host.interpreter import Interpreter
from opscope_tools.kernels.host.modules import PyModule
from opscope_tools.kernels.host.reaching import HostFunction, HostScope, enclosing
from opscope_tools.kernels.host.worlds import (
    Function,
    ImportRef,
    Meta,
    Oracle,
    Outcome,
    UnresolvedError,
    is_concrete,
    worlds,
)  # fmt: skip
from opscope_tools.kernels.records import LaunchRef
from opscope_tools.kernels.triton.decorators import Context, searched
from opscope_tools.kernels.triton.definitions import FunctionNode, handed, handed_by, launched, of_search
from opscope_tools.kernels.triton.parameters import parameters
from opscope_tools.kernels.values.conditions import negated, when_text
from opscope_tools.kernels.values.expressions import Expression, Quantity, render
from opscope_tools.kernels.values.notation import product

#: launch options that are not parameters of the kernel
_OPTIONS = {
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "waves_per_eu",
    "matrix_instr_nonkdim",
    "kpack",
    "grf_mode",
}


#: ways in which tests may turn out that are tried for one constant
_WORLDS = 4
#: more distinct values than this are shown as one coarser formula
_CASES = 8


@dataclass
class SiteFacts:
    """What a launch site adds to a kernel's description."""

    constexprs: dict[str, list[BoundValue]] = field(default_factory=dict)
    options: dict[str, list[BoundValue]] = field(default_factory=dict)
    constraints: list[Constraint] = field(default_factory=list)
    #: parameter -> the expression that the launch passes for it
    passed: dict[str, str] = field(default_factory=dict)
    #: parameter -> the one constant that it always has here
    constants: dict[str, Any] = field(default_factory=dict)
    #: parameter -> (constant that it has, the defaults of the launching function that make it so)
    defaults: dict[str, tuple[Any, str]] = field(default_factory=dict)
    #: whether every argument is read: no `*arguments`, no table that is not settled
    complete: bool = True


def launch_site(
    reference: LaunchRef, module: PyModule, kernel: FunctionNode, context: Context, here: str
) -> LaunchSite | None:
    """One launch; None where the file no longer holds it."""
    found = next(
        ((n, parts) for n in module.calls
         if (n.lineno, n.col_offset) == (reference.line, reference.column) and (parts := launched(n)) is not None), None
    )  # fmt: skip
    if found is None:
        return None
    call, (_, grid) = found
    return LaunchSite(call, grid, module, kernel, context, "" if module.path == here else module.path)


class _DefaultScope(HostScope):
    """A host function that is called with its defaults."""

    noted: dict[str, str]

    def _free(self, name: str, host: HostFunction) -> Any:
        default = host.default(name)
        try:
            value = ast.literal_eval(default) if default is not None else ...
        except ValueError:
            value = ...
        if default is None or not isinstance(value, bool | int | float | str | None):
            return super()._free(name, host)
        self.noted[name] = f"{name} is {value!r} by default ({self.module.path}:{default.lineno})"
        return value


class LaunchSite:
    """One launch call in its function: `facts` of its arguments, and the grids once the kernel's tile sizes are known."""

    def __init__(
        self, call: ast.Call, grid: ast.expr, module: PyModule, kernel: FunctionNode, context: Context, file: str
    ) -> None:
        self.call, self.grid, self.module, self.context, self.file = call, grid, module, context, file
        self.chain = enclosing(module, call)
        self.place = self.chain[0].place_of(call)
        self.parameters = parameters(kernel)
        self.constexprs = frozenset(a.arg for a, _, _, constexpr in self.parameters if constexpr)
        self.tiles: dict[str, str] = {}
        self.asked = _asked(kernel)
        self.decisive = _decisive(kernel, self.constexprs)
        self.facts = SiteFacts(constraints=self.constraints())
        self.bind(self.facts)

    def _passed(self, tiles: Collection[str]) -> dict[str, str]:
        """Host variables that the launch passes as one tile size of the kernel."""
        names = [a.arg for a, *_ in self.parameters]
        arguments, keywords = handed(self.call, self.module)
        given = [*zip(names, arguments, strict=False), *((k.arg or "", k.value) for k in keywords)]
        pairs = [
            (v.id, name) for name, v in given if isinstance(v, ast.Name) and name in self.constexprs and name in tiles
        ]
        return {host: name for host, name in pairs if [h for h, _ in pairs].count(host) == 1}

    def _evaluate(
        self, node: ast.expr, bare: frozenset[str], grid: bool = False
    ) -> tuple[list[Outcome], tuple[str, ...], str]:
        """Outcomes of an expression, the definitions used, and what stayed unresolved; coarser where cases abound."""
        outcomes, used, unresolved = self._evaluate_cases(node, bare, grid, coarse=False)
        if unresolved or len({repr(o.value) for o in outcomes}) > _CASES:
            coarse = self._evaluate_cases(node, bare, grid, coarse=True)
            if coarse[0]:
                return coarse
        return outcomes, used, unresolved

    def _evaluate_cases(
        self, node: ast.expr, bare: frozenset[str], grid: bool, coarse: bool
    ) -> tuple[list[Outcome], tuple[str, ...], str]:
        found: dict[str, list[str]] = {}

        def run(oracle: Oracle) -> Any:
            self.context.checkpoint()
            interpreter = Interpreter(self.context.modules, oracle, self.context.arch)
            interpreter.quiet = int(coarse)
            scope = HostScope(self.module, self.chain, self.place, bare, self.tiles if grid else None)
            value = interpreter.eval(node, scope)
            if isinstance(value, Function) and (grid or of_search(self.call)):
                value = interpreter.invoke(value, [self._meta()], {})
            for name, text in scope.used.items():
                if text not in found.setdefault(name, []):
                    found[name].append(text)
            return value

        try:
            outcomes, complete = worlds(run)
        except (UnresolvedError, RecursionError) as error:
            reason = str(error) if isinstance(error, UnresolvedError) else ""
            return [], _definitions(found), reason or ast.unparse(node)
        return outcomes, _definitions(found), "" if complete else f"more cases than are followed: {ast.unparse(node)}"

    def _meta(self) -> Meta:
        """What a grid function is handed."""
        if not of_search(self.call):
            return Meta()
        return Meta(tuple((attribute, name) for name, attribute in self._tried(self.facts.passed).items()))

    def _tried(self, passed: Mapping[str, str]) -> dict[str, str]:
        """Parameter -> the attribute of a configuration that a search hands it."""
        maker = handed_by(self.call, self.module)
        if maker is None or not maker[0].args:
            return {}
        start = f"{maker[0].args[0].arg}."
        return {
            name: text.removeprefix(start)
            for name, text in passed.items()
            if text.startswith(start) and name in self.constexprs
        }

    def tuned(self) -> Autotune | None:
        """The configurations that a search goes through, by the names of the kernel's parameters; None of a plain launch."""
        if not of_search(self.call):
            return None
        outcomes, _, unresolved = self._evaluate(self.call.args[0], frozenset())
        return searched(self.call.args[0], outcomes, unresolved, self._tried(self.facts.passed), self.module.path)

    # grid --------------------------------------------------------------------------------------------------------

    def grids(self, tiles: Collection[str]) -> list[Launch]:
        """One entry per distinct grid; `tiles`: the kernel's names for the sizes of its tiles."""
        node, self.tiles = self.grid, self._passed(tiles)
        outcomes, used, unresolved = self._evaluate(node, self.constexprs, grid=True)
        function = _name(self.chain)
        common: dict[str, Any] = {
            "line": self.call.lineno,
            "file": self.file,
            "function": function,
            "kernel": ast.unparse(self.call.func)[:200],
            "expression": ast.unparse(node),
            "definitions": used,
            "basis": "evaluated",
            "reached_when": self._around(),
        }
        merged: dict[tuple[str, ...], list[Outcome]] = {}
        failed: list[str] = [unresolved] if unresolved else []
        for outcome in outcomes:
            dimensions = _dimensions(outcome.value)
            if dimensions is None:
                failed.append(render(outcome.value))
            else:
                merged.setdefault(dimensions, []).append(outcome)
        launches = [
            Launch(
                **common,
                dimensions=dimensions,
                num_tiles=product(dimensions),
                when="" if len(holding) == len(outcomes) else when_text([o.trail for o in holding]),
                assumptions=tuple(dict.fromkeys(a for o in holding for a in o.assumed)),
            )
            for dimensions, holding in merged.items()
        ]
        if failed:
            shown = tuple(dict.fromkeys(f.replace("{", "").replace("}", "") for f in failed))
            if launches:
                return [launch.model_copy(update={"unresolved": shown}) for launch in launches]
            return [Launch(**{**common, "basis": "source"}, unresolved=shown)]
        return launches or [Launch(**{**common, "basis": "source"}, unresolved=(ast.unparse(node),))]

    def _around(self) -> tuple[str, ...]:
        """The tests of the branches that hold the launch."""
        tests = []
        for compound, block in self.place.branch if self.place else ():
            if isinstance(compound, ast.If):
                test = ast.unparse(compound.test)
                tests.append(test if block == "body" else negated(test))
        return tuple(tests)

    # arguments ---------------------------------------------------------------------------------------------------

    def blocks(self) -> Iterator[TileSize]:
        """The block of each tensor descriptor that the launch hands over, where its function makes it: of `TensorDescriptor(...)`."""
        for name, written in self.facts.passed.items():
            for made in self._made(written):
                last = ast.unparse(made.func).rpartition(".")[2]
                place = {"from_tensor": 1, "TensorDescriptor": 3}.get(last)
                if place is None:
                    continue
                sizes = {k.arg: k.value for k in made.keywords}.get("block_shape") or (
                    made.args[place] if len(made.args) > place else None
                )
                outcomes, _, unresolved = self._evaluate(sizes, self.constexprs) if sizes is not None else ([], (), "")
                values = (
                    dict.fromkeys(_sizes(o.value) for o in outcomes if isinstance(o.value, list | tuple))
                    if not unresolved
                    else {}
                )
                yield TileSize(
                    line=self.call.lineno if made.lineno == 1 else made.lineno, file=self.file, basis="evaluated", name=f"{name}.block_shape", values=tuple(values),
                    used_as=(ast.unparse(made),),
                )  # fmt: skip

    def _made(self, written: str) -> Iterator[ast.Call]:
        """The calls that a name of the launching function is assigned from."""
        with contextlib.suppress(SyntaxError):
            if isinstance(direct := ast.parse(written, mode="eval").body, ast.Call):
                yield direct
        for host in self.chain:
            for place in host.definitions.get(written, []):
                value = place.statement.value if isinstance(place.statement, ast.Assign) else None
                if isinstance(value, ast.Call):
                    yield value

    def bind(self, facts: SiteFacts) -> None:
        """Constexpr arguments and launch options."""
        names = [a.arg for a, *_ in self.parameters]
        given: dict[str, ast.expr] = {}
        arguments, keywords = handed(self.call, self.module)
        for name, argument in zip(names, arguments, strict=False):
            if isinstance(argument, ast.Starred):
                facts.complete = False
                break
            given[name] = argument
        for keyword in keywords:
            if keyword.arg is None:
                self._bind_table(keyword.value, facts)
            else:
                given[keyword.arg] = keyword.value
        facts.passed = {name: ast.unparse(node) for name, node in given.items()}
        tried = self._tried(facts.passed)
        for name, node in given.items():
            if name in self.constexprs and name not in tried:
                facts.constexprs.setdefault(name, []).extend(self._values(node))
            if name in _OPTIONS:
                facts.options.setdefault(name, []).extend(self._values(node))
            if name in names and name in self.asked:
                self._constant(name, node, facts)

    def _constant(self, name: str, node: ast.expr, facts: SiteFacts) -> None:
        """Note what an argument always is, by the host function's own constants or else by its defaults."""
        if not isinstance(
            node, ast.Constant | ast.Name | ast.Compare | ast.BoolOp | ast.UnaryOp | ast.IfExp | ast.Attribute
        ):
            return
        for host in (_DefaultScope,) if name in self.constexprs else (HostScope, _DefaultScope):
            noted: dict[str, str] = {}

            def run(oracle: Oracle, host: type[HostScope] = host, noted: dict[str, str] = noted) -> Any:
                scope = host(self.module, self.chain, self.place)
                if isinstance(scope, _DefaultScope):
                    scope.noted = noted
                return Interpreter(self.context.modules, oracle, self.context.arch).eval(node, scope)

            try:
                outcomes, complete = worlds(run, _WORLDS)
            except (UnresolvedError, RecursionError):
                continue
            values = [o.value for o in outcomes]
            if not complete or not values or any(type(v) is not type(values[0]) or v != values[0] for v in values):
                continue
            if isinstance(values[0], bool | int | float | str | None):
                if host is HostScope:
                    facts.constants[name] = values[0]
                elif noted and (isinstance(values[0], bool | None) or name in self.decisive):
                    facts.defaults[name] = values[0], ", ".join(noted.values())
                return

    def _bind_table(self, node: ast.expr, facts: SiteFacts) -> None:
        """`**config`: its items where reading settles them."""
        outcomes, used, _ = self._evaluate(node, frozenset())
        facts.complete = facts.complete and bool(outcomes) and all(isinstance(o.value, dict) for o in outcomes)
        for outcome in outcomes:
            items = outcome.value.items() if isinstance(outcome.value, dict) else []
            for name, value in items:
                table = facts.constexprs if name in self.constexprs else facts.options if name in _OPTIONS else None
                if table is not None:
                    when = "" if len(outcomes) == 1 else when_text([outcome.trail])
                    bound = self._bound(node, render(value), when, used, outcome.assumed)
                    if bound not in table.setdefault(str(name), []):
                        table[str(name)].append(bound)

    def _values(self, node: ast.expr) -> list[BoundValue]:
        maker = handed_by(self.call, self.module)
        made = ast.Lambda(maker[0], node) if maker is not None else node
        outcomes, used, unresolved = self._evaluate(made, frozenset())
        merged: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            merged.setdefault(_text(outcome.value, node), []).append(outcome)
        if unresolved or not merged:
            return [self._bound(node, f"{{{ast.unparse(node)}}}", "", used, (), basis="source")]
        return [
            self._bound(
                node,
                value,
                "" if len(holding) == len(outcomes) else when_text([o.trail for o in holding]),
                used,
                tuple(dict.fromkeys(a for o in holding for a in o.assumed)),
            )
            for value, holding in merged.items()
        ]

    def _bound(
        self, node: ast.expr, value: str, when: str, used: tuple[str, ...], assumed: tuple[str, ...], basis: Any = None
    ) -> BoundValue:
        literal = isinstance(node, ast.Constant)
        return BoundValue(
            line=node.lineno, file=self.file, basis=basis or ("source" if literal else "evaluated"), value=value,
            origin="launch", when=when, definitions=used, assumptions=assumed,
        )  # fmt: skip

    # constraints -------------------------------------------------------------------------------------------------

    def constraints(self) -> list[Constraint]:
        """Assertions and refusals of the launching functions, before the launch."""
        found: list[Constraint] = []
        for depth, host in enumerate(self.chain):
            if isinstance(host.node, ast.Module):
                continue
            limit = self.call.lineno if depth == 0 else host.node.end_lineno or 0
            for place in host.all_places:
                statement = place.statement
                if statement.lineno > limit or len(found) >= 40:
                    break
                if isinstance(statement, ast.Assert):
                    found.append(self._constraint("assert", ast.unparse(statement.test), statement, statement.msg))
                elif isinstance(statement, ast.Raise) and place.branch:
                    found.append(self._refusal(statement, place.branch[-1]))
        return found

    def _refusal(self, statement: ast.Raise, around: tuple[ast.stmt, str]) -> Constraint:
        compound, block = around
        if isinstance(compound, ast.If):
            test = ast.unparse(compound.test)
            condition = f"not ({test})" if block == "body" else test
        else:
            condition = "unreachable"
        return self._constraint("raise", condition, statement, statement.exc)

    def _constraint(self, kind: str, condition: str, statement: ast.stmt, message: ast.expr | None) -> Constraint:
        shown = "" if message is None else ast.unparse(message)
        return Constraint(
            line=statement.lineno,
            file=self.file,
            kind=kind,
            condition=condition,
            message=shown[:240],
            via=_name(self.chain),
        )


def _asked(kernel: FunctionNode) -> set[str]:
    """Names that a test of the kernel, or a rule of its heuristics, asks for."""
    tests = [n.test for n in ast.walk(kernel) if isinstance(n, ast.If | ast.IfExp | ast.While)]
    names = {n.id for test in tests for n in ast.walk(test) if isinstance(n, ast.Name)}
    rules = [n for decorator in kernel.decorator_list for n in ast.walk(decorator)]
    return names | {n.value for n in rules if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def _decisive(kernel: FunctionNode, constexprs: frozenset[str]) -> set[str]:
    """Constexprs of which a part of a test asks for nothing else: with a size that the launch gives, others stay open."""
    pending: list[ast.expr] = [n.test for n in ast.walk(kernel) if isinstance(n, ast.If | ast.IfExp | ast.While)]
    found: set[str] = set()
    while pending:
        match pending.pop():
            case ast.BoolOp(values=values):
                pending += values
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                pending.append(inner)
            case part:
                names = {n.id for n in ast.walk(part) if isinstance(n, ast.Name)}
                found |= names if names <= constexprs else set()
    return found


def _sizes(values: Sequence[Any]) -> str:
    return f"[{', '.join(render(value) for value in values)}]"


def _definitions(found: dict[str, list[str]]) -> tuple[str, ...]:
    """`name = value (line)` of each variable; where it is defined on several ways to the launch, all of them."""
    return tuple(
        " or ".join([first, *(text.partition(" = ")[2] or text for text in others)])
        for first, *others in found.values()
    )


def _name(chain: list[HostFunction]) -> str:
    names = [h.node.name for h in reversed(chain) if not isinstance(h.node, ast.Module)]
    return ".".join(names)


def _dimensions(value: Any) -> tuple[str, ...] | None:
    """Formulas of a settled grid."""
    if isinstance(value, list | tuple) and value:
        if any(isinstance(v, Function | ImportRef) for v in value):
            return None
        return tuple(render(v) for v in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return (str(value),)
    if isinstance(value, Expression) and not isinstance(value, Quantity):
        return (value.text,)
    return None


def _text(value: Any, node: ast.expr) -> str:
    if isinstance(value, Function) or not (
        is_concrete(value) or isinstance(value, Expression | ImportRef | list | tuple)
    ):
        return ast.unparse(node)
    return render(value)


__all__ = ["LaunchSite", "SiteFacts", "launch_site"]
