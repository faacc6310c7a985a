"""Leases that end without a word, and what is said of the jobs that they end: no handler is there to say it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from taskharbor.core import transitions
from taskharbor.core.limits import Limits
from taskharbor.core.logged import job_fields
from taskharbor.core.model import Job, Reason, Status
from taskharbor.core.transitions import Moved

log = logging.getLogger("taskharbor.drivers")


def lapse(job: Job, now: datetime, limits: Limits, why: str) -> Moved:
    """`transitions.lapse`, told in the log of the process that finds it if it is the end of the job."""
    moved = transitions.lapse(job, now, limits, why)
    if moved.job.status is Status.DLQ:
        _say(job.type, job.deliveries - job.forgiven, job_fields(job))
    return moved


def say_crash_loops(rows: Iterable[Sequence[Any]]) -> None:
    """The same for leases that were freed by a statement: of each job its id, type, queue, tenant, attempt, the
    deliveries that count, and the code of its end if it has ended."""
    for id, type, queue, tenant, attempt, deliveries, code in rows:
        if code == Reason.CRASH_LOOP:
            _say(type, deliveries, {"job": id, "type": type, "queue": queue, "tenant": tenant, "attempt": attempt})


def _say(type: str, deliveries: int, fields: dict[str, Any]) -> None:
    log.error("%s failed for good (crash_loop): %d deliveries and no end was told", type, deliveries, extra=fields)
