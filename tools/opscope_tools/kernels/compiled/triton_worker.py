"""Compiles Triton kernels for named architectures: a process of its own, run as a script by any interpreter that has triton.

Reads one JSON request from standard input, writes one JSON line per build. It loads files that hold jitted functions only,
which triton parses and never runs. It imports nothing of opscope.
"""

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
    path, name = request["kernel"]
    return getattr(modules[path], name)


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
    """`triton.language.math.exp`: a module, or what lies in one."""
    module, rest = dotted, []
    while True:
        try:
            found = importlib.import_module(module)
            break
        except ImportError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
            if not module:
                raise
    for part in rest:
        found = getattr(found, part)
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
