"""A cost document held against concrete runs: the same model, built with real integers and run on real shapes.

`compare` asks `count_flops` for a model type's formulas, evaluates them at points where sizes that could be confused
differ, and has the independent reference (trace_reference.py, cost_walk.py) run and count the model at each point. What
the model is called with comes from the document, which states it; nothing else does.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any

import torch
import trace_reference as reference
from cost_walk import NoRuleError
from opscope_schemas.analysis import ModuleAnalysisResult
from opscope_schemas.errors import ConfigError, OpscopeError
from opscope_schemas.formula import Rational, evaluate
from opscope_schemas.notes import OF_MORE, OWN_TRACE
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.document import assignment
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.auto import configuration_auto

#: depths are cut to this, so that concrete runs cost little
DEPTH = 3
#: a run on the CPU may hold this many weights
_WEIGHTS, _SMALL = 250_000_000, 30_000_000
_CACHES = ("past_key_values", "cache_params", "state", "mems")
_RUN = ("batch_size", "seq_len", "cache_len", "encoder_seq_len")
_DEPTHS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers",
           "num_decoder_layers", "num_encoder_layers", "depth")  # fmt: skip


class LargeError(RuntimeError):
    """A concrete run at a point would take too much; that says nothing about the point."""


@dataclass
class Outcome:
    """What was found for one type and phase: `state` is exact, inexact, incomplete, refused, unreferenced."""

    model_type: str
    phase: str
    state: str = ""
    traced: str = ""
    notes: list[str] = field(default_factory=list)
    points: int = 0
    retraced: int = 0
    kinds: dict[str, str] = field(default_factory=dict)
    not_counted: tuple[str, ...] = ()

    def line(self) -> str:
        fixed = [n for n, kind in self.kinds.items() if kind == "fixed"]
        parts = [f"{self.points} points", f"{self.retraced} traced anew" if self.retraced else "", *self.notes]
        if fixed:
            parts.append(f"fixed: {', '.join(fixed)}")
        if self.not_counted:
            parts.append(f"not counted: {self.not_counted[0][:90]}")
        return f"{self.model_type:28} {self.phase:8} {self.state:12} {'; '.join(p for p in parts if p)}"


#: widths and counts of a narrow model, for the fields that a config has and that are larger there
_NARROW = {
    "intermediate_size": 112, "moe_intermediate_size": 48, "ffn_dim": 112, "n_inner": 112, "d_ff": 112, "encoder_ffn_dim": 112,
    "decoder_ffn_dim": 104, "ffn_hidden_size": 96, "mlp_dim": 112, "num_local_experts": 8, "num_experts": 8,
    "n_routed_experts": 8, "n_group": 2, "topk_group": 2, "q_lora_rank": 24, "kv_lora_rank": 20, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12, "v_head_dim": 16, "first_k_dense_replace": 1, "shared_expert_intermediate_size": 40,
    "num_experts_per_tok": 2, "vocab_size": 999, "max_position_embeddings": 512, "head_dim": 16,
}  # fmt: skip
_HEADS = ("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads")
_WIDTHS = ("hidden_size", "n_embd", "d_model", "embed_dim")


def narrow(config: Any) -> dict[str, Any]:
    """Overrides that make a config's layers narrow: heads stay, each is 16 wide."""
    held = vars(config)
    chosen: dict[str, Any] = {n: v for n, v in _NARROW.items() if type(held.get(n)) is int and held[n] > v}
    heads = next((held[n] for n in _HEADS if type(held.get(n)) is int), 0)
    for name in _WIDTHS:
        if heads and type(held.get(name)) is int and held[name] > 16 * heads:
            chosen[name] = 16 * heads
    if "vocab_size" in chosen:
        chosen.update({n: 1 for n in held if n.endswith("token_id") and type(held[n]) is int and held[n] >= 999})
    for name, value in held.items():
        if hasattr(value, "to_dict"):
            chosen.update({f"{name}.{key}": v for key, v in narrow(value).items()})
    return chosen


def overrides(model_type: str) -> dict[str, Any]:
    """Of a small model: cut and narrow where the reference builds that, else cut alone."""
    config_class = configuration_auto.CONFIG_MAPPING[model_type]
    cut = shallow(model_type)
    return {**cut, **narrow(config_class())}


def shallow(model_type: str) -> dict[str, Any]:
    """Overrides that cut the depths of a type's default config, also of its parts; empty where it has none to cut."""
    config = configuration_auto.CONFIG_MAPPING[model_type]()
    return _cut(config)


def _cut(config: Any) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    mapped = set(getattr(type(config), "attribute_map", {}))
    for name, value in vars(config).items():
        if name in _DEPTHS and name not in mapped and type(value) is int and value > DEPTH:
            chosen[name] = DEPTH
        elif hasattr(value, "to_dict") and (inner := _cut(value)):
            chosen.update({f"{name}.{key}": v for key, v in inner.items()})
    return chosen


def _own_defaults(part: Any) -> dict[str, Any]:
    """What the default config gives to one of its parts, where that is no default of the part's own class."""
    usual = type(part)().to_dict()
    given = {k: v for k, v in part.to_dict().items() if v != usual.get(k) and k not in ("stage_names", "out_indices")}
    return {**given, "model_type": part.model_type}


def concrete(config_class: Any, paths: dict[str, Any]) -> Any:
    """A config of that class with the values at the (dotted) paths."""
    nested: dict[str, Any] = {}
    base = config_class()
    for path, value in paths.items():
        holders, here, part = path.split(".")[:-1], nested, base
        for key in holders:
            part = getattr(part, key)
            here = here.setdefault(key, _own_defaults(part))
        here[path.rpartition(".")[2]] = value
    return config_class(**copy.deepcopy(nested))


# ---------------------------------------------------------------- running


def _tensor(given: Any, values: Mapping[str, Rational], device: str) -> Any:
    if given.data is not None:
        return torch.tensor(given.data, device="cpu" if device == "meta" else device)
    shape = [evaluate(size, values) for size in given.shape]
    dtype = getattr(torch, given.dtype)
    return torch.ones(shape, dtype=dtype, device=device)


def _cache_of(result: Any) -> dict[str, Any]:
    return next(({name: held} for name in _CACHES if (held := getattr(result, name, None)) is not None), {})


def prepared(model: Any, document: Any, filling: Any, values: Mapping[str, Rational]) -> Callable[[], None]:
    """One recorded pass, its cache filled before by the prefill that `filling` documents."""
    device = model.device.type
    arguments = {i.name: _tensor(i, values, device) for i in document.model_inputs}
    extra = {"use_cache": True} if document.phase in ("prefill", "decode") else {}
    if document.phase == "decode":
        before = {i.name: _tensor(i, {**values, "seq_len": values["cache_len"]}, device) for i in filling.model_inputs}
        with torch.no_grad():
            result = model(**before, **extra)
        arguments.update(_cache_of(result))
        states = getattr(result, "encoder_last_hidden_state", None)
        if states is not None:
            arguments["encoder_outputs"] = BaseModelOutput(last_hidden_state=states)
    called = model.get_encoder() if document.phase == "encode" else model
    return lambda: called(**arguments, **extra)


def walked(document: Any, filling: Any, config: Any, values: Mapping[str, Rational]) -> Any:
    """The reference's walk of one concrete run."""
    recipe = reference.Recipe(document.model_class, config, document.attention)

    def attempt(device: str) -> Any:
        model = reference.build(recipe, device, getattr(torch, document.dtype))
        held = set(map(id, model.modules()))
        walk = reference.walked(prepared(model, document, filling, values))
        if set(map(id, model.modules())) - held:  # layers that a first pass makes, with weights, are there in the next
            walk = reference.walked(prepared(model, document, filling, values))
        return walk

    weights = sum(p.numel() for p in reference.build(recipe, "meta").parameters())
    if weights < _SMALL:  # the meta device's strides are not always those of a kernel
        return attempt("cpu")
    try:
        return attempt("meta")
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        if weights > _WEIGHTS:
            raise LargeError(f"{weights:,} weights are too many for a run with data; without: {error}") from error
        return attempt("cpu")


# ---------------------------------------------------------------- points


def points(document: Any, draw: random.Random, count: int, run: dict[str, int]) -> Iterator[dict[str, int]]:
    """Values for the document's symbols: run-time sizes as given, else at random, config sizes at multiples of their defaults."""
    for turn in range(count):
        chosen = {name: draw.randint(2, 7) for name in _RUN} | run
        if turn % 2 == 0:  # every other keeps the config
            for v in document.variables:
                if v.config_key and v.kind == "symbol" and v.default and draw.random() < 0.5:
                    chosen[v.name] = v.default * draw.choice((2, 3)) if draw.random() < 0.7 else max(1, v.default // 2)
        yield {n: x for n, x in chosen.items() if any(n == v.name for v in document.variables)}


def _concretely(
    document: Any,
    filling: Any,
    config_class: Any,
    base: dict[str, Any],
    values: Mapping[str, Rational],
    given: dict[str, str],
) -> Any:
    """The reference at a point; the error where the model itself refuses the point. `given` are the fields to set."""
    changed = {key: values[name] for name, key in given.items() if name in values}
    try:
        return walked(document, filling, concrete(config_class, {**base, **changed}), values)
    except NoRuleError:
        raise
    except Exception as error:
        return error


def filling_at(document: Any, given: Mapping[str, Rational], ask: Callable[[dict[str, Rational]], Any]) -> Any:
    """The prefill that fills the cache of a decode pass at a point: asked for anew where its inputs hold numbers."""
    there = {**given, "seq_len": given["cache_len"]}
    wanted = {v.name: there[v.name] for v in document.variables if v.name in there}
    if any(v.kind == "fixed" and wanted.get(v.name, v.default) != v.default for v in document.variables):
        return ask(wanted).document
    return document


def _whole(values: Mapping[str, int | Fraction]) -> dict[str, int]:
    """Nothing is quantised here, so every value is a whole number."""
    return {name: int(value) for name, value in values.items()}


def compare(
    model_type: str,
    phase: Any,
    context: ToolContext,
    *,
    count: int = 2,
    tries: int = 4,
    run: dict[str, int] | None = None,
) -> Outcome:
    """Formulas of one type and phase against `count` concrete runs, with the sizes of the call that are given."""
    draw, outcome = random.Random(f"{model_type} {phase}"), Outcome(model_type, phase)
    base = overrides(model_type)
    config_class = configuration_auto.CONFIG_MAPPING[model_type]

    def ask(phase: Any, values: Mapping[str, Rational] | None = None) -> ModuleAnalysisResult:
        return count_flops(CostArguments(target=model_type, phase=phase, config=base, values=values), context)

    try:
        try:
            result = ask(phase)
        except OpscopeError as error:
            if not base or "no decode phase" in error.message:
                raise
            try:
                base = shallow(model_type)  # as wide as the class has it
                result = ask(phase)
            except OpscopeError:
                base = {}  # kinds of layers that stand only deeper
                result = ask(phase)
        filling = ask("prefill").document if phase == "decode" else None
    except OpscopeError as error:
        outcome.state = "no cache" if "no decode phase" in error.message else "refused"
        outcome.notes = [str(error)[:200]] if outcome.state == "refused" else []
        return outcome
    document, before = result.document, filling
    own = getattr(reference.imported(document.model_class), "config_class", None)
    if own in getattr(config_class, "sub_configs", {}).values():
        config_class = own  # a model of the text alone is made from that part of the config
    outcome.traced = document.phase
    outcome.kinds, outcome.not_counted = {v.name: v.kind for v in document.variables}, document.not_counted
    for given in points(document, draw, count * tries, run or {}):
        if outcome.points == count:
            break
        fields = {v.name: v.config_key for v in document.variables if v.config_key and v.name in given}
        try:
            found = ask(phase, given)
            if before is not None:
                filling = filling_at(before, given, partial(ask, "prefill"))
        except ConfigError:  # the config class itself refuses the point
            continue
        except OpscopeError as error:
            there = _whole(assignment(document.variables, given))
            if isinstance(_concretely(document, filling, config_class, base, there, fields), Exception):
                continue  # the model does not run at the point either
            outcome.notes, outcome.state = [f"refused at {given}: {str(error)[:150]}"], "inexact"
            break
        values = _whole(assignment(found.document.variables, {n: x for n, x in given.items() if n in outcome.kinds}))
        walk = _concretely(found.document, filling, config_class, base, values, fields)
        if isinstance(walk, Exception):
            outcome.notes = (
                [f"no concrete run: {type(walk).__name__}: {' '.join(str(walk).split())[:110]}"]
                if not outcome.points
                else outcome.notes
            )
            continue
        outcome.points += 1
        outcome.retraced += any(note.endswith((OWN_TRACE, OF_MORE)) for note in found.notes)
        assert found.evaluated is not None
        ours = (
            found.evaluated.matmul_flops,
            found.evaluated.flops,
            found.evaluated.memory_read,
            found.evaluated.memory_write,
        )
        theirs = (walk.products, walk.flops, walk.read, walk.write)
        if ours != theirs:
            names = ("products", "flops", "read", "written")
            wrong = [f"{n} {a}, concretely {b}" for n, a, b in zip(names, ours, theirs, strict=True) if a != b]
            incomplete = found.document.not_counted  # and the document says so
            outcome.state, outcome.notes = "incomplete" if incomplete else "inexact", [*wrong, f"at {given}"]
            break
    outcome.state = outcome.state or ("exact" if outcome.points else "unreferenced")
    return outcome
