"""Lines of one Python file that show how it runs, is entered, extended or warns: topic -> lines.

Every marker is read from the syntax tree with imports followed, so that neither comments nor strings count. The topics'
names are the keys that the sections ask for.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from opscope_tools.survey.conditions import condition_at, message_of
from opscope_tools.survey.facts import Hit
from opscope_tools.survey.module import Module, string
from opscope_tools.survey.topics import topics_of

#: dotted name, or its beginning where it ends in a dot -> topic
_EXECUTION = {
    "torch.compile": "exec.torch.compile",
    "torch._dynamo.": "exec.torch.compile",
    "torch.cuda.CUDAGraph": "exec.CUDA graphs",
    "torch.cuda.graph": "exec.CUDA graphs",
    "torch.cuda.make_graphed_callables": "exec.CUDA graphs",
    "torch.cuda.graphs.": "exec.CUDA graphs",
    "torch.library.": "exec.custom operators",
    "torch.utils.cpp_extension.load": "exec.custom operators",
    "torch.utils.cpp_extension.load_inline": "exec.custom operators",
    "torch.utils.cpp_extension.CUDAExtension": "exec.custom operators",
    "torch.utils.cpp_extension.CppExtension": "exec.custom operators",
    "torch.jit.script": "exec.TorchScript",
    "torch.jit.trace": "exec.TorchScript",
    "torch.export.export": "exec.torch.export",
    "jax.jit": "exec.jax.jit",
    "jax.pmap": "exec.jax.jit",
    "jax.experimental.pjit.pjit": "exec.jax.jit",
    "flax.nnx.jit": "exec.jax.jit",
    "equinox.filter_jit": "exec.jax.jit",
    "jax.lax.scan": "exec.jax control flow",
    "jax.lax.while_loop": "exec.jax control flow",
    "jax.experimental.pallas.": "exec.Pallas kernels",
    "tensorflow.function": "exec.tf.function",
}
_LASTS = {key.rpartition(".")[2] for key in _EXECUTION if not key.endswith(".")}
_HEADS = tuple(key for key in _EXECUTION if key.endswith("."))
_HEADLESS = tuple(key.removesuffix(".") for key in _HEADS)
_HEAD_LASTS = {key.rpartition(".")[2] for key in _HEADLESS}
_VERBS = {
    "get",
    "post",
    "put",
    "delete",
    "patch",
    "head",
    "options",
    "websocket",
    "route",
    "api_route",
    "websocket_route",
}
_WEB = {
    "fastapi",
    "flask",
    "starlette",
    "aiohttp",
    "sanic",
    "quart",
    "litestar",
    "bottle",
    "tornado",
    "falcon",
    "robyn",
}
_SERVERS = {
    "fastapi.FastAPI", "flask.Flask", "starlette.applications.Starlette", "aiohttp.web.Application", "sanic.Sanic",
    "quart.Quart", "uvicorn.run", "uvicorn.Server", "uvicorn.Config", "aiohttp.web.run_app", "http.server.HTTPServer",
    "http.server.ThreadingHTTPServer", "grpc.server", "grpc.aio.server", "hypercorn.asyncio.serve", "granian.Granian",
    "aiohttp.web.AppRunner", "hypercorn.trio.serve", "waitress.serve", "gevent.pywsgi.WSGIServer",
    "wsgiref.simple_server.make_server", "websockets.serve", "websockets.server.serve", "websockets.asyncio.server.serve",
    "websockets.sync.server.serve", "websockets.legacy.server.serve", "websockets.unix_serve", "asyncio.start_server",
    "asyncio.start_unix_server", "asyncio.streams.start_server", "socketserver.ThreadingTCPServer", "socketserver.UDPServer",
    "tornado.httpserver.HTTPServer", "tornado.web.Application",
    "socketserver.TCPServer", "mcp.server.fastmcp.FastMCP", "gradio.Blocks", "gradio.Interface", "gradio.ChatInterface",
}  # fmt: skip
_SERVING = (
    *_WEB, "uvicorn", "grpc", "http.server", "hypercorn", "granian", "socketserver", "fastmcp", "gradio", "Servicer",
    "websockets", "start_server", "start_unix_server", "waitress", "pywsgi", "wsgiref",
)  # fmt: skip
_REGISTRY = re.compile(
    r"(?i:\w*registry\w*|\w*registries|_?registered_\w+|\w*_registered)|[A-Z_]+_(MAPPING|MAP|BACKENDS|CLASSES)(_\w+)?|\w+_mapping"
)
#: a table of this name is a registry only where most of its values are definitions
_PERHAPS = re.compile(r"[A-Z_]+_(MAPPING|MAP|BACKENDS|CLASSES)(_\w+)?|\w+_mapping")
_ARCHITECTURE = re.compile(r"[A-Z]\w*(For[A-Z]\w+|LMHeadModel\w*|Model)")
_REMARK = re.compile(r"\b(TODO|FIXME|XXX)\b")
_SAMPLES = re.compile(r"_?sample(_\w+)?|sampler|argmax|multinomial|categorical|next_token|sample_next\w*")
_SAMPLING = ("sample", "next_token", "argmax", "multinomial", "categorical")
_FORWARDS = re.compile(
    r"forward|model|_?run_model|execute_model|step|transformer|lm|apply|next_token|decode_step|net|decoder"
)


class MarkerReader:
    """The markers of one file."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._web = bool(_WEB & {alias.partition(".")[0] for alias in module.aliases.values()})

    def hits(self) -> Iterator[tuple[str, Hit]]:
        """(topic, line) of everything; a line may come more than once for a topic."""
        yield from self._identifiers()
        yield from self._execution()
        yield from self._entries()
        yield from self._extensions()
        yield from self._pitfalls()
        if self.module.mentions(_SAMPLING):
            yield from self._loops()
        yield from self._optional()

    def _hit(self, name: str, line: int, text: str = "") -> Hit:
        return Hit(name, line, text or self.module.line(line), self.module.within(line))

    def _identifiers(self) -> Iterator[tuple[str, Hit]]:
        seen: set[tuple[str, int]] = set()
        for name, line in self._names():
            for topic in topics_of(name):
                if (topic, line) not in seen:
                    seen.add((topic, line))
                    yield topic, Hit(name, line)

    def _names(self) -> list[tuple[str, int]]:
        """The names that stand for a topic, with their lines: few, so that each kind is sifted in one comprehension."""
        stands = topics_of
        module = self.module
        found = [(node.id, node.lineno) for node in module.all(ast.Name) if stands(node.id)]
        found += [(n.attr, n.end_lineno or n.lineno) for n in module.all(ast.Attribute) if stands(n.attr)]
        found += [(argument.arg, argument.lineno) for argument in module.all(ast.arg) if stands(argument.arg)]
        found += [(k.arg, k.lineno) for k in module.all(ast.keyword) if k.arg and stands(k.arg)]
        found += [(i.member or i.module.rpartition(".")[2], i.line) for i in module.imports]
        return found + [(path.rpartition(".")[2], getattr(node, "lineno", 1)) for _, _, path, node in module.spans]

    # how it runs

    def _execution(self) -> Iterator[tuple[str, Hit]]:
        for node in self._may_mark():
            dotted = self.module.dotted(node)
            topic = _EXECUTION.get(dotted) or next((_EXECUTION[h] for h in _HEADS if dotted.startswith(h)), None)
            if topic is not None:
                yield topic, self._hit(self.module.text(node), node.lineno)
        for call, dotted in self.module.calls:
            if dotted.endswith("register_custom_op"):
                yield "exec.custom operators", self._hit(dotted, call.lineno)
            elif dotted.startswith("torch.ops.") and dotted.count(".") >= 3:
                yield "exec.torch.ops calls", self._hit(dotted, call.lineno)
        for _, _, path, definition in self.module.spans:
            if isinstance(definition, ast.FunctionDef):
                yield from self._kernel(path, definition)

    def _may_mark(self) -> list[ast.Attribute | ast.Name]:
        """The names worth following, sifted cheaply, since every name of every file is asked."""
        aliases = self.module.aliases.items()
        whole = {name for name, full in aliases if full in _EXECUTION or full.startswith(_HEADS)}
        heads = {name for name, full in aliases if full.startswith(_HEADLESS)}
        found: list[ast.Attribute | ast.Name] = [
            n for n in self.module.all(ast.Attribute)
            if n.attr in _LASTS
            or (n.value.__class__ is ast.Name and n.value.id in heads)
            or (n.value.__class__ is ast.Attribute and n.value.attr in _HEAD_LASTS)
        ]  # fmt: skip
        return found + [n for n in self.module.all(ast.Name) if n.id in whole] if whole else found

    def _kernel(self, path: str, definition: ast.FunctionDef) -> Iterator[tuple[str, Hit]]:
        names = {self.module.dotted(d.func if isinstance(d, ast.Call) else d) for d in definition.decorator_list}
        if names & {"triton.jit", "triton.runtime.jit.jit"} or any(n.endswith("triton.jit") for n in names):
            yield "kernel.triton", self._hit(path, definition.lineno)
            parameters = {argument.arg for argument in definition.args.args}
            if "persistent" in definition.name.lower() or parameters & {"NUM_SMS", "NUM_SM"}:
                yield "exec.persistent kernels", self._hit(path, definition.lineno)
        elif "megakernel" in definition.name.lower():
            yield "exec.persistent kernels", self._hit(path, definition.lineno)

    # how it is entered

    def _entries(self) -> Iterator[tuple[str, Hit]]:
        for test in self.module.all(ast.If):
            compare = test.test
            if isinstance(compare, ast.Compare) and len(compare.comparators) == 1:
                sides = [compare.left, compare.comparators[0]]
                if any(isinstance(s, ast.Name) and s.id == "__name__" for s in sides) and any(
                    string(s) == "__main__" for s in sides
                ):
                    yield "entry.main", self._hit("__main__", test.lineno)
        for _, _, path, definition in self.module.spans:
            if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef) and self._web:
                for decorator in definition.decorator_list:
                    if route := self._route(decorator):
                        yield "entry.route", self._hit(f"{route} -> {path}", decorator.lineno)
        if self.module.mentions(_SERVING):
            for call, dotted in self.module.calls:
                yield from self._entry_call(call, dotted)

    def _route(self, decorator: ast.expr) -> str:
        if not isinstance(decorator, ast.Call) or not isinstance(decorator.func, ast.Attribute) or not decorator.args:
            return ""
        path = string(decorator.args[0])
        if decorator.func.attr not in _VERBS or path is None or not path.startswith("/"):
            return ""
        return f"{decorator.func.attr.upper()} {path}"

    def _entry_call(self, call: ast.Call, dotted: str) -> Iterator[tuple[str, Hit]]:
        last = call.func.attr if isinstance(call.func, ast.Attribute) else dotted.rpartition(".")[2]
        if dotted in _SERVERS:
            yield "entry.server", self._hit(dotted, call.lineno)
        elif last.startswith("add_") and last.endswith("_to_server") and "Servicer" in last:
            yield "entry.server", self._hit(last, call.lineno)
        elif self._web and last in {"add_api_route", "add_route", "add_get", "add_post", "add_websocket_route", "add_url_rule"} | {
            "Route", "WebSocketRoute", "add_api_websocket_route",
        }:  # fmt: skip
            places = [string(argument) for argument in call.args]
            path = next((place for place in places if place and place.startswith("/")), None)
            if path is not None:
                yield "entry.route", self._hit(f"{last} {path}", call.lineno)

    # how it is extended

    def _extensions(self) -> Iterator[tuple[str, Hit]]:
        nodes: list[ast.Assign | ast.AnnAssign] = [*self.module.all(ast.Assign), *self.module.all(ast.AnnAssign)]
        for assignment in nodes:
            target = assignment.targets[0] if isinstance(assignment, ast.Assign) else assignment.target
            if isinstance(target, ast.Subscript):
                name = self.module.dotted(target.value)
                if _REGISTRY.fullmatch(name.rpartition(".")[2]):
                    key = self.module.text(target.slice, 40)
                    value = self.module.text(assignment.value, 60)
                    yield "ext.entry", self._hit(name, assignment.lineno, f"{key}: {value}")
            elif isinstance(target, ast.Name) and assignment.value is not None:
                if _REGISTRY.fullmatch(target.id) or _names_architectures(assignment.value):
                    yield from self._registry(target.id, assignment.lineno, assignment.value)
                elif bound := self._own_classes(assignment.value):
                    yield "ext.bound", Hit(target.id, assignment.lineno, bound, self.module.within(assignment.lineno))
        for _, _, path, definition in self.module.spans:
            for decorator in getattr(definition, "decorator_list", []):
                held = decorator.func if isinstance(decorator, ast.Call) else decorator
                dotted = self.module.dotted(held)
                last = dotted.rpartition(".")[2]
                if last.startswith("register") and dotted.partition(".")[0] not in {
                    "torch",
                    "atexit",
                    "jax",
                    "codecs",
                    "copyreg",
                }:
                    yield "ext.decorator", Hit(dotted, decorator.lineno, path, self.module.text(decorator))
        for call, dotted in self.module.calls:
            if dotted in {
                "importlib.metadata.entry_points",
                "importlib_metadata.entry_points",
                "pkg_resources.iter_entry_points",
            }:
                yield "ext.plugin", self._hit(self.module.text(call), call.lineno)
            elif dotted in {"hasattr", "getattr"} and len(call.args) >= 2:
                asked = string(call.args[1]) or ""
                if asked[:1].isupper():  # what a loader of modules asks each of them for
                    yield "ext.asked", self._hit(asked, call.lineno)

    def _own_classes(self, value: ast.expr) -> str:
        """The classes of this file that a value names, or a list of them; empty for any other."""
        named = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        own = {path for _, _, path, node in self.module.spans if isinstance(node, ast.ClassDef)}
        names = [node.id for node in named if isinstance(node, ast.Name)]
        return ", ".join(names) if names and len(names) == len(named) and own.issuperset(names) else ""

    def _registry(self, name: str, line: int, value: ast.expr) -> Iterator[tuple[str, Hit]]:
        within = self.module.within(line)
        function = self.module.function_at(line)
        if function is not None:
            return
        if isinstance(value, ast.Dict):
            entries = [(key, held) for key, held in zip(value.keys, value.values, strict=True) if key is not None]
            definitions = sum(_is_definition(held) for _, held in entries)
            known = _names_architectures(value)
            if _PERHAPS.fullmatch(name) and entries and definitions * 2 <= len(entries) and not known:
                return
            yield "ext.registry", Hit(name, line, f"dict of {len(entries)}", within)
            for key, held in entries[:400]:
                text = f"{self.module.text(key, 40)}: {self.module.text(held, 60)}"
                yield "ext.entry", Hit(name, key.lineno, text, within)
        elif isinstance(value, ast.Call):
            made = self.module.dotted(value.func)
            if re.search(r"regist|dict$|Dict$|Mapping$", made, re.IGNORECASE):
                yield "ext.registry", Hit(name, line, self.module.text(value), within)

    # what to beware of

    def _pitfalls(self) -> Iterator[tuple[str, Hit]]:
        for call, dotted in self.module.calls:
            last = call.func.attr if isinstance(call.func, ast.Attribute) else dotted
            if dotted == "warnings.warn" or last in {"warning", "warning_once", "warning_advice"}:
                message = message_of(call)
                old = "deprecat" in message.lower() or any(
                    self.module.dotted(a).endswith(("DeprecationWarning", "FutureWarning"))
                    for a in (*call.args, *(k.value for k in call.keywords))
                )
                yield (
                    "pitfall.deprecation" if old else "pitfall.warning",
                    self._pitfall(dotted or last, call.lineno, message),
                )
        for raised in self.module.all(ast.Raise):
            error = raised.exc.func if isinstance(raised.exc, ast.Call) else raised.exc
            if isinstance(error, ast.Name) and error.id == "NotImplementedError":
                message = message_of(raised.exc) if isinstance(raised.exc, ast.Call) else ""
                yield "pitfall.not implemented", self._pitfall("NotImplementedError", raised.lineno, message)
        if not any(word in self.module.source for word in ("TODO", "FIXME", "XXX")):
            return
        strings = [n for n in self.module.all(ast.Constant) if isinstance(n.value, str)]
        held: dict[int, list[ast.Constant]] | None = None
        for number, text in enumerate(self.module.lines, 1):
            if "#" in text and (found := _REMARK.search(text, text.index("#"))):
                if held is None:
                    held = _by_line(strings)
                if not any(_covers(node, number, found.start()) for node in held.get(number, ())):
                    yield "pitfall.todo", self._hit(found[1], number)

    def _pitfall(self, name: str, line: int, message: str) -> Hit:
        return Hit(
            name,
            line,
            message[:160] or self.module.line(line),
            self.module.within(line),
            condition_at(self.module, line),
        )

    # what shows a language model

    def _loops(self) -> Iterator[tuple[str, Hit]]:
        lasts = [
            (call.lineno, call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", ""))
            for call in self.module.all(ast.Call)
        ]
        samples = [line for line, name in lasts if _SAMPLES.fullmatch(name)]
        forwards = [line for line, name in lasts if _FORWARDS.fullmatch(name)] if samples else []
        for loop in (*self.module.all(ast.While), *self.module.all(ast.For)) if forwards else ():
            lines = range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)
            if any(line in lines for line in samples) and any(line in lines for line in forwards):
                function = self.module.function_at(loop.lineno)
                if function and re.search(r"generat|decode|sampl|infer|complet|run", function[1].name):
                    yield "llm.generate loop", self._hit(function[0], loop.lineno)

    def _optional(self) -> Iterator[tuple[str, Hit]]:
        """Libraries that the file does without where they are missing."""
        own = self.module.name.partition(".")[0]
        for imported in self.module.imports:
            top = imported.module.partition(".")[0]
            if imported.optional and top and top != own and top not in sys.stdlib_module_names:
                yield "kernel.optional", self._hit(top, imported.statement)
        for call, dotted in self.module.calls:
            if dotted == "importlib.util.find_spec" and call.args and (name := string(call.args[0])):
                yield "kernel.optional", self._hit(name.partition(".")[0], call.lineno)


def _names_architectures(value: ast.expr) -> bool:
    """Whether a table's keys are names of model classes, as configurations of models give them."""
    if not isinstance(value, ast.Dict) or len(value.keys) < 2:
        return False
    keys = [string(key) for key in value.keys if key is not None]
    return 2 * sum(bool(key and _ARCHITECTURE.fullmatch(key)) for key in keys) > len(value.keys)


def _is_definition(value: ast.expr) -> bool:
    """Whether a value may be a class or function: a name that is not all in capitals, as members of enumerations are."""
    name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
    return isinstance(value, ast.Lambda) or (bool(name) and not name.isupper())


def _by_line(strings: list[ast.Constant]) -> dict[int, list[ast.Constant]]:
    held: dict[int, list[ast.Constant]] = {}
    for node in strings:
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            held.setdefault(line, []).append(node)
    return held


def _covers(node: ast.Constant, line: int, column: int) -> bool:
    """Whether the string holds the place; columns are taken as characters, near enough to tell a comment."""
    starts = node.lineno < line or node.col_offset <= column
    return starts and ((node.end_lineno or line) > line or (node.end_col_offset or 0) > column)
