"""The arrows between packages, the weight of starting a server, how deep classes inherit, what has a docstring, and that
these checks can fail.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "server": "opscope_server",
    "tools": "opscope_tools",
    "prompts": "opscope_prompts",
    "schemas": "opscope_schemas",
    "cache": "opscope_cache",
    "clients": "opscope_clients",
}
#: what neither starting the server nor running a command that needs no tracing may load
HEAVY = ("torch", "transformers", "tree_sitter", "jinja2", "numpy", "sympy", "matplotlib", "PIL", "pandas")
LOADED = "import sys; print(sorted({name.partition('.')[0] for name in sys.modules}))"


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """import-linter over the packages below `folder`."""
    path = ":".join(str(folder / top) for top in PACKAGES)
    return subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--config", str(folder / "pyproject.toml")],
        capture_output=True, text=True, timeout=120, cwd=folder, env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages and contracts, to plant imports in."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for top, package in PACKAGES.items():
        shutil.copytree(ROOT / top / package, folder / top / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_no_import_runs_against_the_arrows(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "planted", "contract"),
    [
        ("schemas/opscope_schemas/errors.py", "import opscope_cache.keys", "one road"),
        ("tools/opscope_tools/running/tool.py", "import opscope_server.settings", "one road"),
        ("prompts/opscope_prompts/loader.py", "import opscope_schemas.errors", "prompts import nothing of ours"),
        ("tools/opscope_tools/report/__init__.py", "import opscope_tools.index", "engines are siblings"),
        ("tools/opscope_tools/running/runner.py", "import mcp", "only server and clients speak MCP"),
        ("tools/opscope_tools/index/__init__.py", "import torch", "only the trace worker imports torch"),
        (
            "tools/opscope_tools/pictures/canvas.py",
            "import opscope_tools.hardware",
            "pictures are drawn from what results say",
        ),
        ("tools/opscope_tools/report/svg.py", "import matplotlib", "only pictures know the drawing library"),
    ],
)
def test_a_planted_import_is_caught(copy: Path, module: str, planted: str, contract: str) -> None:
    path = copy / module
    kept = path.read_text()
    path.write_text(f"{kept}\n{planted}\n")
    try:
        done = lint(copy)
    finally:
        path.write_text(kept)
    assert done.returncode != 0
    broken = [line for line in done.stdout.splitlines() if line.endswith("BROKEN")]
    assert any(line.startswith(contract) for line in broken), done.stdout


def loaded(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after `statement`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\n{LOADED}"], capture_output=True, text=True, timeout=60, check=True
    )
    return set(eval(done.stdout.splitlines()[-1], {"__builtins__": {}}))


START = (
    "from pathlib import Path; from opscope_cache.store import MemoryStore\n"
    "from opscope_tools.running.workspace import Workspace\n"
    "from opscope_server.server import build_server; import anyio\n"
    "server = build_server(Workspace(repositories={}, output=Path('.'), store=MemoryStore()))\n"
    "anyio.run(server.list_tools)"
)


def test_starting_the_server_and_listing_its_tools_loads_nothing_heavy() -> None:
    assert loaded(START).isdisjoint(HEAVY)


def test_the_command_line_loads_neither_the_sdk_nor_anything_heavy() -> None:
    assert loaded("import opscope_clients.cli").isdisjoint({*HEAVY, "mcp", "mcp_types", "starlette", "uvicorn"})


def test_what_hosts_start_imports_neither_the_other_commands_nor_a_tool() -> None:
    statement = (
        "import sys, opscope_clients.serving, opscope_server.server, opscope_server.transports\n"
        "wanted = {'opscope_clients.cli', 'opscope_clients.serving', 'opscope_tools.count_flops', 'opscope_tools.map_repo', 'opscope_tools.write_report'}\n"
        "sys.modules = {name.replace('.', '/'): None for name in wanted & set(sys.modules)}"
    )
    assert loaded(statement) == {"opscope_clients/serving"}


@pytest.mark.parametrize("module", ["jinja2", "tree_sitter"])
def test_a_heavy_module_would_be_seen(module: str) -> None:
    assert module in loaded(f"{START}\nimport {module}")


def modules() -> list[str]:
    return [
        name
        for package in PACKAGES.values()
        for _, name, _ in pkgutil.walk_packages([str(ROOT / _top(package) / package)], f"{package}.")
        if "worker" not in name and not name.endswith("__main__")
    ]


def _top(package: str) -> str:
    return next(top for top, name in PACKAGES.items() if name == package)


def test_every_name_that_a_module_exports_exists() -> None:
    for name in modules():
        module = importlib.import_module(name)
        missing = [entry for entry in getattr(module, "__all__", ()) if not hasattr(module, entry)]
        assert not missing, f"{name}.__all__ names {missing}"


def storeys(kind: type) -> int:
    """How many classes of ours stand on one another up to this one, protocols left out."""
    ours = [b for b in kind.__bases__ if b.__module__.startswith("opscope_") and not getattr(b, "_is_protocol", False)]
    return 1 + max(map(storeys, ours), default=0)


def test_what_runs_a_kernel_is_made_of_parts_and_not_of_storeys() -> None:
    modules_ = [importlib.import_module(name) for name in modules() if name.startswith("opscope_tools.kernels.")]
    kinds = {k for module in modules_ for k in vars(module).values() if isinstance(k, type)}
    assert len(kinds) > 100
    assert {k.__name__: storeys(k) for k in kinds if storeys(k) > (1 if ".cuda.run." in k.__module__ else 3)} == {}


def test_every_guard_that_mutants_take_away_stands_once_in_its_file() -> None:
    """A row whose text has gone takes nothing away, and would say nothing of its tests."""
    rows = runpy.run_path(str(ROOT / "tests/mutants/table.py"))["MUTANTS"]
    stands = {row.guard: (ROOT / row.file).read_text(encoding="utf-8").count(row.text) for row in rows}
    assert {guard: count for guard, count in stands.items() if count != 1} == {}


def test_every_module_tells_its_maintainer_what_is_in_it() -> None:
    for name in modules():
        module = importlib.import_module(name)
        assert module.__doc__ or not Path(str(module.__file__)).read_text(), f"{name} has no docstring"


#: what the page names as a file or a folder of ours; a file with a line is somebody else's
NAMED = sorted(set(re.findall(r"[a-z_/]*[a-z_](?:\.py\b(?!:)|/)", (ROOT / "docs" / "architecture.md").read_text())))


def test_the_page_about_the_architecture_names_what_the_tree_holds() -> None:
    assert len(NAMED) > 40
    assert [n for n in NAMED if not any((base / n).exists() for base in (ROOT, ROOT / "tools" / "opscope_tools"))] == []


#: how many classes of ours may stand in one line of inheritance
STOREYS = 3


@cache
def trees(folder: Path) -> dict[str, ast.Module]:
    """The modules below `folder` by their dotted names."""
    names = {file: ".".join(file.relative_to(folder).with_suffix("").parts) for file in sorted(folder.rglob("*.py"))}
    return {name.removesuffix(".__init__"): ast.parse(file.read_text()) for file, name in names.items()}


def named(tree: ast.Module, module: str) -> dict[str, str]:
    """What the names of a module stand for: its own classes, and what it imports."""
    found = {node.name: f"{module}.{node.name}" for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            found |= {alias.asname or alias.name: f"{start}{alias.name}" for alias in node.names}
    return found


def too_deep(folder: Path) -> list[list[str]]:
    """Lines of inheritance among the classes below `folder` that are too long, each from the class upwards."""
    parents: dict[str, list[str]] = {}
    meant: dict[str, str] = {}
    for module, tree in trees(folder).items():
        names = named(tree, module)
        meant |= {f"{module}.{name}": whole for name, whole in names.items()}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base).partition("[")[0].partition(".") for base in node.bases]
                parents[f"{module}.{node.name}"] = [names.get(a, a) + dot + b for a, dot, b in bases]

    def line(name: str) -> list[str]:
        while name not in parents and name in meant:  # exported once more by another module
            name = meant[name]
        return [name, *max(map(line, parents[name]), key=len, default=[])] if name in parents else []

    return [found for name in parents if len(found := line(name)) > STOREYS]


def stubs(folder: Path) -> list[str]:
    """Lines that raise NotImplementedError."""
    return [
        f"{module}:{node.lineno}" for module, tree in trees(folder).items() for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and node.exc and ast.unparse(node.exc).startswith("NotImplementedError")
    ]  # fmt: skip


def test_parts_are_handed_to_each_other_instead_of_inheriting() -> None:
    assert too_deep(ROOT / "tools") == []


def test_nothing_is_left_to_a_subclass_by_a_stub() -> None:
    assert stubs(ROOT / "tools") == []


def test_deep_inheritance_and_a_stub_are_seen(tmp_path: Path) -> None:
    (tmp_path / "low.py").write_text(
        "class A: ...\nclass B(A): ...\nclass C(B):\n    def f(self):\n        raise NotImplementedError('above')\n"
    )
    (tmp_path / "middle.py").write_text("import low\nfrom low import C\n\nclass D(low.C): ...\n")
    (tmp_path / "high.py").write_text("from middle import C as Base\n\nclass E(Base[int]): ...\n")
    assert too_deep(tmp_path) == [["high.E", "low.C", "low.B", "low.A"], ["middle.D", "low.C", "low.B", "low.A"]]
    assert stubs(tmp_path) == ["low:5"]


def untold(folder: Path) -> list[str]:
    """Public classes, functions and methods without a docstring; those of Protocols and the tracer need none."""

    def within(node: ast.Module | ast.ClassDef, path: str) -> list[str]:
        found: list[str] = []
        for part in node.body:
            if not isinstance(part, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or part.name.startswith("_"):
                continue
            if ast.get_docstring(part) is None:
                found.append(f"{path}.{part.name}")
            if isinstance(part, ast.ClassDef) and not any("Protocol" in ast.unparse(base) for base in part.bases):
                found += within(part, f"{path}.{part.name}")
        return found

    return [name for module, tree in trees(folder).items() if ".trace." not in module for name in within(tree, module)]


@pytest.mark.parametrize("top", ["tools", "schemas", "cache", "server"])
def test_what_others_may_use_says_what_its_name_does_not(top: str) -> None:
    assert untold(ROOT / top) == []


def test_a_public_name_without_a_docstring_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "class A:\n    'A.'\n    def f(self): ...\n    def _g(self): ...\nclass P(Protocol):\n    'P.'\n    def h(self): ...\n"
    )
    assert untold(tmp_path) == ["a.A.f"]
