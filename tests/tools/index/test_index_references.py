"""References: a package whose lines say what they refer to, and transformers against Python's own reading of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_tools.index import Index, open_index
from opscope_tools.index.references import find
from opscope_tools.index.sought import sought
from opscope_tools.workspace import folder_repository

CORPUS = Path(__file__).parents[2] / "corpus/references"
_EXPECTED = re.compile(r"#([!?]) (\w+) ([\w.]+)")
Place = tuple[str, int, str, bool]


def expectations() -> dict[str, set[Place]]:
    """target -> its references, as the comments on the lines say."""
    found: dict[str, set[Place]] = {}
    for file in sorted(CORPUS.rglob("*.py")):
        for number, text in enumerate(file.read_text().splitlines(), 1):
            for sign, kind, target in _EXPECTED.findall(text) if "`#" not in text else ():
                place = file.relative_to(CORPUS).as_posix(), number, kind, sign == "!"
                found.setdefault(target, set()).add(place)
    return found


@pytest.fixture(scope="module")
def made() -> Index:
    return open_index([folder_repository("mine", CORPUS)], MemoryStore())


@pytest.mark.parametrize("target", sorted(expectations()))
def test_references_are_those_that_the_lines_state(made: Index, target: str) -> None:
    found = find(made, sought(made, target))
    assert {(r.file, r.line, r.kind, r.verified) for r in found.found} == expectations()[target]
    assert found.complete
