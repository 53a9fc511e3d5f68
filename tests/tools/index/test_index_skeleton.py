"""Sources without their function bodies say the same of definitions as the whole source."""

from __future__ import annotations

import pytest
from opscope_tools.source.python import file_rows as symbols
from opscope_tools.source.python.skeleton import skeleton

CASES = {
    "plain": "import a\n\n\ndef f(x: int = (1 + 2), *, y='):') -> None:\n    # why\n    z = x\n    return z\n\nB = f\n",
    "methods": 'class A(B):\n    """Text."""\n\n    x = 1\n\n    def f(self):\n        return 1\n    y = 2\nC = 3\n',
    "dedented string": 'def f():\n    s = """\nclass No: pass\n"""\n    return s\nclass Yes: pass\n',
    "dedented bracket": "def f():\n    return g(\n1, 2)\n\nclass Yes: pass\n",
    "inner class": "def f():\n    class Inner(Base):\n        def g(self):\n            pass\n    return Inner\n",
    "one line": "def f(): return 1\nclass A:\n    def g(self): pass\n    def h(self):\n        pass\n",
    "stub": "class A:\n    def forward(self):\n        raise NotImplementedError\n",
    "tabs": "class A:\n\tdef f(self):\n\t\treturn 1\n\tdef g(self): pass\n",
    "no line break at the end": "async def f(\n    a,  # why (not\n    b,\n):\n    return a",
    "windows": "class A:\r\n    def f(self):\r\n        return 1\r\n    def g(self):\r\n        return 2\r\n",
    "code in a docstring": 'class A:\n    """Like\n\n    def f():\n        x\n    """\n\n    def g(self):\n        return 1\n',
    "decorated": "class A:\n    @wraps(f)\n    def g(self):\n        a = 1\n        return a\n\n    @property\n    def h(self):\n        return 2\n",
    "continued": "def f():\n    x = \\\n1\n    return x\nclass Yes: pass\n",
    "prose that looks like a header": '"""\ndef foo(a, b) -> int\n"""\nclass A:\n    x = 1\n    def g(self):\n        return 1\n',
    "form feed": "class Q: pass\ndef f():\n    pass\n\x0cA = Q\n",
    "inner class of a foreign name": "def f():\n    class Größe:\n        pass\n    return Größe\n",
    "inner class over two lines": "def f():\n    class \\\n A:\n        pass\n    return A\n",
    "header over two lines": "def f(a) \\\n  -> int:\n    b = 1\n    return b\nclass Yes: pass\n",
    "type parameters": "def f[T: (int, str)](x: T) -> dict[str, T]:\n    return {'a': x}\nclass Yes: pass\n",
}


@pytest.mark.parametrize("source", CASES.values(), ids=CASES.keys())
def test_rows_without_bodies_are_those_of_the_whole_source(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = symbols.extract(source.encode())
    monkeypatch.setattr(symbols, "skeleton", lambda whole: whole)
    assert found == symbols.extract(source.encode())
    assert found.rows


def test_lines_keep_their_numbers_and_bodies_go() -> None:
    source = b"def f():\n    a = 1\n\n    return a  # done\n# after\n\nclass A:\n    def g(self):\n        return f()\n"
    assert skeleton(source) == b"def f():\n\n\n 0\n\n\nclass A:\n    def g(self):\n     0\n"
