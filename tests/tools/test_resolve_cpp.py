"""`resolve_class` on C++ and CUDA, as an agent calls it: on torch's own headers and on small repositories."""

from __future__ import annotations

from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import PathRefusedError, SourceError, UnknownNameError
from opscope_schemas.index import ResolveClassResult
from opscope_tools.resolve_class.tool import RESOLVE_CLASS
from opscope_tools.running.runner import run_tool, to_json
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace, folder_repository, installed_repository

KERNEL = """
template <typename T, int BLOCK>
__global__ void __launch_bounds__(BLOCK) scale(T* x, float by) { x[threadIdx.x] *= by; }
"""


@pytest.fixture(scope="module")
def torch_only(tmp_path_factory: pytest.TempPathFactory) -> ToolContext:
    repository = installed_repository("pytorch", "torch")
    assert repository is not None
    return ToolContext(Workspace({"pytorch": repository}, tmp_path_factory.mktemp("out"), MemoryStore()))


@pytest.fixture
def mixed(tmp_path: Path) -> ToolContext:
    source = tmp_path / "source"
    source.mkdir()
    (source / "model.py").write_text("class Attention:\n    pass\n")
    (source / "attention.h").write_text("class Attention {};\nstruct Params { int n; };\n")
    (source / "scale.cu").write_text(KERNEL)
    return ToolContext(Workspace({"mine": folder_repository("mine", source)}, tmp_path / "out", MemoryStore()))


def ask(context: ToolContext, name: str, **more: object) -> ResolveClassResult:
    result = run_tool(RESOLVE_CLASS, {"name": name, **more}, context)
    assert isinstance(result, ResolveClassResult)
    return result


def line_of(context: ToolContext, file: str, line: int) -> str:
    root = next(iter(context.workspace.repositories.values())).root
    return (root / file).read_text().split("\n")[line - 1]


def test_a_qualified_class_of_torch_comes_with_bases_methods_and_subclasses(torch_only: ToolContext) -> None:
    (match,) = ask(torch_only, "c10::TensorImpl").matches
    assert (match.qualified_name, match.language, match.kind) == ("c10::TensorImpl", "c++", "struct")
    assert line_of(torch_only, match.file, match.line).startswith("struct C10_API TensorImpl")
    assert line_of(torch_only, match.file, match.end_line).startswith("};")
    assert match.bases == ("c10::intrusive_ptr_target",)
    assert {"c10::UndefinedTensorImpl", "at::SparseTensorImpl"} <= set(match.subclasses)
    assert match.subclasses_verified
    assert match.cpp is not None
    assert match.cpp.attributes == ("C10_API",)
    release = next(m for m in match.cpp.methods if m.name == "release_resources")
    assert "void release_resources()" in line_of(torch_only, match.file, release.line)
    assert match.cpp.method_count > len(match.cpp.methods) == 60
    for place in match.cpp.elsewhere:
        assert "TensorImpl" in line_of(torch_only, place.file, place.line)


def test_a_namespace_that_a_macro_opens_is_part_of_the_name(torch_only: ToolContext) -> None:
    (match,) = ask(torch_only, "pybind11::module_").matches
    assert (match.qualified_name, match.bases) == ("pybind11::module_", ("pybind11::object",))


def test_a_line_of_a_header_means_the_class_around_it(torch_only: ToolContext) -> None:
    (whole,) = ask(torch_only, "c10::TensorImpl").matches
    assert whole.cpp is not None
    method = next(m for m in whole.cpp.methods if m.name == "release_resources")
    (match,) = ask(torch_only, f"{whole.file}:{method.line}").matches
    assert (match.qualified_name, match.method) == ("c10::TensorImpl", "release_resources")


def test_an_unknown_qualified_name_has_suggestions(torch_only: ToolContext) -> None:
    found = ask(torch_only, "c10::TensorImp")
    assert (found.matches, found.suggestions[0]) == ((), "TensorImpl")


def test_a_python_class_answers_a_bare_name_before_one_of_cpp(mixed: ToolContext) -> None:
    (match,) = ask(mixed, "Attention").matches
    assert (match.language, match.file, match.cpp) == ("python", "model.py", None)
    (match,) = ask(mixed, "::Attention").matches
    assert (match.language, match.file) == ("c++", "attention.h")


def test_a_bare_name_that_no_python_class_bears_means_a_cuda_kernel(mixed: ToolContext) -> None:
    (match,) = ask(mixed, "scale").matches
    assert (match.language, match.kind, match.file, match.line) == ("cuda", "function", "scale.cu", 3)
    assert match.cpp is not None
    assert match.cpp.template == "typename T, int BLOCK"
    assert match.cpp.attributes == ("__global__", "__launch_bounds__(BLOCK)")


@pytest.mark.parametrize(
    ("name", "error"),
    [("attention.h:9", SourceError), ("no/such.h:1", PathRefusedError), ("/etc/passwd.h:1", PathRefusedError)],
)
def test_a_line_without_a_definition_is_refused_in_a_sentence(
    mixed: ToolContext, name: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        ask(mixed, name)
    assert "\n" not in str(caught.value)


def test_an_unknown_repository_is_refused(mixed: ToolContext) -> None:
    with pytest.raises(UnknownNameError):
        ask(mixed, "a::B", repo="other")


def test_shorter_forms_of_a_large_class_shrink(torch_only: ToolContext) -> None:
    whole = ask(torch_only, "at::Tensor")
    sizes = [len(to_json(whole)), *(len(to_json(rung(whole))) for rung in RESOLVE_CLASS.shorter)]
    assert sizes == sorted(sizes, reverse=True)
    assert all(rung(whole).matches[0].kind == "class" for rung in RESOLVE_CLASS.shorter)
