"""Command-line flags that one file declares: argparse, click, typer, absl; and functions that make flags of the fields of a
class, whose calls flags.py settles over all files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opscope_tools.survey.facts import FlagFact, Hit
from opscope_tools.survey.module import Function, Module, parameters_of, string

_ABSL = "absl.flags.DEFINE_"
#: libraries that build a whole command line from a class or a function that they are given
_FROM_CLASS = {
    "transformers.HfArgumentParser": "HfArgumentParser",
    "transformers.hf_argparser.HfArgumentParser": "HfArgumentParser",
    "tyro.cli": "tyro",
    "simple_parsing.parse": "simple_parsing",
    "jsonargparse.CLI": "jsonargparse",
    "pydantic_settings.CliApp.run": "pydantic-settings",
    "fire.Fire": "fire",
}
#: what tells that a function goes through the fields of a class
_FIELD_WORDS = {"fields", "__dataclass_fields__", "model_fields", "get_type_hints", "__fields__", "__annotations__"}


class FlagReader:
    """The flags of one file."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def flags(self) -> Iterator[FlagFact]:
        """Flags in the order of their kinds; those of classes come later, from flags.py."""
        for call in self.module.all(ast.Call):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
                yield self._argparse(call)
            elif (name := self.module.dotted(call.func)).startswith(_ABSL) and call.args:
                literal = string(call.args[0])
                default = call.args[1] if len(call.args) > 1 else None
                yield self._flag((f"--{literal}",) if literal else (), call.lineno, "absl", default)
            elif _is_click(name):
                names = tuple(n for a in call.args if (n := string(a)) is not None)
                if name.endswith(".option"):
                    names = tuple(n for n in names if n.startswith("-"))
                yield self._flag(names, call.lineno, "click", _keyword(call, "default"))
            elif name in _FROM_CLASS:
                yield FlagFact((), call.lineno, _FROM_CLASS[name], "", self.module.within(call.lineno))
        yield from self._typer()

    def _argparse(self, call: ast.Call) -> FlagFact:
        names = tuple(name for argument in call.args if (name := string(argument)) is not None)
        return self._flag(names, call.lineno, "argparse", _keyword(call, "default"))

    def _flag(self, names: tuple[str, ...], line: int, how: str, default: ast.expr | None) -> FlagFact:
        return FlagFact(names, line, how, self.module.text(default, 40), self.module.within(line))

    def _typer(self) -> Iterator[FlagFact]:
        """Parameters of the functions that typer makes commands of."""
        apps = {
            target.id
            for node in self.module.all(ast.Assign)
            if isinstance(node.value, ast.Call) and self.module.dotted(node.value.func) == "typer.Typer"
            for target in node.targets if isinstance(target, ast.Name)
        }  # fmt: skip
        run = {
            self.module.dotted(call.args[0]) for call in self.module.all(ast.Call)
            if self.module.dotted(call.func) == "typer.run" and call.args
        }  # fmt: skip
        functions: list[Function] = [*self.module.all(ast.FunctionDef), *self.module.all(ast.AsyncFunctionDef)]
        for function in functions:
            decorators = [_called(self.module, decorator) for decorator in function.decorator_list]
            is_command = any(
                name.rpartition(".")[2] in {"command", "callback"} and name.partition(".")[0] in apps
                for name in decorators
            )
            uses = "typer" in self.module.aliases or any(v.startswith("typer.") for v in self.module.aliases.values())
            if is_command or function.name in run:
                yield from self._parameters(function, explicit=False)
            elif uses:
                yield from self._parameters(function, explicit=True)

    def _parameters(self, function: Function, *, explicit: bool) -> Iterator[FlagFact]:
        plain = [*function.args.posonlyargs, *function.args.args]
        defaults: dict[str, ast.expr | None] = {}
        for parameter, default in zip(reversed(plain), reversed(function.args.defaults), strict=False):
            defaults[parameter.arg] = default
        for parameter, held in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
            defaults[parameter.arg] = held
        for parameter in parameters_of(function):
            given = defaults.get(parameter.arg)
            declared = self._declared(parameter.annotation) or self._declared(given)
            if declared is None and (explicit or self._is_context(parameter)):
                continue
            is_argument = self.module.dotted(declared.func).endswith("Argument") if declared else given is None
            names = tuple(n for a in (declared.args if declared else []) if (n := string(a)) and n.startswith("-"))
            made = parameter.arg if is_argument else f"--{parameter.arg.replace('_', '-')}"
            yield self._flag(names or (made,), parameter.lineno, "typer", given if given is not declared else None)

    def _declared(self, node: ast.expr | None) -> ast.Call | None:
        """The `typer.Option(...)` or `typer.Argument(...)` of an annotation or a default."""
        for inner in ast.walk(node) if node is not None else ():
            if isinstance(inner, ast.Call) and self.module.dotted(inner.func) in {"typer.Option", "typer.Argument"}:
                return inner
        return None

    def _is_context(self, parameter: ast.arg) -> bool:
        return self.module.dotted(parameter.annotation) in {"typer.Context", "click.Context"}

    def makers(self) -> dict[str, str]:
        """Functions that add a flag for every field of a class: path -> `-` or `_`, which joins
        the words of a flag, and whose fields they are."""
        made: dict[str, str] = {}
        for call in self.module.all(ast.Call):
            if not (isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"):
                continue
            function = self.module.function_at(call.lineno)
            if function is None or not call.args or string(call.args[0]) is not None:
                continue
            subject = self._subject(function[1])
            if subject:
                dashes = any(
                    isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace"
                    and [string(argument) for argument in node.args] == ["_", "-"]
                    for node in ast.walk(function[1])
                )  # fmt: skip
                made[function[0]] = ("-" if dashes else "_") + subject
        return made

    def _subject(self, function: Function) -> str:
        """Whose fields a function goes through: `self` for those of its own class, `parameter` for those of a class it is given."""
        given = {parameter.arg for parameter in parameters_of(function)}
        for node in ast.walk(function):
            asked: ast.expr | None = None
            if (
                isinstance(node, ast.Call)
                and self.module.dotted(node.func).rpartition(".")[2] in _FIELD_WORDS
                and node.args
            ):
                asked = node.args[0]
            elif isinstance(node, ast.Attribute) and node.attr in _FIELD_WORDS:
                asked = node.value
            if isinstance(asked, ast.Name):
                if asked.id in {"self", "cls"}:
                    return "self"
                if asked.id in given:
                    return "parameter"
        return ""

    def class_calls(self) -> Iterator[Hit]:
        """Calls that hand a class to a library, or to a function that might make flags of it: name, and the classes."""
        for call in self.module.all(ast.Call):
            name = self.module.dotted(call.func)
            library = _FROM_CLASS.get(name)
            if library is None and ("arg" not in name.lower() or name.endswith(".add_argument")):
                continue
            given: list[ast.expr] = []
            for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
                given += argument.elts if isinstance(argument, ast.Tuple | ast.List) else [argument]
            classes = [dotted for node in given if (dotted := self.module.dotted(node))]
            if classes:
                around = self.module.around(call.lineno)
                holder = next((path for path, node in reversed(around) if isinstance(node, ast.ClassDef)), "")
                classes = [holder if name == "cls" else name for name in classes]
                yield Hit(
                    library or name, call.lineno, " ".join(c for c in classes if c), self.module.within(call.lineno)
                )


def _is_click(name: str) -> bool:
    head, _, last = name.rpartition(".")
    return last in {"option", "argument"} and head.partition(".")[0] in {"click", "rich_click", "asyncclick", "cloup"}


def _called(module: Module, decorator: ast.expr) -> str:
    return module.dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
