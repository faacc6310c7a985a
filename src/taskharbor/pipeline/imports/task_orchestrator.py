"""`task-orchestrator`: the tables `tasks` and `workers` on PostgreSQL (seed 004)."""

from __future__ import annotations

from typing import Any, Final

from taskharbor.core.model import Reason, Status
from taskharbor.pipeline.imports.model import (
    Imported,
    Notes,
    Row,
    Settings,
    Source,
    dead,
    json_bytes,
    last_fact,
    leased,
    make_job,
    required,
    status_of,
    utc,
    with_key,
)
from taskharbor.pipeline.imports.tables import open_tables

UNIQUE: Final = ("tenant", "type")


def open_source(source: str, options: dict[str, Any]) -> Source:
    tables = open_tables(source)

    def leftovers(notes: Notes) -> None:
        if tables.exists("workers"):
            notes.add("workers: they register themselves here when they start", tables.count("workers"))

    return Source(lambda: tables.rows("tasks", "id"), map_row, leftovers, tables.close)


def map_row(row: Row, settings: Settings, notes: Notes) -> Imported:
    word = str(row["status"])
    status = status_of(word)
    created_at = required(row["created_at"], "created_at")
    updated_at = required(row["updated_at"], "updated_at")
    claimed_at = utc(row["claimed_at"], "claimed_at")
    started_at = utc(row["started_at"], "started_at")
    # The source counts executions; the one that goes on, or went well, is no failure.
    failures = max(0, row["attempts"] - (status in (Status.INFLIGHT, Status.DONE)))
    job = make_job(
        settings,
        id=row["id"],
        type=settings.type or row["type"],
        queue=settings.queue or "default",
        status=status,
        payload=json_bytes(row["payload"]),
        priority=row["priority"],
        run_at=utc(row["next_retry_at"], "next_retry_at"),
        created_at=created_at,
        updated_at=updated_at,
        attempts=failures,
        max_attempts=row["max_retries"],
        last_error=row["last_error"] or "",
        failed_at=updated_at if row["last_error"] else None,
    )
    job = with_key(job, row["idempotency_key"], UNIQUE)
    facts = []
    told = 0
    run = {"worker": row["worker_id"], "claimed_at": claimed_at, "started_at": started_at}
    if status is Status.INFLIGHT:
        job = leased(job, owner=row["worker_id"], claimed_at=claimed_at or updated_at, until=None)
        job = job._replace(started_at=started_at if word == "running" else None)
        notes.add("the end of a lease: the source has none; it ends 30 s after the claim")
    elif status is Status.DONE:
        ended = utc(row["completed_at"], "completed_at") or updated_at
        job = job._replace(completed_at=ended, claimed_at=claimed_at, started_at=started_at)
        facts.append(last_fact(job, ended, **run))
    elif status is Status.DLQ:
        ended = utc(row["completed_at"], "completed_at") or updated_at
        code = Reason.NO_HANDLER if word == "failed" else Reason.MAX_ATTEMPTS
        job = dead(job, reason=job.last_error or word, failed_at=ended, code=code)
        facts.append(last_fact(job, ended, **run))
        told = 1
    elif row["worker_id"]:
        notes.add("worker_id of a task that waits: nobody holds it")
    notes.add(
        "failed attempts one by one: the source has only their number and the last error", max(0, failures - told)
    )
    return Imported(job, facts, UNIQUE)
