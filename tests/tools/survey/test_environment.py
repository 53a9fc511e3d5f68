"""Which variables are read: against a run that records every read, against text search, and what is said not to be known."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from map_facts import CORPUS, context_of, mapped
from opscope_schemas.repo_map import RepoMapResult
from opscope_tools.map_repo import MAP_REPO, MapRepoArguments
from opscope_tools.running.workspace import installed_repository

#: imports the module with an environment that notes each name it is asked for
_RECORDER = """
import json, os, sys
class Noting(dict):
    asked = []
    def get(self, key, default=None): Noting.asked.append(key); return default
    def __getitem__(self, key): Noting.asked.append(key); raise KeyError(key)
    def __contains__(self, key): Noting.asked.append(key); return False
os.environ = Noting()
os.getenv = os.environ.get
sys.path.insert(0, sys.argv[1])
import importlib.util
spec = importlib.util.spec_from_file_location("envs", sys.argv[1] + "/pocket/envs.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.read_all()
print(json.dumps(sorted(set(Noting.asked))))
"""


def test_every_variable_that_a_run_reads_is_found_and_no_other(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _RECORDER, str(CORPUS / "engine")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    read = {name for name in json.loads(done.stdout) if name.startswith("POCKET_")}
    assert len(read) >= 13
    variables = mapped("engine", tmp_path).environment.variables
    assert {v.name for v in variables if v.how not in {"set", "C++ getenv"}} == read
    assert {v.name for v in variables if v.how == "set"} == {"POCKET_ONLY_SET"}
    assert {v.name for v in variables if v.how == "C++ getenv"} == {"POCKET_CUDA_LEVEL"}


def test_what_no_mechanism_explains_and_what_is_made_at_run_time_is_said(tmp_path: Path) -> None:
    result = mapped("engine", tmp_path)
    assert [place.name for place in result.environment.unexplained] == ["POCKET_UNEXPLAINED"]
    text = (CORPUS / "engine/pocket/envs.py").read_text().splitlines()
    made = [n for n, line in enumerate(text, 1) if 'f"POCKET_{part}' in line]
    assert result.environment.dynamic == tuple(f"pocket/envs.py:{line}" for line in made)
    assert any("at run time" in note for note in result.notes)


def test_a_variable_that_only_tests_read_is_no_configuration(tmp_path: Path) -> None:
    assert "POCKET_TEST_ONLY" not in {v.name for v in mapped("engine", tmp_path).environment.variables}


@pytest.mark.slow
def test_no_read_that_a_text_search_finds_in_transformers_is_missed(transformers_map: RepoMapResult) -> None:
    """The search takes literal reads outside comments and strings: fewer than there are, none that is not one."""
    repository = installed_repository("transformers", "transformers")
    assert repository is not None
    pattern = re.compile(r"""(?<![\w.])os\.(?:environ\.get\(|getenv\(|environ\[)\s*["']([A-Z][A-Z0-9_]+)["']""")
    searched: set[str] = set()
    for path in (repository.root / "transformers").rglob("*.py"):
        if path.name in {"testing_utils.py"} or "_test" in path.name:
            continue
        for line in path.read_text().splitlines():
            for match in pattern.finditer(line):
                before = line[: match.start()]
                quoted = before.count("'") % 2 or before.count('"') % 2
                if not quoted and not before.lstrip().startswith(("#", ">>>")):
                    searched.add(match[1])
    found = {variable.name for variable in transformers_map.environment.variables}
    assert len(searched) > 50
    assert searched <= found, sorted(searched - found)


def test_the_keys_of_a_table_of_readers_are_its_variables(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    names = [f"SHOP_{word}" for word in ("PRICE", "STOCK", "DOOR", "SIGN")]
    rows = "\n".join(f'    "{name}": lambda: int(os.getenv("{name}", "0")),' for name in names)
    (folder / "envs.py").write_text(f"import os\n\nreaders = {{\n{rows}\n}}\n")
    from opscope_tools.running.workspace import folder_repository

    context = context_of(folder_repository("shop", folder), tmp_path)
    result = MAP_REPO.run(MapRepoArguments(repo="shop", detail="full"), context)
    assert [(v.name, v.at, v.how) for v in sorted(result.environment.variables, key=lambda v: v.at)] == [
        (name, f"envs.py:{line}", "table") for line, name in enumerate(names, 4)
    ]
