"""Which frameworks the code is written in, by counted imports and files, and how it is executed, by the lines that show it."""

from __future__ import annotations

from collections import defaultdict

from opscope_schemas.repo_map import Counted, Place

from opscope_tools.survey.facts import FileFacts
from opscope_tools.survey.holdings import Definition, Holdings, at

#: framework -> the top-level modules whose imports show it
_IMPORTS = {
    "PyTorch": ("torch", "torchvision", "torchaudio"),
    "JAX": ("jax", "jaxlib", "flax", "haiku", "equinox", "optax", "orbax"),
    "TensorFlow": ("tensorflow", "keras", "tf_keras"),
    "MLX": ("mlx",),
    "Triton": ("triton",),
    "TileLang": ("tilelang",),
    "CuTe DSL": ("cutlass",),
    "CuPy": ("cupy",),
    "Numba": ("numba",),
    "NumPy": ("numpy",),
    "PaddlePaddle": ("paddle",),
    "MindSpore": ("mindspore",),
    "tinygrad": ("tinygrad",),
    "ONNX Runtime": ("onnxruntime",),
}
_ARRAY_FRAMEWORKS = ("PyTorch", "JAX", "TensorFlow", "MLX", "PaddlePaddle", "MindSpore", "tinygrad")
_KERNELS = ("Triton", "CUDA")
#: a framework imported by fewer files than this share of the first one's is not called a part of the hybrid
_SHARE = 0.05
#: nor one that fewer than this share of all Python files import: a helper for its users
_LEAST = 0.02
_EXECUTION = (
    "torch.compile", "CUDA graphs", "custom operators", "torch.ops calls", "persistent kernels", "TorchScript",
    "torch.export", "jax.jit", "jax control flow", "Pallas kernels", "tf.function",
)  # fmt: skip
_LOOKED_FOR = {
    "torch.compile": "torch.compile and torch._dynamo",
    "CUDA graphs": "torch.cuda.CUDAGraph, torch.cuda.graph, make_graphed_callables, cudaGraphLaunch",
    "custom operators": "torch.library, register_custom_op, CUDAExtension, TORCH_LIBRARY, PYBIND11_MODULE",
    "persistent kernels": "kernels called persistent or megakernel, a parameter NUM_SMS, cooperative launches",
}


def frameworks(held: Holdings) -> list[Counted]:
    """Each framework that source files import, the most used first; CUDA and Triton with their kernels as places."""
    found = []
    python = [facts for facts in held.source if facts.language == "python"]
    for name, modules in _IMPORTS.items():
        foreign = set(modules) - held.own
        lines = [
            (f, line)
            for f in python
            for line in sorted({one.statement for one in f.imports if one.module.partition(".")[0] in foreign})
        ]
        if modules[0] in held.own:  # the framework itself: every file of it
            lines += [(f, f.first) for f in python if f.first and held.names[f.path].partition(".")[0] == modules[0]]
        if lines:
            found.append(_counted(name, lines))
    cuda = [(facts, hit) for facts, hit in held.topic("kernel.cuda")]
    if cuda:
        places = tuple(Place(name=hit.name, at=at(facts.path, hit.line), text="__global__") for facts, hit in cuda[:3])
        files = {facts.path for facts, _ in cuda}
        found.append(Counted(name="CUDA", count=held.count("kernel.cuda"), files=len(files), places=places))
    triton = [(facts, hit) for facts, hit in held.topic("kernel.triton")]
    if triton:
        places = tuple(
            Place(name=hit.name, at=at(facts.path, hit.line), text="@triton.jit") for facts, hit in triton[:3]
        )
        files = {facts.path for facts, _ in triton}
        found = [one for one in found if one.name != "Triton"]  # its kernels say more than its imports
        found.append(Counted(name="Triton", count=held.count("kernel.triton"), files=len(files), places=places))
    return sorted(found, key=lambda one: -one.files)


def _counted(name: str, lines: list[tuple[FileFacts, int]]) -> Counted:
    places = tuple(Place(name=name, at=at(facts.path, line)) for facts, line in lines[:3])
    return Counted(name=name, count=len(lines), files=len({facts.path for facts, _ in lines}), places=places)


def verdict(found: list[Counted], files: int) -> str:
    """The frameworks in one phrase: what carries the code of so many Python files, and what its kernels are written in."""
    by_name = {one.name: one for one in found}
    arrays = [one for one in found if one.name in _ARRAY_FRAMEWORKS]
    most = max((one.files for one in arrays), default=0)
    main = [one.name for one in arrays if one.files >= max(1, most * _SHARE, files * _LEAST)]
    kernels = [name for name in _KERNELS if name in by_name and by_name[name].places and by_name[name].places[0].text]
    parts = [*main, *kernels]
    if not parts:
        return (
            "none: searched imports of "
            + ", ".join(_ARRAY_FRAMEWORKS)
            + ", Triton kernels and CUDA __global__ functions"
        )
    return f"{' + '.join(parts)}{' (hybrid)' if len(parts) > 1 else ''}"


def execution(held: Holdings) -> list[Counted]:
    """Each mode of execution with the lines that show it; the common ones also where there is none."""
    eager = _modules(held)
    found = [
        Counted(
            name="eager modules", count=len(eager), files=len({one.file.path for one in eager}),
            places=tuple(Place(name=one.name, at=one.at) for one in _largest(held, eager)[:3]),
            searched="" if eager else "classes that derive from torch.nn.Module and define forward",
        )
    ]  # fmt: skip
    for mode in _EXECUTION:
        lines: defaultdict[str, list[Place]] = defaultdict(list)
        for facts, hit in held.topic(f"exec.{mode}"):
            lines[facts.path].append(Place(name=hit.name, at=at(facts.path, hit.line), text=hit.text))
        count = held.count(f"exec.{mode}")
        if count or mode in _LOOKED_FOR:
            best = [min(places, key=lambda p: p.name != mode) for places in lines.values()]
            best.sort(key=lambda p: (p.name != mode, -len(lines[p.at.rpartition(":")[0]]), p.at))
            found.append(
                Counted(
                    name=mode, count=count, files=len(lines), places=tuple(best[:4]),
                    searched="" if count else f"{_LOOKED_FOR[mode]} in {len(held.source)} source files",
                )
            )  # fmt: skip
    return found


def _modules(held: Holdings) -> list[Definition]:
    """Classes of the source that derive from torch.nn.Module and define forward."""
    return [
        one for one in held.classes
        if not held.demoted(one.file.path) and any(m.name == "forward" for m in getattr(one.fact, "methods", ()))
        and any(base.endswith(("nn.Module", "nn.modules.module.Module")) for base in held.base_names(one))
    ]  # fmt: skip


def _largest(held: Holdings, found: list[Definition]) -> list[Definition]:
    return sorted(found, key=lambda one: (-held.importers[one.at], -one.lines, one.at))
