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


STEPPED = """
class Planner:
    def schedule(self):
        while self.waiting:
            self.running.append(self.waiting.pop(0))

class Core:
    def __init__(self, model):
        self.model = model
        self.planner = Planner()

    def step(self):
        self.planner.schedule()
        for seq in self.planner.running:
            seq.append_token(torch.argmax(self.model(seq.ids)))

def chat(core: Core):
    while True:
        core.step()
"""


def test_a_function_that_steps_an_engine_is_its_client(tmp_path: Path) -> None:
    assert first(text_mapped(tmp_path, STEPPED), "runtime loop") == ("Core", False)


def test_a_stand_in_for_a_class_is_not_what_an_attribute_holds(tmp_path: Path) -> None:
    """Nor is `decode` a method of text where it is given a batch; a class that decodes batches is no tokenizer."""
    text = """
class FakeModel:
    def decode(self, batch):
        return [1]

class Weights:
    def load(self, name):
        self.words = transformers.AutoTokenizer.from_pretrained(name)

    def decode(self, batch):
        return torch.argmax(self.model(batch))

class Engine:
    def __init__(self, real):
        self.model = Weights() if real else FakeModel()

    def generate(self, batch):
        while True:
            tokens = self.model.decode(batch)
            for token in tokens:
                yield token
"""
    found = text_mapped(tmp_path, text)
    assert (found.loops[0].entry, {"model", "sample"} - set(found.loops[0].reaches)) == ("Engine.generate", set())
    assert "yield token" in [line.code for line in found.loops[0].lines]
    assert first(found, "tokenizer") == ("Weights", True)


def test_what_serves_encoders_drafts_or_one_model_is_doubted(tmp_path: Path) -> None:
    (tmp_path / "tool/models").mkdir(parents=True)
    for number in range(9):
        text = f"import torch\nclass Alpha{number}ForCausalLM(torch.nn.Module):\n    pass\n"
        (tmp_path / f"tool/models/m{number}.py").write_text(text)
    text = """
class DraftSampler:
    def sample(self, logits):
        return torch.multinomial(torch.softmax(logits, -1), 1)

class Alpha3AttentionBackend:
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

class Loop:
    def run_loop(self):
        while True:
            self.sampler.sample(self.model(self.ids))
"""
    (tmp_path / "tool/encode_scheduler.py").write_text(
        "class Scheduler:\n    def next_batch(self):\n        for one in self.waiting:\n            self.running.append(one)\n"
    )
    found = text_mapped(tmp_path, text)
    assert first(found, "scheduler") == ("Scheduler", True)
    assert first(found, "sampling") == ("DraftSampler", True)
    assert first(found, "attention backend") == ("Alpha3AttentionBackend", True)


def test_layers_that_the_models_of_a_zoo_share_are_those_of_none(tmp_path: Path) -> None:
    models = tmp_path / "tool/models"
    (models / "shared").mkdir(parents=True)
    (models / "shared/attend.py").write_text(
        "import torch\nclass SharedAttention(torch.nn.Module):\n    def forward(self, q, k, v):\n"
        "        return torch.nn.functional.scaled_dot_product_attention(q, k, v)\n"
    )
    for number in range(9):
        used = "from tool.models.shared.attend import SharedAttention\n" * (number < 6)
        text = f"import torch\n{used}class M{number}ForCausalLM(torch.nn.Module):\n    pass\n"
        (models / f"m{number}.py").write_text(text)
    assert first(text_mapped(tmp_path, ""), "attention backend") == ("SharedAttention", False)


def test_a_nest_shows_what_a_compiled_scheduler_plans_and_what_another_thread_is_handed(tmp_path: Path) -> None:
    text = """
class Pages:
    def free(self, seq):
        self.left += 1

class Engine:
    def __init__(self, pages: Pages):
        self.pages = pages

    def run_loop(self):
        while True:
            while not self.pending.empty():
                self.take(self.pending.get_nowait())
            plan = self.scheduler.next_plan()
            self.thread.submit(lambda: self.turn(plan))
            self.pages.free(plan)

    def take(self, one):
        self.names[one] = one

    def turn(self, plan):
        return torch.argmax(self.model(plan))
"""
    found = text_mapped(tmp_path, text, entry="Engine.run_loop").loops[0]
    shown = {line.code: (line.stage, line.note) for line in found.lines}
    assert shown["plan = self.scheduler.next_plan()"] == ("schedule", "not in source")
    assert shown["self.turn(plan)"][0] == "model"
    assert shown["self.pages.free(plan)"][0] == "KV cache"
    assert first(text_mapped(tmp_path, text), "scheduler") == ("Engine", False)


LAYERED = """
class Streams:
    def forward(self, tokens, kv):
        h = self.embed(tokens)
        count = self.manifest.count
        for layer in range(count):
            h = self.runner.run(self.slot(layer), layer, h, kv)
        return h

def pick(logits):
    return torch.multinomial(torch.softmax(logits, -1), 1)

def stream(engine: Streams, ids):
    for _ in range(9):
        token = pick(engine.forward(ids, None))
        yield token

def speculative_generate(engine: Streams, draft_model, ids):
    while True:
        logits = engine.forward(ids, None)
        torch.multinomial(torch.softmax(draft_model(ids).topk(3).values, -1), 1)

def handle(engine: Streams, jobs):
    for job in jobs:
        print(list(stream(engine, job)))
        print(speculative_generate(engine, None, job))
"""


def test_layers_that_are_handed_along_are_gone_through(tmp_path: Path) -> None:
    """What they are handed with is what runs the model; what drafts tokens beside it is doubted."""
    found = text_mapped(tmp_path, LAYERED)
    assert first(found, "model runner") == ("Streams", False)
    assert found.loops[0].entry == "stream"
    assert first(found, "sampling") == ("pick", False)


def test_names_of_layers_alone_do_not_make_a_loop_that_runs_a_model(tmp_path: Path) -> None:
    text = """
class Plans:
    def sizes(self, caches):
        for layer in self.layers:
            caches = self.sized(layer, caches)
        return caches
""" + LAYERED.replace("self.runner.run(self.slot(layer), layer, h, kv)", "self.runner.run(self.slot(layer), h, kv)")
    assert "Plans" not in [one.name for one in role(text_mapped(tmp_path, text), "model runner").candidates]


def test_a_loop_that_only_admits_for_another_is_its_part(tmp_path: Path) -> None:
    text = """
class Handler:
    def __init__(self, engine):
        self.engine = engine

    def promote(self):
        while self.queue:
            request = self.queue.popleft()
            self.engine.prefill(request)

    def step(self):
        self.promote()
        self.engine.turn(self.going)

    def run_loop(self):
        while True:
            self.step()

class Engine:
    def prefill(self, request):
        torch.argmax(self.model(request))

    def turn(self, going):
        torch.argmax(self.model(going))
"""
    assert text_mapped(tmp_path, text).loops[0].entry == "Handler.run_loop"


def test_what_quantizes_keys_and_values_is_doubted_as_quantization(tmp_path: Path) -> None:
    text = "\ndef quantize_kv_rows(rows):\n    scales = rows.abs().max()\n    return rows / scales, scales\n"
    assert first(text_mapped(tmp_path, text), "quantization") == ("quantize_kv_rows", True)
