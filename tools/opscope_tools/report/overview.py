"""Sections 1 and 2: what the model is, how its modules nest and run.

Every sentence is put together from the analysis; what source does not say is reported as searched for and not found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from opscope_schemas.analysis import Analysis, Kernel, ModuleNode
from opscope_schemas.extracted_config import KernelHook
from opscope_schemas.formula import evaluate, variables

from opscope_tools.report import scan
from opscope_tools.report.attending import attention_kind, heads_by_class, heads_said, parts_said
from opscope_tools.report.facts import ImplementationFacts, anywhere, leaves, short, walk
from opscope_tools.report.kinds import windowed
from opscope_tools.report.markdown import number
from opscope_tools.report.nodes import counted_again, tied_modules
from opscope_tools.report.quotes import Quotes, joined

__all__ = [
    "capabilities", "checked", "execution_lines", "framework", "hierarchy", "hooks_that_ran", "keeps_latents", "key_features", "latent_width", "layers_turned", "lines_that_ran", "matching", "model_files", "of_latents", "package_files", "ran_in", "scopes", "swappable", "turned_in",
]  # fmt: skip

#: lines that ask what device there is
#: tests of devices that are quoted, and characters of each
_TESTS, _QUOTED = 3, 100
#: decorators of the package of kernels: what hands functions to it, and what names one of a hub
_ATTACHES = "use_kernelized_func"
_OF_A_HUB = re.compile(r"use_kernel_(?:forward|func)_from_hub\b")
_DEVICE = r"\b(is_cuda|get_device_capability|device_type|device\.type|torch\.cuda\.\w+|_?is_torch_[a-z]+_available)\b"


def framework(facts: ImplementationFacts) -> str:
    """The framework, with the versions of the sources."""
    versions = ", ".join(f"{source.repository} {source.version}".strip() for source in facts.sources)
    return (
        f"PyTorch, traced as it runs eagerly in {facts.main.dtype} ({versions})"
        if versions
        else f"PyTorch ({facts.main.dtype})"
    )


def latent_width(facts: ImplementationFacts) -> int | None:
    """Width of the latents that keys and values are made from; None where they are made from the tokens' own vectors."""
    rank = anywhere(facts.tree.config, "kv_lora_rank")
    return rank if isinstance(rank, int) and rank else None


def keeps_latents(facts: ImplementationFacts) -> bool:
    """Whether the cache holds the latents, and not the keys and values that are made from them."""
    shapes = [t.shape for t in facts.graphs[0].tensors if t.kind == "cache" and t.shape]
    return latent_width(facts) is not None and any("kv_lora_rank" in variables(shape[-1]) for shape in shapes)


#: roles that every model has a class of, which is rarely its own
_PLAIN = ("projection", "activation", "embedding", "module")


def of_latents(facts: ImplementationFacts, quotes: Quotes) -> str:
    """From what keys and values are made, and whether that is what is kept; empty where there are no latents."""
    if (rank := latent_width(facts)) is None:
        return ""
    kept = ", which the cache holds" * keeps_latents(facts)
    return f", keys and values from latents of width {quotes('config.kv_lora_rank', rank)}{kept}"


def key_features(facts: ImplementationFacts, quotes: Quotes) -> list[str]:
    """One line per module role, then flags of the config; each with its pointer."""
    classes: list[str] = []
    features: list[str] = []
    for role in dict.fromkeys(facts.role(k.class_name) for _, _, k in walk(facts.main.kernels, "") if k.class_name):
        for name in (facts.dearest_of(role),) if role not in _PLAIN else ():
            detail = _heads_told(facts, name, quotes) if role == "attention" else ""
            turned = turned_in(facts, quotes) if role == "position embedding" else ""
            (features if detail or role == "mixture of experts" else classes).append(
                f"{role.capitalize()}: `{short(name)}` ({facts.pointer(name)}){detail}{f', in {turned}' * bool(turned)}"
            )
    settings = []
    for key in _flags(facts):
        found = facts.config_field(key)
        if found and facts.tree.config.get(key) is not None:
            value = facts.tree.config[key]
            counted = isinstance(value, int) and not isinstance(value, bool)
            shown = quotes(f"setting.{key}", int(str(value))) if counted else str(value)
            settings.append(f"{_effect(facts, key, value)}`{key}` = {shown} (`{found[0]}:{found[1]}`)")
    made_of = [*classes, *([f"settings: {'; '.join(settings)}"] if settings else [])]
    return [*features, *(["; ".join(made_of)] if made_of else [])]


def _heads_told(facts: ImplementationFacts, class_name: str, quotes: Quotes) -> str:
    """The heads of the class that stands for attention, and those of the classes beside it that have others."""
    if kind := attention_kind(facts):
        return f", {kind.kind}: {heads_said(facts, quotes, class_name, kind)}{of_latents(facts, quotes)}"
    told = [
        f"{f'; `{short(name)}` ({facts.pointer(name)})' * (name != class_name)}, {heads.kind}: {heads_said(facts, quotes, name, heads)}"
        f"{of_latents(facts, quotes) * (name == class_name)}"
        for name, heads in heads_by_class(facts).items()
    ]
    parts = parts_said(facts, quotes) if not told else ""
    return "".join(told) or f", {parts}" * bool(parts)


def layers_turned(facts: ImplementationFacts) -> tuple[int, int]:
    """In how many layers queries are turned by their positions, and how many layers attend at all."""
    values = facts.point(facts.main)

    def counted(kernels: Sequence[Kernel]) -> Iterator[tuple[bool, int]]:
        for kernel in kernels:
            if facts.role(kernel.class_name) == "attention":
                sites = [site.function for _, _, one in walk(kernel.kernels or (), "") for site in one.via]
                yield any(re.search(r"rot|rope", name) for name in sites), evaluate(kernel.repeat, values)
            else:
                yield from counted(kernel.kernels or ())

    layers = [*counted(facts.main.kernels)]
    return sum(often for turned, often in layers if turned), sum(often for _, often in layers)


def turned_in(facts: ImplementationFacts, quotes: Quotes) -> str:
    """`30 of 40 layers`, where not all turn queries by their positions."""
    turned, whole = layers_turned(facts)
    if not 0 < turned < whole:
        return ""
    return f"{quotes('positions.turned_layers', turned)} of {quotes('positions.all_layers', whole)} layers"


def _effect(facts: ImplementationFacts, key: str, value: object) -> str:
    """What a setting does in this model, where that is known by more than its name."""
    said = ""
    if key == "tie_word_embeddings" and bool(tied_modules(facts.tree)) is value:
        said = "head and embedding are one table" if value else "the head has weights of its own"
    elif key == "sliding_window":
        said = (
            "layers with a window read no further back"
            if (found := windowed(facts)) is not None and found.slides
            else "no layer of this pass has a window"
        )
    elif key == "use_cache" and value is True:
        keeps = any(graph.cache is not None for graph in facts.graphs)
        said = (
            "what layers keep for later passes is kept unless a call says otherwise"
            if keeps
            else "these passes keep nothing all the same"
        )
    return f"{said}, " * bool(said)


def _has_head(facts: ImplementationFacts) -> bool:
    """Whether something of the pass is as wide as the vocabulary: what may share the embedding's weights."""
    wide = (each.shape[-1:] for _, _, k in walk(facts.main.kernels, "") for each in k.outputs)
    return ("{vocab_size}",) in wide


def _flags(facts: ImplementationFacts) -> list[str]:
    """Settings of the config that bear on the subject: of a class inside a model only those that it runs by."""
    attends = bool(facts.classes_of("attention"))
    whole = not facts.within
    acts = whole or bool(facts.classes_of("activation"))
    keys = {
        "hidden_act": acts and not facts.unread("hidden_act"),
        "activation_function": acts and not facts.unread("activation_function"),
        "tie_word_embeddings": whole and _has_head(facts),
        "sliding_window": whole or attends,
        "use_cache": whole or attends,
    }
    return [key for key, bears in keys.items() if bears]


# ---- 2 --------------------------------------------------------------------------------------------------------------


def _times(node: ModuleNode) -> str:
    return f" ×{node.repeat}" if node.repeat > 1 else ""


def hierarchy(facts: ImplementationFacts) -> list[tuple[int, str]]:
    """The module tree as rows with their depth: repeated siblings folded, with classes and parameters."""
    tied = tied_modules(facts.tree)
    return list(_rows(facts, facts.tree.tree, 0, {id(node): tied[0].name for node in tied[1:]}, {}))


def _rows(
    facts: ImplementationFacts, node: ModuleNode, depth: int, shared: Mapping[int, str], told: dict[object, str]
) -> Iterator[tuple[int, str]]:
    """A module and what it holds; what holds the same as one above says so instead."""
    label = f"{node.name}: " if node.name else ""
    said = f"{number(node.parameters)} parameters{' together' if node.repeat > 1 else ''}"
    if (twice := counted_again(facts.tree, node)) > 0:
        said += f", {number(twice)} of them shared and counted again here; {number(node.parameters - twice)} without"
    if id(node) in shared:
        said += f", shared with {shared[id(node)]}"
    row = f"{label}{short(node.class_name)}{_times(node)}{f' [{said}]' if node.parameters else ''}"
    held = _form(node) if node.children and node.repeat == 1 else None
    if held is not None and held in told and not _within(node, shared):
        yield depth, f"{row}, as {told[held]} above"
        return
    yield depth, row
    if held is not None and node.name:
        told[held] = node.name
    for run in _alike(node.children, shared):
        first, names = run[0], ", ".join(child.name for child in run)
        each = f" [{number(first.parameters)} parameters each]" if first.parameters else ""
        if len(run) > 1:
            yield depth + 1, f"{names}: {short(first.class_name)}{each}"
        else:
            yield from _rows(facts, first, depth + 1, shared, told)


def _form(node: ModuleNode) -> object:
    """What modules have in common that are alike in all but the name."""
    return node.class_name, node.parameters // node.repeat, tuple((c.name, c.repeat, _form(c)) for c in node.children)


def _within(node: ModuleNode, shared: Mapping[int, str]) -> bool:
    return id(node) in shared or any(_within(child, shared) for child in node.children)


def _alike(nodes: Sequence[ModuleNode], shared: Mapping[int, str]) -> list[list[ModuleNode]]:
    """Modules that follow each other and differ by their names alone together, where they hold no others."""
    runs: list[list[ModuleNode]] = []
    for node in nodes:
        key = (node.class_name, node.parameters, node.repeat)
        plain = not node.children and id(node) not in shared
        last = runs[-1][0] if runs else None
        if (
            last is not None
            and plain
            and not last.children
            and key == (last.class_name, last.parameters, last.repeat)
            and id(last) not in shared
        ):
            runs[-1].append(node)
        else:
            runs.append([node])
    return runs


def scopes(document: Analysis) -> set[str]:
    """Names of the model's classes and helper functions that ran, as their file knows them."""
    names = {short(k.class_name) for _, _, k in walk(document.kernels, "") if k.class_name}
    names |= {site.function.split(".")[0] for _, kernel in leaves(document) for site in kernel.via}
    return names | {short(document.class_name)}


def checked(facts: ImplementationFacts) -> dict[str, set[str]]:
    """Names whose checks are the model's own, by file: what ran of its files, and the configuration."""
    files = model_files(facts)
    if facts.config_location is not None:
        path, span = facts.config_location
        files.setdefault(path, set()).add(span.name)
    return files


def _modules_in(facts: ImplementationFacts) -> dict[str, set[str]]:
    """Names of the classes of modules that ran, by the file that holds them; the modeling file's with those of its helpers."""
    files = {facts.modeling_file: scopes(facts.main)}
    for name in dict.fromkeys(k.class_name for _, _, k in walk(facts.main.kernels, "") if k.class_name):
        if (found := facts.locate(name)) is not None:
            files.setdefault(found[0], set()).add(found[1].name)
    return files


def model_files(facts: ImplementationFacts) -> dict[str, set[str]]:
    """What ran of the files of the model's modules: their classes, and the helpers beside them."""
    modules = _modules_in(facts)
    return {path: names for path, names in package_files(facts).items() if path in modules}


def package_files(facts: ImplementationFacts) -> dict[str, set[str]]:
    """What ran of all files of the package that the model is of: also of those that hold no module of it, as kernels' integrations."""
    return {path: names for path, names in ran_in(facts).items() if facts.of_models(path)}


def matching(facts: ImplementationFacts, pattern: str, *, every: bool = False) -> list[scan.Hit]:
    """Lines that match in what ran of the model's own files, parts of it that other models' files define among them."""
    files = model_files(facts).items()
    return [
        hit for path, names in files for hit in scan.matching_lines(facts.reader, path, pattern, names, every=every)
    ]


def capabilities(facts: ImplementationFacts) -> list[scan.Hit]:
    """Flags that the classes of the model's own files set, such as `_supports_sdpa = True`."""
    return [hit for path in model_files(facts) for hit in scan.capabilities(facts.reader, path)]


def ran_in(facts: ImplementationFacts) -> dict[str, set[str]]:
    """Names of the classes and functions that ran, by the file that holds them."""
    files = _modules_in(facts)
    for site in (site for _, kernel in leaves(facts.main) for site in kernel.via):
        files.setdefault(site.file, set()).add(site.function)
    return files


def lines_that_ran(facts: ImplementationFacts, pattern: str) -> list[scan.Hit]:
    """Lines that match, in what ran and in the functions beside it that it may call."""
    reader = facts.reader
    return [
        hit
        for path, names in ran_in(facts).items()
        for hit in scan.matching_lines(reader, path, pattern, scan.called_within(reader, path, names))
    ]


def device_tests_said(facts: ImplementationFacts) -> str:
    """The first lines that ask what device there is, quoted, those of CUDA first: of what ran, then of functions beside it that it may
    call; empty where there is none."""
    every = lines_that_ran(facts, _DEVICE)
    ran = {
        hit.pointer
        for path, names in ran_in(facts).items()
        for hit in scan.matching_lines(facts.reader, path, _DEVICE, names)
    }
    sides = ([hit for hit in every if (hit.pointer in ran) is inside] for inside in (True, False))
    own, beside = (_device_tests(hits) for hits in sides)
    return "; ".join(filter(None, (own, beside and f"of functions beside it that it may call {beside}")))


def _device_tests(hits: Sequence[scan.Hit]) -> str:
    at: dict[str, list[str]] = {}
    for hit in sorted(hits, key=lambda hit: re.search("cuda|capability", hit.text) is None):
        at.setdefault(hit.text[:_QUOTED], []).append(hit.pointer)
    first = "(among others, those of CUDA first) " * (len(at) > _TESTS)
    told = [f"`{text}` ({', '.join(places)})" for text, places in at.items()]
    return f"{first}{', '.join(told[:_TESTS])}"


def swappable(facts: ImplementationFacts) -> list[scan.Hit]:
    """Decorators of what ran that put another kernel in its place; a function that one names has to have run too."""
    ran, hits = scopes(facts.main), _decorators(facts)
    attached = _attached(hits)
    return [
        hit for hit in hits
        if (not hit.concerns or hit.concerns in ran) and _takes_hold(facts, hit.path, hit.name, hit.text, attached)
    ]  # fmt: skip


def _decorators(facts: ImplementationFacts) -> list[scan.Hit]:
    return [hit for path, names in ran_in(facts).items() for hit in scan.decorators(facts.reader, path, names)]


def _attached(hits: Iterable[scan.Hit]) -> set[str]:
    """Functions that modules hand to the package of kernels, which sees no others."""
    return {name for hit in hits if hit.text.startswith(_ATTACHES) for name in re.findall(r"\w+", hit.text)}


def _takes_hold(facts: ImplementationFacts, path: str, name: str, decorator: str, attached: set[str]) -> bool:
    """Whether a decorator can put another kernel in the place of a definition: that of a function does nothing by itself."""
    span = facts.reader.definition(path, name)
    alone = span is not None and not isinstance(span.node, ast.ClassDef) and "." not in name
    return not (alone and _OF_A_HUB.match(decorator)) or name in attached


def _replaced(facts: ImplementationFacts) -> list[str]:
    """Classes whose own forward did not run, with what ran in its place and the decorators that put it there."""
    lines = []
    for module in facts.modules:
        own, found = [k for k in module.kernels if k.kernel_type == "basic"], facts.locate(module.class_name)
        if not own or found is None or any(k.file == found[0] for k in module.kernels):
            continue
        body, around = getattr(found[1].node, "body", []), facts.reader.enclosing(own[0].file, own[0].line)
        if around and any(getattr(each, "name", "") == "forward" for each in body):
            put = [f"`@{ast.unparse(each)}` (`{found[0]}:{each.lineno}`)" for each in found[1].node.decorator_list]
            by = f", put there by {' and '.join(put)}" if put else ""
            ran = f"`{around[-1].name}` (`{own[0].file}:{around[-1].line}`)"
            lines.append(f"In place of the forward of `{short(module.class_name)}` {ran} ran{by}.")
    return lines


def hooks_that_ran(facts: ImplementationFacts) -> list[KernelHook]:
    """The places that take kernels from elsewhere for what ran: a definition, or one of the functions that its decorator names."""
    ran = frozenset().union(*map(scopes, facts.documents))
    found, attached = [], _attached(_decorators(facts))
    for hook in facts.settings.kernel_hooks if facts.settings is not None else ():
        named = scan.functions_named(facts.reader, hook.file, hook.expression)
        holds = _takes_hold(facts, hook.file, hook.within, hook.expression, attached)
        if holds and (not hook.within or hook.within.split(".")[0] in ran) and (not named or ran & set(named)):
            found.append(hook)
    told = {(hook.file, hook.line) for hook in found}
    beside = (hit for hit in swappable(facts) if hit.path != facts.modeling_file and (hit.path, hit.line) not in told)
    return found + [
        KernelHook(name=hit.name, expression=hit.text, within=hit.name, file=hit.path, line=hit.line) for hit in beside
    ]


def execution_lines(facts: ImplementationFacts) -> list[str]:
    """How the model executes: eager operators, where attention is dispatched, what may be swapped in."""
    path = facts.modeling_file
    attention = (
        f"; attention runs as {facts.main.attention}{_by_itself(facts)}" if facts.classes_of("attention") else ""
    )
    lines = [
        f"Eager PyTorch: each operator of `{short(facts.main.class_name)}` (`{path}:{facts.modeling_line}`) is dispatched "
        f"on its own, in the order of section 6.1, in {facts.main.dtype} but where its source casts{attention}."
    ]
    dispatch = matching(facts, r"\b(ALL_ATTENTION_FUNCTIONS)\b")
    dispatch = dispatch or matching(facts, r"\b([A-Z_]*ATTENTION_CLASSES|_attn_implementation)\b")
    if dispatch:
        chosen = ", ".join(f"`{hit.name}` ({hit.pointer})" for hit in dispatch)
        lines[0] += f" Attention implementation is chosen at run time by {chosen}."
    fused = matching(facts, r"\b(scaled_dot_product_attention)\b")
    fused = [hit for hit in fused if (hit.path, hit.line) in facts.lines_run]
    lines += [f"Attention runs through `{hit.name}` ({hit.pointer})." for hit in fused]
    lines += _replaced(facts)
    if swaps := swappable(facts):
        by: dict[str, list[str]] = {}
        for hit in swaps:
            by.setdefault(hit.concerns or hit.name, []).append(f"`@{hit.text}` ({hit.pointer})")
        said = [f"`{name}` by {joined(places)}" for name, places in by.items()]
        lines.append(f"Kernels from elsewhere may replace {', '.join(said)}.")
    flags = capabilities(facts)
    for owner in dict.fromkeys(_declarer(facts, hit) for hit in flags):
        said = [
            f"`{hit.name}` ({hit.pointer}{_in_dtype(facts, hit)})" for hit in flags if _declarer(facts, hit) == owner
        ]
        lines.append(f"{owner} declares {', '.join(said)}.")
    files = model_files(facts)
    graph = r"(torch\.compile|CUDAGraph|triton\.jit|torch\.library|load_inline)"
    others = {path: names for path, names in package_files(facts).items() if path not in files}
    searched = {**dict.fromkeys(files), **others}  # of the model's own files all, of the others what ran
    graphs = [hit for file, names in searched.items() for hit in scan.matching_lines(facts.reader, file, graph, names)]
    lines += [f"`{hit.name}` is used ({hit.pointer})." for hit in graphs]
    if not graphs:
        beside = f", and what ran of {joined(f'`{path}`' for path in others)}," * bool(others)
        lines.append(
            f"No graph capture and no kernel of its own: searched {joined(f'`{file}`' for file in files)}{beside} for torch.compile, CUDAGraph, triton.jit, "
            "torch.library and load_inline."
        )
    return lines


def _by_itself(facts: ImplementationFacts) -> str:
    """Which classes of attention take no part in how the others run it; empty where all of them do."""
    how = facts.main.attention
    alone = [] if how == "eager" else [
        name for name in facts.classes_of("attention")
        if not any(how in kernel.operator for call, _ in facts.calls_in(facts.main) if call.class_name == name for _, _, kernel in walk(call.kernels or (), ""))
    ]  # fmt: skip
    names = joined(f"`{short(name)}`" for name in alone)
    return f", but in {names} as operators of its own" if alone else ""


def _in_dtype(facts: ImplementationFacts, hit: scan.Hit) -> str:
    """Whether a flag that acts in some dtypes alone does so in the one that is traced, and the line that says in which."""
    around = facts.reader.enclosing(hit.path, hit.line)
    asked = scan.dtypes_asked(facts.reader, (hit.path, around[0]), hit.name) if around else None
    if asked is None:
        return ""
    dtypes, test = asked
    does = "which holds" if facts.main.dtype in dtypes else f"which does nothing in {facts.main.dtype}: it holds"
    return f", {does} in {joined(sorted(dtypes))} alone, {test.pointer}"


def _declarer(facts: ImplementationFacts, hit: scan.Hit) -> str:
    """The class in whose body a hit stands."""
    around = facts.reader.enclosing(hit.path, hit.line)
    return f"`{around[0].name}`" if around else "The file"
