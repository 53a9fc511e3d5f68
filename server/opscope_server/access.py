"""Who may talk to a server over HTTP: the bearer token, and the Host and Origin headers that are taken.

On loopback a token is optional, and asked for where one is given; beyond it none may listen without one. The token comes from
a file or the environment, never from the command line, which every user of the machine can read. It is held as a digest, and
stands in no message.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import stat
from collections.abc import MutableMapping
from pathlib import Path

from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from opscope_schemas.errors import InputError
from pydantic import AnyHttpUrl

#: the environment's name for the token, on servers and clients
VARIABLE = "OPSCOPE_HTTP_TOKEN"
#: characters that a token has at least: 32 of base64 are 192 bits, of hex 128
LEAST = 32
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
#: what RFC 6750 lets a bearer token be
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*\Z")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._\-]+)(:[0-9]{1,5})?\Z")
_MAKE_ONE = 'Make one with `python -c "import secrets; print(secrets.token_urlsafe(32))"`.'


class Token:
    """A token that is compared and never shown."""

    def __init__(self, text: str) -> None:
        self._digest = _digest(text)

    def matches(self, text: str) -> bool:
        """Whether `text` is the token, in a time that does not tell how nearly."""
        return hmac.compare_digest(_digest(text), self._digest)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()


def token_of(file: str | None, environment: MutableMapping[str, str]) -> Token | None:
    """The token in `file`, else the environment's, which is taken out of it: what this process starts does not inherit it.

    Raises `InputError` without quoting the token.
    """
    inherited = environment.pop(VARIABLE, "").strip()
    text = _read(Path(file).expanduser()) if file else inherited
    if not text and not file:
        return None
    where = f"The token in {file}" if file else f"The token in {VARIABLE}"
    if len(text) < LEAST:
        raise InputError(f"{where} has {len(text)} characters; it needs at least {LEAST}.", next_step=_MAKE_ONE)
    if not _TOKEN.match(text):
        raise InputError(f"{where} holds a character that no bearer token may have.", next_step=_MAKE_ONE)
    return Token(text)


def _read(path: Path) -> str:
    try:
        if path.stat().st_mode & stat.S_IROTH:
            raise InputError(f"The token file {path} can be read by every user.", next_step=f"Run `chmod 600 {path}`.")
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise InputError(f"The token file {path} cannot be read: {error.strerror or error}.") from None


def check_reach(host: str, token: Token | None) -> None:
    """Raise `InputError` where a server would listen beyond loopback without a token."""
    if token is None and host not in {"127.0.0.1", "localhost", "::1"}:
        raise InputError(
            f"A server on {host} can be reached from other machines, and needs a token.",
            next_step=f"Give --token-file FILE or {VARIABLE}, or listen on 127.0.0.1. {_MAKE_ONE}",
        )


class Verifier:
    """Tells the SDK whether a request's token is the server's; what it hands on does not hold it."""

    def __init__(self, token: Token) -> None:
        self._token = token

    async def verify_token(self, token: str) -> AccessToken | None:
        """The one principal there is, or None."""
        return AccessToken(token="", client_id="operator", scopes=[]) if self._token.matches(token) else None


def auth_settings() -> AuthSettings:
    """The SDK's settings for a token that no authorization server issues: no metadata is published that names one."""
    return AuthSettings(
        issuer_url=AnyHttpUrl("http://localhost/"), resource_server_url=None, validate_token_resource=False
    )


def security(host: str, port: int, names: tuple[str, ...]) -> TransportSecuritySettings:
    """Host and Origin checks, whatever address is bound: loopback, that address, and the operator's names; no other port.

    A name without a port is what a proxy on a default port passes on; it is taken with the bound port too.
    """
    bound = () if host in {"0.0.0.0", "::", ""} else (f"[{host}]" if ":" in host else host,)
    hosts = [f"{name}:{port}" for name in (*LOOPBACK, *bound)]
    if port == 80:
        hosts += [*LOOPBACK, *bound]
    for name in names:
        if not _HOST.match(name):
            raise InputError(
                f"--allow-host {name!r} is no host.", next_step="Give NAME or NAME:PORT, as in opscope.example.org."
            )
        plain = re.search(r":[0-9]+\Z", name.rpartition("]")[2]) is None
        hosts += [name.lower(), *([f"{name.lower()}:{port}"] if plain else [])]
    hosts = list(dict.fromkeys(hosts))
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{name}" for scheme in ("http", "https") for name in hosts],
    )
