"""Where one file reads the environment: `os.environ` and `os.getenv` in all forms, tables of them, settings classes; and the
calls that may read it through a function or an object defined elsewhere, which environment.py settles over all files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from opscope_tools.survey.facts import Argument, EnvironmentFact, NamedCall
from opscope_tools.survey.module import CAPITALS, Module, parameters_of, string

_READERS = {"get", "pop", "setdefault", "__getitem__", "__contains__", "get_str"}
_GETENV = {"os.getenv", "os.getenvb", "os.environ.get", "os.environb.get"}
_ENVIRON = {"os.environ", "os.environb"}
_HELPERLIKE = re.compile(r"env|getenv|flag|setting|get_(bool|int|str|float)", re.IGNORECASE)
#: objects of other libraries that read the environment by name
_LIBRARY_READERS = {"decouple.config", "starlette.config.Config", "environs.Env", "environs.env"}


class EnvironmentReader:
    """The reads of one file."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._views: set[tuple[str, str]] = set()
        self._loops: dict[tuple[str, str], list[tuple[str, int]]] = {}
        if module.mentions(("environ",)):
            self._read_names()

    def _read_names(self) -> None:
        """Names that stand for the environment in a function, and those that go through literal names of variables."""
        module = self.module
        self._views = {
            (module.within(node.lineno), target.id)
            for node in module.all(ast.Assign) if self._is_view(node.value)
            for target in node.targets if isinstance(target, ast.Name)
        }  # fmt: skip
        lists = {
            target.id: names
            for node in module.tree.body if isinstance(node, ast.Assign) and (names := _literal_names(node.value))
            for target in node.targets if isinstance(target, ast.Name)
        }  # fmt: skip
        for node in module.all(ast.For):
            if isinstance(node.target, ast.Name):
                named = lists.get(node.iter.id, []) if isinstance(node.iter, ast.Name) else _literal_names(node.iter)
                if named:
                    self._loops[module.within(node.lineno), node.target.id] = named

    def reads(self) -> Iterator[EnvironmentFact]:
        """Every read, and every setting; one line may hold several."""
        for call in self.module.all(ast.Call):
            yield from self._call(call)
        for subscript in self.module.all(ast.Subscript):
            if self._is_environment(subscript.value):
                written = not isinstance(subscript.ctx, ast.Load)
                yield from self._facts(subscript.slice, subscript.lineno, written=written)
        for compare in self.module.all(ast.Compare):
            if isinstance(compare.ops[0], ast.In | ast.NotIn) and self._is_environment(compare.comparators[0]):
                yield from self._facts(compare.left, compare.lineno)
        yield from self._tables()
        yield from self._settings()

    def _call(self, call: ast.Call) -> Iterator[EnvironmentFact]:
        name = self.module.dotted(call.func)
        reader = isinstance(call.func, ast.Attribute) and call.func.attr in _READERS
        if name in _GETENV or (
            reader and isinstance(call.func, ast.Attribute) and self._is_environment(call.func.value)
        ):
            key = call.args[0] if call.args else _keyword(call, "key")
            written = isinstance(call.func, ast.Attribute) and call.func.attr in {"setdefault", "pop"}
            default = call.args[1] if len(call.args) > 1 else _keyword(call, "default")
            if key is not None:
                yield from self._facts(key, call.lineno, default=self.module.text(default, 40), written=written)
        elif (
            name in _LIBRARY_READERS and call.args and (literal := string(call.args[0])) and CAPITALS.fullmatch(literal)
        ):
            yield EnvironmentFact(literal, "literal", call.lineno, self.module.within(call.lineno), mechanism="library")
        for keyword in call.keywords:
            if keyword.arg == "envvar":
                for value in keyword.value.elts if isinstance(keyword.value, ast.List | ast.Tuple) else [keyword.value]:
                    if (literal := string(value)) is not None:
                        within = self.module.within(value.lineno)
                        yield EnvironmentFact(literal, "literal", value.lineno, within, mechanism="flag")

    def _is_view(self, node: ast.AST) -> bool:
        """`os.environ`, a copy of it, or a dict of it."""
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "copy":
                return self.module.dotted(node.func.value) in _ENVIRON
            return (
                self.module.dotted(node.func) == "dict"
                and len(node.args) == 1
                and self.module.dotted(node.args[0]) in _ENVIRON
            )
        return self.module.dotted(node) in _ENVIRON

    def _is_environment(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name) and (self.module.within(node.lineno), node.id) in self._views:
            return True
        return self.module.dotted(node) in _ENVIRON

    def _facts(
        self, key: ast.expr, line: int, *, default: str = "", written: bool = False
    ) -> Iterator[EnvironmentFact]:
        within = self.module.within(line)
        kind, names = self._key(key, line)
        for name, place in names:
            yield EnvironmentFact(name, kind, place, within, default, written)

    def _key(self, node: ast.expr, line: int) -> tuple[str, list[tuple[str, int]]]:
        """What names the variable: its kind, and the names with the lines where they stand."""
        literal = string(node)
        if literal is not None:
            return "literal", [(literal, node.lineno)]
        if isinstance(node, ast.Name):
            if looped := self._loops.get((self.module.within(line), node.id)):
                return "literal", looped
            function = self.module.function_at(line)
            if function and node.id in {parameter.arg for parameter in parameters_of(function[1])}:
                return "parameter", [(node.id, line)]
            if node.id in self.module.constants:
                return "literal", [self.module.constants[node.id]]
            if node.id in self.module.aliases:
                return "name", [(self.module.aliases[node.id], line)]
            return "dynamic", [(node.id, line)]
        dotted = self.module.dotted(node)
        head, _, attribute = dotted.rpartition(".")
        if head in {"self", "cls"}:
            return "attribute", [(attribute, line)]
        if dotted in self.module.constants:
            return "literal", [self.module.constants[dotted]]
        return ("name", [(dotted, line)]) if dotted else ("dynamic", [(self.module.text(node), line)])

    def _tables(self) -> Iterator[EnvironmentFact]:
        """A dict that names variables and says how each is read: `{"NAME": lambda: os.getenv("NAME"), ...}`."""
        for table in self.module.all(ast.Dict):
            keys = [string(key) for key in table.keys]
            if len(keys) < 3 or not all(key and CAPITALS.fullmatch(key) for key in keys):
                continue
            callables = [
                value for value in table.values if isinstance(value, ast.Lambda | ast.Call | ast.Name | ast.Attribute)
            ]
            reads = any(self._reads(value) for value in table.values)
            if len(callables) * 2 >= len(keys) and reads:
                for key, node in zip(keys, table.keys, strict=True):
                    assert key is not None
                    assert node is not None
                    within = self.module.within(node.lineno)
                    yield EnvironmentFact(key, "literal", node.lineno, within, mechanism="table")

    def _reads(self, value: ast.AST) -> bool:
        return any(
            (isinstance(node, ast.Call) and self.module.dotted(node.func) in _GETENV)
            or (isinstance(node, ast.Subscript) and self._is_environment(node.value))
            for node in ast.walk(value)
        )

    def _settings(self) -> Iterator[EnvironmentFact]:
        """Fields of pydantic settings, which the environment fills: prefix and field name in capitals."""
        for node in self.module.all(ast.ClassDef):
            if not any(self.module.dotted(base).endswith("BaseSettings") for base in node.bases):
                continue
            prefix = next((p for s in node.body if (p := _prefix(s)) is not None), "")
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    if statement.target.id == "model_config":
                        continue
                    name = (prefix + statement.target.id).upper()
                    yield EnvironmentFact(name, "literal", statement.lineno, node.name, mechanism="settings class")

    # calls that another file settles

    def calls(self) -> Iterator[NamedCall]:
        """Calls with a name in capitals or a handed-on parameter, and objects assigned to a name in capitals."""
        assigned: dict[int, str] = {}
        nodes: list[ast.Assign | ast.AnnAssign] = [*self.module.all(ast.Assign), *self.module.all(ast.AnnAssign)]
        for node in nodes:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(node.value, ast.Call) and isinstance(target, ast.Name) and CAPITALS.fullmatch(target.id):
                assigned[id(node.value)] = target.id
        names = self._in_capitals()
        helperlike: dict[str, bool] = {}
        for call, callee in self.module.calls:
            if not callee or callee in _GETENV:
                continue
            if callee not in helperlike:
                helperlike[callee] = bool(_HELPERLIKE.search(callee))
            target_name = assigned.get(id(call), "")
            arguments: tuple[Argument, ...] = ()
            if names or helperlike[callee]:
                arguments = tuple(self._arguments(call, helperlike[callee]))
            if arguments or target_name:
                yield NamedCall(callee, call.lineno, self.module.within(call.lineno), arguments, target_name)

    def _in_capitals(self) -> bool:
        """Whether the file holds a name in capitals with an underscore that a call could be given: most hold none."""
        return any("_" in value for value, _ in self.module.constants.values()) or any(
            "_" in node.value and node.value.isupper()
            for node in self.module.all(ast.Constant) if isinstance(node.value, str)
        )  # fmt: skip

    def _arguments(self, call: ast.Call, helperlike: bool) -> Iterator[Argument]:
        pairs = [(str(place), value) for place, value in enumerate(call.args)]
        pairs += [(keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg]
        function = None
        for place, value in pairs:
            literal = string(value)
            if literal is None and isinstance(value, ast.Name) and value.id in self.module.constants:
                literal = self.module.constants[value.id][0]
            if literal is not None:
                if CAPITALS.fullmatch(literal) and ("_" in literal or helperlike):
                    yield place, "literal", literal, value.lineno
            elif isinstance(value, ast.Name) and helperlike:
                function = function or self.module.function_at(call.lineno)
                if function and value.id in {parameter.arg for parameter in parameters_of(function[1])}:
                    yield place, "parameter", value.id, value.lineno

    def self_sets(self) -> Iterator[tuple[str, str, str]]:
        """(method, attribute, parameter) of every `self.attribute = parameter` of constructors and `__set_name__`."""
        for node in self.module.all(ast.Assign):
            if len(node.targets) != 1 or not isinstance(node.value, ast.Name):
                continue
            head, _, attribute = self.module.dotted(node.targets[0]).rpartition(".")
            within = self.module.within(node.lineno)
            if head == "self" and within.endswith((".__init__", ".__set_name__")):
                yield within, attribute, node.value.id


def _literal_names(node: ast.AST) -> list[tuple[str, int]]:
    """The strings of a literal list, tuple or set that holds nothing else, with their lines."""
    if not isinstance(node, ast.List | ast.Tuple | ast.Set):
        return []
    names = [(name, element.lineno) for element in node.elts if (name := string(element)) is not None]
    return names if len(names) == len(node.elts) else []


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _prefix(statement: ast.stmt) -> str | None:
    """The `env_prefix` of a settings class's configuration."""
    if isinstance(statement, ast.ClassDef) and statement.name == "Config":
        return next((p for s in statement.body if (p := _prefix(s)) is not None), None)
    if not isinstance(statement, ast.Assign):
        return None
    if isinstance(statement.targets[0], ast.Name) and statement.targets[0].id == "env_prefix":
        return string(statement.value)
    if isinstance(statement.value, ast.Call):
        return string(_keyword(statement.value, "env_prefix"))
    if isinstance(statement.value, ast.Dict):
        pairs = zip(statement.value.keys, statement.value.values, strict=True)
        return next((string(value) for key, value in pairs if string(key) == "env_prefix"), None)
    return None
