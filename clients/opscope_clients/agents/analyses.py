"""The module analyses that a model analyzer starts from: which references they expand, and which are missing.

An analysis fits a reference where its class and phase are the reference's and its totals, as they stand or with the
reference's parameters (`in_features=hidden_size`) put in, are the reference's figures at every point: the same class
elsewhere may have other sizes. What is missing is asked of the server, whose trace is the source; nothing is guessed.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opscope_schemas.analysis import Kernel, ModelAnalysis, ModuleAnalysis
from opscope_schemas.errors import InputError, OpscopeError
from opscope_schemas.formula import Formula
from pydantic import ValidationError

from opscope_clients.agents.checking import Check, schema_differences
from opscope_clients.agents.pairing import reference

__all__ = ["Expansion", "read_analyses", "references"]


@dataclass(frozen=True)
class Expansion:
    """One reference of a model, and the analysis that expands it, or why none does."""

    operation: str
    place: str
    analysis: ModuleAnalysis | None
    #: what the analysis' variables are in the model's
    meaning: Mapping[str, Formula] = field(default_factory=dict)
    repeat: str = "1"
    reason: str = ""

    def kernels(self) -> list[dict[str, Any]]:
        """The analysis' kernels for one run, in the model's variables."""
        return [self._told(kernel) for kernel in self.analysis.kernels] if self.analysis else []

    def _told(self, kernel: Kernel) -> dict[str, Any]:
        moved = kernel.memory_access
        return {
            **kernel.model_dump(include={"kernel_type", "operation", "file", "line", "code"}),
            "flops": substituted(kernel.flops, self.meaning),
            "matmul_flops": substituted(kernel.matmul_flops, self.meaning),
            "memory_access": {
                "read": substituted(moved.read, self.meaning),
                "write": substituted(moved.write, self.meaning),
            },
        }


def read_analyses(folder: Path, schema: dict[str, Any]) -> tuple[list[ModuleAnalysis], list[str]]:
    """The analyses in `folder`, and a sentence for each *.json that is none; raises `InputError`."""
    if not folder.is_dir():
        raise InputError(f"The folder of module analyses {folder} does not exist.", next_step="Give --module-analysis.")
    found: list[ModuleAnalysis] = []
    others: list[str] = []
    for path in sorted(folder.glob("*.json")):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            others.append(f"{path.name} is not read: {error}.")
            continue
        wrong = schema_differences(document, schema)
        if wrong:
            others.append(f"{path.name} is no module analysis: {wrong[0].field}: {wrong[0].ours}.")
            continue
        try:
            found.append(ModuleAnalysis.model_validate(document))
        except ValidationError as error:
            others.append(f"{path.name} is no module analysis: {error.errors()[0]['msg']}.")
    return found, others


def references(model: ModelAnalysis, analyses: list[ModuleAnalysis], check: Check) -> list[Expansion]:
    """Each distinct reference of `model`, outermost first, and what expands it."""
    seen: dict[tuple[str, str], Expansion] = {}
    for kernel in _composites(model.kernels):
        key = (kernel.operation, kernel.flops)
        if key not in seen:
            seen[key] = _expansion(kernel, model.phase, analyses, check)
    return list(seen.values())


def _composites(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    for kernel in kernels:
        if kernel.kernel_type == "composite":
            yield kernel
        yield from _composites(kernel.kernels or ())


def _expansion(kernel: Kernel, phase: str, analyses: list[ModuleAnalysis], check: Check) -> Expansion:
    name = reference(kernel)
    place = f"{kernel.file}:{kernel.line}"
    reason = f"no analysis of {name}"
    for analysis in analyses:
        if analysis.class_name != name:
            continue
        if analysis.phase not in (phase, "forward"):
            reason = f"the analysis of {name} is of {analysis.phase}"
            continue
        parameters = _parameters(kernel.operation)
        for meaning in ({}, parameters) if parameters else ({},):
            wrong = _unlike(analysis, kernel, meaning, check)
            if not wrong:
                return Expansion(kernel.operation, place, analysis, meaning, kernel.repeat)
        reason = f"the analysis of {name} is of another use: {wrong}"
    return Expansion(kernel.operation, place, None, reason=reason)


def _unlike(analysis: ModuleAnalysis, kernel: Kernel, meaning: Mapping[str, Formula], check: Check) -> str:
    """How an analysis' totals differ from what the reference costs here."""
    said = analysis.totals
    for name, one, known in (
        ("flops", said.flops, kernel.flops),
        ("matmul_flops", said.matmul_flops, kernel.matmul_flops),
        ("memory_access.read", said.memory_access.read, kernel.memory_access.read),
        ("memory_access.write", said.memory_access.write, kernel.memory_access.write),
    ):
        here = substituted(one, meaning)
        whole = here if kernel.repeat == "1" else f"({kernel.repeat}) * ({here})"
        for wrong in check.formula("", name, whole, known):
            return f"{name} {wrong.theirs} and not {wrong.ours}; {wrong.at}"
    return ""


def substituted(text: str, meaning: Mapping[str, Formula]) -> str:
    """A formula with variables replaced by what they are elsewhere."""
    return str(Formula.parse(text).substitute(meaning)) if meaning else text


def _parameters(operation: str) -> dict[str, Formula]:
    """The parameters of a reference that are formulas: `${{...Linear}}(in_features=hidden_size, bias=False)`."""
    found: dict[str, Formula] = {}
    for name, value in _PARAMETER.findall(operation.partition("}}(")[2].removesuffix(")")):
        if not _WORDS & set(re.findall(r"[A-Za-z_]\w*", value)):
            with contextlib.suppress(OpscopeError):
                found[name] = Formula.parse(re.sub(r"[A-Za-z_]\w*", r"{\g<0>}", value))
    return found


_PARAMETER = re.compile(r"(?:^|, )(\w+)=([^,=\[\]]+)")
_WORDS = {"True", "False", "None"}
