"""Mermaid in a report, read by Mermaid's own parser, where a folder with the npm package was named.

The parser runs in Node, in a process that is given the diagrams, has a time limit and is only ever the package that the user
named: nothing is looked for beside a report, whose folder may be anybody's, and nothing is downloaded. Without it the check by form
(checks_text.py) stands alone, and the answer says so.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from opscope_schemas.report import Problem

from opscope_tools.children import Cage, run
from opscope_tools.report.markdown import Fence, Page

__all__ = ["mermaid_parsed"]

_SECONDS = 60
_MEGABYTES = 512
#: `parse` cleans labels by DOMPurify, which needs a browser; what is only parsed is never shown, so nothing need be cleaned
_SCRIPT = """
import { readFileSync } from "node:fs";
globalThis.fetch = undefined;
const say = answer => process.stdout.write(JSON.stringify(answer));
try {
  const purify = (await import("dompurify")).default;
  purify.addHook ??= () => {};
  purify.sanitize ??= text => text;
  const mermaid = (await import("mermaid")).default;
  const faults = [];
  for (const text of JSON.parse(readFileSync(0, "utf8"))) {
    try {
      await mermaid.parse(text);
      faults.push(null);
    } catch (error) {
      if (error instanceof TypeError || error instanceof ReferenceError) throw error;
      faults.push({ line: error?.hash?.loc?.first_line ?? 1, message: String(error?.message ?? error) });
    }
  }
  say({ faults });
} catch (error) {
  say({ unusable: String(error?.message ?? error) });
}
"""


def mermaid_parsed(page: Page, modules: Path | None) -> tuple[list[Problem], str]:
    """What the parser of the npm package in `modules` rejects, and where it was not asked a sentence that says why."""
    fences = [fence for fence in page.fences if fence.language == "mermaid" and fence.closed]
    if not fences:
        return [], ""
    if modules is None:
        return [], (
            "Mermaid's own parser was not asked: OPSCOPE_MERMAID names no node_modules folder with the npm package mermaid. "
            "Diagrams were checked by form."
        )
    node = shutil.which("node")
    if node is None:
        return [], "Mermaid's own parser was not asked: there is no node on PATH. Diagrams were checked by form."
    answer = _asked(node, modules, ["\n".join(fence.lines) for fence in fences])
    faults = answer.get("faults")
    if not isinstance(faults, list) or len(faults) != len(fences):
        said = str(answer.get("unusable") or "it gave no answer").strip().splitlines()[0]
        return [], f"Mermaid's own parser in {modules} could not be used: {said}. Diagrams were checked by form."
    return [_problem(fence, fault) for fence, fault in zip(fences, faults, strict=True) if fault is not None], ""


def _problem(fence: Fence, fault: Mapping[str, object]) -> Problem:
    """The fault at its line of the report; the parser's message without the source that it repeats."""
    line = fault.get("line")
    at = line if isinstance(line, int) and 1 <= line <= len(fence.lines) else 1
    rows = str(fault.get("message") or "it cannot be read").splitlines()
    said = rows[0].rstrip(":.")
    if said.startswith("Parse error on line"):  # its number counts from the fence
        unexpected = next(
            (row.rpartition(" got ")[2] for row in rows if row.startswith("Expecting") and " got " in row), ""
        )
        said = f"unexpected {unexpected}" if unexpected else "this line cannot be read"
    return Problem(
        rule="MERMAID_PARSE", line=fence.line + at, message=f"Mermaid's parser rejects this diagram: {said}."
    )


def _asked(node: str, modules: Path, texts: Sequence[str]) -> Mapping[str, object]:
    """The parser's answer; `unusable` says why there is none."""
    command = [node, f"--max-old-space-size={_MEGABYTES}", "--input-type=module", "--eval", _SCRIPT]
    folders = tuple({str(modules.parent), str(Path(node).resolve().parents[1]), str(Path(node).parent)})
    try:
        ran = run(
            command,
            folder=modules.parent,
            text=json.dumps(texts),
            seconds=_SECONDS,
            cage=Cage(read=folders, execute=(node,)),
        )
        if ran.timed_out:
            return {"unusable": f"it took more than {_SECONDS} seconds"}
        answer = json.loads(ran.out) if ran.out else {"unusable": ran.err or f"node ended with {ran.code}"}
    except (OSError, ValueError) as error:
        return {"unusable": str(error)}
    return answer if isinstance(answer, dict) else {}
