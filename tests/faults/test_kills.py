"""SIGKILL at random moments, of any process of ours: what is left behind, and whether the next run is right.

Each round starts a real command in folders of its own, kills it or something that it has started, and looks at once; when
all rounds are over the same command runs once more and has to say what it said before the first kill.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import transformers

pytestmark = pytest.mark.faults

OPSCOPE = str(Path(sys.executable).with_name("opscope"))
#: rounds in all; some end before they are killed
ROUNDS = int(os.environ.get("OPSCOPE_KILLS", "260"))
#: how much of them falls to each kind of work: a whole index takes half a minute, and holds every other kind's reading
SHARES = {"index": 0.04}
_SECONDS = re.compile(r"[0-9.]+ s\b")
KERNEL = "#include <cuda_fp16.h>\n__global__ void scale(float* x, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] *= 2.f; }\n"
counts: Counter[str] = Counter()


@dataclass(frozen=True)
class Place:
    """Where the rounds of one kind of work happen."""

    folder: Path
    source: Path

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "TMPDIR": str(self.folder / "tmp"),
            "OPSCOPE_CACHE_DIR": str(self.folder / "cache"),
        }
        command = [OPSCOPE, "--repo", f"here={self.source}", "--output", str(self.folder / "out"), *arguments]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, cwd=self.folder,
        )  # fmt: skip

    def processes(self) -> list[int]:
        """Every process whose environment names this place."""
        found, mark = [], str(self.folder).encode()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in environ.read_bytes():
                    found.append(int(environ.parent.name))
            except OSError:
                continue
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    source = tmp_path / "source"
    models = Path(transformers.__file__).parent / "models"
    for name in ("llama", "gpt2", "mistral", "bert", "t5", "mixtral"):
        shutil.copytree(models / name, source / "models" / name, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "kernel.cu").write_text(KERNEL)
    for name in ("tmp", "out"):
        (tmp_path / name).mkdir()
    return Place(tmp_path, source)


@pytest.fixture(scope="module", autouse=True)
def figures() -> Iterator[None]:
    yield
    print(  # noqa: T201 -- the figures that `make faults` is run for
        "\nkills "
        + ", ".join(
            f"{name} {counts[name]}"
            for name in ("kills", "orphans", "tracebacks", "half-written files", "wrong results")
        )
    )


Forget = Callable[[Place], None]


def nothing(_: Place) -> None:
    """What is kept stays."""


def the_cache(place: Place) -> None:
    """Work that is kept is not done again: each round begins without."""
    shutil.rmtree(place.folder / "cache", ignore_errors=True)


WORK: dict[str, tuple[list[str], Forget]] = {
    "index": (["index"], the_cache),
    "trace": (["count-flops", "gpt2", "--values", "batch_size=1", "--values", "seq_len=8", "--json"], the_cache),
    "compile": (["cuda-kernel-tiling", "scale", "--repo", "here", "--compile", "--arch", "sm_80", "--json"], the_cache),
    "report": (["write-report", "repo", "here", "--overwrite"], nothing),
    "cached question": (["find-forward", "LlamaAttention", "--repo", "here", "--json"], nothing),
}  # fmt: skip


@pytest.mark.parametrize("work", WORK)
def test_a_kill_leaves_no_process_no_half_file_and_no_wrong_answer(place: Place, work: str) -> None:
    arguments, forget = WORK[work]
    if work == "compile" and not shutil.which("nvcc"):
        pytest.skip("nvcc is not here")
    draw = random.Random(work)
    begun = time.monotonic()
    first = place.start(*arguments)
    expected = first.communicate(timeout=300)
    took = time.monotonic() - begun
    assert first.returncode == 0, expected[1]
    kept = files(place)
    for _ in range(max(1, round(ROUNDS * SHARES.get(work, 0.24)))):
        forget(place)
        victim = killed(place, arguments, draw.uniform(0.05, 1.05) * took, draw)
        assert gone(place), f"left running after killing {victim}: {place.processes()}"
        assert files(place).items() <= kept.items() or half_written(place, kept) == [], work
    forget(place)
    last = place.start(*arguments)
    said = last.communicate(timeout=300)
    assert last.returncode == 0, said[1]
    before, after = (_SECONDS.sub("", text) for text in (expected[0], said[0]))
    counts["wrong results"] += before != after
    assert before == after
    assert files(place) == kept
    assert scratch(place) == [], "the next start sweeps up"


def killed(place: Place, arguments: list[str], after: float, draw: random.Random) -> str:
    """Start the work, kill one of its processes, and wait for the rest to end; which it was."""
    process = place.start(*arguments)
    ends = time.monotonic() + after
    while time.monotonic() < ends and process.poll() is None:
        time.sleep(0.005)
    others = [pid for pid in place.processes() if pid != process.pid]
    victim = draw.choice(others) if others and draw.random() < 0.5 else process.pid
    try:
        name = Path(f"/proc/{victim}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[-120:]
        os.kill(victim, signal.SIGKILL)
    except OSError:
        name = "ended before"
    counts["kills"] += name != "ended before"
    _, error = process.communicate(timeout=120)
    counts["tracebacks"] += "Traceback" in error
    assert "Traceback" not in error, error
    return name


def gone(place: Place) -> bool:
    """Whether everything ends soon."""
    ends = time.monotonic() + 10
    while left := [pid for pid in place.processes() if not zombie(pid)]:
        if time.monotonic() > ends:
            counts["orphans"] += len(left)
            return False
        time.sleep(0.02)
    return True


def zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def files(place: Place) -> dict[str, bytes]:
    """Everything in the output folder that somebody would read."""
    out = place.folder / "out"
    return {
        str(one.relative_to(out)): one.read_bytes() for one in out.rglob("*") if one.is_file() and one.suffix != ".part"
    }


def half_written(place: Place, whole: dict[str, bytes]) -> list[str]:
    found = [name for name, content in files(place).items() if name in whole and content != whole[name]]
    counts["half-written files"] += len(found)
    return found


def scratch(place: Place) -> list[str]:
    home = place.folder / "tmp" / f"opscope-{os.getuid()}"
    return [one.name for one in home.iterdir()] if home.is_dir() else []
