"""What the pages of the documentation show: their files, their commands and what these print.

A fenced block with a title is a file of the reader's. A `console` block is commands behind `$ `, each with what it prints in a terminal 110
columns wide; a line `...` stands for lines left out, ` ...` at the end of one for its rest. `python tests/support/samples.py PAGE ...` puts
what the commands print now where a page shows something else.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from opscope_clients import console
from opscope_clients.cli import opscope
from rich.console import Console

ROOT = Path(__file__).parents[2]
WIDTH = 110
#: README first, then the pages by name; what is written by `make golden` or shows another file's text is none of them
PAGES = (
    ROOT / "README.md",
    *sorted(
        page for page in (ROOT / "docs").rglob("*.md") if "reference/" not in str(page) or page.stem == "environment"
    ),
)
#: which build of torch ran is the machine's affair
_BUILD = re.compile(r"^(source: .*, )pytorch .*", re.MULTILINE)
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Sample:
    """A command and what a page shows of its output."""

    command: str
    shown: str


def blocks(text: str, language: str) -> Iterator[str]:
    """The bodies of a page's fenced blocks in a language that are no files."""
    yield from (body for kind, title, body in _BLOCK.findall(text) if kind == language and not title)


def files(text: str) -> dict[str, str]:
    """The files that a page shows, by their path."""
    return {title: body for _, title, body in _BLOCK.findall(text) if title}


def samples(text: str) -> list[Sample]:
    """A page's commands with their output, in order."""
    found = []
    for body in blocks(text, "console"):
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append(Sample(command, shown))
    return found


def make_files(text: str, folder: Path) -> None:
    """Put the files that a page shows into a folder."""
    for name, body in files(text).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(body)


def printed(command: str, folder: Path) -> str:
    """What a command prints on a terminal, run in a folder."""
    text = io.StringIO()
    terminal = Console(file=text, width=WIDTH, force_terminal=True, color_system=None, highlight=False)
    arguments = shlex.split(command, comments=True)
    assert arguments.pop(0) == "opscope", command
    with (
        contextlib.chdir(folder),
        patch.object(console, "out", lambda: terminal),
        contextlib.redirect_stdout(text),
    ):
        status = console.guarded(lambda: opscope.main(arguments, prog_name="opscope", standalone_mode=False))
    assert status == 0, command
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def agrees(shown: str, told: str) -> bool:
    """Whether a page shows what a command prints, but for what it says that it leaves out."""
    pattern = ""
    for line in shown.splitlines():
        if line == "...":
            pattern += r"(?:.*\n)*?"
        elif line.endswith(" ..."):
            pattern += re.escape(line.removesuffix("...")) + r".*\n"
        else:
            pattern += re.escape(line) + r"\n"
    return re.fullmatch(pattern, told) is not None


def main(names: list[str]) -> None:
    """Write pages anew where they show what is no longer printed."""
    for page in map(Path, names):
        text = page.read_text()
        with tempfile.TemporaryDirectory() as folder:
            make_files(text, Path(folder))
            for sample in samples(text):
                told = printed(sample.command, Path(folder))
                if not agrees(sample.shown, told):
                    told = _BUILD.sub(r"\1...", told)
                    text = text.replace(f"$ {sample.command}\n{sample.shown}", f"$ {sample.command}\n{told}", 1)
                    sys.stderr.write(f"{page}: {sample.command}\n")
        page.write_text(text)


if __name__ == "__main__":
    os.environ.setdefault("OPSCOPE_WARM", "0")
    main(sys.argv[1:])
