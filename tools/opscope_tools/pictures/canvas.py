"""The one place that knows matplotlib: a sheet to draw on, its style, and bytes that are the same on every run.

Text is DejaVu Sans, which matplotlib ships, drawn as outlines in SVG; ids come from a fixed salt; no date and no version stand in
the files; a user's matplotlibrc is not heeded. One picture is drawn at a time: the library's settings are global.
"""

from __future__ import annotations

import contextlib
import io
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from opscope_schemas.estimates import RooflineResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Form = Literal["svg", "png"]

#: points of text, and pixels of a PNG's inch
_SIZE, DPI = 9, 110
#: characters of a line below a picture that is an inch wide
_FINE = 16.5
_STYLE: Any = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": _SIZE, "axes.titlesize": _SIZE + 2,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.grid": True, "axes.unicode_minus": False,
    "grid.color": "#e4e4e4", "grid.linewidth": 0.6, "text.parse_math": False, "text.hinting": "none", "legend.frameon": False, "figure.dpi": DPI,
    "svg.hashsalt": "opscope", "svg.fonttype": "path",
}  # fmt: skip
#: classes of kernels; colours that people who see fewer of them tell apart (Okabe and Ito)
_COLOURS = {
    "matrix products": "#0072b2", "attention": "#d55e00", "experts": "#009e73", "other products": "#56b4e9",
    "norms, elementwise work and copies": "#8c8c8c",
}  # fmt: skip
_OTHERS = ("#cc79a7", "#e69f00", "#b5a400", "#5d3a9b", "#40b0a6")
#: of lines beside each other
LINES = (*_COLOURS.values(), *_OTHERS)
INK, FAINT = "#222222", "#777777"
INTERVAL = "Intervals: as if every kernel were as fast as its fastest tenth, or as slow as its slowest."

_drawing = threading.Lock()


def drawn(paint: Callable[[Figure], None], form: Form, width: float, height: float, title: str) -> bytes:
    """What `paint` puts on a sheet of `width` times `height` inches, as a file of that form that bears `title`."""
    with _drawing, _away():
        import matplotlib  # here: it takes half a second, and most calls draw nothing
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from PIL import Image

    with _drawing, matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        sheet = Figure(figsize=(width, height), facecolor="white")
        FigureCanvasAgg(sheet)
        paint(sheet)
        file = io.BytesIO()
        sheet.savefig(
            file,
            format=form,
            metadata=None if form == "png" else {"Title": plain(title), "Date": None, "Creator": None},
        )
        if form == "svg":
            return file.getvalue()
        palette = Image.open(file).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        file = io.BytesIO()
        palette.save(file, "png", optimize=True)  # a third of the bytes
        return file.getvalue()


@contextlib.contextmanager
def _away() -> Iterator[None]:
    """While the library is loaded, another current folder where this one holds settings for it: they may be anybody's."""
    if "matplotlib" in sys.modules or not Path("matplotlibrc").exists():
        yield
        return
    with contextlib.chdir(Path(__file__).parent):
        yield


def plain(text: str) -> str:
    """A text in letters that the font has: names come from anywhere."""
    return "".join(c if c.isprintable() else " " for c in text.encode("latin-1", "replace").decode("latin-1"))


def axes(sheet: Figure, *, left: float = 0.8, right: float = 0.3, top: float = 0.75, bottom: float = 1.0) -> Axes:
    """Axes with that much room around them, in inches, so that nothing depends on how long a text is drawn."""
    width, height = sheet.get_size_inches()
    return sheet.add_axes((left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height))


def headed(sheet: Figure, title: str, under: str) -> None:
    """The title of the sheet, and a smaller line below it."""
    width, height = sheet.get_size_inches()
    for text, inches, size, colour in ((title, 0.26, _SIZE + 3, INK), (under, 0.48, _SIZE, FAINT)):
        line = textwrap.shorten(plain(text), int(width * 1.35 * _FINE * 7 / size) - 10, placeholder=" ...")
        sheet.text(0.15 / width, 1 - inches / height, line, size=size, color=colour)


def footed(sheet: Figure, sentences: Iterable[str]) -> None:
    """Sentences in small print at the bottom of the sheet."""
    width, height = sheet.get_size_inches()
    lines = [line for text in sentences if text for line in textwrap.wrap(plain(text), int(width * _FINE))]
    sheet.text(0.15 / width, 0.08 / height, "\n".join(lines), size=7, color=FAINT, va="bottom", linespacing=1.25)


def foot_inches(sentences: Iterable[str], width: float) -> float:
    """How high `footed` text stands on a sheet of that width."""
    lines = sum(len(textwrap.wrap(plain(text), int(width * _FINE))) for text in sentences)
    return 0.08 + 0.135 * lines


def legend(sheet: Figure, tint: Mapping[str, str], inches: float) -> None:
    """Names and their colours in one row, so far above the bottom of the sheet."""
    from matplotlib.patches import Patch

    if tint:
        held = [Patch(color=colour, label=plain(name)) for name, colour in tint.items()]
        above = inches / sheet.get_size_inches()[1]
        sheet.legend(handles=held, loc="lower center", bbox_to_anchor=(0.5, above), ncols=len(held), handlelength=1.0)


def colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each class of kernels, the same in every picture of a set of classes."""
    others = [name for name in names if name not in _COLOURS]
    return {n: _COLOURS.get(n) or _OTHERS[others.index(n) % len(_OTHERS)] for n in names}


def seconds(value: float) -> str:
    """A time with the unit that suits it."""
    scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if value >= s), (1e-9, "ns"))
    return f"{value / scale:.3g} {unit}"


def amount(value: float, unit: str) -> str:
    """A number of units with a decimal prefix, three digits."""
    for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale * 0.9995:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def subject(result: RooflineResult) -> str:
    """Which model on which device, in which phase."""
    return f"{result.model_class.rpartition('.')[2]} on {result.hardware.name}, {result.phase}"


def point(result: RooflineResult, *, without: str = "") -> str:
    """The sizes and precisions of an estimate, in words."""
    sizes = [f"{name} {float(value):,.12g}" for name, value in result.values.items() if name != without]
    return "; ".join((", ".join(sizes), ", ".join(f"{kind} {name}" for kind, name in result.precision.items())))


__all__ = [
    "DPI",
    "FAINT",
    "INK",
    "INTERVAL",
    "Form",
    "amount",
    "axes",
    "colours",
    "drawn",
    "foot_inches",
    "footed",
    "headed",
    "legend",
    "plain",
    "point",
    "seconds",
    "subject",
]  # fmt: skip
