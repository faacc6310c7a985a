"""The connections of one driver: one that writes, one that reads, each behind its own lock.

SQLite has one writer at a time for the whole file, so more connections would only wait for each other. Reads have
their own, because in WAL mode they neither wait for the writer nor hold it up.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from taskharbor.core.errors import DriverClosed, InvalidURL, StoreReadOnly
from taskharbor.drivers.door import Door
from taskharbor.drivers.sqlite import forking
from taskharbor.drivers.sqlite.errors import BROKEN, code_of, refuse_foreign, translated
from taskharbor.drivers.sqlite.locked import SLICE_S, begin_writing, patiently

Hook = Callable[[sqlite3.Connection], None]

_abandoned: Final[list[sqlite3.Connection]] = []
"""Connections that a fork brought into this process all the same. Using them, even closing them, would harm the
parent's."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the URL's query may set: `synchronous=full|normal`, `busy_timeout` in seconds, `mode=rw|ro`."""

    synchronous: str = "full"
    busy_timeout_s: float = 30.0
    read_only: bool = False

    @classmethod
    def from_options(cls, options: dict[str, str]) -> Settings:
        given = dict(options)
        synchronous = given.pop("synchronous", "full").lower()
        if synchronous not in ("full", "normal"):
            raise InvalidURL(f"synchronous must be full (the default) or normal, got {synchronous!r}")
        mode = given.pop("mode", "rw")
        if mode not in ("rw", "ro"):
            raise InvalidURL(f"mode must be rw (the default) or ro, got {mode!r}")
        busy = given.pop("busy_timeout", "30")
        if not busy.isdecimal() or not 1 <= int(busy) <= 3600:
            raise InvalidURL(f"busy_timeout must be a number of seconds from 1 to 3600, got {busy!r}")
        if given:
            raise InvalidURL(
                f"unknown option {min(given)!r}: sqlite:// takes synchronous, busy_timeout, mode, prefix, max_payload"
            )
        return cls(synchronous, float(busy), mode == "ro")


class Connections:
    """Opens connections when they are first needed, and again after a fork, in both processes.

    `check` refuses a file that does not fit, on every connection; `prepare` readies the one that writes.

    Ctrl-C may take a thread out of `reading` or `writing` before it has the connection, and the traceback keeps what it
    left open, with its lock. The doors let the same thread in again, which then finds a connection in a transaction.
    """

    def __init__(self, path: str, settings: Settings, *, check: Hook, prepare: Hook) -> None:
        self.path = path
        self._settings = settings
        self._check = check
        self._prepare = prepare
        self._closed = False
        self._begin_afresh()
        forking.guard(self)

    def _begin_afresh(self) -> None:
        self._pid = os.getpid()
        self._to_write = Door()
        self._to_read = Door()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None

    @contextmanager
    def alone(self, mode: str) -> Iterator[sqlite3.Connection]:
        """A connection of its own while nobody writes: for migrations."""
        self._notice_fork()
        with self._to_write.entered():
            connection = self._open_patiently(mode)
            try:
                yield connection
            finally:
                connection.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the file's write lock from its beginning: kept as a whole or not at all.

        A transaction that began with a read could not always be turned into a write later on.
        """
        self._notice_fork()
        with self._to_write.entered(), translated(self.path):
            self._refuse_when_closed()
            if self._writer is not None and self._writer.in_transaction:  # left by an interrupt
                left, self._writer = self._writer, None
                left.close()
            if self._writer is None:
                self._writer = self._open_writer()
            connection = self._writer
            try:
                begin_writing(connection, self._settings.busy_timeout_s)
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                if connection is self._writer:
                    self._give_up(connection, error)
                raise

    def _open_writer(self) -> sqlite3.Connection:
        connection = self._open_checked()  # which goes on to wait for a moment at a time: see `begin_writing`
        try:
            if self._settings.read_only:
                raise StoreReadOnly(f"{self.path} was opened with mode=ro: leave mode=ro out of the URL to write")
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_reader(self) -> sqlite3.Connection:
        connection = self._open_checked()
        connection.execute(f"PRAGMA busy_timeout = {int(self._settings.busy_timeout_s * 1000)}")
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _give_up(self, connection: sqlite3.Connection, error: BaseException) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the first error says more; closing below undoes the transaction just as well
        if code_of(error) in BROKEN or connection.in_transaction:
            connection.close()
            self._writer = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One snapshot: what is read inside belongs together."""
        self._notice_fork()
        with self._to_read.entered(), translated(self.path, reading=True):
            self._refuse_when_closed()
            if self._reader is not None and self._reader.in_transaction:  # left by an interrupt
                left, self._reader = self._reader, None
                left.close()
            if self._reader is None:
                self._reader = self._open_reader()
            connection = self._reader
            try:
                connection.execute("BEGIN")
                yield connection
            except BaseException as error:
                if code_of(error) in BROKEN:
                    connection.close()
                    self._reader = None
                raise
            finally:
                if connection is self._reader and connection.in_transaction:
                    connection.execute("COMMIT")

    def open(self, mode: str, *, wait_s: float | None = None) -> sqlite3.Connection:
        """A connection with our settings; `mode` is SQLite's: `rw`, `rwc` to create the file, `ro`. It waits for locks
        as long as the settings say, or for `wait_s`."""
        refuse_foreign(self.path)
        connection = sqlite3.connect(
            f"{Path(self.path).as_uri()}?mode={mode}",
            uri=True,
            timeout=self._settings.busy_timeout_s if wait_s is None else wait_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        connection.execute(f"PRAGMA synchronous = {self._settings.synchronous}")
        connection.execute("PRAGMA cache_size = -16384")
        connection.execute("PRAGMA temp_store = MEMORY")
        # A burst may leave a large log behind; this gives the disk space back once it has been worked in.
        connection.execute("PRAGMA journal_size_limit = 67108864")
        return connection

    def _open_patiently(self, mode: str) -> sqlite3.Connection:
        return patiently(lambda: self.open(mode, wait_s=SLICE_S), self._settings.busy_timeout_s)

    def _open_checked(self) -> sqlite3.Connection:
        connection = self._open_patiently("ro" if self._settings.read_only else "rw")
        try:
            patiently(lambda: self._check(connection), self._settings.busy_timeout_s)
        except BaseException:
            connection.close()
            raise
        return connection

    def before_fork(self, deadline: float) -> bool:
        if not forking.take((self._to_write, self._to_read), deadline):
            return False
        self._close_both()
        return True

    def after_fork(self) -> None:
        self._pid = os.getpid()
        self._to_read.release()
        self._to_write.release()

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            _abandoned.extend(kept for kept in (self._writer, self._reader) if kept is not None)
            self._begin_afresh()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise DriverClosed("this driver was closed: open another one with open_driver(url)")

    def close(self) -> None:
        self._notice_fork()
        with self._to_write.entered(), self._to_read.entered():
            self._closed = True
            self._close_both()

    def _close_both(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None
