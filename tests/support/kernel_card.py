"""A kernel's description, a fact a line: short enough to be checked against the source by eye, and every field in it."""

from __future__ import annotations

from collections.abc import Iterator

from opscope_schemas.tiling import KernelTiling, MemoryOperation


def card(kernel: KernelTiling) -> list[str]:
    """Every fact of the description but those about compiling; lines are of the kernel's own file where none is named."""
    return list(_lines(kernel))


def _place(fact: object) -> str:
    file, line = getattr(fact, "file", ""), getattr(fact, "line", 0)
    via = getattr(fact, "via", "")
    return f"{file.rpartition('/')[2] + ':' if file else ''}{line}{' in ' + via if via else ''}"


def _lines(k: KernelTiling) -> Iterator[str]:
    yield f"{k.role} {k.language} {k.file}:{k.line}-{k.end_line} {' '.join(k.decorators)}{' macro ' + k.macro if k.macro else ''}"
    for p in k.parameters:
        yield f"parameter {p.line}: {p.type + ' ' if p.type else ''}{'*' if p.pointer else ''}{p.name}{' = ' + p.default if p.default else ''}"
    for c in k.constexpr:
        values = "; ".join(f"{v.value} ({v.origin} {_place(v)}{' when ' + v.when if v.when else ''})" for v in c.values)
        yield f"{c.kind} {c.line}: {c.type} {c.name}{' = ' + c.default if c.default else ''} is {values or '?'}"
    for t in k.tile:
        yield f"tile {t.line}: {t.name} = {' | '.join(t.values) or '?'} as {' and '.join(t.used_as)}"
    for g in k.grid:
        block = f" block {' x '.join(g.block)} = {g.threads}" if g.block else ""
        shared = f" shared {g.shared_memory}" if g.shared_memory not in ("", "0") else ""
        stream = f" stream {g.stream}" if g.stream else ""
        when = f" when {g.when}" if g.when else ""
        open_ = f" unresolved {', '.join(g.unresolved)}" if g.unresolved else ""
        around = f" where {' and '.join(g.reached_when)}" if g.reached_when else ""
        yield f"launch {_place(g)} by {g.function}: {g.kernel} over {' x '.join(g.dimensions) or '?'}{block}{shared}{stream}{when}{around}{open_}"
        for definition in g.definitions:
            yield f"  with {definition}"
    yield f"tiles {k.num_tiles or '?'}"
    for m in k.mapping:
        yield f"index {_place(m)}: {m.axis + ' -> ' if m.axis else ''}{m.variable} = {m.expression}"
    for name, options in (("warps", k.num_warps), ("stages", k.num_stages)):
        for v in options:
            yield f"{name} {v.value} ({v.origin} {_place(v)}){' when ' + v.when if v.when else ''}"
    if k.autotune is not None:
        yield f"autotune {k.autotune.line}: {k.autotune.count} by {', '.join(k.autotune.key)}"
    for v in k.heuristics:
        yield f"heuristic {_place(v)}: {v.value}"
    yield from (f"load {_access(m)}" for m in k.loads)
    yield from (f"store {_access(m)}" for m in k.stores)
    for s in k.shared_memory:
        yield f"shared {_place(s)}: {s.type} {s.name}[{']['.join(s.dimensions)}] {s.formula} = {s.bytes}"
    for i in k.instructions:
        yield f"instruction {_place(i)}: {i.operation} {i.expression}"
    for loop in k.loops:
        yield f"loop {_place(loop)}: {loop.kind} {loop.variable} over {loop.expression}, {loop.trip_count or '?'} times"
    for r in k.constraints:
        yield f"requires {_place(r)}: {r.kind} {r.condition}{' says ' + r.message if r.message else ''}"
    for call in k.calls:
        yield f"call {_place(call)}: {call.name} {'read' if call.followed else 'not read'}"
    if k.cost is not None:
        for line in k.cost.lines:
            yield f"cost {_place(line)} {line.operation}: {line.flops or '0'} FLOPs, {line.bytes or '0'} bytes"
        yield f"cost: {k.cost.flops} FLOPs, of products {k.cost.matmul_flops}, read {k.cost.read_bytes}, written {k.cost.write_bytes}"
        yield f"cost of a launch: {k.cost.launch_flops or '?'} FLOPs, read {k.cost.launch_read_bytes or '?'}, written {k.cost.launch_write_bytes or '?'}"
        yield from (f"cost where {condition}" for condition in k.cost.conditions)
        yield from (f"cost without {missing}" for missing in k.cost.not_counted)
    yield from (f"note {note}" for note in k.notes)


def _access(m: MemoryOperation) -> str:
    tile = f" [{' x '.join(m.shape)}]" if m.shape else ""
    width = f" {m.width} bytes" if m.width else ""
    steps = f" steps {', '.join(s or '?' for s in m.strides)}" if m.strides else ""
    mask = f" where {m.mask}" if m.mask else ""
    loop = f" in loop {m.loop}" if m.loop else ""
    size = f" moving {m.bytes}" if m.bytes else ""
    into = f"{m.variable} = " if m.variable else ""
    from_ = f" of {m.parameter}" if m.parameter else ""
    return f"{_place(m)}: {into}{m.operation} {m.level} {m.expression}{from_}{tile}{width}{steps}{' coalesced ' + m.coalesced if m.coalesced else ''}{mask}{loop}{size}"
