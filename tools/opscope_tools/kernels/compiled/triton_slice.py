"""A Triton kernel cut out of its repository: the kernel, the device functions it calls, the constants it reads.

Compiling needs no import of the analysed code: files hold only the jitted functions that are needed, each at the lines
where it stands in the repository, so that the compiler's line numbers are the source's. Names that they use come beside
them: constants worked out from source, modules of triton, functions of other files.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from opscope_schemas.errors import SourceError

from opscope_tools.kernels.host.interpreter import Interpreter, ModuleScope
from opscope_tools.kernels.host.modules import PyModule
from opscope_tools.kernels.host.worlds import ImportRef, UnresolvedError, worlds
from opscope_tools.kernels.records import KernelRef
from opscope_tools.kernels.triton.decorators import Context
from opscope_tools.kernels.triton.definitions import FunctionNode, dotted_name, function_of
from opscope_tools.kernels.triton.description import device_functions
from opscope_tools.kernels.values.expressions import Expression
from opscope_tools.source.python.imports import imported

#: what a signature may be made of: reading it calls nothing
_INERT = (
    ast.Constant, ast.Name, ast.Attribute, ast.Tuple, ast.List, ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator,
    ast.expr_context, ast.Subscript, ast.keyword,
)  # fmt: skip
#: names of a module alias and of the alias' attribute -> what stands behind
Names = dict[str, dict[str, Any]]


@dataclass
class Slice:
    """What the compiler's process needs: text of files, and what their names mean."""

    kernel: tuple[str, str]
    files: dict[str, str] = field(default_factory=dict)
    #: path -> name -> {"value": v} | {"import": dotted names, the first that is there} | {"function": [path, name]} | {"members": names}
    names: dict[str, Names] = field(default_factory=dict)
    assumptions: dict[str, None] = field(default_factory=dict)


def sliced(reference: KernelRef, context: Context, read: Callable[[str], str | None]) -> Slice:
    """The slice of one kernel out of the files that `read` gives; raises `SourceError` where it has moved."""
    module, function = function_of(reference, context.modules)
    return _Slicer(context, Slice((reference.file, reference.name))).of(module, function, read)


class _Slicer:
    def __init__(self, context: Context, result: Slice) -> None:
        self.context, self.result = context, result
        self.find = device_functions(context)
        self.needed: dict[str, dict[str, FunctionNode]] = {}

    def of(self, module: PyModule, function: FunctionNode, read: Callable[[str], str | None]) -> Slice:
        self._add(module, function)
        for path, functions in self.needed.items():
            self.result.files[path] = _text(functions.values(), (read(path) or "").splitlines())
        return self.result

    def _add(self, module: PyModule, function: FunctionNode) -> None:
        held = self.needed.setdefault(module.path, {})
        if function.name in held:
            return
        self.context.checkpoint()
        held[function.name] = function
        names = self.result.names.setdefault(module.path, {})
        for name, attribute in _free(function):
            if attribute and names.get(name, {}).keys() <= {"members"}:
                self._member(module, names, name, attribute)
            if name not in names and (meaning := self._meaning(module, name)) is not None:
                names[name] = meaning

    def _member(self, module: PyModule, names: Names, name: str, attribute: str) -> None:
        """`utils.helper`: a module of the repository through which a kernel reaches another file."""
        dotted = module.imports.get(name, "")
        if not dotted or dotted.partition(".")[0] == "triton" or module.bindings(name):
            return
        meaning = self._meaning(module, f"{dotted}.{attribute}")
        if meaning is not None:
            names.setdefault(name, {"members": {}})["members"][attribute] = meaning

    def _meaning(self, module: PyModule, name: str) -> dict[str, Any] | None:
        found = self.find(module, name)
        if found is not None:
            self._add(*found)
            return {"function": [found[0].path, found[1].name]}
        dotted = name if "." in name else module.imports.get(name, "")
        if dotted.partition(".")[0] == "triton" and not module.bindings(name):
            return {"import": _imported(module, name) or [dotted]}
        return self._constant(module, name, dotted)

    def _constant(self, module: PyModule, name: str, dotted: str) -> dict[str, Any] | None:
        where, local = module, name
        if dotted and not module.bindings(name):
            resolved = self.context.modules.resolve(dotted, module.path)
            if resolved is None:
                through = dotted.rpartition(".")[2]
                # a project's own door to triton: `from vllm.triton_utils import tl, triton`
                return (
                    {"import": [{"tl": "triton.language", "triton": "triton"}[through]]}
                    if through in ("tl", "triton")
                    else None
                )
            where, local = resolved
        if "." in local:
            return None

        def run(oracle: Any) -> Any:
            self.context.checkpoint()
            run = Interpreter(self.context.modules, oracle, self.context.arch)
            return ModuleScope(where).lookup(local, run)

        try:
            outcomes, _ = worlds(run)
        except (UnresolvedError, KeyError, RecursionError):
            return self._alias(where, local)
        if not outcomes:
            return self._alias(where, local)
        first = outcomes[0]
        for question, answer in first.trail:
            self.result.assumptions[f"{question} is {answer}, for {name}"] = None
        value = first.value
        if isinstance(value, bool | int | float | str):
            return {"value": value}
        if isinstance(value, ImportRef) and value.dotted.partition(".")[0] == "triton":
            return {"import": [value.dotted]}
        return self._alias(where, local) if isinstance(value, Expression) else None

    def _alias(self, module: PyModule, name: str) -> dict[str, Any] | None:
        """`exp = tl.exp`, `BLOCK: tl.constexpr = tl.constexpr(64)`: the last plain definition."""
        for statement in reversed(module.bindings(name)):
            for inner in ast.walk(statement):
                if not isinstance(inner, ast.Assign | ast.AnnAssign) or inner.value is None:
                    continue
                targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
                if not any(isinstance(t, ast.Name) and t.id == name for t in targets):
                    continue
                value: ast.expr = inner.value
                if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("constexpr") and value.args:
                    value = value.args[0]
                try:
                    return {"value": ast.literal_eval(value)}
                except (ValueError, SyntaxError):
                    dotted = dotted_name(value, module)
                    if dotted.partition(".")[0] == "triton":
                        if inner is not statement:
                            self.result.assumptions[f"{name} is {ast.unparse(inner.value)}"] = None
                        return {"import": [dotted]}
                    if isinstance(value, ast.Name | ast.Attribute) and dotted and dotted != name:
                        return self._meaning(module, dotted if "." in dotted else ast.unparse(value))
        return None


def _imported(module: PyModule, name: str) -> list[str]:
    """Every place in triton that the file imports the name from: which is there depends on triton's version."""
    nodes = [node for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom)]
    stands = [one.stands for node in nodes for one in imported(node, module.package) if one.name == name]
    found = [dotted for dotted in stands if dotted.startswith("triton.")]
    return sorted(found, key=lambda dotted: "libdevice" not in dotted)


def _free(function: FunctionNode) -> list[tuple[str, str]]:
    """(name, attribute asked of it or '') of every name that the function does not bind itself."""
    spec = function.args
    own = {a.arg for a in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *filter(None, (spec.vararg, spec.kwarg))]}
    bodies: list[ast.AST] = [*function.body, *(a for a in spec.defaults), *(d for d in spec.kw_defaults if d)]
    bodies += [a.annotation for a in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs] if a.annotation]
    nodes = [n for body in bodies for n in ast.walk(body)]
    own |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    found: dict[tuple[str, str], None] = {}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found[(node.value.id, node.attr)] = None
        elif isinstance(node, ast.Name):
            found[(node.id, "")] = None
    return [(n, a) for n, a in found if n not in own and not hasattr(builtins, n)]


def _text(functions: Iterable[FunctionNode], source: list[str]) -> str:
    """A file of the functions alone, each at its own lines, jitted at the end: a decorator might have no line of its own."""
    lines, jitted = [""] * len(source), []
    for function in functions:
        for number in range(function.lineno - 1, function.end_lineno or function.lineno):
            lines[number] = source[number][function.col_offset :]
        apart = any(isinstance(d, ast.Call) and "noinline" in ast.unparse(d) for d in function.decorator_list)
        jitted.append(f"{function.name} = triton.jit({function.name}, noinline={apart})")
    text = "\n".join([*lines, *jitted]) + "\n"
    _check_runs_nothing(text, len(jitted))
    return text


def _check_runs_nothing(text: str, jitted: int) -> None:
    """Raises `SourceError` unless loading the text only defines functions: it is read again as Python will read it, since
    cutting lines to the functions' indentation may turn what was a string into statements. Signatures run on loading."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SourceError(
            "The kernel's functions do not stand by themselves.", next_step="Read it without compile."
        ) from None
    functions = body[: len(body) - jitted]
    if not all(isinstance(node, ast.FunctionDef) and not node.decorator_list for node in functions):
        raise SourceError("The kernel's file would run more than definitions.", next_step="Read it without compile.")
    for function in functions:
        assert isinstance(function, ast.FunctionDef)
        for node in _signature(function):
            if not all(isinstance(inner, _INERT) or _is_constexpr(inner) for inner in ast.walk(node)):
                raise SourceError(
                    f"The signature of {function.name} would run {ast.unparse(node)[:80]} when it is compiled.",
                    next_step="Read it without compile.",
                )


def _signature(function: ast.FunctionDef) -> list[ast.expr]:
    """What Python evaluates when it defines the function: defaults and annotations."""
    spec = function.args
    arguments = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *filter(None, (spec.vararg, spec.kwarg))]
    return [
        *spec.defaults, *filter(None, spec.kw_defaults), *(a.annotation for a in arguments if a.annotation),
        *filter(None, [function.returns]),
    ]  # fmt: skip


def _is_constexpr(node: ast.AST) -> bool:
    """`tl.constexpr(64)`: the one call that a signature may hold."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "constexpr"


__all__ = ["Slice", "sliced"]
