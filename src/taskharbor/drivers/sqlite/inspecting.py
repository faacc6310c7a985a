"""What people and tools ask about jobs, and what they do to them by hand."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.core import transitions
from taskharbor.core.answers import Counts, HistoryPage, Page
from taskharbor.core.clock import to_micros
from taskharbor.core.errors import JobNotFound
from taskharbor.core.ids import new_ids
from taskharbor.core.model import Attempt, Job, JobFilter, QueueSettings, Status
from taskharbor.drivers.operations import RedrivePlan
from taskharbor.drivers.rows import matches
from taskharbor.drivers.sqldesk import settings_from
from taskharbor.drivers.sqlite.records import (
    attempt_from_row,
    clone_params,
    ended_from_row,
    fact_from_row,
    sequence_of,
)
from taskharbor.drivers.sqlite.store import Connection, SqliteStore


class Inspecting(SqliteStore):
    """Reads, cancel, redrive, purge and pause."""

    _seen: tuple[int, int] | None = None

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
        status = None if filter.status is None else str(filter.status)
        # To SQLite every text is less than any blob, so an empty blob stands behind the last id there can be.
        end = b"" if before is None else before
        params = {**_filter_params(filter), "before": end, "status": status, "limit": limit}
        found: list[Job] = []
        if filter.status is Status.DLQ:
            found.extend(self._jobs(connection, "list_dead", params))
        elif filter.status in (None, Status.READY, Status.INFLIGHT):
            found.extend(self._jobs(connection, "list_live", params))
        # Only DLQ jobs have a code.
        if filter.code is None and filter.status in (None, Status.DONE, Status.EXPIRED, Status.CANCELLED):
            found.extend(ended_from_row(row) for row in connection.execute(self._sql["list_finished"], params))
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

    def _cancel(self, id: str, now: datetime) -> Status:
        with self._writing() as connection:
            job = self._find(connection, id)
            if job.status not in (Status.READY, Status.INFLIGHT):
                return job.status
            return self._apply(connection, transitions.cancel(job, now)).status

    def _redrive(
        self, filter: JobFilter, after: str | None, limit: int, plan: RedrivePlan
    ) -> tuple[Sequence[str], Sequence[str]]:
        with self._writing() as connection:
            jobs = self._dead(connection, filter, after or "", limit)
            ids = new_ids(len(jobs)) if plan.clone else [job.id for job in jobs]
            for number, (job, new) in enumerate(zip(jobs, ids, strict=True)):
                run_at = plan.run_at(number)
                if plan.clone:
                    copy = transitions.clone(job, plan.now, id=new, run_at=run_at)
                    connection.execute(self._sql["insert_job"], clone_params(copy))
                else:
                    self._save(
                        connection,
                        transitions.redrive(job, plan.now, run_at=run_at, reset_attempts=plan.reset_attempts),
                    )
            return [job.id for job in jobs], ids

    def _purge(self, filter: JobFilter, limit: int) -> int:
        with self._writing() as connection:
            jobs = self._dead(connection, filter, "", limit)
            for job in jobs:
                connection.execute(self._sql["delete_job"], {"id": job.id})
                if job.idempotency_key is not None:
                    key = {"dedupe_scope": job.dedupe_scope, "idempotency_key": job.idempotency_key, "id": job.id}
                    connection.execute(self._sql["forget_key"], key)
            return len(jobs)

    def _dead(self, connection: Connection, filter: JobFilter, after: str, limit: int) -> Sequence[Job]:
        """The DLQ jobs that match, in order of id, behind `after`."""
        ids = None if filter.ids is None else json.dumps(filter.ids)
        return self._jobs(connection, "dead", {**_filter_params(filter), "ids": ids, "after": after, "limit": limit})

    def _set_paused(self, queue: str, paused: bool) -> None:
        with self._writing() as connection:
            connection.execute(self._sql["set_paused"], {"name": queue, "paused": int(paused)})

    def _queues(self) -> Sequence[QueueSettings]:
        with self._reading() as connection:
            return [settings_from(row) for row in connection.execute(self._sql["queues"])]

    def changed(self) -> bool:
        """Whether anything was committed to the file, by any process, since this was last asked. Very cheap."""
        with self._reading() as connection:
            version: int = connection.execute("PRAGMA data_version").fetchone()[0]
            seen = (id(connection), version)
        before, self._seen = self._seen, seen
        return before != seen


def _filter_params(filter: JobFilter) -> dict[str, Any]:
    return {
        "queue": filter.queue,
        "type": filter.type,
        "tenant_id": filter.tenant_id,
        "code": filter.code,
        "error": filter.error,
    }
