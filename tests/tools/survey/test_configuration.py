"""Flags against the parsers that the code really builds, config classes against the classes that Python makes of them."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from map_facts import CORPUS, mapped
from opscope_schemas.repo_map import RepoMapResult
from opscope_tools.running.workspace import installed_repository


@pytest.fixture
def corpus_import(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of a corpus repository, and forgets it afterwards."""
    before = set(sys.modules)

    def load(repository: str, module: str) -> Any:
        monkeypatch.syspath_prepend(str(CORPUS / repository))
        return importlib.import_module(module)

    yield load
    for name in set(sys.modules) - before:
        del sys.modules[name]


def flags_of(result: RepoMapResult, file: str | None = None) -> set[str]:
    return {n for flag in result.flags.flags if file is None or flag.at.startswith(f"{file}:") for n in flag.names}


def test_argparse_flags_are_those_of_the_parser_with_those_made_of_a_class(tmp_path: Path, corpus_import: Any) -> None:
    parser: argparse.ArgumentParser = corpus_import("engine", "pocket.cli").make_parser()
    real = {name for action in parser._actions for name in action.option_strings or [action.dest]} - {"-h", "--help"}
    result = mapped("engine", tmp_path)
    assert flags_of(result) - flags_of(result, "benchmarks/bench_decode.py") == real
    assert result.flags.dynamic == ()


def test_click_flags_are_those_of_the_command(tmp_path: Path, corpus_import: Any) -> None:
    group: click.Group = corpus_import("click_tool", "shelf.main").cli
    commands = [group, *group.commands.values()]
    real = {o for c in commands for p in c.params for o in (p.opts if isinstance(p, click.Option) else [p.name or ""])}
    found = {part for name in flags_of(mapped("click_tool", tmp_path)) for part in name.split("/")}
    assert found - {"--quiet"} == real
    assert [v.name for v in mapped("click_tool", tmp_path).environment.variables] == ["SHELF_YEAR"]


def test_typer_flags_are_those_of_the_command(tmp_path: Path, corpus_import: Any) -> None:
    typer = pytest.importorskip("typer")
    group = typer.main.get_command(corpus_import("typer_tool", "desk.app").app)
    real = {
        o
        for c in group.commands.values()
        for p in c.params
        for o in (p.opts if p.param_type_name == "option" else [p.name])
    }
    assert flags_of(mapped("typer_tool", tmp_path)) == real - {"--help"}


def test_absl_flags_are_found(tmp_path: Path) -> None:
    assert flags_of(mapped("jax_model", tmp_path)) == {"--width"}


@pytest.mark.slow
def test_every_add_argument_of_transformers_is_a_flag_or_counted_as_made_at_run_time(
    transformers_map: RepoMapResult,
) -> None:
    repository = installed_repository("transformers", "transformers")
    assert repository is not None
    literal = 0
    for path in (repository.root / "transformers").rglob("*.py"):
        if path.name == "testing_utils.py" or path.name.startswith("test_"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                literal += any(isinstance(a, ast.Constant) and isinstance(a.value, str) for a in node.args)
    assert literal > 0
    assert transformers_map.flags.by_mechanism["argparse"] == literal


@pytest.mark.parametrize("name", ["EngineArgs", "SamplingParams"])
def test_fields_are_those_of_the_dataclass(tmp_path: Path, corpus_import: Any, name: str) -> None:
    module = corpus_import("engine", "pocket.config" if name == "EngineArgs" else "pocket.sampling_params")
    found = next(c for c in mapped("engine", tmp_path).config_classes if c.name == name)
    real = getattr(module, name)
    assert [field.name for field in found.fields] == [field.name for field in dataclasses.fields(real)]
    assert found.kind == "dataclass"
    assert found.at == f"pocket/{module.__name__.rpartition('.')[2]}.py:{inspect.getsourcelines(real)[1] + 1}"


@pytest.mark.slow
def test_config_classes_of_transformers_derive_from_the_base(transformers_map: RepoMapResult) -> None:
    """A sample in every corner of the package: the class that Python imports is a configuration, at that line."""
    from transformers.configuration_utils import PreTrainedConfig

    chosen = [c for c in transformers_map.config_classes if c.kind == "PretrainedConfig"][::60]
    assert len(chosen) >= 15
    for one in chosen:
        path, _, line = one.at.rpartition(":")
        real = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), one.name)
        assert issubclass(real, PreTrainedConfig)
        assert any(n == int(line) for n in range(inspect.getsourcelines(real)[1], int(line) + 1))
