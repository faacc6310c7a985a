"""Carrying a SQLite store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from taskharbor.core.carrying import HISTORY, JOBS
from taskharbor.core.clock import from_micros, to_micros
from taskharbor.core.model import HistoryRow, Job
from taskharbor.drivers.carrying import SqlCarrier, Step
from taskharbor.drivers.sqlite.records import fact_from_row, in_micros, job_from_row, moment, sequence_of
from taskharbor.drivers.sqlite.store import SqliteStore


class SqliteCarrier(SqlCarrier):
    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store._prefix)
        self._store = store

    @property
    def identity(self) -> str:
        with self._store._reading() as connection:
            return str(connection.execute(self._store._sql["store_id"]).fetchone()[0])

    def _read(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        with self._store._reading() as connection:
            return connection.execute(sql, values).fetchall()

    def _write(self, steps: Sequence[Step], rows: Mapping[str, Sequence[Any]]) -> None:
        statements = self._store._sql
        with self._store._writing() as connection:
            connection.executemany(statements["import_job"], [in_micros(row) for row in rows.get(JOBS, ())])
            connection.executemany(statements["insert_fact"], [in_micros(row) for row in rows.get(HISTORY, ())])
            for sql, values in steps:
                connection.executemany(sql, values)

    def _jobs(self, after: str, limit: int) -> Sequence[tuple[Job, Sequence[Any]]]:
        with self._store._reading() as connection:
            rows = connection.execute(self._store._sql["carry_jobs"], {"after": after, "limit": limit}).fetchall()
        return [(job_from_row(row), (moment(row[32]), moment(row[33]), row[34], moment(row[35]))) for row in rows]

    def _facts(self, after: str | None, limit: int) -> Sequence[HistoryRow]:
        identity = self.identity
        start = 0 if after is None else sequence_of(after, identity)
        with self._store._reading() as connection:
            rows = connection.execute(self._store._sql["history"], {"after": start, "limit": limit}).fetchall()
        return [fact_from_row(row, identity) for row in rows]

    def _time_in(self, moment: datetime) -> int:
        return to_micros(moment)

    def _time_out(self, kept: Any) -> datetime:
        return from_micros(kept)
