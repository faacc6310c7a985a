"""Copies of dead jobs whose payloads are encrypted. A store cannot copy them: each is bound to the id of its job."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from taskharbor.core.contract import Driver
from taskharbor.core.model import Job, JobFilter, NewJob, Status
from taskharbor.drivers.checks import check_count, check_rate

if TYPE_CHECKING:
    from taskharbor.app.encryption import Keyring

CHUNK: Final = 500
PAGE: Final = 1_000


def clone_sealed(
    driver: Driver,
    ring: Keyring,
    chosen: JobFilter,
    *,
    limit: int | None = None,
    rate: float | None = None,
    run_at: datetime | None = None,
) -> Sequence[str]:
    """What `driver.redrive(…, clone=True)` does, some hundred jobs at a time. A job that cannot be opened here ends it
    with the error, before any of its hundreds is enqueued. Jobs past their own expiry are passed over."""
    check_rate(rate)
    if limit is not None:
        check_count(limit, "limit", None)
    ids = _oldest(driver, chosen, limit)
    made: list[str] = []
    for at in range(0, len(ids), CHUNK):
        now = driver.now()
        part = {job.id: job for job in driver.list(JobFilter(ids=ids[at : at + CHUNK]), None, CHUNK).jobs}
        jobs = [part[id] for id in ids[at : at + CHUNK] if id in part]
        living = [job for job in jobs if job.expires_at is None or job.expires_at > now]
        copies = []
        for number, job in enumerate(living, len(made)):
            start = run_at if rate is None else (run_at or now) + timedelta(seconds=number / rate)
            copies.append(ring.seal_job(_copy(job, ring.open_payload(job), start)))
        made += [answer.id for answer in driver.enqueue(copies)]
    return made


def _oldest(driver: Driver, chosen: JobFilter, limit: int | None) -> list[str]:
    dead = replace(chosen, status=Status.DLQ)
    found: deque[str] = deque(maxlen=limit)
    cursor: str | None = None
    while True:
        page = driver.list(dead, cursor, PAGE)
        found.extend(job.id for job in page.jobs)
        cursor = page.cursor
        if cursor is None:
            return list(reversed(found))


def _copy(job: Job, payload: bytes, run_at: datetime | None) -> NewJob:
    return NewJob(
        job.type,
        payload,
        queue=job.queue,
        tenant_id=job.tenant_id,
        meta=job.meta,
        priority=job.priority,
        run_at=run_at,
        expires_at=job.expires_at,
        timeout=job.timeout,
        max_attempts=job.max_attempts,
    )
