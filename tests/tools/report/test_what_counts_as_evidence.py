"""Evidence is code, a decorator speaks of what it is handed, and shared weights are said where they are counted twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opscope_schemas.analysis import ModuleNode
from opscope_schemas.common import Repository
from opscope_tools.report import scan
from opscope_tools.report.components import _interface
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.overview import hierarchy
from opscope_tools.report.sources import SourceReader

SOURCE = '''"""A file about FSDP."""


def rotate(x):
    """Never wrapped in FSDP here."""
    return x  # nor in FSDP there


@use_kernelized_func(rotate)
class Attention:
    def forward(self, x):
        print("FSDP", """
        FSDP""")
        return FSDP(rotate(x))


@use_kernel_forward_from_hub("RMSNorm")
class Norm:
    def forward(self, x):
        return x
'''


def reader(folder: Path) -> SourceReader:
    (folder / "m.py").write_text(SOURCE)
    return SourceReader([Repository(name="r", root=folder)])


def test_docstrings_comments_and_strings_are_no_evidence(tmp_path: Path) -> None:
    hits = scan.matching_lines(reader(tmp_path), "m.py", r"\b(FSDP)\b")
    assert [(hit.line, hit.text) for hit in hits] == [(14, "return FSDP(rotate(x))")]


def test_a_decorator_that_is_handed_a_function_concerns_the_function(tmp_path: Path) -> None:
    hits = scan.decorators(reader(tmp_path), "m.py", ["Attention", "Norm"])
    assert [(hit.name, hit.concerns) for hit in hits] == [("Attention", "rotate"), ("Norm", "")]


def test_a_weight_at_two_places_is_said_in_the_tree_and_rows_of_many_say_that_they_are_totals(
    facts: ImplementationFacts,
) -> None:
    plain = [label for _, label in hierarchy(facts)]
    assert not any("shared" in label for label in plain)
    assert [label for label in plain if "×" in label and "parameters" in label]
    assert all("parameters together" in label for label in plain if "×" in label and "[" in label)
    root = facts.tree.tree
    first = next(child for child in root.children if child.name == "embed_tokens")
    head = next(child for child in root.children if child.name == "lm_head")
    shape = {"weight": (100, 8)}
    children = tuple(
        child.model_copy(update={"weights": shape, "parameters": 800}) if child in (first, head) else child
        for child in root.children
    )
    total = sum(child.parameters for child in children)
    tied = facts.tree.model_copy(
        update={"tree": root.model_copy(update={"children": children, "parameters": total}), "parameters": total - 800}
    )
    labels = [label for _, label in hierarchy(replace(facts, tree=tied))]
    assert f"800 of them shared and counted again here; {total - 800:,} without" in labels[0]
    assert [label for label in labels if label.endswith("shared with embed_tokens]")] == [
        "lm_head: Linear [800 parameters, shared with embed_tokens]"
    ]


def test_a_weight_that_several_modules_hold_is_told_at_each_and_counted_once(facts: ImplementationFacts) -> None:
    tables = tuple(
        ModuleNode(name=name, class_name="m.Table", parameters=800, weights={"weight": (100, 8)})
        for name in ("first", "encoder", "decoder", "head")
    )
    between = ModuleNode(name="norm", class_name="m.Norm", parameters=8, weights={"weight": (8,)})
    children = (tables[0], between, *tables[1:])
    tree = facts.tree.tree.model_copy(update={"children": children, "parameters": 3208})
    tied = replace(facts, tree=facts.tree.model_copy(update={"tree": tree, "parameters": 808}))
    labels = [label for _, label in hierarchy(tied)]
    assert "2,400 of them shared and counted again here; 808 without" in labels[0]
    assert sum("shared with first" in label for label in labels[1:]) == 3
    model = next(m for m in tied.modules if m.class_name == tree.class_name)
    assert "number of weights: 808" in _interface(tied, model)
    part = ModuleNode(name="part", class_name="m.Part", parameters=2408, children=children[:4])
    parts = tree.model_copy(update={"children": (part, children[4])})
    nested = replace(tied, tree=tied.tree.model_copy(update={"tree": parts}))
    assert "part: Part, 808 weights" in _interface(nested, model)
