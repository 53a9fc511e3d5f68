"""A worker of a build: takes batches of file names, answers with their entries; when there are no more,
with the files that each word occurs in, as an array of file numbers.
"""

from __future__ import annotations

import marshal
import sys
from array import array
from collections import defaultdict
from pathlib import Path
from typing import Any

from opscope_cache.trees import Signature

from opscope_tools.source.storage.entries import entry_of, read_rows, readable, signature_now, words
from opscope_tools.source.workers import serve

#: a longer word is data, no identifier that anyone asks for
_LONGEST = 100


class Reader:
    """Reads files below `root`; with `with_words` it keeps which words each of them holds."""

    def __init__(self, root: Path, *, with_words: bool) -> None:
        self._root = root
        self._with_words = with_words
        self._words: defaultdict[bytes, list[int]] = defaultdict(list)

    def batch(self, files: list[tuple[str, int, bool]]) -> dict[str, Any]:
        """Entries and signatures of the files; one that cannot be opened has neither."""
        entries, signatures = [], {}
        for file, number, entry_wanted in files:
            try:
                signature, source = self._open(file)
            except OSError:
                continue
            if entry_wanted:
                entries.append(tuple(entry_of(file, signature, read_rows(source))))
            if self._with_words:
                kept = self._words
                for word in words(source):
                    kept[word].append(number)
                signatures[file] = signature
        return {"entries": entries, "signatures": signatures, "count": len(files)}

    def _open(self, file: str) -> tuple[Signature, bytes]:
        """A signature taken before the text is read: if the file changes in between, the entry counts as old."""
        path = self._root / file
        return signature_now(str(path)), readable(path.read_bytes())

    def words(self) -> dict[bytes, bytes]:
        """Word -> numbers of the files that hold it, as an array of 32-bit integers."""
        return {
            word: array("I", numbers).tobytes()
            for word, numbers in self._words.items()
            if len(word) <= _LONGEST and not word[:1].isdigit()
        }


def main() -> None:
    """A worker."""
    reader = Reader(Path(sys.argv[1]), with_words=sys.argv[2] == "words")
    serve(reader.batch, reader.words, marshal)


if __name__ == "__main__":
    main()
