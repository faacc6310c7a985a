"""The slots: threads for plain functions, coroutines on one event loop for the rest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from taskharbor.worker.executor import Executor, failed
from taskharbor.worker.held import Held
from taskharbor.worker.lane import Lane

STEP_S: Final = 0.005
"""A coroutine slot whose handlers never wait lets the loop have a turn this often."""

log = logging.getLogger("taskharbor.worker")


class ThreadSlots:
    """The threads of one lane. They start when there is work for them, and stay."""

    def __init__(self, lane: Lane, executor: Executor, now: Callable[[], datetime]) -> None:
        self._lane = lane
        self._executor = executor
        self._now = now
        self._stopped = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._lane.start_thread = self._add

    def _add(self) -> None:
        """Called with the lane's lock held."""
        if len(self._threads) < self._lane.slots:
            name = f"taskharbor-{self._lane.queue}-{len(self._threads)}"
            # Daemons, because a handler that never ends must not keep the process from ending.
            thread = threading.Thread(target=self._loop, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Idle threads end at once, busy ones behind their job."""
        self._stopped = True
        self._lane.stop()

    def _loop(self) -> None:
        lane, ready = self._lane, self._lane.ready
        while lane.wait_for_turn(lambda: self._stopped):
            since = time.monotonic()
            try:
                while not lane.others_wait(threads=True, since=since):
                    try:
                        held = ready.popleft()
                    except IndexError:
                        break
                    self._run(held)
            finally:
                lane.end_turn()

    def _run(self, held: Held) -> None:
        if not self._lane.begin(held):
            return
        held.started_at = self._now()
        try:
            held.ending = self._executor.run(held)
        except BaseException as error:  # the executor's own failure must not cost the slot
            log.exception("a slot failed")
            held.ending = failed(error)
        self._lane.end(held)


class CoroutineSlots:
    """One event loop in a thread of its own for the coroutine handlers of every lane."""

    def __init__(self, executor: Executor, now: Callable[[], datetime]) -> None:
        self._executor = executor
        self._now = now
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        started = threading.Event()

        def main() -> None:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                self._loop.call_soon(started.set)
                self._loop.run_forever()
                for task in self._tasks:
                    task.cancel()

        self._thread = threading.Thread(target=main, name="taskharbor-loop", daemon=True)
        self._thread.start()
        started.wait()

    def serve(self, lane: Lane) -> None:
        loop = self._loop
        assert loop is not None
        lane.start_async = lambda: _call(loop, lambda: self._spread(lane))

    def stop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            _call(loop, loop.stop)
            self._thread.join(timeout=5)

    def _spread(self, lane: Lane) -> None:
        """Start as many slots as there are jobs and permits."""
        for _ in range(len(lane.ready_async)):
            if not lane.try_turn():
                return
            task = asyncio.get_running_loop().create_task(self._slot(lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _slot(self, lane: Lane) -> None:
        ready = lane.ready_async
        since = step = time.monotonic()
        try:
            while not lane.others_wait(threads=False, since=since):
                try:
                    held = ready.popleft()
                except IndexError:
                    break
                await self._run(lane, held)
                if time.monotonic() - step > STEP_S:
                    await asyncio.sleep(0)
                    step = time.monotonic()
        finally:
            lane.end_turn()

    async def _run(self, lane: Lane, held: Held) -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        assert task is not None
        if not lane.begin(held):
            return
        held.started_at = self._now()
        held.abort = lambda: _call(loop, lambda: task.cancel() if held.ending is None else None)
        try:
            if held.cancelled:  # before there was anything to abort
                task.cancel()
            held.ending = await self._executor.arun(held)
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                log.exception("a slot failed")
            held.ending = failed(error)
        held.abort = None
        lane.end(held)
        if held.cancelled:
            # The slot goes on with the next job. A cancel that came too late for this one must not reach that.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            while task.cancelling():
                task.uncancel()


def _call(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop has ended in the meantime
        log.debug("the event loop has ended")
