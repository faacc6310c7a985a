"""Handlers that ask for a process of their own: CPU-bound work, and work that may have to be killed.

Each thread slot keeps one child. Messages are JSON on a pipe: the job goes down, progress and the end come up, each
with the lease token of its job. The child finds the handler by importing the module that defined it, exactly as the
parent did. Signals are for the worker alone, which decides what becomes of its children.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import multiprocessing
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Final

from taskharbor.core.limits import Limits
from taskharbor.core.outcome import CANCELLED_RUNNING, TIMED_OUT, Cancelled, Ending, Failed, Released
from taskharbor.core.words import ended, exit_of
from taskharbor.drivers.jsonfile import records
from taskharbor.worker.batching import BatchRun
from taskharbor.worker.child import (
    CHILD,
    FOR_THE_WORKER,
    NOWHERE,
    UNGUARDED,
    refuse_worker_while_reading,
    serve,
    unguarded,
)
from taskharbor.worker.executor import stopped
from taskharbor.worker.held import Held
from taskharbor.worker.program_log import to_hand_on
from taskharbor.worker.words import Told, heard

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

LOOK_S: Final = 0.05
"""How often a waiting slot looks whether its handler was told to stop, or is overdue."""
GRACE_S: Final = 0.5
"""How long a child that is to end may take before it is killed."""
START_S: Final = 120.0
"""How long a child may take to import the application, for a job that has a timeout."""

log = logging.getLogger("taskharbor.worker")


class Processes:
    """The children of this worker, one to a thread slot."""

    def __init__(self, limits: Limits, is_stopping: Callable[[], bool] = lambda: False) -> None:
        refuse_worker_while_reading()  # before it has taken a job
        self._limits = limits
        self._is_stopping = is_stopping
        self._mine = threading.local()
        self._all: list[Child] = []
        self._closed = False
        self._lock = threading.Lock()

    def run(self, held: Held | BatchRun) -> Ending:
        """Run one job in the child of the calling thread. Returns when the handler has ended, or its child has.

        Of a batch, whose members are settled one by one, it is how those end that are left."""
        child: Child | None = getattr(self._mine, "child", None)
        if child is None or not child.is_alive():
            with self._lock, _births:
                if self._closed or _program_ends.is_set():
                    return Released()
                if _is_unguarded.is_set():
                    return Failed(unguarded())
                child = self._mine.child = Child(self._limits, self._is_stopping)
                self._all = [other for other in self._all if other.is_alive()] + [child]
        return child.run(held)

    def run_batch(self, run: BatchRun) -> None:
        ending = self.run(run)
        run.over = True
        for member in run.open:
            is_stopped = member.cancelled or not isinstance(ending, Failed)
            member.settle(stopped(member) if is_stopped else ending)

    def stop(self) -> None:
        with self._lock:
            self._closed = True
            children, self._all = self._all, []
        for child in children:
            child.end()


class Child:
    def __init__(self, limits: Limits, is_stopping: Callable[[], bool]) -> None:
        self._is_stopping = is_stopping
        self._is_ready = False
        self._ended = False
        # Spawned, never forked: a fork of a process with threads and open connections cannot be trusted.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(
            target=serve, args=(theirs, limits, to_hand_on()), name=CHILD, daemon=True
        )
        with _held_back():
            self._process.start()
        theirs.close()
        _living.add(self)

    def is_alive(self) -> bool:
        return not self._ended and self._process.is_alive()

    def end(self) -> None:
        """From any thread: who is waiting for the child's word hears that there will be none."""
        self._ended = True
        self._process.kill()
        self._process.join(GRACE_S)

    def run(self, held: Held | BatchRun) -> Ending:
        try:
            return self._follow(held)
        except (EOFError, OSError):
            return self._gone()
        except BaseException:
            self._kill()  # what it would still say is no word about the next job
            raise

    def _kill(self) -> None:
        self.end()
        self._pipe.close()

    def _follow(self, held: Held | BatchRun) -> Ending:
        told = Told(held) if isinstance(held, BatchRun) else None
        asked = time.monotonic()
        began: float | None = None
        if self._is_ready:
            self._pipe.send_bytes(_order(held))
        while True:
            if self._pipe.poll(LOOK_S):
                word = json.loads(self._pipe.recv_bytes())
                if word["kind"] == "ready":
                    # Not before: a pipe is small, and who fills it waits for a reader that may never come.
                    self._is_ready = True
                    self._pipe.send_bytes(_order(held))
                elif word["token"] != held.token:
                    log.debug("a word about another job is left aside")
                elif word["kind"] == "begun":  # a new child first has to import the application
                    began = time.monotonic()
                elif (ending := heard(word, held)) is not None:
                    return ending
            # At every turn, or a handler that reports without a pause could not be stopped.
            if (reason := _overdue(held, asked, began)) is not None:
                self._kill()
                return Failed(reason, kind=TIMED_OUT if began is not None else "its process did not begin")
            if held.cancelled:
                self._kill()
                return Cancelled(CANCELLED_RUNNING) if held.asked_to_cancel else Released()
            if told is not None and began is not None and (news := told.news()) is not None:
                self._pipe.send_bytes(news)

    def _gone(self) -> Ending:
        was_ended = self._ended
        self._process.join(GRACE_S)
        code = self._process.exitcode
        self._kill()
        if was_ended or (code is not None and -code in FOR_THE_WORKER and self._will_stop()):
            return Released()
        if code == UNGUARDED:
            if not self._is_ready:
                _is_unguarded.set()
            return Failed(unguarded())
        when = "" if self._is_ready else " while it read the application, which it does before it begins"
        how = "it still runs" if code is None else exit_of(code)
        kind = f"its process {'does not answer' if code is None else ended(code)}"
        return Failed(f"the process of the handler ended without a word{when} ({how})", kind=kind)

    def _will_stop(self) -> bool:
        """Whether the signal that ended the child has come to the worker too, if perhaps a little later."""
        ends = time.monotonic() + GRACE_S
        while not self._is_stopping() and time.monotonic() < ends:
            time.sleep(LOOK_S)
        return self._is_stopping()


_living: weakref.WeakSet[Child] = weakref.WeakSet()
_births = threading.Lock()
_program_ends = threading.Event()
_is_unguarded = threading.Event()
"""The script of this program starts a worker wherever it is read. Each child would do again what stands above that,
such as enqueueing one more job, so that no other is made."""


@atexit.register
def end_children() -> None:
    """A program that ends without having stopped its worker would wait for children that heed no SIGTERM. Its slots
    still work, and must not make others for the jobs that come back."""
    with _births:
        _program_ends.set()
        children = list(_living)
    for child in children:
        if child.is_alive():
            child.end()


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """A process started by this thread meanwhile is deaf to signals from its first moment, until it asks for them.

    Every other thread of this process goes on to get them.
    """
    resource_tracker.ensure_running()  # now, because it too touches the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_WORKER)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _order(held: Held | BatchRun) -> bytes:
    task = held.task
    assert task is not None
    jobs = [held] if isinstance(held, Held) else held.members
    order = {
        "module": task.function.__module__,
        "name": task.function.__qualname__,
        "token": held.token,
        "jobs": [records.encode("jobs", each.job, NOWHERE) for each in jobs],
    }
    return json.dumps(order).encode()


def _overdue(held: Held | BatchRun, asked: float, began: float | None) -> str | None:
    if held.timeout is None:
        return None
    timeout_s = held.timeout.total_seconds()
    if began is not None:
        is_late = time.monotonic() - began > timeout_s
        return f"timed out after {timeout_s:g} s, and its process was killed" if is_late else None
    is_late = time.monotonic() - asked > max(timeout_s, START_S)
    return "its process did not come to begin, and was killed" if is_late else None
