"""The call nesting of an engine as it really is: loops, branches and calls of a function, and of the functions that they run.

A call is followed where it leads to one definition. Where source leaves several, or none, the line stays and says so. What
neither belongs to a stage of an engine nor leads to one is left out; depth is that of the syntax tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from opscope_schemas.repo_map import NestLine

from opscope_tools.source.call_nesting import shortened
from opscope_tools.survey.behaviour import HOLDER, Behaviour
from opscope_tools.survey.call_graph import CallGraph, Node
from opscope_tools.survey.effects import COMMON, SPAWNS, handed_over, spawned
from opscope_tools.survey.expressions import last_name, last_of, loose_chain, names
from opscope_tools.survey.facts import ClassFact
from opscope_tools.survey.holdings import Definition, Holdings, at
from opscope_tools.survey.nest_lines import Line, flat, kept
from opscope_tools.survey.stages import stage_of
from opscope_tools.survey.typing_of import Frame, Target, Types

#: names of stages that stay on a line even where source does not say what they run
_KNOWN = re.compile(
    r"_?model_forward|execute_model\w*|_?run_model|forward|\w*sampler|_?sample|sample_tokens|multinomial\w*|argmax|categorical\w*|(?:\w+_)?model|net|network|transformer|lm|llm|gpt|replay|generate|compute_logits|logits_processors?|schedule"
)
#: what a function does (effects.py) -> the stage that a call of it belongs to, the surest first
_SHOWS = (("admits", "schedule"), ("model", "model"), ("layers", "model"), ("attention", "model"), ("sample", "sample"), ("filter", "sample"), ("writes", "KV cache"), ("allocates", "KV cache"))  # fmt: skip
#: what a generated token is called where it is kept
_TOKEN = re.compile(r"(\w+_)?(next_?)?(tok|token|tokens|token_id|token_ids|output_ids?|next_ids?)(_\w+)?")
#: what plans batches where it is compiled, and what is only asked of it
_PLANS, _ASKS = re.compile(r"\w*scheduler"), re.compile(r"_?(is|has|num|get|set|can|should|max)_")
#: what is done with a part of a cache
_HOLDS = re.compile(r"(free|append|alloc|evict|write|store|release)(_\w+)?")
_KEEPS = {"append", "extend", "cat", "concat", "concatenate", "put", "put_nowait", "copy_"}
_EXPANSIONS = 500  # functions
_DEEPEST = 5
_CODE = 110


class Nesting:
    """Reads functions of a repository; `everything` keeps every call that leads into it, whatever it is called."""

    def __init__(
        self,
        held: Holdings,
        types: Types,
        checkpoint: Callable[[], None],
        behaviour: Behaviour | None = None,
        *,
        everything: bool = False,
    ) -> None:
        self.held, self.types, self.checkpoint, self.everything = held, types, checkpoint, everything
        self.behaviour, self.graph = behaviour, behaviour.graph if behaviour is not None else None
        self._methods: dict[str, list[Definition]] | None = None

    def walk(self, target: Target, most: int) -> tuple[list[NestLine], set[str], str]:
        """The lines below a function, at most `most`; the stages that they reach; what was left out."""
        self._near = self._distances(target)
        self._seen = {target.key}
        self._loop_depth = 0
        tree = kept(list(self._block(target.node.body, 0, Frame(target), 0)))
        whole = list(flat(tree))
        lines = shortened([line.line for line in whole], most)
        cut = f"{len(whole) - len(lines)} lines that lie deeper" if len(lines) < len(whole) else ""
        if len(self._near) >= _EXPANSIONS:
            cut = f"{cut}; what lies beyond {_EXPANSIONS} functions".removeprefix("; ")
        return lines, {stage for line in whole for stage in line.stages}, cut

    def _distances(self, target: Target) -> dict[tuple[str, str], int]:
        """How few calls lead to each function: it is expanded there, so that what is near is never lost to what is deep."""
        near = {target.key: 0}
        waiting = [target]
        for one in waiting:
            calls = near[one.key]
            frame = Frame(one)
            for call in _calls_in(one.node.body) if calls < _DEEPEST else ():
                self.checkpoint()
                targets, _ = self._targets(call, frame)
                for other in targets:
                    if other.key not in near and len(near) < _EXPANSIONS:
                        near[other.key] = calls + 1 + (len(targets) > 1)
                        waiting.append(other)
            if len(near) >= _EXPANSIONS:
                break
        return near

    # statements

    def _block(self, body: Sequence[ast.stmt], depth: int, frame: Frame, calls: int) -> Iterator[Line]:
        for statement in body:
            yield from self._statement(statement, depth, frame, calls)

    def _statement(self, node: ast.stmt, depth: int, frame: Frame, calls: int) -> Iterator[Line]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return
        if isinstance(node, ast.For | ast.AsyncFor):
            yield from self._calls(node.iter, depth, frame, calls)
            head = f"for {_text(node.target)} in {_text(node.iter)}:"
            yield from self._held(
                "loop", head, node, self._looped(node.body, depth + 1, frame, calls), depth, frame, calls
            )
            yield from self._else(node.orelse, depth, frame, calls)
        elif isinstance(node, ast.While):
            inside = [
                *self._calls(node.test, depth + 1, frame, calls),
                *self._looped(node.body, depth + 1, frame, calls),
            ]
            yield from self._held("loop", f"while {_text(node.test)}:", node, inside, depth, frame, calls)
            yield from self._else(node.orelse, depth, frame, calls)
        elif isinstance(node, ast.If):
            yield from self._if(node, "if", depth, frame, calls)
        elif isinstance(node, ast.With | ast.AsyncWith):
            head = f"with {', '.join(_text(item.context_expr) for item in node.items)}:"
            before = [line for item in node.items for line in self._calls(item.context_expr, depth, frame, calls)]
            yield from before
            yield from self._held(
                "block", head, node, [*self._block(node.body, depth + 1, frame, calls)], depth, frame, calls
            )
        elif isinstance(node, ast.Try):
            yield from self._held(
                "block", "try:", node, [*self._block(node.body, depth + 1, frame, calls)], depth, frame, calls
            )
            for handler in node.handlers:
                caught = f"except {_text(handler.type)}:" if handler.type else "except:"
                inside = [*self._block(handler.body, depth + 1, frame, calls)]
                yield from self._held("branch", caught, handler, inside, depth, frame, calls)
            yield from self._else(node.orelse, depth, frame, calls)
            yield from self._block(node.finalbody, depth, frame, calls)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                inside = [*self._block(case.body, depth + 1, frame, calls)]
                yield from self._held(
                    "branch", f"case {ast.unparse(case.pattern)}:", case.pattern, inside, depth, frame, calls
                )
        else:
            found = [*self._calls(node, depth, frame, calls)]
            yield from found
            if isinstance(node, ast.Assign) and any("sample" in line.stages for line in flat(found)):
                frame.picked.update(name for target in node.targets for name in names(target))
            if not any(line.sure for line in found) and (stage := self._done(node, frame, calls)):
                line = self._line("work", _text(node), node, [], depth, frame, calls)
                line.line = line.line.model_copy(update={"stage": stage})
                line.stages, line.sure = {stage}, True
                yield line
            if calls == 0 and self._loop_depth and (code := _leaves(node)):
                line = self._line("exit", code, node, [], depth, frame, calls)
                line.leaves, line.sure = True, code.startswith("yield")
                yield line

    def _looped(self, body: Sequence[ast.stmt], depth: int, frame: Frame, calls: int) -> list[Line]:
        self._loop_depth += 1
        found = [*self._block(body, depth, frame, calls)]
        self._loop_depth -= 1
        return found

    def _if(self, node: ast.If, word: str, depth: int, frame: Frame, calls: int) -> Iterator[Line]:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield from self._calls(node.test, depth, frame, calls)
        body = [*self._block(node.body, depth + 1, frame, calls)]
        rest: list[Line] = []
        if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            rest = [*self._if(node.orelse[0], "elif", depth, frame, calls)]
        elif node.orelse:
            rest = [*self._else(node.orelse, depth, frame, calls)]
        if body or rest:  # an else says nothing without its if
            yield self._line("branch", f"{word} {_text(node.test)}:", node, body, depth, frame, calls)
        yield from rest

    def _else(self, body: Sequence[ast.stmt], depth: int, frame: Frame, calls: int) -> Iterator[Line]:
        if body:
            yield from self._held(
                "branch",
                "else:",
                self._else_line(body[0], frame),
                [*self._block(body, depth + 1, frame, calls)],
                depth,
                frame,
                calls,
            )

    def _else_line(self, first: ast.stmt, frame: Frame) -> ast.AST:
        """A node at the line of the `else` before a statement, which the syntax tree does not hold."""
        lines = self.held.lines(frame.target.file.path)
        place = next((n for n in range(first.lineno, 0, -1) if lines[n - 1].lstrip().startswith("else")), first.lineno)
        return ast.Pass(lineno=place, col_offset=0)

    def _held(
        self, kind: str, code: str, node: ast.AST, inside: list[Line], depth: int, frame: Frame, calls: int
    ) -> Iterator[Line]:
        if inside:
            yield self._line(kind, code, node, inside, depth, frame, calls)

    def _line(
        self, kind: str, code: str, node: ast.AST, below: list[Line], depth: int, frame: Frame, calls: int
    ) -> Line:
        code = code if len(code) <= _CODE else code[: _CODE - 3] + "..."
        place = at(frame.target.file.path, getattr(node, "lineno", 1))
        return Line(NestLine(depth=depth, kind=kind, code=code, at=place, calls=calls), calls, set(), below)  # type: ignore[arg-type]  # pydantic checks the kind

    # calls

    def _calls(self, node: ast.AST, depth: int, frame: Frame, calls: int) -> Iterator[Line]:
        """The calls of an expression or a simple statement, the inner ones first, as they run."""
        whole = (
            getattr(node, "value", None)
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return)
            else None
        )
        if isinstance(whole, ast.Await):
            whole = whole.value
        for call in _in_order(node):
            prefix = ""
            if call is whole and isinstance(node, ast.Assign):
                prefix = " = ".join(_text(target) for target in node.targets) + " = "
            elif call is whole and isinstance(node, ast.Return):
                prefix = "return "
            yield from self._call(call, prefix, depth, frame, calls)

    def _call(self, call: ast.Call, prefix: str, depth: int, frame: Frame, calls: int) -> Iterator[Line]:
        self.checkpoint()
        name = last_of(call)
        targets, note = self._targets(call, frame)
        stage = stage_of(name)
        if not stage and len(targets) == 1 and targets[0].path.rpartition(".")[2] != name:
            stage = stage_of(targets[0].path.rpartition(".")[2])
        stage = stage or self._shown(targets)
        if (
            not targets
            and isinstance(call.func, ast.Attribute)
            and _PLANS.fullmatch(last_name(call.func.value))
            and not _ASKS.match(name)
        ):
            stage, note = "schedule", note or "not in source"
        below: list[Line] = []
        into = ""
        again: tuple[str, str] | None = None
        if len(targets) == 1:
            target = targets[0]
            into = target.at
            if self._here(target, calls + 1):
                below = self._expanded(target, depth + 1, calls + 1)
            elif target.key in self._near:
                again = target.key
        elif targets:
            below = self._choices(targets, depth + 1, frame, calls + 1, call)
        sure = bool((stage and (targets or note or _KNOWN.fullmatch(name))) or (self.everything and targets))
        if below or sure or again:
            line = self._line("call", f"{prefix}{_text(call)}", call, below, depth, frame, calls)
            line.line = line.line.model_copy(update={"into": into, "note": note, "stage": stage})
            line.stages = {stage} if stage else set()
            line.sure, line.again, line.runs = sure, again, targets[0].key if len(targets) == 1 else None
            yield line

    def _here(self, target: Target, calls: int) -> bool:
        """Whether a function is expanded at this call: the first of those that the fewest calls lead to."""
        return target.key not in self._seen and self._near.get(target.key) == calls

    def _expanded(self, target: Target, depth: int, calls: int) -> list[Line]:
        self._seen.add(target.key)
        return [*self._block(target.node.body, depth, Frame(target), calls)]

    def _choices(self, targets: list[Target], depth: int, frame: Frame, calls: int, call: ast.Call) -> list[Line]:
        """What source binds one of: each expanded under a line of its own."""
        found = []
        for target in targets:
            below = self._expanded(target, depth + 1, calls + 1) if self._here(target, calls + 1) else []
            line = self._line("choice", f"either {target.path}", call, below, depth, frame, calls)
            line.line = line.line.model_copy(update={"into": target.at})
            line.runs = target.key
            if below:
                found.append(line)
        return found

    def _done(self, node: ast.stmt, frame: Frame, calls: int) -> str:
        """The stage of what a statement does itself: writes keys and values, attends, takes a request, hands a token on."""
        here = self.graph.at(frame.target.file.path, frame.target.path) if self.graph else None
        if here is None:
            return ""
        last = node.end_lineno or node.lineno
        for effect, stage in _SHOWS:
            if effect in here.work.effects and node.lineno <= here.work.effects[effect][1] <= last:
                return stage
        hands = _keeps_token(node, frame.picked) or (calls > 0 and _hands_on(node, frame.picked))
        return "output" if self._loop_depth and hands else ""

    def _shown(self, targets: list[Target]) -> str:
        """The stage of what the called functions do."""
        nodes = [self.graph.at(target.file.path, target.path) for target in targets] if self.graph else []
        effects = {effect for node in nodes if node is not None for effect in node.work.effects}
        keeps = any(
            one.owner and HOLDER.search(one.owner.name) and _HOLDS.fullmatch(one.path.rpartition(".")[2])
            for one in targets
        )
        return next((stage for effect, stage in _SHOWS if effect in effects), "KV cache" if keeps else "")

    # what a call runs

    def _targets(self, call: ast.Call, frame: Frame) -> tuple[list[Target], str]:
        """The definition that a call runs; or the ones that it is bound to; or none, and what there is to say of it."""
        found, note = self._by_types(call, frame)
        if found or self.graph is None:
            return found, note
        named, how = self._by_graph(call, frame, self.graph)
        if not named:
            named, how = self._layer(call, frame, self.graph)
        return (named, how) if named else (found, note)

    def _layer(self, call: ast.Call, frame: Frame, graph: CallGraph) -> tuple[list[Target], str]:
        """What a loop over layers calls: the one class whose forward takes these arguments, and attends or leads there."""
        here = graph.at(frame.target.file.path, frame.target.path)
        if here is None or here.work.effects.get("layers", ("", 0))[1] != call.lineno or self.behaviour is None:
            return [], ""
        if not isinstance(call.func, ast.Name | ast.Subscript):
            return [], ""
        owner = frame.target.owner
        own = {one.at for one in self.held.lineage(owner)} if owner is not None else set()
        near = {frame.target.file.path, *self.held.imports_of(frame.target.file.path)}
        fitting = [
            node
            for node in graph.nodes
            if node.fact.name == "forward" and node.owner is not None and node.file.path in near
            and node.owner.at not in own and "layers" not in node.work.effects
            and node in self.behaviour.attending and self._takes(node, call)
        ]  # fmt: skip
        inner = {target for node in fitting for target, _, _ in graph.leads[node]}
        fitting = [node for node in fitting if node not in inner]
        local = [node for node in fitting if node.file is frame.target.file] or fitting
        if len(local) != 1:
            return [], ""
        target = Target(self.held, local[0].file, local[0].fact.path, local[0].fact.line, local[0].owner)
        return [target], "by its arguments: the one class at hand that takes them and attends"

    def _takes(self, node: Node, call: ast.Call) -> bool:
        """Whether a method takes the arguments of a call: no more by position than it has, none by a name that it lacks."""
        names = self.held.parameters(node.file.path, node.fact.path)
        given = {keyword.arg for keyword in call.keywords}
        return None in given or (
            len(call.args) <= len(names) and given <= set(names) and len(names) <= len(call.args) + len(given) + 2
        )

    def _by_graph(self, call: ast.Call, frame: Frame, graph: CallGraph) -> tuple[list[Target], str]:
        """Where no type tells: what the names of the call lead to, or what a call that starts it later is given."""
        node = graph.at(frame.target.file.path, frame.target.path)
        if node is None:
            return [], ""
        given = [call.func, *spawned(call)]
        found: dict[tuple[str, str], Target] = {}
        for one in given if last_of(call) not in COMMON else ():
            inner = self._nested(one.id, frame) if isinstance(one, ast.Name) else None
            dotted = self.held.dotted(one, frame.target.file) or loose_chain(one)
            for other in (
                [] if inner is not None or not dotted else self._leading(graph.called(node, frame.target.owner, dotted))
            ):
                target = Target(self.held, other.file, other.fact.path, other.fact.line, other.owner)
                found[target.key] = target
            if inner is not None:
                found[inner.key] = inner
        message = handed_over(call)
        for other in self._leading(graph.called(node, frame.target.owner, message)) if message else ():
            target = Target(self.held, other.file, other.fact.path, other.fact.line, other.owner)
            found[target.key] = target
        targets = list(found.values())
        if len(targets) > 1:
            shown = ", ".join(f"{t.path} ({t.at})" for t in targets[:3])
            note = f"by its name: one of {len(targets)} definitions: {shown}{', ...' if len(targets) > 3 else ''}"
            return targets[:1], note
        if message:
            return targets, "takes from that queue" if targets else ""
        return targets, "by its name" if targets and targets[0].path.rpartition(".")[0] != frame.target.path else ""

    def _leading(self, nodes: list[Node]) -> list[Node]:
        """Those that lead to something that an engine does: a name alone leads to too much."""
        return [node for node in nodes if self.behaviour is not None and node in self.behaviour.leading]

    def _nested(self, name: str, frame: Frame) -> Target | None:
        """A function that is defined inside the one that is read, or beside it in the function around both."""
        path = frame.target.path
        while path:
            node = self.held.node(frame.target.file.path, f"{path}.{name}")
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                return Target(self.held, frame.target.file, f"{path}.{name}", node.lineno, frame.target.owner)
            path = path.rpartition(".")[0]
        return None

    def _by_types(self, call: ast.Call, frame: Frame) -> tuple[list[Target], str]:
        if isinstance(call.func, ast.Name):
            if inner := self._nested(call.func.id, frame):
                return [inner], ""
            found = self._plain(call.func, frame)
            return ([found], "") if found else (self._looked_up(call.func, frame), "")
        if not isinstance(call.func, ast.Attribute):
            return [], ""
        name = call.func.attr
        if _is_super(call.func.value) and frame.target.owner is not None:
            found = self._above(frame, name)
            return ([found], "") if found else ([], "")
        named = self.types.named(call.func, frame.target.file)
        if named is not None and not isinstance(named.fact, ClassFact):
            function = self._function(named)
            return ([function], "") if function else ([], "")
        owners = self.types.of(call.func.value, frame)
        if not owners:
            return self._only(name)
        return self._of_owners(owners, name, call)

    def _of_owners(self, owners: list[Definition], name: str, call: ast.Call) -> tuple[list[Target], str]:
        found: dict[tuple[str, str], Target] = {}
        for owner in owners:
            method = self.types.method(owner, name)
            if method is None:
                for called in self._bound(owner, name):
                    found[called.key] = called
                continue
            below = self.types.overriding(owner, name)
            is_self = (
                isinstance(call.func, ast.Attribute)
                and isinstance(call.func.value, ast.Name)
                and call.func.value.id == "self"
            )
            if self.types.is_abstract(method):
                for other in below:
                    found[other.key] = other
            else:
                found[method.key] = method
                if (
                    not is_self
                ):  # an object of a base may be of any class below it; self is taken as the class that is read
                    found.update({other.key: other for other in below})
        targets = list(found.values())
        if len(targets) == 1:
            return [self._by_name(targets[0], call)], ""
        if not targets:
            return [], ""
        if all(self.types.method(owner, name) is None for owner in owners):
            return targets, ""
        shown = ", ".join(f"{t.path} ({t.at})" for t in targets[:3])
        return [], f"{len(targets)} definitions: {shown}{', ...' if len(targets) > 3 else ''}"

    def _plain(self, node: ast.Name, frame: Frame) -> Target | None:
        named = self.types.named(node, frame.target.file)
        if named is not None and node.id not in frame.local and node.id not in frame.annotated:
            return self._function(named)
        for owner in self.types.of(node, frame)[:1]:
            return self.types.method(owner, "forward") or self.types.method(owner, "__call__")
        return None

    def _looked_up(self, node: ast.Name, frame: Frame) -> list[Target]:
        """The methods that a local name may stand for: `getattr(self, "name")`, or of the names in a table of the file."""
        owner = frame.target.owner
        bound = [option for value in frame.local.get(node.id, []) for option in _options(value)]
        named = [self.types.named(one, frame.target.file) for one in bound if isinstance(one, ast.Name | ast.Attribute)]
        found = {one.key: one for name in named if name is not None and (one := self._function(name)) is not None}
        for value in frame.local.get(node.id, []) if owner is not None else []:
            if not (isinstance(value, ast.Call) and last_of(value) == "getattr" and len(value.args) >= 2):
                continue
            if ast.unparse(value.args[0]) not in {"self", "cls", "type(self)", "self.__class__"}:
                continue
            for name in self._strings(value.args[1], frame):
                if owner is not None and (method := self.types.method(owner, name)):
                    found[method.key] = method
        return list(found.values())

    def _strings(self, node: ast.expr, frame: Frame) -> list[str]:
        """The strings that an expression may be: itself, or the values of a table that the file binds to a name."""
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else []
        table = node.value if isinstance(node, ast.Subscript) else None
        if not isinstance(table, ast.Name):
            return []
        for statement in self.held.tree(frame.target.file.path).body:
            if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Dict):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                if any(isinstance(target, ast.Name) and target.id == table.id for target in targets):
                    held = [value.value for value in statement.value.values if isinstance(value, ast.Constant)]
                    return list(dict.fromkeys(value for value in held if isinstance(value, str)))
        return []

    def _function(self, named: Definition) -> Target | None:
        if isinstance(named.fact, ClassFact):
            return None
        return Target(self.held, named.file, named.fact.path, named.fact.line)

    def _above(self, frame: Frame, name: str) -> Target | None:
        """What `super().name` runs: the method of the classes after the one that holds the function."""
        owner = frame.target.owner
        holder = frame.target.path.rpartition(".")[0]
        lineage = self.held.lineage(owner) if owner else []
        start = next((n for n, one in enumerate(lineage) if one.fact.path == holder), 0)
        for one in lineage[start + 1 :]:
            if method := self.types.method(one, name):
                return replace(method, owner=owner)
        return None

    def _bound(self, owner: Definition, name: str) -> list[Target]:
        """What `self.name(...)` runs where name is an attribute: methods that it is set to, or the object's own call."""
        found = []
        for one in self.held.lineage(owner):
            node = self.held.node(one.file.path, one.fact.path)
            for value, _ in self.types.set_values(one, node, name, owner) if isinstance(node, ast.ClassDef) else []:
                for option in _options(value) if isinstance(value, ast.expr) else []:
                    if (
                        isinstance(option, ast.Attribute)
                        and isinstance(option.value, ast.Name)
                        and option.value.id == "self"
                    ):
                        method = self.types.method(owner, option.attr)
                        found += [method] if method else []
        if not found:
            for made in self.types.attribute(owner, name):
                method = self.types.method(made, "forward") or self.types.method(made, "__call__")
                found += [method] if method else []
        return found

    def _only(self, name: str) -> tuple[list[Target], str]:
        """The one method of that name in the source, where its name says a stage; an object of unknown class has it."""
        if not stage_of(name) or name in {"forward", "model", "sample"}:
            return [], ""
        if self._methods is None:
            self._methods = {}
            for one in self.held.classes:
                if isinstance(one.fact, ClassFact) and not self.held.demoted(one.file.path):
                    for method in one.fact.methods:
                        if not method.abstract:
                            self._methods.setdefault(method.name, []).append(one)
        owners = self._methods.get(name, [])
        if len(owners) == 1 and (target := self.types.method(owners[0], name)):
            return [target], "by its name: the only method called so"
        return [], f"{len(owners)} methods are called {name}; the object's class is not in source" if owners else ""

    def _by_name(self, target: Target, call: ast.Call) -> Target:
        """A method that runs the method whose name it is given (`getattr(self, name)`): that one, where it is spelt out."""
        if target.owner is None:
            return target
        asked = {
            node.args[1].id
            for node in ast.walk(target.node)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"
            and len(node.args) >= 2 and isinstance(node.args[1], ast.Name)
            and isinstance(node.args[0], ast.Name) and node.args[0].id == "self"
        }  # fmt: skip
        order = self.held.parameters(target.file.path, target.path) if asked else []
        for place, argument in enumerate(call.args[: len(order)]):
            if order[place] in asked and isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                return self.types.method(target.owner, argument.value) or target
        return target


def _leaves(node: ast.stmt) -> str:
    """The code of a statement that leaves a loop or hands something on; empty for any other."""
    if isinstance(node, ast.Break):
        return "break"
    if isinstance(node, ast.Return):
        return _text(node) if node.value is None or not any(_in_order(node)) else ""
    held = node.value if isinstance(node, ast.Expr) else None
    return _text(held)[1:].removesuffix(")") if isinstance(held, ast.Yield | ast.YieldFrom) else ""


def _keeps_token(node: ast.stmt, picked: set[str]) -> bool:
    """Whether a statement adds a token to what was generated: `tokens.append(next_token)`, `ids = cat([ids, picked])`."""
    value = getattr(node, "value", None)
    if isinstance(node, ast.AugAssign):
        added = [*names(node.value)]
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return isinstance(value, ast.Name) and value.id in picked
    elif isinstance(value, ast.Call) and last_of(value) in _KEEPS:
        added = [name for argument in value.args for name in names(argument)]
    else:
        return False
    return any(name in picked or _TOKEN.fullmatch(name) for name in added)


def _hands_on(node: ast.stmt, picked: set[str]) -> bool:
    """Whether a generator hands on what was picked."""
    held = node.value if isinstance(node, ast.Expr) else None
    return isinstance(held, ast.Yield) and held.value is not None and not picked.isdisjoint(names(held.value))


def _calls_in(body: Sequence[ast.stmt]) -> Iterator[ast.Call]:
    """The calls of a function, those of functions defined in it left out."""
    for statement in body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for child in ast.iter_child_nodes(statement):
                if isinstance(child, ast.stmt):
                    yield from _calls_in([child])
                elif isinstance(child, ast.ExceptHandler | ast.match_case):
                    yield from _calls_in(child.body)
                else:
                    yield from _in_order(child)


def _in_order(node: ast.AST) -> Iterator[ast.Call]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Lambda) or (isinstance(node, ast.Call) and last_of(node) in SPAWNS):
            yield from _in_order(child)
    if isinstance(node, ast.Call):
        yield node


def _options(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, ast.IfExp):
        return _options(value.body) + _options(value.orelse)
    return [option for one in value.values for option in _options(one)] if isinstance(value, ast.BoolOp) else [value]


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _CODE else text[: _CODE - 3] + "..."
