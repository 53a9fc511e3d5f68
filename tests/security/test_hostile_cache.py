"""A cache that somebody else wrote: nothing in it is run, no file outside its folder is opened, changed or removed, and the
next call gets its answer."""

from __future__ import annotations

import builtins
import contextlib
import os
import pickle
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import diskcache
import pytest
from opscope_cache import textcache
from opscope_cache.store import DiskStore, MemoryStore
from opscope_cache.trees import signature
from opscope_schemas.errors import OpscopeError, OutputError
from opscope_tools.index import open_index
from opscope_tools.index.build.build import build
from opscope_tools.running.workspace import folder_repository
from opscope_tools.source.python.rows import decode, decode_lines
from opscope_tools.source.storage.places import index_place
from opscope_tools.source.storage.sealed_files import seal_of

_EVENTS = frozenset({"pickle.find_class", "marshal.load", "marshal.loads", "open"})
_heard: list[str] | None = None


def _listen(event: str, arguments: tuple[object, ...]) -> None:
    if _heard is not None and event in _EVENTS:
        _heard.append(f"{event} {arguments[0] if arguments else ''}")


sys.addaudithook(_listen)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What is unpickled, and what files Python opens, while the test runs."""
    global _heard
    _heard = []
    yield _heard
    _heard = None


class Bomb:
    """Writes its sentinel when it is unpickled."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return builtins.open, (str(self.sentinel), "w")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file outside of the cache that is to stay as it is."""
    (tmp_path / "home").mkdir()
    file = tmp_path / "home/victim.txt"
    file.write_text("precious")
    return file


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder with one good entry."""
    folder = tmp_path / "cache"
    store = DiskStore(folder)
    store.put("good", "text")
    store.close()
    return folder


def database(folder: Path) -> Path:
    (found,) = (file for file in folder.glob("store-*/cache.db") if ".damaged-" not in str(file))
    return found


def plant(folder: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(database(folder), isolation_level=None)) as connection:
        connection.execute(statement, values)


def use(folder: Path) -> None:
    """Everything that opscope does with a store."""
    store = DiskStore(folder, size_limit=1_000_000)
    for key in ("good", "bad", "other"):
        store.get(key)
    assert all(map(str.isascii, [*store.keys()]))
    store.info()
    for number in range(60):  # past the limit: rows are evicted
        store.put(f"{number}", "x" * 20_000)
    store.put("bad", "mended")
    assert store.get("bad") == "mended"
    store.clear()
    store.put("bad", "again")
    assert store.get("bad") == "again"
    store.close()


ROW = "INSERT OR REPLACE INTO Cache(key, raw, store_time, access_time, size, mode, filename, value) VALUES(?, ?, 1, 1, ?, ?, ?, ?)"


@pytest.mark.parametrize("raw", [0, 1])
@pytest.mark.parametrize("where", ["value", "key", "both"])
def test_a_pickle_in_a_row_is_never_read(where: str, raw: int, cache: Path, tmp_path: Path) -> None:
    sentinel = tmp_path / "ran"
    bomb = sqlite3.Binary(pickle.dumps(Bomb(sentinel)))
    key = bomb if where in ("key", "both") else "bad"
    plant(cache, ROW, key, raw, 0, 4, None, bomb if where in ("value", "both") else "text")
    use(cache)
    assert not sentinel.exists()


def test_the_attack_works_on_diskcache_as_it_comes(cache: Path, tmp_path: Path) -> None:
    """What the tests here plant is live: without our `Disk` it runs."""
    sentinel = tmp_path / "ran"
    plant(cache, ROW, "bad", 1, 0, 4, None, sqlite3.Binary(pickle.dumps(Bomb(sentinel))))
    with diskcache.Cache(str(database(cache).parent)) as plain:
        plain.get("bad").close()
    assert sentinel.exists()


@pytest.mark.parametrize("mode", [1, 2, 3, 4])
@pytest.mark.parametrize("how", ["dots", "absolute", "a link inside", "a linked folder"])
def test_a_file_that_a_row_names_is_not_opened_read_or_removed(
    how: str, mode: int, cache: Path, victim: Path, heard: list[str]
) -> None:
    place = database(cache).parent
    if how == "a link inside":
        (place / "link.val").symlink_to(victim)
    elif how == "a linked folder":
        (place / "ab").symlink_to(victim.parent)
    names = {"dots": "../../home/victim.txt", "absolute": str(victim), "a link inside": "link.val", "a linked folder": "ab/victim.txt"}  # fmt: skip
    sentinel = victim.parent / "ran"
    pickled = victim.parent / "pickled.val"
    pickled.write_bytes(pickle.dumps(Bomb(sentinel)))
    name = names[how] if mode != 4 else names[how].replace("victim.txt", "pickled.val")
    plant(cache, ROW, "bad", 1, 5, mode, name, None)
    plant(cache, ROW, "old", 1, 5, mode, name, None)  # never asked for: evicted
    plant(cache, "UPDATE Cache SET expire_time = 2 WHERE key = 'old'")
    heard.clear()
    use(cache)
    assert not [one for one in heard if "victim" in one or "pickle" in one]
    assert victim.read_text() == "precious"
    assert pickled.exists()
    assert not sentinel.exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("disk_pickle_protocol", b"\x80"), ("disk__directory", "/"), ("disk_min_file_size", "0"), ("_directory", "/"),
        ("directory", "/"), ("sqlite_temp_store_directory", "'/'"), ("sqlite_journal_mode", b"delete"), ("count", "many"),
        ("size", 1 << 60), ("size_limit", None), ("get", "text"), ("_timeout", 7), (b"disk", b"\x80\x05."), ("eviction_policy", 7),
    ],
)  # fmt: skip
def test_settings_of_the_file_are_not_taken(key: object, value: object, cache: Path) -> None:
    plant(cache, "INSERT OR REPLACE INTO Settings VALUES(?, ?)", key, value)
    use(cache)
    store = DiskStore(cache, size_limit=123_456)
    assert store.info().limit_bytes == 123_456
    store.put("a", "b")
    assert store.get("a") == "b"
    store.close()
    settings = dict(sqlite3.connect(database(cache)).execute("SELECT key, value FROM Settings"))
    assert settings["size_limit"] == 123_456
    assert set(settings) == set(diskcache.core.DEFAULT_SETTINGS | diskcache.core.METADATA)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER evil AFTER UPDATE ON Cache BEGIN UPDATE Cache SET value = 'forged'; END",
        "CREATE VIEW more AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n",
        "CREATE TABLE more(x CHECK (length(hex(zeroblob(100000000)))))",
        "CREATE INDEX more ON Cache(length(hex(zeroblob(size))))",
    ],
)
def test_a_schema_that_is_not_ours_is_not_used(statement: str, cache: Path) -> None:
    plant(cache, statement)
    store = DiskStore(cache)
    assert store.get("good") is None
    store.put("good", "text")
    assert store.get("good") == "text"
    store.close()
    names = {name for (name,) in sqlite3.connect(database(cache)).execute("SELECT name FROM sqlite_master")}
    assert not names & {"evil", "more"}


def test_a_view_in_the_place_of_the_table_does_not_run_for_ever(cache: Path) -> None:
    file = database(cache)
    file.unlink()
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            "CREATE TABLE Settings(key TEXT NOT NULL UNIQUE, value);"
            "CREATE VIEW Cache AS WITH RECURSIVE n(key) AS (SELECT 1 UNION ALL SELECT key + 1 FROM n) SELECT key, 1 AS raw FROM n;"
        )
    use(cache)


def test_swapped_values_are_noticed(cache: Path) -> None:
    store = DiskStore(cache)
    store.put("other", "another text")
    store.close()
    with closing(sqlite3.connect(database(cache), isolation_level=None)) as connection:
        (one,), (two,) = connection.execute("SELECT value FROM Cache ORDER BY key")
        connection.execute("UPDATE Cache SET value = ? WHERE key = 'good'", (two,))
        connection.execute("UPDATE Cache SET value = ? WHERE key = 'other'", (one,))
    store = DiskStore(cache)
    assert (store.get("good"), store.get("other")) == (None, None)
    assert sorted(store.keys()) == []  # dropped
    store.close()


@pytest.mark.parametrize("part", ["cache.db", "cache.db-wal", "cache.db-shm", "cache.db-journal"])
@pytest.mark.parametrize("how", ["link", "second name"])
def test_a_file_of_the_database_that_is_another_file_is_not_touched(
    part: str, how: str, cache: Path, tmp_path: Path
) -> None:
    place = database(cache).parent
    other = tmp_path / "home.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE mine(x)")
    before = other.read_bytes()
    (place / part).unlink(missing_ok=True)
    if how == "link":
        (place / part).symlink_to(other)
    else:
        os.link(other, place / part)
    use(cache)
    assert other.read_bytes() == before


def test_a_journal_does_not_have_another_file_removed(cache: Path, victim: Path) -> None:
    """SQLite removes the super-journal that a hot journal names once it has played it back."""
    place = database(cache).parent
    name = str(victim).encode()
    pages = database(cache).stat().st_size // 4096
    header = bytes.fromhex("d9d505f920a163d7") + b"".join(n.to_bytes(4, "big") for n in (0, 0, pages, 512, 4096))
    tail = (0x40000001).to_bytes(4, "big") + name + len(name).to_bytes(4, "big")
    total = sum(byte if byte < 128 else byte - 256 for byte in name) & 0xFFFFFFFF
    journal = header.ljust(512, b"\0") + tail + total.to_bytes(4, "big") + header[:8]
    (place / "cache.db-journal").write_bytes(journal)
    with closing(sqlite3.connect(_copied(place, victim.parent.parent / "copy") / "cache.db")) as plain:
        plain.execute("SELECT count(*) FROM sqlite_master").fetchone()
    assert not victim.exists()  # the attack is live
    victim.write_text("precious")
    use(cache)
    assert victim.read_text() == "precious"


def _copied(place: Path, folder: Path) -> Path:
    folder.mkdir()
    for file in ("cache.db", "cache.db-journal"):
        (folder / file).write_bytes((place / file).read_bytes())
    return folder


def test_what_an_older_version_left_is_not_read(tmp_path: Path) -> None:
    sentinel = tmp_path / "ran"
    with diskcache.Cache(str(tmp_path / "cache/store-1")) as old:
        old.set("good", "old")
        old.set("bad", Bomb(sentinel))
    before = sorted(path.name for path in (tmp_path / "cache/store-1").rglob("*"))
    store = DiskStore(tmp_path / "cache")
    assert store.get("good") is None
    store.clear()
    store.close()
    assert sorted(path.name for path in (tmp_path / "cache/store-1").rglob("*")) == before
    assert not sentinel.exists()


# ---- who may write


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_folders_and_files_are_the_users_alone_whatever_the_umask(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    (root / "a.py").write_text("class A: pass\n")
    repository = folder_repository("mine", root)
    store = DiskStore(tmp_path / "cache")
    store.put("key", "x" * 1_000_000)
    assert build(index_place(tmp_path / "cache", repository), root)
    index = open_index([repository], store)
    assert index.one("A").line == 1
    modes = {
        str(path.relative_to(tmp_path / "cache")): stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "cache").rglob("*")
    }
    assert {mode for path, mode in modes.items() if (tmp_path / "cache" / path).is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if (tmp_path / "cache" / path).is_file()} == {0o600}
    assert any(path.endswith("-wal") for path in modes)
    assert any(path.endswith("-shm") for path in modes)
    index.close()
    store.close()


@pytest.mark.parametrize(
    ("mode", "kept"), [(0o755, True), (0o700, True), (0o777, False), (0o720, False), (0o702, False)]
)
def test_a_folder_that_others_could_write_is_set_aside_and_one_that_they_could_read_is_tightened(
    mode: int, kept: bool, cache: Path
) -> None:
    place = database(cache).parent
    place.chmod(mode)
    store = DiskStore(cache)
    assert store.get("good") == ("text" if kept else None)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    store.put("good", "text")
    assert store.get("good") == "text"
    store.close()


def test_a_database_that_others_could_write_is_set_aside(cache: Path) -> None:
    database(cache).chmod(0o666)
    store = DiskStore(cache)
    assert store.get("good") is None
    assert stat.S_IMODE(database(cache).stat().st_mode) == 0o600
    store.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_a_folder_of_another_user_is_left_alone(cache: Path) -> None:
    place = database(cache).parent
    os.chown(place, 12345, -1)
    before = database(cache).read_bytes()
    with pytest.raises(OutputError, match=r"another user.*--cache-dir"):
        DiskStore(cache)
    assert database(cache).read_bytes() == before


def test_a_link_in_the_place_of_the_folder_is_not_followed(cache: Path, tmp_path: Path) -> None:
    place = database(cache).parent
    place.rename(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere/cache.db").read_bytes()
    place.symlink_to(tmp_path / "elsewhere")
    use(cache)
    DiskStore(cache).close()
    place.chmod(0o777)
    use(cache)  # what was set aside first, the link, goes now
    assert (tmp_path / "elsewhere/cache.db").read_bytes() == before
    assert not place.is_symlink()


# ---- the index


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.py").write_text("class A:\n    def forward(self): return 1\n")
    (folder / "b.py").write_text("from a import A\n__all__ = ['B']\nclass B(A): pass\n")
    return folder


@pytest.fixture
def place(root: Path, tmp_path: Path) -> Path:
    found = index_place(tmp_path / "cache", folder_repository("mine", root))
    assert build(found, root)
    return found


def ask(root: Path, folder: Path | None) -> object:
    index = open_index([folder_repository("mine", root)], MemoryStore(folder))
    (tree,) = index.resolver.trees
    found = (
        index.one("A").line, index.one("B").file, index.mro(index.one("B")), tree.files_mentioning("forward"),
        tree.textual_subclasses("A"), tree.files_exporting("B", "."), sorted(tree.class_names()),
    )  # fmt: skip
    index.close()
    return found


def forge(place: Path, *statements: str, values: tuple[object, ...] = ()) -> None:
    """Change an index as who knows of the seal would."""
    with closing(sqlite3.connect(place, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement, values)
    seal_of(place).write_bytes(signature(place.stat()))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE files SET path = '../home/' || path",
        "UPDATE files SET path = NULL, signature = 7",
        "UPDATE files SET signature = 'text', rows = 'text', errors = 1.5",
        "UPDATE classes SET line = 'far', path = x'00ff', name = CAST(x'41ff' AS TEXT)",
        "UPDATE classes SET line = 9223372036854775807",
        "UPDATE bases SET class = NULL",
        "UPDATE exports SET file = -1",
        "UPDATE segment SET file = -file, signature = NULL",
        "UPDATE words SET files = CAST(x'ff' AS TEXT)",
        "UPDATE words SET files = zeroblob(45)",
        "DROP TABLE classes",
        "CREATE TRIGGER evil AFTER UPDATE ON files BEGIN DELETE FROM classes; END",
        "CREATE VIEW more AS SELECT 1",
    ],
)
def test_a_forged_index_names_no_file_outside_and_raises_nothing(
    statement: str, place: Path, root: Path, victim: Path, heard: list[str]
) -> None:
    for name in ("a.py", "b.py"):
        (victim.parent / name).write_text("class A: secret = 1\n")
    forge(place, statement)
    heard.clear()
    with contextlib.suppress(OpscopeError):  # a forger can have a class go missing, not more
        ask(root, place.parent.parent)
    with closing(sqlite3.connect(place)) as connection:
        assert not {"evil", "more"} & {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert not [one for one in heard if "home" in one or "pickle" in one]


def test_a_file_outside_that_a_forged_index_names_is_not_read_where_it_cannot_be_mended(
    place: Path, root: Path, victim: Path, heard: list[str]
) -> None:
    """Entries of files that are gone are dropped at the first question; here another process has the index busy."""
    for name in ("a.py", "b.py"):
        (victim.parent / name).write_text("class A: secret = 1\n__all__ = ['B']\nclass B(A): pass\n")
    forge(place, "UPDATE files SET path = '../home/' || path")
    with closing(sqlite3.connect(place, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        heard.clear()
        assert ask(root, place.parent.parent) == ask(root, None)
        other.execute("ROLLBACK")
    assert not [one for one in heard if "home" in one]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE files SET rows = (SELECT rows FROM files WHERE path = 'a.py')",
        "UPDATE files SET rows = substr(rows, 1, length(rows) - 1)",
        "UPDATE files SET rows = substr(rows, 1, 40) || x'95' || substr(rows, 42)",
        "UPDATE words SET files = (SELECT files FROM words WHERE length(files) > 41 LIMIT 1)",
    ],
)
def test_a_blob_that_is_another_or_damaged_is_read_again_from_the_source(
    statement: str, place: Path, root: Path
) -> None:
    forge(place, statement)
    assert ask(root, place.parent.parent) == ask(root, None)


def test_a_forged_index_without_its_seal_is_made_anew(place: Path, root: Path) -> None:
    expected = ask(root, place.parent.parent)
    with closing(sqlite3.connect(place, isolation_level=None)) as connection:
        connection.execute("UPDATE classes SET name = 'Z' || name")
        connection.execute("UPDATE words SET files = zeroblob(5)")
    assert ask(root, place.parent.parent) == expected


@pytest.mark.parametrize("part", ["", "-wal", "-shm", "-journal", ".seal", ".lock"])
def test_a_link_in_the_place_of_an_indexs_file_is_not_followed(
    part: str, place: Path, root: Path, victim: Path
) -> None:
    expected = ask(root, place.parent.parent)
    linked = place.with_name(place.name + part)
    linked.unlink(missing_ok=True)
    linked.symlink_to(victim)
    assert ask(root, place.parent.parent) == expected
    (root / "a.py").write_text("class A:\n    def forward(self): return 2\n")
    if part != ".lock":
        assert build(place, root)
    else:
        with pytest.raises(OSError, match="symbolic"):
            build(place, root)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    "blob",
    [b"", b"\xdd\xff\xff\xff\xff", b"\x95" + b"\x91" * 100_000, b"\x95\xdb\xff\xff\xff\xff", b"\x95\x90\xc0\xc0\xc3\xa1\xff", b"c\x00\x00"],
)  # fmt: skip
def test_bytes_that_are_no_rows_are_refused(blob: bytes) -> None:
    assert decode(blob) is None
    assert decode_lines(blob) is None


def test_nothing_that_reads_the_cache_can_decode_code() -> None:
    """No module of the cache or of the index's storage imports pickle, marshal or shelve."""
    import opscope_cache
    import opscope_tools.index.modules.kept_rows as kept
    import opscope_tools.source.python.rows as rows
    import opscope_tools.source.storage.database as storage

    folders = [Path(next(iter(opscope_cache.__path__))), Path(storage.__file__).parent]
    for file in (
        *(file for folder in folders for file in folder.glob("*.py")), Path(rows.__file__), Path(kept.__file__)
    ):  # fmt: skip
        text = file.read_text()
        assert not [word for word in ("import pickle", "import marshal", "import shelve") if word in text], file


def test_a_key_or_value_that_is_no_text_is_a_mistake_of_ours() -> None:
    disk = textcache.TextDisk("/")
    with pytest.raises(AssertionError):
        disk.put(b"bytes")  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        disk.store({"a": 1}, False, key="k")  # type: ignore[arg-type]
