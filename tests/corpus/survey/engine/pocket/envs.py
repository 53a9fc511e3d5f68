"""Every way to read the environment."""
import os
from os import environ, getenv

NAME = "POCKET_BY_CONSTANT"
ALL = ("POCKET_LOOP_A", "POCKET_LOOP_B")


def flag(name: str, default: bool = False) -> bool:
    return os.environ.get(name, str(default)).lower() == "true"


def number(default, *, key):
    return int(os.getenv(key, default))


def debug_flag(suffix_name):
    return flag(suffix_name)


environment_variables = {
    "POCKET_TABLE_ONE": lambda: os.getenv("POCKET_TABLE_ONE", "1"),
    "POCKET_TABLE_TWO": lambda: flag("POCKET_TABLE_TWO"),
    "POCKET_TABLE_THREE": lambda: environ["POCKET_TABLE_THREE"] if "POCKET_TABLE_THREE" in environ else None,
}


class EnvField:
    def __init__(self, default):
        self.default = default

    def __set_name__(self, owner, name):
        self.name = name

    def get(self):
        return os.getenv(self.name, self.default)


class EnvInt(EnvField):
    def get(self):
        return int(super().get())


class Named:
    def __init__(self, name, default=None):
        self.key = name
        self.default = default

    def value(self):
        return os.environ.get(self.key, self.default)


class Envs:
    POCKET_FIELD = EnvField("x")
    POCKET_COUNT = EnvInt("3")


NAMED = Named("POCKET_NAMED")


def read_all():
    """Reads every variable once, as a user would."""
    found = [getenv("POCKET_GETENV"), environ.get("POCKET_IMPORTED"), os.environ.get(NAME)]
    for key in ALL:
        found.append(os.environ.get(key))
    found += [flag("POCKET_HELPER"), number(1, key="POCKET_KEYWORD"), debug_flag("POCKET_TWICE")]
    found += [read() for read in environment_variables.values()]
    found += [Envs.__dict__["POCKET_FIELD"].get(), Envs.__dict__["POCKET_COUNT"].get(), NAMED.value()]
    copy = os.environ
    found.append(copy.get("POCKET_VIEW"))
    return found


def prepare():
    os.environ["POCKET_ONLY_SET"] = "1"


def dynamic(part):
    return os.environ.get(f"POCKET_{part}_LEVEL")


UNREAD = "POCKET_UNEXPLAINED"
