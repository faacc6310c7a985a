"""What a Spark task does: it is a worker of the queue, as `taskharbor worker` is one, with some of the slots."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskharbor.app.store import Store
from taskharbor.core.logged import log_to
from taskharbor.drivers.opening import redacted
from taskharbor.pipeline.work_app import find_harbor
from taskharbor.pipeline.work_channel import Address, Listener

if TYPE_CHECKING:
    from taskharbor.app import Harbor

_EXECUTOR: Final = re.compile(r"[?&]executorId=([^&]+)")
_DIRECTORY: Final = re.compile(r"/app-[^/]+/(\d+)$")


@dataclass(frozen=True, slots=True)
class Order:
    """What the workers of a run are told. Pickled with the task; the URL may hold a password, so it is never shown."""

    run: str
    """How the names of all its workers begin."""
    app: str
    url: str
    queues: tuple[str, ...]
    slots: tuple[int, ...]
    """Of each queue, for each task."""
    lease_s: float
    grace_s: float
    ends_at: datetime | None
    """By the store's clock; None: when nothing is left that is due."""
    caller: Address | None
    log_level: str = "warning"
    log_format: str = "text"

    def __repr__(self) -> str:
        return f"Order({self.run!r}, {self.app!r}, {redacted(self.url)!r})"


def shares(slots: int, tasks: int) -> tuple[int, ...]:
    """So many slots for so many tasks, as evenly as it goes; each task gets at least one."""
    tasks = max(1, min(slots, tasks))
    return tuple(slots // tasks + (number < slots % tasks) for number in range(tasks))


def run_part(order: Order, part: int) -> Iterator[dict[str, str]]:
    """Work until there is nothing more to do. Yields what went wrong, if anything did; what was done, the store knows.

    An error is handed back instead of raised: Spark would try the same again, and say it in a page of traces.
    """
    name = worker_name(order.run, part)
    try:
        with _logged(order, name):
            _work(order, part, name)
    except Exception as error:
        yield {"worker": name, "error": f"{type(error).__name__}: {error}"}


@contextmanager
def _logged(order: Order, name: str) -> Iterator[None]:
    """The worker's log on the standard error of this process, each line with its job and worker: Spark's Python has
    no log of its own, and would print bare messages. It stays as it is where the application has set one up."""
    logger = logging.getLogger("taskharbor")
    if logger.hasHandlers():
        yield
        return
    level = logger.level
    handler = log_to(level=order.log_level, format=order.log_format)
    handler.addFilter(_Named(name))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Named(logging.Filter):
    def __init__(self, name: str) -> None:
        super().__init__()
        self._worker = name

    def filter(self, record: logging.LogRecord) -> bool:
        record.worker = self._worker
        return True


def _work(order: Order, part: int, name: str) -> None:
    os.environ["TASKHARBOR_URL"] = order.url  # what a Harbor() without a URL of its own looks for
    harbor = _harbor(order)
    try:
        worker: Any = harbor.worker(
            dict.fromkeys(order.queues, order.slots[part]),
            lease_s=order.lease_s,
            grace_s=order.grace_s,
            name=name,
        )
        listener = Listener(order.caller, worker._stopping.set, worker.hurry)
        try:
            if order.ends_at is None:
                worker.drain()
            else:
                _run_until(worker, (order.ends_at - harbor.now()).total_seconds())
        finally:
            listener.close()
    finally:
        harbor.close()


def _run_until(worker: Any, seconds: float) -> None:
    if seconds <= 0:
        return
    timer = threading.Timer(seconds, worker._stopping.set)
    timer.daemon = True
    timer.start()
    try:
        worker.run()
    finally:
        timer.cancel()


def _harbor(order: Order) -> Harbor:
    """The application's Harbor on the store of this run, whatever the environment of the executor says. Spark keeps
    its Python processes, so the module may have been imported before, and its store closed."""
    harbor = find_harbor(order.app)
    harbor._store = Store(order.url, None, harbor._store._limits, migrate=False)
    harbor.url = order.url
    return harbor


def worker_name(run: str, part: int) -> str:
    """`spark-3f9a-e0-p1-t7`: run, executor, partition and task, the last of which Spark uses once."""
    from pyspark import TaskContext

    context = TaskContext.get()
    task = context.taskAttemptId() if context else os.getpid()
    return f"{run}-e{executor_name()}-p{part}-t{task}-{socket.gethostname()[:64]}"


def executor_name() -> str:
    """Python is not told which executor it belongs to, but each kind of cluster leaves a trace of it."""
    if found := os.environ.get("SPARK_EXECUTOR_ID"):
        return found
    if match := _EXECUTOR.search(os.environ.get("SPARK_LOG_URL_STDERR", "")):
        return match[1]
    if match := _DIRECTORY.search(str(Path.cwd())):
        return match[1]
    return "local"
