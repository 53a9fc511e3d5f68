"""Puts values into a cache and gets them back until it is killed: `python disk_hammer.py FOLDER SEED [COUNT]`.

What stands under a key follows from the key, so a wrong value is told by anyone. Prints a line when it has begun; ends with
status 1 and a line on the first value that is wrong, and with a traceback where the cache raised.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import sys
from pathlib import Path

from opscope_cache.store import DiskStore, Store

#: keys that all processes share
KEYS = 60
#: bytes: so few that rows are evicted all the time
LIMIT = 4_000_000


def value_of(key: str) -> str:
    """The one value that may stand under `key`: some are longer than a page, some than many."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    return digest * (1 + int(digest[:3], 16) % (3000 if digest[0] == "0" else 40)) + " ä\0"


def wrong(store: Store, keys: range = range(KEYS)) -> list[str]:
    """The keys under which something else stands."""
    return [key for key in map(str, keys) if store.get(key) not in (None, value_of(key))]


def main() -> None:
    folder, seed, *count = sys.argv[1:]
    chance = random.Random(int(seed))
    store = DiskStore(Path(folder), size_limit=LIMIT)
    print("begun", flush=True)  # noqa: T201
    for turn in range(int(count[0])) if count else itertools.count():
        key = str(chance.randrange(KEYS))
        if chance.random() < 0.5:
            store.put(key, value_of(key))
        elif store.get(key) not in (None, value_of(key)):
            print(f"wrong value under {key}", flush=True)  # noqa: T201
            sys.exit(1)
        if turn % 50 == 49:
            store.close()
            store = DiskStore(Path(folder), size_limit=LIMIT)
    store.close()


if __name__ == "__main__":
    main()
