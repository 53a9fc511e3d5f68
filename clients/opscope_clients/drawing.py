"""`opscope estimate --plot FILE`: an estimate as a picture, a text or a trace, or several estimates as a curve.

Order: what a file's ending asks for, the file, the points of a curve. The library is loaded where something is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, get_args

from opscope_cache.whole_files import ordinary_mode, write_whole
from opscope_schemas.errors import InputError, OutputError
from opscope_schemas.estimates import PlanResult, RooflineResult
from opscope_tools.pictures import curves, picture, plans
from opscope_tools.pictures.canvas import Form, point, subject
from opscope_tools.pictures.timeline import perfetto_trace, timeline_text

from opscope_clients import console

Picture = Literal["roofline", "classes", "memory", "throughput", "timeline"]
PICTURES: tuple[Picture, ...] = get_args(Picture)
#: estimates at other sizes, given by name; raises `OpscopeError` where there is none
Estimate = Callable[[dict[str, int]], RooflineResult]

_FORMS: dict[str, Form] = {".svg": "svg", ".png": "png"}
#: points of a curve; a batch where memory sets no limit
_POINTS, _LARGE_BATCH = 10, 4096


def check(file: str, kind: Picture | Literal["plans"], *, overwrite: bool) -> Path:
    """The file as a path; raises `InputError` before anything is computed for a file that cannot be meant."""
    path = Path(file).expanduser()
    others = (".json", ".txt") if kind == "timeline" else ()
    if path.suffix.lower() not in (*_FORMS, *others):
        raise InputError(
            f"--plot {file!r} has none of the endings {', '.join((*_FORMS, *others))} that a {kind} is written with.",
            next_step="A timeline may also be .json, a trace for Perfetto, or .txt.",
        )
    if path.exists() and not overwrite:
        raise InputError(f"{path} is there already.", next_step="Name another file, or add --overwrite.")
    if not path.parent.is_dir():
        raise InputError(f"The folder {path.parent} does not exist.", next_step="Make it, or name another file.")
    return path


def draw(result: RooflineResult, kind: Picture, path: Path, estimate: Estimate) -> None:
    """Write the picture to `path` and say so on stderr; raises `OutputError`, `InputError` where it has no points."""
    _write(_drawn(result, kind, path.suffix.lower(), estimate), kind, path)


def draw_plans(result: PlanResult, path: Path) -> None:
    """The same of plans: all of them, and the front."""
    _write(plans(result, _FORMS[path.suffix.lower()]), "plans", path)


def _write(data: bytes, kind: str, path: Path) -> None:
    replaced = path.exists()
    try:
        write_whole(path, data, ordinary_mode())
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
    console.err().print(f"{kind} {'replaced' if replaced else 'written to'} {path}", markup=False, soft_wrap=True)


def _drawn(result: RooflineResult, kind: Picture, ending: str, estimate: Estimate) -> bytes:
    if ending == ".json":
        return perfetto_trace(result).encode()
    if ending == ".txt":
        return timeline_text(result).encode()
    form = _FORMS[ending]
    if kind == "memory":
        name = _length(result)
        found = _estimates(estimate, name, contexts(result))
        uses = [(at, one.memory) for at, one in found]
        return _curve(
            lambda: curves.memory(
                uses,
                f"Memory: {subject(result)}",
                point(result, without=name),
                f"tokens of each sequence ({name})",
                form,
            )
        )
    if kind == "throughput":
        found = _estimates(estimate, "batch_size", batches(result))
        rates = [(at, one.totals) for at, one in found]
        under = point(result, without="batch_size")
        return _curve(
            lambda: curves.throughput(rates, f"Throughput: {subject(result)}", under, "sequences (batch_size)", form)
        )
    return picture(result, kind, form)


def _curve(paint: Callable[[], bytes]) -> bytes:
    try:
        return paint()
    except ValueError as error:
        raise InputError(
            f"There is nothing to draw: {error}", next_step="Ask for another picture, or other sizes."
        ) from None


def _length(result: RooflineResult) -> str:
    return "cache_len" if result.phase == "decode" else "seq_len"


def _doubling(first: int, last: int) -> list[int]:
    """Powers of two up to `last`, not below `first`, the largest `_POINTS` of them."""
    return [2**n for n in range(max(0, last.bit_length() - _POINTS), last.bit_length()) if 2**n >= first]


def contexts(result: RooflineResult) -> list[int]:
    """Lengths to draw memory over: up to the longest that fits and a quarter beyond, else to four times that of the estimate."""
    longest = result.memory.longest_context
    if not longest:
        return _doubling(16, 4 * int(result.values.get(_length(result), 1024)))
    return sorted({*_doubling(16, longest), longest, longest * 5 // 4})


def batches(result: RooflineResult) -> list[int]:
    """Batches to draw throughput over: up to the largest that fits, that one with them."""
    largest = result.memory.largest_batch
    if largest == 0:
        return []
    top = min(largest or _LARGE_BATCH, _LARGE_BATCH)
    return sorted({*_doubling(1, top), top})


def _estimates(estimate: Estimate, name: str, sizes: Iterable[int]) -> list[tuple[float, RooflineResult]]:
    """The estimate at each size; sizes that the model does not take are told on stderr."""
    found: list[tuple[float, RooflineResult]] = []
    for size in sizes:
        try:
            found.append((size, estimate({name: size})))
        except InputError as error:
            console.err().print(f"{name} {size:,}: {error}", markup=False, soft_wrap=True)
    return found


__all__ = ["PICTURES", "Estimate", "Picture", "batches", "check", "contexts", "draw", "draw_plans"]
