"""The independent reference: what a real run on concrete tensors executes, counted by another piece of code.

A model is built by transformers with real integers and run eagerly, on the meta device or, where it looks at its data,
on the CPU; cost_walk.py looks at every operator. `Recipe` and `build` take any model class; `matmul_flops` and `walk`
run a decoder by its type: the first with eager attention and batched experts, so that every product is an ordinary mm
or bmm, the second with the default kernels in bfloat16. Nothing here imports opscope.
"""

from __future__ import annotations

import copy
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from cost_walk import Walk, products, walked
from transformers import AutoConfig, AutoModelForCausalLM

__all__ = ["Recipe", "Walk", "attention_of", "build", "config_of", "matmul_flops", "on_some_device", "products",
           "walk", "walked"]  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True)
class Recipe:
    """A model to build: `class_name` is `transformers.models.x.modeling_x.Y`, `config` an object of its config class."""

    class_name: str
    config: Any
    attention: str = "sdpa"
    experts: str | None = None


def imported(qualified: str) -> Any:
    """The class of that name."""
    module, _, name = qualified.rpartition(".")
    return getattr(importlib.import_module(module), name)


_real_contains = torch.Tensor.__contains__
_CHECKS = {name: getattr(torch, name) for name in ("_check_with", "_check_tensor_all_with")}


def _looking(name: str) -> Callable[..., None]:
    """torch's check, which refuses nothing where transformers asks: inputs here are all ones, and a model counts its
    placeholder tokens. What the check looks at it computes as ever."""

    def check(kind: Any, condition: Any, message: Any = None) -> None:
        if sys._getframe(1).f_code.co_name != "torch_compilable_check":
            _CHECKS[name](kind, condition, message)
        elif isinstance(condition, torch.Tensor):
            condition._is_all_true()

    return check


def _contains(tensor: Any, element: Any) -> bool:
    """What is looked up without data is not found: padding among token ids, which only decides whether to warn."""
    if not tensor.is_meta:
        return bool(_real_contains(tensor, element))
    (element == tensor).any()
    return False


def build(recipe: Recipe, device: str = "meta", dtype: Any = torch.bfloat16) -> Any:
    """The model in evaluation mode, its weights random, or without data on the meta device."""
    transformers.logging.set_verbosity_error()
    torch.Tensor.__contains__ = _contains
    for name in _CHECKS:
        setattr(torch, name, _looking(name))
    experts = {"experts_implementation": recipe.experts} if recipe.experts else {}
    torch.manual_seed(0)
    with torch.device(device):
        model = imported(recipe.class_name)._from_config(
            copy.deepcopy(recipe.config), attn_implementation=recipe.attention, dtype=dtype, **experts
        )
    return model.eval()


def on_some_device(attempt: Callable[[str], T]) -> T:
    """`attempt` on the meta device; where that cannot be (an `.item()`, a kernel without shapes), on the CPU."""
    try:
        return attempt("meta")
    except (RuntimeError, NotImplementedError):
        return attempt("cpu")


# ---------------------------------------------------------------- decoders by their type


def config_of(model_type: str, overrides: dict[str, Any]) -> Any:
    return AutoConfig.for_model(model_type, **overrides)


def _class_of(model_type: str) -> Any:
    return AutoModelForCausalLM._model_mapping[type(config_of(model_type, {}))]


def attention_of(model_type: str) -> str:
    """The fused operator, or eager attention for a model that does not take it."""
    return "sdpa" if getattr(_class_of(model_type), "_supports_sdpa", False) else "eager"


def _pass(model: Any, phase: str, batch: int, seq: int, cache: int) -> Callable[[], None]:
    """One pass to be looked at; that of a decode phase follows a prefill of `cache` tokens, which runs here."""
    past, device = None, model.device

    def ids(length: int) -> Any:
        return torch.ones((batch, length), dtype=torch.int64, device=device)

    if phase == "decode":
        with torch.no_grad():
            past = model(input_ids=ids(cache), use_cache=True).past_key_values
    new = ids(seq)
    return lambda: model(input_ids=new, past_key_values=past, use_cache=True)


def _decoder(model_type: str, overrides: dict[str, Any], attention: str, experts: str | None) -> Recipe:
    kind = _class_of(model_type)
    return Recipe(f"{kind.__module__}.{kind.__qualname__}", config_of(model_type, overrides), attention, experts)


def matmul_flops(model_type: str, overrides: dict[str, Any], phase: str, batch: int, seq: int, cache: int) -> int:
    """Matrix-product FLOPs of a concrete run."""
    recipe = _decoder(model_type, overrides, "eager", "batched_mm")

    def attempt(device: str) -> int:
        model = build(recipe, device, torch.float32)
        return products(_pass(model, phase, batch, seq, cache))

    return on_some_device(attempt)


def walk(model_type: str, overrides: dict[str, Any], phase: str, batch: int, seq: int, cache: int) -> Walk:
    """FLOPs and bytes of a concrete run with the default kernels, in bfloat16 on the CPU."""
    model = build(_decoder(model_type, overrides, attention_of(model_type), None), "cpu")
    return walked(_pass(model, phase, batch, seq, cache))
