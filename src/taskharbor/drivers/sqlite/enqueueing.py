"""Enqueue: the keys first, then the jobs, in one transaction or in the caller's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from taskharbor.core.clock import to_micros
from taskharbor.core.contract import Answers
from taskharbor.core.errors import InvalidInput
from taskharbor.core.intake import Admitted, Batch, check_duplicate, id_taken
from taskharbor.core.model import Status
from taskharbor.core.unique import Verdict
from taskharbor.drivers.joining import (
    FenceSteps,
    Joiner,
    Query,
    Steps,
    another_store,
    enqueue_steps,
    missing_there,
)
from taskharbor.drivers.paths import is_there
from taskharbor.drivers.rows import merge_answers
from taskharbor.drivers.sqlite.errors import missing_tables, translate_for_caller
from taskharbor.drivers.sqlite.joined import abegin, begin
from taskharbor.drivers.sqlite.ordered import Inserter
from taskharbor.drivers.sqlite.records import new_job_params
from taskharbor.drivers.sqlite.store import Connection, SqliteStore

_JOB_VALUES: Final = (
    "id", "type", "queue", "tenant_id", "payload", "meta", "priority", "run_at", "due_at", "expires_at",
    "timeout_nanos", "max_attempts", "created_at", "created_at", "idempotency_key", "dedupe_scope",
)  # fmt: skip

_AIOSQLITE_CLOSED: Final = ("no active connection", "Connection closed")


class Enqueueing(SqliteStore):
    """New jobs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._job_inserter = Inserter(self._sql["insert_job"], *_JOB_VALUES)
        self._joiner = Joiner(("sqlite3", "aiosqlite"), ("sqlite",), self._sql, self._sql)

    def _enqueue(self, batch: Batch) -> Answers:
        with self._writing() as connection:
            self._refuse_shut(connection)
            return self.insert_in(connection, batch)

    def insert_in(self, connection: Connection, batch: Batch) -> Answers:
        """Enqueue as a part of this transaction."""
        existing = self._take_keys(connection, batch.fresh)
        new = [job for job in batch.fresh if job.id not in existing] if existing else batch.fresh
        self._check_ids(connection, batch, new)
        self._job_inserter.insert(connection, _job_rows(new))
        return merge_answers(batch, existing)

    def _take_keys(self, connection: Connection, jobs: Sequence[Admitted]) -> dict[str, str]:
        """Take the key of each job that has one; for those that are taken, the id of the job that holds it."""
        existing: dict[str, str] = {}
        for job in jobs:
            if job.idempotency_key is None:
                continue
            params = new_job_params(job)
            if connection.execute(self._sql["take_key"], params).fetchone() is None:
                holder_id, payload_hash = connection.execute(self._sql["get_key"], params).fetchone()
                verdict = self._verdict(connection, job, holder_id)
                if verdict is Verdict.INSERT:
                    connection.execute(self._sql["move_key"], params)
                    continue
                check_duplicate(job, holder_id, payload_hash)
                existing[job.id] = holder_id
                if verdict is Verdict.REPLACE:
                    params = new_job_params(job.in_place_of(holder_id))
                    connection.execute(self._sql["replace_job"], {**params, "holder": holder_id})
                    connection.execute(self._sql["move_key"], params)
        return existing

    def _verdict(self, connection: Connection, job: Admitted, holder_id: str) -> Verdict:
        if job.duplicates.while_in is None:
            return Verdict.KEEP
        for place in ("lock_holder", "finished_status"):
            if row := connection.execute(self._sql[place], {"id": holder_id}).fetchone():
                return job.duplicates.verdict(Status(row[0]))
        return Verdict.INSERT

    def _check_ids(self, connection: Connection, batch: Batch, new: Sequence[Admitted]) -> None:
        """Only an id that the caller chose can belong to another job, live or finished."""
        if not batch.chosen_ids:
            return
        seen: set[str] = set()
        for job in batch.fresh:
            if job.id in seen:
                raise id_taken(job.id)
            seen.add(job.id)
        for id in {job.id for job in new}.intersection(batch.chosen_ids):
            if connection.execute(self._sql["id_is_taken"], {"id": id}).fetchone():
                raise id_taken(id)

    # --- In the caller's transaction -------------------------------------------------------------------------

    def _enqueue_with(self, connection: Any, batch: Batch) -> Answers:
        with _of_caller():
            # Before a transaction is begun, which would lock a database that is none of ours.
            self._joiner.run(connection, self._same_file())
            begin(connection)
            return self._joiner.run(connection, self._steps(batch))

    async def _aenqueue_with(self, connection: Any, batch: Batch) -> Answers:
        with _of_caller():
            await self._joiner.arun(connection, self._same_file())
            if await abegin(connection):
                return await self._joiner.arun(connection, self._steps(batch))
            # SQLAlchemy's asynchronous forms run the synchronous code for us.
            answers: Answers = await connection.run_sync(lambda inner: self._enqueue_with(inner, batch))
            return answers

    def _steps(self, batch: Batch) -> Steps:
        return enqueue_steps(batch, new_job_params, new_job_params, self._fence, id_check="id_is_taken")

    def _fence(self, stored: Sequence[Admitted]) -> FenceSteps:
        # Looked at when the jobs are written: this transaction is the one that writes then, and sees what is last.
        return bool((yield Query("is_shut")))

    def _same_file(self) -> Steps:
        """Refuse a connection to another file. Reads nothing of it: that would begin a snapshot, and whoever writes
        from an old snapshot is refused by SQLite."""
        files = {name: file for _, name, file in (yield Query("PRAGMA database_list", raw=True))}
        if not is_there(self._path):
            raise missing_tables(self._path)
        if not files.get("main") or not Path(files["main"]).samefile(self._path):
            try:
                yield Query("store_id")
            except Exception as error:
                if "no such table" in str(error):
                    raise missing_there() from error
                raise
            raise another_store()
        return []


@contextmanager
def _of_caller() -> Iterator[None]:
    """What the caller's library raised, in our words. SQLAlchemy keeps the first error in `orig`."""
    try:
        yield
    except Exception as error:
        first = getattr(error, "orig", None) or error
        if isinstance(first, sqlite3.Error):
            raise translate_for_caller(first) from error
        if isinstance(first, ValueError) and str(first) in _AIOSQLITE_CLOSED:
            raise InvalidInput("the connection is closed: pass one that is open") from error
        raise


def _job_rows(jobs: Iterable[Admitted]) -> list[tuple[Any, ...]]:
    """The values of `insert_job.sql` in order. Jobs of one batch mostly share their times: convert those once."""
    rows = []
    now: datetime | None = None
    now_micros = 0
    for job in jobs:
        (
            id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos,
            max_attempts, created_at, key, scope, _, _, _, _,
        ) = job  # fmt: skip
        if created_at is not now:
            now, now_micros = created_at, to_micros(created_at)
        rows.append((
            id, type, queue, tenant_id, payload, meta, priority, None if run_at is None else to_micros(run_at),
            now_micros if due_at is now else to_micros(due_at), None if expires_at is None else to_micros(expires_at),
            timeout_nanos, max_attempts, now_micros, now_micros, key, scope,
        ))  # fmt: skip
    return rows
