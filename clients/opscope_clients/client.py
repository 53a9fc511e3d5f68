"""opscope for scripts: every tool as a method with a typed result, over a server of its own or one that runs already.

    from opscope_clients import Session

    with Session() as opscope:
        cost = opscope.count_flops("LlamaMLP", values={"batch_size": 1, "seq_len": 128})
        print(cost.document.totals.flops)

Results are the schemas' own types (`opscope_schemas`), whole unless `whole=False`: what the server shortens for agents is
read back from the artifact. A tool that refuses raises `CallError` with its sentence; a server that cannot be reached, or
ends, raises `OpscopeError`. `AsyncSession` is the same for asyncio and trio.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal
from opscope_schemas.analysis import ModelAnalysisResult, ModelTreeResult, ModuleAnalysisResult
from opscope_schemas.common import ToolArguments, ToolResult
from opscope_schemas.comparison import CompareResult
from opscope_schemas.dataflow import DataflowResult
from opscope_schemas.errors import OpscopeError
from opscope_schemas.estimates import PlanResult, RooflineResult, SweepResult
from opscope_schemas.evidence import CollectEvidenceResult, ImportEvidenceResult, Topic
from opscope_schemas.extracted_config import ExtractConfigResult
from opscope_schemas.index import FindForwardResult, ResolveClassResult
from opscope_schemas.references import FindReferencesResult
from opscope_schemas.repo_map import RepoMapResult
from opscope_schemas.report import CheckReportResult, WriteReportResult
from opscope_schemas.search import SearchSourceResult
from opscope_schemas.tables import TableResult
from opscope_schemas.tiling import TilingResult
from opscope_tools.check_report import CHECK_REPORT
from opscope_tools.collect_evidence.importing import IMPORT_EVIDENCE
from opscope_tools.collect_evidence.tool import COLLECT_EVIDENCE
from opscope_tools.compare.tool import COMPARE
from opscope_tools.count_flops import COUNT_FLOPS
from opscope_tools.cuda_kernel_tiling import CUDA_KERNEL_TILING
from opscope_tools.estimate_roofline.planning import PLAN
from opscope_tools.estimate_roofline.sweeping import SWEEP
from opscope_tools.estimate_roofline.tool import ESTIMATE_ROOFLINE
from opscope_tools.expand_refs import EXPAND_REFS
from opscope_tools.extract_config.tool import EXTRACT_CONFIG
from opscope_tools.find_forward import FIND_FORWARD
from opscope_tools.find_references import FIND_REFERENCES
from opscope_tools.inspect_model import INSPECT_MODEL
from opscope_tools.map_repo import MAP_REPO
from opscope_tools.resolve_class.tool import RESOLVE_CLASS
from opscope_tools.running.tool import Tool
from opscope_tools.search_source import SEARCH_SOURCE
from opscope_tools.sweep import SWEEP as TABLE
from opscope_tools.trace_dataflow import TRACE_DATAFLOW
from opscope_tools.write_report import WRITE_REPORT

from opscope_clients import signatures
from opscope_clients.connection import Connection, Progress, Server, connected, own_server, server_at, translated
from opscope_clients.session_options import SessionOptions

__all__ = ["AsyncSession", "Session"]

A = TypeVar("A", bound=ToolArguments)
R = TypeVar("R", bound=ToolResult)


class AsyncSession:
    """A connection to an opscope server, for `async with`.

    `url`: a running server (`opscope serve --http`), `token`: the one it asks for (default: OPSCOPE_HTTP_TOKEN); without `url`
    a server is started over stdio, which ends with the session.
    `repositories`: name -> folder of source to read; `trust`: those whose code tracing may import; `python`: the interpreter
    that traces; `output`: the folder that reports are written under; `cache_folder`: where results are kept; `config_folders`: where
    configurations may be read from by their path, beside the repositories and the output folder; `device_files`: tables of your
    own devices. `progress` is told what a running tool says. All but `url`, `token` and `progress` are options of the server that is started.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        repositories: Mapping[str, str | Path] | None = None,
        trust: Sequence[str] = (),
        python: str | Path | None = None,
        output: str | Path | None = None,
        cache_folder: str | Path | None = None,
        config_folders: Sequence[str | Path] = (),
        device_files: Sequence[str | Path] = (),
        progress: Progress | None = None,
    ) -> None:
        options = SessionOptions(
            repo=tuple(f"{name}={path}" for name, path in (repositories or {}).items()), trust=tuple(trust),
            python=str(python) if python else None, cache_dir=str(cache_folder) if cache_folder else None,
            output=str(output) if output else None, config_dir=tuple(map(str, config_folders)), device_file=tuple(map(str, device_files)),
        )  # fmt: skip
        arguments = options.server_arguments()
        if url is not None and arguments:
            raise OpscopeError(
                "A running server has its own repositories and folders.",
                next_step="Give either `url`, or options of a server to start.",
            )
        self._server: Server = own_server(arguments) if url is None else server_at(url, token)
        self._progress = progress
        self._connection: Connection | None = None
        self._held = contextlib.AsyncExitStack()

    async def __aenter__(self) -> AsyncSession:
        if self._connection is not None:
            raise OpscopeError("The session is open already.", next_step="Make another one to have two at once.")

        async def story() -> None:
            self._connection = await self._held.enter_async_context(connected(self._server))

        await translated(story, self._server)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection = None
        await translated(self._held.aclose, self._server)

    async def call(self, tool: Tool[A, R], *, whole: bool = True, **arguments: Any) -> R:
        """Run `tool`; what it was shortened by is read back where `whole`. Raises `CallError`, `OpscopeError`."""
        if self._connection is None:
            raise OpscopeError("The session is not open.", next_step="Use it in a `with` block.")
        connection = self._connection
        found: dict[str, Any] = {}

        async def story() -> None:
            given = {name: value for name, value in arguments.items() if value is not None}
            answer = await connection.call(tool.name, given, self._progress)
            if whole and answer.get("shortened") and answer.get("artifact"):
                link = answer["artifact"]
                answer = {**json.loads(await connection.read(link)), "artifact": link}
            found.update(answer)

        await translated(story, self._server)
        return tool.result.model_validate(found)


class Session:
    """A connection to an opscope server, for `with`; the same arguments as `AsyncSession`.

    Each method is the tool of its name: the first argument is its subject, `options` are the tool's further arguments
    (`opscope TOOL --help` lists them), and `whole=False` takes the shortened answer that an agent would get.
    """

    def __init__(self, url: str | None = None, **options: Any) -> None:
        self._session = AsyncSession(url, **options)
        self._held = contextlib.ExitStack()
        self._portal: BlockingPortal | None = None

    def __enter__(self) -> Session:
        if self._portal is not None:
            raise OpscopeError("The session is open already.", next_step="Make another one to have two at once.")
        with contextlib.ExitStack() as held:
            portal = held.enter_context(start_blocking_portal())
            held.enter_context(portal.wrap_async_context_manager(self._session))
            self._portal, self._held = portal, held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal = None
        self._held.__exit__(kind, error, trace)

    def open(self) -> Session:
        """The same without a `with` block, as a notebook needs it; until `close`."""
        return self.__enter__()

    def close(self) -> None:
        """End the connection, and a server that was started for it."""
        self.__exit__(None, None, None)

    def call(self, tool: Tool[A, R], *, whole: bool = True, **arguments: Any) -> R:
        """Run any tool of the catalogue. Raises `CallError` where it refuses."""
        if self._portal is None:
            raise OpscopeError("The session is not open.", next_step="Use it in a `with` block.")
        result: R = self._portal.call(partial(self._session.call, tool, whole=whole, **arguments))
        return result

    def map_repo(self, repo: str, **options: Unpack[signatures.MapRepoOptions]) -> RepoMapResult:
        """What is in a repository, how it is entered, and how its engine loops."""
        return self.call(MAP_REPO, repo=repo, **options)

    def resolve_class(self, name: str, **options: Unpack[signatures.ResolveClassOptions]) -> ResolveClassResult:
        """What a class name means and what the class is made of."""
        return self.call(RESOLVE_CLASS, name=name, **options)

    def find_forward(self, target: str, **options: Unpack[signatures.FindForwardOptions]) -> FindForwardResult:
        """The forward that runs, line by line."""
        return self.call(FIND_FORWARD, target=target, **options)

    def find_references(self, target: str, **options: Unpack[signatures.FindReferencesOptions]) -> FindReferencesResult:
        """Who uses a definition."""
        return self.call(FIND_REFERENCES, target=target, **options)

    def search_source(self, query: str, **options: Unpack[signatures.SearchSourceOptions]) -> SearchSourceResult:
        """What words and structure find in source."""
        return self.call(SEARCH_SOURCE, query=query, **options)

    def extract_config(self, target: str, **options: Unpack[signatures.ExtractConfigOptions]) -> ExtractConfigResult:
        """What configures an implementation and what it demands."""
        return self.call(EXTRACT_CONFIG, target=target, **options)

    def inspect_model(self, model: str, **options: Unpack[signatures.InspectModelOptions]) -> ModelTreeResult:
        """The module tree of a model."""
        return self.call(INSPECT_MODEL, model=model, **options)

    def count_flops(self, target: str, **options: Unpack[signatures.CountFlopsOptions]) -> ModuleAnalysisResult:
        """What each line of a module's forward costs."""
        return self.call(COUNT_FLOPS, target=target, **options)

    def expand_refs(self, target: str, **options: Unpack[signatures.ExpandRefsOptions]) -> ModelAnalysisResult:
        """What a whole model costs, down to operators."""
        return self.call(EXPAND_REFS, target=target, **options)

    def trace_dataflow(self, target: str, **options: Unpack[signatures.TraceDataflowOptions]) -> DataflowResult:
        """The operator graph of a pass, its memory and its communication."""
        return self.call(TRACE_DATAFLOW, target=target, **options)

    def estimate_roofline(
        self, target: str, hardware: str, **options: Unpack[signatures.EstimateRooflineOptions]
    ) -> RooflineResult:
        """How long a pass takes on a device, and whether it fits."""
        return self.call(ESTIMATE_ROOFLINE, target=target, hardware=hardware, **options)

    def plan(self, target: str, hardware: str, **options: Unpack[signatures.PlanOptions]) -> PlanResult:
        """Ways to serve a model on several devices, and those that no other beats."""
        return self.call(PLAN, target=target, hardware=hardware, **options)

    def sweep(self, targets: Sequence[str], **options: Unpack[signatures.SweepOptions]) -> TableResult:
        """One table over models, sizes, fields of a configuration and devices."""
        return self.call(TABLE, targets=list(targets), **options)

    def compare(self, targets: Sequence[str], **options: Unpack[signatures.CompareOptions]) -> CompareResult:
        """Sides of one question beside each other: totals, and what makes them differ."""
        return self.call(COMPARE, targets=list(targets), **options)

    def sweep_roofline(
        self, target: str, hardware: str, **options: Unpack[signatures.SweepRooflineOptions]
    ) -> SweepResult:
        """Time and memory of a pass at every batch with every context."""
        return self.call(SWEEP, target=target, hardware=hardware, **options)

    def cuda_kernel_tiling(self, target: str, **options: Unpack[signatures.CudaKernelTilingOptions]) -> TilingResult:
        """How GPU kernels are tiled."""
        return self.call(CUDA_KERNEL_TILING, target=target, **options)

    def collect_evidence(
        self, topic: Topic, **options: Unpack[signatures.CollectEvidenceOptions]
    ) -> CollectEvidenceResult:
        """What profiling tools say of a small model that runs on this machine, one record for each."""
        return self.call(COLLECT_EVIDENCE, topic=topic, **options)

    def import_evidence(
        self, topic: Topic, path: str, **options: Unpack[signatures.ImportEvidenceOptions]
    ) -> ImportEvidenceResult:
        """Records of another machine, or the text that a tool printed there, taken into the records of a topic."""
        return self.call(IMPORT_EVIDENCE, topic=topic, path=path, **options)

    def write_report(self, name: str, **options: Unpack[signatures.WriteReportOptions]) -> WriteReportResult:
        """Write a report; `ok` is false, and nothing is saved, where its checks find problems."""
        return self.call(WRITE_REPORT, name=name, **options)

    def check_report(self, path: str, **options: Unpack[signatures.CheckReportOptions]) -> CheckReportResult:
        """Check a saved report again."""
        return self.call(CHECK_REPORT, path=path, **options)
