"""A small, bounded pool of connections. Safe for threads, for forks, and for servers that restart."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from taskharbor.core.errors import DriverClosed, StoreUnavailable
from taskharbor.drivers.places import Place, Places

Connection = Any
"""A PyMySQL connection; the library has no types of its own."""

PING_AFTER_S: Final = 1.0
"""A connection that rested longer is asked whether the server is still there."""
WAIT_S: Final = 30.0
"""How long a call waits for a connection when all are in use."""

_log: Final = logging.getLogger("taskharbor.mysql")

_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


class Pool:
    """At most `size` connections, made when needed and used again, the last one first."""

    def __init__(self, connect: Callable[[], Connection], size: int) -> None:
        self._connect = connect
        self._size = size
        self._closed = False
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        """Begin without connections. A forked child must not share those of its parent: it would garble both."""
        self._lock = threading.Lock()
        self._places = Places(self._size)
        self._idle: list[tuple[Connection, float]] = []
        self._process = os.getpid()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for one piece of work. It is kept afterwards unless the work ended in an error."""
        place, places, process = Place(), self._places, self._process
        try:
            if not places.take(place, WAIT_S):
                raise StoreUnavailable(f"all {self._size} connections are in use: raise pool_size in the URL")
            connection = self._take()
            try:
                yield connection
            except BaseException as error:
                # What state it is in is anybody's guess, and the server rolls back when it goes.
                _log.debug("dropping a connection after %s: %s", type(error).__name__, error)
                discard(connection)
                raise
            if process == self._process:
                self._keep(connection)
        finally:
            places.give_back(place)

    def drop_idle(self) -> None:
        """Forget the resting connections: one was found dead, so the others most likely are too."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            discard(connection)

    def close(self) -> None:
        self._closed = True
        self.drop_idle()

    def _take(self) -> Connection:
        while True:
            with self._lock:
                if self._closed:
                    raise DriverClosed("this driver was closed: open another one with open_driver(url)")
                connection, since = self._idle.pop() if self._idle else (None, 0.0)
            if connection is None:
                return self._connect()
            if time.monotonic() - since < PING_AFTER_S or _answers(connection):
                return connection
            discard(connection)

    def _keep(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append((connection, time.monotonic()))
                return
        discard(connection)


def discard(connection: Connection) -> None:
    """Close a connection that may well be dead already."""
    try:
        connection.close()
    except Exception as error:
        _log.debug("a connection could not be closed in good order: %s", error)


def _answers(connection: Connection) -> bool:
    try:
        connection.ping(reconnect=False)
    except Exception as error:
        # Whatever is wrong with it, another one is made.
        _log.debug("a resting connection no longer answers, dropping it: %s", error)
        return False
    return True


def _after_fork() -> None:
    for pool in list(_pools):
        pool._reset()


os.register_at_fork(after_in_child=_after_fork)
