"""Reports on repositories: made from a real map of a small engine and of a library, and every rule that is theirs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.report import Problem, ReportFacts, WriteReportResult
from opscope_tools.check_report import CHECK_REPORT, CheckReportArguments
from opscope_tools.report.checks import Material, check
from opscope_tools.report.graph import Edge, Graph, Vertex
from opscope_tools.report.markdown import Page
from opscope_tools.report.mermaid import mermaid
from opscope_tools.report.outline import DEEP, REPO_SECTIONS
from opscope_tools.report.sources import SourceReader
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.write_report import WRITE_REPORT, WriteReportArguments

PATH = "reports/repos/engine.md"
ENGINE = {
    "tiny/__init__.py": '"""A tiny engine that serves language models."""\n',
    "tiny/config.py": (
        "import os\nfrom dataclasses import dataclass\n\n\n@dataclass\nclass EngineConfig:\n    model: str\n"
        "    max_num_seqs: int = 8\n    block_size: int = 16\n\n\nDEBUG = os.environ.get('TINY_DEBUG', '0')\n"
    ),
    "tiny/scheduler.py": (
        "from collections import deque\n\nfrom tiny.block_manager import BlockManager\n\n\nclass Scheduler:\n"
        "    def __init__(self, config):\n        self.waiting = deque()\n        self.running = deque()\n"
        "        self.block_manager = BlockManager(config.block_size)\n\n    def add(self, seq):\n        self.waiting.append(seq)\n\n"
        "    def schedule(self):\n        scheduled = []\n        while self.waiting:\n            seq = self.waiting[0]\n"
        "            if not self.block_manager.can_allocate(seq):\n                break\n            self.block_manager.allocate(seq)\n"
        "            scheduled.append(self.waiting.popleft())\n        if scheduled:\n            return scheduled, True\n"
        "        while self.running:\n            seq = self.running.popleft()\n            while not self.block_manager.can_append(seq):\n"
        "                self.preempt(seq)\n            self.block_manager.append(seq)\n            scheduled.append(seq)\n"
        "        return scheduled, False\n\n    def preempt(self, seq):\n        self.block_manager.deallocate(seq)\n"
        "        self.waiting.appendleft(seq)\n\n    def postprocess(self, seqs, token_ids):\n        for seq, token in zip(seqs, token_ids):\n"
        "            seq.append_token(token)\n"
    ),
    "tiny/block_manager.py": (
        "class BlockManager:\n    def __init__(self, block_size):\n        self.block_size = block_size\n        self.free_block_ids = []\n"
        "        self.block_table = {}\n\n    def can_allocate(self, seq):\n        return len(self.free_block_ids) >= seq.num_blocks\n\n"
        "    def allocate(self, seq):\n        self.block_table[seq.id] = self.free_block_ids.pop()\n\n    def can_append(self, seq):\n"
        "        return bool(self.free_block_ids)\n\n    def append(self, seq):\n        self.block_table[seq.id] = self.free_block_ids.pop()\n\n"
        "    def deallocate(self, seq):\n        self.free_block_ids.append(self.block_table.pop(seq.id))\n"
    ),
    "tiny/sampler.py": (
        "import torch\nfrom dataclasses import dataclass\nfrom torch import nn\n\n\n@dataclass\nclass SamplingParams:\n    temperature: float = 1.0\n"
        "    top_p: float = 1.0\n    top_k: int = 0\n    seed: int | None = None\n\n\nclass Sampler(nn.Module):\n"
        "    def forward(self, logits, temperatures):\n        probs = torch.softmax(logits / temperatures, dim=-1)\n        return probs.argmax(dim=-1)\n"
    ),
    "tiny/attention.py": (
        "import torch\nfrom torch import nn\n\n\nclass Attention(nn.Module):\n    def forward(self, q, k, v, kv_cache):\n"
        "        return torch.nn.functional.scaled_dot_product_attention(q, k, v)\n"
    ),
    "tiny/model_runner.py": (
        "import torch\n\nfrom tiny.sampler import Sampler\n\n\nclass ModelRunner:\n    def __init__(self, config):\n        self.sampler = Sampler()\n"
        "        self.kv_cache = torch.zeros(2, 4)\n        self.model = None\n\n    def prepare_prefill(self, seqs):\n        return seqs\n\n"
        "    def prepare_decode(self, seqs):\n        return seqs\n\n    def run(self, seqs, is_prefill):\n"
        "        input_ids = self.prepare_prefill(seqs) if is_prefill else self.prepare_decode(seqs)\n        logits = self.model(input_ids)\n"
        "        return self.sampler(logits, 1.0)\n"
    ),
    "tiny/engine.py": (
        "from transformers import AutoTokenizer\n\nfrom tiny.config import EngineConfig\nfrom tiny.model_runner import ModelRunner\n"
        "from tiny.scheduler import Scheduler\n\n\nclass LLMEngine:\n    def __init__(self, config: EngineConfig):\n"
        "        self.tokenizer = AutoTokenizer.from_pretrained(config.model)\n        self.scheduler = Scheduler(config)\n"
        "        self.model_runner = ModelRunner(config)\n\n    def step(self):\n        seqs, is_prefill = self.scheduler.schedule()\n"
        "        token_ids = self.model_runner.run(seqs, is_prefill)\n        self.scheduler.postprocess(seqs, token_ids)\n\n"
        "    def is_finished(self):\n        return not self.scheduler.waiting\n\n    def generate(self, prompts):\n        for prompt in prompts:\n"
        "            self.scheduler.add(self.tokenizer.encode(prompt))\n        while not self.is_finished():\n            self.step()\n"
    ),
    "tiny/__main__.py": (
        "import argparse\n\nfrom tiny.engine import LLMEngine\n\n\ndef main():\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--model', default='x')\n    LLMEngine(parser.parse_args()).generate(['hello'])\n\n\nif __name__ == '__main__':\n    main()\n"
    ),
    "pyproject.toml": '[project]\nname = "tiny"\nversion = "1"\ndependencies = ["torch", "transformers"]\n\n[project.scripts]\ntiny = "tiny.__main__:main"\n',
    "README.md": "# tiny\n\n```bash\npip install -e .\ntiny --model x\n```\n",
}
LIBRARY = {
    "colours/__init__.py": '"""Names of colours."""\n\nfrom colours.names import nearest\n',
    "colours/names.py": (
        "import warnings\n\nTABLE = {'red': (255, 0, 0)}\n\n\ndef nearest(r, g, b):\n    warnings.warn('slow', stacklevel=2)\n    return 'red'\n"
    ),
    "pyproject.toml": '[project]\nname = "colours"\nversion = "1"\n',
}


def context_of(folder: Path, name: str, files: dict[str, str]) -> ToolContext:
    for path, text in files.items():
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(text)
    (folder / "out").mkdir()
    repository = Repository(name=name, root=folder / name, version="1.0")
    return ToolContext(
        Workspace(repositories={name: repository}, output=(folder / "out").resolve(), store=MemoryStore())
    )


def write(context: ToolContext, **arguments: Any) -> WriteReportResult:
    return WRITE_REPORT.run(WriteReportArguments(**{"kind": "repo", "name": "engine", **arguments}), context)


@pytest.fixture
def engine(tmp_path: Path) -> ToolContext:
    return context_of(tmp_path, "engine", ENGINE)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ReportFacts, SourceReader]:
    context = context_of(tmp_path_factory.mktemp("repo"), "engine", ENGINE)
    result = write(context)
    assert result.problems == ()
    output = context.workspace.output
    facts = ReportFacts.model_validate_json((output / result.facts_path).read_text())
    return (output / PATH).read_text(), facts, SourceReader(context.workspace.repositories.values())


def line_of(path: str, statement: str) -> int:
    return next(n for n, text in enumerate(ENGINE[path].split("\n"), 1) if statement in text)


def test_a_report_on_an_engine_has_every_section_in_order(saved: tuple[str, ReportFacts, SourceReader]) -> None:
    text, facts, reader = saved
    headings = [h for _, h in Page(text).headings]
    assert [h for h in headings if h.startswith(("## ", "### "))] == [s.heading for s in REPO_SECTIONS]
    assert check(Material(Page(text), reader, facts)) == []
    assert "**LLM-related:** yes (signals: " in text
    assert "**Commit:** none: not a git checkout; version 1.0" in text


def test_key_components_are_at_the_lines_that_define_them(saved: tuple[str, ReportFacts, SourceReader]) -> None:
    table = next(t for t in Page(saved[0]).tables if t.head[0] == "Component")
    rows = {cells[0]: cells[1] for _, cells in table.rows}
    assert rows["scheduler"] == f"`Scheduler` (`tiny/scheduler.py:{line_of('tiny/scheduler.py', 'class Scheduler')}`)"
    assert (
        rows["KV cache"]
        == f"`BlockManager` (`tiny/block_manager.py:{line_of('tiny/block_manager.py', 'class BlockManager')}`)"
    )
    assert (
        rows["model runner"]
        == f"`ModelRunner` (`tiny/model_runner.py:{line_of('tiny/model_runner.py', 'class ModelRunner')}`)"
    )


def test_the_loop_is_nested_as_it_is_called(saved: tuple[str, ReportFacts, SourceReader]) -> None:
    section = saved[0].partition("### Prefill vs decode loop")[2].partition("### KV cache")[0]
    lines = [line for line in section.split("\n") if "# tiny/" in line]
    depth = {line.split("#")[0].strip(): len(line) - len(line.lstrip()) for line in lines}
    chain = ["while not self.is_finished():", "self.step()", "seqs, is_prefill = self.scheduler.schedule()"]
    found = [next(code for code in depth if wanted.split("= ")[-1] in code) for wanted in chain]
    assert depth[found[0]] < depth[found[1]] < depth[found[2]]
    assert f"# tiny/engine.py:{line_of('tiny/engine.py', 'self.step()')}" in section


def test_a_library_has_no_deep_dive_and_says_so(tmp_path: Path) -> None:
    context = context_of(tmp_path, "colours", LIBRARY)
    result = write(context, name="colours")
    assert result.problems == ()
    text = (context.workspace.output / "reports/repos/colours.md").read_text()
    assert "**LLM-related:** no" in text
    deep = [s.heading for s in REPO_SECTIONS if s.number in DEEP]
    assert not [heading for heading in deep if heading in text.split("\n")]
    assert '"Names of colours."' in text


def test_the_saved_report_is_checked_again_and_prose_needs_evidence(engine: ToolContext) -> None:
    assert write(engine).ok
    assert CHECK_REPORT.run(CheckReportArguments(path=PATH), engine).ok
    refused = write(engine, overwrite=True, sections={"KV cache": "It is paged."})
    assert {p.rule for p in refused.problems} == {"CLAIM_UNSUPPORTED"}
    line = line_of("tiny/block_manager.py", "self.block_table = {}")
    prose = f"Blocks are found through a table (`tiny/block_manager.py:{line}`); there are {{{{fact:files}}}} files."
    assert write(engine, overwrite=True, sections={"cache": prose}).ok
    text = (engine.workspace.output / PATH).read_text()
    assert re.search(
        r"through a table .* there are \d+<!-- fact:files --> files",
        text.partition("### KV cache")[2].partition("###")[0],
    )


def problems(saved: tuple[str, ReportFacts, SourceReader], change: Callable[[str], str]) -> list[Problem]:
    text, facts, reader = saved
    changed = change(text)
    assert changed != text
    return check(Material(Page(changed), reader, facts))


FAULTS = [
    ("HEAD_MISSING", r"\*\*Commit:\*\* .*", ""),
    ("HEAD_MISSING", r"\*\*Local clone:\*\* .*", "**Local clone:**"),
    ("SECTION_MISSING", r"## Pitfalls / time sinks", "## Pitfalls"),
    ("SECTION_MISSING", r"### KV cache", "### Cache"),
    ("SECTION_UNDUE", r"\*\*LLM-related:\*\* yes", "**LLM-related:** no"),
    ("TLDR_LENGTH", r"(## TL;DR.*\n\n)(- .*\n)+", r"\1- short\n"),
    ("TABLE_MISSING", r"\| Component \| Location \| Responsibility \|", "| Component | Place | Responsibility |"),
    ("TOO_FEW_COMPONENTS", r"(\| Component .*\n\|.*\n\|.*\n)(\|.*\n)+", r"\1"),
    ("COMPONENT_UNPLACED", r"\| scheduler \| .* \|", "| scheduler | somewhere | it schedules |"),
    ("NO_QUESTION", r"(## Open questions\n\n)(- .*\n)+", r"\1- Nothing is open.\n"),
    ("MERMAID", r"flowchart TB", "diagram TB"),
    ("MERMAID", r'  n1\["', '  n1[Platform::current()] \n  n0["'),
    ("MERMAID", r"  n1 -->", "  n99 -->"),
    ("MERMAID", r'  n1\["', '  end["x"]\n  n1["'),
    ("FACT_MISMATCH", r"\d+<!-- fact:files -->", "7<!-- fact:files -->"),
]


@pytest.mark.parametrize(("rule", "old", "new"), FAULTS, ids=[f"{r}-{n}" for n, (r, _, _) in enumerate(FAULTS)])
def test_a_planted_fault_is_caught(saved: tuple[str, ReportFacts, SourceReader], rule: str, old: str, new: str) -> None:
    found = problems(saved, lambda text: re.sub(old, new, text, count=1))
    assert rule in {problem.rule for problem in found}


def test_labels_of_a_diagram_are_quoted_whatever_they_hold() -> None:
    vertices = (Vertex("a", ('app/[id]::new("x")',)), Vertex("b", ("end; #1",)))
    drawn = mermaid(Graph(vertices, (Edge("a", "b", "calls"),)))
    page = Page(f"```mermaid\n{drawn}\n```")
    assert [p for p in check(Material(page, SourceReader(()))) if p.rule == "MERMAID"] == []
    assert 'n1["app/[id]::new(#quot;x#quot;)"]' in drawn


def test_the_page_of_a_repository_draws_the_map_and_keeps_its_text(engine: ToolContext) -> None:
    assert write(engine, html=True, overwrite=True).ok
    text = (engine.workspace.output / PATH).read_text()
    edges = len(re.findall(r"^  n\d+ -->", text, re.MULTILINE))
    page = (engine.workspace.output / PATH.replace(".md", ".html")).read_text()
    drawing = re.search(r'<svg[^>]*class="diagram".*?</svg>', page, re.DOTALL)
    assert drawing is not None
    assert edges > 4
    assert drawing[0].count('class="head"') == edges
    assert page.partition("<summary>As text</summary>")[2].partition("</details>")[0].count("flowchart TB") == 1


def test_a_map_says_how_much_it_does_not_draw(tmp_path: Path) -> None:
    crowd = {f"tiny/part{n}/__init__.py": '"""A part."""\n' for n in range(20)}
    context = context_of(tmp_path, "engine", {**ENGINE, **crowd})
    assert write(context).ok
    text = (context.workspace.output / PATH).read_text()
    drawn = len(re.findall(r'^  n\d+\["', text, re.MULTILINE))
    assert drawn == 12
    said = re.search(r"^(\d+) further files and folders are not drawn\.$", text, re.MULTILINE)
    assert said is not None
    assert int(said[1]) >= 20 - drawn


def test_a_package_folder_is_called_by_its_registered_name_and_its_own(tmp_path: Path) -> None:
    context = context_of(tmp_path, "colours", LIBRARY)
    held = context.workspace.repositories["colours"].model_copy(update={"packages": ("colours",)})
    context.workspace.repositories["colours"] = held.model_copy(update={"name": "shades"})
    context.workspace.repositories["shades"] = context.workspace.repositories.pop("colours")
    assert write(context, name="shades").ok
    text = (context.workspace.output / "reports/repos/shades.md").read_text()
    assert "**Repo:** shades: package colours  \n" in text


def test_a_table_of_components_is_filled_with_what_is_imported_most(tmp_path: Path) -> None:
    files = {
        "lib/__init__.py": '"""A library that samples from language models."""\n',
        "lib/sample.py": ENGINE["tiny/sampler.py"],
        **{
            f"lib/part{n}.py": f"from lib.sample import Sampler\n\n\nclass Part{n}(Sampler):\n    pass\n"
            for n in range(6)
        },
        "lib/run.py": "".join(f"from lib.part{n} import Part{n}\n" for n in range(6))
        + "from transformers import AutoModelForCausalLM\n\n\ndef load(name):\n    return AutoModelForCausalLM.from_pretrained(name)\n",
    }
    context = context_of(tmp_path, "engine", files)
    result = write(context)
    assert result.problems == ()
    text = (context.workspace.output / PATH).read_text()
    table = next(t for t in Page(text).tables if t.head[0] == "Component")
    assert sum(bool(re.search(r":\d+", cells[1])) for _, cells in table.rows) == 6
    # the patterns of what was not found are code: outside it `top_[kp](_\w+)?` is a link
    assert not re.search(r"\]\(", re.sub(r"`[^`]*`", "", "\n".join(cells[2] for _, cells in table.rows)))
    assert any("searched classes named `" in cells[2] for _, cells in table.rows)


def test_a_repository_of_fewer_components_says_that_there_are_no_more(tmp_path: Path) -> None:
    context = context_of(tmp_path, "engine", {"lib/__init__.py": "", "lib/sample.py": ENGINE["tiny/sampler.py"]})
    assert write(context).problems == ()
    assert "| further components | not found |" in (context.workspace.output / PATH).read_text()


def test_what_source_says_in_words_is_no_placeholder_of_the_report(tmp_path: Path) -> None:
    files = {**ENGINE, "tiny/__init__.py": '"""An engine. TODO: serve, see [notes](notes.md)."""\n'}
    assert write(context_of(tmp_path, "engine", files)).problems == ()


def test_a_file_without_any_definition_is_still_reported(tmp_path: Path) -> None:
    context = context_of(tmp_path, "engine", {"lib/data.py": "X = 1\n"})
    assert write(context).problems == ()


METADATA = (
    "Metadata-Version: 2.1\nName: hue-names\nVersion: 2.5\nSummary: Names of hues, for people.\nLicense: Some words\n        \n"
    "        more words\nRequires-Dist: numpy>=1.2\nRequires-Dist: pytest; extra == 'dev'\nRequires-Dist: rich\n\nName: in the text\n"
)


@pytest.mark.parametrize("start", ["", "\n", "\n \n\t\n", "\ufeff\n", "\r\n\r\n"])
@pytest.mark.parametrize(
    "files",
    [
        {"two.cu": "__global__ void f(float* x) { x[0] = 1; }\n"},
        {"engine/__init__.py": "", "engine/a.py": "import torch\n"},
        {"engine/__init__.py": "", "engine/py.typed": ""},
        {"torch/__init__.py": "x = 1\n", "torch/a.py": "y = 2\n"},
        {"a.hpp": "", "b.rs": "fn main() {}\n", "notes/a.txt": "text\n"},
    ],
    ids=lambda files: next(iter(files)),
)
def test_files_that_are_empty_or_begin_with_blank_lines_are_cited_where_they_hold_something(
    files: dict[str, str], start: str, tmp_path: Path
) -> None:
    context = context_of(tmp_path, "engine", {path: start + text for path, text in files.items()})
    assert write(context).problems == ()


def test_the_metadata_of_a_wheel_names_it_says_what_it_is_and_what_installing_asks_for(tmp_path: Path) -> None:
    files = {
        **{path: text for path, text in LIBRARY.items() if path.startswith("colours/")},
        "hue_names-2.5.dist-info/METADATA": METADATA,
        "hue_names-2.5.dist-info/entry_points.txt": "[console_scripts]\nhues = colours.names:nearest\n",
    }
    context = context_of(tmp_path, "shades", files)
    result = write(context, name="shades")
    assert result.problems == ()
    text = (context.workspace.output / "reports/repos/shades.md").read_text()
    at = "hue_names-2.5.dist-info/METADATA"
    assert "**Repo:** shades: hue-names 2.5  \n" in text
    assert f'The distribution hue-names says of itself: "Names of hues, for people." (`{at}:4`)' in text
    asked = f"asks for `numpy>=1.2` (`{at}:8`), `rich` (`{at}:10`), `pytest; extra == 'dev'` (`{at}:9`)"
    assert f"Installing hue-names 2.5 {asked}" in text
    assert "`hues = colours.names:nearest` on the path (`hue_names-2.5.dist-info/entry_points.txt:2`)" in text
    checked = CHECK_REPORT.run(CheckReportArguments(path="reports/repos/shades.md"), context)
    assert checked.problems == ()
