"""In which turns of a loop a test on its counter is met: counted exactly, as a formula where the bounds are sizes; else said."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from opscope_schemas.tiling import Cost, KernelTiling
from opscope_tools.kernels.values.notation import evaluate

Described = Callable[..., tuple[KernelTiling, Cost]]
#: loops as C++ writes them, and the values of the counter
LOOPS: dict[str, Callable[[int], range]] = {
    "int k = 0; k < n; ++k": lambda n: range(n), "int k = 0; k < n; k += 4": lambda n: range(0, n, 4),
    "int k = 2; k <= n; k += 3": lambda n: range(2, n + 1, 3), "int k = n - 1; k >= 0; --k": lambda n: range(n - 1, -1, -1),
    "int k = n; k > 3; k -= 2": lambda n: range(n, 3, -2), "int k = 0; k < 100; k++": lambda _: range(100),
    "int k = 90; k > 0; k -= 7": lambda _: range(90, 0, -7), "int k = 0; k < 5; ++k": lambda _: range(5),
}  # fmt: skip
#: tests of the counter and of the size, which C++ and Python write alike
TESTS = [
    "k + 1 < n", "k + 4 < n", "k + 8 <= n", "k < 3", "k >= 2", "k * 2 < n", "k * 2 > 20", "k == 0", "k != 0", "k == 4", "k == n - 1",
    "n - k > 5", "7 < k", "n > k + 2", "k % 2 == 1", "k % 3 != 1", "k % 4 < 2", "k > 1 and k < 6", "k < 2 or k >= 4", "not k < 3",
]  # fmt: skip
#: what each test decides, and how often the counted lines before, in and behind it run
BODIES: dict[str, Callable[[list[bool]], tuple[int, int, int]]] = {
    "A if (TEST) { B } C": lambda met: (len(met), sum(met), len(met)),
    "A if (TEST) { B continue; } C": lambda met: (len(met), sum(met), len(met) - sum(met)),
    "A if (!(TEST)) { C } else B": lambda met: (len(met), sum(met), len(met) - sum(met)),
    "A v = TEST ? x[1] + v : 0.f; C": lambda met: (len(met), sum(met), len(met)),
    "A if (TEST) { B break; } C": lambda met: (*_until(met),),
}  # fmt: skip


def _until(met: list[bool]) -> tuple[int, int, int]:
    before = met.index(True) if True in met else len(met)
    return before + (True in met), int(True in met), before


def source(loop: str, test: str, body: str) -> str:
    parts = {"A": "y[0] = 1.f;", "B": "v += x[1];", "C": "v = v * 2.f;"}
    text = body.replace("TEST", test.replace("and", "&&").replace("or", "||").replace("not k < 3", "!(k < 3)"))
    for letter, line in parts.items():
        text = text.replace(letter, line)
    return f"__global__ void k(const float* x, float* y, int n) {{ float v = 0.f; for ({loop}) {{ {text} }} }}\nvoid go(int n) {{ k<<<2, 32>>>(0, 0, n); }}"


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_test_on_the_counter_is_counted_in_the_turns_that_meet_it(described: Described, loop: str, body: str) -> None:
    dice = random.Random(f"{loop} {body}")
    told = 0
    for test in TESTS:
        for n in [dice.randint(0, 2), dice.randint(3, 60)]:
            values = list(LOOPS[loop](n))
            _, cost = described(source(loop, test, body), sizes={"n": n})
            before, within, behind = BODIES[body]([bool(eval(test, {"k": k, "n": n})) for k in values])
            # B reads and adds once, C multiplies once, A stores once, in each of 32 threads
            expected = {"write_bytes": 128 * before, "read_bytes": 128 * within, "flops": 32 * (within + behind)}
            for name, number in expected.items():
                found = cost.evaluated.get(name)
                assert found == number or found is None or (name in cost.at_least and found < number), (test, n, name)
            assert None not in [cost.evaluated.get(name) for name in expected] or cost.not_counted, (test, n)
            told += not cost.not_counted
            assert not cost.conditions, (test, n)
    assert told >= len(TESTS) - 8 * ("break" in body)


@pytest.mark.parametrize("inner", ["k + 2 < n", "k < n - 9", "n > k"])
@pytest.mark.parametrize("outer", ["k >= 4", "k % 2 == 1", "k != 9", "k < 30"])
def test_a_test_within_some_turns_of_known_values_is_never_taken_for_one_of_all(
    described: Described, outer: str, inner: str
) -> None:
    for n in (5, 17, 40):
        values = [k for k in range(0, 50, 3) if eval(outer, {"k": k}) and eval(inner, {"k": k, "n": n})]
        _, cost = described(
            source("int k = 0; k < 50; k += 3", outer, f"if (TEST) {{ if ({inner}) {{ B }} }}"), sizes={"n": n}
        )
        found = cost.evaluated.get("read_bytes")
        assert found == 128 * len(values) or (cost.not_counted and (found is None or "read_bytes" in cost.at_least))


#: loops whose turns 64 threads of 3 blocks share, and the values of the counter in one of them
SHARED: dict[str, Callable[[int, int, int], range]] = {
    "int k = threadIdx.x; k < n; k += blockDim.x": lambda t, _, n: range(t, n, 64), "int k = threadIdx.x / 32; k < n; k += 2": lambda t, _, n: range(t // 32, n, 2),
    "int k = threadIdx.x * 4 + 8; k < n; k += blockDim.x * 4": lambda t, _, n: range(t * 4 + 8, n, 256), "int k = threadIdx.x; k < 99; k += 40": lambda t, *_: range(t, 99, 40),
    "int k = threadIdx.x; k < 150; k += 64": lambda t, *_: range(t, 150, 64), "int k = threadIdx.x; k < 150 && k < n; k += 64": lambda t, _, n: range(t, min(150, n), 64),
    "int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += blockDim.x * gridDim.x": lambda t, b, n: range(b * 64 + t, n, 192),
    "int k = blockIdx.x; k < n; k += gridDim.x": lambda _, b, n: range(b, n, 3),
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("loop", SHARED)
def test_turns_that_threads_share_are_counted_over_all_of_them(described: Described, loop: str, body: str) -> None:
    dice, told = random.Random(f"{loop} {body}"), 0
    tests = [
        "k + 64 < n",
        "k + blockDim.x < n",
        "k + 1 < n",
        "k < 3",
        "k >= 70",
        "k % 4 == 1",
        "k == 5",
        "k > 2 and k < n - 9",
        "k / 2 < 9",
    ]
    for test in tests:
        n = dice.choice([0, 3, dice.randint(4, 64), dice.randint(65, 500)])
        written = source(loop, test, body).replace("<<<2, 32>>>", "<<<3, 64>>>")
        _, cost = described(written, sizes={"n": n, "gridDim.x": 3})
        each = [
            BODIES[body]([bool(eval(test.replace("/", "//").replace("blockDim.x", "64"), {"k": k, "n": n})) for k in SHARED[loop](t, b, n)])
            for t in range(64) for b in range(3)
        ]  # fmt: skip
        before, within, behind = (sum(counts) for counts in zip(*each, strict=True))
        expected = {"write_bytes": 4 * before, "read_bytes": 4 * within, "flops": within + behind}
        for name, number in expected.items():
            found = cost.evaluated.get(name)
            whole = found is not None and abs(3 * found - number) < 1e-6
            assert whole or found is None or (name in cost.at_least and 3 * found < number), (test, n, name)
        assert None not in [cost.evaluated.get(name) for name in expected] or cost.not_counted, (test, n)
        told += not cost.not_counted
        assert not cost.conditions, (test, n)
    assert told >= (0 if "40" in loop else 1) if "break" in body else told >= (5 if "40" in loop else 8)


@pytest.mark.parametrize(
    ("head", "turns"),
    [("int k = 0; k < n && k < 10", lambda n: min(n, 10)), ("int k = 0; k < 40 && k * k < n", lambda n: min(40, math.ceil(math.sqrt(n)))),
     ("int k = 0; 7 > k && k + 2 < n", lambda n: max(min(7, n - 2), 0)), ("int k = 2; k <= n && k != 5", lambda n: max(min(5, n + 1) - 2, 0))],
)  # fmt: skip
def test_a_loop_of_two_bounds_runs_up_to_the_first(
    described: Described, head: str, turns: Callable[[int], int]
) -> None:
    for n in (0, 1, 2, 4, 9, 30):
        _, cost = described(source(f"{head}; ++k", "k > 3", "A if (TEST) { B break; } C"), sizes={"n": n})
        first = int(head[8])
        found = [cost.evaluated.get(name) for name in ("write_bytes", "read_bytes")]
        expected = [128 * min(turns(n), 5 - first), 128 * (first + turns(n) > 4)]
        assert found == expected or cost.conditions
        assert not cost.conditions or "k * k" in head


@pytest.mark.parametrize(
    "loop", ["int i = 0; i < BOUND; ++i", "int i = 0; i < BOUND; i += 3", "int i = threadIdx.x; i < BOUND; i += 32"]
)
@pytest.mark.parametrize("bound", ["n - 5", "(n - 5) / 2", "n - m", "min(n, m - 7)", "n - m * 2 + 1", "n * m", "n / 2"])
def test_a_loop_never_runs_less_than_not_at_all(described: Described, loop: str, bound: str) -> None:
    text = f"for ({loop.replace('BOUND', bound)}) y[i] = 1.f;"
    for n in (0, 2, 6, 41):
        most = int(eval(bound.replace("/ 2", "/ 2.0"), {"n": n, "m": 5, "min": min}))  # C cuts towards zero
        turns = 32 * len(range(0, most, 3 if "3" in loop[-2:] else 1)) if "thread" not in loop else max(most, 0)
        source = f"__global__ void k(float* y, int n, int m) {{ {text} }}\nvoid go(int n, int m) {{ k<<<2, 32>>>(0, n, m); }}"
        assert described(source, sizes={"n": n, "m": 5})[1].evaluated["write_bytes"] == 4 * turns


def cut(a: int, b: int) -> int:
    """A quotient as C cuts it."""
    return abs(a) // b * (1 if a >= 0 else -1)


def around(number: int) -> int:
    return number % (1 << 32)


def of(text: str, **values: int) -> Any:
    """What an expression of these tables comes to."""
    return eval(text, {"around": around, "cut": cut, **values})


def _agrees(described: Described, text: str, reads: int, flops: int, **sizes: int) -> bool:
    """Whether what is told of a body is what trying it gives, and whether all is told."""
    source = f"__global__ void k(const float* x, float* y, int n, int m) {{ float v = 0.f; {text} }}\nvoid go(int n, int m) {{ k<<<2, 32>>>(0, 0, n, m); }}"
    _, cost = described(source, sizes=sizes)
    for name, number in {"read_bytes": reads, "flops": flops}.items():
        found = cost.evaluated.get(name)
        assert found == number or (cost.not_counted and (found is None or name in cost.at_least)), (text, sizes, name)
        assert found is None or found <= number, (text, sizes, name)
    assert not cost.conditions, text
    return not cost.not_counted


FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
FLOATS = {
    "2.5f": "2.5", "1e1f": "10", "-0.5f": "-0.5", "2.0": "2", "2.99999999999f": "3", "2.99999999999": "2.99999999999", "m * 0.5f": "m / 2",
    "h": "n / 2",
}  # fmt: skip


@pytest.mark.parametrize("bound", FLOATS)
@pytest.mark.parametrize(
    "loop", ["int i = 0; i < n; ++i", "int i = threadIdx.x; i < n; i += 32", "int i = 0; i < 40; ++i"]
)
def test_a_counter_beside_a_floating_point_number_is_counted_as_it_compares_or_not_at_all(
    described: Described, loop: str, bound: str
) -> None:
    for operator in ("<", "<=", ">", ">=", "==", "!="):
        for n, m in ((0, 3), (2, 9), (53, 11)):
            met = [
                bool(eval(f"i {operator} b", {"i": i, "b": of(FLOATS[bound], n=n, m=m)}))
                for i in range(40 if "40" in loop else n)
            ]
            times = 1 if "threadIdx" in loop else 32
            plain = bound not in {"m * 0.5f", "h"}
            for test in (f"i {operator} {bound}", f"{bound} {FLIPPED[operator]} i"):
                text = f"for ({loop}) if ({test}) v += x[1]; else v = v * 2.f;"
                text = text if bound != "h" else "const double h = n > 0 ? 0.5 * n : 0.; " + text
                if plain:
                    assert _agrees(described, text, 4 * times * sum(met), times * len(met), n=n, m=m)
                    continue
                _, cost = described(
                    f"__global__ void k(const float* x, float* y, int n, int m) {{ float v = 0.f; {text} }}\nvoid go(int n, int m) {{ k<<<2, 32>>>(0, 0, n, m); }}",
                    sizes={"n": n, "m": m},
                )
                assert any(f"`{test}`" in one for one in cost.not_counted), text


@pytest.mark.parametrize("test", ["j == 0", "j >= 3", "j % 2 == 1", "j < m"])
@pytest.mark.parametrize("kind", ["lambda", "function"])
def test_what_leaves_a_lambda_leaves_no_loop_around_its_call(described: Described, kind: str, test: str) -> None:
    for n in (0, 6, 53):
        met = [bool(eval(test, {"j": j, "m": 4})) for j in range(n)]
        body = f"{{ if ({test}) return; v += x[1]; v = v + 3.f; }}"
        made = f"auto g = [&](int j) {body};" if kind == "lambda" else ""
        call = "g(j);" if kind == "lambda" else "g(j, m, v, x);"
        text = f"{made} for (int j = 0; j < n; ++j) {{ {call} v = v * 2.f; }}"
        head = "" if kind == "lambda" else f"__device__ void g(int j, int m, float& v, const float* x) {body}\n"
        source = f"{head}__global__ void k(const float* x, float* y, int n, int m) {{ float v = 0.f; {text} }}\nvoid go(int n, int m) {{ k<<<2, 32>>>(0, 0, n, m); }}"
        _, cost = described(source, sizes={"n": n, "m": 4})
        expected = {"read_bytes": 128 * met.count(False), "flops": 32 * (2 * met.count(False) + n)}
        for name, number in expected.items():
            found = cost.evaluated.get(name)
            assert found == number or (
                cost.not_counted and (found is None or (name in cost.at_least and found <= number))
            )


UNSIGNED = {
    "(unsigned)(i - m) < 4u": "around(i - m) < 4", "(unsigned)(i - 3) < (unsigned)m": "around(i - 3) < m", "i - 4u < 3u": "around(i - 4) < 3",
    "i - 4u >= 3u": "around(i - 4) >= 3", "(unsigned)(i - 1) > (unsigned)m": "around(i - 1) > m", "(unsigned)i < 3u": "around(i) < 3",
    "i < 3u": "around(i) < 3", "3u > i": "around(i) < 3", "(unsigned)(i - 5) <= (unsigned)(i - 8)": "around(i - 5) <= around(i - 8)",
    "(unsigned)(m - i) < 4u": "around(m - i) < 4", "(size_t)(unsigned)(i - 2) < (size_t)m": "around(i - 2) < m",
    "(int)(unsigned)(i - 2) < m": "i - 2 < m", "(i - 2u) / 2 < 5": "around(i - 2) // 2 < 5", "(i - 2u) % 3 == 1": "around(i - 2) % 3 == 1",
    "(i - 2u) >> 1 < 5": "around(i - 2) >> 1 < 5", "(i - 2) / 2 < 1": "cut(i - 2, 2) < 1", "(i - 2) >> 1 < 0": "i - 2 >> 1 < 0",
    "(unsigned)(i - 2) == 0xFFFFFFFF": "i == 1", "i - 2u != 4294967294u": "i != 0", "min(i - 2u, 9u) < 5u": "around(i - 2) < 5",
    "(unsigned)~i < 4u": "around(~i) < 4", "-1 - 1u < (unsigned)i": "around(i) > 4294967294", "((i - 2) & 3) == 3": "i - 2 & 3 == 3", "(i - 5) % 4 == -1": "i - 5 - 4 * cut(i - 5, 4) == -1",
}  # fmt: skip
VALUES = {
    "int i = 0; i < n; ++i": "range(n)", "int i = n; i > 0; --i": "range(n, 0, -1)", "int i = -4; i < n; ++i": "range(-4, n)",
    "int i = n - 5; i < 60; i += 2": "range(n - 5, 60, 2)", "int i = 0; i < 12; ++i": "range(12)", "int i = -3; i < 50; ++i": "range(-3, 50)",
    "int i = m; i > -6; i -= 3": "range(m, -6, -3)",
}  # fmt: skip


@pytest.mark.parametrize("test", UNSIGNED)
@pytest.mark.parametrize("loop", VALUES)
def test_what_is_unsigned_wraps_around_below_none(described: Described, loop: str, test: str) -> None:
    for n, m in ((0, 3), (7, 4), (53, 16)):
        values = of(VALUES[loop], n=n, m=m)
        reads = 128 * sum(of(UNSIGNED[test], i=i, n=n, m=m) for i in values)
        text = f"for ({loop}) {{ if ({test}) v += x[1]; else v = v * 2.f; }}"
        told = _agrees(described, text, reads, 32 * len(values), n=n, m=m)
        assert told or any(word in test for word in ("size_t", "/", "%", ">>", "&", "i - 8", "min", "~"))


@pytest.mark.parametrize("test", UNSIGNED)
def test_threads_whose_unsigned_index_wraps_are_told_apart(described: Described, test: str) -> None:
    met = sum(of(UNSIGNED[test], i=i, m=6) for i in range(32))
    text = f"int i = threadIdx.x; if ({test.replace('m', '6')}) v += x[1]; else v = v * 2.f;"
    told = _agrees(described, text, 4 * met, 32, n=5, m=6)
    assert told or any(word in test for word in ("2u) /", "%", ">>", "&", "min", "~", "=="))


QUOTIENTS = {
    "(n - 5) / 2 + 3": "cut(n - 5, 2) + 3", "(n - 1) / 8 + 1": "cut(n - 1, 8) + 1", "(n - 7) % 4 + 4": "n - 7 - 4 * cut(n - 7, 4) + 4",
    "(n - m) / m + 2": "cut(n - m, m) + 2", "(n - 5 + 8) / 2 + 3": "(n + 3) // 2 + 3", "(n - 5) / 2": "cut(n - 5, 2)",
    "(n - m) / -2 + 4": "4 - cut(n - m, 2)", "((n - 5) >> 1) + 3": "(n - 5 >> 1) + 3", "((n - 5) & 3) + 3": "(n - 5 & 3) + 3",
    "n / 2 - (n - 9) / 4": "n // 2 - cut(n - 9, 4)",
}  # fmt: skip


@pytest.mark.parametrize("bound", QUOTIENTS)
@pytest.mark.parametrize("start", [0, -4, 2])
def test_a_quotient_of_what_is_below_none_is_cut_as_c_does(described: Described, start: int, bound: str) -> None:
    for n, m in ((0, 1), (2, 5), (4, 9), (12, 5), (53, 16)):
        turns = len(range(start, of(QUOTIENTS[bound], n=n, m=m)))
        text = f"for (int i = {start}; i < {bound}; ++i) v += x[1];"
        assert _agrees(described, text, 128 * turns, 32 * turns, n=n, m=m)


def test_a_bound_that_wraps_is_taken_not_to(described: Described) -> None:
    source = "__global__ void k(float* y, unsigned n) {{ for ({} i = 0; i < n - 3; ++i) y[i] = 1.f; }}\nvoid go(int n) {{ k<<<2, 32>>>(0, n); }}"
    for kind in ("int", "unsigned"):
        _, cost = described(source.format(kind), sizes={"n": 7})
        assert cost.evaluated["write_bytes"] == 512
        assert [one.partition(" (")[0] for one in cost.conditions] == ["n - 3 >= 0"]
    _, cost = described(source.format("int").replace("unsigned n", "int n"), sizes={"n": 1})
    assert (cost.evaluated["write_bytes"], cost.conditions) == (0, ())


#: kernels whose numbers rest on what their text does not say at first sight, and the same in Python: `S` stores
TAKEN = {
    "if (n == 0 && 0 <= 0) S": "if n == 0: S()", "if (n == 0 && m > 3) return; if (n == 0) S": "if n == 0 and m <= 3: S()",
    "if (n == 0 || m > 3) { if (n == 0) S }": "if n == 0: S()", "if (t * t % 3 == n) { if (n == 0) v = v * 2.f; else S }": "if t * t % 3 == n != 0: S()",
    "if (t * t % 3 == n) { v = v * 2.f; if (n == 1) return; } S": "if t * t % 3 != n or n != 1: S()", "if (max(n, m)) S": "if max(n, m): S()",
    "v = t * t % 3 == n ? (n == 1 ? x[1] : 2.f) : x[2]; S": "S()", "for (int i = 0; i < n; ++i) { if (t) return; } S": "if not (n and t): S()",
    "for (int i = 0; i < n; ++i) { if (t > 2) return; S } S": "if t <= 2 or n == 0: [S() for _ in range(n + 1)]",
    "int i = 0; do { if (t) return; ++i; } while (i < n); S": "if not t: S()", "if (n > t / -2) S": "if n > -(t // 2): S()",
    "for (int i = 0; i != 3; i += 2) { if (i > 7) { S break; } }": "S()", "for (int i = n; i != m; ++i) { if (i > 40) { S break; } }": "if n > m: S()",
    "for (int i = 0; i != -1; i += 2) { S break; }": "S()", "for (unsigned i = -1; i < 5; ++i) S": "0", "for (int i = -1; i < 5u; ++i) S": "0",
    "for (int i = -n; i <= 2u; ++i) S": "if n == 0: [S() for _ in range(3)]", "for (unsigned i = -3; i >= -5; --i) S": "[S() for _ in range(3)]",
    "for (int i = 0; i < 5u && i > -5; ++i) S": "[S() for _ in range(5)]",
    "for (int i = 0; i <= 8; i += 4) { if (i == 8) break; if ((m - i) || 8) { S break; } }": "S()", "if (-1 >= threadIdx.y) S": "S()",
    "for (int i = 0; i < 9; ++i) { if (i >= n) return; } S": "if n > 8: S()", "for (int i = 0; i < 9; i += 3) { if (i >= 3) return; } S": "0",
    "if (t * -3 < n) S": "if t * -3 < n: S()", "unsigned i = 0; do { S i -= 2; } while (i > -3);": "[S() for _ in range(2)]",
}  # fmt: skip


@pytest.mark.parametrize("text", TAKEN)
def test_what_is_told_holds_wherever_its_conditions_do(described: Described, text: str) -> None:
    body, told = f"float v = 0.f; int t = threadIdx.x; {text.replace('S', 'y[0] = 1.f;')}", 0
    _, cost = described(
        f"__global__ void k(const float* x, float* y, int n, int m) {{ {body} }}\nvoid go(int n, int m) {{ k<<<2, 8>>>(0, 0, n, m); }}"
    )
    conditions = [one.rpartition(" (")[0].replace("&&", "and").replace("||", "or") for one in cost.conditions]
    for n, m in ((0, 0), (0, 5), (1, 3), (2, 7), (7, 2), (12, 60)):
        if not all(of(one, n=n, m=m, t=t) for one in conditions for t in range(8)):
            continue
        met = list[int]()
        for t in range(8):
            exec(TAKEN[text], {"n": n, "m": m, "t": t, "S": partial(met.append, t)})
        found, number = evaluate(cost.write_bytes, {"n": n, "m": m}), 4 * len(met)
        lacks = found is not None and found <= number and "write_bytes" in cost.at_least
        assert found == number or lacks or (found is None and (cost.not_counted or cost.variables)), (n, m, conditions)
        told += 1
    assert told


def test_a_cost_behind_the_first_of_two_tests_is_told_with_what_takes_it_there(described: Described) -> None:
    text = "if (n == 0 && x[1] > 0.f) v = v * 2.f; if (x[2] > v) { v = x[3]; return; } y[0] = 1.f;"
    source = f"__global__ void k(const float* x, float* y, int n) {{ float v = 0.f; {text} }}\nvoid go(int n) {{ k<<<2, 8>>>(0, 0, n); }}"
    conditions = [one.partition(" (line")[0] for one in described(source)[1].conditions]
    assert conditions == ["n == 0", "x[2] <= v"]
