"""Uninstalling: a file that nobody touched since is restored, out of an edited one only the entry goes.

Whatever an install made and nobody uses (files, folders, the backup) goes too, and every step is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from opscope_schemas.errors import InputError

from opscope_clients.hosts import files, record
from opscope_clients.hosts.change import Change, ConfigText
from opscope_clients.hosts.edits import MISSING
from opscope_clients.hosts.record import Record, entry_of, ours
from opscope_clients.hosts.table import Host, Scope, Where


@dataclass
class Plan:
    """What an uninstall would do, the steps to tell, and what to do once the files are changed."""

    changes: list[Change] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)


def plan(host: Host, scope: Scope, name: str, *, where: Where, force: bool = False) -> Plan:
    """Read what is there and decide; raises `InputError` where there is nothing to uninstall."""
    file = host.file(scope, where)
    known = record.load(file)
    held = files.read(file)
    if known is None or name not in known.entries:
        return _unrecorded(host, scope, ConfigText(host, held, name), force=force)
    return _recorded(host, held, known, name)


def _unrecorded(host: Host, scope: Scope, config: ConfigText, *, force: bool) -> Plan:
    """Of an entry that no record of ours tells of, only the entry itself is taken out."""
    name, file = config.name, config.held.path
    if config.entry is MISSING:
        raise InputError(
            f"{host.title} ({scope}) has no server {name!r} in {file}: there is nothing to uninstall.",
            next_step="opscope doctor lists where opscope is installed.",
        )
    command = host.command(entry_of(config.entry))
    if not ours(command) and not force:
        raise InputError(
            f"The server {name!r} of {host.title} is not opscope's: it runs {' '.join(command) or 'something else'}.",
            location=config.location,
            next_step="Give --force to take it out all the same.",
        )
    return Plan([config.take([])], [f"took the server {name!r} out of {file}"])


def _recorded(host: Host, held: files.Held, known: Record, name: str) -> Plan:
    last = set(known.entries) == {name}
    plan = Plan()
    untouched = bool(known.digest) and files.digest(held.data) == known.digest
    if held.data is None:
        plan.said.append(f"{held.path} is no longer there")
    elif not (last and untouched and _restored(held, known, plan)):
        _taken(host, held, known, name, plan)
    if last:
        _leave(known, plan)
    after = plan.changes[0].after if plan.changes else held.data

    def forget() -> None:
        known.entries.pop(name)
        known.previous.pop(name, None)
        known.digest = files.digest(after) if untouched else ""
        record.save(known)

    plan.after.append(forget)
    return plan


def _restored(held: files.Held, known: Record, plan: Plan) -> bool:
    """The file as it was before; False where its backup is gone."""
    if not known.existed:
        plan.changes.append(Change(held, None))
        plan.said.append(f"removed {held.path}, which the install had made")
        return True
    try:
        data = Path(known.backup).read_bytes()
    except OSError:
        plan.said.append(f"the backup {known.backup} is gone")
        return False
    if known.backup_digest and files.digest(data) != known.backup_digest:
        plan.said.append(f"left the backup {known.backup}, which is no longer what was there before")
        known.backup = ""
        return False
    plan.changes.append(Change(held, data))
    plan.said.append(f"restored {held.path} as it was")
    return True


def _taken(host: Host, held: files.Held, known: Record, name: str, plan: Plan) -> None:
    """Only the entry out of a file that was edited since, or that holds another one of ours."""
    config = ConfigText(host, held, name)
    if config.entry is MISSING:
        plan.said.append(f"the server {name!r} was already taken out of {held.path}")
        return
    previous = known.previous.get(name)
    if previous is not None:
        plan.changes.append(config.put(previous))
        plan.said.append(f"put back the server {name!r} that was in {held.path} before")
        return
    change = config.take(known.containers())
    if not known.existed and set(known.entries) == {name} and (change.after or b"").strip() in {b"", b"{}"}:
        plan.changes.append(Change(held, None))
        plan.said.append(f"removed {held.path}, which the install had made")
        return
    plan.changes.append(change)
    plan.said.append(f"took the server {name!r} out of {held.path}, and left what was edited since")


def _leave(known: Record, plan: Plan) -> None:
    """The other files, the backup and the folders of an install that ends."""
    folders = [Path(folder) for folder in known.folders]
    for name, facts in known.extras.items():
        held = files.read(Path(name))
        folders += [Path(folder) for folder in facts["folders"]]
        if held.data is None:
            continue
        if files.digest(held.data) != facts["digest"]:
            plan.said.append(f"left {name}, which was edited since")
            continue
        restored = _other_backup(facts["backup"])
        plan.changes.append(Change(held, restored))
        plan.said.append(f"restored {name} as it was" if restored is not None else f"removed {name}")
        if restored is not None:
            plan.after.append(lambda copy=facts["backup"]: files.remove(Path(copy)))  # type: ignore[misc]  # mypy cannot type a default of a lambda

    def clear() -> None:
        if known.backup:
            files.remove(Path(known.backup))
        files.remove_folders(sorted(folders))

    plan.after.append(clear)


def _other_backup(path: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"The backup {path} cannot be read: {error.strerror}.") from None


def make(plan: Plan) -> list[str]:
    """Do it; what was done, a line each. Raises `OpscopeError`."""
    for change in plan.changes:
        change.make()
    for step in plan.after:
        step()
    return plan.said
