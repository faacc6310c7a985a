"""The other half of `processes`: what runs in the process of a handler. It is told one job after the other."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final

from taskharbor.app.batches import LOST, OPEN
from taskharbor.app.task import Task
from taskharbor.core.errors import JobNotInflight, TaskHarborError
from taskharbor.core.limits import Limits
from taskharbor.core.logged import batch_fields, job_fields
from taskharbor.core.model import Job, Progress
from taskharbor.core.outcome import Ending, Failed
from taskharbor.drivers.jsonfile import records
from taskharbor.drivers.state import State
from taskharbor.worker.forked import end_if_forked, not_in_children
from taskharbor.worker.words import spoken

if TYPE_CHECKING:
    from types import FrameType

    from taskharbor.worker.executor import Executor
    from taskharbor.worker.program_log import ProgramLog

FOR_THE_WORKER: Final = (signal.SIGTERM, signal.SIGINT)
"""Signals that come to all processes of a service or a terminal, and mean the worker."""
NOWHERE: Final = State()
CHILD: Final = "taskharbor-child"
"""What the processes of handlers are called, from their first moment."""
UNGUARDED: Final = 213
"""The exit code of a child that was to start a worker while it read the application. The pipe is not open by then."""

_has_read = threading.Event()
"""Whether this process, if it is a child, has read the application, and at first the script that its parent runs."""


def refuse_worker_while_reading() -> None:
    """End a child that comes to a worker in the application that it reads: it would take jobs from its own parent, and
    need children for them that do the same. No error, which a script might catch, and no exit that waits for threads
    of the script."""
    if not _has_read.is_set() and multiprocessing.current_process().name == CHILD:
        sys.stderr.write(f"taskharbor: {unguarded()}\n")
        sys.stderr.flush()
        os._exit(UNGUARDED)


def unguarded() -> str:
    return (
        "the process of a handler reads the application once more, and there it came to a line that starts a worker: "
        'put that under `if __name__ == "__main__":`'
    )


def serve(pipe: Connection, limits: Limits, log: ProgramLog | None = None) -> None:
    """Run one job after the other until the parent goes away. `log`: how the parent has set up logging, if it has."""
    _has_read.set()
    _heed_no_signals()
    if log is not None:
        log.begin()
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
        if "module" in order:  # else it is late news about a batch that is over
            _run(order, line, executor, log)
            log = None  # it has been set up by now, behind the first import of the application


def _run(order: dict[str, Any], line: _Line, executor: Executor, log: ProgramLog | None) -> None:
    jobs: list[Job] = [records.decode("jobs", record["id"], record, NOWHERE) for record in order["jobs"]]
    token = line.token = order["token"]
    try:
        try:
            task = _find(order["module"], order["name"])
        finally:
            if log is not None:
                log.install()
    except Exception as error:
        why = f"the handler's process could not find it: {error!r}"
        ending: Ending = Failed(why, kind="its process could not find the handler")
        line.say(token, spoken(ending), last=True)
        return
    line.say(token, {"kind": "begun"})
    if task.batch is None:
        pid = os.getpid()
        ending = executor.call(_Remote(jobs[0], token, line, task))
        end_if_forked(pid, task.name)
        line.say(token, spoken(ending), last=True)
        return
    from taskharbor.worker.batch_calls import call_batch

    run = _RemoteRun(jobs, token, line, task, executor)
    call_batch(run, executor)
    run.end()
    line.say(token, {"kind": "over"}, last=True)


def _heed_no_signals() -> None:
    # Handlers that do nothing, and not SIG_IGN: programs that a job starts would inherit that, and could not be ended.
    for number in FOR_THE_WORKER:
        signal.signal(number, _nothing)
        signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_WORKER)


@not_in_children
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

    def hear(self) -> Iterator[dict[str, Any]]:
        """What the parent has said in the meantime."""
        while self._pipe.poll():
            yield json.loads(self._pipe.recv_bytes())

    def say(self, token: str, word: dict[str, Any], *, last: bool = False) -> None:
        message = json.dumps({**word, "token": token}).encode()
        with self._lock:
            if token == self.token:
                self._pipe.send_bytes(message)
                if last:
                    self.token = ""


class _Remote:
    """What stands for the held job in the child."""

    def __init__(self, job: Job, token: str, line: _Line, task: Task[..., Any]) -> None:
        self.job = job
        self.timeout = job.timeout
        self.token = token
        self.task: Task[..., Any] | None = task
        self.cancelled = False  # a child that is to stop is killed
        self.asked_to_cancel = False
        self.noticed = False
        self.overdue = False
        self._line = line

    def log_fields(self) -> Mapping[str, Any]:
        return job_fields(self.job)

    def progress(self, progress: Progress) -> None:
        self.say({"kind": "progress", "done": progress.done, "total": progress.total, "note": progress.note})

    def notice(self) -> None:
        self.noticed = True

    def extend(self, seconds: float) -> None:
        self.say({"kind": "extend", "seconds": seconds})

    def say(self, word: dict[str, Any]) -> None:
        self._line.say(self.token, word)


class _RemoteMember(_Remote):
    """One of a batch. It may be told to stop while the others go on: it hears of that when the handler asks."""

    def __init__(self, job: Job, number: int, run: _RemoteRun) -> None:
        self._run = run
        self._number = number
        self._told_to_stop = False
        self.lost = False
        self.ending: Ending | None = None
        super().__init__(job, run.token, run.line, run.task)

    @property
    def cancelled(self) -> bool:
        self._run.hear()
        return self._told_to_stop

    @cancelled.setter
    def cancelled(self, told: bool) -> None:
        self._told_to_stop = told

    @property
    def state(self) -> str:
        if self.lost:
            return LOST
        return OPEN if self.ending is None else type(self.ending).__name__.lower()

    def done(self, result: Any) -> bool:
        return self.settle(self._run.executor.done(self, result))

    def raised(self, error: BaseException) -> bool:
        return self.settle(self._run.executor.after(self, error, is_ours=False))

    def settle(self, ending: Ending) -> bool:
        with self._run.lock:
            if self.lost:
                return False
            if self.ending is not None:
                raise JobNotInflight(f"job {self.job.id} of the batch was settled before, as {self.state}")
            self.ending = ending
        self.say(spoken(ending))
        return True

    def say(self, word: dict[str, Any]) -> None:
        super().say({**word, "item": self._number})


class _RemoteRun:
    """What stands for the batch in the child."""

    def __init__(self, jobs: list[Job], token: str, line: _Line, task: Task[..., Any], executor: Executor) -> None:
        self.token = token
        self.line = line
        self.task = task
        self.executor = executor
        self.over = False
        self.lock = threading.Lock()
        self._reading = threading.Lock()
        self.members = [_RemoteMember(job, number, self) for number, job in enumerate(jobs)]

    def hear(self) -> None:
        with self._reading:
            if self.over:
                return
            for news in self.line.hear():
                for number in (*news["stop"], *news["lost"]):
                    self.members[number].cancelled = True
                for number in news["stop"]:
                    self.members[number].asked_to_cancel = True
                for number in news["lost"]:
                    self.members[number].lost = True

    def log_fields(self) -> Mapping[str, Any]:
        return {} if self.over else batch_fields([member.job for member in self.members])

    def end(self) -> None:
        """From here on the pipe is not read for this batch, whatever its threads still do: the next order comes."""
        with self._reading:
            self.over = True


def _find(module: str, name: str) -> Task[..., Any]:
    """The task, where the parent's code says it is. Names come from the parent's own functions, never from a job."""
    _has_read.clear()
    try:
        found: Any = importlib.import_module(module)
    finally:
        _has_read.set()
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, Task):
        raise TaskHarborError(f"{module}.{name} is no task")
    return found
