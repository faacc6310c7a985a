"""From rows and values of the model to Arrow, for stores that have no Arrow of their own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from taskharbor.core.fleet import Worker
from taskharbor.core.model import HistoryRow, Job, Status
from taskharbor.drivers.rows import meta_to_text, progress_to_text

if TYPE_CHECKING:
    import pyarrow as pa

_FINAL = (Status.DONE, Status.EXPIRED, Status.CANCELLED)


def batch_from_rows(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows whose times are microseconds since 1970 and whose flags are 0 or 1."""
    import pyarrow as pa

    arrays = []
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    for field, values in zip(schema, columns, strict=True):
        if pa.types.is_timestamp(field.type):
            arrays.append(pa.array(values, pa.int64()).cast(field.type))
        elif pa.types.is_boolean(field.type):
            arrays.append(pa.array(values, pa.int8()).cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batch_from_records(records: Iterable[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Records by name, with times as datetimes. What the schema does not name is left out."""
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([{name: record[name] for name in schema.names} for record in records], schema)


def hashed(token: str | None) -> str | None:
    """What shows in place of a lease token: it tells leases apart and opens nothing. A restored fact has it already."""
    return (token if len(token) == 64 else hashlib.sha256(token.encode()).hexdigest()) if token else None


def fact_record(fact: HistoryRow, store_id: str) -> dict[str, Any]:
    """A fact of the feed with the columns of `schemas.FEED`. What this says, every store's own way must say too."""
    attempt, job = fact.attempt, fact.job
    return {
        "store_id": store_id,
        "position": fact.position,
        "seq_no": int(fact.position.rpartition(":")[2]),
        "job_id": fact.job_id,
        "type": fact.type,
        "queue": fact.queue,
        "tenant_id": fact.tenant_id,
        "priority": fact.priority,
        "outcome": str(fact.outcome),
        "status": str(fact.status),
        "at": fact.at,
        "final": fact.status in _FINAL,
        "attempt_no": attempt.number if attempt else None,
        "delivery": attempt.delivery if attempt else (job.deliveries if job else 0),
        "error": (attempt.error if attempt else (job.dlq_reason if job else None)) or None,
        "code": attempt.code if attempt else (job.dlq_code if job else None),
        "lease_token": hashed(attempt.lease_token) if attempt else None,
        "worker": (attempt.worker or None) if attempt else None,
        "due_at": attempt.due_at if attempt else (job.due_at if job else fact.at),
        "claimed_at": attempt.claimed_at if attempt else (job.claimed_at if job else None),
        "started_at": attempt.started_at if attempt else (job.started_at if job else None),
        "payload": job.payload if job else None,
        "result": job.result if job else None,
        "meta": meta_to_text(job.meta) if job else None,
        "run_at": job.run_at if job else None,
        "expires_at": job.expires_at if job else None,
        "timeout_s": job.timeout.total_seconds() if job and job.timeout else None,
        "max_attempts": job.max_attempts if job else None,
        "attempts": job.attempts if job else None,
        "forgiven": job.forgiven if job else None,
        "last_error": (job.last_error or None) if job else None,
        "failed_at": job.failed_at if job else None,
        "cancel_requested_at": job.cancel_requested_at if job else None,
        "idempotency_key": job.idempotency_key if job else None,
        "dedupe_scope": job.dedupe_scope if job else None,
        "progress": progress_to_text(job.progress) if job else None,
        "created_at": job.created_at if job else None,
    }


def attempt_record(fact: HistoryRow) -> dict[str, Any]:
    """The columns of `schemas.ATTEMPTS`, of a fact that is an attempt."""
    record = fact_record(fact, "")
    return {**record, "success": fact.outcome == "succeeded", "finished_at": fact.at}


def job_record(job: Job) -> dict[str, Any]:
    """The columns of `schemas.JOBS` and `schemas.DLQ`."""
    return {
        **job._asdict(),
        "status": str(job.status),
        "meta": meta_to_text(job.meta),
        "progress": progress_to_text(job.progress),
        "timeout_s": job.timeout.total_seconds() if job.timeout else None,
        "last_error": job.last_error or None,
        "lease_owner": job.lease_owner or None,
        "dlq_reason": job.dlq_reason or None,
        "code": job.dlq_code,
        "reason": job.dlq_reason or None,
        "failed_at": job.failed_at,
    }


def dead_record(job: Job) -> dict[str, Any]:
    return {**job_record(job), "failed_at": job.dlq_failed_at}


def worker_record(worker: Worker) -> dict[str, Any]:
    return {
        "id": worker.id,
        "hostname": worker.hostname,
        "pid": worker.pid,
        "queues": json.dumps(list(worker.queues)),
        "slots": worker.slots,
        "version": worker.version,
        "meta": json.dumps(dict(worker.meta)),
        "started_at": worker.started_at,
        "last_heartbeat": worker.last_heartbeat,
    }


def within(moment: datetime | None, since: datetime | None, until: datetime | None) -> bool:
    """Whether a time is in a range that holds its beginning and not its end."""
    if since is None and until is None:
        return True
    return moment is not None and (since is None or moment >= since) and (until is None or moment < until)
