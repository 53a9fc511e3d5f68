"""Pages and shorter forms of what `extract_config` answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from opscope_schemas.extracted_config import Configuration, ExtractConfigResult, Hyperparameter

from opscope_tools.running.runner import PAGE, to_json

__all__ = ["LADDER", "fitted", "paged"]

_T = TypeVar("_T")
_SECTIONS = ("hyperparameters", "kernels", "constraints", "constants")


def paged(result: ExtractConfigResult, section: str | None, offset: int, limit: int) -> ExtractConfigResult:
    """One page of one section, the others empty; all of it without a section. Kernels come as a page already."""
    if section is None:
        return result
    update: dict[str, object] = {
        "configurations": (),
        "kernels": (),
        "constraints": (),
        "constants": (),
        "kernel_hooks": (),
    }
    if section == "hyperparameters":
        total = sum(len(c.hyperparameters) for c in result.configurations)
        update["configurations"] = tuple(_window(result.configurations, offset, limit))
    elif section == "kernels":
        total = result.kernel_count
        update |= {"kernels": result.kernels, "kernel_hooks": result.kernel_hooks}
    else:
        entries: Sequence[object] = getattr(result, section)
        total, update[section] = len(entries), tuple(entries[offset : offset + limit])
    following = offset + limit
    update["next_offset"] = following if following < total else None
    return result.model_copy(update=update)


def _window(configurations: Sequence[Configuration], offset: int, limit: int) -> list[Configuration]:
    """The configurations that hold the parameters from `offset` on, with these alone."""
    kept, start = [], 0
    for configuration in configurations:
        own = configuration.hyperparameters
        page = own[max(offset - start, 0) : max(offset + limit - start, 0)]
        if page:
            kept.append(configuration.model_copy(update={"hyperparameters": page}))
        start += len(own)
    return kept


def fitted(result: ExtractConfigResult, section: str | None) -> ExtractConfigResult:
    """The first form that the compact answer has room for."""
    for form in (lambda whole: whole, *LADDER):
        shorter: ExtractConfigResult = form(result)
        if len(to_json(shorter)) <= PAGE:
            return shorter
    return _cut(LADDER[-1](result), section)


def _cut(result: ExtractConfigResult, section: str | None) -> ExtractConfigResult:
    """Halve what is longest until it fits; the counts stay."""
    while len(to_json(result)) > PAGE:
        sizes = {
            "configurations": sum(len(c.hyperparameters) for c in result.configurations) * 3, "kernels": len(result.kernels) * 4,
            "constraints": len(result.constraints), "constants": len(result.constants), "kernel_hooks": len(result.kernel_hooks),
        }  # fmt: skip
        longest = max(sizes, key=lambda name: sizes[name])
        if sizes[longest] <= 3:
            break
        if longest == "configurations":
            kept = _window(result.configurations, 0, max(sizes[longest] // 6, 1))
            result = result.model_copy(update={"configurations": tuple(kept)})
        else:
            entries = getattr(result, longest)
            result = result.model_copy(update={longest: entries[: len(entries) // 2]})
    how = "raise offset" if section else f"ask with section={' or '.join(_SECTIONS)} and offset"
    return result.model_copy(
        update={"shortened": f"{result.shortened} Only the first entries of long lists: {how} for the rest."}
    )


# the ladder ----------------------------------------------------------------------------------------------------------


def _each(
    result: ExtractConfigResult, form: Callable[[Hyperparameter, Configuration], Hyperparameter]
) -> tuple[Configuration, ...]:
    return tuple(
        c.model_copy(update={"hyperparameters": tuple(form(p, c) for p in c.hyperparameters)})
        for c in result.configurations
    )


def _own(parameter: Hyperparameter, owner: Configuration) -> bool:
    """Whether the class declares it itself, and does not inherit it."""
    return not parameter.class_name or parameter.class_name.startswith(owner.class_name)


def _briefer(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 2].rsplit(" ", 1)[0] + " …"


def _short_value(value: object) -> object:
    """Long lists and mappings by their beginning."""
    if isinstance(value, list) and len(value) > 8:
        return [*value[:6], f"... {len(value)} in all"]
    if isinstance(value, dict) and len(value) > 8:
        return {**dict(list(value.items())[:6]), "...": f"{len(value)} in all"}
    return value


def brief(result: ExtractConfigResult) -> ExtractConfigResult:
    """Meanings and messages cut, long values begun only, one place of the reads, what parents declare in few words."""

    def form(parameter: Hyperparameter, owner: Configuration) -> Hyperparameter:
        meaning, reads = parameter.meaning, parameter.reads
        own = _own(parameter, owner)
        return parameter.model_copy(update={
            "meaning": meaning.model_copy(update={"text": _briefer(meaning.text, 140)}) if meaning and own else None,
            "reads": reads.model_copy(update={"first": reads.first[:1], "within": ()}) if reads else None,
            "value": _short_value(parameter.value), "given": _short_value(parameter.given), "effective": _short_value(parameter.effective),
            "derived": tuple(d.model_copy(update={"formula": _briefer(d.formula, 120), "condition": _briefer(d.condition, 100)}) for d in parameter.derived[: 4 if own else 1]),
        })  # fmt: skip

    checks = tuple(
        c.model_copy(update={"message": _briefer(c.message, 120), "condition": _briefer(c.condition, 160)})
        for c in result.constraints
    )
    return result.model_copy(update={
        "configurations": _each(result, form), "constraints": checks,
        "shortened": "Meanings, messages and long values are cut; detail=full has them whole.",
    })  # fmt: skip


def briefer(result: ExtractConfigResult) -> ExtractConfigResult:
    """Also without reads' places, what parents declare reduced to names and values, the first constraints only."""

    def form(parameter: Hyperparameter, owner: Configuration) -> Hyperparameter:
        own = _own(parameter, owner)
        reads = parameter.reads.model_copy(update={"first": ()}) if parameter.reads and own else None
        update: dict[str, object] = {"reads": reads, "overrides": ()}
        if parameter.meaning is not None:
            update["meaning"] = parameter.meaning.model_copy(update={"text": _briefer(parameter.meaning.text, 80)})
        if not own:
            update |= {"annotation": "", "derived": (), "meaning": None}
        return parameter.model_copy(update=update)

    first = brief(result)
    return first.model_copy(update={
        "configurations": tuple(c.model_copy(update={"accepts": ()}) for c in _each(first, form)),
        "constraints": first.constraints[:25], "constants": first.constants[:25],
        "kernels": tuple(k.model_copy(update={"settings": k.settings[:12]}) for k in first.kernels[:10]),
        "shortened": "Meanings and values are cut, places of reads, accepted keys and facts of inherited parameters left out, lists "
        "begun only; section= with offset and limit, or detail=full, has the rest.",
    })  # fmt: skip


def own_only(result: ExtractConfigResult) -> ExtractConfigResult:
    """Also without the parameters that classes inherit unchanged, and without derivations' conditions."""

    def form(parameter: Hyperparameter, _: Configuration) -> Hyperparameter:
        derived = tuple(
            d.model_copy(update={"formula": _briefer(d.formula, 60), "condition": ""}) for d in parameter.derived[:1]
        )
        return parameter.model_copy(update={"derived": derived})

    first = briefer(result)
    kept = [
        c.model_copy(update={"hyperparameters": tuple(p for p in c.hyperparameters if _own(p, c) or p.is_given)})
        for c in _each(first, form)
    ]
    return first.model_copy(update={
        "configurations": tuple(kept), "constraints": first.constraints[:15], "constants": first.constants[:15],
        "shortened": "Parameters that classes inherit unchanged are left out (total counts them), meanings and values cut, lists begun "
        "only; section= with offset and limit, or detail=full, has the rest.",
    })  # fmt: skip


def values_only(result: ExtractConfigResult) -> ExtractConfigResult:
    """Names, defaults, values and lines of the parameters that the classes declare themselves."""

    def form(parameter: Hyperparameter, _: Configuration) -> Hyperparameter:
        return Hyperparameter(
            name=parameter.name, line=parameter.line, kind=parameter.kind, default=_briefer(parameter.default, 60),
            basis=parameter.basis, value=parameter.value, open=_briefer(parameter.open, 80), sub_config=parameter.sub_config,
            is_given=parameter.is_given, given=parameter.given, effective=parameter.effective,
        )  # fmt: skip

    first = briefer(result)
    kept = []
    for configuration in first.configurations:
        own = [p for p in configuration.hyperparameters if _own(p, configuration) or p.is_given]
        kept.append(configuration.model_copy(update={
            "hyperparameters": tuple(form(p, configuration) for p in own), "parents": configuration.parents[:4],
        }))  # fmt: skip
    return first.model_copy(update={
        "configurations": tuple(kept), "constraints": first.constraints[:12], "constants": first.constants[:12],
        "kernels": tuple(k.model_copy(update={"settings": k.settings[:6]}) for k in first.kernels[:10]),
        "shortened": "Only names, defaults, values and lines (of the class's own file) of parameters that the classes declare "
        "themselves, and the first of other lists; section= with offset and limit, or detail=full, has the rest.",
    })  # fmt: skip


LADDER: tuple[Callable[[ExtractConfigResult], ExtractConfigResult], ...] = (brief, briefer, own_only, values_only)
