"""What a call inside a forward calls: a submodule, a function or method in source, an operation of torch, or an
expression that is decided at run time.

The reader (lines.py) reports assignments and loops as it passes them, so that a local name such as `decoder_layer` in
`for decoder_layer in self.layers` is known when it is called.
"""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from opscope_schemas.index import Call

from opscope_tools.index.parse import Node, dotted, line_of, named, text_of
from opscope_tools.index.resolve import ClassSymbol, Found, Resolver
from opscope_tools.index.rows import FunctionRow
from opscope_tools.index.submodules import MODULE, Submodule, is_module, submodules
from opscope_tools.index.tensors import METADATA, TENSOR_METHODS

_CODE_LIMIT = 300
Kind = Literal["op", "submodule_call", "helper_call"]


@dataclass
class Callees:
    """The names of one forward: `symbol` is the class of the object, `holder` the class whose body holds the def."""

    resolver: Resolver
    symbol: ClassSymbol
    holder: ClassSymbol
    function: FunctionRow
    local: dict[str, Node | str] = field(default_factory=dict)

    @cached_property
    def modules(self) -> dict[str, list[Submodule]]:
        found: dict[str, list[Submodule]] = {}
        for module in submodules(self.resolver, self.symbol):
            found.setdefault(module.attribute, []).append(module)
        return found

    @cached_property
    def annotations(self) -> dict[str, str]:
        return {p.name.lstrip("*"): p.annotation for p in self.function.parameters}

    @cached_property
    def _source(self) -> list[str]:
        return self.holder.unit.tree.source(self.holder.file).decode("utf-8", "replace").split("\n")

    def line_text(self, line: int) -> str:
        return self._source[line - 1].strip() if line <= len(self._source) else ""

    # what the reader reports

    def assign(self, target: Node | None, value: Node | None) -> None:
        """`name = value`: remembered as written; `a, b = ...` makes both unknown."""
        if target is None:
            return
        if target.type == "identifier":
            self.local[text_of(target)] = value if value is not None else ""
        else:
            sizes = value if value is not None and self.describes(value) else None  # batch, length = x.shape
            for child in named(target):
                if child.type == "identifier":
                    self.local[text_of(child)] = sizes if sizes is not None else ""

    def loop(self, target: Node, iterable: Node) -> None:
        """`for target in iterable`: names bound to the items of a container of submodules."""
        if iterable.type == "call":
            function, arguments = (
                dotted(iterable.child_by_field_name("function")),
                iterable.child_by_field_name("arguments"),
            )
            inner = named(arguments) if arguments is not None else []
            targets = named(target)
            if function == "enumerate" and len(targets) == 2 and inner:
                self.assign(targets[0], None)
                self.loop(targets[1], inner[0])
                return
            if function == "zip" and len(targets) == len(inner):
                for one, other in zip(targets, inner, strict=True):
                    self.loop(one, other)
                return
        path = self._path(iterable)
        if target.type == "identifier":
            self.local[text_of(target)] = f"self.{path}.*" if path and f"{path}.*" in self.modules else ""
        else:
            self.assign(target, None)

    def is_table(self, node: Node) -> bool:
        """Whether indexing the expression looks up a submodule or a table of functions, not a tensor."""
        name = dotted(node)
        if name.startswith("self."):
            return f"{name[5:]}.*" in self.modules or name[5:] in self.modules
        return bool(name) and name.rpartition(".")[2].isupper()

    def describes(self, node: Node, depth: int = 0) -> bool:
        """Whether an expression is a literal or only reads shapes, dtypes and the like."""
        kind = node.type
        if kind in {"integer", "none", "true", "false", "string"}:
            return True
        if kind == "identifier":
            value = self.local.get(text_of(node))
            return value is not None and not isinstance(value, str) and depth < 6 and self.describes(value, depth + 1)
        if kind == "attribute":
            inner = node.child_by_field_name("object")
            if text_of(node.child_by_field_name("attribute")) in METADATA:
                return True
            return inner is not None and inner.type == "attribute" and self.describes(inner, depth)
        if kind == "subscript":
            inner = node.child_by_field_name("value")
            return inner is not None and self.describes(inner, depth)
        if kind == "call":
            function = node.child_by_field_name("function")
            if dotted(function) in {"len", "int"}:
                return True
            return function is not None and function.type == "attribute" and self.describes(function, depth)
        if kind in {"binary_operator", "unary_operator", "parenthesized_expression", "tuple", "pattern_list"}:
            return all(self.describes(child, depth) for child in named(node))
        return False

    # what is called

    def classify(self, node: Node) -> Call | None:
        """The call as a computation; None for what computes nothing (`len`, `isinstance`, `x.size(0)`, logging)."""
        function = node.child_by_field_name("function")
        if function is None:
            return None
        line = line_of(node)
        if function.type == "attribute":  # a call over several lines runs on the line of its last name
            attribute = function.child_by_field_name("attribute")
            line = line_of(attribute) if attribute is not None else line
        code = text_of(node)[:_CODE_LIMIT]
        return self._target(function, code, line, 0)

    def _target(self, function: Node, code: str, line: int, depth: int) -> Call | None:
        path = self._path(function)
        if path:
            found = self._module_call(path, code, line)
            if found is not None:
                return found
        name = dotted(function)
        root = name.split(".", 1)[0]
        if name and "." not in name and name in self.local and depth < 4:
            return self._local(name, code, line, depth)
        if function.type == "subscript":
            return Call(kind="helper_call", code=code, callee="", dispatch=text_of(function)[:_CODE_LIMIT], line=line)
        if root == "self" and name.count(".") >= 1:
            return self._self_call(name, code, line)
        if function.type == "attribute" and text_of(function.child_by_field_name("object")).startswith("super("):
            return self._super_call(text_of(function.child_by_field_name("attribute")), code, line)
        if name and root not in self.local and root not in self.annotations:
            return self._global(name, code, line)
        if function.type == "attribute":
            return self._method(function, root, code, line)
        return Call(kind="helper_call", code=code, dispatch=text_of(function)[:_CODE_LIMIT], line=line)

    def _path(self, node: Node) -> str:
        """`layers.*` for `self.layers[i]`, `mlp.act_fn` for `self.mlp.act_fn`; a local name stands for its value."""
        if node.type == "identifier":
            value = self.local.get(text_of(node))
            if isinstance(value, str):
                return value.removeprefix("self.") if value else ""
            return self._path(value) if value is not None and value.type in {"attribute", "subscript"} else ""
        if node.type == "subscript":
            inner = node.child_by_field_name("value")
            path = self._path(inner) if inner is not None else ""
            key = node.child_by_field_name("subscript")
            if not path or key is None or key.type == "slice":
                return path
            exact = f"{path}.{text_of(key).strip(chr(34) + chr(39))}"
            return exact if exact in self.modules else f"{path}.*"
        name = dotted(node)
        if not name and node.type == "attribute":  # self.layers[0].inner
            inner = node.child_by_field_name("object")
            path = self._path(inner) if inner is not None else ""
            return f"{path}.{text_of(node.child_by_field_name('attribute'))}" if path else ""
        if name.startswith("self."):
            return name[5:]
        head, _, tail = name.partition(".")
        value = self.local.get(head)
        if tail and isinstance(value, str) and value:
            return f"{value.removeprefix('self.')}.{tail}"
        return ""

    def _at(self, path: str) -> tuple[list[Submodule], ClassSymbol | None, str]:
        """The submodules at `path`, following the classes of submodules; else the last known class and what is left."""
        owner, rest, modules = self.symbol, path, self.modules
        while True:
            if rest in modules:
                return modules[rest], owner, ""
            parts = rest.split(".")
            for size in range(len(parts) - 1, 0, -1):
                held = [m for m in modules.get(".".join(parts[:size]), []) if m.symbol is not None]
                if held and held[0].symbol is not None:
                    owner, rest = held[0].symbol, ".".join(parts[size:])
                    modules = {}
                    for module in submodules(self.resolver, owner):
                        modules.setdefault(module.attribute, []).append(module)
                    break
            else:
                return [], owner, rest

    def _module_call(self, path: str, code: str, line: int) -> Call | None:
        held, _, _ = self._at(path)
        if not held:
            return None
        names = list(dict.fromkeys(module.class_name for module in held if module.class_name))
        dispatch = next((module.dispatch for module in held if module.dispatch), "")
        first = next((module.symbol for module in held if module.symbol is not None), None)
        place = self.forward_place(first) if first is not None and len(names) == 1 else ("", 0)
        return Call(
            kind="submodule_call", code=code, callee=" | ".join(names) or dispatch, callee_file=place[0],
            callee_line=place[1], attribute=path, dispatch=dispatch, line=line,
        )  # fmt: skip

    def forward_place(self, symbol: ClassSymbol) -> tuple[str, int]:
        """File and line of the forward that a call of the module runs."""
        member = self.resolver.class_member(symbol, "forward")
        if member is None or member[1].unit is None or not isinstance(member[1].row, FunctionRow):
            return "", 0
        return member[1].unit.file, member[1].row.line

    def _local(self, name: str, code: str, line: int, depth: int) -> Call | None:
        value = self.local[name]
        if isinstance(value, str):
            return Call(kind="helper_call", code=code, dispatch=value or name, line=line)
        if value.type in {"identifier", "attribute"} and dotted(value) != name:
            return self._target(value, code, line, depth + 1)
        shown = text_of(value)[:_CODE_LIMIT]
        return Call(kind="helper_call", code=code, callee=shown, dispatch=shown, line=line)

    def _self_call(self, name: str, code: str, line: int) -> Call | None:
        _, owner, rest = self._at(name[5:])
        if owner is not None and "." not in rest:
            member = self.resolver.class_member(owner, rest)
            if member is not None:
                return self._found(member[1], code, line)
        method = name.rpartition(".")[2]
        if rest.count(".") >= 1 and method in METADATA:
            return None
        if rest.count(".") >= 1 and method in TENSOR_METHODS:  # self.weight.to(...), self.inv_freq.float()
            return Call(kind="op", code=code, callee=f"torch.Tensor.{method}", line=line)
        return Call(kind="helper_call", code=code, dispatch=name, line=line)

    def _super_call(self, method: str, code: str, line: int) -> Call | None:
        member = self.resolver.class_member(self.symbol, method, after=self.holder)
        if member is not None:
            return self._found(member[1], code, line)
        return Call(kind="helper_call", code=code, dispatch=f"super().{method}", line=line)

    def _global(self, name: str, code: str, line: int) -> Call | None:
        found = self.resolver.dotted(self.holder.unit, name)
        if found is None:
            return None if hasattr(builtins, name.split(".", 1)[0]) else self._unknown(name, code, line)
        if re.match(r"(logging|warnings|functools|typing|math|sys|os|itertools|collections)\b", found.name):
            return None
        if found.kind == "external" and re.search(r"\.(logger|log)\.\w+$", found.name):
            return None
        return self._found(found, code, line)

    def _unknown(self, name: str, code: str, line: int) -> Call:
        return Call(kind="helper_call", code=code, dispatch=name, line=line)

    def _method(self, function: Node, root: str, code: str, line: int) -> Call | None:
        """`value.method(...)` on a local, a parameter or the result of an expression."""
        method = text_of(function.child_by_field_name("attribute"))
        if dotted(function) == f"{root}.{method}":
            for symbol in self._classes_of(root):
                member = self.resolver.class_member(symbol, method)
                if member is not None:
                    return self._found(member[1], code, line)
        if method in METADATA:
            return None
        if method in TENSOR_METHODS:
            return Call(kind="op", code=code, callee=f"torch.Tensor.{method}", line=line)
        return Call(kind="helper_call", code=code, dispatch=text_of(function)[:_CODE_LIMIT], line=line)

    def _classes_of(self, name: str) -> list[ClassSymbol]:
        """Classes that a local or a parameter may be an instance of: the one it was made from, those it is declared as.
        Tensors are left out: their methods are known by name."""
        value = self.local.get(name)
        if value is not None and not isinstance(value, str) and value.type == "identifier" and text_of(value) != name:
            name = text_of(value)  # another name of a parameter
            value = self.local.get(name)
        texts = re.findall(r"[A-Za-z_][\w.]*", self.annotations.get(name, ""))
        if value is not None and not isinstance(value, str) and value.type == "call":
            texts = [*texts, dotted(value.child_by_field_name("function"))]
        found = [
            self.resolver.dotted(self.holder.unit, text) for text in texts if text and not text.startswith("self.")
        ]
        return [f.symbol for f in found if f is not None and f.symbol is not None and not f.name.startswith("torch.")]

    def _found(self, found: Found, code: str, line: int) -> Call:
        """A resolved callee: torch's own functions are operations, everything else is a helper."""
        file = found.unit.file if found.unit is not None and found.row is not None else ""
        at = found.row.line if found.row is not None else 0
        is_class = found.symbol is not None
        module = is_class and found.symbol is not None and is_module(self.resolver, found.symbol)
        kind: Kind = (
            "op" if found.name.startswith("torch.") and not module and MODULE not in found.name else "helper_call"
        )
        return Call(kind=kind, code=code, callee=found.name, callee_file=file, callee_line=at, line=line)
