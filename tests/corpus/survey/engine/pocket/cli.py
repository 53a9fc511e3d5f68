import argparse

from pocket.config import EngineArgs
from pocket.engine.llm_engine import LLMEngine
from pocket.sampling_params import SamplingParams


def make_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("prompt", nargs="?", default="hello")
    parser.add_argument("--temperature", "-t", type=float, default=1.0)
    return EngineArgs.add_cli_args(parser)


def main():
    args = make_parser().parse_args()
    engine = LLMEngine(EngineArgs(model=args.model))
    print(engine.generate([[1, 2, 3]], SamplingParams(temperature=args.temperature)))
