"""Schedules: kept, paused, advanced."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taskharbor.core.model import Schedule
from taskharbor.drivers.postgres.session import Session
from taskharbor.drivers.rows import schedule_from_row, schedule_params
from taskharbor.drivers.scheduling import no_schedule


class Scheduling:
    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, schedule: Schedule) -> Schedule:
        return schedule_from_row(self._session.change_all(("put_schedule", schedule_params(schedule)))[0][0])

    def schedules(self) -> Sequence[Schedule]:
        return [schedule_from_row(row) for row in self._session.run("schedules", {})]

    def get(self, name: str) -> Schedule:
        rows = self._session.run("get_schedule", {"name": name})
        if not rows:
            raise no_schedule(name)
        return schedule_from_row(rows[0])

    def pause(self, name: str, paused: bool, now: datetime) -> bool:
        return bool(self._session.change_all(("pause_schedule", {"name": name, "paused": paused, "now": now}))[0])

    def remove(self, name: str) -> bool:
        return bool(self._session.change_all(("remove_schedule", {"name": name}))[0])

    def advance(
        self,
        name: str,
        expected: datetime | None,
        next_run_at: datetime | None,
        last_run_at: datetime | None,
        last_job_id: str | None,
        now: datetime,
    ) -> bool:
        step = {
            "name": name,
            "expected": expected,
            "next_run_at": next_run_at,
            "last_run_at": last_run_at,
            "last_job_id": last_job_id,
            "now": now,
        }
        return bool(self._session.run("advance_schedule", step))
