"""The driver's word to its workers on executors: `stop` and `hurry`.

Spark ends a cancelled task within moments, and a worker that ends so leaves its leases to lapse. So each worker keeps
a connection to the driver and is told first. The driver only ever speaks; whoever else connects learns that a run
ends, and nothing more. A connection that breaks means that the driver is gone, and is taken for `stop`.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from typing import Final

STOP: Final = b"stop\n"
HURRY: Final = b"hurry\n"
MOST_CONNECTIONS: Final = 10_000
CONNECT_S: Final = 10.0

Address = tuple[str, int]

log = logging.getLogger("taskharbor.pipeline")


class Caller:
    """On the driver. `address` is where workers connect; None where it could not be had, and then they hear nothing."""

    def __init__(self, host: str, bind: str) -> None:
        self.address: Address | None = None
        self._said = b""
        self._lines: list[socket.socket] = []
        self._lock = threading.Lock()
        try:
            self._door: socket.socket | None = socket.create_server((bind, 0), backlog=128)
        except OSError as error:
            log.warning("workers cannot be told to stop, and are cut short instead: %s", error)
            self._door = None
            return
        self.address = (host, self._door.getsockname()[1])
        threading.Thread(target=self._answer, name="taskharbor-caller", daemon=True).start()

    def _answer(self) -> None:
        assert self._door is not None
        while True:
            try:
                line, _ = self._door.accept()
            except OSError:  # closed
                return
            with self._lock:
                self._lines = [each for each in self._lines if _is_open(each)]
                if len(self._lines) >= MOST_CONNECTIONS:
                    line.close()
                    continue
                self._lines.append(line)
                with contextlib.suppress(OSError):
                    line.sendall(self._said)

    @property
    def listeners(self) -> int:
        """How many workers listen now."""
        with self._lock:
            self._lines = [each for each in self._lines if _is_open(each)]
            return len(self._lines)

    def say(self, word: bytes) -> None:
        """Tell all workers, and those that begin to listen later."""
        with self._lock:
            self._said += word
            for line in self._lines:
                with contextlib.suppress(OSError):
                    line.sendall(word)

    def close(self) -> None:
        if self._door is not None:
            with contextlib.suppress(OSError):
                self._door.shutdown(socket.SHUT_RDWR)  # ends an accept that is going on
            self._door.close()
        with self._lock:
            for line in self._lines:
                line.close()
            self._lines = []


def _is_open(line: socket.socket) -> bool:
    """Workers say nothing, so whatever there is to read is the end."""
    line.setblocking(False)
    try:
        found = line.recv(1)
    except (BlockingIOError, InterruptedError):
        return True
    except OSError:
        found = b""
    finally:
        with contextlib.suppress(OSError):
            line.settimeout(CONNECT_S)
    if not found:
        line.close()
    return bool(found)


class Listener:
    """On an executor: does what the driver says, in a thread of its own."""

    def __init__(self, address: Address | None, stop: Callable[[], None], hurry: Callable[[], None]) -> None:
        self._stop, self._hurry = stop, hurry
        self._line: socket.socket | None = None
        if address is None:
            return
        try:
            self._line = socket.create_connection(address, CONNECT_S)
        except OSError as error:
            # It works all the same. When the run is stopped, Spark ends it, and its leases lapse.
            log.warning("the driver's word will not be heard, from %s:%d: %s", *address, error)
            return
        self._line.settimeout(None)
        threading.Thread(target=self._listen, name="taskharbor-listener", daemon=True).start()

    def _listen(self) -> None:
        assert self._line is not None
        heard = b""
        with contextlib.suppress(OSError):
            while said := self._line.recv(64):
                *words, heard = (heard + said).split(b"\n")
                for word in words:
                    (self._hurry if word + b"\n" == HURRY else self._stop)()
        self._stop()

    def close(self) -> None:
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)
            self._line.close()
