"""What every SQLite file of ours is held to: errors that mean damage told from those that pass, and the schema that we wrote.

A schema is code: a trigger runs with every write, a view or a check with every question. So a file is opened for use only
where each thing in it is one that we would have made ourselves.
"""

from __future__ import annotations

import sqlite3

Schema = frozenset[tuple[str, str, str | None]]

#: primary result codes that say nothing of what the file holds: busy, locked, out of memory, read-only, interrupted, an error
#: of reading or writing, full, cannot be opened, a lock that others race for, too big, no permission
_PASSING = frozenset({3, 5, 6, 7, 8, 9, 10, 13, 14, 15, 18, 22, 23})
#: SQLITE_IOERR_SHORT_READ: the file ends too early
_SHORT = 522


def is_damage(error: Exception) -> bool:
    """Whether `error` says that the file itself is wrong, rather than busy, full or read-only: text that is no UTF-8 and
    tables that are missing count, and so does whatever a library raises that finds what it never wrote."""
    # closed meanwhile by another thread; text from the caller that no file can hold
    if isinstance(error, OSError | MemoryError | sqlite3.ProgrammingError | UnicodeEncodeError):
        return False
    code = getattr(error, "sqlite_errorcode", None)
    return not isinstance(code, int) or code == _SHORT or code & 0xFF not in _PASSING


def schema_of(connection: sqlite3.Connection) -> Schema:
    """Everything that the database defines: type, name, and the statement that made it."""
    return frozenset(connection.execute("SELECT type, name, sql FROM sqlite_master"))
