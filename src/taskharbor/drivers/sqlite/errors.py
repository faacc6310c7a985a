"""What SQLite raises, in the words of `core.errors`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from taskharbor.core.errors import (
    HOW_TO_MIGRATE,
    InvalidInput,
    SchemaMissing,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
    TaskHarborError,
)
from taskharbor.drivers.paths import impossible_at, is_there

BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
BROKEN: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR})
"""After one of these the connection is not worth keeping."""
_NOT_OPENED: Final = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN})
SMALLEST_DATABASE: Final = 512
LONGEST_PATH: Final = 511


def code_of(error: BaseException) -> int:
    """The primary result code of SQLite; 0 when it gave none. The extended codes add bits above the lowest byte."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


@contextmanager
def translated(path: str, *, creating: bool = False, reading: bool = False) -> Iterator[None]:
    """Raise what comes from SQLite as an error of ours. With `creating`, a missing file was to be made just now; with
    `reading`, nobody asked to write."""
    try:
        yield
    except sqlite3.Error as error:
        if creating and code_of(error) == sqlite3.SQLITE_CANTOPEN and not is_there(path):
            raise _cannot_create(path) from error
        if reading and code_of(error) in _NOT_OPENED and is_there(path) and not _writable(path):
            raise _cannot_read(path) from error
        raise translate(error, path) from error


def translate(error: BaseException, path: str) -> TaskHarborError:
    code, text = code_of(error), str(error)
    if "no such table" in text or "no such column" in text or "has no column named" in text:
        return missing_tables(path)
    if code in BUSY:
        return StoreUnavailable(
            f"{path} is locked by another program for too long: look for a transaction left open, or for a process "
            "that was stopped in the midst of one, or allow more time with ?busy_timeout=60"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM) or (
        code == sqlite3.SQLITE_CANTOPEN and is_there(path) and not _writable(path)
    ):
        return StoreReadOnly(f"{path} cannot be written: check the permissions of the file and of its directory")
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"there is no room left to write {path}: nothing of the call was kept, free some space")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _corrupt(path, text)
    if code == sqlite3.SQLITE_CANTOPEN:
        return cannot_open(path)
    return StoreError(f"SQLite refused: {text} ({getattr(error, 'sqlite_errorname', None) or 'no code'}) in {path}")


def translate_for_caller(error: BaseException) -> TaskHarborError:
    """The same for what went wrong on a connection of the caller's, to a file that need not be ours."""
    code, text = code_of(error), str(error)
    if isinstance(error, sqlite3.ProgrammingError):
        return InvalidInput(f"the connection cannot be used: {text.rstrip('.')}. Pass one that is open, in its thread")
    if code in BUSY:
        return StoreUnavailable(
            "the database of the connection is locked by another program for too long: look for a transaction left "
            "open, or give the connection more time with sqlite3.connect(…, timeout=60)"
        )
    return translate(error, "the database of the connection")


def refuse_foreign(path: str) -> None:
    """SQLite itself takes a very short file of any kind for an empty database, and would write over it. Of longer ones
    it looks at the first bytes.

    Only the size is asked for, because the file must not be opened: closing it again would drop every lock that this
    process holds on it, and the next process to leave would then delete the log that we go on writing to.
    """
    try:
        size = os.stat(path).st_size
    except OSError:
        return  # SQLite will say what is wrong with it
    if 0 < size < SMALLEST_DATABASE:
        raise _corrupt(path, "it is too short to be one")


def _corrupt(path: str, why: str) -> StoreCorrupt:
    return StoreCorrupt(f"{path} is not an SQLite database, or is damaged ({why}): restore it, or give another")


def _cannot_read(path: str) -> StoreError:
    if not _may(path, os.R_OK):
        return StoreRefused(f"{path} cannot be read by this user: give it the right to, or run this as one who has it")
    # Rights on the directory alone would be bad advice: what the reader makes there is its own, and keeps writers out.
    return StoreReadOnly(
        f"{path} cannot even be read by this user while no process that may write has it open: SQLite would have to "
        f"make {Path(path).name}-shm beside it, which the permissions forbid. Keep such a process running (a worker, "
        "or taskharbor serve), read a copy of the file, or run this as a user who may write to file and directory"
    )


def _cannot_create(path: str) -> TaskHarborError:
    parent = Path(path).parent
    if _impossible(path) or not parent.is_dir():
        return cannot_open(path)
    return StoreReadOnly(f"{path} cannot be created: check that this user may write to the directory {parent}")


def cannot_open(path: str) -> TaskHarborError:
    if wrong := _impossible(path):
        return wrong
    parent = Path(path).parent
    if not parent.is_dir():
        return StoreRefused(f"the directory {parent} does not exist: create it, or correct the path")
    if not Path(path).exists():
        return missing_tables(path)
    return StoreRefused(f"{path} cannot be opened: it must be a file that this user may read and write")


def _impossible(path: str) -> StoreRefused | None:
    if len(os.fsencode(path)) > LONGEST_PATH:
        return StoreRefused(f"SQLite opens no file whose path has more than {LONGEST_PATH} bytes: {path}")
    return impossible_at(path)


def missing_tables(path: str) -> SchemaMissing:
    return SchemaMissing(f"{path} has no TaskHarbor tables yet, or older ones: {HOW_TO_MIGRATE}")


def no_tables(path: str) -> SchemaMissing:
    return SchemaMissing(f"{path} holds no TaskHarbor tables: correct the path, or make them there: {HOW_TO_MIGRATE}")


def older_tables(path: str, found: int, needed: int) -> SchemaMissing:
    error = SchemaMissing(f"{path} has tables of version {found}, this TaskHarbor needs {needed}: {HOW_TO_MIGRATE}")
    error.older = True
    return error


def _writable(path: str) -> bool:
    return all(_may(place, os.W_OK) for place in (path, Path(path).parent))


def _may(place: str | Path, what: int) -> bool:
    return os.access(place, what, effective_ids=os.access in os.supports_effective_ids)
