"""Holds an answer to the server's own trace, and says precisely where it differs.

Order: what a difference is, the schema, the document, its kernels, formulas at points. A formula is right when it is
the trace's number at every point (whole numbers, compared exactly), however it is written; where algebra does not show
that, also where either formula may turn. Of the optional fields an answer may leave out any; what it gives is checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema
from opscope_schemas.analysis import Analysis, GroupTotal, Kernel, LineTotal, MemoryAccess, TensorInfo, Totals
from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import evaluate, same_form, turns, variables

from opscope_clients.agents.pairing import Pairs, pair, reference
from opscope_clients.agents.points import Point, Probes, points

__all__ = ["Check", "Difference", "given", "schema_differences"]


@dataclass(frozen=True)
class Difference:
    """One place at which an answer is not what the trace says."""

    place: str
    field: str
    theirs: str
    ours: str
    at: str = ""

    def __str__(self) -> str:
        tail = f"; {self.at}" if self.at else ""
        return f"{self.place}: {self.field}: the answer says {self.theirs}, the trace {self.ours}{tail}"


def schema_differences(answer: object, schema: dict[str, Any]) -> list[Difference]:
    """Where `answer` does not follow the JSON schema."""
    try:
        errors = sorted(jsonschema.Draft202012Validator(schema).iter_errors(answer), key=lambda error: error.json_path)
        return [
            Difference("document", error.json_path, _short(json.dumps(error.instance, default=str)), _rule(error))
            for error in errors
        ]
    except RecursionError:
        return [Difference("document", "$", "kernels within kernels, too deep to be read", "(schema) fewer levels")]


def _rule(error: jsonschema.ValidationError) -> str:
    return f"(schema) {_short(error.message)}"


#: what every document says of itself
_IDENTITY = ("class_name", "file", "line", "forward_file", "forward_line", "model_class", "instance", "phase",
             "attention", "dtype")  # fmt: skip


class Check:
    """The differences between answers and one document of the server."""

    def __init__(self, ours: Analysis) -> None:
        self._ours = ours
        self._known = {variable.name for variable in ours.variables}
        self.points: list[Point] = points(ours.variables, ours.conditions)
        self._probes = Probes(ours.variables, ours.conditions, self.points)

    def differences(self, theirs: Analysis) -> list[Difference]:
        """All of them; none where the answer is right."""
        return [
            *self._identity(theirs),
            *self._variables(theirs),
            *self.kernels(theirs.kernels, self._ours.kernels, self._ours.class_name),
            *self._totals(theirs),
            *self._lists(theirs),
            *self._groups(theirs),
        ]

    # ---- the document

    def _identity(self, theirs: Analysis) -> Iterable[Difference]:
        for name in _IDENTITY:
            said, known = getattr(theirs, name), getattr(self._ours, name)
            if given(theirs, name) and said != known:
                yield Difference("document", name, repr(said), repr(known))

    def _variables(self, theirs: Analysis) -> Iterable[Difference]:
        ours = {variable.name: variable for variable in self._ours.variables}
        for variable in theirs.variables:
            known = ours.get(variable.name)
            if known is None:
                yield Difference("variables", variable.name, "a variable", "none of that name")
                continue
            for name in ("config_key", "default", "kind", "definition"):
                if given(variable, name) and getattr(variable, name) != getattr(known, name):
                    said = repr(getattr(variable, name))
                    yield Difference("variables", f"{variable.name}.{name}", said, repr(getattr(known, name)))

    def _totals(self, theirs: Analysis) -> Iterable[Difference]:
        said, known = theirs.totals, self._ours.totals
        yield from self._figures("totals", said, known)
        yield from self._memory("totals", "floor", said.floor, known.floor)
        if given(said, "causal_saving"):
            yield from self.formula("totals", "causal_saving", said.causal_saving, known.causal_saving)
        if given(theirs, "parameters"):
            yield from self.formula("document", "parameters", theirs.parameters, self._ours.parameters)
        yield from self._adds_up("totals", theirs.kernels, said)

    def _lists(self, theirs: Analysis) -> Iterable[Difference]:
        """Conditions, gaps and inputs are the document's meaning: where they are given, they are the trace's."""
        for name in ("conditions", "not_counted"):
            if given(theirs, name):
                said, known = list(getattr(theirs, name)), list(getattr(self._ours, name))
                yield from _only(name, said, known)
        if given(theirs, "model_inputs"):
            said_of, known_of = ({i.name: i for i in d.model_inputs} for d in (theirs, self._ours))
            yield from _only("model_inputs", list(said_of), list(known_of))
            for name in said_of.keys() & known_of.keys():
                yield from self._tensors(f"model_inputs {name}", "input", [said_of[name]], [known_of[name]])

    def _groups(self, theirs: Analysis) -> Iterable[Difference]:
        for name in ("lines", "per_class", "per_operator"):
            if not given(theirs, name):
                continue
            said, known = ({_key(row): row for row in getattr(document, name)} for document in (theirs, self._ours))
            yield from _only(name, list(said), list(known))
            for key in said.keys() & known.keys():
                yield from self._figures(f"{name} {key}", said[key], known[key])
                if isinstance(said[key], GroupTotal):
                    yield from self.formula(f"{name} {key}", "count", said[key].count, known[key].count)

    # ---- kernels

    def pairs(self, theirs: Sequence[Kernel], ours: Sequence[Kernel]) -> Pairs:
        """Which kernels of two lists belong together."""
        return pair(theirs, ours, lambda a, b: not self._own(a, b))

    def kernels(self, theirs: Sequence[Kernel], ours: Sequence[Kernel], where: str) -> list[Difference]:
        """The differences between two lists of kernels, and below them."""
        pairs = self.pairs(theirs, ours)
        lines = {(kernel.file, kernel.line) for kernel in ours}
        found = [
            Difference(_at(kernel), f"a kernel of {where}", "nothing (left out)", _short(kernel.operation))
            for kernel in pairs.left_out
        ]
        for kernel in pairs.invented:
            known = "no further kernel" if (kernel.file, kernel.line) in lines else "no kernel on this line"
            found.append(
                Difference(_at(kernel), f"a kernel of {where}", f"{_short(kernel.operation)} (invented)", known)
            )
        for said, known_kernel in pairs.both:
            found += self._own(said, known_kernel) + self._below(said, known_kernel)
        return found

    def _own(self, said: Kernel, known: Kernel) -> list[Difference]:
        """The differences between two kernels of one line, leaving aside what is nested in them."""
        place = _named(known)
        found = [
            Difference(place, name, repr(getattr(said, name)), repr(getattr(known, name)))
            for name in ("kernel_type", "operator", "attribute", "class_name", "via")
            if given(said, name) and getattr(said, name) != getattr(known, name)
        ]
        if given(said, "code") and _plain(said.code) != _plain(known.code):
            found.append(Difference(place, "code", repr(said.code), repr(known.code)))
        # a basic kernel may be worded freely, but not as a reference
        worded = known.kernel_type == "basic" and not reference(said)
        if not worded and _plain(said.operation) != _plain(known.operation):
            found.append(Difference(place, "operation", _short(said.operation), _short(known.operation)))
        found += self._figures(place, said, known)
        if given(said, "repeat"):
            found += self.formula(place, "repeat", said.repeat, known.repeat)
        for name in ("inputs", "outputs"):
            if given(said, name):
                found += self._tensors(place, name, getattr(said, name), getattr(known, name))
        return found

    def _below(self, said: Kernel, known: Kernel) -> list[Difference]:
        """What a reference was replaced by."""
        place = _named(known)
        if known.kernels is None or said.kernels is None:
            if (known.kernels is None) == (not said.kernels):
                return []
            both = ("kernels below it", "none") if said.kernels else ("a reference that is not expanded", "its kernels")
            return [Difference(place, "kernels", *both)]
        where = reference(known) or known.class_name
        return [*self.kernels(said.kernels, known.kernels, where), *self._adds_up(place, said.kernels, said)]

    def _tensors(self, place: str, name: str, said: Sequence[Any], known: Sequence[Any]) -> list[Difference]:
        texts = [", ".join(f"{'x'.join(t.shape)} {t.dtype}" for t in tensors) for tensors in (said, known)]
        wrong = Difference(place, name, _short(texts[0]), _short(texts[1]))
        if len(said) != len(known) or any(not self._same_tensor(a, b) for a, b in zip(said, known, strict=True)):
            return [wrong]
        return []

    def _same_tensor(self, said: TensorInfo, known: TensorInfo) -> bool:
        if said.dtype != known.dtype or len(said.shape) != len(known.shape):
            return False
        return not any(
            True for a, b in zip(said.shape, known.shape, strict=True) for _ in self.formula("", "shape", a, b)
        )

    # ---- formulas

    def _figures(self, place: str, said: _Figures, known: _Figures) -> list[Difference]:
        found = [*self.formula(place, "flops", said.flops, known.flops)]
        found += self.formula(place, "matmul_flops", said.matmul_flops, known.matmul_flops)
        return found + list(self._memory(place, "memory_access", said.memory_access, known.memory_access))

    def _memory(self, place: str, name: str, said: MemoryAccess, known: MemoryAccess) -> Iterable[Difference]:
        yield from self.formula(place, f"{name}.read", said.read, known.read)
        yield from self.formula(place, f"{name}.write", said.write, known.write)

    def _adds_up(self, place: str, kernels: Sequence[Kernel], whole: Kernel | Totals) -> Iterable[Difference]:
        """The answer's own kernels add up to what holds them."""
        for name, read in _FIGURES.items():
            terms = [f"({read(kernel)})" for kernel in kernels]
            for point in self.points:
                try:
                    summed = sum(evaluate(term, point) for term in terms)
                    told = evaluate(read(whole), point)
                except ValuesError:
                    break  # said of the formula itself
                if summed != told:
                    at = f"at {_values(point, variables(' '.join([*terms, read(whole)])))}"
                    yield Difference(place, f"sum of {name}", f"{told:,}", f"{summed:,} as its kernels add up", at)
                    break

    def formula(self, place: str, field: str, said: str, known: str) -> Iterable[Difference]:
        """A difference where two formulas are not the same number at some point."""
        if said == known:
            return
        strange = sorted(variables(said) - self._known)
        if strange:
            yield Difference(place, field, said, known, f"{{{strange[0]}}} is no variable of the document")
            return
        try:
            wrong = self._first_unequal(said, known)
        except ValuesError as error:
            yield Difference(place, field, said, known, str(error))
            return
        if wrong:
            yield Difference(place, field, said, known, wrong)

    def _first_unequal(self, said: str, known: str) -> str:
        found, compared = self._unequal_at(self.points, said, known)
        if found or same_form(said, known):
            return found
        found, further = self._unequal_at(self._probes.around(turns(said) | turns(known), said + known), said, known)
        if found or compared or further:
            return found
        return "they are written differently, and no point under the document's conditions was found to compare at"

    def _unequal_at(self, where: Iterable[Point], said: str, known: str) -> tuple[str, bool]:
        """The first difference of two formulas, and whether there was a point to compare at."""
        compared = False
        for point in where:
            try:
                ours = evaluate(known, point)
            except ValuesError:
                continue  # the document's conditions do not keep the trace's own formula whole here
            compared = True
            if (theirs := evaluate(said, point)) != ours:
                return f"at {_values(point, variables(said) | variables(known))}: {theirs:,} and {ours:,}", True
        return "", compared


_Figures = Kernel | Totals | LineTotal | GroupTotal
_FIGURES: dict[str, Callable[[Kernel | Totals], str]] = {
    "flops": lambda figures: figures.flops,
    "matmul_flops": lambda figures: figures.matmul_flops,
    "memory_access.read": lambda figures: figures.memory_access.read,
    "memory_access.write": lambda figures: figures.memory_access.write,
}


def given(holder: Any, name: str) -> bool:
    """Whether an answer says something of an optional field: an empty one says nothing."""
    return name in holder.model_fields_set and getattr(holder, name) not in ("", (), None)


def _key(row: LineTotal | GroupTotal) -> str:
    return f"{row.file}:{row.line}" if isinstance(row, LineTotal) else row.name


def _only(name: str, said: list[str], known: list[str]) -> Iterable[Difference]:
    plain = {_plain(text) for text in known}
    for text in said:
        if _plain(text) not in plain:
            yield Difference(name, "entry", _short(text), "nothing of the kind")
    plain = {_plain(text) for text in said}
    for text in known:
        if _plain(text) not in plain:
            yield Difference(name, "entry", "nothing (left out)", _short(text))


def _at(kernel: Kernel) -> str:
    return f"{kernel.file}:{kernel.line}"


def _named(kernel: Kernel) -> str:
    return f"{_at(kernel)} ({kernel.operator or reference(kernel)})"


def _plain(text: str) -> str:
    return "".join(text.split())


def _short(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:160]}..."


def _values(point: Point, names: frozenset[str]) -> str:
    return ", ".join(f"{name}={point[name]}" for name in point if name in names) or "every point"
