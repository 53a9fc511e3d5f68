"""What a second interpreter itself counts: matrix products of one concrete pass, by a script that runs there alone.

`PYTHON second_count.py '{"class_name": ..., "config": {...}, ...}'` prints a JSON object. The model has real weights on
the CPU; every operator that a dispatch mode sees is looked at by its operands' shapes, 2*m*n*k per product of (m, k) and
(k, n). Needs torch and transformers, nothing of opscope's.
"""

from __future__ import annotations

import ast
import importlib
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

#: parts of the names of operators that multiply matrices: one that no rule knows ends the script
_PRODUCTS = ("mm", "matmul", "bmv", "conv", "dot", "einsum", "linear")


def _times(a: Any, b: Any) -> int:
    """(..., m, k) by (..., k, n)."""
    return int(2 * math.prod(a.shape) * b.shape[-1])


def _attention(query: Any, key: Any, value: Any) -> int:
    """Scores of every query with every key, and as many weights on values."""
    *heads, queries, width = query.shape
    return int(2 * math.prod(heads) * queries * key.shape[-2] * (width + value.shape[-1]))


class Count(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Adds up the products of what runs within."""

    def __init__(self) -> None:
        super().__init__()
        self.flops: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in ("mm", "bmm"):
            self.flops += _times(args[0], args[1])
        elif name in ("addmm", "baddbmm"):
            self.flops += _times(args[1], args[2])
        elif name == "convolution":
            self.flops += 2 * math.prod(out.shape) * math.prod(args[1].shape[1:])
        elif name.startswith("_scaled_dot_product"):
            self.flops += _attention(*args[:3])
        elif any(word in name for word in _PRODUCTS):
            raise NotImplementedError(f"no rule for {func}")
        return out


def build(case: dict[str, Any]) -> Any:
    """The model of a case, in bfloat16; experts one after the other, so that each product is a plain one."""
    module, _, name = case["class_name"].rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    experts = {"experts_implementation": "eager"} if case.get("experts") else {}
    config = kind.config_class(**case["config"])
    torch.manual_seed(0)
    return kind._from_config(config, attn_implementation=case["attention"], dtype=torch.bfloat16, **experts).eval()


def inputs(case: dict[str, Any], length: int) -> dict[str, Any]:
    """What the pass is called with."""
    batch, config = case["batch_size"], case["config"]
    if "image_size" in config:
        side = config["image_size"]
        return {"pixel_values": torch.rand(batch, config["num_channels"], side, side, dtype=torch.bfloat16)}

    def tokens(length: int) -> Any:
        return torch.randint(3, config["vocab_size"], (batch, length))

    if "encoder_seq_len" in case:
        return {"input_ids": tokens(case["encoder_seq_len"]), "decoder_input_ids": tokens(length)}
    return {"input_ids": tokens(length)}


def count(model: Any, case: dict[str, Any]) -> int:
    """Products of the case's pass; that of a decode phase follows one that fills the cache and is not counted."""
    with torch.no_grad():
        given = inputs(case, case.get("seq_len", 0))
        if case["phase"] == "decode":
            filled = model(**inputs(case, case["cache_len"]), use_cache=True)
            given["past_key_values"] = filled.past_key_values
            if "decoder_input_ids" in given:
                del given["input_ids"]
                given["encoder_outputs"] = (filled.encoder_last_hidden_state,)
        with Count() as counted:
            model(**given)
    return int(counted.flops)


def class_line(file: str, name: str) -> int:
    """The line of the class statement, as Python's own parser tells it."""
    body = ast.parse(Path(file).read_text(encoding="utf-8")).body
    return next(node.lineno for node in body if isinstance(node, ast.ClassDef) and node.name == name)


def main() -> None:
    case = json.loads(sys.argv[1])
    transformers.logging.set_verbosity_error()
    model = build(case)
    file = sys.modules[type(model).__module__].__file__ or ""
    found = {
        "matmul_flops": count(model, case), "version": transformers.__version__,
        "file": file, "line": class_line(file, type(model).__name__),
    }  # fmt: skip
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
