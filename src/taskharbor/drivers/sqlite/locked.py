"""Waiting for whoever has locked the file.

SQLite waits in C, where Python hears of no signal: Ctrl-C would be heeded only when the whole `busy_timeout` is over.
So SQLite waits for a moment at a time, and Python, which runs its signal handlers in between, has it wait again. A call
that finds no lock pays nothing for this.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Final, TypeVar

from taskharbor.drivers.sqlite.errors import BUSY, code_of

Found = TypeVar("Found")

SLICE_S: Final = 0.25
"""So long SQLite waits by itself."""
PAUSE_S: Final = 0.01
"""SQLite does not wait at all where it sees that two would wait for each other."""


def begin_writing(connection: sqlite3.Connection, patience_s: float) -> None:
    """A transaction that holds the file's write lock. `connection` waits for `SLICE_S` at a time."""
    patiently(lambda: connection.execute("BEGIN IMMEDIATE"), patience_s)


def patiently(call: Callable[[], Found], patience_s: float) -> Found:
    """What the call returns. While others have locked the file, it is made again until the time is up."""
    ends = time.monotonic() + patience_s
    while True:
        began = time.monotonic()
        try:
            return call()
        except sqlite3.OperationalError as error:
            if code_of(error) not in BUSY or time.monotonic() >= ends:
                raise
        if time.monotonic() - began < PAUSE_S:
            time.sleep(PAUSE_S)
