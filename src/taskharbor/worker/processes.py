"""Handlers that ask for a process of their own: CPU-bound work, and work that may have to be killed.

Each thread slot keeps one child. Messages are JSON on a pipe: the job goes down, progress and the end come up. The
child finds the handler by importing the module that defined it, exactly as the parent did.
"""

from __future__ import annotations

import importlib
import json
import logging
import multiprocessing
import os
import signal
import threading
import time
from base64 import b64decode, b64encode
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final

from taskharbor.app.task import Task
from taskharbor.core.errors import TaskHarborError
from taskharbor.core.limits import Limits
from taskharbor.core.model import Job, Progress
from taskharbor.core.outcome import Cancelled, Dead, Done, Ending, Failed, Released, Snoozed
from taskharbor.drivers.jsonfile import records
from taskharbor.drivers.state import State

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from taskharbor.worker.held import Held

LOOK_S: Final = 0.05
"""How often a waiting slot looks whether its handler was told to stop, or is overdue."""
GRACE_S: Final = 0.5
"""How long a child that is to end may take before it is killed."""
_NOWHERE: Final = State()

log = logging.getLogger("taskharbor.worker")


class Processes:
    """The children of this worker, one to a thread slot."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._mine = threading.local()
        self._all: list[Child] = []
        self._lock = threading.Lock()

    def run(self, held: Held) -> Ending:
        """Run one job in the child of the calling thread. Returns when the handler has ended, or its child has."""
        child: Child | None = getattr(self._mine, "child", None)
        if child is None or not child.is_alive():
            child = self._mine.child = Child(self._limits)
            with self._lock:
                self._all = [other for other in self._all if other.is_alive()] + [child]
        return child.run(held)

    def stop(self) -> None:
        with self._lock:
            children, self._all = self._all, []
        for child in children:
            child.kill()


class Child:
    def __init__(self, limits: Limits) -> None:
        # Spawned, never forked: a fork of a process with threads and open connections cannot be trusted.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(
            target=_serve, args=(theirs, limits), name="taskharbor-child", daemon=True
        )
        self._process.start()
        theirs.close()

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        self._process.kill()
        self._process.join(GRACE_S)
        self._pipe.close()

    def run(self, held: Held) -> Ending:
        task, job = held.task, held.job
        assert task is not None
        order = {
            "module": task.function.__module__,
            "name": task.function.__qualname__,
            "token": held.token,
            "job": records.encode("jobs", job, _NOWHERE),
        }
        timeout_s = None if job.timeout is None else job.timeout.total_seconds()
        try:
            self._pipe.send_bytes(json.dumps(order).encode())
            return self._follow(held, timeout_s)
        except (EOFError, OSError):
            self._process.join(GRACE_S)
            return Failed(f"the process of the handler ended without a word ({_exit(self._process.exitcode)})")

    def _follow(self, held: Held, timeout_s: float | None) -> Ending:
        began: float | None = None
        while True:
            if self._pipe.poll(LOOK_S):
                word = json.loads(self._pipe.recv_bytes())
                if word["kind"] == "begun":  # a new child first has to import the application
                    began = time.monotonic()
                    continue
                ending = _heard(word, held)
                if ending is not None:
                    return ending
            elif timeout_s is not None and began is not None and time.monotonic() - began > timeout_s:
                self.kill()
                return Failed(f"timed out after {timeout_s:g} s, and its process was killed")
            elif held.cancelled:
                self.kill()
                return Cancelled("cancelled while it ran") if held.asked_to_cancel else Released()


def _heard(word: dict[str, Any], held: Held) -> Ending | None:
    match word["kind"]:
        case "progress":
            held.progress(Progress(word["done"], word["total"], word["note"]))
        case "extend":
            held.extend(word["seconds"])
        case "done":
            return Done(None if word["result"] is None else b64decode(word["result"]))
        case "failed":
            delay = None if word["delay_s"] is None else timedelta(seconds=word["delay_s"])
            return Failed(word["error"], delay, word["error_kind"])
        case "snoozed":
            return Snoozed(timedelta(seconds=word["delay_s"]))
        case "cancelled":
            return Cancelled(word["reason"])
        case "dead":
            return Dead(word["reason"], word["code"])
        case _:
            return Released()
    return None


def _exit(code: int | None) -> str:
    if code is None:
        return "it still runs"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


# --- In the child ------------------------------------------------------------------------------------------


def _serve(pipe: Connection, limits: Limits) -> None:
    """Run one job after the other until the parent goes away."""
    from taskharbor.worker.executor import Executor

    # Signals of the terminal are for the parent, which decides what becomes of its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, name="taskharbor-parent", daemon=True).start()
    executor = Executor(limits)
    while True:
        try:
            order = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        job: Job = records.decode("jobs", order["job"]["id"], order["job"], _NOWHERE)
        held = _Remote(job, order["token"], pipe)
        try:
            held.task = _find(order["module"], order["name"])
        except Exception as error:
            ending: Ending = Failed(f"the handler's process could not find it: {error!r}")
        else:
            pipe.send_bytes(b'{"kind": "begun"}')
            ending = executor.call(held)
        pipe.send_bytes(json.dumps(_told(ending)).encode())


def _end_with_parent() -> None:
    """A parent that was killed has told nobody. Its lease runs out, and somebody else will do the work."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class _Remote:
    """What stands for the held job in the child."""

    def __init__(self, job: Job, token: str, pipe: Connection) -> None:
        self.job = job
        self.token = token
        self.task: Task[..., Any] | None = None
        self.cancelled = False  # a child that is to stop is killed
        self.asked_to_cancel = False
        self._pipe = pipe

    def progress(self, progress: Progress) -> None:
        word = {"kind": "progress", "done": progress.done, "total": progress.total, "note": progress.note}
        self._pipe.send_bytes(json.dumps(word).encode())

    def extend(self, seconds: float) -> None:
        self._pipe.send_bytes(json.dumps({"kind": "extend", "seconds": seconds}).encode())


def _find(module: str, name: str) -> Task[..., Any]:
    """The task, where the parent's code says it is. Names come from the parent's own functions, never from a job."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, Task):
        raise TaskHarborError(f"{module}.{name} is no task")
    return found


def _told(ending: Ending) -> dict[str, Any]:
    match ending:
        case Done(result):
            return {"kind": "done", "result": None if result is None else b64encode(result).decode()}
        case Failed(error, delay, kind):
            delay_s = None if delay is None else delay.total_seconds()
            return {"kind": "failed", "error": error, "delay_s": delay_s, "error_kind": kind}
        case Snoozed(delay):
            return {"kind": "snoozed", "delay_s": delay.total_seconds()}
        case Cancelled(reason):
            return {"kind": "cancelled", "reason": reason}
        case Dead(reason, code):
            return {"kind": "dead", "reason": reason, "code": str(code)}
        case Released():
            return {"kind": "released"}
