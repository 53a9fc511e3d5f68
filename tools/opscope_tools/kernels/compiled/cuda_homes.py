"""Where a CUDA kernel can be compiled and as which instance: what source names, and the files that lead to the kernel's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from opscope_schemas.common import Repository
from opscope_schemas.errors import OpscopeError
from opscope_schemas.resources import NamedInstance
from opscope_schemas.tiling import KernelTiling

from opscope_tools.kernels.compiled.cuda_instance import CudaInstance, explicit_instances, namespaces_at
from opscope_tools.kernels.compiled.headers import Headers
from opscope_tools.kernels.compiled.nvcc_build import provided
from opscope_tools.kernels.cuda.source_text import CSource, split_arguments
from opscope_tools.source.files import fingerprint, read_text

#: template arguments that mean the same wherever they are written
_CONCRETE = re.compile(
    r"-?\d+|true|false|float|double|int|half|__half|__nv_bfloat16|u?int\d+_t|char|unsigned|c10::\w+|at::\w+"
)
#: files that include a kernel's own and are tried where that alone does not compile
_TRIED = 3


class Homes:
    """The files in which one kernel can be compiled, its own first, and the instances that these name."""

    def __init__(self, repository: Repository, kernel: KernelTiling) -> None:
        self.repository, self.kernel = repository, kernel
        self.content = fingerprint(repository)
        self._headers = Headers(repository, provided())
        launching = {launch.file or kernel.file for launch in kernel.grid}
        including = self._headers.including(kernel.file)
        self._files = [kernel.file, *sorted(including, key=lambda f: f not in launching)]
        self.named = list(self._named())

    def folders(self, file: str) -> list[str]:
        """The folders to look for headers in."""
        return list(map(str, self._headers.folders(file)))

    def wanted(self, spelled: str) -> list[CudaInstance]:
        """The instance in each file that it may be compiled in, in the order to try; raises where source names none.

        `spelled` as a caller gives it; '' for the first that is launched, or else made by name.
        """
        if not spelled:
            spelled = self.named[0].instance if self.named else "" if self._template else self.kernel.name
        if not spelled:
            templates = [c for c in self.kernel.constexpr if c.kind == "template"]
            raise OpscopeError(
                f"{self.kernel.name} is a template, and nothing names all its arguments: give instance, "
                f"such as {self.kernel.name}<{', '.join(c.type or c.name for c in templates)}>."
            )
        makes = {one.file for one in self.named if one.instance.replace(" ", "") == spelled.replace(" ", "")}
        files = [self.kernel.file, *sorted(self._files[1:], key=lambda f: f not in makes)]
        source = CSource(self.kernel.file, read_text(self.repository, self.kernel.file) or "")
        name = self.kernel.name
        spaces = namespaces_at(source, self.kernel.line, name)
        if spelled == name and len(re.findall(rf"\bvoid\s+{re.escape(name)}\s*\(", source.statements)) > 1:
            spelled = f"{name}({', '.join(p.type for p in self.kernel.parameters)})"  # one of several of this name
        return [CudaInstance(f, name, spelled, spaces, tuple(self.folders(f))) for f in files[: 1 + _TRIED]]

    @property
    def _template(self) -> bool:
        return any(c.kind == "template" for c in self.kernel.constexpr)

    def _named(self) -> Iterator[NamedInstance]:
        """Each instance once: launched with arguments that no host template leaves open, or made by name."""
        seen: set[str] = set()
        for launch in self.kernel.grid:
            found = re.fullmatch(r"(?:\w+::)*(\w+)\s*+<(.*)>", launch.kernel.strip())
            arguments = split_arguments(found[2]) if found else []
            if found and arguments and all(map(_CONCRETE.fullmatch, arguments)):
                spelled = f"{found[1]}<{', '.join(arguments)}>"
                if spelled not in seen:
                    seen.add(spelled)
                    file = launch.file or self.kernel.file
                    yield NamedInstance(instance=spelled, by="launch", file=file, line=launch.line)
        for file in self._files if self._template else ():
            source = CSource(file, read_text(self.repository, file) or "")
            for one in explicit_instances(source, self.kernel.name):
                if one.instance not in seen:
                    seen.add(one.instance)
                    yield one


__all__ = ["Homes"]
