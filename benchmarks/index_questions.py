"""One side of benchmarks/index.py in a process of its own: `python index_questions.py WHAT FOLDER [NAME]`; prints JSON.

Only what is measured is imported before it is measured.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PACKAGES = ("transformers", "torch")
SAMPLE = 2000


def parse_everything(_folder: Path, _name: str) -> dict[str, float]:
    """What no index can avoid that is made from whole trees: tree-sitter over every file."""
    import importlib.util

    import tree_sitter
    import tree_sitter_python

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language()))
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        for place in spec.submodule_search_locations or ():
            for file in Path(place).rglob("*.py"):
                parser.parse(file.read_bytes())
    return {}


def build_everything(folder: Path, _name: str) -> dict[str, float]:
    """The whole index of the installed packages, from nothing."""
    from opscope_tools.index.build.build import build
    from opscope_tools.running.workspace import installed_repository
    from opscope_tools.source.storage.places import index_place

    for package in PACKAGES:
        repository = installed_repository(package, package)
        assert repository is not None
        assert build(index_place(folder, repository), repository.root, repository.packages)
    return {}


def opened(folder: Path, roots: Sequence[Any] = ()) -> Any:
    from opscope_cache.store import MemoryStore
    from opscope_tools.index import open_index
    from opscope_tools.running.workspace import installed_repository

    found = list(roots) or [installed_repository(package, package) for package in PACKAGES]
    return open_index([repository for repository in found if repository is not None], MemoryStore(folder))


def answer(index: Any, name: str) -> None:
    """What `find_forward` needs: the class, its MRO, the forward that runs."""
    symbol = index.one(name)
    index.mro(symbol)
    assert index.forward(symbol) is not None


def first_answer(folder: Path, name: str) -> dict[str, float]:
    """The question alone is timed too: a server has its imports behind it."""
    index = opened(folder)
    return {"question": _cpu(lambda wanted: answer(index, wanted), name)}


def answer_after_the_sdk(folder: Path, name: str) -> dict[str, float]:
    import mcp.server.lowlevel
    import pydantic

    assert mcp.server.lowlevel
    assert pydantic
    begun = time.perf_counter()
    answer(opened(folder), name)
    return {"wall": time.perf_counter() - begun}


def references(folder: Path, name: str) -> dict[str, float]:
    """What in the package leads to the class: `find_references` in a new process without an index."""
    from opscope_tools.catalog import tool_named
    from opscope_tools.running.runner import run_tool
    from opscope_tools.running.tool import ToolContext
    from opscope_tools.running.workspace import Workspace

    workspace = Workspace.create(cache_folder=folder)
    found = run_tool(tool_named("find_references"), {"target": name, "repo": "transformers"}, ToolContext(workspace))
    workspace.store.close()
    return {"found": float(found.reference_count)}


def inspect_it(_folder: Path, name: str) -> dict[str, float]:
    import importlib
    import inspect

    module, _, last = name.rpartition(".")
    found = getattr(importlib.import_module(module), last)
    inspect.getsource(inspect.unwrap(found.forward))
    return {}


def jedi_goto(folder: Path, name: str) -> dict[str, float]:
    import jedi

    jedi.settings.cache_directory = str(folder / "jedi")
    module, _, last = name.rpartition(".")
    assert jedi.Script(f"from {module} import {last}\n{last}").goto(2, 0, follow_imports=True)
    return {}


def griffe_load(_folder: Path, _name: str) -> dict[str, float]:
    import griffe

    loaded = griffe.load("transformers", allow_inspection=False)
    assert loaded["models.llama.modeling_llama.LlamaForCausalLM"]
    return {}


def latencies(folder: Path, _name: str) -> dict[str, float]:
    """CPU seconds of each of `SAMPLE` random questions; and what the index adds to this process, in bytes."""
    import mcp.server.lowlevel

    assert mcp.server.lowlevel
    before = _resident()
    index = opened(folder)
    trees = index.resolver.trees
    names = [(tree, name) for tree in trees for name in sorted(tree.class_names())]
    sample = random.Random(0).sample(names, SAMPLE)
    places = [(tree, place) for tree, name in sample for place in tree.places(name)[:1]]
    qualified = [f"{tree.module_name(place.file)}.{place.path}" for tree, place in places if "<" not in place.path]
    for tree in trees:
        tree.files_mentioning("warm")
    found: dict[str, float] = {}
    for label, questions, ask in (
        ("class lookup", sample, lambda question: question[0].places(question[1])),
        ("find_forward with MRO, nothing read", qualified, lambda name: _forward(index, name)),
        ("find_forward with MRO, again", qualified, lambda name: _forward(index, name)),
        ("files that mention a class", sample, lambda question: question[0].files_mentioning(question[1])),
    ):
        times = sorted(_cpu(ask, question) for question in questions)
        found[f"{label} p50"] = times[len(times) // 2]
        found[f"{label} p99"] = times[int(len(times) * 0.99)]
    found["rss"] = _resident() - before
    return found


def _forward(index: Any, name: str) -> None:
    from opscope_schemas.errors import OpscopeError

    try:
        symbol = index.one(name)
    except OpscopeError:  # two definitions under conditions bear one name
        return
    index.mro(symbol)
    index.forward(symbol)


def one_change(folder: Path, _name: str) -> dict[str, float]:
    """A copy of transformers' Python files: the answer after one file changed, over the same answer before."""
    import importlib.util
    import shutil

    from opscope_tools.index.build.build import build
    from opscope_tools.running.workspace import folder_repository
    from opscope_tools.source.storage.places import index_place

    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    source = Path(next(iter(spec.submodule_search_locations or ())))
    copied = folder / "copy" / "transformers"
    keep = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so")
    shutil.copytree(source, copied, ignore=keep)
    repository = folder_repository("copy", copied.parent)
    build(index_place(folder, repository), repository.root, repository.packages)
    index = opened(folder, [repository])
    extra: list[float] = []
    files = sorted(copied.glob("models/*/modeling_*.py"))
    for file in random.Random(0).sample(files, 25):
        answer(index, "LlamaForCausalLM")
        warm = min(_cpu(lambda name: answer(index, name), "LlamaForCausalLM") for _ in range(3))
        name = f"Fresh{len(extra)}"
        file.write_text(f"{file.read_text()}\n\nclass {name}(nn.Module):\n    def forward(self):\n        return 1\n")
        extra.append(_cpu(lambda fresh: answer(index, fresh), name) - warm)
    return {"cpu": sorted(extra)[len(extra) // 2], "largest": max(extra)}


def _cpu(ask: Callable[[Any], object], question: Any) -> float:
    begun = time.process_time()
    ask(question)
    return time.process_time() - begun


def _resident() -> float:
    """Bytes of this process that are in memory now; the peak where the platform does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    what, folder, *name = sys.argv[1:]
    found = globals()[what](Path(folder), name[0] if name else "")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
