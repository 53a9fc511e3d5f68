"""What a file is for, by its place: source, tests, examples, benchmarks, documentation, tools, code of others."""

from __future__ import annotations

import re
from collections.abc import Collection

#: role -> names of folders that hold such files, wherever they stand
_FOLDERS = {
    "third party": {"third_party", "3rdparty", "thirdparty", "vendor", "vendored", "_vendor", "extern", "external"},
    "tests": {"test", "tests", "testing", "unittest", "unittests", "fixtures"},
    "benchmarks": {"bench", "benches", "benchmark", "benchmarks"},
    "examples": {"example", "examples", "demo", "demos", "cookbook", "cookbooks", "tutorial", "tutorials", "samples", "recipes"},
}  # fmt: skip
#: the same, only outside packages
_OUTSIDE = {
    "documentation": {"doc", "docs", "documentation", "website"},
    "tools": {"tools", "scripts", "ci", ".ci", ".github", ".buildkite", ".circleci", ".gitlab", "hack", "dev"},
    "build": {"docker", "dockerfiles", "cmake", "requirements", "conda", "packaging"},
}
_TEST_FILE = re.compile(r"^(test_.*|.*_tests?|conftest|testing_utils|test_utils)\.py$")
_BENCH_FILE = re.compile(r"^(bench|benchmark)(_.*)?\.py$|.*_bench(mark)?\.py$")
_EXAMPLE_FILE = re.compile(r"^(example|demo)(_.*)?\.py$")
#: how much less a file of this role counts where the best of several is sought
DEMOTED = frozenset({"build", "tests", "examples", "benchmarks", "documentation", "third party", "tools"})


def role_of(path: str, packages: Collection[str]) -> tuple[str, str]:
    """The role of a file, and the folder or file that gives it; `packages` are the folders that are Python packages."""
    *folders, name = path.split("/")
    here = ""
    inside = False
    for depth, folder in enumerate(folders):
        here = f"{here}/{folder}" if here else folder
        inside = inside or here in packages
        for role, names in _FOLDERS.items():
            if folder.lower() in names:
                return role, here
        for role, names in _OUTSIDE.items() if not inside or not depth else ():
            if folder.lower() in names:
                return role, here
    if _TEST_FILE.match(name):
        return "tests", path
    if name == "setup.py" and not inside:
        return "build", path
    if _BENCH_FILE.match(name):
        return "benchmarks", path
    return ("examples", path) if _EXAMPLE_FILE.match(name) else ("source", "")


#: what folders of LLM implementations are called -> what they hold
_PURPOSES: tuple[tuple[str, str], ...] = (
    (r"models?|modeling|architectures", "model definitions"),
    (r"layers|modules|nn", "layers"),
    (r"ops|operators|kernels?|triton_kernels|triton_ops|csrc|cuda|sgl_kernel", "operators and kernels"),
    (r"attention|attn|attentions", "attention"),
    (r"engine|engines|core|runtime|executor|executors|managers?", "engine"),
    (r"worker|workers|model_runner|model_executor", "model execution"),
    (r"sched|scheduler|schedulers|scheduling", "scheduler"),
    (r"kv_?cache|cache|mem_cache|memory|block_manager", "caches and memory"),
    (r"sample|sampler|sampling|generation|decoding", "sampling and generation"),
    (r"entrypoints?|server|servers|serve|serving|api|cli|commands|openai", "entry points"),
    (r"configs?|configuration|settings|arg_groups", "configuration"),
    (r"quantization|quantizers?|quant", "quantization"),
    (r"distributed|parallel|parallelism|tensor_parallel|comm|communication", "parallelism"),
    (r"tokenizers?|tokenization", "tokenizers"),
    (r"multimodal|vision|audio|images?", "inputs of other kinds"),
    (r"lora|adapters?|peft", "adapters"),
    (r"compilation|compiler|inductor|dynamo|fx", "compilation"),
    (r"platforms?|backends?|device|devices|hardware_backend", "platforms and backends"),
    (r"utils?|utilities|helpers|common|_utils|support", "helpers"),
    (r"train|trainers?|training|optim|optimizers?", "training"),
    (r"data|datasets?|dataloaders?", "data"),
    (r"plugins?|integrations?|contrib|ext|extensions?", "integrations"),
)  # fmt: skip


def purpose_of(folder: str) -> str:
    """What a folder holds by its name; empty where the name does not tell."""
    name = folder.rpartition("/")[2].lower()
    return next((purpose for pattern, purpose in _PURPOSES if re.fullmatch(pattern, name)), "")
