"""Between rows of the tables and the values of the model. Times are microseconds on one side, UTC on the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from taskharbor.core.clock import from_micros, to_micros
from taskharbor.core.errors import InvalidCursor
from taskharbor.core.intake import Admitted
from taskharbor.core.model import Attempt, HistoryRow, Job, Outcome, Status
from taskharbor.drivers.rows import (
    meta_from_text,
    meta_to_text,
    progress_from_text,
    timeout_from_nanos,
    timeout_to_nanos,
)

Row = Sequence[Any]
Params = dict[str, Any]


def moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def micros(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)


def job_from_row(row: Row) -> Job:
    """A live job, from the columns of `get_job.sql`."""
    status = Status(row[17])
    return Job(
        id=row[0],
        type=row[1],
        queue=row[2],
        tenant_id=row[3],
        payload=row[4],
        meta=meta_from_text(row[5]),
        priority=row[6],
        run_at=moment(row[7]),
        due_at=from_micros(row[8]),
        expires_at=moment(row[9]),
        timeout=timeout_from_nanos(row[10]),
        max_attempts=row[11],
        attempts=row[12],
        deliveries=row[13],
        forgiven=row[14],
        last_error=row[15],
        failed_at=moment(row[16]),
        status=status,
        lease_token=row[18],
        lease_owner=row[19],
        lease_expires_at=moment(row[20]),
        cancel_requested_at=moment(row[21]),
        dlq_reason=row[22],
        dlq_code=row[23],
        dlq_failed_at=moment(row[24]),
        idempotency_key=row[25],
        dedupe_scope=row[26],
        result=None,
        progress=progress_from_text(row[27]),
        created_at=from_micros(row[28]),
        updated_at=from_micros(row[29]),
        claimed_at=moment(row[30]),
        started_at=moment(row[31]),
        completed_at=moment(row[24]),  # a live job is complete only in the DLQ, from the moment it got there
    )


def fact_from_row(row: Row, store_id: str) -> HistoryRow:
    """A fact, from the columns of `history.sql`."""
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
        at=from_micros(row[8]),
        attempt=attempt_from_row(row),
        job=None if status is Status.READY else ended_from_row(row),
    )


def attempt_from_row(row: Row) -> Attempt | None:
    if row[9] is None:
        return None
    return Attempt(
        job_id=row[1],
        number=row[9],
        delivery=row[10],
        outcome=Outcome(row[6]),
        error=row[11] or "",
        code=row[12],
        worker=row[14] or "",
        lease_token=row[13] or "",
        due_at=from_micros(row[15]),
        claimed_at=from_micros(row[16]),
        started_at=from_micros(row[17]),
        finished_at=from_micros(row[8]),
    )


def ended_from_row(row: Row) -> Job:
    """The job as it stood when it ended, from the same columns."""
    at = from_micros(row[8])
    dead = row[7] == Status.DLQ
    return Job(
        id=row[1],
        type=row[2],
        queue=row[3],
        tenant_id=row[4],
        payload=row[18],
        meta=meta_from_text(row[19]),
        priority=row[5],
        run_at=moment(row[20]),
        due_at=from_micros(row[15]),
        expires_at=moment(row[21]),
        timeout=timeout_from_nanos(row[22]),
        max_attempts=row[23],
        attempts=row[24],
        deliveries=row[10],
        forgiven=row[25],
        last_error=row[26] or "",
        failed_at=moment(row[27]),
        status=Status(row[7]),
        lease_token=None,
        lease_owner=None,
        lease_expires_at=None,
        cancel_requested_at=moment(row[28]),
        dlq_reason=row[11] or "" if dead else None,
        dlq_code=row[12] if dead else None,
        dlq_failed_at=at if dead else None,
        idempotency_key=row[29],
        dedupe_scope=row[30],
        result=row[31],
        progress=progress_from_text(row[32]),
        created_at=from_micros(row[33]),
        updated_at=at,
        claimed_at=moment(row[16]),
        started_at=moment(row[17]),
        completed_at=at,
    )


def in_micros(params: Mapping[str, Any]) -> Params:
    """Values by name as SQLite keeps them."""
    return {name: to_micros(value) if isinstance(value, datetime) else value for name, value in params.items()}


def new_job_params(job: Admitted) -> Params:
    """For `insert_job.sql`, `take_key.sql` and `get_key.sql`."""
    return in_micros(job._asdict())


def clone_params(job: Job) -> Params:
    """For `insert_job.sql`: a job that has no past."""
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "tenant_id": job.tenant_id,
        "payload": job.payload,
        "meta": meta_to_text(job.meta),
        "priority": job.priority,
        "run_at": micros(job.run_at),
        "due_at": to_micros(job.due_at),
        "expires_at": micros(job.expires_at),
        "timeout_nanos": timeout_to_nanos(job.timeout),
        "max_attempts": job.max_attempts,
        "created_at": to_micros(job.created_at),
        "idempotency_key": None,
        "dedupe_scope": None,
    }


def sequence_of(cursor: str, store_id: str) -> int:
    """The place in the feed that a cursor of this store stands for."""
    mine, _, sequence = cursor.partition(":")
    if mine != store_id or not (sequence.isascii() and sequence.isdecimal()) or len(sequence) > 18:
        raise InvalidCursor(f"cursor {cursor!r} is not from this store: start without one")
    return int(sequence)
