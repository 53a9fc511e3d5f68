"""Definitions in C, C++ and CUDA files. Expectations stand on the lines of tests/corpus/cpp; they were written by hand."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opscope_schemas.errors import PathRefusedError, SourceError
from opscope_tools.index.cpp import CppIndex, CppRow, definitions
from opscope_tools.running.workspace import folder_repository

CORPUS = Path(__file__).parents[2] / "corpus" / "cpp"
FILES = sorted(CORPUS.iterdir())
_EXPECTED = re.compile(r"(?://|/\*) ?([=-]) (\w+) (.+?)(?= *(?://|\*/|$))", re.MULTILINE)

Sources = Callable[[Mapping[str, str]], CppIndex]


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """Write files and open an index over their folder."""

    def write(files: Mapping[str, str]) -> CppIndex:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return CppIndex([folder_repository("mine", tmp_path)])

    return write


def only(source: str, name: str) -> CppRow:
    (row,) = [row for row in definitions(source.encode()) if row.name == name]
    return row


# what a file defines


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_defines_what_its_lines_say_and_nothing_else(path: Path) -> None:
    text = path.read_text()
    expected = {
        (number, kind, name, sign == "=")
        for number, line in enumerate(text.split("\n"), 1)
        for sign, kind, name in _EXPECTED.findall(line)
        if kind != "not"
    }
    found = {(row.line, row.kind, row.qualified_name, row.definition) for row in definitions(path.read_bytes())}
    assert len(expected) > 10
    assert found == expected


def test_the_end_of_a_definition_is_the_line_of_its_closing_brace() -> None:
    row = only("namespace a {\ntemplate <class T>\nstruct B\n  : C {\n  int f() {\n    return 1;\n  }\n};\n}\n", "B")
    assert (row.first_line, row.line, row.end_line) == (2, 3, 8)


def test_bases_keep_their_access_and_their_template_arguments() -> None:
    row = only("struct A : public B<int, C>, private virtual d::E<(1 > 0)>, F... {};", "A")
    assert row.bases == ("public B<int, C>", "private virtual d::E<(1 > 0)>", "F...")


@pytest.mark.parametrize(
    ("source", "template", "arguments"),
    [
        ("template <typename T, int N = (3 > 2)> struct A {};", "typename T, int N = (3 > 2)", ""),
        ("template <> struct A<int, 4> {};", "", "<int, 4>"),
        ("template <class T> struct A<T*> : B<T> {};", "class T", "<T*>"),
        ("struct A {};", None, ""),
    ],
)
def test_template_parameters_and_specialisations_are_told_apart(source: str, template: str, arguments: str) -> None:
    row = only(source, "A")
    assert (row.template, row.arguments) == (template, arguments)


def test_a_signature_keeps_default_strings_and_loses_comments() -> None:
    row = only('int f(const char* a = "x, (y", /* why */ int b = 3) const;', "f")
    assert row.signature == 'int f(const char* a = "x, (y", int b = 3) const'


def test_attributes_name_specifiers_macros_and_launch_bounds() -> None:
    row = only("static MY_API __global__ void __launch_bounds__(128, 2) f(int n) {}", "f")
    assert row.attributes == ("static", "MY_API", "__global__", "__launch_bounds__(128, 2)")


def test_conditions_name_every_branch_before_and_leave_guards_out() -> None:
    source = "#ifndef G\n#define G\n#if A\nint a();\n#elif B || C\nint b();\n#else\nint c();\n#endif\n#endif\n"
    rows = {row.name: row.condition for row in definitions(source.encode())}
    assert rows == {"G": "", "a": "A", "b": "!A && (B || C)", "c": "!A && !((B || C))"}


def test_a_qualified_name_starts_at_the_scope_that_holds_its_first_name() -> None:
    rows = definitions(
        b"namespace a { namespace c { class K { friend void a::b::f(K*); void g(); }; void K::g() {} } }"
    )
    assert {row.qualified_name for row in rows if row.kind == "function"} == {"a::b::f", "a::c::K::g"}


def test_members_carry_their_access() -> None:
    rows = definitions(b"class A { void a(); public: void b(); protected: struct C { void d(); }; };")
    assert {row.name: row.access for row in rows} == {
        "A": "",
        "a": "private",
        "b": "public",
        "C": "protected",
        "d": "public",
    }


@pytest.mark.parametrize(
    "source",
    [
        b"\xff\xfe" + "struct A {};".encode("utf-16-le"),
        b"\xef\xbb\xbfstruct A {};",
        b"// \xe4\xff caf\xe9\rstruct A {};\r",
        b"int x;\r\nstruct \\\r\n A\r\n{};\r\n",
        b"struct A {}; \0\0",
    ],
)
def test_encodings_and_line_ends_of_other_systems_are_read(source: bytes) -> None:
    assert [(row.kind, row.name) for row in definitions(source)] == [("struct", "A")]


@pytest.mark.parametrize(
    "source",
    [
        *("(" * 20_000, "a<" * 20_000, "#if A\n{\n" * 20_000, "/*" * 20_000, "operator " * 20_000, 'R"x(' * 20_000),
        *("class A {" * 3_000, "void f() {" + "class x " * 20_000, "#if A\n" + "#else\n{" * 5_000),
    ],
    ids=lambda text: text[:12],
)
def test_brackets_that_nothing_closes_cost_no_more_than_their_file(source: str) -> None:
    once = _seconds(source)
    assert _seconds(source * 2) < 3 * once + 5  # a quadratic reader takes minutes


def _seconds(source: str) -> float:
    start = time.process_time()
    definitions(source.encode())
    return time.process_time() - start


@settings(max_examples=150)
@given(st.sampled_from(FILES), st.integers(0, 4000), st.integers(0, 4000), st.binary(max_size=12))
def test_any_damage_to_a_file_leaves_rows_inside_the_file(path: Path, start: int, length: int, put: bytes) -> None:
    source = path.read_bytes()
    damaged = source[:start] + put + source[start + length :]
    lines = damaged.count(b"\n") + damaged.count(b"\r") + 1
    for row in definitions(damaged):
        assert 1 <= row.first_line <= row.line <= lines
        assert row.first_line <= row.end_line <= lines
        assert row.name


# what a name means


def test_a_bare_a_partly_and_a_fully_qualified_name_find_the_same_class(sources: Sources) -> None:
    index = sources({"a.h": "namespace a::b { class API_X Klass : public Other { void go(); }; }"})
    for name in ("Klass", "b::Klass", "a::b::Klass", "::a::b::Klass", "Klass<int>"):
        (symbol,) = index.lookup(name).symbols
        assert (symbol.qualified_name, symbol.file, symbol.row.line) == ("a::b::Klass", "a.h", 1)
    assert index.lookup("c::Klass").symbols == []
    assert index.lookup("Klas").symbols == []


def test_declarations_are_places_of_the_definition(sources: Sources) -> None:
    index = sources(
        {
            "a.h": "class K;\nint f(K*);\n",
            "b.h": "class K {\n};\n",
            "c.cu": "#include <a.h>\nint f(K* k) { return 1; }\n",
        }
    )
    (klass,) = index.lookup("K").symbols
    assert (klass.file, klass.elsewhere) == ("b.h", (("a.h", 1, False),))
    (function,) = index.lookup("f").symbols
    assert (function.file, function.row.line, function.language) == ("c.cu", 2, "cuda")
    assert function.elsewhere == (("a.h", 2, False),)


def test_what_is_only_declared_is_no_definition(sources: Sources) -> None:
    (symbol,) = sources({"a.h": "class K;\n"}).lookup("K").symbols
    assert not symbol.row.definition


def test_calls_are_no_definitions(sources: Sources) -> None:
    index = sources({"a.cc": "int main() { run(1); auto x = run(2); return obj.run(3); }\nstatic Run run_(run(4));\n"})
    assert index.lookup("run").symbols == []


def test_namespaces_that_macros_open_are_looked_up_in_their_definitions(sources: Sources) -> None:
    macros = "#define LIB_NAMESPACE_BEGIN(name) namespace name {\n#define LIB_NAMESPACE lib __attribute__((x))\n"
    index = sources(
        {
            "m.h": macros + "#define OPEN_NAMESPACE_BEGIN namespace p { inline namespace q {\n",
            "a.h": "LIB_NAMESPACE_BEGIN(LIB_NAMESPACE)\nstruct A {};\nLIB_NAMESPACE_END(LIB_NAMESPACE)\n",
            "b.h": "OPEN_NAMESPACE_BEGIN\nstruct B {};\nOPEN_NAMESPACE_END\nUNKNOWN_NAMESPACE_BEGIN\nstruct C {};\n",
        }
    )
    names = {
        name: [s.qualified_name for s in index.lookup(name).symbols] for name in ("lib::A", "p::B", "p::q::B", "C")
    }
    assert names == {
        "lib::A": ["lib::A"],
        "p::B": ["p::q::B"],
        "p::q::B": ["p::q::B"],
        "C": ["UNKNOWN_NAMESPACE_BEGIN::C"],
    }


def test_a_base_is_resolved_where_only_one_class_can_be_meant(sources: Sources) -> None:
    index = sources(
        {
            "a.h": "namespace n { struct B {}; struct D : public B, m::B, Unknown<int> {}; struct E : X {}; }",
            "b.h": "namespace m { struct B {}; struct X {}; }\nnamespace o { struct X {}; }",
        }
    )
    (derived,) = index.lookup("D").symbols
    assert index.bases(derived) == ["n::B", "m::B", "Unknown<int>"]
    (other,) = index.lookup("E").symbols
    assert index.bases(other) == ["X"]  # m::X or o::X: source alone does not tell


def test_subclasses_are_those_whose_base_leads_to_the_class(sources: Sources) -> None:
    index = sources(
        {
            "a.h": "namespace n { struct B {}; struct D : public B {}; }\nstruct F : n::B {};",
            "b.h": "namespace m { struct B {}; struct D2 : B {}; }\nstruct G : std::vector<B> {}; void f(B b);",
        }
    )
    (base,) = index.lookup("n::B").symbols
    assert index.subclasses(base) == (["F", "n::D"], True)


def test_a_subclass_whose_base_may_be_another_class_is_not_verified(sources: Sources) -> None:
    index = sources(
        {"a.h": "namespace n { struct B {}; }\nnamespace m { struct B {}; }\nusing namespace n;\nstruct D : B {};"}
    )
    (base,) = index.lookup("n::B").symbols
    assert index.subclasses(base) == (["D"], False)


def test_a_line_gives_the_class_around_it_and_its_method(sources: Sources) -> None:
    index = sources(
        {
            "a.h": "namespace n {\nclass K {\n  int f() {\n    return 1;\n  }\n  int x;\n};\nint g() {\n  return 2;\n}\n}\n"
        }
    )
    in_method = index.at_line("a.h", 4)
    assert (in_method.qualified_name, in_method.method) == ("n::K", "f")
    assert (index.at_line("a.h", 6).qualified_name, index.at_line("a.h", 6).method) == ("n::K", "")
    assert (index.at_line("a.h", 9).qualified_name, index.at_line("a.h", 9).row.kind) == ("n::g", "function")
    with pytest.raises(SourceError, match="No definition stands at line 1"):
        index.at_line("a.h", 1)
    with pytest.raises(PathRefusedError):
        index.at_line("../a.h", 1)


def test_a_changed_file_is_read_again(sources: Sources, tmp_path: Path) -> None:
    index = sources({"a.h": "struct A {};"})
    assert index.lookup("B").symbols == []
    (tmp_path / "a.h").write_text("\nstruct B {};")
    assert [s.row.line for s in index.lookup("B").symbols] == [2]
    assert index.lookup("A").symbols == []


def test_members_are_those_of_the_class_body(sources: Sources) -> None:
    index = sources({"a.h": "struct A { void a(); struct B { void b(); }; int c() { return 1; } };\nvoid A::a() {}\n"})
    (symbol,) = index.lookup("A").symbols
    assert [(row.name, row.definition) for row in index.members(symbol)] == [("a", False), ("c", True)]


def test_the_nearest_names_of_types_are_suggested(sources: Sources) -> None:
    assert sources({"a.h": "class EXPORT TensorImpl {};\nstruct Storage {};"}).nearest("c10::TensorImp") == [
        "TensorImpl"
    ]
