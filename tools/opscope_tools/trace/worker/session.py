"""One trace, from request to record: build the model on symbolic sizes, run one pass, write down what ran.

The model is built on fake tensors (shapes without data) from a config whose sizes are symbols, in bfloat16, in
evaluation mode, without gradients: the path that inference takes. A decode pass follows an unrecorded one of
{cache_len} tokens that fills the cache.
"""

from __future__ import annotations

import contextlib
import inspect
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from opscope_schemas.errors import OpscopeError, TraceError
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from opscope_tools.trace.protocol import TraceRequest
from opscope_tools.trace.variables import RUN_HINTS, is_depth
from opscope_tools.trace.worker import configs, fields, patches
from opscope_tools.trace.worker.inputs import Input, Inputs
from opscope_tools.trace.worker.recorder import Recorder, SlowError
from opscope_tools.trace.worker.sharing import shared
from opscope_tools.trace.worker.symbols import Symbols

DTYPE = torch.bfloat16
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
_PATIENCE = 60.0
#: what a refusal by the system means here
_CAGED = (
    "A trace has no network, starts no program and reads only the repositories that it traces: what the module needs has to "
    "lie in its own (docs/security.md)."
)
#: arguments that hand on what an earlier pass left, as forwards and their results call them
_CACHES = ("past_key_values", "cache_params", "state", "mems")


class UntraceableError(TraceError):
    """What no choice of symbols can mend."""


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
    ) -> None:  # fmt: skip
        self.request = request
        self.level = level
        self.fold = fold
        self.share = share and fold
        self.chosen = chosen
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
        self.symbolic: dict[str, str] = {}
        self.phase: str = request.phase
        #: sizes that were fitted (fitted.py), and what was found with them
        self.fitted: frozenset[str] = frozenset()
        self.fit_conditions: tuple[str, ...] = ()
        self.agreed: frozenset[str] = frozenset()
        self.shapes: dict[int, Any] = {}
        self.given_shapes: list[Any] = []
        self.given: list[Input] = []
        #: whether the config says that the model has an encoder and a decoder
        self.two_sided = False
        self._configure()

    def _configure(self) -> None:
        """The config, with what stays a number at the value that the hints ask for, seen by the config class."""
        self.config = configs.make_config(self.config_class, self.request.model)
        self.names = fields.sizes(self.config)
        held = [n for n in self.names if self.level not in SYMBOLIC or self._number(n)]
        chosen = {
            n: self.hints[n] for n in held if n in self.hints and self.hints[n] != fields.at(self.config, self.names[n])
        }
        if chosen:
            spec = self.request.model
            overrides = {**spec.overrides, **{self.names[n]: v for n, v in chosen.items()}}
            self.config = configs.make_config(self.config_class, spec.model_copy(update={"overrides": overrides}))
        self.configured = {name: fields.at(self.config, path) for name, path in self.names.items()}
        self.two_sided = bool(getattr(self.config, "is_encoder_decoder", False))  # a side's constructor resets it

    def _number(self, name: str) -> bool:
        """Whether the size stays a number at this level."""
        return is_depth(name) or (self.level == "uncut" and name.endswith(CUTS))

    def run(self) -> None:
        """Build and run; raises `TraceError` with the line of model code that could not."""
        self._make_sizes_symbolic()
        package = self.model_class.__module__.rsplit(".", 1)[0]
        fake = FakeTensorMode(shape_env=self.symbols.env, allow_non_fake_inputs=True)
        # with symbols nothing repeats often enough to pay for the cache keys
        fake.cache_enabled = self.level == "none"
        try:
            # modules may also be made while the model runs
            with fake, torch.no_grad(), patches.symbolic_numbers((package,)), patches.no_initialisation():
                layers = shared(self.model_class, self.config, wanted=self.share)
                with patches.Rewriter(_unheard), patches.settings_with_values(), layers:
                    self.model = self._build()
                self.recorder = self._execute()
        except SlowError as error:
            raise TooLongError(
                f"{self.model_class.__name__} takes more than {_PATIENCE:.0f} s on symbolic sizes."
            ) from error
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
                next_step=_CAGED if isinstance(error, PermissionError) else "",
                location=_place(error),
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
        for name, path in self.names.items():
            value = hints[name]
            if not self._number(name) and isinstance(value, int) and not isinstance(value, bool) and value >= 1:
                fields.put(self.config, path, self.symbols.create(name, value))
                self.symbolic[name] = path
        if "head_dim" not in self.symbolic and {"hidden_size", "num_heads"} <= self.symbolic.keys():
            self.symbols.alias("hidden_size", "num_heads", "head_dim")

    def _build(self) -> Any:
        wanted = self.request.attention
        if issubclass(self.model_class, transformers.PreTrainedModel):
            if wanted == "sdpa" and not getattr(self.model_class, "_supports_sdpa", False):
                wanted = "eager"
                self.assumptions[f"{self.model_class.__name__} supports no sdpa attention: traced with eager"] = None
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
                self.attention = "eager"
                model = self.model_class._from_config(self.config, attn_implementation="eager", dtype=self.dtype)
        else:
            self.attention = wanted
            model = self.model_class(self.config).to(self.dtype)
        return model.eval()

    # ---- running

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
        recorder = Recorder(model, self.symbols, self.dtype, fold=self.fold)
        if self.level != "none":
            recorder.ends = time.process_time() + _PATIENCE
        rewriter = patches.Rewriter(recorder.report)
        with rewriter, _cache_reports(recorder), _skipped_checks(recorder), patches.masks_as_in_inference():
            if self.request.phase == "decode":
                self._decode(recorder)
            elif self.request.phase == "encode":
                self._encode(recorder)
            else:
                self._forward(recorder)
        self.assumptions.update(rewriter.assumed)
        if left := Inputs.unused(model.forward, {i.name for i in self.given}, decoding=self.request.phase != "prefill"):
            self.assumptions[f"Called without {', '.join(left)}: what that would cost is not in the totals."] = None
        if self.two_sided and "decoder_input_ids" not in self._parameters():
            self.assumptions[
                f"{self.model_class.__name__} is one side of an encoder-decoder: name the class that has both for both."
            ] = None
        return recorder

    def _arguments(self, **lengths: str) -> dict[str, Any]:
        """The chosen set of inputs as tensors; `lengths` puts one run-time size in another's place."""

        def sized(name: str, default: int) -> Any:
            return self.size(lengths.get(name, name), default)

        sets = Inputs(self.model.forward, self.model.config, sized, self.dtype).sets()
        for index, found in enumerate(sets):
            if index == self.chosen:
                self.given = found
                return {i.name: i.tensor(_empty) for i in found}
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
            result = self.model(**arguments, **({"use_cache": True} if caches else {}))
            recorder.returned(result, _held_cache(result))
        self.phase = "prefill" if _cache_of(result) else "forward"

    def _encode(self, recorder: Recorder) -> None:
        arguments = self._arguments()
        if not any(name.startswith("decoder_") for name in arguments):
            raise UntraceableError(
                f"{self.model_class.__name__} has no encoder beside a decoder.", next_step="Ask for prefill."
            )
        encoder = self.model.get_encoder()
        accepted = inspect.signature(encoder.forward).parameters
        given = {k: v for k, v in arguments.items() if not k.startswith("decoder_") and k in accepted}
        recorder.flow.enter(given)
        with recorder.phase(record=True):
            recorder.returned(encoder(**given), None)
        self.symbols.hints.pop("seq_len", None)  # the decoder's, which does not run
        self.settled.pop("seq_len", None)
        self.given = [i for i in self.given if i.name in given]

    def _decode(self, recorder: Recorder) -> None:
        """Fill the cache with {cache_len} tokens, then record {seq_len} more."""
        filling = self._arguments(seq_len="cache_len")
        parameters = self._parameters()
        caches = {"use_cache": True} if "use_cache" in parameters else {}
        with recorder.phase(record=False):
            filled = self.model(**filling, **caches)
        cache = _cache_of(filled)
        if not cache or cache[0] not in parameters:
            raise UntraceableError(
                f"{self.model_class.__name__} keeps no KV cache, so it has no decode phase.",
                next_step="Ask for prefill.",
            )
        stream = "decoder_input_ids" if "decoder_input_ids" in filling else "input_ids"
        if stream not in filling:
            raise UntraceableError(f"{self.model_class.__name__} decodes no token ids.", next_step="Ask for prefill.")
        new = torch.empty((self.size("batch_size"), self.size("seq_len")), dtype=torch.int64)
        arguments: dict[str, Any] = {stream: new, cache[0]: cache[1], **caches}
        self.given = [Input(stream, tuple(new.shape), torch.int64)]
        if stream == "decoder_input_ids" and "encoder_outputs" in parameters:
            arguments["encoder_outputs"] = _encoded(filled)
        recorder.flow.enter(arguments)
        with recorder.phase(record=True):
            result = self.model(**arguments)
            recorder.returned(result, _held_cache(result))


def _unheard(*_: Any) -> None:
    """What a constructor computes is no part of a forward."""


def _empty(shape: tuple[Any, ...], dtype: torch.dtype) -> Any:
    return torch.empty(shape, dtype=dtype)


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


def _encoded(filled: Any) -> Any:
    """The encoder's result among a pass's results, as the forward takes it."""
    from transformers.modeling_outputs import BaseModelOutput

    states = getattr(filled, "encoder_last_hidden_state", None)
    if states is None:
        return getattr(filled, "encoder_outputs", None)
    return BaseModelOutput(last_hidden_state=states)


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
        elif "/opscope_tools/" not in name and "/site-packages/" not in name and "/python3" not in name:
            place = f"{Path(name).name}:{step.tb_lineno}"  # of somebody's repository
        step = step.tb_next
    return place
