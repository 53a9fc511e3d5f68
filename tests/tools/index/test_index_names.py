"""Hard cases of Python's naming rules, each in a package written for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import AmbiguousNameError, ConfigError, PathRefusedError, SourceError, UnknownNameError
from opscope_tools.index import Index, open_index
from opscope_tools.running.workspace import folder_repository
from opscope_tools.source.python.file_rows import extract
from opscope_tools.source.python.rows import FileRows
from opscope_tools.source.storage import entries

Package = Callable[[Mapping[str, str | bytes]], Index]

BASE = "class Base:\n    def forward(self, x):\n        return x + 1\n"


def test_relative_star_and_aliased_imports_lead_to_the_definition(package: Package) -> None:
    index = package(
        {
            "pkg/__init__.py": "from .api import *\n",
            "pkg/api.py": "from .deep.core import Base as Renamed\n__all__ = ['Renamed']\n",
            "pkg/deep/__init__.py": "",
            "pkg/deep/core.py": BASE,
            "pkg/deep/use.py": "from ..api import *\nfrom .. import deep\nimport pkg.deep.core as c\n"
            "class A(Renamed): pass\nclass B(c.Base): pass\nclass C(deep.core.Base): pass\n",
        }
    )
    assert index.one("pkg.Renamed").qualified_name == "pkg.deep.core.Base"
    for name in "ABC":
        assert index.mro(index.one(name)) == [f"pkg.deep.use.{name}", "pkg.deep.core.Base", "object"]


def test_a_star_import_leaves_out_private_names_and_those_beyond_all(package: Package) -> None:
    index = package(
        {
            "pkg/__init__.py": "from .a import *\nfrom .b import *\n",
            "pkg/a.py": "class _Hidden: pass\nclass Shown: pass\n",
            "pkg/b.py": "__all__ = []\n__all__ += ['Listed']\nclass Listed: pass\nclass Unlisted: pass\n",
        }
    )
    assert index.exported_as(index.one("Shown")) == ["pkg.Shown"]
    assert index.exported_as(index.one("Listed")) == ["pkg.Listed"]
    assert index.exported_as(index.one("_Hidden")) == index.exported_as(index.one("Unlisted")) == []


def test_a_substitute_gives_way_to_the_definition_it_stands_in_for(package: Package) -> None:
    index = package(
        {
            "pkg/__init__.py": "",
            "pkg/real.py": BASE,
            "pkg/guarded.py": "try:\n    from .real import Base\nexcept ImportError:\n    class Base: pass\n"
            "class Child(Base): pass\n",
        }
    )
    assert index.mro(index.one("Child"))[1] == "pkg.real.Base"


def test_a_branch_that_imports_a_missing_package_gives_way_to_its_else(package: Package) -> None:
    index = package(
        {
            "pkg/__init__.py": "",
            "pkg/m.py": "from .utils import is_there\nif is_there():\n    from no_such_package_anywhere import Fast\n"
            "    class Block(Fast): pass\nelse:\n    class Fast: pass\n    class Block(Fast): pass\n",
            "pkg/utils.py": "def is_there(): return False\n",
        }
    )
    block = index.one("Block")
    assert (block.line, index.mro(block)) == (7, ["pkg.m.Block", "pkg.m.Fast", "object"])


def test_a_class_that_redefines_an_imported_name_inherits_from_the_imported_one(package: Package) -> None:
    index = package(
        {"pkg/__init__.py": "", "pkg/a.py": BASE, "pkg/b.py": "from .a import Base\nclass Base(Base):\n    pass\n"}
    )
    symbol = index.one("pkg.b.Base")
    forward = index.forward(symbol)
    assert index.mro(symbol) == ["pkg.b.Base", "pkg.a.Base", "object"]
    assert forward is not None
    assert (forward.file, forward.line) == ("pkg/a.py", 2)


def test_nested_classes_and_classes_in_functions_are_found_by_their_own_names(package: Package) -> None:
    index = package(
        {
            "m.py": "class Outer:\n    class Inner:\n        pass\n    class Next(Inner):\n        pass\n"
            "def make():\n    class Local:\n        pass\n    return Local\n"
        }
    )
    assert index.one("Inner").qualified_name == "m.Outer.Inner"
    assert index.one("m.Outer.Inner").line == 2
    assert index.mro(index.one("Next")) == ["m.Outer.Next", "m.Outer.Inner", "object"]
    assert index.one("Local").qualified_name == "m.make.<locals>.Local"


def test_diamonds_are_linearised_as_python_does(package: Package) -> None:
    source = (
        "import abc, enum\nfrom typing import Generic, TypeVar, Mapping\nfrom collections import OrderedDict\n"
        "T = TypeVar('T')\n"
        "class A: pass\nclass B(A): pass\nclass C(A, abc.ABC): pass\nclass D(B, C): pass\n"
        "class E(D, Generic[T]): pass\nclass F(E[int], dict): pass\nclass G(OrderedDict): pass\n"
        "class H(str, enum.Enum): pass\nclass I(Mapping): pass\nclass J(G, ValueError if False else A): pass\n"
    )
    index = package({"m.py": source})
    namespace: dict[str, type] = {"__name__": "m"}  # type: ignore[dict-item]  # what exec needs beside the classes
    exec(source, namespace)
    for name in "ABCDEFGHIJ":
        expected = [
            cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
            for cls in namespace[name].__mro__
        ]
        assert index.mro(index.one(name)) == expected


def test_a_base_outside_the_registered_source_keeps_its_name(package: Package) -> None:
    index = package(
        {"m.py": "from torch import nn\nimport numpy as np\nclass A(nn.Module): pass\nclass B(A, np.X): pass\n"}
    )
    assert index.mro(index.one("B")) == ["m.B", "m.A", "torch.nn.Module", "numpy.X", "object"]


def test_bases_that_refer_to_each_other_in_a_circle_do_not_hang(package: Package) -> None:
    index = package(
        {
            "a.py": "from b import *\nfrom b import B\nclass A(B): pass\n",
            "b.py": "from a import *\nfrom a import A, missing\nclass B(A): pass\nX = X\nY = Z\nZ = Y\n",
        }
    )
    assert index.mro(index.one("A"))[:2] == ["a.A", "b.B"]
    with pytest.raises(UnknownNameError):
        index.one("b.missing")


def test_a_package_that_fills_itself_on_demand_exports_what_its_files_list(package: Package) -> None:
    lazy = (
        "from typing import TYPE_CHECKING\n_import_structure = {'models': []}\n"
        "_import_structure['extra'] = ['Extra']\n"
        "if TYPE_CHECKING:\n    from .models import *\nelse:\n    import sys\n"
        "    s = define_import_structure(Path(__file__).parent / 'models', prefix='models')\n"
        "    sys.modules[__name__] = _LazyModule(__name__, s)\n"
    )
    index = package(
        {
            "pkg/__init__.py": lazy,
            "pkg/extra.py": "class Extra: pass\n",
            "pkg/models/__init__.py": "",
            "pkg/models/x/modeling_x.py": "__all__ = ['XModel']\nclass XModel: pass\nclass XLayer: pass\n",
        }
    )
    assert index.one("pkg.XModel").qualified_name == "pkg.models.x.modeling_x.XModel"
    assert index.one("pkg.Extra").file == "pkg/extra.py"
    assert index.exported_as(index.one("XModel")) == ["pkg.XModel"]
    assert index.exported_as(index.one("XLayer")) == []


def test_a_modular_template_gives_way_to_the_file_generated_from_it(package: Package) -> None:
    index = package({"modular_x.py": "class X: pass\n", "modeling_x.py": "\nclass X: pass\n"})
    assert index.one("X").file == "modeling_x.py"
    assert [symbol.file for symbol in index.resolve("X")] == ["modeling_x.py", "modular_x.py"]


def test_an_ambiguous_name_is_refused_with_the_names_that_tell_apart(package: Package) -> None:
    index = package({"a.py": "class X: pass\n", "b.py": "class X: pass\n"})
    with pytest.raises(AmbiguousNameError, match=r"a\.X, b\.X"):
        index.one("X")
    assert index.one("b.X").file == "b.py"


def test_what_only_tree_sitter_cannot_read_is_no_syntax_error(package: Package) -> None:
    index = package(
        {
            "m.py": "class Norm:\n    def forward(self, x):\n        return x, *([None] * 4)\n",
            "bad.py": "class Bad:\n    def forward(self, x):\n        return x, *([None] * 4)\n\ndef f(:\n",
        }
    )
    assert index.one("Norm").unit.syntax_errors == ()
    assert index.one("Bad").unit.syntax_errors


def test_what_parses_in_a_file_with_a_syntax_error_is_used(package: Package) -> None:
    index = package(
        {"m.py": "class Good:\n    def forward(self, x):\n        return x\n\ndef broken(:\n    ((\nclass Late: pass\n"}
    )
    symbol = index.one("Good")
    assert symbol.line == 1
    assert symbol.unit.syntax_errors


def test_a_file_that_is_not_utf8_is_read_all_the_same(package: Package) -> None:
    index = package({"m.py": b"# caf\xe9\nclass Latin:\n    name = '\xe9'\n"})
    assert (index.one("Latin").line, index.one("Latin").unit.rows.utf8) == (2, False)


def test_expressions_nested_beyond_reason_are_refused_in_a_sentence(package: Package) -> None:
    deep = "1" + " + x" * 5000
    index = package(
        {
            "m.py": f"class A:\n    def forward(self, x):\n        return {deep}\n",
            "n.py": f"from torch import nn\nclass B(nn.Module):\n    def __init__(self, x):\n        self.y = {deep}\n",
        }
    )
    forward = index.forward(index.one("A"))
    assert forward is not None
    with pytest.raises(SourceError, match="too deeply"):
        index.forward_lines(forward)
    nested = index.one("B")
    assert nested.line == 2
    with pytest.raises(SourceError, match="too deeply"):
        index.submodules(nested)


def test_links_that_loop_or_lead_outside_are_not_followed(package: Package, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside.py"
    outside.write_text("class Secret: pass\n")
    index = package({"pkg/__init__.py": "", "pkg/m.py": "from .leak import Secret\nclass A(Secret): pass\n"})
    (tmp_path / "pkg" / "loop").symlink_to(tmp_path)
    (tmp_path / "pkg" / "leak.py").symlink_to(outside)
    assert index.mro(index.one("A")) == ["pkg.m.A", "pkg.leak.Secret", "object"]
    with pytest.raises(PathRefusedError):
        index.one("pkg/leak.py:1")
    with pytest.raises(PathRefusedError):
        index.one(f"../{outside.name}:1")


def test_a_source_layout_with_src_names_modules_as_python_imports_them(package: Package) -> None:
    index = package(
        {
            "src/pkg/__init__.py": "",
            "src/pkg/m.py": "from pkg.n import B\nclass A(B): pass\n",
            "src/pkg/n.py": "class B: pass\n",
        }
    )
    symbol = index.one("pkg.m.A")
    assert (symbol.file, index.mro(symbol)) == ("src/pkg/m.py", ["pkg.m.A", "pkg.n.B", "object"])


def test_a_line_names_the_innermost_class_and_its_method(package: Package) -> None:
    index = package({"m.py": "@decorated\nclass A:\n    x = 1\n    def f(self):\n        return 1\n\n\ny = 2\n"})
    assert (index.target("m.py:5").symbol.name, index.target("m.py:5").method) == ("A", "f")
    assert index.target("m.py:1").symbol.name == "A"
    with pytest.raises(
        SourceError, match=r"No class stands at line 8 of m\.py\. Its classes and their lines: A \(2-5\)"
    ):
        index.target("m.py:8")


def test_an_edited_file_is_read_anew_and_a_new_one_is_found(package: Package, tmp_path: Path) -> None:
    index = package({"m.py": "class A: pass\n"})
    assert index.one("A").line == 1
    (tmp_path / "m.py").write_text("\n\nclass A: pass\nclass Added: pass\n")
    assert index.one("m.A").line == 3
    assert index.one("m.Added").line == 4


def test_a_second_index_in_the_same_folder_reads_rows_instead_of_parsing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.py").write_text(BASE)
    store = MemoryStore(tmp_path / "cache")
    repository = folder_repository("mine", tmp_path)
    first = open_index([repository], store).one("Base")

    def refuse(source: bytes) -> None:
        raise AssertionError(f"parsed {len(source)} bytes again")

    monkeypatch.setattr("opscope_tools.source.storage.entries.extract", refuse)
    assert open_index([repository], store).one("Base").row == first.row


def test_model_types_mean_the_class_that_generates_or_else_their_main_class(installed_index: Index) -> None:
    expected = {
        "whisper": "transformers.models.whisper.modeling_whisper.WhisperForConditionalGeneration",
        "bart": "transformers.models.bart.modeling_bart.BartForConditionalGeneration",
        "marian": "transformers.models.marian.modeling_marian.MarianMTModel",
        "llava": "transformers.models.llava.modeling_llava.LlavaForConditionalGeneration",
        "llama": "transformers.models.llama.modeling_llama.LlamaForCausalLM",
        "gpt_neox": "transformers.models.gpt_neox.modeling_gpt_neox.GPTNeoXForCausalLM",
        "gemma3_text": "transformers.models.gemma3.modeling_gemma3.Gemma3ForCausalLM",
        "gpt2": "transformers.models.gpt2.modeling_gpt2.GPT2LMHeadModel",
        "vit": "transformers.models.vit.modeling_vit.ViTModel",
    }
    for model_type, name in expected.items():
        target = installed_index.target(model_type)
        assert (target.model_type, target.symbol.qualified_name) == (model_type, name)
    assert set(expected) <= set(installed_index.model_types())


def test_a_part_of_models_is_the_class_of_its_configuration(installed_index: Index) -> None:
    expected = {
        "chinese_clip_text_model": ("ChineseCLIPTextModel", "chinese_clip_text_model"),
        "musicgen_decoder": ("MusicgenForCausalLM", "musicgen_decoder"),
        "clvp_encoder": ("ClvpEncoder", "clvp_encoder"),
        "sam_mask_decoder": ("SamMaskDecoder", None),  # no model by itself: it runs where models call it
    }
    for model_type, known in expected.items():
        target = installed_index.target(model_type)
        assert (target.symbol.name, target.model_type) == known
    with pytest.raises(SourceError, match="has a configuration, NougatConfig, but no class"):
        installed_index.target("nougat")


def test_model_types_lead_to_classes_whose_module_bears_the_name_of_the_type(installed_index: Index) -> None:
    model_types = installed_index.model_types()
    assert len(model_types) > 400
    for model_type in model_types[::20]:
        symbol = installed_index.target(model_type).symbol
        assert symbol.module.startswith("transformers.models.")
        assert not symbol.unit.secondary


@pytest.mark.parametrize(
    ("given", "nearest"),
    [("LlamaAtention", "LlamaAttention"), ("lama", "llama"), ("llamaforcausallm", "LlamaForCausalLM")],
)
def test_an_unknown_name_is_answered_with_the_nearest(installed_index: Index, given: str, nearest: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        installed_index.one(given)
    assert caught.value.nearest[0] == nearest


def test_names_as_torch_users_write_them_are_understood(installed_index: Index) -> None:
    linear = installed_index.one("torch.nn.modules.linear.Linear")
    assert installed_index.one("torch.nn.Linear").same(linear)
    assert installed_index.one("nn.Linear").same(linear)
    assert installed_index.exported_as(linear) == ["torch.nn.Linear", "torch.nn.modules.Linear"]


def test_names_that_only_a_package_serves_lead_to_their_classes(installed_index: Index) -> None:
    expected = {
        "transformers.CacheLayerMixin": "transformers.cache_utils.CacheLayerMixin",  # in _import_structure alone
        "NerPipeline": "transformers.pipelines.token_classification.TokenClassificationPipeline",  # an alias
        "transformers.pipelines.NerPipeline": "transformers.pipelines.token_classification.TokenClassificationPipeline",
        "transformers/models/llama/modeling_llama.py:LlamaAttention": "transformers.models.llama.modeling_llama.LlamaAttention",
        "gpt-neox": "transformers.models.gpt_neox.modeling_gpt_neox.GPTNeoXForCausalLM",
    }
    assert {name: installed_index.one(name).qualified_name for name in expected} == expected


def test_a_legacy_name_that_nothing_defines_is_answered_with_the_nearest(installed_index: Index) -> None:
    with pytest.raises(UnknownNameError) as caught:
        installed_index.one("LlamaTokenizersFast")
    assert "LlamaTokenizer" in caught.value.nearest


def test_a_definition_behind_a_package_that_is_not_installed_gives_way(installed_index: Index) -> None:
    symbol = installed_index.one("transformers.models.xlstm.modeling_xlstm.xLSTMBlock")
    assert installed_index.resolver.available("xlstm") == (symbol.row.guard.condition == "is_xlstm_available()")


@pytest.mark.parametrize(
    ("auto", "config", "picked", "model_type"),
    [
        ("AutoModelForCausalLM", {"model_type": "llama"}, "llama.modeling_llama.LlamaForCausalLM", "llama"),
        ("transformers.AutoModel", {"model_type": "gpt-sw3"}, "gpt2.modeling_gpt2.GPT2Model", "gpt-sw3"),
        (
            "AutoModelForCausalLM",
            {"architectures": ["GemmaForCausalLM"]},
            "gemma.modeling_gemma.GemmaForCausalLM",
            "gemma",
        ),
        ("AutoModelForMultimodalLM", {"model_type": "blip"}, "blip.modeling_blip.BlipForConditionalGeneration", "blip"),
        ("LlamaModel", {"model_type": "gpt2"}, "llama.modeling_llama.LlamaModel", None),
    ],
)
def test_an_auto_class_with_a_configuration_means_the_class_it_picks(
    installed_index: Index, auto: str, config: dict[str, object], picked: str, model_type: str | None
) -> None:
    target = installed_index.target(auto, "transformers", config)
    assert (target.symbol.qualified_name, target.model_type) == (f"transformers.models.{picked}", model_type)


def test_an_auto_class_without_a_class_for_the_configuration_says_what_to_give(installed_index: Index) -> None:
    with pytest.raises(ConfigError, match="AutoModelForCausalLM has no class for the model type 'vit'"):
        installed_index.target("AutoModelForCausalLM", None, {"model_type": "vit"})
    with pytest.raises(ConfigError, match="neither a model_type nor an architecture of AutoModel"):
        installed_index.target("AutoModel", None, {"hidden_size": 8})
    remarks = installed_index.remarks(installed_index.one("AutoModelForCausalLM"))
    assert "Give `config`" in remarks[0]
    assert len(remarks) == 1  # `AutoModelForCausalLM = auto_class_update(AutoModelForCausalLM)` hands it back


def test_a_dotted_name_is_answered_without_reading_the_whole_tree(
    installed_index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = open_index([tree.repository for tree in installed_index.resolver.trees], MemoryStore())
    read: list[int] = []

    def counted(source: bytes) -> FileRows:
        read.append(len(source))
        return extract(source)

    monkeypatch.setattr(entries, "extract", counted)
    symbol = index.one("transformers.models.llama.modeling_llama.LlamaAttention")
    forward = index.forward(symbol)
    assert forward is not None
    assert index.forward_lines(forward)
    assert 0 < len(read) < 100  # of some 5,000 files


def test_a_folder_without_init_inside_a_package_is_a_part_of_it(package: Package) -> None:
    index = package(
        {
            "python/pkg/__init__.py": "",
            "python/pkg/srt/configs/__init__.py": "",
            "python/pkg/srt/configs/base.py": "class Base: pass\n",
            "python/pkg/srt/model.py": "from pkg.srt.configs.base import Base\nclass A(Base): pass\n",
            "tests/helpers/__init__.py": "class H: pass\n",
        }
    )
    assert index.mro(index.one("A")) == ["pkg.srt.model.A", "pkg.srt.configs.base.Base", "object"]
    assert index.one("pkg.srt.configs.base.Base").file == "python/pkg/srt/configs/base.py"
    assert index.one("H").qualified_name == "helpers.H"


def test_a_forward_that_is_put_in_place_at_run_time_is_told(package: Package) -> None:
    index = package(
        {
            "m.py": (
                "class Late:\n    def forward(self): pass\n\n\ndef patched(self): pass\n\n\nLate.forward = patched\n\n\n"
                "class Own:\n    def __init__(self):\n        self.forward = self.other\n    def other(self): pass\n"
            )
        }
    )
    assert index.patches(index.one("Late")) == [
        "m.py:8 assigns the class's forward when it runs: Late.forward = patched."
    ]
    assert index.patches(index.one("Own")) == [
        "m.py:13 assigns its objects' forward when it runs: self.forward = self.other."
    ]


def test_a_file_is_found_by_the_end_of_its_path_or_from_the_shells_folder(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = package({"src/pkg/__init__.py": "", "src/pkg/only.py": "class A: pass\n", "a/x.py": "", "b/x.py": ""})
    monkeypatch.chdir(tmp_path / "src")
    assert index.one("pkg/only.py:1").qualified_name == "pkg.only.A"
    monkeypatch.chdir("/")
    assert index.one("only.py:1").qualified_name == "pkg.only.A"
    with pytest.raises(PathRefusedError, match=r"a/x\.py, b/x\.py"):
        index.one("x.py:1")


def test_dots_and_dashes_of_a_model_type_are_underscores(installed_index: Index) -> None:
    assert installed_index.one("kosmos2_5").same(installed_index.one("kosmos-2.5"))
