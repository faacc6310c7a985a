"""Places of which there are so many, and which no interrupt can lose."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Final
from weakref import ref

LOOK_AGAIN_S: Final = 0.1
"""How soon who waits looks again by itself, for a place that was given back without a word."""


class Place:
    """One that a thread wants, or has, as long as anybody has this."""

    __slots__ = ("__weakref__", "bell", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.bell: threading.Lock | None = None


class Places:
    """At most `size` of them are taken at once, by those who came first.

    A semaphore counts, and Ctrl-C between its count and the `try` behind it takes a place away for good. Here a place
    is made first and taken in the `try`; whoever forgets it has given it back. To give it back takes no lock: the
    collector of cycles may do so in the midst of anything.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.RLock()  # for a moment at a time; what the collector runs in it may come here too
        self._taken: dict[int, ref[Place]] = {}
        self._waiting: dict[int, ref[Place]] = {}

    def take(self, place: Place, wait_s: float) -> bool:
        """Whether it was had within that time. Called in the `try` whose `finally` gives it back."""
        if not self._waiting and self._take(place):
            return True
        deadline = time.monotonic() + wait_s
        place.bell = threading.Lock()
        place.bell.acquire()
        self._waiting[id(place)] = ref(place)
        has_waited = False
        try:
            # Behind others there may be room too, but that is theirs.
            while not ((has_waited or self._first() is place) and self._take(place)):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                place.bell.acquire(timeout=min(left, LOOK_AGAIN_S))
                has_waited = True
            return True
        finally:
            self._waiting.pop(id(place), None)
            self._ring()  # there may be room for one more

    def give_back(self, place: Place) -> None:
        """Also one that was given back before, or never had."""
        self._taken.pop(id(place), None)
        self._waiting.pop(id(place), None)
        self._ring()

    def has(self, place: Place) -> bool:
        known = self._taken.get(id(place))
        return known is not None and known() is place

    def of_this_thread(self) -> list[Place]:
        """What an interrupt left to it, which is not in the midst of anything now."""
        me = threading.get_ident()
        found = [known() for known in list(self._taken.values())]
        return [place for place in found if place is not None and place.thread == me]

    def _take(self, place: Place) -> bool:
        with self._lock:
            if len(self._taken) >= self._size:
                for key in [key for key, known in list(self._taken.items()) if known() is None]:
                    self._taken.pop(key, None)
            if len(self._taken) >= self._size:
                return False
            self._taken[id(place)] = ref(place)
            return True

    def _ring(self) -> None:
        first = self._first()
        if first is not None and first.bell is not None:
            with suppress(RuntimeError):  # it rings already
                first.bell.release()

    def _first(self) -> Place | None:
        """Of those who wait."""
        for key, known in list(self._waiting.items()) if self._waiting else ():
            first = known()
            if first is not None:
                return first
            self._waiting.pop(key, None)
        return None
