"""Run as a program: build the model classes of the model types on the command line from small configurations, run each
once in evaluation mode, and print as JSON what every forward of transformers and torch.nn did, line by line.

The other side of the comparison in tests/sweep/index_lines.py; shares no code with the index. Three observers: a
dispatch mode says at which lines of the forwards on the stack an operator ran, a function mode at which a function of
torch was called, and a profile hook which Python or C function each call expression entered. A call is known by the
source text between its ends, which the compiled code remembers (`co_positions`).

Shapes of the answer, one per class of object and `def forward`: `computed` and `touched` are line numbers, `calls` are
[line, text, whether an operator ran in it, targets], a target is ["def", file, line, name], ["class", name],
["module", name, file, line] or ["c", name].
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import gc
import importlib
import inspect
import json
import os
import signal
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, PreTrainedModel
from transformers.models.auto import configuration_auto, modeling_auto

SECONDS = 40
ROOT = f"{Path(transformers.__file__).parents[1]}{os.sep}"
#: functions of torch that describe a tensor
METADATA = {"size", "dim", "stride", "numel", "__get__", "is_floating_point", "is_complex", "__len__", "data_ptr"}
#: where torch computes what an operator makes of meta tensors, and what comes before: Python that C code enters
_INNER = tuple(
    f"{ROOT}torch/{name}"
    for name in ("_decomp", "_refs", "_prims", "_meta_registrations", "_dynamo", "_compile", "compiler", "utils/_pytree",
                 "utils/_inspect", "_subclasses", "_library", "_ops", "fx", "_higher_order_ops")
)  # fmt: skip
_CALLS = {number for name, number in dis.opmap.items() if name.startswith(("CALL", "PRECALL"))}


# ---------------------------------------------------------------- source


@functools.cache
def source(file: str) -> tuple[list[bytes], dict[tuple[int, int], ast.Call], dict[tuple[str, int], int]]:
    """Lines; calls by where they end; (name, line of the first decorator or of the `def`) -> line of the `def`."""
    with open(file, "rb") as stream:  # noqa: PTH123 (a program of its own)
        data = stream.read()
    calls: dict[tuple[int, int], ast.Call] = {}
    definitions: dict[tuple[str, int], int] = {}
    for node in ast.walk(ast.parse(data)):
        if isinstance(node, ast.Call):
            calls[node.end_lineno or 0, node.end_col_offset or 0] = node
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            for line in [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]:
                definitions[node.name, line] = node.lineno
    return data.split(b"\n"), calls, definitions


def definition(code: types.CodeType) -> tuple[str, int]:
    """File below the root and line of the `def`; the file is empty where the code has no source below the root."""
    file = code.co_filename
    if not file.startswith(ROOT) or not Path(file).is_file():
        return "", 0
    line = source(file)[2].get((code.co_name, code.co_firstlineno), code.co_firstlineno)
    return file.removeprefix(ROOT), line


def text(file: str, start: tuple[int, int], end: tuple[int, int]) -> str:
    lines = source(file)[0][start[0] - 1 : end[0]]
    if len(lines) == 1:
        return lines[0][start[1] : end[1]].decode()
    first, last = lines[0][start[1] :], lines[-1][: end[1]]
    return " ".join(b" ".join([first, *lines[1:-1], last]).decode().split())


@functools.cache
def positions(code: types.CodeType) -> list[tuple[Any, ...]]:
    return list(code.co_positions())


def call_at(frame: types.FrameType) -> tuple[int, int] | None:
    """Where the call expression ends that the frame is in; None where it is in something else."""
    code, at = frame.f_code, frame.f_lasti
    while at > 0 and code.co_code[at] == 0:  # the last of the CACHE words behind the instruction
        at -= 2
    if code.co_code[at] not in _CALLS:
        return None
    place = positions(code)[at // 2]
    return (place[1], place[3]) if place[1] is not None else None


def qualified(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


# ---------------------------------------------------------------- what ran


class Record:
    """What the forwards did. Keys are (class of the object, code of its forward)."""

    def __init__(self) -> None:
        self.computed: dict[Any, set[int]] = {}
        self.touched: dict[Any, set[int]] = {}
        self.within: dict[Any, dict[tuple[int, int], int]] = {}
        self.calls: dict[Any, dict[tuple[int, int], tuple[int, set[tuple[Any, ...]]]]] = {}
        self.owners: dict[types.CodeType, types.CodeType] = {}

    def is_forward(self, frame: types.FrameType) -> bool:
        code = frame.f_code
        if code.co_name != "forward" or not code.co_filename.startswith(ROOT) or not code.co_argcount:
            return False
        if code not in self.owners:
            self._own(code, code)
        return isinstance(frame.f_locals.get(code.co_varnames[0]), nn.Module)

    def _own(self, code: types.CodeType, owner: types.CodeType) -> None:
        self.owners[code] = owner
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._own(constant, owner)

    def places(self, frame: types.FrameType | None) -> Iterator[tuple[Any, list[types.FrameType]]]:
        """Each forward on the stack with the frames that are its own, its body's first: those of code nested in it follow."""
        inner: list[types.FrameType] = []
        while frame is not None:
            if self.owners.get(frame.f_code) not in (None, frame.f_code):
                inner.append(frame)
            elif self.is_forward(frame):
                own = [frame, *(f for f in reversed(inner) if self.owners[f.f_code] is frame.f_code)]
                inner = [f for f in inner if f not in own]
                yield (type(frame.f_locals[frame.f_code.co_varnames[0]]), frame.f_code), own
            frame = frame.f_back

    def operator_ran(self) -> None:
        for key, frames in self.places(sys._getframe(2)):
            self.computed.setdefault(key, set()).add(frames[-1].f_lineno)
            self.within.setdefault(key, {}).update({c: f.f_lineno for f in frames if (c := call_at(f))})

    def function_called(self) -> None:
        for key, frames in self.places(sys._getframe(2)):
            self.touched.setdefault(key, set()).add(frames[-1].f_lineno)
            break

    def profile(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call":
            if frame.f_code.co_filename.startswith(_INNER):
                return
            target, caller = entered(frame), frame.f_back
            while caller is not None and self.owners.get(caller.f_code) is None and not self.is_forward(caller):
                if not is_wrapper(caller):
                    return
                caller = caller.f_back
        elif event == "c_call":
            target, caller = ("c", str(argument.__name__)), frame
            if caller.f_code not in self.owners and not self.is_forward(caller):
                return
        else:
            return
        own = self.owners.get(frame.f_code)
        if caller is None or (own is not None and own is not frame.f_code and own is self.owners.get(caller.f_code)):
            return  # a comprehension of the forward's own
        where = call_at(caller)
        found = next(self.places(caller), None)
        if where is not None and found is not None:
            known = self.calls.setdefault(found[0], {}).setdefault(where, (caller.f_lineno, set()))
            known[1].add(target)


def is_wrapper(frame: types.FrameType) -> bool:
    """Whether a frame hands the call on: the closure of a decorator, or what stands between a module and its forward."""
    code = frame.f_code
    return "<locals>" in code.co_qualname or code.co_name in {"_wrapped_call_impl", "_call_impl"}


def entered(frame: types.FrameType) -> tuple[Any, ...]:
    code = frame.f_code
    first: Any = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    if code.co_name == "_wrapped_call_impl":
        run = getattr(inspect.unwrap(first.forward), "__code__", None)
        return ("module", qualified(type(first)), *(definition(run) if run is not None else ("", 0)))
    if code.co_name in {"__init__", "__new__"}:
        cls = first if isinstance(first, type) else type(first)
        return ("class", qualified(cls))
    return ("def", *definition(code), code.co_name)


class Operators(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.record.operator_ran()
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in METADATA:
            self.record.function_called()
        return func(*args, **(kwargs or {}))


# ---------------------------------------------------------------- small models

_DEPTH = {
    "num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "depth",
    "num_encoder_layers", "num_decoder_layers", "vision_layers", "text_layers", "num_block_records",
}  # fmt: skip


class TimeUpError(BaseException):
    pass


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeUpError

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def shallow(config: Any, depth: int = 4) -> Any:
    """Fewer layers, where an integer says how many; a list of layer types is cut along."""
    names = set(vars(config))
    for name in _DEPTH & names:
        value = getattr(config, name)
        if isinstance(value, int) and value > depth:
            setattr(config, name, depth)
    for name in names:
        value = getattr(config, name, None)
        if name in {"layer_types", "mlp_layer_types", "layers_block_type"} and isinstance(value, list):
            with contextlib.suppress(Exception):
                setattr(config, name, value[:depth])
        if isinstance(value, transformers.PreTrainedConfig):
            shallow(value, depth)
    return config


def narrow(config: Any) -> Any:
    """Widths of a model that a processor runs in a moment; only fields that stand for themselves."""
    small = {"vocab_size": 512, "intermediate_size": 96, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "moe_intermediate_size": 32,
             "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2,
             "topk_group": 2, "max_position_embeddings": 512}  # fmt: skip
    for name, value in small.items():
        known = vars(config).get(name)
        if isinstance(known, int) and known > value:
            setattr(config, name, value)
    for value in vars(config).values():
        if isinstance(value, transformers.PreTrainedConfig):
            narrow(value)
    return config


def side(config: Any) -> tuple[int, int]:
    size = getattr(config, "image_size", None) or getattr(getattr(config, "vision_config", None), "image_size", None)
    if isinstance(size, dict):
        size = (size.get("height", 224), size.get("width", 224))
    if isinstance(size, list | tuple) and len(size) >= 2:
        return int(size[-2]), int(size[-1])
    return (size, size) if isinstance(size, int) else (224, 224)


def inputs(model: Any, device: str) -> Iterator[dict[str, Any]]:
    """Arguments that the model's forward may take, the likeliest first."""
    config = model.config
    names = inspect.signature(model.forward).parameters
    height, width = side(config)
    channels = getattr(config, "num_channels", None) or 3
    ids = torch.ones((2, 8), dtype=torch.int64, device=device)
    mels = next(
        (
            v
            for n in ("num_mel_bins", "feature_size", "input_feat_per_channel", "input_dim")
            if isinstance(v := getattr(config, n, None), int)
        ),
        80,
    )
    frames = 2 * getattr(config, "max_source_positions", 64)
    hidden = next(
        (v for n in ("hidden_size", "d_model", "embed_dim", "dim") if isinstance(v := getattr(config, n, None), int)),
        64,
    )

    def floats(*shape: int) -> Any:
        return torch.ones(shape, device=device) * 0.1

    table: dict[str, Any] = {
        "input_ids": ids, "decoder_input_ids": ids, "pixel_values": floats(2, channels, height, width),
        "input_features": floats(2, mels, frames), "input_values": floats(2, 16000),
        "attention_mask": torch.ones_like(ids), "bbox": torch.zeros((2, 8, 4), dtype=torch.int64, device=device),
    }  # fmt: skip
    chosen = {n: v for n, v in table.items() if n in names and n != "attention_mask"}
    alone = "input_ids" in chosen and len(chosen) > 1 and "decoder_input_ids" not in chosen and "pixel_values" in chosen
    if alone:
        yield {"input_ids": ids}
    if "input_values" in chosen:
        yield {**chosen, "input_values": floats(2, 1, 16000)} if "padding_mask" in names else chosen
        yield {
            **chosen,
            "input_values": floats(
                2, getattr(config, "max_length", 1024) or 1024, getattr(config, "num_mel_bins", 128) or 128
            ),
        }
    if chosen:
        yield chosen
        if "attention_mask" in names and "input_ids" in chosen:
            yield {**chosen, "attention_mask": torch.ones_like(ids), **({"labels": ids} if "labels" in names else {})}
    if "input_features" in chosen:
        yield {**chosen, "input_features": floats(2, 64, mels)}
        yield {**chosen, "input_features": floats(2, mels, 3000)}
    if "pixel_values" in chosen:
        yield {**chosen, "pixel_values": floats(1, getattr(config, "num_frames", 4) or 4, channels, height, width)}
    embeds = floats(2, 8, hidden)
    for name in ("inputs_embeds", "hidden_states", "decoder_inputs_embeds", "hidden_state", "input_embeds"):
        if name in names and name not in chosen:
            yield {name: embeds}
    patch, merge = getattr(config, "patch_size", 14), getattr(config, "spatial_merge_size", 2)
    if "grid_thw" in names and isinstance(patch, int):
        steps = 4 * (merge or 1)
        flat = floats(steps * steps, channels * patch * patch * (getattr(config, "temporal_patch_size", 2) or 1))
        yield {"hidden_states": flat, "grid_thw": torch.tensor([[1, steps, steps]], device=device)}


def classes(model_type: str, wanted: str = "") -> list[Any]:
    """The model classes of the modeling file of a type."""
    module = configuration_auto.model_type_to_module_name(model_type)
    loaded = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    return [
        cls
        for cls in vars(loaded).values()
        if isinstance(cls, type)
        and issubclass(cls, PreTrainedModel)
        and cls.__module__ == loaded.__name__
        and (not wanted or cls.__name__ == wanted)
        and getattr(getattr(cls, "forward", None), "__name__", "") == "forward"
    ]


def config_for(cls: Any, model_type: str) -> Any:
    kind = cls.config_class
    main = AutoConfig.for_model(model_type)
    if getattr(main, "prediction_length", 0) is None:
        main.prediction_length = 4
    pending = [main]
    while pending:
        here = pending.pop()
        if kind is not None and type(here) is kind:
            return here
        pending.extend(v for v in vars(here).values() if isinstance(v, transformers.PreTrainedConfig))
    return kind() if kind is not None else main


def run(cls: Any, model_type: str, record: Record) -> str:
    """'whole' where one of the inputs runs through, else the reason why the last one did not."""
    reason = ""
    for device, depth in (("meta", 4), ("cpu", 4), ("meta", 10)):  # some kinds of layers stand only deeper
        try:
            config = shallow(config_for(cls, model_type), depth)
            config = narrow(config) if device == "cpu" else config
            with torch.device(device):
                model = cls(config).eval()
                if device == "cpu" and sum(p.numel() for p in model.parameters()) > 4e8:
                    return reason or "too large"
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error)[:100]}"
            continue
        for arguments in inputs(model, device):
            try:
                with torch.no_grad():
                    with Operators(record), Functions(record):
                        model(**arguments)
                    whole = True
            except Exception as error:
                whole = False
                reason = f"{type(error).__name__}: {str(error)[:100]}"
            for held in gc.get_objects():  # what the first pass left in a cache would not be called again
                if isinstance(held, functools._lru_cache_wrapper):
                    with contextlib.suppress(Exception):
                        if held.__wrapped__.__code__.co_filename.startswith(ROOT + "transformers"):
                            held.cache_clear()
            sys.setprofile(record.profile)
            try:
                with torch.no_grad():
                    model(**arguments)
            except Exception:
                pass
            finally:
                sys.setprofile(None)
            if whole:
                return "whole"
    return reason


def answer(record: Record) -> list[dict[str, Any]]:
    found = []
    for key in {**record.computed, **record.calls, **record.touched}:
        cls, code = key
        file, line = definition(code)
        within = record.within.get(key, {})
        calls = []
        seen = record.calls.get(key, {})
        for end in {**seen, **dict.fromkeys(within)}:
            node = source(code.co_filename)[1].get(end)
            if node is not None:
                at, targets = seen.get(end, (within.get(end, 0), set()))
                shown = text(code.co_filename, (node.lineno, node.col_offset), end)
                calls.append([at, shown, end in within, sorted(targets, key=str)])
        found.append(
            {
                "class": qualified(cls), "file": file, "line": line,
                "computed": sorted(record.computed.get(key, ())), "touched": sorted(record.touched.get(key, ())),
                "calls": calls,
            }
        )  # fmt: skip
    return found


def describe(name: str) -> dict[str, Any]:
    """`type` or `type:Class`."""
    model_type, _, wanted = name.partition(":")
    record, ran = Record(), {}
    for cls in classes(model_type, wanted):
        try:
            with limit(SECONDS):
                ran[cls.__name__] = run(cls, model_type, record)
        except TimeUpError:
            ran[cls.__name__] = "time is up"
        finally:
            sys.setprofile(None)
    return {"type": name, "ran": ran, "forwards": answer(record)}


def main() -> None:
    """One child process a type, so that memory is given back; a line of JSON for each."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    torch.set_num_threads(1)
    for name in sys.argv[1:] or sorted(modeling_auto.MODEL_MAPPING_NAMES):
        sys.stdout.flush()
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            continue
        try:
            print(json.dumps(describe(name)), flush=True)  # noqa: T201 (its answer)
        except BaseException as error:
            print(json.dumps({"type": name, "ran": {"": repr(error)[:200]}, "forwards": []}), flush=True)  # noqa: T201
        os._exit(0)


if __name__ == "__main__":
    main()
