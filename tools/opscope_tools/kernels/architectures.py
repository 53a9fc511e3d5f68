"""What a named GPU architecture decides.

`parse_arch` reads `sm_90`, `9.0` or `gfx942`; `Arch.decides` answers a platform predicate (`is_hip()`,
`IS_NVIDIA_HOPPER`) by its name. Nothing here is applied without being recorded: whoever asks lists the
answer among the assumptions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from opscope_schemas.errors import InputError

_NVIDIA = re.compile(r"(?:sm_?|compute_?)?(\d{1,2})\.?(\d)[af]?$", re.IGNORECASE)
_AMD = re.compile(r"gfx([0-9a-f]{3,5})$", re.IGNORECASE)

#: what a predicate's name speaks of -> compute-capability majors; the first that matches the name counts
_GENERATIONS = (
    (re.compile(r"(is_|has_|on_)?(nvidia_)?blackwell", re.IGNORECASE), (10, 11, 12)),
    (re.compile(r"(is_|has_|on_)?(nvidia_)?hopper", re.IGNORECASE), (9,)),
)
_AMD_NAME = re.compile(r"(is_|has_|on_)?(hip|rocm|amd)(_available|_platform)?", re.IGNORECASE)
_NVIDIA_NAME = re.compile(r"(is_|has_|on_)?(cuda|nvidia)(_platform)?", re.IGNORECASE)
_OTHER_NAME = re.compile(r"(is_|has_|on_)?(xpu|intel\w*|npu|musa|mlu|hpu|tpu)(_available|_platform)?", re.IGNORECASE)
_BARE_CALL = re.compile(r"^[\w.]+(\(\))?$")


@dataclass(frozen=True)
class Arch:
    """A GPU architecture."""

    name: str
    vendor: str
    capability: tuple[int, int] = (0, 0)

    def decides(self, predicate: str) -> bool | None:
        """The truth of a predicate that speaks of vendor or generation in its name; None where it does not."""
        if not _BARE_CALL.match(predicate):
            return None
        last = predicate.removesuffix("()").rsplit(".", 1)[-1]
        for pattern, majors in _GENERATIONS:
            if pattern.fullmatch(last):
                return self.vendor == "nvidia" and self.capability[0] in majors
        if _AMD_NAME.fullmatch(last):
            return self.vendor == "amd"
        if _NVIDIA_NAME.fullmatch(last):
            return self.vendor == "nvidia"
        return False if _OTHER_NAME.fullmatch(last) else None

    def attribute(self, dotted: str) -> tuple[bool, object]:
        """(known, value) of a `torch` attribute or call that only speaks of the platform."""
        if dotted == "torch.version.hip":
            return (True, None) if self.vendor == "nvidia" else (False, None)
        if dotted == "torch.version.cuda" and self.vendor == "amd":
            return True, None
        if dotted == "torch.cuda.get_device_capability" and self.vendor == "nvidia":
            return True, self.capability
        return False, None


def parse_arch(text: str | None) -> Arch | None:
    """The architecture that `text` names; raises `InputError` where it names none."""
    if text is None or not text.strip():
        return None
    stripped = text.strip()
    if found := _NVIDIA.match(stripped):
        return Arch(f"sm_{found[1]}{found[2]}", "nvidia", (int(found[1]), int(found[2])))
    if _AMD.match(stripped):
        return Arch(stripped.lower(), "amd")
    raise InputError(
        f"{text!r} is not a GPU architecture.", next_step="Give one such as sm_80, sm_90, sm_100 or gfx942, or none."
    )
