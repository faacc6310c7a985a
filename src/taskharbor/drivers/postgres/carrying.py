"""Carrying a PostgreSQL store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from psycopg import Connection
from psycopg.errors import LockNotAvailable

from taskharbor.core.carrying import JOBS, Clash
from taskharbor.core.errors import StoreError
from taskharbor.core.model import HistoryRow, Job
from taskharbor.drivers.carrying import Hands, SqlCarrier, upsert
from taskharbor.drivers.postgres.inspection import Inspection
from taskharbor.drivers.postgres.rows import job_from_row
from taskharbor.drivers.postgres.session import Row as SqlRow
from taskharbor.drivers.postgres.session import Session

T = TypeVar("T")


class PostgresHands:
    def __init__(self, session: Session, connection: Connection[SqlRow], prefix: str) -> None:
        self._session = session
        self._connection = connection
        self._prefix = prefix

    def rows(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        return self._connection.execute(sql.encode(), values).fetchall()

    def many(self, sql: str, each: Sequence[Sequence[Any]]) -> None:
        self._connection.cursor().executemany(sql.encode(), each)

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        statement = "import_job" if table == JOBS else "insert_fact"
        self._session.on_all(self._connection, [(statement, row) for row in rows])

    def jobs(self, ids: Sequence[str]) -> Sequence[tuple[Job, Sequence[Any]]]:
        return [_job(row) for row in self._session.on(self._connection, "carry_these", {"ids": list(ids)})]

    def remove(self, ids: Sequence[str]) -> None:
        for table, name in (("bench", "job_id"), ("jobs", "id")):
            sql = f"DELETE FROM {self._prefix}{table} WHERE {name} = ANY (%s)"
            self._connection.execute(sql.encode(), [list(ids)])


class PostgresCarrier(SqlCarrier):
    mark = "%s"
    lock = "FOR UPDATE SKIP LOCKED"

    def __init__(self, session: Session, inspection: Inspection, prefix: str) -> None:
        super().__init__(prefix)
        self._session = session
        self._inspection = inspection

    @property
    def identity(self) -> str:
        return str(self._session.run("store_id", {})[0][0])

    def _read(self, work: Callable[[Hands], T]) -> T:
        return self._session.transact(lambda connection: work(PostgresHands(self._session, connection, self._prefix)))

    def _write(self, work: Callable[[Hands], T]) -> T:
        return self._session.in_transaction(
            lambda connection: work(PostgresHands(self._session, connection, self._prefix))
        )

    def writers_ended(self, wait_s: float) -> bool:
        def lock(connection: Connection[SqlRow]) -> None:
            self._session.on(connection, "carry_patience", {"wait": f"{round(1000 * wait_s)}ms"})
            self._session.on(connection, "carry_writers", {})

        try:
            self._session.in_transaction(lock)
        except StoreError as error:
            if isinstance(error.__cause__, LockNotAvailable):
                return False
            raise
        return True

    def _jobs(self, after: str, limit: int) -> Sequence[tuple[Job, Sequence[Any]]]:
        return [_job(row) for row in self._session.run("carry_jobs", {"after": after, "limit": limit})]

    def _facts(self, after: str | None, limit: int) -> Sequence[HistoryRow]:
        return self._inspection.history(after, limit, statement="carry_history").rows

    def _clashing(self, clash: Clash, keys: Sequence[str], others: Sequence[str]) -> str:
        return upsert(clash, keys, others)

    def _flag_in(self, value: bool) -> bool:
        return value

    def _time_in(self, moment: datetime) -> datetime:
        return moment

    def _time_out(self, kept: Any) -> datetime:
        assert isinstance(kept, datetime)
        return kept


def _job(row: Sequence[Any]) -> tuple[Job, Sequence[Any]]:
    return job_from_row(row[:-4]), row[-4:]
