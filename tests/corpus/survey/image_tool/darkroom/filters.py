"""Filters for photographs, with names that language models use too."""
import numpy as np


class Sampler:
    """Resamples an image."""

    def sample(self, image, temperature=6500):
        return image[::2, ::2] * temperature


class Attention:
    """Where people look."""


class TileScheduler:
    def schedule(self, tiles):
        return sorted(tiles)


class BlockCache:
    def update(self, block):
        return block


class Tokenizer:
    """Splits the settings of a camera."""

    def tokenize(self, text):
        return text.split(",")


def brightest(model, images):
    for image in images:
        model(image)
        np.argmax(image)
