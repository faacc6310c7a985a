"""Carrying a PostgreSQL store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg import Connection

from taskharbor.core.carrying import HISTORY, JOBS
from taskharbor.core.model import HistoryRow, Job
from taskharbor.drivers.carrying import SqlCarrier, Step
from taskharbor.drivers.postgres.inspection import Inspection
from taskharbor.drivers.postgres.rows import job_from_row
from taskharbor.drivers.postgres.session import Row, Session


class PostgresCarrier(SqlCarrier):
    mark = "%s"

    def __init__(self, session: Session, inspection: Inspection, prefix: str) -> None:
        super().__init__(prefix)
        self._session = session
        self._inspection = inspection

    @property
    def identity(self) -> str:
        return str(self._session.run("store_id", {})[0][0])

    def _read(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        return self._session.transact(lambda connection: connection.execute(sql.encode(), values).fetchall())

    def _write(self, steps: Sequence[Step], rows: Mapping[str, Sequence[Any]]) -> None:
        def work(connection: Connection[Row]) -> None:
            calls = [("import_job", row) for row in rows.get(JOBS, ())]
            calls += [("insert_fact", row) for row in rows.get(HISTORY, ())]
            if calls:
                self._session.on_all(connection, calls)
            for sql, values in steps:
                connection.cursor().executemany(sql.encode(), values)

        self._session.in_transaction(work)

    def _jobs(self, after: str, limit: int) -> Sequence[tuple[Job, Sequence[Any]]]:
        rows = self._session.run("carry_jobs", {"after": after, "limit": limit})
        return [(job_from_row(row[:-4]), row[-4:]) for row in rows]

    def _facts(self, after: str | None, limit: int) -> Sequence[HistoryRow]:
        return self._inspection.history(after, limit, statement="carry_history").rows

    def _flag_in(self, value: bool) -> bool:
        return value

    def _time_in(self, moment: datetime) -> datetime:
        return moment

    def _time_out(self, kept: Any) -> datetime:
        assert isinstance(kept, datetime)
        return kept
