"""What is fuzzed: each target takes a text and asks everything that reads it. The property of all: an answer, or a sentence.

Whatever is not an `OpscopeError` goes through to whoever called, and so does work that takes longer than its text allows.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import inputs
import report_toy as toy
from growth import TooLongError, at_most
from hypothesis.strategies import SearchStrategy
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import OpscopeError
from opscope_schemas.formula import Formula, evaluate, holds, same_form, turns, variables
from opscope_tools.catalog import tool_named
from opscope_tools.report.saving import report_path
from opscope_tools.running.config_files import read_config
from opscope_tools.running.engines import close_engines
from opscope_tools.running.runner import run_tool, shorten_to
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace, folder_repository

#: seconds of processor time that a text may take, and so many more for every thousand characters
SECONDS, SECONDS_A_THOUSAND = 4.0, 0.5
CONFIG = (
    "class MyConfig:\n    model_type = 'mine'\n    def __init__(self, hidden_size=8, num_layers=2, rope=None, layers=(1, 2), **kwargs):\n"
    "        self.hidden_size = hidden_size\n        self.num_layers = num_layers\n        self.rope = rope or {'a': hidden_size // num_layers}\n"
    "        self.layers = [hidden_size for _ in range(num_layers)]\n        if hidden_size % num_layers:\n            raise ValueError('no')\n"
)


class TooSlowError(AssertionError):
    """A text that took longer than its length allows."""


def asked(context: ToolContext, tool: str, **given: Any) -> None:
    """One question, its answer shortened as a server would; an error in one sentence is an answer."""
    with contextlib.suppress(OpscopeError):
        found = tool_named(tool)
        shorten_to(found, run_tool(found, given, context))


@contextlib.contextmanager
def repository(files: Mapping[str, str]) -> Any:
    """A context over a repository `mine` of these files."""
    with tempfile.TemporaryDirectory(prefix="opscope-fuzz-") as folder:
        root = Path(folder) / "mine"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
        workspace = Workspace({"mine": folder_repository("mine", root)}, Path(folder).resolve(), MemoryStore())
        try:
            yield ToolContext(workspace)
        finally:
            close_engines(workspace)


def python_source(text: str) -> None:
    """A module: its classes by every tool that reads Python."""
    with repository(
        {"p/__init__.py": "from .a import *\n", "p/a.py": text, "p/b.py": "from p.a import *\nclass Z(A): pass\n"}
    ) as context:
        for name in ("p.b.Z", *dict.fromkeys(re.findall(r"class (\w+)", text)[:2])):
            asked(context, "resolve_class", name=name, repo="mine")
            asked(context, "find_forward", target=name, repo="mine")
            asked(context, "extract_config", target=name, repo="mine")
            asked(context, "find_references", target=f"p.a.{name}", repo="mine")
            asked(context, "search_source", query=f"calls:{name} forward", repo="mine")
        asked(context, "resolve_class", name="p/a.py:3", repo="mine")
        asked(context, "map_repo", repo="mine")
        asked(context, "cuda_kernel_tiling", target="mine")


def cuda_source(text: str) -> None:
    """A CUDA file: its kernels, its definitions, its place in a map."""
    with repository({"k.cu": text, "a.cuh": text[: len(text) // 2], "p/__init__.py": ""}) as context:
        asked(context, "cuda_kernel_tiling", target="mine", detail="full")
        for name in dict.fromkeys(re.findall(r"(?:struct|class|__global__ void) (\w+)", text)[:2]):
            asked(context, "resolve_class", name=f"::{name}", repo="mine")
        asked(context, "map_repo", repo="mine")


def triton_source(text: str) -> None:
    """A module of Triton kernels."""
    with repository({"p/a.py": text, "p/__init__.py": ""}) as context:
        asked(context, "cuda_kernel_tiling", target="mine", detail="full")
        asked(context, "extract_config", target="p/a.py", repo="mine")


def report(text: str) -> None:
    """A saved report about the toy."""
    with tempfile.TemporaryDirectory(prefix="opscope-fuzz-") as folder:
        context = ToolContext(toy.workspace(Path(folder)))
        path = "reports/implementations/toy-analysis.md"
        file = context.workspace.output / path
        file.parent.mkdir(parents=True)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        asked(context, "check_report", path=path)
        asked(context, "check_report", path=path, fix=True)


def config_json(text: str) -> None:
    """A configuration, as a file, as text and as an object."""
    with repository({"p/__init__.py": "", "p/a.py": CONFIG, "config.json": text}) as context:
        file = context.workspace.repositories["mine"].root / "config.json"
        with contextlib.suppress(OpscopeError):
            read_config(context.workspace, str(file))
        asked(context, "extract_config", target="MyConfig", repo="mine", config=str(file))
        asked(context, "extract_config", target="MyConfig", repo="mine", config=text)
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(given, dict):
            asked(context, "extract_config", target="MyConfig", repo="mine", config=given)


def formula(text: str) -> None:
    """A formula by all that reads one; what is read is printed and read again as the same."""
    at = dict.fromkeys(variables(text), 3)
    for ask in (
        lambda: evaluate(text, at),
        lambda: holds(text, at),
        lambda: turns(text),
        lambda: same_form(text, text),
    ):
        with contextlib.suppress(OpscopeError):
            ask()
    with contextlib.suppress(OpscopeError):
        parsed = Formula.parse(text)
        assert Formula.parse(str(parsed)) == parsed
        for made in (parsed // 2, parsed % 3, parsed.ceildiv(Formula.var("a") + 1), parsed * parsed):
            str(made)


def name(text: str) -> None:
    """A name or a path, wherever one may be given."""
    with repository(
        {"p/__init__.py": "", "p/a.py": CONFIG, "k.cu": "__global__ void k(float* x) { x[0] = 1; }\n"}
    ) as context:
        for tool, argument in (
            ("resolve_class", "name"), ("find_forward", "target"), ("find_references", "target"), ("extract_config", "target"),
            ("cuda_kernel_tiling", "target"), ("map_repo", "repo"), ("check_report", "path"),
        ):  # fmt: skip
            asked(context, tool, **{argument: text})
        asked(context, "resolve_class", name="MyConfig", repo=text)
        asked(context, "extract_config", target="MyConfig", config=text)
        with contextlib.suppress(OpscopeError):
            context.workspace.resolve_inside(text)
        with contextlib.suppress(OpscopeError):
            report_path(text)


TARGETS: dict[str, tuple[SearchStrategy[str], Callable[[str], None]]] = {
    "python_source": (inputs.python_source, python_source),
    "cuda_source": (inputs.cuda_source, cuda_source),
    "triton_source": (inputs.triton_source, triton_source),
    "report": (inputs.report, report),
    "config_json": (inputs.config_json, config_json),
    "formula": (inputs.formula, formula),
    "name": (inputs.name, name),
}


def held(target: str, text: str) -> None:
    """The property: the target answers, in the time that its text may take."""
    limit = SECONDS + SECONDS_A_THOUSAND * len(text) / 1000
    try:
        with at_most(limit):
            TARGETS[target][1](text)
    except TooLongError as error:
        raise TooSlowError(f"{target} took over {limit:.0f} s for {len(text)} characters") from error
