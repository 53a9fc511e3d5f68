"""The section "Counts beside peers" of docs/benchmarks.md, and the lines of a terminal, from the records and nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from genz_bounds import DEVICE, UNITS
from peer_cases import CASES

Record = Mapping[str, Any]
HEADING = "## Counts beside peers"
OWN = "opscope"
_SHOWN = 60
#: tool -> what its products are read from, what else it counts, bytes, symbols, what it looks at
KINDS = {
    OWN: ("`matmul_flops`", "all arithmetic", "yes", "yes", "a trace on symbolic sizes, no weights"),
    "FlopCounterMode": ("total, 2 per multiply-add (`mm_flop`)", "no", "no", "no", "a run"),
    "FlopCounterMode, meta": ("the same", "no", "no", "no", "a run without data"),
    "DeepSpeed": ("MACs, doubled; its FLOPs are 2 per multiply-add", "activations, norms, softmax called as functions", "no", "no", "a run"),
    "ultralytics-thop": ("operations, doubled: one per multiply-add (`calculate_linear`)", "norms of `torch.nn`, in the same sum", "no", "no", "a run"),
    "calflops": ("MACs, doubled; its FLOPs are 2 per multiply-add", "as DeepSpeed, whose code it took over", "no", "no", "a run"),
    "GenZ": ("MACs, doubled (`FC.get_num_ops`)", "no", "yes", "no", "sizes alone: layers of its own"),
    "aiconfigurator": ("seconds of arithmetic at the peak, times the peak", "no", "yes", "no", "sizes alone: layers of its own"),
}  # fmt: skip
_REASONS = """Where a figure is not exact, by the tool's code:

- torch's counter has no rule for the fused attention of a CPU (`_scaled_dot_product_flash_attention_for_cpu`) and for grouped products
  (`_grouped_mm`), by which transformers runs experts.
- DeepSpeed, thop and calflops know the functions that they patch or see called; grouped products are none of them. Products of an `einsum`
  are FLOPs and no MACs in DeepSpeed and calflops. calflops has no rule for `scaled_dot_product_attention`.
- thop adds 4 per element of each `nn.LayerNorm` to the sum that is doubled here.
- GenZ counts the look-up in the table of embeddings as a product with it. Without that it is exact for these models at the first point;
  tokens that do not divide among the experts it rounds down.
- aiconfigurator models serving: logits of the last token only, half of the scores of causal attention. That is all that differs for llama;
  why it has still less for experts and latent attention was not looked into, nor the last 0.05 % of thop for mamba2.

Not compared: LLM-Viewer and InferSim, which are not on PyPI."""


def _ratio(found: float, run: float) -> str:
    return "exact" if round(found) == run else f"{found / run:.4f}"


def _error(text: str) -> str:
    said = text.replace("|", "/")
    return said if len(said) <= _SHOWN else said[: _SHOWN - 1] + "…"


def _both(answers: Iterable[Any], reference: Iterable[Any], column: int) -> str:
    """At both points, once where they agree."""
    told = [_ratio(a[column], b[column]) for a, b in zip(answers, reference, strict=True)]
    return " / ".join(dict.fromkeys(told))


def products(case: Record, reference: Record) -> str:
    """Found over run, with attention written out too where that differs; or why there is no figure."""
    if "error" in case and "answers" not in case:
        return "–" if "no such layers" in case["error"] or "not supported" in case["error"] else _error(case["error"])
    told = _both(case["answers"], reference["answers"], 0)
    if "eager" not in case:
        return told
    written_out = _ratio(case["eager"], reference["answers"][0][0])
    return told if written_out == told.split(" / ")[0] else f"{told}; eager {written_out}"


def _all(case: Record, reference: Record, column: int) -> str:
    known = "answers" in case and case["answers"][0][column] is not None
    return _both(case["answers"], reference["answers"], column) if known else "–"


def _hundred(case: Record) -> float:
    """Measured of opscope; of a peer a hundred times one."""
    return float(case["hundred"] if "hundred" in case else 100 * case["again"])


def _seconds(value: float) -> str:
    return "<0.01" if value < 0.01 else f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _case(record: Record, name: str) -> Record:
    return dict(record["cases"].get(name, {"error": record.get("error", "not asked")}))


def lines(reference: Record, tools: Mapping[str, Record]) -> Iterator[str]:
    """For a terminal: a line for each model and tool."""
    for name in CASES:
        run = reference["cases"][name]
        yield f"{name}: {run['answers'][0][0]:,} FLOPs of products, {run['answers'][0][1]:,} in all"
        for tool, record in tools.items():
            case = _case(record, name)
            seconds = (
                f"first {case['first']:.2f} s, again {case['again']:.3f} s, 100 points {_hundred(case):.2f} s"
                if "again" in case
                else ""
            )
            total = _all(case, run, 1)
            yield f"  {tool:22} products {products(case, run):36} {'' if total == '–' else f'all {total}':14} {seconds}"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    made = [list(head), *map(list, rows)]
    made.insert(1, ["---"] * len(made[0]))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in made)


def _of_models(reference: Record, tools: Mapping[str, Record], kind: str) -> str:
    """A row for each model: `products`, `all` or `seconds`."""

    def cell(record: Record, name: str) -> str:
        case, run = _case(record, name), reference["cases"][name]
        if kind == "products":
            return products(case, run)
        if kind == "all":
            return _all(case, run, 1)
        return f"{_seconds(case['first'])}, {_seconds(_hundred(case))}" if "again" in case else "–"

    told = dict(tools)
    if kind == "all":
        told = {t: r for t, r in told.items() if any(_all(_case(r, n), reference["cases"][n], 1) != "–" for n in CASES)}
    column = {"products": 0, "all": 1}.get(kind)
    run = [] if column is None else ["run, GFLOP"]
    rows = [
        [name, *([f"{reference['cases'][name]['answers'][0][column]/1e9:.3f}"] if column is not None else []),
         *(cell(record, name) for record in told.values())]
        for name in CASES
    ]  # fmt: skip
    return _table(["model", *run, *told], rows)


def _own(record: Record, reference: Record) -> str:
    cases = [(record["cases"][name], reference["cases"][name]) for name in CASES]
    off = [n for n in CASES for c in range(3) if _all(record["cases"][n], reference["cases"][n], c) != "exact"]

    def median(field: str) -> str:
        return _seconds(statistics.median(case[field] for case, _ in cases))

    exact = (
        "equal the reference at both points of every model" if not off else f"differ at {', '.join(dict.fromkeys(off))}"
    )
    return (
        f"opscope's products, all FLOPs and bytes {exact}. Its medians: a new model {median('first')} s, the same question again "
        f"{median('again')} s (from its cache), another point through `count_flops` {median('another')} s, a hundred points in one `sweep` "
        f"{median('hundred')} s, a hundred values of the formula of the products {median('formula')} s."
    )


def _slower(tools: Mapping[str, Record]) -> str:
    """Where opscope takes longer."""
    own, told = tools[OWN]["cases"], []
    for tool in ("FlopCounterMode, meta", "FlopCounterMode"):
        theirs = tools[tool]["cases"]
        timed = [n for n in CASES if "again" in theirs[n]]
        first = [n for n in timed if own[n]["first"] > theirs[n]["first"]]
        more = [n for n in timed if _hundred(own[n]) > _hundred(theirs[n])]
        told.append(
            f"{tool}: its first answer for {len(first)} of {len(timed)} models ({', '.join(first) or 'none'}), a hundred more points for "
            f"{len(more)} ({', '.join(more) or 'none'})"
        )
    return (
        f"opscope takes longer than {'; than '.join(told)}. GenZ and aiconfigurator look at sizes alone, and are faster than all others "
        "at the models that they have."
    )


def _bounds(record: Record) -> str:
    rows = [
        [f"{r['model']} {r['phase']} {r['batch']}x{r['length']}", *(
            [f"{a:,.4g} / {b:,.4g}" for a, b in zip(r["ours"], r["theirs"], strict=True)] if "theirs" in r else [_error(r["error"])] * 4
        )]
        for r in record["rows"]
    ]  # fmt: skip
    return f"Whole checkpoints on {DEVICE} by opscope / by GenZ {_notes()}\n\n{_table(['pass', *UNITS], rows)}"


def _notes() -> str:
    return (
        "(no table of embeddings among the weights of its decode; logits of every position and scores above the diagonal in its "
        "prefill; no norms and activations):"
    )


def section(reference: Record, tools: Mapping[str, Record], genz: Record) -> str:
    """The whole section."""
    kinds = [
        [tool, record.get("version", _error(record.get("error", ""))), *KINDS[tool], _seconds(record.get("start", 0.0))]
        for tool, record in tools.items()
    ]
    dates = sorted({record["date"] for record in (reference, *tools.values())})
    head = [
        "tool",
        "version",
        "products read from",
        "counts beside products",
        "bytes",
        "symbolic",
        "looks at",
        "start, s",
    ]
    return "\n\n".join((
        HEADING,
        f"Made by `make bench-peers` from its records; edit nothing here. Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))} on "
        f"{reference['machine']}, in seconds of a processor, on one thread, since the machine did other work too. "
        "Eight models of transformers with few and narrow layers, random weights in bf16 on the CPU, the same inputs: two points each, "
        f"{_points()}. Each tool is in a process of its own, with torch and transformers of the same versions where it runs models. "
        "Figures are found over run: the reference, `tests/support/cost_walk.py`, counts each operator of the run and knows no tool. "
        "All are in one convention, 2 FLOPs per multiply-add; what a tool says is brought there.",
        _table(head, kinds),
        "Start is importing; of opscope also a first trace, of another model.",
        "### Products", _of_models(reference, tools, "products"),
        "`eager`: with attention written out, where that differs from what transformers takes by itself. `–`: the tool has no such layers.",
        _REASONS,
        "### All FLOPs", _of_models(reference, tools, "all"),
        "Conventions of what is no product differ: opscope's are those of the reference, DeepSpeed and calflops count 1 per element of an "
        "activation, 4 or 5 of a norm, and elementwise arithmetic where it is called as a function of torch. The others count products.",
        "### Seconds",
        "A first answer with the model built, then a hundred more points. Of a peer the latter is a hundred times the same question again, "
        "of opscope one measured `sweep`.",
        _of_models(reference, tools, "seconds"),
        _own(tools[OWN], reference),
        _slower(tools),
        "### Bounds beside GenZ", _bounds(genz),
    ))  # fmt: skip


def _points() -> str:
    first, second = CASES["llama"].points
    return (
        " and ".join(f"{p['batch_size']} sequences of {p['seq_len']} tokens" for p in (first, second))
        + " (images and audio: fewer)"
    )


def written(page: str, reference: Record, tools: Mapping[str, Record], genz: Record) -> str:
    """The page with its section made anew, at its end."""
    return f"{page.partition(HEADING)[0].rstrip()}\n\n{section(reference, tools, genz)}\n"


__all__ = ["lines", "section", "written"]
