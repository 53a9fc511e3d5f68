"""Section 1: its table, its lines and its table of savings, and what their words rest on."""

from __future__ import annotations

import ast
import random
from dataclasses import replace
from pathlib import Path

import pytest
import report_toy as toy
from opscope_schemas.analysis import TensorInfo
from opscope_schemas.common import Repository
from opscope_schemas.dataflow import FlowOperator, FlowTensor
from opscope_tools.report.facts import ImplementationFacts, leaves
from opscope_tools.report.pseudocode import Call, pseudocode
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.scan import unbuilt
from opscope_tools.report.sources import SourceReader
from opscope_tools.report.story import _placed
from opscope_tools.report.timeline import _said
from opscope_tools.report.unread import _idle, _modules
from opscope_tools.settings.reads import Reader, config_reads
from opscope_tools.source.python.trees import PythonSource


def operator(number: int, module: str, reads: tuple[int, ...] = (), carried: tuple[int, ...] = ()) -> FlowOperator:
    return FlowOperator(
        id=number, operator="aten.add", file="f.py", line=1, module=module, writes=(number,), depends_on=reads, carried_from=carried
    )  # fmt: skip


def tensor(number: int, kind: str) -> FlowTensor:
    return FlowTensor(id=number, kind=kind, shape=(), dtype="bfloat16", created_by=number, lives=(number, number))  # type: ignore[arg-type]  # one of the kinds


def test_what_feeds_nothing_is_what_no_way_leads_from_to_a_result(facts: ImplementationFacts) -> None:
    """Held against a walk forwards from every operator, on graphs at random."""
    draw = random.Random(5)
    for _ in range(200):
        count = draw.randint(2, 12)
        reads = {
            n: tuple({draw.randint(1, n - 1) for _ in range(draw.randint(0, 2))}) if n > 1 else ()
            for n in range(1, count + 1)
        }
        carried = {n: tuple({draw.randint(1, count)}) if draw.random() < 0.2 else () for n in reads}
        kept = {n for n in reads if draw.random() < 0.3} | {draw.randint(1, count)}
        graph = facts.graphs[0].model_copy(
            update={
                "operators": tuple(operator(n, "", reads[n], carried[n]) for n in reads),
                "tensors": tuple(tensor(n, "output" if n in kept else "activation") for n in reads),
            }
        )
        readers = {n: [m for m in reads if n in (*reads[m], *carried[m])] for n in reads}

        def leads(
            start: int,
            seen: frozenset[int] = frozenset(),
            readers: dict[int, list[int]] = readers,
            kept: set[int] = kept,
        ) -> bool:
            return start in kept or any(leads(n, seen | {start}) for n in readers[start] if n not in seen)

        assert _idle(graph) == {n for n in reads if not leads(n)}


def test_modules_that_are_idle_as_a_whole_are_named_by_the_outermost() -> None:
    ran = [
        operator(1, "tower.layers.0.mlp"),
        operator(2, "tower.layers.1.mlp"),
        operator(3, "tower.layers.1.norm"),
        operator(4, "tower"),
    ]
    assert _modules(ran, frozenset({2, 3})) == ["tower.layers.1"]
    assert _modules(ran, frozenset({2, 3, 4})) == ["tower.layers.1"]
    assert _modules(ran, frozenset({4})) == ["tower"]


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({"memory": 0.2, "compute": 0.2}, "memory 20 % and compute 20 %, 1 kB and 2 kFLOP"),
        ({"memory": 0.3, "compute": 0.1}, "memory 30 %, 1 kB"),
        ({"compute": 0.15, "memory": 0.05}, "neither, compute 15 %, 2 kFLOP"),
    ],
)
def test_of_kernels_that_differ_both_roofs_are_told_where_both_explain_much(
    facts: ImplementationFacts, bounds: dict[str, float], said: str
) -> None:
    found = facts.estimates["decode"]
    one = found.operators[0].model_copy(update={"flops": 1000, "bytes": 500})
    taken = one.calibrated_seconds or 0.0
    run = [
        one.model_copy(update={"limited_by": limit, "bound_seconds": 2 * share * taken})
        for limit, share in bounds.items()
    ]
    assert _said(run, found) == said


def test_a_kernel_that_a_module_of_a_library_issues_stands_where_that_is_called(facts: ImplementationFacts) -> None:
    row = facts.estimates["decode"].operators[0]
    library = row.model_copy(update={"file": "torch/nn/modules/linear.py", "line": 134})
    calls = {path: (call.file, call.line) for call, path in facts.calls_in(facts.main)}
    path = next(path for path in calls if "." in path and path.rpartition(".")[2].isidentifier())
    module, _, name = path.rpartition(".")
    assert facts.place_of(library.model_copy(update={"module": module, "operation": f"mm ({name})"})) == calls[path]
    assert facts.place_of(library.model_copy(update={"module": path, "operation": "mm"})) == calls[path]
    assert facts.place_of(row.model_copy(update={"module": path, "operation": "sdpa"})) == (row.file, row.line)
    assert facts.place_of(library.model_copy(update={"module": "nowhere", "operation": "mm (no)"})) == (
        library.file,
        134,
    )


def test_a_choice_between_several_is_drawn_on_one_level() -> None:
    text = "def f(self, x, a, b):\n    if a:\n        x = 1\n    elif b:\n        x = 2\n    else:\n        x = 3\n    return x\n"
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    drawn = pseudocode(function, "f", ["note"], Call())
    assert [line.split("  #")[0].strip() for line in drawn.split("\n")[2:]] == [
        "if a:", "x = 1", "elif b:", "x = 2", "else:", "x = 3", "return x",
    ]  # fmt: skip
    ast.parse(drawn)


def test_a_branch_that_leaves_the_function_did_not_run_where_something_ran_behind_it() -> None:
    text = "def f(self, x, fast):\n    if fast():\n        if x.short:\n            return short(x)\n        x = x.view(1)\n    x = x + 1\n    return x\n"
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    for ran, shown in ((True, False), (False, True)):
        drawn = pseudocode(function, "f", ["note"], Call(ran=lambda first, last, ran=ran: ran and first <= 6 <= last))  # type: ignore[misc]  # lambdas have no types
        assert ("return short(x)" in drawn) == shown
        assert "x = x.view(1)" in drawn


def test_modules_of_the_library_that_other_settings_build_are_named_by_their_attribute(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "m.py").write_text(
        "class Net(nn.Module):\n    def __init__(self, config):\n        if config.relative:\n            self.table = nn.Embedding(8, 8)\n"
        "            self.size = len(config.sizes)\n        self.out = nn.Linear(8, 8)\n    def forward(self, x):\n        return x\n"
    )
    reader = SourceReader([Repository(name="a", root=tmp_path, packages=("a",), version="1")])
    (found,) = unbuilt(reader, "a/m.py", {"Net": {"out"}})
    assert (found.made.name, found.maker, found.made.line, found.made.text) == ("table", "Net", 4, "config.relative")
    assert unbuilt(reader, "a/m.py", {"Net": {"out", "table"}}) == []


def test_a_token_without_a_row_in_the_table_is_told(facts: ImplementationFacts) -> None:
    def told(**config: int) -> str:
        return toy.first_screen(
            replace(facts, tree=facts.tree.model_copy(update={"config": {**facts.tree.config, **config}}))
        )

    assert "`image_token_index` = 100 is beyond the 100 rows" in told(image_token_index=100, vocab_size=100)
    assert "is beyond the" not in told(image_token_index=99, vocab_size=100)


def test_what_a_base_class_reads_of_its_own_configuration_is_read_of_those_of_its_heirs() -> None:
    text = (
        "class Base:\n    config: Whole\n    def start(self):\n        return self.config.factor\n\n"
        "class Tower(Base):\n    config: Part\n\nclass Other(Base):\n    pass\n"
    )
    for own, found in (("Part", {"factor": [(4, True)]}), ("Whole", {"factor": [(4, True)]}), ("Another", {})):
        sought = Reader(own={own}, parents=(), paths=(), names={"factor": {"factor"}})
        assert config_reads(PythonSource("m.py", text), sought) == found


def test_features_that_are_not_as_wide_as_tokens_are_told_to_fit_none(facts: ImplementationFacts) -> None:
    """Of two towers by default, whose widths were chosen for models of two sizes."""

    def placed(width: str) -> str:
        given = [
            TensorInfo(name="", shape=shape, dtype="bfloat16")
            for shape in (("1", "{seq_len}", "8"), ("1", "{seq_len}", "8"), ("6", width))
        ]
        kernel = next(k for _, k in leaves(facts.main)).model_copy(
            update={"operator": "aten.masked_scatter.default", "inputs": tuple(given)}
        )
        main = facts.main.model_copy(update={"kernels": (kernel,)})
        return toy.unmarked(_placed(main, facts.point(facts.main), Quotes()))

    assert "6 of its tokens are features, which take their places at `" in placed("8")
    assert "6 features of 4 numbers are to take the places of tokens of 8 at `" in placed("4")
    assert "does not run" in placed("4")
