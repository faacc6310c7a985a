"""What can be wrong with a SQLite file and the library that reads it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from taskharbor.cli.findings import Finding, ok, problem, warning
from taskharbor.cli.peek import select

OLD: Final = (3, 38, 0)
LARGE_LOG_BYTES: Final = 256 * 1024**2


def version(driver: Any) -> Iterator[Finding]:
    said = f"SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < OLD:
        yield warning("version", said, "use a Python built with SQLite 3.38 or newer")
    else:
        yield ok("version", said)


def journal(driver: Any) -> Iterator[Finding]:
    mode = str(select(driver, "PRAGMA journal_mode")[0][0])
    if mode != "wal":
        cure = f"stop what uses the file, then: sqlite3 {driver._path} 'PRAGMA journal_mode = wal'"
        yield problem("journal mode", f"{mode}: readers and writers hold each other up", cure)
    else:
        yield ok("journal mode", mode)
    log = Path(f"{driver._path}-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > LARGE_LOG_BYTES:
        cure = "find the process that keeps a read transaction open (lsof), and end the transaction"
        yield warning("write-ahead log", f"{size / 1024**2:,.0f} MiB: something holds back its cleanup", cure)


def intact(driver: Any) -> Iterator[Finding]:
    """A quick look only: the whole check reads the whole file."""
    pages, size = int(select(driver, "PRAGMA page_count")[0][0]), int(select(driver, "PRAGMA page_size")[0][0])
    free = int(select(driver, "PRAGMA freelist_count")[0][0])
    yield ok("size", f"{pages * size / 1024**2:,.1f} MiB, {free * size / 1024**2:,.1f} of it free for use")


CHECKS: Final[tuple[Callable[[Any], Iterator[Finding]], ...]] = (version, journal, intact)
