"""Hearing of new jobs through LISTEN, on a connection that does nothing else."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg import Connection

from taskharbor.drivers.listening import BaseListener

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
_ENOUGH: Final = 4096
_log: Final = logging.getLogger("taskharbor.postgres")


class PostgresListener(BaseListener):
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
        self._turn = threading.Lock()
        self._inbox, self._outbox = socket.socketpair()
        self._inbox.setblocking(False)
        self._outbox.setblocking(False)
        self._connection: Connection[Any] | None = None
        self._is_connecting = True
        self._is_deaf = False
        self._pause_s = FIRST_PAUSE_S
        self._try_at = 0.0
        self._open()

    def wake(self) -> None:
        # Without a lock, so that a signal handler may do it too.
        with suppress(OSError):  # closed, or so full that it rings already
            self._outbox.send(b"\0")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
            self._outbox.close()  # ends a wait that is going on
        with self._turn:
            self._inbox.close()
        if connection is not None:
            connection.close()

    def _wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        with self._turn:
            while not self._closed:
                left = deadline - time.monotonic()
                if self._wait_once(self._current(), max(0.0, left)):
                    return True
                if left <= 0:
                    break
        return False

    def _wait_once(self, connection: Connection[Any] | None, timeout_s: float) -> bool:
        """Whether anything was heard. May return before the time when nothing was."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._inbox, selectors.EVENT_READ)
            if connection is not None:
                selector.register(connection.pgconn.socket, selectors.EVENT_READ)
            elif not self._is_deaf:
                timeout_s = min(timeout_s, self._pause_s)  # to see whether it is time to connect
            ready = [key.fileobj for key, _ in selector.select(timeout_s)]
        if self._inbox in ready:
            with suppress(OSError):
                self._inbox.recv(_ENOUGH)
            return True
        return bool(ready) and connection is not None and self._has_news(connection)

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
