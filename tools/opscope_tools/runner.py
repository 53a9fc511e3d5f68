"""How a tool is run, whoever asks: check the arguments, look in the store, call the handler, keep the whole result.

Order: arguments into one clear sentence, the key of a result, running, the compact form that leaves the process, and
the ladder of shorter forms. A result is stored once, as the text of its artifact; the cache reads it from there.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from opscope_cache import keys
from opscope_schemas.common import ToolArguments, ToolResult
from opscope_schemas.errors import InputError, OpscopeError, SourceError
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, to_jsonable_python

from opscope_tools.spec import AnyTool, ToolContext
from opscope_tools.workspace import Workspace

#: scheme of every resource that opscope serves
SCHEME = "opscope"
#: characters of structured JSON that one answer may take
BUDGET = 25_000
_PROMISED = (
    "matches qualified_name file line end_line bases mro submodules attribute class_name arguments condition"
    " subclasses exported_as suggestions defined_in inherited decorators parameters lines code kind callee"
    " document kernel_type operation analysis flops matmul_flops memory_access read write totals variables"
    " assumptions conditions not_counted conventions memory_read memory_write"
    " name language constexpr tile grid num_tiles mapping num_warps num_stages autotune loads stores shared_memory"
    " constraints resources path ok problems rule message summary"
)
#: fields that other programs rely on: always present, even when they hold their default (`kernels` has none where it
#: is promised; inside a kernel it is null where the kernel is basic)
KEPT = frozenset(_PROMISED.split())


# ---- arguments -----------------------------------------------------------------------------------------------------


def validate(tool: AnyTool, arguments: Mapping[str, Any] | ToolArguments) -> ToolArguments:
    """`arguments` as the tool's own type; raises `InputError`, one sentence for all problems together."""
    if isinstance(arguments, ToolArguments):
        assert isinstance(arguments, tool.arguments), f"{tool.name} was given {type(arguments).__name__}"
        own: ToolArguments = arguments
        return own
    given = {name: _unquoted(tool, name, value) for name, value in arguments.items()}
    try:
        checked: ToolArguments = tool.arguments.model_validate(given)
    except ValidationError as error:
        raise InputError(*_explain(tool, error)) from None
    return checked


def _unquoted(tool: AnyTool, name: str, value: Any) -> Any:
    """Some clients send objects and lists as JSON text; read them where one may stand."""
    field = tool.arguments.model_fields.get(name)
    if field is None or field.annotation is str or not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


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


def _reason(detail: ErrorDetails) -> str:
    message = detail["msg"].removeprefix("Value error, ").rstrip(".")
    inner = ".".join(str(part) for part in detail["loc"][1:] if not str(part).startswith(("dict[", "function-")))
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
        named = _named_files(given)
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
    return keys.of_document([tool.name, given, named, trees, _interpreter(workspace.python), keys.engine_version()])


def _named_files(given: object) -> list[list[str]]:
    """Path and content digest of every file that an argument names, e.g. a config.json, or one inside a folder."""
    if isinstance(given, Mapping):
        return [entry for value in given.values() for entry in _named_files(value)]
    if isinstance(given, list):
        return [entry for value in given for entry in _named_files(value)]
    if not isinstance(given, str) or not given or len(given) > 1024 or "\0" in given or "\n" in given:
        return []
    found = []
    try:
        for path in (Path(given).expanduser(), Path(given).expanduser() / "config.json"):
            if path.is_file():
                found += [[str(path.resolve()), keys.digest(path.read_bytes())]]
    except (OSError, RuntimeError):
        return []
    return found


def _interpreter(python: str) -> list[str]:
    """Which interpreter traces, and whether its packages changed: installing one touches its site-packages."""
    if python == sys.executable:
        return [python, sys.version]
    prefix = Path(python).absolute().parent.parent
    folders = sorted(prefix.glob("lib/python*/site-packages"))
    return [python, *(f"{folder}:{folder.stat().st_mtime_ns}" for folder in folders)]


def run_tool(tool: AnyTool, arguments: Mapping[str, Any] | ToolArguments, context: ToolContext) -> ToolResult:
    """The whole result of `tool`; from the store where the tool is cached and nothing it depends on has changed.

    Raises the errors of opscope_schemas.errors. The result's `artifact` names the resource that holds it whole.
    """
    checked = validate(tool, arguments)
    if not tool.cached:
        return _run(tool, checked, context)
    store = context.workspace.store
    key = result_key(tool, checked, context.workspace)
    kept = None if tool.fresh(checked) else store.get(f"artifact/{key}")
    if kept is not None:
        try:
            whole: ToolResult = tool.result.model_validate_json(kept)
        except ValidationError:  # written by a newer or older opscope, or damaged: compute it anew
            pass
        else:
            return whole
    context.checkpoint()
    answer: ToolResult = _run(tool, checked, context)
    context.checkpoint()  # whoever cancelled does not want a half-believed result kept
    answer = answer.model_copy(update={"artifact": f"{SCHEME}://artifact/{key}"})
    store.put(f"artifact/{key}", to_json(answer))
    return answer


def _run(tool: AnyTool, arguments: ToolArguments, context: ToolContext) -> ToolResult:
    """What the tool says; what nests deeper than any reader goes is an answer too."""
    try:
        result: ToolResult = tool.run(arguments, context)
    except RecursionError:
        raise SourceError(
            "What was asked for nests too deeply to be read.", next_step="Ask for a smaller part of it."
        ) from None
    return result


# ---- what leaves the process ---------------------------------------------------------------------------------------


def compact(value: Any) -> Any:
    """JSON-able form without the fields that say nothing: those at their default, except the promised ones."""
    if isinstance(value, BaseModel):
        return {
            name: compact(held)
            for name, field in type(value).model_fields.items()
            if (held := getattr(value, name)) != field.get_default(call_default_factory=True) or name in KEPT
        }
    if isinstance(value, Mapping):
        return {str(key): compact(held) for key, held in value.items()}
    if isinstance(value, str) or not isinstance(value, Iterable):
        return to_jsonable_python(value)
    return [compact(held) for held in value]


def to_json(result: ToolResult) -> str:
    """The compact JSON text of a result; reads back into an equal result."""
    return json.dumps(compact(result), ensure_ascii=False, separators=(",", ":"))


def shorten_to(tool: AnyTool, result: ToolResult, budget: int = BUDGET) -> ToolResult:
    """`result`, or the first of the tool's shorter forms whose JSON fits into `budget` characters.

    Raises `OpscopeError` where even the shortest is too long.
    """
    size = len(to_json(result))
    if size <= budget:
        return result
    for rung in tool.shorter:
        shorter: ToolResult = rung(result)
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
