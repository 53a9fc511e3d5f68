"""Sections 3.1 and 3.3: what configures the model and what it demands, out of what `extract_config` and the trace say.

A value that the trace ran with stands before one that source gives, and where the two differ both are said.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from opscope_schemas.analysis import Variable, is_element, unknown
from opscope_schemas.extracted_config import Check, Configuration, Hyperparameter, Reads
from opscope_schemas.formula import Rational, variables
from opscope_schemas.units import things

from opscope_tools.report import scan
from opscope_tools.report.crossing import crossing_said
from opscope_tools.report.facts import ImplementationFacts, product_widths, short, size_at, walk
from opscope_tools.report.given_to import given_to
from opscope_tools.report.nodes import stages
from opscope_tools.report.overview import (
    checked,
    device_tests_said,
    lines_that_ran,
    matching,
    model_files,
    ran_in,
    scopes,
)
from opscope_tools.report.quotes import Quotes, as_source, in_code, joined
from opscope_tools.report.sources import Span

__all__ = ["configuration_note", "configuration_rows", "constraint_lines", "declared_at", "layer_settings"]

Row = tuple[str, str, str]
#: rows that every report has: the name readers look for, and the attribute of the config that holds it
_STANDARD = (
    ("hidden_size", "hidden_size"),
    ("num_layers", "num_hidden_layers"),
    ("num_heads", "num_attention_heads"),
    ("head_dim", "head_dim"),
    ("intermediate_size", "intermediate_size"),
    ("vocab_size", "vocab_size"),
    ("max_seq_len", "max_position_embeddings"),
)
#: characters of a value or of source's words in one cell
_LONGEST = 160
#: what follows the name where a statement sets one item of a parameter, or changes it: `["key"] = value`, `*= 2`
_PART_SET = re.compile(r"((?:\[[^\]]*\])+ )?(?:\*\*|//|<<|>>|[-+*/%@&|^])?=(?!=)")
#: an assignment that runs an operator wherever it runs
_COMPUTES = re.compile(r"torch\.(masked_fill|where|matmul|bmm|einsum|cat|stack|softmax|zeros|ones|full|arange)\(")
_ALIGNED = re.compile(r"multiple|divisib|%")
#: an assignment that puts a field aside as it is
_KEPT = re.compile(r"self\.(\w+) = (?:self\.)?config\.\w+")
#: what is none of nothing where the configuration has it: another field, a number
_PLAIN_SET = re.compile(r"self\.\w+|[\d.]+")
#: axes of a tensor that holds the weights of all experts
_STACKED = 3
#: transformers' tests of torch's version
_TORCH_ASKED = re.compile(r"is_torch_(less|greater)_or_equal\(['\"]([\d.]+)['\"]")
#: packages that are drivers, or name a kind of device
_OF_DEVICES = re.compile(r"cuda|xpu|npu|mps|hpu|mlu|musa|tpu|xla|gpu|rocm|hip|neuron|ninja|sdaa")
#: a line that asks whether memory is aligned
_ALIGNS = r"\bdata_ptr\(\)\s*%"
#: characters of a value in a list
_SHORT = 40
#: pointers that one line lists
_PLACES = 6
_POSITIONS = "positions that the configuration states"
_NOWHERE = "read nowhere in the model's file"
_NOR_BESIDE = ", nor in other files of which something ran"
_DOCSTRINGS = "Sentences that stand under Description as code are source's own words{filled}, not held against what runs; values are those of an object that the class makes. Places in which a field is read are those of the model's file."
#: fields that its base classes act on
_OF_THE_BASE = (
    "use_cache",
    "tie_word_embeddings",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "use_return_dict",
    "initializer_range",
    "init_std",
    "initializer_factor",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "vision_feature_layer",
    "vision_feature_select_strategy",
    "vision_aspect_ratio",
)


# ---- 3.1 ------------------------------------------------------------------------------------------------------------


def configuration_rows(facts: ImplementationFacts, quotes: Quotes) -> list[Row]:
    """The seven rows that every report has, every other variable of the formulas, then every other parameter that somebody
    gave or that the model reads."""
    document, values = facts.main, facts.point(facts.main)
    known = {variable.name: variable for variable in document.variables}
    rows, said = [], set()
    for name, key in _STANDARD:
        variable = known.get(name)
        attribute = (variable.config_key if variable else "") or key
        value = values[name] if variable else facts.tree.config.get(attribute)
        held = _held(facts, attribute) if value is None else None  # a config keeps it under another name
        value = _current(held[1]) if held is not None else value
        parts = _nested(facts, attribute) if value is None else {}
        meaning = variable.meaning if variable else _standard_meaning(facts, name, attribute)
        if name == "intermediate_size" and not (
            facts.classes_of("feed-forward network") or facts.classes_of("mixture of experts")
        ):
            meaning = "inner width of a layer"
        elif name == "intermediate_size" and "moe_intermediate_size" in known:
            meaning = "width of the feed-forward layers without experts"
        elif name == "intermediate_size" and isinstance(value, int) and _in_experts(facts, value):
            meaning = "width inside each expert"
        if name == "intermediate_size" and isinstance(value, int) and not _in_weights(facts, value):
            meaning = (
                "width of feed-forward layers without experts, of which this configuration makes none: no weight is so wide"
                if facts.classes_of("mixture of experts")
                else "a size of which the model makes that of its feed-forward layers: no weight is so wide"
            )
        if name == "num_layers" and value and value == len(stages(facts.tree.tree)):
            meaning = "stages, each of layers of its own"
        meaning += " of the encoder" * _decoder_has_its_own(facts, attribute)
        if parts:
            rows.append(_of_parts(facts, name, meaning, parts, quotes))
            said |= {attribute, *parts}
            continue
        playing = _inner_width(facts) if value is None and key == "intermediate_size" else None
        if playing is not None:
            rows.append(_of_another(facts, name, playing, quotes))
            continue
        reason = f"n/a: `{short(facts.tree.config_class)}` has no {attribute}"
        shown = _value(quotes, f"config.{name}", value) if value is not None else reason
        idle = variable is None and value is not None and name != "max_seq_len"
        same = _taken_over(facts, attribute) if idle else ""
        meaning = f"`{same}` by another name" if same else meaning
        meaning += ", which no formula of this pass names" * idle
        declared = _declared(facts, attribute, value) or (_made(facts, name) if value is not None else "")
        rows.append((f"`{name}`", shown, f"{meaning}{declared}"))
        said |= {attribute, _held_path(facts, attribute)}
    call = [v for v in document.variables if not v.config_key and v.name not in dict(_STANDARD)]
    if call:
        named = {v.name for v in call}
        others = [
            (d, v) for d in facts.documents[1:] for v in d.variables if not v.config_key and v.name not in {*named, *dict(_STANDARD)}
        ]  # fmt: skip
        beside = list({v.name: (d, v) for d, v in reversed(others)}.values())
        shown = ", ".join(
            [_value(quotes, f"config.{v.name}", values[v.name]) for v in call]
            + [_value(quotes, f"config.{v.name}", facts.point(d)[v.name]) for d, v in beside]
        )
        meanings = "; ".join(
            [f"{v.meaning or 'variable of the formulas'}{_equal(facts, v)}" for v in call]
            + [f"in {d.phase}, {v.meaning or 'variable of its formulas'}" for d, v in beside]
        )
        call = [*call, *(v for _, v in beside)]
        rows.append((", ".join(f"`{v.name}`" for v in call), shown, f"of the call: {meanings}"))
    for variable in document.variables:
        if variable.name not in dict(_STANDARD) and variable.config_key:
            value = values[variable.name]
            meaning = _meaning(facts, variable)
            text = f"{meaning}{_declared(facts, variable.config_key, value)}".removeprefix("; ")
            text = text or "variable of the formulas"
            rows.append((f"`{variable.name}`", _value(quotes, f"config.{variable.name}", value), text))
            said |= {variable.config_key, _held_path(facts, variable.config_key)}
    for own, parameter in _parameters(facts):
        path = _path(own, parameter)
        if path not in said and _concerns(own, parameter) and not _unread(parameter):
            rows.append((f"`{path}`", *_described(facts, own, parameter, quotes)))
    return rows


def _in_experts(facts: ImplementationFacts, size: int) -> bool:
    """Whether experts are so wide, and no feed-forward network beside them is."""
    experts, networks = facts.classes_of("mixture of experts"), facts.classes_of("feed-forward network")
    held = (node for node in facts.nodes if node.class_name in experts)
    stacked = (shape for node in held for shape in node.weights.values() if len(shape) == _STACKED)
    wide = any(size in shape[1:] for shape in stacked)
    calls = [facts.calls[name].kernels or () for name in networks if name in facts.calls]
    inner = {size_at(found[1], facts.point(facts.main)) for one in calls if (found := product_widths(one))}
    return wide and size not in inner


def _taken_over(facts: ImplementationFacts, attribute: str) -> str:
    """The other field that a configuration sets one to, whatever was given; empty where it does not."""
    held = _held(facts, attribute)
    derived = [each.formula for each in held[1].derived if not each.condition] if held is not None else []
    found = re.fullmatch(r"self\.(\w+)", derived[0]) if derived else None
    return found[1] if found else ""


def _in_weights(facts: ImplementationFacts, size: int) -> bool:
    """Whether a weight is so wide, or holds several that are."""
    shapes = (shape for node in facts.nodes for shape in node.weights.values())
    return any(side and side % size == 0 for shape in shapes for side in shape)


def _made(facts: ImplementationFacts, name: str) -> str:
    """Where the model makes a size that is no field of its configuration."""
    found = matching(facts, rf"\bself\.{name}\s*=(?!=)")
    found = [hit for hit in found if _reckons_with(facts, hit, name)] or found
    return f"; no field of the configuration: `{in_code(found[0].text.strip())}` ({found[0].pointer})" if found else ""


def _reckons_with(facts: ImplementationFacts, hit: scan.Hit, name: str) -> bool:
    """Whether shapes or costs of what the class around a line runs itself name a size: another class may make another of that name."""
    around = facts.reader.enclosing(hit.path, hit.line)
    owner = around[0].name if around else ""
    for _, above, kernel in walk(facts.main.kernels, facts.main.class_name):
        if short(above) == owner:
            texts = [kernel.flops, *(size for tensor in (*kernel.inputs, *kernel.outputs) for size in tensor.shape)]
            if any(f"{{{name}}}" in text for text in texts):
                return True
    return False


def _inner_width(facts: ImplementationFacts) -> Variable | None:
    """The size of the configuration that is the width inside of every feed-forward network; None where none is."""
    calls = [
        facts.calls[name].kernels or () for name in facts.classes_of("feed-forward network") if name in facts.calls
    ]
    inner = {widths[1] for kernels in calls if (widths := product_widths(kernels)) is not None}
    held = [v for v in facts.main.variables if v.config_key and inner == {f"{{{v.name}}}"}]
    return held[0] if held and held[0].name not in dict(_STANDARD) else None


def _of_another(facts: ImplementationFacts, name: str, playing: Variable, quotes: Quotes) -> Row:
    """A standard row whose part a size of another name plays."""
    value = facts.point(facts.main)[playing.name]
    at = _declared(facts, playing.config_key, value) or f"; `{playing.config_key}`"
    shown = _value(quotes, f"config.{playing.name}", value)
    return f"`{name}`", shown, f"width inside the feed-forward network, which stands as{at.removeprefix(';')}"


def _equal(facts: ImplementationFacts, variable: Variable) -> str:
    """What a size of the call has to be equal to."""
    name, pairs = f"{{{variable.name}}}", [c.split(" == ") for c in facts.main.conditions if c.count(" == ") == 1]
    others = [other for a, b in pairs for one, other in ((a, b), (b, a)) if one == name and variables(other)]
    return f", which the formulas take to equal {' and '.join(f'`{other}`' for other in others)}" if others else ""


def _meaning(facts: ImplementationFacts, variable: Variable) -> str:
    """What a variable of the formulas means: in this tool's words, else in those of source; empty where neither has any."""
    if variable.meaning != unknown(variable.name):
        return variable.meaning
    held = _held(facts, variable.config_key)
    words = _words(*held) if held is not None else ""
    return words or ("width inside the feed-forward network" if variable == _inner_width(facts) else "")


def docstrings(facts: ImplementationFacts) -> str:
    """Where the words that the table quotes stand."""
    every = facts.settings.configurations if facts.settings is not None else ()
    meanings = (one.meaning for own in every for one in own.hyperparameters)
    tables = dict.fromkeys(one.file for one in meanings if one is not None and one.origin == "documentation table")
    filled = f", in docstrings or in {joined(f'`{path}`' for path in tables)}, which fills them in" if tables else ""
    return _DOCSTRINGS.format(filled=filled)


def _words(own: Configuration, parameter: Hyperparameter) -> str:
    """What source says a parameter means; its braces stand where the row names the file that has them."""
    meaning = parameter.meaning
    if meaning is None:
        return ""
    beside = (meaning.file or own.file) == (parameter.file or own.file)
    return f"`{_clipped((as_source if beside else in_code)(meaning.text))}`"


def _nested(facts: ImplementationFacts, attribute: str) -> dict[str, int]:
    """An attribute of the configurations that a composite one holds, by dotted name."""
    if attribute == dict(_STANDARD)["max_seq_len"]:
        return facts.positions

    def within(config: Mapping[str, object], path: str) -> Iterator[tuple[str, int]]:
        for name, value in config.items():
            if isinstance(value, Mapping):
                yield from within(value, f"{path}{name}.")
            elif path and name == attribute and isinstance(value, int) and not isinstance(value, bool):
                yield f"{path}{name}", value

    return dict(within(facts.tree.config, ""))


def _of_parts(
    facts: ImplementationFacts, name: str, meaning: str, parts: Mapping[str, Rational], quotes: Quotes
) -> Row:
    """A standard row of a composite configuration: each part's value, its own name for it and its line."""
    shown = ", ".join(_value(quotes, f"config.{path}", value) for path, value in parts.items())
    named = [f"`{path}`{at}" for path, value in parts.items() for at in [_declared(facts, path, value)]]
    return (
        f"`{name}`",
        shown,
        "; ".join([f"{meaning}, of each part in this order" if len(parts) > 1 else meaning, *named]),
    )


def declared_at(facts: ImplementationFacts, path: str) -> str:
    """`file:line` in back-ticks where a dotted attribute of the config is declared; empty where source does not say."""
    held = _held(facts, path)
    if held is not None:
        own, parameter = held
        return f"`{parameter.file or own.file}:{parameter.line}`"
    found = facts.config_field(path)
    return f"`{found[0]}:{found[1]}`" if found else ""


def configuration_note(facts: ImplementationFacts) -> str:
    """The parameters without a row: those that the model's file does not read; and why source is not read, where it is not."""
    left: dict[str, list[str]] = {}
    beside = _reads_beside(facts)
    for own, parameter in _parameters(facts):
        if _concerns(own, parameter) and _unread(parameter) and not parameter.is_given:
            where = f"{f'{own.path}.' if own.path else ''}{_named_at(facts, own, parameter)}"
            through = _read_by(facts, own, parameter)
            shared = (
                parameter.name in _OF_THE_BASE
                or parameter.name.startswith("output_")  # what a pass records is asked there
                or parameter.name in beside
            )
            based = ", but by code that all models share" if shared else _NOR_BESIDE
            how = f"Declared and {through or f'{_NOWHERE}{based}'}"
            left.setdefault(how, []).append(f"{where}{_held_value(facts, own, parameter)}")
        elif not _concerns(own, parameter):
            how = f"Inherited from `{_owner(parameter)}` and named nowhere in the model's file, whose base classes and decorators may read them"
            left.setdefault(how, []).append(f"`{_path(own, parameter)}`")
    said = [f"{how}: {', '.join(names)}." for how, names in left.items()]
    return " ".join(said) or ("" if facts.settings else "The source of the configuration was not read.")


def _reads_beside(facts: ImplementationFacts) -> set[str]:
    """The fields of configurations that code of files beside the model's reads, of which something ran."""
    found = set[str]()
    for tree in filter(None, map(facts.reader.tree, ran_in(facts).keys() - {facts.modeling_file})):
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=name):
                    found |= {name} if owner == "config" else set()
                case ast.Call(func=ast.Name(id="getattr"), args=[held, ast.Constant(value=str(name)), *_]):
                    found |= {name} if ast.unparse(held).endswith("config") else set()
    return found


def _read_by(facts: ImplementationFacts, own: Configuration, parameter: Hyperparameter) -> str:
    """The configuration's own methods, inherited ones too, that read a parameter; empty where none does."""
    hits = [method.at for method in facts.config_methods[own.class_name] if parameter.name in method.reads]
    more = f" and {len(hits) - _PLACES} more" if len(hits) > _PLACES else ""
    said = ", ".join(f"`{hit.name}` ({hit.pointer})" for hit in hits[:_PLACES])
    return f"read by the configuration's own {said}{more}" if hits else ""


def layer_settings(facts: ImplementationFacts) -> list[str]:
    """The parameters by which the model's classes tell layers apart, through properties of the configuration too."""
    pending = [name for path, names in model_files(facts).items() for name in scan.by_layer(facts.reader, path, names)]
    held = {p.name: None for _, p in _parameters(facts)}
    through = {m.at.name: m.reads for methods in facts.config_methods.values() for m in methods if m.is_property}
    found: dict[str, None] = {}
    seen: set[str] = set()
    while pending:
        name = pending.pop(0)
        if name in held:
            found[name] = None
        elif name not in seen:
            pending += sorted(through.get(name, ()))
        seen.add(name)
    return [name for name in held if name in found]


def _unread(parameter: Hyperparameter) -> bool:
    """Whether nobody gave it and the model's file reads it nowhere."""
    return (
        parameter.reads is not None and not parameter.reads.count and not parameter.is_given and not parameter.derived
    )


def _held_value(facts: ImplementationFacts, own: Configuration, parameter: Hyperparameter) -> str:
    """` = VALUE` where it is known and short."""
    value = _current(parameter) if own.path else facts.tree.config.get(parameter.name, _current(parameter))
    text = _written(value)
    plain = re.fullmatch(r"[\w.+-]+", text) and len(text) <= _SHORT
    return f" = {text}" if plain and not parameter.sub_config and not parameter.open else ""


def _parameters(facts: ImplementationFacts) -> Iterator[tuple[Configuration, Hyperparameter]]:
    for own in facts.settings.configurations if facts.settings is not None else ():
        for parameter in own.hyperparameters:
            if not parameter.name.startswith("_") or (
                _concerns(own, parameter) and parameter.reads is not None and parameter.reads.count
            ):
                yield own, parameter


def _path(own: Configuration, parameter: Hyperparameter) -> str:
    return f"{own.path}.{parameter.name}" if own.path else parameter.name


def _concerns(own: Configuration, parameter: Hyperparameter) -> bool:
    """Whether the class declares it itself, or the model reads it, or somebody gave it."""
    declared = _owner(parameter) in ("", short(own.class_name))
    read = parameter.reads is not None and parameter.reads.count > 0
    return declared or parameter.is_given or (read and not own.path)


def _owner(parameter: Hyperparameter) -> str:
    """The class that has a parameter; of what a method sets it is the method's."""
    name = parameter.class_name
    return short(name.rpartition(".")[0] if parameter.kind == "attribute" else name)


def _value(quotes: Quotes, key: str, value: object) -> str:
    """A number with its mark; anything else as JSON, its length bounded."""
    if isinstance(value, int) and not isinstance(value, bool):
        return quotes(key, value)
    return f"`{_clipped(_written(value))}`"


def _written(value: object) -> str:
    """A value for a code span: text as it is, anything else as JSON."""
    text = value if isinstance(value, str) and value else json.dumps(value, default=str)
    return in_code(text)


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 2].rsplit(" ", 1)[0] + " …"


def _decoder_has_its_own(facts: ImplementationFacts, attribute: str) -> bool:
    """Whether a field stands for the encoder alone, as the decoder has another: `encoder_layers`, or `num_layers` beside `num_decoder_layers`."""
    own = re.sub(r"^encoder_|(?<=_)encoder_", "decoder_", attribute)
    other = own if own != attribute else re.sub(r"^num_", "num_decoder_", attribute)
    return bool(facts.tree.config.get("is_encoder_decoder")) and other != attribute and other in facts.tree.config


def _standard_meaning(facts: ImplementationFacts, name: str, attribute: str) -> str:
    if name != "max_seq_len":
        return {"num_heads": "heads of attention", "head_dim": "width of a head"}.get(name, name.replace("_", " "))
    if facts.table_rows is not None:
        return f"{_POSITIONS} and a table holds"
    if facts.unread(attribute):
        return f"longest sequence that is named, {_NOWHERE}"
    return f"{_POSITIONS}; no table holds them" if facts.positions else _POSITIONS


def _held(facts: ImplementationFacts, attribute: str) -> tuple[Configuration, Hyperparameter] | None:
    """The parameter that goes by a dotted name, or by an alias of it."""
    for own, parameter in _parameters(facts):
        names = (parameter.name, *parameter.aliases)
        if attribute in {f"{own.path}.{name}" if own.path else name for name in names}:
            return own, parameter
    return None


def _held_path(facts: ImplementationFacts, attribute: str) -> str:
    held = _held(facts, attribute) if attribute else None
    return _path(*held) if held is not None else attribute


def _named_at(facts: ImplementationFacts, own: Configuration, parameter: Hyperparameter) -> str:
    """The parameter with its line, by the name that the line spells; it is no symbol where the line spells none, as in a table of a
    parent."""
    file = parameter.file or own.file
    near = " ".join(facts.reader.line(file, line) for line in range(parameter.line, parameter.line + 2))
    names = (parameter.name, *parameter.aliases)
    spelt = next((name for name in names if re.search(rf"\b{re.escape(name)}\b", near)), "")
    at = f"(`{file}:{parameter.line}`)"
    if not spelt:
        return f"{parameter.name}: {at}"
    return f"`{spelt}` {at}{f', kept as `{parameter.name}`' if spelt != parameter.name else ''}"


def _declared(facts: ImplementationFacts, attribute: str, traced: object) -> str:
    """Where source declares an attribute of the config, how it comes by its value, and what source says it means."""
    held = _held(facts, attribute) if attribute else None
    if held is None:
        found = facts.config_field(attribute) if attribute else None
        return f"; `{attribute}` (`{found[0]}:{found[1]}`)" if found else ""
    own, parameter = held
    said = [_named_at(facts, own, parameter), *_given(parameter), *_derived(facts, own, parameter)]
    differs = _differing(parameter, traced)
    return "".join(f"; {part}" for part in [*said, *differs])


def _given(parameter: Hyperparameter) -> list[str]:
    """That the caller gave it, and what the class has by itself."""
    if not parameter.is_given:
        return []
    return [f"given; default `{_clipped(_written(parameter.value))}`" if parameter.basis != "required" else "given"]


def _differing(parameter: Hyperparameter, traced: object) -> list[str]:
    """What source gives where the trace ran with something else."""
    source = _current(parameter)
    if parameter.open or traced is None or _same(source, traced):
        return []
    if source is None:
        derived = parameter.is_given or parameter.derived or parameter.basis == "required"
        return [] if derived else ["`None` there, in whose place the model puts this value"]
    return [f"source gives `{_clipped(_written(source))}`"]


def _current(parameter: Hyperparameter) -> object:
    """What an object holds that is made with what was given."""
    return next(
        (v for v in (parameter.effective, parameter.given if parameter.is_given else None) if v is not None),
        parameter.value,
    )


def _same(one: object, other: object) -> bool:
    return json.dumps(one, sort_keys=True, default=str) == json.dumps(other, sort_keys=True, default=str)


def _described(
    facts: ImplementationFacts, own: Configuration, parameter: Hyperparameter, quotes: Quotes
) -> tuple[str, str]:
    """Value and description of a parameter that no formula names."""
    path = _path(own, parameter)
    where = _named_at(facts, own, parameter)
    words = _words(own, parameter)
    rest = [*_given(parameter), *_derived(facts, own, parameter)]
    traced = facts.tree.config.get(path, parameter) if not own.path else parameter  # nested ones: as source has them
    if parameter.sub_config:
        value = f"a configuration, `{short(str(parameter.value))}`" if parameter.value else "a configuration"
    elif parameter.basis == "required":
        value = "required"
    elif parameter.open:
        value = f"open: `{_clipped(as_source(parameter.open))}`"
    else:
        value = _value(quotes, f"parameter.{path}", _current(parameter) if traced is parameter else traced)
        rest += _differing(parameter, traced) if traced is not parameter else []
    if parameter.reads is not None:
        count = parameter.reads.count
        which = "of this or another part, " * _of_several(facts, parameter.name)
        places = f"{which}read in {count} {things(count, 'place')}{_of_idle(facts, parameter.reads)}{_put_aside(facts, parameter.reads)}"
        places += given_to(facts, parameter.name, parameter.reads) if not which else ""
        rest.append(places if count else _read_by(facts, own, parameter) or _NOWHERE)
    return value, "; ".join([*([words] if words else []), where, *rest])


def _of_several(facts: ImplementationFacts, name: str) -> bool:
    """Whether several of the configurations have a field of that name, which the lines that read it do not tell apart."""
    every = facts.settings.configurations if facts.settings is not None else ()
    return sum(any(one.name == name for one in own.hyperparameters) for own in every) > 1


def _put_aside(facts: ImplementationFacts, reads: Reads) -> str:
    """Where all that is done with it is to keep it as an attribute which no file of the pass looks at."""
    if len(reads.first) != reads.count:
        return ""
    kept: set[str] = set()
    for place in reads.first:
        lines = facts.reader.lines(place.file) or []
        found = _KEPT.fullmatch(lines[place.line - 1].strip()) if place.line <= len(lines) else None
        if found is None:
            return ""
        kept.add(found[1])
    files = {place.file for place in reads.first} | {one.file for graph in facts.graphs for one in graph.operators}
    looked_at = re.compile(rf"(?<!config)\.(?:{'|'.join(kept)})\b(?!\s*=[^=])|[\"'](?:{'|'.join(kept)})[\"']")
    read = any(looked_at.search(line) for file in files for line in facts.reader.lines(file) or [])
    return "" if read else ", where it is kept as an attribute that no file of the pass reads"


def _of_idle(facts: ImplementationFacts, reads: Reads) -> str:
    """Which of the places stand in classes that did not run, as far as the answer names places."""
    ran = frozenset().union(*map(scopes, facts.documents))
    spans = [facts.reader.enclosing(place.file, place.line) for place in reads.first]
    if spans and len(spans) == reads.count and all(map(_sets_weights, spans)):
        return ", where weights are set before any pass"
    built = [name for name in reads.within if name not in ran and _builds(facts, reads, name, ran)]
    if built and len(built) == len(reads.within):
        return ", where the model is built"
    around = [found for found in spans if found] if len(spans) == reads.count else []
    setting = {found[0].name for found in around if _sets_weights(found)}
    setting -= {found[0].name for found in around if not _sets_weights(found)}
    idle = [name for name in reads.within if name not in {*ran, *built, *setting}]
    said = ", also where weights are set before any pass" * bool(setting)
    whole = len(idle) == len(reads.within)
    names = joined(f"`{name}`" for name in idle)
    return said + (f", {'in' if whole else 'also in'} {names}, which did not run" if idle else "")


def _sets_weights(around: Sequence[Span]) -> bool:
    """Whether what stands around a line is what gives weights their first values."""
    return bool(around) and short(around[-1].name) == "_init_weights"


def _derived(facts: ImplementationFacts, own: Configuration, parameter: Hyperparameter) -> list[str]:
    """The statements that set it to something else than what was given; of a mapping that is filled in part by part, from where on."""
    said = []
    filled = any(each.formula.startswith("[") and _PART_SET.match(each.formula) for each in parameter.derived)
    if filled and len(parameter.derived) > 1:
        where = dict.fromkeys((each.file or own.file, each.within) for each in parameter.derived)
        spans = [(file, name, facts.reader.definition(file, name)) for file, name in where]
        return [f"filled in by `{name}` (`{file}:{span.line}`)" for file, name, span in spans if span is not None]
    told = parameter.effective is not None or parameter.value is not None
    sets = (
        at for at, each in enumerate(parameter.derived) if not each.condition and _PLAIN_SET.fullmatch(each.formula)
    )
    whole = next(sets, None) if told else None
    left = f"self.{parameter.name} is None"  # which it no longer is
    derived = [d for at, d in enumerate(parameter.derived) if whole is None or at <= whole or d.condition != left]
    for each in derived[:3]:
        condition = f" where `{_clipped(as_source(each.condition))}`" if each.condition else ""
        part = _PART_SET.match(each.formula)
        formula = as_source(f"self.{parameter.name}{'' if part[1] else ' '}{each.formula}" if part else each.formula)
        formula = f"set {'by' if part else 'to'} `{_clipped(formula)}`{condition}"
        said.append(f"{formula} at `{each.file or own.file}:{each.line}`")
    return said


# ---- 3.3 ------------------------------------------------------------------------------------------------------------


def constraint_lines(facts: ImplementationFacts) -> list[str]:
    """Alignment, hardware and precision as source declares them, other checks, those of a kernel, then conditions of the
    formulas. Checks of what the pass did not run are named with their place."""
    ran, others = _divided(facts)
    capable = [check for check in ran if check.kind == "capability"]
    optional = [check for check in capable if not _asks_for_device(check)]
    tested = [check for check in capable if check not in optional]
    typed = [check for check in ran if check.kind == "dtype"]
    rest = [check for check in ran if check not in capable and check not in typed]
    aligned = [check for check in rest if _ALIGNED.search(_said(check))]
    files = joined(f"`{path}`" for path in model_files(facts))
    lines = [f"Alignment: {_quoted(check)}" for check in aligned]
    beside = ", ".join(
        _asked(facts, hit) for hit in lines_that_ran(facts, _ALIGNS) if not _of_another_torch(facts, hit)
    )
    declared = f"Alignment: none declared; searched assert and raise in the classes that ran in {files}"
    asks = (
        f"; what issues operators here, or functions beside it that it may call, ask for it at {beside}"
        if beside
        else ""
    )
    lines = lines or [f"{declared}{asks}."]
    shown = device_tests_said(facts)
    asked = (
        [f"Hardware: none declared; these lines of what issues operators here test for a device: {shown}"]
        if shown
        else []
    )
    lines += [f"Hardware: {_quoted(check)}" for check in tested] or asked or [
        f"Hardware: none declared; searched {files} and the functions on the way for tests of devices, their capabilities "
        "and optional packages in what ran."
    ]  # fmt: skip
    lines.append(
        f"Precision: traced in {facts.main.dtype}; {_elements(facts)} of the formulas stand for other dtypes, with the casts of this one."
    )
    lines += [f"Precision: {_quoted(check)}" for check in typed]
    lines += [f"Packages: {_quoted(check)}" for check in optional]
    lines += [f"Check: {_quoted(check)}" for check in rest if check not in aligned]
    lines += [f"Kernel: {_quoted(check)}" for check in _of_kernels(facts)]
    return [*lines, *_elsewhere(facts, others), *_conditions(facts)]


def _asks_for_device(check: Check) -> bool:
    """Whether a test asks for more than whether packages are there."""
    asked = re.findall(r"\bis_(\w+)_available\b", check.condition)
    return not asked or any(_OF_DEVICES.search(name) for name in asked)


def _elements(facts: ImplementationFacts) -> str:
    """The bytes per element that the formulas have."""
    names = [v.name for document in facts.documents for v in document.variables if is_element(v.name)]
    return joined(dict.fromkeys(names))


def _divided(facts: ImplementationFacts) -> tuple[list[Check], list[Check]]:
    """Checks of what ran and of the configuration's own class, and the others that belong to the model."""
    found = {(check.file, check.line, check.kind): check for check in facts.checks}
    for check in facts.settings.constraints if facts.settings is not None else ():
        found.setdefault((check.file, check.line, check.kind), check)
    wanted = checked(facts)
    ran = [
        c for c in found.values() if c.within.split(".")[0] in wanted.get(c.file, set()) and not _passed_by(facts, c)
    ]
    raising = {(c.file, c.within) for c in ran if c.kind == "raise"}
    told = [c for c in ran if c.kind != "validator" or (c.file, c.within) not in raising]  # what it demands it raises
    return told, [c for c in found.values() if c not in ran]


def _passed_by(facts: ImplementationFacts, check: Check) -> bool:
    """Whether a check stands in a branch that no pass took: nothing ran in it, and in the other something did, or its own
    statements are operators. What a branch does but raise says nothing of whether it was tested."""

    def ran(statements: Sequence[ast.stmt]) -> bool:
        lines = [n for s in statements for n in range(s.lineno, (s.end_lineno or s.lineno) + 1)]
        return any((check.file, line) in facts.lines_run for line in lines)

    around = facts.reader.enclosing(check.file, check.line)
    for node in ast.walk(around[-1].node) if around else ():
        for arm, other in ((node.body, node.orelse), (node.orelse, node.body)) if isinstance(node, ast.If) else ():
            within = arm and arm[0].lineno <= check.line <= (arm[-1].end_lineno or arm[-1].lineno)
            if within and not isinstance(arm[-1], ast.Raise) and not ran(arm):
                computes = any(isinstance(s, ast.Assign) and _COMPUTES.match(ast.unparse(s.value)) for s in arm)
                if computes or ran(other):
                    return True
    return False


def _of_kernels(facts: ImplementationFacts) -> list[Check]:
    return [check for found in facts.kernel_settings for check in found.constraints]


def _elsewhere(facts: ImplementationFacts, checks: Sequence[Check]) -> list[str]:
    """Checks that belong to the model and not to this pass: how many of which kind in which class, the first lines. What every
    configuration inherits says nothing of this one."""
    parts = facts.settings.configurations if facts.settings is not None else ()
    held = {(own.file, short(own.class_name)) for own in parts}
    by_owner: dict[tuple[str, str], list[Check]] = {}
    for check in checks:
        if check.file != facts.modeling_file and (check.file, check.within.split(".")[0]) not in held:
            continue
        by_owner.setdefault((check.file, check.within.split(".")[0]), []).append(check)
    lines: dict[str, list[str]] = {}
    for (file, owner), own in by_owner.items():
        why = "Not on this pass" if file == facts.modeling_file else "Of configurations that this one holds"
        kinds = ", ".join(dict.fromkeys(check.kind for check in own))
        places = ", ".join(f"`{file}:{check.line}`" for check in own[:_PLACES])
        more = f" and {len(own) - _PLACES} more" if len(own) > _PLACES else ""
        lines.setdefault(why, []).append(
            f"{len(own)} {things(len(own), 'check')} ({kinds}) of {owner or 'the file'}: {places}{more}"
        )
    return [f"{why}: {'; '.join(said)}" for why, said in lines.items()]


def _conditions(facts: ImplementationFacts) -> list[str]:
    """What the formulas of the first document were derived under; says where the report's own point is outside."""
    values = facts.point(facts.main)
    told = [
        c for c in facts.main.conditions if not re.search(r"<= \d{18,}$", c)
    ]  # else what a size of 64 bits is anyway
    unmet = facts.outside(facts.main)
    inside, outside = ([f"`{c}`" for c in told if (c in unmet) is met] for met in (False, True))
    said = [f"of whole sizes from 1 on: {', '.join(inside)}"] if inside else []
    if outside:
        # no figure comes from outside a formula's conditions: where a trace at the values differs, its document is taken
        held = facts.main.phase in facts.points
        same = "at the values of section 3.1, which are outside, they give what a trace made there gave"
        said.append(f"{', '.join(outside)}; {same if held else 'the values of section 3.1 are outside'}")
    lines = (
        [f"Formulas of {facts.main.phase} derived where{',' * bool(inside)} {'; and where '.join(said)}"]
        if said
        else []
    )
    if lines and (others := [document.phase for document in facts.documents[1:]]):
        lines[-1] += f". Formulas of {' and '.join(others)} stand with their conditions in 11.B"
    past = crossing_said(facts.graphs[0], values, facts.crossed) if facts.crossed is not None else ""
    return [*lines, *([past] if past else [])]


def _builds(facts: ImplementationFacts, reads: Reads, name: str, ran: frozenset[str]) -> bool:
    """Whether a constructor of a class that ran calls a function; a class that it makes an object of may not run."""
    for file in dict.fromkeys(place.file for place in reads.first):
        defined = facts.reader.definition(file, name)
        if defined is None or isinstance(defined.node, ast.ClassDef):
            continue
        for number, line in enumerate(facts.reader.lines(file) or [], 1):
            if re.search(rf"(?<!def )\b{re.escape(name)}\(", line):
                around = [span.name for span in facts.reader.enclosing(file, number)]
                if any(short(name) == "__init__" for name in around) and ran.intersection(around):
                    return True
    return False


def _asked(facts: ImplementationFacts, hit: scan.Hit) -> str:
    """A line that asks for something, with what its condition asks beside it."""
    also = [f"`{in_code(text)}`" for text in scan.asked_beside(facts.reader, hit.path, hit.line)]
    where = f", where {' and '.join(also)}" if also else ""
    return f"`{in_code(hit.text.strip())}` ({hit.pointer}{where})"


def _of_another_torch(facts: ImplementationFacts, hit: scan.Hit) -> bool:
    """Whether a line's condition asks for another torch than the report speaks of."""
    has = next((source.version for source in facts.sources if source.repository == "pytorch"), "")
    for condition in scan.asked_beside(facts.reader, hit.path, hit.line) if has else ():
        if (asked := _TORCH_ASKED.match(condition)) is not None:
            here, there = (tuple(map(int, re.findall(r"\d+", text)[:2])) for text in (has, asked[2]))
            if here > there if asked[1] == "less" else here < there:
                return True
    return False


def _said(check: Check) -> str:
    """What a check demands: what it asserts, tests or validates, or what it raises and where."""
    if check.kind == "raise" and not check.error:
        return "raises again"
    if check.kind == "raise":
        said = f"raises {check.error}: {check.message}" if check.message else f"raises {check.error}"
        return f"{said} (where {check.condition})" if check.condition else said
    verb = {"assert": "asserts", "capability": "tests", "dtype": "tests", "validator": "validates"}.get(
        check.kind, check.kind
    )
    return f"{verb} {': '.join(filter(None, (check.condition, check.message)))}".strip()


def _quoted(check: Check) -> str:
    """A constraint as a sentence; its own words stand in a code span, so that nothing in them is read as Markdown."""
    within = (
        f"`{check.within}`" if check.file.endswith(".py") else f"{check.within}:"
    )  # no definitions are read of others
    where = f"{within} " if check.within else ""
    return f"{where}(`{check.file}:{check.line}`): `{as_source(_said(check))}`"
