"""A case's model as transformers builds it, with random weights, and its inputs at a point. Needs torch and transformers alone."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from peer_cases import TOKENS, Case

_TYPE = torch.bfloat16


def built(case: Case, device: str = "cpu", attention: str | None = None) -> Any:
    """In evaluation mode; `attention` None is what transformers takes by itself."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(case.config_type, **case.fields)
    with torch.device(device):
        kind = getattr(transformers, case.class_name)
        return kind._from_config(config, attn_implementation=attention, dtype=_TYPE).eval()


def inputs(model: Any, point: Mapping[str, int]) -> dict[str, Any]:
    """Arguments by name."""
    config, batch = model.config, point["batch_size"]
    torch.manual_seed(0)
    with torch.device(model.device):
        if model.main_input_name == "pixel_values":
            return {
                "pixel_values": torch.rand(batch, config.num_channels, config.image_size, config.image_size).to(_TYPE)
            }
        ids = torch.randint(TOKENS, (batch, point["seq_len"]))
        if model.main_input_name == "input_features":
            frames = torch.rand(batch, config.num_mel_bins, 2 * config.max_source_positions)
            return {"input_features": frames.to(_TYPE), "decoder_input_ids": ids}
    return {"input_ids": ids}


def forward(model: Any, point: Mapping[str, int]) -> Callable[[], Any]:
    """One pass at a point, its inputs made before."""
    return partial(model, **inputs(model, point))


__all__ = ["built", "forward", "inputs"]
