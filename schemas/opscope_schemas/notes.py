"""What a count says of the trace that it rests on, for those who write it and those who ask for it."""

from __future__ import annotations

__all__ = ["OF_MORE", "OWN_TRACE", "SECOND_TRACE", "UNPADDED", "of_its_point"]

#: of a document that is not the general one; stands behind the reason
OWN_TRACE = "these figures and formulas are of a trace at these very values, and hold under its own conditions."
#: of one that was made of more sequences than the values have; stands behind the reason
OF_MORE = "these figures and formulas are of a trace of more sequences, which its conditions ask for; a trace at these very values gave the same figures."
#: where a trace on plain numbers has the totals of the general formulas
SECOND_TRACE = "A second trace, on plain numbers and layer by layer, gave the same figures."
#: of a model that takes a mask for padded sequences, which none was given
UNPADDED = "No padding and no packed sequences: no attention mask is given, and padding masks that the model makes itself are all ones."


def of_its_point(note: str) -> bool:
    """Whether a note says that the very values were traced, so that no condition bounds the figures."""
    return note.endswith((OWN_TRACE, OF_MORE, SECOND_TRACE))
