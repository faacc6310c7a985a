"""Carrying a MySQL or MariaDB store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from pymysql.err import MySQLError

from taskharbor.core.carrying import JOBS, Clash, Place
from taskharbor.core.clock import EPOCH
from taskharbor.core.model import HistoryRow, Job
from taskharbor.drivers.carrying import Hands, SqlCarrier
from taskharbor.drivers.mysql import inspection
from taskharbor.drivers.mysql.errors import number_of
from taskharbor.drivers.mysql.moves import take_positions
from taskharbor.drivers.mysql.rows import job_from_row
from taskharbor.drivers.mysql.store import Session, Store
from taskharbor.drivers.mysql.values import sql_time

T = TypeVar("T")
_NOT_IN_TIME: Final = 1205
_MAY_NOT_LOCK: Final = (1044, 1142)
"""Without the privilege LOCK TABLES nobody can be waited for."""


class MysqlHands:
    def __init__(self, session: Session) -> None:
        self._session = session

    def rows(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        return self._session.query(sql, values)

    def many(self, sql: str, each: Sequence[Sequence[Any]]) -> None:
        self._session.query_many(sql, each)

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if table == JOBS:
            self._session.insert("import_job", map(_times, rows))
        elif rows:
            first = take_positions(self._session, len(rows))
            facts = [{**_times(fact), "seq": seq} for seq, fact in enumerate(rows, first)]
            self._session.insert("import_fact", facts)

    def jobs(self, ids: Sequence[str]) -> Sequence[tuple[Job, Sequence[Any]]]:
        return [(job_from_row(row), row[32:]) for row in self._session.rows_by_id("carry_these", ids)]

    def remove(self, ids: Sequence[str]) -> None:
        self._session.run_ids("leave_bench", ids)
        self._session.run_ids("delete_jobs", ids)


class MysqlCarrier(SqlCarrier):
    mark = "%s"
    note_name = "name"
    bench_priority = "place_rank"
    lock = "FOR UPDATE SKIP LOCKED"

    def __init__(self, store: Store, prefix: str) -> None:
        super().__init__(prefix)
        self._store = store

    @property
    def identity(self) -> str:
        return self._store.read_identity()

    def _behind(self, names: Sequence[str], after: Place) -> tuple[str, list[Any]]:
        """Spelled out, because these servers find no range in a comparison of several columns at once."""
        parts: list[str] = []
        values: list[Any] = []
        for number, name in enumerate(names):
            parts.append(" AND ".join([*(f"{same} = %s" for same in names[:number]), f"{name} > %s"]))
            values.extend(after[: number + 1])
        return f"({' OR '.join(parts)})", values

    def _more(self, table: str) -> dict[str, Any]:
        return {"taken_at": sql_time(EPOCH), "taken_by": ""} if table == "keys" else {}

    def _read(self, work: Callable[[Hands], T]) -> T:
        return self._store.read(lambda session: work(MysqlHands(session)))

    def _write(self, work: Callable[[Hands], T]) -> T:
        return self._store.write(lambda session: work(MysqlHands(session)))

    def writers_ended(self, wait_s: float) -> bool:
        return self._store.read(lambda session: _writers_ended(session, max(1, round(wait_s))))

    def _jobs(self, after: str, limit: int) -> Sequence[tuple[Job, Sequence[Any]]]:
        rows = self._store.read(lambda session: session.rows("carry_jobs", after=after, limit=limit))
        return [(job_from_row(row), row[32:]) for row in rows]

    def _facts(self, after: str | None, limit: int) -> Sequence[HistoryRow]:
        return inspection.history(self._store, after, limit).rows

    def _clashing(self, clash: Clash, keys: Sequence[str], others: Sequence[str]) -> str:
        if clash == "refuse":
            return ""
        changes = [f"{name} = VALUES({name})" for name in others] if clash == "replace" else [f"{keys[0]} = {keys[0]}"]
        return f" ON DUPLICATE KEY UPDATE {', '.join(changes)}"

    def _bench_values(self, job: Job, tag: int | None, bucket: str) -> list[Any]:
        job_id, held_by, priority, place = super()._bench_values(job, tag, bucket)
        return [job_id, held_by, -priority, place]

    def _time_in(self, moment: datetime) -> str:
        return sql_time(moment)

    def _time_out(self, kept: Any) -> datetime:
        assert isinstance(kept, datetime)
        return kept


def _writers_ended(session: Session, wait_s: int) -> bool:
    session.run("carry_patience", wait=wait_s)
    try:
        session.run("carry_writers")
    except MySQLError as error:
        if number_of(error) == _NOT_IN_TIME:
            return False
        if number_of(error) in _MAY_NOT_LOCK:
            return True
        raise
    finally:
        session.run("carry_writers_go_on")
        session.run("carry_patience_ends")
    return True


def _times(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: sql_time(value) if isinstance(value, datetime) else value for name, value in params.items()}
