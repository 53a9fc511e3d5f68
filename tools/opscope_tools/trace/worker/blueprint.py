"""How to build a module from nothing but its class: a callable, the integers that are its sizes, everything else it takes.

What the request gives comes first; then the module's own words: a function of its file that makes one without being told
anything (its arguments are read off, it need not finish), a configuration object that its package holds, defaults. What is
still missing and is a size by its name or annotation is chosen here, and the document says so. `variants` yields the ways in
the order to try them: sizes that differ from each other first, so that no two of them can stand for one; then equal ones, and
depths whose default is None.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from opscope_schemas.errors import ConfigError

from opscope_tools.trace.variables import is_depth
from opscope_tools.trace.worker import fields

_EMPTY = inspect.Parameter.empty
#: what a required argument gets by its name where its annotation does not speak against it; None: a width
_CHOSEN: tuple[tuple[str, Any], ...] = (
    (r"kernel", 3), (r"stride|dilation|padding", 1), (r"patch_size", 16), (r"(image|img|input)_?(size|resolution)", 224),
    (r"drop|prob|rate$|^eps", 0.0), (r"(^|_)idx$|_index$", 0), (r"top_?k|per_tok", 2), (r"experts", 4),
    (r"head_?dim|dim_?head", 16), (r"heads?$", 4), (r"groups?$", 4), (r"depth|layers?$|_blocks$", 2),
    (r"tokens?$|vocab|num_embeddings|num_class", 1000),
    (r"max_.*len|seq_?len|positions|num_patches|block_size|context_(len|size)", 128),
    (r"dim|size|shape|features|channels?|width|hidden|planes|chans|inner|embed|rank|state|^d_|^in_|^out_|^n_", None),
)  # fmt: skip
_WIDTH = 64
_DEPTHS = ("depth", "n_layer", "n_layers", "num_layers", "num_hidden_layers")
#: numbers of which every further size is a fraction: symbols for them cost much and say little
_WINDOWS = ("kernel", "stride", "dilation", "padding", "stem", "window", "theta", "period", "timesteps")


class _CapturedError(Exception):
    """The constructor was reached."""


class Blueprint:
    """One way to build a module: `sizes` are its integers, `chosen` what nobody gave, `source` where arguments were read."""

    def __init__(
        self, module_class: Any, given: dict[str, Any], factory: Callable[..., Any] | None = None, *,
        named: Collection[str], captured: tuple[str, dict[str, Any]] = ("", {}), alike: bool = False,
    ) -> None:  # fmt: skip
        self._class = module_class
        self._make: Callable[..., Any] = factory or module_class
        self._config_class: Any
        self._config_class, self._config_name = (None, "") if factory else _config_parameter(module_class)
        self.source, taken = captured
        self._held = taken.pop(self._config_name, None) if self._config_class else None
        known = _fields(self._config_class, self._held) if self._config_class else _arguments(self._make)
        _check_names(module_class, given, known, named)
        if factory is None and self._config_class is None:
            _check_texts(module_class, given)
        self.sizes: dict[str, int] = {}
        #: sizes that the request or the module's own words give, not a default
        self.given: set[str] = set()
        self.chosen: dict[str, Any] = {}
        self._others: dict[str, Any] = {}
        hints = _hints(self._config_class or getattr(module_class, "__init__", None)) if factory is None else {}
        for name, default in known.items():
            if name == "**":
                continue
            value = given.get(name, taken.get(name, default))
            if value is None and alike and name in _DEPTHS and name not in given:
                value = self.chosen[name] = 2  # what could not be built without may be built with it
            if value is _EMPTY:
                value = self.chosen[name] = self._invented(name, hints.get(name), alike=alike)
            self._sort(name, value, default is not _EMPTY and name not in given and name not in taken)
        for name in given.keys() - known.keys():
            self._sort(name, given[name], plain=False)

    def _sort(self, name: str, value: Any, plain: bool) -> None:
        """A size is an integer above 1; what has a default of its own is passed only where it is one."""
        if type(value) is int and value > 1:
            self.sizes[name] = value
            if not plain:
                self.given.add(name)
        elif not plain or self._config_class is not None:
            self._others[name] = value

    def _invented(self, name: str, hint: Any, *, alike: bool) -> Any:
        own = _made(hint, self._class, alike=alike) if not self._class.__module__.startswith("torch.") else None
        if own is not None:
            return own
        for pattern, value in _CHOSEN:
            if re.search(pattern, name, re.IGNORECASE) and _may_be(hint, value):
                return self._width(alike) if value is None else value
        if hint in (int, "int"):
            return self._width(alike)
        if hint in (bool, "bool"):
            return False
        raise ConfigError(
            f"{self._class.__name__} needs the argument {name!r} to be built.",
            next_step=f'Give it with config, e.g. {{"{name}": 64}}, or name a function that builds it with "factory".',
        )

    def _width(self, alike: bool) -> int:
        return _WIDTH if alike else _WIDTH * (1 + sum(type(v) is int and v % _WIDTH == 0 for v in self.chosen.values()))

    def build(self, sizes: dict[str, Any]) -> Any:
        """The module, of sizes that may be symbols."""
        others = {n: v.build(v.sizes) if isinstance(v, Blueprint) else v for n, v in self._others.items()}
        arguments = {**others, **sizes}
        if self._config_class is None:
            return self._make(**arguments)
        held = self._held
        config = self._config_class(**{**others, **self.sizes}) if held is None else copy.deepcopy(held)
        for name, value in sizes.items():
            object.__setattr__(config, name, value)
        return self._make(**{self._config_name: config})

    def remark(self) -> str:
        """What a reader must know of arguments that nobody gave; '' where all were given or have defaults."""
        if self.source:
            return f"Built with the arguments of {self.source}, which nobody gave: give yours with config."
        told = ", ".join(f"{name}={_shown(value)}" for name, value in self.chosen.items())
        return f"Built with {told}, which nobody gave and the trace chose: give yours with config." if told else ""


def variants(
    module_class: Any, given: dict[str, Any], factory: Callable[..., Any] | None, *, named: Collection[str]
) -> Iterator[Blueprint]:
    """The ways to build a module, the likeliest first; raises `ConfigError` where an argument can neither be found nor chosen."""
    problem: ConfigError | None = None
    made = False
    own = factory is None and not module_class.__module__.startswith("torch.")
    missing = own and _missing(module_class, given)
    ways: list[dict[str, Any]] = [{"captured": found} for found in _captured(module_class)] if missing else []
    for way in [*ways, {}, {"alike": True}]:
        try:
            found = Blueprint(module_class, given, factory, named=named, **way)
        except ConfigError as error:
            problem = problem or error
            continue
        if not way.get("alike") or found.chosen:
            made = True
            yield found
    if not made and problem is not None:
        raise problem


# ---------------------------------------------------------------- what the module's own file says


def _missing(module_class: Any, given: dict[str, Any]) -> bool:
    """Whether the constructor needs more than what is given."""
    config_class, _ = _config_parameter(module_class)
    known = _fields(config_class, None) if config_class else _arguments(module_class)
    return any(default is _EMPTY and name not in given for name, default in known.items())


def _captured(module_class: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where and with which arguments the module's own package builds it."""
    config_class, name = _config_parameter(module_class)
    if config_class is not None:
        for where, held in _held_configs(module_class, config_class):
            yield where, {name: held}
    for function in _makers(module_class):
        taken = _arguments_of(module_class, function)
        if taken is not None:
            yield f"{function.__module__}.{function.__name__}()", taken
            return


def _makers(module_class: Any) -> Iterator[Any]:
    """Functions of the class's own file that say that they return one, and need no argument."""
    for function in vars(sys.modules[module_class.__module__]).values():
        if not inspect.isfunction(function) or function.__module__ != module_class.__module__:
            continue
        returned = function.__annotations__.get("return")
        if returned not in (module_class, module_class.__name__) or function.__name__.startswith("_"):
            continue
        try:
            if _EMPTY not in _arguments(function).values():
                yield function
        except (TypeError, ValueError):
            continue


def _arguments_of(module_class: Any, function: Any) -> dict[str, Any] | None:
    """What a function hands to the constructor; None where it does not get there."""
    original = module_class.__init__
    taken: dict[str, Any] = {}

    def reached(self: Any, *args: Any, **kwargs: Any) -> None:
        taken.update(inspect.signature(original).bind(self, *args, **kwargs).arguments)
        raise _CapturedError

    module_class.__init__ = reached
    try:
        function()
    except _CapturedError:
        taken.pop(next(iter(taken)))  # self
        for name, parameter in inspect.signature(original).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                taken.update(taken.pop(name, {}))
        return taken
    except Exception:  # it needs what is not here; another way may do
        return None
    finally:
        module_class.__init__ = original
    return None


def _held_configs(module_class: Any, config_class: Any) -> Iterator[tuple[str, Any]]:
    """A configuration object that a module of the class's package holds, by itself or in a table."""
    package = module_class.__module__.rpartition(".")[0] or module_class.__module__
    for name, module in list(sys.modules.items()):
        if module is None or not (name == package or name.startswith(package + ".")):
            continue
        for key, value in list(vars(module).items()):
            held = value.values() if isinstance(value, dict) else (value,)
            for one in held:
                if type(one) is config_class:
                    yield f"{name}.{key}", one
                    return


def _made(hint: Any, owner: Any, *, alike: bool) -> Any:
    """An object of an annotated class of the same package, built from choices of its own; None where it is no such class."""
    own = isinstance(hint, type) and hint.__module__.partition(".")[0] == owner.__module__.partition(".")[0]
    if not own or not (issubclass(hint, torch.nn.Module) or dataclasses.is_dataclass(hint)) or hint is owner:
        return None
    if not issubclass(hint, torch.nn.Module):
        known, hints = _fields(hint, None), _hints(hint)
        needed = {n: d for n, d in known.items() if d is _EMPTY}
        blank = Blueprint.__new__(Blueprint)
        blank._class, blank.chosen = hint, {}
        made: Any = hint
        return made(**{n: blank._invented(n, hints.get(n), alike=True) for n in needed})
    return Blueprint(hint, {}, named=(), alike=alike)  # built with the module, on tensors without data


# ---------------------------------------------------------------- signatures


def _shown(value: Any) -> str:
    kind = value._class if isinstance(value, Blueprint) else type(value)
    return str(value) if isinstance(value, int | float) else str(kind.__name__)


def _may_be(hint: Any, value: Any) -> bool:
    """Whether an annotation allows a number like `value`; None stands for a width."""
    if hint is None:
        return True
    text = (
        hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint)) if isinstance(hint, type) else str(hint)
    )
    return ("float" if isinstance(value, float) else "int") in text or "Any" in text or "SymInt" in text


def _hints(owner: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(owner)
    except Exception:  # an annotation that cannot be resolved says what its text says
        return dict(getattr(owner, "__annotations__", {}))


def _check_names(module_class: Any, given: dict[str, Any], known: dict[str, Any], named: Collection[str]) -> None:
    unknown = sorted(given.keys() - known.keys())
    if not unknown or "**" in known:
        return
    told = [name for name in unknown if name in named]  # of a file, which may be no configuration, nothing is told
    near = ", ".join(told and fields.nearest(told[0], known)) or ", ".join(known)
    what = repr(told[0][:100]) if told else "of a name that the config file holds"
    raise ConfigError(f"{module_class.__name__} takes no argument {what}.", next_step=f"Arguments: {near}.")


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
    if (
        list(found) == ["**"] and isinstance(function, type) and len(function.__mro__) > 2
    ):  # all goes to the class above
        return {**_arguments(function.__mro__[1]), **found}
    return found


def _config_parameter(module_class: Any) -> tuple[Any, str]:
    """The class of the one config object that a constructor takes, and the parameter's name; (None, '') otherwise."""
    required = [n for n, d in _arguments(module_class).items() if d is _EMPTY]
    if not required:
        return None, ""
    name = required[0]
    hint = _hints(module_class.__init__).get(name)
    if dataclasses.is_dataclass(hint):
        return hint, name
    if not isinstance(hint, type) and name in ("config", "cfg", "args", "params"):
        module = sys.modules[module_class.__module__]
        classes = [c for c in vars(module).values() if isinstance(c, type) and dataclasses.is_dataclass(c)]
        if len(classes) == 1:
            return classes[0], name
    return None, ""


def _fields(config_class: Any, held: Any) -> dict[str, Any]:
    """Field -> default of a config class, or what an object of it holds."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config_class):
        if not field.init:
            continue
        default = field.default
        if held is not None:
            default = getattr(held, field.name)
        elif default is dataclasses.MISSING:
            made = field.default_factory
            default = _EMPTY if made is dataclasses.MISSING else made()
        found[field.name] = default
    return found


def symbolic(name: str) -> bool:
    """Whether an argument's number can be a symbol: it is no depth, identifier or switch, nor what makes sizes of sizes."""
    return not is_depth(name) and not any(part in name for part in (*fields.NO_SIZE, *_WINDOWS))


__all__ = ["Blueprint", "symbolic", "variants"]
