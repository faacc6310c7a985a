"""Carrying a MySQL or MariaDB store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from taskharbor.core.carrying import HISTORY, JOBS, Place
from taskharbor.core.clock import EPOCH
from taskharbor.core.model import HistoryRow, Job
from taskharbor.drivers.carrying import SqlCarrier, Step
from taskharbor.drivers.mysql import inspection
from taskharbor.drivers.mysql.moves import take_positions
from taskharbor.drivers.mysql.rows import job_from_row
from taskharbor.drivers.mysql.store import Session, Store
from taskharbor.drivers.mysql.values import sql_time


class MysqlCarrier(SqlCarrier):
    mark = "%s"
    note_name = "name"
    bench_priority = "place_rank"

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

    def _read(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        return self._store.read(lambda session: session.query(sql, values))

    def _write(self, steps: Sequence[Step], rows: Mapping[str, Sequence[Any]]) -> None:
        def work(session: Session) -> None:
            session.insert("import_job", map(_times, rows.get(JOBS, ())))
            if facts := rows.get(HISTORY, ()):
                first = take_positions(session, len(facts))
                session.insert("import_fact", [{**_times(fact), "seq": seq} for seq, fact in enumerate(facts, first)])
            for sql, values in steps:
                session.query_many(sql, values)

        self._store.write(work)

    def _jobs(self, after: str, limit: int) -> Sequence[tuple[Job, Sequence[Any]]]:
        rows = self._store.read(lambda session: session.rows("carry_jobs", after=after, limit=limit))
        return [(job_from_row(row), row[32:]) for row in rows]

    def _facts(self, after: str | None, limit: int) -> Sequence[HistoryRow]:
        return inspection.history(self._store, after, limit).rows

    def _bench_values(self, job: Job, tag: int | None, bucket: str) -> list[Any]:
        job_id, held_by, priority, place = super()._bench_values(job, tag, bucket)
        return [job_id, held_by, -priority, place]

    def _time_in(self, moment: datetime) -> str:
        return sql_time(moment)

    def _time_out(self, kept: Any) -> datetime:
        assert isinstance(kept, datetime)
        return kept


def _times(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: sql_time(value) if isinstance(value, datetime) else value for name, value in params.items()}
