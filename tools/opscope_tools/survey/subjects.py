"""What the deep dive of a report points at: KV cache, scheduler, sampling, kernels, each in its questions.

Every question has places, or says what was searched for. Places are definitions and lines of source, those near the
component that plays the role first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from opscope_schemas.repo_map import Component, Counted, Place

from opscope_tools.survey.effects import EFFECTS
from opscope_tools.survey.facts import ClassFact
from opscope_tools.survey.holdings import Holdings, at
from opscope_tools.survey.topics import IDENTIFIERS

_KEPT = 12
#: a field that only parameters of sampling text have
_PARAMETER = re.compile(r"temperature|top_p|top_k|min_p|repetition_penalty")


@dataclass(frozen=True)
class _Question:
    """How a question is answered: methods and functions by name, in files by path, and identifiers of topics."""

    name: str
    definitions: str = ""
    files: str = ""
    #: classes whose methods count wherever they stand, by the name in small letters
    holders: str = "(?!)"
    #: more methods that count in those classes alone
    held_methods: str = "(?!)"
    #: files outside which the identifiers of the topics may mean something else: they are looked at where these hold none
    topic_files: str = ""
    topics: tuple[str, ...] = ()
    fields: str = ""
    #: functions of any name that do this (effects.py)
    effects: tuple[str, ...] = ()


_CACHE_FILES = r"cache|kv|block|mem|page|radix"
_CACHE_CLASSES = r"cache|kv|block(manager|pool|table|allocator)|allocator"
_SCHEDULER_FILES = r"sched|request_queue|policy|batch_manager"
_SAMPLING_FILES = r"sampl|logit|generat|penalt|decod"
_SAMPLING_CLASSES = r"sampl|logit|penalt"
_QUANTIZATION_FILES = r"quant|gemm|linear|fp8|int8|int4|marlin|awq|gptq|matmul|scaled_mm|fused_moe"
#: topic of a definition, no identifier -> what is looked for
_KERNELS = {"kernel.triton": "functions under triton.jit", "kernel.cuda": "__global__ functions"}
_QUESTIONS: dict[str, tuple[_Question, ...]] = {
    "kv_cache": (
        _Question("update path (append, swap, evict)", r"append\w*|_?allocate\w*|free\w*|_free\w*|evict\w*|swap\w*|update|store_kv\w*|reshape_and_cache\w*|insert\w*|cache_blocks|may_append|set_kv_buffer|reset_prefix_cache|deallocate\w*|_deallocate\w*|copy_blocks|move_\w+|alloc\w*", _CACHE_FILES, _CACHE_CLASSES, effects=("writes",)),
        _Question("paging and block tables", topics=("kv.paging",)),
        _Question("memory accounting", r"get_num_free_\w+|\w*memory_usage|available_size|profile_\w*mem\w*|determine_\w*(memory|blocks)\w*|get_kv_cache_\w*(size|config)\w*|\w*page_size_bytes", _CACHE_FILES, _CACHE_CLASSES, topics=("kv.memory",), topic_files=r"^(?!.*train)"),
    ),
    "scheduler": (
        _Question("queueing and priorities", r"add_request|_?schedule|get_next_batch\w*|(pop|push|prepend|peek)_(request|requests|waiting|reqs?)|add", _SCHEDULER_FILES, "sched", topics=("scheduler.queue",), topic_files=_SCHEDULER_FILES, effects=("admits",)),
        _Question("chunking and preemption", r"_?preempt\w*|retract\w*|\w*chunked\w*|swap_out\w*|_?add_chunk\w*", _SCHEDULER_FILES, "sched", topics=("scheduler.chunk",)),
        _Question("admission control", r"can_allocate|can_append|can_schedule\w*|abort\w*|\w*admission\w*|\w*throttl\w*|_?check_\w*(limit|length|memory)\w*", _SCHEDULER_FILES, "sched|blockmanager", topics=("scheduler.admission",), topic_files=r"sched|engine|batch|config|args|manager|runner|worker|server"),
    ),
    "sampling": (
        _Question("logits processing", r"apply_\w*(penalt|top|temp|bias|logit|mask)\w*|top_k\w*|top_p\w*|\w*logits_process\w*|\w*penalt(y|ies)\w*|_?sample\w*", _SAMPLING_FILES, _SAMPLING_CLASSES, "forward|__call__|apply", effects=("sample",)),
        _Question("parameters", fields=r".*(SamplingParams|SamplingParameters|SamplingConfig|GenerationConfig|SamplingBatchInfo)", topics=("sampling.parameter",)),
        _Question("determinism and seeds", topics=("sampling.seed",), topic_files=_SAMPLING_FILES),
    ),
    "kernels": (
        _Question("GEMM and quantization backends", r"\w*(gemm(?!a)|scaled_mm|matmul|marlin|dequant|quantize)\w*", _QUANTIZATION_FILES, "quant|gemm", "apply", topics=("kernel.gemm",)),
        _Question("attention calls", topics=("kernel.attention",)),
        _Question("Triton kernels", topics=("kernel.triton",)),
        _Question("CUDA kernels", topics=("kernel.cuda",)),
    ),
}  # fmt: skip
#: question that a component answers: subject -> (role, name of the question)
_FROM_ROLES = {"kv_cache": ("KV cache", "structure"), "scheduler": ("scheduler", "scheduler classes"), "sampling": ("sampling", "samplers"), "kernels": ("attention backend", "attention backends")}  # fmt: skip


class Subjects:
    """Answers the questions of the four subjects."""

    def __init__(self, held: Holdings, components: Iterable[Component]) -> None:
        self.held = held
        self.components = {component.role: component for component in components}

    def of(self, subject: str) -> list[Counted]:
        """Every question of a subject."""
        role, name = _FROM_ROLES[subject]
        component = self.components[role]
        structure = Counted(
            name=name, count=component.total, files=component.files,
            places=(*(Place(name=c.name, at=c.at) for c in component.candidates[:_KEPT]), *self._siblings(component)),
            searched=component.searched,
        )  # fmt: skip
        near = self._near(component)
        answers = [structure, *(self._answer(question, near) for question in _QUESTIONS[subject])]
        return [*answers, self._optional()] if subject == "kernels" else answers

    def _siblings(self, component: Component) -> list[Place]:
        """The classes that share a base of the source with a candidate that is listed, and are not listed themselves."""
        listed = {candidate.at for candidate in component.candidates[:_KEPT]}
        found: dict[str, Place] = {}
        for one in [one for one in self.held.classes if one.at in listed]:
            for base in self.held.lineage(one):
                for other in self.held.descendants(base):
                    if other.at not in listed and not self.held.demoted(other.file.path):
                        found.setdefault(
                            other.at, Place(name=other.name, at=other.at, text=f"derives from {base.name}")
                        )
        return list(found.values())

    def _near(self, component: Component) -> list[str]:
        """Files of the role's candidates, the best first: what stands there comes first."""
        return [candidate.at.rpartition(":")[0] for candidate in component.candidates[:6]]

    def _answer(self, question: _Question, near: list[str]) -> Counted:
        if question.fields:
            fields = [*self._fields(question.fields)]
            if fields:
                return Counted(
                    name=question.name,
                    count=len(fields),
                    files=len({p.at.rpartition(":")[0] for p in fields}),
                    places=tuple(fields[:40]),
                )
        places = [*self._definitions(question)]
        known = {place.at for place in places}
        places += [place for place in self._doing(question) if place.at not in known]
        scope = question.topic_files
        lines, count = self._lines(question, scope)
        if not places and not count and scope:  # nothing is said to be missing before every file was looked at
            scope = ""
            lines, count = self._lines(question, scope)
        everything = sorted([(0, p) for p in places] + [(1, p) for p in lines], key=lambda e: self._order(e, near))
        chosen = _spread([place for _, place in everything])
        total = len(places) + count
        return Counted(
            name=question.name, count=total, files=len({p.at.rpartition(":")[0] for _, p in everything}),
            places=tuple(chosen[:_KEPT]), searched="" if total else self._searched(question),
            scope=self._scope(question, scope) if total else "",
        )  # fmt: skip

    def _scope(self, question: _Question, files: str) -> str:
        """Which files were counted, where that is not every source file, and how many lines the others have."""
        if not files:
            return ""
        elsewhere = self._lines(question, "")[1] - self._lines(question, files)[1]
        return f"identifiers counted in paths that match {files}; {elsewhere} lines elsewhere" if elsewhere else ""

    def _order(self, entry: tuple[int, Place], near: list[str]) -> tuple[int, int, str, int]:
        rank, place = entry
        file, _, line = place.at.rpartition(":")
        return near.index(file) if file in near else len(near), rank, file, int(line)

    def _definitions(self, question: _Question) -> Iterator[Place]:
        if not question.definitions:
            return
        wanted, files, holders, more = (
            re.compile(p) for p in (question.definitions, question.files, question.holders, question.held_methods)
        )
        for facts in self.held.source:
            inside = any(files.search(part) for part in facts.path.lower().split("/")[-2:])
            for holder in facts.classes:
                of_class = bool(holders.search(holder.name.lower()))
                for method in holder.methods if inside or of_class else ():
                    fits = wanted.fullmatch(method.name) or (of_class and more.fullmatch(method.name))
                    if fits and not method.abstract:
                        yield Place(name=method.path, at=at(facts.path, method.line))
            for function in facts.functions if inside else ():
                if wanted.fullmatch(function.name):
                    yield Place(name=function.path, at=at(facts.path, function.line))

    def _doing(self, question: _Question) -> Iterator[Place]:
        """The functions that do what the question is about, whatever they are called."""
        for facts in self.held.source if question.effects else ():
            functions = [*facts.functions, *(method for one in facts.classes for method in one.methods)]
            for function in functions:
                if function.work is not None and any(effect in function.work.effects for effect in question.effects):
                    yield Place(name=function.path, at=at(facts.path, function.line))

    def _lines(self, question: _Question, scope: str) -> tuple[list[Place], int]:
        """Lines of the question's topics in files that match `scope`, and how many there are."""
        places, count = [], 0
        files = re.compile(scope)
        for facts in self.held.source:
            if not files.search(facts.path):
                continue
            for topic in question.topics:
                number, hits = facts.topics.get(topic, (0, []))
                count += number
                places += [Place(name=hit.name, at=at(facts.path, hit.line), text=hit.text[:80]) for hit in hits]
        return places, count

    def _fields(self, pattern: str) -> Iterator[Place]:
        """The fields of the classes that hold parameters of sampling, those of the most imported class first."""
        wanted = re.compile(pattern)
        classes = [
            one for one in self.held.classes if wanted.fullmatch(one.name) and not self.held.demoted(one.file.path)
        ]
        classes.sort(key=lambda one: (-self.held.importers[one.at], -one.lines, one.at))
        for one in classes:
            fact = one.fact
            fields = fact.fields if isinstance(fact, ClassFact) else ()
            parameters = (
                next((m.parameters for m in fact.methods if m.name == "__init__"), ())
                if isinstance(fact, ClassFact)
                else ()
            )
            chosen = fields or parameters
            if not any(_PARAMETER.fullmatch(field.name) for field in chosen):
                continue  # another kind of sampling
            for field in chosen:
                default = f" = {field.default}" if field.default else ""
                yield Place(
                    name=f"{fact.path}.{field.name}",
                    at=at(one.file.path, field.line),
                    text=f"{field.annotation}{default}",
                )

    def _optional(self) -> Counted:
        """Libraries that the source does without where they are missing, the most guarded first."""
        counted: Counter[str] = Counter()
        first: dict[str, Place] = {}
        files: set[str] = set()
        own = self.held.own
        for facts, hit in self.held.topic("kernel.optional"):
            if hit.name in own:
                continue
            counted[hit.name] += 1
            files.add(facts.path)
            first.setdefault(hit.name, Place(name=hit.name, at=at(facts.path, hit.line), text=hit.text[:80]))
        return Counted(
            name="optional libraries", count=len(counted), files=len(files), places=tuple(first[name] for name, _ in counted.most_common(24)),
            searched="" if counted else f"imports inside try and importlib.util.find_spec, in {len(self.held.source)} source files",
        )  # fmt: skip

    def _searched(self, question: _Question) -> str:
        """What was looked for where: identifiers everywhere, methods and functions where their names are not common words."""
        parts = [
            f"identifiers {IDENTIFIERS[topic]}" if topic in IDENTIFIERS else _KERNELS[topic]
            for topic in question.topics
        ]
        if question.definitions:
            parts.append(
                f"functions and methods named {question.definitions} in files or folders named {question.files}, "
                f"and methods of classes named {question.holders}"
            )
        parts += [f"functions that do this: {EFFECTS[effect]}" for effect in question.effects]
        parts += [f"fields of classes named {question.fields}"] if question.fields else []
        return f"{'; '.join(parts)}; in {len(self.held.source)} source files"


def _spread(places: list[Place]) -> list[Place]:
    """At most three places of a file before the other files have their turn; a name of a file once."""
    seen: set[tuple[str, str]] = set()
    per_file: Counter[str] = Counter()
    first: list[Place] = []
    later: list[Place] = []
    for place in places:
        file = place.at.rpartition(":")[0]
        if (file, place.name) in seen:
            continue
        seen.add((file, place.name))
        per_file[file] += 1
        (first if per_file[file] <= 3 else later).append(place)
    return first + later
