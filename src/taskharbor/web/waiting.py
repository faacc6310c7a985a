"""Requests that wait for work. All that wait for the same queues share one listener of the store."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from taskharbor.core.contract import Driver, Listener
from taskharbor.core.errors import TaskHarborError
from taskharbor.web.threads import Threads

LOOK_S: Final = 1.0
"""However quiet the bell is, a request looks so often: jobs become due, and leases end, without a sound."""
LOOK_WITHOUT_BELL_S: Final = 0.25
MOST_BELLS: Final = 8
"""Listeners at once, each with a connection of its own where the store is a server. Requests for further sets of
queues only look from time to time."""


class Doorbells:
    def __init__(self, driver: Driver, threads: Threads, stopping: asyncio.Event) -> None:
        self._driver = driver
        self._threads = threads
        self._stopping = stopping
        self._bells: dict[tuple[str, ...], _Bell] = {}
        self._opening = asyncio.Lock()

    async def rings(self, queues: Sequence[str], wait_s: float) -> AsyncIterator[None]:
        """Yields when it is worth looking: at once, at each ring, and from time to time, until the time is over."""
        if not wait_s:
            yield
            return
        ends = time.monotonic() + wait_s
        bell = await self._enter(tuple(sorted(set(queues))))
        try:
            while True:
                heard = None if bell is None else bell.next_ring()
                yield
                left = ends - time.monotonic()
                if left <= 0 or self._stopping.is_set():
                    return
                await self._pause(heard, min(left, LOOK_WITHOUT_BELL_S if heard is None else LOOK_S))
        finally:
            if bell is not None:
                self._leave(bell)

    async def _pause(self, heard: asyncio.Future[None] | None, seconds: float) -> None:
        stopping = asyncio.ensure_future(self._stopping.wait())
        waiting: set[asyncio.Future[Any]] = {stopping} if heard is None else {stopping, heard}
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()

    async def _enter(self, queues: tuple[str, ...]) -> _Bell | None:
        async with self._opening:
            bell = self._bells.get(queues)
            if bell is None:
                if len(self._bells) >= MOST_BELLS:
                    return None
                listener = await self._threads.run(self._driver.listen, queues)
                bell = self._bells[queues] = _Bell(queues, listener)
            bell.waiting += 1
            return bell

    def _leave(self, bell: _Bell) -> None:
        bell.waiting -= 1
        if not bell.waiting:
            self._bells.pop(bell.queues, None)
            bell.stop()

    async def close(self) -> None:
        for bell in list(self._bells.values()):
            bell.stop()


class _Bell:
    """One listener with a thread that waits on it, for all requests that ask for these queues."""

    def __init__(self, queues: tuple[str, ...], listener: Listener) -> None:
        self.queues = queues
        self.waiting = 0
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._ring = self._loop.create_future()
        self._stopped = False
        threading.Thread(target=self._listen, name="taskharbor-doorbell", daemon=True).start()

    def next_ring(self) -> asyncio.Future[None]:
        return self._ring

    def stop(self) -> None:
        self._stopped = True
        self._listener.wake()

    def _listen(self) -> None:
        try:
            while not self._stopped:
                if self._listener.wait(LOOK_S) and not self._stopped:
                    self._loop.call_soon_threadsafe(self._sound)
        except (TaskHarborError, RuntimeError):  # the driver or the loop was closed
            pass
        finally:
            self._listener.close()

    def _sound(self) -> None:
        ring, self._ring = self._ring, self._loop.create_future()
        ring.set_result(None)
