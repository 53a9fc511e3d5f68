"""One hit of a word: what kind of use it is, and whether it leads to the definition that is looked for.

In order: the use (`Reference`), names of a module, methods and fields, calls of instances, strings, kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from opscope_tools.index.references.local_scopes import Scopes, binding_of, enclosing, path_of
from opscope_tools.index.references.occurrences import Excerpt, occurrences
from opscope_tools.index.references.receivers import Lineage, Receivers
from opscope_tools.index.references.subject import Sought
from opscope_tools.source.python.names import ClassSymbol, Found, Resolver
from opscope_tools.source.python.parse import Node, dotted, line_of, text_of
from opscope_tools.source.python.repository import Unit

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
_CODE_LIMIT = 200


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


class Reader:
    """Reads the hits of one file."""

    def __init__(
        self,
        target: Sought,
        lineage: Lineage,
        unit: Unit,
        word: str,
        offsets: tuple[int, ...],
        verdicts: dict[tuple[str, str, str], bool | None],
        checkpoint: Callable[[], None] = lambda: None,
    ) -> None:
        self.checkpoint = checkpoint
        self.target, self.lineage, self.unit, self.word = target, lineage, unit, word
        self.resolver: Resolver = lineage.resolver
        self.excerpt = Excerpt(unit, unit.tree.source(unit.file), offsets)
        self.scopes = Scopes(self.excerpt)
        self.receivers = Receivers(lineage, self.excerpt, self.scopes)
        self.verdicts = verdicts
        self.mentions = 0
        #: other names that this file gives the target, and whether other modules can see them
        self.aliases: dict[str, bool] = {}

    def read(self) -> Iterator[Reference]:
        """Every use of the target, in source order; words in strings that are no use are counted in `mentions`."""
        for line, column in self.excerpt.places:
            self.checkpoint()
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

    def instances(self) -> Iterator[Reference]:
        """Calls of the objects that the word, an attribute, holds: `self.word(...)`, or an item of it in a loop."""
        for line, column in self.excerpt.places:
            self.checkpoint()
            node = self.excerpt.node(line, column, len(self.word.encode()))
            expression = node.parent if node is not None else None
            if node is None or expression is None or not _field(expression, "attribute", node):
                continue
            while expression.parent is not None and _field(expression.parent, "value", expression):
                expression = expression.parent  # self.word[0]
            for called in [expression] if _called(expression) else self._looped(expression):
                verdicts = [self._of_class(symbol, self.target.name) for symbol in self.receivers.of(called)]
                if True in verdicts or None in verdicts:
                    yield self._reference(called, line_of(called), "call", verified=True in verdicts)

    def _looped(self, container: Node) -> Iterator[Node]:
        """Calls of the names that a loop over the container binds."""
        child, loop = container, container.parent
        while loop is not None and loop.type in {"call", "argument_list", "subscript"}:
            child, loop = loop, loop.parent
        if loop is None or loop.type not in {"for_statement", "for_in_clause"} or not _field(loop, "right", child):
            return
        left = loop.child_by_field_name("left")
        around = loop.parent if loop.type == "for_in_clause" else loop
        if around is None:
            return
        for name in _identifiers(left):
            for at in occurrences(self.excerpt.text, name.encode(), around.start_byte, around.end_byte):
                node = self.excerpt.root.named_descendant_for_byte_range(at, at + len(name.encode()))
                if node is not None and node.type == "identifier" and _called(node):
                    yield node

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
        verdict = self._same(self.resolver.imported(self.unit, text_of(module).replace(" ", ""), self.word))
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

    def _of_class(self, symbol: ClassSymbol, word: str = "") -> bool | None:
        """Whether the member of an object declared as `symbol` is the target: surely, surely not, or at run time."""
        owner, holder = self.target.symbol, self.target.holder
        if owner is None or holder is None:
            return None
        if self.lineage.derives(symbol, owner):
            word = word or self.word
            name = self.lineage.mapped(symbol).get(word, word)
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


def _called(expression: Node) -> bool:
    """Whether the expression is what a call calls."""
    parent = expression.parent
    return parent is not None and parent.type == "call" and _field(parent, "function", expression)


def _identifiers(target: Node | None) -> list[str]:
    """The names that a loop's target binds."""
    if target is None or target.type == "identifier":
        return [text_of(target)] if target is not None else []
    return [name for child in target.named_children for name in _identifiers(child)]


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
