"""Gluon kernels: what is read of them against what Triton's own compiler makes of the same source, and against it read by hand."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opscope_schemas.formula import Formula
from opscope_schemas.tiling import KernelTiling
from opscope_tools.cuda_kernel_tiling import CUDA_KERNEL_TILING, TilingArguments
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

FOLDER = Path(__file__).parents[2] / "corpus/gluon"
#: of each kernel the block sizes of its descriptors, types of its other parameters, its constants, and for which architecture
BUILDS: dict[str, dict[str, Any]] = {
    "scale_rows": {"types": {"x": "*fp32", "y": "*fp32", "width": "i32", "factor": "fp32"}, "constants": {"BLOCK": 1024, "layout": "blocked"}},
    "add_through_shared": {"types": {"a": "*fp32", "b": "*fp32", "out": "*fp32", "count": "i32"}, "constants": {"BLOCK": 1024, "STAGES": 2}},
    "matmul_tma": {"blocks": {"a_desc": ("fp16", [128, 64]), "b_desc": ("fp16", [128, 64]), "c_desc": ("fp16", [128, 128])},
                   "constants": {"ADD": False, "num_warps": 4}},
    "doubled": {"blocks": {"source": ("fp32", [32, 64]), "target": ("fp32", [32, 64])}, "types": {"width": "i32"},
                "constants": {"ROWS": 32, "STEP": 64, "DEPTH": 3, "num_warps": 4}},
    "product_in_tensor_memory": {"blocks": {"a_desc": ("fp16", [128, 32]), "b_desc": ("fp16", [32, 64])}, "types": {"d": "*fp32", "stride": "i32"},
                                 "constants": {"M": 128, "N": 64, "K": 32}, "arch": 100},
}  # fmt: skip
#: run by itself: what the compiler says of each build
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import kernels
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import compile
from triton.experimental.gluon import GluonASTSource, language as gl
found = {}
for name, build in json.loads(sys.argv[2]).items():
    function, types = getattr(kernels, name), dict(build.get("types", {}))
    for parameter, (kind, block) in build.get("blocks", {}).items():
        layout = gl.NVMMASharedLayout.get_default_for(block, {"fp16": gl.float16, "fp32": gl.float32}[kind])
        types[parameter] = f"tensordesc<{kind}[{','.join(map(str, block))}],{layout!r}>"
    constants = {n: gl.BlockedLayout([1], [32], [4], [0]) if v == "blocked" else v for n, v in build["constants"].items()}
    types |= {n: "constexpr" for n in constants}
    source = GluonASTSource(
        fn=function, signature={n: types[n] for n in function.arg_names},
        constexprs={(function.arg_names.index(n),): v for n, v in constants.items()},
    )
    made = compile(source, target=GPUTarget("cuda", build.get("arch", 90), 32), options={"num_warps": 4})
    found[name] = {"shared": made.metadata.shared, "tensor": made.metadata.tmem_size, "ir": made.asm["ttgir"]}
print("FOUND" + json.dumps(found))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    cache = tmp_path_factory.mktemp("triton")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(FOLDER), json.dumps(BUILDS)], capture_output=True, text=True, timeout=240,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cache), "TRITON_CACHE_DIR": str(cache)}, check=False,
    )  # fmt: skip
    assert "FOUND" in ran.stdout, ran.stderr[-2000:]
    found: dict[str, dict[str, Any]] = json.loads(ran.stdout.split("FOUND")[1])
    return found


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KernelTiling]:
    workspace = Workspace.create(repositories=[("gluon", FOLDER)], output=tmp_path_factory.mktemp("output"))
    found = run_tool(
        CUDA_KERNEL_TILING,
        TilingArguments(target="gluon", repo="gluon", detail="full").model_dump(),
        ToolContext(workspace),
    )
    return {kernel.name: kernel for kernel in found.kernels}


def bytes_of(kernel: KernelTiling, *names: str) -> int:
    """Shared memory of the arrays of those names, all without any, at the sizes of the build."""
    build, total = BUILDS[kernel.name], 0
    at = {n: v for n, v in build["constants"].items() if isinstance(v, int)}
    sizes = {
        f"{n}.block_shape[{axis}]": size
        for n, (_, block) in build.get("blocks", {}).items()
        for axis, size in enumerate(block)
    }
    sizes |= {f"{n}.element_size()": {"fp16": 2, "fp32": 4}[kind] for n, (kind, _) in build.get("blocks", {}).items()}
    for array in kernel.shared_memory:
        text = array.formula
        for name, size in sizes.items():
            text = text.replace("{" + name + "}", str(size))
        for name, value in at.items():
            text = re.sub(rf"\b{name}\b", str(value), text)
        total += int(Formula.parse(text).evaluate({})) if not names or array.name in names else 0
    return total


def test_the_helpers_of_kernels_are_no_kernels(described: dict[str, KernelTiling]) -> None:
    assert described.keys() == BUILDS.keys()
    assert {kernel.language for kernel in described.values()} == {"gluon"}


@pytest.mark.parametrize("name", BUILDS)
def test_shared_memory_is_what_the_compiler_gives(
    name: str, compiled: dict[str, dict[str, Any]], described: dict[str, KernelTiling]
) -> None:
    """The tile of a result takes the place of what the products have read: the compiler sees that nothing else reads it."""
    alive = ("left", "right", "ready") if name == "matmul_tma" else ()
    beside = compiled[name]["shared"] - bytes_of(described[name], *alive)
    if name == "doubled":  # what its functions are handed, which the compiler lays there too
        assert 0 < beside < 128
        assert sum("to hand functions on warps of their own" in note for note in described[name].notes) == 1
    else:
        assert beside == 0


@pytest.mark.parametrize("name", BUILDS)
def test_copies_and_products_are_those_of_the_compiled_kernel(
    name: str, compiled: dict[str, dict[str, Any]], described: dict[str, KernelTiling]
) -> None:
    kernel, ir = described[name], compiled[name]["ir"]
    count = {
        "tma.async_load": r"ttng\.async_tma_copy_global_to_local\b", "tma.async_store": r"ttng\.async_tma_(copy_local_to_global|store)\b",
        "warpgroup_mma": r"ttng\.warp_group_dot\b", "tcgen05_mma": r"ttng\.tc_gen5_mma\b",
        "async_copy.async_load": r"ttg\.async_copy_global_to_local\b", "shared.load": r"ttg\.local_load\b", "shared.store": r"ttg\.local_store\b",
        "tensor.load": r"ttng\.tmem_load\b", "allocate_tensor_memory": r"ttng\.tmem_alloc\b", "warp_specialize": r"ttg\.warp_specialize\(",
    }  # fmt: skip
    found = {operation: sum(i.operation == operation for i in kernel.instructions) for operation in count}
    expected = {operation: len(re.findall(pattern, ir)) for operation, pattern in count.items()}
    assert found == expected


def test_grids_tiles_and_launch_options(described: dict[str, KernelTiling]) -> None:
    matmul = described["matmul_tma"]
    assert [(g.function, g.dimensions) for g in matmul.grid] == [
        ("matmul", ("cdiv({a.shape[0]}, {block_m})", "cdiv({b.shape[0]}, {block_n})"))
    ]
    assert {t.name: t.values for t in matmul.tile} == {
        "a_desc.block_shape": ("[{block_m}, {block_k}]",),
        "b_desc.block_shape": ("[{block_n}, {block_k}]",),
        "c_desc.block_shape": ("[{block_m}, {block_n}]",),
    }
    assert [v.value for v in matmul.num_warps] == ["4"]
    assert [(m.variable, m.axis) for m in matmul.mapping] == [("row", "program_id(0)"), ("column", "program_id(1)")]
    assert [g.dimensions for g in described["doubled"].grid] == [("cdiv({x.shape[0]}, 32)",)]


def test_loads_and_stores_are_blocks_whose_rows_lie_together(described: dict[str, KernelTiling]) -> None:
    doubled = described["doubled"]
    assert [(a.parameter, a.shape, a.strides, a.coalesced, a.via) for a in (*doubled.loads, *doubled.stores)] == [
        ("source", ("ROWS", "STEP"), ("{source.strides[0]}", "1"), "yes", "bring"),
        ("target", ("ROWS", "STEP"), ("{target.strides[0]}", "1"), "yes", "double"),
    ]
    rows = described["scale_rows"]
    assert [(a.parameter, a.shape, a.strides, a.mask) for a in rows.loads] == [("x", ("BLOCK",), ("1",), "inside")]


def test_warps_of_their_own_are_told_with_their_registers(described: dict[str, KernelTiling]) -> None:
    (section,) = [i for i in described["doubled"].instructions if i.operation == "warp_specialize"]
    assert section.expression == "double: the launch's warps; bring: 1 warps, 24 registers a thread"
    assert [(c.name, c.followed) for c in described["doubled"].calls] == [("double", True), ("bring", True)]


@pytest.mark.parametrize(
    ("name", "at", "flops", "read", "write"),
    [
        ("scale_rows", {"BLOCK": 64}, 64, 64 * 4, 64 * 4),
        ("add_through_shared", {"BLOCK": 128}, 128, 2 * 128 * 4, 128 * 4),
        ("matmul_tma", {}, 2 * 128 * 128 * 64 * 5, 5 * 2 * 128 * 64 * 2, 128 * 128 * 2),
        ("doubled", {"ROWS": 32, "STEP": 64, "width": 200}, 4 * 32 * 64, 4 * 32 * 64 * 4, 4 * 32 * 64 * 4),
        (
            "product_in_tensor_memory",
            {"M": 128, "N": 64, "K": 32},
            2 * 128 * 64 * 32,
            2 * (128 + 64) * 32,
            128 * 64 * 4,
        ),
    ],
)
def test_cost_of_a_program_by_hand(
    described: dict[str, KernelTiling], name: str, at: dict[str, int], flops: int, read: int, write: int
) -> None:
    """Blocks of 128 x 64 by 128 x 64 over a width of 300: five steps; rows of 200 in steps of 64: four."""
    cost = described[name].cost
    assert cost is not None
    half = name in ("matmul_tma", "product_in_tensor_memory")
    sizes: dict[str, int] = {
        **at, **{f"{n}.element_size()": 2 if half and n != "d" else 4 for n in ("a_desc", "b_desc", "c_desc", "d", "x", "y", "a", "b", "out", "source", "target")},
        "a_desc.shape[1]": 300, "a_desc.block_shape[0]": 128, "a_desc.block_shape[1]": 64, "b_desc.block_shape[0]": 128,
        "b_desc.block_shape[1]": 64, "c_desc.block_shape[0]": 128, "c_desc.block_shape[1]": 128,
    }  # fmt: skip

    def value(text: str) -> int:
        for key, size in sizes.items():
            text = text.replace("{" + key + "}", str(size))
            text = re.sub(rf"(?<![\w.{{]){re.escape(key)}(?![\w.\[(])", str(size), text)
        return int(eval(text, {"cdiv": lambda a, b: math.ceil(a / b), "max": max, "min": min}))

    assert [value(t) for t in (cost.flops, cost.read_bytes, cost.write_bytes)] == [flops, read, write]
    assert cost.not_counted == ()


@pytest.mark.parametrize(
    ("body", "lost"),
    [
        ("held = Held(gl.allocate_shared_memory(gl.float32, [N], layout), N)\n    held.put(x + at)\n    held.give(y + at)", "held.put"),
        ("F(x, y, at)", "F"),
        ("pair = (gl.allocate_shared_memory(gl.float32, [N], layout), gl.allocate_shared_memory(gl.float32, [N], layout))\n"
         "    for i in gl.static_range(2):\n        pair[i].store(gl.load(x + at))", "pair[i].store"),
        ("gl.histogram(gl.load(x + at), 8)", "gl.histogram"),
        ("cdna4.tdm.async_load(x, [0], y)", "cdna4.tdm.async_load"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_in_no_figure_and_named(tmp_path: Path, body: str, lost: str) -> None:
    """Objects with methods, functions handed in, buffers picked by a number, operations of other devices: a sum without them would be false."""
    (tmp_path / "ops.py").write_text(
        "from triton.experimental import gluon\nfrom triton.experimental.gluon import language as gl\n"
        "from triton.experimental.gluon.language.amd import cdna4\n"
        f"@gluon.jit\ndef kernel(x, y, N: gl.constexpr, F: gl.constexpr, layout: gl.constexpr):\n    at = gl.program_id(0) * N + gl.arange(0, N, layout)\n    {body}\n"
    )
    workspace = Workspace.create(repositories=[("ops", tmp_path)], output=tmp_path / "output")
    (kernel,) = run_tool(CUDA_KERNEL_TILING, {"target": "kernel", "repo": "ops"}, ToolContext(workspace)).kernels
    assert kernel.cost is not None
    assert any(what.startswith(lost) for what in kernel.cost.not_counted)
    assert kernel.cost.flops == ""
    assert not any(
        access.level == "global" and access.operation.startswith("descriptor")
        for access in (*kernel.loads, *kernel.stores)
    )


def test_room_that_a_layout_takes_beside_the_elements_is_not_told_as_if_it_were_none(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(
        "from triton.experimental import gluon\nfrom triton.experimental.gluon import language as gl\n@gluon.jit\ndef kernel(x, y):\n"
        "    first = gl.program_id(0)\n    wide: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[64, 4]], [64, 64], [1, 0])\n"
        "    padded = gl.allocate_shared_memory(gl.float32, [64, 64], wide)\n"
        "    for i in gl.static_range(3):\n        each = gl.allocate_shared_memory(gl.float32, [64], gl.SwizzledSharedLayout(1, 1, 1, [0]))\n"
    )
    workspace = Workspace.create(repositories=[("ops", tmp_path)], output=tmp_path / "output")
    (kernel,) = run_tool(CUDA_KERNEL_TILING, {"target": "kernel", "repo": "ops"}, ToolContext(workspace)).kernels
    assert {a.name: (a.formula, a.bytes) for a in kernel.shared_memory} == {"padded": ("", None), "each": ("256", 256)}
    assert "Made more than once, and listed once: each (line 9)." in kernel.notes


LANGUAGE = "arange load store zeros full convert_layout allocate_shared_memory warp_specialize static_assert reduce sum where atomic_add expand_dims"
OF_MODULES = {
    "mbarrier": "init expect wait arrive invalidate allocate_mbarrier",
    "tma": "async_load async_store async_gather async_scatter async_atomic_add store_wait make_tensor_descriptor async_copy_global_to_shared",
    "async_copy": "async_load async_copy_global_to_shared commit_group wait_group buffer_load_to_shared",
    "hopper": "warpgroup_mma warpgroup_mma_wait warpgroup_mma_init async_store fence_async_shared tcgen05_mma tcgen05_mma_scaled buffer_load buffer_store mma_v2",
}


def test_no_call_however_it_is_written_ends_the_reading(tmp_path: Path) -> None:
    """Each operation with nothing, with too little and with every argument by a name that may be none of its own."""
    calls = [f"gl.{name}" for name in LANGUAGE.split()]
    calls += [
        f"{'gl' if module == 'hopper' else module}.{name}"
        for module, names in OF_MODULES.items()
        for name in names.split()
    ]
    buffer = "gl.allocate_shared_memory(gl.float32, [4, 4], None)"
    calls += [
        f"{buffer}.{name}" for name in "load store index slice permute reshape _reinterpret gather scatter".split()
    ]
    handed = ("", "x", "x, y", "*x", "pointer=x, ptr=x, coord=[0], result=y, src=y, a=x, b=y, value=x", "[], [], []")
    lines = [f"    {call}({given})" for call in calls for given in handed]
    (tmp_path / "ops.py").write_text(
        "from triton.experimental import gluon\nfrom triton.experimental.gluon import language as gl\n"
        "from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma\n"
        "from triton.experimental.gluon.language.nvidia.ampere import async_copy\n"
        "@gluon.jit\ndef kernel(x, y):\n    gl.program_id(0)\n" + "\n".join(lines) + "\n"
    )
    workspace = Workspace.create(repositories=[("ops", tmp_path)], output=tmp_path / "output")
    (kernel,) = run_tool(CUDA_KERNEL_TILING, {"target": "kernel", "repo": "ops"}, ToolContext(workspace)).kernels
    assert kernel.cost is not None
    assert kernel.cost.flops == ""
