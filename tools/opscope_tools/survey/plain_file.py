"""What files other than Python say: commands in Makefiles, Dockerfiles, CI, scripts and README fences, dependencies, keys
of configuration files, kernels and bindings of C++ and CUDA. Commands are quoted as they stand on their line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator

from opscope_tools.survey.facts import CommandFact, EnvironmentFact, FileFacts, Hit
from opscope_tools.survey.python_file import kept
from opscope_tools.survey.topics import topics_of

CUDA = (".cu", ".cuh", ".hip")
CPP = (*CUDA, ".h", ".hpp", ".hh", ".hxx", ".inl", ".c", ".cc", ".cpp", ".cxx")
#: languages that are counted, not read
OTHER = {
    ".rs": "rust", ".go": "go", ".ts": "typescript", ".tsx": "typescript", ".js": "javascript", ".java": "java", ".proto": "protobuf",
    ".pyx": "cython", ".metal": "metal", ".mm": "objective-c++", ".swift": "swift", ".kt": "kotlin",
}  # fmt: skip
_CI = (".github/workflows/", ".buildkite/", ".circleci/", ".gitlab-ci", "azure-pipelines", ".travis")
_GUIDES = re.compile(
    r"(^|/)(readme|install|installation|quick_?-?start|getting_?-?started|contributing|usage)[^/]*\.(md|rst|txt)$",
    re.IGNORECASE,
)
_LAUNCHERS = (
    r"pip3?|uv|uvx|pipx|poetry|pdm|rye|conda|mamba|micromamba|python3?(?:\.\d+)?|torchrun|accelerate|deepspeed|mpirun|srun|"
    r"make|cmake|ninja|docker|docker-compose|podman|git clone|npm|npx|yarn|pnpm|cargo|apt|apt-get|yum|dnf|brew|bash|sh|"
    r"pytest|tox|nox|hatch|pre-commit|ruff|mypy|uvicorn|gunicorn|huggingface-cli|hf|nvcc|go|bazel|bazelisk|just"
)
_KINDS = (
    ("test", r"\b(pytest|tox|nox|unittest|ctest|pre-commit|ruff|mypy)\b|\b(make|npm|cargo|just|go|bazel)\s+(run\s+)?(\w+-)?(test|check|lint)"),
    ("install", r"\b(pip3?|uv|conda|mamba|micromamba|poetry|pdm|apt|apt-get|yum|dnf|brew|npm|yarn|pnpm|pipx|cargo|make|just)\s+(-\w+\s+)*(pip\s+)?(install|sync|add|create|env create|update|upgrade)\b|\bgit clone\b"),
    ("build", r"^(cmake|ninja|nvcc|bazel|bazelisk)\b|\b(make|docker|podman|cargo|hatch|uv|poetry|npm run)\s+(buildx\s+)?build\b|setup\.py|-m build\b|^make\b|pip3? wheel"),
    ("run", r"^(python3?(\.\d+)?|torchrun|accelerate|deepspeed|mpirun|srun|uvicorn|gunicorn|uvx|npx|just|go run|cargo run)\b|^(docker|podman|docker-compose) (run|compose|up)\b|^(uv|poetry|pdm|rye|hatch) run\b|^(bash|sh) "),
)  # fmt: skip
_PREFIX = re.compile(
    r"^(?:sudo\s+(?:-\w+\s+)?)?(?:env\s+)?(?:[A-Za-z_]\w*=(?:\"[^\"]*\"|'[^']*'|\S*)\s+)*(?:sudo\s+(?:-\w+\s+)?)?"
)
_FENCE = re.compile(r"^\s*(```+|~~~+)\s*([\w+-]*)")
_SHELLS = {"bash", "sh", "shell", "console", "zsh", "shell-session", "text", ""}


class CommandReader:
    """Finds commands; `scripts` are the console scripts of the repository, which start commands too."""

    def __init__(self, scripts: Collection[str]) -> None:
        own = "|".join(re.escape(script) for script in sorted(scripts, key=len, reverse=True))
        launchers = f"{_LAUNCHERS}|{own}" if own else _LAUNCHERS
        self._starts = re.compile(rf"^(?:{launchers})(?=\s|$)")
        self._own = re.compile(rf"^(?:{own})(?=\s|$)") if own else None

    def commands(self, path: str, text: str) -> Iterator[CommandFact]:
        """The commands of a file that holds some; nothing for any other."""
        name = path.rpartition("/")[2]
        lowered = name.lower()
        if lowered in {"makefile", "gnumakefile", "justfile"} or lowered.endswith(".mk"):
            yield from self._found("makefile", _recipes(text))
        elif "dockerfile" in lowered:
            yield from self._found("dockerfile", _docker(text))
        elif name.endswith((".yml", ".yaml")) and any(part in path for part in _CI):
            yield from self._found("ci", _yaml(text))
        elif _GUIDES.search(path):
            yield from self._found(
                "readme" if lowered.startswith("readme") else "guide", _fences(text, name.endswith(".rst"))
            )
        elif name.endswith(".sh"):
            yield from self._found("script", _script(text))

    def _found(self, source: str, lines: Iterator[tuple[int, str]]) -> Iterator[CommandFact]:
        for number, line in lines:
            bare = _PREFIX.sub("", line, count=1)
            if self._starts.match(bare):
                yield CommandFact(line, number, self._kind(bare), source)

    def _kind(self, line: str) -> str:
        for kind, pattern in _KINDS:
            if re.search(pattern, line):
                return kind
        return "run" if self._own and self._own.match(line) else "other"


def _script(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def _recipes(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(("\t", "    ")):
            yield number, line.strip().lstrip("@-+").strip()


def _docker(text: str) -> Iterator[tuple[int, str]]:
    """What RUN, CMD and ENTRYPOINT run, each physical line on its own."""
    running = False
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("#"):
            continue
        match = re.match(r"(RUN|CMD|ENTRYPOINT)\s+(.*)", stripped)
        held = match[2] if match else stripped if running else ""
        running = bool(held or running) and stripped.endswith("\\")
        held = re.sub(r"^(?:--\w++=\S++\s*+)++", "", held)
        for part in map(str.strip, re.split(r"&&|;", held.rstrip("\\"))):
            if part:
                yield number, part


def _yaml(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        bare = re.sub(r"^\s*(?:- )?\s*(?:(?:run|command|script|commands):\s*)?[|>\"']?-?\s*", "", line).strip()
        bare = re.sub(r"^- ", "", bare)
        if bare and not bare.startswith("#"):
            yield number, bare.rstrip("\"'") if bare.count('"') % 2 or bare.count("'") % 2 else bare


def _fences(text: str, rst: bool) -> Iterator[tuple[int, str]]:
    """Lines of shell fences, without their prompt; in reStructuredText indented lines and those with a prompt."""
    inside, language = "", ""
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if fence and not rst:
            if inside:
                inside = "" if fence[1].startswith(inside) else inside
            else:
                inside, language = fence[1], fence[2].lower()
            continue
        stripped = line.strip()
        if (inside and language in _SHELLS) or (rst and line.startswith((" ", "\t"))):
            bare = re.sub(r"^(?:\$|%|>|#)\s+", "", stripped) if not stripped.startswith("# ") else ""
            if bare:
                yield number, bare


def read_plain(path: str, text: str, commands: CommandReader) -> FileFacts:
    """The facts of a file that is no Python."""
    lines = text.count("\n") + (not text.endswith("\n") and bool(text))
    name = path.rpartition("/")[2]
    if name.endswith(CPP):
        return _cpp(path, text, lines)
    if (language := OTHER.get(name[name.rfind(".") :])) is not None:
        return FileFacts(path, language, lines=lines)
    facts = FileFacts(path, "text", lines=lines, commands=tuple(commands.commands(path, text)))
    if re.fullmatch(r"(requirements|constraints)?.*\.txt", name) and "require" in path:
        facts.topics = kept(_requirements(text))
    elif name.endswith((".json", ".yaml", ".yml")) and len(text) < 300_000:
        facts.language = "data"
        facts.tokens = _keys(name, text)
    return facts


def _requirements(text: str) -> Iterator[tuple[str, Hit]]:
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*([A-Za-z][\w.-]*)", line):
            yield "dep", Hit(match[1], number, line.strip()[:160])


def _keys(name: str, text: str) -> dict[str, int]:
    """The top-level keys of a configuration file, with their lines where the text shows them."""
    if not name.endswith(".json"):
        pattern = re.compile(r"^([A-Za-z_][\w.-]*):", re.MULTILINE)
        return {m[1]: text.count("\n", 0, m.start()) + 1 for m in list(pattern.finditer(text))[:40]}
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(held, dict):
        return {}
    places = {str(key): text.find(json.dumps(key)) for key in list(held)[:40]}
    return {key: text.count("\n", 0, at) + 1 for key, at in places.items() if at >= 0}


# C++ and CUDA ---------------------------------------------------------------------------------------------------------

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_GLOBAL = re.compile(
    r"__global__\b(?:\s|__launch_bounds__\s*+\([^()]*+(?:\([^()]*+\)[^()]*+)*+\)|__maxnreg__\s*+\([^();]*+\)|static\b|inline\b|void\b|extern\b|const\b|__cluster_dims__\s*+\([^();]*+\)|[A-Z_]++\b(?:\([^();]*+\))?)*(\w++)\s*+\("
)
_CPP_MARKS = (
    ("exec.custom operators", re.compile(r"\bTORCH_LIBRARY(?:_\w+)?\s*\(\s*(\w+)|\bPYBIND11_MODULE\s*\(\s*(\w+)|\bNB_MODULE\s*\(\s*(\w+)|\bTVM_FFI_DLL_EXPORT_TYPED_FUNC\s*\(\s*(\w+)")),
    ("exec.CUDA graphs", re.compile(r"\b(cudaGraphLaunch|cudaStreamBeginCapture|cudaGraphInstantiate)\b")),
    ("exec.persistent kernels", re.compile(r"\b(cudaLaunchCooperativeKernel|this_grid\s*\(\s*\))")),
)  # fmt: skip
_GETENV = re.compile(r"\b(?:std::|secure_)?getenv\s*\(\s*\"([A-Za-z_]\w*)\"")


def _cpp(path: str, text: str, lines: int) -> FileFacts:
    facts = FileFacts(path, "cuda" if path.endswith(CUDA) else "cpp", lines=lines)
    words = (
        "__global__",
        "getenv",
        "TORCH_LIBRARY",
        "PYBIND11_MODULE",
        "NB_MODULE",
        "TVM_FFI",
        "cudaGraph",
        "cudaStreamBegin",
        "Cooperative",
        "this_grid",
    )
    if not any(word in text for word in words):
        return facts
    bare = _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)
    code = bare.splitlines()
    facts.topics = kept(_cpp_hits(bare, code))
    facts.environment = tuple(
        EnvironmentFact(m[1], "literal", bare.count("\n", 0, m.start()) + 1, "", mechanism="C++ getenv")
        for m in _GETENV.finditer(bare)
    )
    return facts


def _cpp_hits(bare: str, code: list[str]) -> Iterator[tuple[str, Hit]]:
    for match in _GLOBAL.finditer(bare):
        line = bare.count("\n", 0, match.start(1)) + 1
        hit = Hit(match[1], line, code[line - 1].strip()[:160])
        yield "kernel.cuda", hit
        for topic in topics_of(match[1]):
            yield topic, hit
        if "persistent" in match[1].lower() or "megakernel" in match[1].lower():
            yield "exec.persistent kernels", hit
    for topic, pattern in _CPP_MARKS:
        for match in pattern.finditer(bare):
            line = bare.count("\n", 0, match.start()) + 1
            name = next(group for group in match.groups() if group)
            yield topic, Hit(name, line, code[line - 1].strip()[:160])
