"""Schedules and the jobs of their ticks, for whoever acts on one: workers, the command line, the dashboard."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

from taskharbor.core.clock import to_micros
from taskharbor.core.contract import Driver
from taskharbor.core.limits import MAX_KEY
from taskharbor.core.model import NewJob, Schedule
from taskharbor.core.schedule import Cron


def run_now(driver: Driver, name: str, now: datetime) -> str:
    """Enqueue one job of the schedule beside its ticks, paused or not, and return its id. Nothing else changes."""
    return driver.enqueue([job_of(driver.get_schedule(name))], now)[0].id


def resume(driver: Driver, name: str, now: datetime) -> None:
    """End the pause of a schedule. Ticks that passed meanwhile are not made up for, not even when no worker was there
    to let them pass."""
    schedule = driver.get_schedule(name)
    tick = schedule.next_run_at
    if schedule.paused and tick is not None and tick <= now:
        following = Cron.parse(schedule.spec, schedule.timezone).next_after(now)
        driver.advance_schedule(name, expected=tick, next_run_at=following, now=now)
    driver.pause_schedule(name, paused=False, now=now)


def tick_id(name: str, tick: datetime) -> str:
    """The id of the job of that tick: shaped and sorted like every other id, and the same for everybody."""
    noise = sha256(f"{name}\0{_text(tick)}".encode()).hexdigest()
    head = f"{to_micros(tick) // 1000:012x}"
    return f"{head[:8]}-{head[8:]}-7{noise[:3]}-8{noise[3:6]}-{noise[6:18]}"


def job_of(schedule: Schedule, tick: datetime | None = None) -> NewJob:
    """The job of one tick; without a tick, one that stands for itself."""
    if tick is None:
        own, id, key = {"schedule": schedule.name}, None, None
    else:
        own = {"schedule": schedule.name, "tick": _text(tick)}
        id, key = tick_id(schedule.name, tick), _key(schedule.name, tick)
    return NewJob(
        type=schedule.type,
        payload=schedule.payload,
        queue=schedule.queue,
        tenant_id=schedule.tenant_id,
        id=id,
        meta={**own, **schedule.meta},
        priority=schedule.priority,
        timeout=schedule.timeout,
        max_attempts=schedule.max_attempts,
        idempotency_key=key,
        # The name in the key is unique by itself. Queue and type may be redefined between two tries at one tick.
        unique=("tenant",),
    )


def _key(name: str, tick: datetime) -> str:
    key = f"schedule:{name}:{_text(tick)}"
    return key if len(key) <= MAX_KEY else f"schedule:sha256-{sha256(name.encode()).hexdigest()}:{_text(tick)}"


def _text(tick: datetime) -> str:
    return tick.astimezone(UTC).isoformat()
