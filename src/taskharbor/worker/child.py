"""The other half of `processes`: what runs in the process of a handler. It is told one job after the other."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import threading
from base64 import b64encode
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
    from types import FrameType

FOR_THE_WORKER: Final = (signal.SIGTERM, signal.SIGINT)
"""Signals that come to all processes of a service or a terminal, and mean the worker."""
NOWHERE: Final = State()


def serve(pipe: Connection, limits: Limits) -> None:
    """Run one job after the other until the parent goes away."""
    _heed_no_signals()
    from taskharbor.worker.executor import Executor

    threading.Thread(target=_end_with_parent, name="taskharbor-parent", daemon=True).start()
    executor = Executor(limits)
    line = _Line(pipe)
    pipe.send_bytes(b'{"kind": "ready"}')
    while True:
        try:
            order = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        job: Job = records.decode("jobs", order["job"]["id"], order["job"], NOWHERE)
        token = line.token = order["token"]
        held = _Remote(job, token, line)
        try:
            held.task = _find(order["module"], order["name"])
        except Exception as error:
            ending: Ending = Failed(f"the handler's process could not find it: {error!r}")
        else:
            line.say(token, {"kind": "begun"})
            ending = executor.call(held)
        line.say(token, _told(ending), last=True)


def _heed_no_signals() -> None:
    # Handlers that do nothing, and not SIG_IGN: programs that a job starts would inherit that, and could not be ended.
    for number in FOR_THE_WORKER:
        signal.signal(number, _nothing)
        signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_WORKER)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


def _end_with_parent() -> None:
    """A parent that was killed has told nobody. Its lease runs out, and somebody else will do the work."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class _Line:
    """The way up to the parent, which threads of a handler may use at the same time."""

    def __init__(self, pipe: Connection) -> None:
        self.token = ""
        """The job that runs. Nothing is said any more about another one, whatever its threads still do."""
        self._pipe = pipe
        self._lock = threading.Lock()

    def say(self, token: str, word: dict[str, Any], *, last: bool = False) -> None:
        message = json.dumps({**word, "token": token}).encode()
        with self._lock:
            if token == self.token:
                self._pipe.send_bytes(message)
                if last:
                    self.token = ""


class _Remote:
    """What stands for the held job in the child."""

    def __init__(self, job: Job, token: str, line: _Line) -> None:
        self.job = job
        self.token = token
        self.task: Task[..., Any] | None = None
        self.cancelled = False  # a child that is to stop is killed
        self.asked_to_cancel = False
        self.noticed = False
        self.overdue = False
        self._line = line

    def progress(self, progress: Progress) -> None:
        word = {"kind": "progress", "done": progress.done, "total": progress.total, "note": progress.note}
        self._line.say(self.token, word)

    def notice(self) -> None:
        self.noticed = True

    def extend(self, seconds: float) -> None:
        self._line.say(self.token, {"kind": "extend", "seconds": seconds})


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
