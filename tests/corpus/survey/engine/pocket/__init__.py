"""A pocket-sized engine."""
from pocket.engine.llm_engine import LLMEngine
from pocket.sampling_params import SamplingParams
