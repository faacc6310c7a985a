"""Questions about jobs and their history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.core.answers import CensusRow, Counts, Glance, Glances, HistoryPage, Page
from taskharbor.core.clock import from_micros, to_micros
from taskharbor.core.errors import JobNotFound
from taskharbor.core.model import Attempt, Job, JobFilter, Status
from taskharbor.drivers.rows import glance_from_row, matches
from taskharbor.drivers.sqlfiles import with_lines
from taskharbor.drivers.sqlite.records import (
    Row,
    attempt_from_row,
    ended_from_row,
    fact_from_row,
    job_from_row,
    moment,
    sequence_of,
)
from taskharbor.drivers.sqlite.store import Connection, SqliteStore

_LIVE = (None, Status.READY, Status.INFLIGHT, Status.DLQ)
_FINISHED = (None, Status.DONE, Status.EXPIRED, Status.CANCELLED)


class Reading(SqliteStore):
    """The reads of the contract."""

    def _get(self, id: str) -> Job:
        with self._reading() as connection:
            return self._find(connection, id)

    def _list(self, filter: JobFilter, cursor: str | None, limit: int) -> Page:
        with self._reading() as connection:
            if filter.ids is not None:
                found = self._with_ids(connection, filter, cursor)
            else:
                found = self._page(connection, filter, cursor, limit + 1)
        found.sort(key=lambda job: job.id, reverse=True)
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)

    def _with_ids(self, connection: Connection, filter: JobFilter, cursor: str | None) -> list[Job]:
        found = []
        for id in dict.fromkeys(filter.ids or ()):
            try:
                job = self._find(connection, id)
            except JobNotFound:
                continue
            if (cursor is None or job.id < cursor) and matches(job, filter):
                found.append(job)
        return found

    def _page(self, connection: Connection, filter: JobFilter, before: str | None, limit: int) -> list[Job]:
        """The first jobs of the page from the live and from the finished ones; together they hold the page."""
        # To SQLite every text is less than any blob, so an empty blob stands behind the last id there can be.
        end = b"" if before is None else before
        params = {**filter_params(filter), "before": end, "limit": limit}
        found: list[Job] = []
        if filter.status in _LIVE:
            live = "list_dead" if filter.status is Status.DLQ else "list_live"
            found.extend(job_from_row(row) for row in connection.execute(self._filtered(live, filter), params))
        if _may_be_over(filter):
            ended = connection.execute(self._filtered("list_finished", filter), params)
            found.extend(ended_from_row(row) for row in ended)
        return found

    def _filtered(self, statement: str, filter: JobFilter) -> str:
        """A statement whose filters all are always there, but for the one that has to read payloads."""
        return self._sql[statement if filter.text is None else f"{statement}+text"]

    def _count(self, filter: JobFilter, limit: int) -> int:
        params = filter_params(filter)
        asked = {name for name, value in params.items() if value is not None} | {str(filter.status)}
        found = 0
        with self._reading() as connection:
            if filter.ids is not None:
                return min(len(self._with_ids(connection, filter, None)), limit)
            if filter.status in _LIVE:
                sql = self._sql[with_lines("count_live", asked)]
                found += connection.execute(sql, {**params, "limit": limit}).fetchone()[0]
            if found < limit and _may_be_over(filter):
                sql = self._sql[with_lines("count_finished", asked)]
                found += connection.execute(sql, {**params, "limit": limit - found}).fetchone()[0]
        return found

    def _counts(self, now: datetime) -> Counts:
        queues: dict[str, dict[str, int]] = defaultdict(dict)
        scheduled = 0
        with self._reading() as connection:
            for queue, status, count, later in connection.execute(self._sql["counts_live"], {"now": to_micros(now)}):
                queues[queue][status] = count
                scheduled += int(later)
            for queue, status, count in connection.execute(self._sql["counts_finished"]):
                queues[queue][status] = count
        return Counts(queues, scheduled)

    def _census(self, now: datetime) -> Sequence[CensusRow]:
        with self._reading() as connection:
            rows = connection.execute(self._sql["census"], {"now": to_micros(now)}).fetchall()
        return [
            CensusRow(tenant_id, queue, Status(status), count, scheduled, moment(oldest))
            for tenant_id, queue, status, count, scheduled, oldest in rows
        ]

    def _attempts(self, id: str) -> Sequence[Attempt]:
        with self._reading() as connection:
            self._find(connection, id)
            rows = connection.execute(self._sql["attempts"], {"id": id}).fetchall()
        return [attempt for row in rows if (attempt := attempt_from_row(row)) is not None]

    def _history(self, cursor: str | None, limit: int) -> HistoryPage:
        """One writer at a time numbers the rows inside its transaction, so their order is that of the commits."""
        with self._reading() as connection:
            store_id: str = connection.execute(self._sql["store_id"]).fetchone()[0]
            after = 0 if cursor is None else sequence_of(cursor, store_id)
            rows = connection.execute(self._sql["history"], {"after": after, "limit": limit}).fetchall()
        facts = [fact_from_row(row, store_id) for row in rows]
        return HistoryPage(facts, facts[-1].position if facts else f"{store_id}:{after}")

    def _latest(self, after: str | None, limit: int) -> Glances:
        with self._reading() as connection:
            store_id: str = connection.execute(self._sql["store_id"]).fetchone()[0]
            start = 0 if after is None else sequence_of(after, store_id)
            statement = self._sql["latest" if after is None else "latest_behind"]
            rows = connection.execute(statement, {"after": start, "limit": limit}).fetchall()
        if after is None:
            rows.reverse()
        # Without any row there is none behind the beginning either.
        return Glances([_glance(row) for row in rows], f"{store_id}:{rows[-1][0] if rows else start}")


def filter_params(filter: JobFilter) -> dict[str, Any]:
    return {
        "status": None if filter.status is None else str(filter.status),
        "queue": filter.queue,
        "type": filter.type,
        "tenant_id": filter.tenant_id,
        "code": filter.code,
        "error": filter.error,
        "text": filter.text,
    }


def _may_be_over(filter: JobFilter) -> bool:
    return filter.code is None and filter.status in _FINISHED  # only DLQ jobs have a code


def _glance(row: Row) -> Glance:
    _, job_id, type, queue, tenant_id, outcome, status, at, due_at, started_at, *rest = row
    times = from_micros(at), from_micros(due_at), moment(started_at)
    return glance_from_row((job_id, type, queue, tenant_id, outcome, status, *times, *rest))
