"""The installed torch as a corpus: every kernel that a plain text search sees is found, and every one can be described."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_tools.kernels import Inventory, describe, scan


def torch_part(folder: str) -> Repository:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.submodule_search_locations
    root = Path(next(iter(spec.submodule_search_locations))).parent
    return Repository(name="torch", root=root, packages=(folder,))


def inventory_of(repository: Repository) -> Inventory:
    return scan(repository, MemoryStore(), checkpoint=lambda: None, progress=lambda *_: None)


def test_every_decorated_triton_function_of_inductors_runtime_is_found() -> None:
    repository = torch_part("torch/_inductor/runtime")
    inventory = inventory_of(repository)
    expected = []
    for path in sorted((repository.root / "torch/_inductor/runtime").rglob("*.py")):
        found = re.findall(r"^@triton\.jit[^\n]*\n(?:@[^\n]*\n)*def (\w+)", path.read_text(), re.MULTILINE)
        expected += [(repository.relative(path), name) for name in found]
    ours = {(k.file, k.name) for k in inventory.kernels if k.language == "triton"}
    assert set(expected) <= ours
    assert len(expected) > 30


def test_every_global_function_of_atens_cuda_headers_is_found_and_described() -> None:
    repository = torch_part("torch/include/ATen/native/cuda")
    inventory = inventory_of(repository)
    marks = 0
    for path in (repository.root / "torch/include/ATen/native/cuda").rglob("*.*h"):
        text = re.sub(r"//.*|/\*.*?\*/", "", path.read_text(errors="replace"))
        marks += len(re.findall(r"\b__global__\b[^;{]*\{", text))
    kernels = [k for k in inventory.kernels if k.role == "kernel"]
    in_strings = [u for u in inventory.not_analysed if u.form == "CUDA source in a string"]
    assert len(kernels) + len(in_strings) == marks
    assert marks > 20
    described = describe(repository, inventory, kernels[::4], checkpoint=lambda: None, progress=lambda *_: None)
    assert all(d.line <= d.end_line and d.parameters for d in described)
