"""What `taskharbor demo` tells: steps with their times, each told only after it was seen to be true."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple, TypeVar

from taskharbor.app import Harbor, JobView
from taskharbor.cli.demo_app import slow
from taskharbor.cli.output import shortened
from taskharbor.core.contract import Driver
from taskharbor.core.errors import TaskHarborError
from taskharbor.core.ids import new_id
from taskharbor.core.model import Attempt, Enqueued, Job, JobFilter
from taskharbor.worker.runtime import Worker

PATIENCE_S: Final = 30.0
"""How long something may take to come true. On an idle machine, everything here takes a second or two."""
LOOK_S: Final = 0.01

T = TypeVar("T")


class Untrue(TaskHarborError):
    """Something that the demo promises did not happen."""


class Burst(NamedTuple):
    """Seconds on the wall for many quick jobs."""

    jobs: int
    enqueue_s: float
    drain_s: float


class Story:
    """The jobs so far, the workers that run them, and what has been told."""

    def __init__(self, harbor: Harbor, queue: str, say: Callable[[float, str], None], cleanup: ExitStack) -> None:
        self.harbor = harbor
        self.queue = queue
        self.jobs: dict[str, str] = {}
        """The jobs of the final table: ids by type, or by type and more where there are several."""
        self.steps: list[tuple[float, str]] = []
        self.burst: Burst | None = None
        self.failed: str | None = None
        """What did not come true, if anything did not."""
        self._say = say
        self._cleanup = cleanup
        self._began = time.monotonic()
        self.workers: list[str] = []

    @property
    def driver(self) -> Driver:
        return self.harbor.driver

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    # --- Telling -----------------------------------------------------------------------------------------

    def tell(self, what: str) -> None:
        self.steps.append((self.elapsed_s, what))
        self._say(*self.steps[-1])

    def check(self, is_true: object, promise: str) -> None:
        if not is_true:
            raise Untrue(promise)

    def until(self, promise: str, look: Callable[[], T | None]) -> T:
        """What `look` finds, as soon as it finds something."""
        ends = time.monotonic() + PATIENCE_S
        while not (found := look()):
            if time.monotonic() > ends:
                raise Untrue(f"{promise}, but not within {PATIENCE_S:g} s")
            time.sleep(LOOK_S)
        return found

    # --- Jobs --------------------------------------------------------------------------------------------

    def enqueue(self, type: str, arguments: dict[str, Any], **options: Any) -> Enqueued:
        answer = self.harbor.enqueue(type, arguments, **options)
        self.jobs.setdefault(type, answer.id)
        return answer

    def job(self, type: str) -> JobView:
        return self.harbor.job(self.jobs[type])

    def ended(self, type: str, state: str) -> JobView:
        """The job, once it has ended; it must have ended like this."""
        job = self.until(f"{type} ends", lambda: job if (job := self.job(type)).finished else None)
        self.check(job.state == state, f"{type} ends {state}, but it is {job.state}: {shortened(job.error)}")
        return job

    def ticks(self) -> Sequence[Job]:
        return self.driver.list(JobFilter(queue=self.queue, type="pulse.beat"), limit=100).jobs

    def counts(self) -> dict[str, int]:
        """The jobs of the story by status: not those of the schedule, whose number is a matter of time, and not the
        burst."""
        found = self.driver.counts().queues
        total: Counter[str] = Counter()
        for queue in (self.queue, slow(self.queue)):
            total.update({str(status): count for status, count in found.get(queue, {}).items()})
        total.subtract(str(job.status) for job in self.ticks())
        return {status: count for status, count in total.items() if count}

    def attempts(self) -> list[Attempt]:
        found = [attempt for id in self.jobs.values() for attempt in self.driver.attempts(id)]
        return sorted(found, key=lambda attempt: attempt.finished_at)

    # --- Workers -----------------------------------------------------------------------------------------

    def worker_id(self, name: str) -> str:
        """A name that no worker of another demo on the same store has."""
        id = f"{name}-{self.queue.rpartition('-')[2]}"
        if id not in self.workers:
            self.workers.append(id)
            self._cleanup.callback(self._sign_off, id)
        return id

    def _sign_off(self, id: str) -> None:
        """A worker that was killed cannot do it itself."""
        self.driver.deregister(id)

    def start_worker(self, name: str, slots: dict[str, int]) -> Worker:
        """A worker in this process, in the background until the story is over."""
        worker = self.harbor.worker(slots, name=self.worker_id(name), grace_s=0.5, poll_interval_s=0.1)
        self._cleanup.callback(worker.stop)
        worker.start()
        return worker


def new_queue() -> str:
    """A queue of its own for each demo, so that it disturbs nothing in a store that is in use."""
    return f"demo-{new_id()[-6:]}"
