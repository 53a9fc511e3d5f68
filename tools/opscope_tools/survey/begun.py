"""What a scan of a repository had read when it was stopped, kept for the next one: each file's facts, while it is as it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
from opscope_cache.store import Store, recall
from opscope_cache.trees import Signature

from opscope_tools.survey.facts import FileFacts

__all__ = ["Begun"]


@dataclass
class _Read:
    """A file that was read: as what it was then, under which module name, and what it said."""

    signature: list[int]
    name: str
    facts: FileFacts


@dataclass(frozen=True)
class Begun:
    """The beginning of a scan, in the store under `key`, which names code and repository."""

    store: Store
    key: str

    def known(self, files: Mapping[str, Signature], names: Mapping[str, str]) -> list[FileFacts]:
        """The facts of those of `files` that are as they were when they were read."""
        kept = recall(self.store, self.key, lambda text: msgspec.json.decode(text, type=list[_Read])) or []
        return [
            one.facts
            for one in kept
            if list(files.get(one.facts.path, ())) == one.signature and names.get(one.facts.path, "") == one.name
        ]

    def keep(self, found: Iterable[FileFacts], files: Mapping[str, Signature], names: Mapping[str, str]) -> None:
        """Remember what was read."""
        read = [_Read(list(files[one.path]), names.get(one.path, ""), one) for one in found]
        self.store.put(self.key, msgspec.json.encode(read).decode())
