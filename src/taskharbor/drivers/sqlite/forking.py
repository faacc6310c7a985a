"""No connection to a SQLite file goes through a fork.

SQLite keeps account, in memory, of which locks of a file its process has. A child inherits the account and not the
locks: its own connections would believe that they hold what they do not, and when the parent closes its last one it
removes the log of changes that the child writes to. So all connections are closed before a fork, in good order, and
opened again behind it, by whoever needs one. That waits for the transactions of other threads, whose locks a child
could not let go either.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Final, Protocol
from weakref import WeakSet

PATIENCE_S: Final = 30.0
"""How long a fork waits for transactions of other threads, at most."""

_log: Final = logging.getLogger("taskharbor.sqlite")


class Lock(Protocol):
    def acquire(self, *, timeout: float) -> bool: ...

    def release(self) -> None: ...


class Guarded(Protocol):
    def before_fork(self, deadline: float) -> bool:
        """Close what is open, and keep everybody from opening more. False, and nothing is kept, if the time was up."""

    def after_fork(self) -> None:
        """In both processes, if `before_fork` was true."""


_guarded: Final[WeakSet[Guarded]] = WeakSet()
_held: Final[list[Guarded]] = []


def guard(who: Guarded) -> None:
    _guarded.add(who)


def take(locks: Sequence[Lock], deadline: float) -> bool:
    """All of the locks, or none when the time is up."""
    for number, lock in enumerate(locks):
        if not lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            for taken in locks[:number]:
                taken.release()
            return False
    return True


def _before() -> None:
    deadline = time.monotonic() + PATIENCE_S
    for who in list(_guarded):
        if who.before_fork(deadline):
            _held.append(who)
        else:
            _log.warning("a fork met with a transaction that does not end: the child must not use this SQLite store")


def _after() -> None:
    while _held:
        _held.pop().after_fork()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
