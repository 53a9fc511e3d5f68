"""What counts as a hub id, and what a machine without a network says of one."""

from __future__ import annotations

from pathlib import Path

import pytest
from opscope_clients import hub
from opscope_schemas.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("owner/Model-7b.v2", True),
        ("llama", False),
        ("transformers.LlamaModel", False),
        ("a/b/c", False),
        ("../x", False),
    ],
)
def test_owner_slash_name_is_a_hub_id(text: str, expected: bool) -> None:
    assert hub.is_hub_id(text) is expected


def test_a_folder_that_exists_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert not hub.is_hub_id("owner/name")


def test_an_id_that_cannot_be_fetched_is_one_sentence_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"(?s)could not be read from the hub.*config\.json or its folder"):
        hub.fetch_config("nobody/no-such-model")
