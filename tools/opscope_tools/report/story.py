"""Section 1's lines below its table (glance.py): what it is, what the figures of the table hold for, what turns, what was left out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from opscope_schemas.analysis import Kernel, ModelAnalysis, ModuleNode
from opscope_schemas.estimates import ROUTING_SKEW, UNLIKE, OperatorTime, RooflineResult
from opscope_schemas.formula import Rational, evaluate, variables
from opscope_schemas.units import plain_bytes, seconds, things

from opscope_tools.report import scan
from opscope_tools.report.attending import attention_kind, heads_by_class, parts_said
from opscope_tools.report.changes import STEPS, units
from opscope_tools.report.facts import ImplementationFacts, leaves, short, told_hidden
from opscope_tools.report.glance import devices_said
from opscope_tools.report.kinds import sliding_window, windowed
from opscope_tools.report.nodes import repeated, stages
from opscope_tools.report.overview import of_latents
from opscope_tools.report.purposes import shared_experts
from opscope_tools.report.quotes import Quotes, in_code, joined
from opscope_tools.report.unread import unread_said

__all__ = ["story"]

#: of a pass's bytes the floor, from which on nothing else counts much
_MOSTLY = 0.8
#: settings by which scores are kept in a range -> of what; the one that attention itself applies
_CAP = "attn_logit_softcapping"
_CAPS = {_CAP: "attention scores", "final_logit_softcapping": "logits"}
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
        ("How long it takes and what fits", [*_times(facts, quotes), _fits(facts)]),
        ("What turns", list(_turns(facts, quotes))),
        ("Left out", list(_left_out(facts))),
    )
    return [f"**{title}:** {' '.join(said)}" for title, texts in answers if (said := [text for text in texts if text])]


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
    if held := [] if facts.within else stages(facts.tree.tree):
        count = sum(one.repeat for stage in held for one in stage)
        return f"{quotes('layers', count)} layers in {quotes('layers.stages', len(held))} {things(len(held), 'stage')}"
    layers = values.get("num_layers", config.get("num_hidden_layers"))
    told = not facts.within or any("num_layers" in variables(k.repeat) for k in facts.main.kernels)
    return (
        f"{quotes('layers', layers)} {things(layers, 'layer')}" if isinstance(layers, int) and layers and told else ""
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
    """What is to be said of the figures of a pass; empty where they say all."""
    values = facts.point(document)
    said = f"{_above_diagonal(document, values, quotes)}{_at_once(document, values, quotes)}{_placed(document, values, quotes)}{_steps(document, values, quotes)}{unread_said(facts, document, quotes)}".strip()
    return f"{document.phase.capitalize()}: {said[0].lower()}{said[1:]}" if said else ""


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


def _placed(document: ModelAnalysis, values: Mapping[str, Rational], quotes: Quotes) -> str:
    """How many of the tokens are given as features of something else, an image as a rule, and where these take their places."""
    for _, kernel in leaves(document):
        if ".masked_scatter" in kernel.operator and len(kernel.inputs) > 2:
            sizes = kernel.inputs[2].shape[:-1]
            widths = [each.shape[-1] for each in (kernel.inputs[0], kernel.inputs[2])]
            if sizes and all(variables(size) <= values.keys() for size in (*sizes, *widths)):
                told = math.prod(evaluate(size, values) for size in sizes)
                of_token, of_feature = (evaluate(width, values) for width in widths)
                many, at = quotes(f"{document.phase}.placed", told), f"`{kernel.file}:{kernel.line}`"
                if of_token == of_feature:
                    return f" {many} of its tokens are features, which take their places at {at}."
                narrow, wide = (
                    quotes(f"{document.phase}.{name}_size", size)
                    for name, size in (("feature", of_feature), ("token", of_token))
                )
                return f" {many} features of {narrow} numbers are to take the places of tokens of {wide} at {at}: this configuration's widths do not fit each other, and a pass with as many such tokens does not run."
    return ""


def _at(kernel: Kernel) -> tuple[object, ...]:
    """The operator, and the lines on which it is reached."""
    return kernel.operator, kernel.file, kernel.line, kernel.via


def _times(facts: ImplementationFacts, quotes: Quotes) -> Iterator[str]:
    """What the times of the table are, and rest on."""
    if not facts.served:
        return
    found = next(iter(facts.served.values()))
    where = f"{devices_said(facts, quotes)} {found.hardware.name}"
    measured = any(one.totals.calibrated_seconds is not None for one in facts.served.values())
    ranges = ", in brackets their range" * measured
    yield (
        f"As engines run it, on {where}: times are the sum of a pass's kernels, none waiting for the host{ranges}; the bound has each of its "
        "kernels at the peaks of the device."
    )
    yield from (text for phase in facts.served if (text := _cached(facts, phase, facts.served[phase])))
    yield from filter(None, [_fewest(facts), _timed_as(facts)])


def _cached(facts: ImplementationFacts, phase: str, found: RooflineResult) -> str:
    """What of the bound's bytes may never reach device memory; empty where that is little, or more than the cache holds."""
    kept, cache = found.memory.activation_bytes, found.hardware.l2_bytes
    floor = facts.floor_bytes(facts.document_of(phase))
    if found.parallel is not None or not kept or not cache or kept > cache or floor > _MOSTLY * found.totals.bytes:
        return ""
    return (
        f"What kernels of {phase} hand one another, {plain_bytes(kept)} at once, fits in the L2 cache of {plain_bytes(cache)}: what stays there is not "
        f"read from memory, as the bound has it; the floor alone, {plain_bytes(floor)}, is read in {seconds(floor / found.hardware.bandwidth)}."
    )


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
    """What attention does to its scores that the measured kernels do not: a tensor that it adds, such as a bias by distance, and a cap."""
    classes = dict.fromkeys(
        short(owner)
        for document in facts.documents
        for owner, kernel in leaves(document)
        if "sdpa" in kernel.operator and any("float" in given.dtype for given in kernel.inputs[3:])
    )
    if "attention" not in timed:
        return ""
    added = [
        f"A tensor that {joined(f'`{name}`' for name in classes)} adds to its scores is read by none of these kernels"
    ] * bool(classes)
    capped = [f"the cap on {_CAPS[_CAP]} (`{_CAP}`) is in none of them"] * bool(facts.tree.config.get(_CAP))
    said = joined([*added, *capped])
    return f" {said[0].upper()}{said[1:]}: attention may take longer." if said else ""


def _as_products(rows: Sequence[OperatorTime], bandwidth: float) -> str:
    """What each kernel of `rows` is given of measured products: a fixed time, and a share of the device's bandwidth."""
    most = max(rows, key=lambda row: row.bytes / row.count)
    launch, took = most.launch_seconds or 0.0, most.calibrated_seconds or 0.0
    if took <= launch:
        return ""
    share = 100 * most.bytes / (took - launch) / bandwidth
    return f", at {share:.0f} % of the bandwidth after {seconds(launch / most.count)} for each of them, as measured products have it"


def _fits(facts: ImplementationFacts) -> str:
    """What the memory of the table is."""
    use = next((found.memory for found in facts.estimates.values()), None)
    if use is None:
        return ""
    share = f"{100 * use.usable_bytes / use.capacity_bytes:.0f} % of the {plain_bytes(use.capacity_bytes)} that a device has"
    freed = "; activations are those of the pass as engines run it, each freed after its last reader" * (
        use.activation_bytes is not None
    )
    return f"Engines use {plain_bytes(use.usable_bytes)}, {share}{freed}."


def _turns(facts: ImplementationFacts, quotes: Quotes) -> Iterator[str]:
    for phase, one in facts.served.items():
        if phase != "decode" and (one.turning_batch or 1) > 1:
            batch = quotes(f"{phase}.turning_batch", one.turning_batch or 1)
            devices = f", on {devices_said(facts, quotes)} devices," * bool(facts.held)
            yield f"Of {STEPS[phase]} of such {units(facts, phase)} computing limits most of the bound{devices} from a batch of {batch} on; below it, memory."
    if facts.growing != "decode":
        yield from _in_batches(facts, quotes)
    found = facts.estimates.get("decode")
    if found is None:
        return
    document = facts.document_of("decode")
    cached = quotes("decode.cache_len", facts.point(document).get("cache_len", 0))
    with_each = f"With {cached} cached tokens each"
    if not found.memory.cache_bytes_per_token and found.memory.cache_bytes:  # states, whatever was read before
        size = Fraction(found.memory.cache_bytes) / facts.point(document).get("batch_size", 1)
        with_each = (
            f"With a state of {quotes.said('decode.state_bytes', round(size))} each, however long the context is"
        )
    turns, on = facts.served["decode"].turning_batch, f", on {devices_said(facts, quotes)} devices," * bool(facts.held)
    if turns is not None:
        batch = quotes("decode.turning_batch", turns)
        yield f"{with_each}, computing limits most of a decode step's bound{on} from a batch of {batch} on; below it, memory."
    else:
        yield f"{with_each}, computing limits most of a decode step's bound{on} at no batch."
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
    """How long passes of more sequences or images take, and what that gives."""
    phase, points = facts.growing, [(int(one.values["batch_size"]), one.totals) for one in facts.batched]
    if not points:
        return
    known = all(totals.calibrated_seconds is not None for _, totals in points)
    per = "tokens" if phase == "decode" else units(facts, phase)
    told = []
    for batch, totals in points:
        key = f"{phase}.time.of_{batch}"
        took = (totals.calibrated_seconds if known else None) or totals.bound_seconds
        many = quotes(f"{phase}.of_{batch}.batch_size", batch)
        rate = quotes(f"{key}.{per}_per_second", round(float(f"{batch / took:.3g}")))
        told.append(
            f"{many} take {'' if known else 'at least '}{quotes.said(f'{key}.calibrated', took)} ({rate} {per}/s{'' if known else ' at most'})"
        )
    most = facts.served[phase].memory.largest_batch
    last = (
        f", the most that fit{', with no room for longer ones' * (phase == 'decode')}" if points[-1][0] == most else ""
    )
    step = "step" if phase == "decode" else "pass"
    yield f"Of more {units(facts, phase)} like these, in one {'modelled ' * known}{step}: {', '.join(told)}{last}."


def _unbuilt(facts: ImplementationFacts) -> str:
    """What other configurations build of the files that the model's classes are of, and this one does not."""
    built: dict[str, set[str]] = {}
    for node in facts.nodes:
        built.setdefault(short(node.class_name), set()).update(child.name for child in node.children)
    places = [place for node in facts.nodes if (place := facts.locate(node.class_name)) is not None]
    files = dict.fromkeys([facts.modeling_file, *(path for path, _ in places if facts.of_models(path))])
    told: dict[str, list[str]] = {}
    for one in (one for file in files for one in scan.unbuilt(facts.reader, file, built)):
        held = one.defined == one.made.line  # a module of the library, by attribute
        named = (
            f"`{one.made.name}` of `{one.maker}`" if held else f"`{one.made.name}` (`{one.made.path}:{one.defined}`)"
        )
        where = f"({one.made.pointer}) where `{in_code(one.made.text)}`"
        told.setdefault(named, []).append(where if held else f"which `{one.maker}` makes {where}")
    said = [
        f"{name}{', ' if makers[0].startswith('which') else ' '}{' and '.join(makers)}" for name, makers in told.items()
    ]
    return f"This configuration builds no {'; no '.join(said)}." if said else ""


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


def _without_rows(facts: ImplementationFacts) -> Iterator[str]:
    """Tokens that the configuration names and a table of tokens of its own size has no row for."""
    parts = (facts.tree.config, facts.tree.config.get("text_config"))
    rows = next((part["vocab_size"] for part in parts if isinstance(part, Mapping) and "vocab_size" in part), None)
    if not isinstance(rows, int):
        return
    named = {name: value for name, value in facts.tree.config.items() if re.fullmatch(r"\w*token_(id|index)", name)}
    for name, value in named.items():
        if isinstance(value, int) and value >= rows:
            yield f"`{name}` = {value:,} is beyond the {rows:,} rows of `vocab_size`: where that token is looked up in a table of so many, such a prompt does not run as configured."


def _left_out(facts: ImplementationFacts) -> Iterator[str]:
    yield from map(in_code, facts.idle)
    yield from _without_rows(facts)
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
