"""Serena's language-server layer asked for the references of one class, in Serena's interpreter: `PYTHON serena_references.py FOLDER`.

Over jedi's language server, which lies beside it; the default, pyright, is fetched when it is first started. It lists uses in
modular_*.py too, templates that opscope counts and does not list.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

from solidlsp.ls import SolidLanguageServer
from solidlsp.ls_config import LanguageServerConfig, LanguageServerId
from solidlsp.settings import SolidLSPSettings

FILE, CLASS = "models/llama/modeling_llama.py", "LlamaAttention"


def main() -> None:
    root = sys.argv[1]
    lines = (Path(root) / FILE).read_text().splitlines()
    line = next(number for number, text in enumerate(lines) if text.startswith(f"class {CLASS}("))
    with tempfile.TemporaryDirectory() as folder:
        settings = SolidLSPSettings(solidlsp_dir=folder, project_data_path=folder)
        server = SolidLanguageServer.create(
            LanguageServerConfig(LanguageServerId.PYTHON_JEDI), root, solidlsp_settings=settings
        )
        server.start()
        found = server.request_references(FILE, line, len("class "))
        server.stop()
    print(json.dumps({"found": len(found)}))


if __name__ == "__main__":
    main()
