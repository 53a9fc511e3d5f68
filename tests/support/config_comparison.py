"""What `extract_config` says of configurations beside the objects that transformers makes (config_truth.py)."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opscope_schemas.extracted_config import Configuration, ExtractConfigResult, Hyperparameter
from opscope_tools.running.workspace import Workspace

TRUTH = Path(__file__).with_name("config_truth.py")


def live(model_types: Sequence[str]) -> list[dict[str, Any]]:
    """What transformers itself makes of the model types, in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(TRUTH)],
        input="\n".join(model_types),
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@dataclass
class Comparison:
    """Counts, and a sentence for whatever is not right."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def fault(self, kind: str, text: str) -> None:
        self.counts[kind] += 1
        self.faults.append(f"{kind}: {text}")


def compare(said: ExtractConfigResult, truth: dict[str, Any], workspace: Workspace, found: Comparison) -> None:
    """One model type: every name and value, every default as written, every line."""
    main = said.configurations[0]
    _values(said.configurations, main, truth["values"], truth["model_type"], found)
    for parameter in main.hyperparameters:
        _written(parameter, truth, found)
    for configuration in said.configurations:
        for parameter in configuration.hyperparameters:
            _line(configuration, parameter, workspace, found)


def _values(
    everything: Sequence[Configuration], own: Configuration, truth: dict[str, Any], where: str, found: Comparison
) -> None:
    said = {p.name: p for p in own.hyperparameters if not p.name.startswith("_")}  # as the truth leaves them out
    for name in sorted(truth.keys() - said.keys()):
        found.fault("missing", f"{where}.{name}")
    for name in sorted(said.keys() - truth.keys()):
        found.fault("extra", f"{where}.{name}")
    for name in sorted(said.keys() & truth.keys()):
        parameter, value = said[name], truth[name]
        if parameter.basis in {"open", "required"}:
            found.fault("open", f"{where}.{name}: {parameter.open}, is {value!r:.60}")
        elif isinstance(value, dict) and value.keys() == {"class", "values"}:
            inner = next((c for c in everything if parameter.sub_config and c.path == parameter.sub_config), None)
            if inner is None or inner.class_name != value["class"]:
                found.fault("wrong", f"{where}.{name}: {parameter.value!r}, is {value['class']}")
                continue
            found.counts["right"] += 1
            _values(everything, inner, value["values"], f"{where}.{name}", found)
        elif json.dumps(parameter.value, sort_keys=True) == json.dumps(value, sort_keys=True):
            found.counts["right"] += 1
        else:
            found.fault("wrong", f"{where}.{name}: {parameter.value!r:.80}, is {value!r:.80}")


def _written(parameter: Hyperparameter, truth: dict[str, Any], found: Comparison) -> None:
    """A default that is a literal is the default of the dataclass field."""
    if parameter.name not in truth["defaults"]:
        return
    try:
        written = ast.literal_eval(parameter.default.strip())
    except (ValueError, SyntaxError):
        return
    if isinstance(written, dict):  # keys are text in the truth
        return
    if json.loads(json.dumps(written, default=sorted)) == truth["defaults"][parameter.name]:
        found.counts["default right"] += 1
    else:
        found.fault("default wrong", f"{truth['model_type']}.{parameter.name}: {parameter.default}")


def _line(own: Configuration, parameter: Hyperparameter, workspace: Workspace, found: Comparison) -> None:
    """The lines that the answer points at hold the name (a formula: the name, or a `setattr`)."""
    names = [parameter.name, *parameter.aliases]
    pointers = [(parameter.file or own.file, parameter.line, names)]
    if parameter.meaning is not None and parameter.meaning.origin in {"docstring", "documentation table"}:
        pointers.append((parameter.meaning.file or own.file, parameter.meaning.line, names))
    pointers += [(place.file, place.line, names) for place in (parameter.reads.first if parameter.reads else ())]
    pointers += [(o.file or own.file, o.line, names) for o in parameter.overrides]
    for file, line, words in pointers:
        _, place = workspace.resolve_inside(file)
        text = _lines(place)[line - 1]
        if any(re.search(rf"\b{re.escape(word)}\b", text) for word in words):
            found.counts["line right"] += 1
        else:
            found.fault("line wrong", f"{own.class_name}.{parameter.name} {file}:{line}: {text.strip()[:80]}")


_READ: dict[Path, list[str]] = {}


def _lines(place: Path) -> list[str]:
    if place not in _READ:
        _READ[place] = place.read_text(errors="replace").split("\n")
    return _READ[place]
