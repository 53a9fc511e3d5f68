"""Sections 9 to 11: the five questions, the files that were read, the terms that the report uses, its sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from opscope_schemas.analysis import ModelAnalysis
from opscope_schemas.estimates import UNLIKE
from opscope_schemas.formula import evaluate, variables
from opscope_schemas.units import things

from opscope_tools.report import scan
from opscope_tools.report.components import settled
from opscope_tools.report.configuration import declared_at
from opscope_tools.report.facts import ImplementationFacts, anywhere, issued_in, leaves, short, walk
from opscope_tools.report.kinds import Window, windowed
from opscope_tools.report.overview import capabilities, device_tests_said, layers_turned, matching, swappable, turned_in
from opscope_tools.report.papers import paper_lines
from opscope_tools.report.pseudocode import Call, absent, reached
from opscope_tools.report.quotes import Quotes, joined
from opscope_tools.report.traits import traits_of

__all__ = [
    "cache_bytes_per_token",
    "faq",
    "file_rows",
    "fused_operators",
    "glossary_rows",
    "references",
    "without_positions",
]

#: lines of one operator that are named
_LINES = 3
#: operators that do the work of several; what each fuses is its definition, not an estimate
_FUSED = (
    (re.compile(r"sdpa|scaled_dot_product|flash_attention"), "scores, softmax and weighted sum"),
    (re.compile(r"native_layer_norm|rms_norm"), "statistics, scaling and shift"),
    (re.compile(r"addmm|baddbmm"), "matrix product and addition"),
    (re.compile(r"grouped_mm"), "the products of all experts"),
)
_TERMS: Mapping[str, tuple[str, str]] = {
    "FLOP": (r"FLOPs?\b", "floating-point operation; a multiply and an add count 1 each"),
    "matrix products": (
        r"matri(?:x|ces)",
        "of FLOPs: those of matrix multiplication, convolution and the products in attention and experts; of time: kernels that multiply matrices, by weights or, where attention is not one kernel, within it; attention and experts that are one kernel are told apart",
    ),
    "floor": (
        r"\bfloor\b",
        "bytes that no implementation of what the source computes can avoid: weights, of a table the rows that are looked up, constants that are kept beside them, cache and inputs once, outputs once",
    ),
    "prefill, decode": (
        r"[Pp]refill",
        "the pass over the prompt, with an empty cache; over one new token, with what the earlier ones left in it",
    ),
    "bound": (
        r"\bbound\b",
        "the sum over the kernels of a pass as engines run it (operators joined as section 8.2 shows), one after another, of the time of their products at the peak or of their bytes at the bandwidth, whichever is longer; kernels joined further, or run side by side, may take less, and so may what stays in a cache of the device between two kernels",
    ),
    "intensity, ridge": (
        r"FLOPs per byte",
        "FLOPs divided by bytes moved; at intensities above its ridge a device is limited by arithmetic, below by memory",
    ),
    "grouped-query": (r"grouped-query", "attention in which several query heads share one key-value head"),
    "multi-head": (r"multi-head", "attention in which each query head has its own key-value head"),
    "multi-query": (r"multi-query", "attention in which all query heads share one key-value head"),
    "mixture of experts": (r"[Mm]ixture of experts", "a layer that routes each token to some of several networks"),
    "KV cache": (r"KV cache|key-value cache", "keys and values of earlier tokens, kept between passes"),
    "sdpa": (
        r"\bsdpa\b",
        "PyTorch's fused scaled-dot-product attention, which counts as one operator (`opscope.sdpa`)",
    ),
    "HBM, SRAM": (r"\bHBM\b", "the device's main memory; on-chip memory that the threads of a block share"),
}


def _not_decided_against(facts: ImplementationFacts, hits: list[scan.Hit], *given: str) -> list[scan.Hit]:
    """Those that the configuration, and what the model was given beside `given`, leave open or take."""
    names = {*(each.name for each in facts.main.model_inputs), *given}
    held = Call(given=names, settings=settled(facts))
    around = facts.reader.enclosing(facts.main.forward_file, facts.main.forward_line)
    empty = [absent(s.node, names) for s in around if isinstance(s.node, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = []
    for hit in hits:
        spans = [s.node for s in facts.reader.enclosing(hit.path, hit.line) if not isinstance(s.node, ast.ClassDef)]
        if all(reached(node, hit.line, held, frozenset().union(*empty), hit.column) for node in spans):
            found.append(hit)
    return found


def _listed(hits: list[scan.Hit], most: int = 3) -> str:
    return ", ".join(f"`{hit.name}` ({hit.pointer})" for hit in hits[:most])


def faq(facts: ImplementationFacts, quotes: Quotes) -> list[str]:
    """One answer per question of outline.FAQ, each from facts with a pointer."""
    return [
        _variable_lengths(facts, quotes),
        _longest(facts, quotes),
        _fusion(facts),
        _hardware(facts, quotes),
        _cache(facts, quotes),
    ]


def _variable_lengths(facts: ImplementationFacts, quotes: Quotes) -> str:
    here = f"`{short(facts.main.class_name)}` ({facts.pointer(facts.main.class_name)})"
    if not _of_tokens(facts):
        free, fixed = (_sizes(facts, fixed=kind) for kind in (False, True))
        held = [f"`{name}` = {quotes(f'config.{name}', facts.point(facts.main)[name])}" for name in fixed]
        stay = f"; {joined(held)} {'stays' if len(held) == 1 else 'stay'} as traced" if held else ""
        hold = (
            f"every {joined(f'`{name}`' for name in free)} inside the conditions of section 3.3"
            if free
            else "these sizes alone"
        )
        return f"Does not apply to sequences: {here} takes {_given(facts)} and no tokens. Its formulas hold for {hold}{stay}; others need a trace of their own."
    # a line may choose between several: `mask_function = create_causal_mask if ... else create_sliding_window_causal_mask`
    masks = matching(facts, r"\b(create_\w*mask\w*|_prepare_\w*mask\w*|_update_causal_mask)\b", every=True)
    bounded = windowed(facts)
    chunked = bounded is not None and not bounded.slides
    sliding = traits_of(facts).held["windows"].holds and not chunked
    unused = ["sliding|window"] * (not sliding) + ["chunked"] * (not chunked)
    masks = [mask for mask in masks if not any(re.search(word, mask.name) for word in unused)]
    masks = masks or matching(facts, r"^\s*(attention_mask) = ") or matching(facts, r"\b(attention_mask)\b")[:1]
    masks = _not_decided_against(facts, masks, "attention_mask")
    made = any(
        re.search(r"\bones(_like)?\(", mask.text) and (mask.path, mask.line) in facts.lines_run for mask in masks
    )
    work = (
        "the formulas have that work, on a mask of ones that is made where none is given"
        if made
        else "no formula here has that work"
    )
    used = (
        f" Shorter sequences of a batch, where a caller marks them, are masked through {_listed(masks)}: {work}."
        if masks
        else " No mask was found in it."
    )
    most = facts.table_rows
    takes = "takes any seq_len" if most is None else f"takes a seq_len of up to {quotes('table_positions', most)}"
    return f"{here} {takes}; the formulas hold where the conditions of section 3.3 do.{used}"


def _of_tokens(facts: ImplementationFacts) -> bool:
    return any(v.name == "seq_len" for v in facts.main.variables)


def _given(facts: ImplementationFacts) -> str:
    """The inputs of the pass by name."""
    return joined(f"`{name}`" for name in dict.fromkeys(i.name for i in facts.main.model_inputs)) or "its inputs"


def _sizes(facts: ImplementationFacts, *, fixed: bool) -> list[str]:
    """The sizes of what the pass takes that its formulas hold as numbers, or that they leave open."""
    own = [v for v in facts.main.variables if not v.config_key and not v.name.endswith("_bytes")]
    return [v.name for v in own if v.kind != "derived" and (v.kind == "fixed") == fixed]


def _where(facts: ImplementationFacts) -> str:
    """What positions enter: a model that looks them up in a table adds them to what it reads, before its layers."""
    return "model" if facts.table_rows is not None and not layers_turned(facts)[0] else "attention"


def _longest(facts: ImplementationFacts, quotes: Quotes) -> str:
    said = []
    for path, value in facts.positions.items():
        at = declared_at(facts, path) or facts.pointer(facts.tree.config_class)
        nowhere = ", which the model's file reads nowhere" if facts.unread(path) else ""
        said.append(f"`{path}` = {quotes(f'setting.{path}', value)} ({at}){nowhere}")
    if said:
        rotary = _of_sequence(facts, "position embedding")
        turned = turned_in(facts, quotes)
        computed = (
            f" Positions enter the {_where(facts)}{f' of {turned}' * bool(turned)} through `{short(rotary)}` ({facts.pointer(rotary)})."
            if rotary
            else ""
        )
        if facts.table_rows is not None:
            rows = quotes("table_positions", facts.table_rows)
            computed += f" The table of positions serves sequences of up to {rows} tokens."
        elif rotary:
            computed += " They are computed, and no table ends: what ran refuses no longer sequence."
        if facts.within and not rotary and not facts.classes_of("attention"):
            computed = f" It bounds the model; `{short(facts.subject)}` itself reads no positions."
        return f"{', '.join(said)}.{computed}"
    where = facts.pointer(facts.tree.config_class)
    if facts.table_weight is not None:
        name, rows = facts.table_weight[0], quotes("table_positions", facts.table_weight[1])
        others = matching(facts, r"\b(interpolate_pos\w*)\b")[:1]
        more = f"; {_listed(others)} fits them to inputs of other sizes" if others else ""
        return f"The weight `{name}` holds {rows} positions; section 3.3 says which inputs have as many{more}."
    searched = f"searched `{short(facts.tree.config_class)}` ({where}) and what it holds for max_position_embeddings"
    if _of_tokens(facts):
        return f"None declared: {searched}."
    sizes = f"which sizes {_given(facts)} may have, the conditions of section 3.3 say"
    if without_positions(facts):
        return f"Does not apply: {without_positions(facts)}; {sizes}."
    return f"It takes no sequence of tokens: {sizes}. No number of positions is declared ({searched})."


def without_positions(facts: ImplementationFacts) -> str:
    """That a pass takes no tokens, and that nothing of the model has positions; empty where one of the two is not so."""
    if _of_tokens(facts) or facts.positions or _has_positions(facts):
        return ""
    where = f"`{short(facts.main.class_name)}` ({facts.pointer(facts.main.class_name)})"
    return f"{where} takes {_given(facts)} and no sequence of tokens, and no module or weight of it is named after positions"


def _has_positions(facts: ImplementationFacts) -> bool:
    """Whether a module or a weight is named after positions."""
    names = (name for node in facts.nodes for name in (node.name, short(node.class_name), *node.weights))
    return any(re.search(r"(?i)position|rotary|(^|_)(pos|rope)(_|$)", name) for name in names)


def _of_sequence(facts: ImplementationFacts, role: str) -> str:
    """The class of a role that what is read as tokens goes through, not that of a tower which reads something else: the dearest of those
    whose costs the lengths of the sequence decide, else the dearest; empty where there is none."""
    lengths = {"seq_len", "cache_len"}
    texts: dict[str, list[str]] = {}
    for _, _, kernel in walk(facts.main.kernels, ""):
        texts.setdefault(kernel.class_name, []).append(f"{kernel.flops} + {kernel.memory_access.read}")
    named = [name for name in facts.classes_of(role) if any(variables(text) & lengths for text in texts[name])]
    dearest = facts.dearest_of(role)
    return dearest if dearest in named or not named else named[0]


def fused_operators(facts: ImplementationFacts) -> list[tuple[str, str, str]]:
    """Operators of the first document that do the work of several: name, what they fuse, pointers to the lines, the dearest first."""
    values = facts.point(facts.main)
    found: dict[str, tuple[str, dict[str, int]]] = {}
    for _, kernel in leaves(facts.main):
        for pattern, parts in _FUSED:
            if pattern.search(kernel.operator):
                _, places = found.setdefault(kernel.operator, (parts, {}))
                at = f"`{kernel.file}:{kernel.line}`"
                places[at] = places.get(at, 0) + evaluate(kernel.flops, values)
    return [(name, parts, _dearest_first(places)) for name, (parts, places) in found.items()]


def _dearest_first(places: Mapping[str, int]) -> str:
    """The first few places by what they cost, and how many there are besides."""
    said = sorted(places, key=lambda at: -places[at])
    more = len(said) - _LINES
    return ", ".join(said[:_LINES]) + (f" and {more} further {things(more, 'line')}" if more > 0 else "")


def _fusion(facts: ImplementationFacts) -> str:
    fused = [f"{name} joins {parts} ({where})" for name, parts, where in fused_operators(facts)]
    swaps = swappable(facts)
    said = f"In the traced pass {'; '.join(fused)}." if fused else (
        f"None in the traced pass of `{short(facts.main.class_name)}` ({facts.pointer(facts.main.class_name)})."
    )  # fmt: skip
    names = dict.fromkeys(hit.concerns or hit.name for hit in swaps)
    at = {name: ", ".join(hit.pointer for hit in swaps if name in (hit.concerns, hit.name)) for name in names}
    places = ", ".join(f"`{name}` ({where})" for name, where in at.items())
    return f"{said} Other kernels may be swapped in at {places}." if swaps else said


def _hardware(facts: ImplementationFacts, quotes: Quotes) -> str:
    asked = device_tests_said(facts)
    where = f"`{short(facts.main.class_name)}` ({facts.pointer(facts.main.class_name)})"
    said = f"None is required by the source of {where}."
    if asked:
        said += f" Lines of what issues operators here that test for a device: {asked}."
    optional = " What its classes declare to support stands in section 2.3." * bool(capabilities(facts))
    memory = ""
    if facts.tree.parameters:
        memory = f" Its weights take {quotes.said('weight_bytes', facts.weight_bytes)}{_room(facts)}."
    return said + memory + optional


def _room(facts: ImplementationFacts) -> str:
    """On how many of the named device the passes of this report fit."""
    fits = [found.memory.fits for found in facts.estimates.values()]
    if not fits:
        return ""
    device = next(iter(facts.estimates.values())).hardware.name
    if all(fits):
        kept = any(found.memory.cache_bytes for found in facts.estimates.values())
        return f"; with {'cache and ' * kept}activations it fits at these sizes on one {device}"
    plan = next((found.parallel for found in facts.held.values()), None)
    return f"; it does not fit on one {device}" + (f", but on {plan.devices}" if plan is not None else "")


def cache_bytes_per_token(facts: ImplementationFacts, document: ModelAnalysis) -> int | None:
    """Bytes of cache that one more cached token adds to the floor of a decode pass; None without `cache_len`."""
    text = document.totals.floor.read
    if "cache_len" not in variables(text):
        return None
    values = facts.point(document)
    return evaluate(text, {**values, "cache_len": values["cache_len"] + 1}) - evaluate(text, values)


def _cache(facts: ImplementationFacts, quotes: Quotes) -> str:
    updates = matching(facts, r"(\w*past_key_values?|layer_past)\.update\(")
    made = matching(facts, r"\b(\w*Cache)\(", every=True)
    lines = []
    made = _not_decided_against(facts, made, "use_cache")
    where = f"`{short(facts.main.class_name)}` ({facts.pointer(facts.main.class_name)})"
    if not any(graph.cache is not None for graph in facts.graphs):
        if updates:
            return f"{where} keeps none in this configuration."
        if not _of_tokens(facts):
            return f"Does not apply: {where} takes {_given(facts)} whole, and no pass goes on from another."
        return f"There is none: no cache object and no update of one was found in the classes that {where} runs."
    if made:
        lines.append(f"Where none is given, it is created as {_listed(made, 2)}.")
    if updates:
        lines.append(f"New keys and values are appended by the update of {_listed(updates)}.")
    for document in facts.documents:
        grown = cache_bytes_per_token(facts, document) if document.phase == "decode" else None
        if grown:
            point = facts.point(document)
            batch = quotes("decode.batch_size", point["batch_size"])
            lines.append(
                f"In decode the floor grows by {quotes('decode.cache_bytes_per_token', grown)} bytes for each cached "
                f"token at batch {batch}{_while(windowed(facts), int(point['cache_len']))}."
            )
    lines += _states(facts, quotes)
    window = windowed(facts)
    if lines and window:
        at = declared_at(facts, window.setting) or facts.pointer(facts.tree.config_class)
        kind = "window" if window.slides else "chunk"
        lines.append(
            f"Layers with a {kind} of {quotes('window', window.tokens)} tokens (`{window.setting}`, {at}) keep no more than "
            f"{window.tokens - 1:,}, which are all that a new one looks back at."
        )
    return " ".join(lines) or f"{where} keeps one; no line of its file makes it or adds to it."


def _while(window: Window | None, cached: int) -> str:
    """How long a cache with windows grows so: to the end of a window that is not full, or from there on."""
    if window is None:
        return ""
    kind = "window" if window.slides else "chunk"
    full = cached >= window.tokens - 1
    return f", once each {kind} is full: layers with one grow no more" if full else f", as long as no {kind} is full"


def _states(facts: ImplementationFacts, quotes: Quotes) -> list[str]:
    """What of the cache does not grow: states of state-space layers, keys and values of what an encoder read."""
    said = []
    holders = facts.classes_of("state-space layer")
    for document, graph in zip(facts.documents, facts.graphs, strict=False):
        values = facts.point(document)
        read = graph.cache is not None and "encoder_seq_len" in variables(graph.cache.after)
        if document.phase == "decode" and graph.cache is not None and (holders or read):
            whole = evaluate(graph.cache.after, values)
            tokens = int(values["cache_len"] + values["seq_len"])
            fixed = whole - evaluate(graph.cache.per_token, values) * tokens
            if fixed > 0:
                states, cache = (
                    quotes.said(f"decode.{key}.bytes", size) for key, size in (("states", fixed), ("cache", whole))
                )
                what = "keys and values of what the encoder read, made once"
                if holders:
                    what = f"states of `{short(holders[0])}` ({facts.pointer(holders[0])})"
                said.append(f"Of the {cache} that decode leaves, {states} are {what}, whose size is fixed.")
    return said


# ---- 10 and 11 ------------------------------------------------------------------------------------------------------


def file_rows(facts: ImplementationFacts) -> list[tuple[str, str, str]]:
    """Files of the traced classes, of their helper functions and of the config."""
    symbols: dict[str, dict[str, None]] = {facts.main.file: {short(facts.main.class_name): None}}
    for class_name in dict.fromkeys(k.class_name for _, _, k in walk(facts.main.kernels, "") if k.class_name):
        found = facts.locate(class_name)
        if found:
            symbols.setdefault(found[0], {})[found[1].name] = None
    for _, kernel in leaves(facts.main):
        for path, line in ((kernel.file, kernel.line), *((site.file, site.line) for site in kernel.via)):
            around = facts.reader.enclosing(path, line)
            own = line == kernel.line and path == kernel.file
            if around and not (own and isinstance(around[0].node, ast.ClassDef)):  # the forward of a class that ran
                symbols.setdefault(path, {})[around[-1].name] = None
    rows = [
        (f"`{path}`", _file_purpose(facts, path), ", ".join(f"`{name}`" for name in names))
        for path, names in symbols.items()
    ]
    if facts.config_location is not None:
        path, span = facts.config_location
        rows.append((f"`{path}`", "configuration of the model", f"`{span.name}` (`{path}:{span.line}`)"))
    return rows


def _file_purpose(facts: ImplementationFacts, path: str) -> str:
    """The parts of the model that a file defines, and how many operators its lines issue."""
    count = sum(issued_in(kernel) == path for _, kernel in leaves(facts.main))
    helpers = sum(any(site.file == path for site in kernel.via) for _, kernel in leaves(facts.main))
    roles = dict.fromkeys(facts.role(module.class_name) for module in facts.modules if module.file == path)
    parts = ", ".join(role for role in roles if role != "module") or (
        "classes of the model"
        if path == facts.modeling_file
        else "functions on the way from classes of the model to operators"
    )
    issued = f"{parts}; its lines issue {count} {things(count, 'operator')}" if count else f"defines {parts}"
    return issued if count or not helpers else f"helper functions on the way to {helpers} {things(helpers, 'operator')}"


def glossary_rows(facts: ImplementationFacts, text: str) -> list[tuple[str, str]]:
    """The terms that `text` uses; what a cache is only where the model has one."""
    cached = any(document.phase == "decode" for document in facts.documents)
    used = [(term, meaning) for term, (pattern, meaning) in _TERMS.items() if re.search(pattern, text)]
    return [(term, meaning) for term, meaning in used if cached or term != "KV cache"]


def _calibrated(facts: ImplementationFacts) -> list[str]:
    """What the times are fitted on, and how far off the fits are."""
    split = (*facts.spread.values(), *facts.spread_prefill.values())
    every = [*facts.estimates.values(), *facts.held.values(), *filter(None, [facts.full]), *split]
    notes = [found.calibration for found in every if found.calibration is not None]
    errors = {name: error for note in notes for name, error in note.error.items()}
    off = ", ".join(f"{name.replace('_', ' ')} {error:g} %" for name, error in sorted(errors.items()))
    rows = [row for found in facts.estimates.values() for row in found.operators]
    unlike = joined(dict.fromkeys(row.kind for row in rows if row.measured_as.startswith(UNLIKE)))
    said = f"; off by, on average and on sizes that no fit has seen: {off}" if off else ""
    if any("convolution" in row.operation for row in rows if row.kind == "matrix products"):
        unlike = f"convolutions, timed as matrix products,{' and ' * bool(unlike)}{unlike}"
    said += f"; how far {unlike} are off, no measurement says" if unlike else ""
    return [f"Times: fits of {source}{said}" for source in dict.fromkeys(note.source for note in notes)]


def references(facts: ImplementationFacts) -> list[str]:
    """The sources that were read, and the conventions that the figures follow."""
    read = ", ".join(f"{source.repository} {source.version}".strip() for source in facts.sources)
    lines = [f"Sources read: {read}"] if read else []
    if facts.within:
        lines.append(f"Class: {facts.subject} ({facts.pointer(facts.subject)})")
    configured = f"configured by {facts.tree.config_class} ({facts.pointer(facts.tree.config_class)})"
    lines.append(f"Model: {facts.tree.model_class} ({facts.pointer(facts.tree.model_class)}), {configured}")
    lines += paper_lines(facts)
    stored = anywhere(facts.tree.config, "quantization_config") is not None
    beside = "`repeat`" if stored else "`repeat`|Quantised"  # what nothing here shows
    told = " ".join(text for text in facts.main.conventions if not re.search(beside, text))
    lines.append(f"Conventions, whose names of fields are those of the answer of `count_flops`: {told}")
    lines += _calibrated(facts)
    for label, texts in (("Assumptions", facts.main.assumptions), ("Not counted", facts.main.not_counted)):
        lines += [f"{label}: {' '.join(text if text.endswith('.') else f'{text}.' for text in texts)}"] if texts else []
    return [*lines, *(f"Note: {text}" for text in facts.notes)]
