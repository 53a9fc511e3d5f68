"""One trace of a module that no transformers config describes: a layer of torch.nn, a module of somebody's repository.

It is built by its constructor, or by a factory that the server found in a trusted repository, from plain arguments: each integer is a symbol,
given ones and required ones alike; where the constructor takes one config object, that object's integers are. The
forward is called with the shapes that the request gives; without them with token ids or states (batch_size, seq_len,
width), channels first for a convolution.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from opscope_schemas.errors import ConfigError, TraceError

from opscope_tools.trace.protocol import TraceRequest
from opscope_tools.trace.variables import RUNTIME, is_depth
from opscope_tools.trace.worker import fields, patches
from opscope_tools.trace.worker.definitions import imported
from opscope_tools.trace.worker.inputs import Input
from opscope_tools.trace.worker.recorder import Recorder
from opscope_tools.trace.worker.session import DTYPE, InputsError, Session

#: names that forwards give to token ids
_IDS = ("ids", "tokens", "token", "idx", "input_ids", "indices", "index")


class ModuleSession(Session):
    """The trace of one module class; `chosen` counts through the shapes that its input may have."""

    def __init__(self, request: TraceRequest, module_class: Any, level: str = "all", *, chosen: int = 0) -> None:
        spec = request.model
        factory = imported(spec.factory) if spec.factory is not None else None
        self._blueprint = Blueprint(module_class, {**spec.content, **spec.overrides}, factory, named=spec.overrides)
        super().__init__(request, module_class, None, level, chosen=chosen)

    def _configure(self) -> None:
        self.config = SimpleNamespace(**self._blueprint.sizes)
        self.names = {name: name for name in self._blueprint.sizes}
        self.configured = {name: self.hints.get(name, value) for name, value in self._blueprint.sizes.items()}

    def _make_sizes_symbolic(self) -> None:
        for name, value in self.configured.items():
            symbolic = self.level == "all" and value >= 1 and not is_depth(name)
            self.config.__dict__[name] = self.symbols.create(name, value) if symbolic else value
            if symbolic:
                self.symbolic[name] = name

    def _build(self) -> Any:
        self.attention = self.request.attention
        before = torch.get_default_dtype()
        torch.set_default_dtype(DTYPE)  # a module of symbolic sizes cannot be cast after it is made
        try:
            return self._blueprint.build(vars(self.config)).eval()
        finally:
            torch.set_default_dtype(before)

    def _execute(self) -> Recorder:
        if self.request.phase != "prefill":
            raise TraceError(
                f"{self.model_class.__name__} is traced by itself and keeps no KV cache, so it has no {self.request.phase} phase.",
                next_step="Ask for prefill.",
            )
        recorder = Recorder(self.model, self.symbols, DTYPE, fold=self.fold)
        self.given = self._inputs()
        tensors = {i.name: torch.empty(i.shape, dtype=i.dtype) for i in self.given}
        with patches.Rewriter(recorder.report), recorder.phase(record=True):
            self.model(**tensors)
        self.phase = "forward"
        return recorder

    # ---- inputs

    def _inputs(self) -> list[Input]:
        names = _required(self.model.forward)
        if self.request.inputs:
            return [Input(n, tuple(map(self._dimension, shape)), _kind(n)) for n, shape in self.request.inputs.items()]
        if names and all(kind is torch.int64 for _, kind in self._kinds(names)):
            shapes: Iterator[tuple[Any, ...]] = iter([(self.size("batch_size"), self.size("seq_len"))])
        else:
            shapes = self._shapes()
        for index, shape in enumerate(shapes):
            if index == self.chosen:
                return [Input(n, shape[:2] if kind is torch.int64 else shape, kind) for n, kind in self._kinds(names)]
        raise InputsError(
            f"No input is known that {self.model_class.__name__} runs on.",
            next_step='Give the shapes of the forward\'s arguments with inputs, e.g. {"x": ["batch_size", "seq_len", 64]}.',
        )

    def _kinds(self, names: list[str]) -> list[tuple[str, torch.dtype]]:
        embeds = isinstance(self.model, torch.nn.Embedding)
        return [(name, torch.int64 if embeds else _kind(name)) for name in names]

    def _dimension(self, size: str | int) -> Any:
        if isinstance(size, int):
            return size
        if size in vars(self.config):
            return vars(self.config)[size]
        if size in RUNTIME or size.isidentifier():
            return self.size(size, 16)
        raise ConfigError(f"{size!r} is no size.", next_step="Name a variable, or give a number.")

    def _shapes(self) -> Iterator[tuple[Any, ...]]:
        """Shapes that the first input may have, the likeliest first."""
        batch = self.size("batch_size")  # others are asked for where they are used: each is a variable
        weight = getattr(self.model, "weight", None)
        if isinstance(self.model, torch.nn.Embedding):
            yield (batch, self.size("seq_len"))
        if isinstance(self.model, torch.nn.modules.conv._ConvNd) and weight is not None:
            yield (batch, self.config.in_channels, *[self.size("seq_len")] * (weight.dim() - 2))
            return
        first = next((m for m in self.model.modules() if isinstance(m, torch.nn.modules.conv._ConvNd)), None)
        if first is not None:
            sizes = (
                [self.size("image_height", 64), self.size("image_width", 64)]
                if first.weight.dim() == 4
                else [self.size("seq_len")]
            )
            yield (batch, first.in_channels, *sizes)
        widths = [v for v in vars(self.config).values() if isinstance(v, int | torch.SymInt)]
        for width in widths or [self.symbols.create("hidden_size", 24)]:
            yield (batch, self.size("seq_len"), width)
        for width in widths:
            yield (batch, width, self.size("image_height", 64), self.size("image_width", 64))
        yield (batch, 3, self.size("image_height", 64), self.size("image_width", 64))


def _required(function: Any) -> list[str]:
    """Parameters without a default; all of them a forward must be given."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.name != "self" and p.kind in kinds and p.default is p.empty]


def _kind(name: str) -> torch.dtype:
    """Token ids are integers, everything else is in the model's dtype."""
    return torch.int64 if name in _IDS or name.endswith(("_ids", "_idx", "_indices")) else DTYPE


class Blueprint:
    """How to build a module: a callable, the integers that are its sizes, and everything else it takes."""

    def __init__(
        self, module_class: Any, given: dict[str, Any], factory: Callable[..., Any] | None = None, *, named: Collection[str]
    ) -> None:  # fmt: skip
        self._class = module_class
        self._make: Callable[..., Any] = factory or module_class
        self._config_class: Any
        self._config_class, self._config_name = (None, "") if factory else _config_parameter(module_class)
        known = _fields(self._config_class) if self._config_class else _arguments(self._make)
        unknown = sorted(given.keys() - known.keys())
        if unknown and "**" not in known:
            told = [
                name for name in unknown if name in named
            ]  # of a file, which may be no configuration, nothing is told
            near = ", ".join(told and fields.nearest(told[0], known)) or ", ".join(known)
            what = repr(told[0][:100]) if told else "of a name that the config file holds"
            raise ConfigError(f"{module_class.__name__} takes no argument {what}.", next_step=f"Arguments: {near}.")
        self.sizes: dict[str, int] = {}
        self._others: dict[str, Any] = {}
        if factory is None and self._config_class is None:
            _check_texts(module_class, given)
        layer = module_class.__module__.startswith("torch.nn.")
        for name, default in known.items():
            value = given.get(name, default)
            if name == "**":
                continue
            if value is inspect.Parameter.empty:
                if not layer:
                    raise ConfigError(
                        f"{module_class.__name__} needs the argument {name!r} to be built.",
                        next_step=f'Give it with config, e.g. {{"{name}": 64}}.',
                    )
                value = 3 if name == "kernel_size" else 24 + 12 * len(self.sizes)
            self._sort(
                name,
                value,
                chosen=name in given or self._config_class is not None or default is inspect.Parameter.empty,
            )
        for name in given.keys() - known.keys():
            self._sort(name, given[name], chosen=True)

    def _sort(self, name: str, value: Any, *, chosen: bool) -> None:
        """A size is an integer above 1 that somebody chose; what has a default of its own stays as it is."""
        if chosen and type(value) is int and value > 1:
            self.sizes[name] = value
        elif chosen:
            self._others[name] = value

    def build(self, sizes: dict[str, Any]) -> Any:
        """The module, of sizes that may be symbols."""
        arguments = {**self._others, **sizes}
        if self._config_class is None:
            return self._make(**arguments)
        plain = {**self._others, **self.sizes}
        config = self._config_class(**plain)
        for name, value in sizes.items():
            object.__setattr__(config, name, value)
        return self._make(**{self._config_name: config})


def _check_texts(module_class: Any, given: dict[str, Any]) -> None:
    """A constructor of torch gets a text only where its signature speaks of texts: nothing else is to be a name there."""
    if not module_class.__module__.startswith("torch."):
        return
    parameters = inspect.signature(module_class).parameters
    for name, value in given.items():
        parameter = parameters.get(name)
        spoken = parameter is not None and (isinstance(parameter.default, str) or "str" in str(parameter.annotation))
        if _holds_text(value) and not spoken:
            raise ConfigError(
                f"{module_class.__name__} takes no text as {name!r}.", next_step="Give a number, true, false or null."
            )


def _holds_text(value: Any) -> bool:
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, str | dict) or any(map(_holds_text, held))


def _arguments(function: Any) -> dict[str, Any]:
    """Parameter -> default; `**` where any keyword is taken."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            found["**"] = None
        elif parameter.kind is not parameter.VAR_POSITIONAL and name != "self":
            found[name] = parameter.default
    return found


def _config_parameter(module_class: Any) -> tuple[Any, str]:
    """The class of the one config object that a constructor takes, and the parameter's name; (None, '') otherwise."""
    required = _required(module_class.__init__)
    if not required:
        return None, ""
    name = required[0]
    try:
        hint = typing.get_type_hints(module_class.__init__).get(name)
    except Exception:  # an annotation that cannot be resolved says nothing
        hint = None
    if dataclasses.is_dataclass(hint):
        return hint, name
    if hint is None and name in ("config", "cfg", "args", "params"):
        module = sys.modules[module_class.__module__]
        classes = [c for c in vars(module).values() if isinstance(c, type) and dataclasses.is_dataclass(c)]
        if len(classes) == 1:
            return classes[0], name
    return None, ""


def _fields(config_class: Any) -> dict[str, Any]:
    """Field -> default of a config class."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config_class):
        default = field.default
        if default is dataclasses.MISSING:
            made = field.default_factory
            default = inspect.Parameter.empty if made is dataclasses.MISSING else made()
        found[field.name] = default
    return found


__all__ = ["ModuleSession"]
