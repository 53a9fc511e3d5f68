"""Configurations of every plain kind; the tests make the objects and compare."""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Optional

try:
    import torch
    from torch import nn
except ImportError:
    torch = nn = None

try:
    from nowhere_to_be_found import tune_it
except ImportError:

    def tune_it(*_):
        return {}


if TYPE_CHECKING:
    import settings_of_the_environment as envs


@dataclass
class ModelArgs:
    """Arguments.

    Args:
        dim (int): width of the residual stream.
        n_layers: number of blocks,
            counted without the embedding.
    """

    dim: int = 4096
    n_layers: int = 32
    n_heads: int = 32
    n_kv_heads: Optional[int] = None
    vocab_size: int = -1  # set by the tokenizer
    # hidden width is rounded up to this
    multiple_of: int = 256

    norm_eps: float = 1e-5
    """keeps the root from zero"""
    max_batch: int = field(default=32, metadata={"help": "largest batch"})
    layer_ids: list[int] = field(default_factory=lambda: list(range(4)))
    KINDS: ClassVar[int] = 3
    threads: int = int(os.environ.get("THREADS_OF_THE_TEST", "8"))

    def __post_init__(self):
        if self.n_kv_heads is None:
            self.n_kv_heads = self.n_heads
        assert self.dim % self.n_heads == 0, "dim must divide"
        if self.n_heads % self.n_kv_heads != 0:
            raise ValueError(f"bad heads {self.n_kv_heads}")
        self.head_dim = self.dim // self.n_heads


class Shadow(ModelArgs):
    dim = 5


@dataclass
class Small(ModelArgs):
    dim: int = 1024
    needed: str = field(default="x")


@dataclass
class Tuned:
    a: int = 1

    def __post_init__(self):
        os.register_at_fork_of_ours(self)


@dataclass
class Dynamic:
    a: int = 1
    b: int = 2

    def __post_init__(self):
        for key, value in os.environ.items():
            setattr(self, key, value)


@dataclass
class Declared:
    ranks: int = 1

    def __post_init__(self):
        self.ranks = envs.RANKS


def memory_of_the_device():
    try:
        found = [torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count())]
        return found[0] >= Sizes["A"]
    except Exception:
        return False


class Sizes:
    A = 1


@dataclass
class Probed:
    large: bool = False

    def __post_init__(self):
        self.large = memory_of_the_device()


@dataclass
class Counted:
    steps: int = 1

    def __post_init__(self):
        while os.path.exists(str(self.steps)):
            self.steps += 1


@dataclass
class LeftEarly:
    width: int = 2

    def __post_init__(self):
        self.width = 5
        if os.environ.get("LEAVE_THE_TEST_EARLY"):
            return
        self.width = 11


class PlainConfig:
    def __init__(self, depth=6, width: int = 64, act="relu", ratio=None, **kwargs):
        self.depth = depth
        self.width = width
        self.hidden = width * 4
        self.act = act
        self.ratio = ratio if ratio is not None else 0.5
        self.legacy = kwargs.pop("old_name", 7)


class DerivedConfig(PlainConfig):
    def __init__(self, experts=8, width=32, **kwargs):
        super().__init__(width=width, **kwargs)
        self.experts = experts


@dataclass(init=True)
class OwnInit:
    a_size: int = 3
    b_size: int = 4

    def __init__(self, a_size: int = 5):
        self.a_size = a_size
        self.b_size = a_size * 2


class Base:
    def __init__(self, unused=1):
        self.unused = unused


@dataclass
class PlainOverRecord(Base):
    own: int = 2


class TupleSettings(NamedTuple):
    a: int
    b: float = 2.0


def field_validator(_):
    return staticmethod


class Checked:
    @field_validator("rank")
    def check_rank(value):
        if value > 64:
            raise ValueError("too large")
        return value


def look_up(names, known):
    for name in names:
        if name in known:
            continue
        else:
            raise KeyError(name)


if nn is not None:

    class Attention(nn.Module):
        def __init__(self, args: ModelArgs, other: PlainConfig):
            super().__init__()
            self.heads = args.n_heads
            self.depth = other.depth
            if torch.cuda.get_device_capability()[0] < 8:
                raise RuntimeError("needs sm_80")
            self.wq = nn.Linear(args.dim, args.dim)
