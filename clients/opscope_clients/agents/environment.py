"""What an agent's process gets to see of the environment: what it needs to run and to reach its model, nothing else.

The SDK hands its own process's environment on, so it is replaced while the agent starts. The server that the agent
starts in turn gets none of the keys.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

__all__ = ["for_agent", "for_server", "replaced"]

_NAMES = frozenset(
    "HOME USER LOGNAME PATH LANG LANGUAGE TZ TERM TMPDIR TEMP TMP SHELL SYSTEMROOT APPDATA LOCALAPPDATA USERPROFILE "
    "HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy "
    "SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE LD_LIBRARY_PATH VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONUTF8 "
    "DISABLE_TELEMETRY DISABLE_ERROR_REPORTING DISABLE_AUTOUPDATER".split()
)
_PREFIXES = ("LC_", "XDG_", "ANTHROPIC_", "CLAUDE_CODE_", "CLAUDE_CONFIG_", "AWS_", "GOOGLE_", "CLOUD_ML_",
             "VERTEX_", "AZURE_", "OPSCOPE_", "HF_", "GIT_CONFIG_")  # fmt: skip
#: what pays for the agent or speaks for the user: no business of a server's
_KEYS = ("ANTHROPIC_", "AWS_", "GOOGLE_", "AZURE_", "CLAUDE_CODE_", "HF_TOKEN")
#: the agent waits for its servers before it begins, has all tools in view, and keeps to this run
FIXED = {
    "MCP_CONNECTION_NONBLOCKING": "0",
    "ENABLE_TOOL_SEARCH": "false",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "DISABLE_AUTOUPDATER": "1",
}


def for_agent(given: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that an agent needs."""
    return {name: value for name, value in given.items() if name in _NAMES or name.startswith(_PREFIXES)}


def for_server(given: Mapping[str, str]) -> dict[str, str]:
    """What the agent's own server gets over the agent's environment: every key emptied."""
    return {name: "" for name in given if name.startswith(_KEYS)}


@contextlib.contextmanager
def replaced(environment: Mapping[str, str]) -> Iterator[None]:
    """This process has `environment` while inside."""
    kept = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)
