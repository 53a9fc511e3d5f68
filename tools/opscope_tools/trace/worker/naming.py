"""Names that a configuration may hold and that transformers would follow to code or files: what each may be.

transformers takes `org/name` as attention for a kernel of the hub, `auto_map` for files with code, a backbone's name for a
checkpoint or a folder, and looks dtypes up among all of torch's attributes. Here such a name is one of a closed list, or
the configuration is refused; what only matters to loading weights is left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from opscope_schemas.errors import ConfigError

ATTENTION = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")
EXPERTS = ("experts_implementation", "_experts_implementation", "_experts_implementation_internal")
_IMPLEMENTATIONS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        ATTENTION,
        frozenset(
            (
                "eager",
                "sdpa",
                "flash_attention_2",
                "flash_attention_3",
                "flash_attention_4",
                "flex_attention",
                "paged|eager",
                "paged|sdpa",
            )
        ),
    ),
    **dict.fromkeys(EXPERTS, frozenset(("eager", "grouped_mm", "batched_mm"))),
}
#: what names code or weights to fetch and is of no use to a model without weights, and tables that belong to the class
LEFT_OUT = frozenset(
    "auto_map custom_pipelines _auto_class attribute_map sub_configs base_config_key base_model_tp_plan base_model_pp_plan"
    " base_model_ep_plan keys_to_ignore_at_inference".split()
)
_CHECKPOINTS = ("backbone", "timm_backbone", "backbone_checkpoint")


def checked(config: Mapping[str, Any], config_class: type | None = None) -> dict[str, Any]:
    """The configuration without what is not followed; raises `ConfigError` for a name that would be followed elsewhere."""
    held = {name: _value(name, value, config_class) for name, value in config.items() if name not in LEFT_OUT}
    # a trace and a listing choose the attention themselves; weights are not loaded
    return {name: value for name, value in held.items() if name not in (*ATTENTION, "use_pretrained_backbone")}


def _value(name: str, value: Any, config_class: type | None) -> Any:
    if config_class is not None and _is_method(config_class, name):
        _refuse(name, value, f"is no field but a method of {config_class.__name__}", "Leave it out.")
    if name in _IMPLEMENTATIONS:
        _check_implementation(name, value)
    elif name.endswith("dtype"):
        _check_dtype(name, value)
    elif name in _CHECKPOINTS and isinstance(value, str) and not _plain(value):
        _refuse(
            name, value, "names a checkpoint or a folder, which is not looked up", "Give its sizes as backbone_config."
        )
    if name == "quantization_config":  # describes weights, which are not loaded
        return value
    if isinstance(value, Mapping):
        return checked(value)
    return [checked(v) if isinstance(v, Mapping) else v for v in value] if isinstance(value, list) else value


def _check_implementation(name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for inner in value.values():
            _check_implementation(name, inner)
    elif value is not None and value not in _IMPLEMENTATIONS[name]:
        known = ", ".join(sorted(_IMPLEMENTATIONS[name]))
        _refuse(
            name, value, "is none of transformers' own, and kernels of a hub are not loaded", f"Name one of {known}."
        )


def _check_dtype(name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for inner in value.values():
            _check_dtype(name, inner)
    elif isinstance(value, str):
        stem = value.removeprefix("torch.")
        held = vars(torch).get(stem)
        if not (stem.isidentifier() and stem.isascii()) or (
            stem != "auto" and not isinstance(held, torch.dtype) and hasattr(torch, stem)
        ):
            _refuse(name, value, "is no dtype of torch", "Name one, e.g. bfloat16.")


def _plain(text: str) -> bool:
    return all(character.isascii() and (character.isalnum() or character in "_.-") for character in text)


def _is_method(config_class: type, name: str) -> bool:
    held = inspect.getattr_static(config_class, name, None)
    return inspect.isroutine(held) or isinstance(held, classmethod | staticmethod)


def _refuse(name: str, value: Any, why: str, next_step: str) -> NoReturn:
    shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:77]}..."
    raise ConfigError(
        f"{name} is {shown}, which {why}." if "is no field" not in why else f"{name} {why}.", next_step=next_step
    )


__all__ = ["LEFT_OUT", "checked"]
