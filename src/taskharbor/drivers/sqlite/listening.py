"""Hearing of what other connections, and other processes, write to the file."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

from taskharbor.core.contract import Listener
from taskharbor.core.errors import TaskHarborError
from taskharbor.drivers.listening import FileListener
from taskharbor.drivers.sqlite import forking
from taskharbor.drivers.sqlite.claiming import Claim, Claiming
from taskharbor.drivers.sqlite.store import Connection

OPEN_AGAIN_S: Final = 1.0


class Listening(Claiming):
    """Listeners of the contract."""

    def _listen(self, queues: tuple[str, ...]) -> Listener:
        def has_work(connection: Connection) -> bool:
            claim = Claim(queues, self.now(), timedelta(0), 1, None, "")
            return bool(self._due(connection, claim))

        mode = "ro" if self._settings.read_only else "rw"
        return SqliteListener(Path(self._path).resolve(), lambda: self._connections.open(mode), has_work)


class SqliteListener(FileListener):
    """Asks SQLite, on a connection of its own, whether others have committed. That is a look into shared memory.

    Only when they have does it look for work in its queues: most commits are somebody's ack.
    """

    def __init__(self, path: Path, connect: Callable[[], Connection], has_work: Callable[[Connection], bool]) -> None:
        super().__init__(path.parent, path.name)
        self._connect = connect
        self._has_work = has_work
        self._connection: Connection | None = None
        self._open_at = 0.0
        self._version = -1
        self._use = threading.Lock()
        forking.guard(self)
        self._has_changed()

    def _close(self) -> None:
        super()._close()
        with self._use:
            self._drop()

    def _has_changed(self) -> bool:
        with self._use:
            try:
                return self._look()
            except (sqlite3.Error, TaskHarborError):
                # The file is away, or is no store any more. Whoever works with it will say so.
                self._drop()
                return False

    def before_fork(self, deadline: float) -> bool:
        if not forking.take((self._use,), deadline):
            return False
        self._drop()
        self._open_at = 0.0
        return True

    def after_fork(self) -> None:
        self._use.release()

    def _look(self) -> bool:
        if self._connection is None:
            if time.monotonic() < self._open_at:
                return False
            self._open_at = time.monotonic() + OPEN_AGAIN_S
            self._connection = self._connect()
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return False
        self._version = version
        # One snapshot: the search for work asks several times, and others commit in between.
        self._connection.execute("BEGIN")
        try:
            return self._has_work(self._connection)
        finally:
            self._connection.execute("COMMIT")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._version = -1
        if connection is not None:
            connection.close()
