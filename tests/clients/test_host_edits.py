"""Edits of config text: whatever the file looks like, only the entry changes, and taking it out gives the text back."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opscope_clients.hosts.edits import MISSING, UnreadableError
from opscope_clients.hosts.table import JSON, JSONC, TOML

ENTRY = {"command": '/opt/a "b"/opscope', "args": ["serve", "--repo", "x=/ü\\y"], "on": True}
PATH = ("mcpServers", "opscope")
MADE = [("mcpServers",)]


# ---- JSON with comments


@dataclass(frozen=True)
class Style:
    """How a generated file is laid out."""

    unit: str
    newline: str
    lines: bool
    trailing: bool
    comments: bool


STYLES = st.builds(
    Style,
    st.sampled_from(["  ", "    ", "\t", ""]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
PLAIN = st.builds(
    Style,
    st.sampled_from(["  ", "    ", "\t"]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.just(False),
    st.just(False),
)
NOTES = ['// a, { "b": 1 }', "/* one */", '// "mcpServers": {}', "/* , */", "//"]
KEYS = st.sampled_from(["a", "b c", "ü", "//", 'x"y', "servers", "{"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-9, 9**20),
    st.sampled_from([1.5, -2e30, "", "\\", "a\n\tb", "\U0001f600 */", "// x"]),
    KEYS,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=5,
)


def written(value: Any, style: Style, draw: st.DrawFn, indent: str = "") -> str:
    """`value` as text of that style."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    pairs = [
        (json.dumps(key, ensure_ascii=False), written(inner, style, draw, indent + style.unit))
        for key, inner in value.items()
    ]
    if not style.lines:
        return "{" + ", ".join(f"{key}: {inner}" for key, inner in pairs) + "}"
    text = "{"
    for number, (key, inner) in enumerate(pairs):
        last = number == len(pairs) - 1
        if style.comments and draw(st.booleans()):
            text += f"{style.newline}{indent}{style.unit}{draw(st.sampled_from(NOTES))}"
        text += f"{style.newline}{indent}{style.unit}{key}: {inner}"
        text += "" if last and not style.trailing else ","
        if style.comments and draw(st.booleans()):
            text += f" {draw(st.sampled_from(NOTES))}"
    if style.comments and draw(st.booleans()):
        text += f"{style.newline}{indent}{style.unit}{draw(st.sampled_from(NOTES))}"
    return f"{text}{style.newline}{indent}}}"


@st.composite
def documents(draw: st.DrawFn, styles: st.SearchStrategy[Style] = STYLES) -> tuple[dict[str, Any], str]:
    """A config with or without servers, and a text of it."""
    style = draw(styles)
    value = draw(st.dictionaries(KEYS, VALUES, max_size=4))
    if draw(st.booleans()):
        servers = draw(st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=2), max_size=3))
        place = draw(st.integers(0, len(value)))
        items = list(value.items())
        value = dict([*items[:place], ("mcpServers", servers), *items[place:]])
    text = written(value, style, draw) + draw(st.sampled_from(["", style.newline]))
    if style.comments and draw(st.booleans()):
        text = f"// first{style.newline}{text}"
    return value, text


def kept(old: str, new: str) -> bool:
    """Whether every character of `old` is in `new`, in order."""
    rest = iter(new)
    return all(character in rest for character in old)


@given(documents(PLAIN))
def test_an_entry_put_into_plain_json_is_read_by_any_json_reader_beside_all_that_was_there(
    document: tuple[dict[str, Any], str],
) -> None:
    value, text = document
    assert json.loads(JSON.put(text, PATH, ENTRY)) == {
        **value, "mcpServers": {**value.get("mcpServers", {}), "opscope": ENTRY}
    }  # fmt: skip


@given(documents())
def test_an_entry_put_in_leaves_every_character_where_it_was_and_taken_out_gives_the_text_back(
    document: tuple[dict[str, Any], str],
) -> None:
    value, text = document
    made = [] if "mcpServers" in value else MADE
    new = JSONC.put(text, PATH, ENTRY)
    assert kept(text, new)
    assert JSONC.get(new, PATH) == ENTRY
    assert JSONC.take(new, PATH, made) == text


@given(documents(), st.dictionaries(KEYS, VALUES, max_size=3))
def test_replacing_an_entry_changes_nothing_but_its_value(
    document: tuple[dict[str, Any], str], other: dict[str, Any]
) -> None:
    _, text = document
    first = JSONC.put(text, PATH, ENTRY)
    assert JSONC.put(JSONC.put(first, PATH, other), PATH, ENTRY) == first


@given(documents(), st.sampled_from(["first", "last", "between"]))
def test_an_entry_is_taken_out_wherever_it_stands_and_its_neighbours_keep_their_bytes(
    document: tuple[dict[str, Any], str], place: str
) -> None:
    _, text = document
    names = {"first": ["opscope", "y", "z"], "last": ["y", "z", "opscope"], "between": ["y", "opscope", "z"]}[place]
    without = text
    for name in ("y", "z"):
        without = JSONC.put(without, ("mcpServers", name), {"command": name})
    full = text
    for name in names:
        full = JSONC.put(full, ("mcpServers", name), ENTRY if name == "opscope" else {"command": name})
    if not JSONC.get(text, ("mcpServers",)) or JSONC.get(text, ("mcpServers",)) is MISSING:
        assert JSONC.get(JSONC.take(full, PATH, []), ("mcpServers",)) == {"y": {"command": "y"}, "z": {"command": "z"}}
    else:
        assert JSONC.take(full, PATH, []) == without


def test_layout_follows_the_neighbours() -> None:
    text = '{\n\t// mine\n\t"servers": {\n\t\t"a": {"command": "x"}, // keep\n\t},\n\t"inputs": [],\n}\n'
    assert JSONC.put(text, ("servers", "opscope"), {"command": "o", "args": ["serve"]}) == (
        '{\n\t// mine\n\t"servers": {\n\t\t"a": {"command": "x"}, // keep\n'
        '\t\t"opscope": {\n\t\t\t"command": "o",\n\t\t\t"args": ["serve"]\n\t\t},\n'
        '\t},\n\t"inputs": [],\n}\n'
    )


def test_a_comment_on_the_line_of_the_last_member_stays_with_it() -> None:
    text = '{\n  "a": 1 // one\n}\n'
    assert JSONC.put(text, ("b",), {}) == '{\n  "a": 1, // one\n  "b": {}\n}\n'


def test_comments_around_an_entry_that_goes_stay() -> None:
    text = '{"s": {/* 0 */ "opscope": {}, /* 1 */ "b": {} /* 2 */, "opscope2": {} /* 3 */}}'
    assert JSONC.take(text, ("s", "opscope"), []) == '{"s": {/* 0 */ /* 1 */ "b": {} /* 2 */, "opscope2": {} /* 3 */}}'
    assert JSONC.take(text, ("s", "opscope2"), []) == '{"s": {/* 0 */ "opscope": {}, /* 1 */ "b": {} /* 2 */ /* 3 */}}'
    text = '{\n  // 0\n  "opscope": {}, // 1\n  // 2\n  "b": {} // 3\n}\n'
    assert JSONC.take(text, ("opscope",), []) == '{\n  // 0\n   // 1\n  // 2\n  "b": {} // 3\n}\n'


def test_of_a_name_given_twice_the_last_counts_as_json_readers_have_it() -> None:
    text = '{"mcpServers": {"a": {}}, "mcpServers": {"b": {}}}'
    new = JSON.put(text, PATH, ENTRY)
    assert json.loads(new)["mcpServers"] == {"b": {}, "opscope": ENTRY}


def test_a_file_of_nothing_but_comments_gets_its_first_object_below_them() -> None:
    assert JSONC.put("// mine", PATH, {"a": 1}) == (
        '// mine\n{\n  "mcpServers": {\n    "opscope": {\n      "a": 1\n    }\n  }\n}\n'
    )


def test_a_container_that_was_made_but_holds_a_comment_now_stays() -> None:
    new = JSONC.put('{\n  "a": 1\n}\n', PATH, ENTRY).replace('"mcpServers": {', '"mcpServers": { // mine', 1)
    left = JSONC.take(new, PATH, MADE)
    assert "// mine" in left
    assert JSONC.get(left, ("mcpServers",)) == {}


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', "expected a comma or }", 3),
        ('{\n  "a": \n', "expected a value, found the end of the file", 2),
        ('{\n  "a": [1, 2}\n}', "expected a comma or ]", 2),
        ("{\n  a: 1\n}", "expected a name in double quotes", 2),
        ('{"a" 1}', "expected a colon", 1),
        ('{"a": "\\x"}', "invalid \\escape", 1),
        ('{"a": "b\nc"}', "expected a value", 1),
        ("[1]", "expected an object", 1),
        ("{}\n{}", "nothing may follow the closing brace", 2),
        ('{\n "mcpServers": []}', "mcpServers is not an object", 2),
        ("[" * 100_000, "nested deeper than 200 levels", 1),
    ],
)
def test_json_that_cannot_be_read_is_refused_with_its_line(text: str, reason: str, line: int) -> None:
    with pytest.raises(UnreadableError) as refused:
        JSONC.put(text, PATH, ENTRY)
    assert (refused.value.reason, refused.value.line) == (reason, line)


@pytest.mark.parametrize("text", ['{\n  // no\n  "a": 1\n}', '{\n  "a": 1,\n}'])
def test_what_plain_json_does_not_allow_is_refused_where_the_host_reads_plain_json(text: str) -> None:
    assert JSONC.get(text, ("a",)) == 1
    with pytest.raises(UnreadableError) as refused:
        JSON.get(text, ("a",))
    assert refused.value.line == 2
    assert "JSON does not allow" in refused.value.reason


# ---- TOML

SERVER = ("mcp_servers", "opscope")
CHUNKS = st.lists(
    st.sampled_from([
        "# a comment, [not.a.table]\n",
        "\n",
        '[mcp_servers.other] # why\ncommand = "x" # here\nargs = [\n  "a", # [mcp_servers.opscope]\n  "b",\n]\n',
        '[mcp_servers.other.env]\n"quoted key" = \'# [x]\'\n',
        '[tui]\ntext = """\n[mcp_servers.opscope]\ncommand = "no"\n"""\n',
        "[[profiles]]\nraw = '''\n'' # \"\n'''\n",
        '[mcp_servers]\n',
        '["a.b".c]\nd.e = { f = [1, { g = "]" }] }\n',
    ]),
    unique=True,
)  # fmt: skip
HEADS = st.sampled_from(["", 'model = "o"\n', '# top\n\nmodel = "o" # best\nlist = [ 1, 2 ]\n'])


@st.composite
def tables(draw: st.DrawFn) -> str:
    """The text of a config.toml."""
    chunks = draw(CHUNKS)
    order = {text: number for number, text in enumerate(chunks)}
    server, inner = "[mcp_servers.other] # why", "[mcp_servers.other.env]"
    text = draw(HEADS) + "".join(sorted(chunks, key=order.__getitem__))
    if text.find(inner) >= 0 and (text.find(server) > text.find(inner) or server not in text):
        text = text.replace(inner, "[other.env]")
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


def loaded(text: str) -> dict[str, Any]:
    return tomllib.loads(text.replace("\r\n", "\n"))


@given(tables())
def test_a_table_is_appended_to_toml_and_taken_out_again_without_a_trace(text: str) -> None:
    new = TOML.put(text, SERVER, ENTRY)
    assert new.startswith(text)
    before, after = loaded(text), loaded(new)
    assert after["mcp_servers"].pop("opscope") == ENTRY
    before.setdefault("mcp_servers", {})
    assert after == before
    assert TOML.take(new, SERVER, []).strip() == text.strip()
    if text.strip():
        assert TOML.take(new, SERVER, []) == text


@given(tables(), st.sampled_from(["# mine\n", "\n# mine\n[z]\nq = 1\n", "\n\n[z]\nq = 1 # mine\n"]))
def test_what_a_user_writes_behind_the_table_stays_when_it_is_taken_out(text: str, more: str) -> None:
    new = TOML.put(text, SERVER, ENTRY) + more
    left = TOML.take(new, SERVER, [])
    assert left.endswith(more)
    assert left.startswith(text)


@given(tables())
def test_replacing_a_table_leaves_the_rest_as_it_was(text: str) -> None:
    first = TOML.put(text, SERVER, ENTRY) + "\n[z]\nq = 1\n"
    other = TOML.put(first, SERVER, {"command": "other"})
    assert loaded(other)["mcp_servers"]["opscope"] == {"command": "other"}
    assert TOML.put(other, SERVER, ENTRY) == first


def test_a_table_with_tables_below_it_goes_as_a_whole() -> None:
    text = '[mcp_servers.opscope]\ncommand = "x"\n\n[mcp_servers.opscope.env]\nA = "1"\n\n# next\n[z]\n'
    assert TOML.take(text, SERVER, []) == "\n# next\n[z]\n"
    assert TOML.put(text, SERVER, {"command": "y"}) == '[mcp_servers.opscope]\ncommand = "y"\n\n# next\n[z]\n'


def test_single_keys_about_a_server_are_found_too() -> None:
    text = '[mcp_servers]\nopscope.command = "x" # a\nother.command = "y"\nopscope.args = [\n]\n'
    assert TOML.take(text, SERVER, []) == '[mcp_servers]\nother.command = "y"\n'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('model = "o"\nmcp_servers = { other = { command = "x" } }\n', 2),
        ('a = 1\n\nmcp_servers = { opscope = { command = "x" } }\n', 3),
    ],
)
def test_servers_in_an_inline_table_are_refused_with_the_line(text: str, line: int) -> None:
    with pytest.raises(UnreadableError) as refused:
        TOML.put(text, SERVER, ENTRY)
    assert refused.value.line == line
    assert refused.value.reason == "mcp_servers is written in a form that cannot be edited in place"


@pytest.mark.parametrize(
    ("text", "line"), [("a = 1\nb = \n", 2), ("[a\n", 1), ("a = 1\na = 2\n", 2), ('a = "', 1), ("mcp_servers = 3\n", 1)]
)
def test_toml_that_cannot_be_read_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(UnreadableError) as refused:
        TOML.get(text, SERVER)
    assert refused.value.line == line


@given(st.text(st.sampled_from("a\"'\\\n\r\t\0\x1b\x7f\x85é\u2028\U0001f600#[]={}")))
def test_any_string_goes_into_toml_and_back(text: str) -> None:
    entry = {"command": text, "args": [text]}
    assert loaded(TOML.put("", SERVER, entry))["mcp_servers"]["opscope"] == entry


# ---- anything at all


def attempt(edit: Callable[[], str]) -> str | UnreadableError:
    """What an edit gives, or how it refuses."""
    try:
        return edit()
    except UnreadableError as refused:
        return refused


@given(st.text(st.sampled_from('{}[]",:/* \n\\a1t'), max_size=40))
def test_any_text_is_edited_or_refused_with_a_line_of_its_own_as_json(text: str) -> None:
    new = attempt(lambda: JSONC.put(text, PATH, ENTRY))
    if isinstance(new, str):
        assert kept("".join(text.split()), new)
        assert JSONC.get(new, PATH) == ENTRY
    else:
        assert 1 <= new.line <= text.count("\n") + 1


TOKENS = ["[", "]", '"', "'", "=", ".", "#", "\n", " ", "a", "1", "mcp_servers", "opscope", "{", "}", ","]


@given(st.lists(st.sampled_from(TOKENS), max_size=25))
def test_any_text_is_edited_or_refused_with_a_line_of_its_own_as_toml(parts: list[str]) -> None:
    text = "".join(parts)
    new = attempt(lambda: TOML.put(text, SERVER, ENTRY))
    if isinstance(new, str):
        assert loaded(new)["mcp_servers"]["opscope"] == ENTRY
        assert TOML.get(text, SERVER) is not MISSING or new.startswith(text)
    else:
        assert 1 <= new.line <= text.count("\n") + 1
