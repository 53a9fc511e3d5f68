"""What a launch of a Triton kernel computes and moves, counted as triton's own interpreter runs it on the CPU.

A script: reads one JSON request from standard input and writes one JSON object. Every operation that the interpreter
executes is counted from the shapes and types of its real operands; nothing of opscope is imported. Floating-point
arithmetic is 1 per element of the result, a sum 1 per element that goes in, a product of m x k by k x n is 2*m*n*k and
adding it to an accumulator belongs to it; a load or store moves each element of its block, masked or not.
"""

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import importlib
import types
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

TOTALS = dict.fromkeys(("flops", "matmul_flops", "read_bytes", "write_bytes"), 0)
#: of one element: what arithmetic on floats is, comparisons and casts aside
ARITHMETIC = {
    "fadd", "fsub", "fmul", "fdiv", "frem", "fneg", "exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt",
    "precise_sqrt", "precise_divf", "erf", "fma",
}  # fmt: skip
CASTS = {"fp_ext", "fp_trunc", "fp_to_fp", "si_to_fp"}
#: what matrix products gave, cast or not
PRODUCTS: list[Any] = []


def elements(handle: Any) -> int:
    return int(np.asarray(handle.data).size)


def item(pointers: Any) -> int:
    """Bytes of what a block of pointers points to."""
    return int(pointers.get_element_ty().primitive_bitwidth) // 8


def counted(name: str, function: Any) -> Any:
    def run(self: Any, *arguments: Any, **named: Any) -> Any:
        result = function(self, *arguments, **named)
        if name == "masked_load":  # a plain load or store goes through the masked one
            TOTALS["read_bytes"] += elements(arguments[0]) * item(arguments[0])
        elif name == "masked_store":
            TOTALS["write_bytes"] += elements(arguments[0]) * item(arguments[0])
        elif name == "atomic_rmw":
            TOTALS["read_bytes"] += elements(arguments[1]) * item(arguments[1])
            TOTALS["write_bytes"] += elements(arguments[1]) * item(arguments[1])
            TOTALS["flops"] += elements(arguments[1])
        elif name == "dot":
            a, b = arguments[0].data.shape, arguments[1].data.shape
            flops = 2 * int(np.prod(a)) * b[-1]
            TOTALS["flops"] += flops
            TOTALS["matmul_flops"] += flops
            PRODUCTS.append(result)
        elif name in CASTS:
            if any(arguments[0] is p for p in PRODUCTS):
                PRODUCTS.append(result)
        elif name in ARITHMETIC:
            accumulates = name == "fadd" and any(a is p for a in arguments for p in PRODUCTS)
            if not accumulates:
                TOTALS["flops"] += elements(result) * (2 if name == "fma" else 1)
        return result

    return run


def summed(function: Any) -> Any:
    def run(self: Any, values: Any, *arguments: Any, **named: Any) -> Any:
        floating = [v for v in values if v.dtype.is_floating()] if isinstance(values, tuple) else []
        if self.combine_fn.fn.__name__ == "_sum_combine":
            TOTALS["flops"] += sum(elements(v.handle) for v in floating)
        return function(self, values, *arguments, **named)

    return run


def number(value: float) -> Any:
    """A float argument as the compiler sees it: a scalar of the language, not Python's."""
    return tl.tensor(interpreter.TensorHandle(np.array([value], np.float32), tl.float32), tl.float32)


def of_language(name: str, *arguments: Any) -> Any:
    """What the interpreter has put in the place of a function of the language."""
    return getattr(tl, name)(*arguments)


def tensor(wanted: dict[str, Any]) -> Any:
    dtype = getattr(torch, wanted["dtype"])
    if "below" in wanted:
        return torch.randint(0, wanted["below"], wanted["shape"], dtype=dtype)
    return torch.rand(wanted["shape"]).to(dtype)


def main() -> None:
    request = json.loads(sys.stdin.read())
    sys.path.insert(0, request["root"])
    parents = request["module"].split(".")[:-1]
    for depth in range(1, len(parents) + 1):  # without what the packages import of everything else
        package = types.ModuleType(".".join(parents[:depth]))
        package.__path__ = [str(Path(request["root"], *parents[:depth]))]
        vars(package)["__version__"] = "0"
        sys.modules[package.__name__] = package
    builder = interpreter.InterpreterBuilder
    for name in dir(builder):
        if name.startswith("create_"):
            setattr(builder, name, counted(name.removeprefix("create_"), getattr(builder, name)))
    converted = interpreter._implicit_cvt
    interpreter._implicit_cvt = lambda value: number(value) if isinstance(value, float) else converted(value)
    for operations in (interpreter.ReduceOps, interpreter.ScanOps):
        operations.apply_impl = summed(operations.apply_impl)
    module = importlib.import_module(request["module"])
    for name, value in list(
        vars(module).items()
    ):  # the interpreter has no CUDA library, but the language's own functions
        if "libdevice" in getattr(value, "__module__", "") and hasattr(tl, name):
            setattr(module, name, partial(of_language, name))
    kernel = getattr(module, request["kernel"])
    while type(kernel).__name__ != "InterpretedFunction":
        kernel = kernel.fn
    arguments = {k: tensor(v) if isinstance(v, dict) else v for k, v in request["arguments"].items()}
    kernel[tuple(request["grid"])](**arguments)
    sys.stdout.write(f"\n{json.dumps(TOTALS)}\n")


if __name__ == "__main__":
    main()
