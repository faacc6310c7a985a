"""Enqueue a job; look at jobs; cancel one; send one back from the DLQ."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request
from fastapi.responses import Response

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput, JobNotFound
from taskharbor.core.model import Job, JobFilter, Status
from taskharbor.web.access import Permission, Principal, allow
from taskharbor.web.api import API
from taskharbor.web.api import schemas as taken
from taskharbor.web.api import shapes as given
from taskharbor.web.api.bodies import JSON, answer, aside, check_type, optional_body, parsed
from taskharbor.web.api.forms import job_detail, job_summary
from taskharbor.web.intake import Coming, Intake, described, tenant_of
from taskharbor.web.limits import Backpressure
from taskharbor.web.openapi import takes
from taskharbor.web.problems import Problem, documented, not_found
from taskharbor.web.threads import Threads

CHUNK: Final = 100
"""Jobs read from the store at once for a list: their payloads, which it leaves out, are in memory only for so many."""

router = APIRouter(prefix=API, tags=["jobs"])

Reader = Annotated[Principal, Depends(allow(Permission.READ))]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.intake = Intake(app.state.driver, app.state.threads)
    app.state.backpressure = Backpressure(app.state.settings, app.state.census, app.state.threads)
    yield


@router.post(
    "/jobs",
    status_code=201,
    response_model=given.EnqueuedJob,
    responses={
        200: {"model": given.EnqueuedJob, "description": "The job was there already under the same key"},
        **documented(400, 409, 413, 415, 429),
    },
    openapi_extra=takes(taken.NewJob),
)
async def enqueue(
    request: Request,
    who: Annotated[Principal, Depends(allow(Permission.ENQUEUE))],
    idempotency_key: Annotated[
        str | None, Header(min_length=1, max_length=255, description="The same as `key` in the body.")
    ] = None,
) -> Response:
    """Enqueue a job for the tenant of the token."""
    check_type(request, JSON)
    tenant_id = tenant_of(who)
    data = await request.body()
    coming = await aside(request, len(data), _read, data, tenant_id, _header_text(idempotency_key))
    state = request.app.state
    backpressure: Backpressure = state.backpressure
    if backpressure.is_on:
        await backpressure.take(tenant_id)
    intake: Intake = state.intake
    job_id, existed = await intake.put(coming)
    if existed:
        return answer({"id": job_id, "existed": True})
    return answer({"id": job_id, "existed": False}, 201, {"Location": f"{API}/jobs/{job_id}"})


def _read(data: bytes, tenant_id: str, key: str | None) -> Coming:
    return described(parsed(taken.NewJob, data), tenant_id, key)


def _header_text(value: str | None) -> str | None:
    """Headers are bytes, and come as if each were a letter."""
    if value is None or value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise InvalidInput("the header Idempotency-Key is not UTF-8: put the key into the body") from None


@router.get("/jobs", response_model=given.JobPage, responses=documented())
async def list_jobs(request: Request, who: Reader, query: Annotated[taken.JobsQuery, Query()]) -> Response:
    """Jobs that match, the newest first, without their payloads and results."""
    return await listed(request, who, query, query.status)


async def listed(request: Request, who: Principal, query: taken.DeadQuery, status: Status | None) -> Response:
    chosen = JobFilter(
        status=status,
        queue=query.queue,
        type=query.type,
        tenant_id=who.chosen(query.tenant),
        text=query.text or None,
        error=query.error or None,
        code=query.code,
    )
    state = request.app.state
    threads: Threads = state.threads
    return await threads.run(_page, state.driver, chosen, query.cursor, query.limit)


def _page(driver: Driver, chosen: JobFilter, cursor: str | None, limit: int) -> Response:
    now = driver.now()
    found: list[dict[str, Any]] = []
    while True:
        page = driver.list(chosen, cursor, min(CHUNK, limit - len(found)))
        found.extend(job_summary(job, now) for job in page.jobs)
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            return answer({"jobs": found, "cursor": cursor})


@router.get("/jobs/{id:thing}", response_model=given.JobDetail, responses=documented(404))
async def show_job(request: Request, id: str, who: Reader) -> Response:
    """Everything about one job, with its attempts. The job of another tenant answers as one that is not there."""
    driver: Driver = request.app.state.driver

    def look() -> Response:
        job = own_job(driver, id, who)
        return answer(job_detail(job, list(driver.attempts(id)), driver.now()))

    threads: Threads = request.app.state.threads
    return await threads.run(look)


def own_job(driver: Driver, id: str, who: Principal) -> Job:
    """The job, if it is there for this principal; else a problem that is the same for foreign and for absent."""
    try:
        job = driver.get(id)
    except JobNotFound:
        raise not_found() from None
    if not who.sees(job.tenant_id):
        raise not_found()
    return job


@router.post("/jobs/{id:whole}/cancel", response_model=given.JobStatus, responses=documented(404, 409))
async def cancel_job(
    request: Request, id: str, who: Annotated[Principal, Depends(allow(Permission.CANCEL))]
) -> Response:
    """A job that waits is cancelled; one that runs is asked to stop, and is cancelled when it does."""
    driver: Driver = request.app.state.driver

    def cancel() -> Status:
        own_job(driver, id, who)
        return driver.cancel(id)

    threads: Threads = request.app.state.threads
    status = await threads.run(cancel)
    if status not in (Status.CANCELLED, Status.INFLIGHT):
        raise Problem(
            "wrong-state", f"the job is {status} and stays so: only waiting and running jobs can be cancelled"
        )
    return answer({"id": id, "status": status.value})


@router.post(
    "/jobs/{id:whole}/retry",
    response_model=given.JobStatus,
    responses=documented(400, 404, 409, 413, 415),
    openapi_extra=takes(taken.RetryJob, required=False),
)
async def retry_job(
    request: Request,
    id: str,
    who: Annotated[Principal, Depends(allow(Permission.RETRY))],
    body: Annotated[taken.RetryJob, Depends(optional_body(taken.RetryJob))],
) -> Response:
    """Send a job of the DLQ back to run at once."""
    driver: Driver = request.app.state.driver

    def retry() -> None:
        job = own_job(driver, id, who)
        if not driver.redrive(JobFilter(ids=(id,)), reset_attempts=body.reset_attempts):
            raise Problem("wrong-state", f"the job is {job.status}: only jobs in the DLQ can be retried")

    threads: Threads = request.app.state.threads
    await threads.run(retry)
    return answer({"id": id, "status": Status.READY.value})
