"""The slots: threads for plain functions, coroutines on one event loop for the rest."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context as Variables
from datetime import datetime
from typing import Final

from taskharbor.core.logged import running
from taskharbor.core.outcome import Released
from taskharbor.worker.batch_calls import acall_batch, run_batch
from taskharbor.worker.batching import BatchRun
from taskharbor.worker.executor import Executor, failed, stopped
from taskharbor.worker.forked import end_if_forked
from taskharbor.worker.held import Held
from taskharbor.worker.lane import Lane
from taskharbor.worker.logs import job_fields
from taskharbor.worker.watchdog import Watchdog

STEP_S: Final = 0.005
"""A coroutine slot whose handlers never wait lets the loop have a turn this often."""

END_S: Final = 5.0
LEFT_S: Final = 0.2
"""How long the event loop may take to end: on its own, and with handlers in it that do not stop."""
CLOSED_ELSEWHERE: Final = "a handler was left behind in an event loop that has ended"

log = logging.getLogger("taskharbor.worker")


class ThreadSlots:
    """The threads of one lane. They start when there is work for them, and stay."""

    def __init__(self, lane: Lane, executor: Executor, now: Callable[[], datetime]) -> None:
        self._lane = lane
        lane.work_here = self._turn_safely
        self._executor = executor
        self._now = now
        self._pid = os.getpid()
        self._stopped = False
        self._threads: list[threading.Thread] = []
        self._numbers = itertools.count()

    def start(self) -> None:
        self._lane.start_thread = self._add

    def _add(self) -> None:
        """Called with the lane's lock held."""
        if len(self._threads) >= self._lane.slots:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) < self._lane.slots:
            name = f"taskharbor-{self._lane.queue}-{next(self._numbers)}"
            # Daemons, because a handler that never ends must not keep the process from ending.
            thread = threading.Thread(target=self._loop, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # of the system's bounds; who waits for a job takes it all the same
                log.warning("no thread for queue %s: %s", self._lane.queue, error)
            else:
                self._threads.append(thread)

    def stop(self) -> None:
        """Idle threads end at once, busy ones behind their job."""
        self._stopped = True
        self._lane.stop()

    def _loop(self) -> None:
        goes_on = True
        while goes_on:
            try:
                goes_on = self._lane.wait_for_turn(lambda: self._stopped)
            except BaseException as error:  # as below: a slot that waits may be meant for what it did before
                self._say(error)
            else:
                if goes_on:
                    self._turn_safely()

    def _turn_safely(self) -> None:
        try:
            self._turn()
        except BaseException as error:  # thrown into the thread from outside: nothing here raises
            self._say(error)

    def _say(self, error: BaseException) -> None:
        log.warning("a slot of queue %s failed and goes on (%s)", self._lane.queue, type(error).__name__)

    def _turn(self) -> None:
        lane, ready = self._lane, self._lane.ready
        since = time.monotonic()
        try:
            # A look at the other kind's line costs less than the question.
            while not (lane.ready_async and lane.others_wait(threads=True, since=since)):
                try:
                    held = ready.popleft()
                except IndexError:
                    break
                self._run(held)
        finally:
            lane.end_turn()

    def _run(self, held: Held | BatchRun) -> None:
        if isinstance(held, BatchRun):
            self._run_batch(held)
            return
        if not self._lane.begin(held):
            return
        try:
            now = self._now()
            if held.job.expires_at is not None and _is_expired(held, now):
                held.ending = Released()
            elif held.cancelled:  # while the store was asked for the time, and its lease may have ended
                held.ending = stopped(held)
            else:
                held.started_at = now
                held.ending = self._executor.run(held)
        except BaseException as error:  # the executor's own failure must not cost the slot
            _note_failure(held, error)
        finally:
            end_if_forked(self._pid, held.job.type)
            self._lane.end(held)

    def _run_batch(self, run: BatchRun) -> None:
        try:
            if run.begin(self._executor, self._now()):
                run_batch(run, self._executor)
        except BaseException as error:  # as for one job
            _note_batch_failure(run, error)
        finally:
            run.finish()


class CoroutineSlots:
    """One event loop in a thread of its own for the coroutine handlers of every lane."""

    def __init__(self, executor: Executor, now: Callable[[], datetime]) -> None:
        self._executor = executor
        self._now = now
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._watchdog = Watchdog()

    def start(self) -> None:
        started = threading.Event()

        def main() -> None:
            with asyncio.Runner() as runner:
                self._loop = loop = runner.get_loop()
                loop.call_soon(started.set)
                aside = ThreadPoolExecutor(thread_name_prefix="taskharbor-aside")
                loop.set_default_executor(aside)
                while not self._stopping:
                    _run_on(loop)
                for task in self._tasks:
                    task.cancel()
                # What handlers left to `asyncio.to_thread` may take its time: the loop ends without it.
                loop.set_default_executor(ThreadPoolExecutor(1))
                aside.shutdown(wait=False, cancel_futures=True)

        self._thread = threading.Thread(target=main, name="taskharbor-loop", daemon=True)
        self._thread.start()
        started.wait()
        assert self._loop is not None
        self._watchdog.start(self._loop)

    def serve(self, lane: Lane) -> None:
        loop = self._loop
        assert loop is not None
        lane.start_async = lambda: _call(loop, lambda: self._spread(lane))
        self._watchdog.lanes.append(lane)

    def stop(self) -> None:
        self._stopping = True
        self._watchdog.stop()
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            _call(loop, loop.stop)
            # A handler that has not heeded its cancel by now is left behind, like a thread: nobody waits for it.
            self._thread.join(timeout=LEFT_S if self._tasks else END_S)

    def _spread(self, lane: Lane) -> None:
        """Start as many slots as there are jobs and permits."""
        for _ in range(len(lane.ready_async)):
            if not lane.try_turn():
                return
            self._add(lane, time.monotonic())

    def _add(self, lane: Lane, since: float) -> None:
        """A slot that has a permit since then."""
        variables = Variables()  # an empty one: whoever called may have set some
        slot = self._slot(lane, since, variables)
        task = asyncio.get_running_loop().create_task(slot, context=variables)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _slot(self, lane: Lane, since: float, variables: Variables) -> None:
        ready = lane.ready_async
        step = time.monotonic()
        task = asyncio.current_task()
        assert task is not None
        followed = False
        try:
            while not lane.others_wait(threads=False, since=since):
                try:
                    held = ready.popleft()
                except IndexError:
                    break
                end_if_forked(self._pid, "a coroutine task")  # which waits, so that others have their turn in the child
                await self._run(lane, held, task)
                if len(variables) or task.cancelling():
                    # The handler has left something in the task that the next job must not find: a variable, or a
                    # cancel that came too late for it. A new task has the permit from here on.
                    if not self._stopping:
                        self._add(lane, since)
                        followed = True
                    break
                if time.monotonic() - step > STEP_S:
                    await asyncio.sleep(0)
                    step = time.monotonic()
        finally:
            if not followed:
                lane.end_turn()

    async def _run(self, lane: Lane, held: Held | BatchRun, task: asyncio.Task[None]) -> None:
        if isinstance(held, BatchRun):
            await self._run_batch(held, task)
            return
        if not lane.begin(held):
            return
        try:
            now = self._now()
            if held.job.expires_at is not None and _is_expired(held, now):
                held.ending = Released()
                return
            loop = task.get_loop()
            held.abort = lambda: _call(loop, lambda: task.cancel() if held.ending is None else None)
            if held.cancelled:  # before there was anything to abort
                held.ending = stopped(held)
                return
            held.started_at = now
            token = running.set(held)
            try:
                held.ending = await self._executor.arun(held)
            finally:
                try:  # so that the context is as empty as before: the next job may have it
                    running.reset(token)
                except ValueError:
                    log.debug(CLOSED_ELSEWHERE)
        except BaseException as error:  # as for threads
            _note_failure(held, error)
        finally:
            end_if_forked(self._pid, held.job.type)
            held.abort = None
            lane.end(held)

    async def _run_batch(self, run: BatchRun, task: asyncio.Task[None]) -> None:
        try:
            if not run.begin(self._executor, self._now()):
                return
            loop = task.get_loop()
            run.abort = lambda: _call(loop, lambda: None if run.over else task.cancel())
            if run.cancelled:  # before there was anything to abort
                for member in run.open:
                    member.settle(stopped(member))
                return
            token = running.set(run)
            try:
                await acall_batch(run, self._executor)
            finally:
                try:
                    running.reset(token)
                except ValueError:
                    log.debug(CLOSED_ELSEWHERE)
        except BaseException as error:  # as for threads
            _note_batch_failure(run, error)
        finally:
            end_if_forked(self._pid, run.task.name)
            run.finish()


def _is_expired(held: Held, now: datetime) -> bool:
    """Whether it is too late to begin. The store, to which the job goes back, says so to everybody else."""
    expires_at = held.job.expires_at
    return expires_at is not None and expires_at <= now


def _note_failure(held: Held, error: BaseException) -> None:
    held.ending = failed(error)
    # Not the text of the error, which may quote the payload.
    log.error("a slot failed to run %s (%s)", held.job.type, type(error).__name__, extra=job_fields(held.job))


def _note_batch_failure(run: BatchRun, error: BaseException) -> None:
    run.close()
    run.over = True
    run.end(failed(error))
    log.error("a slot failed to run a batch of %s (%s)", run.task.name, type(error).__name__)


def _run_on(loop: asyncio.AbstractEventLoop) -> None:
    """Until the loop is stopped, or a handler ends it: by `loop.stop()`, or by an exit in a task of its own, which
    asyncio lets through. Nothing that waits in the loop is lost, so that it can simply go on."""
    try:
        loop.run_forever()
    except (SystemExit, KeyboardInterrupt) as error:
        log.warning("a task of a handler raised %s, which ends that task only", type(error).__name__)


def _call(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop has ended in the meantime
        log.debug("the event loop has ended")
