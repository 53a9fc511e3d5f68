"""How often the rules of form and wording speak on prose that nobody wrote as a report: the descriptions of installed packages.

Placeholders, tables, fences, boxes, pseudocode, hedges and praise are run over each description in Markdown. What they find there is either true
of that text (praise, an example that is no Python) or a false positive; samples are printed, so that a reader can tell.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections import Counter

from opscope_tools.report.checks import FRAGMENT_RULES, Material, check, duplicates
from opscope_tools.report.markdown import Page
from opscope_tools.report.sources import SourceReader

_FORM = tuple(rule for rule in (*FRAGMENT_RULES, duplicates) if rule.__name__ not in ("pointers", "searches"))


def main() -> None:
    samples = int(sys.argv[1]) if sys.argv[1:] else 4
    counts: Counter[str] = Counter()
    shown: dict[str, list[str]] = {}
    pages = lines = 0
    for package in sorted(importlib.metadata.distributions(), key=lambda d: d.name.lower()):
        described = package.metadata.json
        if "markdown" not in str(described.get("description_content_type")):
            continue
        text = str(described.get("description", ""))
        pages, lines = pages + 1, lines + text.count("\n")
        for problem in check(Material(Page(text), SourceReader(())), _FORM):
            counts[problem.rule] += 1
            shown.setdefault(problem.rule, []).append(f"{package.name}:{problem.line}: {problem.message[:150]}")
    print(f"{pages} descriptions, {lines} lines, {sum(counts.values())} problems")
    for rule, count in counts.most_common():
        print(f"{rule:16} {count}")
        for sample in shown[rule][:samples]:
            print(f"    {sample}")


if __name__ == "__main__":
    main()
