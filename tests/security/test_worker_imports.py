"""What the worker imports is the definition that the index read, and its fence keeps out what a configuration names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from opscope_schemas.errors import OpscopeError, TraceError
from opscope_tools.trace.protocol import Definition
from opscope_tools.trace.worker.definitions import imported, missing_package
from tally import Tally


def definition(root: Path, module: str, name: str, kind: str = "function", file: str = "") -> Definition:
    return Definition.model_validate(
        {"kind": kind, "module": module, "name": name, "root": str(root), "line": 1, "file": file or f"{module.replace('.', '/')}.py"}
    )  # fmt: skip


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    name = f"opscope_own_{abs(hash(tmp_path)) % 10**8}"
    (root / f"{name}.py").write_text(
        "import os, functools\nfrom os import system\nfrom collections import OrderedDict\n\n"
        "def make():\n    return 1\n\nclass Made:\n    pass\n\nclass Outer:\n    class Inner:\n        pass\n\n"
        "@functools.cache\ndef cached():\n    return 1\n\nlambda_made = lambda: 1\nPart = functools.partial(os.system)\n"
    )
    monkeypatch.syspath_prepend(root)
    return root


def module_of(root: Path) -> str:
    return next(root.glob("*.py")).stem


@pytest.mark.parametrize(
    ("name", "kind"), [("make", "function"), ("cached", "function"), ("Made", "class"), ("Outer.Inner", "class")]
)
def test_a_definition_is_imported(name: str, kind: str, root: Path) -> None:
    assert imported(definition(root, module_of(root), name, kind)).__qualname__ == name


@pytest.mark.parametrize(
    ("name", "kind"),
    [("system", "function"), ("os.system", "function"), ("OrderedDict", "class"), ("Part", "function"), ("lambda_made", "function"),
     ("make.__globals__", "function"), ("Made.__class__", "class"), ("Made.__init__.__globals__", "function"), ("__builtins__", "function"),
     ("__loader__", "class"), ("functools.partial", "class"), ("Made", "function"), ("make", "class"), ("nothing", "class")],
)  # fmt: skip
def test_what_a_module_merely_holds_is_refused(name: str, kind: str, root: Path, tmp_path: Path, tally: Tally) -> None:
    with pytest.raises(OpscopeError):
        imported(definition(root, module_of(root), name, kind))
    tally.execution(tmp_path / "mark")


@pytest.mark.parametrize(
    "module", ["os", "subprocess", "json.decoder", "opscope_no_such", "os.path", "builtins", "sys", "antigravity"]
)
def test_a_module_from_elsewhere_is_refused_and_not_imported(
    module: str, root: Path, tmp_path: Path, tally: Tally
) -> None:
    before = set(sys.modules)
    with pytest.raises(TraceError):
        imported(definition(root, module, "system"))
    assert set(sys.modules) - before == set()
    tally.execution(tmp_path / "mark")


def test_a_package_that_shadows_the_repository_is_not_run(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    mark, shadow = tmp_path / "mark", tmp_path / "shadow"
    for place, text in ((root, "def make(): ..."), (shadow, f"open({str(mark)!r}, 'w').close()\ndef make(): ...")):
        (place / "opscope_shadowed").mkdir(parents=True)
        (place / "opscope_shadowed/__init__.py").write_text(text)
    monkeypatch.syspath_prepend(shadow)
    with pytest.raises(TraceError, match="from another place"):
        imported(definition(root, "opscope_shadowed", "make", file="opscope_shadowed/__init__.py"))
    tally.execution(mark)


PROGRAM = """
import importlib, subprocess, sys
from pathlib import Path
folder = Path(sys.argv[1])
sys.path.insert(0, str(folder / "path"))
from opscope_tools.trace.protocol import Definition, ModelSpec
from opscope_tools.trace.worker.fence import fenced

def stopped(action):
    try:
        action()
    except (ImportError, PermissionError):
        return True
    return False

named = ModelSpec(content={"a": "opscope_named.thing", "b": {"c": [str(folder / "secret")]}})
with fenced(named):
    print(stopped(lambda: importlib.import_module("opscope_named")), stopped(lambda: open(folder / "secret/file")),
          stopped(lambda: list(Path(folder / "secret").iterdir())), stopped(lambda: subprocess.run(["true"])),
          stopped(lambda: __import__("socket").create_connection(("127.0.0.1", 9), 1)),
          stopped(lambda: importlib.import_module("opscope_unnamed")), stopped(lambda: open(folder / "other")))
own = Definition(kind="class", module="opscope_own", name="A", root=str(folder), file="opscope_own.py", line=1)
with fenced(named.model_copy(update={"definition": own})):
    print(stopped(lambda: subprocess.run(["true"])))
print(stopped(lambda: importlib.import_module("opscope_named")), stopped(lambda: open(folder / "secret/file")))
"""


def test_the_fence_keeps_out_what_is_named_and_nothing_else(tmp_path: Path) -> None:
    for name in ("named", "unnamed"):
        (tmp_path / f"path/opscope_{name}").mkdir(parents=True)
        (tmp_path / f"path/opscope_{name}/__init__.py").touch()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/file").touch()
    (tmp_path / "other").touch()
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    inside, trusted, outside = done.stdout.splitlines()
    assert inside.split() == ["True"] * 5 + ["False"] * 2
    assert trusted == "False"
    assert outside == "False False"


@pytest.mark.parametrize(
    ("error", "package"),
    [
        (ImportError("\nTimmBackbone requires the timm library but it was not found in your environment."), "timm"),
        (ModuleNotFoundError("No module named 'flash_attn.layers'", name="flash_attn.layers"), "flash_attn"),
        (
            ImportError("The 'requests>=2.0' distribution was not found and is required by this application."),
            "requests",
        ),
        (ImportError("Please install it with `pip install accelerate`"), "accelerate"),
        (ValueError("No module named 'x'"), ""),
    ],
    ids=str,
)
def test_the_missing_package_is_read_off_the_error(error: Exception, package: str) -> None:
    assert missing_package(error) == package
