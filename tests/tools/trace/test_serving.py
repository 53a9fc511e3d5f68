"""`view="serving"`: the pass as an engine runs it, against counts by hand."""

from __future__ import annotations

from typing import Any

import pytest
from opscope_schemas.analysis import ModuleAnalysisResult, ServingView
from opscope_schemas.formula import evaluate
from opscope_tools.costing.arguments import CostArguments, find
from opscope_tools.count_flops import count_flops
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.dataflow import served_peak
from opscope_tools.trace.document import CallTree, assignment
from opscope_tools.trace.protocol import OpRecord
from opscope_tools.trace.serving import EngineKernel, kernels
from sampled import sampled

B, CACHE, H, I, N, K, D, V, L = 3, 17, 64, 112, 4, 2, 16, 99, 3  # noqa: E741 -- as the legend of shapes has them
A, W, KV = 2, 3, 1  # bytes per element: three numbers, so that none passes for another
SMALL = {"hidden_size": H, "intermediate_size": I, "num_hidden_layers": L, "num_attention_heads": N, "num_key_value_heads": K,
         "vocab_size": V, "head_dim": D}  # fmt: skip
BYTES = {"a_bytes": A, "w_bytes": W, "kv_bytes": KV}


def served(
    context: ToolContext, target: str, phase: str, config: Any = None, **values: Any
) -> tuple[ModuleAnalysisResult, ServingView]:
    point = {"batch_size": B, "cache_len": CACHE, **BYTES, **values}
    given = {"target": target, "phase": phase, "view": "serving", "config": config or SMALL, "values": point}
    answer = count_flops(CostArguments.model_validate(given), context)
    assert answer.serving is not None
    return answer, answer.serving


def by_hand(new: int, held: int, masks: int) -> tuple[int, int]:
    """One layer of Llama: `new` tokens of each sequence, `held` in the cache with them. Bytes read and written."""
    t = B * new
    read = write = 0
    read += t * H * A + H * W  # the first norm: states, weight
    write += t * H * A
    for width in (N * D, K * D, K * D):  # q, k and v projections
        read += t * H * A + H * width * W
        write += t * width * A
    for width in (N * D, K * D):  # rotary embedding of q and of k: itself, cos and sin
        read += t * width * A + 2 * new * D * A
        write += t * width * A
    read += 2 * t * K * D * A  # new keys and values go into the pages
    write += 2 * t * K * D * KV
    read += t * N * D * A + 2 * B * held * K * D * KV + masks  # attention
    write += t * N * D * A
    read += t * N * D * A + N * D * H * W  # output projection
    write += t * H * A
    read += 2 * t * H * A + H * W  # residual add and second norm: both summands, weight; the sum and its norm
    write += 2 * t * H * A
    for _ in range(2):  # gate and up projections
        read += t * H * A + H * I * W
        write += t * I * A
    read += 2 * t * I * A  # activation and gate
    write += t * I * A
    read += t * I * A + I * H * W  # down projection
    write += t * H * A
    read += 2 * t * H * A  # residual add
    write += t * H * A
    return read, write


def test_a_decode_step_of_a_layer_moves_what_a_count_by_hand_says(context: ToolContext) -> None:
    answer, view = served(context, "LlamaDecoderLayer", "decode", seq_len=1)
    assert view.evaluated is not None
    assert answer.evaluated is not None
    assert (view.evaluated["memory_read"], view.evaluated["memory_write"]) == by_hand(1, CACHE + 1, masks=0)
    assert (view.evaluated["flops"], view.evaluated["matmul_flops"]) == (
        answer.evaluated.flops,
        answer.evaluated.matmul_flops,
    )


def test_a_prefill_of_a_layer_moves_what_a_count_by_hand_says(context: ToolContext) -> None:
    _, view = served(context, "LlamaDecoderLayer", "prefill", seq_len=23)
    assert view.evaluated is not None
    assert (view.evaluated["memory_read"], view.evaluated["memory_write"]) == by_hand(23, 23, masks=0)


@pytest.mark.parametrize("target", ["llama", "LlamaDecoderLayer", "LlamaMLP", "qwen3_moe"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_what_rules_save_is_the_difference_to_the_eager_pass(target: str, phase: str, context: ToolContext) -> None:
    config = {"num_hidden_layers": L} if target == "qwen3_moe" else SMALL
    answer, view = served(context, target, phase, config, seq_len=1 if phase == "decode" else 23)
    assert answer.evaluated is not None
    assert view.evaluated is not None
    point = answer.evaluated.values | BYTES
    read, write = (sum(evaluate(getattr(r.saved, side), point) for r in view.rules) for side in ("read", "write"))
    assert answer.evaluated.memory_read - read == view.evaluated["memory_read"]
    assert answer.evaluated.memory_write - write == view.evaluated["memory_write"]
    assert read > 0
    assert view.evaluated["memory_read"] >= answer.evaluated.floor_read - 4 * 23 * D  # angles may be made, not read
    assert all(rule.says and rule.places for rule in view.rules)


@pytest.mark.parametrize("target", ["LlamaAttention", "CohereAttention"])
def test_angles_are_turned_in_one_kernel_each_of_queries_and_keys_whichever_halves_are_turned(
    target: str, context: ToolContext
) -> None:
    """Llama turns halves, Cohere neighbours, in float32."""
    new = 23
    _, view = served(context, target, "prefill", {**SMALL, "pad_token_id": 0}, seq_len=new)
    assert view.evaluated is not None
    t, read, write = B * new, 0, 0
    for width in (N * D, K * D, K * D):
        read += t * H * A + H * width * W
        write += t * width * A
    for width in (N * D, K * D):
        read += t * width * A + 2 * new * D * A
        write += t * width * A
    read += 2 * t * K * D * A + t * N * D * A + 2 * t * K * D * KV + t * N * D * A + N * D * H * W
    write += 2 * t * K * D * KV + t * N * D * A + t * H * A
    assert (view.evaluated["memory_read"], view.evaluated["memory_write"]) == (read, write)
    assert "fused rope" in {rule.rule for rule in view.rules}


def test_each_rule_of_a_llama_is_named(context: ToolContext) -> None:
    names = {rule.rule for rule in served(context, "llama", "decode", seq_len=1)[1].rules}
    assert names >= {"paged cache", "fused norm", "fused activation", "fused rope"}
    assert "absorbed latents" not in names
    names = {rule.rule for rule in served(context, "llama", "prefill", seq_len=23)[1].rules}
    assert (
        "flash attention" not in names
    )  # torch's own kernel repeats no heads and leaves its result as the next product reads it


RANK, ROPE, NOPE, OUT, Q = 24, 8, 12, 16, 20
LATENT = {"hidden_size": H, "intermediate_size": I, "moe_intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": N,
          "num_key_value_heads": N, "vocab_size": V, "kv_lora_rank": RANK, "q_lora_rank": Q, "qk_rope_head_dim": ROPE,
          "qk_nope_head_dim": NOPE, "v_head_dim": OUT, "n_routed_experts": 8, "n_group": 2, "topk_group": 1,
          "num_experts_per_tok": 2, "first_k_dense_replace": 1}  # fmt: skip


def test_latents_are_absorbed_in_decode_as_a_derivation_by_hand_says(context: ToolContext) -> None:
    answer, view = served(context, "DeepseekV3Attention", "decode", LATENT, seq_len=1)
    assert answer.evaluated is not None
    assert view.evaluated is not None
    held = CACHE + 1
    # eager: every cached latent to keys and values of every head, then attention over these
    eager = 2 * B * held * RANK * N * (NOPE + OUT) + 2 * B * N * held * (NOPE + ROPE + OUT)
    # absorbed: the query into the latents, attention over these and their rotary part, its result out of them
    absorbed = 2 * B * N * NOPE * RANK + 2 * B * N * held * (RANK + ROPE + RANK) + 2 * B * N * RANK * OUT
    assert answer.evaluated.matmul_flops - view.evaluated["matmul_flops"] == eager - absorbed
    assert answer.evaluated.flops - view.evaluated["flops"] == eager - absorbed
    (rule,) = (r for r in view.rules if r.rule == "absorbed latents")
    point = answer.evaluated.values | BYTES
    weights = RANK * N * (NOPE + OUT) * W
    latents, turned = B * held * RANK * KV, B * held * ROPE * KV
    keys, values = B * N * held * (NOPE + ROPE) * A, B * N * held * OUT * A
    query, wide = B * N * (NOPE + ROPE) * A, B * N * (RANK + ROPE) * A
    read = latents + weights + (B * N * held * NOPE * A + turned) + query + keys + values
    read -= weights + B * N * (NOPE + RANK) * A + wide + latents + turned
    assert evaluate(rule.saved.read, point) == read
    write = B * N * held * (NOPE + OUT) * A + keys + B * N * OUT * A
    write -= B * N * (RANK + OUT) * A + B * N * RANK * A
    assert evaluate(rule.saved.write, point) == write
    assert any("expanded at kv_b_proj" in note for note in answer.notes)


@pytest.mark.parametrize("target", sampled(["lilt", "minimax", "falcon_h1", "gpt_neox"]))
def test_a_kernel_stands_behind_all_that_it_reads(target: str, context: ToolContext) -> None:
    """Light operators that are one kernel run in one place, which is after what they read and before who reads them."""
    found = find(CostArguments.model_validate({"target": target, "values": {"batch_size": 1, "seq_len": 256}}), context)
    served = kernels(found.tree, found.call)
    place = {op.order: at for at, kernel in enumerate(served) for op in kernel.own}
    ends = {
        op.order for kernel in served for op in kernel.before
    }  # they run where the next layer begins, behind all of their own
    makers: dict[int, list[int]] = {}
    for op in found.tree.ops_below(found.call):
        for index in op.writes:
            makers.setdefault(index, []).append(op.order)
    read = [
        (place[op.order], place[made])
        for kernel in served for op in kernel.own for index in op.reads for made in makers.get(index, ()) if made < op.order and made in place
    ]  # fmt: skip
    assert len(read) > 20
    every = {op.order: op for op in found.tree.ops_below(found.call)}
    assert all(
        reader.call not in _around_layer(found.tree, every[made])
        for made in ends
        for reader in every.values()
        if set(every[made].writes) & set(reader.reads) and reader.order not in ends
    )
    assert all(before <= at for at, before in read)


def _around_layer(tree: CallTree, op: OpRecord) -> set[int]:
    """The calls in the innermost repeated one around an operator."""
    layer = next(call for call in tree.around(tree.trace.calls[op.call]) if call.repeat != "1")
    return {call.index for call in tree.calls_below(layer)}


def test_a_prefill_expands_its_latents(context: ToolContext) -> None:
    answer, view = served(context, "DeepseekV3Attention", "prefill", LATENT, seq_len=23)
    assert not any("absorbed" in rule.rule for rule in view.rules)
    assert not any("expanded at" in note for note in answer.notes)


def test_weights_are_cast_when_they_are_loaded(context: ToolContext) -> None:
    """A router in float32 reads states and weights as they were cast to, and no step casts the weights."""
    experts = 8
    given = {
        "hidden_size": H,
        "num_attention_heads": N,
        "num_key_value_heads": K,
        "n_routed_experts": experts,
        "n_group": 2,
        "topk_group": 1,
        "num_experts_per_tok": 2,
    }
    answer, view = served(context, "Glm4MoeTopkRouter", "prefill", given, seq_len=23)
    assert answer.evaluated is not None
    rule, values = (
        next(rule for rule in view.rules if rule.rule == "converted weights"),
        answer.evaluated.values | BYTES,
    )
    assert evaluate(rule.saved.read, values) == H * experts * W
    assert evaluate(rule.saved.write, values) == H * experts * 4
    assert rule.flops_added == "0"


def test_a_norm_widens_the_weights_that_it_reads(context: ToolContext) -> None:
    """Cohere's norm is in float32, its weights are not: one kernel reads states and weights as they are kept."""
    _, view = served(context, "CohereLayerNorm", "prefill", {**SMALL, "pad_token_id": 0}, seq_len=23)
    assert view.evaluated is not None
    states = B * 23 * H * A
    assert (view.evaluated["memory_read"], view.evaluated["memory_write"]) == (states + H * W, states)


def test_what_depends_on_weights_alone_is_computed_before_all_steps(context: ToolContext) -> None:
    """The decays of a state-space layer, of its weights alone: their casts, their exponential and its sign, an entry each."""
    width, states, layers = 64, 16, 2
    config = {"hidden_size": 32, "num_hidden_layers": layers, "vocab_size": 99, "state_size": states}
    answer, view = served(context, "falcon_mamba", "decode", config, seq_len=1)
    assert answer.evaluated is not None
    (rule,) = (rule for rule in view.rules if rule.rule == "converted weights")
    values = answer.evaluated.values | BYTES
    assert evaluate(rule.flops_added, values) == -2 * layers * width * states
    # beside them the bias of the step, an entry a channel, which is cast
    assert evaluate(rule.saved.read, values) == layers * width * (states + 1) * W
    assert evaluate(rule.saved.write, values) == layers * width * (states + 1) * 4


def test_without_the_view_nothing_is_said_of_engines(context: ToolContext) -> None:
    given = {"target": "llama", "phase": "decode", "config": SMALL}
    assert count_flops(CostArguments.model_validate(given), context).serving is None


#: norms of a layer, beside the one at the end: before and behind both parts; before both; behind both and of queries and keys;
#: before both and of queries and keys
NORMS = [("gemma2", 4), ("llama", 2), ("olmo2", 4), ("qwen3", 4)]


@pytest.mark.parametrize(("model", "each"), sampled(NORMS, every=2))
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_every_norm_is_a_kernel_of_its_own(model: str, each: int, phase: str, context: ToolContext) -> None:
    """A residual add between two of them is in one of the two kernels, be they of one layer or not, so that none of the adds is one."""
    asked = CostArguments.model_validate({"target": model, "phase": phase, "config": {**SMALL, "pad_token_id": 0}})
    found = find(asked, context)
    values = dict.fromkeys(("batch_size", "seq_len", "cache_len"), 2) | found.tree.trace.point
    made = [k for k in kernels(found.tree, found.call) if k.rule == "fused norm"]
    assert sum(evaluate(str(k.repeat), values) for k in made) == each * L + 1
    assert not [k for k in kernels(found.tree, found.call) if not k.rule and k.ops[0].operator == "aten.add"]


def whole_by_hand(new: int, held: int) -> tuple[int, int]:
    """A whole Llama, the add that ends each layer in the kernel of a norm: nobody reads the sum for that norm any more."""
    t = B * new
    read, write = (L * each for each in by_hand(new, held, masks=0))
    read -= L * t * H * A
    read += (
        t * (8 + H * W) + 2 * D
    )  # tokens and their embeddings; a frequency of 4 bytes for each pair of turned channels
    write += t * H * A + 2 * new * D * A  # embeddings; cos and sin
    read += t * H * A + H * W + t * H * A + H * V * W  # the norm behind all layers, the head
    write += t * H * A + t * V * A
    return read, write


@pytest.mark.parametrize(("phase", "new", "held"), [("decode", 1, CACHE + 1), ("prefill", 23, 23)])
def test_a_whole_llama_moves_what_a_count_by_hand_says(phase: str, new: int, held: int, context: ToolContext) -> None:
    _, view = served(context, "llama", phase, seq_len=new)
    assert view.evaluated is not None
    assert (view.evaluated["memory_read"], view.evaluated["memory_write"]) == whole_by_hand(new, held)


def ran(context: ToolContext, target: str, phase: str, config: Any = None) -> list[tuple[EngineKernel, int]]:
    """The kernels of a pass and how often each runs as traced."""
    found = find(CostArguments.model_validate({"target": target, "phase": phase, "config": config}), context)
    values = assignment(found.tree.trace.variables, found.tree.trace.point)
    return [(kernel, evaluate(str(kernel.repeat), values)) for kernel in kernels(found.tree, found.call)]


def test_the_add_that_ends_a_layer_is_no_kernel_of_a_whole_model(context: ToolContext) -> None:
    layer, whole = (ran(context, target, "decode", SMALL) for target in ("LlamaDecoderLayer", "llama"))
    assert (
        sum(times for _, times in whole) == L * (len(layer) - 1) + 4
    )  # embedding, angles, the norm behind them, the head
    assert not any(kernel.before for kernel, _ in layer)
    (joined,) = (kernel for kernel, _ in whole if kernel.before)
    assert [op.operator for op in joined.before] == ["aten.add"]
    assert joined.own[-1].order < joined.before[0].order


#: kinds of layers and in what order: alternating, three of one and one of the other, dense ones before those of experts, three kinds in
#: turns; norms that are one operator; adds of attention and perceptron beside each other
ENDS = [
    ("gpt_oss", 2),
    ("qwen3_next", 2),
    ("deepseek_v3", 2),
    ("jamba", 3),
    ("glm4_moe", 2),
    ("gpt2", 1),
    ("gpt_neox", 1),
]


@pytest.mark.parametrize(("model", "kinds"), sampled(ENDS))
def test_every_layer_whatever_its_kind_hands_its_sum_to_a_norm(model: str, kinds: int, context: ToolContext) -> None:
    found = find(CostArguments.model_validate({"target": model, "phase": "decode"}), context)
    values = assignment(found.tree.trace.variables, found.tree.trace.point)
    joined = [kernel for kernel in kernels(found.tree, found.call) if kernel.before]
    assert len(joined) == kinds
    assert sum(evaluate(str(kernel.repeat), values) for kernel in joined) == values["num_layers"]
    for kernel in joined:  # each stands in the kind of layer whose add it runs
        calls = [{c.index for c in found.tree.around(found.tree.trace.calls[op.call])} for op in kernel.ops]
        assert any(found.tree.trace.calls[index].repeat != "1" for index in set.intersection(*calls))


@pytest.mark.parametrize("model", sampled(["olmo2", "bert", "gemma2"]))
def test_an_add_that_a_norm_of_its_own_layer_takes_stays_there(model: str, context: ToolContext) -> None:
    config = {**SMALL, "pad_token_id": 0} if model != "bert" else None
    assert not any(kernel.before for kernel, _ in ran(context, model, "prefill", config))


def test_a_layer_norm_takes_the_add_before_it_and_that_of_the_layer_before(context: ToolContext) -> None:
    """Weight and bias of the norm; of each row a kernel of PyTorch's keeps mean and scale in four bytes each."""
    found = find(CostArguments.model_validate({"target": "gpt2", "phase": "decode"}), context)
    point = assignment(found.tree.trace.variables, found.tree.trace.point) | BYTES
    rows, width = point["batch_size"] * point["seq_len"], point["hidden_size"]
    every = [kernel for kernel in kernels(found.tree, found.call) if kernel.rule == "fused norm"]
    assert [len(kernel.before) for kernel in every] == [1, 0]
    for kernel in every:
        read, write = (evaluate(str(side), point) for side in (kernel.cost.read, kernel.cost.write))
        assert (read, write) == (2 * rows * width * A + 2 * width * W, 2 * rows * width * A + 8 * rows)


def test_a_sum_that_takes_in_what_the_layer_was_given_reads_that(context: ToolContext) -> None:
    """In a layer whose attention and perceptron stand beside each other three summands meet: what it was given is not the sum that the
    next one's norm is made of."""
    found = find(CostArguments.model_validate({"target": "gpt_neox", "phase": "decode"}), context)
    point = assignment(found.tree.trace.variables, found.tree.trace.point) | BYTES
    rows, width = point["batch_size"] * point["seq_len"], point["hidden_size"]
    (kernel,) = (kernel for kernel in kernels(found.tree, found.call) if kernel.before)
    read, write = (evaluate(str(side), point) for side in (kernel.cost.read, kernel.cost.write))
    assert (read, write) == (3 * rows * width * A + 2 * width * W, 2 * rows * width * A + 8 * rows)


def test_what_a_layer_ends_with_is_in_memory_while_the_next_one_begins(context: ToolContext) -> None:
    """Where little else is: three summands, their sum, and its norm; cos and sin, and the norm's weight in four bytes beside them."""
    config = {**SMALL, "head_dim": 4, "intermediate_size": 8, "pad_token_id": 0}
    found = find(CostArguments.model_validate({"target": "cohere", "phase": "decode", "config": config}), context)
    point = assignment(found.tree.trace.variables, found.tree.trace.point) | BYTES
    assert any(len(kernel.before) == 2 for kernel in kernels(found.tree, found.call))
    new = point["seq_len"]
    beside = 2 * new * 4 * A + 4 * H
    assert evaluate(served_peak(found.tree, found.call), point) == 5 * point["batch_size"] * new * H * A + beside
