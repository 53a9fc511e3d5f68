"""The point of a pass in words: what the traced model was called with, at the values that its figures are of.

Tokens are spoken of only where an input or a formula has them; images, features and other tensors by their sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from opscope_schemas.analysis import Analysis, ModelInput
from opscope_schemas.formula import Rational, evaluate, variables

__all__ = ["point_said"]

Quote = Callable[[str, Rational], str]
#: an image has at most this many channels
_CHANNELS = 4


def point_said(
    document: Analysis,
    values: Mapping[str, Rational],
    quote: Quote | None = None,
    *,
    cached: bool = True,
    joint: str = ", ",
) -> str:
    """`batch 1, 64 new and 0 cached tokens`, `1 image of 224 x 224`. `quote` writes a number under its key; `cached` says
    whether the figures depend on cached tokens; `joint` stands behind the batch."""

    def said(name: str, value: Rational) -> str:
        return quote(f"{document.phase}.{name}", value) if quote else str(value)

    known = document.model_inputs
    sized = {name for each in known for size in each.shape for name in variables(size)}
    tensors = [text for each in known for text in _tensor(each, values, said)]
    tokens = _tokens(document, sized, values, said, cached=cached)
    if tokens or not any(text.count(" image") for text in tensors):
        tokens = [f"batch {said('batch_size', values['batch_size'])}", *tokens]
    first, *rest = [*tokens, *tensors]
    return joint.join([first, ", ".join(rest)]) if rest else first


def _tokens(
    document: Analysis, sized: set[str], values: Mapping[str, Rational], said: Quote, *, cached: bool
) -> list[str]:
    """Tokens that the pass reads: of the text or of the decoder, then those of an encoder."""
    found = []
    new = values.get("seq_len", 0)
    if not document.model_inputs or "seq_len" in sized or any(v.name == "seq_len" for v in document.variables):
        plural = "token" if new == 1 else "tokens"
        if document.phase in ("forward", "encode"):
            found.append(f"{said('seq_len', new)} {plural}")
        elif cached:
            found.append(f"{said('seq_len', new)} new and {said('cache_len', values['cache_len'])} cached tokens")
        else:
            found.append(f"{said('seq_len', new)} new {plural}")
    if "encoder_seq_len" in sized | {v.name for v in document.variables}:
        found.append(f"{said('encoder_seq_len', values['encoder_seq_len'])} encoder tokens")
    return found


def _tensor(given: ModelInput, values: Mapping[str, Rational], said: Quote) -> Iterator[str]:
    """An input of numbers rather than of indices; nothing where it is as long as a text, or its size is not known."""
    names = {name for size in given.shape for name in variables(size)}
    if "float" not in given.dtype or len(given.shape) < 2 or names & {"seq_len", "cache_len", "encoder_seq_len"}:
        return
    if not names <= values.keys():
        return
    sizes = [evaluate(size, values) for size in given.shape]
    pictures = "pixel" in given.name and len(sizes) > 3 and sizes[-3] <= _CHANNELS
    shown = len(sizes) - 2 if pictures else 0
    marked = [said(f"{given.name}.{axis}", sizes[axis]) for axis in range(shown, len(sizes))]
    if pictures:
        count = math.prod(sizes[:-3])
        what = "image" if count == 1 else "images"
        yield f"{said(f'{given.name}.images', count)} {what} of {' x '.join(marked)}"
    else:
        yield f"{given.name} of {' x '.join(marked)}"
