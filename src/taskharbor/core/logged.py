"""What a log line says of the job it is about. Never its payload: that belongs to the tenant, and the store has it."""

from __future__ import annotations

from typing import Any

from taskharbor.core.model import Job


def job_fields(job: Job) -> dict[str, Any]:
    """The `extra` of a line about this job."""
    return {
        "job": job.id,
        "type": job.type,
        "queue": job.queue,
        "tenant": job.tenant_id,
        "attempt": job.attempts + 1,
    }
