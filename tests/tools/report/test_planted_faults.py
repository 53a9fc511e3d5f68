"""A hundred and fifty faults, by kinds of what may be wrong with a report: nearly all are caught, each with expected and found.

The kinds come from what people and agents get wrong, not from the rules. Where a fault stands is drawn, with a fixed seed, from two
reports: the toy's, which the check makes anew, and that on llama of the gallery, which is compared with its text as it was written.
Honest edits stand beside them: a competent engineer's prose of facts and pointers, none of which is refused.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
import report_toy as toy
from opscope_schemas.report import Problem, ReportFacts
from opscope_tools.check_report import CHECK_REPORT, CheckReportArguments
from opscope_tools.report.edits import packed
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.render import section_problems
from opscope_tools.report.traits import traits_of
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.write_report import WRITE_REPORT, WriteReportArguments

GALLERY = Path(__file__).parents[3] / "reports/implementations"


@dataclass(frozen=True)
class Subject:
    """A saved report that faults are planted in."""

    context: ToolContext
    path: str
    text: str
    facts: str
    regenerate: bool

    @property
    def folder(self) -> Path:
        return self.context.workspace.output

    @property
    def beside(self) -> Path:
        return self.folder / self.path.replace(".md", ".facts.json")

    def problems(self, text: str | None = None, facts: str | None = None) -> tuple[Problem, ...]:
        """What the check rejects in the report with that text, beside a facts file of that content; "" leaves none."""
        (self.folder / self.path).write_text(self.text if text is None else text)
        if facts == "":
            self.beside.unlink(missing_ok=True)
        else:
            self.beside.write_text(facts or self.facts)
        return CHECK_REPORT.run(CheckReportArguments(path=self.path, regenerate=self.regenerate), self.context).problems


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory, index_folder: Path) -> Iterator[tuple[Subject, Subject]]:
    with pytest.MonkeyPatch.context() as patch:
        toy.answers(patch)
        context = ToolContext(toy.workspace(tmp_path_factory.mktemp("planted")))
        written = WRITE_REPORT.run(WriteReportArguments(name="toy"), context)
        assert written.ok
        output = context.workspace.output
        made = Subject(
            context, written.path, (output / written.path).read_text(), (output / written.facts_path).read_text(), True
        )
        folder = tmp_path_factory.mktemp("gallery")
        at = folder / "reports/implementations"
        at.mkdir(parents=True)
        for name in ("llama-analysis.md", "llama-analysis.facts.json"):
            shutil.copy(GALLERY / name, at / name)
        llama = ToolContext(Workspace.create(output=folder, cache_folder=index_folder))
        path = "reports/implementations/llama-analysis.md"
        kept = Subject(llama, path, (folder / path).read_text(), (at / "llama-analysis.facts.json").read_text(), False)
        assert made.problems() == kept.problems() == ()
        yield made, kept
        llama.workspace.store.close()


# ---- faults of the text ---------------------------------------------------------------------------------------------

#: new lines, and what a problem has to show of what was there and of what is there now
Planted = tuple[list[str], str, str]
Draw = random.Random
Plant = Callable[[Draw, list[str]], Planted]
#: what is there now where lines changed places
MOVED = "moved"


def lines_that(lines: list[str], pattern: str, fenced: bool | None = None) -> list[int]:
    """Places of lines in which the pattern is found, inside fences only or outside only."""
    found, inside = [], False
    for at, line in enumerate(lines):
        if line.startswith("```"):
            inside = not inside
            continue
        if (fenced is None or fenced is inside) and re.search(pattern, line):
            found.append(at)
    return found


def changed(
    pattern: str, put: Callable[[Draw, re.Match[str]], str], fenced: bool | None = None, within: str = ""
) -> Plant:
    """A drawn match of a pattern, in lines that hold `within`, becomes something else."""

    def plant(draw: Draw, lines: list[str]) -> Planted:
        at = draw.choice([place for place in lines_that(lines, pattern, fenced) if re.search(within, lines[place])])
        found = draw.choice(list(re.finditer(pattern, lines[at])))
        line = lines[at][: found.start()] + put(draw, found) + lines[at][found.end() :]
        assert line != lines[at], line
        return [*lines[:at], line, *lines[at + 1 :]], lines[at], line

    return plant


def deleted(pattern: str, fenced: bool | None = None) -> Plant:
    def plant(draw: Draw, lines: list[str]) -> Planted:
        at = draw.choice(lines_that(lines, pattern, fenced))
        return [*lines[:at], *lines[at + 1 :]], lines[at], ""

    return plant


def added(pattern: str, new: str, fenced: bool | None = None) -> Plant:
    """A line below one that is drawn."""

    def plant(draw: Draw, lines: list[str]) -> Planted:
        at = draw.choice(lines_that(lines, pattern, fenced))
        return [*lines[: at + 1], new, *lines[at + 1 :]], "", new

    return plant


def swapped(pattern: str, fenced: bool | None = None) -> Plant:
    """A line and the one below it change places."""

    def plant(draw: Draw, lines: list[str]) -> Planted:
        places = lines_that(lines, pattern, fenced)
        at = draw.choice([p for p in places if p + 1 in places and lines[p] != lines[p + 1]])
        one, other = lines[at], lines[at + 1]
        return [*lines[:at], other, one, *lines[at + 2 :]], f"{one}\n{other}", MOVED

    return plant


def section_of(draw: Draw, lines: list[str], level: str) -> tuple[int, int, int]:
    """First line, end, and end of the one behind it of a drawn section that has a neighbour of its level."""
    stops = re.compile(rf"#{{1,{len(level)}}} |---$")
    heads = lines_that(lines, rf"^{level} ", False)
    spans = []
    for at in heads:
        end = next((p for p in lines_that(lines, r"^(#|---$)", False) if p > at and stops.match(lines[p])), len(lines))
        spans.append((at, end))
    pairs = [(a, b, c) for (a, b), (start, c) in pairwise(spans) if b == start]
    return draw.choice(pairs)


def swapped_sections(draw: Draw, lines: list[str]) -> Planted:
    first, middle, end = section_of(draw, lines, "###")
    new = [*lines[:first], *lines[middle:end], *lines[first:middle], *lines[end:]]
    return new, "\n".join(lines[first:end]), MOVED


def deleted_section(draw: Draw, lines: list[str]) -> Planted:
    first, end, _ = section_of(draw, lines, "###")
    return [*lines[:first], *lines[end:]], "\n".join(lines[first:end]), ""


def other_digit(draw: Draw, found: re.Match[str]) -> str:
    text = found[0]
    at = draw.choice([place for place, sign in enumerate(text) if sign.isdigit()])
    digit = draw.choice([d for d in "123456789" if d != text[at]])
    return text[:at] + digit + text[at + 1 :]


PREFIXES = {"G": "M", "M": "G", "T": "G", "k": "M", "m": "u", "u": "m", "B": "kB", "P": "T"}
CLASSES = r"`(?:Toy|Llama)[A-Z]\w+`"

TEXT_FAULTS: tuple[tuple[str, int, Plant], ...] = (
    ("a changed number of the analysis", 9, changed(r"\d[\d,.]*(?=[^<|]{0,6}<!-- fact)", other_digit)),
    ("a changed number in a table", 5, changed(r"(?<= )\d[\d,]*(?= |;)", other_digit, False, r"^\| ")),
    ("a changed number in a drawing or listing", 6, changed(r"\d+", other_digit, True)),
    ("another prefix of a unit", 6, changed(r"(?<=\d )[GMTkmu](?=B|FLOP|s)", lambda _, m: PREFIXES[m[0]])),
    ("swapped rows of a table", 6, swapped(r"^\| (?!Parameter|ID|Tensor|File|Term|Kernel|Operation|Module|Class)", False)),
    ("swapped bullets", 5, swapped(r"^- ", False)),
    ("swapped lines of a drawing", 5, swapped(r"\S", True)),
    ("swapped sections", 5, swapped_sections),
    ("a deleted row", 5, deleted(r"^\| `", False)),
    ("a deleted bullet", 5, deleted(r"^- ", False)),
    ("a deleted line of a drawing", 5, deleted(r"[▼•├└]", True)),
    ("a deleted section", 5, deleted_section),
    ("a deleted paragraph", 3, deleted(r"^[A-Z][^|]{40,}", False)),
    ("an added bullet", 4, added(r"^- ", "- The cache is shared by all layers.", False)),
    ("an added row", 4, added(r"^\| `", "| `window` | 4,096 | tokens |", False)),
    ("a changed line of a pointer", 6, changed(r"(?<=\.py:)\d+", lambda _, m: str(int(m[0]) + 1))),
    ("a changed file of a pointer", 3, changed(r"\w+(?=\.py:\d)", lambda _, m: f"{m[0]}_old")),
    ("a changed class", 6, changed(CLASSES, lambda _, m: m[0][:-1] + "V2`")),
    ("a changed formula", 6, changed(r"(?<=[ (`])[2-9](?= \*)|(?<=\* )\{\w+\}", lambda _, m: "{rank}" if "{" in m[0] else str(int(m[0]) % 9 + 1))),
    ("a changed statement in a listing", 5, changed(r"(?<= )[a-z_]+(?=\()", lambda _, m: f"fused_{m[0]}", True)),
    ("a negated sentence", 6, changed(r"\b(?:is|are|has|takes|moves|carries|grows|reads)\b(?= )", lambda _, m: f"{m[0]} not", False)),
)  # fmt: skip


def shows(shown: str, text: str) -> bool:
    """Whether a problem quotes the text: all of it, or with what is cut out marked."""
    shown = re.sub(r" \(and \d+ more lines\)", "", shown)
    return bool(shown) and all(piece in text for piece in shown.split("…"))


def caught(problems: tuple[Problem, ...], before: str, now: str) -> bool:
    """Whether a problem names its section and shows what was there, and what is there now."""
    return any(_moved(problem, before) if now == MOVED else _shown(problem, before, now) for problem in problems)


def _shown(problem: Problem, before: str, now: str) -> bool:
    right = shows(problem.expected, before) if before else not problem.expected
    found = shows(problem.found, now) if now else not problem.found
    return bool(problem.section) and right and found and problem.expected != problem.found


def _moved(problem: Problem, before: str) -> bool:
    shown = re.sub(r" \(and \d+ more lines\)$", "", problem.expected).rstrip("…")
    block = [line for line in before.split("\n") if line.strip()]
    told = any(shown.endswith(f": {line.rstrip()}") or (len(line) > 100 and line[:100] in shown) for line in block)
    return problem.rule == "TEXT_MOVED" and told and problem.found.startswith("in section")


def text_faults(subjects: tuple[Subject, Subject]) -> Iterator[tuple[str, bool, object]]:
    draw = random.Random(2024)
    for kind, count, plant in TEXT_FAULTS:
        for turn in range(count):
            subject = subjects[turn % 2]
            new, before, now = plant(draw, subject.text.split("\n"))
            found = subject.problems("\n".join(new))
            yield (
                kind,
                caught(found, before, now),
                (before[:200], now[:200], [(p.rule, p.expected, p.found) for p in found]),
            )


# ---- faults of the facts file ---------------------------------------------------------------------------------------


def forged(subject: Subject, old: str, new: str, **facts: object) -> tuple[Problem, ...]:
    """The report changed and its facts file with it, so that each agrees with the other."""
    assert old in subject.text
    text = subject.text.replace(old, new)
    held = ReportFacts.model_validate_json(subject.facts)
    return subject.problems(text, held.model_copy(update={"text": packed(text), **facts}).model_dump_json())


def facts_faults(subjects: tuple[Subject, Subject]) -> Iterator[tuple[str, bool, object]]:
    made, kept = subjects
    values = ReportFacts.model_validate_json(made.facts).values
    kind = "a facts file that is gone or another's"
    wrong = made.text.replace("2.14K<!--", "9.14K<!--")
    others = (
        made.problems(facts=""), made.problems(wrong, ""), kept.problems(facts=""), made.problems(facts=kept.facts),
        kept.problems(facts=made.facts), made.problems(facts="{"),
    )  # fmt: skip
    for found in others:
        told = [
            p for p in found if p.rule.startswith("FACTS_") and p.expected and p.found and "write_report" in p.message
        ]
        yield kind, bool(told), found
    kind = "a facts file that was changed with its report"
    consistent: tuple[tuple[str, str, dict[str, object]], ...] = (
        ("2.14K<!-- fact:parameters", "9.14K<!-- fact:parameters", {"values": {**values, "parameters": 9136}}),
        ("2<!-- fact:layers", "3<!-- fact:layers", {"values": {**values, "layers": 3}}),
        (", multi-head attention", ", multi-query attention", {}),
        ("Normalisation: `ToyNorm`", "Normalisation: `ToyLayer`", {}),
    )
    for old, new, more in consistent:
        found = forged(made, old, new, **more)
        yield kind, any(p.expected and p.found and new.split("<")[0] in p.found for p in found), found
    kind = "a facts file that was changed alone"
    held = json.loads(made.facts)
    for name, value in (("values", {**values, "layers": 9}), ("arguments", {"name": "toy", "target": "other"})):
        found = made.problems(facts=json.dumps({**held, name: value}))
        yield kind, any(p.rule.startswith("FACT") and p.expected and p.found for p in found), found


# ---- faults of an agent's prose -------------------------------------------------------------------------------------

AT = f"`{toy.FILE}:{toy.line_of('class ToyAttention')}`"
M = "module.toyland.modeling_toy"
LIES: dict[str, tuple[str, ...]] = {"an untrue sentence about the model": (
    f"The model uses grouped-query attention ({AT}).", f"Attention is multi-query here ({AT}).", f"Attention is not multi-head ({AT}).",
    f"It relies on multi-head latent attention ({AT}).", f"The model is a mixture of experts ({AT}).", f"A router sends every token to experts ({AT}).",
    f"Attention uses a sliding window ({AT}).", f"The embeddings are tied to the head ({AT}).", f"Input and output embeddings share weights ({AT}).",
    f"All projections have a bias ({AT}).", f"The weights are quantised ({AT}).", f"The model runs in float16 ({AT}).", f"Weights are stored in int4 ({AT}).",
    f"The model is an encoder-decoder ({AT}).", f"It keeps no KV cache ({AT}).", f"Positions are encoded by rotary embeddings ({AT}).",
    f"The attention is `ToyNorm` ({AT}).", "`ToyFlashAttention` attends in all {{fact:layers}} layers.",
), "a quantity that is no fact": (
    f"It has seven billion parameters ({AT}).", f"A dozen heads attend ({AT}).", f"There are ninety-nine layers ({AT}).", f"It runs twice as many heads ({AT}).",
    f"Half of the weights are in attention ({AT}).", f"A third of the time goes to norms ({AT}).", f"Hundreds of tokens fit ({AT}).",
    f"It has one key-value head ({AT}).", f"It has 99 layers ({AT}).", f"Weights take 80 GB ({AT}).", f"The hidden size is 4096 ({AT}).", f"It is 10x larger ({AT}).",
), "a rank or a comparison": (
    f"It outperforms all other models ({AT}).", f"This is the fastest attention ({AT}).", f"It is better than the original ({AT}).",
    f"The design is state of the art ({AT}).", f"It is the most efficient decoder ({AT}).", f"Decoding is cheaper than prefill ({AT}).",
), "a fact that does not fit its sentence": (
    "A prefill moves {{fact:prefill.flops}} bytes.", "A decode step takes {{fact:decode.bytes}} FLOPs.", "In prefill it takes {{fact:decode.flops}} FLOPs.",
    "Decode moves {{fact:prefill.bytes}} bytes.", "The model has {{fact:layers}} heads.", "The model has {{fact:attention.query_heads}} layers.",
    f"`ToyNorm` takes {{{{fact:{M}.ToyAttention.prefill.flops}}}} FLOPs in prefill.", "A decode step lasts {{fact:decode.time.bytes}}.",
)}  # fmt: skip


def told(facts: ImplementationFacts, values: ReportFacts, text: str) -> list[Problem]:
    return section_problems(facts.reader, values, {"Execution Model": text}, traits_of(facts))


@pytest.fixture(scope="module")
def untied(facts: ImplementationFacts) -> ImplementationFacts:
    """The toy, its configuration saying what such configurations say."""
    config = {**facts.tree.config, "tie_word_embeddings": False, "is_encoder_decoder": False, "sliding_window": None}
    return replace(facts, tree=facts.tree.model_copy(update={"config": config}))


def prose_faults(facts: ImplementationFacts, values: ReportFacts) -> Iterator[tuple[str, bool, object]]:
    for kind, texts in LIES.items():
        for text in texts:
            found = told(facts, values, text)
            words = (text.partition("{{")[0] or text.rpartition("}}")[2]).strip()
            named = (
                p.section == "Execution Model" and p.expected and words in p.found and p.found in p.message
                for p in found
            )
            yield kind, any(named), (text, found)


def test_planted_faults_are_caught_with_what_was_expected_and_found(
    subjects: tuple[Subject, Subject], untied: ImplementationFacts
) -> None:
    values = toy.rendered_with(untied, {}).facts
    total, missed, seen = Counter[str](), Counter[str](), []
    for kind, ok, what in (*text_faults(subjects), *facts_faults(subjects), *prose_faults(untied, values)):
        total[kind] += 1
        if not ok:
            missed[kind] += 1
            seen.append((kind, what))
    for kind, count in total.items():
        sys.stdout.write(f"{count - missed[kind]:4} of {count:3} {kind}\n")
    sys.stdout.write(f"{total.total() - missed.total():4} of {total.total():3} in all\n")
    assert total.total() >= 150
    assert 150 * missed.total() <= 5 * total.total(), seen
    assert max(missed.values(), default=0) <= 1, seen  # no kind goes through


# ---- honest edits ---------------------------------------------------------------------------------------------------


def at(statement: str) -> str:
    return f"`{toy.FILE}:{toy.line_of(statement)}`"


NORM, QKV, SDPA, OUT, ADD, LAYER, HEAD = (
    at(statement)
    for statement in (
        "class ToyNorm", "qkv = self.qkv_proj", "scaled_dot_product_attention(", "return self.o_proj", "return residual", "= layer(",
        "return self.lm_head",
    )
)  # fmt: skip
CACHE, MEAN, DROPPED = at("past_key_values.update"), at("variance = "), at("self.dropout(query)")
HONEST = (
    f"The stream is normalised before attention (`{toy.FILE}:{toy.line_of('self.norm(hidden_states)')}`).",
    f"Queries, keys and values come from one projection, whose result is cut into three parts ({QKV}).",
    f"`ToyAttention` keeps its keys and values in the cache before it attends ({CACHE}).",
    f"The residual is added once, after attention ({ADD}).",
    f"Two projections frame attention: `qkv_proj` ({QKV}) and `o_proj` ({OUT}).",
    f"The norm squares its input, takes the mean and multiplies by the inverse root ({MEAN}).",
    "The model stacks {{fact:layers}} layers.",
    "Attention has {{fact:attention.query_heads}} query heads on {{fact:attention.key_value_heads}} key-value heads.",
    f"Attention is multi-head: each query head has keys and values of its own ({SDPA}).",
    "A prefill of {{fact:prefill.seq_len}} tokens takes {{fact:prefill.flops}} FLOPs and moves {{fact:prefill.bytes}} bytes.",
    "A decode step moves {{fact:decode.bytes}} bytes for {{fact:decode.flops}} FLOPs.",
    "Prefill takes {{fact:prefill.flops}} FLOPs, a decode step {{fact:decode.flops}}.",
    "Prefill and decode differ in intensity: {{fact:prefill.intensity}} against {{fact:decode.intensity}} FLOPs per byte.",
    "The intensity of prefill is {{fact:prefill.intensity}} FLOPs per byte, below the ridge of {{fact:ridge}} FLOPs per byte.",
    "Of the FLOPs of a prefill {{fact:prefill.matmul_flops}} are matrix products.",
    "A prefill takes at least {{fact:prefill.time.bound}} on the assumed device.",
    "The bound of a decode step is {{fact:decode.time.bound}} seconds.",
    "In decode the weights take {{fact:decode.memory.weights}} and the cache {{fact:decode.memory.cache}}.",
    "Each cached token takes {{fact:decode.cache_per_token}} bytes.",
    "Matrix products take {{fact:decode.time.matrix_products}} % of a decode step.",
    "Weights in fp8 would save {{fact:decode.saved.weights_fp8.bound}} % of the bound of a decode step.",
    "At most {{fact:decode.memory.largest_batch}} sequences of this length fit in decode.",
    "From a batch of {{fact:decode.turning_batch}} sequences on, decode is limited by compute.",
    "It has {{fact:parameters}} parameters, {{fact:weight_bytes}} bytes in bf16.",
    "The vocabulary has {{fact:config.vocab_size}} entries and the stream is {{fact:config.hidden_size}} wide.",
    f"Positions end at {{{{fact:setting.max_position_embeddings}}}} tokens (`{toy.CONFIG_FILE}:13`).",
    f"`ToyAttention` takes {{{{fact:{M}.ToyAttention.prefill.flops}}}} FLOPs in prefill.",
    f"`ToyNorm` moves {{{{fact:{M}.ToyNorm.prefill.bytes}}}} bytes in prefill.",
    f"`ToyAttention` takes {{{{fact:{M}.ToyAttention.prefill.share_of_flops}}}} % of the FLOPs of prefill.",
    f"The hub may replace the norm, as the decorator in the line above says ({NORM}).",
    f"Nothing is dropped in inference: dropout runs in training alone ({DROPPED}).",
    f"Attention dispatches to SDPA ({SDPA}), so the kernel is the library's.",
    f"The layers run one after another in a Python loop ({LAYER}).",
    f"No experts are routed to (searched `topk` in `{toy.FILE}`).",
    f"There is no sliding window (searched `sliding_window` in `{toy.FILE}`).",
    f"The head is a projection of its own and not tied to the embedding ({HEAD}).",
    f"If the weights were tied, the head would share the embedding's matrix ({HEAD}).",
    f"The projections have no bias ({QKV}).",
    f"Weights are not quantised; the model runs in bfloat16 ({LAYER}).",
    f"A grouped-query variant would need fewer key-value heads than query heads ({QKV}).",
    f"The mean is taken over the last dimension, as `-1` says ({MEAN}).",
    f"See section 8.3 for the bottlenecks and task 4 of section 5 for the projection ({QKV}).",
    f"PyTorch 2.13 dispatches each of these operators on its own ({SDPA}).",
    f"Llama-3-8B and Qwen2 stack norm and attention alike ({ADD}).",
    f"On an H100 the same code would call another kernel ({SDPA}).",
    f"The first layer reads the embedding, each other layer the one before it ({LAYER}).",
    f"The KV cache is not copied: `update` returns what attention reads ({CACHE}).",
    f"The second operand of the addition is the result of attention ({ADD}).",
    f"The attention is `ToyAttention` ({AT}), the norm is `ToyNorm` ({NORM}).",
    "Eager execution moves {{fact:prefill.bytes}} in prefill, as engines run it {{fact:prefill.time.bytes}}.",
    f"- `ToyForCausalLM` embeds, runs the layers, normalises and projects ({HEAD}).\n- Each layer adds its input back ({ADD}).",
    f"| What | Where |\n|---|---|\n| {{{{fact:layers}}}} layers | {LAYER} |\n| the head | {HEAD} |",
    f"Decoding reads the cache ({CACHE}); prefill fills it with {{{{fact:prefill.seq_len}}}} tokens.",
    f"Multi-head attention is computed by one call ({SDPA}), whatever the mask is.",
)  # fmt: skip


def test_honest_edits_are_not_refused(untied: ImplementationFacts) -> None:
    values = toy.rendered_with(untied, {}).facts
    refused = {text: found for text in HONEST if (found := told(untied, values, text))}
    sys.stdout.write(f"{len(refused)} of {len(HONEST)} honest edits refused\n")
    assert len(HONEST) >= 50
    assert refused == {}


def test_honest_edits_are_saved_together_and_pass_the_check(context: ToolContext) -> None:
    sections = {"1": "\n\n".join(HONEST[:20]), "2.3": "\n\n".join(HONEST[20:40]), "8.3": "\n\n".join(HONEST[40:])}
    written = WRITE_REPORT.run(WriteReportArguments(name="toy", sections=sections), context)
    assert written.problems == ()
    checked = CHECK_REPORT.run(CheckReportArguments(path=written.path), context)
    assert (checked.problems, checked.notes) == ((), ())
