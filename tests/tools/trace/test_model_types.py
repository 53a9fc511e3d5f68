"""Every model type of the installed transformers means one class, whose configuration class is the type's own."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest
from cost_comparison import compare, overrides
from opscope_schemas.errors import OpscopeError
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.engines import index_of
from opscope_tools.running.tool import ToolContext
from sampled import sampled
from transformers import PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

#: configurations that transformers makes no class from
WITHOUT = {
    "chameleon_vqgan", "gemma4_unified_audio", "idefics_perciever", "layoutxlm", "nougat", "pp_chart2table_vision",
    "t5_gemma_module",
}  # fmt: skip
#: types that the auto classes of transformers themselves lend the class of another
LENT = {"gemma3n_vision", "glmga", "pp_chart2table"}


def _fits(model_class: Any, model_type: str) -> bool:
    """Whether a class is made from the configuration of the type, from a part of it or from what it derives from; a part
    that is no model by itself declares none."""
    if not issubclass(model_class, PreTrainedModel):
        return True
    own, declared = CONFIG_MAPPING[model_type], model_class.config_class
    kinds = {own, *getattr(own, "sub_configs", {}).values()}
    return declared in kinds or any(issubclass(kind, declared) for kind in kinds)


def test_a_model_type_means_a_class_of_its_own_configuration(context: ToolContext) -> None:
    index, wrong, without = index_of(context.workspace), [], set()
    for model_type in sorted(CONFIG_MAPPING_NAMES)[::6]:
        try:
            symbol = index.target(model_type).symbol
        except OpscopeError:
            without.add(model_type)
            continue
        try:
            found = getattr(importlib.import_module(symbol.module), symbol.path)
        except ImportError:  # needs a package that is not installed
            continue
        if model_type not in LENT and not _fits(found, model_type):
            wrong.append((model_type, symbol.qualified_name))
    assert without <= WITHOUT
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["flaubert", "xlm"])
def test_a_document_says_which_line_decides_by_data(model_type: str, context: ToolContext) -> None:
    outcome = compare(model_type, "prefill", context, count=1)
    assert outcome.state == "exact", outcome.line()
    found = count_flops(CostArguments(target=model_type, config=overrides(model_type)), context)
    assert any("Data decides at transformers/models/" in said for said in found.document.assumptions)


@pytest.mark.skipif(importlib.util.find_spec("timm") is not None, reason="timm is installed")
def test_a_package_that_is_not_installed_is_named(context: ToolContext) -> None:
    with pytest.raises(OpscopeError, match="needs the package timm, which is not installed"):
        count_flops(CostArguments(target="table-transformer"), context)


@pytest.mark.parametrize("model_type", sampled(["pix2struct_vision_model", "speecht5_hifigan"]))
def test_arguments_that_the_docstring_describes_are_made(model_type: str, context: ToolContext) -> None:
    outcome = compare(model_type, "prefill", context, count=1)
    assert outcome.state == "exact", outcome.line()
