"""Files that a host takes beside its config, such as a slash command: what they are, and how they come and go.

`extra_files` is the one place to name them. They follow the rules of config files: a backup of what was there, nothing of
the user's is written over without --force, an uninstall puts back what was there unless the file was edited since.
"""

from __future__ import annotations

from collections.abc import Mapping

from opscope_clients.hosts.table import Host, Scope


def extra_files(host: Host, scope: Scope, name: str) -> Mapping[str, str]:
    """Path relative to the project's root (project scope) or the home folder (user scope) -> text, for server `name`."""
    if (host.key, scope) != ("claude-code", "project"):
        return {}
    from opscope_clients.claude_code import project_commands  # here: it loads the prompts

    return {f".claude/commands/{file}": text for file, text in project_commands(name).items()}
