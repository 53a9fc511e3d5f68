"""Puts names of planted code into every field of default configurations and builds the models, with an ear on the process.

Run as a script: `sentinels.py FOLDER [--every-form] [--unfenced] TYPE...` prints one JSON object. FOLDER gets a package, a folder that looks
like a checkpoint and a module, each of which leaves a mark when it is imported or read; a hook hears of every import, open,
execution, start of a program and connection that bears one of their names. Nothing of it may happen.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGE = "opscope_sentinel_pkg"
MARKING = "from pathlib import Path\nPath({mark!r}).write_text(__name__)\n\n\ndef thing(*_, **__):\n    Path({mark!r}).touch()\n"
#: fields that configurations may hold beside those of their class
EXTRA = (
    "auto_map _name_or_path name_or_path attn_implementation _attn_implementation experts_implementation _experts_implementation"
    " quantization_config dtype torch_dtype backbone backbone_config use_pretrained_backbone use_timm_backbone backbone_kwargs"
    " trust_remote_code architectures transformers_version tokenizer_class processor_class custom_pipelines model_type factory"
    " _target_ kernel_config distributed_config hidden_act activation_function _commit_hash pruned_heads"
).split()
_EVENTS = ("import", "exec", "open", "os.listdir", "os.scandir", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn",
           "socket.connect", "socket.getaddrinfo", "ctypes.dlopen")  # fmt: skip


def planted(folder: Path) -> list[str]:
    """Plants the code; the texts that name it."""
    mark = str(folder / "MARK")
    for place in (folder / PACKAGE, folder / "opscope_sentinel_org/kernel"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "__init__.py").write_text(MARKING.format(mark=mark))
        (place / "thing.py").write_text(MARKING.format(mark=mark))
        (place / "config.json").write_text(json.dumps({"model_type": "bert", "auto_map": {"AutoModel": "thing.thing"}}))
    return [f"{PACKAGE}.thing", f"{PACKAGE}:thing", PACKAGE, "opscope_sentinel_org/kernel", str(folder / PACKAGE)]


def fields_of(config: dict[str, Any], depth: int = 0) -> Iterator[tuple[str, ...]]:
    """The path of every field, those of parts included."""
    for name, value in config.items():
        if not isinstance(name, str):
            continue
        yield (name,)
        if isinstance(value, dict) and value and depth < 2:
            yield from ((name, *inner) for inner in fields_of(value, depth + 1))


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """`value` under the path."""
    for name in reversed(path):
        value = {name: value}
    found: dict[str, Any] = value
    return found


def shapes(text: str) -> Iterator[Any]:
    """Forms in which a field may name code."""
    yield text
    yield [text]
    yield {"AutoModel": text, "model_type": text, "quant_method": text, "rope_type": text, "_target_": text}


class Ear:
    """Hears what bears the planted names, while it listens."""

    def __init__(self) -> None:
        self.on = False
        self.heard: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.on or event not in _EVENTS:
            return
        said = getattr(given[0], "co_filename", None) or repr(given) if given else ""
        if "opscope_sentinel" in said:
            self.on = False
            self.heard.append(f"{event} {said[:120]}")
            self.on = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("types", nargs="*")
    parser.add_argument(
        "--unfenced", action="store_true", help="without the fence: what the names alone are stopped by"
    )
    parser.add_argument("--every-form", action="store_true", help="each text in each form, not one after the other")
    given = parser.parse_args()
    texts = planted(given.folder)
    os.chdir(given.folder)
    sys.path.insert(0, str(given.folder))
    warnings.simplefilter("ignore")
    from opscope_schemas.errors import OpscopeError
    from opscope_tools.costing.arguments import model_spec
    from opscope_tools.running.given import check_given
    from opscope_tools.running.workspace import Workspace
    from opscope_tools.trace.protocol import ModelSpec
    from opscope_tools.trace.worker import configs, inspection, models
    from opscope_tools.trace.worker.fence import fenced
    from transformers.models.auto import configuration_auto

    with fenced(ModelSpec()):  # puts its hook before the ear's: what it stops is not heard
        pass
    workspace = Workspace.create(cache_folder=given.folder / "cache")
    ear, tried, answers, problems = Ear(), 0, {"built": 0, "refused": 0}, []
    for model_type in given.types or list(configuration_auto.CONFIG_MAPPING_NAMES):
        try:
            default = configuration_auto.CONFIG_MAPPING[model_type]()
            model_class, config_class = models.resolve(model_spec(workspace, model_type, None))[1][0]
            assert config_class is not None
        except Exception:  # a type that has no model by itself
            continue
        small = {
            n: 1
            for n in ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers")
            if hasattr(default, n)
        }
        paths = list(dict.fromkeys([*fields_of(default.to_dict()), *((name,) for name in EXTRA)]))
        for number, path in enumerate(paths):
            forms = [form for text in texts for form in shapes(text)]
            for form in forms if given.every_form else [forms[(number * 4 + len(model_type)) % len(forms)]]:
                tried += 1
                spec = ModelSpec(model_type=model_type, content={**small, **nested(path, form)})
                ear.on = True
                try:
                    check_given(spec.content)
                    with contextlib.nullcontext() if given.unfenced else fenced(spec):
                        inspection.bare(model_class, configs.made(config_class, spec))
                    answers["built"] += 1
                except OpscopeError:
                    answers["refused"] += 1
                except Exception:
                    answers["refused"] += 1
                finally:
                    ear.on = False
                if ear.heard or (given.folder / "MARK").exists():
                    problems.append(f"{model_type}.{'.'.join(path)}={form!r:.60}: {ear.heard or 'mark'}")
                    ear.heard.clear()
                    (given.folder / "MARK").unlink(missing_ok=True)
    sys.stdout.write(json.dumps({"tried": tried, **answers, "problems": problems}) + "\n")


if __name__ == "__main__":
    main()
