"""Waiting for work: what the listeners of all stores share."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from taskharbor.drivers.watching import DirectoryWatch

POLL_S: Final = 0.2
"""How often a store that cannot tell of new work is worth a look."""
LONGEST_WAIT_S: Final = 86_400.0
"""The most that the system is asked to wait at once: it takes some weeks. Longer waits are several."""
_ENOUGH: Final = 4096
_Selector: Final = getattr(selectors, "PollSelector", selectors.DefaultSelector)
"""For one wait for two descriptors: the others ask the system five times for what this one asks once."""


class BaseListener:
    """Waits, and can be woken. Stores add how they hear of new work.

    The bell is a lock that whoever wakes lets go and the one who waits takes: the cheapest thing that can be waited
    for with a time limit.
    """

    def __init__(self) -> None:
        self._bell = threading.Lock()
        self._bell.acquire()
        self._closed = False

    def wait(self, timeout_s: float) -> bool:
        left = max(0.0, timeout_s)  # in this order, what is no number is no time either
        while not self._closed:
            if self._wait(min(left, LONGEST_WAIT_S)):
                return not self._closed
            if left <= LONGEST_WAIT_S:
                break
            left -= LONGEST_WAIT_S
        return False

    def wake(self) -> None:
        with suppress(RuntimeError):  # it rings already
            self._bell.release()

    def close(self) -> None:
        self._closed = True
        self.wake()

    def _wait(self, timeout_s: float) -> bool:
        return self._bell.acquire(timeout=timeout_s)


class PollingListener(BaseListener):
    """For stores that cannot tell of new work: says every now and then that it is time to look."""

    def __init__(self) -> None:
        super().__init__()
        self._next_look = time.monotonic() + POLL_S

    def _wait(self, timeout_s: float) -> bool:
        until_look = max(0.0, self._next_look - time.monotonic())
        if self._bell.acquire(timeout=min(timeout_s, until_look)):
            return True
        if timeout_s < until_look:
            return False
        self._next_look = time.monotonic() + POLL_S
        return True


class SocketListener(BaseListener):
    """Waits for what has a file descriptor. Its bell has one too."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = threading.Lock()
        self._inbox, self._outbox = socket.socketpair()
        self._inbox.setblocking(False)
        self._outbox.setblocking(False)
        self._selector = _Selector()
        self._bell_key = self._selector.register(self._inbox, selectors.EVENT_READ)
        self._listened_to = -1

    def wake(self) -> None:
        # Without a lock, so that a signal handler may do it too.
        with suppress(OSError):  # closed, or so full that it rings already
            self._outbox.send(b"\0")

    def close(self) -> None:
        self._closed = True
        self._outbox.close()  # ends a wait that is going on
        with self._turn:
            self._selector.close()
            self._inbox.close()
            self._close()

    def _close(self) -> None:
        """Give back the rest. Nobody is waiting any more, and nobody will; may be called twice."""

    def _wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        with self._turn:
            while not self._closed:
                left = deadline - time.monotonic()
                if self._wait_once(max(0.0, left)):
                    return True
                if left <= 0:
                    break
        return False

    def _wait_once(self, timeout_s: float) -> bool:
        """Whether anything was heard. May return before the time when nothing was."""
        raise NotImplementedError

    def _select(self, descriptor: int, timeout_s: float) -> tuple[bool, bool]:
        """Whether the bell rang, and whether there is something to read from the descriptor (-1 for none)."""
        if descriptor != self._listened_to:
            if self._listened_to >= 0:
                self._selector.unregister(self._listened_to)
            if descriptor >= 0:
                self._selector.register(descriptor, selectors.EVENT_READ)
            self._listened_to = descriptor
        ready = self._selector.select(timeout_s)
        rang = any(key is self._bell_key for key, _ in ready)
        if rang:
            with suppress(OSError):
                self._inbox.recv(_ENOUGH)
        return rang, len(ready) > rang


class FileListener(SocketListener):
    """Watches files that other processes write to.

    The kernel says that something is being written; whether it is there for readers yet, only a look can tell. So
    after each sign it looks, at first very often and then less and less, for a while. Where the kernel says nothing
    it looks every few milliseconds.
    """

    FIRST_STEP_S: Final = 0.0005
    LONGEST_STEP_S: Final = 0.01
    ALERT_S: Final = 0.5
    WATCH_AGAIN_S: Final = 1.0

    def __init__(self, directory: Path, prefix: str) -> None:
        super().__init__()
        self._directory = directory
        self._prefix = prefix
        self._watch: DirectoryWatch | None = None
        self._watch_at = 0.0
        self._alert_until = 0.0
        self._step_s = self.LONGEST_STEP_S
        self._begin_watching()

    def _has_changed(self) -> bool:
        """Whether something was written since this was asked last. Must not raise because the store is away."""
        raise NotImplementedError

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _wait_once(self, timeout_s: float) -> bool:
        if self._watch is None:
            self._begin_watching()
        if self._watch is None or time.monotonic() < self._alert_until:
            timeout_s = min(timeout_s, self._step_s)
            self._step_s = min(2 * self._step_s, self.LONGEST_STEP_S)
        rang, written = self._select(self._watch.descriptor if self._watch else -1, timeout_s)
        if rang:
            return True
        if written and self._was_written():
            self._be_alert()
        return self._has_changed()

    def _be_alert(self) -> None:
        self._alert_until = time.monotonic() + self.ALERT_S
        self._step_s = self.FIRST_STEP_S

    def _was_written(self) -> bool:
        assert self._watch is not None
        try:
            return self._watch.events()
        except OSError:
            self._close()
            return True

    def _begin_watching(self) -> None:
        if time.monotonic() < self._watch_at:
            return
        self._watch_at = time.monotonic() + self.WATCH_AGAIN_S
        with suppress(OSError):
            self._watch = DirectoryWatch(self._directory, self._prefix)
            self._be_alert()  # something may have been written before
