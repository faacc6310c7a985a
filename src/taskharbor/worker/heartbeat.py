"""Keeps leases alive, takes progress to the store, brings back cancels, and says that the worker lives."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import Final

from taskharbor.core.carrying import departure_of
from taskharbor.core.errors import InvalidInput, StoreError, TaskHarborError
from taskharbor.core.fleet import Worker
from taskharbor.core.limits import MAX_BATCH
from taskharbor.core.model import Extension, JobFilter, Lease, Status
from taskharbor.core.outcome import TIMED_OUT, Failed, settlement
from taskharbor.core.retry import Backoff
from taskharbor.worker.crew import Crew
from taskharbor.worker.held import Held
from taskharbor.worker.logs import job_fields, note_unbegun
from taskharbor.worker.patience import Patience

TICK_S: Final = 0.5
WORKER_BEAT_S: Final = 10.0
CANCEL_LOOK_S: Final = 2.0
TELL_START_S: Final = 1.0
"""A handler that has run this long is worth telling the store that it runs."""
LOOK_BATCH: Final = 100
TO_STOP_S: Final = 3.0
"""How long a coroutine that was cancelled at its timeout may take to end."""
MARGIN_TICKS: Final = 3
"""So many ticks before the lease ends, the attempt of a handler that nobody can end is settled as failed."""

log = logging.getLogger("taskharbor.worker")


class Heartbeat:
    """Leases are extended when a third of them has passed, all in one call."""

    def __init__(self, crew: Crew, row: Worker | None) -> None:
        self._crew = crew
        self._row = row
        self._tick_s = min(TICK_S, crew.lease_s / 6)
        self._beat_at = 0.0
        self._cancels_at = 0.0
        self._stop = threading.Event()
        self._losing = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for name, loop in (("heartbeat", self._loop), ("deadlines", self._watch)):
            thread = threading.Thread(target=loop, name=f"taskharbor-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self, patience: Patience) -> None:
        self._stop.set()
        for thread in self._threads:
            patience.join(thread)

    def deregister(self) -> None:
        if self._row is not None:
            self._crew.driver.deregister(self._row.id)

    def _loop(self) -> None:
        while not self._stop.wait(self._tick_s):
            try:
                self.step(time.monotonic())
            except StoreError as error:
                self._crew.outage.began(error)
            except Exception:
                log.exception("the heartbeat failed and goes on")

    def _watch(self) -> None:
        """Never asks the store, which may neither answer nor fail: a lease that has run out meanwhile is over."""
        while not self._stop.wait(self._tick_s):
            try:
                self._give_up_lost(time.monotonic())
            except Exception:
                log.exception("the watch over deadlines failed and goes on")

    def step(self, moment: float) -> None:
        """What is due at this moment of the monotonic clock."""
        held_now = self._crew.registry.snapshot()
        due = [held for held in held_now if self._is_due(held, moment)]
        for start in range(0, len(due), MAX_BATCH):
            self._extend(due[start : start + MAX_BATCH])
        self._settle_overdue([held for held in held_now if self._is_past_help(held, moment)])
        if moment >= self._cancels_at:
            self._cancels_at = moment + CANCEL_LOOK_S
            self._look_for_cancels([held for held in held_now if self._may_be_cancelled(held, moment)])
        if self._row is not None and moment >= self._beat_at:
            self._beat(self._row)
            self._beat_at = moment + WORKER_BEAT_S

    def _beat(self, row: Worker) -> None:
        """In a store that was moved nobody clears away whoever falls silent: there it signs off instead."""
        departure = departure_of(self._crew.driver)
        if departure is not None and departure.gone:
            self._crew.driver.deregister(row.id)
        else:
            self._crew.driver.heartbeat(row)

    def _is_due(self, held: Held, moment: float) -> bool:
        if held.lost or held.overdue or held.ending is not None:
            return False
        if self._is_overdue(held, moment):
            self._report_overdue(held)
            return False
        return (
            held.deadline - moment <= self._crew.lease_s * 2 / 3
            or held.asked_s is not None
            or held.reported is not None
            or (bool(held.started) and not held.start_is_known and moment - held.started > TELL_START_S)
        )

    def _is_overdue(self, held: Held, moment: float) -> bool:
        """Processes are ended by their slots, and so are coroutines, unless they do not listen. Threads cannot be."""
        timeout = held.timeout
        if timeout is None or not held.started or held.task is None or held.task.pool == "process":
            return False
        return moment - held.started > timeout.total_seconds() + (TO_STOP_S if held.is_async else 0.0)

    def _report_overdue(self, held: Held) -> None:
        """A handler that nobody can end has what is left of its lease to end by itself."""
        timeout = held.timeout
        assert timeout is not None
        held.overdue = True
        held.stop()
        why = "does not stop or blocks the event loop" if held.is_async else "is in a thread, which cannot be ended"
        log.error(
            "%s is past its timeout of %g s and %s: its lease is no longer extended",
            held.job.type, timeout.total_seconds(), why, extra=job_fields(held.job),
        )  # fmt: skip

    def _is_past_help(self, held: Held, moment: float) -> bool:
        """Whether an overdue handler has had the time of a lease. A longer one, which it may have asked for while
        there was hope, is not waited for."""
        if not held.overdue or held.lost or held.ending is not None:
            return False
        assert held.timeout is not None
        over_at = held.started + held.timeout.total_seconds() + self._crew.lease_s
        return moment >= min(held.deadline, over_at) - MARGIN_TICKS * self._tick_s

    def _settle_overdue(self, items: list[Held]) -> None:
        """Their attempts have failed, which the store is told while the lease is still ours: left to run out, the
        lease would look as if the job had brought its worker down."""
        if not items:
            return
        crew, now = self._crew, self._crew.driver.now()
        endings = [Failed(_timed_out(held), kind=TIMED_OUT) for held in items]
        words = [
            settlement(ending, held.job, held.token, held.started_at, now, _policy(crew, held))
            for held, ending in zip(items, endings, strict=True)
        ]
        for held, ending, result in zip(items, endings, crew.driver.settle(words), strict=True):
            if held.ending is not None or held.lost:
                continue  # it ended at this very moment: whichever of the two words came first has counted
            self._drop(held)
            fields = job_fields(held.job)
            if isinstance(result, TaskHarborError):
                crew.tally.count_lost(held)
                log.warning("the lease was lost before the end could be told: %s", result, extra=fields)
                continue
            crew.tally.count(result, ending)
            then = {Status.READY: "runs again", Status.DLQ: "failed for good"}.get(result, "was cancelled")
            level = logging.WARNING if result is Status.READY else logging.ERROR
            log.log(level, "%s timed out and %s; its handler is left behind", held.job.type, then, extra=fields)

    def _extend(self, due: list[Held]) -> None:
        before = time.monotonic()
        leases_s = [max(self._crew.lease_s, held.asked_s or 0.0, held.deadline - before) for held in due]
        reports = [held.reported for held in due]
        extensions = [
            Extension(held.job.id, held.token, lease_s, held.started_at, report)
            for held, lease_s, report in zip(due, leases_s, reports, strict=True)
        ]
        try:
            results = self._crew.driver.extend(extensions)
        except InvalidInput as error:
            # Somebody's progress cannot be kept. That must not cost anybody a lease.
            log.warning("progress is left out, for what a handler reported cannot be kept: %s", error)
            results = self._crew.driver.extend([replace(extension, progress=None) for extension in extensions])
        self._crew.outage.over()
        unbegun = 0
        for held, lease_s, report, result in zip(due, leases_s, reports, results, strict=True):
            if held.reported is report:
                held.reported = None
            if held.asked_s is not None and held.asked_s <= lease_s:
                held.asked_s = None
            unbegun += self._told(held, result, before + lease_s)
        note_unbegun(unbegun)

    def _told(self, held: Held, result: Lease | TaskHarborError, deadline: float) -> bool:
        """Whether it was lost before its handler began."""
        if isinstance(result, Lease):
            held.deadline = deadline
            held.start_is_known = held.started_at is not None
            if result.cancel_requested:
                self._cancel(held)
        elif held.ending is None and (begun := self._lose(held)) is not None:
            if not begun:
                return True
            log.warning("the lease is lost, the handler is told to stop: %s", result, extra=job_fields(held.job))
        return False

    def _may_be_cancelled(self, held: Held, moment: float) -> bool:
        """Short handlers, and short waits for a slot, are not worth the question."""
        is_long = moment - (held.started or held.claimed) > CANCEL_LOOK_S
        return is_long and held.ending is None and not (held.lost or held.asked_to_cancel)

    def _look_for_cancels(self, running: list[Held]) -> None:
        """A cancel comes back with the next extension, which may be long in coming: so ask in between."""
        for start in range(0, len(running), LOOK_BATCH):
            some = {held.job.id: held for held in running[start : start + LOOK_BATCH]}
            page = self._crew.driver.list(JobFilter(ids=list(some), status=Status.INFLIGHT), limit=len(some))
            for job in page.jobs:
                if job.cancel_requested_at is not None and job.lease_token == some[job.id].token:
                    self._cancel(some[job.id])

    def _cancel(self, held: Held) -> None:
        if not held.asked_to_cancel:
            held.asked_to_cancel = True
            # How it ends is said when it has: a thread may go on to its end, and be done.
            what = "was told to stop, and will be cancelled when it does"
            if not held.started:
                what = "was cancelled before it ran"
            log.info("%s %s", held.job.type, what, extra=job_fields(held.job))
            held.stop()

    def _give_up_lost(self, moment: float) -> None:
        """By our own clock the lease has ended, whether or not the store could be asked."""
        unbegun = 0
        for held in self._crew.registry.snapshot():
            if held.deadline > moment or held.ending is not None or (begun := self._lose(held)) is None:
                continue
            if begun:
                log.warning("the lease ran out, the handler is told to stop", extra=job_fields(held.job))
            else:
                unbegun += 1
        note_unbegun(unbegun)

    def _lose(self, held: Held) -> bool | None:
        """Whether its handler had begun; None if the other thread was quicker."""
        with self._losing:
            if held.lost:
                return None
            held.lost = True
        if not held.started:
            self._crew.allowance.give_back(1)
        self._drop(held)
        return self._crew.tally.count_lost(held)

    def _drop(self, held: Held) -> None:
        """The job is no longer ours: whatever the handler still comes to, nothing is settled."""
        held.lose()
        self._crew.registry.remove([held])
        # A handler that goes on without its lease, in a thread that cannot be ended, holds up nobody else.
        self._crew.quarantine.ended([held])


def _timed_out(held: Held) -> str:
    assert held.timeout is not None
    where = "it blocks the event loop or heeds no cancel" if held.is_async else "its thread cannot be ended"
    return f"timed out after {held.timeout.total_seconds():g} s, and {where}"


def _policy(crew: Crew, held: Held) -> Backoff:
    return (held.task.retry if held.task is not None else None) or crew.retry
