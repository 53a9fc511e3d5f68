"""Writes the gallery under reports/: implementation reports of a few models, repository reports of transformers and vLLM,
and the posts below posts/ from the records that lie there (`opscope post TOPIC --collect` makes new ones).

vLLM's source is not installed: `python tests/golden/gallery.py vllm=PATH` takes the unpacked sdist; without it that report
stays as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from opscope_schemas.evidence import TOPICS
from opscope_tools.running.engines import close_engines
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.write_report import WRITE_REPORT, WriteReportArguments

ROOT = Path(__file__).parents[2]
MODELS = ("llama", "mixtral", "deepseek_v3", "qwen3_next", "mamba2", "whisper")


def main() -> None:
    given = [(name, Path(path)) for name, _, path in (argument.partition("=") for argument in sys.argv[1:])]
    workspace = Workspace.create(repositories=given, output=ROOT)
    context = ToolContext(workspace)
    asked = [("implementation", name) for name in MODELS]
    asked += [("repo", "transformers"), *(("repo", name) for name, _ in given), *(("post", topic) for topic in TOPICS)]
    for kind, name in asked:
        result = WRITE_REPORT.run(
            WriteReportArguments.model_validate(
                {"kind": kind, "name": name, "overwrite": True, "html": kind == "post"}
            ),
            context,
        )
        if not result.ok:
            raise SystemExit(f"{result.path}: {result.problems[0].message}")
        sys.stdout.write(f"{result.path}\n")
    close_engines(workspace)


if __name__ == "__main__":
    main()
