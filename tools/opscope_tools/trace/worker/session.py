"""One trace, from request to record: build the model on symbolic sizes, run one pass, write down what ran.

The model is built on fake tensors (shapes without data) from a config whose sizes are symbols, in bfloat16, in
evaluation mode, without gradients: the path that inference takes. A decode pass follows an unrecorded prefill of
{cache_len} tokens that fills the cache.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from opscope_schemas.errors import ConfigError, OpscopeError, TraceError
from opscope_schemas.formula import Formula, evaluate
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from opscope_tools.trace.operators import ZERO, Cost
from opscope_tools.trace.protocol import CallRecord, OpRecord, Trace, TraceRequest
from opscope_tools.trace.variables import CONFIG, ELEMENT
from opscope_tools.trace.worker import models, patches
from opscope_tools.trace.worker.floors import Floors
from opscope_tools.trace.worker.recorder import CallEvent, OpEvent, Recorder, UnfoldedError
from opscope_tools.trace.worker.symbols import Symbols

Say = Callable[[str], None]
#: sizes at which branches of a run are decided unless the request says otherwise: distinct, small, coprime
RUN_HINTS = {"batch_size": 3, "seq_len": 11, "cache_len": 17}
DTYPE = torch.bfloat16


def trace(request: TraceRequest, say: Say) -> Trace:
    """Trace one pass; raises `TraceError` or `ConfigError` with the reason."""
    target, candidates = models.resolve(request.model)
    problems: list[str] = []
    for model_class, config_class in candidates:
        say(f"tracing {model_class.__name__} ({request.phase})")
        try:
            with _quiet():
                found = _widest(request, model_class, config_class, say)
        except OpscopeError as error:
            if len(candidates) == 1:
                raise
            problems.append(f"{model_class.__name__}: {error.message}")
            continue
        qualified = f"{target.__module__}.{target.__qualname__}"
        if any(call.class_name == qualified for call in found.calls):
            return found
        problems.append(f"{model_class.__name__} does not call it in this phase")
    raise TraceError(
        f"{request.model.class_name or request.model.model_type} was not reached by any trace: {'; '.join(problems)}.",
        next_step="Name a class that the model's forward calls, or the model class itself.",
    )


#: what is symbolic: every size; the run's sizes, with the config's as numbers; nothing
LEVELS = ("all", "run", "none")


def _widest(request: TraceRequest, model_class: Any, config_class: Any, say: Say) -> Trace:
    """The trace with as many symbols as the model's code bears; fewer make a narrower record, never a wrong one."""
    if config_class is None:
        return LayerSession(request, model_class).run()
    first: TraceError | None = None
    last = TraceError("")
    for level in LEVELS:
        session = Session(request, model_class, config_class, models.make_config(config_class, request.model), level)
        if first is not None:
            what = "the config's sizes are" if level == "run" else "all sizes are"
            session.assumptions.append(f"{what[0].upper()}{what[1:]} numbers here, because: {first.message}")
            say(f"tracing again: {what} numbers")
        try:
            try:
                return session.run()
            except UnfoldedError:
                config = models.make_config(config_class, request.model)
                session = Session(request, model_class, config_class, config, level, fold=False)
                return session.run()
        except UntraceableError:
            raise
        except TraceError as error:
            first, last = first or error, error
    # not even plain numbers ran: that is the configuration, not the symbols
    raise TraceError(
        last.message.replace("could not be run on symbolic sizes", "cannot be run as it is configured"),
        next_step="Look at the fields that this line needs, and give them with config.",
        location=last.location,
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """transformers and torch warn about much that does not concern a trace."""
    previous = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.set_verbosity(previous)


class UntraceableError(TraceError):
    """What no choice of symbols can mend."""


class Session:
    """One trace of a model that is built from a config."""

    def __init__(
        self,
        request: TraceRequest,
        model_class: Any,
        config_class: Any,
        config: Any,
        level: str = "all",
        *,
        fold: bool = True,
    ) -> None:
        self.request = request
        self.level = level
        self.fold = fold
        self.model_class = model_class
        self.config_class = config_class
        self.config = config
        self.names = models.sizes(config)
        self.configured = {name: vars(config).get(key) for name, key in self.names.items()}
        self.symbols = Symbols()
        self.assumptions: list[str] = []
        self.mixed_layers = self.uniform = False
        #: run-time sizes that are numbers in this trace
        self.settled: dict[str, int] = {}
        self.symbolic: dict[str, str] = {}

    def run(self) -> Trace:
        # what stays a number takes its value from the hints, as an override that the config class sees
        settled = ["num_layers"] if self.level == "all" else list(self.names)
        chosen = {n: self.request.hints[n] for n in settled if n in self.request.hints and n in self.names}
        if chosen:
            spec = self.request.model
            spec = spec.model_copy(update={"overrides": {**spec.overrides, **chosen}})
            self.config = models.make_config(self.config_class, spec)
            self.configured = {name: vars(self.config).get(key) for name, key in self.names.items()}
        self.uniform = models.layers_are_uniform(
            self.model_class, self.config_class, self.request.model, self.configured
        )
        self._make_sizes_symbolic()
        package = self.model_class.__module__.rsplit(".", 1)[0]
        fake = FakeTensorMode(shape_env=self.symbols.env, allow_non_fake_inputs=True)
        fake.cache_enabled = False  # nothing repeats often enough here to pay for the cache keys
        try:
            with fake, torch.no_grad(), patches.symbolic_int((package,)):
                with patches.no_initialisation():
                    model = self._build()
                recorder = self._execute(model)
                return self._written(model, recorder)
        except OpscopeError:
            raise
        except (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode) as error:
            raise TraceError(
                f"{self.model_class.__name__} takes a decision that depends on data, which no cost formula can "
                f"follow: {_first_line(error)}.",
                location=_place(error),
            ) from error
        except Exception as error:
            raise TraceError(
                f"{self.model_class.__name__} could not be run on symbolic sizes: {type(error).__name__}: {_first_line(error)}.",
                location=_place(error),
            ) from error

    # ---- building

    def _make_sizes_symbolic(self) -> None:
        """Put a symbol in the place of every size of the config, but for the number of layers, which Python loops over."""
        if self.level != "all":
            return
        hints = dict(self.configured)
        heads, shared = hints.get("num_heads"), hints.get("num_kv_heads")
        if heads and heads == shared and "num_kv_heads" not in self.request.hints:
            # equal defaults must not merge the two: branch as grouped-query attention does
            hints["num_kv_heads"] = next((heads // k for k in (2, 3, 5, 7) if heads % k == 0 and heads > k), heads)
        hints.update({k: v for k, v in self.request.hints.items() if k in self.names})
        for name, key in self.names.items():
            value = hints[name]
            if name != "num_layers" and isinstance(value, int) and not isinstance(value, bool) and value >= 1:
                self.config.__dict__[key] = self.symbols.create(name, value)
                self.symbolic[name] = key
        if "head_dim" not in self.symbolic and {"hidden_size", "num_heads"} <= self.symbolic.keys():
            self.symbols.alias("hidden_size", "num_heads", "head_dim")

    def _build(self) -> Any:
        wanted = self.request.attention
        if issubclass(self.model_class, transformers.PreTrainedModel):
            if wanted == "sdpa" and not getattr(self.model_class, "_supports_sdpa", False):
                wanted = "eager"
                self.assumptions.append(f"{self.model_class.__name__} supports no sdpa attention: traced with eager")
            self.attention = wanted
            self.config._attn_implementation = wanted
            model = self.model_class._from_config(self.config, attn_implementation=wanted, dtype=DTYPE)
        else:
            self.attention = wanted
            model = self.model_class(self.config).to(DTYPE)
        return model.eval()

    # ---- running

    def _size(self, name: str) -> Any:
        if self.level == "none":
            self.settled[name] = self.request.hints.get(name, RUN_HINTS[name])
            return self.settled[name]
        return self.symbols.create(name, self.request.hints.get(name, RUN_HINTS[name]))

    def _execute(self, model: Any) -> Recorder:
        recorder = Recorder(model, self.symbols, DTYPE, fold=self.fold)
        parameters = inspect.signature(model.forward).parameters
        if "input_ids" not in parameters:
            raise UntraceableError(
                f"{self.model_class.__name__} takes no input_ids: only text models can be traced in this version.",
                next_step="Name a model whose forward takes input_ids.",
            )
        batch, new = self._size("batch_size"), self._size("seq_len")
        caches = "past_key_values" in parameters
        arguments: dict[str, Any] = {"input_ids": torch.empty((batch, new), dtype=torch.int64)}
        rewriter = patches.Rewriter(recorder.report)
        with rewriter, _cache_reports(recorder), _skipped_checks(recorder), patches.masks_as_in_inference():
            if caches:
                arguments["use_cache"] = True
            if self.request.phase == "decode":
                if not caches:
                    raise UntraceableError(f"{self.model_class.__name__} keeps no KV cache, so it has no decode phase.")
                cached = self._size("cache_len")
                with recorder.phase(record=False):
                    filled = model(input_ids=torch.empty((batch, cached), dtype=torch.int64), use_cache=True)
                arguments["past_key_values"] = filled.past_key_values
            with recorder.phase(record=True):
                model(**arguments)
        self.assumptions += rewriter.assumed
        return recorder

    # ---- writing down

    def _written(self, model: Any, recorder: Recorder) -> Trace:
        guards = self.symbols.conditions()
        merged = {}
        for symbol, target in self.symbols.env.replacements.items():
            name = self.symbols._names.get(symbol)
            if name:
                merged[name] = self.symbols._convert(target)

        def text(formula: Formula) -> str:
            return str(self.symbols.simplified(formula.substitute(merged)))

        shapes: dict[str, str] = {}

        def shape_text(shape: str) -> str:
            if shape not in shapes:
                shapes[shape] = shape if shape == "?" else text(Formula.parse(shape))
            return shapes[shape]

        def infos(found: Any) -> Any:
            return tuple(i.model_copy(update={"shape": tuple(shape_text(s) for s in i.shape)}) for i in found)

        repeats = {event.index: self._repeat(model, event) for event in recorder.calls}
        fixed = {n: v for n, v in self.configured.items() if n not in self.symbolic and n != "num_layers"}
        for name, value in [*(fixed.items() if self.level != "all" else ()), *self.settled.items()]:
            if isinstance(value, int) and not isinstance(value, bool):
                guards.append(f"{{{name}}} == {value}")
        if "num_layers" in self.names and not any("num_layers" in times.variables() for times in repeats.values()):
            self.mixed_layers = True  # no stack was generalised: the figures are of this depth
        if self.mixed_layers:
            guards.append(f"{{num_layers}} == {self.configured['num_layers']}")
        floors = Floors(recorder, repeats)
        calls = []
        for event in recorder.calls:
            kind = type(event.module)
            file, line = recorder.frames.definition(kind)
            forward_file, forward_line = recorder.frames.forward_definition(kind)
            if event.forward is not None:
                forward_file, forward_line = recorder.frames.code_definition(event.forward)
            read, write = floors.of(event)
            calls.append(
                CallRecord(
                    index=event.index, order=event.order, parent=event.parent, path=event.path,
                    class_name=f"{kind.__module__}.{kind.__qualname__}", file=file, line=line,
                    forward_file=forward_file, forward_line=forward_line, site=event.site,
                    repeat=str(repeats[event.index]), parameters=text(self._parameters(event.module)),
                    description=self._description(event.module, text),
                    inputs=infos(event.inputs), outputs=infos(event.outputs), floor_read=text(read), floor_write=text(write),
                )
            )  # fmt: skip
        ops = [_op_record(op, text, infos) for op in recorder.ops]
        variables = self._variables(merged)
        point = {
            **self.symbols.hints,
            **self.settled,
            **{n: v for n, v in fixed.items() if isinstance(v, int)},
            **{n: d for n, (_, d) in ELEMENT.items()},
        }
        if "num_layers" in self.names:
            point["num_layers"] = self.configured["num_layers"]
        for name, formula in merged.items():
            point[name] = evaluate(str(formula), point)
        return Trace(
            model_class=f"{self.model_class.__module__}.{self.model_class.__qualname__}",
            config_class=f"{self.config_class.__module__}.{self.config_class.__qualname__}" if self.config_class else "",
            model_type=getattr(self.config_class, "model_type", ""), phase=self.request.phase, attention=self.attention,
            calls=tuple(calls), ops=tuple(ops), variables=variables, guards=tuple(guards), point=point,
            assumptions=tuple(self.assumptions), not_counted=tuple(recorder.uncounted),
        )  # fmt: skip

    def _repeat(self, model: Any, event: CallEvent) -> Formula:
        """How often a call and its folded siblings run: {num_layers} where they are all of the layers."""
        container = model.get_submodule(event.container) if event.container else None
        whole = isinstance(container, torch.nn.ModuleList) and len(container) == event.repeat
        layers = self.configured.get("num_layers")
        if whole and event.repeat == layers and self.uniform:
            return Formula.var("num_layers")
        if isinstance(container, torch.nn.ModuleList) and len(container) == layers:
            self.mixed_layers = True  # several kinds: how many of each is counted, for this depth
        return Formula.const(event.repeat)

    def _parameters(self, module: Any, seen: set[int] | None = None) -> Formula:
        """Weights of the subtree, shared ones once; a list of {num_layers} alike children is that many times one."""
        seen = set() if seen is None else seen
        total = ZERO
        for tensor in module._parameters.values():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                count = Formula.const(1)
                for size in tensor.shape:
                    count = count * self.symbols.formula(size)
                total = total + count
        children = list(module.children())
        layers = self.configured.get("num_layers")
        if self.uniform and isinstance(module, torch.nn.ModuleList) and len(children) == layers:
            counts = {self._parameters(child, set()) for child in children}
            if len(counts) == 1:
                return total + Formula.var("num_layers") * counts.pop()
        for child in children:
            total = total + self._parameters(child, seen)
        return total

    def _description(self, module: Any, text: Callable[[Formula], str]) -> str:
        """`name=value` for the plain integer settings that a reader of a reference wants, from the module itself."""
        parts = []
        for name in (
            "in_features",
            "out_features",
            "num_embeddings",
            "embedding_dim",
            "normalized_shape",
            "num_heads",
            "head_dim",
        ):
            value = getattr(module, name, None)
            if isinstance(value, int | torch.SymInt) and not isinstance(value, bool):
                with contextlib.suppress(OpscopeError):
                    parts.append(f"{name}={text(self.symbols.formula(value))}")
        return ", ".join(parts)

    @staticmethod
    def _fixed(formula: Formula | None) -> int | None:
        """The number that a symbol was settled to, if it was."""
        value = formula.constant() if formula is not None else None
        return int(value) if value is not None else None

    def _variables(self, merged: dict[str, Formula]) -> Any:
        given = models.definitions(self.config_class, self.request.model, self.names) if self.config_class else {}
        found = [models.variable(name, "", value, fixed=True) for name, value in self.settled.items()]
        found += [
            models.variable(name, "", self._fixed(merged.get(name)), fixed=self._fixed(merged.get(name)) is not None)
            for name in self.symbols.hints
            if name not in self.names
        ]
        for name, key in self.names.items():
            value = self.configured[name]
            if not isinstance(value, int) or isinstance(value, bool):
                continue
            fixed = self.mixed_layers if name == "num_layers" else name not in self.symbolic
            found.append(
                models.variable(
                    name,
                    key,
                    value,
                    fixed=fixed or self._fixed(merged.get(name)) is not None,
                    definition=given.get(name, ""),
                )
            )
        if "head_dim" not in self.symbolic and {"hidden_size", "num_heads"} <= self.symbolic.keys():
            value = self.configured["hidden_size"] // self.configured["num_heads"]
            key = models.attribute(self.config, "head_dim")
            follows = models.variable("head_dim", key, value, definition="{hidden_size} // {num_heads}")
            found.append(follows.model_copy(update={"kind": "derived"}))
        for name, (_, size) in ELEMENT.items():
            found.append(models.variable(name, "", size))
        order = {n: i for i, n in enumerate([*RUN_HINTS, *CONFIG])}
        return tuple(sorted(found, key=lambda v: order.get(v.name, 99)))


class LayerSession(Session):
    """One trace of a single torch.nn layer, built from its constructor's arguments instead of a config.

    Every required argument is a symbol; the layer's input is (batch_size, seq_len, width) in the width that its first
    size names, token ids for an embedding, channels first for a convolution.
    """

    def __init__(self, request: TraceRequest, layer_class: Any) -> None:
        config = SimpleNamespace(**self._sizes(request, layer_class))
        super().__init__(request, layer_class, None, config)

    @staticmethod
    def _sizes(request: TraceRequest, layer_class: Any) -> dict[str, int]:
        given = request.model.overrides
        sizes: dict[str, int] = {}
        for name, parameter in inspect.signature(layer_class.__init__).parameters.items():
            required = (
                parameter.default is inspect.Parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            )
            if name in given:
                sizes[name] = given[name]
            elif required and name != "self":
                sizes[name] = 3 if name == "kernel_size" else 24 + 12 * len(sizes)
        unknown = sorted(given.keys() - sizes.keys())
        if unknown:
            raise ConfigError(
                f"{layer_class.__name__} takes no argument {unknown[0]!r}.", next_step=f"Arguments: {', '.join(sizes)}."
            )
        return sizes

    def _make_sizes_symbolic(self) -> None:
        for name in self.names:
            value = self.request.hints.get(name, self.configured[name])
            self.config.__dict__[name] = self.symbols.create(name, value)
            self.symbolic[name] = name

    def _build(self) -> Any:
        self.attention = self.request.attention
        return self.model_class(**vars(self.config)).to(DTYPE).eval()

    def _execute(self, model: Any) -> Recorder:
        if self.request.phase == "decode":
            raise TraceError(
                f"{self.model_class.__name__} keeps no KV cache, so it has no decode phase.",
                next_step="Ask for prefill.",
            )
        recorder = Recorder(model, self.symbols, DTYPE)
        batch, positions = self._size("batch_size"), self._size("seq_len")
        weight = getattr(model, "weight", None)
        if isinstance(model, torch.nn.Embedding):
            given = torch.empty((batch, positions), dtype=torch.int64)
        elif isinstance(model, torch.nn.modules.conv._ConvNd) and weight is not None:
            given = torch.empty((batch, self.config.in_channels, *[positions] * (weight.dim() - 2)), dtype=DTYPE)
        else:
            width = next(iter(vars(self.config).values()), None)
            width = self.symbols.create("hidden_size", 24) if width is None else width
            given = torch.empty((batch, positions, width), dtype=DTYPE)
        with patches.Rewriter(recorder.report), recorder.phase(record=True):
            model(given)
        return recorder


def _op_record(op: OpEvent, text: Callable[[Formula], str], infos: Callable[[Any], Any]) -> OpRecord:
    cost = op.cost or Cost()
    return OpRecord(
        order=op.order, call=op.call, site=op.site, operator=op.operator, derivation=cost.derivation,
        flops=text(cost.flops), matmul_flops=text(cost.matmul_flops), read=text(cost.read), write=text(cost.write),
        causal_saving=text(cost.causal_saving), counted=op.cost is not None,
        inputs=infos(op.inputs), outputs=infos(op.outputs),
    )  # fmt: skip


@contextlib.contextmanager
def _cache_reports(recorder: Recorder) -> Iterator[None]:
    """Hear of every KV-cache update: what the layer held before, and what is new."""
    from transformers.cache_utils import Cache

    original = Cache.update

    def update(self: Any, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        layer = self.layers[layer_idx] if layer_idx < len(self.layers) else None
        held = [
            t for t in (getattr(layer, "keys", None), getattr(layer, "values", None)) if isinstance(t, torch.Tensor)
        ]
        held = [t for t in held if t.dim() > 1]
        recorder.cache_update(held, [key_states, value_states])
        return original(self, key_states, value_states, layer_idx, *args, **kwargs)

    Cache.update = update
    try:
        yield
    finally:
        Cache.update = original


@contextlib.contextmanager
def _skipped_checks(recorder: Recorder) -> Iterator[None]:
    """transformers leaves out, while tracing, a look at the token ids that only serves a warning: say so."""
    name = "warn_if_padding_and_no_attention_mask"
    original = getattr(transformers.PreTrainedModel, name, None)
    if original is None:
        yield
        return
    file, line = recorder.frames.code_definition(original.__code__)

    def check(self: Any, _: Any, attention_mask: Any) -> None:
        if self.config.pad_token_id is not None and attention_mask is None and recorder.recording:
            recorder.uncounted[f"{name} at {file}:{line}: looks for padding among the first and last ids, to warn"] = (
                None
            )

    setattr(transformers.PreTrainedModel, name, check)
    try:
        yield
    finally:
        setattr(transformers.PreTrainedModel, name, original)


def _first_line(error: BaseException) -> str:
    return next((line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()), "no message")[:300]


def _place(error: BaseException) -> str:
    """The innermost line of model code that the error passed through."""
    place, step = "", error.__traceback__
    while step is not None:
        name = step.tb_frame.f_code.co_filename
        if "/transformers/" in name:
            place = f"transformers/{name.rpartition('/transformers/')[2]}:{step.tb_lineno}"
        step = step.tb_next
    return place
