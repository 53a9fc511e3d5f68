"""How far a thread's neighbour reads from it, and how wide: each access says on its own line what must come out."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels import describe, scan, select

SOURCE = r"""
struct Wide { int x[8]; };
__device__ float helper(const float* p, int i) { return p[i]; }  // expect: 4 1
template <typename T, int VEC>
__global__ void steps(const float* x, const half* h, const uint8_t* bytes, float* out, const int* ids, const T* t, int n, int row_stride) {
  int tid = blockIdx.x * blockDim.x + threadIdx.x;
  int lane = threadIdx.x % 32;
  int warp = threadIdx.x / 32;
  out[tid] = x[tid];  // expect: 4 1
  out[n - tid] = x[2 * tid + 1];  // expect: 4 2
  out[lane + warp * 64] = x[warp];  // expect: 4 0
  float4 wide = reinterpret_cast<const float4*>(x)[tid];  // expect: 16 1
  float4 again = *reinterpret_cast<const float4*>(x + 4 * tid);  // expect: 16 1
  uint4 packed = *((uint4*)(bytes + 16 * tid));  // expect: 16 1
  uint4 apart = *((uint4*)(bytes + 32 * tid));  // expect: 16 2
  half one = h[threadIdx.x * row_stride];  // expect: 2 row_stride
  float gathered = x[ids[tid]];  // expect: 4 ''
  T any = t[tid * VEC];  // expect: 4 4
  const float* row = x + blockIdx.y * n;
  float own = row[threadIdx.x];  // expect: 4 1
  const float* moved = x + threadIdx.x;
  float second = moved[threadIdx.x];  // expect: 4 2
  const float* walking = x;
  walking += threadIdx.x;
  float third = walking[0];  // expect: 4 1
  int changing = 0;
  if (n) changing = threadIdx.x * 3;
  float fourth = x[changing];  // expect: 4 ''
  out[(tid * 8 + n) * 4 + 1] = x[(tid * n)];  // expect: 4 32
  int doubled = tid; doubled *= 2;
  out[doubled] = 1;  // expect: 4 2
  int odd = tid, twice = tid * 2;
  out[twice] = x[odd];  // expect: 4 2
  float part = reinterpret_cast<const float4*>(x)[tid].y;  // expect: 4 4
  out[n - tid] = *(const float*)&h[2 * tid];  // expect: 4 1
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] += wide.x;  // expect: 4 1
  for (int j = 0; j < n; j += threadIdx.x) own += x[j];  // expect: 4 ''
  out[threadIdx.x / 4] = helper(x, tid) + one + gathered + second;  // expect: 4 ''
}
void launch(const float* x, float* o) { steps<float, 4><<<8, 256>>>(x, nullptr, nullptr, o, nullptr, x, 1, 1); }
"""


def described(folder: Path, source: str, name: str) -> KernelTiling:
    (folder / "k.cu").write_text(source)
    repository = Repository(name="k", root=folder, packages=())
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    inventory = scan(repository, MemoryStore(), **quiet)
    (kernel,) = describe(repository, inventory, select(inventory, name), **quiet)
    return kernel


def test_steps_and_widths_are_those_written_on_the_lines(tmp_path: Path) -> None:
    kernel = described(tmp_path, SOURCE, "steps")
    found: dict[int, set[tuple[str, str]]] = {}
    for access in (*kernel.loads, *kernel.stores):
        found.setdefault(access.line, set()).add((str(access.width), access.strides[0] if access.strides else "''"))
    expected = {
        number: (match[1], match[2])
        for number, line in enumerate(SOURCE.splitlines(), 1) if (match := re.search(r"// expect: (\S+) (\S+)", line))
    }  # fmt: skip
    assert len(expected) > 15
    missing = {
        line: (wanted, found.get(line)) for line, wanted in expected.items() if wanted not in found.get(line, set())
    }
    assert missing == {}


def test_counts_of_launches_and_shared_arrays_follow_scopes_and_changes(tmp_path: Path) -> None:
    kernel = described(
        tmp_path,
        """
constexpr int K = 32;
__global__ void scoped(float* x) {
  __shared__ double a[K], b[2 * K];
  { constexpr int K = 2; __shared__ float c[K]; c[0] = x[0]; }
  __shared__ union { float f[8]; double d[8]; } both;
  for (int i = 0; i <= 7; ++i) x[i] = a[i];
  for (int i = 0; i < K; ++i) { if (i == 2) i++; x[i] = b[i]; }
}
void other() { constexpr int T = 4; use(T); }
void launches(float* x, int n) {
  int t = 256; t <<= 1;
  scoped<<<1, t>>>(x);
  dim3 block(32); block = dim3(64, 2); if (n) block.y = 4;
  scoped<<<2, block>>>(x);
  for (int s = 512; s > 32; s /= 2) scoped<<<3, s>>>(x);
  scoped<<<4, T>>>(x);
}
void handed(float* x, dim3 grid, dim3 block) { scoped<<<grid, block>>>(x); }
""",
        "scoped",
    )
    assert [(s.name, s.bytes) for s in kernel.shared_memory] == [("a", 256), ("b", 512), ("c", 8), ("both", None)]
    assert [loop.trip_count for loop in kernel.loops] == ["8", ""]
    assert [g.threads for g in kernel.grid] == [512, None, None, None, None]
    assert [g.block[0] for g in kernel.grid] == ["512", "64", "{s}", "{T}", "{block}"]


def test_a_step_says_whether_a_warps_accesses_lie_side_by_side(tmp_path: Path) -> None:
    said = {a.expression: a.coalesced for a in described(tmp_path, SOURCE, "steps").loads}
    assert said["x[tid]"] == "yes"
    assert said["x[2 * tid + 1]"] == "no: 2 elements apart"
    assert said["x[warp]"] == "one element for all"
    assert said["h[threadIdx.x * row_stride]"] == "where row_stride == 1"
    assert said["x[ids[tid]]"] == ""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on this machine")
def test_widths_are_those_of_the_machine_instructions(tmp_path: Path) -> None:
    source = """#include <cstdint>
__global__ void copy(const uint8_t* a, const float* b, const double* c, uint8_t* out) {
  reinterpret_cast<uint4*>(out)[threadIdx.x] = reinterpret_cast<const uint4*>(a)[threadIdx.x];
  out[threadIdx.x + 65536] = a[threadIdx.x + 65536];
  reinterpret_cast<float*>(out)[threadIdx.x + 131072] = b[threadIdx.x];
  reinterpret_cast<double*>(out)[threadIdx.x + 262144] = c[threadIdx.x];
}
"""
    kernel = described(tmp_path, source, "copy")
    subprocess.run(["nvcc", "-ptx", "-arch=sm_90", "-o", "k.ptx", "k.cu"], cwd=tmp_path, check=True, timeout=120)
    text = (tmp_path / "k.ptx").read_text()
    bytes_of = {"v4.u32": 16, "v4.b32": 16, "u8": 1, "b8": 1, "f32": 4, "b32": 4, "f64": 8, "b64": 8}
    for operation, ours in (("ld", kernel.loads), ("st", kernel.stores)):
        theirs = [bytes_of[m] for m in re.findall(rf"\b{operation}\.global\.((?:v4\.)?\w+)", text)]
        assert sorted(a.width or 0 for a in ours) == sorted(theirs)
