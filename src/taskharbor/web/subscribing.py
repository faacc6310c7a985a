"""Threads tell coroutines that there is something new."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self


class Subscription:
    """One waiter in one event loop. Many pieces of news between two waits are one."""

    def __init__(self, subscribers: Subscribers) -> None:
        self._subscribers = subscribers
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self.ended = False

    async def __aenter__(self) -> Self:
        self._subscribers.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._subscribers.remove(self)

    async def wait(self, timeout_s: float) -> bool:
        """True once there is news, at once if there was some since the last wait; False after the time, or when there
        is none to come (`ended`)."""
        if not self.ended:
            try:
                await asyncio.wait_for(self._news.wait(), timeout_s)
            except TimeoutError:
                return False
        self._news.clear()
        return not self.ended

    def tell(self) -> None:
        """From any thread."""
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:  # the loop is closed: nobody waits
            self._subscribers.remove(self)

    def end(self) -> None:
        self.ended = True
        self.tell()


class Subscribers:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: set[Subscription] = set()
        self._closed = False

    def subscribe(self) -> Subscription:
        """For `async with`."""
        return Subscription(self)

    def add(self, subscription: Subscription) -> None:
        with self._lock:
            self._all.add(subscription)
            closed = self._closed
        if closed:
            subscription.end()

    def remove(self, subscription: Subscription) -> None:
        with self._lock:
            self._all.discard(subscription)

    def tell(self) -> None:
        with self._lock:
            waiting = list(self._all)
        for subscription in waiting:
            subscription.tell()

    def close(self) -> None:
        """Whoever waits is told that there is nothing to wait for; so is whoever comes later."""
        with self._lock:
            self._closed = True
            waiting = list(self._all)
        for subscription in waiting:
            subscription.end()
