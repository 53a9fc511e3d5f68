"""What the index says of submodules beside what submodule_truth.py found in models that were built."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opscope_schemas.errors import OpscopeError
from opscope_tools.index import HeldModule, Index

PROGRAM = Path(__file__).with_name("submodule_truth.py")
#: classes whose attributes no class body tells, and why
EXPLAINED = {
    "torch.nn.modules.module.Module": "an empty module that whoever makes it hangs its parts on, others in every class",
    "torch.nn.utils.parametrize.ParametrizationList": "made and filled by register_parametrization at run time",
}
#: class -> attribute -> classes of what it holds
Held = dict[str, dict[str, set[str]]]


@dataclass(frozen=True)
class Pair:
    """One attribute of one class. `verdict`: `exact`, `superset` (what is held and alternatives that may be), `unknown`
    (the expression alone), `missing`, `wrong`, or `not held` (the index says so, no model that was built holds it)."""

    owner: str
    attribute: str
    verdict: str
    built: tuple[str, ...]
    said: tuple[str, ...]


def built(model_types: Iterable[str]) -> Iterator[dict[str, Any]]:
    """What models of the types hold, a type at a time, built in a process of its own."""
    child = subprocess.Popen(
        [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        for model_type in model_types:
            child.stdin.write(f"{model_type}\n")
            child.stdin.flush()
            line = child.stdout.readline()
            if not line:  # the process ended: the type is left out, and said to be
                yield {"model_type": model_type, "roots": {model_type: "the process ended"}}
                return
            yield json.loads(line)
        child.stdin.close()


def held_by_class(lines: Iterable[dict[str, Any]]) -> Held:
    """Per class, what it holds in the models of its own file; where none of them has it, in those of its folder, else
    in any: a class does not know which other models use it."""
    nearness: dict[str, int] = {}
    found: Held = {}
    for line in lines:
        for root, pairs in line["roots"].items():
            for owner, attribute, classes in pairs if isinstance(pairs, list) else ():
                near = _near(root, owner)
                if near > nearness.get(owner, -1):
                    nearness[owner], found[owner] = near, {}
                if near == nearness[owner]:
                    found[owner].setdefault(attribute, set()).update(classes)
    return found


def _near(root: str, owner: str) -> int:
    root_file, owner_file = root.rpartition(".")[0], owner.rpartition(".")[0]
    return (root_file == owner_file) + (root_file.rpartition(".")[0] == owner_file.rpartition(".")[0])


def compare(index: Index, held: Held) -> Iterator[Pair]:
    """Every attribute of every class of transformers and torch."""
    for owner, attributes in sorted(held.items()):
        if owner in EXPLAINED or not owner.startswith(("transformers.", "torch.")):
            continue
        try:
            modules = index.submodules(index.one(owner))
        except OpscopeError as error:
            yield from (
                Pair(owner, name, "missing", tuple(sorted(attributes[name])), (str(error),)) for name in attributes
            )
            continue
        said: dict[str, list[HeldModule]] = {}
        for module in modules:
            said.setdefault(_shape(module.attribute), []).append(module)
        for name, classes in sorted(attributes.items()):
            yield Pair(
                owner, name, _verdict(said.get(name, []), classes), tuple(sorted(classes)), _shown(said.get(name, []))
            )
        for name, entries in said.items():
            if name not in attributes and any(entry.at_default and entry.class_name for entry in entries):
                yield Pair(owner, name, "not held", (), _shown(entries))


def _shape(attribute: str) -> str:
    """Numbers in the attribute's name, and the names of a container's parts, as `*`."""
    head, *rest = attribute.split(".")
    return ".".join([re.sub(r"\d+", "*", head), *("*" for _ in rest)])


def _verdict(entries: list[HeldModule], classes: set[str]) -> str:
    sure = {entry.class_name for entry in entries if entry.at_default}
    open_ = {entry.class_name for entry in entries if entry.at_default is None}
    if sure == classes and open_ <= sure:
        return "exact"
    if not entries:
        return "missing"
    if not sure <= classes:
        return "wrong"
    if "" in open_:
        return "unknown"
    return "superset" if sure | open_ >= classes else "wrong"


def _shown(entries: list[HeldModule]) -> tuple[str, ...]:
    return tuple(f"{e.class_name or e.dispatch} [{e.condition}] {e.at_default}" for e in entries)
