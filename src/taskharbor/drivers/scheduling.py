"""Schedules: the calls that all drivers share, and what survives when a definition is put again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from taskharbor.core import limits as bounds
from taskharbor.core.clock import checked
from taskharbor.core.errors import InvalidInput, ScheduleNotFound
from taskharbor.core.intake import admit
from taskharbor.core.limits import Limits, check_name
from taskharbor.core.model import NewJob, Overlap, Schedule
from taskharbor.drivers.checks import sought
from taskharbor.drivers.operations import StoreOperations
from taskharbor.drivers.rows import meta_from_text, timeout_from_nanos


class SchedulingCalls(StoreOperations):
    """The schedule part of the contract over the operations of a store."""

    limits: Limits

    @abstractmethod
    def _check_open(self) -> None: ...

    @abstractmethod
    def _moment(self, now: datetime | None) -> datetime: ...

    def put_schedule(self, schedule: Schedule, *, now: datetime | None = None) -> Schedule:
        moment = self._moment(now)
        with self._told_where():
            return self._put_schedule(check_schedule(schedule, moment, self.limits))

    def schedules(self) -> Sequence[Schedule]:
        self._check_open()
        return self._schedules()

    def get_schedule(self, name: str) -> Schedule:
        self._check_open()
        name = sought(name, "the name of a schedule")
        return self._get_schedule(name)

    def pause_schedule(self, name: str, *, paused: bool, now: datetime | None = None) -> None:
        moment = self._moment(now)
        name = sought(name, "the name of a schedule")
        with self._told_where():
            if not self._pause_schedule(name, _check_paused(paused), moment):
                raise no_schedule(name)

    def remove_schedule(self, name: str) -> bool:
        self._check_open()
        name = sought(name, "the name of a schedule")
        with self._told_where():
            return self._remove_schedule(name)

    def advance_schedule(
        self,
        name: str,
        *,
        expected: datetime | None,
        next_run_at: datetime | None,
        last_run_at: datetime | None = None,
        last_job_id: str | None = None,
        now: datetime | None = None,
    ) -> bool:
        moment = self._moment(now)
        name = sought(name, "the name of a schedule")
        return self._advance_schedule(
            name,
            None if expected is None else checked(expected, "expected"),
            None if next_run_at is None else checked(next_run_at, "next_run_at"),
            None if last_run_at is None else checked(last_run_at, "last_run_at"),
            None if last_job_id is None else check_name(last_job_id, "last_job_id", bounds.MAX_ID),
            moment,
        )


def check_schedule(given: Schedule, now: datetime, limits: Limits) -> Schedule:
    """The schedule as a store keeps it, updated at `now`. What it would enqueue is checked just as enqueue does."""
    if not isinstance(given, Schedule):
        raise InvalidInput(
            f"put_schedule takes a Schedule, got {type(given).__name__}: "
            'put_schedule(Schedule(name="…", spec="*/5 * * * *", type="…"))'
        )
    _check_fires(given, now)
    job = admit(
        [
            NewJob(
                type=given.type,
                payload=given.payload,
                queue=given.queue,
                tenant_id=given.tenant_id,
                meta=given.meta,
                priority=given.priority,
                timeout=given.timeout,
                max_attempts=given.max_attempts,
            )
        ],
        now,
        limits,
    ).fresh[0]
    return Schedule(
        name=check_name(given.name, "the name of a schedule", bounds.MAX_NAME),
        spec=check_name(given.spec, "spec", bounds.MAX_NAME),
        timezone=check_name(given.timezone, "timezone", bounds.MAX_NAME),
        type=job.type,
        payload=job.payload,
        queue=job.queue,
        tenant_id=job.tenant_id,
        priority=job.priority,
        max_attempts=given.max_attempts or None,
        timeout=timeout_from_nanos(job.timeout_nanos),
        meta=meta_from_text(job.meta),
        overlap=_check_overlap(given.overlap),
        paused=_check_paused(given.paused),
        next_run_at=None if given.next_run_at is None else checked(given.next_run_at, "next_run_at"),
        last_run_at=None if given.last_run_at is None else checked(given.last_run_at, "last_run_at"),
        last_job_id=None if given.last_job_id is None else check_name(given.last_job_id, "last_job_id", bounds.MAX_ID),
        updated_at=now,
    )


def _check_fires(given: Schedule, now: datetime) -> None:
    """Refuse a schedule that would wait for ever without a word. Text that is no cron of ours, and a time zone that is
    not known on this machine, are kept as they are: whoever runs the schedule says what is wrong with them."""
    from taskharbor.core.schedule import Cron

    try:
        cron = Cron.parse(given.spec, given.timezone)
    except InvalidInput:
        return
    cron.first_after(now)


def put_over(kept: Schedule | None, given: Schedule) -> Schedule:
    """What is kept when `given` is put where `kept` is: the new definition, with the life of the old one."""
    if kept is None:
        return given
    same_times = (kept.spec, kept.timezone) == (given.spec, given.timezone)
    return replace(
        given,
        paused=kept.paused,
        last_run_at=kept.last_run_at,
        last_job_id=kept.last_job_id,
        next_run_at=kept.next_run_at if same_times else given.next_run_at,
    )


def advanced(
    kept: Schedule,
    next_run_at: datetime | None,
    last_run_at: datetime | None,
    last_job_id: str | None,
    now: datetime,
) -> Schedule:
    return replace(
        kept,
        next_run_at=next_run_at,
        last_run_at=last_run_at or kept.last_run_at,
        last_job_id=last_job_id or kept.last_job_id,
        updated_at=now,
    )


def no_schedule(name: str) -> ScheduleNotFound:
    return ScheduleNotFound(f"no schedule is called {name!r}: schedules() lists those there are")


def _check_overlap(overlap: Overlap | str) -> Overlap:
    try:
        return Overlap(overlap)
    except ValueError:
        known = " or ".join(repr(known.value) for known in Overlap)
        raise InvalidInput(f"overlap must be {known}, got {overlap!r}") from None


def _check_paused(paused: bool) -> bool:
    if not isinstance(paused, bool):
        raise InvalidInput(f"paused must be True or False, got {paused!r}")
    return paused
