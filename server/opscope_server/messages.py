"""What comes in from a client, looked at before the SDK sees it: whatever is wrong with a request, its id gets an answer.

The SDK drops a line that it cannot read, and takes a request whose id is no id for a notification; its sender waits for ever.
Order: the limits, what becomes of a message, reading one, the envelope, what a method needs. Where a message has no id
that can be told, the answer bears the id null, as JSON-RPC wants it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from mcp.types import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR

from opscope_server.scan import Scan

#: levels of lists and objects in one message, its envelope included
MOST_LEVELS = 64
#: bytes of one message
MOST_BYTES = 4 << 20
#: characters of an id
MOST_ID = 1024

Id = str | int | float | None
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class Answer:
    """An error for one request."""

    id: Id
    code: int
    message: str

    def text(self) -> str:
        """As it goes over the wire."""
        return json.dumps(self.document(), separators=(",", ":"))

    def document(self) -> dict[str, object]:
        """As JSON has it."""
        return {"jsonrpc": "2.0", "id": self.id, "error": {"code": self.code, "message": self.message}}


class Refused(Exception):  # noqa: N818 - an answer, not a failure of ours
    """A message that is not passed on, with what its sender is told: nothing, where it waits for no answer."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = answers
        super().__init__(answers[0].message if answers else "")


def read(raw: bytes) -> dict[str, Any]:
    """The message in `raw`, as the SDK may have it. Raises `Refused`."""
    if len(raw) > MOST_BYTES:
        raise too_long(Scan.of(raw))
    if raw.count(b"{") + raw.count(b"[") > MOST_LEVELS and (scan := Scan.of(raw)).deepest > MOST_LEVELS:
        raise _broken(scan, INVALID_REQUEST, f"The message nests deeper than {MOST_LEVELS} levels; flatten it.")
    message = _parsed(raw)
    if isinstance(message, list):
        raise _batch(message)
    if not isinstance(message, dict):
        raise Refused(Answer(None, INVALID_REQUEST, "A message is one JSON object."))
    _check_envelope(message)
    return message


def too_long(scan: Scan) -> Refused:
    """The refusal of a message that is longer than any may be."""
    return _broken(scan, INVALID_REQUEST, f"The message is longer than {MOST_BYTES:,} bytes; send less at once.")


def _broken(scan: Scan, code: int, sentence: str) -> Refused:
    """The refusal of what was not parsed."""
    if scan.members & {"result", "error"} and "method" not in scan.members:
        return Refused()  # an answer of the client's: nobody waits for one to it
    known = None if scan.batch else scan.id
    return Refused(Answer(known if _is_id(known) else None, code, sentence))


def _parsed(raw: bytes) -> object:
    try:
        message: object = json.loads(raw.decode(), parse_constant=_no_number, parse_float=_finite)
        if _SURROGATE.search(raw):
            json.dumps(message, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise _broken(Scan.of(raw), PARSE_ERROR, f"The message is not UTF-8 from byte {error.start} on.") from None
    except UnicodeEncodeError:
        sentence = "The message holds half of a surrogate pair, which is no character; send whole ones."
        raise _broken(Scan.of(raw), PARSE_ERROR, sentence) from None
    except json.JSONDecodeError as error:
        sentence = f"The message is not JSON: {error.msg[:1].lower()}{error.msg[1:]} at character {error.pos}."
        raise _broken(Scan.of(raw), PARSE_ERROR, sentence) from None
    except _NoNumberError as error:
        raise _broken(Scan.of(raw), PARSE_ERROR, f"{error} is no number of JSON; send a finite one.") from None
    except ValueError:  # the interpreter refuses whole numbers of more than 4,300 digits
        raise _broken(Scan.of(raw), PARSE_ERROR, "The message holds a number with too many digits.") from None
    return message


class _NoNumberError(ValueError):
    """A number that JSON does not have."""


def _no_number(text: str) -> NoReturn:
    raise _NoNumberError(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _NoNumberError(text[:20])
    return number


def _batch(messages: list[object]) -> Refused:
    """One answer to each request of the batch, so that nobody waits."""
    sentence = "A batch is no message of this protocol; send its messages one by one."
    ids = [m["id"] for m in messages if isinstance(m, dict) and "id" in m and "method" in m]
    return Refused(*(Answer(i if _is_id(i) else None, INVALID_REQUEST, sentence) for i in ids or [None]))


# ---- the envelope --------------------------------------------------------------------------------------------------


def _is_id(value: object) -> bool:
    """Whether an answer can bear it: what JSON-RPC allows, of a sensible length."""
    if value is None or isinstance(value, float):
        return True
    return isinstance(value, str | int) and not isinstance(value, bool) and len(str(value)) <= MOST_ID


def _check_envelope(message: Mapping[str, Any]) -> None:
    """Raise `Refused` unless the SDK takes the message for what it is."""
    if "method" not in message and message.keys() & {"result", "error"}:
        _check_response(message)
        return
    given = message.get("id")
    known: Id = given if _is_id(given) else None

    def refuse(sentence: str, code: int = INVALID_REQUEST) -> NoReturn:
        # what bears a method and no id is a notification, to which nobody waits for an answer
        raise Refused(*([] if "id" not in message and "method" in message else [Answer(known, code, sentence)]))

    if message.get("jsonrpc") != "2.0":
        refuse('A message says "jsonrpc": "2.0".')
    if not isinstance(message.get("method"), str):
        refuse("A request names its method, a text.")
    if "id" in message and (known is None or isinstance(known, float)):
        refuse(f"An id is a whole number or a text of at most {MOST_ID:,} characters.")
    if message.get("params") is not None and not isinstance(message["params"], dict):
        refuse(
            f"The params of {_short(message['method'])} are an object, not {_kind(message['params'])}.", INVALID_PARAMS
        )
    if sentence := _wrong_params(message["method"], message.get("params") or {}):
        refuse(sentence, INVALID_PARAMS)


def _check_response(message: Mapping[str, Any]) -> None:
    """Drop an answer that the SDK would stumble over; nobody waits for one to it."""
    sound = message.get("jsonrpc") == "2.0" and isinstance(message.get("result", {}), dict)
    if not sound or not isinstance(message.get("error", {}), dict) or not _is_id(message.get("id")):
        raise Refused()


# ---- what a method needs -------------------------------------------------------------------------------------------

#: members of params that have to be there or may be, and what they are; the SDK says only that something is wrong
_NEEDS: Mapping[str, Mapping[str, type]] = {
    "tools/call": {"name": str},
    "prompts/get": {"name": str},
    "resources/read": {"uri": str},
    "completion/complete": {"ref": dict, "argument": dict},
}
_MAY: Mapping[str, Mapping[str, type]] = {"tools/call": {"arguments": dict}, "prompts/get": {"arguments": dict}}
_KINDS: Mapping[type, str] = {
    str: "a text", dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number", type(None): "null",
}  # fmt: skip


def _wrong_params(method: str, params: Mapping[str, Any]) -> str:
    """What is wrong with the params, in one sentence; empty where nothing is."""
    for name, kind in _NEEDS.get(method, {}).items():
        if name not in params:
            return f"{method} needs {name!r}, {_KINDS[kind]}."
        if not isinstance(params[name], kind):
            return f"The {name!r} of {method} is {_KINDS[kind]}, not {_kind(params[name])}."
    for name, kind in _MAY.get(method, {}).items():
        if params.get(name) is not None and not isinstance(params[name], kind):
            return f"The {name!r} of {method} are {_KINDS[kind]}, not {_kind(params[name])}."
    if method == "prompts/get":
        for name, value in (params.get("arguments") or {}).items():
            if not isinstance(value, str):
                return f"The argument {_short(name)} of a prompt is a text, not {_kind(value)}."
    return ""


def _kind(value: object) -> str:
    return _KINDS[type(value)]


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
