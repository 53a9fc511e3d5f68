"""The tool `find_forward`: where the forward that would run is defined, and what each of its lines does."""

from __future__ import annotations

from collections.abc import Iterator

from opscope_cache.trees import PYTHON
from opscope_schemas.common import ToolArguments
from opscope_schemas.errors import SourceError, ValuesError
from opscope_schemas.index import ExplainedDecorator, FindForwardResult, ForwardLine, Parameter
from pydantic import Field

from opscope_tools.costing.checkpoints import plain_target
from opscope_tools.decided import decided_lines
from opscope_tools.index import ClassSymbol, ForwardDef, Index
from opscope_tools.index.forwards.decorators import explain
from opscope_tools.running.config_files import Config, read_config
from opscope_tools.running.engines import index_of
from opscope_tools.running.tool import Tool, ToolContext

AUTO_CONFIG = "A config.json, its folder or an object: picks the class of an auto class, gives the values in `decided`."


_PLACE = {"class": "class's forward", "forward": "forward"}


class FindForwardArguments(ToolArguments):
    """What `find_forward` takes."""

    target: str = Field(
        max_length=1000,
        description="Class name, short or dotted; model type (`llama`); `path.py:line` or `path.py:Name`.",
    )
    config: Config = Field(default=None, description=AUTO_CONFIG)
    repo: str | None = Field(default=None, description="Repository to look in; default: all.")
    offset: int = Field(default=0, ge=0, description="Lines to skip.")
    limit: int | None = Field(default=None, ge=1, description="Lines to return; default: all.")


def run(arguments: FindForwardArguments, context: ToolContext) -> FindForwardResult:
    """Raises `UnknownNameError`, `AmbiguousNameError`, or `SourceError` for a class without a forward."""
    index = index_of(context.workspace)
    with index.question(context.checkpoint):
        return _answer(index, arguments, context)


def _answer(index: Index, arguments: FindForwardArguments, context: ToolContext) -> FindForwardResult:
    symbol = index.target(
        plain_target(arguments.target), arguments.repo, read_config(context.workspace, arguments.config)
    ).symbol
    context.checkpoint()
    forward = index.forward(symbol)
    if forward is None:
        raise _without_forward(index, symbol)
    lines = decided_lines(index, forward, index.forward_lines(forward), context.workspace, arguments.config)
    if lines and arguments.offset >= len(lines):
        raise ValuesError(
            f"There are {len(lines)} lines: none lies behind offset {arguments.offset}.",
            next_step="Give a smaller offset.",
        )
    page = lines[arguments.offset :]
    page = page[: arguments.limit] if arguments.limit is not None else page
    left_out = ""
    if len(page) < len(lines):
        left_out = (
            f"Lines {arguments.offset + 1} to {arguments.offset + len(page)} of {len(lines)}; the rest with offset."
        )
    row = forward.row
    explained = tuple(_explained(index, symbol, forward))
    repositories = {r.name: r for r in (symbol.repository, forward.unit.tree.repository)}
    return FindForwardResult(
        target=arguments.target,
        class_name=symbol.qualified_name,
        defined_in=forward.defined_in.qualified_name,
        inherited=not forward.defined_in.same(symbol),
        file=forward.file,
        line=forward.line,
        end_line=forward.end_line,
        decorators=row.decorators,
        decorators_explained=explained,
        signature=_signature(forward),
        parameters=tuple(Parameter(name=p.name, annotation=p.annotation, default=p.default) for p in row.parameters),
        returns=row.returns,
        lines=tuple(page),
        line_count=len(lines),
        mro=tuple(index.mro(symbol)),
        sources=tuple(context.workspace.source(repository) for repository in repositories.values()),
        notes=tuple(_notes(index, symbol, forward, explained)),
        shortened=left_out,
    )


def _without_forward(index: Index, symbol: ClassSymbol) -> SourceError:
    mro = [name for name in index.mro(symbol) if name != "object"]
    methods = [name for name in ("generate", "step", "__call__") if index.method(symbol, name) is not None]
    why = "torch.nn.Module only provides a stand-in that raises" if "torch.nn.modules.module.Module" in mro else ""
    searched = f"none of the {len(mro)} classes in its MRO defines one" if len(mro) > 1 else "it does not define one"
    picks = index.picks(symbol)
    if picks:
        return SourceError(
            f"{symbol.qualified_name} has no forward: it picks one of {picks} model types' classes by the configuration.",
            next_step='Give `config`: a config.json, or an object such as {"model_type": "llama"}.',
            location=f"{symbol.file}:{symbol.line}",
        )
    patched = " ".join(index.patches(symbol))
    return SourceError(
        f"{symbol.qualified_name} has no forward: {searched}{'; ' + why if why else ''}."
        + (f" But {patched}" if patched else ""),
        next_step="Name a class that computes, for instance one of its subclasses or submodules (see resolve_class)."
        + (f" It does define {', '.join(methods)}." if methods else ""),
        location=f"{symbol.file}:{symbol.line}",
    )


def _signature(forward: ForwardDef) -> str:
    parts = []
    for parameter in forward.row.parameters:
        text = parameter.name
        if parameter.annotation:
            text += f": {parameter.annotation}"
        if parameter.default:
            text += f" = {parameter.default}" if parameter.annotation else f"={parameter.default}"
        parts.append(text)
    returns = f" -> {forward.row.returns}" if forward.row.returns else ""
    return f"forward({', '.join(parts)}){returns}"


def _explained(index: Index, symbol: ClassSymbol, forward: ForwardDef) -> Iterator[ExplainedDecorator]:
    """Decorators of the classes from the one that was asked for to the one that holds the forward, then its own."""
    for holder in index.resolver.mro(symbol):
        if isinstance(holder, str):
            continue
        for decorator in holder.row.decorators:
            yield explain(index.resolver, holder.unit, decorator, "class")
        if holder.same(forward.defined_in):
            break
    for decorator in forward.row.decorators:
        yield explain(index.resolver, forward.unit, decorator, "forward")


def _notes(
    index: Index, symbol: ClassSymbol, forward: ForwardDef, explained: tuple[ExplainedDecorator, ...]
) -> list[str]:
    notes = source_notes(index, symbol)
    if not forward.defined_in.same(symbol):
        notes.append(f"{symbol.name} inherits its forward from {forward.defined_in.qualified_name}.")
    for one in explained:
        if one.effect == "replaces the implementation under a condition":
            notes.append(
                f"@{one.decorator} may put something else in place of this {_PLACE[one.on]} at run time: "
                "decorators_explained says when."
            )
    for holder in index.resolver.mro(symbol):
        if isinstance(holder, str) or "__init_subclass__" not in holder.members:
            continue
        hook = index.method(holder, "__init_subclass__")
        if hook is not None and hook.defined_in.same(holder):
            text = hook.unit.tree.source(hook.file).split(b"\n")[hook.line - 1 : hook.end_line]
            if any(b"cls.forward =" in line for line in text):
                notes.append(
                    f"{holder.qualified_name} wraps the forward of its subclasses when they are defined "
                    f"({hook.file}:{hook.line}); the lines below are those of the wrapped one."
                )
    if forward.row.stub:
        notes.append("This forward only raises NotImplementedError; subclasses provide the real one.")
    broken = forward.unit.syntax_errors
    if broken and forward.unit is not symbol.unit:
        notes.append(f"{forward.file} has a syntax error at line {broken[0]}; what parses was read.")
    return notes


def source_notes(index: Index, symbol: ClassSymbol) -> list[str]:
    """What a reader must know of the file that defines `symbol`."""
    notes = []
    rows = symbol.unit.rows
    errors = symbol.unit.syntax_errors
    if errors:
        notes.append(f"{symbol.file} has a syntax error at line {errors[0]}; what parses was read.")
    if not rows.utf8:
        notes.append(f"{symbol.file} is not UTF-8; bytes that cannot be read are shown as U+FFFD.")
    if symbol.row.guard.condition:
        notes.append(f"The class is defined under the condition `{symbol.row.guard.condition}`.")
    notes += index.remarks(symbol)
    template = index.template_of(symbol)
    if template:
        notes.append(f"{symbol.file} is generated from {template}; the generated file is what runs.")
    return notes


def _without_calls(result: FindForwardResult) -> FindForwardResult:
    return result.model_copy(
        update={
            "lines": tuple(line.model_copy(update={"calls": ()}) for line in result.lines),
            "shortened": "The calls of each line were left out; ask with a smaller limit to see them.",
        }
    )


def _brief(result: FindForwardResult) -> FindForwardResult:
    def short(line: ForwardLine) -> ForwardLine:
        code = line.code if len(line.code) <= 60 else line.code[:60] + " ..."
        return line.model_copy(
            update={"calls": (), "decided": (), "condition": "", "dispatch": "", "candidates": (), "code": code}
        )

    return result.model_copy(
        update={
            "lines": tuple(short(line) for line in result.lines),
            "shortened": "Calls and conditions were left out and code was cut; ask with offset and limit to see all.",
        }
    )


def _first(result: FindForwardResult) -> FindForwardResult:
    return _brief(result).model_copy(
        update={
            "lines": _brief(result).lines[:60],
            "shortened": f"The first 60 of {result.line_count} lines, cut; ask with offset and limit for the others.",
        }
    )


FIND_FORWARD: Tool[FindForwardArguments, FindForwardResult] = Tool(
    name="find_forward",
    title="Find the forward that runs",
    description=(
        "Where the `forward` that runs for a class or model type is defined (MRO followed), and what each of its "
        "lines does: kind (op, submodule_call, helper_call, control_flow, return), resolved callee with file and "
        "line, condition, training only or not; `decided`: the config fields it hangs on, and the lines that decide them. A callee picked at run time comes with its candidates. Read "
        "statically."
    ),
    arguments=FindForwardArguments,
    result=FindForwardResult,
    run=run,
    sources=PYTHON,
    shorter=(_without_calls, _brief, _first),
)
