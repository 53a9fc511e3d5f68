"""The computational lines of a forward: statements in order, and in each the calls and operators in evaluation order.

A statement gives one line, and one more for each further source line on which a computation of it starts. Functions
defined inside are read where they stand. Statements that only rename, unpack or read shapes give none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from opscope_schemas.index import Call, ForwardLine, LineKind

from opscope_tools.index.forwards.callees import Callees
from opscope_tools.index.forwards.meanings import Scope
from opscope_tools.index.forwards.tensors import is_checkpoint, is_dropout, weight
from opscope_tools.index.forwards.training import Vanishing, ends, truth
from opscope_tools.index.forwards.values import PLAIN, Values
from opscope_tools.source.python.imports import cut_short
from opscope_tools.source.python.parse import Node, dotted, line_of, named, text_of
from opscope_tools.source.python.rows import FunctionRow

_CODE_LIMIT = 300
_CONTINUED = "... "
_OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and_", "|": "or_", "^": "xor", "<<": "lshift", ">>": "rshift", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
    "==": "eq", "!=": "ne",
}  # fmt: skip
_UNARY = {"-": "neg", "~": "invert", "+": "pos"}
_COMPREHENSIONS = {"list_comprehension", "set_comprehension", "dictionary_comprehension", "generator_expression"}
_SILENT = {"type", "string", "comment", "identifier", "integer", "float", "none", "true", "false"}


@dataclass(frozen=True)
class _Place:
    """Conditions and loops around a statement."""

    condition: str = ""
    training: bool = False

    def inside(self, condition: str, *, training: bool = False) -> _Place:
        return _Place(_both(self.condition, condition), self.training or training)


@dataclass
class LineReader:
    """Reads one function body."""

    callees: Callees
    lines: list[ForwardLine] = field(default_factory=list)
    flags: dict[str, bool | None] = field(default_factory=dict)
    vanished: dict[int, Call] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scope: Scope = self.callees.scope
        self.vanishing = Vanishing(self.callees.resolver)

    def read(self, body: Node) -> list[ForwardLine]:
        """The lines of a body in source order, those of nested blocks included."""
        self._block(body, _Place())
        return self.lines

    def _block(self, block: Node, place: _Place) -> None:
        for node in named(block):
            self._statement(node, place)
            if node.type == "if_statement" and not place.training and _leaves_in_inference(node, self.flags):
                place = replace(place, training=True)

    def _statement(self, node: Node, place: _Place) -> None:
        handler = _STATEMENTS.get(node.type)
        if handler is not None:
            handler(self, node, place)

    # plain statements

    def _expression(self, node: Node, place: _Place) -> None:
        for inner in named(node):
            if inner.type != "string":
                self._emit(node, self._calls(inner), place, None)
            if inner.type == "assignment":
                self._bind(inner)

    def _bind(self, node: Node) -> None:
        value = node.child_by_field_name("right")
        targets = [node.child_by_field_name("left")]
        while value is not None and value.type == "assignment":
            targets.append(value.child_by_field_name("left"))
            value = value.child_by_field_name("right")
        if value is None:
            return
        values = self.scope.evaluate(value)
        for target in targets:
            self.scope.assign(target, values)
            if target is not None and target.type == "identifier":
                self.scope.origins[text_of(target)] = text_of(value)
                self.flags[text_of(target)] = truth(value, self.flags)

    def _return(self, node: Node, place: _Place) -> None:
        self._emit(node, [c for child in named(node) for c in self._calls(child)], place, "return")

    def _check(self, node: Node, place: _Place) -> None:
        test = named(node)[:1] if node.type == "assert_statement" else []
        self._header(node, place, [c for child in test for c in self._calls(child)])

    def _delete(self, node: Node, place: _Place) -> None:
        del place
        for child in named(node):
            if child.type == "identifier":
                self.scope.local[text_of(child)] = ()

    # blocks

    def _if(self, node: Node, place: _Place) -> None:
        failed, closed = "", False
        excluded = place.training
        before, outcomes = dict(self.scope.local), []
        flags, reached = dict(self.flags), []
        for clause in [node, *(c for c in named(node) if c.type in {"elif_clause", "else_clause"})]:
            body = clause.child_by_field_name("consequence") or clause.child_by_field_name("body")
            test = clause.child_by_field_name("condition")
            condition = text_of(test)
            self.scope.local, self.flags = dict(before), dict(flags)
            if test is not None:
                self._header(clause, replace(place, training=excluded), self._calls(test))
                self.scope.narrow(test)
            holds = truth(test, self.flags) if test is not None else True
            if body is not None:
                self._block(body, _Place(_both(place.condition, _both(failed, condition)), excluded or holds is False))
                if not ends(body):
                    outcomes.append((_both(failed, condition), self.scope.local))
                    if not excluded and holds is not False:
                        reached.append(self.flags)
            excluded = excluded or (holds is True and test is not None)
            failed = _both(failed, f"not ({condition})") if condition else failed
            closed = closed or clause.type == "else_clause"
        if not closed:
            outcomes.insert(0, (failed, before))
        if not closed and not excluded:
            reached.append(flags)
        self.scope.local = _merged(outcomes)
        self.flags = {n: v for n, v in flags.items() if all(f.get(n) is v for f in reached)}
        self.flags.update({n: v for f in reached[:1] for n, v in f.items() if all(o.get(n) is v for o in reached)})

    def _loop(self, node: Node, place: _Place) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        test = right if right is not None else node.child_by_field_name("condition")
        self._header(node, place, self._calls(test) if test is not None else [])
        before = dict(self.scope.local)
        for name in _assigned(node):  # what a pass sets, the next one finds
            self.flags.pop(name, None)
        if left is not None and right is not None:
            self.scope.loop(left, right)
        head = f"for {text_of(left)} in {text_of(right)}" if right is not None else f"while {text_of(test)}"
        self._body(node, place.inside(head))
        self.scope.local = _merged([("", before), ("", self.scope.local)])
        for clause in named(node):
            if clause.type == "else_clause":
                self._body(clause, place)

    def _with(self, node: Node, place: _Place) -> None:
        clauses = [c for c in named(node) if c.type == "with_clause"]
        self._header(node, place, [c for clause in clauses for c in self._calls(clause)])
        for clause in clauses:
            for item in named(clause):
                value = item.child_by_field_name("value")
                if value is not None and value.type == "as_pattern" and len(named(value)) == 2:
                    target = named(value)[1]
                    self.scope.assign(named(target)[0] if named(target) else target, ())
        self._body(node, place)

    def _try(self, node: Node, place: _Place) -> None:
        self._header(node, place, [])
        for clause in named(node):
            inner = place.inside(text_of(clause).split(":", 1)[0]) if clause.type.startswith("except") else place
            for block in [clause] if clause.type == "block" else named(clause):
                if block.type == "block":
                    self._block(block, inner)

    def _match(self, node: Node, place: _Place) -> None:
        subjects = node.children_by_field_name("subject")
        self._header(node, place, [c for subject in subjects for c in self._calls(subject)])
        before, outcomes = dict(self.scope.local), [("", dict(self.scope.local))]
        for case in [c for child in named(node) for c in named(child) if c.type == "case_clause"]:
            inside, head = case.child_by_field_name("consequence"), text_of(case).split(":", 1)[0]
            self.scope.local = dict(before)
            if inside is not None:
                self._block(inside, place.inside(head))
                outcomes.append((head, self.scope.local))
        self.scope.local = _merged(outcomes)

    def _definition(self, node: Node, place: _Place) -> None:
        """A function defined in the forward: its lines stand where it is defined."""
        definition = node.child_by_field_name("definition") if node.type == "decorated_definition" else node
        if definition is None or definition.type != "function_definition":
            return
        name, parameters = definition.child_by_field_name("name"), definition.child_by_field_name("parameters")
        self._header(definition, place, [])
        with self.scope.inner():
            self.scope.shadow(parameters)
            self._body(definition, place.inside(f"def {text_of(name)}{text_of(parameters)}"))
        self.scope.local[text_of(name)] = self.scope.defined(definition)

    def _body(self, node: Node, place: _Place) -> None:
        body = node.child_by_field_name("body")
        if body is not None:
            self._block(body, place)

    # lines

    def _header(self, node: Node, place: _Place, calls: list[Call]) -> None:
        """A line of control flow: its text up to the block."""
        code = text_of(node)
        block = next((child for child in node.named_children if child.type == "block"), None)
        end = 0
        if block is not None and node.text is not None:
            head = node.text[: block.start_byte - node.start_byte].decode("utf-8", "replace")
            head = re.sub(r"#[^\n]*", "", head)
            code = " ".join(head.split())
            end = line_of(node) + head.rstrip().count("\n")
        self._emit(node, calls, place, "control_flow", code, end)

    def _emit(
        self, node: Node, calls: list[Call], place: _Place, kind: LineKind | None, code: str = "", end: int = 0
    ) -> None:
        if not calls and kind is None:
            return
        first = line_of(node)
        code = code or text_of(node)
        code = code if len(code) <= _CODE_LIMIT else code[:_CODE_LIMIT] + " ..."
        for line in sorted({first, *(call.line for call in calls)}):
            here = [call for call in calls if call.line == line]
            # the line that opens a statement stands for all of it
            main = max(reversed(here or calls), key=weight, default=None)
            shown = code if line == first else _CONTINUED + self.callees.line_text(line)
            opening = kind if line == first and kind else None
            vain = bool(here) and all(id(call) in self.vanished for call in here)
            self.lines.append(
                ForwardLine(
                    line=line,
                    end_line=(end or node.end_point[0] + 1) if line == first else line,
                    code=shown,
                    kind=opening or (main.kind if main else "control_flow"),
                    callee=main.callee if main else "",
                    callee_file=main.callee_file if main else "",
                    callee_line=main.callee_line if main else 0,
                    attribute=main.attribute if main else "",
                    dispatch=main.dispatch if main else "",
                    candidates=main.candidates if main else (),
                    candidate_count=main.candidate_count if main else 0,
                    condition=place.condition,
                    training_only=place.training or vain,
                    calls=tuple(call.model_copy(update={"candidates": ()}) if call is main else call for call in here),
                )
            )

    # expressions

    def _calls(self, node: Node) -> list[Call]:
        """The computations in an expression, in evaluation order."""
        found: list[Call] = []
        self._visit(node, found)
        return found

    def _visit(self, node: Node, found: list[Call]) -> None:
        if node.type in _SILENT:
            return
        handler = _EXPRESSIONS.get(node.type)
        if handler is not None:
            handler(self, node, found)
        elif node.type in _COMPREHENSIONS:
            self._visit_comprehension(node, found)
        else:
            for child in named(node):
                self._visit(child, found)

    def _visit_assignment(self, node: Node, found: list[Call]) -> None:
        target, value = node.child_by_field_name("left"), node.child_by_field_name("right")
        if value is not None:
            self._visit(value, found)
        if target is not None and target.type == "subscript":
            found.append(_operator(target, "setitem", node))

    def _visit_augmented(self, node: Node, found: list[Call]) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if right is not None:
            self._visit(right, found)
        sign = text_of(node.child_by_field_name("operator")).removesuffix("=")
        plain = left is not None and right is not None and self._plain(left) and self._plain(right)
        if sign in _OPERATORS and right is not None and right.type not in {"string", "tuple", "list"} and not plain:
            found.append(_operator(node, "i" + _OPERATORS[sign].rstrip("_")))

    def _visit_named(self, node: Node, found: list[Call]) -> None:
        """`name := value`"""
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if value is not None:
            self._visit(value, found)
            self.scope.assign(name, self.scope.evaluate(value))
            self.flags[text_of(name)] = truth(value, self.flags)

    def _visit_binary(self, node: Node, found: list[Call]) -> None:
        for side in named(node):
            self._visit(side, found)
        sign = text_of(node.child_by_field_name("operator"))
        if not all(self._plain(side) for side in named(node)):
            found.append(_operator(node, _OPERATORS.get(sign, sign)))

    def _visit_unary(self, node: Node, found: list[Call]) -> None:
        for side in named(node):
            self._visit(side, found)
        sign = text_of(node.child_by_field_name("operator"))
        if not all(self._plain(side) for side in named(node)):
            found.append(_operator(node, _UNARY.get(sign, sign)))

    def _visit_comparison(self, node: Node, found: list[Call]) -> None:
        for side in named(node):
            self._visit(side, found)
        signs = [child.type for child in node.children if child.type in _OPERATORS]
        sides = named(node)
        if signs and not all(self._plain(side) for side in sides):
            found.extend(_operator(node, _OPERATORS[sign]) for sign in signs)

    def _visit_subscript(self, node: Node, found: list[Call]) -> None:
        value = node.child_by_field_name("value")
        for child in named(node):
            self._visit(child, found)
        if value is not None and not self._plain(node) and not self.scope.is_table(value):
            keys = node.children_by_field_name("subscript")
            if not all(key.type == "string" for key in keys):
                found.append(_operator(node, "getitem"))

    def _visit_comprehension(self, node: Node, found: list[Call]) -> None:
        body, *clauses = named(node)
        with self.scope.inner():
            for clause in clauses:
                left, right = clause.child_by_field_name("left"), clause.child_by_field_name("right")
                if left is not None and right is not None:
                    self._visit(right, found)
                    self.scope.loop(left, right)
                else:
                    self._visit(clause, found)
            self._visit(body, found)

    def _visit_lambda(self, node: Node, found: list[Call]) -> None:
        body = node.child_by_field_name("body")
        with self.scope.inner():
            self.scope.shadow(node.child_by_field_name("parameters"))
            if body is not None:
                self._visit(body, found)

    def _visit_call(self, node: Node, found: list[Call]) -> None:
        function = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if function is not None and function.type == "attribute":
            inner = function.child_by_field_name("object")
            if inner is not None and not dotted(inner):
                self._visit(inner, found)
        elif function is not None and function.type == "call":
            self._visit(function, found)
        if arguments is not None:
            for child in [arguments] if arguments.type == "generator_expression" else named(arguments):
                self._visit(child, found)
        call = self.callees.classify(node)
        if call is not None:
            found.append(call)
            if self._vanishes(call, arguments):
                self.vanished[id(call)] = call

    def _plain(self, node: Node) -> bool:
        return self.scope.describes(node)

    def _vanishes(self, call: Call, arguments: Node | None) -> bool:
        """Whether the call does nothing in inference."""
        if is_dropout(call) or is_checkpoint(call):
            return True
        if not call.callee_file or call.candidates:
            return False
        found = self.callees.definition(call)
        if found is None or not isinstance(found.row, FunctionRow) or found.unit is None:
            return False
        if call.kind == "submodule_call":
            return self.vanishing.module(found.unit, found.row)
        return self.vanishing.call(found.unit, found.row, arguments, self.flags)


def _leaves_in_inference(node: Node, flags: dict[str, bool | None]) -> bool:
    """`if not self.training: return ...`: what follows runs in training only."""
    test, body = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
    return truth(test, flags) is True and ends(body)


def _assigned(node: Node) -> set[str]:
    """Names that the statements of a loop assign."""
    found, pending = set(), [node]
    while pending:
        here = pending.pop()
        if here.type in {"assignment", "augmented_assignment", "named_expression"}:
            target = here.child_by_field_name("left") or here.child_by_field_name("name")
            found.add(text_of(target))
        pending.extend(here.named_children)
    return found


def _merged(outcomes: list[tuple[str, dict[str, Values]]]) -> dict[str, Values]:
    """The bindings after branches: where they differ, all of them, each with the condition that it stands under."""
    merged: dict[str, Values] = {}
    for name in dict.fromkeys(name for _, local in outcomes for name in local):
        held = [(condition, local[name]) for condition, local in outcomes if name in local]
        if all(values is held[0][1] for _, values in held):
            merged[name] = held[0][1]
        elif all(values and all(v.kind == "plain" for v in values) for _, values in held):
            merged[name] = PLAIN
        else:
            values = [replace(v, key=v.key or condition) for condition, vs in held for v in vs if v.kind != "plain"]
            merged[name] = tuple(values)
    return merged


def _operator(node: Node, name: str, shown: Node | None = None) -> Call:
    return Call(kind="op", code=text_of(shown or node)[:_CODE_LIMIT], callee=f"operator.{name}", line=line_of(node))


def _both(first: str, second: str) -> str:
    return cut_short(first, second) or (f"{first} and {second}" if first and second else first or second)


_Statement = Callable[[LineReader, Node, _Place], None]
_STATEMENTS: dict[str, _Statement] = {
    "expression_statement": LineReader._expression,
    "return_statement": LineReader._return,
    "if_statement": LineReader._if,
    "for_statement": LineReader._loop,
    "while_statement": LineReader._loop,
    "with_statement": LineReader._with,
    "try_statement": LineReader._try,
    "raise_statement": LineReader._check,
    "assert_statement": LineReader._check,
    "match_statement": LineReader._match,
    "delete_statement": LineReader._delete,
    "function_definition": LineReader._definition,
    "decorated_definition": LineReader._definition,
}
_Expression = Callable[[LineReader, Node, list[Call]], None]
_EXPRESSIONS: dict[str, _Expression] = {
    "assignment": LineReader._visit_assignment,
    "augmented_assignment": LineReader._visit_augmented,
    "named_expression": LineReader._visit_named,
    "call": LineReader._visit_call,
    "binary_operator": LineReader._visit_binary,
    "unary_operator": LineReader._visit_unary,
    "comparison_operator": LineReader._visit_comparison,
    "subscript": LineReader._visit_subscript,
    "lambda": LineReader._visit_lambda,
}
