import argparse
import dataclasses
from dataclasses import dataclass


@dataclass
class EngineArgs:
    model: str = "tiny"
    max_seqs: int = 2
    block_size: int = 4
    _hidden: int = 0

    @classmethod
    def add_cli_args(cls, parser: argparse.ArgumentParser):
        for field in dataclasses.fields(cls):
            if not field.name.startswith("_"):
                parser.add_argument("--" + field.name.replace("_", "-"), default=field.default)
        return parser
