"""What a file shows: definitions, imports, environment variables and command-line flags, on files made for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_tools.index import Index, open_index
from opscope_tools.index.references.surface import FileSurface, import_graph, surface
from opscope_tools.running.workspace import folder_repository

FILES = {
    "app/__init__.py": "from .core import run\n",
    "app/envs.py": (
        "import os\n"
        "\n"
        "def flag(default, name):\n"
        "    return os.getenv(name, default) == '1'\n"
        "\n"
        "def plain(name):\n"
        "    return name\n"
    ),
    "app/core.py": (
        "from __future__ import annotations\n"
        "import os, os.path as path\n"
        "from os import environ as env, getenv\n"
        "from typing import TYPE_CHECKING\n"
        "from . import envs\n"
        "from .envs import flag as is_set, plain\n"
        "if TYPE_CHECKING:\n"
        "    from .cli import main\n"
        "\n"
        "@decorated(1)\n"
        "class Engine:\n"
        "    kind = os.environ.get('APP_KIND', 'fast')\n"
        "\n"
        "    @property\n"
        "    def size(self):\n"
        "        from .cli import parser\n"
        "        return env['APP_SIZE']\n"
        "\n"
        "def run(environ):\n"
        "    os.environ['APP_OUT'] = '1'\n"
        "    if 'APP_CHECK' in os.environ:\n"
        "        environ['NOT_ONE'], environ.get('NOT_TWO')\n"
        "    plain('NOT_THREE')\n"
        "    return is_set('0', 'APP_FLAG'), envs.flag('0', name='APP_X'), getenv('APP_' + 'LATE')\n"
    ),
    "app/cli.py": (
        "import argparse\n"
        "import click\n"
        "from typer import Option\n"
        "\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--model', '-m', default='llama', help='Which model\\n is meant')\n"
        "parser.add_argument('path')\n"
        "\n"
        "@click.command()\n"
        "@click.option('--depth', default=3)\n"
        "def main(depth, option):\n"
        "    option('--not-a-flag')\n"
        "\n"
        "def serve(port: int = Option(8000, help='Port')):\n"
        "    pass\n"
    ),
}


@pytest.fixture
def app(tmp_path: Path) -> Index:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return open_index([folder_repository("mine", tmp_path)], MemoryStore())


def look(index: Index, file: str) -> FileSurface:
    return surface(index.resolver, index.resolver.trees[0], file)


def test_definitions_come_with_lines_and_decorators(app: Index) -> None:
    found = look(app, "app/core.py").definitions
    assert [(d.kind, d.path, d.line, d.decorators) for d in found] == [
        ("class", "Engine", 11, ("decorated(1)",)),
        ("function", "Engine.size", 15, ("property",)),
        ("function", "run", 19, ()),
    ]


def test_imports_name_the_file_that_they_read_also_inside_functions(app: Index) -> None:
    found = [(i.module, i.member, i.name, i.line, i.file, i.within) for i in look(app, "app/core.py").imports]
    assert found == [
        ("os", "", "os", 2, "", ""),
        ("os.path", "", "path", 2, "", ""),
        ("os", "environ", "env", 3, "", ""),
        ("os", "getenv", "getenv", 3, "", ""),
        ("typing", "TYPE_CHECKING", "TYPE_CHECKING", 4, "", ""),
        ("app", "envs", "envs", 5, "app/envs.py", ""),
        ("app.envs", "flag", "is_set", 6, "app/envs.py", ""),
        ("app.envs", "plain", "plain", 6, "app/envs.py", ""),
        ("app.cli", "main", "main", 8, "app/cli.py", ""),
        ("app.cli", "parser", "parser", 16, "app/cli.py", "Engine.size"),
    ]


def test_environment_variables_are_found_through_imports_and_helpers(app: Index) -> None:
    found = look(app, "app/core.py").environment
    assert [(e.name, e.default, e.line, e.how, e.within, e.written) for e in found] == [
        ("APP_KIND", "'fast'", 12, "os.environ.get", "Engine", False),
        ("APP_SIZE", "", 17, "env", "Engine.size", False),
        ("APP_OUT", "", 20, "os.environ", "run", True),
        ("APP_CHECK", "", 21, "os.environ", "run", False),
        ("APP_FLAG", "'0'", 24, "is_set", "run", False),
        ("APP_X", "'0'", 24, "envs.flag", "run", False),
    ]


def test_flags_of_argparse_click_and_typer_are_found(app: Index) -> None:
    found = look(app, "app/cli.py").flags
    assert [(f.names, f.default, f.help, f.line, f.how, f.within) for f in found] == [
        (("--model", "-m"), "'llama'", "Which model\\n is meant", 6, "parser.add_argument", ""),
        (("path",), "", "", 7, "parser.add_argument", ""),
        (("--depth",), "3", "", 10, "click.option", ""),
        (("port",), "8000", "Port", 14, "Option", "serve"),
    ]


def test_the_import_graph_leads_from_file_to_file(app: Index) -> None:
    graph = import_graph(app.resolver.trees[0])
    edges = {file: sorted({i.file for i in imports if i.file}) for file, imports in graph.items()}
    assert edges == {
        "app/__init__.py": ["app/core.py"],
        "app/cli.py": [],
        "app/core.py": ["app/cli.py", "app/envs.py"],
        "app/envs.py": [],
    }
    assert [i.type_checking for i in graph["app/core.py"] if i.file == "app/cli.py"] == [True]
