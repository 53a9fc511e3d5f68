"""Run as a program: build the models of the model types named on standard input, one JSON line for each type.

The other side of index_submodules.py; shares no code with the index. Every class that the auto mappings name for a type,
and every other model of the same files, is built from its default config on the meta device. A line holds, for each such class, the children of every
module class in it: `[class, attribute, [classes of the children]]`, the contents of plain containers as `attribute.*`.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any

SECONDS = 60


class _TimeUpError(Exception):
    pass


def qualified(cls: type) -> str:
    """The class's name; a parametrization's ad-hoc subclass goes by the class that it was made from."""
    if cls.__module__ == "torch.nn.utils.parametrize" and cls.__name__.startswith("Parametrized"):
        cls = cls.__mro__[1]
    return f"{cls.__module__}.{cls.__qualname__}"


def children(model: Any) -> list[tuple[str, str, list[str]]]:
    """(class, attribute, classes) of everything in `model`; numbers in attribute names become `*`."""
    from torch import nn

    containers = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
    found: dict[tuple[str, str], set[str]] = {}

    def enter(owner: str, path: str, child: Any) -> None:
        found.setdefault((owner, path), set()).add(qualified(type(child)))
        if type(child) in containers:
            for inner in child.children():
                enter(owner, f"{path}.*", inner)

    for module in model.modules():
        if type(module) in containers:
            continue
        for name, child in module.named_children():
            if name != "parametrizations":
                enter(qualified(type(module)), re.sub(r"\d+", "*", name), child)
    return [(owner, path, sorted(classes)) for (owner, path), classes in sorted(found.items())]


@contextlib.contextmanager
def limit(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise _TimeUpError(f"over {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def build(model_type: str) -> dict[str, Any]:
    """What the model type's classes hold; for a class that cannot be built, the error instead."""
    import torch
    import transformers
    from transformers.initialization import no_init_weights
    from transformers.models.auto import modeling_auto

    names: dict[str, None] = {}
    for table in (n for n in dir(modeling_auto) if re.fullmatch(r"MODEL_.*MAPPING_NAMES", n)):
        named = getattr(modeling_auto, table).get(model_type, ())
        names.update(dict.fromkeys((named,) if isinstance(named, str) else named))
    classes: dict[str, Any] = {}
    for name in names:
        with contextlib.suppress(Exception):  # a package that is not installed
            cls = getattr(transformers, name)
            classes[qualified(cls)] = cls
    for cls in list(classes.values()):  # what no mapping names builds its parts with configurations of its own
        for other in vars(sys.modules.get(cls.__module__, object)).values():
            own = isinstance(other, type) and other.__module__ == cls.__module__
            if own and issubclass(other, transformers.PreTrainedModel) and other.config_class:
                classes.setdefault(qualified(other), other)
    roots: dict[str, Any] = {}
    for name, cls in classes.items():
        try:
            with limit(SECONDS), torch.device("meta"), no_init_weights():
                model = cls(cls.config_class())
            roots[name] = children(model)
        except Exception as error:  # a default that no model can be built from
            roots[name] = f"{type(error).__name__}: {str(error).strip()[:200]}"
    return {"model_type": model_type, "roots": roots}


def main() -> None:
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        print(json.dumps(build(line.strip())), flush=True)  # noqa: T201 (its answer)


if __name__ == "__main__":
    main()
