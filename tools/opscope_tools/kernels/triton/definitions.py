"""One pass over a Python file: Triton kernels, their launch sites, and kernels of other Python-embedded languages.

A kernel is a function whose decorators lead to `triton.jit` through the file's imports, whatever wraps it
(`autotune`, `heuristics`, a project's own caching decorator).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from opscope_schemas.tiling import Unanalysed

from opscope_tools.kernels.cutedsl import definitions as cutedsl
from opscope_tools.kernels.host.modules import Modules, PyModule, make_module
from opscope_tools.kernels.host.reaching import HostFunction, Place, enclosing
from opscope_tools.kernels.records import FileFacts, KernelRef, LaunchRef
from opscope_tools.kernels.tilelang import definitions as tilelang
from opscope_tools.source.python.imports import chain

_LANGUAGES = (b"triton", b"gluon", b"cute", b"numba", b"tilelang")
_LAUNCH = re.compile(rb"\bct\.launch\(|\[\s*+\(?\s*+(?:grid|lambda)\b|kernel\w*\s*+\[|\w\[\([^\]\n]*\)\]\(")
_CUTILE_LAUNCH = {"ct.launch", "cuda.tile.launch"}
#: arguments of cuTile's search, the last of which makes a launch's
_SEARCHED = 5
_SOURCE_TEXT = re.compile(r"^[ \t]*+@(?:\w+\.)?triton\.jit\b|^[ \t]*+@triton\.jit\b", re.MULTILINE)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def worth_parsing(data: bytes) -> bool:
    """Whether a file may define kernels, or has the shape of a launch; a cheap test that spares most files the parser."""
    if b"jit" in data and any(language in data for language in _LANGUAGES):
        return True
    if (
        b"prim_func" in data
        or b"pallas_call" in data
        or (b".kernel" in data and (b"cutlass" in data or b"cuda" in data))
    ):
        return True
    return _LAUNCH.search(data) is not None


def find_in_python(path: str, text: str) -> FileFacts:
    """The facts of one file; a file that does not parse yields a note."""
    try:
        module = make_module(path, text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        return FileFacts(
            note=f"{path}:{line} does not parse as Python ({getattr(error, 'msg', error)}); it was left out."
        )
    except RecursionError:
        return FileFacts(note=f"{path} is nested too deeply to be read; it was left out.")
    launches = tuple(_launches(module))
    return FileFacts(
        kernels=(*_kernels(module), *_gluon(module, launches), *tilelang.kernels(module), *cutedsl.kernels(module)),
        launches=launches,
        not_analysed=tuple(_other_languages(module)),
    )


def dotted_name(node: ast.expr, module: PyModule) -> str:
    """`tr.jit` as `triton.jit`, through the file's imports; empty where the node is not a dotted name."""
    return chain(node, module.imports)


def decorator_name(node: ast.expr, module: PyModule) -> str:
    """The dotted name of a decorator, called or not."""
    return dotted_name(node.func if isinstance(node, ast.Call) else node, module)


def is_triton_jit(dotted: str) -> bool:
    """`triton.jit`, also through a project's re-export (`vllm.triton_utils.triton.jit`)."""
    return (
        dotted == "triton.jit"
        or dotted.endswith(".triton.jit")
        or dotted in {"triton.runtime.jit", "triton.runtime.jit.jit"}
    )


def of_language(dotted: str) -> str:
    """`load` of `triton.language.load`, `tl.load` and of a project's own door to it (`vllm.triton_utils.tl.load`); else ''."""
    *where, last = dotted.split(".")
    return last if {"triton", "tl", "language", "libdevice"} & set(where) else ""


def uses_program_id(node: ast.AST) -> bool:
    """Whether a function asks for its program id itself."""
    return any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute | ast.Name) and last_name(n.func) == "program_id"
        for n in ast.walk(node)
    )


def last_name(node: ast.expr) -> str:
    """`c` of `a.b.c` and of `c`; empty of anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def jitted_functions(module: PyModule) -> Iterator[FunctionNode]:
    """Functions that `triton.jit` compiles: decorated, or passed to it by name."""
    passed = {
        node.args[0].id
        for node in module.calls
        if node.args and isinstance(node.args[0], ast.Name) and last_name(node.func) == "jit"
        and is_triton_jit(dotted_name(node.func, module))
    }  # fmt: skip
    for function in module.functions:
        if any(is_triton_jit(decorator_name(d, module)) for d in function.decorator_list) or function.name in passed:
            yield function


def function_of(reference: KernelRef, modules: Modules) -> tuple[PyModule, FunctionNode]:
    """A Triton kernel's module and definition; raises `SourceError` where it is no longer where it was found."""
    module = modules.load(reference.file)
    for function in module.functions if module is not None else ():
        if module is not None and function.name == reference.name and function.lineno == reference.line:
            return module, function
    raise reference.moved()


def _kernels(module: PyModule) -> Iterator[KernelRef]:
    for function in jitted_functions(module):
        around = [*function.decorator_list, *wrappers(function, module)]
        tuned = any("autotune" in decorator_name(d, module) for d in around)
        entry = tuned or uses_program_id(function)
        yield KernelRef(
            name=function.name, language="triton", role="kernel" if entry else "device_function", file=module.path,
            line=function.lineno, end_line=function.end_lineno or function.lineno,
        )  # fmt: skip
    for function in module.functions:
        if any(_CUTILE.search(decorator_name(d, module)) for d in function.decorator_list):
            yield KernelRef(
                name=function.name, language="cutile", role="kernel", file=module.path, line=function.lineno,
                end_line=function.end_lineno or function.lineno,
            )  # fmt: skip


def launched(node: ast.Call) -> tuple[ast.expr, ast.expr] | None:
    """(kernel, grid) of `kernel[grid](...)`, `kernel.run(grid=...)`, `kernel.warmup(grid=...)` or cuTile's `ct.launch(stream, grid, kernel, ...)`."""
    if of_search(node):
        return node.args[3], node.args[2]
    if len(node.args) >= 3 and of_tiles(node):
        return node.args[2], node.args[1]
    if isinstance(node.func, ast.Subscript):
        return node.func.value, node.func.slice
    if isinstance(node.func, ast.Attribute) and node.func.attr in {"run", "warmup"}:
        for keyword in node.keywords:
            if keyword.arg == "grid":
                return node.func.value, keyword.value
    return None


def of_tiles(node: ast.Call) -> bool:
    """Whether it is cuTile's `ct.launch(...)`, or its search that launches with one configuration after another."""
    named = isinstance(node.func, ast.Attribute) and node.func.attr == "launch"
    return of_search(node) or (named and ast.unparse(node.func) in _CUTILE_LAUNCH)


def of_search(node: ast.Call) -> bool:
    """Whether it is cuTile's `exhaustive_search(configurations, stream, grid, kernel, arguments, hints)`."""
    return len(node.args) >= _SEARCHED and last_name(node.func) == "exhaustive_search"


def handed_by(node: ast.Call, module: PyModule) -> tuple[ast.arguments, ast.expr] | None:
    """The function by which a search makes what it hands the kernel: what it takes and what it gives; None of other launches."""
    if not of_search(node):
        return None
    maker = node.args[4]
    if isinstance(maker, ast.Lambda):
        return maker.args, maker.body
    meant = [
        f for f in module.functions if isinstance(maker, ast.Name) and f.name == maker.id and f.lineno < node.lineno
    ]
    match meant[-1].body if meant else []:
        case [ast.Return(value=value)] | [ast.Expr(value=ast.Constant()), ast.Return(value=value)] if value is not None:
            return meant[-1].args, value
    return None  # it works something out first


def handed(node: ast.Call, module: PyModule) -> tuple[list[ast.expr], list[ast.keyword]]:
    """What a launch hands the kernel; cuTile's as one tuple."""
    if not of_tiles(node):
        return node.args, node.keywords
    given = node.args[3] if len(node.args) > 3 else None
    if of_search(node):
        made = handed_by(node, module)
        given = made[1] if made is not None else node.args[4]
    if isinstance(given, ast.Tuple | ast.List):
        return given.elts, []
    return [ast.Starred(given)] if given is not None else [], []


def _launches(module: PyModule) -> Iterator[LaunchRef]:
    """Calls that have the shape of a launch; which of them mean a kernel is known once all files are read."""
    hosts: dict[ast.AST, HostFunction] = {}
    for node in module.calls:
        if (parts := launched(node)) is not None:
            chain = [hosts.setdefault(h.node, h) for h in enclosing(module, node)]
            top = hosts.setdefault(
                module.tree, chain[-1] if chain[-1].node is module.tree else HostFunction.of(module.tree)
            )
            names = tuple(dict.fromkeys(_kernel_names(parts[0], [*chain, top], chain[0].place_of(node))))
            if names:
                yield LaunchRef(
                    callees=names, file=module.path, line=node.lineno, column=node.col_offset, imported_from=module.imports.get(names[0], ""),
                    language="cutile" if of_tiles(node) else "triton",
                )  # fmt: skip


def _meant(name: str, chain: list[HostFunction], place: Place | None) -> Iterator[ast.expr]:
    """What a name may stand for at a place: the assignments of the innermost function that has it which reach the place."""
    for depth, host in enumerate(chain):
        if name in host.parameters():
            return
        known = [p for p in host.definitions.get(name, []) if isinstance(p.statement, ast.Assign)]
        if depth == 0 and place is not None:
            known = list(_reaching(known, place))
        if name in host.definitions:
            for one in known:
                if isinstance(one.statement, ast.Assign) and any(
                    isinstance(t, ast.Name) for t in one.statement.targets
                ):
                    yield one.statement.value
            return


def _reaching(known: list[Place], place: Place) -> Iterator[Place]:
    """Of assignments in order, those that a place may see: none that a later one hides, or that stands on another branch."""
    here, assigned = dict(place.branch), set[tuple[ast.stmt, str]]()
    for one in reversed([p for p in known if p.order < place.order]):
        if any(here.get(compound, block) != block for compound, block in one.branch):
            continue
        yield one
        assigned |= set(one.branch[-1:])
        whole = {(c, b) for c, _ in one.branch[-1:] if isinstance(c, ast.If) for b in ("body", "orelse")}
        around = one.branch[:-1] if whole and whole <= assigned else one.branch  # both sides say what it is
        if around == place.branch[: len(around)]:
            return


def _kernel_names(node: ast.expr, chain: list[HostFunction], place: Place | None, depth: int = 4) -> Iterator[str]:
    """Names that a launched expression can stand for."""
    if depth == 0:
        return
    parts: list[ast.expr] = []
    match node:
        case ast.Attribute(attr=name):
            yield name
        case ast.Name(id=name):
            yield name
            parts = list(_meant(name, chain, place))
        case ast.IfExp(body=body, orelse=orelse):
            parts = [body, orelse]
        case ast.Dict(values=values):
            parts = values
        case ast.Subscript(value=value):
            parts = [value]
        case ast.Call(func=ast.Attribute(value=value, attr="replace_hints")):  # cuTile: a kernel with other hints
            parts = [value]
        case ast.Call(args=[first, *_]):  # wrap_triton(kernel), triton.autotune(...)(kernel), functools.partial(kernel)
            parts = [first]
    for part in parts:
        yield from _kernel_names(part, chain, place, depth - 1)


def wrappers(function: FunctionNode, module: PyModule) -> list[ast.expr]:
    """What a kernel is handed to as a decorator is: `triton.autotune(...)(kernel)`, outermost last."""
    return [
        node.func for node in module.calls
        if isinstance(node.func, ast.Call) and node.args and _innermost(node.args[0]) == function.name
        and decorator_name(node.func, module).rpartition(".")[2] in {"autotune", "heuristics"}
    ]  # fmt: skip


def _innermost(node: ast.expr) -> str:
    """`kernel` of `triton.jit(kernel)` and of `triton.heuristics(...)(kernel)`."""
    while isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    return node.id if isinstance(node, ast.Name) else ""


_CUTILE = re.compile(r"(^|\.)(cuda\.tile|cuda_tile|cutile|ct)\.kernel$")
_GLUON = re.compile(r"(^|\.)gluon\.jit$")
#: how a decorator's or caller's dotted name ends -> the language that it belongs to
_OTHER = ((re.compile(r"(^|\.)numba\.cuda\.jit$"), "Numba CUDA"),)
#: what makes a kernel of a function that it is handed
_PALLAS = re.compile(r"(^|\.)(pallas|pl)\.pallas_call$")


def gluon_functions(module: PyModule) -> list[FunctionNode]:
    """Functions that `gluon.jit` compiles."""
    return [f for f in module.functions if any(_GLUON.search(decorator_name(d, module)) for d in f.decorator_list)]


def _gluon(module: PyModule, launches: Sequence[LaunchRef]) -> Iterator[KernelRef]:
    """Kernels alone: what they call on the device is none."""
    for function in _gluon_kernels(gluon_functions(module), module, launches):
        yield KernelRef(
            name=function.name, language="gluon", role="kernel", file=module.path, line=function.lineno,
            end_line=function.end_lineno or function.lineno,
        )  # fmt: skip


def _other_languages(module: PyModule) -> Iterator[Unanalysed]:
    """Kernels alone: what they call on the device, and what launches them on the host, are none."""
    for function in module.functions:
        if form := _language(function, module):
            yield Unanalysed(form=form, name=function.name, file=module.path, line=function.lineno)
    lines = {function.name: function.lineno for function in module.functions}
    for call in module.calls:
        if _PALLAS.search(dotted_name(call.func, module)) and call.args:
            given = call.args[0]
            name = last_name(
                given.args[0] if isinstance(given, ast.Call) and given.args else given
            )  # partial(kernel, ...)
            yield Unanalysed(form="Pallas", name=name, file=module.path, line=lines.get(name, call.lineno))
    for node in module.strings:
        if isinstance(node.value, str) and "triton.jit" in node.value:
            for match in _SOURCE_TEXT.finditer(node.value):
                named = re.search(r"\bdef\s++([\w{}]+)", node.value[match.end() :])
                line = node.lineno + node.value.count("\n", 0, match.start())
                yield Unanalysed(
                    form="Triton source in a string", name=named[1] if named else "", file=module.path, line=line
                )


def _language(function: FunctionNode, module: PyModule) -> str:
    """The other language that a function's decorators make it a part of; empty: of none."""
    return next(filter(None, (_form(decorator_name(d, module)) for d in function.decorator_list)), "")


def _gluon_kernels(
    jitted: Sequence[FunctionNode], module: PyModule, launches: Sequence[LaunchRef]
) -> list[FunctionNode]:
    """Those that their file launches, or that ask which program they are and are called by none of the others; no method is one."""
    if not jitted:
        return []
    called = {n.id for f in jitted for part in f.body for n in ast.walk(part) if isinstance(n, ast.Name)}
    started = {name for launch in launches for name in launch.callees}
    methods = [each for n in ast.walk(module.tree) if isinstance(n, ast.ClassDef) for each in n.body]
    return [
        f for f in jitted
        if f not in methods and (f.name in started or (uses_program_id(f) and f.name not in called))
    ]  # fmt: skip


def _form(dotted: str) -> str:
    return next((form for pattern, form in _OTHER if pattern.search(dotted)), "")
