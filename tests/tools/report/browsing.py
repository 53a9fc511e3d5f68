"""Pages as a browser shows them: what a script of a test finds in the page of the toy, with nothing said on the console."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import report_toy as toy
from opscope_prompts.templates import render_template
from opscope_schemas.estimates import SweepPoint, SweepResult
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.live import live_data
from opscope_tools.report.webpage import web_page

__all__ = [
    "BATCHES",
    "BROWSER",
    "CONTEXTS",
    "DEVICE",
    "FIREFOX",
    "OTHER",
    "browsed",
    "in_firefox",
    "modelled",
    "page_of",
    "result",
]

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DEVICE = {"id": "d", "name": "Device", "peaks": {"bf16": 1e12, "fp8": 2e12}, "bandwidth": 1e9, "usable": 10_000}
OTHER = {"id": "e", "name": "Faster", "peaks": {"bf16": 4e12}, "bandwidth": 4e9, "usable": 10_000}

BATCHES, CONTEXTS = (1, 4, 16), (16, 64, 256)


def modelled(ranks: int, batch: float, context: float) -> float:
    """Seconds as engines would run the toy over so many ranks: straight in logarithms, so that what lies between is known."""
    return float(1e-3 * batch**0.5 * context**0.75 / ranks)


def plan(ranks: int) -> tuple[int, list[SweepResult]]:
    points = [
        SweepPoint(
            batch=batch, context=context, flops=1, bytes=1, bound_seconds=1e-6, calibrated_seconds=modelled(ranks, batch, context),
            limited_by="memory", weights_bytes=0, cache_bytes=batch * context // ranks, fits=True,
        )
        for batch in BATCHES for context in CONTEXTS
    ]  # fmt: skip
    return ranks, [SweepResult(model_class="Toy", phase="prefill", device="d", parallel="", points=tuple(points))]


def browsed(html: str, folder: Path, width: int = 1280) -> str:
    """The page as it is once its scripts have run, what it said on the console behind it."""
    file = folder / "page.html"
    file.write_text(html, encoding="utf-8")
    found = subprocess.run(
        [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr",
            f"--window-size={width},2000", "--virtual-time-budget=5000", "--dump-dom", file.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-500:]
    said = [line for line in found.stderr.split("\n") if "CONSOLE" in line]
    assert not said, said
    return found.stdout


def in_firefox(html: str, folder: Path, width: int = 1280) -> Any:
    """What a page leaves in `#result` in Firefox, which hands it back over loopback; nothing may be said on its console."""
    watched = """<script>window.said = []; addEventListener("error", e => said.push(String(e.message)));
      for (const kind of ["error", "warn"]) console[kind] = (...told) => said.push(told.join(" "));</script>"""
    told = """<script>addEventListener("load", () => setTimeout(() => fetch("/", {method: "POST",
      body: JSON.stringify({said, result: document.getElementById("result").textContent})}), 0));</script>"""
    page = html.replace("<head>", f"<head>{watched}").replace("</body>", f"{told}</body>").encode()
    answers: SimpleQueue[dict[str, Any]] = SimpleQueue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page if self.path == "/" else b"")

        def do_POST(self) -> None:
            answers.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the name in the base
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        command = [
            str(FIREFOX),
            "--headless",
            "--no-remote",
            "--profile",
            str(folder),
            f"http://127.0.0.1:{server.server_port}/",
        ]
        size = {"MOZ_HEADLESS_WIDTH": str(width), "MOZ_HEADLESS_HEIGHT": "2000", "HOME": str(folder)}
        with subprocess.Popen(
            command, env={**os.environ, **size}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as browser:
            try:
                answer = answers.get(timeout=120)
            finally:
                browser.terminate()
                server.shutdown()
    assert not answer["said"], answer["said"]
    return json.loads(answer["result"])


def result(dom: str) -> Any:
    found = re.search(r'<output id="result">(.*?)</output>', dom, re.DOTALL)
    assert found is not None
    return json.loads(unescape(found[1]))


def page_of(facts: ImplementationFacts) -> str:
    report = toy.rendered_with(facts, {})
    data = live_data(facts, [DEVICE, OTHER], "d", [plan(1), plan(2)])
    return web_page(report, [], facts.reader, lambda values: render_template("page.html", values), data)
