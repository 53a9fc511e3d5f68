"""Section 1's first screen: what it is, what a pass costs, how long a device takes and why, what turns, what would save most.

Counts are of the eager pass, as everywhere in the report; times are of the pass as engines run it on one named device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from opscope_schemas.analysis import Kernel, ModelAnalysis, ModuleNode, TensorInfo
from opscope_schemas.estimates import ROUTING_SKEW, UNLIKE, MemoryUse, OperatorTime, RooflineResult, launches
from opscope_schemas.formula import Rational, evaluate, holds, variables
from opscope_schemas.units import plain_bytes, seconds, things

from opscope_tools.report import scan
from opscope_tools.report.attending import attention_kind, heads_by_class, parts_said
from opscope_tools.report.changes import STEPS, saved, units
from opscope_tools.report.facts import ImplementationFacts, leaves, short, told_hidden, walk
from opscope_tools.report.findings import repeated
from opscope_tools.report.kinds import sliding_window, windowed
from opscope_tools.report.markdown import table
from opscope_tools.report.overview import of_latents
from opscope_tools.report.purposes import shared_experts
from opscope_tools.report.quotes import Quotes, as_prose, in_code, joined

__all__ = ["story", "times_said"]

#: parts of a sum that are named
_PARTS = 3
#: of the tokens of all sequences that fit, those that fit in one where what a pass keeps grows faster than its length
_STEEP = 0.9
#: of the memory that engines use: what is left of it where a pass fits barely
_BARELY = 0.08
#: of the slowest kernel's time: what takes as much takes as long
_ALIKE = 0.999
#: of all FLOPs: where people say nearly all
_NEARLY = 0.99
#: of the longest of what limits a pass: what limits it nearly as long
_NEAR = 0.9
#: of a pass's bytes the floor, from which on nothing else counts much
_MOSTLY = 0.8
#: settings by which scores are kept in a range -> of what
_CAPS = {"attn_logit_softcapping": "attention scores", "final_logit_softcapping": "logits"}
#: sizes of measured kernels (hardware/forms.py), where a letter or a short name stands for them
_SIZES = {
    "m": "rows", "n": "columns", "k": "inner width", "b": "sequences", "h": "query heads", "kv": "heads of keys and values",
    "d": "width of a head", "context": "positions that are read", "new": "new tokens", "window": "the window", "inter": "inner width of an expert",
    "hidden": "width of tokens", "topk": "experts of a token", "tp": "ranks of a product", "ep": "ranks of experts", "bytes": "bytes sent",
}  # fmt: skip
_GENERATION = "transformers/generation/utils.py"


def story(facts: ImplementationFacts, quotes: Quotes) -> list[str]:
    """A line for each question that has an answer."""
    answers = (
        ("What it is", [_what(facts, quotes)]),
        ("What a pass costs", [_cost(facts, document, quotes) for document in facts.documents]),
        (
            "How long it takes",
            [*(_time(facts, phase, quotes) for phase in facts.served), _fewest(facts), _timed_as(facts)],
        ),
        ("Where the bytes go", [_bytes(facts, document, quotes) for document in facts.documents]),
        ("What fits", [_fits(phase, facts, quotes) for phase in facts.estimates]),
        ("What turns", list(_turns(facts, quotes))),
        ("What would save most", [saved(facts, quotes)]),
        ("Left out", list(_left_out(facts))),
    )
    return [f"**{title}:** {' '.join(said)}" for title, texts in answers if (said := [text for text in texts if text])]


def glance(facts: ImplementationFacts, quotes: Quotes) -> str:
    """The main figures of each pass, a row each; what they are made of and hold for, the lines below it say."""
    rows = []
    for document in facts.documents:
        phase, figures = document.phase, facts.totals(document)
        cost = [quotes.said(f"{phase}.flops", figures.flops), quotes.said(f"{phase}.bytes", figures.bytes)]
        rows.append((phase, *cost, *_timed(facts, phase, quotes)))
    return table(
        ("Pass", "FLOPs", "Bytes, eagerly", "Time, modelled", "Bound, and by what", "On", "Memory of each"), rows
    )


def _timed(facts: ImplementationFacts, phase: str, quotes: Quotes) -> tuple[str, str, str, str]:
    found = facts.served.get(phase)
    if found is None:
        return ("not modelled",) * 4
    totals, use, of = found.totals, found.memory, f"{phase}.time{'.held' * bool(facts.held)}"
    took = totals.calibrated_seconds
    time = quotes.said(f"{of}.calibrated", took) if took is not None else "not measured"
    bound = f"{quotes.said(f'{of}.bound', totals.bound_seconds)}, by {_limited(found)}"
    fits = "fits" if use.fits else "does not fit"
    kept = f"{plain_bytes(use.needed_bytes)} of {plain_bytes(use.usable_bytes)}: {fits}"
    return time, bound, f"{_devices(facts, quotes)} {found.hardware.name}", kept


def times_said(facts: ImplementationFacts) -> list[str]:
    """How long passes take, without marks, for the reply beside the report."""
    return [*(_time(facts, phase, None) for phase in facts.served), *filter(None, [_fewest(facts)])]


def _document(facts: ImplementationFacts, phase: str) -> ModelAnalysis:
    """That of a phase, else the main one."""
    return next((one for one in facts.documents if one.phase == phase), facts.main)


def _what(facts: ImplementationFacts, quotes: Quotes) -> str:
    name, where = short(facts.subject), facts.pointer(facts.subject)
    inside = f", as it runs in `{short(facts.within)}` ({facts.pointer(facts.within)})" if facts.within else ""
    parts = [f"{quotes.said('parameters', facts.tree.parameters)} parameters"]
    if facts.active is not None and facts.active < facts.tree.parameters:
        parts[0] += (
            f", of which a token meets {quotes.said('parameters.active', facts.active)} (tables of embeddings counted whole)"
        )
    parts += [_layers(facts, quotes)]
    if states := facts.classes_of("state-space layer"):
        parts.append(
            f"state-space layers (`{short(states[0])}`){_holding(facts, 'state-space layer', 'states', quotes)}"
        )
    attends = _heads(facts, quotes)
    among = "" if heads_by_class(facts) else _holding(facts, "attention", "attention", quotes)
    parts.append(f"{attends}{among}" if attends else "")
    if found := windowed(facts):
        within = (
            f" in {quotes('window.layers', found.layers)} of the layers" if 0 < found.layers < found.of_layers else ""
        )
        kind = "windows" if found.slides else "chunks"
        parts.append(f"{kind} of {quotes('window', found.tokens)} tokens{within} (`{found.setting}`)")
    if facts.classes_of("mixture of experts"):
        among = _holding(facts, "mixture of experts", "experts", quotes)
        parts.append(f"a mixture of experts{_experts(facts, quotes)}{among}")
    parts += [
        f"{words} capped at {quotes.decimal(f'config.{name}', value, 0 if value == int(value) else 2)}"
        for name, words in _CAPS.items() if isinstance(value := facts.tree.config.get(name), int | float) and value
    ]  # fmt: skip
    return (
        f"`{name}` ({where}){inside}, configured by `{short(facts.tree.config_class)}` "
        f"({facts.pointer(facts.tree.config_class)}), has {', '.join(filter(None, parts))}."
    )


def _layers(facts: ImplementationFacts, quotes: Quotes) -> str:
    """How many repeat in what was traced; those of encoder and decoder apart."""
    values, config = facts.point(facts.main), facts.tree.config
    both = [
        config.get("encoder_layers", config.get("num_layers")),
        config.get("decoder_layers", config.get("num_decoder_layers")),
    ]
    if not facts.within and config.get("is_encoder_decoder") and all(isinstance(one, int) for one in both):
        first, second = (int(str(one)) for one in both)
        return f"{quotes('layers.encoder', first)} encoder and {quotes('layers.decoder', second)} decoder {things(second, 'layer')}"
    if towers := {} if facts.within else _towers(facts.tree.tree):
        return " and ".join(
            f"{quotes(f'{name}.layers', count)} {things(count, 'layer')} in `{name}`" for name, count in towers.items()
        )
    layers = values.get("num_layers", config.get("num_hidden_layers"))
    repeated = not facts.within or any("num_layers" in variables(k.repeat) for k in facts.main.kernels)
    return (
        f"{quotes('layers', layers)} {things(layers, 'layer')}"
        if isinstance(layers, int) and layers and repeated
        else ""
    )


def _towers(node: ModuleNode) -> dict[str, int]:
    """Layers of the modules that stand side by side and each repeat some; empty where fewer than two do."""
    held = {child.name: child for child in node.children if not child.name[:1].isdigit() and repeated(child)}
    if node.repeat > 1 or len(held) < 2 or any(child.repeat > 1 for child in held.values()):
        return _towers(next(iter(held.values()))) if node.repeat == 1 and len(held) == 1 else {}
    return {name: sum(one.repeat for one in repeated(child)) for name, child in held.items()}


def _holding(facts: ImplementationFacts, role: str, key: str, quotes: Quotes) -> str:
    """` in 4 layers` where some of the numbered layers hold a module of a role and others none; else empty."""
    layers = [] if facts.within else repeated(facts.tree.tree)
    held = [(one.repeat, any(facts.role(name) == role for name in _class_names(one))) for one in layers]
    some = sum(count for count, has in held if has)
    return (
        f" in {quotes(f'layers.{key}', some)} {things(some, 'layer')}"
        if 0 < some < sum(count for count, _ in held)
        else ""
    )


def _class_names(node: ModuleNode) -> Iterator[str]:
    yield node.class_name
    for child in node.children:
        yield from _class_names(child)


def _heads(facts: ImplementationFacts, quotes: Quotes) -> str:
    """Of the attention; where parts of the model have heads of their own, of each."""
    if parts := parts_said(facts, quotes):
        return f"attention with {parts}"
    kind = attention_kind(facts)
    if kind is None:
        return ""
    heads = (
        f"{quotes('attention.query_heads', kind.queries)} query and {quotes('attention.key_value_heads', kind.shared)}"
    )
    return f"{kind.kind} attention ({heads} {things(kind.shared, 'key-value head')}{of_latents(facts, quotes)})"


def _experts(facts: ImplementationFacts, quotes: Quotes) -> str:
    values = facts.point(facts.main)
    chosen, among = values.get("num_experts_per_tok"), values.get("num_experts")
    if not isinstance(chosen, int) or not isinstance(among, int):
        return ""
    mixtures = [facts.calls[name] for name in facts.classes_of("mixture of experts") if name in facts.calls]
    shared = next(
        (
            _shared(call.kernels or (), chosen, values, quotes)
            for call in mixtures
            if shared_experts(call.kernels or ())
        ),
        "",
    )
    return f" ({quotes('experts.chosen', chosen)} of {quotes('experts', among)}{shared} a token)"


def _shared(called: Sequence[Kernel], chosen: int, values: Mapping[str, Rational], quotes: Quotes) -> str:
    """What every token meets beside its experts, and how many of these that is by its products."""
    products = {one.attribute: evaluate(one.matmul_flops, values) for one in called}
    whole = sum(products[one.attribute] for one in called if shared_experts([one]))
    routed = max((work for name, work in products.items() if "shared" not in name), default=0)
    wide = Fraction(whole * chosen) / Fraction(routed) if routed else Fraction(1)
    if wide.denominator > 1 or wide <= 1:
        return " and a shared one"
    return f" and a shared one as wide as {quotes('experts.shared_width', int(wide))} of them"


def _cost(facts: ImplementationFacts, document: ModelAnalysis, quotes: Quotes) -> str:
    phase, figures = document.phase, facts.totals(document)
    values = facts.point(document)
    ran = sum(evaluate(group.count, values) for group in document.per_operator)  # a loop over tokens shows here
    products = quotes.said(f"{phase}.matmul_flops", figures.matmul_flops)
    nearly = figures.matmul_flops > _NEARLY * figures.flops
    return (
        f"{facts.called(document, quotes)}{_one_position(document, values)} takes {quotes.said(f'{phase}.flops', figures.flops)}, "
        f"{f'nearly all of it in matrix products ({products})' if nearly else f'of which {products} are matrix products'}, and moves "
        f"{quotes.said(f'{phase}.bytes', figures.bytes)} as eager execution does, in {quotes(f'{phase}.operators', ran)} {things(ran, 'operator')}: "
        f"{quotes.decimal(f'{phase}.intensity', figures.intensity)} FLOPs per byte.{_above_diagonal(document, values, quotes)}{_at_once(document, values, quotes)}{_steps(document, values, quotes)}"
    )


def _at_once(document: ModelAnalysis, values: Mapping[str, Rational], quotes: Quotes) -> str:
    """What a prefill of a decoder is whose prompt an encoder reads, and what of it is left where generation begins."""
    encoded = any(variable.name == "encoder_seq_len" for variable in document.variables)
    both = document.phase == "prefill" and encoded and values.get("seq_len", 1) > 1
    if not both:
        return ""
    texts = [k.flops for _, k in leaves(document) if "seq_len" not in variables(k.flops)]
    once = sum(evaluate(text, values) for text in texts)
    flops = quotes.said(f"{document.phase}.of_encoder.flops", once)
    return (
        " The decoder is given all its tokens at once, as scoring does it; generation begins with one of them, and with the same "
        f"{flops} in the encoder and in keys and values of what it gives, on which the decoder's tokens have no bearing."
    )


def _one_position(document: ModelAnalysis, values: Mapping[str, Rational]) -> str:
    """Of which positions logits are, where there are several."""
    if values.get("seq_len", 1) <= 1 or document.phase != "prefill":
        return ""
    many = any("vocab_size" in variables(size) for out in _last(document) for size in out.shape)
    return (
        " with logits of the last position alone"
        if document.logits == "last"
        else " with logits of every position" * many
    )


def _last(document: ModelAnalysis) -> Sequence[TensorInfo]:
    """What the last kernel of a pass gives."""
    return document.kernels[-1].outputs if document.kernels else ()


def _above_diagonal(document: ModelAnalysis, values: Mapping[str, Rational], quotes: Quotes) -> str:
    """What of the FLOPs a causal kernel does not compute; empty where that is nothing."""
    saved = evaluate(document.totals.causal_saving, values)
    told = sum(evaluate(told_hidden(kernel), values) for _, kernel in leaves(document))
    said = []
    if told:
        flops = quotes.said(f"{document.phase}.causal_flops", told)
        said.append(f"{flops} are attention to later tokens, which its kernel, told so by the source, need not compute")
    if saved > told:
        flops = quotes.said(f"{document.phase}.masked_flops", saved - told)
        said.append(
            f"{flops} are attention to later tokens that a mask, handed as a tensor, hides: eager execution computes them"
        )
    return f" Of its matrix products {', and '.join(said)}." if said else ""


def _steps(document: ModelAnalysis, values: Mapping[str, Rational], quotes: Quotes) -> str:
    """What a loop in Python, longer for longer sequences, makes of the operators; empty where there is none."""
    inside = {_at(kernel): kernel for _, kernel in leaves(document) if "seq_len" in variables(kernel.repeat)}
    if not inside:
        return ""
    # the first step stands apart where it differs from the others
    ran = sum(evaluate(kernel.repeat, values) for _, kernel in leaves(document) if _at(kernel) in inside)
    many = quotes(f"{document.phase}.looped", ran)
    first = next(iter(inside.values()))
    where = first.via[-1] if first.via else first
    return f" {many} of the operators are steps of a loop in Python (from `{where.file}:{where.line}`), more for longer sequences, which runs where no kernel for it is installed."


def _at(kernel: Kernel) -> tuple[object, ...]:
    """The operator, and the lines on which it is reached."""
    return kernel.operator, kernel.file, kernel.line, kernel.via


def _time(facts: ImplementationFacts, phase: str, quotes: Quotes | None) -> str:
    """Calibrated with its spread where that is known, else the bound; rates only of what fits and of whole passes over text."""
    found = facts.served[phase]
    of = f"{phase}.time{'.held' * bool(facts.held)}"

    def said(name: str, value: float) -> str:
        return quotes.said(f"{of}.{name}", value) if quotes else seconds(value)

    def whole(name: str, value: float) -> str:
        return quotes(f"{of}.{name}", round(value)) if quotes else f"{value:,.0f}"

    def percent(name: str, value: float) -> str:
        return quotes.decimal(f"{of}.{name}", value, 0) if quotes else f"{value:.0f}"

    totals, rate = found.totals, found.totals.tokens_per_second
    where = f"{_devices(facts, quotes)} {found.hardware.name}"
    call = f"one call in {phase}" if facts.within else STEPS[phase]
    takes = "is modelled to take" if found.memory.fits else "is modelled to take, had it the memory,"
    step = f"{call.capitalize()} on {where} as engines run it {takes}"
    bound = f"{said('bound', totals.bound_seconds)}, limited by {_limited(found)}"
    at_least = f"the bound, each of its kernels at the peaks of the device, is {bound}"
    per_second = ""
    if totals.calibrated_seconds is None:
        rate = totals.bound_tokens_per_second
    if rate is not None and _of_text(facts, phase):
        most = " at most" * (totals.calibrated_seconds is None)
        per_second = f", {whole('tokens_per_second', float(f'{rate:.3g}'))} tokens/s{_whose(facts, phase)}{most}"
    if totals.calibrated_seconds is None:
        text = f"{step} at least {bound} (a bound: nothing like it was measured){per_second}"
    else:
        spread = f"{said('low', totals.low_seconds or 0.0)} to {said('high', totals.high_seconds or 0.0)}"
        started = launches(totals)
        if started is not None:
            explains, starts = 100 * totals.bound_seconds / totals.calibrated_seconds, 100 * started
            at_least += f", and explains {percent('bound_share', explains)} % of that: the fixed time of its kernels, as measured ones have it, takes {percent('launch_share', starts)} %"
        kernels = sum(row.count for row in found.operators)
        ran = whole("kernels", kernels)
        text = (
            f"{step} {said('calibrated', totals.calibrated_seconds)} (the sum of its {ran} {things(kernels, 'kernel')}, none waiting for the host; {spread})"
            f"{per_second}; {at_least}"
        )
    encoder = _of_encoder(facts, phase, found)
    share = f" Of the whole {said('encoder', encoder)} are the encoder's." if encoder else ""
    return f"{text}{_dominant(of, found, quotes)}.{share}{_cached(facts, phase, found)}"


def _cached(facts: ImplementationFacts, phase: str, found: RooflineResult) -> str:
    """What of the bound's bytes may never reach device memory; empty where that is little, or more than the cache holds."""
    kept, cache = found.memory.activation_bytes, found.hardware.l2_bytes
    floor = facts.floor_bytes(_document(facts, phase))
    if found.parallel is not None or not kept or not cache or kept > cache or floor > _MOSTLY * found.totals.bytes:
        return ""
    return (
        f" What its kernels hand one another, {plain_bytes(kept)} at once, fits in the L2 cache of {plain_bytes(cache)}: what stays there is not "
        f"read from memory, as the bound has it; the floor alone, {plain_bytes(floor)}, is read in {seconds(floor / found.hardware.bandwidth)}."
    )


def _of_encoder(facts: ImplementationFacts, phase: str, found: RooflineResult) -> float:
    """Seconds of a pass of encoder and decoder that modules take on which the decoder's tokens have no bearing; 0 where it is of one."""
    document = _document(facts, phase)
    if facts.main is not document or not {"encoder_seq_len", "seq_len"} <= {one.name for one in document.variables}:
        return 0.0
    paths = [facts.path_of(kernel) for kernel in _encoding(document.kernels)]
    rows = [row for row in found.operators if any(f"{row.module}.".startswith(f"{path}.") for path in paths)]
    return sum(row.calibrated_seconds or row.bound_seconds for row in rows)


def _encoding(kernels: Sequence[Kernel]) -> Iterator[Kernel]:
    """The outermost calls that read what an encoder is given, and nothing as long as the decoder's tokens are."""
    for kernel in kernels:
        below = [kernel, *(one for _, _, one in walk(kernel.kernels or (), ""))]
        sizes = {
            name
            for one in below
            for tensor in (*one.inputs, *one.outputs)
            for size in tensor.shape
            for name in variables(size)
        }
        if kernel.kernels and "encoder_seq_len" in sizes and "seq_len" not in sizes:
            yield kernel
        else:
            yield from _encoding(kernel.kernels or ())


def _limited(found: RooflineResult) -> str:
    """What the bound of most of a pass is, and what is nearly as much."""
    spent: dict[str, float] = {}
    for row in found.operators:
        if row.limited_by is not None:
            spent[row.limited_by] = spent.get(row.limited_by, 0.0) + row.bound_seconds
    near = [
        kind for kind, time in spent.items() if kind != found.totals.limited_by and time > _NEAR * max(spent.values())
    ]
    return f"{found.totals.limited_by}{''.join(f', and by {kind} nearly as long' for kind in near)}"


def _devices(facts: ImplementationFacts, quotes: Quotes | None) -> str:
    """How many there are of the device that is named."""
    plan = next((found.parallel for found in facts.served.values()), None)
    if plan is None:
        return "one"
    return quotes("devices", plan.devices) if quotes else f"{plan.devices:,}"


def _fewest(facts: ImplementationFacts) -> str:
    """Why times are of several devices where nobody asked for them, and how they share the work; empty where they are not."""
    plan = next((found.parallel for found in facts.held.values()), None)
    if plan is None:
        return ""
    alone = next(iter(facts.estimates.values()))
    share = f"{plan.tp} that share every layer (tensor parallelism)"
    stages = f"{plan.pp} stages of layers (a pipeline, whose stages have a part of the sequences each in work)"
    ways = share if plan.pp == 1 else stages if plan.tp == 1 else f"{stages}, each of {share}"
    return f"One {alone.hardware.name} does not hold them: these are the fewest, of 2, 4, 8 and whole eights, that do, as {ways}."


def _timed_as(facts: ImplementationFacts) -> str:
    """What the times of kernels rest on."""
    rows = [row for found in facts.served.values() for row in found.operators if row.measured_as]
    bandwidth = next((found.hardware.bandwidth for found in facts.served.values()), 0.0)
    unlike = [row for row in rows if row.measured_as.startswith(UNLIKE)]
    alike = [row.kind for row in rows if not row.measured_as.startswith(UNLIKE)]
    parts = []
    if alike:
        whose = joined(dict.fromkeys(row.backend for row in rows if row.backend))
        parts.append(
            f"{joined(dict.fromkeys(alike))} are timed as kernels like them{f' (of {whose})' * bool(whose)} were measured"
        )
    if any("convolution" in row.operation for row in rows if row.kind == "matrix products"):
        parts.append("convolutions as products of as many rows, columns and inner elements")
    if "experts" in alike:
        parts.append(
            f"experts with some that more tokens choose than others (by a power law of exponent {ROUTING_SKEW:g}), which takes longer than choices that are even"
        )
    if unlike:
        kinds = joined(dict.fromkeys(row.kind for row in unlike))
        parts.append(f"{kinds}, of which there are no measurements, by their bytes{_as_products(unlike, bandwidth)}")
    for phase, found in facts.served.items():
        if beyond := [row for row in found.operators if row.outside]:
            kinds = joined(dict.fromkeys(f"{row.kind} ({row.backend}'s)" for row in beyond))
            sizes = joined(dict.fromkeys(_SIZES.get(name, name) for row in beyond for name in row.outside))
            parts.append(
                f"in {phase} some kernels of {kinds} lie outside of the sizes that were measured (in {sizes}), and are less certain"
            )
    text = "; ".join(parts)
    chosen = "; of what was not measured they are chosen" * bool(unlike)
    spread = f"{_added(facts, alike)} Ranges: from where every kernel is as fast as the fastest tenth of measured ones to where each is as slow as the slowest tenth{chosen}."
    return f"{text[0].upper()}{text[1:]}.{spread}" if text else ""


def _added(facts: ImplementationFacts, timed: Sequence[str]) -> str:
    """Which attention adds a tensor to its scores, such as a bias by distance, that the measured kernels do not read."""
    classes = dict.fromkeys(
        short(owner)
        for document in facts.documents
        for owner, kernel in leaves(document)
        if "sdpa" in kernel.operator and any("float" in given.dtype for given in kernel.inputs[3:])
    )
    if not classes or "attention" not in timed:
        return ""
    return f" A tensor that {joined(f'`{name}`' for name in classes)} adds to its scores is read by none of these kernels: attention may take longer."


def _as_products(rows: Sequence[OperatorTime], bandwidth: float) -> str:
    """What each kernel of `rows` is given of measured products: a fixed time, and a share of the device's bandwidth."""
    most = max(rows, key=lambda row: row.bytes / row.count)
    launch, took = most.launch_seconds or 0.0, most.calibrated_seconds or 0.0
    if took <= launch:
        return ""
    share = 100 * most.bytes / (took - launch) / bandwidth
    return f", at {share:.0f} % of the bandwidth after {seconds(launch / most.count)} for each of them, as measured products have it"


def _whose(facts: ImplementationFacts, phase: str) -> str:
    """Whose tokens a pass is given that reads what an encoder read."""
    return " of the decoder" * any(one.name.startswith("decoder_") for one in _document(facts, phase).model_inputs)


def _of_text(facts: ImplementationFacts, phase: str) -> bool:
    """Whether a rate of tokens says something: not of one call in a pass, nor of a pass over pictures beside a text."""
    document = _document(facts, phase)
    return not facts.within and (phase != "forward" or not any("float" in each.dtype for each in document.model_inputs))


def _dominant(of: str, found: RooflineResult, quotes: Quotes | None) -> str:
    """What most of the time is spent on, and the line of the kernel that takes most."""
    spent = [one for one in found.spent if one.share >= 0.005]
    parts = spent[:_PARTS]
    if not parts:
        return ""
    told = [
        f"{one.name} {quotes.decimal(f'{of}.{one.name}', 100 * one.share, 0) if quotes else f'{100 * one.share:.0f}'} %"
        for one in parts
    ]
    slowest, *others = sorted(found.operators, key=found.seconds_of, reverse=True)
    least = _ALIKE * found.seconds_of(slowest)
    alike = sum(1 for one in others if found.seconds_of(one) >= least)
    pointer = f"{slowest.file}:{slowest.line}"
    names = slowest.operation.split(", ")
    operation = (
        slowest.operation if len(names) <= _PARTS else f"{', '.join(names[:_PARTS])} and {len(names) - _PARTS} more"
    )
    at = f"{operation} of {slowest.module}" if slowest.module else operation
    if quotes is not None:  # names are no emphasis
        at = as_prose(at)
    goes = "It goes" if parts == spent else "Most of it goes"
    where = f"`{pointer}`" if quotes else pointer
    which = f"of the {alike + 1} kernels that take most, alike, the first" if alike else "the kernel that takes most"
    return f". {goes} to {', '.join(told)}; {which} is {at} ({where})"


def _bytes(facts: ImplementationFacts, document: ModelAnalysis, quotes: Quotes) -> str:
    """The classes whose own lines move most."""
    values, phase = facts.point(document), document.phase
    moved = {
        group.name: evaluate(group.memory_access.read, values) + evaluate(group.memory_access.write, values)
        for group in document.per_class
    }
    most = sorted((name for name in moved if moved[name]), key=lambda name: -moved[name])[:_PARTS]
    if not most:
        return ""
    told = [f"`{short(name)}` {quotes.said(f'{phase}.class.{name}.bytes', moved[name])}" for name in most]
    whole = quotes.said(f"{phase}.bytes", facts.totals(document).bytes)
    return f"{phase.capitalize()}, eagerly, by class, own lines alone: {', '.join(told)} of {whole} in all{_fused(phase, facts, quotes)}."


def _fused(phase: str, facts: ImplementationFacts, quotes: Quotes) -> str:
    found = facts.whole(phase)
    if found is None:
        return ""
    return f"; as engines run it, with kernels fused, {quotes.said(f'{phase}.time.bytes', found.totals.bytes)} in all"


def _fits(phase: str, facts: ImplementationFacts, quotes: Quotes) -> str:
    """What a pass keeps beside what the device has; where that is too much, also what each of those keeps that hold it."""
    use = facts.estimates[phase].memory
    of = quotes.said(f"{phase}.memory.usable", use.usable_bytes)
    had = f"{of} that engines use, {100 * use.usable_bytes / use.capacity_bytes:.0f} % of the {plain_bytes(use.capacity_bytes)} that the device has"
    text = f"{phase.capitalize()}: {_kept(f'{phase}.memory', use, quotes)} of {had}"
    if not facts.held:
        return f"{text}: {_room(phase, f'{phase}.memory', use, facts, quotes)}."
    key, each = f"{phase}.memory.held", facts.held[phase].memory
    return f"{text}: does not fit; on {_devices(facts, quotes)}, each at most {_kept(key, each, quotes)}: {_room(phase, key, each, facts, quotes)}."


def _kept(key: str, use: MemoryUse, quotes: Quotes) -> str:
    """What a device keeps in a pass."""
    parts = [f"weights {quotes.said(f'{key}.weights', use.weights_bytes)}"]
    if use.cache_bytes:
        parts.append(f"cache {quotes.said(f'{key}.cache', use.cache_bytes)}")
    if use.activation_bytes is not None:
        parts.append(
            f"activations {quotes.said(f'{key}.activations', use.activation_bytes)} (as engines run it, each freed after its last reader)"
        )
    if use.notable_inputs:
        parts.append(f"inputs {quotes.said(f'{key}.inputs', use.input_bytes)}")
    return ", ".join(parts)


def _room(phase: str, key: str, use: MemoryUse, facts: ImplementationFacts, quotes: Quotes) -> str:
    """Whether that fits, and how much of it would."""
    spare = use.usable_bytes - use.needed_bytes
    room = "fits" if use.fits else "does not fit"
    if use.fits and spare < _BARELY * use.usable_bytes:
        room += f" with {quotes.said(f'{key}.spare', spare)} to spare, which the runtime's own buffers may take"
    if use.largest_batch:
        room += f"; at most {quotes(f'{key}.largest_batch', use.largest_batch)} {units(facts, phase)} like these{' in one pass' * (phase == 'prefill')}"
    if use.longest_context and facts.table_rows is not None and use.longest_context > facts.table_rows:
        room += f", or contexts of all {quotes('table_positions', facts.table_rows)} tokens that a table has positions for, in this batch"
    elif use.longest_context:
        room += f", or contexts of {quotes(f'{key}.longest_context', use.longest_context)} tokens{_whose(facts, phase)} in this batch"
        if windowed(facts):
            room += " (of which layers with windows keep no more than these)"
        at = facts.point(_document(facts, phase))
        together = (use.largest_batch or 0) * at.get("seq_len", 0) / at.get("batch_size", 1)
        if phase == "prefill" and use.longest_context < _STEEP * together:
            room += " (fewer than these sequences hold together: masks and what else the pass keeps grow faster than the length)"
        if eager := _eagerly(phase, use.longest_context, facts):
            many = quotes.said(f"{key}.eager_activations", eager)
            room += f" (run eagerly, as its source is, activations alone would take {many} at that length)"
        if facts.limit is not None and use.longest_context > facts.limit:
            room += f", more than the {quotes('positions', facts.limit)} positions that the configuration states"
    return room


def _eagerly(phase: str, tokens: int, facts: ImplementationFacts) -> int:
    """What a pass run eagerly holds at least where so many tokens are new, if that is more than a device of the report has; 0 where it
    is not, or no formula tells."""
    document, graph = next(pair for pair in zip(facts.documents, facts.graphs, strict=True) if pair[0].phase == phase)
    point, name = facts.point(document), "seq_len"
    there = {**point, name: tokens}
    asked = [c for c in document.conditions if variables(c) <= point.keys() and holds(c, point)]
    if phase == "decode" or not all(holds(c, there) for c in asked):
        return 0
    eager = max((evaluate(one.bytes, there) for one in graph.peaks if variables(one.bytes) <= there.keys()), default=0)
    return eager if eager > facts.estimates[phase].memory.usable_bytes else 0


def _turns(facts: ImplementationFacts, quotes: Quotes) -> Iterator[str]:
    for phase, one in facts.served.items():
        if phase != "decode" and (one.turning_batch or 1) > 1:
            batch = quotes(f"{phase}.turning_batch", one.turning_batch or 1)
            devices = f", on {_devices(facts, quotes)} devices," * bool(facts.held)
            yield f"Of {STEPS[phase]} of such sequences computing limits most of the bound{devices} from a batch of {batch} on; below it, memory."
    found = facts.estimates.get("decode")
    if found is None:
        return
    document = _document(facts, "decode")
    cached = quotes("decode.cache_len", facts.point(document).get("cache_len", 0))
    with_each = f"With {cached} cached tokens each"
    if not found.memory.cache_bytes_per_token and found.memory.cache_bytes:  # states, whatever was read before
        size = Fraction(found.memory.cache_bytes) / facts.point(document).get("batch_size", 1)
        with_each = (
            f"With a state of {quotes.said('decode.state_bytes', round(size))} each, however long the context is"
        )
    turns, on = facts.served["decode"].turning_batch, f", on {_devices(facts, quotes)} devices," * bool(facts.held)
    if turns is not None:
        batch = quotes("decode.turning_batch", turns)
        yield f"{with_each}, computing limits most of a decode step's bound{on} from a batch of {batch} on; below it, memory."
    else:
        yield f"{with_each}, computing limits no more than about half of a decode step's bound{on} at any batch."
    yield from _in_batches(facts, quotes)
    use, at = facts.served["decode"].memory, facts.point(document)
    per_token, weights, batch_size = use.cache_bytes_per_token, use.weights_bytes, at.get("batch_size", 1)
    grown = (per_token or 0) * Fraction(at.get("cache_len", 0) + 1) * Fraction(batch_size)
    whose = (
        "a device's cache takes more memory than its weights"
        if facts.held
        else "the cache takes more memory than the weights"
    )
    if per_token and use.cache_bytes > grown:  # a part that does not grow: states, keys of what an encoder read
        each_holds = Fraction(use.cache_bytes) / batch_size
        many = quotes("decode.outweighing_batch", math.ceil(weights / each_holds))
        most = use.largest_batch
        beyond = ", more than fit," if most is not None and most * each_holds < weights else ""
        yield f"From {many} sequences like these on{beyond} {whose}."
    elif per_token and not sliding_window(facts):
        tokens = quotes("decode.cache_passes_weights", math.ceil(weights / per_token))
        each = quotes.said("decode.cache_per_token", per_token)
        beyond = (
            ", more than fit beside them" if weights > use.usable_bytes - use.needed_bytes + use.cache_bytes else ""
        )
        yield f"From {tokens} cached tokens on, of all sequences together{beyond}, {whose} ({each} a token)."


def _in_batches(facts: ImplementationFacts, quotes: Quotes) -> Iterator[str]:
    """How long decode steps of more sequences take, and what that gives."""
    points = facts.batches
    if not points:
        return
    known = all(point.calibrated_seconds is not None for point in points)
    told = []
    for point in points:
        key, took = (
            f"decode.time.of_{point.batch}",
            (point.calibrated_seconds if known else None) or point.bound_seconds,
        )
        many = quotes(f"decode.of_{point.batch}.batch_size", point.batch)
        rate = quotes(f"{key}.tokens_per_second", round(float(f"{point.batch / took:.3g}")))
        told.append(
            f"{many} take {'' if known else 'at least '}{quotes.said(f'{key}.calibrated', took)} ({rate} tokens/s{'' if known else ' at most'})"
        )
    most = facts.served["decode"].memory.largest_batch
    last = ", the most that fit, with no room for longer ones" if points[-1].batch == most else ""
    yield f"Of more {units(facts, 'decode')} like these, in one {'modelled ' * known}step: {', '.join(told)}{last}."


def _unbuilt(facts: ImplementationFacts) -> str:
    """What other configurations build of the files that the model's classes are of, and this one does not."""
    built = {short(node.class_name) for node in facts.nodes}
    places = [place for node in facts.nodes if (place := facts.locate(node.class_name)) is not None]
    files = dict.fromkeys([facts.modeling_file, *(path for path, _ in places if facts.of_models(path))])
    told: dict[str, list[str]] = {}
    for one in (one for file in files for one in scan.unbuilt(facts.reader, file, built)):
        made = f"`{one.maker}` makes ({one.made.pointer}) where `{in_code(one.made.text)}`"
        told.setdefault(f"`{one.made.name}` (`{one.made.path}:{one.defined}`)", []).append(made)
    named = [f"{name}, which {' and '.join(makers)}" for name, makers in told.items()]
    return f"This configuration builds no {'; no '.join(named)}." if named else ""


def _decoded_otherwise(facts: ImplementationFacts) -> str:
    """That `generate` decodes with other kernels than a call of the forward runs."""
    found = facts.reader.definition(_GENERATION, "_optimize_model_for_decode")
    grouped = [
        d for d in facts.documents if d.phase == "decode" and any("grouped_mm" in g.name for g in d.per_operator)
    ]
    if found is None or not grouped:
        return ""
    copied = _copied(facts, grouped[0])
    return (
        "Decode is the forward as it is called; on other devices than the CPU `generate` decodes with the experts' weights copied for each token "
        f"(`batched_mm` for `grouped_mm`, `{_GENERATION}:{found.line}`): {copied} written and read again, which the forward as called does not; times, as engines run it, do not depend on it."
    )


def _copied(facts: ImplementationFacts, decode: ModelAnalysis) -> str:
    """The bytes of the weights of each row's expert, a copy for each; `more bytes are` where a size is not known."""
    values, total = facts.point(decode), 0
    for _, kernel in leaves(decode):
        if "grouped_mm" not in kernel.operator or len(kernel.inputs) < 2:
            continue
        sizes = (kernel.inputs[0].shape[0], *kernel.inputs[1].shape[1:])
        if "?" in sizes:
            return "more bytes are"
        elements = math.prod(evaluate(size, values) for size in sizes)
        total += evaluate(f"({kernel.repeat}) * {{w_bytes}}", values) * elements
    return f"{plain_bytes(total)} more are" if total else "more bytes are"


def _left_out(facts: ImplementationFacts) -> Iterator[str]:
    yield from map(in_code, facts.idle)
    if told := _unbuilt(facts):
        yield told
    if told := _decoded_otherwise(facts):
        yield told
    missing = dict.fromkeys(text for document in facts.documents for text in document.not_counted)
    if missing:
        yield f"Not counted: {'; '.join(in_code(text) for text in missing)}."
    for note in facts.notes:
        if "not reported: " in note or "no time: " in note or "cached latents" in note:
            yield in_code(note)
    if facts.dense_experts:
        yield (
            "As the source does, every expert runs on every token, those that were not chosen on zeros: costs and times are those of all. An engine with kernels "
            "for routed tokens computes, and of few tokens reads, the chosen ones alone."
        )
    if any(found.totals.calibrated_seconds is not None for found in facts.estimates.values()):
        chooses = ", to choose tokens" if any(document.phase == "decode" for document in facts.documents) else ""
        yield f"What the host takes to start kernels{chooses} and to schedule is in no time; what CUDA, communication and captured graphs keep for themselves in no memory."
