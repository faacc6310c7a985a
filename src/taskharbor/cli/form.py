"""Jobs and their kin in the two forms that verbs print: JSON for programs, words for people."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from taskharbor.cli.output import Table, shortened
from taskharbor.core.envelope import is_sealed, key_id_of
from taskharbor.core.fleet import Worker
from taskharbor.core.model import DEFAULT_TENANT, Attempt, Job

JOB_HEADINGS: Final = ("id", "type", "queue", "tenant", "priority", "status", "failures", "created", "last error")
_USUAL: Final[dict[str, object]] = {"tenant": DEFAULT_TENANT, "priority": 0, "failures": 0, "last error": ""}


def iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def data_of(stored: bytes | None) -> tuple[Any, str | None]:
    """Stored bytes as JSON has them, and how they are to be read: `json`, `base64` or, base64 too, `encrypted`; None
    for nothing."""
    if stored is None:
        return None, None
    if is_sealed(stored):
        return base64.b64encode(stored).decode(), "encrypted"
    try:
        return json.loads(stored, parse_constant=_refuse), "json"
    except (ValueError, RecursionError):
        return base64.b64encode(stored).decode(), "base64"


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON, though Python reads it")


def text_of(stored: bytes | None) -> str:
    """Stored bytes as people read them."""
    if stored is None:
        return ""
    if is_sealed(stored):
        return f"{len(stored):,} bytes, encrypted with the key {key_id_of(stored)}"
    value, encoding = data_of(stored)
    if encoding != "json":
        return f"{len(stored):,} bytes that are not JSON: base64 {value}" if stored else "(empty)"
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return stored.decode()


def job_data(job: Job, now: datetime) -> dict[str, Any]:
    """Everything about a job but its lease token, which is for its holder alone."""
    payload, payload_encoding = data_of(job.payload)
    result, result_encoding = data_of(job.result)
    progress = job.progress
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "tenant_id": job.tenant_id,
        "status": job.status.value,
        "phase": job.phase(now),
        "priority": job.priority,
        "payload": payload,
        "payload_encoding": payload_encoding,
        "payload_key": key_id_of(job.payload),
        "result": result,
        "result_encoding": result_encoding,
        "result_key": key_id_of(job.result),
        "meta": dict(job.meta),
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "deliveries": job.deliveries,
        "last_error": job.last_error or None,
        "dlq_reason": job.dlq_reason,
        "dlq_code": job.dlq_code,
        "progress": None
        if progress is None
        else {"done": progress.done, "total": progress.total, "note": progress.note},
        "timeout_s": seconds(job.timeout),
        "idempotency_key": job.idempotency_key,
        "lease_owner": job.lease_owner,
        "lease_expires_at": iso(job.lease_expires_at),
        "run_at": iso(job.run_at),
        "due_at": iso(job.due_at),
        "expires_at": iso(job.expires_at),
        "created_at": iso(job.created_at),
        "updated_at": iso(job.updated_at),
        "claimed_at": iso(job.claimed_at),
        "started_at": iso(job.started_at),
        "failed_at": iso(job.failed_at),
        "dlq_failed_at": iso(job.dlq_failed_at),
        "cancel_requested_at": iso(job.cancel_requested_at),
        "completed_at": iso(job.completed_at),
    }


def attempt_data(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "delivery": attempt.delivery,
        "outcome": attempt.outcome.value,
        "error": attempt.error,
        "code": attempt.code,
        "worker": attempt.worker,
        "due_at": iso(attempt.due_at),
        "claimed_at": iso(attempt.claimed_at),
        "started_at": iso(attempt.started_at),
        "finished_at": iso(attempt.finished_at),
        "waited_s": (attempt.started_at - attempt.due_at).total_seconds(),
        "ran_s": (attempt.finished_at - attempt.started_at).total_seconds(),
    }


def worker_data(worker: Worker, now: datetime, dead_after: timedelta) -> dict[str, Any]:
    return {
        "id": worker.id,
        "hostname": worker.hostname,
        "pid": worker.pid,
        "queues": list(worker.queues),
        "slots": worker.slots,
        "version": worker.version,
        "started_at": iso(worker.started_at),
        "last_heartbeat": iso(worker.last_heartbeat),
        "alive": is_alive(worker, now, dead_after),
        "meta": dict(worker.meta),
    }


def is_alive(worker: Worker, now: datetime, dead_after: timedelta) -> bool:
    return worker.last_heartbeat is not None and now - worker.last_heartbeat < dead_after


def span(duration: timedelta | float) -> str:
    """A length of time in one or two words: 12ms, 3.4s, 5m, 2h10m, 3d."""
    total = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if total < 0:
        return "-" + span(-total)
    if total < 1:
        return f"{total * 1000:.0f}ms"
    if total < 60:
        return f"{total:.1f}s" if total < 10 else f"{total:.0f}s"
    minutes = int(total // 60)
    if minutes < 60:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes}m" if minutes and hours < 10 else f"{hours}h"
    return f"{hours // 24}d"


def ago(moment: datetime | None, now: datetime) -> str:
    """How long since, or until: `3m ago`, `in 2h`."""
    if moment is None:
        return ""
    gone = now - moment
    if abs(gone) < timedelta(seconds=1):
        return "now"
    return f"{span(gone)} ago" if gone > timedelta(0) else f"in {span(-gone)}"


def job_row(job: Job, now: datetime) -> tuple[object, ...]:
    phase = job.phase(now)
    shown = f"{phase} ({ago(job.due_at, now)})" if phase == "scheduled" else phase
    return (
        job.id,
        job.type,
        job.queue,
        job.tenant_id,
        job.priority,
        shown,
        job.attempts,
        ago(job.created_at, now),
        shortened(job.dlq_reason or job.last_error, 50),
    )


def job_table(jobs: Sequence[Job], now: datetime, empty: str) -> Table:
    """Columns in which no job has anything to say are left out: ids are long, and terminals are narrow."""
    return _without_usual(JOB_HEADINGS, [job_row(job, now) for job in jobs], empty)


def _without_usual(headings: Sequence[str], rows: Sequence[tuple[object, ...]], empty: str) -> Table:
    kept = [
        place
        for place, heading in enumerate(headings)
        if heading not in _USUAL or any(row[place] != _USUAL[heading] for row in rows)
    ]
    return Table([headings[place] for place in kept], [[row[place] for place in kept] for row in rows], empty=empty)


def dead_table(jobs: Sequence[Job], now: datetime, empty: str) -> Table:
    """Jobs of the DLQ: why each died, and when, in place of its state and its age."""
    rows = [
        (
            job.id,
            job.type,
            job.queue,
            job.tenant_id,
            job.dlq_code,
            job.attempts,
            ago(job.dlq_failed_at, now),
            shortened(job.dlq_reason or job.last_error, 50),
        )
        for job in jobs
    ]
    return _without_usual(("id", "type", "queue", "tenant", "code", "failures", "died", "last error"), rows, empty)


def attempt_table(attempts: Sequence[Attempt], now: datetime) -> Table:
    return Table(
        ("attempt", "delivery", "outcome", "worker", "waited", "ran", "ended", "error"),
        [
            (
                attempt.number,
                attempt.delivery,
                attempt.outcome.value,
                attempt.worker,
                span(attempt.started_at - attempt.due_at),
                span(attempt.finished_at - attempt.started_at),
                ago(attempt.finished_at, now),
                shortened(attempt.error, 70),
            )
            for attempt in attempts
        ],
        title="attempts",
        empty="no attempt has ended yet",
    )
