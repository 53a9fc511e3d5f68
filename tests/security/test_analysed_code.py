"""Source that is analysed runs nothing: constructors are interpreted over plain data, kernels are compiled without Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository, ToolResult
from opscope_schemas.errors import OpscopeError
from opscope_tools.catalog import tool_named
from opscope_tools.running.engines import close_engines
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from tally import Tally

#: lines of a constructor, or of a module, that would leave a mark if they ran; `kinds` are all classes of the process
CONSTRUCTORS = {
    "a path through the subclasses": "[p for p in [c for c in kinds if c.__name__ == 'PurePath'][0].__subclasses__() "
    "if p.__name__ == 'Path'][0].cwd().joinpath(MARK).write_text('x')",
    "a path through a literal": "[p for p in [c for c in ''.__class__.__mro__[1].__subclasses__() if c.__name__ == 'PurePath']"
    "[0].__subclasses__() if p.__name__ == 'Path'][0].home().joinpath(MARK).mkdir()",
    "popen through the subclasses": "[c for c in kinds if c.__name__ == 'Popen'][0](['touch', MARK])",
    "a loader through the subclasses": "[c for c in kinds if c.__name__ == 'BuiltinImporter'][0].load_module('os').system('touch ' + MARK)",
    "globals of a method": "[c for c in kinds if c.__name__ == '_wrap_close'][0].__init__.__globals__['system']('touch ' + MARK)",
    "builtins of a method": "().__class__.__base__.__init__.__self__.__class__.__subclasses__()",
    "a getter of a property": "[c for c in kinds if c.__name__ == 'PurePath'][0].parent.fget(kinds[0])",
    "system": "__import__('os').system('touch ' + MARK)",
    "import_module": "importlib.import_module('os').system('touch ' + MARK)",
    "import_module of the repository": "importlib.import_module('marking')",
    "find_spec of what lies in a package": "importlib.util.find_spec('marking.inner')",
    "find_spec of a module": "importlib.util.find_spec('marking')",
    "version of a package": "importlib.metadata.version('../../marking')",
    "eval": "eval('__import__(\"os\").system(\"touch \" + MARK)')",
    "exec": "exec('__import__(\"os\").system(\"touch \" + MARK)')",
    "open": "open(MARK, 'w').write('x')",
    "getattr": "getattr(getattr(0, '__class__'), '__subclasses__')",
    "a format": "'{0.__class__.__init__.__globals__}'.format(kinds)",
    "globals": "globals()['__builtins__']['open'](MARK, 'w')",
    "type": "type(type(0)).__subclasses__(type)[0].register(MARK)",
    "a base that is called": "nn.Linear.__init__.__globals__['torch'].os.system('touch ' + MARK)",
    "a dict's class": "{}.__class__.__mro__[1].__subclasses__()[100]()",
    "a match": "__import__('re').search('a', 'a').__class__.__class__.__subclasses__(type)",
    "a sort key": "sorted([MARK], key=__import__('os').mkdir)",
}  # fmt: skip
SOURCE = """
import importlib
import importlib.metadata
import importlib.util
import os

import marking
from torch import nn

MARK = {mark!r}


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        kinds = "".__class__.__mro__[1].__subclasses__()
        made = {line}
        self.first = nn.Linear(dim, 4 if made else 6)

    def forward(self, x):
        return self.first(x)


class NetConfig:
    model_type = "net"

    def __init__(self, dim=8, made={line_of_default}):
        kinds = "".__class__.__mro__[1].__subclasses__()
        self.dim = dim
        self.made = {line}
"""
TOOLS: dict[str, dict[str, str]] = {
    "resolve_class": {"name": "{}.Net"}, "find_forward": {"target": "{}.Net"}, "extract_config": {"target": "{}.NetConfig"},
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the marks would be left."""
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory, place: Path, index_folder: Path) -> Iterator[Callable[..., str]]:
    """Asks a tool of a session with a repository of one module for each line; nothing in it is trusted."""
    folder = tmp_path_factory.mktemp("evil")
    (folder / "marking").mkdir()
    for name in ("marking/__init__.py", "marking/inner.py"):
        (folder / name).write_text(f"open({str(place / 'imported')!r}, 'w').close()\n")
    for number, line in enumerate(CONSTRUCTORS.values()):
        text = SOURCE.format(mark=str(place / f"mark{number}"), line=line, line_of_default=line.replace("kinds", "[]"))
        (folder / f"evil{number}.py").write_text(text)
    workspace = Workspace.create(repositories=[("evil", folder)], output=folder, cache_folder=index_folder)
    yield lambda tool, **arguments: asked(workspace, tool, arguments)
    close_engines(workspace)
    workspace.store.close()


def asked(workspace: Workspace, tool: str, arguments: dict[str, Any]) -> str:
    try:
        answer: ToolResult = run_tool(tool_named(tool), arguments, ToolContext(workspace))
        return answer.model_dump_json()
    except OpscopeError as error:
        return str(error)


@pytest.mark.parametrize("number", range(len(CONSTRUCTORS)), ids=list(CONSTRUCTORS))
def test_an_analysed_constructor_runs_nothing(number: int, evil: Callable[..., str], place: Path, tally: Tally) -> None:
    for tool, arguments in TOOLS.items():
        evil(tool, **{name: value.format(f"evil{number}") for name, value in arguments.items()})
        tally.execution(place / f"mark{number}")
    assert not (place / "imported").exists()


def test_the_map_of_a_repository_and_its_references_run_nothing(
    evil: Callable[..., str], place: Path, tally: Tally
) -> None:
    evil("map_repo", repo="evil")
    evil("find_references", target="evil0.Net")
    evil("search_source", query="calls:Net forward")
    tally.executions(len(CONSTRUCTORS), [path.name for path in place.iterdir()])


#: what a kernel's signature, decorator or body would run while it is compiled
KERNELS = {
    "default": ("n, BLOCK: tl.constexpr = __import__('os').system({command})", "pass", ""),
    "annotation": ("n: __import__('os').system({command})", "pass", ""),
    "string annotation": ("n: \"__import__('os').system(1)\"", "pass", ""),
    "lambda default": ("n, f=(lambda: __import__('os').system({command}))()", "pass", ""),
    "constexpr default": ("n, BLOCK: tl.constexpr = tl.constexpr(__import__('os').system({command}))", "pass", ""),
    "subclasses default": ("n, f=().__class__.__base__.__subclasses__()", "pass", ""),
    "body through inspect": ("n", "tl.core.inspect.os.system({command})", ""),
    "body through warnings": ("n", "tl.core.warnings.sys.modules['os'].system({command})", ""),
    "body through getattr": ("n", "getattr(tl.core, 'inspect').os.system({command})", ""),
    "body through a name": ("n", "m: tl.constexpr = tl.core\n    m.value.inspect.os.system({command})", ""),
    "body through a function": ("n", "tl.sum.fn.__globals__['core'].inspect.os.system({command})", ""),
    "body through a scope": ("n", "tl.sum.get_capture_scope()['core'].inspect.os.system({command})", ""),
    "body through triton": ("n", "triton.runtime.build.os.system({command})", ""),
    "body through an import": ("n", "run({command})", "from triton.runtime.build import os\nrun = os.system"),
    "body through a module of triton": ("n", "runtime.build.os.system({command})", "from triton import runtime"),
    "body compiles C": ("n", "compile_module_from_src({command}, 'x')", "from triton.runtime.build import compile_module_from_src"),
    "module level": ("n", "pass", "__import__('os').system({command})"),
    "decorator": ("n", "pass", "", "@(__import__('os').system({command}) and (lambda f: f) or (lambda f: f))\n"),
    "closing quotes cut": ("n", "pass", "", "", True),
}  # fmt: skip
KERNEL = """
import triton
import triton.language as tl
{above}

{decorator}@triton.jit
def planted(x_ptr, {signature}):
    {body}
    i = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def launch(x):
    planted[(4,)](x, x.numel())
"""
#: a string whose lines, cut by the function's indentation, are statements
CUT = '''
import triton
import triton.language as tl

if True:
    @triton.jit
    def planted(x_ptr, n):
        """
   \\"""
    import os; os.system({command})
    x = """
        """
        i = tl.program_id(0) * 64 + tl.arange(0, 64)
        tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def launch(x):
    planted[(4,)](x, x.numel())
'''


def compiled(folder: Path, out: Path) -> str:
    """What the tool says of the kernel of a folder, with its build."""
    repository = Repository(name="evil", root=folder)
    workspace = Workspace(repositories={"evil": repository}, output=out, store=MemoryStore())
    return asked(
        workspace, "cuda_kernel_tiling", {"target": "planted", "repo": "evil", "compile": True, "arch": "sm_80"}
    )


@pytest.mark.parametrize("case", KERNELS, ids=str)
def test_a_kernel_that_is_compiled_runs_no_python(case: str, tmp_path: Path, tally: Tally) -> None:
    mark, folder = tmp_path / "mark", tmp_path / "evil"
    folder.mkdir()
    signature, body, above, *rest = KERNELS[case]
    decorator = str(rest[0]) if rest else ""
    command = repr(f"touch {mark}")
    text = CUT if case == "closing quotes cut" else KERNEL
    fill = {name: str(part).format(command=command) for name, part in
            {"signature": signature, "body": body, "above": above, "decorator": decorator}.items()}  # fmt: skip
    (folder / "kernels.py").write_text(text.format(command=command, **fill))
    said = compiled(folder, tmp_path / "out")
    assert "planted" in said
    tally.execution(mark)


def test_a_kernel_of_the_language_alone_still_compiles(tmp_path: Path) -> None:
    (tmp_path / "evil").mkdir()
    fill = {"signature": "n, BLOCK: tl.constexpr = 64", "above": "", "decorator": ""}
    body = "m = tl.cdiv(n, triton.next_power_of_2(BLOCK)) + tl.constexpr(3).value\n    tl.static_assert(BLOCK == 64)"
    (tmp_path / "evil/kernels.py").write_text(KERNEL.format(body=body, **fill))
    assert '"compiled":true' in compiled(tmp_path / "evil", tmp_path / "out")
