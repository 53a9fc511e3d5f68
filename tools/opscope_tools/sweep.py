"""The MCP tool `sweep`: one table over models, sizes, fields of a configuration and devices.

A trace serves every point at which its formulas hold; others are traced anew. Counts are those of `count_flops` with the last position's
logits; on hardware, counts and times of one device are those of `estimate_roofline`.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from opscope_cache.trees import IMPORTED
from opscope_schemas.common import ToolArguments
from opscope_schemas.errors import CancelledError, OpscopeError, UnknownNameError, ValuesError
from opscope_schemas.formula import Rational, evaluate, whole_bytes
from opscope_schemas.tables import Cell, TableResult
from pydantic import Field

from opscope_tools.costing.arguments import sources
from opscope_tools.estimate_roofline.parallel import check
from opscope_tools.estimate_roofline.predicting import Model, Replica, Timing, swept
from opscope_tools.estimate_roofline.tool import Precision, RooflineArguments, devices_of, timing_of
from opscope_tools.hardware.calibration import calibration_for
from opscope_tools.running.config_files import Config, is_whole
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.trace.document import module_analysis

#: rows of one table, and of those that an agent is given
_MOST, _SHOWN = 20_000, 40
#: sizes at which a trace may be asked again without looking for another
_MOVED = ("batch_size", "seq_len", "cache_len")
Counted = Literal[
    "flops", "matmul_flops", "bytes_read", "bytes_written", "parameters", "weights_bytes", "cache_bytes", "peak_activation_bytes",
]  # fmt: skip
Times = Literal[
    "bytes",
    "bound_seconds",
    "calibrated_seconds",
    "low_seconds",
    "high_seconds",
    "limited_by",
    "tokens_per_second",
    "fits",
]
_COUNTED: tuple[Counted, ...] = ("flops", "bytes_read", "bytes_written", "weights_bytes", "cache_bytes")
_TIMED: tuple[Counted | Times, ...] = (
    "flops", "bytes", "weights_bytes", "cache_bytes", "bound_seconds", "calibrated_seconds", "limited_by", "tokens_per_second", "fits",
)  # fmt: skip
#: of a device's own pass, where there is one
_OF_DEVICE = (*get_args(Times), "flops", "weights_bytes", "cache_bytes")
_COUNTS = "Counts are of the eager pass with the last position's logits."
_ON_DEVICE = (
    "Times, flops, bytes, weights_bytes and cache_bytes are of one device's share of the pass as engines run it; "
    "matmul_flops, bytes_read, bytes_written, parameters and peak_activation_bytes of the whole eager pass."
)
_Others = tuple[tuple[str, int], ...]
_SPAN = re.compile(r"(\d{1,9})\.\.(\d{1,9})(?:([+*])(\d{1,9}))?")


class SweepArguments(ToolArguments):
    """Arguments of `sweep`."""

    targets: list[str] = Field(min_length=1, max_length=200, description="Models.")
    phase: Literal["prefill", "decode", "encode"] = Field(default="decode", description="Which pass.")
    values: dict[str, list[int] | int | str] = Field(
        default_factory=dict,
        description="{'batch_size': '1..256*2', 'cache_len': [1024, 8192]}.",
    )
    config: Config = Field(
        default=None, description="A config.json's path or content, or overrides, whose lists are varied."
    )
    hardware: list[str] | None = Field(default=None, description="Devices (`h100_sxm:4`): times.")
    weights: list[str] | None = Field(default=None, description="Precisions to try: bf16, fp8, int4, ...")
    columns: list[str] | None = Field(default=None, description="Default: totals, and times on hardware.")


def sweep(arguments: SweepArguments, context: ToolContext) -> TableResult:
    """Raises `ValuesError` for sizes that are none and for too many points; what fails at a point is said in its row."""
    sizes = {name: sizes_of(name, each) for name, each in arguments.values.items()}
    given = arguments.config
    overrides = {} if given is None or isinstance(given, str) or is_whole(given) else given
    varied = {n: x if isinstance(x, list) else [x] for n, x in overrides.items()}
    devices = arguments.hardware or [""]
    precisions: Sequence[str | None] = arguments.weights or [None]
    asked = list(itertools.product(arguments.targets, precisions, *varied.values()))
    points = [dict(zip(sizes, chosen, strict=True)) for chosen in itertools.product(*sizes.values())]
    if (count := len(asked) * len(points) * len(devices)) > _MOST:
        raise ValuesError(f"{count:,} points are more than {_MOST:,}.", next_step="Take larger steps.")
    columns = _columns(arguments)
    if arguments.hardware and arguments.phase == "encode":
        raise ValuesError("Times of a sweep are of a prefill or of a decode step.", next_step="Leave hardware away.")
    if unknown := [name for name in arguments.weights or () if name not in get_args(Precision)]:
        raise UnknownNameError("precision", unknown[0], get_args(Precision))
    for device in filter(None, devices):
        devices_of(device, None, context)  # a name that is none ends it here, not in every row
    rows: list[tuple[Cell, ...]] = []
    problems: dict[str, int] = {}
    beyond: dict[str, int] = {}
    for target, weights, *fields in asked:
        config = dict(zip(varied, fields, strict=True))
        precision = {"weights": weights} if weights else None
        first = RooflineArguments.model_validate(
            {
                "target": target,
                "hardware": "h100_sxm",
                "phase": arguments.phase,
                "config": config or given or None,
                "precision": precision,
            }
        )
        traces = _Traces(first, context)
        for point, device in itertools.product(points, devices):
            context.checkpoint()
            if len(rows) % 100 == 0:
                context.progress(len(rows), count, f"{target}: {len(rows):,} of {count:,} points")
            try:
                row = _Row(*traces.at(point))
                room = row.timing.room
                if room is not None and row.values.get("seq_len", 0) + row.values.get("cache_len", 0) > room:
                    far = f"{target}: more tokens than the {room:,} positions that the config makes room for."
                    beyond[far] = beyond.get(far, 0) + 1
                if device and arguments.phase != "encode":
                    row = _timed(row, traces.replica(device, point), arguments.phase)
                cells = [row.cell(name) for name in columns]
            except CancelledError:
                raise
            except OpscopeError as error:
                problems[str(error)] = problems.get(str(error), 0) + 1
                cells = [None] * len(columns)
            named = (
                target,
                *([weights] if weights else []),
                *config.values(),
                *point.values(),
                *([device] if device else []),
            )
            rows.append((*named, *cells))
    titles = (
        "target",
        *(["weights"] if arguments.weights else []),
        *varied,
        *sizes,
        *(["hardware"] if arguments.hardware else []),
    )
    said = tuple(f"{n} of {count:,} points: {message}" for message, n in (problems | beyond).items())
    return TableResult(
        columns=(*titles, *columns), rows=tuple(rows), count=len(rows), varied=len(titles), sources=sources(context.workspace),
        notes=(_ON_DEVICE if arguments.hardware else _COUNTS, *said),
    )  # fmt: skip


def _columns(arguments: SweepArguments) -> tuple[str, ...]:
    if arguments.columns is None:
        return _TIMED if arguments.hardware else _COUNTED
    known = (*get_args(Counted), *get_args(Times))
    if unknown := [name for name in arguments.columns if name not in known]:
        raise UnknownNameError(
            "column", unknown[0], difflib.get_close_matches(unknown[0], known, n=3, cutoff=0.3) or known
        )
    if not arguments.hardware and (timed := [name for name in arguments.columns if name in get_args(Times)]):
        raise ValuesError(f"{timed[0]} is of a device.", next_step="Give hardware, as in ['h100_sxm'].")
    return tuple(arguments.columns)


def sizes_of(name: str, given: list[int] | int | str) -> list[int]:
    """`8`, `[1, 2]`, `'1..256'`, `'1..256*2'`, `'8..64+8'`, `'1,2,4'`. Raises `ValuesError` for anything else.

    >>> sizes_of("batch_size", "1..16*2"), sizes_of("batch_size", "1,5")
    ([1, 2, 4, 8, 16], [1, 5])
    """
    if isinstance(given, int):
        return [given]
    if isinstance(given, list):
        found = given
    elif (span := _SPAN.fullmatch(given.strip())) is not None:
        found = list(_steps(int(span[1]), int(span[2]), span[3] or "+", int(span[4] or 1)))
    else:
        found = [int(part) for part in given.split(",")] if re.fullmatch(r"\d{1,9}(,\d{1,9})*", given.strip()) else []
    if not found:
        raise ValuesError(
            f"{name} cannot be {str(given)[:60]!r}.",
            next_step="Sizes are 8, [1, 2], '1,2,4', '1..256', '8..64+8' or '1..256*2'.",
        )
    return found


def _steps(size: int, last: int, sign: str, step: int) -> Iterator[int]:
    if size < 1 or step < (2 if sign == "*" else 1):
        return
    for _ in range(_MOST + 1):
        if size > last:
            return
        yield size
        size = size * step if sign == "*" else size + step


@dataclass
class _Traces:
    """The traces of one model that were made so far, each for the points at which it holds."""

    arguments: RooflineArguments
    context: ToolContext
    held: dict[_Others, list[Timing]] = field(default_factory=dict)
    replicas: dict[tuple[str, _Others], Replica] = field(default_factory=dict)

    def at(self, point: Mapping[str, int]) -> tuple[Timing, dict[str, Rational]]:
        """The trace that holds at the point, and all its values there."""
        moved = {n: x for n, x in point.items() if n in _MOVED}
        others = _others(point)
        known = self.held.setdefault(others, [])
        own = (known[0].found.values or {}) if known else {}
        sizes = {**{n: int(x) for n, x in own.items() if n in _MOVED}, **moved}
        timing = next((one for one in known if one.holds(**sizes)), None)
        if timing is None:
            timing = timing_of(self.arguments, point, self.context, fused=False)
            known.append(timing)
            sizes = {**{n: int(x) for n, x in (timing.found.values or {}).items() if n in _MOVED}, **moved}
        return timing, timing.exactly(**sizes)

    def replica(self, hardware: str, point: Mapping[str, int]) -> Replica:
        """The model on a device."""
        others = _others(point)
        if (hardware, others) not in self.replicas:
            device, parallel = devices_of(hardware, None, self.context)
            model = Model(lambda _, sizes: timing_of(self.arguments, {**dict(others), **sizes}, self.context))
            made = Replica(model, device, calibration_for(device), self.arguments.backend, parallel)
            first, _ = self.at(point)
            check(first.of, first.at(), parallel)
            self.replicas[hardware, others] = made
        return self.replicas[hardware, others]


def _others(point: Mapping[str, int]) -> _Others:
    return tuple(sorted((n, x) for n, x in point.items() if n not in _MOVED))


@dataclass(frozen=True)
class _Row:
    timing: Timing
    values: Mapping[str, Rational]
    times: Mapping[str, Cell] = field(default_factory=dict)

    def cell(self, name: str) -> Cell:
        if name in self.times:
            return self.times[name]
        found = self.timing.found
        document = module_analysis(found.tree, found.call)
        totals, flow = document.totals, self.timing.memory.flow
        texts: Mapping[str, Callable[[], tuple[str, bool]]] = {
            "flops": lambda: (totals.flops, False), "matmul_flops": lambda: (totals.matmul_flops, False),
            "bytes_read": lambda: (totals.memory_access.read, True), "bytes_written": lambda: (totals.memory_access.write, True),
            "parameters": lambda: (document.parameters, False), "weights_bytes": lambda: (document.weights, True),
            "cache_bytes": lambda: (flow.cache.after if flow.cache is not None else "0", True),
            "peak_activation_bytes": lambda: (flow.peak_activations, True),
        }  # fmt: skip
        text, in_bytes = texts[name]()
        return None if not text else whole_bytes(text, self.values) if in_bytes else evaluate(text, self.values)


def _timed(row: _Row, replica: Replica, phase: Literal["prefill", "decode"]) -> _Row:
    """With the times of the pass on a device."""
    length = "seq_len" if phase == "prefill" else "cache_len"
    if row.values.get("seq_len", 1) != 1 and phase == "decode":
        raise ValuesError("Times of a decode step are of one new token.", next_step="Leave seq_len away.")
    found = swept(replica, phase, int(row.values.get("batch_size", 1)), int(row.values.get(length, 1)))
    return _Row(
        row.timing,
        row.values,
        {name: getattr(found, name) for name in _OF_DEVICE},
    )


def _brief(result: TableResult) -> TableResult:
    if len(result.rows) <= _SHOWN:
        return result
    last = len(result.rows) - 1
    kept = dict.fromkeys(round(n * last / (_SHOWN - 1)) for n in range(_SHOWN))
    said = f"{_SHOWN} rows of {result.count:,} are given, evenly apart; the artifact is whole."
    return result.model_copy(update={"rows": tuple(result.rows[n] for n in kept), "shortened": said})


SWEEP: Tool[SweepArguments, TableResult] = Tool(
    name="sweep",
    title="One table over many points",
    description="Counts, memory and times of models at many sizes, on many devices: one table.",
    arguments=SweepArguments,
    result=TableResult,
    run=sweep,
    sources=IMPORTED,
    files=lambda workspace: workspace.device_files,
    positional=("targets",),
    brief=_brief,
    lane=lambda _: "trace",
)
