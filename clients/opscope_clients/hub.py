"""The configuration of a model on the hub: the one file that opscope ever fetches, and only when asked by its id."""

from __future__ import annotations

import re
from pathlib import Path

from opscope_schemas.errors import ConfigError

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def is_hub_id(text: str) -> bool:
    """`owner/name` that is no path here."""
    return bool(_ID.fullmatch(text)) and not Path(text).exists()


def fetch_config(model_id: str) -> Path:
    """Path of the model's config.json, from the local hub cache or the network; raises `ConfigError`."""
    from huggingface_hub import hf_hub_download  # here: no other command needs it

    try:
        return Path(hf_hub_download(model_id, "config.json", etag_timeout=10))
    except Exception as error:  # the hub's errors share no root; each has a first line that says what happened
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ConfigError(
            f"The config of {model_id} could not be read from the hub: {reason[:160].rstrip('.')}.",
            next_step="Give the model's config.json or its folder, or a model type, instead.",
        ) from None
