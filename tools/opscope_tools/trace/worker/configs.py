"""A spec's configuration object, and what is wrong where there is none: the field, in a sentence.

A config class runs code of its own over the values: it divides by them, loops over them, looks names up. Whatever it
raises becomes a `ConfigError`; which field is to blame is found by taking one after the other back to its default.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import transformers
from opscope_schemas.errors import ConfigError, OpscopeError, TraceError
from transformers.models.auto import configuration_auto, modeling_auto

from opscope_tools.running.given import check_given
from opscope_tools.trace.protocol import ALONE, IGNORED, ModelSpec
from opscope_tools.trace.variables import CONFIG
from opscope_tools.trace.worker import naming
from opscope_tools.trace.worker.definitions import missing_package
from opscope_tools.trace.worker.fields import CONFIG_BASE, main_part, nearest, parts, path_of, sizes

#: seconds of the processor that a config class gets, and fields that are looked at for the one to blame
_PATIENCE = 10.0
#: seconds after which a block is told once more to end: it may have been where nothing can be raised
_AGAIN = 3.0
_SUSPECTS = 60
_SEARCH = 8.0
_SHOWN = 200
#: fields of its own that a class must have for some overrides to be most of them
_WHOLE = 6
_FIELD = re.compile(r"[A-Za-z_][\w.]{0,79}", re.ASCII)
#: what every published configuration says of itself and of the files beside it
_DESCRIBES = frozenset("model_type architectures transformers_version torch_dtype dtype quantization_config".split())


class _TooLongError(BaseException):
    """Out of time; no `except Exception` of foreign code is to catch it."""


@contextlib.contextmanager
def deadline(seconds: float, sentence: str, kind: type[TraceError] = TraceError) -> Iterator[None]:
    """Ends the block with an error of that kind and sentence when it has used so many seconds of the processor, wherever it is then."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_: object) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds, _AGAIN)
    try:
        yield
    except _TooLongError:
        raise kind(sentence, next_step="Give smaller numbers.") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def make_config(config_class: Any, spec: ModelSpec) -> Any:
    """The configuration: class default or file, then overrides. Raises `ConfigError` with the reason."""
    if spec.factory is not None:
        raise ConfigError(
            f"{config_class.__name__} makes the model, so no factory does.", next_step="Leave `factory` out."
        )
    try:
        return made(config_class, spec)
    except OpscopeError:
        raise
    except Exception as error:
        raise refusal(config_class, config_class.__name__, error, spec, lambda s: made(config_class, s)) from None


def made(config_class: Any, spec: ModelSpec) -> Any:
    """The configuration, or whatever its class raises."""
    base = naming.checked(_of_the_target(copy.deepcopy(spec.content), config_class), config_class)
    with deadline(_PATIENCE, f"{config_class.__name__} did not come to an end with these values."):
        reference = config_class(**base) if base else config_class()
        whole = _is_whole(spec.overrides, config_class, reference)
        for name, value in naming.checked(spec.overrides, config_class).items():
            real = path_of(reference, name) or _undeclared(config_class, reference, base, spec, name, value)
            if not real and whole:
                continue
            if not real:
                raise _unknown(config_class, reference, name)
            if type(value) is int and value < 0 and not real.endswith("_id"):
                raise ConfigError(
                    f"{name} is {value}, but a size is not negative.", next_step="Give a positive number."
                )
            check_given({real: value})  # a standard name may stand for a field with a limit
            base.pop(name, None)
            _set(base, reference, real, value)
        return _without_unread(config_class(**base), spec) if base else reference


def alone(model: Any, config_class: Any, model_type: str) -> str:
    """What of a composite model type the class leaves out that is traced for it, in a sentence; '' where nothing."""
    if model_type not in configuration_auto.CONFIG_MAPPING_NAMES:
        return ""
    whole = configuration_auto.CONFIG_MAPPING[model_type]
    held = getattr(whole, "sub_configs", {})
    own = [key for key, kind in held.items() if kind is config_class]
    others = " and ".join(key.removesuffix("_config") for key in held if key not in own)
    if whole is config_class or not own or not others:
        return ""
    tables = (modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, modeling_auto.MODEL_MAPPING_NAMES)
    named = [name for table in tables if isinstance(name := table.get(model_type), str)]
    larger = next((n for n in named if getattr(getattr(transformers, n, None), "config_class", None) is whole), "")
    ask = f": name {larger} for all of it" if larger else ""
    return f"{ALONE}{model_type}, {model.__name__} is the {own[0].removesuffix('_config')} part alone; the {others} part is in no figure{ask}."


def _of_the_target(content: dict[str, Any], config_class: Any) -> dict[str, Any]:
    """What a config file says of the target's model type: itself, or the part of a composite one."""
    declared = content.get("model_type")
    if declared and declared != config_class.model_type and isinstance(declared, str):
        part = _part_of(declared, config_class)
        if isinstance(content.get(part), dict):
            held: dict[str, Any] = content[part]
            return held
    if declared and declared != config_class.model_type:
        known = isinstance(declared, str) and declared in configuration_auto.CONFIG_MAPPING_NAMES
        raise ConfigError(
            f"The config file is of {f'model type {declared!r}' if known else 'another model type'}, the target's is "
            f"{config_class.model_type!r}.",
            next_step=f"{f'Analyse {declared!r}, or give' if known else 'Give'} a config of the target's type.",
        )
    return content


def _part_of(model_type: str, config_class: Any) -> str:
    """The field of a composite model type's config that holds a config of the class; '' where none does."""
    if model_type not in configuration_auto.CONFIG_MAPPING_NAMES:
        return ""
    whole = getattr(configuration_auto.CONFIG_MAPPING[model_type], "sub_configs", {})
    return next((key for key, kind in whole.items() if kind is config_class), "")


# ---- fields that the class does not declare -------------------------------------------------------------------------


def _undeclared(config_class: Any, reference: Any, base: dict[str, Any], spec: ModelSpec, name: str, value: Any) -> str:
    """Where a field goes that the class does not declare but code of the model reads; '' where nothing reads it."""
    if name in _DESCRIBES:
        return name
    holder, _, last = name.rpartition(".")
    main = "" if holder else main_part(reference)
    if last in spec.read and (not holder or holder in parts(reference)):
        return f"{main}.{name}" if main else name
    if holder or main:
        return ""
    try:
        return name if _takes(config_class, {**base, name: value}, name) else ""
    except TypeError:  # it takes no further keyword arguments
        return ""


def _is_whole(given: Mapping[str, Any], config_class: Any, reference: Any) -> bool:
    """Whether the overrides are a whole configuration: most of what the class itself declares."""
    own = set(vars(reference)) - set(vars(CONFIG_BASE())) if issubclass(config_class, CONFIG_BASE) else set()
    return len(own) >= _WHOLE and 2 * sum(path_of(reference, name) in own for name in given) > len(own)


def _without_unread(config: Any, spec: ModelSpec) -> Any:
    """The configuration without the whole numbers that nothing reads: they would look like sizes of the model."""
    for path, name in _paths(_of_the_target(spec.content, type(config))):
        *holders, last = path.split(".")
        holder: Any = config
        for part in holders:
            holder = parts(holder).get(part, holder)
        if type(vars(holder).get(last)) is int and not _counts(config, spec, path, name):
            delattr(holder, last)
    return config


def ignored(config: Any, spec: ModelSpec) -> str:
    """What was given and nothing reads, in a sentence; '' where everything counts.

    A file names its fields only where it is the configuration that it should be: any other file's are its own affair.
    """
    given = [(n, n) for n in spec.overrides] + list(_paths(_of_the_target(spec.content, type(config))))
    chosen = list(dict.fromkeys(path for path, name in given if name in naming.ATTENTION))
    names = [path for path, name in given if name not in naming.ATTENTION and not _counts(config, spec, path, name)]
    shown = [
        n for n in dict.fromkeys(names) if _FIELD.fullmatch(n) and (n in spec.overrides or _is_config(spec.content))
    ]
    rest = len(set(names)) - len(shown)
    listed = ", ".join(shown) + (f"{' and ' if shown else ''}{rest} more" if rest else "")
    why = [
        f"since a trace is told by attention= how attention runs: {', '.join(chosen)}" if chosen else "",
        f"since neither its class nor the model's code reads them: {listed}" if names else "",
    ]
    return f"{IGNORED}, {'; '.join(filter(None, why))}." if any(why) else ""


def _paths(content: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    for name, value in content.items():
        yield f"{within}{name}", name
        if isinstance(value, Mapping) and name.endswith("_config") and name != "quantization_config":
            yield from _paths(value, f"{within}{name}.")


def _counts(config: Any, spec: ModelSpec, path: str, name: str) -> bool:
    """Whether the class declares a field, takes it in its constructor, or code reads it."""
    holder: Any = config
    for part in path.split(".")[:-1]:
        holder = parts(holder).get(part)
        if holder is None:  # no configuration of its own: whatever holds it was looked at
            return True
    if (
        name in spec.read
        or name in _DESCRIBES
        or name in naming.EXPERTS
        or (path in spec.overrides and path_of(config, path))
    ):
        return True
    if name in naming.LEFT_OUT:
        return False
    known = {*inspect.signature(type(holder)).parameters, *getattr(type(holder), "attribute_map", {})}
    if name in known or hasattr(type(holder), name):
        return True
    content = _of_the_target(spec.content, type(config))
    return path in content and _takes(type(config), content, name)


def _takes(config_class: Any, content: Mapping[str, Any], name: str) -> bool:
    """Whether the constructor makes something else of a field that its class does not declare, as of rope_theta."""
    return name not in vars(config_class(**naming.checked(dict(content), config_class)))


def _is_config(content: Mapping[str, Any]) -> bool:
    return content.get("model_type") in configuration_auto.CONFIG_MAPPING_NAMES


def _unknown(config_class: Any, reference: Any, name: str) -> ConfigError:
    known = {
        *vars(reference), *getattr(config_class, "attribute_map", {}), *CONFIG, *sizes(reference),
    } - {name}  # fmt: skip
    near = ", ".join(nearest(name, sorted(map(str, known)))) or "none"
    shown = name if len(name) <= 100 else f"{name[:97]}..."
    return ConfigError(f"{config_class.__name__} has no field {shown!r}.", next_step=f"Nearest names: {near}.")


def _set(base: dict[str, Any], reference: Any, path: str, value: Any) -> None:
    """Put an override into the keyword arguments of a config class; a part keeps its other fields."""
    head, _, rest = path.partition(".")
    if not rest:
        part = parts(reference).get(head)
        if part is not None and isinstance(value, dict) and isinstance(base.get(head), dict):
            value = {**base[head], **value}
        base[head] = value
        return
    held = base.get(head)
    if not isinstance(held, dict):
        held = base[head] = {"model_type": parts(reference)[head].model_type} if held is None else held.to_dict()
    _set(held, parts(reference)[head], rest, value)


# ---- what is wrong --------------------------------------------------------------------------------------------------


def refusal(
    config_class: Any, who: str, error: Exception, spec: ModelSpec, again: Callable[[ModelSpec], object]
) -> OpscopeError:
    """What `who` raised over the spec's values, as a sentence that names the field where another value of it is taken."""
    if package := missing_package(error):
        return TraceError(
            f"{who} needs the package {package} for these values, which is not installed.",
            next_step=f"Install {package} beside opscope, or choose other values.",
        )
    field = _to_blame(config_class, spec, again)
    return ConfigError(
        f"{who} refuses {f'the value of {field}' if field else 'these values'}: {reason_of(error)}.",
        next_step=f"Give another value of {field}." if field else "",
    )


def reason_of(error: BaseException) -> str:
    """The innermost sentence of an error: strict config classes wrap a validator's error in several layers."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    said = next((line.strip() for line in str(cause).splitlines() if line.strip()), "")
    said = said if len(said) <= _SHOWN else f"{said[: _SHOWN - 3]}..."
    kind = type(cause).__name__
    plain = isinstance(cause, ValueError | TypeError | RuntimeError | NotImplementedError) and " " in said
    return (said if plain else f"{kind}: {said}" if said else kind).rstrip(".")


def _to_blame(config_class: Any, spec: ModelSpec, again: Callable[[ModelSpec], object]) -> str:
    """The field that, taken back to its default, removes the error; '' where none does alone. Of a file only what the
    class knows is named: it may be no configuration."""
    known = {*dir(config_class), *inspect.signature(config_class).parameters, *CONFIG}
    known |= set(getattr(config_class, "attribute_map", {}))
    ends = time.process_time() + _SEARCH
    given = [("overrides", name) for name in spec.overrides] + [("content", name) for name in spec.content]
    for place, name in given[:_SUSPECTS]:
        if time.process_time() > ends:
            break
        held = {key: value for key, value in getattr(spec, place).items() if key != name}
        with contextlib.suppress(Exception):
            again(spec.model_copy(update={place: held}))
            if place == "content" and name not in known:
                return "a field that it does not know"
            return name if len(name) <= 100 else f"{name[:97]}..."
    return ""


__all__ = ["deadline", "ignored", "made", "make_config", "reason_of", "refusal"]
