"""From schedules to jobs: every tick is enqueued exactly once, however many processes try.

A job is only ever enqueued for the tick that the store has as the schedule's `next_run_at`. Its id and its
idempotency key follow from the schedule's name and that tick, so whoever comes second is told that it exists, and
`advance_schedule` moves on from a tick for one caller only. Being killed between the two leaves a tick that the next
one enqueues again, to no effect, and then advances.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from taskharbor.app.ticks import job_of, resume, run_now, tick_id
from taskharbor.core.contract import Driver
from taskharbor.core.errors import IdempotencyConflict, InvalidInput, JobNotFound, StoreError
from taskharbor.core.model import Overlap, Schedule, Status
from taskharbor.core.schedule import Cron

log = logging.getLogger("taskharbor.worker")

__all__ = ["Scheduler", "register", "resume", "run_now", "run_schedules", "tick_id"]

_UNFINISHED: Final = (Status.READY, Status.INFLIGHT)


def register(driver: Driver, definitions: Mapping[str, Schedule] | Iterable[Schedule], now: datetime) -> list[Schedule]:
    """Put an application's periodic definitions into the store, each with its first tick after `now`.

    A schedule that the store knows keeps its pause, and its next tick unless its times changed: so a worker that
    starts after a downtime still finds the tick that was missed. Every definition is checked before any is put.
    """
    given = definitions.values() if isinstance(definitions, Mapping) else definitions
    ready = [replace(each, next_run_at=Cron.parse(each.spec, each.timezone).first_after(now)) for each in given]
    return [driver.put_schedule(schedule, now=now) for schedule in ready]


def run_schedules(driver: Driver, now: datetime) -> int:
    """One pass over all schedules; how many jobs it enqueued."""
    return Scheduler(driver).tick(now)


class Scheduler:
    """Enqueues what is due. `permitted` is asked before each schedule; False ends the pass."""

    def __init__(self, driver: Driver, *, permitted: Callable[[], bool] = lambda: True) -> None:
        self._driver = driver
        self._permitted = permitted
        self._said: dict[str, str] = {}
        self.next_due: datetime | None = None
        """The earliest tick to come, as of the last pass."""

    def tick(self, now: datetime) -> int:
        """One pass over all schedules; how many jobs it enqueued. A schedule that cannot be run is reported once
        and does not hold up the others; a store that cannot be used is an error of the whole pass."""
        enqueued = 0
        coming: list[datetime] = []
        # While a store is drained into this one, the ticks are that one's: two stores would run each of them twice.
        filling = getattr(self._driver, "is_filling", None)
        if filling is not None and filling():
            return 0
        schedules = self._driver.schedules()
        self._said = {each.name: self._said[each.name] for each in schedules if each.name in self._said}
        for schedule in schedules:
            if not self._permitted():
                break
            try:
                added, next_run_at = self._run(schedule, now)
            except StoreError:
                raise
            except Exception as error:
                self._say(schedule.name, logging.ERROR, f"cannot run: {error}")
                continue
            enqueued += added
            if next_run_at is not None and not schedule.paused:
                coming.append(next_run_at)
        self.next_due = min(coming, default=None)
        return enqueued

    def _run(self, schedule: Schedule, now: datetime) -> tuple[int, datetime | None]:
        """Bring one schedule up to date: how many jobs were added, and its next tick if this pass knows it."""
        tick = schedule.next_run_at
        if tick is not None and tick > now:
            return 0, tick
        cron = Cron.parse(schedule.spec, schedule.timezone)
        following = cron.next_after(now)
        if tick is None:  # put without a first tick, or one that never fires
            if following is None:
                self._say(schedule.name, logging.WARNING, f"{schedule.spec!r} never fires: correct its day or month")
            return 0, following if following is None or self._advance(schedule, following, now) else None
        if schedule.paused:  # ticks of a pause are not missed: they pass, and are not made up for later
            self._advance(schedule, following, now)
            return 0, None
        latest = cron.previous_at_or_before(now)
        if latest is not None and latest > tick:
            # After a downtime only the latest tick counts. It becomes the stored one first, so that everybody who
            # comes now, whatever the time on their clock, works on the same tick.
            passed_over = self._passed_over(schedule, tick)
            if not self._driver.advance_schedule(
                schedule.name,
                expected=tick,
                next_run_at=latest,
                last_run_at=None if passed_over is None else tick,
                last_job_id=passed_over,
                now=now,
            ):
                return 0, None
            schedule = replace(schedule, next_run_at=latest, last_job_id=passed_over or schedule.last_job_id)
            tick = latest
        if self._overlaps(schedule):
            if not self._advance(schedule, following, now):
                return 0, None
            reason = f"tick skipped: job {schedule.last_job_id} of an earlier one is not over"
            self._say(schedule.name, logging.WARNING, reason)
            return 0, following
        job_id, added = self._enqueue(schedule, tick, now)
        self._said.pop(schedule.name, None)
        moved = self._advance(schedule, following, now, ran=tick, job_id=job_id)
        return int(added), following if moved else None

    def _enqueue(self, schedule: Schedule, tick: datetime, now: datetime) -> tuple[str, bool]:
        """The id of this tick's job, and whether it is new."""
        job_id = tick_id(schedule.name, tick)
        try:
            answer = self._driver.enqueue([job_of(schedule, tick)], now)[0]
        except IdempotencyConflict as conflict:  # enqueued before the payload was redefined
            return conflict.existing_id or job_id, False
        except InvalidInput:
            if self._status(job_id) is None:
                raise
            return job_id, False  # enqueued before the schedule was moved to another tenant
        return answer.id, not answer.existed

    def _passed_over(self, schedule: Schedule, tick: datetime) -> str | None:
        """The job of a tick that is about to be passed over, if somebody was killed right after enqueueing it: the
        overlap policy must not overlook it."""
        job_id = tick_id(schedule.name, tick)
        return job_id if schedule.overlap == Overlap.SKIP and self._status(job_id) is not None else None

    def _overlaps(self, schedule: Schedule) -> bool:
        if schedule.overlap != Overlap.SKIP or schedule.last_job_id is None:
            return False
        return self._status(schedule.last_job_id) in _UNFINISHED

    def _status(self, job_id: str) -> Status | None:
        try:
            return self._driver.get(job_id).status
        except JobNotFound:
            return None

    def _advance(
        self,
        schedule: Schedule,
        following: datetime | None,
        now: datetime,
        *,
        ran: datetime | None = None,
        job_id: str | None = None,
    ) -> bool:
        return self._driver.advance_schedule(
            schedule.name,
            expected=schedule.next_run_at,
            next_run_at=following,
            last_run_at=ran,
            last_job_id=job_id,
            now=now,
        )

    def _say(self, name: str, level: int, text: str) -> None:
        if self._said.get(name) != text:
            self._said[name] = text
            log.log(level, "schedule %s: %s", name, text)
