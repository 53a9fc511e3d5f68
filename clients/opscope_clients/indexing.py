"""`opscope index`: the indexes of a session's repositories, built in the foreground with their progress shown."""

from __future__ import annotations

import time

from opscope_tools.index.build.build import build
from opscope_tools.source.storage.places import index_place

from opscope_clients import console
from opscope_clients.session_options import SessionOptions


def build_indexes(session: SessionOptions) -> None:
    """Build or bring up to date the index of each repository; raises `KeyboardInterrupt` where the user stops it."""
    workspace = session.workspace()
    folder = workspace.store.folder
    workspace.store.close()
    assert folder is not None, "a session's cache lies on disk"
    for repository in workspace.repositories.values():
        place = index_place(folder, repository)
        start, read = time.monotonic(), 0
        with console.progress(f"Indexing {repository.name}") as sink:

            def tell(done: int, total: int) -> None:
                nonlocal read
                read = total
                sink(done, total, f"{done:,} of {total:,} files")

            built = build(place, repository.root, repository.packages, progress=tell)
        took = time.monotonic() - start
        if not built:
            console.say(f"{repository.name}: another process is building this index; it is left to it.")
        elif read:
            console.say(f"{repository.name}: {read:,} files read in {took:.1f} s; the index is {place}.")
        else:
            console.say(f"{repository.name}: up to date ({place}).")
