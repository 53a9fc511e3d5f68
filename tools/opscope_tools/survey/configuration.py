"""Command-line flags over all files, those made from the fields of classes included; configuration classes and files."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from opscope_schemas.repo_map import ConfigClass, ConfigField, ConfigFolder, Counted, Flag, FlagSurface, Place

from opscope_tools.survey.definitions import CONFIG_NAME
from opscope_tools.survey.facts import ClassFact, FieldFact, FileFacts, FlagFact
from opscope_tools.survey.holdings import Definition, Holdings, at

_LIBRARIES = {
    "HfArgumentParser": "_",
    "tyro": "-",
    "simple_parsing": "_",
    "jsonargparse": "_",
    "pydantic-settings": "-",
}
_DATACLASSES = {
    "dataclass": "dataclass", "dataclasses.dataclass": "dataclass", "pydantic.dataclasses.dataclass": "pydantic",
    "attr.s": "attrs", "attr.define": "attrs", "attrs.define": "attrs", "attrs.frozen": "attrs", "attr.dataclass": "attrs",
    "flax.struct.dataclass": "dataclass", "chex.dataclass": "dataclass",
}  # fmt: skip
_BASES = {
    "BaseModel": "pydantic", "BaseSettings": "pydantic", "RootModel": "pydantic", "Struct": "msgspec",
    "PretrainedConfig": "PretrainedConfig", "PreTrainedConfig": "PretrainedConfig", "NamedTuple": "named tuple", "TypedDict": "typed dict",
}  # fmt: skip
_CONFIG_FILE = re.compile(
    r"(^|[/_.-])(conf|config|configs|configuration|settings|params|hparams|recipes)([/_.-]|$)", re.IGNORECASE
)


def flag_surface(held: Holdings) -> FlagSurface:
    """Every flag that the files outside tests declare."""
    flags: list[tuple[bool, FileFacts, FlagFact]] = []
    dynamic = []
    for facts in held.python:
        if held.roles[facts.path] in {"tests", "third party"}:
            continue
        demoted = held.demoted(facts.path)
        settled: set[int] = set()
        made = [(demoted, where, flag) for where, flag in _of_classes(held, facts, settled)]
        flags += made
        for flag in facts.flags:
            if flag.names:
                flags.append((demoted, facts, flag))
            elif flag.line not in settled and not (made and flag.within in facts.flag_makers):
                dynamic.append(at(facts.path, flag.line))
    per_file = Counter(facts.path for _, facts, _ in flags)
    flags.sort(key=lambda e: (e[0], -per_file[e[1].path], e[1].path, e[2].line))
    unique = {(facts.path, flag.line, flag.names): (facts, flag) for _, facts, flag in flags}
    files = [
        Counted(name=path, count=count, files=1, places=(Place(name="first", at=at(path, _first(flags, path))),))
        for path, count in per_file.most_common(10)
    ]
    read = sum(held.roles[facts.path] not in {"tests", "third party"} for facts in held.python)
    return FlagSurface(
        flags=tuple(Flag(names=g.names, at=at(f.path, g.line), how=g.how, default=g.default) for f, g in unique.values()),
        by_mechanism=dict(Counter(flag.how for _, flag in unique.values()).most_common()),
        files=tuple(files), dynamic=tuple(dynamic),
        searched="" if flags else f"argparse, click, typer, absl and flags of class fields in {read} Python files, tests and third party left out",
    )  # fmt: skip


def _first(flags: list[tuple[bool, FileFacts, FlagFact]], path: str) -> int:
    return min(flag.line for _, facts, flag in flags if facts.path == path)


def _of_classes(held: Holdings, facts: FileFacts, settled: set[int]) -> Iterator[tuple[FileFacts, FlagFact]]:
    """Flags that a library or a function of the repository makes of the fields of a class; their calls' lines go to `settled`."""
    for path in facts.flag_makers:  # a method that goes through the fields of its own class
        holder = held.definition(path.rpartition(".")[0], facts) if "." in path else None
        joint, subject = facts.flag_makers[path][0], facts.flag_makers[path][1:]
        if subject == "self" and holder is not None and isinstance(holder.fact, ClassFact) and holder.fact.fields:
            yield from _flags(held, holder, joint, f"fields, by {path}")
    for hit in facts.class_calls:
        joint, how = _LIBRARIES.get(hit.name, ""), hit.name
        if not joint:
            maker = held.definition(hit.name, facts)
            kind = maker.file.flag_makers.get(maker.fact.path, "") if maker else ""
            joint = kind[0] if kind.endswith("parameter") else ""
            how = f"fields, by {maker.fact.path}" if maker else ""
        for name in hit.text.split() if joint else ():
            made = held.definition(name, facts)
            if made is not None and isinstance(made.fact, ClassFact) and made.fact.fields:
                settled.add(hit.line)
                yield from _flags(held, made, joint, how)


def _flags(held: Holdings, made: Definition, joint: str, how: str) -> Iterator[tuple[FileFacts, FlagFact]]:
    for one in held.lineage(made):
        for field in one.fact.fields if isinstance(one.fact, ClassFact) else ():
            if not field.name.startswith("_"):
                name = f"--{field.name.replace('_', joint)}"
                yield one.file, FlagFact((name,), field.line, how, field.default, one.fact.path)


# classes --------------------------------------------------------------------------------------------------------------


def config_classes(held: Holdings) -> list[ConfigClass]:
    """Classes of the source that hold configuration, the most imported first."""
    found = []
    for one in held.classes:
        if held.demoted(one.file.path) or not isinstance(one.fact, ClassFact):
            continue
        kind = _kind(held, one)
        if not (CONFIG_NAME.match(one.name) or kind == "PretrainedConfig"):
            continue
        if not kind and (one.name.endswith(("Params", "Parameters")) or not (one.fact.fields or _parameters(one.fact))):
            continue  # weights are called parameters too
        fields = one.fact.fields or (_parameters(one.fact) if kind in {"PretrainedConfig", ""} else ())
        found.append((held.importers[one.at], one, kind or "class", fields))
    found.sort(key=lambda e: (-e[0], -len(e[3]), e[1].at))
    return [
        ConfigClass(
            name=one.fact.path, at=one.at, kind=kind, importers=importers, field_count=len(fields),
            fields=tuple(ConfigField(name=f.name, line=f.line, annotation=f.annotation, default=f.default) for f in fields),
        )
        for importers, one, kind, fields in found
    ]  # fmt: skip


def _parameters(fact: ClassFact) -> tuple[FieldFact, ...]:
    return next((method.parameters for method in fact.methods if method.name == "__init__"), ())


def _kind(held: Holdings, one: Definition) -> str:
    """What kind of record the class is; empty for a plain class."""
    for decorator in one.fact.decorators:
        if kind := _DATACLASSES.get(decorator.name):
            return kind
        maker = held.definition(decorator.name, one.file)
        if maker is not None and any(d.name.endswith("dataclass_transform") for d in maker.fact.decorators):
            return f"dataclass, by @{maker.name}"
    for base in held.base_names(one):
        if kind := _BASES.get(base.rpartition(".")[2]):
            return kind
    return next((k for b in held.lineage(one)[1:] for d in b.fact.decorators if (k := _DATACLASSES.get(d.name))), "")


def config_files(held: Holdings) -> list[ConfigFolder]:
    """Configuration files by folder, the fullest folder first."""
    groups: defaultdict[str, list[FileFacts]] = defaultdict(list)
    for facts in held.files:
        if (
            facts.language == "data"
            and facts.tokens
            and not held.demoted(facts.path)
            and _CONFIG_FILE.search(facts.path)
        ):
            groups[facts.path.rpartition("/")[0]].append(facts)
    found = []
    for folder, files in sorted(groups.items(), key=lambda e: (-len(e[1]), e[0])):
        first = min(files, key=lambda facts: facts.path)
        keys = tuple(dict.fromkeys(key for facts in files[:20] for key in facts.tokens))[:12]
        where = at(first.path, min(first.tokens.values()))
        found.append(ConfigFolder(path=folder or ".", files=len(files), at=where, keys=keys))
    return found
