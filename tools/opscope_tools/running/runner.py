"""How a tool is run, whoever asks: check the arguments, look in the store, call the handler, keep the whole result.

Order: arguments into one clear sentence, the key of a result, running, the compact form that leaves the process, and
the ladder of shorter forms. A result is stored once, as the text of its artifact; the cache reads it from there.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from opscope_cache import keys
from opscope_cache.store import recall
from opscope_schemas.common import ToolArguments, ToolResult, promised_of
from opscope_schemas.errors import InputError, OpscopeError, SourceError
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, to_jsonable_python

from opscope_tools.running.config_files import config_digest
from opscope_tools.running.tool import A, AnyTool, R, Tool, ToolContext
from opscope_tools.running.workspace import Workspace

#: scheme of every resource that opscope serves
SCHEME = "opscope"
#: levels of lists and objects in one argument
_MOST_LEVELS = 60
#: characters of structured JSON that one answer may take
BUDGET = 25_000
#: characters of an answer that is numbers and rankings: what an agent reads whole
BRIEF = 6_000
#: characters up to which a tool fills a page by itself: what is added later (the artifact's name, notes) has room
PAGE = BUDGET - 1000


# ---- arguments -----------------------------------------------------------------------------------------------------


def validate(tool: Tool[A, R], arguments: Mapping[str, object] | ToolArguments) -> A:
    """`arguments` as the tool's own type; raises `InputError`, one sentence for all problems together."""
    if isinstance(arguments, ToolArguments):
        assert isinstance(arguments, tool.arguments), f"{tool.name} was given {type(arguments).__name__}"
        return arguments
    given = {name: _unquoted(tool, name, value) for name, value in arguments.items()}
    for name, value in given.items():
        if sentence := _unfit(value):
            raise InputError(f"The argument {_quoted(name)} of {tool.name} {sentence}.")
    try:
        return tool.arguments.model_validate(given)
    except ValidationError as error:
        raise InputError(*_explain(tool, error)) from None


def _unquoted(tool: AnyTool, name: str, value: object) -> object:
    """Some clients send objects and lists as JSON text; read them where one may stand."""
    field = tool.arguments.model_fields.get(name)
    if field is None or field.annotation is str or not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _unfit(value: object) -> str:
    """What is wrong with an argument whatever its type is: what can be neither kept nor sent back. Empty where nothing is."""
    levels = [value]
    for _ in range(_MOST_LEVELS):
        for held in levels:
            if isinstance(held, float) and not math.isfinite(held):
                return f"holds {held}, which is no number of JSON"
            if isinstance(held, str) and encodable(held) is not held:
                return "holds half of a surrogate pair, which is no character"
        levels = [inner for held in levels for inner in _inside(held)]
        if not levels:
            return ""
    return f"nests deeper than {_MOST_LEVELS} levels"


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return (*value.keys(), *value.values())
    return value if isinstance(value, list | tuple) else ()


def _quoted(name: str) -> str:
    return repr(name if len(name) <= 60 else name[:57] + "...")


def _explain(tool: AnyTool, error: ValidationError) -> tuple[str]:
    """One sentence that names each bad argument and what it may be."""
    allowed = list(tool.arguments.model_fields)
    # a union reports each arm; the sentence needs the field once
    by_field: dict[str, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        by_field.setdefault(str(detail["loc"][0]) if detail["loc"] else "", []).append(detail)
    return (" ".join(_explain_field(tool.name, name, details, allowed) for name, details in by_field.items()),)


def _explain_field(tool: str, name: str, details: list[ErrorDetails], allowed: list[str]) -> str:
    first = details[0]
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        nearest = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        return f"{tool} has no argument {name!r}.{hint} It takes: {', '.join(allowed)}."
    if first["type"] == "missing" and len(first["loc"]) == 1:
        return f"{tool} needs the argument {name!r}. It takes: {', '.join(allowed)}."
    reasons = list(dict.fromkeys(_reason(detail) for detail in details))
    where = f"The argument {name!r} of {tool}" if name else f"The arguments of {tool}"
    return f"{where} cannot be {_shown(first)}: {'; or '.join(reasons)}."


#: parts of a place that name what a type is made of, and nothing of what was given
_OF_A_TYPE = re.compile(r"(dict|list|tuple|literal)\[|function-|nullable")


def _reason(detail: ErrorDetails) -> str:
    message = detail["msg"].removeprefix("Value error, ").rstrip(".")
    if detail["loc"][-1:] == ("[key]",):  # what a name may be: the path says it twice
        return message.replace("Input", "each name", 1)
    inner = ".".join(str(part) for part in detail["loc"][1:] if not _OF_A_TYPE.match(str(part)))
    text = message[:1].lower() + message[1:]
    return f"{inner}: {text}" if inner and inner not in {"str", "int", "dict"} else text


def _shown(detail: ErrorDetails) -> str:
    text = repr(detail["input"])
    return text if len(text) <= 60 else text[:57] + "..."


# ---- running -------------------------------------------------------------------------------------------------------


def result_key(tool: AnyTool, arguments: ToolArguments, workspace: Workspace) -> str:
    """Digest of everything that the answer depends on: arguments, files they name, sources, interpreter, our code.

    Raises `InputError` for arguments that nest deeper than JSON is written.
    """
    try:
        given = arguments.model_dump(mode="json")
        json.dumps(given)
    except (ValueError, RecursionError):
        raise InputError(f"The arguments of {tool.name} nest too deeply.", next_step="Give a flatter object.") from None
    trees = [
        [
            repository.name,
            str(repository.root),
            repository.version,
            name in workspace.trusted,
            workspace.tree(repository, tool.sources).now().fingerprint,
        ]
        for name, repository in workspace.repositories.items()
    ]
    return keys.of_document(
        [
            tool.name,
            given,
            _named_files(given, workspace),
            *map(_content, tool.files(workspace)),
            trees,
            _interpreter(workspace.python),
            keys.engine_version(),
        ]
    )


def _named_files(given: Mapping[str, object], workspace: Workspace) -> list[tuple[str, str]]:
    """Path and content digest of every configuration that an argument names by its path and that may be read."""
    values = [*given.values(), *(held for value in given.values() if isinstance(value, list) for held in value)]
    values += [held for value in values if isinstance(value, Mapping) for held in value.values()]
    texts = [value for value in values if isinstance(value, str)]
    return [entry for text in texts if (entry := config_digest(workspace, text)) is not None]


def _content(file: Path) -> tuple[str, str]:
    """Path and content digest of a file; without one where it cannot be read: whoever needs it says so."""
    try:
        return str(file), keys.digest(file.read_bytes())
    except OSError:
        return str(file), ""


def _interpreter(python: str) -> list[str]:
    """Which interpreter traces, and whether its packages changed: installing one touches its site-packages."""
    if python == sys.executable:
        return [python, sys.version]
    prefix = Path(python).absolute().parent.parent
    folders = sorted(prefix.glob("lib/python*/site-packages"))
    return [python, *(f"{folder}:{folder.stat().st_mtime_ns}" for folder in folders)]


def run_tool(tool: Tool[A, R], arguments: Mapping[str, object] | ToolArguments, context: ToolContext) -> R:
    """The whole result of `tool`; from the store where the tool is cached and nothing it depends on has changed.

    Raises the errors of opscope_schemas.errors. The result's `artifact` names the resource that holds it whole.
    """
    checked = validate(tool, arguments)
    key, kept = look_up(tool, checked, context.workspace)
    if kept is not None:
        return kept
    context.checkpoint()
    answer = _hinted(tool, checked, _run(tool, checked, context), context.workspace)
    if not key:
        return answer
    context.checkpoint()  # whoever cancelled does not want a half-believed result kept
    if result_key(tool, checked, context.workspace) != key:  # a file changed meanwhile: the answer may be of either
        return answer
    answer = answer.model_copy(update={"artifact": f"{SCHEME}://artifact/{key}"})
    context.workspace.store.put(f"artifact/{key}", to_json(answer))
    return answer


def look_up(tool: Tool[A, R], checked: A, workspace: Workspace) -> tuple[str, R | None]:
    """The key of the answer (empty where answers are not kept), and the answer where the store has it. Computes nothing."""
    if not tool.cached:
        return "", None
    key = result_key(tool, checked, workspace)
    if tool.fresh(checked):
        return key, None
    return key, recall(workspace.store, f"artifact/{key}", tool.result.model_validate_json)


def _run(tool: Tool[A, R], arguments: A, context: ToolContext) -> R:
    """What the tool says; what nests deeper than any reader goes is an answer too."""
    try:
        return tool.run(arguments, context)
    except RecursionError:
        raise SourceError(
            "What was asked for nests too deeply to be read.", next_step="Ask for a smaller part of it."
        ) from None


#: arguments that leave out of an answer what is there
_FILTERS = ("repo", "kind", "verified_only", "section", "offset")


def _hinted(tool: Tool[A, R], checked: A, answer: R, workspace: Workspace) -> R:
    """`answer`; where a search found nothing, with a note that says what was searched and what to try next."""
    fields = tool.result.model_fields
    empty = [getattr(answer, name) in ((), fields[name].get_default(call_default_factory=True)) for name in tool.finds]
    if not empty or not all(empty):
        return answer
    given = {
        name: getattr(checked, name)
        for name in _FILTERS
        if name not in tool.positional and getattr(checked, name, None) not in (None, False, 0)
    }
    searched = [f"{r.name} {r.version}".strip() for r in workspace.select(getattr(checked, "repo", None))]
    asked = f", with {', '.join(f'{name}={value!r}' for name, value in given.items())}" if given else ""
    less = f"leave out {' or '.join(given)}, or " if given else ""
    note = f"Nothing found: searched {', '.join(searched) or 'no repository'}{asked}. Next: {less}{tool.otherwise}"
    return answer.model_copy(update={"notes": (*answer.notes, note)})


# ---- what leaves the process ---------------------------------------------------------------------------------------


def compact(value: object) -> Any:
    """JSON-able form without the fields that say nothing: those at their default, except the promised ones."""
    if isinstance(value, BaseModel):
        promised = promised_of(type(value))
        return {
            name: compact(held)
            for name, field in type(value).model_fields.items()
            if (held := getattr(value, name)) != field.get_default(call_default_factory=True) or name in promised
        }
    if isinstance(value, Mapping):
        return {str(key): compact(held) for key, held in value.items()}
    if isinstance(value, str) or not isinstance(value, Iterable):
        return to_jsonable_python(value)
    return [compact(held) for held in value]


def to_json(result: ToolResult) -> str:
    """The compact JSON text of a result; reads back into an equal result."""
    return encodable(json_text(compact(result)))


def json_text(structured: object) -> str:
    """Compact JSON, as it leaves the process and as it is kept."""
    return json.dumps(structured, ensure_ascii=False, separators=(",", ":"))


def encodable(text: str) -> str:
    """`text` as UTF-8 can hold it: half a surrogate pair, as in the name of a file that is no text, becomes `?`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def briefest(form: Callable[[int], R], most: int) -> R:
    """`form` with as many rows of each ranking, `most` or fewer, as `BRIEF` characters of JSON hold; else with one."""
    for rows in range(most, 1, -1):
        if len(to_json(shorter := form(rows))) <= BRIEF:
            return shorter
    return form(1)


def shorten_to(tool: Tool[A, R], result: R, budget: int = BUDGET) -> R:
    """What of `result` an agent is given, or the first of the tool's shorter forms whose JSON fits into `budget` characters.

    Raises `OpscopeError` where even the shortest is too long.
    """
    brief = tool.brief(result)
    if (size := len(to_json(brief))) <= budget:
        return brief
    for rung in tool.shorter:
        shorter = rung(result)
        size = len(to_json(shorter))
        if size <= budget:
            return shorter
    where = f" The whole result is the resource {result.artifact}." if result.artifact else ""
    narrowing = [name for name in tool.arguments.model_fields if name in _NARROWING]
    how = f"Ask for less with {' or '.join(narrowing)}" if narrowing else "Name a smaller target"
    raise OpscopeError(
        f"The shortest answer of {tool.name} has {size:,} characters; one answer may take {budget:,}.",
        next_step=f"{how}, or raise OPSCOPE_OUTPUT_BUDGET.{where}",
    )


#: arguments that make an answer smaller, whichever of them a tool has
_NARROWING = frozenset({"repo", "detail", "depth", "offset", "limit", "kernel", "sections", "target"})
