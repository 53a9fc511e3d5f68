"""The options of each tool, typed: what `Session`'s methods take by name. Written by `make golden` from the tools' own models."""

# fmt: off
from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, TypedDict


class MapRepoOptions(TypedDict, total=False):
    """Of `map_repo`."""

    section: Literal["overview", "modules", "entry_points", "commands", "environment", "flags", "config", "llm", "components", "loop", "kv_cache", "scheduler", "sampling", "kernels", "extensions", "pitfalls"] | None
    entry: str | None
    detail: Literal["summary", "full"]
    offset: int
    limit: int
    whole: bool


class ResolveClassOptions(TypedDict, total=False):
    """Of `resolve_class`."""

    config: str | Mapping[str, Any] | None
    repo: str | None
    offset: int
    limit: int
    subclass_offset: int
    subclass_limit: int
    user_offset: int
    user_limit: int
    whole: bool


class FindForwardOptions(TypedDict, total=False):
    """Of `find_forward`."""

    config: str | Mapping[str, Any] | None
    repo: str | None
    offset: int
    limit: int | None
    whole: bool


class FindReferencesOptions(TypedDict, total=False):
    """Of `find_references`."""

    repo: str | None
    kind: Literal["call", "import", "export", "subclass", "instantiate", "annotation", "read", "write", "define", "decorator", "string"] | None
    verified_only: bool
    offset: int
    limit: int
    whole: bool


class SearchSourceOptions(TypedDict, total=False):
    """Of `search_source`."""

    repo: str | None
    offset: int
    limit: int
    whole: bool


class ExtractConfigOptions(TypedDict, total=False):
    """Of `extract_config`."""

    repo: str | None
    config: str | Mapping[str, Any] | None
    section: Literal["hyperparameters", "kernels", "constraints", "constants"] | None
    detail: Literal["summary", "full"]
    offset: int
    limit: int
    whole: bool


class InspectModelOptions(TypedDict, total=False):
    """Of `inspect_model`."""

    config: str | Mapping[str, Any] | None
    whole: bool


class CountFlopsOptions(TypedDict, total=False):
    """Of `count_flops`."""

    phase: Literal["prefill", "decode", "encode", "train"]
    config: str | Mapping[str, Any] | None
    values: Mapping[str, int | Fraction] | None
    attention: Literal["sdpa", "eager"]
    logits: Literal["all", "last"]
    view: Literal["eager", "serving"]
    inputs: Mapping[str, Sequence[str | int]] | None
    instance: str
    detail: Literal["numbers", "formulas"]
    hardware: str
    whole: bool


class ExpandRefsOptions(TypedDict, total=False):
    """Of `expand_refs`."""

    phase: Literal["prefill", "decode", "encode", "train"]
    config: str | Mapping[str, Any] | None
    values: Mapping[str, int | Fraction] | None
    attention: Literal["sdpa", "eager"]
    logits: Literal["all", "last"]
    view: Literal["eager", "serving"]
    inputs: Mapping[str, Sequence[str | int]] | None
    instance: str
    detail: Literal["numbers", "formulas"]
    hardware: str
    depth: int | None
    whole: bool


class TraceDataflowOptions(TypedDict, total=False):
    """Of `trace_dataflow`."""

    phase: Literal["prefill", "decode", "encode", "train"]
    config: str | Mapping[str, Any] | None
    values: Mapping[str, int | Fraction] | None
    attention: Literal["sdpa", "eager"]
    logits: Literal["all", "last"]
    view: Literal["eager", "serving"]
    inputs: Mapping[str, Sequence[str | int]] | None
    instance: str
    detail: Literal["numbers", "formulas"]
    whole: bool


class EstimateRooflineOptions(TypedDict, total=False):
    """Of `estimate_roofline`."""

    phase: Literal["prefill", "decode", "encode", "serve", "train"]
    config: str | Mapping[str, Any] | None
    values: Mapping[str, int | Fraction] | None
    precision: Mapping[Literal["weights", "cache", "activations"], Literal["bf16", "fp8", "fp8_block", "int8", "int4", "mxfp4", "nvfp4"] | Literal["fp16"]] | None
    parallel: Mapping[Literal["tp", "pp", "ep", "dp", "sp", "zero"], int] | None
    serving: Mapping[Literal["concurrency", "input_len", "output_len"], int] | None
    speculative: Mapping[str, Any] | None
    backend: Literal["vllm", "trtllm", "sglang"]
    view: Literal["eager", "serving"]
    whole: bool


class PlanOptions(TypedDict, total=False):
    """Of `plan`."""

    goal: Literal["latency", "throughput", "cost"]
    input_len: int
    output_len: int
    weights: Sequence[Literal["bf16", "fp8", "fp8_block", "int8", "int4", "mxfp4", "nvfp4"]] | None
    tpot_limit: float | None
    price: float | None
    config: str | Mapping[str, Any] | None
    backend: Literal["vllm", "trtllm", "sglang"]
    whole: bool


class SweepOptions(TypedDict, total=False):
    """Of `sweep`."""

    phase: Literal["prefill", "decode", "encode"]
    values: Mapping[str, Sequence[int] | int | str]
    config: str | Mapping[str, Any] | None
    hardware: Sequence[str] | None
    weights: Sequence[str] | None
    columns: Sequence[str] | None
    whole: bool


class CompareOptions(TypedDict, total=False):
    """Of `compare`."""

    sides: Sequence[Mapping[str, Any]] | None
    phase: Literal["prefill", "decode", "encode", "train"]
    config: str | Mapping[str, Any] | None
    values: Mapping[str, Any] | None
    hardware: str
    by: Literal["flops", "bytes", "seconds"] | None
    whole: bool


class CudaKernelTilingOptions(TypedDict, total=False):
    """Of `cuda_kernel_tiling`."""

    repo: str | None
    arch: str | None
    compile: bool
    values: Mapping[str, bool | int | float | str | None] | None
    sizes: Mapping[str, int] | None
    instance: str | None
    probe: Sequence[str]
    limit: int
    offset: int
    detail: Literal["screen", "summary", "full"]
    diagram: Literal["ascii", "svg"] | None
    kind: Literal["triton", "cuda", "tilelang", "cutile", "cute_dsl", "gluon", "cutlass", "kernel", "device_function"] | None
    op: str | None
    tile: str | None
    file: str | None
    whole: bool


class CollectEvidenceOptions(TypedDict, total=False):
    """Of `collect_evidence`."""

    workload: Mapping[str, int | str] | None
    only: Sequence[str] | None
    machine: str
    needs: Literal["any", "cpu", "gpu"]
    whole: bool


class ImportEvidenceOptions(TypedDict, total=False):
    """Of `import_evidence`."""

    collector: str | None
    machine: str
    whole: bool


class WriteReportOptions(TypedDict, total=False):
    """Of `write_report`."""

    kind: Literal["implementation", "repo", "post"]
    target: str | None
    sections: Mapping[str, str] | None
    phases: Sequence[Literal["prefill", "decode", "encode"]] | None
    config: str | Mapping[str, Any] | None
    values: Mapping[str, int] | None
    hardware: str
    kernel: str | None
    ridge: float | None
    html: bool
    overwrite: bool
    whole: bool


class CheckReportOptions(TypedDict, total=False):
    """Of `check_report`."""

    fix: bool
    regenerate: bool
    whole: bool


class SweepRooflineOptions(TypedDict, total=False):
    """Of `sweep_roofline`."""

    phase: Literal["prefill", "decode", "encode", "serve", "train"]
    config: str | Mapping[str, Any] | None
    values: Mapping[str, int | Fraction] | None
    precision: Mapping[Literal["weights", "cache", "activations"], Literal["bf16", "fp8", "fp8_block", "int8", "int4", "mxfp4", "nvfp4"] | Literal["fp16"]] | None
    parallel: Mapping[Literal["tp", "pp", "ep", "dp", "sp", "zero"], int] | None
    serving: Mapping[Literal["concurrency", "input_len", "output_len"], int] | None
    speculative: Mapping[str, Any] | None
    backend: Literal["vllm", "trtllm", "sglang"]
    view: Literal["eager", "serving"]
    plot: Literal["roofline", "classes", "timeline"] | None
    whole: bool
