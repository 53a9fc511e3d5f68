"""What other precisions would take off the passes, as measured kernels and as bounds have it, and what such figures leave out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opscope_schemas.estimates import HOST_BOUND, Alternative, RooflineResult, launches

from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.markdown import table
from opscope_tools.report.point import point_said
from opscope_tools.report.quotes import Quotes

__all__ = ["STEPS", "saved", "units"]

#: a pass as sentences name it
STEPS = {"decode": "a decode step", "encode": "an encoding", "prefill": "a prefill", "forward": "a forward pass"}
#: of a pass: what is worth a word
_WORTH = 0.005
#: changes that are told, as measured and by bounds alone
_CHANGES, _BOUNDS = 5, 3
#: how a change begins that is of a part of the weights -> of what
_PARTS = {"experts ": "experts", "dense ": "dense weights, those of no experts,"}


def units(facts: ImplementationFacts, phase: str) -> str:
    """What a batch of a pass is made of."""
    document = facts.document_of(phase)
    return "images" if re.match(r"\d+ image", point_said(document, facts.point(document))) else "sequences"


def saved(facts: ImplementationFacts, quotes: Quotes) -> str:
    """A table: a row for each change that saves some, the best first, a column for each pass; what it leaves out below. Empty where no
    change is known to save any."""
    passes = list(_passes(facts, quotes))
    changes = _ranked([one.found for one in passes])
    if not changes:
        return ""
    bounds = [
        name
        for name in changes
        if not any(one.basis == "calibrated" for each in passes for one in each.told.values() if one.name == name)
    ]
    rows = [
        (name, *(_cell(one, name, quotes) if name in one.told else "–" for one in passes))
        for name in changes
        if name not in bounds
    ]
    if bounds:
        rows.append((", ".join(bounds), *(_bounds(one, bounds, quotes) for one in passes)))
    head = f"**What would save most:** {_fewer(facts, passes[0])}in % of a pass as modelled, in brackets of its bound:"
    notes = _notes([one.found for one in passes], changes)
    return "\n\n".join([head, table(("Change", *(one.name for one in passes)), rows), " ".join(notes)])


@dataclass(frozen=True)
class _Pass:
    """One of which changes are told: what it is called, where its facts stand, its changes by name."""

    name: str
    phase: str
    key: str
    found: RooflineResult

    @property
    def told(self) -> dict[str, Alternative]:
        return {one.name: one for one in _worth(self.found)}


def _passes(facts: ImplementationFacts, quotes: Quotes) -> Iterator[_Pass]:
    """The decode step or the first pass, that of most sequences or images, further passes."""
    for phase in sorted(facts.served, key=lambda phase: phase != "decode"):
        yield _Pass(STEPS[phase], phase, f"{phase}.saved", facts.served[phase])
        if phase == facts.growing and facts.full is not None:
            batch = int(facts.full.values["batch_size"])
            many = quotes(f"{phase}.of_{batch}.batch_size", batch)
            yield _Pass(
                f"{STEPS[phase]} of {many} {units(facts, phase)}", phase, f"{phase}.saved.of_{batch}", facts.full
            )


def _ranked(found: Sequence[RooflineResult]) -> list[str]:
    """Names of changes: those measured to save most in one of the passes, then those of the best bounds, then those that save nothing."""
    known: dict[str, list[Alternative]] = {}
    for one in (one for each in found for one in _worth(each)):
        known.setdefault(one.name, []).append(one)
    measured = {
        name: max(one.share for one in each if one.basis == "calibrated")
        for name, each in known.items()
        if any(one.basis == "calibrated" for one in each)
    }
    gains = sorted((name for name, share in measured.items() if share > 0), key=lambda name: -measured[name])
    bounds = sorted(
        known.keys() - measured.keys(), key=lambda name: (-max(one.bound_share for one in known[name]), name)
    )
    none = sorted(measured.keys() - set(gains), key=lambda name: (-measured[name], name))
    return [*gains[:_CHANGES], *bounds[:_BOUNDS], *none][: _CHANGES + _BOUNDS]


def _cell(of: _Pass, name: str, quotes: Quotes) -> str:
    """What a change takes off a pass: as measured where it was, with a word where its fits are off by more; of the bound."""
    one, key = of.told[name], f"{of.key}.{name}"
    bound = f"{quotes.decimal(f'{key}.bound', 100 * one.bound_share, 0)} %"
    if one.basis != "calibrated":
        return f"not measured ({bound})"
    took = f"{quotes.decimal(key, 100 * abs(one.share), 0)} %"
    if one.share <= -_WORTH:
        took, bound = f"{took} longer", f"bound {bound} less"
    if abs(one.share) < max(_WORTH, one.error_share):
        took += ", less than fits are off by"
    return f"{took} ({bound}{_by(one, _backend(of.found))}{_other(one, key, quotes)})"


def _bounds(of: _Pass, names: Sequence[str], quotes: Quotes) -> str:
    """What the bound of a pass loses by changes whose kernels nobody measured."""
    shares = ((name, of.told[name].bound_share) if name in of.told else (name, 0.0) for name in names)
    said = [f"{quotes.decimal(f'{of.key}.{name}.bound', 100 * share, 0)} %" if share else "–" for name, share in shares]
    return f"not measured ({', '.join(said)})" if set(said) != {"–"} else "–"


def _fewer(facts: ImplementationFacts, first: _Pass) -> str:
    """That there be fewer kernels, where starting them is most of a pass; empty where it is not."""
    if not launches(first.found.totals):
        return ""
    experts = " (each then reads more of the experts)" if facts.classes_of("mixture of experts") else ""
    return f"fewer kernels, or more {units(facts, first.phase)} for each{experts}, as their fixed time is most of {first.name}; then, "


def _notes(found: Sequence[RooflineResult], changes: Sequence[str]) -> Iterator[str]:
    """What the figures rest on and leave out."""
    told = [one for each in found for one in _worth(each) if one.name in changes]
    if missing := [one for one in told if one.basis != "calibrated"]:
        yield f"Not measured: {_unmeasured(missing)}."
    if any(one.outside for one in told):
        yield "Other sizes: by fits of other sizes than these."
    if any(name not in {one.name for one in _worth(each)} for each in found for name in changes):
        yield f"–: less than {100 * _WORTH:g} % of the bound."
    if any(one.basis == "calibrated" and one.share < 0 for one in told):
        yield "What is measured to take longer does so with these kernels; others of its format may take less."
    yield from _of_others(found, changes)
    yield from _left_out(told)


def _worth(found: RooflineResult) -> list[Alternative]:
    return [one for one in found.alternatives if one.bound_share >= _WORTH]


def _left_out(told: Sequence[Alternative]) -> Iterator[str]:
    """What figures of narrower weights leave out."""
    if not any(one.name.startswith(("weights ", *_PARTS)) for one in told):
        return
    yield (
        "Weights are those of the layers' products: what stands outside of the layers (embeddings, a head) stays as it is, and no bound has "
        "kernels that quantise activations, while measured times of fp8 products do."
    )
    for part in _PARTS:
        if any(one.name.startswith(part) for one in told):
            yield f"What is said of {_PARTS[part]} changes theirs alone, and leaves other products as they are."
    if names := dict.fromkeys(one.name.rpartition(" ")[2] for one in told if one.widened_to):
        wide = next(one.widened_to for one in told if one.widened_to)
        yield f"This device has no units for {', '.join(names)}: such products run in {wide}, and the bound leaves out the work of widening."


def _backend(found: RooflineResult) -> str:
    """Whose kernels most of the pass is timed as."""
    named = Counter(row.backend for row in found.operators if row.backend)
    return named.most_common(1)[0][0] if named else ""


def _by(one: Alternative, asked: str) -> str:
    """Whose kernels were measured, where these are not all those that the pass is timed as, and whether at other sizes."""
    beyond = "; other sizes" * bool(one.outside)
    if not one.backends or one.backends == (asked,):
        return beyond
    return f"; {' and '.join(one.backends)}'s kernels{beyond}"


def _other(one: Alternative, key: str, quotes: Quotes) -> str:
    """What another backend's kernels gain where these gain nothing."""
    if not one.other_backend:
        return ""
    return f"; with {one.other_backend}'s before and after {quotes.decimal(f'{key}.other', 100 * one.other_share, 0)} % shorter"


def _of_others(found: Sequence[RooflineResult], changes: Sequence[str]) -> Iterator[str]:
    """What savings of other backends' kernels compare, and why not those of the one that passes are timed as."""
    names: dict[tuple[str, str, bool], dict[str, None]] = {}
    for asked, one in ((_backend(each), one) for each in found for one in _worth(each)):
        if (
            one.name in changes
            and asked
            and len(one.backends) == 1
            and asked not in one.backends
            and one.basis == "calibrated"
        ):
            narrow = one.name.rpartition(" ")[2]
            names.setdefault((asked, one.backends[0], (asked, narrow) in HOST_BOUND), {})[one.name] = None
    for (asked, other, host), told in names.items():
        why = (
            f"those of {asked}'s that were measured hold the host's own time"
            if host
            else f"there is no fit of {asked}'s"
        )
        yield f"With {' and '.join(told)} kernels of {other} are compared before and after: {why}."


def _unmeasured(changes: Sequence[Alternative]) -> str:
    """Why only bounds can be told of them: classes of kernels that nobody measured with any of them."""
    each = [dict.fromkeys(text.rpartition(" ")[0] for text in one.unmeasured) for one in changes]
    classes = [name for name in each[0] if all(name in one for one in each)]
    return f"no measurement of {' or '.join(classes) or 'such kernels'}{' of these formats' * bool(classes)} is at hand"
