"""Where the engine's loop is entered: candidates by role and name, the one whose calls reach the most stages first."""

from __future__ import annotations

import re
from collections.abc import Callable

from opscope_schemas.errors import UnknownNameError
from opscope_schemas.repo_map import CallNest, Component, Place

from opscope_tools.survey.call_graph import Node
from opscope_tools.survey.components import ROLES, Chosen, Ranking, candidate
from opscope_tools.survey.facts import ClassFact
from opscope_tools.survey.holdings import Definition, Holdings, at
from opscope_tools.survey.nesting import Nesting
from opscope_tools.survey.stages import STAGES, stage_of
from opscope_tools.survey.typing_of import Target, Types

_ENTRY = re.compile(
    r"generate|_generate|run_busy_loop|event_loop\w*|step|run_loop|main_loop|loop|serve_forever|run_engine|_sample|stream_generate|generate_\w+"
)
#: methods that loop and say so are tried whatever their class is called
_LOOPS = re.compile(
    r"_?run_\w*loop|_?(async_)?(main|event|busy|engine|generation|generate|inference|serving)_loop\w*|_?run_busy_loop"
)
_OTHER_LOOPS = 6
#: loops by what they do that are tried first
_BEHAVING = 3
#: role -> how many of its candidates are tried; fewer beside loops that are known by what they do
_NAMED = (("runtime loop", 10), ("scheduler", 4), ("model runner", 3))
_NAMED_BESIDE = (("runtime loop", 3), ("scheduler", 1))
#: role -> what its step is called, the likeliest first
_STEPS = {
    "scheduler": ("schedule", "get_next_batch_to_run", "get_next_batch", "_schedule"),
    "model runner": ("execute_model", "run_batch", "run_model", "run", "forward_batch_generation", "forward"),
}
#: calls between a step and the loop that runs it
_STEP_FAR = 12
_LINES = 500
_TRIED, _TRIED_BESIDE = 14, 6


class EngineLoops:
    """Finds and reads the loop of an engine."""

    def __init__(self, held: Holdings, ranking: Ranking, checkpoint: Callable[[], None]) -> None:
        self.held, self.ranking, self.checkpoint = held, ranking, checkpoint
        self.types = Types(held)

    def best(self) -> tuple[list[CallNest], list[Place]]:
        """The loop of the best entry, the model's step where that loop does not lead into it; the other candidates."""
        nesting = Nesting(self.held, self.types, self.checkpoint, self.ranking.behaviour)
        tried: list[tuple[float, int, Target, CallNest]] = []
        entries = self._entries()
        behaving = {node.at: score for score, node in self._behaving()}
        most = _TRIED if not behaving else _TRIED_BESIDE
        for place, target in enumerate([*entries[:most], *(entries[most:][-_OTHER_LOOPS:] if not behaving else ())]):
            nest = self._nest(nesting, target)
            if nest.lines:
                loops = sum(line.kind == "loop" for line in nest.lines)
                score = (
                    10 * len(nest.reaches) + (6 if nest.lines[0].kind == "loop" else 3 if loops else 0) - 1.5 * place
                    + 5 * behaving.get(nest.at, 0)
                )  # fmt: skip
                tried.append((score, -place, target, nest))
        tried.sort(key=lambda entry: (-entry[0], -entry[1]))
        others = [
            Place(name=target.path, at=nest.at, text=f"reaches {', '.join(nest.reaches)}")
            for _, _, target, nest in tried[1:]
        ]
        if not tried:
            return [], others
        nests = [tried[0][3]]
        for role, names in _STEPS.items():
            nests += self._step(nesting, role, names, nests)
        return nests, others

    def first_in_role(self, roles: list[Component], nest: CallNest) -> list[Component]:
        """The roles, with the class or function whose loop was read first among the runtime loops."""
        name = nest.entry.rpartition(".")[0] or nest.entry
        file = nest.at.rpartition(":")[0]
        holder = self.held.definition(name, self.held.by_path[file])
        if holder is None:
            return roles
        methods = [Place(name=nest.entry.rpartition(".")[2], at=nest.at)] if "." in nest.entry else []
        weak = (
            "" if {"model", "sample", "prefill or decode"}.intersection(nest.reaches) else "its calls lead to no model"
        )
        first = candidate(self.held, Chosen(holder, methods, weak=weak))
        changed = []
        for role in roles:
            if role.role == ROLES[0].name:
                others = tuple(one for one in role.candidates if one.at != first.at)
                total = role.total + (len(others) == len(role.candidates))
                files = max(role.files, len({one.at.rpartition(":")[0] for one in (first, *others)}))
                found = {"candidates": (first, *others), "total": total, "files": files, "searched": ""}
                role = role.model_copy(update=found)
            changed.append(role)
        return changed

    def named(self, entry: str) -> CallNest:
        """The nesting below `Class.method`, `function` or `path.py:line`; raises `UnknownNameError`."""
        target = self._named(entry)
        if target is None:
            raise UnknownNameError(
                "function or method", entry, self._similar(entry),
                next_step="Give Class.method, function, or path.py:line of a def, as components and loop_candidates list them.",
            )  # fmt: skip
        nest = self._nest(Nesting(self.held, self.types, self.checkpoint, self.ranking.behaviour), target)
        if nest.lines:
            return nest
        return self._nest(
            Nesting(self.held, self.types, self.checkpoint, self.ranking.behaviour, everything=True), target
        )

    def _nest(self, nesting: Nesting, target: Target) -> CallNest:
        lines, stages, cut = nesting.walk(target, _LINES)
        return CallNest(
            entry=target.path, at=target.at, lines=tuple(lines),
            reaches=tuple(stage for stage in STAGES if stage in stages), cut=cut,
        )  # fmt: skip

    def _entries(self) -> list[Target]:
        found = [target for _, node in self._behaving() if (target := self._target(node))]
        by_name = {role.name: role for role in ROLES}
        for role, most in _NAMED if not found else _NAMED_BESIDE:
            for one in self.ranking.candidates(by_name[role])[:most]:
                if not self.held.demoted(one.one.file.path):
                    found += self._of(one.one)
        if not found:
            functions = [
                one
                for one in self.held.functions
                if _ENTRY.fullmatch(one.name) and not self.held.demoted(one.file.path)
            ]
            functions.sort(key=lambda one: (-self.held.importers[one.at], -one.lines, one.at))
            found += [target for one in functions if (target := self._function(one))]
        return list({target.key: target for target in [*found, *self._loops()]}.values())

    def _behaving(self) -> list[tuple[float, Node]]:
        return self.ranking.behaviour.loops[:_BEHAVING] if self.ranking.behaviour is not None else []

    def _target(self, node: Node) -> Target | None:
        return (
            self.types.method(node.owner, node.fact.name) if node.owner is not None else self._function(node.definition)
        )

    def _loops(self) -> list[Target]:
        """Methods of the source that are called loops and hold one, those of the most imported classes first."""
        classes = [one for one in self.held.classes if not self.held.demoted(one.file.path)]
        found = [
            (self.held.importers[one.at], method.end_line - method.line, target)
            for one in classes if isinstance(one.fact, ClassFact)
            for method in one.fact.methods
            if method.loops and _LOOPS.fullmatch(method.name) and (target := self.types.method(one, method.name))
        ]  # fmt: skip
        found.sort(key=lambda entry: (-entry[0], -entry[1], entry[2].at))
        return [target for _, _, target in found[:_OTHER_LOOPS]]

    def _of(self, one: Definition) -> list[Target]:
        if not isinstance(one.fact, ClassFact):
            target = self._function(one)
            return [target] if target else []
        names = [method.name for method in one.fact.methods if _ENTRY.fullmatch(method.name) and not method.abstract]
        return [target for name in names if (target := self.types.method(one, name))]

    def _function(self, one: Definition) -> Target | None:
        if isinstance(one.fact, ClassFact):
            return None
        return Target(self.held, one.file, one.fact.path, one.fact.line)

    def _step(self, nesting: Nesting, role: str, names: tuple[str, ...], before: list[CallNest]) -> list[CallNest]:
        """The loop that runs the step of the role's best class, and the step where it is not in that loop's lines; nothing
        where the nestings before lead into it."""
        wanted = next(one for one in ROLES if one.name == role)
        for one in (chosen.one for chosen in self.ranking.candidates(wanted)[:3]):
            if self.held.demoted(one.file.path):
                return []
            for name in names:
                target = self.types.method(one, name)
                if target is None or self.types.is_abstract(target):
                    continue
                if any(self._leads_into(nest, target) for nest in before):
                    return []
                around, step = self._nest(nesting, self._looping(target)), self._nest(nesting, target)
                found = [around] if self._leads_into(around, target) else [around, step]
                if found := [nest for nest in found if nest.lines]:
                    return [nest for nest in found if nest.at not in {one.at for one in before}]
        return []

    def _leads_into(self, nest: CallNest, target: Target) -> bool:
        """Whether a nesting is that of the function, or holds its body or that of another step of its class."""
        own = getattr(target.owner.fact, "methods", ()) if target.owner is not None else ()
        steps = {target.at} | {
            at(target.owner.file.path, one.line) for one in own if target.owner is not None and stage_of(one.name)
        }
        if nest.at == target.at:
            return True
        pairs = zip(nest.lines, nest.lines[1:], strict=False)
        return any(line.into in steps and following.depth > line.depth for line, following in pairs)

    def _looping(self, target: Target) -> Target:
        """The loop that runs a step, the nearest along calls; the step itself where none is found."""
        behaviour = self.ranking.behaviour
        step = behaviour.graph.at(target.file.path, target.path) if behaviour is not None else None
        if behaviour is None or step is None:
            return target
        graph = behaviour.graph
        above = graph.above([step], _STEP_FAR)
        loops = [
            node for node in above
            if node.work.loop and behaviour.generates(node) and any(one in above for one, looped, _ in graph.leads[node] if looped)
        ]  # fmt: skip
        nearest = min(loops, key=lambda node: (node.work.loop != "while", above[node], node.at), default=step)
        return self._target(nearest) or target

    # entries by name

    def _named(self, entry: str) -> Target | None:
        path, _, number = entry.rpartition(":")
        if path.endswith(".py") and number.isdigit():
            return self._at(path, int(number))
        plain = entry.strip().removesuffix("()")
        owner, _, name = plain.rpartition(".")
        for one in self.held.classes:
            named = {one.fact.path, f"{self.held.names[one.file.path]}.{one.fact.path}"}
            if owner in named and (target := self.types.method(one, name)):
                return target
        for one in self.held.functions:
            if plain in {one.name, f"{self.held.names[one.file.path]}.{one.name}"}:
                return self._function(one)
        return None

    def _at(self, path: str, line: int) -> Target | None:
        facts = self.held.by_path.get(path)
        for one in self.held.classes if facts else ():
            for method in getattr(one.fact, "methods", ()) if one.file is facts else ():
                if method.line <= line <= method.end_line:
                    return self.types.method(one, method.name)
        for one in self.held.functions if facts else ():
            if one.file is facts and one.fact.line <= line <= one.fact.end_line:
                return self._function(one)
        return None

    def _similar(self, entry: str) -> list[str]:
        from difflib import get_close_matches

        names = [m.path for one in self.held.classes for m in getattr(one.fact, "methods", ())]
        names += [one.name for one in self.held.functions]
        return get_close_matches(entry, sorted(set(names)), n=5, cutoff=0.6)
