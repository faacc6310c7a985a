"""What people and tools do to jobs by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from taskharbor.core import transitions
from taskharbor.core.carrying import MARKS
from taskharbor.core.ids import new_ids
from taskharbor.core.model import Job, JobFilter, QueueSettings, Status
from taskharbor.drivers.operations import RedrivePlan
from taskharbor.drivers.sqldesk import settings_from
from taskharbor.drivers.sqlite.reading import Reading, filter_params
from taskharbor.drivers.sqlite.records import clone_params, job_from_row
from taskharbor.drivers.sqlite.store import Connection


class Inspecting(Reading):
    """Cancel, redrive, purge and pause."""

    _seen: tuple[int, int] | None = None

    def _cancel(self, id: str, now: datetime) -> Status:
        with self._changing() as connection:
            job = self._find(connection, id)
            if job.status not in (Status.READY, Status.INFLIGHT):
                return job.status
            return self._apply(connection, transitions.cancel(job, now)).status

    def _redrive(
        self, filter: JobFilter, after: str | None, limit: int, plan: RedrivePlan
    ) -> tuple[Sequence[str], Sequence[str]]:
        with self._changing() as connection:
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
        with self._changing() as connection:
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
        params = {**filter_params(filter), "ids": ids, "after": after, "limit": limit}
        return [job_from_row(row) for row in connection.execute(self._filtered("dead", filter), params)]

    def _set_paused(self, queue: str, paused: bool) -> None:
        with self._writing() if queue in MARKS else self._changing() as connection:
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
