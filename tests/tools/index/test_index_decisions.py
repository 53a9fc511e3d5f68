"""Where it is decided what runs: the fields that choices hang on, and the lines that decide their values.

The reference reads the files with `ast` by itself: a line that is named as a decision has to belong to a statement that sets
the field (or the attribute that its property or `attribute_map` stands for), to its default, or to its getter.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_tools.catalog import tool_named
from opscope_tools.index import Index
from opscope_tools.index.decisions.choices import Choices
from opscope_tools.index.decisions.values import Decision, decide
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.source.python.names import ClassSymbol
from opscope_tools.source.python.syntax import function

#: every 40th model type of the installed transformers
EVERY = 40


@pytest.fixture(scope="module")
def root(installed: list[Repository]) -> Path:
    return installed[0].root


@pytest.fixture(scope="module")
def context(installed: list[Repository], tmp_path_factory: pytest.TempPathFactory, index_folder: Path) -> ToolContext:
    named = {repository.name: repository for repository in installed}
    folder = tmp_path_factory.mktemp("configs")
    return ToolContext(
        Workspace(repositories=named, output=folder, store=MemoryStore(index_folder), config_places=(folder,))
    )


def decisions(index: Index, symbol: ClassSymbol) -> list[tuple[int, Decision]]:
    forward = index.forward(symbol)
    code = function(forward.unit, forward.row) if forward is not None else None
    assert forward is not None
    assert code is not None
    found = list(Choices(index.resolver, symbol).of_forward(code, forward.defined_in))
    decided = decide(index.resolver, symbol, [read for _, read in found])
    return [(line, decided[read]) for line, read in found if read in decided]


# ---- the reference -------------------------------------------------------------------------------------------------


def setting(tree: ast.AST) -> Iterator[tuple[int, int, str]]:
    """(first line, last line, name) of everything that sets a name or attribute, or gives it a default."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for inner in ast.walk(target):
                    if isinstance(inner, ast.Name | ast.Attribute):
                        name = inner.id if isinstance(inner, ast.Name) else inner.attr
                        yield node.lineno, node.end_lineno or 0, name
        elif isinstance(node, ast.FunctionDef):
            yield node.lineno, node.lineno, node.name
            for argument in (*node.args.args, *node.args.kwonlyargs):
                yield argument.lineno, argument.end_lineno or 0, argument.arg


def same_names(tree: ast.AST, field: str) -> set[str]:
    """The names that `attribute_map` of the file holds equal to a field, and the private one behind a property."""
    names = {field, f"{field}_internal"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == "attribute_map":
                held = {k.value: v.value for k, v in zip(node.value.keys, node.value.values, strict=True)
                        if isinstance(k, ast.Constant) and isinstance(v, ast.Constant)}  # fmt: skip
                names |= {str(k) for k, v in held.items() if v in names} | {
                    str(v) for k, v in held.items() if k in names
                }
    return names


# ---- properties ----------------------------------------------------------------------------------------------------


def test_a_line_that_decides_sets_the_field_or_gives_its_default(installed_index: Index, root: Path) -> None:
    trees: dict[str, ast.Module] = {}
    held, wrong = 0, []
    for model in installed_index.model_types()[::EVERY]:
        unit = installed_index.one(model).unit
        for path, row in unit.classes():
            symbol = ClassSymbol(unit, path, row)
            if "forward" not in symbol.members:
                continue
            for _, each in decisions(installed_index, symbol):
                if each.file not in trees:
                    trees[each.file] = ast.parse((root / each.file).read_text())
                names = same_names(trees[each.file], each.field.rpartition(".")[2])
                read = (root / each.read.file).read_text().split("\n")[each.read.line - 1]
                sets = any(a <= each.line <= b and name in names for a, b, name in setting(trees[each.file]))
                held += 1
                if not sets or each.read.path[-1] not in read:
                    wrong.append((path, each))
    assert not wrong
    assert held > 60


# ---- lines read by hand --------------------------------------------------------------------------------------------

ATTENTION = "self.config._attn_implementation_internal = self._check_and_adjust_attn_implementation("
#: class, a line of its forward, the field that it hangs on, the text of the line that decides it, the value it begins with
BY_HAND = [
    ("Gemma3Attention", "sliding_window=self.sliding_window,", "layer_types",
     '"sliding_attention" if bool((i + 1) % self._sliding_window_pattern) else "full_attention"', '["sliding_attention"'),
    ("Gemma3Attention", "ALL_ATTENTION_FUNCTIONS.get_interface(", "_attn_implementation", ATTENTION, ""),
    ("Gemma3TextModel", "if self.config.use_bidirectional_attention:", "use_bidirectional_attention",
     "use_bidirectional_attention: bool | None = False", "false"),
    ("Qwen3MoeDecoderLayer", "self.mlp(hidden_states)", "mlp_only_layers",
     "self.mlp_only_layers = [] if self.mlp_only_layers is None else self.mlp_only_layers", "[]"),
    ("Qwen3MoeDecoderLayer", "self.mlp(hidden_states)", "num_experts", "num_experts: int = 128", "128"),
    ("DeepseekV3DecoderLayer", "self.mlp(hidden_states)", "first_k_dense_replace", "first_k_dense_replace: int | None = 3", "3"),
    ("DeepseekV3Attention", "if self.q_lora_rank is None:", "q_lora_rank", "q_lora_rank: int | None = 1536", "1536"),
    ("LlamaMLP", "self.act_fn(", "hidden_act", 'hidden_act: str = "silu"', '"silu"'),
    ("GraniteMoeHybridDecoderLayer", "if self.has_experts:", "num_local_experts", "num_local_experts: int | None = 8", "8"),
    ("GraniteMoeHybridDecoderLayer", "self.self_attn(", "layer_types",
     'self.layer_types = ["linear_attention"] * self.num_hidden_layers', '["linear_attention"'),
    ("OlmoHybridModel", "self.config.layer_types[i]", "layer_types",
     'self.layer_types = ["linear_attention"] * int(self.num_hidden_layers)', '["linear_attention"'),
    ("GPT2Block", "self.crossattention(", "add_cross_attention", "add_cross_attention: bool = False", "false"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "at", "field", "rule", "value"), BY_HAND)
def test_the_line_of_the_rule_is_the_one_that_a_reader_finds(
    name: str, at: str, field: str, rule: str, value: str, installed_index: Index, root: Path
) -> None:
    forward = installed_index.forward(installed_index.one(name))
    assert forward is not None
    lines = (root / forward.file).read_text().split("\n")
    places = [n for n in range(forward.line, forward.end_line + 1) if at in lines[n - 1]]
    found = [
        each for line, each in decisions(installed_index, forward.symbol) if each.field == field and line in places
    ]
    assert found
    for each in found:
        text = (root / each.file).read_text().split("\n")
        assert text[each.line - 1].strip() == rule == each.rule
        assert each.value.startswith(value)


def test_later_lines_that_change_items_of_a_list_are_named_too(installed_index: Index, root: Path) -> None:
    each = next(d for _, d in decisions(installed_index, installed_index.one("OlmoHybridModel")) if d.also)
    text = (root / each.file).read_text().split("\n")
    assert [text[line - 1].strip() for line in each.also] == [
        'self.layer_types[i] = "full_attention"',
        'self.layer_types[-1] = "full_attention"',
    ]


# ---- in the tools' answers -----------------------------------------------------------------------------------------


def asked(tool: str, context: ToolContext, **given: Any) -> Any:
    return run_tool(tool_named(tool), given, context)


def test_a_given_key_decides_and_what_it_leaves_open_is_computed_from_it(context: ToolContext) -> None:
    text = {"model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window": 7}
    path = context.workspace.output / "config.json"
    path.write_text(json.dumps({"model_type": "gemma3", "text_config": text}, indent=1))
    for config in (str(path), {"model_type": "gemma3", "text_config": text}):
        answer = asked("find_forward", context, target="Gemma3TextModel", config=config)
        told = {each.field: each for line in answer.lines for each in line.decided}
        layers, types = told["num_hidden_layers"], told["layer_types"]
        assert (layers.value, layers.rule) == ("4", '"num_hidden_layers": 4')
        if config == str(path):
            assert layers.file == str(path)
            assert '"num_hidden_layers": 4' in path.read_text().split("\n")[layers.line - 1]
        else:
            assert (layers.file, layers.line) == ("", 0)
        assert json.loads(types.value) == ["sliding_attention"] * 4
        assert "if bool((i + 1) % self._sliding_window_pattern)" in types.rule


def test_a_submodule_that_a_field_chooses_says_which_and_where_it_is_decided(context: ToolContext) -> None:
    (match,) = asked("resolve_class", context, name="GraniteMoeHybridDecoderLayer").matches[:1]
    by_name = {each.attribute: [d.field for d in each.decided] for each in match.submodules}
    assert by_name["mamba"] == by_name["self_attn"] == ["layer_types"]
    assert by_name["block_sparse_moe"] == ["num_local_experts"]
    assert by_name["input_layernorm"] == []
