"""Folders and their roles, the module map, and what was left out of it."""

from __future__ import annotations

from collections import Counter, defaultdict

from opscope_schemas.repo_map import ModuleRow, Place, Skipped

from opscope_tools.survey.facts import FileFacts
from opscope_tools.survey.holdings import Holdings, at
from opscope_tools.survey.plain_file import OTHER
from opscope_tools.survey.roles import purpose_of

#: languages that count as source in the map
_CODE = {"python", "cuda", "cpp", *OTHER.values()}


def languages(held: Holdings) -> dict[str, int]:
    """Files by language, the most first."""
    return dict(Counter(facts.language for facts in held.files).most_common())


def unread(held: Holdings) -> list[Place]:
    """Python files that do not parse."""
    return [
        Place(name=facts.path, at=at(facts.path, _broken_line(facts)), text=facts.broken)
        for facts in held.files
        if facts.broken
    ]


def _broken_line(facts: FileFacts) -> int:
    word = facts.broken.removeprefix("line ").partition(":")[0]
    return max(1, int(word)) if word.isdigit() else 1


def directories(held: Holdings) -> list[ModuleRow]:
    """The folders at the top, and the files that lie there as `.`."""
    groups: defaultdict[str, list[FileFacts]] = defaultdict(list)
    for facts in held.files:
        groups[facts.path.partition("/")[0] if "/" in facts.path else "."].append(facts)
    return [_row(held, path, groups[path]) for path in sorted(groups, key=lambda p: -_lines(groups[p]))]


def modules(held: Holdings) -> tuple[list[ModuleRow], list[Skipped]]:
    """Every source package with the packages directly below it, and the folders that were skipped."""
    groups: defaultdict[str, list[FileFacts]] = defaultdict(list)
    left: defaultdict[tuple[str, str], int] = defaultdict(int)
    for facts in held.files:
        if facts.language not in _CODE:
            continue
        role = held.roles[facts.path]
        top = _top(held, facts.path)
        if role == "source":
            groups[top].append(facts)
            below = _below(facts.path, top)
            if below and top in held.packages:
                groups[below].append(facts)
        else:
            left[held.role_folders[facts.path], role] += 1
    _split(held, groups)
    rows = [_row(held, path, groups[path]) for path in sorted(groups)]
    skipped = [
        Skipped(path=path, reason=f"{role}, not source", files=count)
        for (path, role), count in sorted(left.items(), key=lambda e: (-e[1], e[0]))
    ]
    return rows, skipped


def _split(held: Holdings, groups: dict[str, list[FileFacts]]) -> None:
    """Adds the folders below each row that holds more than half of the source's lines, however deep that is."""
    whole = sum(facts.lines for facts in held.files if facts.language in _CODE and held.roles[facts.path] == "source")
    waiting = list(groups)
    for path in waiting:
        if 2 * _lines(groups[path]) <= whole or path == ".":
            continue
        parts: defaultdict[str, list[FileFacts]] = defaultdict(list)
        for facts in groups[path]:
            if facts.path.startswith(f"{path}/") and (below := _below(facts.path, path)):
                parts[below].append(facts)
        for below, group in parts.items():
            if below not in groups:
                groups[below] = group
                waiting.append(below)


def _top(held: Holdings, path: str) -> str:
    """The topmost package that holds the file; without one the top folder, or the file itself."""
    parts = path.split("/")
    for size in range(1, len(parts)):
        if "/".join(parts[:size]) in held.packages:
            return "/".join(parts[:size])
    return parts[0]


def _below(path: str, top: str) -> str:
    """The folder, or module, directly below a package that the file belongs to."""
    rest = path[len(top) + 1 :]
    return f"{top}/{rest.partition('/')[0]}" if "/" in rest else ""


def _lines(group: list[FileFacts]) -> int:
    return sum(facts.lines for facts in group)


def _row(held: Holdings, path: str, group: list[FileFacts]) -> ModuleRow:
    where, says = _first(held, path, group)
    return ModuleRow(
        path=path, role=_role(held, path, group), files=len(group), lines=_lines(group),
        classes=sum(len(facts.classes) for facts in group), functions=sum(len(facts.functions) for facts in group),
        at=where, says=says,
    )  # fmt: skip


def _role(held: Holdings, path: str, group: list[FileFacts]) -> str:
    """By the role of most of its files, else by its name, else by what most of its files hold."""
    if path == ".":
        return "files at the top"
    role, count = Counter(held.roles[facts.path] for facts in group).most_common(1)[0]
    if role != "source" and count * 2 > len(group):
        return role
    if named := purpose_of(path):
        return named
    if path in held.packages and path.rpartition("/")[0] not in held.packages:
        return "package"
    return _content(group)


def _content(group: list[FileFacts]) -> str:
    languages = Counter(facts.language for facts in group)
    if languages["cuda"] or languages["cpp"] > len(group) / 2:
        return "C++ and CUDA" if languages["cuda"] else "C++"
    if sum(bool(facts.hits("kernel.triton")) for facts in group) * 2 > len(group):
        return "Triton kernels"
    modules = sum(any("Module" in base for base in c.bases) for facts in group for c in facts.classes)
    classes = sum(len(facts.classes) for facts in group)
    if modules and modules * 2 >= classes:
        return "neural network modules"
    most = languages.most_common(1)[0][0]
    if most in {"text", "data"}:
        return "data and text"
    return "source" if most == "python" else f"{most} source"


def _first(held: Holdings, path: str, group: list[FileFacts]) -> tuple[str, str]:
    """Pointer and first line of the package's docstring, of the first docstring inside, the first definition, or the first line."""
    own = held.by_path.get(f"{path}/__init__.py")
    for facts in ([own] if own else []) + sorted(group, key=lambda f: (f.path.count("/"), f.path)):
        if facts.docstring is not None and (facts is own or facts.path.count("/") <= path.count("/") + 1):
            return at(facts.path, facts.docstring.line), facts.docstring.text if facts is own else ""
    for facts in sorted(group, key=lambda f: (f.path.count("/"), f.path)):
        lines = [one.line for one in facts.classes] + [one.line for one in facts.functions]
        if lines:
            return at(facts.path, min(lines)), ""
    return next((at(facts.path, facts.first) for facts in group if facts.first), ""), ""
