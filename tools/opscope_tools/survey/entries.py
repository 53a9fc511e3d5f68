"""Ways in: console scripts of manifests, `__main__` blocks and modules, servers and their routes, benchmarks, examples."""

from __future__ import annotations

import ast
import configparser
import math
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from opscope_schemas.repo_map import EntryPoint

from opscope_tools.survey.facts import Hit
from opscope_tools.survey.holdings import Holdings, at
from opscope_tools.survey.roots import as_folder, declared_folders, table

_MANIFESTS = ("pyproject.toml", "setup.cfg", "setup.py", "entry_points.txt")
_TARGET = re.compile(r"\s*+([\w.-]++)\s*+=\s*+([\w.]++)\s*+(?::\s*+([\w.]++))?\s*+(\[.*\])?\s*+")
_SCRIPTS = {"console_scripts", "gui_scripts"}
#: what readers of manifests call a folder that packages lie in
_FOLDER = "folder of packages"
#: folders above a manifest that still make it the repository's own
_DEPTH = 2
#: steps of imports after which nothing is held to lead anywhere, and within which routes count for a file
_FAR, _NEAR = 6, 3


class Manifests:
    """Scripts, plugins and dependencies that the manifests of a repository declare."""

    def __init__(self, root: Path, files: Mapping[str, object], installed: Mapping[str, str] | None = None) -> None:
        #: (group, name, target, pointer)
        self.scripts: list[tuple[str, str, str, str]] = [
            ("console_scripts", name, target, "") for name, target in (installed or {}).items()
        ]
        self.dependencies: list[tuple[str, str, str]] = []
        #: folders that packages lie in, as the manifests say
        self.folders: set[str] = set()
        for file in sorted(files, key=lambda f: (f.endswith(".txt"), f)):
            name = file.rpartition("/")[2]
            if name == "entry_points.txt" and not re.search(r"\.(dist|egg)-info/", file):
                continue
            if (
                name in _MANIFESTS
                and file.count("/") <= _DEPTH
                and not re.search(r"(^|/)(tests?|examples?|docs?)/", file)
            ):
                text = (root / file).read_text(errors="replace")
                for group, label, target, line in _READERS[name](text):
                    if group == _FOLDER:
                        above = file.rpartition("/")[0]
                        self.folders.add(f"{above}/{label}".strip("/"))
                    elif group == "dependency":
                        self.dependencies.append((label, at(file, line), target))
                    elif not any(
                        known[:2] == (group, label) for known in self.scripts
                    ):  # metadata repeats the manifest
                        self.scripts.append((group, label, target, at(file, line)))

    @property
    def names(self) -> set[str]:
        """Names of the console scripts."""
        return {name for group, name, _, _ in self.scripts if group in _SCRIPTS}

    @property
    def modules(self) -> set[str]:
        """The modules that console scripts and plugins lie in."""
        return {target.partition(":")[0] for _, _, target, _ in self.scripts}


def _pyproject(text: str) -> Iterator[tuple[str, str, str, int]]:
    try:
        held = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    project = table(held, "project")
    tables: list[tuple[str, str, object]] = [
        ("console_scripts", "project.scripts", project.get("scripts")),
        ("gui_scripts", "project.gui-scripts", project.get("gui-scripts")),
        ("console_scripts", "tool.poetry.scripts", table(table(held, "tool"), "poetry").get("scripts")),
    ]
    points = table(project, "entry-points")
    tables += [(str(group), f"project.entry-points.{group}", entries) for group, entries in points.items()]
    for group, header, entries in tables:
        for name, target in entries.items() if isinstance(entries, dict) else ():
            if isinstance(target, str):
                yield group, name, target, _toml_line(text, header, name, target)
    for folder in declared_folders(held):
        yield _FOLDER, folder, "", 1
    required = project.get("dependencies")
    for held_name in required if isinstance(required, list) else ():
        if match := re.match(r"[A-Za-z][\w.-]*", str(held_name)):
            yield "dependency", match[0], str(held_name), _line_with(text, str(held_name))


def _toml_line(text: str, header: str, name: str, target: str) -> int:
    """The line of `name = "target"` below its header."""
    lines = text.splitlines()
    wanted = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*=.*{re.escape(target)}")
    squeezed = header.replace('"', "")
    start = next((n for n, line in enumerate(lines) if line.strip().replace('"', "") == f"[{squeezed}]"), 0)
    return next((n + 1 for n in range(start, len(lines)) if wanted.match(lines[n])), start + 1)


def _line_with(text: str, part: str) -> int:
    place = text.find(part)
    return text.count("\n", 0, place) + 1 if place >= 0 else 1


def _setup_cfg(text: str) -> Iterator[tuple[str, str, str, int]]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return
    for section, key in (("options", "package_dir"), ("options.packages.find", "where")):
        for part in parser.get(section, key, fallback="").split():
            yield _FOLDER, as_folder(part.rpartition("=")[2]), "", 1
    if parser.has_section("options.entry_points"):
        for group, entries in parser.items("options.entry_points"):
            for entry in entries.splitlines():
                if match := _TARGET.fullmatch(entry):
                    yield group, match[1], _joined(match), _line_with(text, entry.strip())


def _setup_py(text: str) -> Iterator[tuple[str, str, str, int]]:
    """What `entry_points` of a `setup(...)` call spells out."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for call in [n for n in ast.walk(tree) if isinstance(n, ast.Call)]:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        given = next((k.value for k in call.keywords if k.arg == "entry_points"), None)
        for folder in _package_folders(call, name):
            yield _FOLDER, folder, "", call.lineno
        if name != "setup" or not isinstance(given, ast.Dict):
            continue
        for key, value in zip(given.keys, given.values, strict=True):
            group = key.value if isinstance(key, ast.Constant) else ""
            for node in ast.walk(value):
                if (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and (m := _TARGET.fullmatch(node.value))
                ):
                    yield str(group), m[1], _joined(m), node.lineno


def _package_folders(call: ast.Call, name: str) -> Iterator[str]:
    """The folders that `setup(package_dir={"": "src"})` and `find_packages("src")` name."""
    if name in {"find_packages", "find_namespace_packages"}:
        held = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "where")]
    else:
        given = next((k.value for k in call.keywords if k.arg == "package_dir" and name == "setup"), None)
        pairs = zip(given.keys, given.values, strict=True) if isinstance(given, ast.Dict) else ()
        held = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == ""]
    yield from (as_folder(one.value) for one in held if isinstance(one, ast.Constant) and isinstance(one.value, str))


def _entry_points_txt(text: str) -> Iterator[tuple[str, str, str, int]]:
    """What the metadata of a wheel or an sdist lists."""
    group = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.fullmatch(r"\[(.+)\]", line.strip()):
            group = header[1]
        elif match := _TARGET.fullmatch(line):
            yield group, match[1], _joined(match), number


def _joined(match: re.Match[str]) -> str:
    return f"{match[2]}:{match[3]}" if match[3] else match[2]


_READERS = {
    "pyproject.toml": _pyproject, "setup.cfg": _setup_cfg, "setup.py": _setup_py, "entry_points.txt": _entry_points_txt,
}  # fmt: skip


# entry points ---------------------------------------------------------------------------------------------------------


def entry_points(held: Holdings, manifests: Manifests, engine: Collection[str] = ()) -> list[EntryPoint]:
    """Every way in: scripts, main modules, servers, main blocks, routes, plugins, benchmarks, examples.

    Within a kind those come first that scripts lead to, that serve the most routes and that lead to the files of the `engine`.
    """
    found = [*_scripts(held, manifests)]
    for facts in held.python:
        role = held.roles[facts.path]
        mains = facts.hits("entry.main")
        if role in {"benchmarks", "examples"}:
            if entry := _sample(held, facts.path, mains, "benchmark" if role == "benchmarks" else "example"):
                found.append(entry)
            continue
        if role in {"tests", "third party", "documentation"}:
            continue
        if facts.path.endswith("/__main__.py"):
            package = held.names[facts.path].removesuffix(".__main__")
            line = mains[0].line if mains else _first_line(held, facts.path)
            found.append(EntryPoint(kind="main module", name=f"python -m {package}", at=at(facts.path, line)))
        elif mains:
            inside = _inside(held, facts.path)
            name = f"python -m {held.names[facts.path]}" if inside else f"python {facts.path}"
            found.append(EntryPoint(kind="main block", name=name, at=at(facts.path, mains[0].line), text=mains[0].text))
        for topic, kind in (("entry.server", "server"), ("entry.route", "route")):
            found += [_entry(kind, hit.name, at(facts.path, hit.line), hit.text) for hit in facts.hits(topic)]
    order = ("console script", "main module", "server", "main block", "route", "benchmark", "example", "plugin")
    weigh = _Weights(held, [e.target.rpartition(":")[0] for e in found if e.kind == "console script"], engine)
    return sorted(
        found,
        key=lambda e: (
            order.index(e.kind), not _inside(held, e.at.rpartition(":")[0]), -weigh(e.target or e.at)
        ),
    )  # fmt: skip


class _Weights:
    """How much speaks for the file of a way in, by what imports lead to."""

    def __init__(self, held: Holdings, scripts: list[str], engine: Collection[str]) -> None:
        self._held, self._engine = held, [path for path in engine if path in held.by_path]
        self._called = held.reached((path for path in scripts if path in held.by_path), _FAR)
        self._known: dict[str, float] = {}

    def __call__(self, place: str) -> float:
        path = place.rpartition(":")[0]
        if path not in self._held.by_path or self._held.by_path[path].language != "python":
            return 0
        if path not in self._known:
            self._known[path] = self._weight(path)
        return self._known[path]

    def _weight(self, path: str) -> float:
        reached = self._held.reached([path], _FAR)
        routes = sum(
            len(self._held.by_path[file].hits("entry.route")) / (1 + step)
            for file, step in reached.items() if step <= _NEAR
        )  # fmt: skip
        engine = min((reached[file] for file in self._engine if file in reached), default=None)
        called = self._called.get(path)
        return (
            math.log2(1 + routes)
            + (6 / (1 + called) if called is not None else 0)
            + (4 / (1 + engine) if engine is not None else 0)
        )


def _entry(kind: str, name: str, where: str, text: str) -> EntryPoint:
    return EntryPoint(kind=kind, name=name, at=where, text=text)  # type: ignore[arg-type]  # pydantic checks the kind


def _inside(held: Holdings, path: str) -> bool:
    """Whether a file is source of a package, or of a folder without `__init__.py` inside one: its ways in come first."""
    folders = path.split("/")[:-1]
    return held.roles.get(path) == "source" and any(
        "/".join(folders[:n]) in held.packages for n in range(1, len(folders) + 1)
    )


def _scripts(held: Holdings, manifests: Manifests) -> Iterator[EntryPoint]:
    for group, name, target, where in manifests.scripts:
        module, _, function = target.partition(":")
        definition = held.definition(f"{module}.{function}" if function else module)
        there = definition.at if definition else ""
        if not there and (facts := held.module(module)):
            there = at(facts.path, _named_line(held, facts.path, function))
        place = where or there
        if place:
            kind = "console script" if group in _SCRIPTS else "plugin"
            shown = name if group in _SCRIPTS else f"{group}: {name}"
            yield EntryPoint(kind=kind, name=shown, at=place, target=there, text=target)  # type: ignore[arg-type]  # pydantic checks the kind


def _named_line(held: Holdings, path: str, name: str) -> int:
    """The line where a module binds a name by an assignment or an import; its first statement where it does not."""
    head = name.partition(".")[0]
    for node in held.tree(path).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names = {t.id for t in targets if isinstance(t, ast.Name)}
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        if head in names:
            return node.lineno
    return _first_line(held, path)


def _first_line(held: Holdings, path: str) -> int:
    """The first statement that is no docstring."""
    body = held.tree(path).body
    rest = [n for n in body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    return (rest or body)[0].lineno if body else 1


def _sample(held: Holdings, path: str, mains: list[Hit], kind: str) -> EntryPoint | None:
    """A benchmark or example that is run: one with a main block, or a script that stands outside packages."""
    if mains:
        return EntryPoint(kind=kind, name=path, at=at(path, mains[0].line), text=mains[0].text)  # type: ignore[arg-type]  # pydantic checks the kind
    facts = held.by_path[path]
    outside = path.rpartition("/")[0] not in held.packages
    if not outside or path.endswith("__init__.py") or facts.broken:
        return None
    main = next((f for f in facts.functions if f.name == "main"), None)
    line = main.line if main else _first_line(held, path)
    return EntryPoint(kind=kind, name=path, at=at(path, line))  # type: ignore[arg-type]  # pydantic checks the kind
