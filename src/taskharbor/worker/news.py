"""Where a claimer waits: for a job that is done, for a word from its worker, and for a hint from the store."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskharbor.core.contract import Listener


class News:
    """An event that can listen to the store at the same time, which saves a thread between the store and the claimer,
    and so a good part of the time from commit to handler."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._listener: Listener | None = None
        self._listening = False

    def attend(self, listener: Listener | None) -> None:
        """Listen from now on, or no longer."""
        self._listener = listener
        self.set()

    def set(self) -> None:
        self._event.set()
        listener = self._listener
        if self._listening and listener is not None:
            listener.wake()

    def clear(self) -> None:
        self._event.clear()

    def wait(self, timeout_s: float) -> bool:
        """Wait for news. True if the store gave the hint."""
        listener = self._listener
        if listener is None:
            self._event.wait(timeout_s)
            return False
        self._listening = True
        try:
            # Who sets the event from here on sees that it must wake the listener as well.
            return not self._event.is_set() and listener.wait(timeout_s) and not self._event.is_set()
        finally:
            self._listening = False
