"""Installing: the entry into the host's config and the host's other files beside it, each file backed up once.

Order: the plan, which reads and refuses but writes nothing; making it; the other files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opscope_schemas.errors import InputError, OpscopeError

from opscope_clients.hosts import extras, files, record
from opscope_clients.hosts.change import Change, ConfigText
from opscope_clients.hosts.edits import MISSING
from opscope_clients.hosts.record import Record, entry_of, ours
from opscope_clients.hosts.table import Host, Scope, Where


@dataclass
class Plan:
    """What an install would do."""

    host: Host
    name: str
    note: Record
    config: Change
    #: containers that the config did not have
    absent: list[list[str]]
    others: list[Change] = field(default_factory=list)
    entry: dict[str, Any] = field(default_factory=dict)
    #: the entry that --force replaces
    replaced: Any = MISSING

    @property
    def changes(self) -> list[Change]:
        """The files that would change."""
        return [change for change in (self.config, *self.others) if not change.none]


def plan(host: Host, scope: Scope, name: str, command: Sequence[str], *, where: Where, force: bool = False) -> Plan:
    """Read what is there and decide; raises `InputError` where something of the user's own is in the way."""
    held = files.read(host.file(scope, where))
    config = ConfigText(host, held, name)
    entry = host.entry(command)
    note = _note(host, scope, config)
    change = Change(held, held.data)
    replaced = MISSING
    if config.entry != entry:
        if config.entry is not MISSING and note.entries.get(name, MISSING) != config.entry:
            if not force:
                raise _in_the_way(config, name)
            replaced = MISSING if name in note.entries else config.entry
        change = config.put(entry)
    made = Plan(host, name, note, change, config.absent, entry=entry, replaced=replaced)
    root = where.project if scope == "project" else where.home
    texts = {root / path: text for path, text in extras.extra_files(host, scope, name).items()}
    made.others = [_other(path, text, note, force=force) for path, text in texts.items()]
    return made


def _note(host: Host, scope: Scope, config: ConfigText) -> Record:
    """What is known of the file, or a fresh record where all that is known is gone from it."""
    known = record.load(config.held.path)
    if known is not None:
        still = any(ConfigText(host, config.held, name).entry is not MISSING for name in known.entries)
        if still or (known.backup and _content(known.backup) == config.held.data):
            return known
    return Record(host.key, scope, str(config.held.path))


def _in_the_way(config: ConfigText, name: str) -> InputError:
    what = " ".join(config.host.command(entry_of(config.entry))) or "something else"
    return InputError(
        f"{config.host.title} already has a server {name!r} that this did not write: {what}.",
        location=config.location,
        next_step="Give --force to replace it (uninstall puts it back), or --name OTHER for a second one.",
    )


def _other(path: Path, text: str, note: Record, *, force: bool) -> Change:
    held = files.read(path)
    change = Change(held, text.encode())
    known = note.extras.get(str(path), {}).get("digest")
    if held.data is not None and not change.none and files.digest(held.data) != known and not force:
        raise InputError(
            f"{path} is there already, with another text.",
            next_step="Give --force to replace it (uninstall puts it back), or move it away.",
        )
    return change


# ---- making it


def make(plan: Plan) -> list[str]:
    """Do it; what was done, a line each. Raises `OutputError`, and then all is as it was."""
    undo: list[Path] = []
    said: list[str] = []
    made: list[Change] = []
    before = record.load(plan.config.held.path)
    try:
        said += _make_config(plan, undo)
        made.append(plan.config)
        for change in plan.others:
            said += _make_other(plan.note, change, undo)
            made.append(change)
    except OpscopeError:
        for change in reversed(made):
            change.undo()
        for copy in undo:  # only now: where a file cannot be put back, its copy is all that is left of it
            files.remove(copy)
        files.remove_folders([Path(folder) for folder in _folders(plan.note, before)])
        record.save(before or Record(plan.host.key, "", str(plan.config.held.path)))
        raise
    return said


def _folders(note: Record, before: Record | None) -> list[str]:
    """The folders that were made since `before`, the outermost first."""
    all_of = [*note.folders, *(folder for facts in note.extras.values() for folder in facts["folders"])]
    known = [*before.folders, *(f for facts in before.extras.values() for f in facts["folders"])] if before else []
    return sorted({*all_of} - {*known})


def _make_config(plan: Plan, undo: list[Path]) -> list[str]:
    note, held = plan.note, plan.config.held
    first = not note.entries
    if plan.config.none:
        if first and plan.others:  # written by hand: only the other files are ours to take back
            note.entries[plan.name] = plan.entry
            record.save(note)
        return []
    if first:
        note.existed = held.data is not None
        note.made, note.folders = plan.absent, [str(folder) for folder in files.missing_folders(held.target)]
        if held.data is not None and not note.backup:
            undo.append(files.back_up(held))
            note.backup, note.backup_digest = str(undo[-1]), files.digest(held.data)
    # a file that was edited since we wrote it is never restored as a whole: the edits would be lost
    untouched = first or files.digest(held.data) == note.digest
    note.digest = files.digest(plan.config.after) if untouched else ""
    note.entries[plan.name] = plan.entry
    if plan.replaced is not MISSING:
        note.previous[plan.name] = plan.replaced
    record.save(note)  # first: a record without its entry does no harm
    plan.config.make()
    return [f"wrote {held.path}"] + ([f"kept what was there as {note.backup}"] if undo else [])


def _make_other(note: Record, change: Change, undo: list[Path]) -> list[str]:
    if change.none:
        return []
    path, copy = change.held.path, ""
    known = note.extras.get(str(path))
    if known is None:
        if change.held.data is not None:
            undo.append(files.back_up(change.held))
            copy = str(undo[-1])
        folders = [str(folder) for folder in files.missing_folders(change.held.target)]
        known = note.extras[str(path)] = {"backup": copy, "folders": folders}
    known["digest"] = files.digest(change.after)
    record.save(note)
    change.make()
    return [f"wrote {path}"] + ([f"kept what was there as {copy}"] if copy else [])


def _content(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


# ---- where it is


@dataclass(frozen=True)
class Installed:
    """A server of ours in a host's config: `stale` says what of its command is no longer there."""

    host: Host
    scope: Scope
    file: Path
    name: str
    command: list[str]
    stale: str = ""


def installed(hosts: Iterable[Host], where: Where) -> tuple[list[Installed], list[str]]:
    """Every server of ours in the configs of `hosts`, by us or by hand; and configs that cannot be read, with the reason."""
    found: list[Installed] = []
    unread: list[str] = []
    for host in hosts:
        for scope in host.files:
            file = host.file(scope, where)
            try:
                config = ConfigText(host, files.read(file), "opscope")
                servers = host.format.get(config.text, config.path[:-1])
            except OpscopeError as error:
                unread.append(str(error))
                continue
            for name, entry in entry_of(servers).items():
                command = host.command(entry_of(entry))
                if ours(command):
                    found.append(Installed(host, scope, file, name, command, _stale(command)))
    return found, unread


def _stale(command: list[str]) -> str:
    """The first path of a command that is not there."""
    for part, following in zip(command, [*command[1:], ""], strict=True):
        path = following.partition("=")[2] if part == "--repo" else following if part == "--python" else ""
        path = command[0] if part is command[0] and Path(part).is_absolute() else path
        if path and not Path(path).exists():
            return path
    return ""
