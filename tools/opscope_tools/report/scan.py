"""What a report quotes straight from source: parallel plans, dispatch lines, capability flags, the cache.

Each scan returns hits with their line, so that an empty answer can say what was searched for and where.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from opscope_tools.report.sources import SourceReader, Span
from opscope_tools.source.python.decorators import swaps_kernels

__all__ = [
    "Hit", "Method", "Plan", "Unbuilt", "annotated", "asked_beside", "bases", "by_layer", "called_within", "calls_in", "capabilities", "code_lines", "configuration", "declared_text", "decorators", "dtypes_asked", "functions_named",
    "lineage", "matching_lines", "methods", "plans", "unbuilt",
]  # fmt: skip

#: what a layer's own number is called
_LAYER_NUMBER = re.compile(r"layer_(idx|index|id|number)$")
#: what goes through all of them
_LAYERS = re.compile(r"range\([\w.]*layers\)")


@dataclass(frozen=True)
class Hit:
    """A line of source that says something: `name` is what it names, `text` what it says."""

    path: str
    line: int
    name: str
    text: str
    #: what a decorator swaps where that is a function which it names and not what it stands on
    concerns: str = ""
    #: where the name begins on its line, in bytes as syntax trees count
    column: int = field(default=0, compare=False)

    @property
    def pointer(self) -> str:
        """`path:line` in back-ticks."""
        return f"`{self.path}:{self.line}`"


@dataclass(frozen=True)
class Plan:
    """A dictionary that declares how to split a model: the class that holds it, its own line, its entries.

    An entry's `name` is the pattern of modules, its `text` the style as source writes it. `takes_back`: it is none, in the place of
    one that the class would inherit.
    """

    declared: Hit
    holder: str
    entries: tuple[Hit, ...]
    takes_back: bool = False

    @property
    def kind(self) -> str:
        """What is split: `tp`, `pp`, `ep`, `sp`, `fsdp`."""
        return self.declared.name.removesuffix("_plan").rpartition("_")[2]


def plans(reader: SourceReader, path: str, class_name: str) -> list[Plan]:
    """Attributes of a class that declare how to split a model: `base_model_*_plan` and `_*_plan`."""
    span = reader.definition(path, class_name)
    found = []
    for node in span.node.body if span else []:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names = [target.id for target in targets if isinstance(target, ast.Name) and target.id.endswith("_plan")]
        if names and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            entries = (
                [
                    Hit(path, key.lineno, _text(key), _text(value))
                    for key, value in zip(node.value.keys, node.value.values, strict=True)
                    if key is not None
                ]
                if isinstance(node.value, ast.Dict)
                else []
            )
            empty = ast.unparse(node.value) in ("None", "{}")
            found.append(Plan(Hit(path, node.lineno, names[0], ""), class_name, tuple(entries), empty))
    return found


def methods(reader: SourceReader, place: tuple[str, Span] | None) -> list[Method]:
    """The methods of a class, inherited ones too."""
    found: dict[str, Method] = {}
    for path, span in lineage(reader, place):
        for node in span.node.body if isinstance(span.node, ast.ClassDef) else ():
            if isinstance(node, ast.FunctionDef) and node.name not in found:
                is_property = any("property" in ast.unparse(one) for one in node.decorator_list)
                found[node.name] = Method(Hit(path, node.lineno, node.name, ""), _of_self(node), is_property)
    return list(found.values())


def _of_self(node: ast.FunctionDef) -> frozenset[str]:
    asked = (
        call.args[1].value
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "getattr" and ast.unparse(call.args[0]) == "self"
        and len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
    )  # fmt: skip
    return frozenset([*_attributes(node, {"self"}), *map(str, asked)])


def lineage(reader: SourceReader, place: tuple[str, Span] | None) -> list[tuple[str, Span]]:
    """A class and those that it derives from, nearest first, as far as the registered repositories hold them."""
    found: list[tuple[str, Span]] = []
    pending = [place]
    while pending:
        place = pending.pop(0)
        if place is not None and place not in found:
            found.append(place)
            pending += bases(reader, *place)
    return found


def dtypes_asked(reader: SourceReader, place: tuple[str, Span], flag: str) -> tuple[frozenset[str], Hit] | None:
    """The dtypes for which a class, or one that it derives from, acts by a flag of its own, and the line that tests for them."""
    for path, span in lineage(reader, place):
        for test in (node.test for node in ast.walk(span.node) if isinstance(node, ast.If)):
            compared = [
                each for each in ast.walk(test) if isinstance(each, ast.Compare) and "dtype" in ast.unparse(each.left)
            ]
            named = (name for each in compared for side in each.comparators for name in ast.walk(side))
            dtypes = {
                each.attr for each in named if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "torch"
            }
            if dtypes and f"self.{flag}" in {ast.unparse(each) for each in ast.walk(test)}:
                return frozenset(dtypes), Hit(path, test.lineno, flag, reader.line(path, test.lineno))
    return None


def asked_beside(reader: SourceReader, path: str, line: int) -> list[str]:
    """What a condition that runs over a line asks beside what stands there, all of which has to hold."""
    tree = reader.tree(path)
    around = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.BoolOp)
        and isinstance(node.op, ast.And)
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    smallest = min(around, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)
    parts = smallest.values if smallest is not None else []
    return [ast.unparse(part) for part in parts if not part.lineno <= line <= (part.end_lineno or 0)]


def by_layer(reader: SourceReader, path: str, scopes: Iterable[str]) -> list[str]:
    """The settings that definitions of a file hold against the number of a layer, or look up by it."""
    wanted, found = set(scopes), dict[str, None]()
    for span in reader.spans(path):
        nodes = list(ast.walk(span.node)) if span.name in wanted else []
        counted = {
            ast.unparse(node.target)
            for node in nodes
            if isinstance(node, ast.For | ast.comprehension) and _LAYERS.match(ast.unparse(node.iter))
        }
        for node in nodes:
            held = isinstance(node, ast.Compare | ast.BinOp | ast.Subscript)
            if held and any(_numbered(child, counted) for child in ast.iter_child_nodes(node)):
                found |= dict.fromkeys(_attributes(node, {"config", "self.config"}))
    return list(found)


def _numbered(node: ast.AST, counted: set[str]) -> bool:
    """Whether an expression is the number of a layer, or reckoned from it: `layer_idx + 1`."""
    if isinstance(node, ast.BinOp):
        return _numbered(node.left, counted) or _numbered(node.right, counted)
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return name in counted or bool(_LAYER_NUMBER.search(name))


def _attributes(node: ast.AST, owners: set[str]) -> list[str]:
    """What is read of the objects that go by those names."""
    return [
        n.attr
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and ast.unparse(n.value) in owners
    ]


def bases(reader: SourceReader, path: str, span: Span) -> list[tuple[str, Span]]:
    """The classes that a class names as its bases, each with its file."""
    named = [ast.unparse(base) for base in span.node.bases] if isinstance(span.node, ast.ClassDef) else []
    return [found for name in named if (found := meant(reader, path, name)) is not None]


def configuration(reader: SourceReader, path: str, span: Span) -> tuple[str, Span] | None:
    """The class of configuration that a model's class says it is made with: `config: X` or `config_class = X`."""
    for node in span.node.body if isinstance(span.node, ast.ClassDef) else ():
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "config":
            return meant(reader, path, ast.unparse(node.annotation).strip("'\""))
        if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["config_class"]:
            return meant(reader, path, ast.unparse(node.value).strip("'\""))
    return None


def annotated(reader: SourceReader, place: tuple[str, Span], name: str) -> tuple[str, Span] | None:
    """The class that a class says one of its fields is, the first of several that are found."""
    path, span = place
    for node in span.node.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            named = (meant(reader, path, part.strip()) for part in ast.unparse(node.annotation).strip("'\"").split("|"))
            return next((found for found in named if found is not None), None)
    return None


def declared_text(reader: SourceReader, place: tuple[str, Span] | None, name: str) -> str | None:
    """The string that a class, or the nearest that it derives from, binds a name to; None where none of them does."""
    for _, span in lineage(reader, place):
        for node in span.node.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            value = getattr(node, "value", None)
            if (
                isinstance(value, ast.Constant)
                and isinstance(value.value, str)
                and name in [getattr(t, "id", "") for t in targets]
            ):
                return value.value
    return None


def meant(reader: SourceReader, path: str, name: str) -> tuple[str, Span] | None:
    """The definition that a name of a file means, and the file that holds it: that of an import there, or the file's own."""
    for one in reader.imports(path, name):
        file = one.module.replace(".", "/")
        if (found := reader.definition(f"{file}.py", one.member)) is not None:
            return f"{file}.py", found
        if reader.lines(inside := f"{file}/__init__.py") is not None and inside != path:
            return meant(reader, inside, one.member)
    own = reader.definition(path, name)
    return (path, own) if own is not None else None


def _text(node: ast.expr) -> str:
    """A string's own words; other expressions as source writes them."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def decorators(reader: SourceReader, path: str, scopes: Iterable[str]) -> list[Hit]:
    """Decorators of the definitions `scopes` and of the functions inside them that put another kernel in their place."""
    wanted = set(scopes)
    return [
        Hit(path, decorator.lineno, span.name, ast.unparse(decorator), _function_of(reader, path, decorator))
        for span in reader.spans(path)
        if span.name.split(".")[0] in wanted
        for decorator in span.node.decorator_list
        if swaps_kernels(decorator)
    ]


def _function_of(reader: SourceReader, path: str, decorator: ast.expr) -> str:
    """The function that a decorator is handed, as in `@use_kernelized_func(rotate)`; empty where it is handed none."""
    first = decorator.args[0] if isinstance(decorator, ast.Call) and decorator.args else None
    if not isinstance(first, ast.Name):
        return ""
    span = reader.definition(path, first.id)
    return "" if span is not None and isinstance(span.node, ast.ClassDef) else first.id


def called_within(reader: SourceReader, path: str, scopes: Iterable[str]) -> set[str]:
    """The definitions `scopes` of a file with the functions of that file that they call, and those that these call."""
    functions = {span.name: span.node for span in reader.spans(path)}
    found, pending = set[str](), list(scopes)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [each for each in calls_in(functions[name]) if each in functions] if name in functions else []
    return found


def calls_in(node: ast.AST, owner: str = "") -> list[str]:
    """Names that a definition calls; those of methods of `self` too, dotted, where the class is given that `owner` names."""
    calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
    own = [
        f"{owner}.{f.attr}" for f in calls if owner and isinstance(f, ast.Attribute) and ast.unparse(f.value) == "self"
    ]
    return [*own, *(f.id for f in calls if isinstance(f, ast.Name))]


def functions_named(reader: SourceReader, path: str, expression: str) -> list[str]:
    """The functions of a file that an expression names, as `use_kernelized_func([rotate, scan])` does."""
    try:
        names = [node.id for node in ast.walk(ast.parse(expression, mode="eval")) if isinstance(node, ast.Name)]
    except SyntaxError:  # cut short
        names = re.findall(r"\w+", expression)
    spans = {name: reader.definition(path, name) for name in names}
    return [name for name, span in spans.items() if span is not None and not isinstance(span.node, ast.ClassDef)]


def code_lines(reader: SourceReader, path: str) -> list[str]:
    """The lines of a Python file without comments and without the words of strings; other files, and what Python cannot
    read, as they are."""
    lines = reader.lines(path) or []
    return list(lines) if reader.tree(path) is None else list(_bare("\n".join(lines)))


@lru_cache(maxsize=32)
def _bare(source: str) -> Sequence[str]:
    lines = source.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(source + "\n").readline):
        if token.type not in (tokenize.COMMENT, tokenize.STRING):
            continue
        (first, begin), (last, end) = token.start, token.end
        for row in range(first, last + 1):
            text = lines[row - 1]
            left, right = begin if row == first else 0, end if row == last else len(text)
            lines[row - 1] = text[:left] + " " * (right - left) + text[right:]
    return lines


@dataclass(frozen=True)
class Method:
    """A method of a class, and the attributes of its object that it reads."""

    at: Hit
    reads: frozenset[str]
    is_property: bool


@dataclass(frozen=True)
class Unbuilt:
    """A class with a forward that a constructor makes under a test that this model does not meet."""

    made: Hit
    defined: int
    maker: str


def unbuilt(reader: SourceReader, path: str, built: Mapping[str, Collection[str]]) -> list[Unbuilt]:
    """The classes of a file that constructors of `built` ones, which are those of a model, make elsewhere, and the modules of the library
    that they hold elsewhere, by attribute: `Hit.text` is the test, as far as it is written around the call. `built`: name of a class
    -> the modules that objects of it hold."""
    classes = {span.name: span for span in reader.spans(path) if isinstance(span.node, ast.ClassDef)}
    runs = {span.name.rpartition(".")[0] for span in reader.spans(path) if span.name.endswith(".forward")}
    found: dict[tuple[str, str], Unbuilt] = {}
    for span in reader.spans(path):
        maker, _, method = span.name.rpartition(".")
        if method != "__init__" or maker not in built:
            continue
        for call, tests in _calls_under(span.node.body, ()):
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            if name in classes and name in runs and name not in built and tests:
                hit = Hit(path, call.lineno, name, " and ".join(tests))
                found.setdefault((name, maker), Unbuilt(hit, classes[name].line, maker))
        for held, call, tests in _held_under(span.node.body, ()):
            if tests and held not in built[maker] and ast.unparse(call.func).startswith(("nn.", "torch.nn.")):
                hit = Hit(path, call.lineno, held, " and ".join(tests))
                found.setdefault((held, maker), Unbuilt(hit, call.lineno, maker))
    return list(found.values())


def _held_under(body: Sequence[ast.stmt], tests: tuple[str, ...]) -> Iterator[tuple[str, ast.Call, tuple[str, ...]]]:
    """Every `self.NAME = call(...)` of some statements, with the tests that it stands under."""
    for node in body:
        if isinstance(node, ast.If):
            said = ast.unparse(node.test)
            yield from _held_under(node.body, (*tests, said))
            yield from _held_under(node.orelse, (*tests, f"not ({said})" if " " in said else f"not {said}"))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            for target in node.targets:
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                ):
                    yield target.attr, node.value, tests


def _calls_under(body: Sequence[ast.AST], tests: tuple[str, ...]) -> Iterator[tuple[ast.Call, tuple[str, ...]]]:
    """Every call of some statements, with the tests that it stands under."""
    for node in body:
        if isinstance(node, ast.If | ast.IfExp):
            said = ast.unparse(node.test)
            sides = (node.body, node.orelse) if isinstance(node, ast.If) else ([node.body], [node.orelse])
            yield from _calls_under([node.test], tests)
            yield from _calls_under(sides[0], (*tests, said))
            yield from _calls_under(sides[1], (*tests, f"not ({said})" if " " in said else f"not {said}"))
            continue
        if isinstance(node, ast.Call):
            yield node, tests
        yield from _calls_under(list(ast.iter_child_nodes(node)), tests)


def matching_lines(
    reader: SourceReader, path: str, pattern: str, scopes: Iterable[str] | None = None, *, every: bool = False
) -> list[Hit]:
    """Lines of `path` whose code matches the regular expression, inside `scopes` where given; the first group is the name.

    A line is one hit, of what matches first; with `every` it is one for each name that matches.
    """
    compiled, wanted = re.compile(pattern), None if scopes is None else set(scopes)
    hits = []
    for number, text in enumerate(code_lines(reader, path), 1):
        found = [] if text.lstrip().startswith(("import ", "from ")) else list(compiled.finditer(text))
        around = reader.enclosing(path, number) if found and wanted is not None else []
        if found and (wanted is None or (around and around[0].name in wanted)):
            group = 1 if compiled.groups else 0
            names = {one.group(group): one.start(group) for one in reversed(found if every else found[:1])}
            hits += [
                Hit(path, number, name, reader.line(path, number), column=len(text[:start].encode()))
                for name, start in sorted(names.items(), key=lambda each: each[1])
            ]
    return hits


def capabilities(reader: SourceReader, path: str) -> list[Hit]:
    """Flags such as `_supports_sdpa = True` that classes of `path` set, by name; what they set to False, as it stands there;
    what of it is kept in float32, and that it takes some flash kernels alone."""
    flag = r"(?:_supports_\w+|_can_compile_fullgraph)"
    return matching_lines(
        reader,
        path,
        rf"^\s+({flag}(?=\s*=\s*True)|{flag}\s*=\s*False|(?:_keep_in_fp32_modules(?:_strict)?|_compatible_flash_implementations)(?=\s*=\s*\[[^\]]))",
    )
