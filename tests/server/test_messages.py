"""What is told of a message before the SDK sees it: the id of whatever bears one, and a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opscope_server.messages import MOST_BYTES, MOST_LEVELS, Refused, read
from opscope_server.scan import Scan

CALL: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "rows", "arguments": {}}}


def raw(**changes: Any) -> bytes:
    return json.dumps({**CALL, **changes}).encode()


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def refused(message: bytes) -> list[tuple[Any, int, str]]:
    with pytest.raises(Refused) as caught:
        read(message)
    return [(answer.id, answer.code, answer.message) for answer in caught.value.answers]


@pytest.mark.parametrize(
    ("message", "known", "sentence"),
    [
        (raw(params={"name": "x", "arguments": {"a": nested(250)}}), 7, "nests deeper than 64 levels"),
        (raw(params={"name": "x", "arguments": {"a": "y" * MOST_BYTES}}), 7, "longer than 4,194,304 bytes"),
        (b'{"jsonrpc":"2.0","method":"tools/list","params":{"a":[1,,2]},"id":"late"}', "late", "is not JSON: expecting value"),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/list"', 7, "is not JSON"),
        (b'{"jsonrpc":"2.0","method":"tools/list","id', None, "is not JSON"),
        (raw().replace(b"rows", b"r\xff\xfe"), 7, "is not UTF-8 from byte"),
        (raw().replace(b"{}}}", b'{"n": ' + b"9" * 5000 + b"}}}"), 7, "too many digits"),
        (raw().replace(b"{}}}", b'{"n": NaN}}}'), 7, "NaN is no number of JSON"),
        (raw().replace(b"{}}}", b'{"n": -Infinity}}}'), 7, "-Infinity is no number"),
        (raw().replace(b"{}}}", b'{"n": 1e999}}}'), 7, "1e999 is no number"),
        (raw(params={"name": "\ud800", "arguments": {}}), 7, "half of a surrogate pair"),
        (raw(jsonrpc="1.0"), 7, '"jsonrpc": "2.0"'),
        (raw(method=["tools/call"]), 7, "names its method"),
        (b'{"jsonrpc":"2.0","id":7}', 7, "names its method"),
        (raw(params=[1, 2]), 7, "are an object, not a list"),
        (raw(params="x"), 7, "are an object, not a text"),
        (raw(params={"arguments": {}}), 7, "needs 'name'"),
        (raw(params={"name": 5}), 7, "is a text, not a number"),
        (raw(params={"name": "rows", "arguments": [1]}), 7, "are an object, not a list"),
        (raw(method="prompts/get", params={"name": "x", "arguments": {"a": 1}}), 7, "is a text, not a number"),
        (raw(method="resources/read", params={"uri": None}), 7, "is a text, not null"),
        (raw(id=None), None, "An id is a whole number or a text"),
        (raw(id=1.5), 1.5, "An id is a whole number or a text"),
        (raw(id=True), None, "An id is a whole number or a text"),
        (raw(id=[7]), None, "An id is a whole number or a text"),
        (raw(id="7" * 2000), None, "at most 1,024 characters"),
        (b"hello", None, "is not JSON"),
        (b"5", None, "one JSON object"),
        (b"[]", None, "A batch is no message"),
        (b"\xef\xbb\xbf" + raw(), 7, "is not JSON"),
    ],
)  # fmt: skip
def test_a_bad_message_is_answered_with_its_id_and_one_sentence(message: bytes, known: Any, sentence: str) -> None:
    (answer,) = refused(message)
    assert answer[0] == known
    assert type(answer[0]) is type(known)
    assert sentence in answer[2]
    assert answer[2].endswith((".", "."))
    assert "\n" not in answer[2]
    assert -32700 <= answer[1] <= -32600


def test_every_request_of_a_batch_is_answered() -> None:
    batch = json.dumps([{**CALL, "id": 1}, {**CALL, "id": "two"}, {"jsonrpc": "2.0", "method": "notifications/x"}])
    assert [known for known, _, _ in refused(batch.encode())] == [1, "two"]


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0","method":"notifications/x","params":[]}',
        b'{"jsonrpc":"1.0","method":"notifications/x"}',
        b'{"jsonrpc":"2.0","id":3,"result":"no object"}',
        b'{"jsonrpc":"2.0","id":3,"result":{"deep":' + b"[" * 100 + b"]" * 100 + b"}}",
    ],
)
def test_what_waits_for_no_answer_gets_none(message: bytes) -> None:
    assert refused(message) == []


@pytest.mark.parametrize(
    "message",
    [
        raw(),
        raw(id="text"),
        raw(id=-(10**18)),
        raw(method="tools/list", params=None),
        b'{"jsonrpc":"2.0","method":"notifications/x"}',
    ],
)
def test_a_sound_message_is_passed_on_as_it_is(message: bytes) -> None:
    assert read(message) == json.loads(message)


def test_the_limit_of_levels_is_exact() -> None:
    assert read(raw(params={"name": "x", "arguments": {"a": nested(MOST_LEVELS - 3)}}))
    assert refused(raw(params={"name": "x", "arguments": {"a": nested(MOST_LEVELS - 2)}}))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def depth(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return (1 if isinstance(value, dict | list) else 0) + max(map(depth, inner), default=0)


@given(
    value=json_values, known=st.integers() | st.text(max_size=20), pieces=st.integers(1, 9), ascii_only=st.booleans()
)
def test_a_scan_finds_depth_and_id_however_the_text_is_cut(
    value: Any, known: Any, pieces: int, ascii_only: bool
) -> None:
    message = {"params": value, "id": known, "method": "x"}
    text = json.dumps(message, ensure_ascii=ascii_only).encode("utf-8", "replace")
    scan = Scan()
    for at in range(0, len(text), pieces):
        scan.feed(text[at : at + pieces])
    whole = Scan.of(text)
    assert (scan.deepest, scan.id) == (whole.deepest, whole.id) == (depth(message), known)
    assert whole.members >= {"params", "id", "method"}


@given(st.binary(max_size=200))
def test_no_bytes_at_all_raise_anything_else(message: bytes) -> None:
    try:
        found = read(message)
    except Refused:
        return
    assert isinstance(found, dict)
