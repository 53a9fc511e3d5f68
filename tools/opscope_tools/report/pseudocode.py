"""Pseudocode of a forward: its own statements without boilerplate and without what did not run, each with its line and cost.

The statements are printed from the syntax tree, so the result is valid Python by construction. Left out: annotations,
docstrings, raises and assertions, logging and warnings, arguments that only pass on keywords, and the branches that were not
taken: those that the arguments of the call or the configuration decide, those beside a branch in which an operator ran, and those
in which one runs without fail and none did.
What one listing hands to another that one takes, and what another's lines read is handed to it, though it held nothing; a function
of the source, which no listing shows, is handed the parameters that it is in source. Only the model's own listing drops parameters
that held nothing, those that none of its lines reads.
"""

from __future__ import annotations

import ast
import copy
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

from opscope_tools.report.quotes import joined

__all__ = ["Call", "absent", "parameters_read", "pseudocode", "reached"]

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
#: objects whose calls only talk to the user
_TALK = frozenset({"logger", "logging", "warnings", "print"})
#: characters of a condition that a comment shows
_LONGEST_TEST = 80
#: functions that move data wherever they are called, so that a line of theirs without operators did not run
_MOVING = frozenset("bmm cat clamp einsum masked_fill masked_scatter matmul softmax stack where".split())
_ON_HOST = frozenset({"np", "numpy"})
#: expressions of which a part may not run
_AT_TIMES = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.comprehension)
#: how a line begins that belongs to the choice begun above it
_GOES_ON = re.compile(r"el(if |se:)")
_NOTHING = re.compile(r"^\s*(\w+) = None(  #.*)?$")


@dataclass(frozen=True)
class Call:
    """What is known of the call that the listing shows.

    `given`: parameters that held a tensor; `at_times`: those that held one in some calls of the class alone; `said`: the comment on lines first to last; `ran`: whether an operator ran there;
    `elsewhere`: other calls of the class, in which none did, or in which one did where none did here; `settings`: what the
    configuration holds, and what attributes of the object do, under `self.NAME`; `whole`: no other listing calls it; `needed`: the parameters without which nothing that is
    called on lines first to last can be; `read`: those that the listings of the modules called there
    read, None where none is called; `empty`: parameters of other kinds that held nothing.
    """

    given: Collection[str] = ()
    at_times: Collection[str] = ()
    said: Callable[[int, int], str] = lambda _first, _last: ""
    ran: Callable[[int, int], bool] = lambda _first, _last: False
    elsewhere: Callable[[int, int], str] = lambda _first, _last: ""
    settings: Mapping[str, object] = field(default_factory=dict)
    whole: bool = True
    needed: Callable[[int, int], Sequence[str]] = lambda _first, _last: ()
    read: Callable[[int, int], Collection[str] | None] = lambda _first, _last: None
    empty: Collection[str] = ()


def pseudocode(function: Function, name: str, notes: Sequence[str], call: Call) -> str:
    """`function` as a listing called `name`, as `call` ran it; `notes` become its docstring."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    empty = _empty(function, call)
    body = _body(function, call)
    read = _read_first(body)
    taken = [a for a in arguments if a.arg != "self" and (not call.whole or a.arg not in empty or a.arg in read)]
    rest = function.args.kwarg
    more = [f"**{rest.arg}"] if rest and rest.arg in read else []
    head = ", ".join([*_as_called(function, taken, empty), *more]) if call.whole else _signature(function)
    nothing = ", ".join(a.arg for a in arguments if a.arg in empty)
    notes = [*notes[:-1], f"{notes[-1]}. None here: {nothing}"] if nothing else notes
    # a quote inside would end the docstring
    text = [line.replace("\\", "/").replace('"""', "'''") for line in notes]
    docstring = [f'"""{text[0]}"""'] if len(text) == 1 else [f'"""{text[0]}', *text[1:], '"""']
    head = f"def {name}({head}):"
    return "\n".join([head, *textwrap.indent("\n".join([*docstring, *body]), "    ").split("\n")])


def _body(function: Function, call: Call) -> list[str]:
    keywords = function.args.kwarg.arg if function.args.kwarg else ""
    listing = _Listing(call, set(call.given), set(_empty(function, call)), keywords)
    return list(_without_unread(listing.block(function.body))) or [f"pass{listing.mark(function)}"]


def parameters_read(function: Function, call: Call) -> frozenset[str]:
    """The parameters that the lines of a listing read."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return _read_first(_body(function, call)) & {a.arg for a in arguments}


def _empty(function: Function, call: Call) -> frozenset[str]:
    """The parameters that held nothing, of whatever kind."""
    arguments = {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    return absent(function, {*call.given, *call.at_times}) | (arguments & {*call.empty})


def absent(function: Function, given: Collection[str]) -> frozenset[str]:
    """The parameters that held nothing: those that take a tensor or none at all, and are not `given`."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return frozenset(a.arg for a in arguments if _is_tensor(a.annotation) and a.arg not in given)


def reached(function: Function, line: int, call: Call, empty: Collection[str], column: int) -> bool:
    """Whether a place stands in no branch that the configuration, or names that hold something or nothing, decide against."""
    listing = _Listing(call, set(call.given), set(empty), "")
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.IfExp) and (truth := listing.truth(node.test)) is not None:
            left = node.orelse if truth else node.body
            if any(_on(each, line, column) for each in (left if isinstance(left, list) else [left])):
                return False
    return True


def _on(node: ast.stmt | ast.expr, line: int, column: int) -> bool:
    """Whether a place is inside a statement or an expression; both sides of a choice may stand on one line."""
    last = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (node.lineno, node.col_offset) <= (line, column) < last


def _as_called(function: Function, taken: Sequence[ast.arg], empty: Collection[str]) -> list[str]:
    """Parameters that are handed something by name, others with what they hold by default; behind one of these, all with it."""
    plain = [*function.args.posonlyargs, *function.args.args]
    defaults = dict(zip(reversed(plain), reversed(function.args.defaults), strict=False))
    defaults |= {
        a: d for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if d is not None
    }
    found, by_default = list[str](), False
    for each in taken:
        by_default = by_default or each.arg in empty
        with_default = by_default and each in defaults
        found.append(f"{each.arg}={ast.unparse(defaults[each])}" if with_default else each.arg)
    return found


def _signature(function: Function) -> str:
    """The parameters in the order of the source, without `self` and annotations."""
    arguments = copy.deepcopy(function.args)
    for each in ast.walk(arguments):
        if isinstance(each, ast.arg):
            each.annotation = None
    first = arguments.posonlyargs or arguments.args
    if first and first[0].arg == "self":
        del first[0]
    return ast.unparse(arguments)


def _is_tensor(annotation: ast.expr | None) -> bool:
    """Whether a parameter takes one tensor or none at all: such a one that held no tensor held nothing."""
    return annotation is not None and bool(
        re.fullmatch(r"(Optional\[)?(torch\.)?\w*Tensor\]?( \| None)?", ast.unparse(annotation))
    )


def _read_first(lines: Sequence[str]) -> frozenset[str]:
    """Names that the lines read before any line sets them."""
    module = ast.parse("def listing():\n" + textwrap.indent("\n".join(lines), "    "))
    read, stored = set[str](), set[str]()
    for statement in _in_order(module.body[0].body):  # type: ignore[attr-defined]  # it is a function
        inside = [
            target for node in statement if isinstance(node, ast.comprehension) for target in ast.walk(node.target)
        ]
        added = [node.target for node in statement if isinstance(node, ast.AugAssign)]
        loaded = [node for node in statement if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        read |= {node.id for node in (*loaded, *added) if isinstance(node, ast.Name)} - stored - _names(inside)
        stored |= _names(node for node in statement if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return frozenset(read)


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _in_order(statements: Sequence[ast.stmt]) -> Iterator[list[ast.AST]]:
    """The nodes of each statement, without those of the statements that it holds, which follow it."""
    for statement in statements:
        inner = [each for each in ast.iter_child_nodes(statement) if isinstance(each, ast.stmt)]
        within = {id(node) for each in inner for node in ast.walk(each)}
        yield [node for node in ast.walk(statement) if id(node) not in within]
        yield from _in_order(inner)


def _without_unread(lines: Sequence[str]) -> Iterator[str]:
    """The lines but for names that are set to nothing and that no line speaks of otherwise."""
    unset = [match[1] if (match := _NOTHING.match(line)) else "" for line in lines]
    for line, name in zip(lines, unset, strict=True):
        others = (other.partition("  #")[0] for other, also in zip(lines, unset, strict=True) if also != name)
        if not name or any(re.search(rf"\b{name}\b", other) for other in others):
            yield line


def _moves(statement: ast.stmt) -> bool:
    """Whether a statement that holds no others moves data wherever it runs."""
    inside = list(ast.walk(statement))
    if any(isinstance(one, ast.stmt) for one in inside[1:]) or any(isinstance(one, _AT_TIMES) for one in inside):
        return False
    called = [each.func for each in inside if isinstance(each, ast.Call)]
    return any(isinstance(one, ast.Attribute) and one.attr in _MOVING and _root(one) not in _ON_HOST for one in called)


def _leaves(branch: Sequence[ast.stmt]) -> bool:
    """Whether a branch ends the function."""
    return bool(branch) and isinstance(branch[-1], ast.Return | ast.Raise)


def _nothing_in(test: ast.expr) -> set[str]:
    """What holds nothing where `test` does not hold, as it is written."""
    match test:
        case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return {ast.unparse(left)}
        case ast.BoolOp(op=ast.Or(), values=values):
            return set[str]().union(*map(_nothing_in, values))
    return set()


def _targets(statement: ast.stmt) -> Iterator[ast.expr]:
    """What a statement, or one that it holds, may change a part of: items and attributes that it sets, whose methods it calls alone."""
    for each in ast.walk(statement):
        if isinstance(each, ast.Attribute | ast.Subscript) and isinstance(each.ctx, ast.Store):
            yield each
        elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
            yield each.value.func


def _tells_nothing(test: ast.expr) -> bool:
    """Whether a test asks for training alone: no pass of inference takes the other way."""
    inner = test.operand if isinstance(test, ast.UnaryOp) else test
    return isinstance(inner, ast.Constant) or (isinstance(inner, ast.Attribute) and inner.attr == "training")


class _Listing:
    """Writes statements; knows on the way which names hold something and which hold nothing."""

    def __init__(self, call: Call, given: set[str], absent: set[str], keywords: str) -> None:
        self._call = call
        self._given = given
        self._absent = absent
        self._parameters = frozenset(absent)
        #: names that were set to False
        self._false = set[str]()
        #: what tests have shown to hold nothing, as it is written
        self._none = set[str]()
        self._keywords = keywords
        self._depth = 0
        #: whether something ran behind the statement that is written: no branch in it left the function
        self._passed = False
        self._elsewhere = ""

    def mark(self, node: ast.stmt, last: int | None = None) -> str:
        """The comment of a statement: its line and what it costs."""
        first = node.lineno
        return f"  # {' '.join(filter(None, (f':{first}', self._call.said(first, last or node.end_lineno or first))))}"

    def block(self, statements: Sequence[ast.stmt]) -> list[str]:
        """The lines of statements, up to one that always returns."""
        lines: list[str] = []
        passed = self._passed
        for place, statement in enumerate(statements):
            # in a loop what follows may have run in an earlier round
            self._passed = passed or (not self._depth and any(map(self._ran, statements[place + 1 :])))
            taken = self._taken(statement) if isinstance(statement, ast.If) else None
            lines += self._branch(statement, taken) if taken is not None else self._statement(statement)
            if taken and _leaves(taken):
                break
        self._passed = passed
        return lines

    def _branch(self, node: ast.stmt, taken: Sequence[ast.stmt]) -> list[str]:
        """The lines of a branch that ran; with its condition, and the other calls in which it did not, where there are such."""
        outer = self._elsewhere
        ran = any(self._ran(one) for one in taken)
        found = self._otherwise(taken) if ran else ""
        lines = self._side(taken, found)
        if not isinstance(node, ast.If) or not found or found == outer or not lines:
            return self._under(node, taken is node.body, lines) if isinstance(node, ast.If) else lines
        test, left = ast.unparse(node.test), node.orelse if taken is node.body else node.body
        self._forget([*taken, *left])
        others = self.block(left)  # which those calls take
        self._forget([*taken, *left])
        head = f"if {test}:" if taken is node.body else f"if not ({test}):"
        drawn = [f"# {self._lines_run(taken)} not run {found}", *self._nested(f"{head}{self._head(node)}", lines)]
        return [*drawn, "else:", *_indented(others)] if others else drawn

    def _under(self, node: ast.If, held: bool, lines: list[str]) -> list[str]:
        """The lines of a branch that stands for its statement, the first with the condition under which they run."""
        if not lines or "  #" not in lines[0] or _tells_nothing(node.test):
            return lines
        bare = node.test.operand if isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not) else None
        test = ast.unparse(node.test if held or bare is None else bare)
        said = test if held or bare is not None else f"not ({test})"
        said = (
            said if len(said) <= _LONGEST_TEST else f"the test of :{node.lineno} {'holds' if held else 'does not hold'}"
        )
        joint = " and " if "; where " in lines[0] else "; where "
        return [f"{lines[0]}{joint}{said}", *lines[1:]]

    def _statement(self, node: ast.stmt) -> list[str]:
        match node:
            case ast.Raise() | ast.Assert() | ast.Pass() | ast.Import() | ast.ImportFrom() | ast.Delete():
                return []
            case ast.Expr(value=ast.Constant()) | ast.AnnAssign(value=None):
                return []
            case ast.Expr(value=ast.Call(func=function)) if _root(function) in _TALK:
                return []
            case ast.If(test=test, body=body, orelse=otherwise):
                return self._if(node, test, body, otherwise)
            case ast.For(target=target, iter=iterator, body=body):
                return self._loop(f"for {ast.unparse(target)} in {self._text(iterator)}:", node, body)
            case ast.While(test=test, body=body):
                return self._loop(f"while {self._text(test)}:", node, body)
            case ast.With(items=items, body=body):
                return self._nested(
                    f"with {', '.join(self._text(item) for item in items)}:{self._head(node)}", self.block(body)
                )
            case ast.Try(body=body):  # the handlers are boilerplate; the body is the algorithm
                return self.block(body)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                arguments = ", ".join(a.arg for a in node.args.args)
                passed, self._passed = self._passed, False
                lines = self.block(node.body)
                self._passed = passed
                return self._nested(f"def {node.name}({arguments}):{self._head(node)}", lines)
        return self._plain(node)

    def _plain(self, node: ast.stmt) -> list[str]:
        """A statement that holds no others; what it assigns is known from here on, or known no longer."""
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            node = ast.copy_location(ast.Assign([node.target], node.value), node)
        folded = _Folded(self).visit(copy.deepcopy(node))
        text = ast.unparse(folded)
        self._forget([node])
        match folded:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=None)):
                self._absent.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=False)):
                self._false.add(name)
        lines = text.split("\n")  # more than one: a string with line breaks, or a match
        return [lines[0] + self.mark(node)] if len(lines) == 1 else lines

    def _taken(self, node: ast.If) -> list[ast.stmt] | None:
        """The branch that ran, where the call or the operators say which; None: they do not, or other calls run the other."""
        truth = self._truth(node.test)
        if truth is None and not self._depth:
            ran = [any(self._ran(one) for one in branch) for branch in (node.body, node.orelse)]
            truth = ran[0] if ran[0] != ran[1] else None
            truth = False if truth is None and not node.orelse and any(map(_moves, node.body)) else truth
        if truth is None and self._passed and _leaves(node.body) is not _leaves(node.orelse):
            truth = _leaves(node.orelse)
        if truth is None:
            return None
        taken, left = (node.body, node.orelse) if truth else (node.orelse, node.body)
        if self._others_run(left):
            return None
        self._none |= set() if truth else _nothing_in(node.test)
        return taken

    def _others_run(self, branch: Sequence[ast.stmt]) -> str:
        """The other calls that run a branch in which nothing ran here."""
        if not branch or any(self._ran(one) for one in branch):
            return ""
        return self._otherwise(branch)

    def _otherwise(self, branch: Sequence[ast.stmt]) -> str:
        """The other calls that do not with a branch as this one does."""
        return self._call.elsewhere(branch[0].lineno, branch[-1].end_lineno or branch[-1].lineno) if branch else ""

    def _side(self, branch: Sequence[ast.stmt], elsewhere: str) -> list[str]:
        """The lines of one side of a test; what is told of the other calls there is not told of each part of it again."""
        outer = self._elsewhere
        self._elsewhere = elsewhere or outer
        lines = self.block(branch)
        self._elsewhere = outer
        return lines

    def _lines_run(self, branch: Sequence[ast.stmt]) -> str:
        """`:5 to :7 and :9 do`: the lines of a branch that ran, without what stands in it and under which no operator did."""
        stretches = [
            [line for each in run if each for line in each] for ran, run in groupby(self._run(branch), bool) if ran
        ]
        said = [f":{run[0]} to :{run[-1]}" if run[0] < run[-1] else f":{run[0]}" for run in stretches]
        one = len(said) == 1 and " " not in said[0]
        return f"{joined(said)} {'does' if one else 'do'}"

    def _run(self, branch: Sequence[ast.stmt]) -> Iterator[tuple[int, int] | None]:
        """First and last line of each statement of a branch that ran; None for one that holds others, none of which ran an operator."""
        for each in branch:
            match each:
                case ast.If(body=body, orelse=other):
                    inner = [body, other]
                case ast.For(body=body) | ast.While(body=body) | ast.With(body=body):
                    inner = [body]
                case _:
                    yield each.lineno, each.end_lineno or each.lineno
                    continue
            yield (each.lineno, each.lineno) if self._ran(each) else None
            for side in filter(None, inner):
                yield from self._run(side) if any(map(self._ran, side)) else [None]

    def _ran(self, node: ast.stmt) -> bool:
        return self._call.ran(node.lineno, node.end_lineno or node.lineno)

    def _if(
        self, node: ast.If, test: ast.expr, body: Sequence[ast.stmt], otherwise: Sequence[ast.stmt]
    ) -> list[str]:  # fmt: skip
        said, head = self._text(test), self._head(node)
        ours, others = (f"runs {where}, not here" * bool(where) for where in map(self._others_run, (body, otherwise)))
        self._forget([*body, *otherwise])
        taken, left = (self._side(side, self._otherwise(side)) for side in (body, otherwise))
        self._forget([*body, *otherwise])
        if not taken:
            return self._nested(f"if not ({said}):{head}{others and f', {others}'}", left)
        drawn = self._nested(f"if {said}:{head}{ours and f', {ours}'}", taken)
        if not left:
            return drawn
        if (
            not others
            and left[0].startswith("if ")
            and not any(line[:1].strip() and not _GOES_ON.match(line) for line in left[1:])
        ):
            return [*drawn, f"el{left[0]}", *left[1:]]
        return [*drawn, f"else:{others and f'  # {others}'}", *_indented(left)]

    def _loop(self, head: str, node: ast.For | ast.While, body: Sequence[ast.stmt]) -> list[str]:
        """Branches in a loop may be taken in one round alone: there the operators decide nothing."""
        self._forget(body)
        self._depth += 1
        inner, mark = self.block(body), self._head(node)
        if any(", r " in line for line in inner):  # a line that costs something
            mark = f"{mark or '  #'} what its lines cost is of all steps"
        lines = self._nested(f"{head}{mark}", inner)
        self._depth -= 1
        self._forget(body)
        return lines

    def _head(self, node: ast.For | ast.While | ast.With | Function | ast.If) -> str:
        """The comment of a statement that holds others: what its own lines cost, before the first that it holds."""
        return self.mark(node, max(node.lineno, node.body[0].lineno - 1))

    def _forget(self, statements: Sequence[ast.stmt]) -> None:
        """What statements assign is neither given nor absent any more."""
        stored = {
            each.id
            for statement in statements
            for each in ast.walk(statement)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        self._given -= stored
        self._absent -= stored
        self._false -= stored
        changed = {_root(target) for statement in statements for target in _targets(statement)} | stored
        self._none = {text for text in self._none if not changed & _names(ast.walk(ast.parse(text)))}

    @staticmethod
    def _nested(header: str, lines: Sequence[str]) -> list[str]:
        return [header, *_indented(lines)] if lines else []

    # ---- expressions ------------------------------------------------------------------------------------------------

    def _text(self, node: ast.AST) -> str:
        return ast.unparse(_Folded(self).visit(copy.deepcopy(node)))

    def keywords(self, node: ast.Call) -> list[ast.keyword]:
        """The arguments that say something, those without which what is called cannot be, those that its listing reads, and those of
        a function that are parameters."""
        lines = node.lineno, node.end_lineno or node.lineno
        needed = self._call.needed(*lines)[len(node.args) :]
        open_ = {*needed} - {each.arg for each in node.keywords}
        silent = [each for each in node.keywords if not self._says(each)]
        read = self._call.read(*lines) if any(each.arg for each in silent) else ()
        if read is None:  # a class is made, and says what it holds
            function = isinstance(node.func, ast.Name) and not node.func.id.lstrip("_")[:1].isupper()
            read = [each.arg for each in silent if each.arg and function and self._hands_on(each)]
        kept = {*needed, *read}
        return [each for each in node.keywords if each not in silent or each.arg in kept or (open_ and not each.arg)]

    def _says(self, keyword: ast.keyword) -> bool:
        """Whether an argument hands on neither nothing nor what other keywords there are."""
        if isinstance(keyword.value, ast.Name):
            return keyword.value.id not in self._absent and keyword.value.id != self._keywords
        return not (isinstance(keyword.value, ast.Constant) and keyword.value.value is None)

    def _hands_on(self, keyword: ast.keyword) -> bool:
        """Whether an argument is a parameter that holds nothing."""
        return isinstance(keyword.value, ast.Name) and keyword.value.id in self._parameters & self._absent

    def truth(self, test: ast.expr) -> bool | None:
        """Whether `test` held, where names that hold something or nothing, or training, decide it."""
        return self._truth(test)

    def _truth(self, test: ast.expr) -> bool | None:
        match test:
            case ast.Attribute(attr="training"):
                return False
            case ast.Name(id=name) if name in self._absent | self._false:
                return False
            case ast.Constant(value=bool(value)):
                return value
            case ast.Attribute() if (setting := self._setting(test)) is not None:
                return bool(self._call.settings[setting])
            case ast.Compare(left=ast.Attribute() as left, ops=[op], comparators=[ast.Constant(value=value)]) if (
                isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq) and (setting := self._setting(left)) is not None
            ):
                return (self._call.settings[setting] == value) is isinstance(op, ast.Is | ast.Eq)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._truth(operand)
                return None if inner is None else not inner
            case ast.Compare(
                left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]
            ):
                if name in self._absent or name in self._given:
                    return (name in self._absent) is isinstance(op, ast.Is)
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]) if (
                ast.unparse(left) in self._none
            ):
                return isinstance(op, ast.Is)
            case ast.BoolOp(op=op, values=values):
                held = [self._truth(value) for value in values]
                decides = isinstance(op, ast.Or)
                if decides in held:
                    return decides
                return not decides if all(one is not None for one in held) else None
        return None

    def _setting(self, node: ast.Attribute) -> str | None:
        """The setting that `self.config.NAME` or `config.NAME` reads, or the attribute of `self`, where what it holds is known."""
        held = node.value
        owner = held.attr if isinstance(held, ast.Attribute) else held.id if isinstance(held, ast.Name) else ""
        name = node.attr if owner == "config" else f"self.{node.attr}" if owner == "self" else ""
        return name if name in self._call.settings else None


class _Folded(ast.NodeTransformer):
    """Takes out of an expression what did not run: the other side of a choice, arguments that hand on nothing."""

    def __init__(self, listing: _Listing) -> None:
        self._listing = listing

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        truth = self._listing.truth(node.test)
        return self.generic_visit(node) if truth is None else self.visit(node.body if truth else node.orelse)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        open_ = [value for value in node.values if self._listing.truth(value) is None]
        if isinstance(node.op, ast.And) or not open_ or self._listing.truth(node) is not None:
            return self.generic_visit(node)  # a condition is told whole: what its other part guards would not be seen
        node.values = open_
        return self.visit(open_[0]) if len(open_) == 1 else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = self._listing.keywords(node)
        return self.generic_visit(node)


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
