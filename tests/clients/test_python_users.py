"""What users of the Python interface have beside the types: strict checkers, data frames, a notebook that runs."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
import samples
from nbclient import NotebookClient
from opscope_schemas.common import Frozen, ToolResult
from opscope_schemas.errors import InputError
from pydantic import Field

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "clients/examples"
WRONG = """
from opscope_clients import Session

with Session() as opscope:
    opscope.count_flops("llama", phase="prefil")
    opscope.estimate_roofline("llama", hardware="h100_sxm", batch=4)
    opscope.sweep("llama", phase="decode").to_csv().flops
"""


def pyright(folder: Path, **files: str) -> dict[str, Any]:
    """What pyright says of files in its strict mode."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    line = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(folder)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_strict_checker_takes_the_samples_and_refuses_wrong_arguments(tmp_path: Path) -> None:
    pages = {
        f"{page.stem}_{number}": block
        for page in samples.PAGES
        for number, block in enumerate(samples.blocks(page.read_text(), "python"))
    }
    assert {"python_0", "http_0"} <= set(pages)
    scripts = {path.stem: path.read_text() for path in EXAMPLES.glob("*.py")}
    assert len(scripts) >= 3
    found = pyright(tmp_path, wrong=WRONG, **pages, **scripts)["generalDiagnostics"]
    said = [(Path(one["file"]).stem, one["range"]["start"]["line"], one["message"]) for one in found]
    assert [one for one in said if one[0] != "wrong"] == []
    assert {line for _, line, _ in said} == {4, 5, 6}
    assert any("prefil" in message for _, line, message in said if line == 4)


def test_the_notebook_runs_and_keeps_no_outputs(tmp_path: Path) -> None:
    text = (EXAMPLES / "questions.ipynb").read_text()
    book = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(book)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    tables = [o.data["text/html"] for cell in cells for o in cell.outputs if "text/html" in o.get("data", {})]
    assert len(tables) == 5
    assert any("image/png" in o.get("data", {}) for cell in cells for o in cell.outputs)


class Part(Frozen):
    name: str
    seconds: float | None = Field(default=None, description="Seconds, of one run.")


class Whole(Frozen):
    inner: Part
    count: int = 1


class Nested(Frozen):
    lines: tuple[Part, ...] = ()


class Result(ToolResult):
    parts: tuple[Part, ...] = ()
    wholes: tuple[Whole, ...] = ()
    words: tuple[str, ...] = ()
    document: Nested = Nested()


def test_every_list_of_records_is_a_table_of_all_its_fields() -> None:
    result = Result(
        parts=(Part(name="<b>"), Part(name="c", seconds=2.0)), wholes=(Whole(inner=Part(name="d")),), words=("e",),
        document=Nested(lines=(Part(name="f"),) * 300),
    )  # fmt: skip
    assert list(result.tables()) == ["parts", "wholes", "document.lines"]
    frame = result.to_pandas("parts")
    assert list(frame.columns) == ["name", "seconds"]
    assert frame.to_dict("records")[1] == {"name": "c", "seconds": 2.0}
    assert frame.attrs == {"seconds": "Seconds, of one run."}
    assert list(result.to_pandas("wholes").columns) == ["inner.name", "inner.seconds", "count"]
    shown = result._repr_html_()
    assert html.escape("<b>") in shown
    assert "<b>" not in shown
    assert "and 100 rows more" in shown


def test_a_table_that_is_not_there_is_refused_with_those_that_are() -> None:
    result = Result(parts=(Part(name="a"),))
    assert len(result.to_pandas()) == 1
    with pytest.raises(InputError) as caught:
        result.to_pandas("part")
    assert "parts" in str(caught.value)
    several = result.model_copy(update={"wholes": (Whole(inner=Part(name="d")),)})
    with pytest.raises(InputError) as caught:
        several.to_pandas()
    assert "parts, wholes" in str(caught.value)
    with pytest.raises(InputError):
        Result().to_pandas()
