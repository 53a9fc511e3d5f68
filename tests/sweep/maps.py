"""The configuration surface of whole repositories against counts made without the survey: `python tests/sweep/maps.py NAME=PATH ...`.

Flags: `add_argument` calls with a literal name, by `ast`. Variables: literal reads by `ast`, keys of dicts of readers, and, with
`--import FILE:DICT`, the keys of a dict of a module that is run. Prints what one side has and the other has not.
"""

from __future__ import annotations

import ast
import runpy
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from map_facts import context_of, fact_count, wrong_facts
from opscope_schemas.repo_map import RepoMapResult
from opscope_tools.map_repo import MAP_REPO, MapRepoArguments
from opscope_tools.running.runner import to_json
from opscope_tools.running.workspace import folder_repository
from opscope_tools.survey.roles import role_of


def main() -> None:
    """A paragraph for each repository."""
    arguments = sys.argv[1:]
    tables = [arguments[n + 1] for n, word in enumerate(arguments) if word == "--import"]
    for part in [word for word in arguments if "=" in word]:
        name, _, path = part.partition("=")
        repository = folder_repository(name, Path(path))
        context = context_of(repository, Path.cwd())
        result = MAP_REPO.run(MapRepoArguments(repo=name, detail="full"), context)
        short = MAP_REPO.run(MapRepoArguments(repo=name), context)
        print(
            f"{name}: {result.framework}; language model: {result.llm and result.llm.related}; short form {len(to_json(short)):,} characters"
        )
        wrong = wrong_facts(result, repository.root)
        print(
            f"  {fact_count(result):,} facts, {len(wrong)} not on their line{''.join(f'{chr(10)}    {w}' for w in wrong[:5])}"
        )
        _flags(result, repository.root)
        _variables(result, repository.root)
    for table in tables:
        file, _, held = table.partition(":")
        keys = set(runpy.run_path(file)[held])
        found = {v.name for v in result.environment.variables}
        print(f"  {held} of {file} when run: {len(keys)} keys, missing in the map: {sorted(keys - found) or 'none'}")


def _parsed(root: Path) -> Iterator[tuple[str, ast.Module]]:
    """The Python files that the survey counts: neither tests nor others' code."""
    packages = {p.parent.relative_to(root).as_posix() for p in root.rglob("__init__.py")}
    for path in root.rglob("*.py"):
        file = path.relative_to(root).as_posix()
        if role_of(file, packages)[0] not in {"tests", "third party"}:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield file, ast.parse(path.read_text(encoding="utf-8-sig", errors="replace"))


def _flags(result: RepoMapResult, root: Path) -> None:
    counted = {
        (f"{file}:{node.lineno}")
        for file, tree in _parsed(root) for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
        and any(isinstance(a, ast.Constant) and isinstance(a.value, str) for a in node.args)
    }  # fmt: skip
    found = {flag.at for flag in result.flags.flags if flag.how == "argparse"}
    print(
        f"  add_argument with a literal: {len(counted)} by ast, {len(found)} in the map, {len(counted ^ found)} differ; {len(result.flags.dynamic)} made at run time"
    )


def _variables(result: RepoMapResult, root: Path) -> None:
    counted = set()
    for _, tree in _parsed(root):
        for node in ast.walk(tree):
            key = (
                node.args[0]
                if isinstance(node, ast.Call) and node.args
                else node.slice
                if isinstance(node, ast.Subscript)
                else None
            )
            reader = (
                node.func if isinstance(node, ast.Call) else node.value if isinstance(node, ast.Subscript) else None
            )
            if (
                reader is not None
                and ast.unparse(reader) in {"os.environ.get", "os.getenv", "os.environ"}
                and isinstance(key, ast.Constant)
            ):
                counted.add(str(key.value))
    found = {variable.name for variable in result.environment.variables}
    surface = result.environment
    print(
        f"  variables: {len(counted)} literal reads or settings by ast, {len(found)} in the map ({surface.by_mechanism}), "
        f"missing {sorted(counted - found) or 'none'}; {len(surface.dynamic)} made at run time, {len(surface.unexplained)} unexplained"
    )


if __name__ == "__main__":
    main()
