"""The processor at hand as a device."""

from __future__ import annotations

import os

from opscope_tools.hardware.here import this_processor


def test_it_is_measured_once_and_says_how() -> None:
    device = this_processor()
    assert this_processor() is device
    assert device.kind == "cpu"
    assert device.peak("bf16") == (device.peak_flops["fp32"], "fp32")  # products run in what was measured
    assert f"{os.cpu_count()} cores" in device.name
    assert "spread by" in device.sources[0].source
    assert 1e8 < device.bandwidth < 1e14
    assert device.capacity == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
