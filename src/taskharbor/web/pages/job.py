"""One job: what it is, what it did, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote

from starlette.responses import Response

from taskharbor.core.contract import Driver
from taskharbor.core.errors import JobNotFound
from taskharbor.core.fingerprints import fingerprint_of_dead
from taskharbor.core.model import HELD, Attempt, Job, JobFilter, Status
from taskharbor.core.workflow import WORKFLOW
from taskharbor.web.access import Permission
from taskharbor.web.pages.bodies import body_of
from taskharbor.web.pages.routes import page_router
from taskharbor.web.pages.timeline import timeline
from taskharbor.web.pages.visits import Acting, Looking, Visit
from taskharbor.web.pages.words import phase
from taskharbor.web.problems import not_found

router = page_router()
_UNFINISHED = (Status.READY, Status.INFLIGHT)


class _Seen(NamedTuple):
    job: Job
    attempts: Sequence[Attempt]
    now: datetime


def _look(driver: Driver, id: str, tenant: str | None) -> _Seen:
    """Another tenant's job is not there."""
    try:
        job = driver.get(id)
    except JobNotFound:
        raise not_found() from None
    if tenant is not None and job.tenant_id != tenant:
        raise not_found()
    return _Seen(job, driver.attempts(id), driver.now())


@router.get("/jobs/{id:whole}")
async def job(id: str, visit: Looking) -> Response:
    seen = await visit.run(_look, visit.driver, id, visit.tenant)
    found = seen.job
    error = found.dlq_reason or found.last_error
    return visit.show(
        "job.html",
        "/jobs",
        job=found,
        now=seen.now,
        phase=phase(found, seen.now),
        life=timeline(found, seen.attempts, seen.now),
        payload=body_of(found.payload),
        result=body_of(found.result),
        error=error,
        fingerprint=fingerprint_of_dead(error, found.dlq_code) if found.status is Status.DLQ else None,
        workflow=found.meta.get(WORKFLOW),
        unfinished=found.status in _UNFINISHED,
        held=found.due_at >= HELD,
    )


@router.post("/job/retry")
async def retry(visit: Acting) -> Response:
    visit.principal.require(Permission.RETRY)
    id = visit.raw("id")
    await visit.run(_look, visit.driver, id, visit.tenant)
    reset = visit.text("reset") == "yes"
    chosen = JobFilter(ids=[id], tenant_id=visit.tenant)
    moved = await visit.run(visit.driver.redrive, chosen, reset_attempts=reset)
    if moved:
        return _back(visit, id, "The job is ready again.")
    return _back(visit, id, "The job is not a dead letter any more: nothing was changed.", "watch")


@router.post("/job/cancel")
async def cancel(visit: Acting) -> Response:
    visit.principal.require(Permission.CANCEL)
    id = visit.raw("id")
    await visit.run(_look, visit.driver, id, visit.tenant)
    status = await visit.run(visit.driver.cancel, id)
    match status:
        case Status.CANCELLED:
            return _back(visit, id, "The job is cancelled.")
        case Status.INFLIGHT:
            return _back(visit, id, "The job was asked to stop, and is cancelled when it does.")
        case _:
            return _back(visit, id, f"The job is {status.value} and stays so: it had ended.", "watch")


def _back(visit: Visit, id: str, words: str, kind: str = "good") -> Response:
    return visit.back(f"/jobs/{quote(id, safe='')}", words, kind)
