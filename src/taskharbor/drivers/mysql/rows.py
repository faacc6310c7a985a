"""From rows to the values of the model, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from taskharbor.core.intake import Admitted
from taskharbor.core.model import Attempt, HistoryRow, Job, JobFilter, Lease, Outcome, Status
from taskharbor.core.transitions import TERMINAL
from taskharbor.drivers.mysql.values import optional_time, read_time, sql_time
from taskharbor.drivers.rows import meta_from_text, progress_from_text, timeout_from_nanos

Row = Sequence[Any]


def job_params(job: Admitted) -> dict[str, Any]:
    """The values of `insert_job`."""
    created_at = sql_time(job.created_at)
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "tenant_id": job.tenant_id,
        "payload": job.payload,
        "meta": job.meta,
        "priority": job.priority,
        "run_at": optional_time(job.run_at),
        "due_at": created_at if job.due_at == job.created_at else sql_time(job.due_at),
        "expires_at": optional_time(job.expires_at),
        "timeout_nanos": job.timeout_nanos,
        "max_attempts": job.max_attempts,
        "created_at": created_at,
        "updated_at": created_at,
        "idempotency_key": job.idempotency_key,
        "dedupe_scope": job.dedupe_scope,
    }


def job_from_row(row: Row) -> Job:
    """A live job, from the columns of `get_job` (or `lock_jobs`, which has no payload)."""
    return Job(
        id=row[0],
        type=row[1],
        queue=row[2],
        tenant_id=row[3],
        payload=row[4] or b"",
        meta=meta_from_text(row[5]),
        priority=row[6],
        run_at=row[7],
        due_at=row[8],
        expires_at=row[9],
        timeout=timeout_from_nanos(row[10]),
        max_attempts=row[11],
        attempts=row[12],
        deliveries=row[13],
        forgiven=row[14],
        last_error=row[15],
        failed_at=row[16],
        status=Status(row[17]),
        lease_token=row[18],
        lease_owner=row[19],
        lease_expires_at=row[20],
        cancel_requested_at=row[21],
        dlq_reason=row[22],
        dlq_code=row[23],
        dlq_failed_at=row[24],
        idempotency_key=row[25],
        dedupe_scope=row[26],
        result=None,
        progress=progress_from_text(row[27]),
        created_at=row[28],
        updated_at=row[29],
        claimed_at=row[30],
        started_at=row[31],
        completed_at=row[24],
    )


class Common(NamedTuple):
    """What `select_due` gives as one text, because most jobs of a batch share it."""

    type: str
    tenant_id: str
    due_at: datetime
    created_at: datetime
    timeout: timedelta | None
    max_attempts: int
    attempts: int
    deliveries: int
    forgiven: int


@lru_cache(maxsize=4096)
def common_part(text: str) -> Common:
    type, tenant_id, due_at, created_at, timeout_nanos, *counts = text.split("\0")
    max_attempts, attempts, deliveries, forgiven = map(int, counts)
    return Common(
        type, tenant_id, read_time(due_at), read_time(created_at), timeout_from_nanos(int(timeout_nanos)),
        max_attempts, attempts, deliveries, forgiven,
    )  # fmt: skip


def place_of(row: Row) -> datetime:
    """Where the job of a row of `select_due` stands in line: its due time, or what stands in its place."""
    place = None if row[3] is None else json.loads(row[3])[-1]
    return read_time(place) if place else common_part(row[2]).due_at


def claimed_job(row: Row, queue: str, rank: int, lease: Lease, now: datetime) -> Job:
    """A job that was claimed this moment, from the columns of `select_due`. Positional, because it is made for every
    job that ever runs."""
    id, payload, common, extras = row
    type, tenant_id, due_at, created_at, timeout, max_attempts, attempts, deliveries, forgiven = common_part(common)
    if extras is None:
        meta: Mapping[str, str] = {}
        run_at = expires_at = failed_at = key = scope = None
        last_error = ""
    else:
        meta_text, run_at, expires_at, last_error, failed_at, key, scope, _ = json.loads(extras)
        meta = meta_from_text(meta_text)
        run_at, expires_at, failed_at = (text and read_time(text) for text in (run_at, expires_at, failed_at))
    return Job(
        id, type, queue, tenant_id, payload, meta, -rank, run_at, due_at, expires_at, timeout, max_attempts, attempts,
        deliveries + 1, forgiven, last_error, failed_at, Status.INFLIGHT, lease.token, lease.owner, lease.expires_at,
        None, None, None, None, key, scope, None, None, created_at, now, now, None, None,
    )  # fmt: skip


def finished_job(row: Row) -> Job:
    """The job that a terminal row of history carries, from the columns of `history`."""
    status = Status(row[7])
    dead = status is Status.DLQ
    return Job(
        id=row[1],
        type=row[2],
        queue=row[3],
        tenant_id=row[4],
        payload=row[19] or b"",
        meta=meta_from_text(row[20]),
        priority=row[5],
        run_at=row[21],
        due_at=row[16],
        expires_at=row[22],
        timeout=timeout_from_nanos(row[23]),
        max_attempts=row[24],
        attempts=row[25],
        deliveries=row[11],
        forgiven=row[26],
        last_error=row[27] or "",
        failed_at=row[28],
        status=status,
        lease_token=None,
        lease_owner=None,
        lease_expires_at=None,
        cancel_requested_at=row[29],
        dlq_reason=row[12] if dead else None,
        dlq_code=row[13] if dead else None,
        dlq_failed_at=row[8] if dead else None,
        idempotency_key=row[30],
        dedupe_scope=row[31],
        result=row[32],
        progress=progress_from_text(row[33]),
        created_at=row[34],
        updated_at=row[8],
        claimed_at=row[17],
        started_at=row[18],
        completed_at=row[8],
    )


def attempt_from_row(row: Row) -> Attempt | None:
    """The attempt that a row of history tells of, if it tells of one."""
    if row[10] is None:
        return None
    return Attempt(
        job_id=row[1],
        number=row[10],
        delivery=row[11],
        outcome=Outcome(row[6]),
        error=row[12] or "",
        code=row[13],
        worker=row[15] or "",
        lease_token=row[14] or "",
        due_at=row[16],
        claimed_at=row[17],
        started_at=row[18],
        finished_at=row[8],
    )


def fact_from_row(row: Row, store_id: str) -> HistoryRow:
    status = Status(row[7])
    return HistoryRow(
        position=f"{store_id}:{row[0]}",
        job_id=row[1],
        type=row[2],
        queue=row[3],
        tenant_id=row[4],
        priority=row[5],
        outcome=Outcome(row[6]),
        status=status,
        at=row[8],
        attempt=attempt_from_row(row),
        job=finished_job(row) if status in TERMINAL else None,
    )


def filter_params(filter: JobFilter) -> Mapping[str, Any]:
    """What the listing statements select by. An empty IN list is not SQL; NULL in it matches nothing."""
    return {
        "any_id": filter.ids is None,
        "ids": filter.ids or [None],
        "queue": filter.queue,
        "type": filter.type,
        "tenant_id": filter.tenant_id,
        "code": filter.code,
        "error": filter.error,
        "text": filter.text,
    }
