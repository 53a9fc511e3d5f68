"""Reads files into facts. `python -m opscope_tools.survey.reading ROOT SCRIPTS` is a worker of gather.py: it takes batches of
(path, module name); SCRIPTS are the names of the console scripts, as JSON.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from opscope_tools.source.workers import serve
from opscope_tools.survey.facts import FileFacts
from opscope_tools.survey.plain_file import CommandReader, read_plain
from opscope_tools.survey.python_file import read_python


class Reader:
    """Reads files below `root`."""

    def __init__(self, root: Path, scripts: Collection[str]) -> None:
        self._root = root
        self._commands = CommandReader(scripts)

    def read(self, files: Sequence[tuple[str, str]]) -> list[FileFacts]:
        """The facts of each file that can be opened."""
        found = []
        for file, name in files:
            try:
                data = (self._root / file).read_bytes()
            except OSError:
                continue
            text = (
                data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").replace("\r\n", "\n").replace("\f", " ")
            )
            facts = read_python(file, text, name) if file.endswith(".py") else read_plain(file, text, self._commands)
            blank = len(text) - len(text.lstrip())
            facts.first = text.count("\n", 0, blank) + 1 if blank < len(text) else 0
            found.append(facts)
        return found


def main() -> None:
    """A worker."""
    reader = Reader(Path(sys.argv[1]), json.loads(sys.argv[2]))
    serve(reader.read, lambda: None, pickle)


if __name__ == "__main__":
    main()
