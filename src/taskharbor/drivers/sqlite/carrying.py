"""Carrying a SQLite store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from sqlite3 import Connection
from typing import Any, TypeVar

from taskharbor.core.carrying import JOBS, Clash
from taskharbor.core.clock import from_micros, to_micros
from taskharbor.core.model import HistoryRow, Job
from taskharbor.drivers.carrying import Hands, SqlCarrier, upsert
from taskharbor.drivers.sqlite.records import fact_from_row, in_micros, job_from_row, moment, sequence_of
from taskharbor.drivers.sqlite.store import SqliteStore

T = TypeVar("T")


class SqliteHands:
    def __init__(self, connection: Connection, statements: Mapping[str, str]) -> None:
        self._connection = connection
        self._statements = statements

    def rows(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        return self._connection.execute(sql, values).fetchall()

    def many(self, sql: str, each: Sequence[Sequence[Any]]) -> None:
        self._connection.executemany(sql, each)

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        statement = self._statements["import_job" if table == JOBS else "insert_fact"]
        self._connection.executemany(statement, [in_micros(dict(row)) for row in rows])

    def jobs(self, ids: Sequence[str]) -> Sequence[tuple[Job, Sequence[Any]]]:
        params = {"ids": json.dumps(list(ids))}
        return [_job(row) for row in self._connection.execute(self._statements["carry_these"], params)]

    def remove(self, ids: Sequence[str]) -> None:
        for name in ("leave_bench", "delete_job"):
            self._connection.executemany(self._statements[name], [{"id": id} for id in ids])


class SqliteCarrier(SqlCarrier):
    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store._prefix)
        self._store = store

    @property
    def identity(self) -> str:
        with self._store._reading() as connection:
            return str(connection.execute(self._store._sql["store_id"]).fetchone()[0])

    def _read(self, work: Callable[[Hands], T]) -> T:
        with self._store._reading() as connection:
            return work(SqliteHands(connection, self._store._sql))

    def _write(self, work: Callable[[Hands], T]) -> T:
        with self._store._writing() as connection:
            return work(SqliteHands(connection, self._store._sql))

    def _jobs(self, after: str, limit: int) -> Sequence[tuple[Job, Sequence[Any]]]:
        with self._store._reading() as connection:
            rows = connection.execute(self._store._sql["carry_jobs"], {"after": after, "limit": limit}).fetchall()
        return [_job(row) for row in rows]

    def _facts(self, after: str | None, limit: int) -> Sequence[HistoryRow]:
        identity = self.identity
        start = 0 if after is None else sequence_of(after, identity)
        with self._store._reading() as connection:
            rows = connection.execute(self._store._sql["history"], {"after": start, "limit": limit}).fetchall()
        return [fact_from_row(row, identity) for row in rows]

    def _clashing(self, clash: Clash, keys: Sequence[str], others: Sequence[str]) -> str:
        return upsert(clash, keys, others)

    def _time_in(self, moment: datetime) -> int:
        return to_micros(moment)

    def _time_out(self, kept: Any) -> datetime:
        return from_micros(kept)


def _job(row: Sequence[Any]) -> tuple[Job, Sequence[Any]]:
    return job_from_row(row), (moment(row[32]), moment(row[33]), row[34], moment(row[35]))
