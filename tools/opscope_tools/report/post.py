"""A post from its narrative and its records: facts filled in, claims held to the records, output as it was, pictures, sources, what was not measured.

The narrative is Markdown with places: `{{fact:record.field}}` a number or name, `{{output:record}}` its commands and what they said,
`{{picture:record}}` its drawing, `{{holds:expression}}` what the paragraph rests on, `{{let:name = expression}}` a number derived from others
(`post.name`). A paragraph whose claim does not hold, or whose facts are not there or not to be trusted, is left out, and a flag in its place says why: so the
same narrative made from another machine's records never says what is not so there. Order: places, facts, paragraphs, blocks, the post.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from opscope_schemas.errors import InputError, UnknownNameError
from opscope_schemas.evidence import TOPICS, EvidenceFile, EvidenceRecord, Topic
from opscope_schemas.report import ReportFacts, ReportSummary
from opscope_schemas.units import said, things, unit_of_field

from opscope_tools.report.markdown import table
from opscope_tools.report.post_language import ExpressionError, UnheldError, names_in, value_of
from opscope_tools.report.render import Report

__all__ = [
    "FEWEST",
    "FLAGS",
    "PRESSED",
    "TIMES",
    "Post",
    "Value",
    "post_facts",
    "render_post",
    "roots_of",
    "told",
    "topic_named",
    "untrusted",
]

#: units that a clock gives, the most pressure in percent under which they are told, and the fewest repetitions
TIMES, PRESSED, FEWEST = frozenset({"seconds", "bytes/s", "FLOP/s", "tokens/s"}), 20.0, 5
#: counts that grow with whatever else runs
_DISTURBED = re.compile(r"switches|migrations")
#: how a flag begins
FLAGS = ("> **Does not hold here.**", "> **Not measured here.**", "> **Not told here.**")
_PLACE = re.compile(r"\{\{(fact|output|picture|holds|let):([^{}]*)\}\}")
#: characters of a line of a command
_WIDE = 110

Value = int | float | str


@dataclass(frozen=True)
class Post:
    """A narrative and the records that it speaks of."""

    topic: Topic
    narrative: str
    evidence: EvidenceFile
    date: str

    @property
    def records(self) -> Mapping[str, EvidenceRecord]:
        """By their names."""
        return {record.id: record for record in self.evidence.records}


def topic_named(name: str) -> Topic:
    """The topic of that name; raises `InputError` for another."""
    found = next((topic for topic in TOPICS if topic == name), None)
    if found is None:
        raise InputError(f"There is no post {name!r}.", next_step=f"Topics: {', '.join(TOPICS)}.")
    return found


def told(narrative: str, sections: Mapping[str, str]) -> str:
    """The narrative with an agent's own text: all of it under `post`, or what stands below a heading. Raises `UnknownNameError`."""
    if "post" in sections:
        narrative = sections["post"]
    for heading, text in sections.items():
        if heading == "post":
            continue
        parts = re.split(r"^(## .*)$", narrative, flags=re.MULTILINE)
        at = next(
            (at for at in range(1, len(parts), 2) if parts[at].lstrip("# ").strip().lower() == heading.strip().lower()),
            None,
        )
        if at is None:
            raise UnknownNameError("section", heading, [part.lstrip("# ").strip() for part in parts[1::2]] + ["post"])
        parts[at + 1] = f"\n\n{text.strip()}\n\n"
        narrative = "".join(parts)
    return narrative


# ---- facts ----------------------------------------------------------------------------------------------------------


def post_facts(post: Post) -> dict[str, Value]:
    """Every fact of the records that are ok, the status of each, the sizes of the workload, and the numbers that the narrative derives from them; raises
    `InputError` for a bad derivation."""
    found: dict[str, Value] = {f"{one.id}.status": one.status for one in post.records.values()}
    found |= {f"workload.{name}": value for name, value in post.evidence.workload.model_dump().items()}
    found |= {
        f"{one.id}.{name}": value
        for one in post.records.values()
        if one.status == "ok"
        for name, value in one.parsed.items()
    }
    for name, expression in _derivations(post.narrative):
        try:
            value = value_of(expression, found)
        except UnheldError:
            continue
        except ExpressionError as error:
            raise InputError(str(error), next_step="Mend that {{let:...}} of the narrative.") from None
        found[f"post.{name}"] = (
            value if isinstance(value, str) else round(value, 12) if isinstance(value, float) else int(value)
        )
    return found


def _derivations(narrative: str) -> Iterator[tuple[str, str]]:
    for kind, inner in _PLACE.findall(narrative):
        if kind == "let":
            name, sign, expression = inner.partition("=")
            if not sign or not re.fullmatch(r"\s*[a-z][a-z0-9_]*\s*", name):
                raise InputError(f"{{{{let:{inner}}}}} derives nothing.", next_step="Write {{let:name = expression}}.")
            yield name.strip(), expression.strip()


def roots_of(name: str, narrative: str) -> set[str]:
    """The records that a fact comes from, through what it is derived from."""
    record, _, derived = name.partition(".")
    if record != "post":
        return {name}
    known = dict(_derivations(narrative))
    return {root for inner in names_in(known.get(derived, "")) for root in roots_of(inner, narrative)}


def untrusted(name: str, post: Post) -> str:
    """Why a fact that a clock gave is not told: the machine was busy, or it was measured too seldom; empty where it may be."""
    for root in sorted(roots_of(name, post.narrative)):
        record_name, _, key = root.partition(".")
        record = post.records.get(record_name)
        timed = unit_of_field(key) in TIMES
        if record is None or record.evidence_class != "measured" or not (timed or _DISTURBED.search(key)):
            continue
        pressure, spread = record.noise.pressure_percent, record.noise.spread.get(key)
        if pressure is not None and pressure > PRESSED:
            return f"`{record_name}` was measured while something waited for a CPU {pressure:g} % of the time; at most {PRESSED:g} % are taken"
        if timed and (spread is None or spread.repetitions < FEWEST):
            return (
                f"`{root}` was measured {spread.repetitions if spread else 1} time(s); at least {FEWEST} are asked for"
            )
    return ""


# ---- paragraphs -----------------------------------------------------------------------------------------------------


@dataclass
class _Writer:
    """Writes the blocks of a post, and collects what it quotes."""

    post: Post
    facts: Mapping[str, Value]
    values: dict[str, int | float] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    flags: int = 0

    def block(self, text: str) -> str:
        """A block of the narrative as it stands in the post; empty where it only derives."""
        alone = _PLACE.fullmatch(text.strip())
        if alone is not None and alone[1] in ("output", "picture"):
            record = self._record(alone[2].strip())
            return self._output(record) if alone[1] == "output" else self._picture(record)
        text = re.sub(r"\{\{let:[^{}]*\}\}\s*", "", text).strip()
        if not text:
            return ""
        why = self._fault(text)
        if why:
            self.flags += 1
            return why
        return self._filled(text)

    def _record(self, name: str) -> EvidenceRecord:
        record = self.post.records.get(name)
        if record is None:
            raise InputError(f"There is no record {name!r} on {self.post.topic}.", next_step=f"Records: {', '.join(self.post.records) or 'none: collect them first'}.")  # fmt: skip
        return record

    def _fault(self, text: str) -> str:
        """The flag in place of a paragraph that may not stand; empty where it may."""
        for kind, inner in _PLACE.findall(text):
            names = (inner.strip(),) if kind == "fact" else names_in(inner) if kind == "holds" else ()
            for name in names:
                if name not in self.facts:
                    return self._absent(name)
                if reason := untrusted(name, self.post):
                    return f"{FLAGS[2]} What stood here rests on times that cannot be relied on: {reason}."
        for kind, inner in _PLACE.findall(text):
            if kind == "holds" and not self._holds(inner):
                given = ", ".join(f"{name} is {_told(name, self.facts[name])}" for name in names_in(inner))
                return f"{FLAGS[0]} What stood here rests on `{inner.strip()}`; on this machine {given}."
        return ""

    def _holds(self, expression: str) -> bool:
        try:
            return bool(value_of(expression, self.facts))
        except ExpressionError as error:
            raise InputError(str(error), next_step="Mend that {{holds:...}} of the narrative.") from None

    def _absent(self, name: str) -> str:
        """The flag for a fact that no record has here, which says what to run elsewhere; raises `InputError` for a field that a good record lacks."""
        if name.startswith("post.") and not roots_of(name, self.post.narrative):
            raise InputError(f"{name} is not derived by the narrative.", next_step="Write {{let:name = expression}}.")
        for root in sorted(roots_of(name, self.post.narrative)):
            record = self.post.records.get(root.partition(".")[0])
            if record is None:
                raise InputError(f"The narrative names {root}, and there is no record of that name.", next_step=f"Records: {', '.join(self.post.records) or 'none: collect them first'}.")  # fmt: skip
            if record.status != "ok":
                return f"{FLAGS[1]} What stood here rests on `{record.id}`, which is {record.status} on this machine: {_sentence(record.reason)}"
            if root.partition(".")[2] not in record.parsed:
                near = ", ".join(list(record.parsed)[:12])
                return f"{FLAGS[1]} What stood here rests on `{root}`, which the record does not hold on this machine; it holds {near}."
        raise InputError(f"{name} cannot be worked out here.", next_step="Write {{let:name = expression}} above it.")

    def _filled(self, text: str) -> str:
        claims = [inner.strip() for kind, inner in _PLACE.findall(text) if kind == "holds"]
        filled = _PLACE.sub(self._fact, re.sub(r"\s*\{\{holds:[^{}]*\}\}", "", text))
        return filled + "".join(f" <!-- holds: {claim} -->" for claim in claims)

    def _fact(self, place: re.Match[str]) -> str:
        if place[1] != "fact":
            raise InputError(
                f"{place[0]} has to stand in a paragraph of its own.", next_step="Put blank lines around it."
            )
        name = place[2].strip()
        value = self.facts[name]
        if isinstance(value, str):
            self.words[name] = value
            return f"`{value}`<!-- fact:{name} -->"
        self.values[name] = value
        return f"{_told(name, value)}<!-- fact:{name} -->"

    # ---- outputs and pictures ---------------------------------------------------------------------------------------

    def _output(self, record: EvidenceRecord) -> str:
        if record.status != "ok":
            self.flags += 1
            return self._elsewhere(record)
        told = [f"$ {_wrapped(line)}" for line in _shown(record.commands)]
        return "\n".join(["```console", *told, *record.excerpt, "```", f"<!-- evidence: {record.id} -->"])

    def _elsewhere(self, record: EvidenceRecord) -> str:
        """What to run where it can be had; never a number."""
        said_so = f"{FLAGS[1]} *{record.title}* `{record.id}` is {record.status}: {_sentence(record.reason)}"
        if not record.elsewhere:
            return said_so
        after = f"Its output comes into this post by `opscope import-evidence {self.post.topic} FILE --collector {record.id}`."
        return "\n".join([f"{said_so} Where it can be had, the command is", "", "```console", f"$ {_wrapped(record.elsewhere)}", "```", f"<!-- elsewhere: {record.id} -->", "", after])  # fmt: skip

    def _picture(self, record: EvidenceRecord) -> str:
        if record.status != "ok":
            self.flags += 1
            return self._elsewhere(record)
        if not record.pictures:
            raise InputError(f"The record {record.id} has no picture.", next_step="Take {{output:...}} of it.")
        return "\n\n".join(f"![{alternative}]({path})\n\n*{record.title} {_SAMPLED.get(record.evidence_class, '')}Data: [{path.rpartition('/')[2].removesuffix('.svg')}.folded]({path.removesuffix('.svg')}.folded).*" for path, alternative in record.pictures.items())  # fmt: skip


_SAMPLED = {"measured": "Sampled on this machine. ", "exact": "Counted, not sampled. "}
#: commands of one record that are shown; the table at the end has how many there were
_COMMANDS = 4


def _shown(commands: tuple[str, ...]) -> tuple[str, ...]:
    if len(commands) <= _COMMANDS:
        return commands
    return (
        *commands[: _COMMANDS - 1],
        f"# and {len(commands) - _COMMANDS + 1} more of the same kind, with other sizes",
    )


def _wrapped(line: str) -> str:
    """A long command over several lines, as a shell takes it."""
    if len(line) <= _WIDE:
        return line
    rows, held = [], ""
    for word in line.split(" "):
        if held and len(held) + len(word) > _WIDE - 4:
            rows.append(held)
            held = word
        else:
            held = f"{held} {word}" if held else word
    return " \\\n    ".join([*rows, held])


def _told(name: str, value: Value) -> str:
    return value if isinstance(value, str) else said(name.partition(".")[2], value)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


# ---- the post -------------------------------------------------------------------------------------------------------


def render_post(post: Post) -> Report:
    """The post. Raises `InputError` for a narrative that names what does not exist, or whose expressions are none."""
    facts = post_facts(post)
    writer = _Writer(post, facts)
    blocks = [written for text in _blocks(post.narrative) if (written := writer.block(text))]
    first, *rest = blocks or [""]
    text = "\n\n".join([first, _made(post), *rest, _measured(post, facts)]) + "\n"
    flagged = (
        f"{writer.flags} paragraphs or outputs are flagged: their claims do not hold, or were not measured here."
        if writer.flags
        else ""
    )
    kept = ReportFacts(
        kind="post",
        name=post.topic,
        values=writer.values,
        words=writer.words,
        summary=ReportSummary(limitations=(flagged,) if flagged else ()),
    )
    return Report(text=text, facts=kept)


def _blocks(narrative: str) -> Iterator[str]:
    """Paragraphs, headings, fences and places, which blank lines part; a fence is one block."""
    held: list[str] = []
    fenced = False
    for line in [*narrative.strip().splitlines(), ""]:
        fenced ^= line.lstrip().startswith("```")
        if line.strip() or fenced:
            held.append(line.rstrip())
        elif held:
            yield "\n".join(held)
            held = []


def _made(post: Post) -> str:
    machines = "; ".join(_machine_said(machine.name, post) for machine in post.evidence.machines)
    return f"*{post.date}. Every number below comes from a record in `posts/evidence/{post.topic}.json`: {machines}.*"


def _machine_said(name: str, post: Post) -> str:
    machine = next(one for one in post.evidence.machines if one.name == name)
    virtual = f", a {machine.virtual} virtual machine" if machine.virtual else ""
    memory = f", {machine.memory_bytes / 2**30:.0f} GiB" if machine.memory_bytes else ""
    gpu = f", {machine.gpu}" if machine.gpu else ""
    return f"*{name}* is {machine.cpu or 'unknown'}, {machine.cpus} CPUs{memory}{gpu}, {machine.kernel}{virtual}"


def _measured(post: Post, facts: Mapping[str, Value]) -> str:
    """How the figures came about: workload, records, derivations, how to repeat it."""
    given = post.evidence.workload
    sizes = (
        f"`{given.model}` with random weights: {given.num_layers} {things(given.num_layers, 'layer')}, {given.hidden_size} wide, {given.num_heads} {things(given.num_heads, 'head')} ({given.num_kv_heads} for keys and values), feed-forward {given.intermediate_size}, "
        f"vocabulary {given.vocab_size}, {given.dtype}; {given.batch_size} {things(given.batch_size, 'sequence')}, a prompt of {given.prompt} tokens, {given.tokens} generated, {given.threads} {things(given.threads, 'thread')} unless said."
    )
    rows = [
        (
            f"`{one.id}`",
            f"{one.tool} {one.tool_version}".strip(),
            one.evidence_class,
            one.status,
            _noise(one),
            one.machine,
        )
        for one in post.records.values()
    ]
    derived = [
        (f"`post.{name}`", f"`{expression}`", _told(f"post.{name}", facts[f"post.{name}"]))
        for name, expression in _derivations(post.narrative) if f"post.{name}" in facts
    ]  # fmt: skip
    # what runs no model has no workload
    ran = any("generate.py" in command for one in post.records.values() for command in (*one.commands, one.elsewhere))
    parts = [
        "## How this was measured", *([f"The workload is {sizes}"] if ran else []),
        table(("Record", "Tool", "Class", "Status", "Noise", "Machine"), rows),
    ]  # fmt: skip
    if derived:
        parts += ["Numbers that were worked out from others:", table(("Number", "From", "Value"), derived)]
    others = given.model_dump(exclude_defaults=True)
    asked = "".join(f" --workload {name}={value}" for name, value in others.items())
    parts.append(f"To repeat it on another machine: `opscope post {post.topic} --collect{asked}`. The programs that commands name lie in opscope's own folder `opscope_tools/evidence/programs`; scripts of bpftrace are written by the collectors. Paragraphs whose claims do not hold there are flagged in their place.")  # fmt: skip
    return "\n\n".join(parts)


def _noise(record: EvidenceRecord) -> str:
    noise = record.noise
    pressure = f"waiting {noise.pressure_percent:g} %" if noise.pressure_percent is not None else ""
    times = max((spread.repetitions for spread in noise.spread.values()), default=0)
    return ", ".join(filter(None, (pressure, f"{times} times" if times else ""))) or "-"
