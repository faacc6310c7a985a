"""Schedules: kept, paused, advanced."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taskharbor.core.clock import to_micros
from taskharbor.core.model import Schedule
from taskharbor.drivers.rows import schedule_from_row, schedule_params
from taskharbor.drivers.scheduling import no_schedule
from taskharbor.drivers.sqlite.records import Row, in_micros, micros, moment
from taskharbor.drivers.sqlite.store import SqliteStore


class Scheduling(SqliteStore):
    """The schedules of the contract."""

    def _put_schedule(self, schedule: Schedule) -> Schedule:
        with self._changing() as connection:
            rows = connection.execute(self._sql["put_schedule"], in_micros(schedule_params(schedule))).fetchall()
        return _schedule(rows[0])

    def _schedules(self) -> Sequence[Schedule]:
        with self._reading() as connection:
            return [_schedule(row) for row in connection.execute(self._sql["schedules"])]

    def _get_schedule(self, name: str) -> Schedule:
        with self._reading() as connection:
            row = connection.execute(self._sql["get_schedule"], {"name": name}).fetchone()
        if row is None:
            raise no_schedule(name)
        return _schedule(row)

    def _pause_schedule(self, name: str, paused: bool, now: datetime) -> bool:
        params = {"name": name, "paused": paused, "now": to_micros(now)}
        with self._changing() as connection:
            return connection.execute(self._sql["pause_schedule"], params).rowcount > 0

    def _remove_schedule(self, name: str) -> bool:
        with self._changing() as connection:
            return connection.execute(self._sql["remove_schedule"], {"name": name}).rowcount > 0

    def _advance_schedule(
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
            "expected": micros(expected),
            "next_run_at": micros(next_run_at),
            "last_run_at": micros(last_run_at),
            "last_job_id": last_job_id,
            "now": to_micros(now),
        }
        with self._writing() as connection:
            return connection.execute(self._sql["advance_schedule"], step).rowcount > 0


def _schedule(row: Row) -> Schedule:
    *definition, next_run_at, last_run_at, last_job_id, updated_at = row
    return schedule_from_row([*definition, moment(next_run_at), moment(last_run_at), last_job_id, moment(updated_at)])
