"""`opscope post TOPIC`: the post on a topic from the records that lie there, or from new ones."""

from __future__ import annotations

import click
from opscope_schemas.evidence import TOPICS
from opscope_schemas.report import WriteReportResult
from opscope_tools.collect_evidence.tool import COLLECT_EVIDENCE
from opscope_tools.write_report import WRITE_REPORT

from opscope_clients.commands import run, show
from opscope_clients.options import parse_object
from opscope_clients.session_options import SessionCommand, SessionOptions

__all__ = ["post_command"]


@click.command("post", cls=SessionCommand)
@click.argument("topic", type=click.Choice(TOPICS))
@click.option("--collect", is_flag=True, help="Run the profiling commands of the topic first; takes minutes.")
@click.option(
    "--workload",
    multiple=True,
    metavar="KEY=VALUE|JSON",
    help="With --collect: threads=2, l1_bytes=65536, hidden_size=512, ... Repeatable.",
)
@click.option(
    "--machine", default="here", show_default=True, help="With --collect: name of this machine in the records."
)
@click.option("--html", is_flag=True, help="As a page too.")
@click.option("--overwrite/--no-overwrite", default=True, help="Replace the post (default) or keep it.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def post_command(
    session: SessionOptions, topic: str, collect: bool, workload: tuple[str, ...], machine: str, html: bool, overwrite: bool, as_json: bool
) -> int:  # fmt: skip
    """Write the post on TOPIC from its evidence in posts/evidence/; what does not hold for it is flagged in its place."""
    if (workload or machine != "here") and not collect:
        raise click.UsageError("--workload and --machine say how evidence is collected: add --collect.")
    workspace = session.workspace()
    if collect:
        asked = {
            "topic": topic,
            "machine": machine,
            **({"workload": parse_object("workload", workload)} if workload else {}),
        }
        collected = run(COLLECT_EVIDENCE, asked, workspace)
        if not as_json:
            show(collected, as_json=False)
    result = run(WRITE_REPORT, {"kind": "post", "name": topic, "html": html, "overwrite": overwrite}, workspace)
    assert isinstance(result, WriteReportResult)
    show(result, as_json=as_json)
    return 0 if result.ok else 1
