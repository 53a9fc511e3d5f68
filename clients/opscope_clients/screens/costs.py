"""Screens of what a pass costs and holds: numbers or formulas of a module, its tree, the memory of its data flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opscope_schemas.analysis import (
    Analysis,
    Evaluated,
    ModelAnalysisResult,
    ModelTreeResult,
    ModuleAnalysisResult,
    ModuleNode,
    ServingView,
)
from opscope_schemas.dataflow import Dataflow, DataflowResult
from opscope_schemas.numbers import Numbers, Ranked
from opscope_schemas.units import amount, counted, plain_bytes, seconds

from opscope_clients.screens.index import last
from opscope_clients.screens.page import Page, number, place


def show_cost(page: Page, result: ModuleAnalysisResult | ModelAnalysisResult) -> None:
    """The pass in numbers, or in formulas where those were asked for; then what stands beside the document."""
    document = result.document
    page.say(f"{document.class_name}, {document.file}:{document.line}", "bold")
    if result.numbers is not None:
        _show_numbers(page, result.numbers)
    else:
        _show_formulas(page, document, result.evaluated)
    page.sayings("operators that are not counted", document.not_counted, mark="not counted: ", style="yellow")
    if (experts := result.expected) is not None:
        page.say(
            f"experts: totals read {experts.bound} of a layer, uniform routing is expected to read {experts.experts_read:.2f}: "
            f"{experts.memory_read:,} bytes read in all"
        )
    if result.serving is not None:
        _show_serving(page, result.serving)
    if result.numbers is not None:
        page.say("--detail formulas: formulas and lines", "dim")


def _exact(page: Page, figures: Mapping[str, int | None]) -> None:
    page.say("; ".join(f"{name} {value:,}" for name, value in figures.items() if value is not None))


def _show_numbers(page: Page, found: Numbers) -> None:
    page.say(found.said, "bold")
    page.say(f"not given, and assumed: {', '.join(found.assumed)}" if found.assumed else "", "dim")
    _exact(page, {
        "FLOPs": found.flops, "of matrix products": found.matmul_flops, "FLOPs a token": found.flops_per_token,
        "bytes read": found.bytes_read, "bytes written": found.bytes_written, "bytes of weights": found.weights_bytes,
        "cache bytes a token": found.cache_bytes_per_token,
    })  # fmt: skip
    if found.active_parameters is not None:
        page.say(f"{counted(found.active_parameters)} of {counted(found.parameters)} parameters meet one token")
    _show_ranked(page, "module", found.modules)
    _show_ranked(page, "operator", found.operators)


def _show_ranked(page: Page, title: str, rows: Sequence[Ranked]) -> None:
    page.table(
        f"{title}s",
        [title, number("runs"), number("FLOPs"), number("share"), number("bytes"), number("share"), number("bound"), "limited by", place()],
        ([r.name, f"{r.count:,}", amount(r.flops, "FLOP") if r.flops else "", f"{100 * r.flops_share:.1f} %", plain_bytes(r.bytes),
          f"{100 * r.bytes_share:.1f} %", "" if r.bound_seconds is None else seconds(r.bound_seconds), r.limited_by or "",
          f"{r.file.rpartition('/')[2]}:{r.line}"] for r in rows),
    )  # fmt: skip


def _show_formulas(page: Page, document: Analysis, evaluated: Evaluated | None) -> None:
    page.say(f"{document.phase}, {document.attention} attention")
    totals = document.totals
    formulas = {
        "FLOPs": totals.flops, "of these matrix products": totals.matmul_flops,
        "bytes read": totals.memory_access.read, "bytes written": totals.memory_access.write,
    }  # fmt: skip
    if (step := document.training) is not None:
        formulas |= {
            "FLOPs of the way back, which are in these": step.backward.flops,
            "bytes saved for it": step.saved_activations,
        }
    for name, formula in formulas.items():
        page.say(f"{name}: {formula}")
    if evaluated is not None:
        page.say("at " + ", ".join(f"{name}={value}" for name, value in evaluated.values.items()))
        _exact(page, {
            "FLOPs": evaluated.flops, "of matrix products": evaluated.matmul_flops, "bytes read": evaluated.memory_read,
            "bytes written": evaluated.memory_write, "parameters": evaluated.parameters, "bytes of weights": evaluated.weights,
            "bytes saved for the way back": evaluated.saved_activations,
        })  # fmt: skip
        page.say(
            f"no implementation reads less than {evaluated.floor_read:,} bytes and writes less than {evaluated.floor_write:,}"
        )
    page.table(
        "operators",
        [number("line"), "operation", "FLOPs", "bytes read", "bytes written"],
        ([k.line, k.operation, k.flops, k.memory_access.read, k.memory_access.write] for k in document.kernels),
    )  # fmt: skip
    page.sayings("assumptions", document.assumptions, mark="assumed: ", style="dim")


def _show_serving(page: Page, serving: ServingView) -> None:
    page.say("as an engine runs it", "bold")
    if serving.evaluated:
        _exact(page, {name.replace("memory_", "bytes "): value for name, value in serving.evaluated.items()})
    else:
        page.say(f"bytes read: {serving.memory_access.read}")
        page.say(f"bytes written: {serving.memory_access.write}")
    page.table("rules", ["rule", "says"], ([rule.rule, rule.says] for rule in serving.rules))
    page.sayings("limits", serving.limits, mark="not in it: ", style="dim")


def show_tree(page: Page, result: ModelTreeResult) -> None:
    """The modules, each below the one that holds it."""
    page.say(f"{result.model_class}: {counted(result.parameters)} parameters ({result.parameters:,})", "bold")
    page.table(
        "modules",
        ["module", "class", "weights", number("parameters")],
        ([f"{'. ' * depth}{node.name or 'model'}" + (f" x{node.repeat}" if node.repeat > 1 else ""), last(node.class_name),
          ", ".join(f"{name} {list(shape)}" for name, shape in node.weights.items()), f"{node.parameters:,}" if node.parameters else ""]
         for depth, node in _nodes(result.tree, 0)),
    )  # fmt: skip


def _nodes(node: ModuleNode, depth: int) -> list[tuple[int, ModuleNode]]:
    return [(depth, node), *(found for child in node.children for found in _nodes(child, depth + 1))]


def show_dataflow(page: Page, result: DataflowResult) -> None:
    """The memory of the pass, what it communicates where it is split, and with formulas its operators."""
    document = result.document
    page.say(f"{document.class_name}, {document.file}:{document.line}", "bold")
    if (found := result.numbers) is not None:
        page.say(found.said, "bold")
        page.say(f"not given, and assumed: {', '.join(found.assumed)}" if found.assumed else "", "dim")
        _exact(page, {
            "bytes of weights": found.weights, "of activations at the peak": found.peak_activations, "of cache before": found.cache_before,
            "after": found.cache_after, "a token of each sequence": found.cache_per_token,
        })  # fmt: skip
        page.say(f"at the peak, {found.peak}, these live:" if found.peak else "")
        page.table(
            "tensors",
            ["made by", "kind", number("bytes"), place()],
            ([t.operator or "there before", t.kind, plain_bytes(t.bytes), f"{t.file}:{t.line}" if t.file else ""] for t in found.largest),
        )  # fmt: skip
    else:
        _show_graph(page, document)
    page.table(
        "entries",
        ["split", "communicates", "bytes in one call", "calls", place()],
        ([c.what, c.primitive, ", ".join(filter(None, (c.bytes, c.note))), c.calls, f"{c.file}:{c.line}"] for c in result.communication),
    )  # fmt: skip
    page.table(
        "places",
        ["parallelism", "", place()],
        ([s.kind, one.text, f"{one.file}:{one.line}"] for s in result.parallelism for one in s.places),
    )  # fmt: skip
    none = ", ".join(s.kind for s in result.parallelism if not s.found)
    page.say(f"looked for and not found: {none} parallelism" if none else "")
    page.sayings("operators that are not counted", document.not_counted, mark="not counted: ", style="yellow")
    if found is not None:
        count = f"{len(document.operators):,} operators and {len(document.tensors):,} tensors"
        page.say(f"--detail formulas: the graph of {count}", "dim")


def _show_graph(page: Page, document: Dataflow) -> None:
    page.say(f"bytes of activations at the peak: {document.peak_activations or 'not known'}")
    page.say(f"bytes of weights: {document.weights}")
    if document.cache is not None:
        page.say(f"bytes of cache after the pass: {document.cache.after}")
    page.say(f"{len(document.operators):,} operators, {document.depth:,} on the longest chain")
    page.table(
        "operators",
        [number("id"), "operator", "module", "runs", "reads", "writes", place()],
        ([o.id, o.operator, o.module, o.repeat, " ".join(map(str, o.reads)), " ".join(map(str, o.writes)), f"{o.file}:{o.line}"]
         for o in document.operators),
    )  # fmt: skip
    page.table(
        "tensors",
        [number("tensor"), "kind", "bytes", number("from"), number("to")],
        ([t.id, t.kind, t.bytes, *t.lives] for t in document.tensors),
    )  # fmt: skip


__all__ = ["show_cost", "show_dataflow", "show_tree"]
