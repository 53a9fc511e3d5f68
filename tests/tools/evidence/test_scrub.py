"""What is taken out of an output: who ran it, where, and what the environment holds."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest
from opscope_tools.evidence.scrub import Scrubber


def test_folders_and_the_interpreter_get_short_names() -> None:
    scrub = Scrubber({"/tmp/scratch-12": "."}, environment={})
    assert scrub(f"{sys.executable} /tmp/scratch-12/a.py") == "python ./a.py"
    assert scrub(f"{sysconfig.get_path('purelib')}/torch/lib/x.so") == "site-packages/torch/lib/x.so"
    assert scrub("/tmp/scratch-123/a") == "/tmp/scratch-123/a"


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("/home/ada/x.py", "~/x.py"), ("at /Users/ada/y", "at ~/y"), ("OPENAI_API_KEY=abc123 x", "OPENAI_API_KEY=... x"), ("token hf_abcdefghijklmnopqrst!", "token [hidden]!"),
        ("sk-ABCDEFGHIJKLMNOPQRSTU", "[hidden]"), ("ghp_ABCDEFGHIJKLMNOPQRSTUVWX", "[hidden]"), ("DB_PASSWORD='a b'", "DB_PASSWORD=..."), ("nothing of it", "nothing of it"),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libc.so.6"),
    ],
)  # fmt: skip
def test_homes_and_secrets_are_hidden(said: str, left: str) -> None:
    assert Scrubber(environment={})(said) == left


def test_values_of_the_environment_become_their_names() -> None:
    scrub = Scrubber(
        environment={
            "SESSION_ID": "8d7f6a5b4c",
            "SHORT": "ab",
            "PATH": "/usr/bin:/bin/longer",
            "FOLDER": str(Path("/usr")),
        }
    )
    assert scrub("id 8d7f6a5b4c, ab, /usr/bin:/bin/longer") == "id $SESSION_ID, ab, /usr/bin:/bin/longer"
