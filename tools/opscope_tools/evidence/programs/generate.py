"""Generates tokens with a small model of transformers whose weights are random, and marks where loading, prefill and decode begin and end.

Runs in any interpreter that has torch and transformers: `python generate.py --layers 4 --tokens 32`. A mark is a question about a file
that is not there (`/__opscope__/decode_begin`), which every tracer of system calls shows; with `--control` it also switches perf on
for the decode, and with `--pause` the program names the mark on stdout and waits for a line on stdin. The last line on stdout is what
was found, as JSON: seconds of each step, bytes and addresses of the cache, what the kernel counted in each phase.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

MARKS = "/__opscope__/"
#: tokens of the run that fills caches, allocators and code paths before anything is counted
WARM = 2


class Marks:
    """Says where a phase begins and ends, and keeps what the kernel counted in between."""

    def __init__(self, pause: bool, control: str) -> None:
        self.pause = pause
        self.control = [Path(one).open(mode, buffering=0) for one, mode in zip(control.split(","), ("wb", "rb"), strict=True)] if control else []  # fmt: skip # noqa: SIM115 - open for as long as this runs
        self.known: dict[str, Any] = {}
        self.counted: dict[str, dict[str, float]] = {}
        self._before: dict[str, float] = {}

    def begin(self, phase: str) -> None:
        """A phase begins; what the kernel has counted so far is noted before the mark."""
        self._before = counters()
        self._wait(f"{phase}_begin")
        self._switch(phase, "enable")
        mark(f"{phase}_begin")

    def end(self, phase: str) -> None:
        """It ends; what was counted since is kept after the mark."""
        mark(f"{phase}_end")
        self._switch(phase, "disable")
        self._wait(f"{phase}_end")
        after = counters()
        self.counted[phase] = {name: round(after[name] - self._before.get(name, 0), 6) for name in after}

    def _wait(self, name: str) -> None:
        if self.pause:
            print(json.dumps({"mark": name, "pid": os.getpid(), **self.known}), flush=True)
            sys.stdin.readline()

    def _switch(self, phase: str, word: str) -> None:
        if self.control and phase == "decode":
            self.control[0].write(f"{word}\n".encode())
            self.control[1].read(5)  # "ack\n" and a zero byte


def mark(name: str) -> None:
    """One system call that names itself."""
    with contextlib.suppress(OSError):
        os.stat(MARKS + name)


def counters() -> dict[str, float]:
    """What the kernel has counted of this process, all threads, and of the machine's interrupts."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = {
        "minor_faults": used.ru_minflt, "major_faults": used.ru_majflt,
        "voluntary_switches": used.ru_nvcsw, "involuntary_switches": used.ru_nivcsw,
        "user_seconds": used.ru_utime, "system_seconds": used.ru_stime,
    }  # fmt: skip
    with contextlib.suppress(OSError, ValueError):
        lists = [file.read_text().split() for file in Path("/proc/self/task").glob("*/schedstat")]
        found["running_seconds"] = sum(int(one[0]) for one in lists) / 1e9
        found["waiting_seconds"] = sum(int(one[1]) for one in lists) / 1e9
    with contextlib.suppress(OSError):
        for line in Path("/proc/interrupts").read_text().splitlines()[1:]:
            name, *counts = line.split()
            if name.rstrip(":") in ("LOC", "RES", "CAL", "TLB"):
                found[f"interrupts_{name.rstrip(':')}"] = sum(int(one) for one in counts if one.isdecimal())
    return found


def memory() -> dict[str, int]:
    """Bytes of this process by `/proc/self/smaps_rollup`."""
    found = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
            name, _, rest = line.partition(":")
            if name in ("Rss", "Pss", "Private_Dirty", "Private_Clean", "Shared_Clean", "AnonHugePages", "Anonymous"):
                found[name.lower()] = int(rest.split()[0]) * 1024
    return found


def options() -> argparse.Namespace:
    """What the command line gives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama", help="a model type of transformers that generates text")
    for name, size, told in (
        ("hidden", 512, "hidden_size"), ("layers", 4, "num_hidden_layers"), ("heads", 8, "num_attention_heads"),
        ("kv-heads", 8, "num_key_value_heads"), ("intermediate", 1376, "intermediate_size"), ("vocab", 4096, "vocab_size"),
        ("batch", 1, "sequences"), ("prompt", 64, "tokens of each prompt"), ("tokens", 32, "tokens that are generated"),
        ("threads", 1, "threads of torch"), ("repeat", 1, "how often it generates"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=size, help=told)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--pause", action="store_true", help="wait at each mark for a line on stdin")
    parser.add_argument("--control", default="", metavar="CTL,ACK", help="perf's fifos: count in the decode alone")
    parser.add_argument("--profile", action="store_true", help="torch.profiler around the decode")
    return parser.parse_args()


def load(given: argparse.Namespace) -> Any:
    """The model, of the sizes that its configuration knows, with random weights."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    torch.manual_seed(0)
    sizes = {
        "hidden_size": given.hidden, "num_hidden_layers": given.layers, "num_attention_heads": given.heads,
        "num_key_value_heads": given.kv_heads, "intermediate_size": given.intermediate, "vocab_size": given.vocab,
        "max_position_embeddings": max(given.prompt + given.tokens + WARM, 64),
    }  # fmt: skip
    kind = CONFIG_MAPPING[given.model]
    held = kind().to_dict()
    known = {name: size for name, size in sizes.items() if name in held or name in getattr(kind, "attribute_map", {})}
    ends = {name: None for name in ("pad_token_id", "bos_token_id", "eos_token_id") if name in held}
    config = kind(**known, **ends)
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, given.dtype)).eval()
    return model.to(given.device)


class Streamer:
    """Told by `generate` of the prompt first and of each token after it: the first token ends the prefill."""

    def __init__(self, marks: Marks, device: str) -> None:
        self.marks, self.device, self.told = marks, device, 0
        self.times: list[float] = []

    def put(self, _: Any) -> None:
        """The prompt, then each token."""
        self.told += 1
        if self.told == 2:
            self.settle()
            self.times.append(time.perf_counter())
            self.marks.end("prefill")
            self.marks.begin("decode")
        if self.told >= 2:
            self.settle()
            self.times.append(time.perf_counter())

    def end(self) -> None:
        """No more tokens come."""
        self.marks.end("decode")

    def settle(self) -> None:
        """Wait until the device has done what it was given."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()


def generate(model: Any, given: argparse.Namespace, marks: Marks | None, tokens: int) -> tuple[Any, list[float]]:
    """One call of `generate`: what it returns, and when the prefill began and each token came."""
    import torch

    torch.manual_seed(1)
    prompt = torch.randint(1, given.vocab, (given.batch, given.prompt), device=given.device)
    asked = {
        "max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "return_dict_in_generate": True,
        "attention_mask": torch.ones_like(prompt), "pad_token_id": 0,
    }  # fmt: skip
    if marks is None:
        return model.generate(prompt, **asked), []
    streamer = Streamer(marks, given.device)
    # a streamer takes one sequence: of a batch it is told by hand
    marks.begin("prefill")
    began = time.perf_counter()
    hook = model.register_forward_hook(_Batch(streamer)) if given.batch > 1 else None
    out = model.generate(prompt, **asked, **({} if given.batch > 1 else {"streamer": streamer}))
    if hook is not None:
        hook.remove()
        streamer.end()
    return out, [began, *streamer.times]


def counted(model: Any, given: argparse.Namespace, marks: Marks) -> tuple[Any, list[float]]:
    """The call that is looked at; samplers of stacks know it by this name."""
    return generate(model, given, marks, given.tokens)


class _Batch:
    """Tells the streamer of each forward of the whole batch."""

    def __init__(self, streamer: Streamer) -> None:
        self.streamer = streamer
        streamer.told = 1

    def __call__(self, *_: Any) -> None:
        self.streamer.put(None)


def cache_of(past: Any) -> dict[str, Any]:
    """Bytes of the cache, and where the first layer's keys lie."""
    held = [tensor for layer in past.layers for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None)) if tensor is not None]  # fmt: skip
    if not held:
        return {}
    keys = held[0]
    first = keys.detach().float().cpu().reshape(-1)[:8].tolist()
    return {
        "cache_bytes": sum(one.nbytes for one in held), "cache_tokens": keys.shape[-2], "keys_address": keys.data_ptr(),
        "keys_shape": list(keys.shape), "keys_stride": list(keys.stride()), "keys_first": first,
    }  # fmt: skip


def main() -> None:
    """Load, generate, and print what was found."""
    given = options()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    marks = Marks(given.pause, given.control)
    marks.begin("load")
    import torch
    import transformers

    torch.set_num_threads(given.threads)
    with torch.inference_mode():
        model = load(given)
        marks.end("load")
        generate(model, given, None, WARM)
        runs: list[list[float]] = []
        out: Any = None
        profiler = torch.profiler.profile(activities=_activities(torch, given.device)) if given.profile else contextlib.nullcontext()  # fmt: skip
        with profiler as profile:
            for _ in range(given.repeat):
                out, times = counted(model, given, marks)
                runs.append(times)
        found = cache_of(out.past_key_values)
    marks.known = found
    marks.begin("after")
    marks.end("after")
    print(json.dumps({
        "torch": torch.__version__, "transformers": transformers.__version__, "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "parameters": sum(one.numel() for one in model.parameters()), "weight_bytes": sum(one.nbytes for one in model.parameters()),
        # an embedding is read by the rows of its tokens, unless the head uses the same matrix
        "streamed_bytes": sum(one.nbytes for one in model.parameters()) - sum(one.weight.nbytes for one in model.modules() if isinstance(one, torch.nn.Embedding) and not _shared(one, model)),
        "plain": _plain(model), "linears": sum(isinstance(one, torch.nn.Linear) for one in model.modules()),
        "prefill_seconds": [times[1] - times[0] for times in runs],
        "step_seconds": [[after - before for before, after in itertools.pairwise(times[2:])] for times in runs],
        "counted": marks.counted, "memory": memory(), **found,
        **({"operators": _operators(profile)} if given.profile else {}),
    }), flush=True)  # fmt: skip


def _plain(model: Any) -> bool:
    """Whether every matrix but those of embeddings is a linear layer's, and attention is of heads: no experts, convolutions, states."""
    import torch

    owners = (torch.nn.Linear, torch.nn.Embedding)
    held = {id(one.weight) for one in model.modules() if isinstance(one, owners)}
    others = any(one.ndim > 1 and id(one) not in held for one in model.parameters())
    return not others and getattr(model.config, "_attn_implementation", "") == "sdpa"


def _shared(embedding: Any, model: Any) -> bool:
    """Whether the head's matrix is the embedding's."""
    head = model.get_output_embeddings()
    return head is not None and head.weight is embedding.weight


def _activities(torch: Any, device: str) -> list[Any]:
    known = torch.profiler.ProfilerActivity
    return [known.CPU, *([known.CUDA] if device == "cuda" else [])]


def _operators(profile: Any) -> list[dict[str, Any]]:
    rows = sorted(profile.key_averages(), key=lambda one: -one.self_cpu_time_total)
    return [
        {"name": one.key, "calls": one.count, "self_us": round(one.self_cpu_time_total, 1), "device_us": round(getattr(one, "self_device_time_total", 0), 1)}
        for one in rows[:40]
    ]  # fmt: skip


if __name__ == "__main__":
    main()
