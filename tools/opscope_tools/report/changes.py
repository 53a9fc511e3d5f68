"""What other precisions would take off the passes, as measured kernels and as bounds have it, and what such figures leave out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from opscope_schemas.estimates import HOST_BOUND, Alternative, RooflineResult, launches

from opscope_tools.report.facts import ImplementationFacts
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
    document = next((one for one in facts.documents if one.phase == phase), facts.main)
    return "images" if re.match(r"\d+ image", point_said(document, facts.point(document))) else "sequences"


def saved(facts: ImplementationFacts, quotes: Quotes) -> str:
    """Of the decode step or the first pass in full; of the step of most sequences and of further passes what was measured."""
    first, *further = sorted(facts.served, key=lambda phase: phase != "decode") or [""]
    if not first:
        return ""
    parts, told = [*_of_pass(first, facts, quotes)], [facts.served[first]]
    if facts.full is not None:
        batch = int(facts.full.values["batch_size"])
        many = quotes(f"decode.of_{batch}.batch_size", batch)
        parts.append(
            _measured(
                f"{STEPS['decode']} of {many} {units(facts, 'decode')}", f"decode.saved.of_{batch}", facts.full, quotes
            )
        )
        told.append(facts.full)
    for phase in further:
        parts.append(_measured(STEPS[phase], f"{phase}.saved", facts.served[phase], quotes))
        told.append(facts.served[phase])
    left_out = _left_out([one for found in told for one in _worth(found)])
    return " ".join(filter(None, [*parts, *_of_others(told), *left_out]))


def _worth(found: RooflineResult) -> list[Alternative]:
    return [one for one in found.alternatives if one.bound_share >= _WORTH]


def _judged(found: RooflineResult) -> tuple[list[Alternative], list[Alternative], list[Alternative]]:
    """What was measured to take less, no more and no less than its fits are off by, and more; those of the pass's own backend first."""
    asked = _backend(found)
    known = [one for one in _worth(found) if one.basis == "calibrated"]
    known.sort(key=lambda one: (bool(asked and one.backends) and asked not in one.backends, -one.share))
    least = {one.name: max(_WORTH, one.error_share) for one in known}
    return (
        [one for one in known if one.share >= least[one.name]],
        [one for one in known if abs(one.share) < least[one.name]],
        [one for one in known if one.share <= -least[one.name]],
    )


def _measured(what: str, key: str, found: RooflineResult, quotes: Quotes) -> str:
    """A sentence on what was measured alone; empty where nothing was."""
    shorter, alike, longer = _judged(found)
    asked = _backend(found)

    def percent(one: Alternative, *, bound: bool) -> str:
        share = one.bound_share if bound else abs(one.share)
        name = f"{key}.{one.name}" + ".bound" * bound
        return f"{quotes.decimal(name, 100 * share, 0)} %"

    groups = [
        ", ".join(
            f"{one.name} {percent(one, bound=False)} ({percent(one, bound=True)}{_by(one, asked)})" for one in shorter
        )
    ]
    if longer:
        told = [
            f"{one.name} (by {percent(one, bound=False)} of its time{_by(one, asked)}{_other(one, f'{key}.{one.name}', quotes)})"
            for one in longer
        ]
        groups.append(f"longer with {', '.join(told)}")
    if alike:
        groups.append(
            f"too little to tell by fits with {', '.join(f'{one.name} ({percent(one, bound=True)} of its bound{_by(one, asked)})' for one in alike)}"
        )
    said = "; ".join(filter(None, groups))
    return f"Of {what} as modelled (of its bound): {said}." if said else ""


def _of_pass(phase: str, facts: ImplementationFacts, quotes: Quotes) -> Iterator[str]:
    found = facts.served[phase]
    shorter, alike, longer = _judged(found)
    others = sorted((one for one in _worth(found) if one.basis != "calibrated"), key=lambda one: -one.bound_share)
    asked = _backend(found)

    def of_bound(one: Alternative) -> str:
        return f"{quotes.decimal(f'{phase}.saved.{one.name}.bound', 100 * one.bound_share, 0)} %"

    def other(one: Alternative) -> str:
        return _other(one, f"{phase}.saved.{one.name}", quotes)

    if launches(totals := found.totals):
        explains = 100 * totals.bound_seconds / (totals.calibrated_seconds or 1)
        share = quotes.decimal(f"{phase}.time{'.held' * bool(facts.held)}.bound_share", explains, 0)
        experts = " (each then reads more of the experts)" if facts.classes_of("mixture of experts") else ""
        yield f"Fewer kernels, or more {units(facts, phase)} for each{experts}, as their fixed time is most of {STEPS[phase]}; the bound is {share} % of it."
    if shorter:
        told = [
            f"{one.name} {quotes.decimal(f'{phase}.saved.{one.name}', 100 * one.share, 0)} % ({of_bound(one)}{_by(one, asked)})"
            for one in shorter[:_CHANGES]
        ]
        yield f"Of {STEPS[phase]} as modelled (of its bound): {', '.join(told)}."
    if others:
        told = [f"{one.name} {of_bound(one)}" for one in others[:_BOUNDS]]
        yield f"Of {'its bound' if shorter else f'the bound of {STEPS[phase]}'} alone, as {_unmeasured(others[:_BOUNDS])}: {', '.join(told)}."
    if alike:
        told = [f"{one.name} ({of_bound(one)} of its bound{_by(one, asked)}{other(one)})" for one in alike]
        yield f"As measured, too little at these sizes to tell by fits: {', '.join(told)}."
    if longer:
        told = [
            f"{one.name} ({quotes.decimal(f'{phase}.saved.{one.name}.longer', -100 * one.share, 0)} % longer, though its bound is {of_bound(one)} shorter{_by(one, asked)}{other(one)})"
            for one in sorted(longer, key=lambda one: one.share)
        ]
        yield f"As measured, it takes longer at these sizes with {', '.join(told)}: that is of these kernels{'' if any(one.other_backend for one in longer) else ', and others of the format may take less'}."


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
    beyond = "; by fits of other sizes than these" * bool(one.outside)
    if not one.backends or one.backends == (asked,):
        return beyond
    return f"; kernels of {' and '.join(one.backends)}{beyond}"


def _other(one: Alternative, key: str, quotes: Quotes) -> str:
    """What another backend's kernels gain where these gain nothing."""
    if not one.other_backend:
        return ""
    return f"; with {one.other_backend}'s before and after {quotes.decimal(f'{key}.other', 100 * one.other_share, 0)} % shorter"


def _of_others(found: Sequence[RooflineResult]) -> Iterator[str]:
    """What savings of other backends' kernels compare, and why not those of the one that passes are timed as."""
    names: dict[tuple[str, str, bool], dict[str, None]] = {}
    for asked, one in ((_backend(each), one) for each in found for one in _worth(each)):
        if asked and len(one.backends) == 1 and asked not in one.backends and one.basis == "calibrated":
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
