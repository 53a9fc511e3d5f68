"""Child processes: what they inherit, what they leave behind, and that they end with whoever started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from opscope_tools.children import NOTHING, Limits, environment_for, python_module, run, scratch, scratch_folder, start

PYTHON = [sys.executable, "-c"]
#: prints its number, then waits for ever in a session of its own, deaf to what ends polite processes
STUBBORN = (
    "import os, signal, sys\nos.setsid() if os.fork() == 0 else None\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "open(sys.argv[1] + '/' + str(os.getpid()), 'w').close()\nsignal.pause()\n"
)


def gone(pid: int) -> bool:
    """Whether a process has ended: a zombie that nobody has reaped yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def until(holds: Callable[[], bool], seconds: float = 30) -> bool:
    ends = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > ends:
            return False
        time.sleep(0.02)
    return True


def numbers(folder: Path) -> list[int]:
    return [int(one.name) for one in folder.iterdir() if one.name.isdigit()]


def test_what_a_command_says_comes_back_with_its_status() -> None:
    done = run([*PYTHON, "import sys; print(sys.stdin.read() * 2); sys.exit('three')"], seconds=30, text="ab")
    assert (done.out, done.err, done.code, done.timed_out) == ("abab\n", "three\n", 1, False)


def test_the_signal_that_ended_a_program_is_its_status() -> None:
    assert run([*PYTHON, "import os; os.abort()"], seconds=30).code == -signal.SIGABRT


@pytest.mark.parametrize("command", [["/nowhere/at/all"], ["opscope-no-such-program"]])
def test_a_program_that_is_not_there_is_an_error_that_says_so(command: list[str]) -> None:
    with pytest.raises(FileNotFoundError):
        run(command, seconds=5)


def test_a_child_stands_in_a_folder_of_its_own_and_imports_nothing_from_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "opscope_planted.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}.{os.pathsep}relative")
    code = "import os, sys\ntry:\n  import opscope_planted\nexcept ImportError: print(os.getcwd(), [p for p in sys.path if not os.path.isabs(p)])"
    done = run([sys.executable, "-c", code], seconds=30)
    folder, _, relative = done.out.strip().partition(" ")
    assert relative == "[]"
    assert not Path(folder).is_relative_to(tmp_path)


def test_secrets_and_unknown_variables_stay_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "OPSCOPE_HTTP_TOKEN",
        "LD_PRELOAD",
        "PYTHONSTARTUP",
        "GIT_DIR",
        "ANYTHING",
    ):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OPSCOPE_CACHE_DIR", "/somewhere")
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.pathsep}/usr/bin{os.pathsep}/bin")
    assert "secret" not in environment_for().values()
    assert environment_for()["PATH"] == "/usr/bin:/bin"
    assert "OPSCOPE_CACHE_DIR" not in environment_for()
    own = environment_for(own=True)
    assert own["OPSCOPE_CACHE_DIR"] == "/somewhere"
    assert "secret" not in own.values()
    done = run([*PYTHON, "import json, os; print(json.dumps(dict(os.environ)))"], seconds=30)
    assert "secret" not in json.loads(done.out).values()


def test_a_command_over_its_time_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    begun = time.monotonic()
    done = run([*PYTHON, STUBBORN, str(tmp_path)], seconds=2)
    assert done.timed_out
    assert time.monotonic() - begun < 20
    assert len(numbers(tmp_path)) == 2
    assert all(gone(pid) for pid in numbers(tmp_path))


def test_a_command_that_ends_leaves_nothing_of_what_it_started(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {STUBBORN!r}, {str(tmp_path)!r}], start_new_session=True)\n"
        f"while len(os.listdir({str(tmp_path)!r})) < 2: time.sleep(0.01)\n"
    )
    assert run([*PYTHON, code], seconds=60).code == 0
    assert len(numbers(tmp_path)) == 2
    assert until(lambda: all(gone(pid) for pid in numbers(tmp_path)))


@pytest.mark.parametrize("victim", ["starter", "keeper", "program"])
def test_killing_any_process_of_a_child_leaves_no_other_behind(tmp_path: Path, victim: str) -> None:
    code = (
        "import subprocess, sys\nfrom opscope_tools.children import start\n"
        f"child = start([sys.executable, '-c', {STUBBORN.replace('os.setsid() if os.fork() == 0 else None', 'os.fork()')!r}, {str(tmp_path)!r}])\n"
        "print(child.pid, flush=True)\nchild.wait()\nchild.end()\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    keeper = int(starter.stdout.readline())
    assert until(lambda: len(numbers(tmp_path)) == 2)
    program = next(pid for pid in numbers(tmp_path) if parent(pid) == keeper)
    os.kill({"starter": starter.pid, "keeper": keeper, "program": program}[victim], signal.SIGKILL)
    try:
        assert until(lambda: all(gone(pid) for pid in (keeper, *numbers(tmp_path))))
    finally:
        starter.kill()
        starter.wait()
        starter.stdout.close()


def test_a_program_ends_with_its_keeper_also_where_nobody_is_there_to_notice(tmp_path: Path) -> None:
    waiting = "import os, signal, sys\nopen(sys.argv[1] + '/' + str(os.getpid()), 'w').close()\nsignal.pause()\n"
    code = (
        "from opscope_tools.children import start\nimport signal, sys\n"
        f"child = start([sys.executable, '-c', {waiting!r}, {str(tmp_path)!r}])\nprint(child.pid, flush=True)\nsignal.pause()\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    keeper = int(starter.stdout.readline())
    try:
        assert until(lambda: len(numbers(tmp_path)) == 1)
        os.kill(keeper, signal.SIGKILL)
        assert until(lambda: all(gone(pid) for pid in numbers(tmp_path)))
    finally:
        starter.kill()
        starter.wait()
        starter.stdout.close()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_child_lives_on_when_the_thread_that_asked_for_it_ends() -> None:
    import threading

    held = []
    thread = threading.Thread(target=lambda: held.append(start(python_module("timeit", "pass"), stdin=NOTHING)))
    thread.start()
    thread.join()
    (child,) = held
    assert child.wait(60) == 0
    child.end()
    child.stdout.close()


def test_limits_hold() -> None:
    grabbing = "x = bytearray(1 << 30)"
    assert "MemoryError" in run([*PYTHON, grabbing], seconds=30, limits=Limits(data_bytes=200 << 20)).err
    opening = "import os; [os.open(os.devnull, 0) for _ in range(200)]"
    assert "Too many open files" in run([*PYTHON, opening], seconds=30, limits=Limits(open_files=50)).err
    spinning = run([*PYTHON, "while True: pass"], seconds=60, limits=Limits(cpu_seconds=1))
    assert spinning.code in (-signal.SIGXCPU, -signal.SIGKILL)
    assert not spinning.timed_out
    writing = "open('big', 'wb').write(bytes(1 << 20))"
    assert run([*PYTHON, writing], seconds=30, limits=Limits(file_bytes=1000)).code != 0


def test_a_scratch_folder_is_gone_afterwards_and_private_before() -> None:
    with scratch_folder("test") as folder:
        assert folder.stat().st_mode & 0o077 == 0
        assert folder.parent.stat().st_mode & 0o077 == 0
        (folder / "deep/er").mkdir(parents=True)
    assert not folder.exists()


def test_the_next_start_sweeps_up_what_a_killed_process_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = "import os, signal\nfrom opscope_tools.children import scratch_folder\nwith scratch_folder('left') as f:\n  (f / 'x').touch()\n  {}"
    kill = code.format("os.kill(os.getpid(), signal.SIGKILL)")
    subprocess.run([sys.executable, "-c", kill], check=False)
    home = tmp_path / f"opscope-{os.getuid()}"
    assert {one.name.partition("-")[0] for one in home.iterdir()} == {"left"}
    living = subprocess.Popen([sys.executable, "-c", code.format("print(f, flush=True); input()")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert living.stdout is not None
        living.stdout.readline()
        scratch.sweep.cache_clear()
        scratch.sweep(home)
        assert len([one for one in home.iterdir() if one.is_dir()]) == 1  # the living one's stays
    finally:
        living.communicate(b"\n")
    assert list(home.iterdir()) == []


def test_a_folder_of_any_depth_and_mode_is_removed() -> None:
    code = (
        "import os\nfor _ in range(3000):\n  os.mkdir('d')\n  open('f', 'w').close()\n  os.chdir('d')\n"
        "os.symlink('/', 'link')\n"
    )
    with scratch_folder("deep") as folder:
        assert run([*PYTHON, code], seconds=60, folder=folder).code == 0
        (folder / "closed").mkdir()
        (folder / "closed/file").touch()
        (folder / "closed").chmod(0)
    assert not folder.exists()
    assert Path("/").is_dir()


def test_what_works_in_a_scratch_folder_cannot_keep_it_from_being_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kill = "import os, signal\nfrom opscope_tools.children import scratch_folder\nwith scratch_folder('left') as f:\n  (f / '.owner').mkdir()\n  os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", kill], check=False, env={**os.environ, "TMPDIR": str(tmp_path)})
    home = tmp_path / f"opscope-{os.getuid()}"
    assert list(home.iterdir()) != []
    scratch.sweep.cache_clear()
    scratch.sweep(home)
    assert list(home.iterdir()) == []


def test_a_scratch_home_that_is_open_to_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"opscope-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"opscope-{os.getuid()}").chmod(0o777)
    with pytest.raises(Exception, match="not a folder of yours alone"), scratch_folder("test"):
        pass
