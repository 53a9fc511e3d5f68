"""Everything that one Python file says, from one parse."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from opscope_tools.survey.definitions import DefinitionReader
from opscope_tools.survey.environment_reads import EnvironmentReader
from opscope_tools.survey.facts import FileFacts, Hit
from opscope_tools.survey.flag_reads import FlagReader
from opscope_tools.survey.markers import MarkerReader
from opscope_tools.survey.module import CAPITALS, Module

#: topics whose every line is kept; of the others the first lines of a file
_WHOLE = ("entry.", "ext.", "kernel.optional", "kernel.triton")
_KEPT = 12
#: words without which a file holds no reads of the environment, and no flags
_READS = ("environ", "getenv", "envvar", "BaseSettings", "decouple", "starlette.config", "environs")
_FLAGS = (
    "add_argument", "click", "typer", "absl", "rgumentParser", "tyro", "simple_parsing", "jsonargparse", "CliApp", "fire",
    "cli_args", "add_args", "arguments ",
)  # fmt: skip


def read_python(path: str, text: str, name: str) -> FileFacts:
    """The facts of the file at `path`, the module `name`; where it does not parse, `broken` says why."""
    facts = FileFacts(path, "python", lines=text.count("\n") + (not text.endswith("\n") and bool(text)))
    try:
        module = Module(path, text, name)
        _fill(facts, module)
    except SyntaxError as error:
        facts.broken = f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        facts.broken = f"{type(error).__name__}: {error}"
    return facts


def _fill(facts: FileFacts, module: Module) -> None:
    first = module.tree.body[0] if module.tree.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        said = first.value.value.strip().splitlines()
        facts.docstring = Hit("docstring", first.lineno, said[0][:160] if said else "")
    definitions = DefinitionReader(module)
    facts.classes = tuple(definitions.classes())
    facts.functions = tuple(definitions.functions())
    facts.imports, facts.exports, facts.guards = module.imports, module.exports, module.guards
    environment = EnvironmentReader(module)
    facts.environment = tuple(environment.reads()) if module.mentions(_READS) else ()
    facts.named_calls = tuple(environment.calls())
    if any(read.kind == "attribute" for read in facts.environment):
        facts.self_sets = tuple(environment.self_sets())
    facts.constants = module.constants
    facts.tokens = _tokens(module)
    if module.mentions(_FLAGS):
        flags = FlagReader(module)
        facts.flags = tuple(flags.flags())
        facts.flag_makers = flags.makers()
        facts.class_calls = tuple(flags.class_calls())
    hits = [*MarkerReader(module).hits()]
    facts.topics = kept(hit for hit in hits if not hit[0].startswith("does."))
    _mark(facts, module, (hit for hit in hits if hit[0].startswith("does.")))


def _mark(facts: FileFacts, module: Module, hits: Iterable[tuple[str, Hit]]) -> None:
    """What the bodies of classes, and of functions at module level, show of roles: each role's first name in each body."""
    marked = {function.path: function.does for function in facts.functions}
    marked |= {holder.path: holder.does for holder in facts.classes}
    for topic, hit in hits:
        for path, node in module.around(hit.line):
            if path in marked and hit.line > node.lineno:  # its own name is no work
                known = marked[path].get(topic)
                if known is None or hit.line < known[1]:
                    marked[path][topic] = (hit.name, hit.line)


def kept(hits: Iterable[tuple[str, Hit]]) -> dict[str, tuple[int, list[Hit]]]:
    """Topic -> how many lines, and those that are kept, in the order of lines; a line counts once for a topic."""
    lines: dict[str, dict[tuple[int, str], Hit]] = {}
    for topic, hit in hits:
        # entries and identifiers may stand several to a line; what counts is the line
        lines.setdefault(topic, {}).setdefault((hit.line, hit.text if topic.startswith("ext.") else ""), hit)
    found = {}
    for topic, held in lines.items():
        ordered = sorted(held.values(), key=lambda hit: hit.line)
        found[topic] = (len(ordered), ordered if topic.startswith(_WHOLE) else ordered[:_KEPT])
    return found


def _tokens(module: Module) -> dict[str, int]:
    """Names in capitals with an underscore that stand in strings or as attributes -> their first line."""
    found: dict[str, int] = {}
    pairs = [
        (node.value, node.lineno)
        for node in module.all(ast.Constant)
        if isinstance(node.value, str) and len(node.value) < 80
    ]
    pairs += [(node.attr, node.lineno) for node in module.all(ast.Attribute) if node.attr.isupper()]
    for text, line in pairs:
        if "_" in text and text.isupper() and CAPITALS.fullmatch(text):
            found[text] = min(line, found.get(text, line))
    return found
