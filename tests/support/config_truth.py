"""Run as a program: the default configuration objects of the model types named on standard input, one JSON line for each.

The other side of tests/sweep/configs.py; shares no code with the tool. A line holds the class, the names and defaults of its
dataclass fields, and what an object made without arguments holds, nested configurations as objects of their own.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import warnings
from typing import Any


def plain(value: Any) -> Any:
    """The value as JSON: mappings with text keys, sets and tuples as lists, nested configurations as `class` and `values`."""
    if hasattr(value, "to_diff_dict"):
        return {"class": f"{type(value).__module__}.{type(value).__qualname__}", "values": held(value)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=repr)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, int | float | str | bool) else repr(value)


def held(config: Any) -> dict[str, Any]:
    """What the object holds, without the private names that it keeps books in."""
    return {name: plain(value) for name, value in vars(config).items() if not name.startswith("_")}


def of_type(model_type: str) -> dict[str, Any]:
    """The default configuration of a model type, or the error that making it raises."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    try:
        cls = CONFIG_MAPPING[model_type]
        config = cls()
    except Exception as error:  # whatever a class of others raises
        return {"model_type": model_type, "error": f"{type(error).__name__}: {error}"[:300]}
    defaults = {f.name: plain(f.default) for f in dataclasses.fields(cls) if f.default is not dataclasses.MISSING}
    return {
        "model_type": model_type, "class": f"{cls.__module__}.{cls.__qualname__}", "defaults": defaults, "values": held(config),
    }  # fmt: skip


def main() -> None:
    """Answer line by line."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        print(json.dumps(of_type(line.strip())), flush=True)  # noqa: T201 (its answer)


if __name__ == "__main__":
    main()
