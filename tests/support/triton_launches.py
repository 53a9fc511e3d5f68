"""Runs host functions on the CPU and compiles the kernels that they launch as Triton's own JIT would: a script of its own.

Reads one JSON request: the folder to import from, and calls (module, the code to run there, `tensor(*sizes)` and torch at hand). Each launch is
caught where Triton would look for a device; its arguments are specialised by Triton's binder, compiled with `ASTSource`, and
measured with `cuobjdump` and ptxas' own words. It knows nothing of opscope.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def main() -> None:
    request = json.loads(sys.stdin.read())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as cache:
        os.environ.update(TRITON_CACHE_DIR=cache, TRITON_DUMP_PTXAS_LOG="1")
        sys.path.insert(0, request["folder"])
        found = [launches(call, request["capability"]) for call in request["calls"]]
    print(json.dumps(found), file=answers)


def launches(call: dict[str, str], capability: int) -> dict[str, Any]:
    """The kernels that one call launches, in order, each compiled; or why there are none."""
    import torch
    from triton.runtime.jit import JITFunction

    caught: list[dict[str, Any]] = []

    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs = {name: value for name, value in kwargs.items() if name not in ("grid", "warmup")}
        caught.append(compiled(self, args, kwargs, capability))

    def tensor(*shape: int, dtype: Any = torch.bfloat16) -> Any:
        return torch.empty(*shape, dtype=dtype)

    original, JITFunction.run = JITFunction.run, run
    torch.cuda.get_device_properties = lambda _: types.SimpleNamespace(multi_processor_count=132)
    try:
        module = importlib.import_module(call["module"])
        exec(call["code"], {**vars(module), "torch": torch, "tensor": tensor})
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "launches": caught}
    finally:
        JITFunction.run = original
    return {"launches": caught}


def compiled(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], capability: int) -> dict[str, Any]:
    """What one launch compiles to."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler.compiler import make_backend
    from triton.runtime.jit import create_function_from_signature

    target = GPUTarget("cuda", capability, 32)
    backend = make_backend(target)
    kernel.ASTSource, kernel.compile = ASTSource, triton.compile
    binder = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, options = binder(*args, **kwargs)
    options, signature, constexprs, attrs = kernel._pack_args(backend, kwargs, bound, specialization, options)
    log = io.StringIO()
    with contextlib.redirect_stdout(log):
        made = triton.compile(ASTSource(kernel, signature, constexprs, attrs), target=target, options=options.__dict__)
    spills = _SPILLS.search(log.getvalue())
    return {
        "kernel": kernel.fn.__name__, "file": str(Path(kernel.fn.__code__.co_filename)), "num_warps": made.metadata.num_warps,
        "num_stages": made.metadata.num_stages, "shared": made.metadata.shared, "registers": registers(made.asm["cubin"]),
        "spill_stores": int(spills[1]) if spills else None, "spill_loads": int(spills[2]) if spills else None,
        "signature": signature, "divisible": sorted(kernel.arg_names[path[0]] for path, attr in attrs.items() if attr),
        "constants": {kernel.arg_names[path[0]]: str(value) for path, value in constexprs.items()},
    }  # fmt: skip


def registers(cubin: bytes) -> int:
    """What `cuobjdump` says of the one entry."""
    import triton

    program = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run(
            [program, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = re.search(r"REG:(\d+)", said)
    assert found is not None
    return int(found[1])


if __name__ == "__main__":
    main()
