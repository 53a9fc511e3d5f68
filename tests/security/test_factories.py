"""A name in a configuration or a target runs nothing: only definitions of trusted repositories build modules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sampled import sampled
from tally import Tally

Ask = Callable[..., str]

#: functions that run a command, load code or read a file when they are called with the arguments below
FUNCTIONS = """
subprocess.call subprocess.run subprocess.Popen subprocess.check_output subprocess.getoutput os.system os.popen os.execv
os.remove os.rename os.mkdir os.posix_spawn os.startfile runpy.run_path runpy.run_module timeit.timeit timeit.repeat builtins.exec builtins.eval
builtins.compile builtins.open builtins.__import__ builtins.breakpoint builtins.getattr importlib.import_module
importlib.reload importlib.machinery.SourceFileLoader ctypes.CDLL ctypes.cdll.LoadLibrary pickle.loads pickle.load marshal.loads
shelve.open shutil.rmtree shutil.copyfile shutil.move webbrowser.open pydoc.locate pdb.run cProfile.run code.interact
code.InteractiveInterpreter asyncio.create_subprocess_shell pty.spawn multiprocessing.Process threading.Thread
functools.partial operator.methodcaller logging.config.fileConfig unittest.main doctest.testfile zipfile.ZipFile
tempfile.mkstemp pathlib.Path.write_text io.open urllib.request.urlopen socket.create_connection antigravity.geohash
torch.load torch.save torch.hub.load torch.hub.load_state_dict_from_url torch.hub._load_local torch.jit.load torch.jit.CompilationUnit
torch.compile torch.fx.GraphModule torch.package.PackageImporter torch.utils.cpp_extension.load
torch.utils.cpp_extension.load_inline torch.utils.model_zoo.load_url torch.serialization.load torch.ops.load_library
torch.classes.load_library torch.library.Library torch._dynamo.optimize torch.onnx.export torch.export.load
torch.distributed.run.main torch.distributed.elastic.multiprocessing.start_processes torch.multiprocessing.spawn
transformers.pipeline transformers.AutoModel.from_pretrained transformers.AutoConfig.from_pretrained
transformers.dynamic_module_utils.get_class_in_module transformers.dynamic_module_utils.get_class_from_dynamic_module
transformers.utils.hub.cached_file transformers.integrations.hub_kernels.get_kernel transformers.trainer.Trainer
""".split()
#: names that lead to code through what a definition is made of, or through what a trusted module merely imports
CHAINS = """
torch.nn.Linear.__init__.__globals__ torch.nn.Linear.__class__.__base__.__subclasses__ torch.nn.Linear.__init__.__globals__.os.system
torch.nn.modules.linear.math.__loader__.load_module torch.nn.init.torch.os.system torch.os.system torch.sys.modules
torch.nn.functional.importlib.import_module transformers.os.system transformers.modeling_utils.os.system
transformers.models.llama.modeling_llama.torch.hub.load transformers.configuration_utils.os.system
planted.os.system planted.runner.call planted.make_system planted.make_loaded planted.call planted.Popen planted.check_output
planted.alias_of_system planted.anonymous planted.part planted.torch.load planted.torch.os.system planted.functools.partial
planted.make_net.__globals__ planted.make_net.__code__ planted.make_net.__class__ planted.Holder.__init__
planted.Holder.make.__globals__ planted.__builtins__.exec planted.__loader__.exec_module planted.__spec__
strangers.make strange.strangers.make
""".split()
#: names that are no names, or look like one
ODD = [
    "", " ", ".", "..", "os", "os.", ".os.system", "os..system", "os.system.", "os:system", "os:system:x", ":os.system",
    "os.system()", "os.system('id')", "__import__('os').system", "lambda: 0", "os/system", "/tmp/x.py", "../x.py:make",
    "file:///tmp/x.py", "planted.make_net\0", "planted.make_net\n", "\tplanted.make_net", "planted.make_net;os.system",
    "plаnted.make_net", "ｏｓ.ｓｙｓｔｅｍ", "os.ѕystem", "planted.make_net" * 200, "planted.{make_net}",
    "planted.make_net.__call__.__self__", "subprocess.call,os.system", "%s", "${HOME}", "None", "torch.nn.Linear\u200b",
]  # fmt: skip
#: what is no text at all
NO_NAMES: list[Any] = [
    1, 1.5, True, [], ["os.system"], {"module": "os", "name": "system"}, {"factory": "os.system"}, [["os", "system"]],
]  # fmt: skip


def with_arguments(name: object, mark: Path) -> dict[str, Any]:
    """A configuration that names a function, with arguments that let it leave the mark, whichever it takes."""
    command = f"touch {mark}"
    code = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    return {
        "factory": name, "args": command, "shell": True, "command": command, "cmd": command, "stmt": code, "source": code,
        "path_name": str(mark), "f": str(mark), "name": str(mark), "path": str(mark), "mode": "w", "file": str(mark),
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", [*sampled([*FUNCTIONS, *CHAINS], 8), *ODD, *NO_NAMES], ids=lambda name: ascii(name)[:60]
)
def test_a_factory_that_no_trusted_repository_defines_is_refused(
    name: object, answer: Ask, tally: Tally, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    said = answer("count_flops", target="torch.nn.Linear", config=with_arguments(name, mark))
    assert "--trust NAME" in said or "NUL" in said
    tally.execution(mark)


@pytest.mark.parametrize(
    "name", [*sampled([*FUNCTIONS[:6], *CHAINS[:12]], 3), "planted.make_system", "planted.os.system"]
)
def test_a_factory_in_a_config_file_is_refused_too(
    name: str, answer: Ask, tally: Tally, tmp_path: Path, ground: Path
) -> None:
    mark = tmp_path / "mark"
    file = ground / "configs" / f"{tmp_path.name}.json"
    file.write_text(json.dumps(with_arguments(name, mark)))
    for target in ("torch.nn.Linear", "LlamaMLP", "llama"):
        assert "--trust NAME" in answer("count_flops", target=target, config=str(file))
    tally.execution(mark)


@pytest.mark.parametrize(
    "name", ["subprocess.call", "os.system", "torch.load", "runpy.run_path", "planted.make_system"]
)
def test_a_factory_in_a_part_of_a_configuration_calls_nothing(
    name: str, answer: Ask, tally: Tally, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    answer("inspect_model", model="llava", config={"text_config": with_arguments(name, mark)})
    tally.execution(mark)


@pytest.mark.parametrize(
    "target",
    [*sampled(FUNCTIONS, 6), *sampled(CHAINS, 4), "os.system", "subprocess.Popen", "planted.os.system", "planted.Holder", "pickle.Unpickler",
     "torch.utils.cpp_extension.BuildExtension", "torch.hub.HTTPError", "strangers.make", "__main__", "json.JSONDecoder"],
)  # fmt: skip
def test_a_target_that_is_no_module_of_the_analysed_packages_is_refused(
    target: str, answer: Ask, tally: Tally, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    said = answer(
        "count_flops", target=target, config={k: v for k, v in with_arguments("", mark).items() if k != "factory"}
    )
    assert said.count("{") == 0
    tally.execution(mark)


@pytest.mark.parametrize("tool", ["count_flops", "expand_refs", "trace_dataflow"])
@pytest.mark.parametrize(
    "given",
    [
        {"inputs": {"__class__": ["os.system"]}},
        {"inputs": {"x": ["__import__('os').system('id')"]}},
        {"inputs": {"x": ["os.system", 3]}},
        {"inputs": {"self": [2, 3]}},
        {"instance": "__import__('os').system('id')"},
        {"instance": "{0.__class__}"},
    ],
    ids=str,
)
def test_shapes_and_instances_are_never_code(
    tool: str, given: dict[str, Any], answer: Ask, tally: Tally, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    said = answer(tool, target="torch.nn.Linear", **given)
    assert "Traceback" not in said
    tally.execution(mark)


def test_a_trusted_repositorys_own_function_builds_the_module(answer: Ask) -> None:
    for name in ("planted.make_net", "planted:make_net", "planted.Holder.make"):
        said = answer(
            "count_flops", target="torch.nn.Linear", config={"factory": name, "width": 6},
            inputs={"input": ["batch_size", 6]}, values={"batch_size": 2},
        )  # fmt: skip
        assert json.loads(said)["evaluated"]["matmul_flops"] == 2 * 2 * 6 * 6
