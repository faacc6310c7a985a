"""Small conversions that more than one driver needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta

from taskharbor.core.intake import Admitted, Batch
from taskharbor.core.model import Enqueued, Job, JobFilter, Progress, Status


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
    )


def meta_from_text(text: str | None) -> Mapping[str, str]:
    return json.loads(text) if text else {}


def progress_to_text(progress: Progress | None) -> str | None:
    return None if progress is None else json.dumps([progress.done, progress.total, progress.note])


def progress_from_text(text: str | None) -> Progress | None:
    return Progress(*json.loads(text)) if text else None


def timeout_from_nanos(nanos: int) -> timedelta | None:
    """Zero means no timeout, as in seed 000."""
    return timedelta(microseconds=nanos // 1_000) if nanos else None
