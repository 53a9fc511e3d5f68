"""Which weights of a built model the checkpoint stores quantised, and how many bytes they and their scales are.

The model runs unquantised; what a quantised weight takes is put in where an operator reads it. A weight's class is the
kind of module that it belongs to: a linear layer, or all experts of a layer as one tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from opscope_schemas.formula import Formula

from opscope_tools.trace.quantisation import Format, Scheme, formats_used, scheme_of
from opscope_tools.trace.worker.alike import first_of
from opscope_tools.trace.worker.fields import all_parts
from opscope_tools.trace.worker.sharing import SharedLayerError

#: the attribute that tells layers apart whose weights are stored otherwise
_MARK = "stored_as"
_MEANING = {"linear": "linear layers", "expert": "experts"}
Sizes = Callable[[Any], Formula]


@dataclass(frozen=True)
class Stored:
    """A weight: its class and format, which of its dimensions are outputs and inputs, and how many tensors of the checkpoint
    lie side by side in its outputs (the gate and the up projection)."""

    kind: str
    suffix: str
    format: Format
    outputs: int
    inputs: int
    parts: int = 1

    @property
    def element(self) -> Formula:
        return Formula.var(f"{self.kind}{self.suffix}_bytes")

    def beside(self, shape: tuple[Formula, ...]) -> Formula:
        """Bytes of the scales, and of what else lies beside the elements of a weight of this shape."""
        outputs, inputs = shape[self.outputs], shape[self.inputs]
        each = outputs.divided(Formula.const(self.parts)) or outputs
        rest = Formula.const(self.parts)
        for at, size in enumerate(shape):
            rest = rest * size if at not in (self.outputs, self.inputs) else rest
        scale = Formula.var(f"{self.kind}{self.suffix}_scale_bytes")
        return rest * (scale * self.format.scales(each, inputs) + self.format.beside(each, inputs))

    def variables(self) -> Iterator[tuple[str, str, Fraction]]:
        """Name, meaning and default of the variables that its bytes are written in."""
        of = f"of {_MEANING[self.kind]}, {self.format.name} as quantization_config says"
        yield f"{self.kind}{self.suffix}_bytes", f"bytes per weight element {of}", self.format.element
        yield f"{self.kind}{self.suffix}_scale_bytes", f"bytes per scale (with its zero point) {of}", self.format.scale


class StoredWeights:
    """The quantised weights of one model, by the memory that they lie in; `said` is what a reader must know of them."""

    def __init__(self, model: Any, config: Any) -> None:
        self.by_memory: dict[int, Stored] = {}
        self._shapes: dict[int, tuple[Any, ...]] = {}
        scheme = _scheme(config)
        self.said = _said(scheme)
        #: bytes per element of the KV cache, where the config asks for others than the model's
        self.cache = scheme.cache_element() if scheme is not None else None
        if scheme is not None and scheme.rules:
            self._mark(model, scheme)

    def _mark(self, model: Any, scheme: Scheme) -> None:
        kept = _left_alone(model)
        found = [
            (module, name, weight, kind, form)
            for path, module in model.named_modules()
            for name, weight, kind in _candidates(path, module)
            if weight.untyped_storage()._cdata not in kept
            and (form := scheme.format_of(path, expert=kind == "expert")) is not None
        ]
        self._check_copies(model, scheme)
        suffixes = {k: formats_used([form for *_, of, form in found if of == k]) for k in _MEANING}
        for module, name, weight, kind, form in found:
            outputs, inputs = _dimensions(module, kind)
            parts = 2 if kind == "expert" and "gate_up" in name else 1
            memory = weight.untyped_storage()._cdata
            self.by_memory[memory] = Stored(kind, suffixes[kind][form], form, outputs, inputs, parts)
            self._shapes[memory] = tuple(weight.shape)
            vars(module)[_MARK] = f"{kind} {form.name}"

    def _check_copies(self, model: Any, scheme: Scheme) -> None:
        """Raise where a layer that was not built, for being a copy of another, would be stored otherwise."""
        for path, copy in model.named_modules():
            first = first_of(copy)
            if first is copy:
                continue
            start = next(p for p, module in model.named_modules() if module is first)
            for below, module in first.named_modules():
                for _ in _candidates(below, module):
                    kind = not isinstance(module, torch.nn.Linear)
                    here, there = (f"{p}.{below}" if below else p for p in (path, start))
                    if scheme.format_of(here, expert=kind) != scheme.format_of(there, expert=kind):
                        raise SharedLayerError(f"The weights of {path} are stored otherwise than those of {start}.")

    def element(self, memory: int) -> Formula | None:
        """Bytes per element of the weight in that memory; None where it is not quantised."""
        found = self.by_memory.get(memory)
        return None if found is None else found.element

    def beside(self, memory: int, shape: tuple[Formula, ...], sizes: Sizes) -> Formula:
        """Bytes of scales that a view of a weight reads: those of the whole, or of as large a part as the view is."""
        whole = tuple(sizes(size) for size in self._shapes[memory])
        total, count, mine = self.by_memory[memory].beside(whole), Formula.const(1), Formula.const(1)
        for size in whole:
            count = count * size
        for size in shape:
            mine = mine * size
        if mine == count:
            return total
        exact = (total * mine).divided(count)
        return exact if exact is not None else (total * mine).ceildiv(count)

    def variables(self) -> dict[str, tuple[str, Fraction]]:
        """Name -> meaning and default, of every variable that the bytes are written in."""
        return {name: (said, value) for one in self.by_memory.values() for name, said, value in one.variables()}


def _candidates(path: str, module: Any) -> Iterator[tuple[str, Any, str]]:
    """The weights of a module that quantisers convert: of linear layers, and of experts in one tensor."""
    if isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D":
        yield "weight", module.weight, "linear"
    elif "experts" in path.rpartition(".")[2].lower() or "experts" in type(module).__name__.lower():
        for name, weight in module._parameters.items():
            if weight is not None and weight.dim() == 3:
                yield name, weight, "expert"


def _dimensions(module: Any, kind: str) -> tuple[int, int]:
    """Which dimensions are a weight's outputs and inputs: a linear layer has (outputs, inputs), experts may be transposed."""
    if kind == "linear":
        return (1, 0) if type(module).__name__ == "Conv1D" else (0, 1)
    turned = getattr(module, "is_transposed", None)
    if turned is None:  # the gate and up projections have the wider side as outputs
        fused = module._parameters.get("gate_up_proj")
        width = getattr(module, "hidden_size", None)
        turned = (
            fused is not None and width is not None and str(fused.shape[1]) == str(width)
        )  # symbols: compared, they would decide
    return (2, 1) if turned else (1, 2)


def _left_alone(model: Any) -> set[int]:
    """The memory of embeddings, which a tied head shares."""
    found = (m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding))
    return {weight.untyped_storage()._cdata for weight in found}


def _scheme(config: Any) -> Scheme | None:
    """What the config or a part of it says of its weights."""
    held: list[Any] = [getattr(part, "quantization_config", None) for part in all_parts(config)]
    found = (scheme_of(one.to_dict() if hasattr(one, "to_dict") else one) for one in held)
    return next((one for one in found if one is not None), None)


def _said(scheme: Scheme | None) -> str:
    if scheme is None:
        return ""
    if scheme.unread:
        return scheme.unread
    named = ", ".join(dict.fromkeys(rule.format.name for rule in scheme.rules))
    wanted = (
        ""
        if scheme.kv in ("", "none")
        else f" Its cache, which the config wants in {scheme.kv}, counts as kv_bytes each"
    )
    known = (
        ""
        if scheme.cache_element() is not None
        else ", of the model's dtype: how many bytes that takes is not known here"
    )
    cache = f"{wanted}{known}; what scales it may have are not counted." if wanted else ""
    return (
        f"Weights are read as the checkpoint stores them ({scheme.method}: {named}), what its quantization_config leaves alone "
        "as w_bytes each; what runs is unquantised, without the arithmetic of dequantising." + cache
    )


__all__ = ["Stored", "StoredWeights"]
