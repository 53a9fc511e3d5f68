"""The whole table of collectors, in the order in which they run, and those of a topic."""

from __future__ import annotations

from opscope_schemas.errors import UnknownNameError
from opscope_schemas.evidence import Topic

from opscope_tools.collect_evidence import analyses, gpu, gpu_code
from opscope_tools.evidence.collectors import code, memory, sources, system
from opscope_tools.evidence.table import Collector

__all__ = ["ALL_COLLECTORS", "collector_named", "of_topic"]

ALL_COLLECTORS: tuple[Collector, ...] = (
    *analyses.COLLECTORS,
    *system.COLLECTORS,
    *sources.COLLECTORS,
    *code.COLLECTORS,
    *memory.COLLECTORS,
    *gpu_code.COLLECTORS,
    *gpu.COLLECTORS,
)


def of_topic(topic: Topic) -> tuple[Collector, ...]:
    """The collectors of a topic."""
    return tuple(one for one in ALL_COLLECTORS if topic in one.topics)


def collector_named(name: str, topic: Topic) -> Collector:
    """The collector of a topic by its name; raises `UnknownNameError` with those that there are."""
    for one in of_topic(topic):
        if one.id == name:
            return one
    raise UnknownNameError("collector", name, [one.id for one in of_topic(topic)])
