"""One trace, from request to record: build the model on symbolic sizes, run one pass, write down what ran.

The model is built on fake tensors (shapes without data) from a config whose sizes are symbols, in bfloat16, in
evaluation mode, without gradients: the path that inference takes. A decode pass follows an unrecorded one of
{cache_len} tokens that fills the cache; a training step is in training mode, and its gradients follow the forward.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import filterfalse
from types import FrameType
from typing import Any, Literal

import torch
import transformers
from opscope_schemas.errors import OpscopeError, TraceError
from opscope_schemas.formula import Formula
from opscope_schemas.notes import UNPADDED
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from opscope_tools.trace.operators import GROUPED
from opscope_tools.trace.protocol import TraceRequest
from opscope_tools.trace.variables import RUN_HINTS, is_depth
from opscope_tools.trace.worker import absent, configs, fields, patches
from opscope_tools.trace.worker.blame import place_of, unset
from opscope_tools.trace.worker.definitions import missing_package
from opscope_tools.trace.worker.environment import remembered_results
from opscope_tools.trace.worker.flow import held_by, keys_and_values
from opscope_tools.trace.worker.inputs import Input, Inputs
from opscope_tools.trace.worker.models import packages
from opscope_tools.trace.worker.recorder import Recorder, plain_result, tensors_in
from opscope_tools.trace.worker.routed import ASSUMED
from opscope_tools.trace.worker.sharing import shared
from opscope_tools.trace.worker.stored import StoredWeights
from opscope_tools.trace.worker.symbols import Symbols
from opscope_tools.trace.worker.ties import Tie, of_symbols, paths, ties
from opscope_tools.trace.worker.training import keeping

DTYPE = torch.bfloat16
#: what tensors hold: shapes alone; the inputs are known, all ones; weights and activations have values too
Data = Literal["", "known", "real"]
#: what is symbolic: every size, key/value heads fewer than heads; every size as configured; every size but those of
#: images and what they are cut into; the run's sizes; nothing
LEVELS = ("all", "alike", "uncut", "run", "none")
#: the levels at which the config's sizes are symbols
SYMBOLIC = LEVELS[:3]
#: how the names of those sizes end
CUTS = (
    "image_height", "image_width", "image_size", "patch_size", "merge_size", "window_size", "kernel_size", "stride",
    "num_frames", "grid_size", "downsample_ratio", "pool_size",
)  # fmt: skip
#: CPU seconds that a run on symbols may take before plain numbers are tried
_PATIENCE = 45.0
#: what a refusal by the system means here
_CAGED = (
    "A trace has no network, starts no program and reads only the repositories that it traces: what the module needs has to "
    "lie in its own (docs/security.md)."
)
_GIVEN = {
    "known": "inputs of ones were given (no padding); others may take another way, at another cost.",
    "real": "the model ran on weights as it initialises them, with inputs of ones; other data may take another way, at "
    "another cost.",
}  # fmt: skip
#: arguments that hand on what an earlier pass left, as forwards and their results call them
_CACHES = ("past_key_values", "cache_params", "state", "mems")
#: what is read beside tokens, and the arguments that carry it
_TOWERS = {
    "image": ("pixel_values",), "video": ("pixel_values_videos",), "audio": ("input_features", "input_values"),
}  # fmt: skip
#: what torch says where an operator needs numbers and gets a symbol
_CONCRETE = "expected to contain only concrete integers"
#: the argument that says of how many last positions logits are computed
_KEEPS_LOGITS = "logits_to_keep"


#: what torch raises where data decides
DECIDED_BY_DATA = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)


class UntraceableError(TraceError):
    """What no choice of symbols can mend."""


class DataError(TraceError):
    """The model takes a decision that depends on data, which these tensors do not have."""


class TooLongError(TraceError):
    """Symbols make the model too slow to run."""


class InputsError(TraceError):
    """No set of inputs that the model runs was found."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """transformers and torch warn about much that does not concern a trace."""
    previous = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.set_verbosity(previous)


class Session:
    """One trace of a model that is built from a config. After `run`, `model` and `recorder` hold what ran."""

    def __init__(
        self, request: TraceRequest, model_class: Any, config_class: Any, level: str = "all", *,
        fold: bool = True, share: bool = True, chosen: int = 0, dtype: torch.dtype = DTYPE, at: dict[str, int] | None = None,
        data: Data = "", beside_tokens: tuple[tuple[str, int], ...] | None = None,
    ) -> None:  # fmt: skip
        self.request = request
        #: the model as it is built: numbers that the hints ask for are in its configuration
        self.spec = request.model
        self.level = level
        self.data = data
        self.fold = fold and data != "real"  # what a sibling would return has to be worked out
        self.share = share and self.fold
        self.chosen = chosen
        #: sizes of what is beside tokens in the chosen set, where a cache is filled with tokens alone; None where with all of the set
        self.beside_tokens = beside_tokens
        self.dtype = dtype
        self.model_class = model_class
        self.config_class = config_class
        self.hints = {**request.hints, **(at or {})}
        self.symbols = Symbols()
        self.assumptions: dict[str, None] = {}
        #: run-time sizes that are numbers in this trace, and those that have a default
        self.settled: dict[str, int] = {}
        self.defaults: dict[str, int] = {}
        #: run-time size -> the config's size that it has unless it is given
        self.following: dict[str, str] = {}
        self._sizes: dict[str, Any] = {}
        self.stored: StoredWeights | None = None
        self.symbolic: dict[str, str] = {}
        self.phase: str = request.phase
        #: positions that logits are computed of; empty where the forward has no argument for it
        self.logits = ""
        #: sizes that were fitted (fitted.py), and what was found with them
        self.fitted: frozenset[str] = frozenset()
        self.fit_conditions: tuple[str, ...] = ()
        self.agreed: frozenset[str] = frozenset()
        self.shapes: dict[int, Any] = {}
        self.given_shapes: list[Any] = []
        self.given: list[Input] = []
        #: the arguments of the pass that fills a decode pass's cache
        self.filled_with: frozenset[str] = frozenset()
        #: sizes that follow from others by default, and those that the config class makes from others whatever it is given
        self.ties: dict[str, Tie] = {}
        self.computed: dict[str, Formula] = {}
        #: whether the config says that the model has an encoder and a decoder
        self.two_sided = False
        self._configure()

    def _configure(self) -> None:
        """The config, with what stays a number at the value that the hints ask for, seen by the config class."""
        self.config = configs.make_config(self.config_class, self.spec)
        self.names = fields.sizes(self.config)
        held = [n for n in self.names if self.level not in SYMBOLIC or self._number(n)]
        chosen = {n: self.hints[n] for n in held if n in self.hints}
        # those that have their value by default may follow from those that have not
        if any(value != fields.at(self.config, self.names[n]) for n, value in chosen.items()):
            overrides = {**self.spec.overrides, **{self.names[n]: v for n, v in chosen.items()}}
            self.spec = self.spec.model_copy(update={"overrides": overrides})
            self.config = configs.make_config(self.config_class, self.spec)
        asked = self.request.model
        beside = configs.alone(self.model_class, self.config_class, asked.model_type)
        said = (asked.origin, beside, configs.ignored(self.config, asked))
        self.assumptions.update(dict.fromkeys(filter(None, said)))
        if self.level in SYMBOLIC:
            self.ties = ties(self.config_class, self.spec)
            self.names = paths(self.config, self.ties)
        self.configured = {name: fields.at(self.config, path) for name, path in self.names.items()}
        if self.level in SYMBOLIC:
            self.computed = {n: t.formula for n, t in self.ties.items() if t.always and not self._number(n)}
        self.two_sided = bool(getattr(self.config, "is_encoder_decoder", False))  # a side's constructor resets it

    def _number(self, name: str) -> bool:
        """Whether the size stays a number at this level."""
        return is_depth(name) or (self.level == "uncut" and name.endswith(CUTS))

    def run(self) -> None:
        """Build and run; raises `TraceError` with the line of model code that could not."""
        self._make_sizes_symbolic()
        parts = packages(self.model_class, self.config)
        try:
            if self.data == "real":
                torch.manual_seed(0)
                with torch.no_grad():
                    self.model = self._build()
                    self.stored = StoredWeights(self.model, self.config)
                    self.recorder = self._execute()
                return
            fake = FakeTensorMode(shape_env=self.symbols.env, allow_non_fake_inputs=True)
            # with symbols nothing repeats often enough to pay for the cache keys
            fake.cache_enabled = self.level == "none"
            # modules may also be made while the model runs
            with (
                fake,
                torch.no_grad(),
                remembered_results(),
                patches.symbolic_numbers(parts),
                patches.no_initialisation(),
                patches.conversions(),
                patches.strides_of_views(),
                absent.counted(own=parts[0] if self.request.fused else ""),
            ):
                layers = shared(self.model_class, self.config, wanted=self.share)
                self.symbols.env.where = _under_construction
                with patches.Rewriter(_unheard), patches.settings_with_values(), layers:
                    self.model = self._build()
                self.stored = StoredWeights(self.model, self.config)
                self.recorder = self._execute()
        except OpscopeError:
            raise
        except DECIDED_BY_DATA as error:
            raise DataError(
                f"{self.model_class.__name__} takes a decision that depends on data, which no cost formula can "
                f"follow: {_first_line(error)}.",
                location=place_of(error),
            ) from error
        except Exception as error:
            if self.level == "none" and _CONCRETE in str(error):  # there is no other symbol than a size of data
                raise DataError(
                    f"{self.model_class.__name__} makes a size of data, which no cost formula can follow.",
                    location=place_of(error),
                ) from error
            if package := missing_package(error):
                raise UntraceableError(
                    f"{self.model_class.__name__} needs the package {package}, which is not installed.",
                    next_step=f"Install {package} beside opscope.",
                    location=place_of(error),
                ) from error
            raise TraceError(
                f"{self.model_class.__name__} could not be run on symbolic sizes: {type(error).__name__}: {_first_line(error)}.",
                next_step=_CAGED if isinstance(error, PermissionError) else unset(error, self.config),
                location=place_of(error),
            ) from error

    # ---- building

    def _make_sizes_symbolic(self) -> None:
        """Put a symbol in the place of every size of the config, but for depths, which Python loops over."""
        if self.level not in SYMBOLIC:
            return
        hints = dict(self.configured)
        kinds = self.names if self.level == "all" else ()
        for prefix in {n.removesuffix("num_kv_heads") for n in kinds if n.endswith("num_kv_heads")}:
            heads, shared = hints.get(f"{prefix}num_heads"), hints.get(f"{prefix}num_kv_heads")
            if heads and heads == shared and f"{prefix}num_kv_heads" not in self.hints:
                # equal defaults must not merge the two: branch as grouped-query attention does
                fewer = (heads // k for k in (2, 3, 5, 7) if heads % k == 0 and heads > k)
                hints[f"{prefix}num_kv_heads"] = next(fewer, heads)
        hints.update({k: v for k, v in self.hints.items() if k in self.names})
        made: dict[str, Any] = {}
        for name, path in self.names.items():
            value = hints[name]
            if self._number(name) or name in self.computed or type(value) is not int or value < 1:
                made[name] = value
                continue
            made[name] = self.symbols.create(name, value)
            fields.put(self.config, path, made[name])
            self.symbolic[name] = path
        for name, formula in self.computed.items():
            fields.put(self.config, self.names[name], of_symbols(formula, made))
        self._ask_the_class()
        if "head_dim" not in self.symbolic and {"hidden_size", "num_heads"} <= self.symbolic.keys():
            self.symbols.alias("hidden_size", "num_heads", "head_dim")

    def _ask_the_class(self) -> None:
        """What the config class asserts of its fields, asked of the symbols: its answers are conditions like any other.

        What only warns decides nothing, and is not asked.
        """
        for part in fields.all_parts(self.config):
            for check in filterfalse(_only_warns, getattr(type(part), "__class_validators__", ())):
                before = len(self.symbols.env.decisions)
                try:
                    check(part)
                except Exception:  # a check of something else than sizes, or one that symbols do not go through
                    self.symbols.env.forget(before)

    def _build(self) -> Any:
        wanted, part = self.request.attention, False
        if issubclass(self.model_class, transformers.PreTrainedModel):
            if wanted == "sdpa" and not getattr(self.model_class, "_supports_sdpa", False):
                wanted = "eager"
            self.attention = wanted
            self.config._attn_implementation = wanted
            try:
                model = self.model_class._from_config(self.config, attn_implementation=wanted, dtype=self.dtype)
            except ValueError as error:  # a part of the model that supports less than the whole says
                if "attention implementation" not in str(error) or wanted == "eager":
                    raise
                self.assumptions[
                    f"A part of {self.model_class.__name__} supports no sdpa attention: traced with eager"
                ] = None
                self.attention, part = "eager", True
                model = self.model_class._from_config(self.config, attn_implementation="eager", dtype=self.dtype)
        else:
            self.attention = wanted
            model = self.model_class(self.config).to(self.dtype)
        attends = any(re.search("attn|attention", name, re.IGNORECASE) for name, _ in model.named_modules())
        if attends and self.attention != self.request.attention and not part:
            self.assumptions[f"{self.model_class.__name__} supports no sdpa attention: traced with eager"] = None
        return model.train(self.training)

    # ---- running

    @property
    def training(self) -> bool:
        """Whether a training step is asked for."""
        return self.request.phase == "train"

    def size(self, name: str, default: int = 0) -> Any:
        """The run-time size `name`; `default` is what the config says of it."""
        if name in self._sizes:
            return self._sizes[name]
        configured = name not in RUN_HINTS
        hint = self.hints.get(name, default if configured else RUN_HINTS[name])
        if configured and isinstance(default, torch.SymInt):
            self.following[name] = str(self.symbols.formula(default))
            default = int(default.node.hint)
            hint = self.hints.get(name, default)
        if configured:
            self.defaults[name] = default
        if self.level == "none" or (configured and self._number(name)):
            self.settled[name] = self._sizes[name] = hint
        else:
            self._sizes[name] = self.symbols.create(name, hint, chosen=True)
        return self._sizes[name]

    def _execute(self) -> Recorder:
        model = self.model
        recorder = Recorder(
            model,
            self.symbols,
            self.dtype,
            fold=self.fold,
            stored=self.stored,
            training=self.training,
            plain=self.level == "none" and not self.data,
            valued=self.data == "real",
        )
        self.symbols.env.where = recorder.running
        limit: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self.level != "none" or self.data == "real":
            kind = "with values" if self.data else "on symbolic sizes"
            limit = configs.deadline(_PATIENCE, f"{self.model_class.__name__} takes too long {kind}.", TooLongError)
        rewriter = patches.Rewriter(recorder.report, real=self.data == "real")
        with limit, absent.counted(recorder.report), rewriter, _cache_reports(recorder), patches.as_in_inference():
            if self.request.phase == "decode":
                self._decode(recorder)
            elif self.request.phase == "encode":
                self._encode(recorder)
            elif self.training:
                self._train(recorder)
            else:
                self._forward(recorder)
        self.assumptions.update(rewriter.assumed)
        if "attention_mask" in self._parameters() and all(given.name != "attention_mask" for given in self.given):
            self.assumptions[UNPADDED] = None
        if self.stored is not None and self.stored.said:
            self.assumptions[self.stored.said] = None
        self._say_what_data_decided(recorder)
        if self.request.phase == "decode" and any(op.operator in GROUPED for op in recorder.ops) and _puts_batched():
            self.assumptions[_BATCHED] = None
        if left := Inputs.unused(
            model.forward, {i.name for i in self.given}, decoding=self.request.phase not in ("prefill", "train")
        ):
            self.assumptions[f"Called without {', '.join(left)}: what that would cost is not in the totals."] = None
        if self.two_sided and "decoder_input_ids" not in self._parameters():
            self.assumptions[
                f"{self.model_class.__name__} is one side of an encoder-decoder: name the class that has both for both."
            ] = None
        return recorder

    def _say_what_data_decided(self, recorder: Recorder) -> None:
        if recorder.routing.met:
            self.assumptions[ASSUMED] = None
        if self.data and recorder.decided:
            self.assumptions[f"Data decides at {', '.join(recorder.decided)}: {_GIVEN[self.data]}"] = None

    def _arguments(self, **lengths: str) -> dict[str, Any]:
        """The chosen set of inputs as tensors; `lengths` puts one run-time size in another's place."""

        def sized(name: str, default: int) -> Any:
            return self.size(lengths.get(name, name), default)

        inputs = Inputs(self.model.forward, self.model.config, sized, self.dtype)
        alone = self.beside_tokens is not None
        for index, found in enumerate([inputs.tokens_alone()] if alone else inputs.sets()):
            if alone or index == self.chosen:
                self.given = found
                return {i.name: i.tensor(ones if self.data else _empty) for i in found}
        raise InputsError(
            f"No inputs are known that {self.model_class.__name__} runs on.",
            next_step="Name a class whose forward takes token ids, images, audio or states.",
        )

    def _parameters(self) -> Any:
        return inspect.signature(self.model.forward).parameters

    def _forward(self, recorder: Recorder) -> None:
        arguments = self._arguments()
        parameters = self._parameters()
        caches = "use_cache" in parameters and any(name in parameters for name in _CACHES)
        recorder.flow.enter(arguments)
        with recorder.phase(record=True):
            result = self.model(**arguments, **({"use_cache": True} if caches else {}), **self._last_logits())
            recorder.returned(result, _held_cache(result))
        self.phase = "prefill" if _cache_of(result) else "forward"

    def _train(self, recorder: Recorder) -> None:
        """The forward with its graph, then the gradients of its loss."""
        if self.stored is not None and self.stored.by_memory:
            raise UntraceableError(
                f"{self.model_class.__name__} is quantised, and no weights of that form are trained.",
                next_step="Leave the configuration's quantization_config out.",
            )
        arguments = self._arguments()
        parameters = self._parameters()
        stream = next((arguments[n] for n in ("decoder_input_ids", "input_ids") if n in arguments), None)
        if "labels" in parameters and stream is not None and self.model.get_output_embeddings() is not None:
            arguments["labels"] = (ones if self.data else _empty)(tuple(stream.shape), torch.int64)
            self.given = [*self.given, Input("labels", tuple(stream.shape), torch.int64)]
        caches = {"use_cache": False} if "use_cache" in parameters else {}
        recorder.flow.enter(arguments)
        result = trained(recorder, lambda: self.model(**arguments, **caches), self.assumptions)
        self.logits = "all" if _KEEPS_LOGITS in parameters else ""
        recorder.returned(result, None)

    def _encode(self, recorder: Recorder) -> None:
        arguments = self._arguments()
        if any(name.startswith("decoder_") for name in arguments):
            encoder = self.model.get_encoder()
            forward = encoder.forward
        else:
            encoder, forward = self.model, self._tower(arguments)
            recorder.frames.runs_instead(type(encoder), forward)
        accepted = inspect.signature(forward).parameters
        given = {k: v for k, v in arguments.items() if not k.startswith("decoder_") and k in accepted}
        recorder.flow.enter(given)
        with recorder.phase(record=True), _forward_of(encoder, forward):
            recorder.returned(encoder(**given), None)
        self.symbols.hints.pop("seq_len", None)  # the decoder's, which does not run
        self.settled.pop("seq_len", None)
        self.given = [i for i in self.given if i.name in given]

    def _tower(self, arguments: dict[str, Any]) -> Any:
        """The method by which a decoder with images or audio among its tokens reads these."""
        methods = {word: getattr(self.model, f"get_{word}_features", None) for word in _TOWERS}
        if not any(methods.values()):
            raise UntraceableError(
                f"{self.model_class.__name__} has no encoder beside a decoder, and no tower.",
                next_step="Ask for prefill.",
            )
        for word, method in methods.items():
            if method is not None and any(name in arguments for name in _TOWERS[word]):
                return method
        raise TraceError(f"{self.model_class.__name__} reads none of {', '.join(arguments)} in a tower.")

    def _no_decoder(self) -> str:
        alone = getattr(getattr(self.model, "config", None), "is_decoder", None) is False
        return " Its configuration has is_decoder = False: with True it may." if alone else ""

    def _decode(self, recorder: Recorder) -> None:
        """Fill the cache with {cache_len} tokens, then record {seq_len} more."""
        filling = self._arguments(seq_len="cache_len")
        self.filled_with = frozenset(filling)
        parameters = self._parameters()
        caches = {"use_cache": True} if "use_cache" in parameters else {}
        with recorder.phase(record=False), _kind_of_encoded(self.model) as encoded:
            filled = self.model(**filling, **caches)
        cache = _cache_of(filled)
        if not cache or cache[0] not in parameters:
            raise UntraceableError(
                f"{self.model_class.__name__} returns no cache of keys and values here, so it has no decode phase.{self._no_decoder()}",
                next_step="Ask for phase prefill, its whole forward.",
            )
        stream = "decoder_input_ids" if "decoder_input_ids" in filling else "input_ids"
        if stream not in filling:
            raise UntraceableError(f"{self.model_class.__name__} decodes no token ids.", next_step="Ask for prefill.")
        new = (ones if self.data else _empty)((self.size("batch_size"), self.size("seq_len")), torch.int64)
        arguments: dict[str, Any] = {stream: new, cache[0]: cache[1], **caches}
        self.given = [Input(stream, tuple(new.shape), torch.int64)]
        if stream == "decoder_input_ids" and "encoder_outputs" in parameters:
            arguments["encoder_outputs"] = _encoded(filled, *encoded)
        recorder.keep(cache[1])
        recorder.flow.enter(arguments)
        with recorder.phase(record=True):
            result = self.model(**arguments, **self._last_logits())
            recorder.returned(result, _held_cache(result))

    def _last_logits(self) -> dict[str, int]:
        """The argument that asks for the logits of the last position alone, where that was asked for and the forward has it."""
        name = _KEEPS_LOGITS if _KEEPS_LOGITS in self._parameters() else ""
        self.logits = self.request.logits if name else ""
        if self.request.logits == "all":
            return {}
        if not name:
            head = None
            with contextlib.suppress(AttributeError, NotImplementedError):
                head = self.model.get_output_embeddings()
            if head is not None:
                self.assumptions[
                    f"The forward of {type(self.model).__name__} has no {_KEEPS_LOGITS}: it computes every position's logits."
                ] = None
            return {}
        return {name: 1}


def trained(recorder: Recorder, run: Callable[[], Any], assumptions: dict[str, None]) -> Any:
    """What the forward gives; recorded is it and the way back from its loss, or else from the sum of what it gives."""
    with torch.enable_grad(), keeping(recorder.save), recorder.phase(record=True):
        result = run()
    loss = getattr(result, "loss", None)
    ends = [loss] if loss is not None else [t for _, t in tensors_in(plain_result(result))]
    ends = [end for end in {id(t): t for t in ends}.values() if end.requires_grad]
    if not ends:
        raise UntraceableError("Nothing that the forward gives depends on its weights.", next_step="Ask for prefill.")
    assumptions[
        "The loss is the model's own, of labels for every token."
        if loss is not None
        else "The loss is the sum of what the forward gives; adding it up is in no figure."
    ] = None
    with recorder.paused():
        gradients = [torch.ones_like(end) for end in ends]
    with recorder.backward():
        torch.autograd.backward(ends, gradients)
    return result


@contextlib.contextmanager
def _forward_of(module: Any, forward: Any) -> Iterator[None]:
    """Calls of the module run this function; its own forward comes back."""
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        del vars(module)["forward"]


def _under_construction() -> type | None:
    """The class of the innermost module whose constructor runs."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "__init__" and isinstance(built := frame.f_locals.get("self"), torch.nn.Module):
            return type(built)
        frame = frame.f_back
    return None


def _unheard(*_: Any) -> None:
    """What a constructor computes is no part of a forward."""


def _empty(shape: tuple[Any, ...], dtype: torch.dtype) -> Any:
    return torch.empty(shape, dtype=dtype)


def ones(shape: tuple[Any, ...], dtype: torch.dtype) -> Any:
    """Ones, whose values stay known where tensors have none."""
    if math.prod(shape) > patches.KNOWN_VALUES:
        return torch.ones(shape, dtype=dtype)
    with unset_fake_temporarily():
        values = torch.ones(shape).tolist()
    return torch.tensor(values, dtype=dtype)


def _only_warns(check: Any) -> bool:
    """Whether a check writes a warning and raises nothing by itself."""
    code = getattr(check, "__code__", None)  # a callable of another kind has none, and is asked
    if code is None or not any("warning" in name for name in code.co_names):
        return False
    return not any(step.opname == "RAISE_VARARGS" for step in dis.get_instructions(code))


def _cache_of(result: Any) -> tuple[str, Any] | None:
    """Name and value of the cache that a pass left."""
    for name in _CACHES:
        value = getattr(result, name, None)
        if value is not None:
            return name, value
    return None


def _held_cache(result: Any) -> Any:
    found = _cache_of(result)
    return None if found is None else found[1]


@contextlib.contextmanager
def _kind_of_encoded(model: Any) -> Iterator[list[type]]:
    """The class of what the model's encoder gives meanwhile, if it runs."""
    found: list[type] = []
    encoder = None
    with contextlib.suppress(
        AttributeError, NotImplementedError, TypeError
    ):  # models without one have no such method, or one that asks for more
        encoder = model.get_encoder()
    if not isinstance(encoder, torch.nn.Module):
        yield found
        return

    def note(_module: Any, _given: Any, result: Any) -> None:
        if hasattr(type(result), "__dataclass_fields__") and "last_hidden_state" in type(result).__dataclass_fields__:
            found[:] = [type(result)]

    handle = encoder.register_forward_hook(note)
    try:
        yield found
    finally:
        handle.remove()


def _encoded(filled: Any, kind: type | None = None) -> Any:
    """The encoder's result among a pass's results, as the forward takes it: of the class that the encoder gives."""
    from transformers.modeling_outputs import BaseModelOutput

    states = getattr(filled, "encoder_last_hidden_state", None)
    if states is None:
        return getattr(filled, "encoder_outputs", None)
    return (kind or BaseModelOutput)(last_hidden_state=states)


_BATCHED = (
    "Experts run as grouped products, as the forward by itself runs them. `generate` decodes otherwise on a GPU, with batched_mm, "
    'which copies the weights of every token\'s experts first: config {"experts_implementation": "batched_mm"} traces that.'
)


def _puts_batched() -> bool:
    """Whether this transformers changes how experts run when it generates."""
    from transformers.generation.utils import GenerationMixin

    return hasattr(GenerationMixin, "_optimize_model_for_decode")


#: a cache's functions that take a state of another kind than keys and values -> where its layer holds those
_OF_STATES = {"update_conv_state": "conv_states", "update_recurrent_state": "recurrent_states"}


@contextlib.contextmanager
def _cache_reports(recorder: Recorder) -> Iterator[None]:
    """Hear of every update of a cache: what the layer held of keys and values before and what is new, and each state."""
    from transformers.cache_utils import Cache

    originals = {n: getattr(Cache, n) for n in ("update", *_OF_STATES) if hasattr(Cache, n)}
    original = originals["update"]

    def update(self: Any, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        layer = self.layers[layer_idx] if layer_idx < len(self.layers) else None
        # by no name here: the update puts others in the place of what the layer holds
        recorder.cache_update([t for t in keys_and_values(layer) if t.dim() > 1], [key_states, value_states])
        recorder.caching = True
        try:
            return original(self, key_states, value_states, layer_idx, *args, **kwargs)
        finally:
            recorder.caching = False
            recorder.keep(self.layers[layer_idx])

    def keeping(name: str) -> Any:
        def update_state(self: Any, states: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
            result = originals[name](self, states, layer_idx, *args, **kwargs)
            for state in held_by(getattr(self.layers[layer_idx], _OF_STATES[name], None)):
                recorder.state_update(state)
            return result

        return update_state

    Cache.update = update
    for name in originals.keys() & _OF_STATES:
        setattr(Cache, name, keeping(name))
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(Cache, name, function)


def _first_line(error: BaseException) -> str:
    return next((line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()), "no message")[:300]
