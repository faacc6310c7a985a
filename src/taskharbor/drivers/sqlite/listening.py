"""Hearing of what other connections, and other processes, write to the file."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from taskharbor.core.contract import Listener
from taskharbor.core.errors import TaskHarborError
from taskharbor.drivers.listening import SteppingListener
from taskharbor.drivers.sqlite.claiming import Claim, Claiming
from taskharbor.drivers.sqlite.store import Connection

STEP_S: Final = 0.008
OPEN_AGAIN_S: Final = 1.0


class Listening(Claiming):
    """Listeners of the contract."""

    def _listen(self, queues: tuple[str, ...]) -> Listener:
        def has_work(connection: Connection) -> bool:
            claim = Claim(queues, self.now(), timedelta(0), 1, None, "")
            return bool(self._due(connection, claim))

        mode = "ro" if self._settings.read_only else "rw"
        return SqliteListener(lambda: self._connections.open(mode), has_work)


class SqliteListener(SteppingListener):
    """Asks SQLite, on a connection of its own, whether others have committed. That is a look into shared memory.

    Only when they have does it look for work in its queues: most commits are somebody's ack.
    """

    step_s = STEP_S

    def __init__(self, connect: Callable[[], Connection], has_work: Callable[[Connection], bool]) -> None:
        super().__init__()
        self._connect = connect
        self._has_work = has_work
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._open_at = 0.0
        self._version = -1
        self._has_changed()

    def close(self) -> None:
        super().close()
        with self._lock:
            self._drop()

    def _has_changed(self) -> bool:
        with self._lock:
            try:
                return self._look()
            except (sqlite3.Error, TaskHarborError):
                # The file is away, or is no store any more. Whoever works with it will say so.
                self._drop()
                return False

    def _look(self) -> bool:
        if self._connection is None:
            if self._closed or time.monotonic() < self._open_at:
                return False
            self._open_at = time.monotonic() + OPEN_AGAIN_S
            self._connection = self._connect()
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return False
        self._version = version
        return self._has_work(self._connection)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._version = -1
        if connection is not None:
            connection.close()
