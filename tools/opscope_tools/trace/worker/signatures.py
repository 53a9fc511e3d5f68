"""What a forward says of its tensors before it runs: which it needs, and the rank, names and dtype of each.

Read in this order: the annotation (`Float[Tensor, "b n d"]`, `LongTensor`), a shape note beside the parameter's name in a
docstring (`x: (batch, seq_len, dim)`, `of shape [B, C, H, W]`), how the forward's first lines take the shape apart
(`b, t, c = x.shape`, `rearrange(x, "b n d -> ...")`), the parameter's name. Nothing here runs the module.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import dataclass
from typing import Any

import torch

#: names that forwards give to token ids, and to what is one number a sequence
IDS = ("ids", "tokens", "token", "idx", "input_ids", "indices", "index")
_EACH = ("t", "time", "timestep", "timesteps", "sigma", "sigmas", "guidance", "noise_level", "log_snr")
_LABELS = ("labels", "label", "class_labels", "y", "classes")
#: names of dimensions: what a batch is called, and the height and width of pictures
_BATCH = ("b", "bs", "bsz", "batch", "batch_size", "num_batches", "n", "nb")
_HEIGHT, _WIDTH = ("h", "height", "image_height"), ("w", "width", "image_width")
#: what forwards call a sequence's length
_LENGTH = (
    "seqlen", "seq_len", "sequence_length", "seq_length", "q_len", "length", "len", "seq", "n_tokens", "num_tokens", "l", "t",
    "s", "n", "tokens", "time", "src_len", "tgt_len",
)  # fmt: skip
_SHAPE = re.compile(r"[\[(]([^\[\]()]{3,200})[\])]")
_TYPED = re.compile(r"\[\s*(?:torch\.)?Tensor\s*,\s*['\"]([^'\"]+)['\"]")
#: shapes by parameter name where a convention is older than any note
_KNOWN = {"img_ids": ("image_sequence_length", "3"), "txt_ids": ("text_sequence_length", "3")}
#: optional tensors that change what is computed only where a caller has a reason
_LEFT_OUT = re.compile(
    r"mask|bias|cache|past|residual|state|position|cu_seqlens|attn_|kwargs|_embeds?$|rotary|mem|context_"
)


@dataclass(frozen=True)
class Parameter:
    """A tensor that a forward takes: names of its dimensions where it says them (lower case, '' unknown)."""

    name: str
    dims: tuple[str, ...] | None
    dtype: torch.dtype | None
    #: 0: needed; 1: a tensor by its annotation, though None is its default; 2: optional
    stage: int = 0


def parameters(function: Any, owner: type) -> list[Parameter]:
    """Every parameter of a forward that may be a tensor, in order."""
    notes = _Notes(function, owner)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self" or parameter.kind not in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        ):
            continue
        stage = _stage(name, parameter)
        if stage == 1 and notes.optional(name):
            stage = 2
        if stage is not None:
            annotation = _text(parameter.annotation)
            found.append(Parameter(name, notes.dims(name, annotation), _dtype(name, annotation), stage))
    return found


def plain(function: Any) -> dict[str, Any]:
    """Parameters that are needed and are no tensors by their annotation: switches are off."""
    return {
        name: False for name, p in inspect.signature(function).parameters.items()
        if p.default is p.empty and _text(p.annotation) == "bool"
    }  # fmt: skip


def _text(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return (
        annotation
        if isinstance(annotation, str)
        else annotation.__name__
        if isinstance(annotation, type)
        else str(annotation)
    )


def _stage(name: str, parameter: inspect.Parameter) -> int | None:
    """When the parameter is given; None: never."""
    text = _text(parameter.annotation)
    tensor = "Tensor" in text or "Float[" in text or "Int[" in text
    if parameter.default is parameter.empty:
        return None if text and not tensor and text not in ("Any", "object") else 0
    if parameter.default is not None or not tensor or (_LEFT_OUT.search(name) and "None" in text):
        return None
    return 2 if "None" in text or "Optional" in text else 1


def _dtype(name: str, annotation: str) -> torch.dtype | None:
    """What the annotation or the name says; None: the model's own."""
    if "LongTensor" in annotation or annotation.startswith(("Int[", "jaxtyping.Int")) or "IntTensor" in annotation:
        return torch.int64
    if "BoolTensor" in annotation or annotation.startswith("Bool["):
        return torch.bool
    if name in IDS or name in _LABELS or name.endswith(("_ids", "_idx", "_indices", "_labels", "lengths")):
        return None if name in _KNOWN else torch.int64
    return None


class _Notes:
    """A forward's docstrings and first lines."""

    def __init__(self, function: Any, owner: type) -> None:
        written = inspect.unwrap(function)
        self._texts = [d for d in (written.__doc__, owner.__doc__, vars(owner).get("__init__", owner).__doc__) if d]
        self._taken = _taken_apart(written)

    def optional(self, name: str) -> bool:
        """Whether a docstring calls the parameter optional."""
        said = rf"(?:^|\n)[ \t*`]*{re.escape(name)}[`*]*\s*[:(][^\n]*optional"
        return any(re.search(said, text, re.IGNORECASE) for text in self._texts)

    def dims(self, name: str, annotation: str) -> tuple[str, ...] | None:
        typed = _TYPED.search(annotation)
        if typed:
            return tuple(part.lower().lstrip("*#") for part in typed[1].split())
        if name in _KNOWN:
            return _KNOWN[name]
        noted = next((dims for text in self._texts if (dims := _noted(name, text))), None)
        if noted or name in self._taken:
            return noted or self._taken[name]
        if name in _EACH or name in _LABELS or name.endswith("lengths"):
            return ("batch",)
        return None


def _noted(name: str, text: str) -> tuple[str, ...] | None:
    """The first shape in what a docstring says of a parameter, up to the next parameter's entry."""
    start = re.search(rf"(?:^|[\n,;])[ \t*`:-]*(?:param )?{re.escape(name)}\b[`*]*\s*(?=[:(=]|of shape)", text)
    if start is None:
        return None
    entry = text[start.end() :]
    end = re.search(r"\n[ \t]*\n|\n[ \t]*[`*]*\w+[`*]*\s*(?:\([^\n]*\))?\s*:(?!:)|\n\s*Returns?\b", entry)
    entry = entry[: end.start()] if end else entry
    for found in _SHAPE.finditer(entry):
        parts = [part.strip().lower() for part in re.split(r",| x ", found[1]) if part.strip()]
        dims = tuple(re.sub(r"\W+", "_", part.rpartition("==")[2]) if part != "..." else part for part in parts)
        before = entry[max(0, found.start() - 40) : found.start()].lower()
        if len(dims) > 1 and (dims[0] in _BATCH or "shape" in before or "size" in before[-20:]):
            return dims
    return None


def _taken_apart(function: Any) -> dict[str, tuple[str, ...]]:
    """Parameter -> names that the forward's own lines give to its dimensions."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return {}
    found: dict[str, tuple[str, ...]] = {}
    assigned: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            name = _shape_of(node.value)
            targets = node.targets[0].elts
            if name and name not in assigned and not any(isinstance(t, ast.Starred) for t in targets):
                found.setdefault(name, tuple(t.id.lower() if isinstance(t, ast.Name) else "" for t in targets))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.add(node.targets[0].id)
        elif isinstance(node, ast.Call) and _called(node) in ("rearrange", "einops.rearrange") and len(node.args) > 1:
            tensor, pattern = node.args[:2]
            if isinstance(tensor, ast.Name) and isinstance(pattern, ast.Constant) and "->" in str(pattern.value):
                left = re.findall(r"\([^)]*\)|[\w.]+", str(pattern.value).partition("->")[0])
                if "..." not in left and tensor.id not in assigned:
                    found.setdefault(tensor.id, tuple("" if p.startswith("(") else p.lower() for p in left))
    return found


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def _shape_of(node: ast.expr) -> str:
    """`x` of `x.shape` and `x.size()`."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "size"
        and not node.args
    ):
        node = node.func
    if isinstance(node, ast.Attribute) and node.attr in ("shape", "size") and isinstance(node.value, ast.Name):
        return node.value.id
    return ""


def role(dim: str, axis: int) -> str:
    """What a dimension is by its name: `batch`, `height`, `width`, a number as text, or the name itself."""
    if axis == 0 and (dim in _BATCH or not dim or "batch" in dim):
        return "batch"
    if dim in ("b", "bsz", "batch", "batch_size"):
        return "batch"
    if dim in _LENGTH:
        return "seq_len"
    if dim in _HEIGHT:
        return "height"
    return "width" if dim in _WIDTH else dim


__all__ = ["IDS", "Parameter", "parameters", "plain", "role"]
