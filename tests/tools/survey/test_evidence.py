"""What decides beside names: the work of a body, imports that lead somewhere, names in tables."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.repo_map import Component, Counted, RepoMapResult
from opscope_tools.map_repo import MAP_REPO, MapRepoArguments
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace, folder_repository

ENGINE = Path(__file__).parents[2] / "corpus/survey/engine"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ENGINE, tmp_path / "engine")
    return tmp_path / "engine"


def mapped(folder: Path, **arguments: str) -> RepoMapResult:
    context = ToolContext(Workspace({"engine": folder_repository("engine", folder)}, folder.parent, MemoryStore()))
    return MAP_REPO.run(MapRepoArguments(repo="engine", detail="full", **arguments), context)  # type: ignore[arg-type]  # pydantic checks


def role(result: RepoMapResult, name: str) -> Component:
    return next(component for component in result.components if component.role == name)


def line(folder: Path, file: str, text: str) -> str:
    lines = (folder / file).read_text().splitlines()
    return f"{file}:{next(n for n, held in enumerate(lines, 1) if text in held)}"


NAMED_ONLY = """
class WatermarkAttention:
    def forward(self, picture):
        return picture + 1
"""
WORKS = NAMED_ONLY.replace("picture + 1", "torch.softmax(picture, -1)").replace("\nclass", "import torch\n\nclass")


@pytest.mark.parametrize(("text", "counts"), [(NAMED_ONLY, False), (WORKS, True)])
def test_a_class_that_only_bears_the_name_of_a_role_does_not_play_it(folder: Path, text: str, counts: bool) -> None:
    (folder / "pocket/watermark.py").write_text(text)
    found = {c.name: c for c in role(mapped(folder), "attention backend").candidates}
    assert ("WatermarkAttention" in found) == counts
    if counts:
        assert [place.at for place in found["WatermarkAttention"].does] == [
            line(folder, "pocket/watermark.py", "torch.softmax")
        ]


def test_a_role_that_only_names_stand_for_is_not_found_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "llm").mkdir()
    (tmp_path / "llm/__init__.py").write_text("")
    (tmp_path / "llm/model.py").write_text(
        "import torch\nimport transformers\n\n\nclass TinyForCausalLM(torch.nn.Module):\n"
        "    def forward(self, past_key_values, kv_cache):\n        return self.lm(past_key_values, kv_cache)\n\n\n"
        "class PaintScheduler:\n    def schedule(self, colour):\n        return colour\n"
    )
    result = mapped(tmp_path)
    assert result.llm is not None
    assert result.llm.related
    scheduler = role(result, "scheduler")
    assert not scheduler.candidates
    assert "1 that bear such a name show nothing of it" in scheduler.searched


def test_a_class_of_any_name_whose_method_samples_plays_the_role_where_no_other_does(tmp_path: Path) -> None:
    (tmp_path / "llm").mkdir()
    (tmp_path / "llm/__init__.py").write_text("")
    (tmp_path / "llm/model.py").write_text(
        "import torch\nimport transformers\n\n\nclass Tiny:\n"
        "    def sample_from(self, logits):\n        return torch.multinomial(logits, 1)\n\n"
        "    def sample(self, logits, past_key_values, kv_cache):\n        return self.sample_from(logits)\n\n"
        "    def generate(self, prompt):\n        past_key_values = None\n        while True:\n"
        "            prompt = self.sample(self.forward(prompt), past_key_values, None)\n"
    )
    result = mapped(tmp_path)
    assert [c.name for c in role(result, "sampling").candidates] == ["Tiny"]
    assert [c.name for c in role(result, "runtime loop").candidates] == ["Tiny"]


def test_functions_that_sample_or_make_a_sampler_play_the_role_where_no_class_does(tmp_path: Path) -> None:
    (tmp_path / "llm").mkdir()
    (tmp_path / "llm/__init__.py").write_text("")
    (tmp_path / "llm/model.py").write_text(
        "import transformers\nimport mlx.core as mx\n\n\nclass TinyForCausalLM:\n"
        "    def forward(self, past_key_values, kv_cache):\n        return past_key_values\n\n\n"
        "def make_sampler(temp):\n    return lambda logprobs: mx.random.categorical(logprobs / temp)\n\n\n"
        "def colour_sampler(colours):\n    return colours[0]\n"
    )
    found = role(mapped(tmp_path), "sampling").candidates
    assert [(c.name, c.at) for c in found] == [("make_sampler", "llm/model.py:10")]


def test_a_method_looked_up_by_a_name_in_a_table_is_followed(folder: Path) -> None:
    (folder / "pocket/modes.py").write_text(
        "MODES = {1: '_greedy', 2: '_beam', 3: 'someone/elsewhere'}\n\n\nclass Tiny:\n"
        "    def generate(self, mode):\n        run = getattr(type(self), MODES[mode])\n        return run(self)\n\n"
        "    def _greedy(self):\n        while True:\n            self.logits.argmax()\n\n"
        "    def _beam(self):\n        for _ in range(9):\n            self.logits.multinomial()\n"
    )
    nest = mapped(folder, entry="Tiny.generate").loops[0]
    file = "pocket/modes.py"
    assert [(one.kind, one.into) for one in nest.lines if one.kind == "choice"] == [
        ("choice", line(folder, file, "def _greedy")), ("choice", line(folder, file, "def _beam")),
    ]  # fmt: skip
    assert nest.reaches == ("sample",)
    depths = {one.at: one.depth for one in nest.lines}
    assert depths[line(folder, file, "argmax")] > depths[line(folder, file, "while True")]


def test_a_method_that_loops_is_a_candidate_whatever_its_class_is_called(folder: Path) -> None:
    (folder / "pocket/ticker.py").write_text(
        "class Ticker:\n    def _run_generation_loop(self):\n        while True:\n            self.model.execute_model()\n"
    )
    names = [place.name for place in mapped(folder).loop_candidates]
    assert "Ticker._run_generation_loop" in names


SERVER = "import fastapi\n\napp = fastapi.FastAPI()\n"


def test_the_server_that_scripts_lead_to_and_that_serves_the_most_comes_first(tmp_path: Path) -> None:
    """By their paths alone the others would come first."""
    package = tmp_path / "tool"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "aside.py").write_text(SERVER)
    (package / "big.py").write_text(
        SERVER + "".join(f"\n\n@app.get('/{n}')\ndef f{n}():\n    return {n}\n" for n in range(6))
    )
    (package / "deep/main.py").write_text(f"from tool.big import app as mounted\n{SERVER}")  # a folder without __init__
    (package / "cli.py").write_text("def main():\n    from tool.deep.main import app\n    app.run()\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "tool"\n[project.scripts]\ntool = "tool.cli:main"\n')
    servers = [entry.at for entry in mapped(tmp_path).entry_points if entry.kind == "server"]
    assert [place.partition(":")[0] for place in servers] == ["tool/deep/main.py", "tool/big.py", "tool/aside.py"]


def test_importers_count_where_a_package_lies_in_a_folder_without_init(tmp_path: Path) -> None:
    (tmp_path / "outer/core").mkdir(parents=True)
    (tmp_path / "outer/core/__init__.py").write_text("")
    (tmp_path / "outer/core/parts.py").write_text("class Wheel:\n    pass\n")
    for name in ("a", "b"):
        (tmp_path / f"outer/core/{name}.py").write_text("from outer.core.parts import Wheel\n")
    (tmp_path / "outer/core/c.py").write_text("from .parts import Wheel\n")
    counted = {c.name: c.importers for c in role(mapped(tmp_path), "most imported").candidates}
    assert counted["Wheel"] == 3


LLM = (
    "import torch\nimport transformers\n\n\nclass TinyForCausalLM(torch.nn.Module):\n"
    "    def forward(self, past_key_values, kv_cache):\n        return self.lm(past_key_values, kv_cache)\n"
)


def counted(result: RepoMapResult, subject: str, name: str) -> Counted:
    listed: tuple[Counted, ...] = getattr(result, subject)
    return next(one for one in listed if one.name == name)


def test_nothing_is_said_to_be_missing_that_stands_in_files_with_another_name(tmp_path: Path) -> None:
    (tmp_path / "llm").mkdir()
    (tmp_path / "llm/__init__.py").write_text("")
    (tmp_path / "llm/model.py").write_text(LLM)
    seeds = "determinism and seeds"
    nothing = counted(mapped(tmp_path), "sampling", seeds)
    assert nothing.count == 0
    assert nothing.searched.endswith("in 2 source files")
    (tmp_path / "llm/worker.py").write_text(
        "import random\nfrom typing import Generator\n\n\ndef start(random_seed) -> Generator:\n    random.seed(random_seed)\n"
    )
    found = counted(mapped(tmp_path), "sampling", seeds)
    assert (found.count, found.files, found.scope) == (2, 1, "")
    assert {place.at for place in found.places} <= {"llm/worker.py:5", "llm/worker.py:6"}
    (tmp_path / "llm/sampler.py").write_text("def draw(seed):\n    return seed\n")
    narrowed = counted(mapped(tmp_path), "sampling", seeds)
    assert (narrowed.count, narrowed.files) == (2, 1)
    assert narrowed.scope.endswith("; 2 lines elsewhere")


def test_libraries_that_may_be_missing_are_counted_with_their_files(tmp_path: Path) -> None:
    (tmp_path / "llm").mkdir()
    (tmp_path / "llm/__init__.py").write_text("")
    (tmp_path / "llm/model.py").write_text(LLM)
    for name in ("a", "b"):
        (tmp_path / f"llm/{name}.py").write_text(
            "try:\n    import xformers\nexcept ImportError:\n    xformers = None\n"
        )
    found = counted(mapped(tmp_path), "kernels", "optional libraries")
    assert (found.count, found.files) == (1, 2)
    for subject in ("kv_cache", "scheduler", "sampling", "kernels"):
        assert all(bool(one.count) == bool(one.files) for one in getattr(mapped(tmp_path), subject))


SERVERS = """
import asyncio
from http.server import ThreadingHTTPServer

import aiohttp.web
import grpc
import uvicorn
import websockets
from websockets.asyncio.server import serve


async def main(app, handler):
    await websockets.serve(handler, "host", 1)
    await serve(handler, "host", 2)
    await asyncio.start_server(handler, "host", 3)
    uvicorn.run(app)
    grpc.server(None)
    aiohttp.web.run_app(app)
    ThreadingHTTPServer(("host", 4), handler)
    handler.serve("not a server that is known")
"""


def test_what_listens_is_a_server_whatever_library_it_is_of(tmp_path: Path) -> None:
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool/__init__.py").write_text("")
    (tmp_path / "tool/listen.py").write_text(SERVERS)
    servers = {entry.at for entry in mapped(tmp_path).entry_points if entry.kind == "server"}
    lines = SERVERS.splitlines()
    first = lines.index("async def main(app, handler):") + 2
    assert servers == {f"tool/listen.py:{number}" for number in range(first, first + 7)}


def test_a_registry_that_asks_modules_for_a_name_has_what_they_bind_to_it(tmp_path: Path) -> None:
    models = tmp_path / "llm/models"
    models.mkdir(parents=True)
    for place in (tmp_path / "llm", models):
        (place / "__init__.py").write_text("")
    for name in ("Red", "Blue", "Green"):
        (models / f"{name.lower()}.py").write_text(f"class {name}:\n    pass\n\n\nEntryClass = [{name}]\n")
    (models / "aside.py").write_text("EntryClass = 3\n")
    (models / "registry.py").write_text(
        "def classes(modules):\n    return [m.EntryClass for m in modules if hasattr(m, 'EntryClass')]\n\n\n"
        "ModelRegistry = make_registry(classes([]))\n"
        "TABLE = {'RedForCausalLM': ('red', 'Red'), 'BlueModel': ('blue', 'Blue')}\nCOLOURS = {'Red': 1, 'Blue': 2}\n"
    )
    found = {fact.name: fact for fact in mapped(tmp_path).extensions}
    assert set(found) == {"ModelRegistry", "TABLE"}
    assert (found["ModelRegistry"].at, found["ModelRegistry"].count) == ("llm/models/registry.py:5", 3)
    assert {place.name for place in found["ModelRegistry"].siblings} == {"Red", "Blue", "Green"}
    assert (found["TABLE"].at, found["TABLE"].count) == ("llm/models/registry.py:6", 2)


def test_classes_that_share_a_base_with_a_candidate_stand_beside_it(tmp_path: Path) -> None:
    (tmp_path / "llm").mkdir()
    (tmp_path / "llm/__init__.py").write_text("")
    (tmp_path / "llm/model.py").write_text(LLM)
    stores = "class KVCache:\n    def set_kv_buffer(self, k_cache, v_cache):\n        self.k_cache = k_cache\n"
    for name in ("Plain", "Latent"):
        stores += f"\n\nclass {name}Rows(KVCache):\n    def put(self, key):\n        return key\n"
    (tmp_path / "llm/memory.py").write_text(stores)
    places = counted(mapped(tmp_path), "kv_cache", "structure").places
    assert [(place.name, place.text) for place in places] == [
        ("KVCache", ""), ("PlainRows", "derives from KVCache"), ("LatentRows", "derives from KVCache"),
    ]  # fmt: skip


def test_a_folder_that_holds_most_of_the_lines_is_split_into_its_folders(tmp_path: Path) -> None:
    lines = {"small/a.py": 10, "big/x/one.py": 50, "big/x/deep/two.py": 40, "big/y/three.py": 20, "big/four.py": 5}
    for path, count in lines.items():
        file = tmp_path / "pack" / path
        for folder in (file.parent, *file.parent.parents[:2]):
            folder.mkdir(parents=True, exist_ok=True)
            if folder.is_relative_to(tmp_path / "pack"):
                (folder / "__init__.py").write_text("")
        file.write_text("a = 1\n" * count)
    (tmp_path / "pack/__init__.py").write_text("")
    rows = {row.path: row.lines for row in mapped(tmp_path).modules}
    assert rows == {
        "pack": 125, "pack/big": 115, "pack/big/x": 90, "pack/big/x/deep": 40, "pack/big/y": 20, "pack/small": 10,
    }  # fmt: skip


WARNS = """
import warnings
from logging import getLogger

logger = getLogger()


def check(size, name):
    if size > 8:
        warnings.warn(f"{name} is {size + 1} wide", stacklevel=2)
    else:
        for _ in name:
            logger.warning("%s has %d parts" % (name, size))
    try:
        logger.warning("opening %s", name)
    except OSError as error:
        logger.warning("no " + name)
    raise NotImplementedError
"""


def test_a_pitfall_quotes_its_condition_and_what_fills_its_message(tmp_path: Path) -> None:
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool/__init__.py").write_text("")
    (tmp_path / "tool/check.py").write_text(WARNS)
    found = {one.name: one for one in mapped(tmp_path).pitfalls}
    said = {place.text: place.condition for place in found["warnings"].places}
    assert said == {
        "{name} is {size + 1} wide": "size > 8",
        "{name} has {size} parts": "not size > 8",
        "opening {name}": "",
        "no {name}": "except OSError",
    }
    assert [place.condition for place in found["not implemented"].places] == [""]
