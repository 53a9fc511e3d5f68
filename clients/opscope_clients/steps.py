"""Terminal progress of the scripted analysis: named steps, as a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

#: the protocol by kind of report
STEPS = {
    "implementation": ("Reconnaissance", "Architecture", "Data flow", "Components", "Report"),
    "repo": ("Reconnaissance", "Report"),
}


class Steps:
    """Where the analysis is. `begin` opens a step, `say` tells what it is doing."""

    def __init__(self, console: Console, kind: str = "implementation") -> None:
        self._console = console
        self._steps = STEPS[kind]
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._step = 0

    @contextlib.contextmanager
    def shown(self) -> Iterator[Steps]:
        """Show the progress while inside."""
        if not self._console.is_terminal:
            yield self
            return
        bar = Progress(
            TextColumn("[progress.description]{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[doing]}"),
            console=self._console,
            transient=True,
        )
        with bar:
            self._bar = bar
            self._task = bar.add_task(self._steps[0], total=len(self._steps), doing="")
            try:
                yield self
            finally:
                self._bar = self._task = None

    def begin(self, name: str) -> None:
        """Enter the step `name`."""
        self._step = self._steps.index(name)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._step, description=name, doing="")

    def say(self, doing: str) -> None:
        """Tell what the step is doing."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, doing=doing[:60])
