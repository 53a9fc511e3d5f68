"""`search_source`: questions over the installed transformers whose answers were read by hand, and properties on planted source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.errors import InputError
from opscope_schemas.search import SearchSourceResult
from opscope_tools.catalog import tool_named
from opscope_tools.index.search import texts
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace, folder_repository, installed_repository

#: written before the search was; the definition that a reader would point at, by the end of its qualified name
QUESTIONS = {
    "where is the KV cache written?": r"cache_utils\.\w*Layer\.update",
    "who calls grouped_mm?": r"integrations\.moe\._grouped_mm",
    "sampling temperature applied": r"TemperatureLogitsWarper(\.__call__)?",
    "top-p nucleus filtering of logits": r"TopPLogitsWarper(\.\w+)?",
    "repetition penalty": r"RepetitionPenaltyLogitsProcessor",
    "compute yarn rope scaling parameters": r"_compute_yarn_parameters",
    "build sliding window causal mask": r"create_sliding_window_causal_mask",
    "repeat key value heads for grouped query attention": r"repeat_kv",
    "load balancing loss of the router": r"load_balancing_loss_func",
    "speculative decoding accept candidate tokens": r"generation\.utils\._speculative_sampling",
    "resize token embeddings": r"modeling_utils\.\w+\.resize_token_embeddings",
    "dequantize mxfp4 weights": r"mxfp4\.(Mxfp4Dequantize|dequantize|convert_moe_packed_tensors)",
    "allocate blocks for paged attention cache": r"PagedAttentionCache(\.\w+)?",
    "stop generation when a stop string is matched": r"StopStringCriteria",
    "gradient checkpointing of a layer call": r"GradientCheckpointingLayer(\.__call__)?",
}


@pytest.fixture(scope="module")
def transformers(tmp_path_factory: pytest.TempPathFactory) -> ToolContext:
    repository = installed_repository("transformers", "transformers")
    assert repository is not None
    folder = tmp_path_factory.mktemp("search")
    return ToolContext(Workspace(repositories={"transformers": repository}, output=folder, store=MemoryStore(folder)))


def asked(context: ToolContext, query: str, **given: Any) -> SearchSourceResult:
    found = run_tool(tool_named("search_source"), {"query": query, **given}, context)
    assert isinstance(found, SearchSourceResult)
    return found


@pytest.mark.parametrize(("query", "wanted"), QUESTIONS.items())
def test_the_definition_that_a_reader_would_point_at_is_among_the_first_five(
    query: str, wanted: str, transformers: ToolContext
) -> None:
    hits = asked(transformers, query, limit=5).hits
    assert any(re.search(rf"(^|\.){wanted}$", hit.within) for hit in hits), [hit.within for hit in hits]


def test_a_hit_stands_where_it_says_and_inside_the_definition_that_it_names(transformers: ToolContext) -> None:
    root = transformers.workspace.repositories["transformers"].root
    for query in QUESTIONS:
        for hit in asked(transformers, query).hits:
            lines = (root / hit.file).read_text().split("\n")
            assert lines[hit.line - 1].strip().startswith(hit.code.removesuffix(" …"))
            if hit.begins:
                assert hit.begins <= hit.line <= hit.ends
                assert re.search(rf"(def|class) {hit.within.rpartition('.')[2]}\b", lines[hit.begins - 1])


def test_repositories_in_one_folder_are_each_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As installed packages lie: what one question has read of one is not given up for the other."""
    read: list[str] = []
    really = texts._read

    def counted(repository: Repository, *given: Any, **named: Any) -> texts.Block:
        read.append(repository.name)
        return really(repository, *given, **named)

    monkeypatch.setattr(texts, "_read", counted)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for number in range(40):
            (tmp_path / name / f"m{number}.py").write_text(f"def {name}_{number}(): pass\n")
    repositories = {name: Repository(name=name, root=tmp_path, packages=(name,)) for name in ("one", "two")}
    context = ToolContext(Workspace(repositories=repositories, output=tmp_path, store=MemoryStore()))
    assert [hit.file for hit in asked(context, "def:two_7").hits] == ["two/m7.py"]
    assert set(read) == {"one", "two"}
    read.clear()
    assert [hit.file for hit in asked(context, "def:one_8").hits] == ["one/m8.py"]
    assert read == []


# ---- planted source ------------------------------------------------------------------------------------------------

PLANTED = '''
import functools
from lib import Store, run as go


class Keeper:
    """Holds what is evicted."""

    def put(self, key_cache):
        # run() is not called here
        text = "run(nothing)"
        self.key_cache[0] = key_cache
        return go(text)

    @functools.lru_cache
    def take(self):
        return self.put(None)


def evict_oldest_block(table):
    return run(table)
'''
CUDA = """
// evicts nothing
__global__ void evict_kernel(float* x, int n) {
  int i = threadIdx.x;
  x[i] = 0;
}

void launch(float* x) { evict_kernel<<<1, 32>>>(x, 32); }
"""


@pytest.fixture
def planted(tmp_path: Path) -> ToolContext:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/keeper.py").write_text(PLANTED)
    (tmp_path / "src/lib.py").write_text("class Store: pass\n\n\ndef run(x):\n    return x\n")
    (tmp_path / "src/evict.cu").write_text(CUDA)
    repository = folder_repository("mine", tmp_path / "src")
    return ToolContext(Workspace(repositories={"mine": repository}, output=tmp_path, store=MemoryStore(tmp_path / "c")))


FORMS = [
    ("calls:put", ["Keeper.take"]), ("calls:run", ["evict_oldest_block"]), ("assigns:key_cache", ["Keeper.put"]),
    ("assigns:text", ["Keeper.put"]), ("def:take", ["Keeper.take"]), ("def:Take", ["Keeper.take"]), ("class:Keeper", ["Keeper"]),
    ("decorator:lru_cache", ["Keeper.take"]), ('"is not called here"', ["Keeper.put"]), ("class:put", []), ("def:Keeper", []),
    ("calls:evict_kernel", ["launch"]), ("def:evict_kernel", ["evict_kernel"]), ("calls:put calls:run", []),
    ("who calls evict_kernel?", ["launch"]), ("def:put def:take", []),
]  # fmt: skip


@pytest.mark.parametrize(("query", "within"), FORMS)
def test_a_form_finds_what_has_that_form_and_no_text_or_comment(
    query: str, within: list[str], planted: ToolContext
) -> None:
    assert [hit.within.removeprefix("keeper.") for hit in asked(planted, query).hits] == within


def test_a_call_that_leads_to_a_definition_is_verified_and_comes_first(planted: ToolContext) -> None:
    assert [hit.verified for hit in asked(planted, "calls:put").hits] == [True]
    assert [hit.verified for hit in asked(planted, "calls:run").hits] == [False]  # `run` is bound to nothing there
    assert [hit.verified for hit in asked(planted, "calls:go").hits] == [True]


def test_words_are_found_by_their_stems_and_inside_names(planted: ToolContext) -> None:
    assert [hit.within for hit in asked(planted, "evicting the oldest blocks").hits][:1] == [
        "keeper.evict_oldest_block"
    ]
    assert {hit.within for hit in asked(planted, "evicted").hits} >= {"keeper.Keeper", "evict_kernel"}


def test_an_edit_shows_in_the_next_answer(planted: ToolContext) -> None:
    assert not asked(planted, "def:added_later").hits
    (planted.workspace.repositories["mine"].root / "more.py").write_text("def added_later():\n    pass\n")
    assert [hit.within for hit in asked(planted, "def:added_later").hits] == ["more.added_later"]


def test_a_question_without_a_word_is_refused_with_what_to_give(planted: ToolContext) -> None:
    with pytest.raises(InputError, match=r"holds no word to look for\. Give words as code has them"):
        asked(planted, "where is the ...?")


def test_pages_follow_one_another_without_overlap(transformers: ToolContext) -> None:
    whole = asked(transformers, "calls:repeat_kv rotary", limit=20)
    parts = [asked(transformers, "calls:repeat_kv rotary", limit=5, offset=at).hits for at in (0, 5, 10, 15)]
    assert [hit for part in parts for hit in part] == list(whole.hits)
