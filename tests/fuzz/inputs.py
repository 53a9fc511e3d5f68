"""What is fed to the readers: sources put together from plausible parts, and real files with their tokens shuffled.

Every strategy gives text, so that a case that was found can be kept as a file.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
_TOKEN = re.compile(r"\w+|\n[ \t]*|[ \t]+|.", re.DOTALL)
#: of one real file
_LONGEST = 5_000
NAMES = ("A", "B", "C0", "Net", "MyConfig", "forward", "x", "self", "config", "nn", "p", "_", "__all__", "T", "π")
_VALUES = (
    "1", "None", "x", "self.a", "nn.Linear(1, 2)", "[A() for _ in range(3)]", "{'a': B, **x}", "type('A', (B,), {})", "A if x else B",
    "lambda y: A(y)", "f'{x}{x!r:>{1}}'", "*x", "(yield)", "config.hidden_size // 2", "ACT2FN[config.act]", "x @ y", "9**9**9", "'a' * 10**9",
    "getattr(self, 'a')(x)", "super().forward(x)", "[[[[]]]]", "not x", "...", "x[1:2, None]", "await x", "x := 1", "\"\"\"s\"\"\"", "0x", "1_0",
)  # fmt: skip


@cache
def _files(kind: str) -> tuple[str, ...]:
    """Real files, a part of each."""
    folders = {
        "python": ["tests/corpus/settings/*.py", "tests/corpus/survey/**/*.py", "tests/corpus/references/**/*.py", ".venv/sources/none"],
        "cuda": ["tests/corpus/**/*.cu", "tests/corpus/**/*.cuh", "tests/corpus/cpp/*"],
        "triton": ["tests/corpus/triton_costs/*.py", "tests/corpus/kernels_own/*.py", "tests/corpus/kernels/**/*.py"],
        "report": ["reports/**/*.md"],
    }[kind]  # fmt: skip
    found = sorted(file for pattern in folders for file in ROOT.glob(pattern) if file.is_file())
    if kind == "python":
        import transformers  # only where it lies

        models = Path(transformers.__file__).parent / "models"
        found += (
            sorted(models.glob("[a-g]*/modeling_*.py"))[:30] + sorted(models.glob("[a-g]*/configuration_*.py"))[:30]
        )
    return tuple(file.read_text(encoding="utf-8", errors="replace") for file in found)


def _part(text: str, start: float) -> str:
    at = text.rfind("\n", 0, int(start * max(len(text) - _LONGEST, 1))) + 1
    return text[at : at + _LONGEST]


def _mutated(text: str, changes: Sequence[tuple[str, float, float, str]]) -> str:
    tokens = _TOKEN.findall(text)
    for change, one, other, new in changes:
        if not tokens:
            break
        at, to = int(one * (len(tokens) - 1)), int(other * (len(tokens) - 1))
        if change == "delete":
            del tokens[at : at + 1 + to % 7]
        elif change == "double":
            tokens[at:at] = tokens[at : at + 1 + to % 40]
        elif change == "swap":
            tokens[at], tokens[to] = tokens[to], tokens[at]
        elif change == "many":
            tokens[at:at] = [new] * (1 + to % 120)
        else:
            tokens.insert(at, new)
    return "".join(tokens)


def mutated(kind: str, inserted: Sequence[str]) -> st.SearchStrategy[str]:
    """A part of a real file with some tokens deleted, doubled, swapped and put in."""
    share = st.floats(0, 1, allow_nan=False)
    change = st.tuples(
        st.sampled_from(["delete", "double", "swap", "many", "insert"]), share, share, st.sampled_from(inserted)
    )
    part = st.builds(_part, st.sampled_from(_files(kind)), share)
    return st.builds(_mutated, part, st.lists(change, max_size=12))


# ---- Python ----------------------------------------------------------------------------------------------------------

_name = st.sampled_from(NAMES)
_value = st.recursive(
    st.sampled_from(_VALUES),
    lambda inner: st.one_of(
        st.builds("{}({}, {})".format, inner, inner, inner), st.builds("({})".format, inner), st.builds("{}.{}".format, inner, _name),
        st.builds("{} + {}".format, inner, inner), st.builds("[{}, {}]".format, inner, inner), st.builds("{}[{}]".format, inner, inner),
    ),
    max_leaves=6,
)  # fmt: skip


def _indented(lines: Sequence[str]) -> str:
    return "".join(f"    {line}\n" for text in lines for line in text.splitlines()) or "    pass\n"


def _block(head: str) -> object:
    return lambda body: f"{head}\n{_indented(body)}"


_line = st.one_of(
    st.builds("{} = {}".format, _name, _value), st.builds("self.{} = {}".format, _name, _value), st.builds("{}: {} = {}".format, _name, _value, _value),
    st.builds("from {} import {}".format, st.sampled_from(["p.a", ".a", ".", "..", "p", "torch", "p.b"]), st.sampled_from([*NAMES, "*"])),
    st.builds("import {} as {}".format, st.sampled_from(["p.a", "torch.nn", "p"]), _name), st.builds("return {}".format, _value),
    st.builds("{}({})".format, _value, _value), st.builds("del {}".format, _name), st.builds("assert {}, {}".format, _value, _value),
    st.builds("raise ValueError({})".format, _value), st.builds("{} += {}".format, _name, _value), st.builds("# {}".format, _value),
    st.builds("{}.register({!r}, {})".format, _name, _name, _value), st.just("super().__init__(config, **kwargs)"),
)  # fmt: skip


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, min_size=1, max_size=4)
    head = st.one_of(
        st.builds("class {}({}, {}):".format, _name, _value, _value), st.builds("class {}({}):".format, _name, _name), st.builds("class {}:".format, _name),
        st.builds("def {}(self, {}, *args, {}={}, **kwargs):".format, st.sampled_from(["forward", "__init__", "__getattr__", "f"]), _name, _name, _value),
        st.builds("@{}\ndef {}({}):".format, _value, _name, _name), st.builds("@{}\nclass {}:".format, st.sampled_from(["dataclass", "attrs.define", "x"]), _name),
        st.builds("if {}:".format, _value), st.builds("for {} in {}:".format, _name, _value), st.builds("with {} as {}:".format, _value, _name),
        st.builds("while {}:".format, _value), st.just("try:"), st.just("else:"), st.builds("except {}:".format, _name), st.builds("elif {}:".format, _value),
        st.builds("match {}:".format, _value), st.builds("case {}:".format, _value), st.builds("async def {}():".format, _name),
    )  # fmt: skip
    return st.builds(lambda h, b: f"{h}\n{_indented(b)}", head, body)


_statement = st.recursive(_line, _nested, max_leaves=12)
_INSERTED = (
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ":",
    ",",
    "\\\n",
    '"""',
    "'",
    "\n",
    "\t",
    "    ",
    "class ",
    "def ",
    "lambda: ",
    "*",
    "@",
    "é",
    "\0",
    "#",
    "if ",
    " else ",
    "0",
)
python_source = st.one_of(
    st.lists(_statement, max_size=10).map(lambda parts: "import torch.nn as nn\n" + "\n".join(parts) + "\n"),
    mutated("python", _INSERTED),
)
triton_source = mutated(
    "triton",
    (*_INSERTED, "tl.load(", "tl.constexpr", "@triton.jit\n", "tl.dot(a, b)", "range(", "tl.program_id(0)", "**", "//"),
)
cuda_source = mutated("cuda", (
    "(", ")", "{", "}", "<", ">", "<<<", ">>>", ";", "\n#if A\n", "\n#else\n", "\n#endif\n", "\n#define A B\n", "\n#define B(x) A x\n", "\n#include \"k.cu\"\n",
    "/*", "*/", "//", '"', "'", "\\\n", "__global__ ", "template<", "typename T", "::", "#", "R\"(", "__shared__ float s[", "threadIdx.x", "struct A {", "?", ":",
    "\0", "for (;;) ", "operator", "= ", "[&]", "asm volatile(\"",
))  # fmt: skip
report = mutated("report", (
    "<!--", "-->", "[", "](", ")", "`", "```\n", "|", "\n|", "\n# ", "\n## ", "{{fact:x}}", "${{A}}(", "<a", "![", "\n- ", "\n> ", "a.py:1", "toyland/modeling_toy.py:3",
    "searched `a` in `toyland`", "\n```mermaid\nflowchart TB\n", "\n```python\n", "TODO", "┌", "┐", "\0", "é", "1,2", "<!-- fact:x -->", "\\",
))  # fmt: skip

# ---- formulas, configurations, names ----------------------------------------------------------------------------------

formula = st.one_of(
    st.recursive(
        st.sampled_from(["{a}", "{b}", "{seq_len}", "1", "0", "2", "64", "10**9", "-3", "{a", "a", "{min}", "{lambda}"]),
        lambda inner: st.one_of(
            *(st.builds(f"{{}} {sign} {{}}".format, inner, inner) for sign in ("+", "-", "*", "/", "//", "%", "**", "==", "<", "and", "or")),
            st.builds("({})".format, inner), st.builds("ceil({} / {})".format, inner, inner), st.builds("min({}, {})".format, inner, inner),
            st.builds("floor({})".format, inner), st.builds("max({})".format, inner), st.builds("not {}".format, inner), st.builds("-{}".format, inner),
        ),
        max_leaves=25,
    ),
    st.text(alphabet="{}()ab1290+-*/% ,.<>=!minaxceilfloor_\n", max_size=60),
)  # fmt: skip
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8), st.just("x" * 3000)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(["hidden_size", "x", "model_type", "", "rope_scaling", "é"]), inner, max_size=4)),
    max_leaves=10,
)  # fmt: skip


def _deep(opening: str, closing: str, times: int) -> str:
    return opening * times + "1" + closing * times


config_json = st.one_of(
    st.dictionaries(st.sampled_from(["hidden_size", "num_layers", "rope", "model_type", "layers", "x"]), _json, max_size=6).map(repr),
    _json.map(lambda value: __import__("json").dumps(value)), st.builds(_deep, st.just('{"x":'), st.just("}"), st.integers(1, 3000)),
    st.text(alphabet='{}[]",:x1 \n\\u', max_size=80),
)  # fmt: skip
name = st.one_of(
    st.text(max_size=60), st.text(alphabet=string.ascii_letters + "./:\\~*<>-_0123456789 \n\0", max_size=200),
    st.builds("{}{}{}".format, st.sampled_from(["p/a.py", "p.a", "../mine/p/a.py", "/etc/passwd", "~", "llama", "x::y", "k.cu", "p"]),
              st.sampled_from([":", ".", "/", "::", "#", "/../"]), st.sampled_from(["1", "A", "99999999999999999999", "A.forward", "-1", "", "é", "x" * 300])),
)  # fmt: skip
