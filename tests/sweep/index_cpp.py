"""The definitions of every C++ and CUDA file of a folder, held against universal-ctags and, where it is installed,
libclang.

    python tests/sweep/index_cpp.py [FOLDER] [--clang N] [--show N] [--every N]

FOLDER is torch's installed headers where left out. ctags is a heuristic reader itself (it takes `static_assert(f(x))`
for a declaration of f, and loses files at some `#if`), so differences are printed for reading, not judged. libclang
(`pip install libclang`, in a folder of its own) compiles, so what it sees in a file and no macro wrote must be found:
`--clang N` compares N headers, drawn with a fixed seed, each in a process of its own, as libclang dies on some.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import resource
import shutil
import subprocess
import sys
import sysconfig
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from opscope_tools.index.cpp import CppRow, definitions
from opscope_tools.index.cpp.files import SUFFIXES

_GROUPS = {
    "class": "type", "struct": "type", "union": "type", "enum": "type", "function": "function",
    "prototype": "declaration", "macro": "macro", "namespace": "namespace", "typedef": "alias", "alias": "alias",
}  # fmt: skip
_LINES = 4  # that two readers may differ by: keyword or name, across a line break

#: (file, group, name) -> lines
Found = dict[tuple[str, str, str], list[int]]


def files_of(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())


def own(files: Iterable[str]) -> tuple[Found, float]:
    """What this project's reader finds, and the CPU seconds it took."""
    found: Found = defaultdict(list)
    start = time.process_time()
    rows = {file: definitions(Path(file).read_bytes()) for file in files}
    seconds = time.process_time() - start
    for file, here in rows.items():
        for row in here:
            group = _GROUPS.get(row.kind, row.kind)
            if group == "function" and not row.definition:
                group = "declaration"
            if group != "type" or row.definition:
                found[file, group, _spelt(row.name)].append(row.line)
    return found, seconds


def ctags(files: list[str]) -> tuple[Found, float]:
    """What universal-ctags finds, and the CPU seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["ctags", "-L", "-", "--language-force=C++", "-f", "-", "--fields=+neKSi", "--kinds-C++=+p"]
    done = subprocess.run(command, input="\n".join(files), capture_output=True, text=True, errors="replace", check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found: Found = defaultdict(list)
    for line in done.stdout.splitlines():
        name, file, rest = line.split("\t", 2)
        kind, *fields = rest.split(';"\t', 1)[-1].split("\t")
        number = next(int(field[5:]) for field in fields if field.startswith("line:"))
        if kind in _GROUPS and not name.startswith("__anon"):
            found[file, _GROUPS[kind], _spelt(name.rpartition("::")[2])].append(number)
    return found, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _spelt(name: str) -> str:
    return name.replace(" ", "")


def differences(first: Found, second: Found) -> Iterator[tuple[str, str, str, int]]:
    """(file, group, name, line) of what `first` has and `second` has not."""
    for key, lines in first.items():
        left = list(second.get(key, ()))
        for line in lines:
            near = [other for other in left if abs(other - line) <= _LINES]
            if near:
                left.remove(min(near, key=lambda other: abs(other - line)))
            else:
                yield (*key, line)


def against_ctags(files: list[str], show: int) -> None:
    mine, seconds = own(files)
    print(f"{len(files)} files, {sum(map(len, mine.values()))} rows, {seconds:.2f} CPU s")
    if shutil.which("ctags") is None:
        print("universal-ctags is not installed; nothing was compared")
        return
    theirs, their_seconds = ctags(files)
    print(f"ctags {their_seconds:.2f} CPU s: {seconds / their_seconds:.1f} times as much here")
    missed, more = list(differences(theirs, mine)), list(differences(mine, theirs))
    total = Counter(group for (_, group, _), lines in theirs.items() for _ in lines)
    for group, count in sorted(total.items()):
        lost, gained = (sum(1 for d in found if d[1] == group) for found in (missed, more))
        print(f"{group:12} ctags {count:6}  only ctags {lost:5}  only here {gained:5}")
    for title, found in (("only ctags", missed), ("only here", more)):
        for file, group, name, line in random.Random(0).sample(found, min(show, len(found))):
            lines = Path(file).read_text(errors="replace").split("\n")
            print(f"{title}: {group} {name} {file}:{line} | {lines[min(line, len(lines)) - 1].strip()[:90]}")


# libclang

_SCRIPT = r"""
import json, sys
import clang.cindex as c
file, include = sys.argv[1:]
args = ["-x", "c++", "-std=c++20", "-w", "-ferror-limit=0", "-I" + include, "-I" + include + "/torch/csrc/api/include"]
args += ["-I" + folder for folder in json.loads(sys.stdin.read())]
unit = c.Index.create().parse(file, args=args, options=1)
if any("file not found" in d.spelling for d in unit.diagnostics if d.severity >= 3):
    sys.exit(3)
K, source, found = c.CursorKind, open(file, "rb").read(), []
uses = [(x.extent.start.offset, x.extent.end.offset) for x in unit.cursor.get_children()
        if x.kind == K.MACRO_INSTANTIATION and x.location.file and x.location.file.name == file]
types = {K.CLASS_DECL, K.STRUCT_DECL, K.UNION_DECL, K.ENUM_DECL, K.CLASS_TEMPLATE, K.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION}
functions = {K.FUNCTION_DECL, K.CXX_METHOD, K.CONSTRUCTOR, K.DESTRUCTOR, K.CONVERSION_FUNCTION, K.FUNCTION_TEMPLATE}
def walk(cursor):
    for child in cursor.get_children():
        at = child.location
        if at.file is None or at.file.name == file:
            group = "type" if child.kind in types else "function" if child.kind in functions else ""
            name = child.spelling if child.spelling.startswith("operator") else child.spelling.split("<")[0]
            written = at.file and source[at.offset:at.offset + 80].decode("latin-1").lstrip("~").startswith(name.lstrip("~")[:8])
            by_macro = any(a <= at.offset < b for a, b in uses)
            if group and name and "(" not in name.replace("operator()", "") and written and not by_macro:
                found.append([group, name, at.line, child.is_definition(), child.extent.end.line])
            walk(child)
        elif cursor.kind != K.TRANSLATION_UNIT:
            walk(child)
walk(unit.cursor)
print(json.dumps(found))
"""


def clang_rows(file: str, include: Path, python: str) -> list[tuple[str, str, int, bool, int]] | None:
    """(group, name, line, is a definition, last line) of what libclang sees in a file; None where it cannot."""
    folders = [str(path) for path in Path("/usr/lib/gcc/x86_64-linux-gnu").glob("*/include")]
    done = subprocess.run(
        [python, "-c", _SCRIPT, file, str(include)],
        input=json.dumps([sysconfig.get_path("include"), *folders]), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return [tuple(row) for row in json.loads(done.stdout)] if done.returncode == 0 else None


def against_clang(files: list[str], include: Path, number: int, python: str) -> None:
    seen, found, read, ends = Counter[str](), Counter[str](), 0, 0
    for file in random.Random(7).sample(files, min(number, len(files))):
        theirs = clang_rows(file, include, python)
        if theirs is None:
            continue
        read += 1
        left = list(definitions(Path(file).read_bytes()))
        for group, name, line, definition, end in theirs:
            label = f"{group} {'definition' if definition else 'declaration'}"
            seen[label] += 1
            row = _same(left, group, name, line, definition)
            if row is None:
                print(f"not found: {label} {name} {file}:{line}")
                continue
            left.remove(row)
            found[label] += 1
            ends += definition and row.end_line != end
    print(f"libclang read {read} files")
    for label, count in sorted(seen.items()):
        print(f"{label:22} {found[label]} of {count} ({100 * found[label] / count:.2f} %)")
    print(f"definitions whose last line differs: {ends}")


def _same(rows: list[CppRow], group: str, name: str, line: int, definition: bool) -> CppRow | None:
    """The row that is the same definition; `= default` and `= delete` are definitions here and not always there."""
    near = [
        row
        for row in rows
        if _GROUPS.get(row.kind) == group
        and _spelt(row.name) == _spelt(name)
        and abs(row.line - line) <= _LINES
        and (row.definition == definition or (group == "function" and row.definition))
    ]
    return min(near, key=lambda row: abs(row.line - line), default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--clang", type=int, default=0, metavar="N", help="headers to compare with libclang")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has libclang")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="differences to print of each kind")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth file")
    options = parser.parse_args()
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    include = Path(spec.origin).parent / "include"
    files = files_of(options.folder or include)[:: options.every]
    if options.clang:
        headers = [file for file in files if file.endswith((".h", ".hpp")) and "/ATen/ops/" not in file]
        against_clang(headers, include, options.clang, options.python)
    else:
        against_ctags(files, options.show)


if __name__ == "__main__":
    main()
