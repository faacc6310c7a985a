"""Hearing of new jobs through LISTEN, on a connection that does nothing else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg
from psycopg import Connection

from taskharbor.drivers.listening import SocketListener

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
_log: Final = logging.getLogger("taskharbor.postgres")


class PostgresListener(SocketListener):
    """Waits for a notification about one of its queues, and for whoever wakes it.

    A lost connection is made again in the background, so that nobody who waits, or wakes, has to wait for that.
    Behind a transaction pooler notifications get lost; then this only waits.
    """

    def __init__(self, connect: Callable[[], Connection[Any] | None], channel: str, queues: Sequence[str]) -> None:
        super().__init__()
        self._connect = connect
        self._channel = channel
        self._queues = frozenset(queues)
        self._lock = threading.Lock()
        self._connection: Connection[Any] | None = None
        self._is_connecting = True
        self._is_deaf = False
        self._pause_s = FIRST_PAUSE_S
        self._try_at = 0.0
        self._open()

    def close(self) -> None:
        with self._lock:
            self._closed = True  # before a connection that is being made is kept
        super().close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _wait_once(self, timeout_s: float) -> bool:
        connection = self._current()
        if connection is None and not self._is_deaf:
            timeout_s = min(timeout_s, self._pause_s)  # to see whether it is time to connect
        rang, news = self._select(-1 if connection is None else connection.pgconn.socket, timeout_s)
        return rang or (news and connection is not None and self._has_news(connection))

    def _has_news(self, connection: Connection[Any]) -> bool:
        """Whether what the server sent is about one of our queues."""
        found = False
        try:
            connection.pgconn.consume_input()
            while note := connection.pgconn.notifies():
                found = found or note.extra.decode("utf-8", "replace") in self._queues
        except psycopg.Error as error:
            _log.debug("lost the connection that listens for jobs, will make another: %s", error)
            self._lose(connection)
        return found

    # --- The connection ----------------------------------------------------------------------------------

    def _current(self) -> Connection[Any] | None:
        """The connection, if there is one; begins to make one when it is time."""
        with self._lock:
            connection = self._connection
            begin = (
                connection is None
                and not (self._is_connecting or self._is_deaf or self._closed)
                and time.monotonic() >= self._try_at
            )
            if begin:
                self._is_connecting = True
        if begin:
            threading.Thread(target=self._open, args=(True,), name="taskharbor-listen", daemon=True).start()
        return connection

    def _open(self, again: bool = False) -> None:
        connection: Connection[Any] | None = None
        failed = False
        try:
            connection = self._connect()
            if connection is not None:
                connection.execute(f"LISTEN {self._channel}".encode())
        except Exception as error:  # whatever it is, the next try may find it mended
            _log.debug("cannot listen for jobs now, will try again: %s", error)
            failed = True
        with self._lock:
            self._is_connecting = False
            self._is_deaf = connection is None and not failed
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S) if failed else FIRST_PAUSE_S
            self._try_at = time.monotonic() + self._pause_s
            keep = not (failed or self._closed)
            if keep:
                self._connection = connection
        if connection is not None and not keep:
            connection.close()
        elif connection is not None and again:
            self.wake()  # what came in meanwhile was not heard

    def _lose(self, connection: Connection[Any]) -> None:
        with self._lock:
            if self._connection is connection:
                self._connection = None
                self._try_at = time.monotonic()
        connection.close()
