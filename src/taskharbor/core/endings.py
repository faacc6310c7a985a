"""Why a job ended as it did, in the words of whoever ended it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskharbor.core.model import Job, Outcome, Status

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver


def why(driver: Driver, job: Job) -> str:
    """What put a job into the DLQ, or its last error. Of a cancelled one, the reason that its handler gave: an error of
    an attempt before the cancel is no reason for it."""
    if job.status is not Status.CANCELLED:
        return job.dlq_reason or job.last_error
    attempts = driver.attempts(job.id)
    return attempts[-1].error if attempts and attempts[-1].outcome is Outcome.CANCELLED else ""
