"""Runs a command where it can neither see this machine's homes nor reach any network but its own loopback.

`command(...)` wraps an argument list in fresh mount and network namespaces; run as a script, this file is what happens
inside them: homes and managed settings are covered with empty folders, loopback is brought up, the command takes over.
Foreign agents look into hard-coded folders and call their vendors whatever their environment says, so an environment
alone does not keep them out.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

#: folders that a user's or an administrator's settings and credentials lie under
COVERED = ("/root", "/home", "/etc/claude-code", "/Users")
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def command(arguments: Sequence[str], keep: Sequence[Path] = ()) -> list[str]:
    """`arguments` in namespaces of their own; `keep` are folders that stay visible though a home holds them."""
    keep_paths = {str(path.resolve()) for path in (*keep, Path(sys.prefix), Path(sys.base_prefix), _ROOT)}
    spec = json.dumps({"arguments": list(arguments), "keep": sorted(keep_paths)})
    return [*_unshare(), sys.executable, str(Path(__file__).resolve()), spec]


@cache
def refusal() -> str:
    """Why commands cannot be isolated here; empty where they can."""
    if not sys.platform.startswith("linux") or not shutil.which("unshare"):
        return "needs Linux namespaces (util-linux's unshare)"
    tried = subprocess.run(command(["true"]), capture_output=True, text=True, timeout=60, check=False)
    return "" if tried.returncode == 0 else f"no fresh namespaces here: {tried.stderr.strip()[-200:]}"


_ROOT = Path(__file__).resolve().parents[2]


def _unshare() -> list[str]:
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--net", "--mount", *own]


def _enter(arguments: list[str], keep: list[str]) -> None:
    for folder in COVERED:
        if Path(folder).is_dir():
            _cover(folder, [path for path in keep if Path(path).is_relative_to(folder)])
    _loopback_up()
    os.execvp(arguments[0], arguments)


def _cover(folder: str, keep: list[str]) -> None:
    """An empty folder over `folder`, in which only the kept ones are seen."""
    held = []
    for path in keep:
        behind = tempfile.mkdtemp(prefix="kept-")
        _mount("--bind", path, behind)
        held.append((behind, path))
    _mount("-t", "tmpfs", "none", folder)
    for behind, path in held:
        Path(path).mkdir(parents=True, exist_ok=True)
        _mount("--bind", behind, path)
        subprocess.run(["umount", behind], check=True)
        Path(behind).rmdir()


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    _enter(given["arguments"], given["keep"])
