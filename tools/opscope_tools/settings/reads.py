"""Where a file reads the parameters of a configuration: `config.x`, `self.config.x`, `getattr(config, "x", ...)`.

What class an object is, declarations tell: annotations of parameters, `config: C` and `config_class = C` of a class or
of its bases in the file, and local names. An object that is declared to be another configuration does not count; one
that nothing declares counts as unsure, if it is named like a configuration.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from opscope_tools.source.python.trees import PythonSource

_LIKE = re.compile(r"(^|_)(config|configuration|cfg|conf|args|params|hparams)$")
_WORD = re.compile(r"[A-Za-z_][\w.]*")
_PLAIN = frozenset({"None", "Optional", "Union", "typing", "Any"})
#: between the names of classes any of which an object may be
_OR = "|"


@dataclass(frozen=True)
class Reader:
    """The configuration whose reads are sought.

    `own`: names of its class and of classes that derive from it; `parents`: those that it derives from; `paths`: what
    other configurations call it (`text_config`); `names`: parameter -> the names that it goes by; `holders`: the class that
    holds it -> the names of its own. A tower may be declared to take the whole, and is handed its part: what the whole
    lacks is read of a part.
    """

    own: Collection[str]
    parents: Collection[str]
    paths: Collection[str]
    names: Mapping[str, Collection[str]]
    holders: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass
class _Scope:
    """What local names are declared to be; "" where nothing tells."""

    kinds: dict[str, str] = field(default_factory=dict)
    of_class: str = ""
    #: what `self.config` may be: also what classes that derive from this one declare
    of_self: str = ""


def config_reads(source: PythonSource, sought: Reader) -> dict[str, list[tuple[int, bool]]]:
    """Parameter -> (line, sure) of every place that reads it, in order."""
    return _File(source, sought).read() if source.tree is not None else {}


class _File:
    def __init__(self, source: PythonSource, sought: Reader) -> None:
        self.source, self.sought = source, sought
        self.by_word = {word: name for name, words in sought.names.items() for word in words}
        self.found: dict[str, list[tuple[int, bool]]] = {}
        self.classes = {path: node for path, node in source.definitions if isinstance(node, ast.ClassDef)}
        self.declared: dict[str, str] = {}

    def read(self) -> dict[str, list[tuple[int, bool]]]:
        assert self.source.tree is not None
        self._block(self.source.tree, _Scope())
        return {name: sorted(places) for name, places in self.found.items()}

    def _of_class(self, name: str, seen: tuple[str, ...] = ()) -> str:
        """The configuration class that a class of the file declares, itself or through its bases."""
        node = self.classes.get(name)
        if node is None or name in seen:
            return ""
        if name not in self.declared:
            self.declared[name] = ""
            for statement in node.body:
                if (
                    isinstance(statement, ast.AnnAssign)
                    and isinstance(statement.target, ast.Name)
                    and statement.target.id == "config"
                ):
                    self.declared[name] = _named(statement.annotation)
                elif isinstance(statement, ast.Assign) and any(
                    isinstance(t, ast.Name) and t.id == "config_class" for t in statement.targets
                ):
                    self.declared[name] = _named(statement.value)
            init = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
            if not self.declared[name] and init is not None:
                annotated = [a.annotation for a in init.args.args if _LIKE.search(a.arg) and a.annotation is not None]
                self.declared[name] = _named(annotated[0]) if annotated else ""
            if not self.declared[name]:
                inherited = [self._of_class(ast.unparse(base), (*seen, name)) for base in node.bases]
                self.declared[name] = next((kind for kind in inherited if kind), "")
        return self.declared[name]

    def _of_self(self, name: str) -> str:
        """The configuration classes of a class of the file and of those that derive from it."""
        found, pending = dict[str, None](), [name]
        while pending:
            found[pending.pop()] = None
            derived = (
                c for c, node in self.classes.items() if {ast.unparse(base) for base in node.bases} & found.keys()
            )
            pending += [c for c in derived if c not in found]
        return _OR.join(dict.fromkeys(kind for each in found if (kind := self._of_class(each))))

    def _block(self, node: ast.AST, scope: _Scope) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                self._block(child, _Scope({}, self._of_class(child.name), self._of_self(child.name)))
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                inner = _Scope(dict(scope.kinds), scope.of_class, scope.of_self)
                for argument in [*child.args.posonlyargs, *child.args.args, *child.args.kwonlyargs]:
                    kind = _named(argument.annotation) if argument.annotation is not None else ""
                    inner.kinds[argument.arg] = kind or (scope.of_class if argument.arg == "config" else "")
                self._block(child, inner)
            else:
                self._expression(child, scope)
                self._block(child, scope)
                if isinstance(child, ast.Assign) and len(child.targets) == 1 and isinstance(child.targets[0], ast.Name):
                    held = self._kind(child.value, scope)
                    if held is not None:
                        scope.kinds[child.targets[0].id] = held

    def _expression(self, node: ast.AST, scope: _Scope) -> None:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in self.by_word:
            self._note(node.value, self.by_word[node.attr], node.end_lineno or node.lineno, scope)
        elif isinstance(node, ast.Call) and (key := _asked_of(node)) in self.by_word:
            self._note(node.args[0], self.by_word[key], node.args[1].lineno, scope)

    def _note(self, owner: ast.expr, name: str, line: int, scope: _Scope) -> None:
        kind = self._kind(owner, scope)
        if kind is None:
            return
        named = set(kind.split(_OR))
        if named & set(self.sought.own):
            self.found.setdefault(name, []).append((line, True))
        elif (
            not kind
            or named & set(self.sought.parents)
            or any(held in named and name not in own for held, own in self.sought.holders.items())
        ):
            self.found.setdefault(name, []).append((line, False))

    def _kind(self, node: ast.expr, scope: _Scope) -> str | None:
        """The class that an expression is declared to be; "" for a configuration of no known class; None for anything
        else."""
        if isinstance(node, ast.Name):
            kind = scope.kinds.get(node.id, "")
            if kind and (_LIKE.search(node.id) or set(kind.split(_OR)) & set(self.sought.own)):
                return kind
            return "" if _LIKE.search(node.id) else None
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "self" and _LIKE.search(node.attr):
                if node.attr == "config":
                    return scope.of_self
                return self._held(node.attr)
            return self._held(node.attr) if _LIKE.search(node.attr) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get_text_config":
            return self._held("text_config")
        key = _asked_of(node) if isinstance(node, ast.Call) else ""
        return self._held(key) if _LIKE.search(key) else None

    def _held(self, attribute: str) -> str:
        """What an object's attribute of that name is: the configuration that is sought, if it goes by that name."""
        if attribute in self.sought.paths:
            return next(iter(self.sought.own), "")
        return "" if attribute in {"config", "cfg", "args", "params", "hparams"} else f"?{attribute}"


def _named(node: ast.expr) -> str:
    """The last part of the class that an annotation names, of `C`, `"C"`, `C | None`, `Optional[m.C]`; `A|B` where it may be either."""
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)
    names = [word.rpartition(".")[2] for word in _WORD.findall(text)]
    return _OR.join(dict.fromkeys(name for name in names if name not in _PLAIN))


def _asked_of(call: ast.Call) -> str:
    """The name that `getattr(object, "name")` asks for; empty for other calls and names made at run time."""
    if not (isinstance(call.func, ast.Name) and call.func.id == "getattr" and len(call.args) > 1):
        return ""
    return str(call.args[1].value) if isinstance(call.args[1], ast.Constant) else ""
