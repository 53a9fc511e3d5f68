"""Section 7.1 counts what the cited dictionary declares, and says where nothing of it is in the model."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import report_toy as toy
from opscope_schemas.analysis import Kernel
from opscope_schemas.common import Repository
from opscope_schemas.estimates import Communication, Spread
from opscope_tools.report.checks_source import pointer_problems
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.findings import findings, ranks_line
from opscope_tools.report.markdown import Page
from opscope_tools.report.parallel import Split, communication_rows, parallelism_lines
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.sources import SourceReader

#: of a dictionary that every configuration inherits
SHARED = """class Base:
    base_model_fsdp_plan = {PLAN}


class ToyConfig(Base):"""
MIXIN = "transformers/distributed/mixin.py"


def lines(facts: ImplementationFacts, folder: Path, plan: dict[str, str]) -> dict[str, str]:
    """What is said of each strategy where the toy is a model of transformers and its configuration inherits `plan`."""
    repository = toy.write_source(folder)
    (folder / toy.CONFIG_FILE).write_text(
        toy.CONFIGURATION.replace("class ToyConfig:", SHARED.replace("{PLAN}", repr(plan)))
    )
    model = "class PreTrainedModel:\n    pass\n\n\nclass ToyForCausalLM(PreTrainedModel):"
    source = toy.MODELING.replace("class ToyForCausalLM(nn.Module):", model)
    (folder / toy.FILE).write_text(source.replace('    _fsdp_plan = {"lm_head": "keep_full_weight"}\n', ""))
    (folder / MIXIN).parent.mkdir(parents=True)
    (folder / MIXIN).write_text('\nplan = {"embed_tokens": "embedding_rowwise", **plan}\n')
    held = repository.model_copy(update={"packages": ("toyland", "transformers")})
    split = Split.of(replace(facts, reader=SourceReader([held])))
    return {line.split(" ")[0].strip("*").lower(): line for line in parallelism_lines(split)}


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"embed_tokens": "a", "layers.*": "a"}, "Yes; `base_model_fsdp_plan` (AT) declares it for 2 entries."),
        ({"embed_tokens": "a", "layers": "a", "absent": "a"},
         "Yes; `base_model_fsdp_plan` (AT) declares it for 3 entries, of which 2 are of this pass."),
        ({"attention": "a"}, "None declared: `base_model_fsdp_plan` (AT) names no module of this pass (`attention`); searched"),
        ({"embed_tokens": "a"}, "Yes; `base_model_fsdp_plan` (AT) declares it for `embed_tokens`."),
    ],
)  # fmt: skip
def test_a_plan_declares_what_its_patterns_name_from_a_model_on(
    facts: ImplementationFacts, tmp_path: Path, plan: dict[str, str], said: str
) -> None:
    at = f"`{toy.CONFIG_FILE}:{toy.line_of('class ToyConfig', toy.CONFIGURATION) + 1}`"
    assert said.replace("AT", at) in lines(facts, tmp_path / "src", plan)["data"]


def test_a_plan_of_a_configuration_inside_is_that_of_the_model_made_with_it(
    facts: ImplementationFacts, tmp_path: Path
) -> None:
    """As in a model of text and pictures, whose text model is made with a configuration of its own."""
    lines(facts, tmp_path / "src", {})
    config, modeling = (tmp_path / "src" / file for file in (toy.CONFIG_FILE, toy.FILE))
    part = """

class PartConfig:
    base_model_tp_plan = {"attention.qkv_proj": "colwise", "absent": "rowwise"}
    base_model_ep_plan = {"absent": "grouped_gemm"}
"""
    config.write_text(config.read_text().replace("base_model_tp_plan", "other") + part)
    inside = "class ToyLayer(PreTrainedModel):\n    config: PartConfig\n"
    source = modeling.read_text().replace("_tp_plan", "other").replace("class ToyLayer(nn.Module):", inside)
    module = toy.CONFIG_FILE.removesuffix(".py").replace("/", ".")
    modeling.write_text(source.replace("import torch\n", f"import torch\nfrom {module} import PartConfig\n", 1))
    held = next(iter(facts.reader.repositories)).model_copy(
        update={"root": tmp_path / "src", "packages": ("toyland", "transformers")}
    )
    split = Split.of(replace(facts, reader=SourceReader([held])))
    said = {line.split(" ")[0].strip("*").lower(): line for line in parallelism_lines(split)}
    at = f"`{toy.CONFIG_FILE}:{config.read_text().splitlines().index('class PartConfig:') + 2}`"
    assert f"`base_model_tp_plan` ({at}) declares it for 2 entries, of which 1 is of this pass" in said["tensor"]
    assert "None, as the model has no experts: " in said["expert"]
    assert any("`layers.*.attention.qkv_proj` split as `colwise`" in row[0] for row in communication_rows(split))


def test_a_plan_that_a_class_takes_back_is_none(facts: ImplementationFacts, tmp_path: Path) -> None:
    plan = {"embed_tokens": "a", "layers.*": "a"}
    lines(facts, tmp_path / "src", plan)
    config = tmp_path / "src" / toy.CONFIG_FILE
    own = config.read_text().replace(
        "class ToyConfig(Base):", "class ToyConfig(Base):\n    base_model_fsdp_plan = None  # none fits"
    )
    config.write_text(own)
    held = next(iter(facts.reader.repositories)).model_copy(
        update={"root": tmp_path / "src", "packages": ("toyland", "transformers")}
    )
    split = Split.of(replace(facts, reader=SourceReader([held])))
    (said,) = [line for line in parallelism_lines(split) if line.startswith("**Data")]
    assert "None declared: searched" in said


def test_what_is_added_to_a_plan_has_its_own_line(facts: ImplementationFacts, tmp_path: Path) -> None:
    said = lines(facts, tmp_path / "src", {})["tensor"]
    assert f"declares it for 2 entries; `embed_tokens` (`{MIXIN}:2`) is added to them" in said


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (
            "stage = None",
            "`apply_pipeline_parallelism` (AT) takes `toy.layers`, which this model does not have; searched",
        ),
        ("plan = model.pp_plan", "searched"),  # it goes by what is declared
    ],
)
def test_stages_are_told_of_a_library_that_goes_by_no_plan(
    facts: ImplementationFacts, tmp_path: Path, first: str, said: str
) -> None:
    lines(facts, tmp_path / "src", {})
    file = tmp_path / "src" / "transformers/distributed/pipeline_parallel.py"
    file.write_text(f"""def apply_pipeline_parallelism(model, mesh):
    {first}
    base = getattr(model, model.base_model_prefix)
    layers = base.layers
    split(len(layers))
""")
    modeling = tmp_path / "src" / toy.FILE
    heads = "(PreTrainedModel):\n    base_model_prefix = 'toy'\n    _supports"
    modeling.write_text(modeling.read_text().replace("(PreTrainedModel):\n    _supports", heads))
    held = next(iter(facts.reader.repositories)).model_copy(
        update={"root": tmp_path / "src", "packages": ("toyland", "transformers")}
    )
    split = Split.of(replace(facts, reader=SourceReader([held])))
    (line,) = [one for one in parallelism_lines(split) if one.startswith("**Pipeline")]
    at = f"`{file.relative_to(tmp_path / 'src')}:4`"
    assert f"None declared: {said.replace('AT', at)}" in line


@pytest.mark.parametrize(
    ("width", "heads", "said"),
    [
        ("{num_kv_heads} * 3", (4, 4), "`{num_kv_heads}`, 4 in `layers.*.attention.qkv_proj`"),
        ("{num_heads} * {num_kv_heads}", (6, 2), "`{num_kv_heads}`, 2 in `layers.*.attention.qkv_proj`"),
        ("{num_heads} * {num_kv_heads}", (6, 4),
         "`{num_heads}`, 6 in `layers.*.attention.qkv_proj` and `{num_kv_heads}`, 4 in `layers.*.attention.qkv_proj`"),
        ("{hidden_size} * 3", (4, 4), ""),  # it names no heads
        ("?", (4, 4), ""),  # data decides
        ("{num_heads} + {num_kv_heads}", (4, 4), ""),  # several side by side: how they are cut, the code decides
    ],
)  # fmt: skip
def test_a_plan_goes_as_far_as_the_heads_that_it_leaves_whole(
    facts: ImplementationFacts, tmp_path: Path, width: str, heads: tuple[int, int], said: str
) -> None:
    def wider(kernel: Kernel) -> Kernel:
        inside = tuple(wider(each) for each in kernel.kernels or ()) or kernel.kernels
        if kernel.attribute.endswith("qkv_proj"):
            output = kernel.outputs[0]
            wide = output.model_copy(update={"shape": (*output.shape[:-1], width)})
            return kernel.model_copy(update={"outputs": (wide,), "kernels": inside})
        return kernel.model_copy(update={"kernels": inside})

    reader = SourceReader([toy.write_source(tmp_path / "src")])
    split = Split.of(replace(facts, reader=reader))
    document = split.document.model_copy(update={"kernels": tuple(map(wider, split.document.kernels))})
    point = {**split.point, "num_heads": heads[0], "num_kv_heads": heads[1]}
    (line,) = [one for one in parallelism_lines(replace(split, document=document, point=point)) if "**Tensor" in one]
    assert line.partition(" It leaves heads whole: the number of ranks has to divide ")[2].rstrip(".") == said


def test_what_ranks_exchange_is_told_of_each_pass(facts: ImplementationFacts) -> None:
    sent = [Communication(kind="send", bytes=8, ranks=2, count=3, bound_seconds=1e-6, calibrated_seconds=2e-6)]
    parallel = Spread(
        tp=2, pp=1, ep=1, dp=1, sp=False, zero=0, devices=2, communication=tuple(sent), hidden_seconds=None
    )
    of = {
        phase: {2: facts.spread[2].model_copy(update={"parallel": parallel, "phase": phase})}
        for phase in ("decode", "prefill")
    }
    row = communication_rows(Split.of(replace(facts, spread=of["decode"], spread_prefill=of["prefill"])))[-1]
    sizes = "decode: 3 send of 8 B, 2 us together; prefill: 3 send of 8 B, 2 us together"
    assert row == (
        "the split over 2 ranks",
        "send",
        "in a pass of decode and one of prefill, as section 7.1 models it",
        sizes,
    )


def test_why_no_size_per_rank_is_told_is_said(facts: ImplementationFacts, tmp_path: Path) -> None:
    alone = replace(facts, spread={}, unspread="tp 2 does not divide 71 heads.")
    assert findings(alone, [], Quotes())["7"] == "No size per rank is told: tp 2 does not divide 71 heads."
    toy.write_source(tmp_path / "src")
    for file in (toy.FILE, toy.CONFIG_FILE):
        path = tmp_path / "src" / file
        path.write_text(path.read_text().replace("_tp_plan", "_other"))
    reader = SourceReader([Repository(name="toyland", root=tmp_path / "src", packages=("toyland",))])
    assert findings(replace(alone, reader=reader), [], Quotes())["7"].endswith("declares no tensor-parallel plan.")


def test_ranks_that_do_not_hold_their_share_have_no_time(facts: ImplementationFacts) -> None:
    few = {
        ranks: found.model_copy(update={"memory": found.memory.model_copy(update={"fits": ranks > 2})})
        for ranks, found in facts.spread.items()
    }
    (line,) = ranks_line(replace(facts, spread=few, spread_prefill=few), Quotes())
    two, four, _ = re.sub("<!--.*?-->", "", line).split("; ")
    assert two.endswith("cache 64 B, more than the 9 GB of one")
    assert "2 ms" in four
    assert "split as engines do it and not as a declared plan says: " in line


def test_modules_that_share_a_row_have_that_size_each(facts: ImplementationFacts, tmp_path: Path) -> None:
    source = toy.CONFIGURATION.replace('"colwise"', '"rowwise"')
    repository = toy.write_source(tmp_path / "src")
    (tmp_path / "src" / toy.CONFIG_FILE).write_text(source)
    split = Split.of(replace(facts, reader=SourceReader([repository])))
    (row,) = [row for row in communication_rows(split) if "qkv_proj" in row[0]]
    assert "o_proj" in row[0]
    assert row[3].startswith("each `")


def test_what_modelled_ranks_exchange_is_told_with_each_size(facts: ImplementationFacts) -> None:
    most = max(facts.spread)
    sent = [
        Communication(kind="all_reduce", bytes=4096, ranks=most, count=5, bound_seconds=1e-6, calibrated_seconds=None),
        Communication(kind="all_gather", bytes=50, ranks=most, count=1, bound_seconds=1e-6, calibrated_seconds=None),
    ]
    parallel = Spread(
        tp=most, pp=1, ep=1, dp=1, sp=False, zero=0, devices=most, communication=tuple(sent), hidden_seconds=None
    )
    found = facts.spread[most].model_copy(update={"parallel": parallel})
    row = communication_rows(Split.of(replace(facts, spread={**facts.spread, most: found})))[-1]
    when = f"in a pass of {found.phase}, as section 7.1 models it"
    sizes = "5 all_reduce of 4.1 kB; 1 all_gather of 50 B"
    assert row == (f"the split over {most} ranks", "all_reduce, all_gather", when, sizes)


def test_styles_of_gathered_weights_stand_before_the_lines_that_name_them(
    facts: ImplementationFacts, tmp_path: Path
) -> None:
    repository = toy.write_source(tmp_path / "src")
    inherited = SHARED.replace("{PLAN}", repr({"embed_tokens": "freed_full_weight", "layers.*": "freed_full_weight"}))
    (tmp_path / "src" / toy.CONFIG_FILE).write_text(toy.CONFIGURATION.replace("class ToyConfig:", inherited))
    reader = SourceReader([repository])
    (row,) = [
        row for row in communication_rows(Split.of(replace(facts, reader=reader))) if "freed_full_weight" in row[0]
    ]
    assert "`keep_full_weight`" in row[0]
    page = Page(f"| {' | '.join(row)} |\n")
    assert {pointer.split(":")[0] for pointer in re.findall(r"[\w/]+\.py:\d+", row[0])} == {toy.FILE, toy.CONFIG_FILE}
    assert list(pointer_problems(page, reader)) == []


@pytest.mark.parametrize(
    ("plan", "together"),
    [
        ({"norm": "keep_full_weight"}, True),
        ({"norm": "keep_full_weight", "embed_tokens": "keep_full_weight"}, False),
        ({"norm": "free_full_weight"}, False),
    ],
)
def test_a_last_norm_and_a_head_that_alone_are_kept_whole_are_gathered_together(
    facts: ImplementationFacts, tmp_path: Path, plan: dict[str, str], together: bool
) -> None:
    repository = toy.write_source(tmp_path / "src")
    source = toy.CONFIGURATION.replace("class ToyConfig:", SHARED.replace("{PLAN}", repr(plan)))
    (tmp_path / "src" / toy.CONFIG_FILE).write_text(source)
    split = Split.of(replace(facts, reader=SourceReader([repository])))
    (row,) = [
        row
        for row in communication_rows(split)
        if row[0].startswith("`norm`") or "; `norm`" in row[0] or ", `norm`" in row[0]
    ]
    assert ("in one group with `lm_head`: gathered with it" in row[3]) is together


def test_a_tied_table_whose_partner_has_no_entry_goes_with_the_root(facts: ImplementationFacts, tmp_path: Path) -> None:
    repository = toy.write_source(tmp_path / "src")
    source = toy.CONFIGURATION.replace(
        "class ToyConfig:", SHARED.replace("{PLAN}", repr({"embed_tokens": "free_full_weight"}))
    )
    (tmp_path / "src" / toy.CONFIG_FILE).write_text(source)
    model = toy.MODELING.replace('    _fsdp_plan = {"lm_head": "keep_full_weight"}\n', "")
    (tmp_path / "src" / toy.FILE).write_text(model)
    wraps = tmp_path / "src/transformers/distributed/fsdp.py"
    wraps.parent.mkdir(parents=True)
    wraps.write_text("def shard(model):\n    fully_shard(model, mesh=mesh)\n")
    reader = SourceReader([repository.model_copy(update={"packages": ("toyland", "transformers")})])
    head = next(child for child in facts.tree.tree.children if child.name == "lm_head")
    tied = facts.tree.model_copy(update={"parameters": facts.tree.tree.parameters - head.parameters})
    split = Split.of(replace(facts, reader=reader, tree=tied))
    (row,) = [row for row in communication_rows(split) if "what no entry names" in row[0]]
    assert "with `embed_tokens`, one weight with a module of no entry" in row[3]
    assert list(pointer_problems(Page(f"| {' | '.join(row)} |\n"), reader)) == []
