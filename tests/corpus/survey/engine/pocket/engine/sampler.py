from abc import ABC, abstractmethod

SAMPLER_REGISTRY = {}


def register_sampler(name):
    def add(cls):
        SAMPLER_REGISTRY[name] = cls
        return cls

    return add


class Sampler(ABC):
    @abstractmethod
    def sample(self, logits): ...


@register_sampler("greedy")
class GreedySampler(Sampler):
    def sample(self, logits):
        return [row.index(max(row)) for row in logits]


@register_sampler("last")
class LastSampler(GreedySampler):
    temperature = 1.0


def build_sampler(name) -> Sampler:
    return SAMPLER_REGISTRY[name]()
