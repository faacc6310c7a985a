"""Looking at jobs, and moving them by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from psycopg import Connection

from taskharbor.core import transitions
from taskharbor.core.answers import CensusRow, Counts, Glances, HistoryPage, Page
from taskharbor.core.carrying import MARKS
from taskharbor.core.errors import InvalidCursor, JobNotFound
from taskharbor.core.ids import new_ids
from taskharbor.core.limits import MAX_ID
from taskharbor.core.model import Attempt, Job, JobFilter, QueueSettings, Status
from taskharbor.drivers.operations import RedrivePlan
from taskharbor.drivers.postgres.queueing import Queueing
from taskharbor.drivers.postgres.rows import attempt_from_row, fact_from_row, job_from_row
from taskharbor.drivers.postgres.session import Call, Row, Session
from taskharbor.drivers.rows import glance_from_row
from taskharbor.drivers.sqldesk import settings_from
from taskharbor.drivers.sqlfiles import with_lines

ENDLESS: Final = (2**63 - 1, 2**63 - 1)

_Calls = list[Call]
"""Inside the class, `list` is a method."""


class Inspection:
    def __init__(self, session: Session, queueing: Queueing) -> None:
        self._session = session
        self._queueing = queueing
        self._identity: str | None = None

    def get(self, id: str) -> Job:
        rows = self._session.run("get_job", {"id": id})
        if not rows:
            raise JobNotFound(f"no job with the id {id!r}")
        return job_from_row(rows[0])

    def list(self, filter: JobFilter, cursor: str | None, limit: int) -> Page:
        name = _filtered("list_jobs" if filter.ids is None else "list_chosen", filter)
        above_all = "\U0010ffff" * (MAX_ID + 1)
        rows = self._session.run(name, {**_conditions(filter), "cursor": cursor or above_all, "limit": limit + 1})
        jobs = [job_from_row(row) for row in rows[:limit]]
        return Page(jobs, jobs[-1].id if len(rows) > limit else None)

    def counts(self, now: datetime) -> Counts:
        queues: dict[str, dict[str, int]] = {}
        scheduled = 0
        for queue, status, count, later in self._session.survey([("counts", {"now": now})])[0]:
            queues.setdefault(queue, {})[status] = count
            scheduled += later
        return Counts(queues, scheduled)

    def census(self, now: datetime) -> Sequence[CensusRow]:
        rows = self._session.survey([("census", {"now": now})])[0]
        return [CensusRow(row[0], row[1], Status(row[2]), *row[3:]) for row in rows]

    def count(self, filter: JobFilter, limit: int) -> int:
        conditions = _conditions(filter)
        asked = {name for name, value in conditions.items() if value is not None} | {str(filter.status)}
        params = {**conditions, "limit": limit}
        calls: _Calls = []
        if filter.status in (None, Status.READY, Status.INFLIGHT, Status.DLQ):
            calls.append((with_lines("count_live", asked), params))
        # Only DLQ jobs have a code.
        if filter.code is None and filter.status in (None, Status.DONE, Status.EXPIRED, Status.CANCELLED):
            calls.append((with_lines("count_finished", asked), params))
        counted = self._session.survey(calls) if calls else []
        return min(sum(int(rows[0][0]) for rows in counted), limit)

    def attempts(self, id: str) -> Sequence[Attempt]:
        found, rows = self._session.run_all([("get_job", {"id": id}), ("attempts", {"id": id})])
        if not found:  # no attempts is an answer, no job is an error
            raise JobNotFound(f"no job with the id {id!r}")
        return [attempt_from_row(row) for row in rows]

    def history(self, cursor: str | None, limit: int, statement: str = "history") -> HistoryPage:
        identity = self._identify()
        xid, sequence = _parse_cursor(cursor, identity)
        rows = self._session.run(statement, {"xid": xid, "seq": sequence, "limit": limit})
        facts = [fact_from_row(row[2:], f"{identity}:{row[0]}:{row[1]}") for row in rows]
        return HistoryPage(facts, facts[-1].position if facts else f"{identity}:{xid}:{sequence}")

    def latest(self, after: str | None, limit: int) -> Glances:
        identity = self._identify()
        xid, sequence = _parse_cursor(after, identity)
        name = "latest" if after is None else "latest_behind"
        rows = self._session.run(name, {"xid": xid, "seq": sequence, "limit": limit})
        if after is None:
            rows.reverse()
        if rows:
            xid, sequence = rows[-1][:2]
        return Glances([glance_from_row(row[2:]) for row in rows], f"{identity}:{xid}:{sequence}")

    def place_of(self, upto: str | None) -> tuple[int, int]:
        """Up to where: the end of all feeds if no cursor says."""
        return ENDLESS if upto is None else _parse_cursor(upto, self._identify())

    def cancel(self, id: str, now: datetime) -> Status:
        def work(connection: Connection[Row]) -> Status:
            job = self._queueing.locked_job(connection, id)
            if job.status not in (Status.READY, Status.INFLIGHT):
                return job.status
            return self._queueing.apply(connection, transitions.cancel(job, now))

        return self._session.change(work)

    def redrive(
        self, filter: JobFilter, after: str | None, limit: int, plan: RedrivePlan
    ) -> tuple[Sequence[str], Sequence[str]]:
        def work(connection: Connection[Row]) -> tuple[Sequence[str], Sequence[str]]:
            ids = self._pick_dead(connection, filter, after, limit)
            new = new_ids(len(ids)) if plan.clone else ids
            if ids:
                params = {
                    "ids": ids,
                    "new_ids": new,
                    "run_ats": [plan.run_at(number) for number in range(len(ids))],
                    "now": plan.now,
                    "reset_attempts": plan.reset_attempts,
                }
                self._session.on(connection, "clone" if plan.clone else "redrive", params)
            return ids, new

        return self._session.change(work)

    def purge(self, filter: JobFilter, limit: int) -> int:
        def work(connection: Connection[Row]) -> int:
            ids = self._pick_dead(connection, filter, None, limit)
            return int(self._session.on(connection, "purge", {"ids": ids})[0][0]) if ids else 0

        return self._session.change(work)

    def set_paused(self, queue: str, paused: bool) -> None:
        call = "set_paused", {"name": queue, "paused": paused}
        if queue in MARKS:
            self._session.run(*call)
        else:
            self._session.change_all(call)

    def queues(self) -> Sequence[QueueSettings]:
        return [settings_from(row) for row in self._session.run("queues", {})]

    def _pick_dead(
        self, connection: Connection[Row], filter: JobFilter, after: str | None, limit: int
    ) -> Sequence[str]:
        rows = self._session.on(
            connection, _filtered("pick_dead", filter), {**_conditions(filter), "after": after, "limit": limit}
        )
        return [row[0] for row in rows]

    def _identify(self) -> str:
        """Which cluster and which store cursors belong to: transaction ids mean nothing anywhere else."""
        if self._identity is None:
            cluster, store = self._session.run("identity", {})[0]
            self._identity = f"{cluster}:{store}"
        return self._identity


def _filtered(statement: str, filter: JobFilter) -> str:
    """A statement whose filters all are always there, but for the one that has to read payloads."""
    return statement if filter.text is None else f"{statement}+text"


def _conditions(filter: JobFilter) -> dict[str, Any]:
    conditions = asdict(filter)
    conditions["ids"] = None if filter.ids is None else list(filter.ids)
    conditions["status"] = None if filter.status is None else str(filter.status)
    return conditions


def _parse_cursor(cursor: str | None, identity: str) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    head, _, sequence = cursor.rpartition(":")
    store, _, xid = head.rpartition(":")
    if store != identity or not xid.isdecimal() or not sequence.isdecimal():
        raise InvalidCursor(
            f"cursor {cursor!r} is not from this database: start without one, and skip the rows you have"
        )
    return int(xid), int(sequence)
