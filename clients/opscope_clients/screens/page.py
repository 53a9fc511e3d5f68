"""One answer as a person reads it: a tool's screen says what there is, and all laying out and cutting is done here.

On a terminal, lines keep to its width: numbers stay whole, other cells end in `…`, and a list shows the rows for which a screenful
has room. Elsewhere each record is one line, its cells whole and separated by tabs. What is left out is counted in a sentence;
`--all` leaves nothing out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

#: lines of a screenful, and those that a paragraph may take of it
LINES, PARAGRAPH = 55, 3
_GAP = "  "
#: how readily a column gives way, and down to which width: a place's end says more than the end of a text
_EASE = {"text": (2, 12), "place": (3, 16)}


@dataclass(frozen=True)
class Column:
    """A column: `number`s stand at the right and are never cut, a `place` loses its beginning where it must, `text` its end."""

    name: str
    kind: Literal["text", "number", "place"] = "text"


def number(name: str) -> Column:
    """A column of quantities."""
    return Column(name, "number")


def place(name: str = "where") -> Column:
    """A column of `path:line`."""
    return Column(name, "place")


@dataclass
class _Block:
    """A paragraph (`columns` None: one cell a row, which folds), or a list; `total` entries, of which `rows` are at hand."""

    what: str
    columns: list[Column] | None
    rows: list[list[str]]
    total: int
    most: int
    style: str = ""


class Page:
    """Collects what a screen says, and prints it: `whole` without leaving anything out. `rest` says how to see what was left out."""

    def __init__(
        self, console: Console, *, whole: bool = False, rest: str = "--all shows everything, --json is for programs"
    ) -> None:
        self._console, self._rest = console, rest
        self.whole = whole
        self._blocks: list[_Block] = []
        self._cut, self._left_out = 0, False

    def say(self, text: str, style: str = "") -> None:
        """A paragraph; nothing where `text` is empty."""
        if text:
            self._blocks.append(_Block("", None, [[text]], 1, 1, style))

    def sayings(self, what: str, texts: Sequence[str], *, most: int = 4, style: str = "", mark: str = "") -> None:
        """Paragraphs of one kind, each after `mark`, at most `most`; `what` names them in the plural."""
        if texts:
            rows = [[f"{mark}{text}"] for text in texts]
            self._blocks.append(_Block(what, None, rows, len(rows), most, style))

    def table(
        self, what: str, columns: Sequence[str | Column], rows: Iterable[Sequence[object]], *,
        total: int = 0, most: int = 1000,
    ) -> None:  # fmt: skip
        """A list of records, columns that are empty everywhere left out; `total`: how many there are, where these are only a part."""
        cells = [["" if cell is None else " ".join(str(cell).split()) for cell in row] for row in rows]
        held = [Column(column) if isinstance(column, str) else column for column in columns]
        kept = [index for index in range(len(held)) if any(row[index] for row in cells)]
        if cells:
            shown = [[row[index] for index in kept] for row in cells]
            self._blocks.append(_Block(what, [held[index] for index in kept], shown, max(total, len(shown)), most))

    def drawing(self, text: str) -> None:
        """Lines whose columns mean something, such as a diagram: never folded."""
        rows = [[line] for line in text.splitlines()]
        self._blocks.append(_Block("lines", [Column("")], rows, len(rows), 1000))

    def show(self) -> None:
        """Print it all."""
        printed: list[Text] = []
        for block, allowed in zip(self._blocks, self._shares(), strict=True):
            rows = block.rows[:allowed]
            printed += self._paragraphs(block, rows) if block.columns is None else self._table(block, rows)
        if not self.whole and len(printed) > LINES + 3:
            printed = [*printed[:LINES], Text(f"… and {len(printed) - LINES:,} more lines", "dim")]
            self._left_out = True
        if self._cut:
            count = f"{self._cut:,} texts are" if self._cut > 1 else "1 text is"
            printed += self._folded(f"{count} cut at …: a wider terminal shows more", "dim")
        if self._left_out or self._cut:
            printed += self._folded(self._rest, "dim")
        for line in printed:
            line.rstrip()
            if self._console.is_terminal:
                self._console.print(line, soft_wrap=True)
            else:  # as it is: printing would make spaces of the tabs
                self._console.file.write(f"{line.plain}\n")

    def _shares(self) -> list[int]:
        """How many rows of each block are shown: a screenful shared out, short lists first."""
        if self.whole:
            return [len(block.rows) for block in self._blocks]
        wanted = [min(len(block.rows), block.most) for block in self._blocks]
        lists = [index for index, block in enumerate(self._blocks) if block.columns and block.columns[0].name]
        room = LINES - len(lists)
        for index, block in enumerate(self._blocks):
            if block.columns is None:
                room -= len(self._paragraphs(block, block.rows[: block.most], count=False))
            elif index not in lists:
                room -= len(block.rows)
        for done, index in enumerate(sorted(lists, key=lambda i: wanted[i])):
            wanted[index] = max(1, min(wanted[index], room // (len(lists) - done)))
            room -= wanted[index]
        return wanted

    def _more(self, block: _Block, shown: int) -> list[Text]:
        """The sentence that counts what is left out; nothing where nothing is."""
        if block.total == shown:
            return []
        self._left_out |= not self.whole
        further = ": --offset gives them" if self.whole else ""
        return self._folded(f"… and {block.total - shown:,} more {block.what}{further}", "dim")

    @property
    def _width(self) -> int:
        return self._console.width

    def _folded(self, text: str, style: str = "") -> list[Text]:
        line = Text(" ".join(text.split()), style)
        return [*line.wrap(self._console, self._width)] if self._console.is_terminal else [line]

    def _paragraphs(self, block: _Block, rows: Sequence[Sequence[str]], *, count: bool = True) -> list[Text]:
        lines: list[Text] = []
        for row in rows:
            folded = self._folded(row[0], block.style)
            if len(folded) > PARAGRAPH and not self.whole:
                last = set_cell_size(folded[PARAGRAPH - 1].plain, self._width - 1).rstrip() + "…"
                folded = [*folded[: PARAGRAPH - 1], Text(last, block.style)]
                self._cut += count
            lines += folded
        return lines + (self._more(block, len(rows)) if count else [])

    def _table(self, block: _Block, rows: list[list[str]]) -> list[Text]:
        columns = block.columns or [Column(block.what)]
        heads = [column.name for column in columns]
        if not self._console.is_terminal:
            head = [heads] if heads[0] else []
            return [*(Text("\t".join(row)) for row in head + rows), *self._more(block, len(rows))]
        counted = bool(heads[0] and rows and not self.whole)  # in the head: a line less
        if counted and block.total > len(rows):
            heads[0] += f", {len(rows):,} of {block.total:,}"
            self._left_out = True
        count, widths = self._fitting(columns, [heads, *rows])
        if self.whole and count < len(heads):
            pairs = (pair for row in rows for pair in zip(heads, row, strict=True) if pair[1])
            return [line for pair in pairs for line in self._folded(": ".join(pair))]
        lines = [Text(self._line(columns, widths, heads), "dim")] if heads[0] else []
        for row in rows:
            cells = [self._cell(*of) for of in zip(columns, row, widths, strict=False)]
            lines += [Text(self._line(columns, widths, part)) for part in zip_longest(*cells, fillvalue="")]
        if count < len(heads):
            lines += self._folded(f"… and {len(heads) - count} more columns: {', '.join(heads[count:])}", "dim")
            self._left_out = True
        return lines if counted else [*lines, *self._more(block, len(rows))]

    def _fitting(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> tuple[int, list[int]]:
        """How many of the columns find room, and their widths: the widest texts give way first."""
        widths = [max(cell_len(row[index]) for row in rows) for index in range(len(columns))]
        while sum(widths) + len(_GAP) * (len(widths) - 1) > self._width:
            soft = [
                index for index, width in enumerate(widths)
                if columns[index].kind != "number" and width > max(_EASE[columns[index].kind][1], cell_len(rows[0][index]))
            ]  # fmt: skip
            if soft:
                widths[max(soft, key=lambda index: widths[index] * _EASE[columns[index].kind][0])] -= 1
            elif len(widths) > 1:
                widths.pop()
            else:
                return 1, [self._width]
        return len(widths), widths

    def _cell(self, column: Column, text: str, width: int) -> list[str]:
        """The lines of a cell: several only where nothing may be left out."""
        if cell_len(text) <= width:
            return [text]
        if self.whole:
            return [line.plain for line in Text(text).wrap(self._console, width)]
        self._cut += 1
        if column.kind == "place":
            while cell_len(text) > width - 1:
                text = text[1:]
            return [f"…{text}"]
        return [f"{set_cell_size(text, width - 1).rstrip()}…"]

    @staticmethod
    def _line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
        made = []
        for column, width, cell in zip(columns, widths, cells, strict=False):
            room = " " * (width - cell_len(cell))
            made.append(room + cell if column.kind == "number" else cell + room)
        return _GAP.join(made).rstrip()


__all__ = ["LINES", "Column", "Page", "number", "place"]
