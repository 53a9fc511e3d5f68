"""What a checkpoint's `quantization_config` says: in which format which weights are stored, and which are left alone.

Torch-free. `scheme_of` reads the config; a `Scheme` answers for one module of a model, by its path and class, and `Format`
says how many bytes its elements and their scales take. A method that is not known here is no error: `Scheme.unread` says so, and
the weights count as they are without it.

Formats, each as its own project stores it (bytes per element; then what lies beside them):
  fp8            1; fp32 per tensor, or per block of weight_block_size, ragged blocks whole; with static activations or from
                 ModelOpt one more fp32 per tensor for the activations; with expert_dtype fp4, experts take 1/2 and per 32
                 inputs an 8-bit exponent (scale_fmt ue8m0), else fp32
  fbgemm_fp8     1; fp32 per output
  mxfp4          1/2; an 8-bit exponent per 32 inputs
  nvfp4          1/2; an fp8 scale per 16 inputs, two fp32 per tensor
  gptq, awq      bits/8; an fp16 scale and a zero point of as many bits per group of inputs and output; with desc_act a 32-bit
                 index per input
  pack-quantized bits/8; a 16-bit scale (and a zero point where not symmetric) per group and output, the shape (two int64)
  int8           1; 16 bits per output (compressed-tensors), fp32 per output (bitsandbytes)
  bitsandbytes 4 1/2; per 64 elements fp32, or one byte where scales are quantised again, and then fp32 per 256 of these
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from opscope_schemas.formula import Formula

#: of one name of modules: characters, and parts that may stand for any text
_LONGEST = 300
_MOST_REPEATS = 4
#: what is left alone where a config does not say: the head, as transformers' own quantisers do
_HEAD = ("lm_head",)
#: bytes per element of a cache, by what configs call its format
_CACHES = {"fp8": Fraction(1), "fp8_e4m3": Fraction(1), "fp8_e5m2": Fraction(1), "8": Fraction(1), "int8": Fraction(1),
           "nvfp4": Fraction(1, 2), "4": Fraction(1, 2), "int4": Fraction(1, 2)}  # fmt: skip
#: projections of one expert, as published checkpoints name them where transformers stores all experts as one tensor
_OF_EXPERT = ("gate_proj", "up_proj", "down_proj", "w1", "w2", "w3", "gate_up_proj", "linear_fc1")


@dataclass(frozen=True)
class Format:
    """How a weight of (outputs, inputs) is stored."""

    name: str
    #: bytes per element
    element: Fraction
    #: outputs and inputs that share a scale; 0: all of them
    block: tuple[int, int] = (0, 0)
    #: bytes of a scale, with its zero point
    scale: Fraction = Fraction(4)
    #: bytes per tensor and per input beside that
    tensor: int = 0
    per_input: int = 0
    #: elements in their order that share a scale, instead of a block; and how many scales share another of 4 bytes
    flat: int = 0
    nested: int = 0

    def scales(self, outputs: Formula, inputs: Formula) -> Formula:
        """How many scales a tensor has; ragged blocks have one of their own."""
        if self.flat:
            return (outputs * inputs).ceildiv(self.flat)
        rows, columns = self.block
        return (outputs.ceildiv(rows) if rows else Formula.const(1)) * (
            inputs.ceildiv(columns) if columns else Formula.const(1)
        )

    def beside(self, outputs: Formula, inputs: Formula) -> Formula:
        """Bytes per tensor beside elements and scales."""
        found = Formula.const(self.tensor) + self.per_input * inputs
        return found + 4 * self.scales(outputs, inputs).ceildiv(self.nested) if self.nested else found


@dataclass(frozen=True)
class Rule:
    """Modules that these targets name are stored in the format; `experts_only`: nothing else is."""

    format: Format
    targets: tuple[str, ...] = ("Linear",)
    experts_only: bool = False


@dataclass(frozen=True)
class Scheme:
    """A whole quantization_config. `kv` names the cache's format where it is said; `unread` why nothing was read."""

    method: str
    rules: tuple[Rule, ...] = ()
    left_alone: tuple[str, ...] = ()
    kv: str = ""
    unread: str = ""

    def format_of(self, path: str, *, expert: bool) -> Format | None:
        """The format of a linear layer, or of a tensor of experts, at a path of the model; None where it is left alone."""
        names = _names(path, expert=expert)
        if any(self._spares(name) for name in names):
            return None
        for rule in self.rules:
            if rule.experts_only and not expert:
                continue
            if any(
                target in ("Linear", "FusedMoE") or _matches(target, name) for target in rule.targets for name in names
            ):
                return rule.format
        return None

    def cache_element(self) -> Fraction | None:
        """Bytes per element of the KV cache; None where the config says nothing of it, or nothing that is known here."""
        return _CACHES.get(self.kv)

    def _spares(self, name: str) -> bool:
        return any(match(name) for match in self._matchers)

    @cached_property
    def _matchers(self) -> list[Callable[[str], bool]]:
        return [_matcher(pattern) for pattern in dict.fromkeys(self.left_alone)]


def _matcher(pattern: str) -> Callable[[str], bool]:
    expression = re.compile(_expression(pattern))
    return lambda name: name == pattern or name.endswith(f".{pattern}") or expression.match(name) is not None


def _names(path: str, *, expert: bool) -> list[str]:
    """The path as the published checkpoint may call it: other roots, experts one by one."""
    found = [path]
    if path.startswith("model.language_model."):
        found.append("model." + path.removeprefix("model.language_model."))
        found.append("language_model.model." + path.removeprefix("model.language_model."))
    elif path.startswith("model."):
        found += ["language_model." + path, "model.language_model." + path.removeprefix("model.")]
    if expert:
        found += [f"{name}.0.{projection}" for name in list(found) for projection in _OF_EXPERT]
    return found


def _expression(pattern: str) -> str:
    """A name of a module, with `*` for anything, or after `re:` an expression; what is below it counts too."""
    if pattern.startswith("re:"):
        return pattern[3:]
    return "".join(".*" if part == "*" else re.escape(part) for part in re.split(r"(\*)", pattern)) + r"(\.|$)"


def _matches(target: str, name: str) -> bool:
    return name == target or re.match(_expression(target), name) is not None


# ---------------------------------------------------------------- reading


def scheme_of(config: object) -> Scheme | None:
    """The scheme that a quantization_config describes; None where there is none."""
    if not isinstance(config, Mapping) or not config:
        return None
    method = str(config.get("quant_method") or ("modelopt" if "quant_algo" in config else "")).lower().replace("_", "-")
    read = _METHODS.get(method)
    try:
        found = read(config) if read is not None else None
        if found is not None:
            _check_patterns((*found.left_alone, *(target for rule in found.rules for target in rule.targets)))
    except (TypeError, ValueError, KeyError, ZeroDivisionError, re.error):
        found = None
    if found is None:
        said = method if len(method) < 40 else "unknown"
        return Scheme(said, unread=f"The checkpoint is quantised ({said or 'no method is named'}) in a way whose bytes are not "
                                   "known here: its weights are counted as unquantised.")  # fmt: skip
    return found


def _check_patterns(patterns: Sequence[str]) -> None:
    """Raises `ValueError` for a name of modules that could take long to look for: expressions come from whoever wrote the config."""
    for pattern in patterns:
        plain = pattern.removeprefix("re:")
        if len(pattern) > _LONGEST or len(re.findall(r"[*+{]", plain)) > _MOST_REPEATS or re.search(r"\)[*+{?]", plain):
            raise ValueError(pattern)
        re.compile(_expression(pattern))


def _listed(config: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    return tuple(str(item) for name in names for item in config.get(name) or ())


def _fp8(config: Mapping[str, Any]) -> Scheme:
    block = config.get("weight_block_size")
    static = config.get("activation_scheme") == "static"
    if block:
        rows, columns = map(int, block)
        kind = Format(f"fp8 in blocks of {rows} x {columns}", Fraction(1), (rows, columns))
    else:
        kind = Format("fp8 per tensor", Fraction(1), tensor=4 if static else 0)
    rules: tuple[Rule, ...] = (Rule(kind),)
    if config.get("expert_dtype") == "fp4":
        scale = Fraction(1) if config.get("scale_fmt") == "ue8m0" else Fraction(4)
        rules = (Rule(Format("fp4 in groups of 32", Fraction(1, 2), (1, 32), scale), experts_only=True), *rules)
    return Scheme("fp8", rules, (*_listed(config, "modules_to_not_convert", "ignored_layers"), *_HEAD))


def _fbgemm(config: Mapping[str, Any]) -> Scheme:
    kind = Format("fp8 per output", Fraction(1), (1, 0))
    return Scheme("fbgemm_fp8", (Rule(kind),), (*_listed(config, "modules_to_not_convert"), *_HEAD))


_MXFP4 = Format("mxfp4", Fraction(1, 2), (1, 32), Fraction(1))
_NVFP4 = Format("nvfp4", Fraction(1, 2), (1, 16), Fraction(1), tensor=8)


def _mxfp4(config: Mapping[str, Any]) -> Scheme:
    return Scheme("mxfp4", (Rule(_MXFP4, experts_only=True),), _listed(config, "modules_to_not_convert"))


def _packed(bits: int, group: int, *, scale: int = 2, zero: bool = True, **more: Any) -> Format:
    part = Fraction(scale) + (Fraction(bits, 8) if zero else 0)
    each = f"groups of {group}" if group > 0 else "outputs"
    return Format(f"int{bits} in {each}", Fraction(bits, 8), (1, max(group, 0)), part, **more)


def _gptq(config: Mapping[str, Any]) -> Scheme:
    kind = _packed(int(config["bits"]), int(config["group_size"]), per_input=4 if config.get("desc_act") else 0)
    spared = () if config.get("lm_head") else _HEAD
    return Scheme("gptq", (Rule(kind),), (*_listed(config, "modules_to_not_convert"), *spared))


def _awq(config: Mapping[str, Any]) -> Scheme:
    bits, group = int(config.get("bits") or config["w_bit"]), int(config.get("group_size") or config["q_group_size"])
    kind = _packed(bits, group, zero=bool(config.get("zero_point", True)))
    return Scheme("awq", (Rule(kind),), (*_listed(config, "modules_to_not_convert"), *_HEAD))


def _bitsandbytes(config: Mapping[str, Any]) -> Scheme:
    if config.get("load_in_4bit") or config.get("_load_in_4bit"):
        again = bool(config.get("bnb_4bit_use_double_quant"))
        kind = Format(
            f"{config.get('bnb_4bit_quant_type', 'fp4')} per 64 elements", Fraction(1, 2), scale=Fraction(1 if again else 4),
            flat=64, nested=256 if again else 0,
        )  # fmt: skip
    else:
        kind = Format("int8 per output", Fraction(1), (1, 0))
    return Scheme("bitsandbytes", (Rule(kind),), (*_listed(config, "llm_int8_skip_modules"), *_HEAD))


def _groups(config: Mapping[str, Any]) -> Scheme:
    """compressed-tensors, and ModelOpt where it names groups."""
    rules = []
    modelopt = "quant_algo" in config or config.get("quant_method") == "modelopt"
    for group in config["config_groups"].values():
        named = str(group.get("format") or config.get("format") or "")
        kind = _of_weights(group["weights"], named, modelopt=modelopt)
        rules.append(Rule(kind, tuple(group.get("targets") or ("Linear",))))
    rules.sort(key=lambda rule: "Linear" in rule.targets)  # names before the class
    cache = config.get("kv_cache_scheme")
    kv = (
        f"{'fp8' if cache.get('num_bits') == 8 else cache.get('num_bits')}"
        if isinstance(cache, Mapping)
        else str(cache or "")
    )
    spared = _listed(config, "ignore", "modules_to_not_convert", "exclude_modules")
    return Scheme("modelopt" if modelopt else "compressed-tensors", tuple(rules), spared, kv.lower())


def _of_weights(weights: Mapping[str, Any], named: str, *, modelopt: bool) -> Format:
    bits, kind = int(weights["num_bits"]), weights.get("type", "int")
    group, strategy = int(weights.get("group_size") or 0), weights.get("strategy") or ""
    if kind == "float" and bits == 4:
        return _MXFP4 if group == 32 or "mxfp4" in named else _NVFP4
    if kind == "float" and bits == 8:
        if weights.get("block_structure"):
            rows, columns = map(int, weights["block_structure"])
            return Format(f"fp8 in blocks of {rows} x {columns}", Fraction(1), (rows, columns))
        if strategy == "channel":
            return Format("fp8 per output", Fraction(1), (1, 0), Fraction(4))
        return Format("fp8 per tensor", Fraction(1), tensor=4 if modelopt else 0)
    if kind != "int" or bits not in (2, 3, 4, 8):
        raise ValueError(kind)
    packed = "pack" in named or bits < 8
    return _packed(bits, group, zero=not weights.get("symmetric", True), tensor=16 if packed else 0)


def _modelopt(config: Mapping[str, Any]) -> Scheme | None:
    if config.get("config_groups"):
        return _groups(config)
    kind = {"FP8": Format("fp8 per tensor", Fraction(1), tensor=4), "NVFP4": _NVFP4}.get(str(config.get("quant_algo")))
    spared = _listed(config, "exclude_modules", "ignore")
    kv = str(config.get("kv_cache_quant_algo") or "").lower()
    return Scheme("modelopt", (Rule(kind),), spared, kv) if kind is not None else None


_METHODS: Mapping[str, Callable[[Mapping[str, Any]], Scheme | None]] = {
    "fp8": _fp8, "fbgemm-fp8": _fbgemm, "mxfp4": _mxfp4, "gptq": _gptq, "awq": _awq, "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _groups, "modelopt": _modelopt,
}  # fmt: skip


def formats_used(found: Sequence[Format]) -> dict[Format, str]:
    """A name for each format of a class of weights: the plain one for the first, numbered from the second on."""
    return {kind: "" if at == 0 else f"_{at + 1}" for at, kind in enumerate(dict.fromkeys(found))}


__all__ = ["Format", "Rule", "Scheme", "formats_used", "scheme_of"]
