"""What a forward is called with: tensors made from its own signature and the model's config, the likeliest set first.

A set is a list of `Input`s. Sizes that a run chooses come from `size(name, default)`, which gives a symbol or a number;
sizes that the model fixes come from its config. Where the signature leaves several shapes open (a spectrogram may come
as (mels, frames) or (frames, mels)), each is a set of its own, and the first that the model runs is taken.

Order: the `Input`, looking fields up in configs, then one method per kind of input.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from opscope_tools.trace.worker.documented import documented

Size = Callable[[str, int], Any]
#: audio samples or frames of a spectrogram where the config names no length
_SAMPLES, _FRAMES = 16000, 320
#: how many tiles, with the whole, a picture of the tower's own size may be cut into
_TILES = (3, 2, 5)
#: pixels of a side that pictures have where those of the config do not run
_SIDES = (224, 560, 640, 1024)
#: arguments that carry something other than tokens
_MODALITIES = (
    "pixel_values", "pixel_values_videos", "input_features", "input_values", "past_values", "hidden_states",
    "flattened_patches", "visual_feats", "latents", "mel_spectrogram",
)  # fmt: skip


@dataclass(frozen=True)
class Input:
    """A tensor argument: its shape and dtype; `values` where the model looks at them (grids, sizes of images).

    Values are numbers, so that asking for them settles the sizes that they are made of.
    """

    name: str
    shape: tuple[Any, ...]
    dtype: torch.dtype
    values: Callable[[], list[Any]] | None = None

    @property
    def data(self) -> list[Any] | None:
        return self.values() if self.values else None

    def tensor(self, fill: Callable[[tuple[Any, ...], torch.dtype], Any]) -> Any:
        """The tensor, its values by `fill` where they do not matter."""
        return torch.tensor(self.data, dtype=self.dtype) if self.values else fill(self.shape, self.dtype)


def field(configs: list[Any], *names: str, default: Any = None) -> Any:
    """The first of the names that one of the configs holds, names first."""
    for name in names:
        for config in configs:
            value = getattr(config, name, None)
            if value is not None and not isinstance(value, dict):
                return value
    return default


def sections(config: Any, *words: str) -> list[Any]:
    """The config's parts whose attribute names hold one of the words, then the config itself."""
    parts = [v for k, v in vars(config).items() if hasattr(v, "to_dict") and any(word in k for word in words)]
    deeper = [part for found in parts for part in sections(found, *words)[:-1]]
    return [*parts, *deeper, config]


def _number(value: Any, default: int) -> Any:
    """The number that a field holds: the first of several."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return value if isinstance(value, int | torch.SymInt) and not isinstance(value, bool) else default


def reads_only_tokens(model_class: Any) -> bool:
    """Whether a forward takes token ids and nothing else that could come in their place."""
    names = set(inspect.signature(model_class.forward).parameters)
    return "input_ids" in names and not names & {*_MODALITIES, "bbox"}


class Inputs:
    """The argument sets that a model's forward may take."""

    def __init__(self, forward: Any, config: Any, size: Size, dtype: torch.dtype) -> None:
        parameters = inspect.signature(forward).parameters
        self.names = set(parameters) - {"self"}
        self.required = [
            n
            for n, p in parameters.items()
            if p.default is inspect.Parameter.empty and p.kind is p.POSITIONAL_OR_KEYWORD and n != "self"
        ]
        self._forward = forward
        self.config = config
        self.size = size
        self.dtype = dtype
        self.batch = size("batch_size", 2)
        self.vision = sections(config, "vision", "image", "visual", "backbone")
        self.audio = sections(config, "audio", "speech", "encoder")
        self.text = sections(config, "text", "decoder", "llm", "language")

    @staticmethod
    def unused(forward: Any, given: set[str], *, decoding: bool) -> list[str]:
        """Arguments that would bring in another modality and are not given; a decode pass has read them before."""
        names = inspect.signature(forward).parameters
        return [] if decoding else [n for n in _MODALITIES if n in names and n not in given]

    @property
    def encodes(self) -> bool:
        """Whether the model has a decoder of its own beside an encoder."""
        return "decoder_input_ids" in self.names

    # ---- sets

    def sets(self) -> Iterator[list[Input]]:
        """Every set, the likeliest first; then what the docstring says of the arguments that must be given."""
        for main in self._mains():
            more = self._documented({i.name for i in main})
            if more:
                yield [*main, *more]
            yield main
            if len(main) == 1 and main[0].name == "input_ids" and "attention_mask" in self.required:
                yield [*main, Input("attention_mask", main[0].shape, torch.int64)]
        if self.required and (alone := self._documented(set())):
            yield alone

    def tokens_alone(self) -> list[Input]:
        """A decoder's set without images, audio and what goes with them."""
        return [self.tokens("input_ids", "seq_len"), *self._others()]

    def _documented(self, given: set[str]) -> list[Input]:
        """Arguments that must be given and are not, as the docstring describes them; none where it leaves one open."""
        missing = [n for n in self.required if n not in given]
        described = documented(self._forward, self.size, self._known, self.dtype) if missing else {}
        return [Input(n, *described[n]) for n in missing] if all(n in described for n in missing) else []

    def _known(self, word: str) -> Any:
        """What the config says of a word for a size."""
        if word in ("height", "width", "image_size", "image_height", "image_width", "num_channels"):
            channels, height, width = self._image()
            return channels if word == "num_channels" else width if word.endswith("width") else height
        value = _number(field([self.config, *self.vision, *self.text], word), -1)
        return None if isinstance(value, int) and value < 0 else value

    def _mains(self) -> Iterator[list[Input]]:
        decoder = [self.tokens("decoder_input_ids", "seq_len")] if self.encodes else []
        others = self._others()
        if "input_ids" in self.names:
            ids = self.tokens("input_ids", "encoder_seq_len" if self.encodes else "seq_len")
            for more in self._modalities():  # all that the model takes, before the tokens alone
                yield [ids, *others, *more, *decoder]
            yield [ids, *others, *decoder]
        for more in self._modalities():
            yield [*more, *others, *decoder]
        yield from self._hidden()

    def _modalities(self) -> Iterator[list[Input]]:
        for name, kinds in (
            ("pixel_values", self.images), ("pixel_values_videos", self.videos), ("input_features", self.spectrograms),
            ("input_values", self.waveforms), ("past_values", self.series), ("hidden_states", self.patches),
            ("flattened_patches", self.flattened), ("mel_spectrogram", self.spectrograms),
        ):  # fmt: skip
            if name in self.names:
                yield from kinds(name)

    def _others(self) -> list[Input]:
        """Required arguments that go with the main ones."""
        found = []
        if "bbox" in self.names:
            found.append(Input("bbox", (self.batch, self.size("seq_len", 16), 4), torch.int64))
        if "task_inputs" in self.required:
            length = _number(field([self.config, *self.text], "task_seq_len"), 16)
            found.append(Input("task_inputs", (self.batch, length), self.dtype))
        return found

    # ---- kinds of input

    def tokens(self, name: str, length: str) -> Input:
        """Token ids: (batch_size, length)."""
        return Input(name, (self.batch, self.size(length, 16)), torch.int64)

    def _image(self) -> tuple[Any, Any, Any]:
        size = next((v for c in self.vision if (v := getattr(c, "image_size", None)) is not None), 224)
        if isinstance(size, dict):
            size = (size.get("height", 224), size.get("width", 224))
        height, width = (size[-2], size[-1]) if isinstance(size, list | tuple) and len(size) > 1 else (size, size)
        height, width = _number(height, 224), _number(width, 224)
        channels = _number(field(self.vision, "num_channels", "in_channels", "in_chans"), 3)
        return channels, self.size("image_height", height), self.size("image_width", width)

    def images(self, name: str) -> Iterator[list[Input]]:
        """Pictures: (batch_size, channels, height, width), or several a sequence, or flattened patches."""
        channels, height, width = self._image()
        grid = next((n for n in ("grid_thw", "image_grid_thw") if n in self.names), "")
        if grid:
            yield from self._gridded(name, grid)
            return
        if "spatial_shapes" in self.names:
            yield self._ragged(name)
        if "aspect_ratio_ids" in self.required:
            yield self._tiled(name)
        plain = Input(name, (self.batch, channels, height, width), self.dtype)
        yield [plain]
        if "image_sizes" in self.names:
            sizes = Input("image_sizes", (self.batch, 2), torch.int64, self._each(height, width))
            yield [plain, sizes]
            for tiles in _TILES:
                yield [Input(name, (self.batch, tiles, channels, height, width), self.dtype), sizes]
        frames = _number(field(self.vision, "num_frames", "frames_per_clip"), 1)
        for several in dict.fromkeys((frames, 2)):
            yield [Input(name, (self.batch, several, channels, height, width), self.dtype)]
        if frames != 1:  # the frames of a clip one after another
            yield [Input(name, (self.batch * frames, channels, height, width), self.dtype)]
        for side in _SIDES:  # where the config names no size, or one of another part
            yield [Input(name, (self.batch, channels, side, side), self.dtype)]

    def _tiled(self, name: str) -> list[Input]:
        """One picture a sequence, cut into tiles: (batch_size, 1, tiles, channels, height, width), and how it was cut."""
        channels, height, width = self._image()
        tiles = _number(field(self.vision, "max_num_tiles"), 4)
        return [
            Input(name, (self.batch, 1, tiles, channels, height, width), self.dtype),
            Input("aspect_ratio_ids", (self.batch, 1), torch.int64, self._each(1)),
            Input("aspect_ratio_mask", (self.batch, 1, tiles), torch.int64),
        ]

    def _ragged(self, name: str) -> list[Input]:
        """Pictures of several sizes, each a list of patches (batch_size, patches, channels * patch**2)."""
        patch = _number(field(self.vision, "patch_size"), 16)
        channels, height, width = self._image()
        rows, columns = height // patch, width // patch
        return [
            Input(name, (self.batch, rows * columns, channels * patch**2), self.dtype),
            Input("pixel_attention_mask", (self.batch, rows * columns), torch.int32),
            Input("spatial_shapes", (self.batch, 2), torch.int64, self._each(rows, columns)),
        ]

    def _each(self, *numbers: Any) -> Callable[[], list[Any]]:
        """The same numbers for every sequence of the batch."""
        return lambda: [[int(n) for n in numbers] for _ in range(int(self.batch))]

    def _gridded(self, name: str, grid: str) -> Iterator[list[Input]]:
        """Patches of all pictures in one list (patches, channels * frames * patch**2), and a grid that says whose they are."""
        channels, height, width = self._image()
        patch = _number(field(self.vision, "patch_size", "spatial_patch_size"), 14)
        merge = _number(field(self.vision, "spatial_merge_size", "merge_size"), 1)
        side = patch * merge
        rows, columns = (height // side) * merge, (width // side) * merge
        frames = _number(field(self.vision, "temporal_patch_size", "patch_temporal"), 1)
        grids = Input(grid, (self.batch, 3), torch.int64, self._each(1, rows, columns))
        more = []
        if "merge_sizes" in self.required:
            more = [Input("merge_sizes", (self.batch,), torch.int64, lambda: [int(merge)] * int(self.batch))]
        if "mm_token_type_ids" in self.names and "input_ids" in self.names:
            if "position_ids" in self.names:  # which it would find by looking where among the tokens the pictures are
                more.append(Input("position_ids", (3, self.batch, self.size("seq_len", 16)), torch.int64))
            else:
                more.append(Input("mm_token_type_ids", (self.batch, self.size("seq_len", 16)), torch.int64))
        count = self.batch * rows * columns
        yield [Input(name, (count, channels * frames * patch**2), self.dtype), grids, *more]
        yield [Input(name, (count, channels, patch, patch), self.dtype), grids, *more]

    def patches(self, name: str) -> Iterator[list[Input]]:
        """What a vision tower calls hidden states: patches and their grid; else states of its width."""
        if "grid_thw" in self.names:
            yield from self._gridded(name, "grid_thw")

    def flattened(self, name: str) -> Iterator[list[Input]]:
        """Patches of a picture, each with its row and column in front: (batch_size, patches, 2 + channels * patch**2)."""
        patch, channels = _number(field(self.vision, "patch_size"), 16), _number(field(self.vision, "num_channels"), 3)
        width = _number(field(self.vision, "patch_embed_hidden_size"), channels * patch**2)
        count = _number(field(self.vision, "seq_len", "max_patches"), 64)
        yield [Input(name, (self.batch, self.size("num_patches", count), 2 + width), self.dtype)]

    def videos(self, name: str) -> Iterator[list[Input]]:
        """Clips: (batch_size, frames, channels, height, width)."""
        channels, height, width = self._image()
        frames = self.size("num_frames", _number(field(self.vision, "num_frames", "frames_per_clip"), 8))
        yield [Input(name, (self.batch, frames, channels, height, width), self.dtype)]

    def _bins(self) -> Any:
        names = (
            "input_size", "num_mel_bins", "feature_projection_input_dim", "input_feat_per_channel", "n_mels", "num_mels",
            "mel_bins", "input_feat_size", "feature_size", "input_dim",
        )  # fmt: skip
        return _number(field(self.audio, *names), 80)

    def spectrograms(self, name: str) -> Iterator[list[Input]]:
        """Mel spectrograms: (batch_size, mels, frames), (batch_size, frames, mels) or with a channel."""
        bins = self._bins()
        positions = _number(field(self.audio, "max_source_positions"), 0)
        window = 2 * _number(field(self.audio, "n_window"), 0)  # which some want a multiple of
        usual = -(-_FRAMES // window) * window if window else _FRAMES
        frames = self.size("num_frames", 2 * positions if positions > 1 else usual)
        masks = [Input(m, (self.batch, frames), torch.int64) for m in ("input_features_mask",) if m in self.required]
        for shape in ((bins, frames), (frames, bins), (1, frames, bins), (1, bins, frames)):
            yield [Input(name, (self.batch, *shape), self.dtype), *masks]

    def waveforms(self, name: str) -> Iterator[list[Input]]:
        """Samples: (batch_size, samples), with a channel, or spectrograms under the same name."""
        channels = _number(field(self.audio, "audio_channels"), 1)
        bins = _number(field(self.audio, "num_mel_bins"), 0)
        if bins:
            length = _number(field(self.audio, "max_length"), 1024)
            yield [Input(name, (self.batch, self.size("num_frames", length), bins), self.dtype)]
        frames = self.size("num_frames", _SAMPLES)
        for shape in ((frames,), (channels, frames)):
            yield [Input(name, (self.batch, *shape), self.dtype)]

    def series(self, name: str) -> Iterator[list[Input]]:
        """Time series: (batch_size, steps, channels)."""
        steps = _number(field([self.config], "context_length"), 64)
        lags = field([self.config], "lags_sequence", default=[0])
        past = steps + (max(lags) if isinstance(lags, list | tuple) and lags else 0)
        channels = _number(field([self.config], "num_input_channels"), 0)
        shape = (self.batch, past, *((channels,) if channels else ()))
        found = [Input(name, shape, self.dtype)]
        features = _number(field([self.config], "num_time_features"), 0)
        if "past_time_features" in self.required:
            found.append(Input("past_time_features", (self.batch, past, features), self.dtype))
        if "past_observed_mask" in self.required:
            found.append(Input("past_observed_mask", shape, self.dtype))
        yield found
        if "past_values_padding" in self.required:
            yield [
                Input(name, (self.batch, past), self.dtype),
                Input("past_values_padding", (self.batch, past), torch.int64),
                Input("freq", (self.batch, 1), torch.int64),
            ]

    def _hidden(self) -> Iterator[list[Input]]:
        """States of the model's own width: (batch_size, seq_len, width)."""
        width = _number(field([self.config], "hidden_size", "d_model", "embed_dim", "dim", "n_embd"), 64)
        length = self.size("seq_len", 16)
        for name in (
            "inputs_embeds",
            "hidden_states",
            "decoder_inputs_embeds",
            "query_embeds",
            "hidden_state",
            "inputs",
        ):
            if name in self.names:
                yield [Input(name, (self.batch, length, width), self.dtype)]
        if "hidden_states" in self.names:
            yield [Input("hidden_states", (self.batch, width, length), self.dtype)]


__all__ = ["Input", "Inputs", "field", "sections"]
