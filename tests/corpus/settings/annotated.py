"""Defaults that stand in annotations, which pydantic alone reads; a property that is set by hand."""

from dataclasses import dataclass, field
from typing import Annotated

import pydantic
from pydantic import BaseModel, Field
from pydantic.dataclasses import dataclass as checked

Port = Annotated[int, Field(default=7, description="where it listens")]


def configured(cls):
    return pydantic.dataclasses.dataclass(cls)


class Served(BaseModel):
    heads: Annotated[int, Field(default=3)]
    plain: Annotated[int, Field(default=3)] = 5
    bounded: Annotated[int, Field(default=3)] = Field(gt=0)
    sizes: Annotated[list[int], Field(default_factory=lambda: [1, 2])]
    port: Port
    positional: Annotated[int, Field(4)]
    last: Annotated[int, Field(default=1), Field(default=2)]
    inner: Annotated[Port, Field(gt=0)]
    quoted: "Annotated[int, Field(default=9)]"


class Checked(Served):
    heads: Annotated[int, Field(gt=0)] = 2


@checked
class Pool:
    blocks: Annotated[int, Field(default=16)]
    swap: float = 0.5


@configured
class Wrapped:
    blocks: Annotated[int, Field(default=16)]


@dataclass
class Standard:
    heads: Annotated[int, field(default=3)]
    width: int = 4


class Demanding(BaseModel):
    heads: Annotated[int, Field(gt=0)]
    either: Annotated[int, Field(default=3)] | None


class Holder:
    def __init__(self, way="plain"):
        self.way = way
        self.kind = way

    @property
    def kind(self):
        return self._kind

    @kind.setter
    def kind(self, value):
        self._kind = value
        self.length = len(value)


class Other(Holder):
    @property
    def kind(self):
        return Holder.kind.fget(self) + "!"

    @kind.setter
    def kind(self, value):
        Holder.kind.__set__(self, value * 2)
