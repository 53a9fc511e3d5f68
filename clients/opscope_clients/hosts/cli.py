"""`opscope install` and `opscope uninstall`."""

from __future__ import annotations

import contextlib
import shlex
from typing import get_args

import click
from opscope_schemas.errors import InputError

from opscope_clients import console
from opscope_clients.hosts import command as commands
from opscope_clients.hosts import install as installing
from opscope_clients.hosts import record
from opscope_clients.hosts import uninstall as uninstalling
from opscope_clients.hosts.change import Change
from opscope_clients.hosts.edits import NAME
from opscope_clients.hosts.table import HOSTS, Host, Scope, Where
from opscope_clients.session_options import SessionCommand, SessionOptions, command


def install_command() -> SessionCommand:
    """`opscope install HOST`."""
    return command(
        install,
        "install",
        "Put opscope's MCP server into HOST's config. What is there stays, byte for byte; a file that was there is "
        "copied first. Session options (--repo, --trust, --python, --cache-dir, --output) go into the entry, as absolute paths.",
        [
            *_parameters("Replace what of the user's own is in the way; uninstall puts it back."),
            click.Option(["--toolset"], multiple=True, metavar="NAME,...", help="As `serve` takes it. Repeatable."),
        ],
    )


def uninstall_command() -> SessionCommand:
    """`opscope uninstall HOST`."""
    return command(
        uninstall,
        "uninstall",
        "Take opscope's MCP server out of HOST's config. A file that nobody touched since the install is restored; "
        "out of an edited one only the entry goes.",
        _parameters("Take out a server of that name even if it is not opscope's."),
    )


def _parameters(force: str) -> list[click.Parameter]:
    return [
        click.Argument(["host"], type=click.Choice(list(HOSTS)), metavar="HOST"),
        *(
            click.Option([f"--{scope}", "scope"], flag_value=scope, multiple=True, help=help_text)
            for scope, help_text in (
                ("user", "The config of all your projects (default)."),
                ("project", "The config of the project in this folder."),
            )
        ),
        click.Option(["--name"], default="opscope", show_default=True, help="Name of the server in the config."),
        click.Option(["--force"], is_flag=True, help=force),
        click.Option(["--dry-run"], is_flag=True, help="Print what would change as a diff, and change nothing."),
    ]


def install(
    session: SessionOptions,
    host: str,
    scope: tuple[str, ...],
    name: str,
    force: bool,
    dry_run: bool,
    toolset: tuple[str, ...],
) -> None:
    """Install and say what was done."""
    chosen, where = HOSTS[host], Where()
    target = _scope(scope)
    _check(name)
    launch = commands.launch(session, toolset)
    chosen.file(target, where)  # a scope that there is not is told before anything is made
    with contextlib.nullcontext() if dry_run else record.alone():
        _install(chosen, target, name, launch, session, where, force=force, dry_run=dry_run)


def _install(
    chosen: Host,
    target: Scope,
    name: str,
    launch: list[str],
    session: SessionOptions,
    where: Where,
    *,
    force: bool,
    dry_run: bool,
) -> None:
    plan = installing.plan(chosen, target, name, launch, where=where, force=force)
    for warning in commands.warnings(launch, session, host=chosen.key):
        console.err().print(f"opscope: {warning}", markup=False, soft_wrap=True)
    label = f"{chosen.title} ({target})"
    if not plan.changes:
        click.echo(f"{label} has the server {name!r} already, in {plan.config.held.path}: nothing changed.")
    elif dry_run:
        _show(plan.changes)
    else:
        for line in installing.make(plan):
            click.echo(f"{label}: {line}")
        click.echo(f"{label} starts: {shlex.join(launch)}")
        click.echo(chosen.then[target])


def uninstall(
    session: SessionOptions, host: str, scope: tuple[str, ...], name: str, force: bool, dry_run: bool
) -> None:
    """Uninstall and say what was done."""
    del session  # taken as every command takes it; the entry is found by its name
    chosen: Host = HOSTS[host]
    target = _scope(scope)
    _check(name)
    with contextlib.nullcontext() if dry_run else record.alone():
        plan = uninstalling.plan(chosen, target, name, where=Where(), force=force)
        if dry_run:
            _show([change for change in plan.changes if not change.none])
            return
        for line in uninstalling.make(plan):
            click.echo(f"{chosen.title} ({target}): {line}")


def _show(changes: list[Change]) -> None:
    for change in changes:
        console.emit(change.diff())


def _scope(given: tuple[str, ...]) -> Scope:
    if len(set(given)) > 1:
        raise click.UsageError("--user and --project exclude each other.")
    return next((scope for scope in get_args(Scope) if scope in given), "user")


def _check(name: str) -> None:
    if not NAME.fullmatch(name):
        raise InputError(
            f"--name {name!r} cannot name a server in every host.",
            next_step="Use up to 64 letters, digits, hyphens and underscores.",
        )
