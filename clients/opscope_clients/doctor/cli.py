"""`opscope doctor`: runs the checks in order, prints each as it is known, and says at the end what to do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict

import click

from opscope_clients import console
from opscope_clients.doctor import config, places, required, server, tools
from opscope_clients.doctor.findings import Finding
from opscope_clients.hosts.table import Where
from opscope_clients.session_options import SessionCommand, SessionOptions, command

_MARKS = {"ok": "ok", "missing": "--", "failed": "!!", "stale": "!!"}


def doctor_command() -> SessionCommand:
    """The command."""
    return command(
        doctor,
        "doctor",
        "Check interpreter, repositories, cache, server, optional tools and hosts. Exit status 0: what opscope needs is there; "
        "1: something is not, and what to do about it is said.",
        [click.Option(["--json", "as_json"], is_flag=True, help="Every finding as JSON.")],
    )


def findings(session: SessionOptions) -> Iterator[Finding]:
    """Every check, in the order of printing."""
    yield from required.interpreters(session.python or os.environ.get("OPSCOPE_PYTHON"))
    yield from places.repositories(session)
    yield places.cache(session)
    yield server.server(session)
    yield from tools.optional()
    yield from config.hosts(Where())


def doctor(session: SessionOptions, as_json: bool) -> int:
    """Print the findings; 1 where something that is needed does not work."""
    seen: list[Finding] = []
    section = ""
    for finding in findings(session):
        seen.append(finding)
        if as_json:
            continue
        if finding.section != section:
            section = finding.section
            console.say(section)
        console.say(_line(finding))
    broken = [finding for finding in seen if finding.broken]
    if as_json:
        document = {"ok": not broken, "findings": [asdict(finding) for finding in seen]}
        console.emit(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
    elif broken:
        console.say(f"{len(broken)} of what opscope needs does not work: {', '.join(one.name for one in broken)}.")
    else:
        console.say("What opscope needs is there.")
    return 1 if broken else 0


def _line(finding: Finding) -> str:
    lines = [f"  {_MARKS[finding.status]}  {finding.name}: {finding.found}"]
    if finding.section == "tools":
        lines.append(f"      for: {finding.purpose}")
    if finding.fix:
        lines.append(f"      do: {finding.fix}")
    return "\n".join(lines)
