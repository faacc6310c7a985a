"""Schedules: kept, paused, advanced."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taskharbor.core.model import Schedule
from taskharbor.drivers.mysql.store import Session
from taskharbor.drivers.mysql.values import optional_time, sql_time
from taskharbor.drivers.rows import schedule_from_row, schedule_params
from taskharbor.drivers.scheduling import no_schedule


def put(session: Session, schedule: Schedule) -> Schedule:
    params = schedule_params(schedule)
    session.run("put_schedule", **{name: sql_time(v) if isinstance(v, datetime) else v for name, v in params.items()})
    return get(session, schedule.name)


def schedules(session: Session) -> Sequence[Schedule]:
    return [schedule_from_row(row) for row in session.rows("schedules")]


def get(session: Session, name: str) -> Schedule:
    rows = session.rows("get_schedule", name=name)
    if not rows:
        raise no_schedule(name)
    return schedule_from_row(rows[0])


def pause(session: Session, name: str, paused: bool, now: datetime) -> bool:
    # Looked for first: the server counts rows that changed, and a pause of what is paused need not change one.
    found = bool(session.rows("lock_schedule", name=name))
    if found:
        session.run("pause_schedule", name=name, paused=paused, now=sql_time(now))
    return found


def remove(session: Session, name: str) -> bool:
    return session.run("remove_schedule", name=name) > 0


def advance(
    session: Session,
    name: str,
    expected: datetime | None,
    next_run_at: datetime | None,
    last_run_at: datetime | None,
    last_job_id: str | None,
    now: datetime,
) -> bool:
    """One row per schedule, locked while it is compared: of many callers the first finds what it expects."""
    rows = session.rows("lock_schedule", name=name)
    if not rows or schedule_from_row(rows[0]).next_run_at != expected:
        return False
    session.run(
        "advance_schedule",
        name=name,
        next_run_at=optional_time(next_run_at),
        last_run_at=optional_time(last_run_at),
        last_job_id=last_job_id,
        now=sql_time(now),
    )
    return True
