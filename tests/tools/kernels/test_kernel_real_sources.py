"""The installed torch as a corpus: every kernel that a plain text search sees is found, and every one can be described."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from autotune_comparison import compared
from kernel_sources import inventory_of, kernel_sources
from opscope_schemas.common import Repository
from opscope_tools.kernels import describe


def torch_part(folder: str) -> Repository:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.submodule_search_locations
    root = Path(next(iter(spec.submodule_search_locations))).parent
    return Repository(name="torch", root=root, packages=(folder,))


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


@pytest.fixture(scope="module")
def sources() -> dict[str, Path]:
    return kernel_sources()


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"fla-core": 1, "liger-kernel": 1}, marks=pytest.mark.slow, id="every kernel"),
        pytest.param({"fla-core": 48, "liger-kernel": 24}, id="some"),
    ],
)
def test_autotune_sets_read_from_source_are_those_that_python_makes(
    parts: dict[str, int], sources: dict[str, Path], tmp_path: Path
) -> None:
    """Of one kernel in so many of each package."""
    for package, top in (("fla-core", "fla"), ("liger-kernel", "liger_kernel")):
        root = sources[package]
        repository = Repository(name=package, root=root, packages=())
        inventory = inventory_of(repository)
        triton = [k for k in inventory.kernels if k.language == "triton"]
        described = describe(
            repository, inventory, triton[:: parts[package]], checkpoint=lambda: None, progress=lambda *_: None
        )
        verdict = compared(described, root, top, [sources["einops"]], tmp_path)
        assert (verdict.different, verdict.open) == ([], [])
        assert len(verdict.equal) > {"fla-core": 200, "liger-kernel": 5}[package] / parts[package]


@pytest.mark.parametrize(
    ("package", "pattern", "suffixes"),
    [
        ("exllamav2", r"\b__global__\b[^;{}]*\{", {".cu", ".cuh"}),
        ("sageattention", r"^[ \t]*@triton\.jit\b", {".py"}),
        ("liger-kernel", r"^[ \t]*@triton\.jit\b", {".py"}),
        ("fla-core", r"^[ \t]*@triton\.jit\b", {".py"}),
    ],
)
def test_every_kernel_of_the_small_wheels_is_found(
    sources: dict[str, Path], package: str, pattern: str, suffixes: set[str]
) -> None:
    inventory = inventory_of(Repository(name=package, root=sources[package], packages=()))
    expected = {}
    for path in sources[package].rglob("*"):
        if path.suffix in suffixes:
            text = re.sub(r"//.*|/\*.*?\*/", "", path.read_text()) if path.suffix != ".py" else path.read_text()
            if found := len(re.findall(pattern, text, re.MULTILINE)):
                expected[str(path.relative_to(sources[package]))] = found
    cuda = package == "exllamav2"
    ours: dict[str, int] = {}
    for kernel in inventory.kernels:
        if kernel.language == ("cuda" if cuda else "triton") and (not cuda or kernel.role == "kernel"):
            ours[kernel.file] = ours.get(kernel.file, 0) + 1
    assert ours == expected
