"""What each function of one file does, whatever it is called: runs a model, attends, samples, keeps keys and values, takes
requests; and which calls lead on from it.

An effect is an operation on something: a `multinomial`, an allocation with a dimension of heads, an assignment into a slice of
a cache. What stands in a nested function is the outer one's, inside a loop where the loop calls it.
"""

from __future__ import annotations

import ast
import bisect
import re
import sys
from collections import defaultdict

from opscope_tools.survey.expressions import handed, last_name, last_of, loose_chain, names, own_name
from opscope_tools.survey.facts import Work
from opscope_tools.survey.module import Module, string

__all__ = [
    "COMMON",
    "EFFECTS",
    "SPAWNS",
    "EffectReader",
    "effects_named",
    "handed_over",
    "spawned",
]

#: effect -> what it is, as a report says it
EFFECTS = {
    "model": "runs a model",
    "layers": "goes through the layers of a model",
    "attention": "attends",
    "sample": "picks tokens from logits",
    "filter": "filters or scales logits",
    "allocates": "allocates keys and values",
    "writes": "writes keys and values",
    "admits": "takes requests from a queue into a batch",
    "takes": "takes from a queue",
    "prepares": "builds input tensors",
    "inference": "without gradients",
    "trains": "runs backward",
    "communicates": "communicates between devices",
    "tokenizer": "loads a tokenizer",
    "flags": "declares flags",
    "asks": "asks a person",
}
#: names of what is called -> effect that the name alone shows
_BY_NAME = (
    ("sample", r"_?multinomial\w*|categorical\w*|\w*sampling_from_(probs|logits)|gumbel_sample|exponential_|\w*_sampler_sample\w*|\w*sample_token\w*"),
    ("attention", r"(?!_?(is|has|check|lazy|import|load|get|set|uses?|supports?|can|should|register|validate|create|build|make|init|warn|enable|disable|select|test|detect|materialize|resolve|prepare|update)_)(?!\w*(_(config|mix|mask|meta\w*|spec|view|type|mode|params|info|available|enabled|supported)|(?<!with_kv)_cache)s?$)(scaled_dot_product_attention|flash_attn\w*|\w*(paged|flash|unified|flex|ragged|mqa|gqa|mla)_?attention\w*|memory_efficient_attention|\w*attention_(fwd|forward|kernel|func)\w*|\w*_att(ention|n)?_fwd\w*|dot_product_attention|flash_mla\w*|attention_ref)"),
    ("writes", r"\w*(reshape_and_cache|(store|write|append|set|fill|update|put)_kv|copy_kv|kv_(copy|store|write|append)|set_kv_buffer|store_cache|fill_kv|update_kv_cache)\w*"),
    ("inference", r"no_grad|inference_mode"),
    ("trains", r"backward|zero_grad"),
    ("communicates", r"(tp_|_|custom_|fused_|async_)?(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)\w*|tp_(gather|broadcast)\w*|\w*tensor_model_parallel_all_\w+|psum"),
    ("flags", r"add_argument"),
    ("asks", r"input|prompt_toolkit\w*|prompt_async"),
    ("tokenizer", r"SentencePieceProcessor|get_encoding"),
    ("prepares", r"as_tensor|from_numpy|prepare_(inputs?|prefill|decode|batch|model)\w*|(build|make|create)_\w*inputs?"),
)  # fmt: skip
_NAMED = [(effect, re.compile(pattern)) for effect, pattern in _BY_NAME]
_MODEL = re.compile(
    r"(?!_?(load|get|build|create|make|init|save|download|set|update|compile|is|has|fetch|register|convert|export|parse|prepare|warmup|check|select|wrap|share|to|from|find|resolve|add|quantize|patch|cast|copy|shard|print|list|delete|unload|read|new|launch|start|stop|send|submit|push|move|offload)_)"
    r"(?!\w*_(to|for|from|of|and|in|on|into)_)"
    r"(\w*_)?(model|net|network|transformer|lm|llm|decoder|backbone|gpt)"
)
#: what a model's step is called that is bound to a name: `model_forward(**inputs)`
_STEP = re.compile(r"(\w*_)?(model|lm|llm|decoder|transformer)_(forward|fn|step|apply|call)")
#: what a generating class hands to its own call
_GIVEN = re.compile(r"\w*(inputs?|ids|tokens?|embeds)(_\w+)?")
_MODEL_ENDS = ("model", "net", "network", "transformer", "lm", "decoder", "backbone", "gpt")
_RUNS = {"forward", "__call__", "forward_chunk", "forward_step", "apply", "apply_fn", "eval_step", "decode_step"}
#: what logits are called
_LOGITS = re.compile(r"\w*(logit|prob|logp|score|next_token)\w*", re.IGNORECASE)
_PICKS = {
    "argmax",
    "argmax_",
    "topk",
    "top_k",
    "sort",
    "cumsum",
    "softmax",
    "log_softmax",
    "approx_max_k",
    "masked_fill",
}
#: what the weights of attention are called, whoever takes a softmax of them; and where something else is about attention
_WEIGHTS = re.compile(r"\w*(att|qk)\w*")
_MAYBE_WEIGHTS = re.compile(r"\w*(score|sim|energy|dots|weights)\w*|w|aw")
_MAKES = {"zeros", "empty", "full", "ones", "new_zeros", "new_empty", "new_full", "empty_strided", "new_ones"}
#: a local of a cache that holds keys or values
_KEYS_OR_VALUES = re.compile(r"(\w+_)?(key|value)_(states?|tensors?)(_\w+)?|(new_|p_)?(k|v)s?(_\w+)?")
_ANY = re.compile(r"\w+")
#: what layers hand on
_HIDDEN = re.compile(r"x|h|hs|hidden\w*|\w*states?|\w*embeds|\w*logits")
#: what compiled extensions are called
_COMPILED = re.compile(r"\w*(ext|lib|_c|cpp|cuda|kernel)\w*", re.IGNORECASE)
#: what holds keys and values, whoever holds it; and names that only an object's own attributes may have
_CACHE = re.compile(
    r"\w*(k|v|kv|key|value|keys|values)_?(cache|buffer|pool)s?\w*|\w*cache_?(k|v|kv|key|value)s?|past_(k|v|key|value)\w*|\w*kv_?data|kv_mem\w*|layer_past"
)
_HOLDS_CACHE = re.compile(r"\w*(cache|buffer|pool)s?(_[kv])?")
_OWN_CACHE = re.compile(r"_?(k|v|kv|keys?|values?|key_states|value_states|k_all|v_all|latents?|ckv|k_quant|v_quant)_?")
_NO_CACHE = re.compile(
    r"\w*(conv|ssm|recurrent|mamba)_?states?\w*|\w*(mask|ids|token|pos|freq|cos|sin|logit|grad|scale|bias|index|table|len|query|out|score|prob)\w*|q(_\w+)?"
)
_HEADS = re.compile(r"heads?|kv_|_kv|n_kv|num_key|groups?_?size|head_size|head_dim|qk_")
_INTO = {"index_copy_", "index_copy", "batched_index_copy_", "scatter_", "scatter", "index_put_", "copy_", "slice_update", "dynamic_update_slice", "dynamic_update_slice_in_dim", "dynamic_update_index_in_dim", "put_along_axis"}  # fmt: skip
_GROWS = {"cat", "concat", "concatenate"}
_QUEUE = re.compile(r"\w*(waiting|pending|queue|unscheduled|backlog)\w*")
_HELD = re.compile(rf"{_QUEUE.pattern}|(new_|input_|active_|running_)?(requests?|reqs|jobs|seqs)(_list|_dict)?")
_TAKES = {
    "popleft",
    "pop",
    "get",
    "get_nowait",
    "heappop",
    "remove",
    "peek_request",
    "pop_request",
    "recv",
    "recv_pyobj",
}
_MOVES = {
    "append",
    "appendleft",
    "add",
    "extend",
    "insert",
    "put",
    "put_nowait",
    "push",
    "allocate",
    "add_request",
    "allocate_slots",
}
#: what goes through a queue or pipe between threads and processes
_CHANNEL = re.compile(r"\w*(que|queue|pipe|conn|channel|inbox|mailbox)\w*|q(_\w+)?|\w+_q")
_PUTS, _GETS = {"put", "put_nowait", "send", "send_pyobj"}, {"get", "get_nowait", "recv", "recv_pyobj"}
_MESSAGES = _TAKES | _PUTS
_LAYERS = re.compile(r"\w*(layers?|blocks?)(_\w+)?|h|stages|modules")
_LAYER_COUNT = re.compile(r"\w*(layer|block)\w*")
#: calls that run what they are given, later or elsewhere
SPAWNS = {"Process", "Thread", "create_task", "ensure_future", "run_in_executor", "to_thread", "submit", "partial", "run_coroutine_threadsafe", "run_until_complete", "call_soon", "add_done_callback", "remote", "async_", "wraps", "start_soon"}  # fmt: skip
#: calls that run the method whose name they are given
_BY_STRING = re.compile(r"\w*(rpc|call|execute|run|remote|invoke|method|getattr)\w*")
#: calls that lead nowhere in a repository
COMMON = frozenset(
    "append extend insert join format split strip get items keys values pop update add copy isinstance len range print int float str bool list dict tuple set super type "
    "getattr setattr hasattr min max sum abs sorted enumerate zip map filter any all open read write close info warning debug error exception to view reshape size dim unsqueeze "
    "squeeze transpose permute contiguous expand item cpu cuda numpy tolist float half startswith endswith lower upper replace zeros empty ones full arange tensor cat stack "
    "add_argument is_available time perf_counter sleep dumps loads encode decode detach clone repr id vars iter round callable issubclass ValueError RuntimeError TypeError "
    "NotImplementedError KeyError AssertionError device synchronize current_stream linear named_parameters parameters state_dict exists cast static_assert load store program_id cdiv".split()
)  # fmt: skip
#: what attention is asked by
_QUERY = re.compile(r"(\w+_)?(q|query|query_states)(_\w+)?")
#: what sends tensors between ranks under names that mean much else elsewhere
_COLLECTIVES = {"send", "recv", "isend", "irecv", "broadcast", "gather", "scatter", "reduce"}
#: what repeats a function that it is handed
_REPEATS = re.compile(r"\w*(loop|repeat|forever)\w*")
#: those of the common calls that show no effect either
_COMMON_ALONE = COMMON - _PICKS - _MAKES - _INTO - _GROWS - _MESSAGES - SPAWNS - {"add_argument"}
_FOREIGN = {*sys.stdlib_module_names, "torch", "numpy", "jax", "mlx", "triton", "tqdm", "pydantic", "tensorflow", "pytest", "ray", "zmq", "fastapi", "safetensors", "PIL", "requests", "aiohttp", "einops", "cutlass"}  # fmt: skip
_FOREIGN -= {"queue"}


class EffectReader:
    """The effects of one file's functions."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._work: defaultdict[str, Work] = defaultdict(Work)
        self._places: dict[int, tuple[str, str]] = {}
        self._functions: list[tuple[int, int, str]] = []
        self._inner: dict[str, list[tuple[int, int, str]]] = {}
        self._read_functions()
        self._loops: dict[str, list[tuple[int, int, str]]] = {}
        #: outer function -> names of the functions inside it -> effects and calls found there
        self._nested: defaultdict[str, dict[str, list[tuple[str, str, int]]]] = defaultdict(dict)

    def work(self) -> dict[str, Work]:
        """Path of each module-level function and method -> what it does; those that do nothing are left out."""
        self._read_loops()
        for call in self.module.all(ast.Call):
            self._call(call)
        self._called = {call.func.id for call in self.module.all(ast.Call) if isinstance(call.func, ast.Name)}
        for changed in self.module.all(ast.AugAssign):
            self._assignment(changed, [changed.target])
        for statement in self.module.all(ast.Assign):
            self._assignment(statement, statement.targets)
            self._binding(statement)
        self._products()
        self._fold()
        return dict(self._work)

    # where

    def _place(self, line: int) -> tuple[str, str]:
        """The outermost function or method that holds a line, and the name of the nested one inside it that does."""
        found = self._places.get(line)
        if found is None:
            found = self._places[line] = self._looked_up(line)
        return found

    def _looked_up(self, line: int) -> tuple[str, str]:
        place = bisect.bisect_right(self._starts, line) - 1
        if place < 0 or self._functions[place][1] < line:
            return "", ""
        outer = self._functions[place][2]
        return outer, next((name for first, last, name in self._inner.get(outer, ()) if first <= line <= last), "")

    def _read_functions(self) -> None:
        """The functions of the module and of its classes, in the order of lines, and those directly inside each."""
        for first, last, path, node in self.module.spans:
            if isinstance(node, ast.ClassDef):
                continue
            if self._functions and first <= self._functions[-1][1]:
                outer = self._functions[-1][2]
                if path.count(".") == outer.count(".") + 1:
                    self._inner.setdefault(outer, []).append((first, last, node.name))
            else:
                self._functions.append((first, last, path))
        self._starts = [first for first, _, _ in self._functions]

    def _in_loop(self, outer: str, line: int) -> bool:
        return any(first <= line <= last for first, last, _ in self._loops.get(outer, ()))

    def _note(self, effect: str, text: str, line: int) -> None:
        outer, inner = self._place(line)
        if outer:
            self._add(outer, inner, effect, text, line)

    def _add(self, outer: str, inner: str, effect: str, text: str, line: int) -> None:
        work = self._work[outer]
        work.counts[effect] = work.counts.get(effect, 0) + 1
        if effect not in work.effects or line < work.effects[effect][1]:
            work.effects[effect] = (text, line)
        if inner:
            self._nested[outer].setdefault(inner, []).append(("effect", effect, line))
        if self._in_loop(outer, line):
            work.looped.add(effect)

    def _leads(self, outer: str, inner: str, called: str, line: int) -> None:
        work = self._work[outer]
        work.calls.add(called)
        if inner:
            self._nested[outer].setdefault(inner, []).append(("call", called, line))
        if self._in_loop(outer, line):
            work.looped_calls.add(called)

    def _fold(self) -> None:
        """What a loop reaches through nested functions is inside the loop."""
        for outer, nested in self._nested.items():
            work = self._work[outer]
            waiting = [name for name in nested if name in work.looped_calls]
            seen = set(waiting)
            for name in waiting:
                for kind, what, _ in nested[name]:
                    if kind == "effect":
                        work.looped.add(what)
                        continue
                    work.looped_calls.add(what)
                    if what in nested and what not in seen:
                        seen.add(what)
                        waiting.append(what)

    def _read_loops(self) -> None:
        loops: list[ast.While | ast.For | ast.AsyncFor] = [
            *self.module.all(ast.While), *self.module.all(ast.For), *self.module.all(ast.AsyncFor)
        ]  # fmt: skip
        for loop in loops:
            outer, inner = self._place(loop.lineno)
            if not outer:
                continue
            kind = "while" if isinstance(loop, ast.While) else "for"
            self._loops.setdefault(outer, []).append((loop.lineno, loop.end_lineno or loop.lineno, kind))
            work = self._work[outer]
            work.loop = "while" if "while" in (kind, work.loop) else kind
            self._loop_effects(loop, outer, inner)

    def _loop_effects(self, loop: ast.While | ast.For | ast.AsyncFor, outer: str, inner: str) -> None:
        head = loop.test if isinstance(loop, ast.While) else loop.iter
        named = [*names(head)]
        if (any(_QUEUE.fullmatch(name) for name in named) or self._pops(loop)) and self._moves(loop):
            self._add(outer, inner, "admits", self.module.text(head, 60), loop.lineno)
        if not isinstance(loop, ast.While) and not outer.endswith("__init__"):
            if line := self._applies(loop, _LOGITS):
                self._add(outer, inner, "filter", self.module.text(head, 60), line)
            ranged = isinstance(head, ast.Call) and last_of(head) == "range" and any(map(_LAYER_COUNT.fullmatch, named))
            counted = isinstance(loop.target, ast.Name) and _LAYERS.fullmatch(loop.target.id)
            if (ranged or counted or any(map(_LAYERS.fullmatch, named))) and (line := self._applies(loop)):
                self._add(outer, inner, "layers", self.module.text(head, 60), line)

    def _moves(self, loop: ast.While | ast.For | ast.AsyncFor) -> bool:
        """Whether a loop puts what it goes through somewhere else, or hands it to what does."""
        calls = [node for statement in loop.body for node in ast.walk(statement) if isinstance(node, ast.Call)]
        taken = [one for call in calls for one in call.args if isinstance(one, ast.Call) and last_of(one) in _TAKES]
        return any(
            isinstance(one.func, ast.Attribute) and _QUEUE.fullmatch(last_name(one.func.value)) for one in taken
        ) or any(
            last_of(call) in _MOVES
            and isinstance(call.func, ast.Attribute)
            and not _QUEUE.fullmatch(last_name(call.func.value))
            for call in calls
        )

    def _pops(self, loop: ast.While | ast.For | ast.AsyncFor) -> bool:
        """Whether a loop takes from the head of something that the object keeps: `self.todo.popleft()`, whatever it is called."""
        calls = [node for statement in loop.body for node in ast.walk(statement) if isinstance(node, ast.Call)]
        return any(
            isinstance(f := call.func, ast.Attribute) and f.attr == "popleft" and own_name(f.value).startswith("self.")
            for call in calls
        )

    def _applies(self, loop: ast.For | ast.AsyncFor, such: re.Pattern[str] = _ANY) -> int:
        """The line on which a loop hands something through what it goes through: `x = layer(x)`, `x = run(layer, x)`; 0 for none."""
        bound = set(names(loop.target))
        for statement in (node for one in loop.body for node in ast.walk(one) if isinstance(node, ast.Assign)):
            value = statement.value.value if isinstance(statement.value, ast.Await) else statement.value
            targets = {name for target in statement.targets for name in names(target)}
            if isinstance(value, ast.Call):
                given = set(handed(value))
                on = targets & given  # a layer that is only given along shows in what is handed on
                on = on if bound & set(names(value.func)) else {n for n in on if bound & given and _HIDDEN.fullmatch(n)}
                if any(map(such.fullmatch, on)):
                    return value.lineno
        return 0

    # what calls show

    def _call(self, call: ast.Call) -> None:
        last = last_of(call)
        if not last or last in _COMMON_ALONE:
            return
        outer, inner = self._place(call.lineno)
        if not outer:
            return
        line = call.lineno
        for effect in effects_named(last):
            self._add(outer, inner, effect, last, line)
        if last in _PICKS:
            self._picks(call, last, outer, inner)
        elif last in _MAKES:
            self._makes(call, outer, inner)
        elif last in _INTO or last in _GROWS:
            self._puts(call, last, outer, inner)
        elif last in _MESSAGES and isinstance(call.func, ast.Attribute):
            self._messages(call, last_name(call.func.value), last, outer, inner)
        elif "ampler" in last and last.endswith("sampler") and call.args:
            if any(_LOGITS.fullmatch(name) for argument in call.args for name in names(argument)):
                self._add(outer, inner, "sample", last, line)
        elif "sample" in last and _is_compiled(self.module.dotted(call.func)):
            self._add(outer, inner, "sample", last, line)
        elif (
            last in {"run", "forward"}
            and "wrapper" in last_name(call.func).lower() + self.module.dotted(call.func).lower()
        ):
            if any(_QUERY.fullmatch(name) for name in handed(call)):
                self._add(outer, inner, "attention", self.module.text(call.func, 60), line)
        elif last in _COLLECTIVES and self.module.dotted(call.func).startswith("torch.distributed."):
            self._add(outer, inner, "communicates", last, line)
        elif last.startswith("from_") and "Tokenizer" in self.module.dotted(call.func):
            self._add(outer, inner, "tokenizer", "Tokenizer." + last, line)
        self._runs_model(call, last, outer, inner)
        self._on(call, last, outer, inner)

    def _messages(self, call: ast.Call, subject: str, last: str, outer: str, inner: str) -> None:
        """What takes requests, and what goes to another thread or process; `requests.get(id)` looks one up."""
        line = call.lineno
        looks_up = last in {"get", "pop"} and not all(isinstance(one, ast.Constant) for one in call.args)
        if last in _TAKES and (_QUEUE if looks_up else _HELD).fullmatch(subject):
            self._add(outer, inner, "takes", f"{subject}.{last}", line)
        if last in _PUTS and _CHANNEL.fullmatch(subject):
            self._leads(outer, inner, f"put {subject}", line)  # as handed_over() spells it
        elif last in _GETS and _CHANNEL.fullmatch(subject):
            self._work[outer].calls.add(f"get {subject}")

    def _runs_model(self, call: ast.Call, last: str, outer: str, inner: str) -> None:
        """`model(...)`, `self.model(...)`, `model.forward(...)`: what is called is what models are called."""
        if not (call.args or call.keywords):
            return
        subject = last if not (last in _RUNS and isinstance(call.func, ast.Attribute)) else last_name(call.func.value)
        own = isinstance(call.func, ast.Name) and call.func.id == "self"
        if (
            _STEP.fullmatch(last)
            or (own and any(_GIVEN.fullmatch(name) for name in handed(call)))
            or (
                subject
                and subject.endswith(_MODEL_ENDS)
                and _MODEL.fullmatch(subject)
                and not self.module.dotted(call.func).startswith(("transformers.", "torch."))
            )
        ):
            self._add(outer, inner, "model", self.module.text(call.func, 60), call.lineno)

    def _picks(self, call: ast.Call, last: str, outer: str, inner: str) -> None:
        about = [*(names(call.args[0]) if call.args else ())]
        if isinstance(call.func, ast.Attribute):
            about += names(call.func.value)
        attends = "att" in f"{outer} {inner}".lower()
        if last == "softmax" and any(_WEIGHTS.fullmatch(n) or (attends and _MAYBE_WEIGHTS.fullmatch(n)) for n in about):
            self._add(outer, inner, "weights", last, call.lineno)
        elif any(_LOGITS.fullmatch(name) for name in about):
            self._add(outer, inner, "sample" if last.startswith("argmax") else "filter", last, call.lineno)
        elif last.startswith("argmax") and any(_MODEL.fullmatch(name) for name in about):
            self._add(outer, inner, "sample", last, call.lineno)

    def _makes(self, call: ast.Call, outer: str, inner: str) -> None:
        """An allocation that holds keys and values: by a dimension of heads, or by what it is bound to."""
        target = self._bound(call)
        bare = target.removeprefix("self.")
        if _NO_CACHE.fullmatch(bare) and not _HOLDS_CACHE.fullmatch(bare):
            return
        shape = [*call.args, *(k.value for k in call.keywords if k.arg in {"size", "shape"})]
        dimensions = shape[0].elts if shape and isinstance(shape[0], ast.Tuple | ast.List) else shape
        if any(isinstance(one, ast.Constant) and one.value == 0 for one in dimensions):
            return  # stands for none yet
        words = [name for one in dimensions for name in names(one)]
        if len(dimensions) == 1 and isinstance(dimensions[0], ast.Name):
            words += self._shape_words(dimensions[0].id, outer)
        by_shape = (len(dimensions) >= 3 or len(words) >= 4) and any(_HEADS.search(word) for word in words)
        own = target.startswith("self.") and _OWN_CACHE.fullmatch(bare) and (by_shape or len(dimensions) != 2)
        inside = _KEYS_OR_VALUES.fullmatch(bare) and "cache" in outer.lower()
        if own or inside or (bare and _CACHE.fullmatch(bare)):
            self._add(outer, inner, "allocates", target, call.lineno)
        elif by_shape and re.search(r"cache|kv|buffer|pool|mem", f"{bare} {outer}", re.IGNORECASE):
            self._add(outer, inner, "allocates", target or "a buffer with heads", call.lineno)

    def _shape_words(self, name: str, outer: str) -> list[str]:
        """The words of a shape that is bound to a name first."""
        for statement in self.module.all(ast.Assign):
            bound = any(isinstance(target, ast.Name) and target.id == name for target in statement.targets)
            if bound and self._place(statement.lineno)[0] == outer:
                return [*names(statement.value)]
        return []

    def _bound(self, call: ast.Call) -> str:
        """What the statement of an allocation binds it to: `k_cache`, `self.k`, the name of a buffer; empty for none."""
        nodes: list[ast.Assign | ast.AnnAssign] = [*self.module.all(ast.Assign), *self.module.all(ast.AnnAssign)]
        for statement in nodes:
            if statement.lineno <= call.lineno <= (statement.end_lineno or 0):
                return own_name(statement.targets[0] if isinstance(statement, ast.Assign) else statement.target)
        for other in self.module.all(ast.Call):
            if last_of(other) in {"register_buffer", "append", "setattr"} and other.lineno <= call.lineno <= (
                other.end_lineno or 0
            ):
                name = next((text for argument in other.args if (text := string(argument))), None)
                if name is not None:
                    return f"self.{name}"
                return own_name(other.func.value) if isinstance(other.func, ast.Attribute) else ""
        return ""

    def _puts(self, call: ast.Call, last: str, outer: str, inner: str) -> None:
        """`cache.copy_(k)`, `index_copy_(self.k, ...)`, `torch.cat([past_key, k])`."""
        about: list[ast.expr] = [*call.args[:1]]
        if isinstance(call.func, ast.Attribute):
            about.append(call.func.value)
        if last in _GROWS:
            held = call.args[0] if call.args else None
            about = held.elts[:1] if isinstance(held, ast.Tuple | ast.List) else []
        for one in about:
            target = own_name(one)
            if _is_cache(target):
                self._add(outer, inner, "writes", target, call.lineno)

    def _assignment(self, statement: ast.stmt, targets: list[ast.expr]) -> None:
        """`cache[:, layer, position] = k`."""
        for target in targets:
            if isinstance(target, ast.Subscript):
                name = own_name(target)
                tensorlike = isinstance(target.slice, ast.Tuple | ast.Slice)
                if _is_cache(name) and (tensorlike or _CACHE.fullmatch(name.removeprefix("self."))):
                    self._note("writes", name, statement.lineno)

    def _binding(self, statement: ast.Assign) -> None:
        """`self.step_fn = self.step if ... else self.other`, `run = generate`: what a name runs where it is called."""
        target = statement.targets[0]
        if isinstance(target, ast.Name):
            if target.id not in self._called:
                return
        elif not isinstance(target, ast.Attribute):
            return
        bound = _callables(statement.value)
        if not bound:
            return
        outer, _ = self._place(statement.lineno)
        if not outer:
            return
        names = {self.module.dotted(one) for one in bound} - {""}
        if isinstance(target, ast.Name):
            work = self._work[outer]
            for held in (work.calls, work.looped_calls):
                if target.id in held:
                    held |= names
        elif isinstance(target.value, ast.Name) and target.value.id == "self":
            self._work[outer].binds.setdefault(target.attr, set()).update(names)

    def _products(self) -> None:
        """Attention that is spelt out: weights under a softmax, beside products of query and key."""
        for work in self._work.values():
            shown, count = work.effects.pop("weights", None), work.counts.pop("weights", 0)
            if shown is not None and "attention" not in work.effects:
                work.effects["attention"], work.counts["attention"] = shown, count
            work.looped.discard("weights")

    # what leads on

    def _repeated(self, call: ast.Call, outer: str, inner: str) -> None:
        """Functions that a loop elsewhere is handed are called in a loop: `run_loop(prepare, step=run_model)`."""
        within = {name for _, _, name in self._inner.get(outer, ())}
        handed = [one.id for one in (*call.args, *(k.value for k in call.keywords)) if isinstance(one, ast.Name)]
        for name in [one for one in handed if one in within]:
            self._leads(outer, inner, name, call.lineno)
            self._work[outer].looped_calls.add(name)
            self._work[outer].loop = self._work[outer].loop or "while"

    def _on(self, call: ast.Call, last: str, outer: str, inner: str) -> None:
        dotted = self.module.dotted(call.func) or loose_chain(call.func)
        head = dotted.partition(".")[0]
        # `self.model.decode(batch)`; but `line.decode("utf-8")`
        runs = last == "decode" and "tok" not in dotted and any(not isinstance(one, ast.Constant) for one in call.args)
        if (
            (runs or last not in COMMON)
            and dotted
            and (head not in _FOREIGN or head == self.module.name.partition(".")[0])
        ):
            self._leads(outer, inner, dotted, call.lineno)
        if _REPEATS.fullmatch(last):
            self._repeated(call, outer, inner)
        if last in SPAWNS:
            for started in spawned(call):
                if name := self.module.dotted(started):
                    self._leads(outer, inner, name, call.lineno)
        elif _BY_STRING.fullmatch(last):
            for given in call.args[:2]:
                if (spelt := string(given)) and spelt.isidentifier() and "_" in spelt:
                    self._leads(outer, inner, f"?.{spelt}", call.lineno)


def effects_named(name: str, memo: dict[str, tuple[str, ...]] = {}) -> tuple[str, ...]:  # noqa: B006  # what it remembers
    """The effects that the name of what is called shows alone."""
    found = memo.get(name)
    if found is None:
        found = memo[name] = tuple(effect for effect, pattern in _NAMED if pattern.fullmatch(name))
    return found


def _callables(value: ast.expr) -> list[ast.expr]:
    """What a value may stand for that can be called: names, either side of a choice, what a wrapper is given."""
    if isinstance(value, ast.IfExp):
        return [*_callables(value.body), *_callables(value.orelse)]
    if isinstance(value, ast.BoolOp):
        return [one for part in value.values for one in _callables(part)]
    if isinstance(value, ast.Call):
        return [one for one in value.args[:1] if isinstance(one, ast.Attribute)] if last_of(value) not in COMMON else []
    return [value] if isinstance(value, ast.Name | ast.Attribute) else []


def _is_compiled(dotted: str) -> bool:
    return any(_COMPILED.fullmatch(part) for part in dotted.split(".")[:-1])


def _is_cache(name: str) -> bool:
    own = name.startswith("self.") and _OWN_CACHE.fullmatch(name[5:])
    return bool(own or _CACHE.fullmatch(name.removeprefix("self.")))


def spawned(call: ast.Call) -> list[ast.expr]:
    """The functions that a call starts later or elsewhere: `Process(target=run)`, `run_in_executor(None, self.step)`."""
    if last_of(call) not in SPAWNS:
        return []
    given = [*call.args, *(k.value for k in call.keywords if k.arg in {"target", "func", "fn"})]
    return [one for one in given if isinstance(one, ast.Name | ast.Attribute)]


def handed_over(call: ast.Call) -> str:
    """`put QUEUE` where a call puts something into a queue or pipe that another thread or process may take from."""
    if (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in _PUTS
        and _CHANNEL.fullmatch(last_name(call.func.value))
    ):
        return f"put {last_name(call.func.value)}"
    return ""
