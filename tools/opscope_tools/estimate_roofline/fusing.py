"""What fusing would save of an eager pass: each kernel of the serving view beside the operators that run in it one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opscope_schemas.estimates import Fusion
from opscope_schemas.formula import Rational

from opscope_tools.estimate_roofline.kernels import Kernel, Pass
from opscope_tools.estimate_roofline.times import bound
from opscope_tools.hardware.devices import Device


def fusions(eager: Pass, values: Mapping[str, Rational], device: Device) -> tuple[Fusion, ...]:
    """Those that save bytes, most time first; bytes and bounds of all runs. What nothing runs any more is one by itself."""
    alone = {part.op.order: kernel for part, kernel in zip(eager.parts, eager.kernels(values), strict=True)}
    served = Pass(eager.found, "")
    found = []
    for part, kernel in zip(served.parts, served.singles(values), strict=True):
        found.append(_row([alone.pop(order) for order in part.orders if order in alone], kernel, device))
    found += [_row([kernel], None, device) for kernel in alone.values()]
    return tuple(
        sorted((one for one in found if one.eager_bytes > one.fused_bytes), key=lambda one: -one.saved_seconds)
    )


def _row(before: Sequence[Kernel], after: Kernel | None, device: Device) -> Fusion:
    runs = [kernel for kernel in before if kernel.moved or kernel.flops]
    shown = after or before[0]
    now = sum(bound(kernel, device)[0] * kernel.count for kernel in before)
    then = bound(after, device)[0] * after.count if after is not None else 0.0
    return Fusion(
        operation=", ".join(dict.fromkeys(kernel.operation for kernel in runs)), module=shown.module, file=shown.file, line=shown.line,
        kernels=sum(kernel.count for kernel in runs), fused_kernels=after.count if after is not None else 0,
        eager_bytes=round(sum(kernel.moved * kernel.count for kernel in before)),
        fused_bytes=round(after.moved * after.count) if after is not None else 0, saved_seconds=now - then,
    )  # fmt: skip


__all__ = ["fusions"]
