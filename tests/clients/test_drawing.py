"""`opscope estimate --plot`: which files it writes and which it leaves alone, and the points of a curve."""

from __future__ import annotations

import json
from pathlib import Path

import made_up
import pytest
from opscope_clients import drawing
from opscope_schemas.errors import InputError, OutputError, ValuesError
from opscope_schemas.estimates import RooflineResult


def never(other: dict[str, int]) -> RooflineResult:
    raise AssertionError(f"estimated again at {other}")


@pytest.mark.parametrize(
    ("kind", "name", "start"),
    [
        ("roofline", "a.svg", b"<?xml"),
        ("classes", "a.PNG", b"\x89PNG"),
        ("timeline", "a.png", b"\x89PNG"),
        ("timeline", "a.txt", b"model.layers"),
        ("timeline", "a.json", b'{\n "traceEvents"'),
    ],
)
def test_a_file_is_written_and_said(
    tmp_path: Path, kind: drawing.Picture, name: str, start: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = drawing.check(str(tmp_path / name), kind, overwrite=False)
    drawing.draw(made_up.decoder(1), kind, path, never)
    assert path.read_bytes().startswith(start)
    assert f"{kind} written to {path}" in capsys.readouterr().err
    with pytest.raises(InputError, match="is there already"):
        drawing.check(str(path), kind, overwrite=False)
    drawing.draw(made_up.decoder(1), kind, drawing.check(str(path), kind, overwrite=True), never)
    assert f"{kind} replaced {path}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "name"), [("roofline", "a.json"), ("timeline", "a.jpg"), ("memory", "a"), ("classes", "a.txt")]
)
def test_an_ending_that_the_picture_has_not_is_refused(tmp_path: Path, kind: drawing.Picture, name: str) -> None:
    with pytest.raises(InputError, match="has none of the endings"):
        drawing.check(str(tmp_path / name), kind, overwrite=True)


def test_a_folder_that_is_not_there_is_refused_and_a_failed_write_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        drawing.check(str(tmp_path / "none" / "a.svg"), "roofline", overwrite=False)
    (tmp_path / "held.txt").mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        drawing.draw(made_up.decoder(1), "timeline", tmp_path / "held.txt", never)


def test_memory_is_asked_for_up_to_the_longest_context_and_beyond_it(tmp_path: Path) -> None:
    asked: list[int] = []

    def at(other: dict[str, int]) -> RooflineResult:
        asked.append(other["cache_len"])
        if other["cache_len"] == 512:
            raise ValuesError("Not at 512.")
        return made_up.decoder(1).model_copy(update={"memory": made_up.memory(other["cache_len"])})

    path = tmp_path / "a.svg"
    drawing.draw(made_up.estimate([], memory=made_up.memory(1000)), "memory", path, at)
    assert asked == sorted(asked)
    assert asked[-2:] == [63_000, 78_750]
    assert path.is_file()


@pytest.mark.parametrize(("largest", "last"), [(59, 59), (64, 64), (1, 1), (None, 4096), (10**7, 4096), (0, None)])
def test_throughput_is_asked_for_up_to_the_largest_batch(largest: int | None, last: int | None) -> None:
    found = drawing.batches(made_up.estimate([], memory=made_up.memory(1000, largest_batch=largest)))
    assert (found[-1] if found else None) == last
    assert found == sorted(set(found))


def test_no_points_are_a_sentence(tmp_path: Path) -> None:
    small = made_up.estimate([], memory=made_up.memory(1000, largest_batch=0))
    with pytest.raises(InputError, match="nothing to draw"):
        drawing.draw(small, "throughput", tmp_path / "a.svg", never)
    assert not list(tmp_path.iterdir())


def test_the_trace_is_json(tmp_path: Path) -> None:
    drawing.draw(made_up.decoder(3), "timeline", tmp_path / "a.json", never)
    assert json.loads((tmp_path / "a.json").read_text())["traceEvents"]
