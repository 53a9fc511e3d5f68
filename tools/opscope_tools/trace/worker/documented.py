"""Shapes of a forward's arguments as its docstring gives them: ``name (`torch.LongTensor` of shape `(batch_size, 4)`)``,
``name: mel spectrograms of shape [batch, num_frames, config.num_mel_bins]``.

A word for a size is looked up where the other inputs have theirs: what a run chooses, what pictures have, a field of the
config. Any other word is a size of its own, which the document then lists.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import reduce
from operator import mul
from typing import Any

import torch

_SHAPE = re.compile(r"[(\[]((?:batch|bsz|num_)[^()\[\]`]*)[)\]]")
_FACTORS = re.compile(r" ?\* ?| x ")
_KIND = re.compile(r"torch\.(\w*)[Tt]ensor")
_CHOSEN = {
    "batch_size": "batch_size", "batch": "batch_size", "bsz": "batch_size", "num_images": "batch_size", "sequence_length": "seq_len",
    "seq_length": "seq_len", "seq_len": "seq_len", "target_sequence_length": "seq_len", "text_length": "seq_len", "num_frames": "num_frames",
}  # fmt: skip
#: sizes of what is no size of any config or run are this long unless values say otherwise
_OTHER = 4
_WHOLE = ("ids", "mask", "positions", "labels", "indices")
_TYPES = {"Long": torch.int64, "Int": torch.int32, "Bool": torch.bool}

Shape = tuple[tuple[Any, ...], torch.dtype]


def documented(
    forward: Any, size: Callable[[str, int], Any], known: Callable[[str], Any], dtype: torch.dtype
) -> dict[str, Shape]:
    """Argument -> shape and dtype. `known` gives what the config says of a word, or None."""
    text = " ".join((getattr(forward, "__doc__", "") or "").split())
    parameters = inspect.signature(forward).parameters
    # where each argument's own words begin
    begins = sorted((m.start(), n) for n in parameters if (m := re.search(rf"(?<![\w.`]){n}(?: \(|:)", text)))
    found: dict[str, Shape] = {}
    for at, (begin, name) in enumerate(begins):
        words = text[begin : begins[at + 1][0] if at + 1 < len(begins) else begin + 400]
        shape = _SHAPE.search(words)
        sizes = [word.strip() for word in shape[1].split(",") if word.strip()] if shape else []
        if sizes and all(re.fullmatch(r"[\w.]+( ?[*x] ?[\w.]+)*", one) for one in sizes):
            kind = _KIND.search(f"{parameters[name].annotation} {words}")
            plain = torch.int64 if name.endswith(_WHOLE) else dtype
            made = tuple(reduce(mul, (_size(w, size, known) for w in _FACTORS.split(one))) for one in sizes)
            found[name] = made, _TYPES.get(kind[1] if kind else "", plain)
    return found


def _size(word: str, size: Callable[[str, int], Any], known: Callable[[str], Any]) -> Any:
    word = word.rpartition(".")[2]
    if word.isdigit():
        return int(word)
    if word in _CHOSEN:
        return size(_CHOSEN[word], 320 if word == "num_frames" else 0)
    held = known(word)
    return size(word, _OTHER) if held is None else held


__all__ = ["documented"]
