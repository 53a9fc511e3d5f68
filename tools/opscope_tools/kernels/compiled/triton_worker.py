"""Compiles Triton kernels for named architectures: a process of its own, run as a script by any interpreter that has triton.

Reads one JSON request from standard input, writes one JSON line per build. It loads files that hold jitted functions only,
which triton parses and, but for their signatures, never runs. It imports nothing of opscope.

Triton calls Python functions that a kernel names while it compiles it, whatever they are. So each name is followed first:
a kernel may lead to triton's language and to no other module, be it one that the language merely imports.
"""

import ast
import contextlib
import importlib
import importlib.util
import io
import json
import os
import re
import sys
import tempfile
import types
from pathlib import Path


def load(request, folder):
    """The kernel's JITFunction, its files written below `folder`."""
    import triton
    import triton.language as tl

    modules = {}
    for number, (path, text) in enumerate(request["files"].items()):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        spec = importlib.util.spec_from_file_location(f"opscope_kernels_{number}", file)
        modules[path] = importlib.util.module_from_spec(spec)
        vars(modules[path]).update(triton=triton, tl=tl)
    for path, names in request["names"].items():
        for name, meaning in names.items():
            if "function" not in meaning and "members" not in meaning:  # annotations and defaults are read on loading
                setattr(modules[path], name, meant(meaning, modules))
    for module in modules.values():
        module.__spec__.loader.exec_module(module)
    for path, names in request["names"].items():
        for name, meaning in names.items():
            setattr(modules[path], name, meant(meaning, modules))
    for path, text in request["files"].items():
        for function in ast.parse(text).body:
            if isinstance(function, ast.FunctionDef):  # the rest of a file jits them
                check(function, vars(modules[path]))
    path, name = request["kernel"]
    return getattr(modules[path], name)


#: the modules that kernels are written in, and the functions of triton itself that they may call
_LANGUAGE = ("triton.language", "triton.experimental.gluon.language")
_HELPERS = ("cdiv", "next_power_of_2", "language", "constexpr_function")


class NamesOtherCodeError(Exception):
    """A kernel that leads out of triton's language."""


def step(holder, name):
    """The attribute of a module that a kernel names; raises where it leads out of the language."""
    found = getattr(holder, name)
    if holder.__name__ == "members":  # made by `meant`, each member followed there
        return found
    if isinstance(found, types.ModuleType):
        inside = found.__name__.startswith(_LANGUAGE)
    elif holder.__name__ == "triton":
        inside = name in _HELPERS
    else:
        inside = of_language(found)
    if name.startswith("__") or not inside:
        raise NamesOtherCodeError(f"{holder.__name__}.{name} is no part of triton's language")
    return found


def of_language(value):
    """Whether a value is made by the language: a function, a type, a dtype, a constant."""
    import triton

    if isinstance(value, bool | int | float | str | triton.runtime.jit.JITCallable):
        return True
    return getattr(value, "__module__", None) is not None and value.__module__.startswith(_LANGUAGE)


def inner_names():
    """Attributes that functions, jitted functions too, have and values of the language do not: these lead to Python."""
    import triton
    import triton.language as tl

    handles = {*dir(tl.sum), *dir(triton.cdiv), *dir(tl.sum.fn)} - {"type", "name", "value"}  # tensors have them too
    values = {
        name for kind in (tl.tensor, tl.dtype, tl.constexpr, tl.tuple, tl.core.tensor_descriptor) for name in dir(kind)
    }
    return handles - values


def check(function, names):
    """Raises `NamesOtherCodeError` where a function of a kernel's file names what is no part of triton's language."""
    hidden = inner_names()
    heads = {id(n.value) for n in ast.walk(function) if isinstance(n, ast.Attribute)}
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute):
            chain = reached(node, names)
            if node.attr.startswith("__") or (chain is None and node.attr in hidden):
                raise NamesOtherCodeError(f"{ast.unparse(node)} is no part of triton's language")
            if isinstance(chain, types.ModuleType) and id(node) not in heads:
                raise NamesOtherCodeError(f"the module {ast.unparse(node)} is used as a value")
        elif isinstance(node, ast.Name) and id(node) not in heads and isinstance(names.get(node.id), types.ModuleType):
            raise NamesOtherCodeError(f"the module {node.id} is used as a value")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            literal = (
                len(node.args) > 1 and isinstance(node.args[1], ast.Constant) and isinstance(node.args[1].value, str)
            )
            if not literal or node.args[1].value.startswith("__") or node.args[1].value in hidden:
                raise NamesOtherCodeError(f"{ast.unparse(node)} asks for what is no part of triton's language")


def reached(node, names):
    """What a chain of attributes over modules leads to; None where it does not start at a module."""
    if isinstance(node, ast.Name):
        held = names.get(node.id)
        return held if isinstance(held, types.ModuleType) else None
    if not isinstance(node, ast.Attribute):
        return None
    holder = reached(node.value, names)
    return step(holder, node.attr) if isinstance(holder, types.ModuleType) else None


def meant(meaning, modules):
    """What a name of a kernel's file stands for."""
    import triton.language as tl

    if "value" in meaning:
        return tl.constexpr(meaning["value"])
    if "function" in meaning:
        path, name = meaning["function"]
        return getattr(modules[path], name)
    if "members" in meaning:
        found = types.ModuleType("members")
        for name, inner in meaning["members"].items():
            setattr(found, name, meant(inner, modules))
        return found
    problem = None
    for dotted in meaning["import"]:
        try:
            return imported(dotted)
        except (ImportError, AttributeError) as error:
            problem = problem or error
    raise problem


def imported(dotted):
    """`triton.language.math.exp`: a module of the language, or what lies in one."""
    module, rest = dotted, []
    while True:
        if module != "triton" and not module.startswith(_LANGUAGE):
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
            if not module:
                raise ImportError(f"{dotted} is no part of triton's language")
            continue
        try:
            found = importlib.import_module(module)
            break
        except ImportError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
            if not module:
                raise
    for part in rest:
        found = step(found, part) if isinstance(found, types.ModuleType) else getattr(found, part)
    return found


def constant(value):
    """A constexpr of the request: plain, or the name of a triton dtype."""
    import triton.language as tl

    if isinstance(value, str) and value.startswith("tl."):
        return getattr(tl, value[3:])
    return value


def build(function, wanted):
    """One compilation."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    places = {name: i for i, name in enumerate(function.arg_names)}
    attrs = {(places[name],): [["tt.divisibility", 16]] for name in wanted["divisible"]}
    signature = {name: wanted["signature"][name] for name in function.arg_names}
    constants = {name: constant(value) for name, value in wanted["constants"].items()}
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attrs)
    target = GPUTarget("cuda", wanted["capability"], 32)
    log = io.StringIO()
    with contextlib.redirect_stdout(log):
        made = triton.compile(source, target=target, options=wanted["options"])
    return {
        "shared": made.metadata.shared,
        "num_warps": made.metadata.num_warps,
        "num_stages": made.metadata.num_stages,
        "cubin": made.asm["cubin"],
        "log": log.getvalue(),
    }


def first_error(error):
    """The innermost message: triton wraps it in the places it was met."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not re.match(r"at \d+:\d+|\^|[\w ]*= |def ", line)]
    return f"{type(error).__name__}: {(told or lines or [''])[-1]}"


def main():
    """Compile what the request on stdin asks for; answers go to stdout, one line of JSON each."""
    request = json.loads(sys.stdin.read())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the compiler's tools print is no answer
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as sources:
        os.environ.update(TRITON_CACHE_DIR=cache, TRITON_DUMP_PTXAS_LOG="1")
        import triton

        try:
            function = load(request, Path(sources))
        except Exception as error:
            print(json.dumps({"failed": first_error(error), "version": triton.__version__}), file=answers, flush=True)
            return
        for number, wanted in enumerate(request["builds"]):
            try:
                made = build(function, wanted)
                file = Path(request["out"]) / f"{number}.cubin"
                file.write_bytes(made.pop("cubin"))
                answer = {**made, "cubin": str(file)}
            except Exception as error:
                answer = {"error": first_error(error)}
            answer = {"number": number, "version": triton.__version__, "folder": sources, **answer}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
