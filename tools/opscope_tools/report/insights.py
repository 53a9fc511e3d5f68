"""Key insights of a component: what bounds it, how long engines take over it, which line dominates, what another size or
another kernel would change. Every number is of the analysis and carries its mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from opscope_schemas.analysis import Kernel, ModelAnalysis, ModuleAnalysis
from opscope_schemas.estimates import OperatorTime
from opscope_schemas.formula import Rational, evaluate, exactly, holds, variables
from opscope_schemas.units import amount, plain_bytes

from opscope_tools.report.facts import Figures, ImplementationFacts, outermost, short
from opscope_tools.report.flow import bare
from opscope_tools.report.quotes import Quotes

__all__ = ["by_line", "counts_little", "insights", "library_insights", "named", "operators_said", "share_of_time"]

#: share of its bytes that engines must save to be told; share of a pass that is
_WORTH, _LEAST = 0.2, 0.0005
#: lines that come to the same, named
_OTHERS = 3
#: per cent from which a share is all but the whole
_WHOLE = 99
#: share of every pass up to which a class is told beside others
_LITTLE = 0.001
#: of what a line takes: another that takes as much of it takes as good as the same
_NEARLY = 0.995
#: operators that a list names
_NAMED = 4


def by_line(kernels: Sequence[Kernel]) -> dict[tuple[str, int], list[Kernel]]:
    """Kernels by the line that issues them."""
    lines: dict[tuple[str, int], list[Kernel]] = {}
    for kernel in kernels:
        lines.setdefault((kernel.file, kernel.line), []).append(kernel)
    return lines


def operators_said(kernels: Sequence[Kernel]) -> str:
    """Operators and classes of called modules, the first few."""
    return _listed(dict.fromkeys(short(k.class_name) if k.class_name else k.operator for k in kernels))


def named(kernels: Sequence[Kernel]) -> str:
    """What runs on a line by its shortest names: attributes of called modules, operators without namespace."""
    said = [(k.attribute.rpartition(".")[2] if k.class_name else bare(k.operator)) or "call" for k in kernels]
    said = [k.attribute if name == "*" else name for name, k in zip(said, kernels, strict=True)]
    return _listed(dict.fromkeys(said))


def _listed(names: Mapping[str, None]) -> str:
    shown = ", ".join(list(names)[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


def insights(facts: ImplementationFacts, module: ModuleAnalysis, quotes: Quotes) -> list[str]:
    """What there is to say of one component, the bound first."""
    return [
        text
        for text in (
            _bounds(facts, module, quotes),
            " ".join(filter(None, (_line(facts, module, quotes), *_elsewhere(facts, module, quotes)))),
            _served(facts, module, quotes),
            " ".join(_growth(facts, module, quotes)),
        )
        if text
    ]


def library_insights(facts: ImplementationFacts, group: Sequence[ModuleAnalysis], quotes: Quotes) -> list[str]:
    """The bounds of modules that share a subsection, a line each; of those that hardly count section 8.3 has the figures."""
    found = ((module, _bounds(facts, module, quotes)) for module in group if not counts_little(facts, module))
    return [f"`{short(module.class_name)}`: {text[0].lower()}{text[1:]}" for module, text in found if text]


def counts_little(facts: ImplementationFacts, module: ModuleAnalysis) -> bool:
    """Whether all its calls together are next to nothing of every pass, in FLOPs and in bytes."""
    for document in facts.documents:
        own, whole = _all(facts, document, module), facts.totals(document)
        if own.flops > _LITTLE * whole.flops or own.bytes > _LITTLE * whole.bytes:
            return False
    return True


def _all(facts: ImplementationFacts, document: ModelAnalysis, module: ModuleAnalysis) -> Figures:
    """All calls of a class in a pass."""
    if module.class_name == document.class_name:
        return facts.totals(document)
    return Figures.sum(outermost(document, module.class_name), facts.point(document))


def _bounds(facts: ImplementationFacts, module: ModuleAnalysis, quotes: Quotes) -> str:
    """Of each pass: what all calls take of it, and which side of the ridge they stand on."""
    said, key = [], f"module.{module.class_name}"
    for document in facts.documents:
        figures, whole, phase = _all(facts, document, module), facts.totals(document), document.phase
        if not figures.bytes:
            continue
        bound, share = facts.limited(document, "" if module.class_name == document.class_name else module.class_name)
        parts = []
        if module.class_name != document.class_name:
            parts = [
                f"{quotes.decimal(f'{key}.{phase}.share_of_{unit}', 100 * own / total, 1)} % of {'FLOPs' if unit == 'flops' else unit}"
                for unit, own, total in (("flops", figures.flops, whole.flops), ("bytes", figures.bytes, whole.bytes))
                if total and own >= _LEAST * total
            ]
        parts.append(
            f"{quotes.said(f'{key}.{phase}.flops', figures.flops)} over "
            f"{quotes.said(f'{key}.{phase}.bytes', figures.bytes)}"
        )
        intensity = quotes.decimal(f"{key}.{phase}.intensity", figures.intensity)
        said.append(
            f"{phase} {', '.join(parts)}: {intensity} FLOPs per byte, {_limit(bound, share, key, phase, quotes)}"
        )
    of = "The pass" if module.class_name == facts.main.class_name else "All calls"
    return f"{of}: {'; '.join(said)} ({facts.pointer(module.class_name)})." if said else ""


def _limit(bound: str, share: float, key: str, phase: str, quotes: Quotes) -> str:
    """What limits kernels one by one; where another kind of them takes a part worth a word, for how much of their time."""
    if share > _WHOLE / 100:
        return f"at the roofs limited by {bound}"
    return f"kernel by kernel limited by {bound} for {quotes.decimal(f'{key}.{phase}.limited', 100 * share, 0)} % of the time at the roofs"


def _flops(value: float) -> str:
    return amount(value, "FLOP")


def _line(facts: ImplementationFacts, module: ModuleAnalysis, quotes: Quotes) -> str:
    """The line that computes most and the line that moves most; nothing where only one does either."""
    values, key = facts.point(module), f"module.{module.class_name}"
    shown = " of the shown kind" if len(facts.call_kinds.get(module.class_name, ())) > 1 else ""
    costs = [(kernels, Figures.sum(kernels, values)) for kernels in by_line(module.kernels).values()]
    flops = [(kernels, figures.flops) for kernels, figures in costs if figures.flops]
    moved = [(kernels, figures.bytes) for kernels, figures in costs if figures.bytes]
    if len(moved) < 2 or not flops:
        return ""
    most, widest = (max(rows, key=lambda row: row[1]) for rows in (flops, moved))
    shares = [100 * row[1] / sum(value for _, value in rows) for row, rows in ((most, flops), (widest, moved))]
    if most[0] is widest[0] and most[0][0].class_name and min(shares) > _WHOLE:
        return ""  # one call is all but the whole, and has a section of its own
    computes = quotes.decimal(f"{key}.largest.flops", shares[0], 1)
    moves = quotes.decimal(f"{key}.largest.bytes", shares[1], 1)
    when = [f"in {facts.main.phase}"] * (len(facts.documents) > 1) + [f"of one call{shown}"] * bool(shown)
    lead = f"{', '.join(when)}{', ' if shown else ' '}" if when else ""
    first = f"{lead[:1].upper()}{lead[1:]}`{most[0][0].file}:{most[0][0].line}` ({named(most[0])}) takes {computes} % of {'the' if shown else 'its'} FLOPs{_alike(most, flops)}"
    if all(value >= _NEARLY * widest[1] for _, value in moved):
        return f"{first}; its {len(moved)} lines move about as many bytes each."
    if most[0] is widest[0]:
        return f"{first} and {moves} % of its bytes{_alike(widest, moved)}."
    figures = Figures.sum(widest[0], values)
    share = quotes.decimal(f"{key}.largest.moved_flops", 100 * figures.flops / sum(value for _, value in flops), 1)
    return (
        f"{first}; most bytes move on `{widest[0][0].file}:{widest[0][0].line}` ({named(widest[0])}), {_bound(facts, module, widest[0])}: "
        f"{moves} %{_alike(widest, moved)} for {share} % of the FLOPs."
    )


def _elsewhere(facts: ImplementationFacts, module: ModuleAnalysis, quotes: Quotes) -> Iterator[str]:
    """The line that moves most in other passes."""
    for document in facts.documents[1:]:
        whole = module.class_name == document.class_name
        values, lines = facts.point(document), dict[tuple[str, int], tuple[list[Kernel], int]]()
        calls = [] if whole else outermost(document, module.class_name)
        inside = (
            [(document.kernels, 1)] if whole else [(c.kernels or (), int(evaluate(c.repeat, values))) for c in calls]
        )
        for place, own, often in ((place, own, n) for kernels, n in inside for place, own in by_line(kernels).items()):
            known, size = lines.get(place, ([], 0))
            lines[place] = [*known, *own], size + often * Figures.sum(own, values).bytes
        moved = [row for row in lines.values() if row[1]]
        if len(moved) < 2:
            continue
        widest = max(moved, key=lambda row: row[1])
        share = 100 * widest[1] / sum(size for _, size in moved)
        if share > _WHOLE and widest[0][0].class_name:
            continue
        said = quotes.decimal(f"module.{module.class_name}.{document.phase}.largest.bytes", share, 1)
        yield f"In {document.phase} most bytes move on `{widest[0][0].file}:{widest[0][0].line}` ({named(widest[0])}): {said} %{_alike(widest, moved)}."


def _alike(most: tuple[Sequence[Kernel], int], rows: Sequence[tuple[Sequence[Kernel], int]]) -> str:
    """The other lines that come to the same."""
    others = [kernels for kernels, value in rows if value >= _NEARLY * most[1] and kernels is not most[0]]
    nearly = any(value < most[1] for kernels, value in rows if kernels in others)
    lines = ", ".join(f":{kernels[0].line}" for kernels in others[:_OTHERS])
    return (
        f" ({'nearly ' if nearly else ''}as {lines}{' and more do' if len(others) > _OTHERS else ' does' if len(others) == 1 else ' do'})"
        if others
        else ""
    )


def _bound(facts: ImplementationFacts, module: ModuleAnalysis, kernels: Sequence[Kernel]) -> str:
    """What limits the operators that run on a line, as the section of a module that it calls says too."""
    held = {id(kernel) for kernel in kernels}
    whole = [full for own, full in facts.uncut(module) if id(own) in held]
    bound, share = facts.limits(whole, facts.point(facts.main))
    return f"{'' if share > _WHOLE / 100 else 'mostly '}limited by {bound}"


def share_of_time(facts: ImplementationFacts, document: ModelAnalysis, module: ModuleAnalysis) -> float:
    """What its calls take of the pass's time as engines run it; 0 where that is not known."""
    found = facts.served.get(document.phase)
    if found is None:
        return 0.0
    whole = sum(map(found.seconds_of, found.operators))
    return sum(map(found.seconds_of, _own(facts, document, module))) / whole if whole else 0.0


def _own(facts: ImplementationFacts, document: ModelAnalysis, module: ModuleAnalysis) -> list[OperatorTime]:
    """The kernels of the estimate that run in calls of a class."""
    found = facts.served.get(document.phase)
    return [one for one in (found.operators if found is not None else ()) if module.class_name in one.classes]


def _served(facts: ImplementationFacts, module: ModuleAnalysis, quotes: Quotes) -> str:
    """How long its calls take as engines run them, and what joining operators to one kernel saves of their bytes."""
    if module.class_name == facts.main.class_name:
        return ""
    said, key = dict[str, list[str]](), f"module.{module.class_name}"
    for document in facts.documents:
        phase, share = document.phase, share_of_time(facts, document, module)
        if not share:
            continue
        own = _own(facts, document, module)
        eager, moved = _all(facts, document, module).bytes, sum(one.bytes for one in own)
        found = facts.served[phase]
        least = "" if found.totals.calibrated_seconds is not None else "at least "
        text = f"{phase} {least}{quotes.said(f'{key}.{phase}.time', sum(map(found.seconds_of, own)))}"
        text += f" ({quotes.decimal(f'{key}.{phase}.share_of_time', 100 * share, 1)} % of the pass)"
        if found.parallel is None and moved < (1 - _WORTH) * eager:
            less = quotes.said(f"{key}.{phase}.served_bytes", moved)
            text += f": its kernels, with what they take in of the operators around, move {less}, its own operators, run eagerly, {plain_bytes(eager)}"
        said.setdefault(facts.device(phase), []).append(text)
    return " ".join(f"As engines run it on {device}: {'; '.join(texts)}." for device, texts in said.items())


def _growth(facts: ImplementationFacts, module: ModuleAnalysis, quotes: Quotes) -> Iterator[str]:
    """What share grows fastest, FLOPs with the square of new tokens or bytes of a step with cached ones, and from where on
    it is most; not beyond the conditions of the formulas nor the positions of the config."""
    key = f"module.{module.class_name}"
    for document in facts.documents if _grows(facts, module) else ():
        values, whole = facts.point(document), module.class_name == document.class_name
        calls = document.kernels if whole else outermost(document, module.class_name)
        if document.phase == "decode" and values["seq_len"] == 1:
            texts = [text for k in calls for text in (k.memory_access.read, k.memory_access.write)]
            name, what = "cache_len", "In decode what it moves, run eagerly, for each cached token"
            curve, of = _polynomial(texts, name, values), "its bytes"
        elif document.phase == "prefill":
            whose = "decoder's " if any(one.name.startswith("decoder_") for one in document.model_inputs) else ""
            name, what = (
                "seq_len",
                f"In prefill what grows with the square of the {whose}new tokens, pairs that a mask hides included,",
            )
            curve, of = _polynomial([k.flops for k in calls], name, values), "its FLOPs"
        else:
            continue
        if curve is None or not any(curve[2 if name == "seq_len" else 1 :]):
            continue
        yield _told(facts, document, name, curve, f"{what} is", of, f"{key}.{document.phase}", quotes)


def _grows(facts: ImplementationFacts, module: ModuleAnalysis) -> bool:
    """Whether it is told of this class: of the whole, and of those on whose own lines tokens meet each other."""
    own = {name for k in module.kernels if k.kernel_type == "basic" for name in variables(k.flops)}
    curved = _polynomial([k.flops for k in module.kernels if k.kernel_type == "basic"], "seq_len", facts.point(module))
    return module.class_name == facts.main.class_name or "cache_len" in own or (curved is not None and curved[2] > 0)


def _told(
    facts: ImplementationFacts, document: ModelAnalysis, name: str, curve: tuple[Fraction, ...], what: str, of: str,
    key: str, quotes: Quotes,
) -> str:  # fmt: skip
    """The share of the fastest term at the point, and where it passes the others."""
    degree = 2 if curve[2] else 1
    values, limit = facts.point(document), facts.limit

    def share(size: int) -> Fraction:
        terms = [c * size**power for power, c in enumerate(curve)]
        return Fraction(terms[degree], sum(terms))

    now = quotes.decimal(f"{key}.growing_share", float(100 * share(int(values[name]))), 1)
    half = next((2**power for power in range(40) if share(2**power) >= Fraction(1, 2)), None)
    if half is None:
        return f"{what} {now} % of {of} at this point."
    low, high = half // 2, half
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if share(middle) >= Fraction(1, 2) else (middle, high)
    there = {**values, name: high}
    if not all(holds(c, there) for c in document.conditions if variables(c) <= there.keys() and holds(c, values)):
        return f"{what} {now} % of {of} at this point."
    if limit is not None and high > limit:
        most = quotes(f"{key}.positions", limit)
        return (
            f"{what} {now} % of {of} at this point, and less than half of them at all {most} positions of the config."
        )
    return (
        f"{what} {now} % of {of} at this point and most of them from {quotes(f'{key}.growing_half', high)} tokens on."
    )


def _polynomial(
    texts: Sequence[str], name: str, values: Mapping[str, Rational]
) -> tuple[Fraction, Fraction, Fraction] | None:
    """Coefficients of the sum of formulas as a polynomial of second degree in `name`; None where it is none near the point."""
    used = [text for text in texts if text != "0"]
    if not any(name in variables(text) for text in used):
        return None
    here = int(values[name])
    points = [max(here, 8) + step for step in (0, 2, 4, 6, 40)]
    ys = [sum((Fraction(exactly(text, {**values, name: x})) for text in used), Fraction(0)) for x in points]
    (x0, x1, x2), (y0, y1, y2) = points[:3], ys[:3]
    c2 = ((y2 - y0) / (x2 - x0) - (y1 - y0) / (x1 - x0)) / (x2 - x1)
    c1 = (y1 - y0) / (x1 - x0) - c2 * (x0 + x1)
    c0 = y0 - c1 * x0 - c2 * x0 * x0
    fits = all(c0 + c1 * x + c2 * x * x == y for x, y in zip(points, ys, strict=True))
    return (c0, c1, c2) if fits else None
