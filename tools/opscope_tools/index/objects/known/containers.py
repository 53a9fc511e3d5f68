"""torch.nn.Module, ModuleList, Sequential and ModuleDict as constructors use them: adding, replacing, walking children.

The children of a container stand in its `attrs` under the names that torch gives them (`0`, `1`, ... or the keys).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opscope_tools.index.objects.parts import Access
from opscope_tools.index.objects.values import (
    MISSING,
    Args,
    Instance,
    Kwargs,
    Native,
    RaisedError,
    UndecidedError,
    Unknown,
    absent,
    plain,
)

#: methods of torch.nn.Module that give the module back
_SAME = frozenset(
    "to cuda cpu eval train half float double bfloat16 apply requires_grad_ share_memory type to_empty xpu".split()
)


def fill(attributes: Access, this: Instance, args: Args, kwargs: Kwargs) -> None:
    """What the constructor of a container does with its arguments."""
    kind = this.cls.container()
    if not kind:
        return
    values = list(args) or [value for name, value in kwargs.items() if name == "modules"]
    if kind == "Sequential" and len(values) == 1 and isinstance(plain(values[0]), dict):
        kind = "ModuleDict"
    if kind == "Sequential":
        for value in values:
            add(attributes, this, value)
    elif values:
        extend(attributes, this, plain(values[0]))


def add(attributes: Access, this: Instance, value: Any) -> None:
    """Append a child as torch does: its name is its number."""
    attributes.put(this, str(len(this.attrs)), value)


def extend(attributes: Access, this: Instance, values: Any) -> None:
    """Add the items of a list, or the pairs of a dict."""
    if values is None:
        return
    if isinstance(values, Instance) and values.module:
        pairs = list(values.attrs.items())
        values = dict(pairs) if this.cls.container() == "ModuleDict" else [value for _, value in pairs]
    if isinstance(values, Instance) and values.data is not None:
        values = values.data
    if isinstance(values, dict):
        for name, value in values.items():
            attributes.put(this, name if isinstance(name, str) else str(name), value)
    elif isinstance(values, list | tuple):
        for value in values:
            if this.cls.container() == "ModuleDict" and isinstance(value, list | tuple) and len(value) == 2:
                attributes.put(this, str(plain(value[0])), value[1])
            else:
                add(attributes, this, value)
    else:
        attributes.put(this, "*", Unknown(getattr(values, "text", "")))


def children(this: Instance) -> list[tuple[str, Any]]:
    """(name, module) of the children that are there."""
    found = []
    for name, held in this.attrs.items():
        value = plain(held)
        if isinstance(value, Instance) and value.module:
            found.append((name, value))
    return found


def items(this: Instance) -> list[Any]:
    """What iterating over a ModuleList or Sequential gives."""
    return [value for value in this.attrs.values() if not absent(value)]


def item(this: Instance, key: Any) -> Any:
    """`container[key]`."""
    if isinstance(key, str):
        if key in this.attrs:
            return this.attrs[key]
        raise RaisedError("KeyError")
    held = items(this)
    if isinstance(key, slice):
        made = Instance(this.cls, module=True)
        made.attrs = {str(number): value for number, value in enumerate(held[key])}
        return made
    if not isinstance(key, int):
        raise UndecidedError
    try:
        return held[key]
    except IndexError:
        raise RaisedError("IndexError") from None


def member(attributes: Access, this: Instance, name: str) -> Any:
    """A method that torch gives modules; MISSING where it has no such method, or none that a constructor needs."""
    if name in _SAME:
        return Native(name, lambda *_: this)
    if name == "training":
        return True
    if name == "_modules":
        attributes.own_copy(this)
        return this.attrs
    if name in {"parameters", "named_parameters", "buffers", "named_buffers", "state_dict"}:
        return Native(name, lambda *_: Unknown(name))
    made = _METHODS.get(name) or (_CONTAINER_METHODS.get(name) if this.cls.container() else None)
    if made is None:
        return MISSING
    act = made
    return Native(name, lambda _, args, kwargs: act(attributes, this, args, kwargs), full=True)


def _add_module(attributes: Access, this: Instance, args: Args, kwargs: Kwargs) -> None:
    values = [*args, *kwargs.values()]
    if len(values) == 2 and isinstance(plain(values[0]), str):
        attributes.put(this, plain(values[0]), values[1])
    elif len(values) == 2:
        attributes.put(this, getattr(plain(values[0]), "pattern", "") or "*", values[1])


def _register(attributes: Access, this: Instance, args: Args, _: Kwargs) -> None:
    name = plain(args[0]) if args else None
    if isinstance(name, str) and name not in this.attrs:
        attributes.put(this, name, Unknown(name))


def _tree(this: Instance) -> list[Any]:
    """(path, module) of the module itself and of all below it."""
    found: list[Any] = []
    pending: list[tuple[str, Instance]] = [("", this)]
    while pending and len(found) < 5000:
        path, here = pending.pop(0)
        found.append((path, here))
        pending.extend((f"{path}.{name}" if path else name, value) for name, value in children(here))
    return found


def _submodule(attributes: Access, this: Instance, args: Args, _: Kwargs) -> Any:
    found: Any = this
    for part in str(plain(args[0])).split(".") if args else ():
        found = plain(attributes.get(found, part))
    return found


def _setattr(attributes: Access, this: Instance, args: Args, _: Kwargs) -> None:
    if len(args) == 2 and isinstance(plain(args[0]), str):
        attributes.put(this, plain(args[0]), args[1])


def _append(attributes: Access, this: Instance, args: Args, kwargs: Kwargs) -> Instance:
    for value in (*args, *kwargs.values()):
        add(attributes, this, value)
    return this


def _extend(attributes: Access, this: Instance, args: Args, _: Kwargs) -> Instance:
    extend(attributes, this, plain(args[0]) if args else None)
    return this


def _insert(attributes: Access, this: Instance, args: Args, _: Kwargs) -> Instance:
    held = list(this.attrs.values())
    if len(args) == 2 and isinstance(plain(args[0]), int):
        held.insert(plain(args[0]), args[1])
        attributes.state.touch(this.attrs)
        this.attrs.clear()
        this.attrs.update({str(number): value for number, value in enumerate(held)})
    return this


def _pop(attributes: Access, this: Instance, args: Args, _: Kwargs) -> Any:
    found = item(this, plain(args[0]) if args else -1)
    attributes.state.touch(this.attrs)
    name = next((name for name, value in this.attrs.items() if value is found), None)
    if name is not None:
        del this.attrs[name]
    return found


_Act = Callable[[Any, Instance, Args, Kwargs], Any]
_METHODS: dict[str, _Act] = {
    "__init__": fill, "add_module": _add_module, "register_module": _add_module, "register_buffer": _register,
    "register_parameter": _register, "get_submodule": _submodule, "__setattr__": _setattr,
    "children": lambda _, this, *__: [child for _, child in children(this)],
    "named_children": lambda _, this, *__: children(this),
    "modules": lambda _, this, *__: [module for _, module in _tree(this)],
    "named_modules": lambda _, this, *__: _tree(this),
}  # fmt: skip
_CONTAINER_METHODS: dict[str, _Act] = {
    "append": _append, "extend": _extend, "insert": _insert, "pop": _pop, "update": _extend,
    "keys": lambda _, this, *__: [name for name, value in this.attrs.items() if not absent(value)],
    "values": lambda _, this, *__: items(this),
    "items": lambda _, this, *__: [pair for pair in this.attrs.items() if not absent(pair[1])],
}  # fmt: skip
