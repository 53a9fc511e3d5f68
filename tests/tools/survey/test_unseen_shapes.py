"""Shapes that engines were found to have: each text is what one of them does, and what was wrong about it."""

from __future__ import annotations

from pathlib import Path

from map_facts import text_mapped
from opscope_schemas.repo_map import Component, RepoMapResult


def role(result: RepoMapResult, name: str) -> Component:
    return next(component for component in result.components if component.role == name)


def first(result: RepoMapResult, name: str) -> tuple[str, bool]:
    """The best candidate of a role, and whether it is doubted."""
    best = role(result, name).candidates[0]
    return best.name, bool(best.weak)


BATCHES = """
class Batches:
    def __init__(self, model):
        self.model = model
        self.todo = deque()
        self.going = []

    def _take(self, most):
        for _ in range(most):
            one = self.todo.popleft()
            self.going.append(one)

    def next(self, sampler):
        self._take(4)
        logits = self.model(self.going)
        return (self.samplers[0] if self.samplers else self.usual_sampler)(logits)


def serve(batches: Batches, sampler):
    while True:
        batches.next(sampler)
"""


def test_what_takes_from_the_head_of_what_it_keeps_schedules(tmp_path: Path) -> None:
    """Whatever the queue is called; the loop calls a method named as a builtin, and a sampler is one of two."""
    found = text_mapped(tmp_path, BATCHES)
    assert first(found, "scheduler") == ("Batches", False)
    assert found.loops[0].entry == "serve"
    assert {"schedule", "model", "sample"} <= set(found.loops[0].reaches)


def test_recurrent_states_and_placeholders_are_no_keys_and_values(tmp_path: Path) -> None:
    text = """
class ScanCacheUnit:
    def __init__(self, batch, heads, head_dim, width):
        self.ssm_state = torch.zeros(batch, heads, head_dim, width)

    def start(self):
        past_key_values = torch.empty(0)
        return past_key_values

def pair_store_op(keys, key_cache):
    return torch.cat((key_cache[:, :4], keys), dim=2)
"""
    found = role(text_mapped(tmp_path, text), "KV cache")
    assert [(one.name, bool(one.weak)) for one in found.candidates] == [("pair_store_op", True)]


def test_a_class_of_no_library_that_goes_through_modules_runs_the_model(tmp_path: Path) -> None:
    text = """
class Weights:
    def forward_chunk(self, x, cache):
        for idx, module in enumerate(self.modules):
            x = module.forward(x, cache=cache)
        return x

class Talker:
    def generate(self, ids):
        while True:
            logits = self.model.forward_chunk(ids, self.cache)
            ids = torch.multinomial(torch.softmax(logits, -1), 1)
"""
    assert first(text_mapped(tmp_path, text), "model runner") == ("Weights", False)


def test_a_cache_that_is_quantized_does_not_quantize_the_model(tmp_path: Path) -> None:
    text = """
class QuantizedKVCache:
    def update(self, k):
        self.k, self.scales = quantize(k, self.bits)

def quantize_model(model, bits):
    for layer in model.layers:
        layer.scales = quantize(layer.weight, bits)
    return model
"""
    assert first(text_mapped(tmp_path, text), "quantization") == ("quantize_model", False)


def test_what_wraps_a_collective_stands_before_what_uses_it(tmp_path: Path) -> None:
    text = """
class GatherValue:
    def __init__(self, value, group):
        self.value = torch.distributed.all_gather(value, group)

class Ties:
    def allreduce(self, x):
        lib.tp_all_reduce(x, self.ranks)

    def allgather(self, x):
        return lib.tp_gather(x, self.ranks)
"""
    assert first(text_mapped(tmp_path, text), "parallelism") == ("Ties", False)


def test_a_nest_shows_filters_and_what_is_done_with_a_token_of_any_name(tmp_path: Path) -> None:
    text = """
def steps(model, ids, filters):
    result = ids
    while True:
        logits = model(ids)
        for one in filters:
            logits = one(ids, logits)
        chosen = torch.argmax(logits)
        result = torch.cat((result, chosen))
        yield chosen


def generate(model, ids):
    for token in steps(model, ids, []):
        print(token)
"""
    found = text_mapped(tmp_path, text, entry="generate").loops[0]
    shown = {line.code: line.stage for line in found.lines}
    assert shown["logits = one(ids, logits)"] == "sample"
    assert shown["result = torch.cat((result, chosen))"] == "output"
    assert shown["yield chosen"] == "output"


def test_the_loop_that_runs_the_scheduler_is_read_beside_the_one_that_runs_the_model(tmp_path: Path) -> None:
    """The two run in tasks of their own, and nothing in source leads from one to the other."""
    text = """
class Scheduler:
    def schedule(self):
        for seq in self.waiting:
            self.running.append(seq)


class Planner:
    def __init__(self):
        self.scheduler = Scheduler()

    async def plan(self):
        while True:
            await self.send(self.scheduler.schedule())


class Agent:
    async def work(self):
        while True:
            inputs = await self.mailbox.get()
            logits = self.model(inputs)
            torch.multinomial(torch.softmax(logits, -1), 1)
"""
    assert [nest.entry for nest in text_mapped(tmp_path, text).loops] == ["Agent.work", "Planner.plan"]


def test_a_thread_of_an_engine_is_its_loop(tmp_path: Path) -> None:
    """A nested function holds the loop and is handed to a thread; a look-up in a table of requests takes none."""
    text = """
class Life:
    def begin(self):
        def turn():
            while self.running:
                self.runner.run_model(self.scheduler.schedule())

        self.thread = Thread(target=turn)

class Runner:
    def run_model(self, planned):
        for one in planned:
            ids = self.requests.get(one.name)
            logits = self.model(ids)
            torch.multinomial(torch.softmax(logits, -1), 1)

class Scheduler:
    def schedule(self):
        for seq in self.waiting:
            self.running.append(seq)
"""
    found = text_mapped(tmp_path, text)
    assert found.loops[0].entry == "Life.begin"
    assert {"schedule", "model", "sample"} <= set(found.loops[0].reaches)


def test_the_loop_around_a_step_is_no_trainers(tmp_path: Path) -> None:
    text = """
class Scheduler:
    def schedule(self):
        for seq in self.waiting:
            self.running.append(seq)

class Trainer:
    def epoch(self):
        for batch in self.batches:
            self.scheduler.schedule()
            self.loss.backward()

class Talker:
    def talk(self, ids):
        while True:
            ids = torch.argmax(self.model(ids))
"""
    assert [nest.entry for nest in text_mapped(tmp_path, text).loops] == ["Talker.talk"]


def test_what_makes_a_cache_for_attention_does_not_attend(tmp_path: Path) -> None:
    text = """
class Keeper:
    def start(self, config):
        return self._new_unified_attention_cache(config, find_mla_attention_mix(config))
"""
    assert not role(text_mapped(tmp_path, text), "attention backend").candidates


def test_what_runs_the_model_and_only_calls_a_sampler_is_doubted(tmp_path: Path) -> None:
    text = """
class Runner:
    def execute(self, batch):
        return self.sample_tokens(self.model(batch))

def draw(logits):
    return torch.multinomial(torch.softmax(logits.topk(9).values, -1), 1)

def serve(runner: Runner):
    while True:
        runner.execute(draw(1))
"""
    found = role(text_mapped(tmp_path, text), "sampling").candidates
    assert [(one.name, bool(one.weak)) for one in found] == [("draw", False), ("Runner", True)]


def test_models_of_a_zoo_are_known_by_their_names_in_a_folder_of_any_name(tmp_path: Path) -> None:
    """A tokenizer of one of them is doubted."""
    for number in range(9):
        folder = tmp_path / f"tool/parts/m{number}"
        folder.mkdir(parents=True)
        own = "class OneTokenizer:\n    def encode(self, text):\n        return self.vocab.encode(text)\n" * (
            number == 4
        )
        (folder / "m.py").write_text(f"import torch\nclass M{number}ForCausalLM(torch.nn.Module):\n    pass\n\n{own}")
    assert first(text_mapped(tmp_path, ""), "tokenizer") == ("OneTokenizer", True)


def test_a_nest_follows_a_function_bound_to_a_name_and_no_method_of_a_list(tmp_path: Path) -> None:
    """What is kept in a slice of what was generated is output; `append` of a list is not that of the cache."""
    text = """
class Store:
    def append(self, k):
        self.k_cache[:, 1] = k

def one_step(model, ids):
    return torch.argmax(model(ids))

def generate(model, ids, step=None):
    if step is None:
        step = one_step
    out = []
    for place in range(9):
        chosen = step(model, ids)
        ids[:, place] = chosen
        out.append(place)
"""
    found = text_mapped(tmp_path, text, entry="generate").loops[0]
    shown = {line.code: (line.stage, line.into) for line in found.lines}
    assert shown["chosen = step(model, ids)"] == ("model", "tool/core.py:8")
    assert shown["ids[:, place] = chosen"][0] == "output"
    assert not [line for line in found.lines if line.into == "tool/core.py:5"]
