"""Small conversions that more than one driver needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any

from taskharbor.core.answers import Glance
from taskharbor.core.intake import Admitted, Batch
from taskharbor.core.model import Enqueued, HistoryRow, Job, JobFilter, Outcome, Overlap, Progress, Schedule, Status


def job_from_admitted(row: Admitted) -> Job:
    """The job as it stands right after enqueue."""
    return Job(
        id=row.id,
        type=row.type,
        queue=row.queue,
        tenant_id=row.tenant_id,
        payload=row.payload,
        meta=meta_from_text(row.meta),
        priority=row.priority,
        run_at=row.run_at,
        due_at=row.due_at,
        expires_at=row.expires_at,
        timeout=timeout_from_nanos(row.timeout_nanos),
        max_attempts=row.max_attempts,
        attempts=0,
        deliveries=0,
        forgiven=0,
        last_error="",
        failed_at=None,
        status=Status.READY,
        lease_token=None,
        lease_owner=None,
        lease_expires_at=None,
        cancel_requested_at=None,
        dlq_reason=None,
        dlq_code=None,
        dlq_failed_at=None,
        idempotency_key=row.idempotency_key,
        dedupe_scope=row.dedupe_scope,
        result=None,
        progress=None,
        created_at=row.created_at,
        updated_at=row.created_at,
        claimed_at=None,
        started_at=None,
        completed_at=None,
    )


def replaced_by(holder: Job, row: Admitted) -> Job:
    """A job that has not begun, once it has become what another one is. It keeps its id and its making."""
    new = job_from_admitted(row)
    return new._replace(
        id=holder.id, deliveries=holder.deliveries, forgiven=holder.forgiven, attempts=holder.attempts,
        last_error=holder.last_error, failed_at=holder.failed_at, created_at=holder.created_at,
    )  # fmt: skip


def merge_answers(batch: Batch, existing: Mapping[str, str]) -> list[Enqueued]:
    """The answers of `batch`, where `existing` maps an admitted id to the id of the job that holds its key."""
    if not existing:
        return batch.answers
    return [
        Enqueued(existing[answer.id], existed=True) if answer.id in existing else answer for answer in batch.answers
    ]


def matches(job: Job, filter: JobFilter) -> bool:
    return (
        (filter.ids is None or job.id in filter.ids)
        and (filter.status is None or job.status is filter.status)
        and (filter.queue is None or job.queue == filter.queue)
        and (filter.type is None or job.type == filter.type)
        and (filter.tenant_id is None or job.tenant_id == filter.tenant_id)
        and (filter.code is None or job.dlq_code == filter.code)
        and (filter.error is None or filter.error in job.last_error or filter.error in (job.dlq_reason or ""))
        and (filter.text is None or _contains(job, filter.text))
    )


def _contains(job: Job, text: str) -> bool:
    words = (job.id, job.type, job.last_error, job.dlq_reason or "")
    return any(text in word for word in words) or text.encode() in job.payload


def glance_of(fact: HistoryRow) -> Glance:
    """The outline of a row, as the columns of `fact_params` have it."""
    attempt, job = fact.attempt, fact.job
    return Glance(
        job_id=fact.job_id,
        type=fact.type,
        queue=fact.queue,
        tenant_id=fact.tenant_id,
        outcome=fact.outcome,
        status=fact.status,
        at=fact.at,
        due_at=attempt.due_at if attempt else (job.due_at if job else fact.at),
        started_at=attempt.started_at if attempt else None,
        attempt_no=attempt.number if attempt else None,
        worker=(attempt.worker or None) if attempt else None,
        code=attempt.code if attempt else None,
    )


def glance_from_row(row: Sequence[Any]) -> Glance:
    """The columns of `latest.sql` behind those that order them, with times as datetimes."""
    job_id, type, queue, tenant_id, outcome, status, at, due_at, started_at, attempt_no, worker, code = row
    return Glance(
        job_id, type, queue, tenant_id, Outcome(outcome), Status(status), at, due_at,
        None if attempt_no is None else started_at, attempt_no, worker or None, code,
    )  # fmt: skip


def meta_from_text(text: str | None) -> Mapping[str, str]:
    return json.loads(text) if text else {}


def progress_to_text(progress: Progress | None) -> str | None:
    return None if progress is None else json.dumps([progress.done, progress.total, progress.note])


def progress_from_text(text: str | None) -> Progress | None:
    return Progress(*json.loads(text)) if text else None


def timeout_from_nanos(nanos: int) -> timedelta | None:
    """Zero means no timeout, as in seed 000."""
    return timedelta(microseconds=nanos // 1_000) if nanos else None


def meta_to_text(meta: Mapping[str, str]) -> str | None:
    return json.dumps(dict(meta), ensure_ascii=False, sort_keys=True, separators=(",", ":")) if meta else None


def timeout_to_nanos(timeout: timedelta | None) -> int:
    return 0 if timeout is None else (timeout // timedelta(microseconds=1)) * 1_000


def job_params(job: Job) -> dict[str, Any]:
    """The columns of a live job that a move can change, by name, and its id."""
    return {
        "id": job.id,
        "run_at": job.run_at,
        "due_at": job.due_at,
        "attempts": job.attempts,
        "forgiven": job.forgiven,
        "last_error": job.last_error,
        "failed_at": job.failed_at,
        "status": job.status.value,
        "lease_token": job.lease_token,
        "lease_owner": job.lease_owner,
        "lease_expires_at": job.lease_expires_at,
        "claimed_at": job.claimed_at,
        "started_at": job.started_at,
        "cancel_requested_at": job.cancel_requested_at,
        "progress": progress_to_text(job.progress),
        "dlq_reason": job.dlq_reason,
        "dlq_code": job.dlq_code,
        "dlq_failed_at": job.dlq_failed_at,
        "updated_at": job.updated_at,
    }


def payload_hash(job: Job) -> str:
    return sha256(job.payload).hexdigest()


def live_params(job: Job) -> dict[str, Any]:
    """Every column of a live job, by name."""
    return {
        **job_params(job),
        "type": job.type,
        "queue": job.queue,
        "tenant_id": job.tenant_id,
        "payload": job.payload,
        "meta": meta_to_text(job.meta),
        "priority": job.priority,
        "expires_at": job.expires_at,
        "timeout_nanos": timeout_to_nanos(job.timeout),
        "max_attempts": job.max_attempts,
        "deliveries": job.deliveries,
        "created_at": job.created_at,
        "idempotency_key": job.idempotency_key,
        "dedupe_scope": job.dedupe_scope,
        "payload_hash": payload_hash(job),
        "key_expires_at": None,
        "due_was": None,
    }


def schedule_params(schedule: Schedule) -> dict[str, Any]:
    """The columns of a schedule that has passed the checks, by name."""
    return {
        "name": schedule.name,
        "spec": schedule.spec,
        "timezone": schedule.timezone,
        "type": schedule.type,
        "payload": schedule.payload,
        "queue": schedule.queue,
        "tenant_id": schedule.tenant_id,
        "priority": schedule.priority,
        "max_attempts": schedule.max_attempts,
        "timeout_nanos": timeout_to_nanos(schedule.timeout if isinstance(schedule.timeout, timedelta) else None),
        "meta": meta_to_text(schedule.meta),
        "overlap": str(schedule.overlap),
        "paused": schedule.paused,
        "next_run_at": schedule.next_run_at,
        "last_run_at": schedule.last_run_at,
        "last_job_id": schedule.last_job_id,
        "updated_at": schedule.updated_at,
    }


def schedule_from_row(row: Sequence[Any]) -> Schedule:
    """The same columns in the same order, with times as datetimes."""
    (
        name, spec, timezone, type, payload, queue, tenant_id, priority, max_attempts, timeout_nanos, meta, overlap,
        paused, next_run_at, last_run_at, last_job_id, updated_at,
    ) = row  # fmt: skip
    return Schedule(
        name=name,
        spec=spec,
        timezone=timezone,
        type=type,
        payload=payload,
        queue=queue,
        tenant_id=tenant_id,
        priority=priority,
        max_attempts=max_attempts,
        timeout=timeout_from_nanos(timeout_nanos),
        meta=meta_from_text(meta),
        overlap=Overlap(overlap),
        paused=bool(paused),
        next_run_at=next_run_at,
        last_run_at=last_run_at,
        last_job_id=last_job_id,
        updated_at=updated_at,
    )


def fact_params(fact: HistoryRow) -> dict[str, Any]:
    """The columns of a history row by name."""
    attempt, job = fact.attempt, fact.job
    return {
        "job_id": fact.job_id,
        "type": fact.type,
        "queue": fact.queue,
        "tenant_id": fact.tenant_id,
        "priority": fact.priority,
        "outcome": fact.outcome.value,
        "status": fact.status.value,
        "at": fact.at,
        "final": fact.status in (Status.DONE, Status.EXPIRED, Status.CANCELLED),
        "attempt_no": attempt.number if attempt else None,
        "delivery": attempt.delivery if attempt else (job.deliveries if job else 0),
        "error": (attempt.error or None) if attempt else None,
        "code": attempt.code if attempt else None,
        "lease_token": attempt.lease_token if attempt else None,
        "lease_owner": attempt.worker if attempt else None,
        "due_at": attempt.due_at if attempt else (job.due_at if job else fact.at),
        "claimed_at": attempt.claimed_at if attempt else None,
        "started_at": attempt.started_at if attempt else None,
        "payload": job.payload if job else None,
        "meta": meta_to_text(job.meta) if job else None,
        "run_at": job.run_at if job else None,
        "expires_at": job.expires_at if job else None,
        "timeout_nanos": timeout_to_nanos(job.timeout) if job else None,
        "max_attempts": job.max_attempts if job else None,
        "attempts": job.attempts if job else None,
        "forgiven": job.forgiven if job else None,
        "last_error": (job.last_error or None) if job else None,
        "failed_at": job.failed_at if job else None,
        "cancel_requested_at": job.cancel_requested_at if job else None,
        "idempotency_key": job.idempotency_key if job else None,
        "dedupe_scope": job.dedupe_scope if job else None,
        "result": job.result if job else None,
        "progress": progress_to_text(job.progress) if job else None,
        "created_at": job.created_at if job else None,
    }
