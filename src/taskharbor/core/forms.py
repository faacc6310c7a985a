"""Jobs and their kin as JSON, for the command line and the REST API alike. Never a lease token: that is for the holder
of the lease alone. Payloads and results are left to the callers, which show them in ways of their own."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

from taskharbor.core.clock import EPOCH
from taskharbor.core.fleet import Leadership, Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Attempt, Job, QueueSettings, Schedule

DEAD_AFTER: Final = timedelta(seconds=30)


def iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def refuse_constant(word: str) -> NoReturn:
    """For `json.loads(…, parse_constant=…)`: NaN and the infinities."""
    raise ValueError(f"{word} is no JSON, though Python reads it")


def job_data(job: Job, now: datetime) -> dict[str, Any]:
    progress = job.progress
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "tenant_id": job.tenant_id,
        "status": job.status.value,
        "phase": job.phase(now),
        "priority": job.priority,
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
        "timeout_s": None if job.timeout is None else job.timeout.total_seconds(),
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


def limit_data(limit: Limit) -> dict[str, Any]:
    return {
        "scope": limit.scope,
        "name": limit.name,
        "per": limit.per or None,
        "concurrency": limit.concurrency,
        "rate": limit.rate,
        "burst": limit.burst,
    }


def worker_data(worker: Worker, now: datetime, dead_after: timedelta = DEAD_AFTER) -> dict[str, Any]:
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


def is_alive(worker: Worker, now: datetime, dead_after: timedelta = DEAD_AFTER) -> bool:
    return worker.last_heartbeat is not None and now - worker.last_heartbeat < dead_after


def is_as_any(settings: QueueSettings) -> bool:
    """Whether nothing is set for the queue any more: stores keep a row of one that was paused once."""
    return settings == QueueSettings(settings.name)


def leader_data(leader: Leadership, now: datetime) -> dict[str, Any]:
    """A term that its leader has resigned from ended when it did: stores keep no time for that."""
    return {
        "name": leader.name,
        "holder": leader.holder,
        "epoch": leader.epoch,
        "until": None if leader.until == EPOCH else iso(leader.until),
        "current": leader.until > now,
    }


def schedule_data(schedule: Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "spec": schedule.spec,
        "timezone": schedule.timezone,
        "type": schedule.type,
        "queue": schedule.queue,
        "tenant_id": schedule.tenant_id,
        "priority": schedule.priority,
        "overlap": str(schedule.overlap),
        "paused": schedule.paused,
        "next_run_at": iso(schedule.next_run_at),
        "last_run_at": iso(schedule.last_run_at),
        "last_job_id": schedule.last_job_id,
    }
