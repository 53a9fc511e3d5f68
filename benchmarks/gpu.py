"""What compiling without a GPU says beside what a GPU's driver says: registers, shared memory, occupancy, DRAM bytes.

Needs an NVIDIA GPU with its driver, and nvcc; `ncu` for the bytes. Without a GPU it says so and ends. Ten kernels are compiled
for the GPU at hand by the tool and, as they are, by nvcc; the driver loads the latter's cubin and is asked for its attributes
and for resident blocks. Three copies of known size run under ncu, whose DRAM bytes stand beside widths times threads. Raw
figures go to benchmarks/results/NAME.json.
"""

from __future__ import annotations

import csv
import ctypes
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_tools.kernels import compiled, describe, launches_of, parse_arch, scan, select

RESULTS = Path(__file__).parent / "results"
_REGISTERS, _SHARED, _LOCAL = 4, 1, 3  # CUfunction_attribute
_THREADS = (64, 96, 128, 192, 256, 320, 512, 640, 768, 1024)
_ROWS = 1 << 24
#: ten kernels that differ in registers, shared memory and threads
_SOURCE = (
    "".join(
        f"""
extern "C" __global__ void __launch_bounds__({threads}) k{i}(float* x, int n) {{
  __shared__ float tile[{256 * (i + 1)}];
  float v[{4 * i + 2}];
  for (int j = 0; j < {4 * i + 2}; ++j) v[j] = x[(threadIdx.x + j) % n];
  tile[threadIdx.x % {256 * (i + 1)}] = v[0];
  __syncthreads();
  for (int j = 0; j < {4 * i + 2}; ++j) x[j * n + threadIdx.x] = v[j] * v[{4 * i + 1} - j] + tile[(threadIdx.x + j) % {256 * (i + 1)}];
}}
"""
        for i, threads in enumerate(_THREADS)
    )
    + """
extern "C" __global__ void copy1(float* out, const float* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
}
extern "C" __global__ void copy4(float* out, const float* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n / 4) reinterpret_cast<float4*>(out)[i] = reinterpret_cast<const float4*>(in)[i];
}
extern "C" __global__ void sum2(float* out, const float* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n / 2) out[i] = in[i] + in[i + n / 2];
}
void launches(float* x) {
"""
    + "".join(f"  k{i}<<<8, {threads}>>>(x, 64);\n" for i, threads in enumerate(_THREADS))
    + "}\n"
)
#: threads of a launch over _ROWS floats, by kernel
_COPIES = {"copy1": _ROWS, "copy4": _ROWS // 4, "sum2": _ROWS // 2}
_PROGRAM = """#include <cstdio>
#include "k.cu"
int main() {
  float *a, *b;
  if (cudaMalloc(&a, 4l * ROWS) || cudaMalloc(&b, 4l * ROWS)) return 1;
  copy1<<<ROWS / 256, 256>>>(a, b, ROWS);
  copy4<<<ROWS / 1024, 256>>>(a, b, ROWS);
  sum2<<<ROWS / 512, 256>>>(a, b, ROWS);
  return cudaDeviceSynchronize();
}
"""


class Driver:
    """The CUDA driver, through its C interface; raises OSError where there is none, RuntimeError where it has no GPU."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(major), 75, device)
        self.call("cuDeviceGetAttribute", ctypes.byref(minor), 76, device)
        name = ctypes.create_string_buffer(128)
        self.call("cuDeviceGetName", name, 128, device)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.name, self.arch = name.value.decode(), f"sm_{major.value}{minor.value}"

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} returned {code}")

    def attributes(self, cubin: bytes, function: str, threads: int) -> dict[str, int]:
        """Registers, static shared and local bytes of a function, and its blocks that are resident at once."""
        module, handle, number = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
        self.call("cuModuleLoadData", ctypes.byref(module), cubin)
        self.call("cuModuleGetFunction", ctypes.byref(handle), module, function.encode())
        found = {}
        for key, attribute in (("registers", _REGISTERS), ("shared_bytes", _SHARED), ("local_bytes", _LOCAL)):
            self.call("cuFuncGetAttribute", ctypes.byref(number), attribute, handle)
            found[key] = number.value
        self.call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(number), handle, threads, ctypes.c_size_t(0)
        )
        return {**found, "blocks": number.value}


def ours(folder: Path, names: list[str], arch: str) -> dict[str, dict[str, int | None]]:
    """Registers, shared bytes and resident blocks by the tool, and bytes that a launch over all rows moves."""
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    repository = Repository(name="gpu", root=folder, packages=())
    inventory = scan(repository, MemoryStore(), **quiet)
    archs = [found for found in (parse_arch(arch),) if found is not None]
    table: dict[str, dict[str, int | None]] = {}
    for name in names:
        (reference,) = select(inventory, name)
        (kernel,) = describe(repository, inventory, [reference], **quiet)
        launches = launches_of(inventory, reference)
        made = compiled(repository, reference, kernel, launches, archs, {}, "", MemoryStore(), **quiet).builds[0]
        moved = sum(access.width or 0 for access in (*kernel.loads, *kernel.stores))
        table[name] = {
            "registers": made.registers, "shared_bytes": made.shared_bytes,
            "blocks": made.occupancy.blocks if made.occupancy else None, "bytes": moved * _COPIES.get(name, 0),
        }  # fmt: skip
    return table


def measured_bytes(folder: Path, arch: str) -> dict[str, int]:
    """DRAM bytes of the three copies by ncu; empty where ncu is missing or not allowed to count."""
    if not shutil.which("ncu"):
        return {}
    (folder / "main.cu").write_text(_PROGRAM.replace("ROWS", str(_ROWS)))
    subprocess.run(["nvcc", f"-arch={arch}", "-o", "main", "main.cu"], cwd=folder, check=True, timeout=300)
    done = subprocess.run(
        ["ncu", "--csv", "--cache-control", "all", "--metrics", "dram__bytes_read.sum,dram__bytes_write.sum", "./main"],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    units = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
    found: dict[str, float] = {}
    text = done.stdout[done.stdout.find('"ID"') :] if '"ID"' in done.stdout else ""
    for row in csv.DictReader(io.StringIO(text)):
        name = re.sub(r"\W.*", "", row["Kernel Name"])
        value = float(row["Metric Value"].replace(",", "")) * units.get(row["Metric Unit"], 1)
        found[name] = found.get(name, 0.0) + value
    return {name: round(value) for name, value in found.items()}


def main() -> int:
    try:
        driver = Driver()
    except (OSError, RuntimeError) as error:
        print(f"skipped: no NVIDIA GPU answers here ({error})")
        return 0
    if not shutil.which("nvcc"):
        print("skipped: nvcc is not on PATH")
        return 0
    kernels = {f"k{i}": threads for i, threads in enumerate(_THREADS)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "k.cu").write_text(_SOURCE)
        command = ["nvcc", "-cubin", f"-arch={driver.arch}", "-std=c++20", "-lineinfo", "-o", "k.cubin", "k.cu"]
        subprocess.run(command, cwd=folder, check=True, timeout=300)
        cubin = (folder / "k.cubin").read_bytes()
        tool = ours(folder, [*kernels, *_COPIES], driver.arch)
        told = {kernel: driver.attributes(cubin, kernel, threads) for kernel, threads in kernels.items()}
        dram = measured_bytes(folder, driver.arch)
    different = [
        (kernel, key, tool[kernel][key], said[key])
        for kernel, said in told.items() for key in ("registers", "shared_bytes", "blocks") if tool[kernel][key] != said[key]
    ]  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    out = RESULTS / f"gpu-{re.sub(r'[^a-z0-9]+', '-', driver.name.lower())}.json"
    out.write_text(
        json.dumps({"device": driver.name, "arch": driver.arch, "tool": tool, "driver": told, "dram": dram}, indent=1)
    )
    print(
        f"{driver.name} ({driver.arch}): {len(told)} kernels, {len(different)} figures differ from the driver's: {different}"
    )
    for kernel, value in dram.items():
        expected = tool[kernel]["bytes"]
        print(
            f"{kernel}: {value:,} DRAM bytes by ncu, {expected:,} by widths and threads ({value / (expected or 1):.3f})"
        )
    print(f"raw figures: {out}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
