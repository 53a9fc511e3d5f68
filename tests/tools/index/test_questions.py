"""What one question looks up is kept until its end and no longer, and a circle of classes or imports has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from opscope_tools.index import Index

Package = Callable[[Mapping[str, str | bytes]], Index]


def test_a_file_that_changed_between_two_questions_is_read_again(package: Package, tmp_path: Path) -> None:
    index = package({"p/__init__.py": "", "p/a.py": "class A: pass\nclass B: pass\nclass C(A): pass\n"})
    symbol = index.one("p.a.C")
    assert index.mro(symbol) == ["p.a.C", "p.a.A", "object"]
    (tmp_path / "p" / "a.py").write_text("class A: pass\nclass B(A): pass\nclass C(B): pass\n")
    assert index.mro(index.one("p.a.C")) == ["p.a.C", "p.a.B", "p.a.A", "object"]
    with index.question():
        index.mro(index.one("p.a.C"))
    (tmp_path / "p" / "a.py").write_text("class A: pass\n\nclass C(A): pass\n")
    assert index.mro(index.one("p.a.C")) == ["p.a.C", "p.a.A", "object"]


def test_the_order_of_a_long_chain_names_every_class(package: Package) -> None:
    size = 1_500
    chain = "class C0: pass\n" + "".join(f"class C{i}(C{i - 1}): pass\n" for i in range(1, size))
    index = package({"p/__init__.py": "", "p/a.py": chain})
    order = index.mro(index.one(f"p.a.C{size - 1}"))
    assert order == [*(f"p.a.C{i}" for i in reversed(range(size))), "object"]


def test_classes_that_derive_from_themselves_are_answered_from_wherever_one_asks(package: Package) -> None:
    index = package({"p/__init__.py": "", "p/a.py": "class A(C): pass\nclass B(A): pass\nclass C(B): pass\n"})
    for first in "ABC":
        for name in "ABC":
            index.mro(index.one(f"p.a.{first}"))
            assert index.mro(index.one(f"p.a.{name}"))[0] == f"p.a.{name}"


def test_a_name_that_is_found_behind_a_circle_of_stars_is_found_from_every_module(package: Package) -> None:
    files: dict[str, str | bytes] = {
        f"p/m{i}.py": "".join(f"from p.m{j} import *\n" for j in range(6) if j != i) for i in range(6)
    }
    files["p/__init__.py"] = ""
    files["p/m5.py"] = str(files["p/m5.py"]) + "class Z: pass\n"
    index = package({**files, **{f"p/q{i}.py": f"from p.m{i} import *\nclass Q{i}(Z): pass\n" for i in range(6)}})
    for i in range(6):
        assert index.mro(index.one(f"p.q{i}.Q{i}")) == [f"p.q{i}.Q{i}", "p.m5.Z", "object"]
