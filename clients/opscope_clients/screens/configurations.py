"""The screen of what configures an implementation and what it demands."""

from __future__ import annotations

import json

from opscope_schemas.extracted_config import ExtractConfigResult, Hyperparameter, KernelSettings

from opscope_clients.screens.index import last
from opscope_clients.screens.page import Page, number, place


def show_configurations(page: Page, result: ExtractConfigResult) -> None:
    """Parameters with their defaults and meanings, kernel settings, constraints."""
    page.say(f"{result.target}: {result.class_name or result.target_kind}", "bold")
    for one in result.configurations:
        page.say(
            f"{one.path or last(one.class_name)}: {one.total:,} parameters of {one.class_name}, {one.file}:{one.line}",
            "bold",
        )
        page.table(
            "parameters",
            ["parameter", "default", "given", "meaning", number("read"), place()],
            ([p.name, _default(p), _json(p.given) if p.is_given else "", p.meaning.text if p.meaning else "",
              f"{p.reads.count:,}" if p.reads else "", f"{p.file or one.file}:{p.line}"] for p in one.hyperparameters),
            total=one.total,
        )  # fmt: skip
        page.say(f"unknown keys: {', '.join(one.unknown_keys)}" if one.unknown_keys else "")
        accepted = ", ".join(key.name for key in one.accepts)
        page.say(f"also accepted: {accepted}" if accepted else "")
    page.table(
        "kernels",
        ["kernel", "language", "settings", number("tuned over"), place()],
        ([k.name, k.language, _settings(k), f"{k.autotune.count:,}" if k.autotune and k.autotune.count else "", f"{k.file}:{k.line}"] for k in result.kernels),
        total=result.kernel_count,
    )  # fmt: skip
    page.table(
        "constants",
        ["constant", "value", "when", place()],
        ([c.name, c.expression, c.condition, f"{c.file}:{c.line}"] for c in result.constants),
        total=result.constant_count,
    )  # fmt: skip
    page.table(
        "places", ["kernel from elsewhere", "by", place()],
        ([h.name, h.expression, f"{h.file}:{h.line}"] for h in result.kernel_hooks), most=6,
    )  # fmt: skip
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in result.constraint_kinds.items())
    page.say(f"{result.constraint_count:,} constraints: {kinds}" if kinds else "", "bold")
    page.table(
        "constraints",
        ["kind", "condition", "says", "in", place()],
        ([c.kind, c.condition, c.message, c.within, f"{c.file}:{c.line}"] for c in result.constraints),
        total=result.constraint_count,
    )  # fmt: skip


def _default(parameter: Hyperparameter) -> str:
    if parameter.effective is not None:
        return _json(parameter.effective)
    if parameter.open or parameter.basis == "required":
        return parameter.open or "required"
    return _json(parameter.value) if parameter.value is not None else parameter.default


def _json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _settings(kernel: KernelSettings) -> str:
    said = (
        f"{s.name}={' or '.join(s.values) or s.default}" if s.values or s.default else s.name for s in kernel.settings
    )
    return ", ".join(said)


__all__ = ["show_configurations"]
