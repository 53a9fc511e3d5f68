"""What a Triton kernel is compiled for: the type of every parameter, what is assumed of its value, every constexpr.

Source leaves both open. Taken, in this order: what the caller gives, what a launch site passes, how the body uses a
parameter, what its name says. Each choice is written down with its reason; the JIT's own default specialisation
(addresses and sizes divisible by 16, a size of 1 a constant) is assumed for contiguous tensors.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opscope_schemas.errors import InputError
from opscope_schemas.tiling import Constexpr, KernelTiling, TuneConfig

from opscope_tools.kernels.compiled.triton_arguments import OPTIONS, Argument, Bound, bound, heuristics, unspecialised
from opscope_tools.kernels.compiled.triton_case import VOCABULARY
from opscope_tools.kernels.records import LaunchRef
from opscope_tools.kernels.triton.decorators import Context
from opscope_tools.kernels.triton.definitions import FunctionNode, launched
from opscope_tools.kernels.triton.parameters import parameters
from opscope_tools.kernels.values.expressions import Expression

#: how triton spells the types of parameters
_TYPES = re.compile(r"\*?(?:i1|i8|i16|i32|i64|u8|u16|u32|u64|fp8\w+|fp16|bf16|fp32|fp64)$")
_INDEX_NAME = re.compile(
    r"(?i)(idx|index|indices|(^|_)ids?($|_)|offsets?|cu_?seq|seq_?len|lens?($|_)|lengths?|table|slot|label|target|positions?($|_)|count)"
)
_STATISTIC_NAME = re.compile(r"(?i)(lse|rstd|mean|var($|_)|amax|scales?($|_)|loss|state|acc($|_))")
_FLOAT_NAME = re.compile(
    r"(?i)(eps|scale|alpha|beta$|gamma$|softcap|soft_cap|temperature|dropout|prob|smoothing|theta|factor|(^|_)lr$|momentum|decay|rate|coef|limit|offset$|casting)"
)
_STRIDE_NAME = re.compile(r"(?i)stride")
_UNIT_STRIDE = re.compile(r"\.stride\(-1\)$")
#: what a constexpr is taken to be that no source gives a value
_BLOCK = re.compile(r"(?i)block|tile|chunk|^B[A-Z]{1,2}$|^BLK|^BS$")


def is_type(value: object) -> bool:
    """Whether a caller's value for a parameter names its type: `*fp16`, `i32`."""
    return isinstance(value, str) and _TYPES.match(value) is not None


#: what tensors are taken to hold, as torch spells it
_TORCH = {"*bf16": "bfloat16", "*fp16": "float16", "*fp32": "float32"}


@dataclass
class Choice:
    """One way to compile a kernel."""

    signature: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    divisible: list[str] = field(default_factory=list)
    options: dict[str, int] = field(default_factory=dict)
    #: parameter -> what was taken, in words
    said: dict[str, str] = field(default_factory=dict)
    config: int | None = None
    #: sizes that no source gives
    assumed: dict[str, Any] = field(default_factory=dict)


def check_given(function: FunctionNode, given: Mapping[str, Any]) -> None:
    """Raises `InputError` where a caller's value is for no parameter, or is no number of warps or stages."""
    names = [a.arg for a, *_ in parameters(function)]
    if unknown := sorted(set(given) - {*names, *OPTIONS}):
        raise InputError(
            f"{function.name} has no parameter {', '.join(unknown)}.", next_step=f"Give some of {', '.join(names)}."
        )
    for name in OPTIONS:
        value = given.get(name, 1)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 64:
            raise InputError(f"{name} is {value!r}.", next_step="Give an integer from 1 to 64.")


def choices(
    function: FunctionNode, kernel: KernelTiling, launches: Iterable[LaunchRef], context: Context, given: Mapping[str, Any],
    element: str = "*bf16", *, full: bool = False,
) -> list[Choice]:  # fmt: skip
    """One choice per autotune configuration; one where there are none.

    `element`: what a pointer of no other type holds; `full`: what launching functions leave out by default is given.
    """
    sites = list(launches)
    case = _case(function, sites, context, given, element, full)
    passed = _passed(function, [case.launch] if case.launch is not None else sites, context)
    base = Choice()
    for name, kind in given.items():
        if name in OPTIONS:
            base.options[name] = int(kind)
    fixed = unspecialised(function)
    for parameter in kernel.parameters:
        settled = case.arguments.get(parameter.name)
        if parameter.name in given or not _settle(base, parameter.name, settled, parameter.name in fixed):
            expression = passed.get(parameter.name, "")
            said = settled.element if settled is not None else ""
            _type(base, parameter.name, parameter.pointer, function, kernel, expression, given, element, said)
        if parameter.name in fixed and parameter.name in base.divisible:
            base.divisible.remove(parameter.name)
            base.said[parameter.name] = base.said[parameter.name].replace(", divisible by 16", "")
    configs: list[tuple[int | None, dict[str, Any], dict[str, int]]] = [(None, {}, {})]
    if kernel.autotune is not None and kernel.autotune.configs:
        configs = [(i, dict(c.values), _numbers(c)) for i, c in enumerate(kernel.autotune.configs)]
    found = []
    for index, values, options in configs:
        choice = Choice(
            dict(base.signature), dict(base.constants), list(base.divisible),
            {**_options(kernel, case), **case.options, **options, **base.options}, dict(base.said), index,
            dict(case.assumed),
        )  # fmt: skip
        computed = _computed(function, kernel, context, case, {**values, **given}, element)
        for constexpr in kernel.constexpr:
            _constant(choice, constexpr, values, given, case, computed)
        found.append(choice)
    return found


def _numbers(config: TuneConfig) -> dict[str, int]:
    given = (("num_warps", config.num_warps), ("num_stages", config.num_stages))
    return {k: int(v) for k, v in given if isinstance(v, int)}


def _case(
    function: FunctionNode, launches: Iterable[LaunchRef], context: Context, given: Mapping[str, Any], element: str,
    full: bool,
) -> Bound:  # fmt: skip
    """The first launch with a case that passes what is given, else the first with one; an empty one where there is none."""
    plain = {name: value for name, value in given.items() if not is_type(value)}
    first: Bound | None = None
    for launch in launches:
        found = bound(launch, function, context, plain, _usual, _TORCH[element], full=full)
        if found is not None and found.passes(plain):
            return found
        first = first or found
    return first or Bound()


def _usual(name: str) -> Any:
    return 1e-6 if re.search(r"(?i)(^|_)eps", name) else assumed(name, [])


def _computed(
    function: FunctionNode, kernel: KernelTiling, context: Context, case: Bound, values: Mapping[str, Any], element: str
) -> dict[str, Any]:
    """The constexprs that heuristics compute of this configuration's arguments."""
    module = context.modules.load(kernel.file)
    if module is None or not kernel.heuristics:
        return {}
    arguments: dict[str, Any] = {name: argument.value for name, argument in case.arguments.items()}
    return heuristics(function, module, context, {**arguments, **values}, _usual, _TORCH[element])


def _options(kernel: KernelTiling, case: Bound) -> dict[str, int]:
    """Warps and stages of a launch site, where it gives a number; of several that differ, not those of another than the case's."""
    found = {}
    for name, values in (("num_warps", kernel.num_warps), ("num_stages", kernel.num_stages)):
        plain = [int(v.value) for v in values if v.origin == "launch" and v.value.isdigit()]
        if plain and (case.launch is None or len({v.value for v in values}) == 1):
            found[name] = plain[0]
    return found


# ---- run-time parameters


def _type(
    choice: Choice, name: str, pointer: bool, function: FunctionNode, kernel: KernelTiling,
    expression: str, given: Mapping[str, Any], element: str, held: str,
) -> None:  # fmt: skip
    if name in given:
        value = given[name]
        if is_type(value):
            choice.signature[name], reason = value, "given"
        else:
            choice.signature[name], choice.constants[name], reason = "constexpr", value, "given"
            choice.said[name] = f"{value} (given)"
            return
    elif expression == "None":
        choice.signature[name], choice.constants[name] = "constexpr", None
        choice.said[name] = "None (passed by the launch)"
        return
    elif pointer and held:
        choice.signature[name], reason = f"*{held}", f"the launch passes {expression}"
    elif pointer:
        choice.signature[name], reason = _pointee(name, function, kernel, element)
    elif expression in ("True", "False"):
        choice.signature[name], reason = "i1", "passed by the launch"
    elif not _used_as_integer(function, name) and (
        _FLOAT_NAME.search(name) or re.fullmatch(r"-?\d*\.\d+.*", expression)
    ):
        choice.signature[name], reason = "fp32", "by its name"
    else:
        choice.signature[name], reason = "i32", "by its use"
    kind = choice.signature[name]
    if kind == "i32" and (_UNIT_STRIDE.search(expression) or expression == "1"):
        choice.signature[name], choice.constants[name] = "constexpr", 1
        choice.said[name] = f"1 (the launch passes {expression}, of a contiguous tensor)"
    elif kind.startswith("*") or kind in ("i32", "i64"):
        choice.divisible.append(name)
        choice.said[name] = f"{kind}, divisible by 16 ({reason})"
    else:
        choice.said[name] = f"{kind} ({reason})"


def _settle(choice: Choice, name: str, settled: Argument | None, unspecialised: bool) -> bool:
    """Take a parameter as the launch's case has it; False where the case does not say what it is."""
    if settled is None or not isinstance(settled.value, bool | int | float | None):
        return False
    value = settled.value
    if value is None or (type(value) is int and value == 1 and not unspecialised):
        choice.signature[name], choice.constants[name] = "constexpr", value
        choice.said[name] = f"{value} ({settled.said})"
        return True
    kind = (
        "i1"
        if isinstance(value, bool)
        else "fp32"
        if isinstance(value, float)
        else "i32"
        if abs(value) < 1 << 31
        else "i64"
    )
    choice.signature[name] = kind
    divisible = type(value) is int and value % 16 == 0
    if divisible:
        choice.divisible.append(name)
    choice.said[name] = f"{kind}{', divisible by 16' if divisible else ''} ({value}: {settled.said})"
    return True


def _pointee(name: str, function: FunctionNode, kernel: KernelTiling, element: str) -> tuple[str, str]:
    """The element type of a pointer, and why."""
    received = {load.variable for load in kernel.loads if load.parameter == name and load.variable}
    lines = {load.line for load in kernel.loads if load.parameter == name and not load.via}
    if found := _held(function, received, lines):
        return found, "by what is done with what it holds"
    addresses = [
        f"{access.expression} {access.definition}"
        for access in (*kernel.loads, *kernel.stores)
        if access.parameter != name
    ]
    bounds = [loop.expression for loop in kernel.loops]
    if any(re.search(rf"\b{re.escape(v)}\b", text) for v in received for text in (*addresses, *bounds)):
        return "*i32", "what it holds is used in an address or a bound"
    if _INDEX_NAME.search(name):
        return "*i32", "by its name"
    if _STATISTIC_NAME.search(name):
        return "*fp32", "by its name"
    return element, "the default"


def _held(function: FunctionNode, received: set[str], lines: set[int]) -> str:
    """What an address must hold, by what is done with what is loaded: bit operations, bit casts, use as an address."""

    def loaded(node: ast.AST) -> bool:
        call = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("load") and node.lineno in lines
        return call or (isinstance(node, ast.Name) and node.id in received)

    for node in ast.walk(function):
        bits = isinstance(node, ast.BinOp) and isinstance(
            node.op, ast.BitAnd | ast.BitOr | ast.BitXor | ast.LShift | ast.RShift
        )
        if bits and isinstance(node, ast.BinOp) and loaded(node.left) and not isinstance(node.right, ast.Compare):
            return "*i32"
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "to":
            continue
        if not loaded(node.func.value) or not node.args:
            continue
        kind = ast.unparse(node.args[0])
        if "pointer_type" in kind:
            return "*i64"
        if re.search(r"\.float8\w+$", kind) and any(k.arg == "bitcast" for k in node.keywords):
            return "*u8"
    return ""


def _used_as_integer(function: FunctionNode, name: str) -> bool:
    """Whether a parameter bounds a range, or is divided with a remainder, as only integers are."""
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod) and _names(node) & {name}:
            return True
        called = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if called in ("range", "cdiv", "static_range") and any(name in _names(a) for a in getattr(node, "args", ())):
            return True
    return False


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _passed(function: FunctionNode, launches: Iterable[LaunchRef], context: Context) -> dict[str, str]:
    """Parameter -> expression, of the first launch site that says it."""
    names = [a.arg for a, *_ in parameters(function)]
    found: dict[str, str] = {}
    for launch in launches:
        host = context.modules.load(launch.file)
        for call in host.calls if host is not None else ():
            if call.lineno != launch.line or launched(call) is None:
                continue
            for name, argument in zip(names, call.args, strict=False):
                if isinstance(argument, ast.Starred):
                    break
                found.setdefault(name, ast.unparse(argument))
            for keyword in call.keywords:
                if keyword.arg:
                    found.setdefault(keyword.arg, ast.unparse(keyword.value))
    return found


# ---- constexprs


def _constant(
    choice: Choice, constexpr: Constexpr, tuned: Mapping[str, Any], given: Mapping[str, Any], case: Bound,
    computed: Mapping[str, Any],
) -> None:  # fmt: skip
    name, settled = constexpr.name, case.arguments.get(constexpr.name)
    choice.signature[name] = "constexpr"
    if name in given:
        alone = "" if case.passes({name: given[name]}) else ", though no case of the launch was found that passes it"
        choice.constants[name], choice.said[name] = given[name], f"{given[name]} (given{alone})"
        return
    if name in tuned and not (isinstance(tuned[name], str) and "{" in str(tuned[name])):
        choice.constants[name], choice.said[name] = tuned[name], f"{tuned[name]} (autotune)"
        return
    if name in computed:
        choice.constants[name], choice.said[name] = (
            computed[name],
            f"{computed[name]} (heuristics, of the other arguments)",
        )
        return
    if settled is not None and not isinstance(settled.value, Expression):
        choice.constants[name], choice.said[name] = settled.value, f"{settled.value} ({settled.said})"
        return
    sites = [v for v in constexpr.values if v.origin != "autotune"]
    if case.launch is not None and len({v.value for v in sites}) > 1:  # what another launch passes is of another case
        sites = [v for v in sites if v.line == case.launch.line]
    for value in sites:
        known, plain = _literal(value.value)
        if known:
            choice.constants[name] = plain
            choice.said[name] = (
                f"{plain} ({value.origin}, line {value.line}{', when ' + value.when if value.when else ''})"
            )
            return
    known, plain = _literal(constexpr.default)
    if constexpr.default and known:
        choice.constants[name], choice.said[name] = plain, f"{plain} (its default)"
        return
    choice.constants[name] = assumed(name, [v.value for v in constexpr.values])
    choice.said[name] = f"{choice.constants[name]} (assumed: no source gives a number)"
    if type(choice.constants[name]) is int:
        choice.assumed[name] = choice.constants[name]


def _literal(text: str) -> tuple[bool, Any]:
    dtype = re.fullmatch(r"(?:tl|triton\.language)\.(\w+)", text)
    if dtype:
        return True, f"tl.{dtype[1]}"
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False, None
    return isinstance(value, bool | int | float | str | None), value


def assumed(name: str, values: list[str]) -> Any:
    """The value of a constexpr that source leaves open: sizes a usual one, switches off, stores and types bfloat16."""
    text = " ".join(values)
    if re.search(
        r"(?i)^(is|has|use|do|enable|apply|with|store|return|save|compute|output)_|_(enabled?)$", name
    ) or re.search(r" (is not|is|==|!=|>|<|>=|<=|in|not) ", text):
        return False
    if re.search(r"(?i)dtype|_type$", name):
        return "tl.bfloat16"
    if "next_power_of_2" in text and not re.search(r"(?i)dim|^D|^BD|^BK|^BV", name):
        return 4096
    return next((value for pattern, value in _SIZES if re.search(pattern, name)), 16)


#: what sizes of a language model are usually called, and usual ones
_SIZES: tuple[tuple[str, int | float], ...] = (
    (r"ndim$", 2),
    (r"(?i)smoothing|dropout|(^|_)prob|soft_?cap", 0.0),
    (r"(?i)(^|_)(scale|alpha|gamma|temperature|theta)$", 1.0),
    (r"(?i)page_?size|batch", 16),
    (r"(?i)block_?(d|dmodel|head|hdim|headdim|head_?dim)$", 128),
    (_BLOCK.pattern, 64),
    (r"(?i)vocab", VOCABULARY),
    (r"^(T|L|S|N_CTX)$|(?i:seq_?len|_len$|tokens?)", 2048),
    (r"(?i)kernel_?size|width", 4),
    (r"(?i)hidden", 4096),
    (r"(?i)dim|^D(_|$)|^[KVD]$|head_?size", 128),
    (r"(?i)stride", 4096),
    (r"(?i)^num_(q_?)?heads$|^n_(q_?)?h(eads?)?$|^h_q|^HQ?$", 32),
    (r"(?i)^num_|^n_(?!cols|rows)|^[HG]Q?$|^h_|heads|groups?|top_?k", 8),
    (r"(?i)n_cols|^[NM]$|cols|rows|size", 4096),
)


__all__ = ["Choice", "choices"]
