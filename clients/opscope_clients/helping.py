"""What `--help` says: commands in groups, a line each; an example of every command; how a command ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

#: the ends of every command, as `console.guarded` makes them
STATUSES = (
    (0, "answered"),
    (1, "no answer, and stderr says why; or the answer is no: nothing found, a check failed, no plan fits"),
    (2, "wrong usage"),
    (130, "interrupted"),
    (141, "the reader of the output has gone"),
    (143, "terminated"),
)

#: by group, each command's line and an example of it
COMMANDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Ask about a model": {
        "resolve-class": ("what a class is made of, and where it is", "LlamaAttention"),
        "find-forward": ("the forward that runs, line by line", "gpt_neox"),
        "find-references": ("who calls, builds, reads or sets it", "LlamaConfig.rope_parameters"),
        "search-source": ("what words and structure find in source", "'where is the key value cache updated'"),
        "extract-config": ("what configures it and what it demands", "gemma3 --section constraints"),
        "inspect-model": ("the module tree, with parameters", "llama"),
        "count-flops": ("FLOPs and bytes of one module", "LlamaAttention --phase decode"),
        "expand-refs": ("the same of a whole model", "mixtral --values batch_size=1 --values seq_len=512"),
        "trace-dataflow": ("memory of a pass, and what it communicates", "llama --phase decode"),
    },
    "Time and memory": {
        "estimate": ("how long a pass takes, and whether it fits", "llama --hardware h100_sxm --batch 32 --context 1024"),
        "estimate-roofline": ("the same with every argument as JSON", "llama --hardware h100_sxm"),
        "plan": ("ways to serve a model on several devices", "Qwen/Qwen3-8B --hardware h100_sxm:8"),
        "compare": ("what differs, down to the line", "meta-llama/Llama-3.1-8B Qwen/Qwen3-8B --batch 1 --seq 4096"),
        "sweep": ("one table over models, sizes and devices", "llama --values 'batch_size=1..256*2' --hardware h100_sxm"),
    },
    "Kernels": {
        "cuda-kernel-tiling": ("how CUDA and Triton kernels are tiled", "_triton_rope --repo liger=/path/to/liger_kernel"),
    },
    "Repositories": {
        "map-repo": ("what is where: ways in, parts, the loop", "vllm=/path/to/vllm"),
        "index": ("build the indexes of source now", "--repo vllm=/path/to/vllm"),
    },
    "Reports": {
        "analyze": ("analyse a model or repository, save a report", "llama"),
        "view": ("the report as a page with live formulas", "llama --hardware h100_sxm"),
        "post": ("a post on what a model does to hardware", "cache-hierarchy --collect"),
        "collect-evidence": ("run a topic's profilers, keep records", "cache-hierarchy"),
        "import-evidence": ("take in what another machine said", "memory-bandwidth ncu.csv --collector gpu-copies-counters"),
        "write-report": ("the report alone", "implementation llama --html"),
        "check-report": ("a saved report's claims, checked again", "reports/implementations/llama-analysis.md --fix"),
        "module": ("write module_analysis.json", "--module LlamaRMSNorm"),
        "model": ("write model_analysis.json", "--model LlamaMLP"),
        "inspect": ("the module tree, of a hub id too", "--model-id llama"),
    },
    "Set-up": {
        "doctor": ("what is there, what is missing", ""),
        "install": ("put the server into a host's config", "claude-code --project"),
        "uninstall": ("take it out again", "claude-code --project"),
        "serve": ("start the MCP server", "--http --port 8765"),
        "cache": ("the cache of results and the indexes", "info"),
    },
}  # fmt: skip
#: by command, its line and its example; those below another command too
_LINES = {name: (line, f"{name} {given}".strip()) for group in COMMANDS.values() for name, (line, given) in group.items()} | {
    "info": ("where the cache is and what it holds", "cache info"), "clear": ("forget all of it", "cache clear"),
}  # fmt: skip
_NAMED = [name for group in COMMANDS.values() for name in group]


class GroupedCommands(click.Group):
    """The commands below their headings, those that no heading names last. Each is made by `make` when it is asked for, since one needs little of what all need."""

    def __init__(self, *given: Any, make: Callable[[str], click.Command], **others: Any) -> None:
        super().__init__(*given, **others)
        self.make = make

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        """The names, made or not."""
        del ctx
        return [*_NAMED, *(name for name in self.commands if name not in _NAMED)]

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        """The command, with its example; None where there is none of that name."""
        del ctx
        if cmd_name in self.list_commands(None) and cmd_name not in self.commands:
            self.add_command(self.make(cmd_name), cmd_name)
        if (found := self.commands.get(cmd_name)) is not None:
            _give_example(cmd_name, found)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each."""
        del ctx
        width = max(map(len, self.list_commands(None)))
        groups = {title: {name: line for name, (line, _) in group.items()} for title, group in COMMANDS.items()}
        others = {name: one.get_short_help_str(46) for name, one in self.commands.items() if name not in _NAMED}
        for title, lines in (groups | {"More": others}).items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), line) for name, line in lines.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write how a command ends."""
        del ctx
        with formatter.section("Exit status"):
            formatter.write_dl([(str(number).ljust(3), meaning) for number, meaning in STATUSES])


def below(command: click.Command) -> dict[str, click.Command]:
    """The commands of a group, made; none of another command."""
    if not isinstance(command, click.Group):
        return {}
    context = click.Context(command)
    found = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return {name: one for name, one in found.items() if one is not None}


def _give_example(name: str, command: click.Command) -> None:
    """Give a command, and those below it, the example and the line where a shell lists it."""
    if name in _LINES:
        command.short_help, example = _LINES[name]
        command.epilog = f"\b\nExample:\n  opscope {example}"
    for one, made in below(command).items():
        _give_example(one, made)


__all__ = ["COMMANDS", "STATUSES", "GroupedCommands", "below"]
