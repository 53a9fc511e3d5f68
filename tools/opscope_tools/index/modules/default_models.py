"""Which models build a class: those of its file, or of its folder, that have a default configuration."""

from __future__ import annotations

import re

from opscope_tools.index.objects import ClassValue, Instance, Interpreter
from opscope_tools.index.objects.values import ExhaustedError, RaisedError, UndecidedError, plain
from opscope_tools.source.python.names import ClassSymbol
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import AssignRow

_WORD = re.compile(r"[A-Za-z_]\w*")


def models_above(interpreter: Interpreter, cls: ClassValue) -> list[ClassValue]:
    """The classes of the file (or else of its folder) with a default configuration whose construction may make `cls`.

    A model that only hands its own configuration on to another such model (`self.model = XModel(config)`) adds nothing.
    """
    for units in ([cls.symbol.unit], _neighbours(cls)):
        bodies: dict[str, tuple[ClassValue | None, str]] = {}
        for unit in units:
            lines = unit.tree.source(unit.file).decode("utf-8", "replace").split("\n")
            for table in unit.rows.rows:
                if isinstance(table, AssignRow):
                    bodies[table.name] = (None, f"{table.value} {table.entries}")
            for path, row in unit.classes():
                if "." not in path:
                    held = interpreter.names.class_value(ClassSymbol(unit, path, row))
                    bodies[row.name] = (held, "\n".join(lines[row.line : row.end_line]))
        found = _above(interpreter, cls, bodies)
        if found:
            return found
    return []


def _neighbours(cls: ClassValue) -> list[Unit]:
    """The other files of the folder that name the class."""
    tree, file = cls.symbol.unit.tree, cls.symbol.file
    folder = file.rpartition("/")[0]
    names = [name for name in tree.files_below(folder) if name != file and name.rpartition("/")[0] == folder]
    words = [row.name.encode() for path, row in cls.symbol.unit.classes() if "." not in path]
    units = [tree.unit(name) for name in names[:40] if any(word in tree.source(name) for word in words)]
    return [*(unit for unit in units if not unit.secondary), cls.symbol.unit] if units else []


def _above(
    interpreter: Interpreter, cls: ClassValue, bodies: dict[str, tuple[ClassValue | None, str]]
) -> list[ClassValue]:
    named = {name: set(_WORD.findall(text)) & bodies.keys() - {name} for name, (_, text) in bodies.items()}
    reaching = {cls.name}
    grown = True
    while grown:
        more = {name for name, inner in named.items() if name not in reaching and inner & reaching}
        grown = bool(more)
        reaching |= more
    held_by = {name: held for name, (held, _) in bodies.items() if held is not None and name in reaching}
    models = {name: held for name, held in held_by.items() if _has_configuration(interpreter, held)}
    found = []
    for name, held in models.items():
        text = bodies[name][1]
        inner = named[name] & reaching
        passes = name != cls.name and all(
            other in models
            and _hands_on(text, other)
            and _config_class(interpreter, models[other]) is _config_class(interpreter, held)
            for other in inner
        )
        if not passes:
            found.append(held)
    return found


def _hands_on(text: str, name: str) -> bool:
    """Whether every call of the class in the text has the configuration as it is for its one argument."""
    calls = re.findall(rf"\b{name}\(([^()]*)", text)
    changes = re.search(r"\bconfig\.\w+ *=[^=]|deepcopy|setattr\(|(?<![\w.])self\.\w++(?:\.\w++)++ *+=[^=]", text)
    return changes is None and all(re.fullmatch(r"\s*(config|self\.config)\s*", call) for call in calls)


def _config_class(interpreter: Interpreter, cls: ClassValue) -> ClassValue | None:
    try:
        found = plain(interpreter.attributes.get(cls, "config_class"))
    except (RaisedError, UndecidedError):
        return None
    return found if isinstance(found, ClassValue) else None


def _has_configuration(interpreter: Interpreter, cls: ClassValue) -> bool:
    return cls.is_module() and _config_class(interpreter, cls) is not None


def configuration(interpreter: Interpreter, cls: ClassValue) -> Instance | None:
    """The default configuration of a model class: of its `config_class`, or of what its `config` is declared as."""
    interpreter.state.allow()
    try:
        config = _config_class(interpreter, cls)
        made = interpreter.call(config, (), {}) if config is not None else None
    except (RaisedError, UndecidedError, ExhaustedError):
        return None
    return made if isinstance(made, Instance) else None
