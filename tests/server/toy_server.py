"""A stdio server over the toy tools, as a process; prints at import time and at exit, as careless libraries do."""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path

from opscope_server.wire import reserve

WIRE = reserve()
sys.stdout.write("printed while importing\n")
atexit.register(lambda: sys.stdout.write("printed at exit\n"))

from opscope_cache.store import MemoryStore  # noqa: E402 - stdout is reserved first, as in the real server
from opscope_server.access import token_of  # noqa: E402
from opscope_server.launch import announce  # noqa: E402
from opscope_server.server import build_server  # noqa: E402
from opscope_server.settings import Settings  # noqa: E402
from opscope_server.transports import run_http, run_stdio  # noqa: E402
from opscope_tools.running.workspace import Workspace  # noqa: E402
from toys import TOYS  # noqa: E402

if __name__ == "__main__":
    workspace = Workspace(repositories={}, output=Path(sys.argv[1]), store=MemoryStore())
    given = {"port": 0, "grace": 1.0, "log_level": "INFO", **json.loads(os.environ.get("TOY_SETTINGS", "{}"))}
    server = build_server(workspace, Settings(**given, token=token_of(None, os.environ)), tools=TOYS)
    if "--http" in sys.argv:
        run_http(server, announce=announce)
    else:
        run_stdio(server, WIRE)
