"""Notices when a coroutine handler blocks the event loop, so that what waits for the loop can go elsewhere."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Final

from taskharbor.worker.lane import Lane

TICK_S: Final = 0.5
SILENT_S: Final = 2.0
"""A loop that has not answered for so long is blocked."""
MOST_NAMES: Final = 5

log = logging.getLogger("taskharbor.worker")


class Watchdog:
    """Asks the event loop for an answer now and then, while there is work for it."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked_at: float | None = None
        """Since when the loop owes an answer."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.Thread(target=self._watch, name="taskharbor-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _watch(self) -> None:
        while not self._stop.wait(min(TICK_S, SILENT_S / 2)):
            try:
                self.step(time.monotonic())
            except RuntimeError:  # the loop has ended
                return

    def step(self, moment: float) -> None:
        with self._lock:
            asked_at = self._asked_at
            if asked_at is not None:
                if moment - asked_at > SILENT_S:
                    self._report(moment - asked_at)
                return
            if not any(lane.ready_async or lane.running for lane in self.lanes):
                return
            self._asked_at = moment
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        """Called by the loop."""
        with self._lock:
            self._asked_at = None
            silent = [lane for lane in self.lanes if lane.loop_is_silent]
            for lane in silent:
                lane.loop_is_silent = False
                lane.news.set()
        if silent:
            log.warning("the event loop answers again")

    def _report(self, silent_s: float) -> None:
        if all(lane.loop_is_silent for lane in self.lanes):
            return
        types = sorted({held.job.type for lane in self.lanes for held in list(lane.running) if held.is_async})
        names = ", ".join(types[:MOST_NAMES]) + (", …" if len(types) > MOST_NAMES else "")
        log.error(
            "the event loop has not answered for %.1f s: a coroutine handler blocks it (running: %s). "
            "Jobs that wait for the loop go back",
            silent_s, names or "none",
        )  # fmt: skip
        for lane in self.lanes:
            lane.loop_is_silent = True
            lane.news.set()
