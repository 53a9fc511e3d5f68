"""Faults of the disk under the cache and the index: files cut, overwritten, gone, full, read-only, in the hands of killed
processes; clocks set. What is returned is right or missing, nothing is raised, little is left over, and later writes work.

The slow ones run by `make faults`, which prints how many faults of each kind were planted.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from disk_hammer import KEYS, LIMIT, value_of, wrong
from opscope_cache.store import DiskStore, MemoryStore
from opscope_schemas.errors import OutputError
from opscope_tools.index import open_index
from opscope_tools.index.build.build import build
from opscope_tools.running.workspace import folder_repository
from opscope_tools.source.storage.places import index_place

HAMMER = Path(__file__).with_name("disk_hammer.py")
FILES = 12
#: what a cache folder may hold when all is done: the store with its three files, one that was set aside, the index's parts
LEFT_OVER = 16
PLANTED: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def tell(request: pytest.FixtureRequest) -> Iterator[None]:
    """Say at the end how many faults were planted."""
    yield
    plugins = request.config.pluginmanager
    reporter, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")
    if reporter is not None and capture is not None:
        with capture.global_and_fixture_disabled():
            reporter.write_line(
                f"\ndisk faults planted: {', '.join(f'{n} {kind}' for kind, n in sorted(PLANTED.items()))}"
            )


def many(fast: int, slow: int) -> pytest.MarkDecorator:
    """How often a fault is planted: in the normal tests, and in those behind `make faults`."""
    return pytest.mark.parametrize("times", [fast, pytest.param(slow, marks=pytest.mark.faults)])


def heals(folder: Path) -> None:
    """The cache at `folder` gives no wrong value, keeps what is written, and holds no litter. A page that is damaged is
    found when it is touched, so the store may be set aside once more after the first."""
    whole = False
    for _ in range(3):
        store = DiskStore(folder, size_limit=LIMIT)
        assert wrong(store) == []
        whole = (
            store.get(str(KEYS - 1)) is not None
            and sum(store.get(str(key)) is not None for key in range(KEYS)) > KEYS // 2
        )
        for key in map(str, range(KEYS)):
            store.put(key, value_of(key))
        assert wrong(store) == []
        store.info()
        store.close()
    assert whole
    left = [path for path in folder.rglob("*") if path.is_file()]
    assert len(left) <= LEFT_OVER, left


# ---- files that are not as they were left


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A full cache as it lies after a clean end, and as it lies when its process was killed: with a log beside it."""
    folder = tmp_path_factory.mktemp("stores")
    for name in ("closed", "killed"):
        store = DiskStore(folder / "open", size_limit=LIMIT)
        for key in map(str, range(KEYS)):
            store.put(key, value_of(key))
        if name == "closed":
            store.close()
        shutil.copytree(folder / "open", folder / name)
        store.close()
    assert list((folder / "killed").rglob("*-wal"))
    return [folder / "closed", folder / "killed"]


def damage(file: Path, chance: random.Random) -> str:
    """Cut a file short, or overwrite some of it, and say which."""
    size = file.stat().st_size
    if chance.random() < 0.5:
        os.truncate(file, chance.randrange(size + 1))
        return f"{file.suffix} cut"
    with file.open("r+b") as stream:
        for _ in range(chance.choice([1, 1, 5, 100])):
            # near the front too, where headers are
            stream.seek(chance.choice([chance.randrange(max(1, size)), chance.randrange(min(200, max(1, size)))]))
            stream.write(chance.randbytes(chance.choice([1, 8, 600])))
    return f"{file.suffix} overwritten"


@many(30, 1500)
def test_a_store_with_damaged_files_gives_no_wrong_value_and_heals(
    times: int, stores: list[Path], tmp_path: Path
) -> None:
    chance = random.Random(times)
    for number in range(times):
        folder = tmp_path / str(number)
        shutil.copytree(chance.choice(stores), folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for file in chance.sample(files, chance.randint(1, len(files))):
            PLANTED[f"store {damage(file, chance)}"] += 1
        heals(folder)
        shutil.rmtree(folder)


@many(15, 500)
def test_a_store_that_is_damaged_while_it_is_open_gives_no_wrong_value_and_heals(
    times: int, stores: list[Path], tmp_path: Path
) -> None:
    """But for one fault: a process whose shared index of the log (`-shm`) is cut short under it is ended by the system."""
    chance = random.Random(times)
    for number in range(times):
        folder = tmp_path / str(number)
        shutil.copytree(chance.choice(stores), folder)
        store = DiskStore(folder, size_limit=LIMIT)
        for turn in range(3):
            files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".db-shm"]
            PLANTED[f"open store {damage(chance.choice(files), chance)}"] += 1
            assert wrong(store, range(turn, KEYS, 3)) == []
            store.put(str(turn), value_of(str(turn)))
        store.close()
        heals(folder)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    for number in range(FILES):
        base = f"from m{number - 1} import C{number - 1}\n__all__ = ['C{number}']\n" if number else ""
        (root / f"m{number}.py").write_text(
            f"{base}class C{number}({f'C{number - 1}' if number else 'object'}):\n    def f(self): return word_{number % 3}\n"
        )
    return root


def ask(root: Path, folder: Path | None) -> object:
    """What the index says of many things; the same whether it is whole, damaged or none."""
    index = open_index([folder_repository("mine", root)], MemoryStore(folder))
    (tree,) = index.resolver.trees
    found = [
        [index.one(f"C{number}").line for number in range(FILES)],
        index.mro(index.one(f"C{FILES - 1}")),
        [tree.files_mentioning(word) for word in ("word_1", "C3", "nothing")],
        [tree.textual_subclasses(f"C{number}") for number in range(FILES)],
        [tree.files_exporting(f"C{number}", "") for number in range(FILES)],
        sorted(tree.class_names()),
        index.submodules(index.one("C3")),
    ]
    index.close()
    return found


@pytest.fixture(scope="module")
def indexes(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The cache folder with an index as it lies after a build, and as it lies when a server that used it was killed."""
    folder = tmp_path_factory.mktemp("indexes")
    shown = folder_repository("mine", repository)
    assert build(index_place(folder / "closed", shown), repository)
    open_one = open_index([shown], MemoryStore(folder / "open"))
    open_one.one("C3")
    shutil.copytree(folder / "open", folder / "killed")
    open_one.close()
    return [folder / "closed", folder / "killed"]


def resealed(folder: Path) -> None:
    """Seal a copy: an index that was copied has another inode, and would be made anew for that alone."""
    from opscope_cache.trees import signature
    from opscope_tools.source.storage.sealed_files import seal_of

    for place in folder.rglob("*.sqlite"):
        seal_of(place).write_bytes(signature(place.stat()))


@many(20, 600)
def test_an_index_with_damaged_files_gives_the_answers_of_a_whole_one(
    times: int, repository: Path, indexes: list[Path], tmp_path: Path
) -> None:
    expected = ask(repository, None)
    chance = random.Random(times)
    for number in range(times):
        folder = tmp_path / str(number)
        shutil.copytree(chance.choice(indexes), folder)
        resealed(folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
        for file in chance.sample(files, chance.randint(1, 2)):
            PLANTED[f"index {damage(file, chance)}"] += 1
        assert ask(repository, folder) == expected
        assert ask(repository, folder) == expected
        shutil.rmtree(folder)


# ---- folders that change under an open cache


@pytest.mark.parametrize("what", ["removed", "a file instead", "a link instead", "another's folder instead", "whole folder removed"])  # fmt: skip
def test_a_folder_that_changes_under_an_open_store_heals(what: str, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    store = DiskStore(folder)
    store.put("1", value_of("1"))
    (place,) = folder.glob("store-*")
    shutil.rmtree(folder if what == "whole folder removed" else place)
    if what == "a file instead":
        place.write_text("no folder")
    elif what == "a link instead":
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    elif what == "another's folder instead":
        place.mkdir()
        place.chmod(0o777)
    PLANTED[f"store {what}"] += 1
    assert store.get("1") is None
    store.put("1", value_of("1"))
    store.put("1", value_of("1"))  # the first may have found out
    assert store.get("1") == value_of("1")
    store.close()
    assert not list(tmp_path.glob("elsewhere/*"))
    heals(folder)


def test_an_index_whose_file_is_removed_under_it_is_written_again(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opscope_tools.source.storage.database._LOOK", 0.0)
    expected = ask(repository, None)
    index = open_index([folder_repository("mine", repository)], MemoryStore(tmp_path))
    assert index.one("C3").line == 3
    place = index_place(tmp_path, folder_repository("mine", repository))
    shutil.rmtree(place.parent)
    PLANTED["index removed"] += 1
    assert index.one("C4").line == 3
    assert place.exists()
    index.close()
    assert ask(repository, tmp_path) == expected


def test_a_file_in_the_place_of_the_cache_folder_is_one_sentence_and_later_none(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").write_text("mine")
    store.put("1", value_of("1"))
    assert store.get("1") is None
    store.close()
    with pytest.raises(OutputError, match=r"cannot be used.*--cache-dir"):
        DiskStore(tmp_path / "cache")
    assert (tmp_path / "cache").read_text() == "mine"


# ---- clocks


@pytest.mark.parametrize("years", [-30, 30])
def test_a_clock_that_is_set_does_not_keep_new_entries_out(
    years: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that filled up while the clock was ahead would evict each new entry before the old ones."""
    now = time.time()
    with monkeypatch.context() as other_time:
        other_time.setattr(time, "time", lambda: now + years * 365.25 * 86_400)
        store = DiskStore(tmp_path, size_limit=LIMIT)
        for number in range(60):
            store.put(f"then {number}", "x" * 100_000)
        store.close()
    PLANTED["clock set"] += 1
    store = DiskStore(tmp_path, size_limit=LIMIT)
    for number in range(15):
        store.put(f"now {number}", "y" * 100_000)
    assert [number for number in range(15) if store.get(f"now {number}") is None] == []
    store.close()


# ---- no room, no right


@cache
def no_namespaces() -> str:
    """Why there can be no file system of our own here; empty where there can."""
    if not sys.platform.startswith("linux") or not shutil.which("unshare"):
        return "needs Linux namespaces (util-linux's unshare)"
    tried = subprocess.run(
        ["unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True, check=False
    )
    return "" if tried.returncode == 0 else f"no file systems of our own here: {tried.stderr.strip()[-200:]}"


def mounted(folder: Path, options: str, command: str, **environment: str) -> str:
    """What a shell command prints where `folder` is a file system in memory."""
    if why := no_namespaces():
        pytest.skip(why)
    script = f'mount -t tmpfs -o {options} none "$FOLDER"\n{command}'
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-ec", script], capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "FOLDER": str(folder), "PYTHON": sys.executable, "HAMMER": str(HAMMER), **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("size", ["16k", "64k", "100k", "300k", "1m"])
def test_a_full_disk_costs_entries_only(size: str, tmp_path: Path) -> None:
    PLANTED["disk full"] += 1
    told = mounted(
        tmp_path, f"size={size}",
        '$PYTHON "$HAMMER" "$FOLDER/cache" 1 150; head -c 90k /dev/zero > "$FOLDER/filler" 2>/dev/null || true;'
        ' $PYTHON "$HAMMER" "$FOLDER/cache" 2 150; rm "$FOLDER/filler"; mount -o remount,size=20m "$FOLDER";'
        ' $PYTHON "$HAMMER" "$FOLDER/cache" 3 300;'
        ' $PYTHON -c "import sys; from pathlib import Path; from disk_hammer import *; s = DiskStore(Path(sys.argv[1]));'
        " s.put('1', value_of('1')); assert s.get('1') == value_of('1'); assert wrong(s) == []; s.close()\""
        ' "$FOLDER/cache"',
        PYTHONPATH=str(HAMMER.parent),
    )  # fmt: skip
    assert told == "begun\n" * 3


INDEX_QUESTIONS = """
import sys; from pathlib import Path
from test_disk_faults import ask
from opscope_tools.index.build.build import build
from opscope_tools.source.storage.places import index_place
from opscope_tools.running.workspace import folder_repository
root, folder = map(Path, sys.argv[1:])
expected = ask(root, None)
for _ in range(2):
    assert ask(root, folder) == expected
print("answered")
"""


@pytest.mark.parametrize("options", ["size=16k", "size=64k", "size=200k", "size=1m,ro"])
def test_an_index_without_room_answers_the_same(options: str, repository: Path, tmp_path: Path) -> None:
    PLANTED["disk full or read-only under the index"] += 1
    told = mounted(
        tmp_path, options, '$PYTHON -c "$QUESTIONS" "$ROOT" "$FOLDER/cache"',
        QUESTIONS=INDEX_QUESTIONS, ROOT=str(repository), PYTHONPATH=str(HAMMER.parent),
    )  # fmt: skip
    assert told == "answered\n"


def test_a_disk_that_becomes_read_only_costs_entries_only(tmp_path: Path) -> None:
    PLANTED["disk read-only"] += 1
    told = mounted(
        tmp_path, "size=20m",
        '$PYTHON "$HAMMER" "$FOLDER/cache" 1 100; mount -o remount,ro "$FOLDER"; $PYTHON "$HAMMER" "$FOLDER/cache" 2 20;'
        ' mount -o remount,rw "$FOLDER"; $PYTHON "$HAMMER" "$FOLDER/cache" 3 100',
    )  # fmt: skip
    assert told == "begun\n" * 3


@pytest.mark.parametrize("limit", [0, 5_000, 60_000, 400_000])
def test_a_limit_on_the_size_of_files_costs_entries_only(limit: int, tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    PLANTED["file size limited"] += 1
    done = subprocess.run(
        [sys.executable, str(HAMMER), str(tmp_path / "cache"), "1", "150"],
        capture_output=True, text=True, timeout=300, check=False, preexec_fn=limited,
    )  # fmt: skip
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "begun\n")
    heals(tmp_path / "cache")


# ---- killed processes


@many(8, 160)
def test_killed_processes_leave_a_cache_that_gives_no_wrong_value_and_heals(times: int, tmp_path: Path) -> None:
    """Eight processes put and get; one after another is killed, and another takes its place."""
    chance = random.Random(times)
    folder = tmp_path / "cache"
    said = (tmp_path / "said").open("w+")

    def start(seed: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(HAMMER), str(folder), str(seed)], stdout=said, stderr=said)

    running = [start(seed) for seed in range(8)]
    try:
        for number in range(times):
            _wait_for_begun(said.name, 8 + number // 2)
            time.sleep(chance.random() * 0.05)  # a random moment is what is wanted
            victim = running.pop(chance.randrange(len(running)))
            victim.send_signal(signal.SIGKILL)
            assert victim.wait() == -signal.SIGKILL, Path(said.name).read_text()
            PLANTED["process killed"] += 1
            running.append(start(100 + number))
        assert [process.poll() for process in running] == [None] * 8, Path(said.name).read_text()
    finally:
        for process in running:
            process.kill()
            process.wait()
        said.close()
    assert set(Path(said.name).read_text().split("\n")) <= {"begun", ""}
    heals(folder)


def _wait_for_begun(file: str, count: int) -> None:
    end = time.monotonic() + 120
    while Path(file).read_text().count("begun") < count:
        assert time.monotonic() < end, Path(file).read_text()
        time.sleep(0.01)  # a bounded wait for other processes


def test_two_threads_that_open_one_store_at_once_both_work(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    store = DiskStore(tmp_path)

    def work(number: int) -> str | None:
        if number % 5 == 0:
            shutil.rmtree(tmp_path, ignore_errors=True)
            PLANTED["store removed under threads"] += 1
        store.put(str(number), value_of(str(number)))
        return store.get(str(number))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(40)))
    assert all(value in (None, value_of(str(number))) for number, value in enumerate(found))
    store.close()
    heals(tmp_path)
