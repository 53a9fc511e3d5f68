"""Which threads go on: where the block has one size each thread is counted that does, and no other; else it is said."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from opscope_schemas.tiling import Cost, KernelTiling

Described = Callable[..., tuple[KernelTiling, Cost]]
#: tests of a thread's index `t`, which C++ and Python write alike
TESTS = [
    "t % {a} == 0",
    "t >= {b}",
    "t < {b}",
    "(t & 3) == 1",
    "t == {b}",
    "t != {b}",
    "t // {a} == 1",
    "t * {a} < {b}",
    "t % {a} < 2",
]


LEAVE = "__device__ bool leave(int t) { if (t >= 90) return true; return false; }\n"


def cpp(test: str) -> str:
    return test.replace("//", "/")


@pytest.mark.parametrize("seed", range(12))
def test_threads_that_leave_early_do_nothing_of_what_follows(described: Described, seed: int) -> None:
    dice = random.Random(seed)
    first, second, third = (t.format(a=dice.randint(2, 7), b=dice.randint(1, 99)) for t in dice.sample(TESTS, 3))
    inner = dice.randint(1, 9)
    text = f"""if ({cpp(first)}) return;
  y[t] = x[t] * 2.f;
  if ({cpp(second)}) {{ if (t % {inner} == 0) return; y[t] = x[t] + 1.f; }}
  for (int i = 0; i < 3; ++i) {{ if ({cpp(third)}) continue; y[t] = x[t] * 3.f; }}
  y[t] = 1.f;"""
    size = dice.choice([32, 96, 100, 128])
    source = f"__global__ void k(const float* x, float* y) {{ int t = threadIdx.x; {text} }}\nvoid go() {{ k<<<3, {size}>>>(0, 0); }}"
    flops = stores = 0
    for t in range(size):
        if eval(first, {"t": t}):
            continue
        flops, stores = flops + 1, stores + 1
        if eval(second, {"t": t}):
            if t % inner == 0:
                continue
            flops, stores = flops + 1, stores + 1
        more = 0 if eval(third, {"t": t}) else 3
        flops, stores = flops + more, stores + more + 1
    _, cost = described(source)
    assert (cost.flops, cost.read_bytes, cost.write_bytes) == (str(flops), str(4 * flops), str(4 * stores))
    assert (cost.not_counted, cost.at_least, cost.conditions) == ((), (), ())


@pytest.mark.parametrize(
    "leaves",
    ["if (t * t % 3 == 0) return;", "if (t > 9) { if (t % 3 == 0) return; }", "for (int i = 0; i < n; ++i) { if (t % 3 == i) return; }",
     "if (t % n == 2) { y[t] = 1.f; return; }", "if (leave(t)) return;", "switch (t / 32) { case 0: v = 2.f; break; default: return; }",
     "switch (t / 32) { case 0: v = 2.f; break; case 1: if (t < 40) return; }", "switch (t) { case 0: case 4: return; case 5: v = 2.f; }"],
)  # fmt: skip
def test_where_it_is_not_told_which_threads_leave_what_follows_is_not_counted(
    described: Described, leaves: str
) -> None:
    source = f"{LEAVE}__global__ void k(const float* x, float* y, int n) {{ int t = threadIdx.x; float v = x[t] * 2.f;\n{leaves}\ny[t] = v + x[t]; }}"
    _, cost = described(source)
    assert (cost.flops, cost.read_bytes, cost.write_bytes) == ("{blockDim.x}", "4 * {blockDim.x}", "")
    assert {"flops", "read_bytes"} <= set(cost.at_least)
    assert any("decides" in text or "leave early" in text for text in cost.not_counted)


def test_a_loop_that_some_threads_leave_early_is_not_counted(described: Described) -> None:
    text = "for (int i = 0; i < n; ++i) { y[i] = x[i]; if (t >= 16) break; y[i] = x[i] * 2.f; }\ny[t] = 1.f;"
    _, cost = described(
        f"__global__ void k(const float* x, float* y, int n) {{ int t = threadIdx.x; {text} }}\nvoid go() {{ k<<<1, 64>>>(0, 0, 5); }}"
    )
    assert (cost.flops, cost.read_bytes, len(cost.not_counted)) == ("", "", 1)
    assert not cost.conditions


@pytest.mark.parametrize("turns", ["7", "100", "n"])
@pytest.mark.parametrize(
    "leaves", ["if (t < 4) continue; break;", "if (t < 4) break; else continue;", "if (t < 4) continue; return;"]
)
def test_threads_that_leave_a_turn_in_different_ways_are_not_mixed_up(
    described: Described, turns: str, leaves: str
) -> None:
    text = f"for (int i = 0; i < {turns}; ++i) {{ if (i >= 3) {{ y[t] = 1.f; {leaves} }} v += x[t]; }}"
    source = f"__global__ void k(const float* x, float* y, int n) {{ int t = threadIdx.x; float v = 0.f; {text} }}"
    _, cost = described(f"{source}\nvoid go() {{ k<<<1, 64>>>(0, 0, 5); }}", sizes={"n": 7})
    stays = 60 if "break; else" in leaves else 4
    stores = 64 + stays * (int(turns.replace("n", "7")) - 4)
    assert cost.evaluated.get("write_bytes") in ([None] if cost.not_counted else [4 * stores]) or (
        "write_bytes" in cost.at_least and cost.evaluated["write_bytes"] < 4 * stores
    )


def test_blocks_of_which_some_leave_early_give_no_cost_of_a_launch(described: Described) -> None:
    text = "if (blockIdx.x == 0) return; y[threadIdx.x] = 1.f;"
    _, cost = described(f"__global__ void k(float* y) {{ {text} }}\nvoid go() {{ k<<<4, 64>>>(0); }}")
    assert (cost.write_bytes, cost.launch_write_bytes) == ("256", "")


@pytest.mark.parametrize(
    "body",
    ["int lim = min(n - blockIdx.x * 64, 64); if (t < lim) y[t] = x[t] * 2.f;", "if (t <= blockIdx.x) y[t] = x[t] * 2.f;",
     "int m = blockIdx.x * 2; for (int i = t; i < m; i += 64) y[i] = x[i] * 2.f;",
     "int m = blockIdx.y + 1; for (int i = 0; i < m; i++) y[t] = x[t] * 2.f;",
     "for (int i = 0; i < n; i++) if (i < blockIdx.x) y[t] = x[t] * 2.f;"],
)  # fmt: skip
def test_what_differs_from_block_to_block_has_no_total_of_a_launch(described: Described, body: str) -> None:
    source = f"__global__ void k(const float* x, float* y, int n) {{ int t = threadIdx.x; {body} }}"
    _, cost = described(f"{source}\nvoid go(int n) {{ k<<<(n + 63) / 64, 64>>>(0, 0, n); }}", sizes={"n": 200})
    assert (cost.launch_flops, cost.launch_read_bytes, cost.launch_write_bytes) == ("", "", "")
    reasons = [text for text in cost.assumptions if text.startswith("No cost of a launch")]
    assert cost.not_counted or reasons == [text for text in reasons if "do not all do the same" in text] != []


@pytest.mark.parametrize(
    ("body", "condition"),
    [("for (int i = t; i < 300; i += 64) { if (i >= 256) break; v += x[i]; }", ""), ("for (int i = 0; i < n; i++) { if (t == i) break; v += x[i]; }", ""),
     ("for (int i = 0; i < n; i++) { for (int j = i; j < n; j++) { if (j == i) continue; v += x[j]; if (j > 6) break; } }", ""),
     ("for (int i = 0; i < n; i++) { bool stop = x[i] > 0; if (stop) break; }", ""),
     ("for (int i = 0; i < 9; i++) { if (x[i] > 1) { if (t < i) continue; } v += x[i]; }", ""),
     ("if (blockIdx.x == 0) { if (t < 32) return; }", "not (blockIdx.x == 0 and t < 32)"),
     ("if (n % x[0] == 1) { if (t > 9) { if (t % 2 == 0) return; } }", "not (n % x[0] == 1 and t > 9 and t % 2 == 0)"),
     ("if (blockIdx.x == 0) { if (t < 3) return; if (t > 9) return; }", "not (blockIdx.x == 0 and (t < 3 or t > 9))"),
     ("if (x[0] > 1 || x[1] > 1) { if (t < 3) return; }", "not ((x[0] > 1 || x[1] > 1) and t < 3)"),
     ("if (blockIdx.x == 0) v = 1.f; else if (t < 3) return;", "not (blockIdx.x != 0 and t < 3)")],
)  # fmt: skip
def test_what_follows_is_met_by_what_stays_and_behind_a_loop_by_all(
    described: Described, body: str, condition: str
) -> None:
    source = f"__global__ void k(const float* x, float* y, int n) {{ int t = threadIdx.x; float v = 0.f; {body}\ny[t] = v; }}"
    kernel, _ = described(f"{source}\nvoid go(int n) {{ k<<<9, 64>>>(0, 0, n); }}")
    assert [store.when for store in kernel.stores] == [condition]


@pytest.mark.parametrize("block", [(8, 16), (16, 2), (5, 5), (64, 16)])
@pytest.mark.parametrize("test", ["x > y", "x < y", "x + y >= 9", "y * 2 <= x", "x >= 5 and x > y", "x % 3 < y % 2"])
def test_tests_over_two_indices_of_threads_are_counted_thread_by_thread(
    described: Described, test: str, block: tuple[int, int]
) -> None:
    met = sum(bool(eval(test, {"x": x, "y": y})) for x in range(block[0]) for y in range(block[1]))
    here = "int x = threadIdx.x, y = threadIdx.y;"
    for body, count in (("if (TEST) return; o[x] = a[y];", block[0] * block[1] - met), ("if (TEST) o[x] = a[y];", met)):
        text = body.replace("TEST", test.replace("and", "&&"))
        source = f"__global__ void k(const float* a, float* o) {{ {here} {text} }}"
        _, cost = described(f"{source}\nvoid go() {{ k<<<3, dim3{block}>>>(0, 0); }}")
        assert (cost.write_bytes, cost.conditions) == (str(4 * count), ())


@pytest.mark.parametrize("test", ["x > y", "blockIdx.y * 16 + y > blockIdx.x * 8 + x", "x * n < y"])
def test_where_it_is_not_told_which_threads_meet_a_test_over_two_indices_nothing_is_taken_for_granted(
    described: Described, test: str
) -> None:
    body = f"int x = threadIdx.x, y = threadIdx.y; if ({test}) return; o[x] = a[y];"
    launch = "void go(int n) { k<<<dim3(9, 9), dim3(8, n)>>>(0, 0, n); }"
    _, cost = described(f"__global__ void k(const float* a, float* o, int n) {{ {body} }}\n{launch}")
    assert (cost.write_bytes, cost.launch_write_bytes, cost.conditions) == ("", "", ())
    assert cost.not_counted
