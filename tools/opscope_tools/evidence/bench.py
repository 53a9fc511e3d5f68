"""Runs the commands of a collector, keeps what they wrote, and says how quiet the machine was meanwhile.

A command is a list of words; what is kept of it is the line that one would type. `Bench.talk` starts the workload so that it waits at
each of its marks, for tools that have to be pointed at a process while it does one thing.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shlex
import shutil
import statistics
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from opscope_schemas.evidence import Machine, Noise, Output, Spread, Workload

from opscope_tools.children import NOTHING, Child, Limits, run, start
from opscope_tools.evidence.scrub import Scrubber

__all__ = ["Bench", "Ran", "RefusedError", "Talk", "kept", "text_of"]

#: characters of one output that a record keeps
_KEPT = 4_000_000
#: bytes of one output that are read at all
_READ = 64 << 20
PROGRAMS = Path(__file__).with_name("programs")


class RefusedError(Exception):
    """A tool that is not there, may not, or cannot; the status and why."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Ran:
    """One command that has run: the line as one types it, its output and status, its seconds by the clock."""

    shown: str
    out: str
    err: str
    code: int
    seconds: float
    timed_out: bool = False

    @property
    def text(self) -> str:
        """All that it wrote."""
        return f"{self.out}\n{self.err}" if self.out and self.err else self.out or self.err


def kept(name: str, text: str) -> Output:
    """A text as a record keeps it: its beginning, where it is long."""
    held = text[:_KEPT]
    packed = base64.b64encode(zlib.compress(held.encode(), 9)).decode()
    return Output(
        name=name, sha256=hashlib.sha256(held.encode()).hexdigest(), text=packed, left_out=len(text) - len(held)
    )


def text_of(output: Output) -> str:
    """The text that `kept` packed; raises `ValueError` for what it did not make or what was changed since."""
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(output.text, validate=True), 8 * _KEPT)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"the kept output {output.name} cannot be unpacked: {error}") from None
    if hashlib.sha256(content).hexdigest() != output.sha256:
        raise ValueError(f"the kept output {output.name} is not the one that its digest is of")
    return content.decode()


@dataclass
class Talk:
    """A workload that waits at its marks."""

    child: Child
    seconds: float
    checkpoint: Callable[[], None]
    read: str = ""
    said: dict[str, Any] = field(default_factory=dict)

    def until(self, mark: str) -> int:
        """Let it go on to that mark, where it waits; its process."""
        while True:
            self.line()
            if self.said.get("mark") == mark:
                return int(self.said["pid"])
            self.go()

    def go(self) -> None:
        """Let it go on from where it waits."""
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()

    def finish(self) -> dict[str, Any]:
        """Let it run to its end; what it found."""
        while "mark" in self.said:
            self.go()
            self.line()
        return self.said

    def line(self) -> None:
        """Read its next word, which is a line of JSON; what else it or a tool around it writes is passed over."""
        ends = time.monotonic() + self.seconds
        stream = self.child.stdout
        os.set_blocking(stream.fileno(), False)
        while True:
            self.checkpoint()
            while "\n" in self.read:
                text, _, self.read = self.read.partition("\n")
                if text.startswith("{"):
                    self.said = json.loads(text)
                    return
            more = stream.read(1 << 16)
            if more:
                self.read += more.decode(errors="replace")
            elif more == b"" or not self.child.running:
                raise RefusedError("failed", "The workload ended before it was done.")
            elif time.monotonic() > ends:
                raise RefusedError("timeout", f"The workload did not come to its next mark in {self.seconds:g} s.")
            else:
                time.sleep(0.005)


@dataclass
class Bench:
    """What a collector works with: the workload, a folder of its own, and a way to run commands."""

    workload: Workload
    machine: Machine
    folder: Path
    python: str
    checkpoint: Callable[[], None] = lambda: None
    #: asks one of opscope's own tools, by name and arguments; its answer as JSON
    opscope: Callable[[str, Mapping[str, Any]], Mapping[str, Any]] = lambda _, __: {}
    #: values of other records by `record.field`, in the order of the table
    known: dict[str, int | float | str] = field(default_factory=dict)
    ran: list[Ran] = field(default_factory=list)
    spread: dict[str, Spread] = field(default_factory=dict)

    @cached_property
    def scrub(self) -> Scrubber:
        """Takes out what is nobody's business."""
        return Scrubber({str(self.folder): ".", str(PROGRAMS): "programs"}, self.python)

    # ---- commands ---------------------------------------------------------------------------------------------------

    def run(
        self, command: Sequence[str], *, seconds: float = 120.0, environment: Mapping[str, str] | None = None,
        shown: str = "", keep: bool = True, text: str = "",
    ) -> Ran:  # fmt: skip
        """Run a command in the scratch folder; raises `RefusedError` where it is missing or takes too long."""
        began = time.monotonic()
        done = run(
            [self.tool(command[0]), *command[1:]], seconds=seconds, folder=self.folder, environment={"HF_HUB_OFFLINE": "1", **(environment or {})},
            checkpoint=self.checkpoint, limits=Limits(file_bytes=1 << 30), most=_READ, text=text,
        )  # fmt: skip
        line = shown or self.typed(command, environment)
        ran = Ran(line, self.scrub(done.out), self.scrub(done.err), done.code, time.monotonic() - began, done.timed_out)
        if keep:
            self.ran.append(ran)
        if done.timed_out:
            raise RefusedError("timeout", f"`{_short(line)}` took more than {seconds:g} s.")
        return ran

    def tool(self, name: str) -> str:
        """Where a program lies: on PATH, or beside the interpreter, where packages put theirs; raises `RefusedError` where it is nowhere."""
        found = name if os.sep in name and Path(name).is_file() else shutil.which(name)
        beside = Path(self.python).parent / name
        if found is None and beside.is_file():
            found = str(beside)
        if found is None:
            raise RefusedError("missing", f"{name} is not installed.")
        return found

    def ask(self, command: Sequence[str], *, seconds: float = 60.0) -> str:
        """What a command says, as it says it: for what a collector has to know and no record keeps."""
        done = run(command, seconds=seconds, folder=self.folder, checkpoint=self.checkpoint)
        if done.code:
            raise RefusedError(
                "failed", f"`{_short(self.typed(command))}` ended with status {done.code}: {self.scrub(done.err)[:200]}"
            )
        return done.out

    def typed(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
        """The line that one would type."""
        words = [*(f"{name}={value}" for name, value in (environment or {}).items())]
        return self.scrub(" ".join([*words, shlex.join(command)]))

    def noted(self, shown: str) -> None:
        """Note a command that says what is known here without running it."""
        self.ran.append(Ran(shown, "", "", 0, 0.0))

    def good(self, ran: Ran, what: str = "") -> Ran:
        """That run where it ended well; raises `RefusedError` with its first complaint."""
        if ran.code == 0:
            return ran
        said = next((line.strip() for line in (ran.err or ran.out).splitlines() if line.strip()), "no message")
        raise RefusedError(
            _status_of(ran.text), f"{what or ran.shown.split()[0]} ended with status {ran.code}: {said[:300]}"
        )

    def read(self, name: str) -> str:
        """A file that a command wrote into the scratch folder."""
        file = self.folder / name
        if not file.is_file():
            raise RefusedError("failed", f"No {name} was written.")
        with file.open("rb") as stream:
            return self.scrub(stream.read(_READ).decode(errors="replace"))

    # ---- the workload -----------------------------------------------------------------------------------------------

    def program(self, *more: str, **changes: Any) -> list[str]:
        """The command of the workload, with other sizes where they are given."""
        given = self.workload.model_copy(update=changes)
        sizes = {
            "hidden": given.hidden_size, "layers": given.num_layers, "heads": given.num_heads, "kv-heads": given.num_kv_heads,
            "intermediate": given.intermediate_size, "vocab": given.vocab_size, "batch": given.batch_size, "prompt": given.prompt,
            "tokens": given.tokens, "threads": given.threads,
        }  # fmt: skip
        words = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
        kinds = [*(["--model", given.model] if given.model != "llama" else []), *(["--dtype", given.dtype] if given.dtype != "float32" else [])]  # fmt: skip
        kinds += ["--device", given.device] if given.device != "cpu" else []
        return [self.python, str(PROGRAMS / "generate.py"), *kinds, *words, *more]

    def generated(self, ran: Ran) -> dict[str, Any]:
        """What the workload found, its last line; raises `RefusedError` where it did not come so far."""
        lines = [line for line in self.good(ran, "The workload").out.splitlines() if line.startswith("{")]
        if not lines:
            raise RefusedError("failed", "The workload said nothing of what it found.")
        return dict(json.loads(lines[-1]))

    @contextlib.contextmanager
    def talk(self, prefix: Sequence[str] = (), *more: str, seconds: float = 120.0, **changes: Any) -> Iterator[Talk]:
        """The workload below `prefix`, stopped at its marks; ended with the block."""
        command = [*prefix, *self.program("--pause", *more, **changes)]
        child = start(command, folder=self.folder, environment={"HF_HUB_OFFLINE": "1"}, stderr=NOTHING)
        try:
            yield Talk(child, seconds, self.checkpoint)
        finally:
            child.end()
            child.stdout.close()

    # ---- repetitions ------------------------------------------------------------------------------------------------

    def repeated(self, field_name: str, values: Sequence[float]) -> float:
        """The median of what was measured several times; the record keeps how far they lie apart."""
        self.spread[field_name] = Spread(repetitions=len(values), least=min(values), most=max(values))
        return statistics.median(values)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[Callable[[], Noise]]:
        """Watches how busy the machine is with other things; call what it gives at the end."""
        load, began, waited = os.getloadavg()[0], time.monotonic(), _pressure()

        def noise() -> Noise:
            now, passed = _pressure(), max(time.monotonic() - began, 1e-6)
            part = None if now is None or waited is None else round(100 * (now - waited) / 1e6 / passed, 1)
            return Noise(pressure_percent=part, load=round(load, 2), spread=dict(self.spread))

        yield noise

    def other(self, **changes: Any) -> Bench:
        """The same with another workload."""
        return replace(self, workload=self.workload.model_copy(update=changes))


def _pressure() -> int | None:
    """Microseconds in which something waited for a CPU, since the machine started."""
    try:
        first = Path("/proc/pressure/cpu").read_text().splitlines()[0]
        return int(first.rpartition("total=")[2])
    except (OSError, ValueError, IndexError):
        return None


_DENIALS = (
    "permission denied", "operation not permitted", "not permitted", "err_nvgpuctrperm", "access is denied", "must be root", "only root",
    "requires root", "no permission", "cannot get access to msrs", "perf_event_paranoid",
)  # fmt: skip
_LACKS = (
    "not supported",
    "no pmu",
    "no cuda-capable device",
    "no such device",
    "cuda driver version is insufficient",
    "unknown metric",
)


def _status_of(text: str) -> str:
    """Whether a complaint is a refusal, a lack, or a failure."""
    lower = text.lower()
    if any(word in lower for word in _DENIALS):
        return "denied"
    return "unsupported" if any(word in lower for word in _LACKS) else "failed"


def _short(line: str) -> str:
    return line if len(line) <= 120 else f"{line[:117]}..."
