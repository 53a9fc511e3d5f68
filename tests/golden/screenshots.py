"""Draws docs/assets/page-1280.png and page-390.png: the page of a model's report as chromium shows it (`make screenshots`)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from opscope_tools.running.engines import close_engines
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.write_report import WRITE_REPORT, WriteReportArguments

ROOT = Path(__file__).parents[2]
MODEL = "deepseek_v3"
#: width and height of the window, in pixels
WINDOWS = ((1280, 1900), (390, 1500))


def main() -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("No chromium is on PATH: apt-get install chromium.")
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.create(output=Path(folder))
        asked = WriteReportArguments.model_validate({"kind": "implementation", "name": MODEL, "html": True})
        result = WRITE_REPORT.run(asked, ToolContext(workspace))
        close_engines(workspace)
        page = (Path(folder) / result.path).with_suffix(".html")
        for width, height in WINDOWS:
            picture = ROOT / f"docs/assets/page-{width}.png"
            subprocess.run(
                [
                    browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/profile",
                    f"--window-size={width},{height}", "--virtual-time-budget=5000", f"--screenshot={picture}", page.as_uri(),
                ],
                check=True, timeout=120, capture_output=True,
            )  # fmt: skip
            sys.stdout.write(f"{picture}\n")


if __name__ == "__main__":
    main()
