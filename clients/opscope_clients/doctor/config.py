"""Checks of hosts: in which of them opscope is installed, and whether what they would start is still there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from opscope_clients.doctor.findings import Finding
from opscope_clients.hosts.install import installed
from opscope_clients.hosts.table import HOSTS, Where

_PURPOSE = "starts the server for an agent"


def hosts(where: Where) -> Iterator[Finding]:
    """A finding for each server of ours in a host's config, for each config that cannot be read, and for none at all."""
    found, unread = installed(HOSTS.values(), where)
    for server in found:
        label = f"{server.host.title} ({server.scope})"
        said = f"{server.name!r} in {server.file}: {shlex.join(server.command)}"
        fix = (
            f"{server.stale} is gone: opscope install {server.host.key} --{server.scope} --name {server.name} --force."
        )
        yield Finding(
            "hosts", label, "stale" if server.stale else "ok", said, _PURPOSE, fix=fix if server.stale else "",
            facts={"file": str(server.file), "name": server.name, "command": server.command, "gone": server.stale},
        )  # fmt: skip
    for reason in unread:
        yield Finding("hosts", "config", "failed", reason, _PURPOSE)
    if not found and not unread:
        yield Finding("hosts", "config", "missing", "none", _PURPOSE, fix=f"opscope install {'|'.join(HOSTS)}")
