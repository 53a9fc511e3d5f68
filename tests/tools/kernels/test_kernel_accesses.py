"""Loads and stores: what is read through dereferences and inner blocks, and that an incomplete list says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import UnknownNameError
from opscope_schemas.tiling import KernelTiling
from opscope_tools import kernels
from opscope_tools.cuda_kernel_tiling import CUDA_KERNEL_TILING, TilingArguments
from opscope_tools.kernels import describe, named_file, scan
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace, folder_repository

CORPUS = Path(__file__).parents[2] / "corpus" / "kernels"


def described(name: str, root: Path = CORPUS) -> KernelTiling:
    repository = folder_repository("corpus", root)
    inventory = scan(repository, MemoryStore(), checkpoint=lambda: None, progress=lambda *_: None)
    chosen = [k for k in inventory.kernels if k.name == name]
    (kernel,) = describe(repository, inventory, chosen, checkpoint=lambda: None, progress=lambda *_: None)
    return kernel


def written(tmp_path: Path, body: str, parameters: str = "const float* x, float* y, int n") -> KernelTiling:
    (tmp_path / "k.cu").write_text(f"__global__ void k({parameters})\n{{\n{body}\n}}\n")
    return described("k", tmp_path)


def incomplete(kernel: KernelTiling) -> list[str]:
    return [note for note in kernel.notes if "loads and stores are incomplete" in note]


def test_dereferences_of_parameters_and_of_pointers_made_from_them_are_accesses() -> None:
    gemv = described("gemv_kernel")
    assert [(m.expression, m.parameter) for m in gemv.loads] == [
        ("*c_ptr", "c"), ("*((int4*) a_ptr)", "a"), ("reinterpret_cast<const float4*>(a)[row]", "a"), ("*a_ptr++", "a"),
        ("*(bias + row)", "bias"), ("scales[row]", ""),
    ]  # fmt: skip
    assert [(m.operation, m.expression, m.parameter) for m in gemv.stores] == [
        ("atomicAdd", "&c[row]", "c"), ("store", "*reinterpret_cast<half*>(&c[row])", "c"), ("store", "*c_ptr", "c"),
    ]  # fmt: skip
    assert gemv.loads[1].assumptions == ("an address that a_ gives lies in a",)
    assert gemv.loads[2].assumptions == ()
    assert gemv.loads[1].definition.startswith("const half* a_ptr = a_.item_ptr(row, 0) (shop/views/gemv.cu:")


def test_accesses_through_a_view_whose_body_is_not_read_are_named() -> None:
    assert incomplete(described("gemv_kernel")) == [
        "accesses through b_.item(...) are not resolved: loads and stores are incomplete"
    ]


def test_a_function_that_is_handed_a_pointer_and_not_read_is_named() -> None:
    handed = described("handed_kernel")
    assert [(m.parameter, m.via) for m in (*handed.loads, *handed.stores)] == [("x", "add_one"), ("y", "add_one")]
    assert incomplete(handed) == ["accesses through elsewhere(...) are not resolved: loads and stores are incomplete"]


def test_a_complete_list_carries_no_note() -> None:
    whole = described("whole_kernel")
    assert not incomplete(whole)
    assert [m.expression for m in whole.loads] == ["*p"]  # one entry for both on the line


def test_a_name_declared_again_in_an_inner_block_means_that_declaration() -> None:
    scoped = described("scoped_kernel")
    assert [m.definition.partition(" (shop")[0] for m in scoped.loads] == [
        "const half2* x_row = (const half2*) x", "const float2* x_row = (const float2*) x",
    ]  # fmt: skip
    assert [m.definition.partition(" (shop")[0] for m in scoped.stores] == [
        "half2* y_row = (half2*) y", "float2* y_row = (float2*) y",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "loads", "stores"),
    [
        ("int x = 3; { int y[2]; y[0] = x; }", [], []),  # names of their own in the body
        ("float a = n * *x; float b = n*n;", ["*x"], []),
        ("float v = x[n] & x[0];", ["x[n]", "x[0]"], []),  # `&` between two values takes no address
        ("auto p = x + n; y[0] = p[1];", ["p[1]"], ["y[0]"]),
        ("float* p; if (n) p = y; else p = y + 1; *p += 1;", ["*p"], ["*p"]),
        ("float v = __ldg(x + n); __stcs(&y[n], v);", ["x + n"], ["&y[n]"]),
        ("float acc[4]; float* row = acc; row[0] = *row; y[0] = acc[0];", [], ["y[0]"]),
        ("#if A\nif (n) {\n#else\nif (!n) {\n#endif\nconst float* p = x;\ny[0] = p[0]; }", ["p[0]"], ["y[0]"]),
    ],
)
def test_accesses_of_a_body(tmp_path: Path, body: str, loads: list[str], stores: list[str]) -> None:
    kernel = written(tmp_path, body)
    assert [m.expression for m in kernel.loads] == loads
    assert [m.expression for m in kernel.stores] == stores
    assert not incomplete(kernel)


@pytest.mark.parametrize(
    ("body", "parameters", "named"),
    [
        ("y[0] = x[0][1];", "PackedAccessor<float, 2> x, float* y", "x[...]"),
        ("float* p = magic(n); *p = 1;", "int n", "*p"),
        ("policy.load(n);", "Policy policy, int n", "policy.load(...)"),
        ("Loader(n).Load(x, n);", "const float* x, int n", "Loader(...).Load(...)"),
        ("*y = params.table[n];", "const Params params, float* y, int n", "params.table[...]"),
        ("if constexpr (kOn) policy.template run<4>(n);", "Policy policy, int n", "policy.run(...)"),
    ],
)
def test_what_is_not_resolved_is_named(tmp_path: Path, body: str, parameters: str, named: str) -> None:
    assert incomplete(written(tmp_path, body, parameters)) == [
        f"accesses through {named} are not resolved: loads and stores are incomplete"
    ]


def test_a_pointer_chosen_between_two_parameters_names_both(tmp_path: Path) -> None:
    kernel = written(tmp_path, "const float* p = n ? x : y; float v = p[0];")
    assert [m.parameter for m in kernel.loads] == ["x or y"]


def test_a_program_id_of_a_helper_module_is_followed_or_said_to_be_assumed() -> None:
    notes = [n for n in described("wrapped_kernel").notes if "program" in n]
    assert notes == [
        "tle.program_id is a device function over tl.program_id (shop/lang/extension.py:7).",
        "tle.num_programs is shop.lang.extension.num_programs, of which no device function was found here; "
        "it is taken for tl.num_programs.",
        "blocks.program_id is elsewhere.blocks.program_id, of which no device function was found here; "
        "it is taken for tl.program_id.",
    ]


@pytest.mark.parametrize(
    ("target", "file"),
    [("a/b.py", "a/b.py"), ("b.cu::kernel", "b.cu"), ("b.cuh:12", "b.cuh"), ("kernel", ""), ("folder/sub", "")],
)
def test_a_target_with_a_source_suffix_names_a_file(target: str, file: str) -> None:
    assert named_file(target) == file


@pytest.mark.parametrize("target", ["row.py", "shop/ops/rows_.py::same_name", "nowhere/rows.py:3"])
def test_a_file_that_is_not_there_is_answered_from_the_file_lists(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace({"shop": folder_repository("shop", CORPUS)}, tmp_path, MemoryStore())
    monkeypatch.setattr(kernels, "scan", lambda *_, **__: pytest.fail("the repository was read"))
    with pytest.raises(UnknownNameError, match="No source file is called") as error:
        CUDA_KERNEL_TILING.run(TilingArguments(target=target), ToolContext(workspace))
    assert error.value.nearest[0] == "shop/ops/rows.py"


@pytest.mark.parametrize("qualifier", ["__restrict__", "OWN_RESTRICT", "own_restrict", "OWN_RESTRICT const"])
def test_a_pointer_that_a_macro_qualifies_is_followed(tmp_path: Path, qualifier: str) -> None:
    kernel = written(
        tmp_path,
        f"float4 * {qualifier} wide = (float4 *) x;\nconst half * {qualifier} narrow = y + n, * {qualifier} other = y;\n"
        "y[n] = other[blockIdx.x];\nfloat4 v = wide[threadIdx.x];\nhalf s = narrow[threadIdx.x];",
        f"const float * {qualifier.partition(' ')[0]} x, half * {qualifier.partition(' ')[0]} y, int n",
    )
    assert [(m.expression, m.parameter, m.width) for m in kernel.loads] == [
        ("other[blockIdx.x]", "y", 2), ("wide[threadIdx.x]", "x", 16), ("narrow[threadIdx.x]", "y", 2),
    ]  # fmt: skip
    assert [(m.expression, m.parameter) for m in kernel.stores] == [("y[n]", "y")]
    assert incomplete(kernel) == []
