"""The table of devices: figures with sources that agree with one another, names, and a user's own file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from opscope_schemas.errors import ConfigError, UnknownNameError
from opscope_tools.hardware.calibration import calibration_for, calibration_of
from opscope_tools.hardware.devices import Device, device_named, devices, shipped

ALL = tuple(shipped().values())
#: what each figure is called in `sources`
FIGURES = (
    "peak_flops", "bandwidth", "capacity", "l2_bytes", "sms", "shared_bytes_per_sm", "max_threads_per_sm", "clock_hz", "links", "power_watts",
)  # fmt: skip
WANTED = (
    "v100_sxm a100_40_sxm a100_sxm a100_40_pcie a100_pcie h100_sxm h100_pcie h100_nvl h200_sxm gh200 b200_sxm b300_sxm gb200 gb300 l4 "
    "l40s a10 rtx_4090 rtx_5090 rtx_pro_6000 mi250x mi300x mi325x mi355x tpu_v5e tpu_v5p tpu_v6e trainium2 m3_max"
).split()


def test_the_table_has_the_devices_that_people_run_on() -> None:
    assert set(WANTED) <= set(shipped())


@pytest.mark.parametrize("device", ALL, ids=lambda d: d.id)
def test_every_figure_of_a_device_has_a_source(device: Device) -> None:
    said = {part.strip() for source in device.sources for part in source.what.split(",")}
    held = {name for name in FIGURES if getattr(device, name) not in (None, ())} - {"peak_flops"}
    assert held <= said
    assert all("peak_flops" in said or f"peak_flops.{name}" in said for name in device.peak_flops)
    assert all(source.source and source.date for source in device.sources)


@pytest.mark.parametrize("device", ALL, ids=lambda d: d.id)
def test_narrower_numbers_are_never_slower_and_sizes_are_those_of_devices(device: Device) -> None:
    peaks = device.peak_flops
    order = [peaks[n] for n in ("fp32", "tf32", "bf16", "fp8", "fp4") if n in peaks]
    assert order == sorted(order)
    assert 1e10 < device.bandwidth < 1e14
    assert 1e9 < device.capacity < 1e12


def test_peaks_agree_with_multiprocessors_and_clocks() -> None:
    """Dense bf16 FLOPs per clock of one multiprocessor, from NVIDIA's architecture whitepapers."""
    per_clock = {"a100_sxm": 2048, "h100_sxm": 4096, "h100_pcie": 4096, "l4": 1024, "rtx_4090": 512}
    for name, each in per_clock.items():
        device = shipped()[name]
        assert device.sms is not None
        assert device.clock_hz is not None
        assert device.peak("bf16")[0] == pytest.approx(device.sms * each * device.clock_hz, rel=0.02), name


def test_a_device_is_found_by_id_name_and_alias_in_any_case() -> None:
    for device in ALL:
        for name in (device.id, device.id.upper().replace("_", "-"), device.name, *device.aliases):
            assert device_named(name).id == device.id, name


def test_an_unknown_device_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="h100_sxm"):
        device_named("h1000")


def test_what_has_no_units_is_computed_in_the_next_precision() -> None:
    a100 = shipped()["a100_sxm"]
    assert a100.peak("fp8") == (a100.peak_flops["bf16"], "bf16")
    assert a100.peak("int4") == (a100.peak_flops["bf16"], "bf16")
    assert shipped()["h100_sxm"].peak("fp8_block")[1] == "fp8"


def test_a_users_file_adds_devices_and_replaces_some(tmp_path: Path) -> None:
    own = {
        "id": "mine", "name": "Mine", "vendor": "me", "kind": "gpu", "peak_flops": {"bf16": 1e15}, "bandwidth": 1e12,
        "capacity": 10**11, "sources": [{"what": "peak_flops", "source": "measured"}],
    }  # fmt: skip
    file = tmp_path / "devices.json"
    file.write_text(json.dumps({"devices": [own, {**own, "id": "h100_sxm"}]}))
    assert device_named("mine", [file]).capacity == 10**11
    assert device_named("h100_sxm", [file]).name == "Mine"
    assert "mine" not in devices()


def test_a_users_device_is_found_by_its_id_as_it_is_written(tmp_path: Path) -> None:
    own = shipped()["l4"].model_copy(update={"id": "My-Chip v2", "name": "N", "aliases": ()})
    file = tmp_path / "own.json"
    file.write_text(json.dumps({"devices": [own.model_dump(mode="json")]}))
    assert device_named("my-chip V2", [file]) == own


@pytest.mark.parametrize(
    ("field", "value"), [("bandwidth", 0), ("capacity", -1), ("peak_flops", {}), ("peak_flops", {"bf16": 0})]
)
def test_a_figure_that_nothing_can_be_divided_by_is_refused(tmp_path: Path, field: str, value: object) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps({"devices": [shipped()["l4"].model_dump(mode="json") | {field: value}]}))
    with pytest.raises(ConfigError, match=field):
        devices([file])


def test_only_the_shipped_figures_of_a_device_were_measured_with_its_calibration() -> None:
    shipped_one = shipped()["h100_sxm"]
    assert calibration_for(shipped_one) == calibration_of("h100_sxm") is not None
    assert calibration_for(shipped_one.model_copy(update={"bandwidth": 1e12})) is None
    assert calibration_for(shipped_one.model_copy(update={"id": "../calibrations/h100_sxm"})) is None


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"devices": [{"id": "x"}]}', '{"device": []}'])
def test_a_file_of_another_form_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "devices.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"devices\.json"):
        devices([file])
