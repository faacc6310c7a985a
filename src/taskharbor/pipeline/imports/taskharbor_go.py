"""`taskharbor-go`: the `th_jobs` of TaskHarbor for Go on PostgreSQL (seed 000)."""

from __future__ import annotations

from typing import Any

from taskharbor.core.model import Status
from taskharbor.pipeline.imports.model import (
    FINAL,
    Imported,
    Notes,
    Row,
    Settings,
    Source,
    dead,
    last_fact,
    leased,
    make_job,
    nanoseconds,
    nothing_left,
    required,
    status_of,
    utc,
    with_key,
)
from taskharbor.pipeline.imports.tables import open_tables

UNIQUE = ("tenant", "type")


def open_source(source: str, options: dict[str, Any]) -> Source:
    tables = open_tables(source)
    table = options.get("table") or "th_jobs"
    return Source(lambda: tables.rows(table, "id"), map_row, nothing_left, tables.close)


def map_row(row: Row, settings: Settings, notes: Notes) -> Imported:
    status = status_of(row["status"])
    created_at = required(row["created_at"], "created_at")
    attempts = row["attempts"]
    job = make_job(
        settings,
        id=row["id"],
        type=settings.type or row["type"],
        queue=settings.queue or row["queue"],
        status=status,
        payload=bytes(row["payload"]),
        run_at=utc(row["run_at"], "run_at"),
        timeout=nanoseconds(row["timeout_nanos"]),
        created_at=created_at,
        attempts=attempts,
        max_attempts=row["max_attempts"],
        last_error=row["last_error"],
        failed_at=utc(row["failed_at"], "failed_at"),
    )
    if row["max_attempts"] == 0:
        notes.add("max_attempts was unset (0): the default of this store stands in")
    if row["timeout_nanos"] % 1_000:
        notes.add("timeout: cut to whole microseconds")
    if row["idempotency_key"] is not None:
        job = with_key(job, row["idempotency_key"], UNIQUE)
    facts = []
    if status is Status.INFLIGHT:
        until = required(row["lease_expires_at"], "lease_expires_at")
        job = leased(job, owner=None, claimed_at=min(created_at, until), until=until)
        notes.add("lease_token: leases of the old system cannot be settled here; the job runs when its lease has ended")
        notes.add("the time of the claim: not recorded by the source")
    elif status is Status.DLQ:
        failed_at = required(row["dlq_failed_at"], "dlq_failed_at")
        job = dead(job, reason=row["dlq_reason"] or "", failed_at=failed_at)
        facts.append(last_fact(job, failed_at))
    elif status in FINAL:
        ended = max(moment for moment in (created_at, job.run_at, job.failed_at) if moment is not None)
        job = job._replace(completed_at=ended, updated_at=ended)
        facts.append(last_fact(job, ended))
        notes.add("the time a done job ended: not recorded by the source; the latest time it has stands in")
    told = 1 if status is Status.DLQ and attempts else 0
    notes.add("failed attempts one by one: the source has only their number and the last error", attempts - told)
    return Imported(job, facts, UNIQUE)
