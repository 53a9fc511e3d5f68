"""The computational lines of a forward: statements in order, and in each the calls and operators in evaluation order.

A statement gives one line, and one more for each further source line on which a computation of it starts. Statements
that only rename, unpack or read shapes give none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from opscope_schemas.index import Call, ForwardLine, LineKind

from opscope_tools.index.callees import Callees
from opscope_tools.index.parse import Node, dotted, line_of, named, text_of
from opscope_tools.index.tensors import is_dropout, weight

_CODE_LIMIT = 300
_CONTINUED = "... "
_TRAINING = re.compile(r"(?<!not )(?<!\w)self\.training\b|(?<!not )\bself\.gradient_checkpointing\b")
_NOT_TRAINING = re.compile(r"not self\.training\b")
_OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and_", "|": "or_", "^": "xor", "<<": "lshift", ">>": "rshift", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
    "==": "eq", "!=": "ne",
}  # fmt: skip


@dataclass(frozen=True)
class _Place:
    """Conditions and loops around a statement."""

    condition: str = ""
    training: bool = False


@dataclass
class LineReader:
    """Reads one function body."""

    callees: Callees
    lines: list[ForwardLine] = field(default_factory=list)

    def read(self, body: Node) -> list[ForwardLine]:
        self._block(body, _Place())
        return self.lines

    def _block(self, block: Node, place: _Place) -> None:
        for node in named(block):
            self._statement(node, place)

    def _statement(self, node: Node, place: _Place) -> None:
        kind = node.type
        if kind == "expression_statement":
            for inner in named(node):
                if inner.type != "string":
                    self._emit(node, self._calls(inner), place, None)
                if inner.type == "assignment":
                    self.callees.assign(inner.child_by_field_name("left"), inner.child_by_field_name("right"))
        elif kind == "return_statement":
            self._emit(node, [c for child in named(node) for c in self._calls(child)], place, "return")
        elif kind == "if_statement":
            self._if(node, place)
        elif kind in {"for_statement", "while_statement"}:
            self._loop(node, place)
        elif kind == "with_statement":
            self._header(node, place, [c for clause in named(node)[:-1] for c in self._calls(clause)])
            self._body(node, place)
        elif kind == "try_statement":
            self._header(node, place, [])
            for clause in named(node):
                inner_place = place
                if clause.type.startswith("except"):
                    head = text_of(clause).split(":", 1)[0]
                    inner_place = _Place(_both(place.condition, head), place.training)
                for block in [clause] if clause.type == "block" else named(clause):
                    if block.type == "block":
                        self._block(block, inner_place)
        elif kind in {"raise_statement", "assert_statement"}:
            self._header(node, place, [])
        elif kind == "match_statement":
            self._header(node, place, [])
            for case in [c for child in named(node) for c in named(child) if c.type == "case_clause"]:
                inside = case.child_by_field_name("consequence")
                if inside is not None:
                    self._block(inside, _Place(_both(place.condition, text_of(case).split(":", 1)[0]), place.training))

    def _if(self, node: Node, place: _Place) -> None:
        failed = ""
        clauses = [node, *(c for c in named(node) if c.type in {"elif_clause", "else_clause"})]
        for clause in clauses:
            body = clause.child_by_field_name("consequence") or clause.child_by_field_name("body")
            test = clause.child_by_field_name("condition")
            condition = text_of(test)
            shown = _both(failed, condition)
            if test is not None:
                self._header(clause, place, self._calls(test))
            training = place.training or trains(condition) or trains(failed)
            if body is not None:
                self._block(body, _Place(_both(place.condition, shown), training))
            failed = _both(failed, f"not ({condition})") if condition else failed

    def _loop(self, node: Node, place: _Place) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        test = right if right is not None else node.child_by_field_name("condition")
        self._header(node, place, self._calls(test) if test is not None else [])
        if left is not None and right is not None:
            self.callees.loop(left, right)
        head = f"for {text_of(left)} in {text_of(right)}" if right is not None else f"while {text_of(test)}"
        self._body(node, _Place(_both(place.condition, head), place.training))

    def _body(self, node: Node, place: _Place) -> None:
        body = node.child_by_field_name("body")
        if body is not None:
            self._block(body, place)

    def _header(self, node: Node, place: _Place, calls: list[Call]) -> None:
        """A line of control flow: its text up to the block."""
        code = text_of(node)
        block = next((child for child in node.named_children if child.type == "block"), None)
        end = line_of(node)
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
            self.lines.append(
                ForwardLine(
                    line=line,
                    end_line=(end or node.end_point[0] + 1) if line == first else line,
                    code=shown,
                    kind=(kind if line == first and kind else None) or (main.kind if main else "control_flow"),
                    callee=main.callee if main else "",
                    callee_file=main.callee_file if main else "",
                    callee_line=main.callee_line if main else 0,
                    attribute=main.attribute if main else "",
                    dispatch=main.dispatch if main else "",
                    condition=place.condition,
                    training_only=place.training or (bool(here) and all(is_dropout(call) for call in here)),
                    calls=tuple(here),
                )
            )

    def _calls(self, node: Node) -> list[Call]:
        """The computations in an expression, in evaluation order."""
        found: list[Call] = []
        self._visit(node, found)
        return found

    def _visit(self, node: Node, found: list[Call]) -> None:
        kind = node.type
        if kind in {"type", "string", "lambda", "comment", "identifier", "integer", "float"}:
            return
        if kind == "assignment":
            target, value = node.child_by_field_name("left"), node.child_by_field_name("right")
            if value is not None:
                self._visit(value, found)
            if target is not None and target.type == "subscript":
                found.append(_operator(node, "setitem"))
        elif kind == "augmented_assignment":
            right = node.child_by_field_name("right")
            if right is not None:
                self._visit(right, found)
            sign = text_of(node.child_by_field_name("operator")).removesuffix("=")
            if sign in _OPERATORS and right is not None and right.type not in {"string", "tuple", "list"}:
                found.append(_operator(node, "i" + _OPERATORS[sign].rstrip("_")))
        elif kind == "call":
            self._visit_call(node, found)
        elif kind == "binary_operator":
            for side in named(node):
                self._visit(side, found)
            sign = text_of(node.child_by_field_name("operator"))
            if not all(self.callees.describes(side) for side in named(node)):
                found.append(_operator(node, _OPERATORS.get(sign, sign)))
        elif kind == "unary_operator":
            for side in named(node):
                self._visit(side, found)
            sign = text_of(node.child_by_field_name("operator"))
            if not all(self.callees.describes(side) for side in named(node)):
                found.append(_operator(node, {"-": "neg", "~": "invert", "+": "pos"}.get(sign, sign)))
        elif kind == "comparison_operator":
            for side in named(node):
                self._visit(side, found)
            signs = [child.type for child in node.children if child.type in _OPERATORS]
            if signs and not any(self.callees.describes(side) for side in named(node)):
                found.extend(_operator(node, _OPERATORS[sign]) for sign in signs)
        elif kind == "subscript":
            value = node.child_by_field_name("value")
            for child in named(node):
                self._visit(child, found)
            if value is not None and not self.callees.describes(node) and not self.callees.is_table(value):
                keys = node.children_by_field_name("subscript")
                if not all(key.type == "string" for key in keys):
                    found.append(_operator(node, "getitem"))
        else:
            for child in named(node):
                self._visit(child, found)

    def _visit_call(self, node: Node, found: list[Call]) -> None:
        function = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if function is not None and function.type == "attribute":
            inner = function.child_by_field_name("object")
            if inner is not None and not dotted(inner):
                self._visit(inner, found)
        if arguments is not None:
            for child in named(arguments):
                self._visit(child, found)
        call = self.callees.classify(node)
        if call is not None:
            found.append(call)


def trains(condition: str) -> bool:
    """Whether a condition holds in training only: it asks for `self.training`, or denies `not self.training`."""
    if condition.startswith("not (") and _NOT_TRAINING.search(condition):
        return " or " not in condition
    if condition.startswith("not ("):
        return False
    return bool(_TRAINING.search(condition)) and " or " not in condition


def _operator(node: Node, name: str) -> Call:
    return Call(kind="op", code=text_of(node)[:_CODE_LIMIT], callee=f"operator.{name}", line=line_of(node))


def _both(first: str, second: str) -> str:
    return f"{first} and {second}" if first and second else first or second
