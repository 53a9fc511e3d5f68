"""One instance of a CUDA kernel: how it is asked of the compiler, which compiled entry it is, which ones source names.

The compiler says itself which entry an expression means: it is made an argument of a template of ours, whose mangled name
then holds the entry's. Its address is never taken in device code, since a kernel that others may call gets more registers.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opscope_schemas.resources import NamedInstance

from opscope_tools.kernels.cuda.source_text import (
    CSource,
    matching,
    matching_angle,
    split_arguments,
    squeeze,
    whole_words,
)

_MARK = "opscope_instance"
PROBE, _SPELLED = "opscope_probe", "opscope_spelled"
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(")
#: what stands before the name in `template __global__ void name<4>(float*);`
_EXPLICIT = re.compile(r"template\s+(?!<)[^;{}=]*$")


@dataclass(frozen=True)
class CudaInstance:
    """`spelled` (`acc<4>`, `scale`, `add(float*)`) of the kernel `name`, as seen from its namespaces in `file`."""

    file: str
    name: str
    spelled: str
    #: that the kernel is defined in, outermost first; '' for a nameless one
    namespaces: tuple[str, ...] = ()
    #: folders to look for headers in
    folders: tuple[str, ...] = ()
    #: what is compiled in the file's place; '' for all of it
    text: str = ""
    #: expressions whose values are asked for beside it
    constants: tuple[str, ...] = ()
    #: types that are to be written out
    types: tuple[str, ...] = ()

    @property
    def expression(self) -> str:
        """A C++ expression of it: the name, or that of one overload by the types it takes."""
        spelled = re.sub(r"^(?:template\s+)?(?:__global__\s+)?(?:void\s+)?", "", squeeze(self.spelled).rstrip("; "))
        opening = _opening(spelled)
        if opening < 0:
            return f"&{spelled}"
        return f"static_cast<void (*){spelled[opening:]}>(&{spelled[:opening].rstrip()})"

    @property
    def code(self) -> str:
        """What is added to the file to have this instance compiled, and its entry named."""
        spaces = [name for name in self.namespaces if name]  # what a nameless one holds is seen outside it
        pointer = f"constexpr auto {_MARK}_pointer = {self.expression};"
        for name in reversed(spaces):
            pointer = f"namespace {name} {{ {pointer} }}"
        marked = f"{_MARK}<{'::'.join(('', *spaces, f'{_MARK}_pointer'))}>"
        return f"\n{probe_code(self.constants)}{_types_code(self.types)}{pointer}\ntemplate <auto K> __device__ int {_MARK} = 0; template __device__ int {marked};\n"


def probe_code(expressions: Sequence[str]) -> str:
    """A device array of what constant expressions come to, which the PTX spells out; '' for none."""
    values = ", ".join(f"(long long)({expression})" for expression in expressions)
    return f'\nextern "C" __device__ const long long {PROBE}[] = {{{values}}};\n' if values else ""


def probed(ptx: str, count: int) -> list[int]:
    """The values of such an array; [] where there is none."""
    initial = re.search(rf"\.[bus](8|64) {PROBE}\[\d*\](?:\s*=\s*\{{([^}}]*)\}})?;", ptx)
    if initial is None:
        return []
    width = int(initial[1]) // 8
    listed = b"".join(
        (int(v) % (1 << 8 * width)).to_bytes(width, "little") for v in (initial[2] or "").split(",") if v.strip()
    )
    whole = listed.ljust(8 * count, b"\0")  # zeros at the end are not written
    return [int.from_bytes(whole[8 * i : 8 * i + 8], "little", signed=True) for i in range(count)]


def _types_code(types: Sequence[str]) -> str:
    """A device array of what types are, as the compiler writes them; '' for none."""
    if not types:
        return ""
    function = (
        f"template <class T> __host__ __device__ constexpr const char* {_SPELLED}() {{ return __PRETTY_FUNCTION__; }}"
    )
    listed = ", ".join(f"{_SPELLED}<{one}>()" for one in types)
    return f'{function}\nextern "C" __device__ const char* const {_SPELLED}_types[] = {{{listed}}};\n'


def types_in(ptx: str) -> list[str]:
    """The types of such an array."""
    array = re.search(rf"{_SPELLED}_types\[\d+\] = \{{([^}}]*)\}}", ptx)
    texts = {
        m[1]: bytes(int(v) % 256 for v in m[2].split(",")).decode(errors="replace").rstrip("\0")
        for m in re.finditer(r"\.b8 (\S+)\[\d+\] = \{([^}]*)\}", ptx)
    }
    names = re.findall(r"generic\(([^()]+)\)", array[1]) if array else []
    return [text[text.find("T = ") + 4 : -1] for name in names for text in (texts.get(name, ""),)]


def _opening(spelled: str) -> int:
    """Where the parameter types of `ns::acc<(Mode)0>(float*)` begin; -1 where they are not given."""
    depth = 0
    for position in range(len(spelled) - 1, 0, -1) if spelled.endswith(")") else ():
        depth += {")": 1, "(": -1}.get(spelled[position], 0)
        if depth == 0:
            return position
    return -1


def entries_of(ptx: str) -> list[str]:
    """The mangled names of the entries in a PTX file."""
    return list(dict.fromkeys(_ENTRY.findall(ptx)))


def named_entries(ptx: str, name: str, demangled: Callable[[Sequence[str]], list[str]]) -> list[str]:
    """The entries that the template argument in `ptx` names: one, unless names do not tell them apart.

    `name`: the kernel's own, which is the entry's too where it has C linkage.
    """
    mark = re.search(rf"\b(\w*{_MARK}IXadL(\w*E))\b", ptx)
    if mark is None:
        return []
    entries = entries_of(ptx)
    if exact := [e for e in entries if mark[2].startswith(e) and re.fullmatch("EEE+", mark[2].removeprefix(e))]:
        return exact
    # a name inside another counts its repetitions from the outer one: only written out are both the same
    whole, *others = demangled([mark[1], *entries])
    meant = re.search(rf"{_MARK}<&\(?(.*?)\)?>$", whole)
    written = list(zip(entries, others, strict=True))
    same = [e for e, other in written if meant and other == meant[1]]  # a nested name may be written without its types
    same = same or [
        e for e, other in written if meant and "(" not in _plain(meant[1]) and other.startswith(f"{meant[1]}(")
    ]
    return same or [e for e in entries if e == name and meant and _plain_name(meant[1]) == name]


def _plain(written: str) -> str:
    return written.replace("(anonymous namespace)::", "")


def _plain_name(written: str) -> str:
    """`void ns::acc<4>(float*)` as `acc`."""
    return re.split(r"[<(]", _plain(written), maxsplit=1)[0].rpartition("::")[2].rpartition(" ")[2]


def instances_among(entries: Sequence[str], name: str) -> list[str]:
    """Those of demangled entries that are instances of the kernel."""
    return [e.removeprefix("void ") for e in entries if _plain_name(e) == name]


def demangler() -> list[str]:
    """The command that writes out mangled names, one a line; empty where there is none."""
    program = shutil.which("cu++filt") or shutil.which("c++filt")
    return [program] if program else []


def namespaces_at(source: CSource, line: int, name: str) -> tuple[str, ...]:
    """The namespaces that a definition lies in whose name stands on `line` or the first after it."""
    begin = sum(len(text) + 1 for text in source.original.split("\n")[: line - 1])
    at = next((place for place, _ in whole_words(source.statements, name) if place >= begin), begin)
    return tuple(source.namespaces_around(at))


def explicit_instances(source: CSource, name: str) -> list[NamedInstance]:
    """`template __global__ void name<...>(...);` : the instances that a file makes by name."""
    text, found = source.statements, dict[str, NamedInstance]()
    for position, _ in whole_words(text, name):
        start = max(text.rfind(mark, 0, position) for mark in ";{}") + 1
        angle = position + len(name) + len(text[position + len(name) :]) - len(text[position + len(name) :].lstrip())
        closing = matching_angle(text, angle) if text[angle : angle + 1] == "<" else -1
        heading = text[start:position].strip()
        if closing < 0 or not _EXPLICIT.fullmatch(heading):
            continue
        opening = text.find("(", closing)
        end = matching(text, opening) if opening >= 0 and not text[closing + 1 : opening].strip() else -1
        if end > 0 and text[end + 1 :].lstrip().startswith(";"):
            spelled = f"{name}<{', '.join(split_arguments(text[angle + 1 : closing]))}>"
            line = source.line(position)
            named = NamedInstance(instance=spelled, by="explicit instantiation", file=source.path, line=line)
            found.setdefault(spelled, named)
    return list(found.values())


__all__ = [
    "CudaInstance", "demangler", "entries_of", "explicit_instances", "instances_among", "named_entries", "namespaces_at",
]  # fmt: skip
