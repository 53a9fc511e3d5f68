"""Sections 1 to 3: what the model is, how its modules nest and run, how it is configured.

Every sentence is put together from the analysis; what source does not say is reported as searched for and not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from opscope_schemas.analysis import ModuleNode
from opscope_schemas.extracted_config import Check
from opscope_schemas.formula import evaluate, holds, variables

from opscope_tools.report import scan
from opscope_tools.report.facts import ImplementationFacts, leaves, short, walk
from opscope_tools.report.markdown import number
from opscope_tools.report.quotes import Quotes

__all__ = [
    "attention_kind", "configuration_rows", "constraint_lines", "execution_lines", "executive_summary", "framework",
    "hierarchy", "kernel_note", "kernel_rows", "key_features", "scopes",
]  # fmt: skip

#: rows that every report has: the name readers look for, and the attribute of the config that holds it
_STANDARD = (
    ("hidden_size", "hidden_size"),
    ("num_layers", "num_hidden_layers"),
    ("num_heads", "num_attention_heads"),
    ("head_dim", "head_dim"),
    ("intermediate_size", "intermediate_size"),
    ("vocab_size", "vocab_size"),
    ("max_seq_len", "max_position_embeddings"),
)
_KERNEL_ROWS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "NUM_STAGES", "NUM_WARPS")


def framework(facts: ImplementationFacts) -> str:
    """The framework, with the versions of the sources."""
    versions = ", ".join(f"{source.repository} {source.version}".strip() for source in facts.sources)
    return f"PyTorch, run eagerly in {facts.main.dtype} ({versions})" if versions else f"PyTorch ({facts.main.dtype})"


def attention_kind(facts: ImplementationFacts) -> tuple[str, int, int] | None:
    """`multi-head`, `grouped-query` or `multi-query`, with query and key-value heads; None where heads are unknown."""
    values = facts.point(facts.main)
    heads = values.get("num_heads", facts.tree.config.get("num_attention_heads"))
    named: object = values.get("num_kv_heads")
    named = facts.tree.config.get("num_key_value_heads") or heads if named is None else named
    kept = _kept_heads(facts, values)
    shared = named if kept is None else kept
    if not isinstance(heads, int) or not isinstance(shared, int) or not facts.classes_of("attention"):
        return None
    kind = "multi-head" if shared == heads else "multi-query" if shared == 1 else "grouped-query"
    return kind, heads, shared


def _kept_heads(facts: ImplementationFacts, values: Mapping[str, int]) -> int | None:
    """Heads of the keys and values that the cache holds, where its tensors agree and the config has no name for them."""
    if facts.tree.config.get("num_key_value_heads") is not None:
        return None
    kept = [t for t in facts.graphs[0].tensors if t.kind == "cache" and t.created_by and len(t.shape) == 4]
    heads = {evaluate(t.shape[1], values) for t in kept if variables(t.shape[1]) <= values.keys()}
    return heads.pop() if len(heads) == 1 else None


def executive_summary(facts: ImplementationFacts, quotes: Quotes) -> str:
    """Two or three sentences: what it is, what a pass costs, what bounds it."""
    name, where = short(facts.subject), facts.pointer(facts.subject)
    inside = f", as it runs in `{short(facts.within)}` ({facts.pointer(facts.within)})" if facts.within else ""
    counted = not facts.within or any("num_layers" in variables(k.repeat) for k in facts.main.kernels)
    layers = facts.point(facts.main).get("num_layers", facts.tree.config.get("num_hidden_layers")) if counted else None
    kind = attention_kind(facts)
    parts = [f"{quotes('parameters', facts.tree.parameters)} parameters"]
    parts += [f"{layers} layers"] if layers else []
    parts += [f"{kind[0]} attention ({kind[1]} query and {kind[2]} key-value heads)"] if kind else []
    parts += ["a mixture of experts"] if facts.classes_of("mixture of experts") else []
    sentences = [
        f"`{name}` ({where}){inside}, configured by "
        f"`{short(facts.tree.config_class)}` ({facts.pointer(facts.tree.config_class)}), has {', '.join(parts)}."
    ]
    for document in facts.documents:
        phase, figures = document.phase, facts.totals(document)
        sentences.append(
            f"{facts.called(document)} takes {quotes(f'{phase}.flops', figures.flops)} FLOPs, of which "
            f"{quotes(f'{phase}.matmul_flops', figures.matmul_flops)} are matrix products, and moves "
            f"{quotes(f'{phase}.bytes', figures.bytes)} bytes as eager execution does: {figures.intensity:.2f} FLOPs "
            f"per byte."
        )
    return " ".join(sentences)


def key_features(facts: ImplementationFacts) -> list[str]:
    """One line per module role, then flags of the config; each with its pointer."""
    features = []
    kind = attention_kind(facts)
    for role in dict.fromkeys(facts.role(k.class_name) for _, _, k in walk(facts.main.kernels, "") if k.class_name):
        for name in facts.classes_of(role)[:1]:
            detail = (
                f", {kind[0]}: {kind[1]} query heads on {kind[2]} key-value heads"
                if kind and role == "attention"
                else ""
            )
            features.append(f"{role.capitalize()}: `{short(name)}` ({facts.pointer(name)}){detail}")
    for key in _flags(facts):
        found = facts.config_field(key)
        if found and facts.tree.config.get(key) is not None:
            features.append(f"Config: `{key}` = {facts.tree.config[key]} (`{found[0]}:{found[1]}`)")
    return features


def _flags(facts: ImplementationFacts) -> list[str]:
    """Settings of the config that bear on the subject: of a class inside a model only those that it runs by."""
    attends = bool(facts.classes_of("attention"))
    whole = not facts.within
    keys = {
        "hidden_act": whole or bool(facts.classes_of("activation")),
        "activation_function": whole or bool(facts.classes_of("activation")),
        "tie_word_embeddings": whole,
        "sliding_window": whole or attends,
        "use_cache": whole or attends,
    }
    return [key for key, bears in keys.items() if bears]


# ---- 2 --------------------------------------------------------------------------------------------------------------


def _times(node: ModuleNode) -> str:
    return f" ×{node.repeat}" if node.repeat > 1 else ""


def hierarchy(facts: ImplementationFacts) -> list[tuple[int, str]]:
    """The module tree as rows with their depth: repeated siblings folded, with classes and parameters."""
    return list(_rows(facts.tree.tree, 0))


def _rows(node: ModuleNode, depth: int) -> Iterator[tuple[int, str]]:
    label = f"{node.name}: " if node.name else ""
    weights = f" [{number(node.parameters)} parameters]" if node.parameters else ""
    yield depth, f"{label}{short(node.class_name)}{_times(node)}{weights}"
    for child in node.children:
        yield from _rows(child, depth + 1)


def scopes(facts: ImplementationFacts) -> set[str]:
    """Names of the model's classes and helper functions that ran, as their file knows them."""
    names = {short(k.class_name) for _, _, k in walk(facts.main.kernels, "") if k.class_name}
    names |= {site.function.split(".")[0] for _, kernel in leaves(facts.main) for site in kernel.via}
    return names | {short(facts.main.class_name)}


def execution_lines(facts: ImplementationFacts) -> list[str]:
    """How the model executes: eager operators, where attention is dispatched, what may be swapped in."""
    reader, path, ran = facts.reader, facts.modeling_file, scopes(facts)
    attention = f"; attention runs as {facts.main.attention}" if facts.classes_of("attention") else ""
    lines = [
        f"Eager PyTorch: each operator of `{short(facts.main.class_name)}` (`{path}:{facts.modeling_line}`) is dispatched "
        f"on its own, in the order of section 6.1, in {facts.main.dtype}{attention}."
    ]
    dispatch = scan.matching_lines(reader, path, r"\b(ALL_ATTENTION_FUNCTIONS|scaled_dot_product_attention)\b", ran)
    lines += [f"Attention implementation is chosen at run time by `{hit.name}` ({hit.pointer})." for hit in dispatch]
    swaps = scan.decorators(reader, path, ran)
    lines += [f"`{hit.name}` carries the decorator `@{hit.text}` ({hit.pointer})." for hit in swaps]
    flags = scan.capabilities(reader, path)
    lines += [f"{_declarer(facts, hit)} declares `{hit.name}` ({hit.pointer})." for hit in flags]
    graphs = scan.matching_lines(reader, path, r"(torch\.compile|CUDAGraph|triton\.jit|torch\.library|load_inline)")
    lines += [f"`{hit.name}` is used ({hit.pointer})." for hit in graphs]
    if not graphs:
        lines.append(
            f"No graph capture and no kernel of its own: searched `{path}` for torch.compile, CUDAGraph, triton.jit, "
            "torch.library and load_inline."
        )
    return lines


def _declarer(facts: ImplementationFacts, hit: scan.Hit) -> str:
    """The class in whose body a hit stands."""
    around = facts.reader.enclosing(hit.path, hit.line)
    return f"`{around[0].name}`" if around else "The file"


# ---- 3 --------------------------------------------------------------------------------------------------------------


def configuration_rows(facts: ImplementationFacts) -> list[tuple[str, str, str]]:
    """The seven rows that every report has, then every other variable of the formulas."""
    document, values = facts.main, facts.point(facts.main)
    known = {variable.name: variable for variable in document.variables}
    rows = []
    for name, key in _STANDARD:
        variable = known.get(name)
        attribute = (variable.config_key if variable else "") or key
        value = values[name] if variable else facts.tree.config.get(attribute)
        meaning = variable.meaning if variable else _standard_meaning(name)
        reason = f"n/a: `{short(facts.tree.config_class)}` has no {attribute}"
        rows.append(
            (f"`{name}`", str(value) if value is not None else reason, f"{meaning}{_declared(facts, attribute)}")
        )
    for variable in document.variables:
        if variable.name not in dict(_STANDARD):
            text = f"{variable.meaning}{_declared(facts, variable.config_key)}" or "variable of the formulas"
            rows.append((f"`{variable.name}`", str(values[variable.name]), text))
    return rows


def _standard_meaning(name: str) -> str:
    return "longest sequence that positions are made for" if name == "max_seq_len" else name.replace("_", " ")


def _declared(facts: ImplementationFacts, attribute: str) -> str:
    found = facts.config_field(attribute) if attribute else None
    return f"; `{attribute}` (`{found[0]}:{found[1]}`)" if found else ""


def kernel_rows(facts: ImplementationFacts) -> list[tuple[str, str, str]]:
    """Tile constants of the kernel that was named, or why there are none."""
    if facts.tiling is None or not facts.tiling.kernels:
        return [(f"`{name}`", "n/a", "library kernels") for name in _KERNEL_ROWS]
    rows = []
    for kernel in facts.tiling.kernels:
        where = f"of `{kernel.name}` (`{kernel.file}:{kernel.line}`)"
        rows += [
            (f"`{tile.name}`", ", ".join(tile.values) or "not resolved", f"tile size {where}") for tile in kernel.tile
        ]
        for label, bound in (("NUM_STAGES", kernel.num_stages), ("NUM_WARPS", kernel.num_warps)):
            value = ", ".join(dict.fromkeys(item.value for item in bound)) or "not set in source"
            rows.append((f"`{label}`", value, f"launch parameter {where}"))
    return rows


def kernel_note(facts: ImplementationFacts) -> str:
    """Why the table of kernel settings is empty; nothing where it is not."""
    if facts.tiling is not None and facts.tiling.kernels:
        return ""
    return (
        f"`n/a`: not analysed. `{facts.modeling_file}` launches library kernels only, which choose tiles, stages and "
        "warps themselves; `write_report` with `kernel` shows those of a CUDA or Triton kernel."
    )


def constraint_lines(facts: ImplementationFacts) -> list[str]:
    """Alignment, hardware and precision as source declares them, then conditions of the formulas."""
    reader, path = facts.reader, facts.modeling_file
    hits = [scan.Hit(check.file, check.line, check.within, _said(check)) for check in facts.checks]
    aligned = [hit for hit in hits if re.search(r"multiple|divisib|%", hit.text)]
    searched = f"searched assert and raise in the classes that ran in `{path}`"
    lines = [f"Alignment: {_quoted(hit)}" for hit in aligned] or [f"Alignment: none declared; {searched}."]
    devices = scan.matching_lines(
        reader, path, r"\b(is_cuda|get_device_capability|sm_\d+|compute_capability)\b", scopes(facts)
    )
    lines += [f"Hardware: `{hit.name}` is tested ({hit.pointer})." for hit in devices] or [
        f"Hardware: none declared; searched `{path}` for is_cuda, get_device_capability and compute capabilities."
    ]
    lines.append(
        f"Precision: traced in {facts.main.dtype}; a_bytes and w_bytes of the formulas stand for other dtypes."
    )
    lines += [f"Check: {_quoted(hit)}" for hit in hits if hit not in aligned]
    return [*lines, *_conditions(facts)]


def _conditions(facts: ImplementationFacts) -> list[str]:
    """What the formulas of the first document were derived under; says where the report's own point is outside."""
    values = facts.point(facts.main)
    lines = []
    for condition in facts.main.conditions:
        known = variables(condition) <= values.keys()
        outside = "" if not known or holds(condition, values) else "; the values of section 3.1 are outside, see 11.B"
        lines.append(f"Formulas derived where: `{condition}`{outside}")
    return lines


def _said(check: Check) -> str:
    """What a check demands: what it asserts, or what it raises and where."""
    if check.kind == "assert":
        return f"asserts {check.condition}"
    if not check.error:
        return "raises again"
    said = f"raises {check.error}: {check.message}" if check.message else f"raises {check.error}"
    return f"{said} (where {check.condition})" if check.condition else said


def _quoted(hit: scan.Hit) -> str:
    """A constraint as a sentence; its own words stand in a code span, so that nothing in them is read as Markdown."""
    words = hit.text.replace("`", "'").replace("{", "(").replace("}", ")")
    return f"`{hit.name}` ({hit.pointer}): `{words}`"
