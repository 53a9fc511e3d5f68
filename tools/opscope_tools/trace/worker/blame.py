"""What an error of a model's own code is about: its line, and fields of the configuration that nobody set."""

from __future__ import annotations

import ast
import contextlib
import inspect
import textwrap
from pathlib import Path
from typing import Any

import torch

__all__ = ["place_of", "unset"]


def place_of(error: BaseException) -> str:
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


def unset(error: BaseException, config: Any) -> str:
    """What to give where the innermost module that the error passed through reads fields of the config that are None."""
    step, read, reader = error.__traceback__, [], ""
    while step is not None:
        owner = type(step.tb_frame.f_locals.get("self"))
        if issubclass(owner, torch.nn.Module) and not owner.__module__.startswith("torch."):
            with contextlib.suppress(OSError, TypeError, SyntaxError):
                tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
                named = [
                    n
                    for n in ast.walk(tree)
                    if isinstance(n, ast.Attribute) and ast.unparse(n.value).endswith("config")
                ]
                reader, read = owner.__name__, list(dict.fromkeys(node.attr for node in named))
        step = step.tb_next
    own = config.get_text_config() if hasattr(config, "get_text_config") else config
    missing = [name for name in read if getattr(own, name, "") is None]
    if not isinstance(error, TypeError | AttributeError | LookupError):  # what code refuses by itself, it says why
        missing = [name for name in missing if name in str(error)]
    return f"Give {', '.join(missing)} with config: {reader} reads them, and nobody has set them." if missing else ""
