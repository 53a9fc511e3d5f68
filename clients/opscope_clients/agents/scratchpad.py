"""SCRATCHPAD.md: the notes of a run, of the agent and of this client; the only file that an agent may edit."""

from __future__ import annotations

from pathlib import Path

from opscope_schemas.errors import InputError, OutputError

from opscope_clients.documents import write_text

__all__ = ["NAME", "Scratchpad"]

NAME = "SCRATCHPAD.md"
_LIMIT = 500_000


class Scratchpad:
    """The file in the output folder. What an older run noted stays."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def text(self) -> str:
        """What it holds; empty where there is none yet."""
        try:
            return self.path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise OutputError(f"{self.path} cannot be read: {error}.", next_step="Move it away.") from None

    def note(self, text: str) -> None:
        """Append a paragraph; raises `OutputError`."""
        before = self.text().rstrip("\n")
        self._write(f"{before}\n\n{text.strip()}\n" if before else f"{text.strip()}\n")

    def edit(self, old: str, new: str) -> str:
        """What an agent's edit does: replace `old`, which must occur once, or append where it is empty."""
        if not old:
            self.note(new)
            return "Appended."
        text = self.text()
        if text.count(old) != 1:
            raise InputError(
                f"The text to replace occurs {text.count(old)} times in {NAME}.",
                next_step="Read it and give a passage that occurs once, or an empty `old` to append.",
            )
        self._write(text.replace(old, new))
        return "Replaced."

    def _write(self, text: str) -> None:
        if len(text) > _LIMIT:
            raise InputError(f"{NAME} would exceed {_LIMIT:,} characters.", next_step="Note less.")
        write_text(self.path.parent, NAME, text)
