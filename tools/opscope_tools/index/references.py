"""Who uses a definition: each place with its kind, and whether name resolution in that file leads to the definition.

In order: the answer (`Reference`, `References`), the search over files (`find`), and the reading of one hit (`_Reader`).
Files are taken by nearness to the definition. Places whose name leads elsewhere are left out; places where an object's
class is not known are kept with `verified` false. What stands in comments and prose is counted as a mention.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from opscope_tools.index.occurrences import Excerpt, occurrences
from opscope_tools.index.parse import Node, dotted, line_of, text_of
from opscope_tools.index.queries import Index
from opscope_tools.index.receivers import Lineage, Receivers, imported_member
from opscope_tools.index.resolve import ClassSymbol, Found, Resolver
from opscope_tools.index.scopes import Scopes, binding_of, enclosing, path_of
from opscope_tools.index.sought import Sought
from opscope_tools.index.trees import SourceTree, Unit

Kind = Literal[
    "call",
    "import",
    "export",
    "subclass",
    "instantiate",
    "annotation",
    "read",
    "write",
    "define",
    "decorator",
    "string",
]
#: hits that are read in any case; beyond, reading goes on only until the page that was asked for is full
BUDGET = 3000
_CODE_LIMIT = 200
_QUOTED = re.compile(rb"[\"']")
_QUOTES = frozenset(b".\"'")


@dataclass(frozen=True)
class Reference:
    """One use. `line` is that of the name; `code` the first line of its statement, and the name's own line after it."""

    file: str
    line: int
    code: str
    kind: Kind
    within: str
    verified: bool
    repository: str


@dataclass
class References:
    """The answer: `hits` words that can be references, `read` of them looked at; `mentions` stand in prose."""

    found: list[Reference] = field(default_factory=list)
    hits: int = 0
    read: int = 0
    files: int = 0
    mentions: int = 0
    templates: int = 0
    aliases: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every hit was read."""
        return self.read == self.hits


@dataclass(frozen=True)
class _Work:
    """One file to read: the offsets of one word in it."""

    tree: SourceTree
    file: str
    word: str
    offsets: tuple[int, ...]


def find(
    index: Index,
    target: Sought,
    *,
    wanted: int = 0,
    wants: Callable[[Reference], bool] = lambda _: True,
    repo: str | None = None,
    budget: int = BUDGET,
    most: int | None = None,
    step: Callable[[int, int], None] = lambda _done, _total: None,
) -> References:
    """The references of `target`, in files of `repo` where it is given.

    Reads `budget` hits, and more, up to `most`, until `wanted` references that `wants` accepts are found.
    `step(read, hits)` is called before each file.
    """
    result = References()
    lineage = Lineage(index.resolver)
    verdicts: dict[tuple[str, str, str], bool | None] = {}
    words, seen, accepted = list(target.words), set(), 0
    pending = _work(index, target, words, repo, result)
    while pending:
        work = pending.pop(0)
        if result.read >= budget and (accepted >= wanted or (most is not None and result.read >= most)):
            break
        step(result.read, result.hits)
        unit = work.tree.unit(work.file)
        reader = _Reader(target, lineage, unit, work, verdicts)
        for reference in reader.read():
            key = reference.repository, reference.file, reference.line, reference.kind, reference.verified
            if key in seen:  # twice on one line
                continue
            seen.add(key)
            result.found.append(reference)
            accepted += wants(reference)
        result.read += len(work.offsets)
        result.mentions += reader.mentions
        for alias, visible in reader.aliases.items():
            if alias not in words and visible:
                words.append(alias)
                result.aliases.append(alias)
                pending += _work(index, target, [alias], repo, result)
            elif alias not in words:
                pending[:0] = _in_file(work.tree, work.file, target, alias, result)
    return result


def _work(index: Index, target: Sought, words: list[str], repo: str | None, result: References) -> list[_Work]:
    """The files that hold one of the words, the nearest first; templates are counted only."""
    found = [
        work
        for tree in index.names.trees(repo)
        for word in words
        for file in tree.files_mentioning(word)
        for work in _in_file(tree, file, target, word, result)
    ]
    return sorted(found, key=lambda work: (_distance(work, target.unit), work.file))


def _distance(work: _Work, unit: Unit) -> int:
    """0 for the definition's own file, 1 for its folder, 2 for its package, 3 for the rest."""
    if work.tree is not unit.tree or work.file.split("/", 1)[0] != unit.file.split("/", 1)[0]:
        return 3
    if work.file == unit.file:
        return 0
    return 1 if work.file.rpartition("/")[0] == unit.file.rpartition("/")[0] else 2


def _in_file(tree: SourceTree, file: str, target: Sought, word: str, result: References) -> Iterator[_Work]:
    try:
        source = tree.source(file)
    except OSError:
        return
    offsets = tuple(_offsets(source, target, word, own=file == target.unit.file))
    if not offsets:
        return
    if file.rpartition("/")[2].startswith("modular_"):
        result.templates += len(offsets)
        return
    code = tuple(at for at in offsets if not _commented(source, at))
    result.mentions += len(offsets) - len(code)
    if code:
        result.hits += len(code)
        result.files += 1
        yield _Work(tree, file, word, code)


def _commented(source: bytes, at: int) -> bool:
    """Whether a `#` before the hit makes it prose: where the line so far has no quote, of a comment or of a string."""
    before = source[source.rfind(b"\n", 0, at) + 1 : at]
    return b"#" in before and not _QUOTED.search(before.partition(b"#")[0])


def _offsets(source: bytes, target: Sought, word: str, *, own: bool) -> Iterator[int]:
    """Hits that can be references: a member is reached by `.name` or a string, set by keyword, or bound in a class."""
    text = word.encode()
    constructed = own or (target.symbol is not None and target.symbol.name.encode() in source)
    for at in occurrences(source, text):
        if not target.member or own or source[at - 1] in _QUOTES:
            yield at
        elif constructed or b"super()" in source:
            after = source[at + len(text) : at + len(text) + 3].lstrip()
            if after.startswith(b"=") and not after.startswith(b"=="):
                yield at


class _Reader:
    """Reads the hits of one file."""

    def __init__(
        self,
        target: Sought,
        lineage: Lineage,
        unit: Unit,
        work: _Work,
        verdicts: dict[tuple[str, str, str], bool | None],
    ) -> None:
        self.target, self.lineage, self.unit, self.word = target, lineage, unit, work.word
        self.resolver: Resolver = lineage.resolver
        self.excerpt = Excerpt(unit, work.tree.source(work.file), work.offsets)
        self.scopes = Scopes(self.excerpt)
        self.receivers = Receivers(lineage, self.excerpt, self.scopes)
        self.verdicts = verdicts
        self.mentions = 0
        #: other names that this file gives the target, and whether other modules can see them
        self.aliases: dict[str, bool] = {}

    def read(self) -> Iterator[Reference]:
        for line, column in self.excerpt.places:
            node = self.excerpt.node(line, column, len(self.word.encode()))
            if node is None:
                continue
            if node.type == "identifier" and text_of(node) == self.word:
                said = self._member(node) if self.target.member else self._name(node)
            elif node.type in {"comment", "string_content", "string"}:
                said = self._string(node)
                self.mentions += said is None
            else:
                said = None
            if said is not None and said[1] is not False:
                yield self._reference(node, line, said[0], verified=said[1] is True)

    def _reference(self, node: Node, line: int, kind: Kind, *, verified: bool) -> Reference:
        statement = _statement(node)
        first = line_of(statement)
        code = self.excerpt.line(first)
        if first != line:
            code = f"{code[: _CODE_LIMIT // 2]} ... {self.excerpt.line(line)}"
        inner = path_of(node)
        within = ".".join(part for part in (self.unit.name, inner) if part)
        return Reference(
            self.unit.file, line, code[:_CODE_LIMIT], kind, within, verified, self.unit.tree.repository.name
        )

    # names of a module: True: leads to the target, False: leads elsewhere, None: not known

    def _name(self, node: Node) -> tuple[Kind, bool | None] | None:
        parent = node.parent
        if parent is None:
            return None
        if parent.type == "dotted_name" or parent.type == "aliased_import":
            imported = self._import(node)
            if imported is not None:
                return imported
        binding = binding_of(node)
        if binding is not None and not (binding.kind == "assignment" and binding.scope is None):
            return None
        expression = node
        if parent.type == "attribute":
            name = parent.child_by_field_name("attribute")
            if name is not None and name.id == node.id:
                expression = parent
        elif parent.type == "keyword_argument" and _field(parent, "name", node):
            return None
        here = line_of(node) == self.target.line and self.unit is self.target.unit
        if binding is not None and (here or self.word not in self.target.words):
            return None  # the definition itself, or that of an alias
        kind = self._kind(expression)
        verdict = self._leads(expression)
        if verdict and kind == "read":
            self._alias(expression)
        return kind, verdict

    def _leads(self, expression: Node) -> bool | None:
        """Whether a name or a dotted expression leads to the target."""
        text = dotted(expression)
        if not text:
            return False  # an attribute of some object's: not a name of a module
        head = text.split(".", 1)[0]
        if self.scopes.local(expression, head):
            found = self.receivers.meaning(expression)
            return self._same(found) if found is not None else False
        at_top = not enclosing(expression)
        if at_top:
            found = self.resolver.dotted(self.unit, text, line_of(expression) + (binding_of(expression) is not None))
            return self._same(found)
        key = self.unit.tree.repository.name, self.unit.file, text
        if key not in self.verdicts:
            self.verdicts[key] = self._same(self.resolver.dotted(self.unit, text))
        return self.verdicts[key]

    def _same(self, found: Found | None) -> bool | None:
        if found is None:
            return None
        if self.target.is_found(found):
            return True
        if found.kind == "external":
            module = found.name.rpartition(".")[0]
            known = module and self.resolver.module(module, self.unit.tree) is not None
            return None if known else False
        return False

    def _import(self, node: Node) -> tuple[Kind, bool | None] | None:
        """A hit inside an import statement; None where it is an alias for something else."""
        name = node.parent
        if name is not None and name.type == "aliased_import":
            return "import", False  # the alias: counted where the name stands
        statement = name.parent if name is not None else None
        aliased: Node | None = None
        if statement is not None and statement.type == "aliased_import":
            aliased, statement = statement, statement.parent
        if name is None or statement is None or statement.type != "import_from_statement":
            return None
        module = statement.child_by_field_name("module_name")
        if module is None or node.start_byte < module.end_byte:
            return "import", False
        verdict = self._same(imported_member(self.resolver, self.unit, text_of(module).replace(" ", ""), self.word))
        if verdict and aliased is not None:
            visible = not enclosing(node)
            self.aliases[text_of(aliased.child_by_field_name("alias"))] = visible
        return "import", verdict

    def _alias(self, expression: Node) -> None:
        """Note `other = Name`, by which the target goes from then on."""
        statement = expression.parent
        if statement is None or statement.type != "assignment" or not _field(statement, "right", expression):
            return
        left = statement.child_by_field_name("left")
        if left is not None and left.type == "identifier":
            around = enclosing(expression)
            if not around or around[0].type == "function_definition":
                self.aliases[text_of(left)] = not around

    # methods and fields

    def _member(self, node: Node) -> tuple[Kind, bool | None] | None:
        parent = node.parent
        if parent is None:
            return None
        if parent.type == "attribute" and _field(parent, "attribute", node):
            return self._kind(parent), self._on(parent.child_by_field_name("object"), parent)
        if parent.type == "keyword_argument" and _field(parent, "name", node):
            return self._keyword(parent)
        binding = binding_of(node)
        if binding is not None and binding.kind == "assignment" and binding.scope is not None:
            owner = self.receivers.own_class(node)
            in_body = binding.scope.type == "class_definition"
            if in_body and owner is not None and self.target.holder is not None and owner.same(self.target.holder):
                return "define", True
        return None

    def _on(self, receiver: Node | None, place: Node) -> bool | None:
        """Whether the member of what `receiver` is may be the target."""
        if receiver is None:
            return None
        if receiver.type == "call" and text_of(receiver.child_by_field_name("function")) == "super":
            owner = self.receivers.own_class(place)
            if owner is None or self.target.symbol is None:
                return None
            held = self.lineage.holder(owner, self.word, after=owner)
            same = held is not None and self.target.holder is not None and held.same(self.target.holder)
            return same and self.lineage.derives(owner, self.target.symbol)
        classes = self.receivers.of(receiver)
        if not classes:
            found = self.receivers.meaning(receiver)
            return False if found is not None and found.kind in {"module", "function", "external"} else None
        said = [self._of_class(symbol) for symbol in classes]
        return True if True in said else None if None in said else False

    def _of_class(self, symbol: ClassSymbol) -> bool | None:
        """Whether the member of an object declared as `symbol` is the target: surely, surely not, or at run time."""
        owner, holder = self.target.symbol, self.target.holder
        if owner is None or holder is None:
            return None
        if self.lineage.derives(symbol, owner):
            name = self.lineage.mapped(symbol).get(self.word, self.word)
            held = self.lineage.holder(symbol, name)
            return name == self.target.name and held is not None and held.same(holder)
        return None if self.lineage.derives(owner, symbol) else False

    def _keyword(self, argument: Node) -> tuple[Kind, bool | None] | None:
        """`Config(name=...)` sets a field."""
        listed = argument.parent
        call = listed.parent if listed is not None else None
        if self.target.kind != "field" or call is None or call.type != "call":
            return None
        function = call.child_by_field_name("function")
        if function is None:
            return None
        if text_of(function) == "super().__init__":
            return "write", self._on(function.child_by_field_name("object"), argument)
        found = self.receivers.meaning(function)
        symbol = found.symbol if found is not None else None
        return ("write", self._of_class(symbol)) if symbol is not None else None

    # strings

    def _string(self, node: Node) -> tuple[Kind, bool | None] | None:
        """A string that is the name itself, or its dotted path, or an annotation; None for prose."""
        if node.type == "comment":
            return None
        content = text_of(node)
        if _annotated(node):
            return self._annotation(content)
        if content != self.word and not (content.endswith(f".{self.word}") and content.replace(".", "").isidentifier()):
            return None
        accessor = self._accessed(node)
        if self.target.member:
            return accessor or ("string", self._spelt(content))
        if content != self.word:
            leads = [self.target.is_found(found) for found in self.resolver.absolute(content)]
            return "string", True if any(leads) else None
        kind: Kind = "export" if _exporting(node) else "string"
        return kind, self._same(self.resolver.lookup(self.unit, self.word))

    def _spelt(self, path: str) -> bool | None:
        """Whether a member spelt out as a dotted path is the target; not known for a bare name."""
        owner = path.rpartition(".")[0]
        classes = [found.symbol for found in self.resolver.absolute(owner) if found.symbol] if owner else []
        return self._of_class(classes[0]) if classes else None

    def _annotation(self, content: str) -> tuple[Kind, bool | None] | None:
        if self.target.member:
            return None
        for at in occurrences(content.encode(), self.word.encode()):
            start = len(content[:at].rstrip("_.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"))
            text = content[start : at + len(self.word)]
            return "annotation", self._same(self.resolver.dotted(self.unit, text))
        return None

    def _accessed(self, node: Node) -> tuple[Kind, bool | None] | None:
        """`getattr(object, "name")` and its kin."""
        string = node if node.type == "string" else node.parent
        listed = string.parent if string is not None else None
        call = listed.parent if listed is not None and listed.type == "argument_list" else None
        if call is None or listed is None or string is None or call.type != "call":
            return None
        arguments = [child for child in listed.named_children if child.type != "comment"]
        kinds: dict[str, Kind] = {"getattr": "read", "hasattr": "read", "setattr": "write", "delattr": "write"}
        kind = kinds.get(text_of(call.child_by_field_name("function")))
        if kind is None or len(arguments) < 2 or arguments[1].id != string.id:
            return None
        return kind, self._on(arguments[0], arguments[0])

    # kinds

    def _kind(self, expression: Node) -> Kind:
        child, parent = expression, expression.parent
        while parent is not None and (
            parent.type == "parenthesized_expression" or (parent.type == "subscript" and _field(parent, "value", child))
        ):
            if parent.type == "subscript" and _written(parent):
                return "write"
            child, parent = parent, parent.parent
        if parent is None:
            return "read"
        if parent.type == "call" and _field(parent, "function", child):
            if parent.parent is not None and parent.parent.type == "decorator":
                return "decorator"
            if self.target.kind == "class":
                return "instantiate"
            return "call" if child is expression else "read"  # TABLE[key](...) reads the table
        if parent.type == "decorator":
            return "decorator"
        if parent.type == "argument_list" and parent.parent is not None and parent.parent.type == "class_definition":
            return "subclass" if self.target.kind == "class" else "read"
        if parent.type == "attribute" and self.target.kind == "class" and parent.parent is not None:
            called = parent.parent.type == "call" and _field(parent.parent, "function", parent)
            return "call" if called else "read"
        if _annotated(expression):
            return "annotation"
        if _written(expression):
            defining = self.target.kind == "field" and path_of(expression) == self._constructor()
            return "define" if defining and self.unit.file == self.target.unit.file else "write"
        return "read"

    def _constructor(self) -> str:
        return f"{self.target.holder.path}.__init__" if self.target.holder is not None else ""


def _field(parent: Node, name: str, child: Node) -> bool:
    held = parent.child_by_field_name(name)
    return held is not None and held.id == child.id


def _annotated(node: Node) -> bool:
    """Whether the place stands in an annotation."""
    here: Node | None = node
    while here is not None and here.type not in {"block", "module", "argument_list"}:
        if here.type == "type":
            return True
        here = here.parent
    return False


def _written(expression: Node) -> bool:
    """Whether the expression is what a statement assigns, adds to or deletes."""
    child, parent = expression, expression.parent
    while parent is not None and parent.type in {"pattern_list", "tuple_pattern", "list_pattern", "expression_list"}:
        child, parent = parent, parent.parent
    if parent is None:
        return False
    if parent.type in {"assignment", "augmented_assignment"}:
        return _field(parent, "left", child)
    return parent.type == "delete_statement"


def _exporting(node: Node) -> bool:
    """Whether a string stands in what `__all__` or a lazy package's table is set or extended to."""
    here = _statement(node)
    head = text_of(here)[:40]
    return head.startswith(("__all__", "_import_structure"))


def _statement(node: Node) -> Node:
    """The statement that holds the place; for a decorator, the decorator."""
    here = node
    while here.parent is not None and here.parent.type not in {"block", "module"} and here.type != "decorator":
        here = here.parent
    return here
