"""A sample of tests/sweep/instances.py: figures of one instance against nvcc and against Triton's own compilation of a launch."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from opscope_schemas.common import Repository
from opscope_tools.kernels.compiled.headers import Headers

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from compiled_truth import Asked, Figures, by_nvcc, by_triton, differing, figures, plain

CORPUS = Path(__file__).parents[2] / "corpus/instances"
nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on this machine")


@pytest.fixture(scope="module")
def asked() -> Asked:
    return Asked(CORPUS)


# ---- CUDA


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figures]:
    return by_nvcc(CORPUS / "csrc/instances.cu", [CORPUS / "include"], "sm_90", tmp_path_factory.mktemp("nvcc"))


@nvcc
@pytest.mark.parametrize(
    "entry",
    [
        "void acc<4>(float*)", "void acc<96>(float*)", "void crowded<100>(float*)",
        "void shop::folded<Wide, 2, (shop::Mode)0>(Wide*, shop::Pair<Wide>, shop::Pair<Wide> const*, int)",
        "shop::(anonymous namespace)::hidden(shop::Pair<float>*, shop::Pair<float>*)", "shop::shift(double*, double)",
        "plain",
    ],
)  # fmt: skip
def test_an_instance_has_the_figures_that_nvcc_gives_its_entry(
    asked: Asked, truth: dict[str, Figures], entry: str
) -> None:
    found = asked.resources(asked.kernel_of(entry), "sm_90", instance=plain(entry))
    (build,) = found.builds
    assert build.error == ""
    assert build.specialisation["entry"] == entry
    assert figures(build) == truth[entry]


@nvcc
def test_instances_of_one_file_differ_so_that_a_confusion_would_show(truth: dict[str, Figures]) -> None:
    assert len({truth[f"void acc<{n}>(float*)"].registers for n in (4, 16, 40, 64, 96)}) == 5
    assert truth["void crowded<100>(float*)"].spill_stores
    assert not truth["void crowded<32>(float*)"].spill_stores


@nvcc
def test_instances_that_source_makes_by_name_are_listed_and_the_first_is_compiled(asked: Asked) -> None:
    found = asked.resources("crowded", "sm_90")
    assert [(i.instance, i.by, i.file) for i in found.instances] == [
        ("crowded<32>", "explicit instantiation", "csrc/instances.cu"),
        ("crowded<100>", "explicit instantiation", "csrc/instances.cu"),
    ]
    assert found.builds[0].specialisation["instance"] == "crowded<32>"
    launched = asked.resources("acc", "sm_90", instance="acc<4>").instances
    assert {i.instance: i.by for i in launched} == {
        "acc<64>": "launch", **dict.fromkeys(("acc<4>", "acc<16>", "acc<40>", "acc<96>"), "explicit instantiation")
    }  # fmt: skip


@nvcc
def test_an_instance_that_no_entry_is_names_the_candidates(asked: Asked) -> None:
    found = asked.resources("acc", "sm_90", instance="acc<nowhere>")
    assert not found.compiled
    assert 'identifier "nowhere" is undefined' in found.statement
    assert "source names acc<64>, acc<4>, acc<16>" in found.statement
    both = asked.resources("shift", "sm_90", instance="shift")
    assert not both.compiled or both.builds[0].specialisation["instance"] == "shift(float*, float)"


@nvcc
def test_two_entries_that_one_name_means_are_both_named(tmp_path: Path) -> None:
    (tmp_path / "two.cu").write_text("""namespace deep { namespace {
struct P { int q; };
__global__ void over(P* a, P* b) { a->q = b->q; }
__global__ void over(P* a, P* b, int c) { a->q = c; }
} }
""")
    found = Asked(tmp_path).resources("over", "sm_90")
    assert not found.compiled
    assert "not one" in found.statement
    assert found.statement.count("::over(") == 2


@nvcc
def test_an_instance_with_types_of_a_file_that_includes_the_kernel_is_compiled_there(asked: Asked) -> None:
    found = asked.resources("folded", "sm_90", instance="folded<Wide, 2>")
    assert found.builds[0].error == ""
    assert (
        "Compiled as csrc/instances.cu includes it: csrc/kernels/registers.cuh alone does not compile."
        in found.assumptions
    )


def test_headers_are_found_where_the_lines_resolve(tmp_path: Path) -> None:
    for path, text in {
        "a/include/lib/x.h": '#include "y.h"\n', "a/include/lib/y.h": "", "b/include/lib/x.h": '#include "lib/z.h"\n',
        "b/include/lib/z.h": "", "b/src/k.cuh": '#include <lib/x.h>\n#include "../common.h"\n', "b/common.h": "",
        "b/src/main.cu": '#include "k.cuh"\n#include <vector>\n', "a/other.cu": '#include "lib/x.h"\n',
    }.items():  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    headers = Headers(Repository(name="own", root=tmp_path, packages=()))
    assert headers.folders("b/src/k.cuh") == [tmp_path / "b/include"]  # the nearest of two
    assert headers.folders("a/other.cu") == [tmp_path / "a/include"]
    assert headers.including("b/src/k.cuh") == ["b/src/main.cu"]
    assert headers.including("a/include/lib/y.h") == ["a/other.cu"]
    assert headers.including("b/src/main.cu") == []


# ---- Triton

#: kernel, the call that launches it, what the tool is given
LAUNCHES: list[tuple[str, str, dict[str, Any]]] = [
    ("scaled_rows", "scale_rows(tensor(16, 2048, 4096))", {}),
    ("scaled_rows", "scale_rows(tensor(2, 65536))", {"BLOCK": 65536}),
    ("product", "multiply_small(tensor(2048, 4096), tensor(4096, 4096))", {}),
    ("product", "multiply(tensor(2048, 4096), tensor(4096, 4096))", {"BM": 128}),
    ("wide_rows", "sum_rows(tensor(2048, 128256))", {}),
    ("heads", "mix_heads(tensor(16, 32, 64, 128))", {}),
]


def test_a_build_is_what_triton_compiles_for_the_launch(asked: Asked) -> None:
    calls = [{"module": "rows", "code": code} for _, code, _ in LAUNCHES]
    answers = by_triton(CORPUS, calls, 90)
    warps = []
    for (kernel, code, given), answer in zip(LAUNCHES, answers, strict=True):
        (launch,) = answer["launches"]
        assert "error" not in answer
        (build,) = asked.resources(f"rows.py::{kernel}", "sm_90", given).builds
        assert differing(build, launch) == [], code
        warps.append(launch["num_warps"])
    assert warps == [8, 32, 2, 8, 16, 4]  # each from the size of its own launch


def test_the_headline_says_which_sizes_were_assumed(asked: Asked) -> None:
    found = asked.resources("rows.py::scaled_rows", "sm_90")
    assert found.statement == "Compiled 1 of 1, for n = 4096 (assumed: source gives no sizes)."
    assert "Sizes that no source gives: n = 4096. Give others by values." in found.assumptions
    given = asked.resources("rows.py::scaled_rows", "sm_90", {"BLOCK": 65536})
    assert given.statement == "Compiled 1 of 1."
