"""Bad requests by the hundred, the same ones each time: over every tool, prompt, resource and completion, and below them."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: what nothing is called: a call that gets as far as looking for it ends there
NOBODY = "NoSuchThingAnywhere"


@dataclass(frozen=True)
class Bad:
    """One line as it goes over the wire, and the id that its answer has to bear; `answered` is false for what gets none."""

    label: str
    line: bytes
    id: str | int | float | None
    answered: bool = True
    #: takes a process of its own, or seconds
    heavy: bool = False
    #: no client library would send it
    raw: bool = False

    def __repr__(self) -> str:
        return f"{self.label}: {self.line[:300]!r}"


def nested(levels: int, inner: Any = 1) -> Any:
    for number in range(levels):
        inner = [inner] if number % 2 else {"a": inner}
    return inner


TEXTS: tuple[str, ...] = (
    "", " ", "\t\n", "\0", "a\0b", ".", "..", "/", "//", "~", "~root/.ssh/id_rsa", "../../etc/passwd", "/etc/passwd",
    "/etc/shadow", "/dev/zero", "/dev/stdin", "/proc/self/environ", "/proc/self/mem", "file:///etc/passwd", "%2e%2e/%2e%2e/etc/passwd",
    "..%2f..%2fetc%2fpasswd", "..\\..\\windows", "\\\\host\\share", "....//....//etc/passwd", "C:\\x", "CON", "http://127.0.0.1:1/x",
    "$(id)", "`id`", "; rm -rf /", "| cat", "--help", "-rf", "-", "--", "{{7*7}}", "${7*7}", "%s%s%n%x", "<script>alert(1)</script>",
    "' OR 1=1 --", "(a+)+$", "(" * 200, "[" * 200, "*" * 200, "?" * 100, "[!-" * 50, "^(a|a)*$" * 20, "a" * 10_000, "a." * 3_000,
    "é" * 500, "\u202egnp.exe", "\u200b\u200d\ufeff", "\U0001f600" * 50, "\ud7ff\ue000", "𝓛𝓵𝓪𝓶𝓪", "İ", "ß" * 30, "\r\nX: y", "\x1b[31mred",
    "\x7f", "None", "null", "true", "NaN", "0", "-1", "1e999", "99999999999999999999", "x.py", "x.py:1", "x.py:-1", "x.py:999999999999",
    ":1", "x.py:1:2:3", "a.py::", "::", "::x", "torch", "torch.", ".torch", "torch..nn", "torch.nn.Module.__class__.__mro__",
    "os.system", "builtins.exec", "__import__('os')", "import os", "lambda: 0", "self", "def", "class", "a b c", "LlamaMLP\n",
    '{"a": ', '{"a": NaN}', '{"a": "\\ud800"}', "[" * 5000, '{"a":' * 200 + "1" + "}" * 200, "\\0", "%00", "&#0;", "٣", "½",
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, -0.0, 1e308, 5e-324, 2**31, 2**63, -(2**63) - 1, 10**18, 10**400, [], [[]], [None], {}, {"": ""},
    {"a": {}}, {"a": None}, {"__class__": "x"}, {"a": [1, {"b": "c"}]}, ["a"] * 1000, [0] * 5000, nested(40), nested(58),
    {"batch_size": -1}, {"batch_size": 0}, {"batch_size": 10**18}, {"batch_size": "x"}, {"batch_size": 1.5}, {"x" * 5000: 1},
    {"\0": 1}, {"hidden_size": True}, {str(number): number for number in range(2000)},
)  # fmt: skip
#: of a real model, so that what is wrong with them shows only where the model is made
CONFIGS: tuple[Any, ...] = (
    {"hidden_size": -1}, {"hidden_size": 0}, {"hidden_size": 10**18}, {"hidden_size": "large"}, {"hidden_size": None},
    {"num_attention_heads": 0}, {"num_hidden_layers": -5}, {"num_hidden_layers": 10**9}, {"model_type": "../../etc/passwd"},
    {"model_type": NOBODY}, {"hidden_act": "os.system"}, {"hidden_act": "__import__"}, {"rope_parameters": []},
    {"rope_parameters": {"rope_type": NOBODY}}, {"auto_map": {"AutoModel": "evil.Evil"}}, {"_attn_implementation": "os/system"},
    {"torch_dtype": "float7"}, {"dtype": "os.system"}, {"quantization_config": {"quant_method": NOBODY}}, {"vocab_size": -3},
    {NOBODY: 1}, {"": 1}, {"architectures": [NOBODY]}, {"architectures": 5}, {"use_cache": "maybe"}, {"pad_token_id": -10**9},
    "/etc/passwd", "/dev/zero", "/proc/self/mem", "../../etc", "/", "\0", "x" * 5000, [], 5, nested(40),
)  # fmt: skip


def bad_requests(tools: Sequence[Mapping[str, Any]], prompts: Sequence[Mapping[str, Any]]) -> list[Bad]:
    """All of them, in an order that mixes them. Ids are unique."""
    numbers = itertools.count(1000)
    found = [
        *(_request(numbers, *entry) for entry in _tool_calls(tools)),
        *(_request(numbers, *entry) for entry in _prompt_calls(prompts)),
        *(_request(numbers, *entry) for entry in _resource_reads()),
        *(_request(numbers, *entry) for entry in _completions(prompts)),
        *(_request(numbers, *entry) for entry in _methods()),
        *_lines(numbers),
    ]
    random.Random(20).shuffle(found)
    return found


def _request(numbers: Iterator[int], label: str, method: str, params: Any, heavy: bool = False) -> Bad:
    number = next(numbers)
    # every third id is a text
    known: str | int = f"id {number}" if number % 3 == 0 else number
    message = {"jsonrpc": "2.0", "id": known, "method": method, "params": params}
    return Bad(label, json.dumps(message, ensure_ascii=number % 2 == 0).encode(), known, heavy=heavy)


def _tool_calls(tools: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, Any, bool]]:
    chance = random.Random(7)
    for tool in tools:
        name, schema = tool["name"], tool["inputSchema"]
        sound: dict[str, Any] = dict.fromkeys(schema.get("required", []), NOBODY)
        if name == "write_report":
            sound = {"name": "bad-input", "target": NOBODY}
        if name in ("cuda_kernel_tiling", "extract_config", "map_repo"):  # reading all of torch is not what is tested
            sound["repo"] = "tiny"
        yield f"{name} without anything", "tools/call", {"name": name}, False
        yield f"{name} with a stranger", "tools/call", {"name": name, "arguments": {**sound, "nonsense": 1}}, False
        yield f"{name} nested", "tools/call", {"name": name, "arguments": {**sound, "a": nested(250)}}, False
        for place in schema["properties"]:
            for value in (*chance.sample(TEXTS, 6), *chance.sample(OTHERS, 4)):
                arguments = {**sound, place: value}
                if "repo" in sound and not arguments["repo"]:
                    continue
                yield f"{name} {place}", "tools/call", {"name": name, "arguments": arguments}, False
        subject = "model" if name == "inspect_model" else "target"
        if "config" in schema["properties"] and subject in schema["properties"]:
            for config in CONFIGS:
                arguments = {**sound, subject: "LlamaMLP", "config": config}
                if name == "write_report":
                    arguments = {"name": "bad-input", "target": "LlamaMLP", "config": config}
                yield f"{name} config", "tools/call", {"name": name, "arguments": arguments}, True
    for name in ("", "RESOLVE_CLASS", "resolve_class ", "../resolve_class", "x" * 100_000, "\0", "\u202e"):
        yield "no such tool", "tools/call", {"name": name, "arguments": {}}, False


def _prompt_calls(prompts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, Any]]:
    chance = random.Random(8)
    for prompt in prompts:
        places = [argument["name"] for argument in prompt.get("arguments", [])]
        for value in (*chance.sample(TEXTS, 6), *chance.sample(OTHERS, 3)):
            arguments = dict.fromkeys(places, value)
            yield f"prompt {prompt['name']}", "prompts/get", {"name": prompt["name"], "arguments": arguments}
        yield "prompt without arguments", "prompts/get", {"name": prompt["name"]}
        yield "prompt with a stranger", "prompts/get", {"name": prompt["name"], "arguments": {"x": "y", "target": "z"}}
    for name in ("", "../analyze", "analyze.md", "x" * 50_000, "\0", "Analyze"):
        yield "no such prompt", "prompts/get", {"name": name, "arguments": {}}


def _resource_reads() -> Iterator[tuple[str, str, Any]]:
    chance = random.Random(9)
    for kind in ("schema", "template", "artifact", "report"):
        for text in chance.sample(TEXTS, 14):
            yield f"resource {kind}", "resources/read", {"uri": f"opscope://{kind}/{text}"}
    for uri in (
        "opscope://",
        "opscope:///",
        "opscope://artifact/" + "f" * 40,
        "file:///etc/passwd",
        "http://127.0.0.1:1/",
        "",
        "://",
        "x" * 9000,
    ):
        yield "resource elsewhere", "resources/read", {"uri": uri}
    others: tuple[Any, ...] = (5, None, [], {})
    for value in others:
        yield "resource of another type", "resources/read", {"uri": value}


def _completions(prompts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, Any]]:
    chance = random.Random(10)
    refs: list[Any] = [{"type": "ref/prompt", "name": prompt["name"]} for prompt in prompts]
    refs += [
        {"type": "ref/resource", "uri": f"opscope://{kind}/{{name}}"}
        for kind in ("schema", "template", "report", "none")
    ]
    for ref in refs:
        for text in chance.sample(TEXTS, 4):
            argument = {"name": chance.choice(["target", "module", "name", "none"]), "value": text}
            yield "completion", "completion/complete", {"ref": ref, "argument": argument}
    for ref in ({}, {"type": "ref/none"}, {"type": "ref/prompt"}, {"type": "ref/resource", "uri": 5}, nested(20)):
        yield "completion of nothing", "completion/complete", {"ref": ref, "argument": {"name": "target", "value": "x"}}
    odd: tuple[Any, ...] = ({}, {"name": "target"}, {"name": 5, "value": 5}, {"name": "target", "value": None})
    for argument in odd:
        yield "completion argument", "completion/complete", {"ref": refs[0], "argument": argument}


def _methods() -> Iterator[tuple[str, str, Any]]:
    known = ("initialize", "ping", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/subscribe",
             "logging/setLevel", "completion/complete", "tools/call", "prompts/get", "resources/read")  # fmt: skip
    wrong: tuple[Any, ...] = (
        [], [1], "x", 5, True, {"_meta": 5}, {"_meta": []}, {"_meta": {"progressToken": {}}}, {"cursor": 5},
    )  # fmt: skip
    for method in known:
        for params in wrong:
            yield f"{method} params", method, params
    for method in (
        "",
        "tools",
        "tools/list/",
        "../tools/list",
        "rpc.discover",
        "\0",
        "x" * 100_000,
        "notifications/none",
        "__init__",
    ):
        yield "no such method", method, {}


def _lines(numbers: Iterator[int]) -> Iterator[Bad]:
    """What no client library would send."""

    def line(label: str, text: str, known: str | int | float | None, answered: bool = True) -> Bad:
        return Bad(label, text.encode("utf-8", "surrogatepass"), known, answered, raw=True)

    call = '"method":"tools/call","params":{"name":"resolve_class","arguments":{"name":%s}}'
    values = {
        "NaN": "NaN", "Infinity": "Infinity", "minus infinity": "-Infinity", "a huge float": "1e999", "digits": "9" * 5000,
        "a lone surrogate": '"\\ud800"', "a low surrogate": '"\\udc00x"', "raw control": '"\x01"', "single quotes": "'x'",
        "a comma": "[1,]", "a comment": "/* x */ 1", "undefined": "undefined", "hex": "0x10", "plus": "+1", "leading zero": "01",
        "an unclosed string": '"x', "an unclosed list": "[[", "deep lists": "[" * 300 + "]" * 300, "very deep lists": "[" * 100_000 + "]" * 100_000,
        "deep objects": '{"a":' * 300 + "1" + "}" * 300, "raw surrogate": '"\ud800"',
    }  # fmt: skip
    for what, value in values.items():
        number = next(numbers)
        yield line(what, f'{{"jsonrpc":"2.0","id":{number},{call % value}}}', number)
        number = next(numbers)  # the id comes last
        unclosed = what.startswith("an unclosed")
        yield line(what, f'{{"jsonrpc":"2.0",{call % value},"id":{number}}}', None if unclosed else number)
    for version in ('"1.0"', "2.0", "null", "[]", '"2.0 "'):
        number = next(numbers)
        yield line("version", f'{{"jsonrpc":{version},"id":{number},"method":"tools/list"}}', number)
    number = next(numbers)
    yield line("no version", f'{{"id":{number},"method":"tools/list"}}', number)
    number = next(numbers)
    yield line("no method", f'{{"jsonrpc":"2.0","id":{number}}}', number)
    for method in ("5", "null", "[]", "{}", "true"):
        number = next(numbers)
        yield line("method", f'{{"jsonrpc":"2.0","id":{number},"method":{method}}}', number)
    for known, text in (
        (None, "null"),
        (1.5, "1.5"),
        (None, "true"),
        (None, "[]"),
        (None, "{}"),
        (None, '"' + "i" * 5000 + '"'),
        (None, "9" * 2000),
    ):
        yield line("id", f'{{"jsonrpc":"2.0","id":{text},"method":"tools/list"}}', known)
    for text in (
        "hello",
        "5",
        "null",
        '"x"',
        "[]",
        "{}",
        "{",
        "}",
        "\ufeff{}",
        "GET / HTTP/1.1",
        "Content-Length: 5",
        "\0\0\0",
        "\x1b[0m",
    ):
        yield line("no message", text, None)
    number = next(numbers)
    yield Bad(
        "not UTF-8",
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{"a":"\xff\xc0\x80"}}' % number,
        number,
        raw=True,
    )
    number = next(numbers)
    yield Bad(
        "too long",
        b'{"jsonrpc":"2.0","method":"tools/list","params":{"a":"%s"},"id":%d}' % (b"x" * (5 << 20), number),
        number,
        raw=True,
    )
    for text in (
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}', '{"jsonrpc":"2.0","method":"notifications/none","params":5}',
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"%s"}}' % ("9" * 5000),
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"%s"}}' % ("9" * 5000),
        '{"jsonrpc":"2.0","id":99999999,"result":{}}', '{"jsonrpc":"2.0","id":99999999,"result":5}', '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
        '{"jsonrpc":"2.0","id":99999998,"error":"x"}', "", "   ",
    ):  # fmt: skip
        yield line("nobody waits", text, None, answered=False)
