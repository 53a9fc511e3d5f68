"""The table of devices: peaks, bandwidth, capacity, links, each figure with its public source.

`devices.json` ships; a user's own file of the same form adds devices or replaces some.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from opscope_schemas.common import Frozen
from opscope_schemas.errors import ConfigError, UnknownNameError
from pydantic import Field, ValidationError

_FILE = Path(__file__).with_name("devices.json")
#: how a precision's products are computed where a device has no units for it
_STANDS_FOR = {
    "fp16": "bf16", "bf16": "fp16", "fp8_block": "fp8", "nvfp4": "fp4", "mxfp4": "fp4", "mxfp4_mxfp8": "fp8", "int4": "bf16",
}  # fmt: skip

Kind = Literal["gpu", "tpu", "accelerator", "cpu"]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


#: of a device's memory, what an engine gives weights, cache and activations; the rest is the runtime's, graphs and fragments
USABLE = 0.9


class Link(Frozen):
    """What joins devices: bytes per second of one device in one direction, and how many devices it joins at that rate."""

    name: str
    bytes_per_second: Rate
    domain: int


class Provenance(Frozen):
    """Where figures stand; `what` names them."""

    what: str
    source: str
    url: str = ""
    date: str = ""


class Device(Frozen):
    """One device. Rates are per second: dense operations (a multiply-add is 2), bytes. Sizes are bytes. None: not published."""

    id: str
    name: str
    vendor: str
    kind: Kind
    aliases: tuple[str, ...] = ()
    arch: str = ""
    peak_flops: Mapping[str, Rate] = Field(min_length=1)
    bandwidth: Rate
    capacity: int = Field(gt=0)
    l2_bytes: int | None = None
    sms: int | None = None
    shared_bytes_per_sm: int | None = None
    max_threads_per_sm: int | None = None
    clock_hz: float | None = None
    links: tuple[Link, ...] = ()
    power_watts: float | None = None
    sources: tuple[Provenance, ...] = Field(min_length=1)
    notes: tuple[str, ...] = ()

    @property
    def usable(self) -> int:
        """Bytes that an engine gives weights, cache and activations."""
        return int(USABLE * self.capacity)

    def peak(self, precision: str) -> tuple[float, str]:
        """Operations per second of products in that precision, and the units that compute them.

        Where a device has no units for it, weights are widened and the product runs in the next precision that it has.
        """
        for name in (precision, _STANDS_FOR.get(precision, ""), "bf16", "fp16", "fp32"):
            if rate := self.peak_flops.get(name):
                return rate, name
        return max(self.peak_flops.values()), max(self.peak_flops, key=lambda n: self.peak_flops[n])

    def link(self, devices: int) -> Link | None:
        """The fastest link that joins so many of them, else the fastest there is (through the host); None: none is known."""
        joining = [link for link in self.links if link.domain >= devices]
        return max(joining or self.links, key=lambda link: link.bytes_per_second, default=None)


class _Table(Frozen):
    devices: tuple[Device, ...]


@cache
def shipped() -> Mapping[str, Device]:
    """The devices of the table that ships, by id."""
    return _read(_FILE)


def _read(file: Path) -> dict[str, Device]:
    try:
        table = _Table.model_validate(json.loads(file.read_text("utf-8")))
    except OSError as error:
        raise ConfigError(f"The device file {file} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"The device file {file} is not of the form that it should have: {place}: {first['msg']}.",
            next_step="Write it as devices.json is written: {'devices': [{'id': ..., 'peak_flops': {'bf16': ...}, ...}]}.",
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The device file {file} is no JSON: {error}.") from error
    return {device.id: device for device in table.devices}


def devices(own: Iterable[Path] = ()) -> dict[str, Device]:
    """Every known device by id; those of a user's files come last and win."""
    found = dict(shipped())
    for file in own:
        found.update(_read(file))
    return found


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def device_named(name: str, own: Iterable[Path] = ()) -> Device:
    """The device of that id, marketing name or alias, in any case. Raises `UnknownNameError` with the nearest ids."""
    table = devices(own)
    if (found := table.get(_plain(name))) is not None:
        return found
    for device in reversed(table.values()):
        if _plain(name) in {_plain(known) for known in (device.id, device.name, *device.aliases)}:
            return device
    every = {_plain(known): d.id for d in table.values() for known in (d.id, d.name, *d.aliases)}
    near = dict.fromkeys(every[n] for n in difflib.get_close_matches(_plain(name), every, 5, 0.5))
    raise UnknownNameError("device", name, list(near) or sorted(table))


__all__ = ["USABLE", "Device", "Link", "Provenance", "device_named", "devices", "shipped"]
