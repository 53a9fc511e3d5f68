"""Which definition a name leads to, and its MRO, in small packages that Python itself imports for the comparison: a
subprocess says where the class statement stands that ran, and what the MRO is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from opscope_schemas.errors import UnknownNameError
from opscope_tools.index import Index

Package = Callable[[Mapping[str, str | bytes]], Index]

ASK = """
import json, sys
sys.path[:0] = sys.argv[1:3]
import runtime_truth
runtime_truth.record_classes()
import importlib
answer = {}
for name, expression in json.load(sys.stdin).items():
    module, _, last = name.rpartition(".")
    if expression:
        module = "pkg.m"
        value = eval(expression.removeprefix(module + "."), vars(importlib.import_module(module)))
    else:
        value = getattr(importlib.import_module(module), last)
    answer[name] = [runtime_truth.place(value), [runtime_truth.qualified(base) for base in value.__mro__]]
print(json.dumps(answer))
"""


def python_says(folder: Path, names: Mapping[str, str]) -> dict[str, Any]:
    """Name -> (place, MRO) of what Python imports under it, or of what the expression beside it gives."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(folder), str(Path(__file__).parent)],
        input=json.dumps(names), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


GUARDS = {
    "pkg/__init__.py": "",
    "pkg/utils.py": (
        "import importlib.util\nfrom functools import lru_cache\n"
        "def _probe(name, version=False):\n"
        "    spec = importlib.util.find_spec(name)\n    there = spec is not None\n    number = 'N/A'\n"
        "    if there and version:\n        number = '1'\n"
        "    if version:\n        return there, number\n    else:\n        return there, None\n"
        "@lru_cache\ndef is_missing_available():\n    return _probe('no_such_package_anywhere')[0]\n"
        "def is_json_available() -> bool:\n    return _probe('json')[0] and not is_missing_available()\n"
        "_torchy, _version = _probe('no_such_package_anywhere', version=True)\n"
        "def is_torchy_available():\n    return _torchy\n"
        "def can_import():\n    try:\n        import no_such_package_anywhere\n        return True\n"
        "    except ImportError:\n        return False\n"
    ),
    "pkg/m.py": (
        "import sys\nfrom .utils import *\nfrom . import utils\n"
        "if is_missing_available():\n    class A: pass\nelse:\n    class A: pass\n"
        "if not is_json_available():\n    class B: pass\nelse:\n    class B(A): pass\n"
        "if utils.is_torchy_available():\n    class C: pass\nelif sys.version_info >= (3, 8):\n    class C(B): pass\n"
        "else:\n    class C: pass\n"
        "if can_import() or sys.platform == 'nowhere':\n    class D: pass\nelse:\n    class D(C): pass\n"
        "class E: pass\nif is_json_available():\n    class E(D): pass\n"
        "class F: pass\nif is_missing_available():\n    class F(D): pass\n"
        "HAS = False\nif HAS:\n    class G: pass\nelse:\n    class G(F): pass\n"
        "class H(A if HAS else G): pass\nclass I(A if is_json_available() else G): pass\n"
    ),
}  # fmt: skip
TRIES = {
    "pkg/__init__.py": "",
    "pkg/m.py": (
        "try:\n    from no_such_package_anywhere import Fast\n    class A(Fast): pass\nexcept ImportError:\n"
        "    class Fast: pass\n    class A(Fast): pass\n"
        "try:\n    import json\nexcept ImportError:\n    class B: pass\nelse:\n    class B(A): pass\n"
        "try:\n    class C: pass\n    import no_such_package_anywhere\nexcept ImportError:\n    pass\n"
        "else:\n    class C(A): pass\n"
        "try:\n    import no_such_package_anywhere\n    FAST = True\nexcept ImportError:\n    FAST = False\n"
        "if FAST:\n    class D: pass\nelse:\n    class D(C): pass\n"
        "try:\n    from .gone import E\nexcept ImportError:\n    class E(D): pass\n"
        "try:\n    class F: pass\nfinally:\n    class F(E): pass\n"
    ),
}  # fmt: skip
LAST = {
    "pkg/__init__.py": "from .m import *\nfrom . import m as other\n",
    "pkg/a.py": "class A: pass\nclass B: pass\nclass _Hidden: pass\n",
    "pkg/m.py": (
        "class A: pass\nfrom .a import *\nclass B: pass\nclass B(A): pass\nclass C(B): pass\nD = C\nE = D\n"
        "class F: pass\nF = E\nclass G(F): pass\nfor _ in range(2):\n    class H(G): pass\n"
        "with open(__file__):\n    class I(H): pass\n"
        "match 1:\n    case 1:\n        class J(I): pass\n"
    ),
    "pkg/use.py": "import pkg.m as q, pkg.a\nfrom pkg import other as o\nclass K(q.J): pass\nclass L(o.G, pkg.a.B): pass\n",
}  # fmt: skip
LISTS = {
    "pkg/__init__.py": "from .all import *\n",
    "pkg/a.py": "__all__ = ['A', '_Under']\nclass A: pass\nclass _Under: pass\nclass Unlisted: pass\n",
    "pkg/b.py": "names = ['B']\n__all__ = names\nclass B: pass\nclass Other: pass\n",
    "pkg/c.py": "__all__ = ()\n__all__ += ('C',)\n__all__ = list(__all__)\nclass C: pass\n",
    "pkg/d.py": "__all__ = sorted(n for n in ['D'])\nclass D: pass\n",
    "pkg/all.py": (
        "from . import a, b, c\nfrom .a import *\nfrom .b import *\nfrom .c import *\nfrom .d import *\n"
        "class Own: pass\nclass Private: pass\n"
        "__all__ = a.__all__ + b.__all__ + ['Own']\n__all__ += [*c.__all__]\n__all__.extend(['D'])\n"
    ),
}  # fmt: skip
SERVED = {
    "pkg/__init__.py": (
        "import importlib\n_WHERE = {'A': 'pkg.a', 'B': '.b'}\n_PAIRS = {'C': ('.b', 'B'), 'D': '.b:Deep'}\n"
        "def __getattr__(name):\n"
        "    if name in _WHERE:\n        module = importlib.import_module(_WHERE[name], __name__)\n"
        "        value = getattr(module, name)\n        globals()[name] = value\n        return value\n"
        "    if name == 'E':\n        from .a import A\n        return A\n"
        "    if name in _PAIRS:\n        pair = _PAIRS[name]\n        if isinstance(pair, str):\n"
        "            where, attribute = pair.split(':')\n        else:\n            where, attribute = pair\n"
        "        return getattr(importlib.import_module(where, __package__), attribute)\n"
        "    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')\n"
    ),
    "pkg/a.py": "class A: pass\n",
    "pkg/b.py": "from .a import A\nclass B(A): pass\nclass Deep(B): pass\n",
    "pkg/sub/__init__.py": (
        "from importlib import import_module\n_STRUCTURE = {'x': ['X', 'Y'], 'z': ['Z']}\n"
        "def __getattr__(name: str):\n    for module, names in _STRUCTURE.items():\n        if name in names:\n"
        "            return _load(module, name)\n    raise AttributeError(name)\n"
        "def _load(module, name):\n    return getattr(import_module(f'{__name__}.{module}'), name)\n"
    ),
    "pkg/sub/x.py": "class X: pass\nclass Y(X): pass\n",
    "pkg/sub/z.py": "from . import Y\nclass Z(Y): pass\n",
    "pkg/use.py": "import pkg\nfrom pkg.sub import Z\nclass U(Z, pkg.D): pass\n",
}  # fmt: skip
MADE = {
    "pkg/__init__.py": "",
    "pkg/meta.py": (
        "class Meta(type):\n    def __new__(cls, name, bases, body):\n        return super().__new__(cls, name, bases, body)\n"
        "class Plain(type): pass\n"
        "def with_metaclass(meta, *bases):\n"
        "    class temporary(type):\n        def __new__(cls, name, this, body):\n            return meta(name, bases, body)\n"
        "    return type.__new__(temporary, 'temporary', (), {})\n"
    ),
    "pkg/m.py": (
        "import collections, enum, abc\nfrom collections import namedtuple\nfrom typing import NamedTuple\n"
        "from .meta import Meta, Plain, with_metaclass\n"
        "class Base: pass\n"
        "Made = type('Made', (Base,), {'size': 3})\n"
        "class A(Made): pass\nclass B(namedtuple('Pair', 'x y')): pass\nclass C(collections.namedtuple('P', ['x']), Base): pass\n"
        "Row = NamedTuple('Row', [('x', int)])\nclass D(Row): pass\nColour = enum.Enum('Colour', 'red green')\n"
        "Shape = abc.ABCMeta('Shape', (object,), {})\nclass E(Shape, Base): pass\n"
        "ByMeta = Meta('ByMeta', (Base,), {})\nclass F(ByMeta): pass\nByPlain = Plain('ByPlain', (Base,), {})\n"
        "class G(ByPlain): pass\nclass H(type('Inline', (Base,), {})): pass\nclass I(with_metaclass(Plain, Base, dict)): pass\n"
    ),
}  # fmt: skip
LOCALS = {
    "pkg/__init__.py": "",
    "pkg/a.py": "class A: pass\nclass Shadow: pass\n",
    "pkg/m.py": (
        "class Shadow: pass\n"
        "def imports():\n    from .a import A\n    class Local(A): pass\n    return Local\n"
        "def siblings():\n    class Base: pass\n    class Local(Base): pass\n    return Local\n"
        "def shadows():\n    from .a import Shadow\n    def inner():\n        class Local(Shadow): pass\n        return Local\n"
        "    return inner()\n"
        "class Outer:\n    class Shadow: pass\n    class Seen(Shadow): pass\n    class Nested:\n"
        "        class Unseen(Shadow): pass\n"
        "    def method(self=None):\n        class Local(Shadow): pass\n        return Local\n"
    ),
}  # fmt: skip
LOCAL_NAMES = {
    "pkg.m.imports.<locals>.Local": "pkg.m.imports()",
    "pkg.m.siblings.<locals>.Local": "pkg.m.siblings()",
    "pkg.m.shadows.<locals>.inner.<locals>.Local": "pkg.m.shadows()",
    "pkg.m.Outer.method.<locals>.Local": "pkg.m.Outer.method()",
    "pkg.m.Outer.Seen": "pkg.m.Outer.Seen",
    "pkg.m.Outer.Nested.Unseen": "pkg.m.Outer.Nested.Unseen",
}


def names(module: str, letters: str) -> dict[str, str]:
    return {f"{module}.{letter}": "" for letter in letters.split()}


CASES = {
    "conditions that source and installed packages decide": (GUARDS, names("pkg.m", "A B C D E F G H I")),
    "try blocks whose import fails": (TRIES, names("pkg.m", "A B C D E F Fast")),
    "the last binding, star imports and aliases": (
        LAST, {**names("pkg.m", "A B C D E F G H I J"), **names("pkg.use", "K L"), **names("pkg", "A D J")},
    ),
    "__all__ made of the __all__ of other modules": (LISTS, names("pkg", "A _Under B C D Own")),
    "names that a module's __getattr__ serves": (
        SERVED, {**names("pkg", "A B C D E"), **names("pkg.sub", "X Y Z"), **names("pkg.use", "U")},
    ),
    "classes that calls make": (MADE, names("pkg.m", "A B C D E F G H I Made Row Colour Shape ByMeta ByPlain")),
    "classes inside functions and classes": (LOCALS, LOCAL_NAMES),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_names_lead_where_python_binds_them(package: Package, tmp_path: Path, case: str) -> None:
    files, wanted = CASES[case]
    index = package(files)
    for name, (place, mro) in python_says(tmp_path, wanted).items():
        symbol = index.one(name)
        assert index.mro(symbol) == mro, name
        if "file" in place:
            assert (str(tmp_path / symbol.file), symbol.line) == (place["file"], place["line"]), name


def test_a_star_import_binds_only_what_a_composed_all_lists(package: Package) -> None:
    index = package(LISTS)
    for name in ("Unlisted", "Other", "Private"):
        assert index.exported_as(index.one(name)) == []
    assert index.exported_as(index.one("C")) == ["pkg.C"]


def test_a_deleted_name_is_not_exported_and_the_reader_is_told(package: Package) -> None:
    index = package(
        {
            "pkg/__init__.py": "from .m import *\n",
            "pkg/m.py": "class Gone: pass\nclass Kept(Gone): pass\ndel Gone\n",
        }
    )
    gone = index.one("pkg.m.Gone")
    assert index.exported_as(gone) == []
    assert index.mro(index.one("Kept")) == ["pkg.m.Kept", "pkg.m.Gone", "object"]
    assert index.remarks(gone) == ["pkg.m deletes the name Gone at line 3."]


def test_what_a_computed_getattr_serves_is_said_to_be_unknown(package: Package) -> None:
    index = package(
        {
            "pkg/__init__.py": "import os\ndef __getattr__(name):\n    return make(os.environ['HOME'], name)\n",
            "pkg/a.py": "class A: pass\n",
        }
    )
    with pytest.raises(UnknownNameError, match=r"pkg has a __getattr__ \(pkg/__init__\.py:2\).*source does not tell"):
        index.one("pkg.Thing")


def test_bases_that_source_does_not_tell_are_named_and_said_to_be_missing(package: Package) -> None:
    index = package(
        {
            "m.py": "import elsewhere\nclass A(make_base(), elsewhere.Thing): pass\n"
            "def build(parent):\n    class B(parent): pass\n    return B\n"
        }
    )
    a, b = index.one("A"), index.one("B")
    assert index.mro(a) == ["m.A", "make_base()", "elsewhere.Thing", "object"]
    assert index.remarks(a) == [
        "Source does not tell what the base `make_base()` is; what it adds to the MRO is missing.",
        "Not in the Python source of a registered repository, so that its own bases are not known: elsewhere.Thing.",
    ]
    assert index.mro(b) == ["m.build.<locals>.B", "parent (a parameter of build)", "object"]
    assert "parent (a parameter of build)" in index.remarks(b)[0]


def test_a_second_definition_of_a_name_is_pointed_out(package: Package) -> None:
    index = package({"m.py": "class A: pass\nif flag():\n    class A:\n        x = 1\n"})
    symbol = index.one("A")
    assert symbol.line == 3
    assert index.remarks(symbol) == ["m.py defines A again at line 1; the one at line 3 counts here."]
    assert "the one at line 3 counts here" in index.remarks(index.one("m.py:1"))[0]


def test_a_decorator_that_returns_another_class_is_pointed_out(package: Package) -> None:
    source = (
        "def wrap(cls):\n    class Wrapper(cls): pass\n    return Wrapper\n"
        "def mark(cls):\n    cls.marked = True\n    return cls\n"
        "def wrap_as(name):\n    def decorate(cls):\n        class Wrapper(cls): pass\n        return Wrapper\n    return decorate\n"
        "@wrap\nclass A: pass\n@mark\nclass B: pass\n@wrap_as('x')\nclass C: pass\nclass D: pass\nD = mark(D)\n"
        "class E: pass\nE = wrap(E)\n"
    )
    index = package({"m.py": source})
    told = {name: index.remarks(index.one(f"m.py:{name}")) for name in "ABCDE"}
    assert told["A"] == ["The decorator @wrap returns another class than the one it is given: the name leads to that."]
    assert "@wrap_as('x') returns another class" in told["C"][0]
    assert told["B"] == told["D"] == []
    assert told["E"] == ["m binds E anew at line 21: wrap(E)."]


def test_a_generic_class_with_type_parameters_inherits_from_generic(package: Package) -> None:
    # the syntax is that of Python 3.12, whose MRO is written down here
    index = package({"m.py": "class A[T]: pass\nclass B[T](A[T]): pass\n"})
    assert index.mro(index.one("A")) == ["m.A", "typing.Generic", "object"]
    assert index.mro(index.one("B")) == ["m.B", "m.A", "typing.Generic", "object"]


def test_a_file_and_a_class_in_it_name_the_class(package: Package) -> None:
    index = package(
        {"pkg/__init__.py": "", "pkg/a.py": "class A:\n    class In: pass\n", "pkg/b.py": "from .a import A\n"}
    )
    assert index.one("pkg/a.py:A").qualified_name == index.one("pkg/a.py::A").qualified_name == "pkg.a.A"
    assert index.one("pkg/a.py:In").qualified_name == index.one("pkg/a.py:A.In").qualified_name == "pkg.a.A.In"
    assert index.one("pkg/b.py:A").file == "pkg/a.py"
    with pytest.raises(UnknownNameError, match=r"pkg/a\.py:Aa"):
        index.one("pkg/a.py:Aa")


def test_an_alias_is_found_by_its_short_name(package: Package) -> None:
    index = package(
        {
            "pkg/__init__.py": "",
            "pkg/a.py": "class Long: pass\nShort = Long\n",
            "pkg/b.py": "from .a import Short as Shorter\n",
        }
    )
    assert index.one("Short").qualified_name == index.one("Shorter").qualified_name == "pkg.a.Long"


def test_a_condition_follows_the_file_that_decides_it(package: Package, tmp_path: Path) -> None:
    index = package(
        {
            "pkg/__init__.py": "",
            "pkg/flags.py": "FAST = True\n",
            "pkg/m.py": "from .flags import FAST\nif FAST:\n    class A: pass\nelse:\n    class A: pass\n",
        }
    )
    assert index.one("pkg.m.A").line == 3
    (tmp_path / "pkg/flags.py").write_text("FAST = False\n")
    assert index.one("pkg.m.A").line == 5
