"""The memory and the dependencies of a pass, by running it: a small model on real tensors, every layer, no symbols.

Independent of the engine: watches torch's dispatcher, and asks before each operator which storages Python has let go.
Weak references keep the place of each from being another's. Run as a program: a JSON list of requests on the command line,
one of answers on stdout.
"""

from __future__ import annotations

import json
import sys
from typing import Any

#: what models call what they keep between passes
CACHES = ("past_key_values", "cache_params", "state")


def main() -> None:
    json.dump([answer(request) for request in json.loads(sys.argv[1])], sys.stdout)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    import torch
    import transformers
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    config = transformers.AutoConfig.for_model(request["model_type"], **request["config"])
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    kind = getattr(transformers, request["class"])
    model = kind._from_config(config, attn_implementation="eager", dtype=torch.bfloat16).eval()

    class Watch(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()
            self.time = 0
            self.born: dict[int, int] = {}
            self.last: dict[int, int] = {}
            self.size: dict[int, int] = {}
            self.before: list[int] = [0]
            self.maker: dict[int, tuple[int, str]] = {}
            self.places: dict[int, Any] = {}
            self.alive: set[int] = set()
            self.edges: list[tuple[str, str]] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = [t for t in tree_leaves((args, kwargs or {})) if isinstance(t, torch.Tensor)]
            result = func(*args, **(kwargs or {}))
            if func.is_view or func._schema.name in ("aten::_unsafe_view", "aten::detach", "aten::lift_fresh"):
                return result
            made = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
            self.look()
            self.time += 1
            name = func._schema.name.replace("::", ".")
            before = {self.maker[s] for s in map(storage, given) if s in self.maker}
            self.edges += [(maker, name) for _, maker in before]
            for tensor in made:
                key = storage(tensor)
                if key not in self.born and key not in known:
                    self.born[key] = self.time
                    # a GPU keeps mean and scale of each row in full precision
                    kept = name == "aten.native_layer_norm" and tensor is not made[0]
                    self.size[key] = tensor.numel() * (4 if kept else tensor.element_size())
                    self.places[key] = StorageWeakRef(tensor.untyped_storage())
                    self.alive.add(key)
                self.maker[key] = (self.time, name)
            return result

        def look(self) -> None:
            """What is gone was there until the operator before."""
            gone = {key for key in self.alive if self.places[key].expired()}
            self.alive -= gone
            self.last.update(dict.fromkeys(gone, self.time))
            self.before.append(sum(size for place, size in old.values() if not place.expired()))

    def storage(tensor: Any) -> int:
        return int(tensor.untyped_storage()._cdata)

    def inside(layer: Any) -> list[Any]:
        """The tensors of a layer of a cache: of an object its attributes, one tensor itself."""
        values = [layer] if isinstance(layer, torch.Tensor) else list(vars(layer).values())
        return [t for t in tree_leaves(values) if isinstance(t, torch.Tensor)]

    inputs = {
        name: torch.zeros(shape, dtype=torch.int64 if name.endswith("ids") else torch.bfloat16)
        for name, shape in request["inputs"].items()
    }
    filled: dict[str, Any] = {}
    with torch.no_grad():
        if request.get("fill"):
            before = model(torch.zeros(request["fill"], dtype=torch.int64), use_cache=True)
            filled = {name: left for name in CACHES if (left := getattr(before, name, None)) is not None}
        old = {}
        for t in (t for cache in filled.values() for layer in getattr(cache, "layers", cache) for t in inside(layer)):
            if t.dim() > 1:
                old[storage(t)] = StorageWeakRef(t.untyped_storage()), t.numel() * t.element_size()
        t = None
        known = {storage(t) for t in [*model.parameters(), *model.buffers(), *inputs.values()]}
        watch = Watch()
        with watch:
            result = model(**inputs, **filled, **request.get("options", {}))
    watch.look()
    end = watch.time + 1
    watch.last.update(dict.fromkeys(watch.alive, end))
    caches = [cache for name in CACHES if (cache := getattr(result, name, None)) is not None]
    kept: dict[int, Any] = {}
    held = [tensor for cache in caches for layer in getattr(cache, "layers", cache) for tensor in inside(layer)]
    for tensor in held:
        if tensor.dim() > 1:  # not its counters
            kept[storage(tensor)] = tensor
    peak = max(
        sum(watch.size[s] for s, born in watch.born.items() if s not in kept and born <= now <= watch.last[s])
        for now in range(1, end)
    )
    size = sum(t.numel() * t.element_size() for t in kept.values())
    whole = max(
        watch.before[now] + sum(watch.size[s] for s, born in watch.born.items() if born <= now <= watch.last[s])
        for now in range(1, end)
    )
    beneath = sum(t.untyped_storage().nbytes() for t in kept.values())
    return {"peak": peak, "cache": size, "beneath": beneath, "whole": whole, "edges": sorted(watch.edges)}


if __name__ == "__main__":
    main()
