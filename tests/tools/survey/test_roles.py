"""Roles by what functions do: no class or function of the engine `relay` is called as its role is, and two others are."""

from __future__ import annotations

from pathlib import Path

import pytest
from map_facts import CORPUS, context_of, mapped, text_mapped, wrong_facts
from opscope_schemas.repo_map import Component, RepoMapResult
from opscope_tools.map_repo import MAP_REPO, MapRepoArguments
from opscope_tools.running.workspace import folder_repository

PLAYERS = {
    "runtime loop": "Desk", "scheduler": "Line", "KV cache": "Shelf", "sampling": "pick", "attention backend": "Floor",
    "model runner": "Hands", "config parser": "main",
}  # fmt: skip


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> RepoMapResult:
    return mapped("relay", tmp_path_factory.mktemp("relay"))


def role(result: RepoMapResult, name: str) -> Component:
    return next(component for component in result.components if component.role == name)


@pytest.mark.parametrize("name", PLAYERS)
def test_what_a_body_does_gives_it_its_role(relay: RepoMapResult, name: str) -> None:
    first = role(relay, name).candidates[0]
    assert (first.name, first.weak) == (PLAYERS[name], "")


def test_what_does_nothing_of_a_role_is_weak_and_stands_behind(relay: RepoMapResult) -> None:
    found = role(relay, "scheduler").candidates
    assert [(one.name, bool(one.weak)) for one in found] == [("Line", False), ("BatchScheduler", True)]


def test_only_weak_candidates_are_marked_where_nothing_does_the_work(tmp_path: Path) -> None:
    found = text_mapped(
        tmp_path, "\n\nclass BatchScheduler:\n    def add_request(self, request):\n        self.last = request\n"
    )
    assert [bool(one.weak) for one in role(found, "scheduler").candidates] == [True]


def test_a_picture_is_not_attended_to_first(relay: RepoMapResult) -> None:
    assert [one.name for one in role(relay, "attention backend").candidates] == ["Floor", "VisualAttention"]


def test_masks_and_ids_are_no_cache(relay: RepoMapResult) -> None:
    assert [one.name for one in role(relay, "KV cache").candidates] == ["Shelf"]


def test_accuracy_is_no_sampling(relay: RepoMapResult) -> None:
    assert "accuracy" not in [one.name for one in role(relay, "sampling").candidates]


def test_the_loop_leads_over_remote_calls_to_the_model(relay: RepoMapResult) -> None:
    nest = relay.loops[0]
    assert nest.entry == "Desk.turn_forever"
    assert {"schedule", "model", "sample"} <= set(nest.reaches)
    leads = {line.code: line.into for line in nest.lines}
    assert leads["self.remotes[n].ahead(group, fresh)"].startswith("relay/back/remote.py:")
    assert leads["return self._ahead(group, fresh)"].startswith("relay/back/hands.py:")
    assert leads["pick(logits, 0.7)"].startswith("relay/back/pick.py:")
    assert not wrong_facts(relay, CORPUS / "relay")


def test_what_writes_keys_and_values_is_the_update_path(relay: RepoMapResult) -> None:
    found = {place.name for question in relay.kv_cache if "update" in question.name for place in question.places}
    assert "Shelf.put" in found


NESTED = """

def generate(model, prompt, sampler, most, end):
    def step(tokens):
        logits = model(tokens)
        return sampler(logits)

    tokens = prompt
    for _ in range(most):
        token = step(tokens)
        if token == end:
            break
        yield token
"""


def test_a_nested_function_is_read_where_the_loop_calls_it(tmp_path: Path) -> None:
    nest = text_mapped(tmp_path, NESTED).loops[0]
    assert nest.entry == "generate"
    assert [line.code for line in nest.lines] == [
        "for _ in range(most):", "token = step(tokens)", "logits = model(tokens)", "return sampler(logits)",
        "if token == end:", "break", "yield token",
    ]  # fmt: skip


BOUND = """

def next_one(model, tokens):
    return torch.multinomial(torch.softmax(model(tokens)[..., -1], -1), 1)


class Teller:
    def __init__(self, fast):
        self.step_fn = self.fast_step if fast else self.plain_step

    def plain_step(self, tokens):
        return next_one(self.model, tokens)

    def fast_step(self, tokens):
        return next_one(self.compiled, tokens)

    def tell(self, tokens, chosen=None):
        while len(tokens) < 100:
            tokens.append(self.step_fn(tokens))
"""


def test_an_attribute_that_is_bound_to_methods_runs_them(tmp_path: Path) -> None:
    found = text_mapped(tmp_path, BOUND)
    assert found.loops[0].entry == "Teller.tell"
    assert {"model", "sample"} <= set(found.loops[0].reaches)
    assert role(found, "model runner").candidates[0].name == "next_one"


MESSAGES = """

class Worker:
    def serve(self):
        while True:
            tokens = self.work_queue.get()
            self.turn(tokens)

    def turn(self, tokens):
        logits = self.model(tokens)
        return torch.multinomial(torch.softmax(logits, -1), 1)

    def hand_in(self, tokens):
        self.work_queue.put(tokens)


class Front:
    def __init__(self, worker):
        self.worker = worker
        self.waiting = []

    def rounds(self):
        while True:
            batch = []
            while self.waiting:
                batch.append(self.waiting.pop(0))
            self.worker.hand_in(batch)
"""


def test_a_loop_that_hands_requests_over_a_queue_is_the_engines(tmp_path: Path) -> None:
    assert text_mapped(tmp_path, MESSAGES).loops[0].entry == "Front.rounds"


TRAINING = """

def epoch(model, batches):
    for batch in batches:
        logits = model(batch)
        guess = torch.argmax(logits, -1)
        loss = guess.sum()
        loss.backward()


def talk(model, tokens):
    while True:
        logits = model(tokens)
        tokens = torch.argmax(logits, -1)
"""


def test_a_loop_that_trains_generates_nothing(tmp_path: Path) -> None:
    found = text_mapped(tmp_path, TRAINING)
    assert [nest.entry for nest in found.loops] == ["talk"]
    assert "epoch" not in [place.name for place in found.loop_candidates]


_LOOP = """
    def _sample(self, ids):
        while True:
            logits = self(input_ids=ids)
            ids = torch.argmax(logits, dim=-1)
"""


def test_the_loop_of_a_base_stands_before_those_that_override_it(tmp_path: Path) -> None:
    """A class that generates in its own way is one model's; calls of `self` on inputs run the model."""
    text = f"class Whole:{_LOOP}\n\nclass AOther(Whole):{_LOOP}\n"
    assert [one.name for one in role(text_mapped(tmp_path, text), "runtime loop").candidates][:2] == ["Whole", "AOther"]


def test_one_model_of_a_zoo_is_no_role_of_the_engine(tmp_path: Path) -> None:
    """A folder of models that holds many: what one of them has is marked and stands behind what all share."""
    draw = "def {}(logits):\n    return torch.multinomial(torch.softmax(logits, -1).topk(5).values, 1)\n"
    zoo = tmp_path / "tool/models"
    (tmp_path / "tool").mkdir()
    zoo.mkdir()
    for number in range(9):
        own = draw.format("sample_of_one") * (number == 4)
        (zoo / f"m{number}.py").write_text(f"import torch\nclass M{number}(torch.nn.Module):\n    pass\n\n{own}")
    (tmp_path / "tool/draw.py").write_text("import torch\n" + draw.format("sample"))
    (tmp_path / "tool/core.py").write_text("import transformers\nclass TinyForCausalLM:\n    pass\n")
    context = context_of(folder_repository("tool", tmp_path), tmp_path)
    found = role(MAP_REPO.run(MapRepoArguments(repo="tool", detail="full"), context), "sampling")
    assert [(one.name, bool(one.weak)) for one in found.candidates] == [("sample", False), ("sample_of_one", True)]


@pytest.mark.parametrize("name", ["is_flash_attention_available", "lazy_import_flash_attention", "get_paged_attention"])
def test_what_asks_for_attention_does_not_attend(tmp_path: Path, name: str) -> None:
    text = f"class Picker:\n    def choose(self):\n        return {name}('x')\n"
    assert not role(text_mapped(tmp_path, text), "attention backend").candidates


def test_what_a_loop_is_handed_runs_in_it(tmp_path: Path) -> None:
    """A function that hands its own functions to a loop elsewhere is that loop's body."""
    text = (
        "def run_loop(step):\n    while True:\n        step()\n\n"
        "def work(model, ids):\n    def step():\n        logits = model(ids)\n        torch.argmax(logits)\n\n    run_loop(step)\n"
    )
    assert role(text_mapped(tmp_path, text), "runtime loop").candidates[0].name == "work"


def test_a_nest_shows_what_statements_do_themselves(tmp_path: Path) -> None:
    """Writes of keys and values and kept tokens are no calls of a stage, and a reader must see them; layers are followed."""
    text = """
class Block(torch.nn.Module):
    def forward(self, x, cache):
        self.k_cache[:, cache] = x
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

class Net(torch.nn.Module):
    def forward(self, x, cache):
        for layer in self.layers:
            x = layer(x, cache)
        return x

class Server:
    def __init__(self):
        self.model = Net()

    def generate(self, ids):
        out = []
        while True:
            logits = self.model(ids, 0)
            next_token = torch.argmax(logits)
            out += [next_token]
"""
    nest = text_mapped(tmp_path, text).loops[0]
    shown = {line.code: (line.kind, line.stage) for line in nest.lines}
    assert shown["self.k_cache[:, cache] = x"] == ("work", "KV cache")
    assert shown["out += [next_token]"] == ("work", "output")
    assert next(line for line in nest.lines if line.code == "x = layer(x, cache)").into == "tool/core.py:5"
