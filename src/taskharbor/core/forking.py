"""What a fork would leave behind in the child: a lock of a thread that is not there, which nobody lets go any more."""

from __future__ import annotations

import os
import threading
from typing import Final
from weakref import WeakKeyDictionary

_owners: Final[WeakKeyDictionary[object, tuple[str, ...]]] = WeakKeyDictionary()


def renew_locks(owner: object, *names: str) -> None:
    """In a child these attributes of `owner` are locks that are free."""
    _owners[owner] = (*_owners.get(owner, ()), *names)


def _after_fork() -> None:
    for owner, names in list(_owners.items()):
        for name in names:
            setattr(owner, name, threading.Lock())


os.register_at_fork(after_in_child=_after_fork)
