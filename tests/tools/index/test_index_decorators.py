"""What decorators do, told by their own source."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from opscope_schemas.index import ExplainedDecorator
from opscope_tools.index import Index
from opscope_tools.index.forwards.decorators import explain

Package = Callable[[Mapping[str, str | bytes]], Index]

SOURCE = """\
import functools, typing
from functools import partial, wraps
from elsewhere import strange
from typing import cast

REGISTRY = {}
def first(x): ...
def second(x): ...
class Table:
    _kept = {"first": first, "second": second}
    def __getitem__(self, key): return self._kept[key]
TABLE = Table()

def documents(func):
    func.__doc__ = "text"
    return func

def documents_by_helper(obj=None, *, intro=None):
    def decorate(obj):
        if isinstance(obj, type):
            return documents(obj)
        return documents(obj)
    if obj:
        return decorate(obj)
    return decorate

def wraps_call(func):
    @wraps(func)
    def wrapper(self, *args, **kwargs):
        kwargs.pop("old", None)
        try:
            out = func(self, *args, **kwargs)
        finally:
            pass
        return out
    return wrapper

def wraps_with_options(func=None, *, option=True):
    def decorate(func):
        @wraps(func)
        def wrapper(*args):
            if option:
                return func(*args)
            else:
                return func(*args, 1)
        return wrapper
    if func is not None:
        return decorate(func)
    return decorate

def by_lambda(func):
    return lambda *a: func(*a)

def replaces(func):
    @wraps(func)
    def wrapper(*args):
        if args:
            return second(*args)
        return func(*args)
    return wrapper

def ignores(func):
    def wrapper(*args):
        return second(*args)
    return wrapper

def looks_up(cls=None, *, table=TABLE):
    def decorate(cls):
        original = cls.forward
        @wraps(original)
        def forward(self, *args):
            chosen = table.get(self.key, original)
            return chosen(self, *args)
        cls.forward = forward
        return cls
    return decorate(cls) if cls is not None else decorate

def puts_forward(cls):
    old = cls.forward
    def forward(self, x):
        return old(self, x)
    cls.forward = forward
    return cls

def registers(name):
    def decorate(cls):
        REGISTRY[name] = cls
        return cls
    return decorate

def registers_by_call(cls):
    REGISTRY.register(cls)
    return cls

def marks(func):
    func._ignored = True
    return func

def nothing(*args):
    def decorate(cls):
        return cls
    return decorate

def gives_away(func):
    return strange(func)

def caches(*args):
    def decorate(func):
        kept = functools.lru_cache(*args)(func)
        def wrapper(*a):
            if a:
                return func(*a)
            else:
                return kept(*a)
        return wrapper
    return decorate

class Context:
    def __call__(self, func):
        def run(*args):
            with self:
                return func(*args)
        return cast(F, run)

if is_there():
    def guarded(name):
        return strange(name)
else:
    def guarded(name):
        def decorate(cls):
            return cls
        return decorate
"""


@pytest.fixture
def what(package: Package) -> Callable[[str], ExplainedDecorator]:
    index = package({"m.py": SOURCE + "class A:\n    pass\n"})
    unit = index.one("m.A").unit
    return lambda decorator: explain(index.resolver, unit, decorator, "forward")


REPLACES = "replaces the implementation under a condition"


@pytest.mark.parametrize(
    ("decorator", "effect"),
    [
        ("documents", "documentation"),
        ("documents_by_helper", "documentation"),
        ("documents_by_helper(intro='x')", "documentation"),
        ("wraps_call", "wraps the call"),
        ("wraps_with_options", "wraps the call"),
        ("wraps_with_options(option=False)", "wraps the call"),
        ("by_lambda", "wraps the call"),
        ("caches(maxsize=2)", "wraps the call"),
        ("Context()", "wraps the call"),
        ("puts_forward", "wraps the call"),
        ("replaces", REPLACES),
        ("ignores", REPLACES),
        ("looks_up", REPLACES),
        ("looks_up(table=TABLE)", REPLACES),
        ("registers('a')", "registers"),
        ("registers_by_call", "registers"),
        ("marks", "marks"),
        ("nothing('a')", "returns it unchanged"),
        ("gives_away", "not known"),
        ("guarded('a')", REPLACES),
        ("strange", "not known"),
        ("missing.thing(1)", "not known"),
        ("typing.overload", "documentation"),
        ("functools.lru_cache", "wraps the call"),
        ("staticmethod", "marks"),
    ],
)
def test_the_effect_follows_from_what_the_decorator_does_with_the_function(
    what: Callable[[str], ExplainedDecorator], decorator: str, effect: str
) -> None:
    assert what(decorator).effect == effect


def test_a_decorator_that_looks_up_names_what_it_may_run(what: Callable[[str], ExplainedDecorator]) -> None:
    found = what("looks_up")
    assert [(c.key, c.callee, c.line) for c in found.candidates] == [("first", "m.first", 7), ("second", "m.second", 8)]
    assert (found.qualified_name, found.file) == ("m.looks_up", "m.py")
    assert "table.get(self.key, original)" in found.detail


def test_a_decorator_with_two_definitions_tells_both(what: Callable[[str], ExplainedDecorator]) -> None:
    found = what("guarded('a')")
    assert "where `is_there()`" in found.detail
    assert "elsewhere.strange" in found.detail
    assert "where `not (is_there())` (m.py:129): returns what it is given" in found.detail


def test_code_outside_the_source_is_named_but_not_guessed(what: Callable[[str], ExplainedDecorator]) -> None:
    assert "elsewhere.strange" in what("gives_away").detail
    assert what("strange").qualified_name == "elsewhere.strange"


def test_decorators_of_real_forwards_are_explained(installed_index: Index) -> None:
    model = installed_index.one("transformers.models.llama.modeling_llama.LlamaModel")
    forward = installed_index.forward(model)
    assert forward is not None
    found = [explain(installed_index.resolver, forward.unit, text, "forward") for text in forward.row.decorators]
    assert [(one.decorator, one.effect) for one in found] == [
        ("merge_with_config_defaults", "wraps the call"),
        ("capture_outputs", "wraps the call"),
        ("auto_docstring", "documentation"),
    ]
    rotary = installed_index.one("transformers.models.llama.modeling_llama.LlamaRotaryEmbedding")
    assert explain(installed_index.resolver, rotary.unit, "torch.no_grad()", "forward").effect == "wraps the call"
    experts = installed_index.one("transformers.models.mixtral.modeling_mixtral.MixtralExperts")
    kernels = explain(installed_index.resolver, experts.unit, experts.row.decorators[0], "class")
    assert kernels.effect == REPLACES
    assert "batched_mm" in {c.key for c in kernels.candidates}
