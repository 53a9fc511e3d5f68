"""From stack frames to source lines.

A module call is a boundary on the stack (`recorder.traced_call`). Between an operator and the innermost boundary lie
the frames of that module's forward, of wrappers around it, and of helpers it calls. The forward's own line is the
kernel's line; helpers are `via`, outermost first.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from opscope_schemas.analysis import CallSite, Site

#: where Sequential's forward stands, which calls its modules
_CONTAINERS = "torch/nn/modules/container.py"
#: torch's own machinery between a line of model code and an operator is not source that anybody analyses
_MACHINERY = ("torch/_", "torch/utils/", "torch/nn/functional.py", "torch/nn/modules/module.py", "torch/overrides.py",
              "torch/fx/", "torch/autograd/", "torch/functional.py", "torch/library.py", "torch/_ops.py", _CONTAINERS)  # fmt: skip


def _folders(module: ModuleType) -> list[str]:
    """The folders of a package; none of a module."""
    return list(getattr(module, "__path__", ()))


def names_in(frame: FrameType) -> dict[str, Any]:
    """What the names of a running function are bound to.

    Before Python 3.13 a frame keeps the dictionary that it tells, and by it each tensor until the function ends: it is emptied.
    """
    told = frame.f_locals
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return dict(told)
    found = dict(told)
    told.clear()  # of a function it is a copy; of a class or a module it would be the names themselves
    return found


class Frames:
    """Reads stacks relative to a set of source roots."""

    def __init__(self, boundary: CodeType) -> None:
        self._boundary = boundary
        self._relative: dict[str, str | None] = {}
        self._relative_any: dict[str, str] = {}
        self._forward: dict[type, tuple[CodeType, ...]] = {}
        self._definitions: dict[type, tuple[str, int]] = {}
        # a package that was named by its folder is on no search path
        loaded = {Path(p).parent for m in list(sys.modules.values()) if "." not in m.__name__ for p in _folders(m)}
        searched = {Path(p) for p in sys.path if p}
        self._roots = sorted({str(p.resolve()) for p in loaded | searched}, key=len, reverse=True)

        self._libraries = {
            str(Path(place).resolve())
            for name in ("stdlib", "platstdlib", "purelib", "platlib")
            if (place := sysconfig.get_path(name))
        }

    def relative(self, filename: str) -> str | None:
        """The path as results print it, or None for what is no analysable source."""
        if filename not in self._relative:
            self._relative[filename] = self._shorten(filename)
        return self._relative[filename]

    def _shorten(self, filename: str) -> str | None:
        if filename.startswith("<") or "/opscope_tools/" in filename:
            return None
        resolved = str(Path(filename).resolve())
        for root in self._roots:
            if resolved.startswith(root + "/"):
                path = resolved[len(root) + 1 :]
                if "/" not in path and root in self._libraries:  # a module of the standard library, or a small package
                    return None
                return None if path.startswith(_MACHINERY) else path
        return None

    def codes(self, kind: type) -> tuple[CodeType, ...]:
        """Code objects of a class's forward, outermost wrapper first, the function as written last."""
        if kind not in self._forward:
            self.runs_instead(kind, getattr(kind, "forward", None))
        return self._forward[kind]

    def runs_instead(self, kind: type, function: Any) -> None:
        """The function that a class's forward is."""
        found: list[CodeType] = []
        while function is not None:
            code = getattr(function, "__code__", None)
            if code is not None:
                found.append(code)
            function = getattr(function, "__wrapped__", None)
        self._forward[kind] = tuple(found)

    def site(self, frame: FrameType | None, kind: type | None) -> tuple[Site | None, CodeType | None]:
        """Where `frame` is in the forward of `kind`, and the code object that is that forward."""
        stack: list[tuple[CodeType, int]] = []
        while frame is not None and frame.f_code is not self._boundary:
            stack.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        stack.reverse()  # outermost first
        codes = self.codes(kind) if kind is not None else ()
        at = self._forward_frame(stack, codes)
        visible = [(code, line) for code, line in stack[at:] if self._is_told(code, codes)]
        if not visible:
            return None, None
        (code, line), *helpers = visible
        via = tuple(
            CallSite(function=c.co_qualname.rpartition(".")[2], file=self.relative_any(c.co_filename), line=n)
            for c, n in helpers
            if not c.co_name.startswith("<")
        )
        text = linecache.getline(code.co_filename, line).strip()
        return Site(file=self.relative_any(code.co_filename), line=line, code=text, via=via), code

    def _is_told(self, code: CodeType, codes: tuple[CodeType, ...]) -> bool:
        """Whether results name the lines of a function: of torch's machinery only a forward that itself calls modules, a container's."""
        if self.relative(code.co_filename) is not None:
            return True
        return code in codes and self.relative_any(code.co_filename) == _CONTAINERS

    def _forward_frame(self, stack: list[tuple[CodeType, int]], codes: tuple[CodeType, ...]) -> int:
        """Index of the forward's frame: the function as written, else what the innermost wrapper runs instead of it."""
        place = {code: index for index, (code, _) in enumerate(stack)}
        for depth in range(len(codes) - 1, -1, -1):
            at = place.get(codes[depth])
            if at is None:
                continue
            if depth == len(codes) - 1:
                return at
            inner = [i for i in range(at + 1, len(stack)) if self.relative(stack[i][0].co_filename) is not None]
            return inner[0] if inner else at
        return 0

    def definition(self, kind: type) -> tuple[str, int]:
        """File and line of the class statement."""
        if kind not in self._definitions:
            self._definitions[kind] = self._defined(kind)
        return self._definitions[kind]

    def _defined(self, kind: type) -> tuple[str, int]:
        try:
            file = inspect.getsourcefile(kind) or ""
            statement = re.compile(rf"\s*class\s+{kind.__name__}\b")
            lines = [n for n, text in enumerate(linecache.getlines(file), 1) if statement.match(text)]
            if len(lines) != 1:  # defined twice, or in a function: Python's own reader decides
                lines = [_keyword_line(file, inspect.getsourcelines(kind)[1], ("class ",))]
            return self.relative_any(file), lines[0]
        except (OSError, TypeError):
            return "", 0

    def relative_any(self, filename: str) -> str:
        """As `relative`, also for torch's machinery."""
        if filename not in self._relative_any:
            resolved = str(Path(filename).resolve())
            root = next((root for root in self._roots if resolved.startswith(root + "/")), None)
            self._relative_any[filename] = filename if root is None else resolved[len(root) + 1 :]
        return self._relative_any[filename]

    def forward_definition(self, kind: type) -> tuple[str, int]:
        """File and line of the `def` of the forward as written (decorators above it not counted)."""
        codes = self.codes(kind)
        if not codes:
            return "", 0
        return self.code_definition(codes[-1])

    def code_definition(self, code: CodeType) -> tuple[str, int]:
        """File and line of the `def` keyword of a code object: its first line may be a decorator."""
        line = _keyword_line(code.co_filename, code.co_firstlineno, ("def ", "async def "))
        return self.relative_any(code.co_filename), line


def _keyword_line(filename: str, first: int, words: tuple[str, ...]) -> int:
    """The first line from `first` on that starts with one of `words`: a definition begins with its decorators."""
    for line in range(first, first + 200):
        if linecache.getline(filename, line).lstrip().startswith(words):
            return line
    return first
