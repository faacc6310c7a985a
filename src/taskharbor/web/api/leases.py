"""Work for workers in any language: reserve jobs, keep them, and say how they ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import Response

from taskharbor.core.codec import JsonCodec
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput, TaskHarborError
from taskharbor.core.forms import iso
from taskharbor.core.limits import clean_error
from taskharbor.core.model import Extension, Job, Lease, LeasedJob, Progress, Settlement, Status
from taskharbor.core.outcome import Failed, Snoozed, settlement
from taskharbor.core.retry import Backoff
from taskharbor.web.access import Permission, Principal, allow
from taskharbor.web.api import API
from taskharbor.web.api import schemas as taken
from taskharbor.web.api import shapes as given
from taskharbor.web.api.bodies import answer, aside, body
from taskharbor.web.api.forms import lease_data
from taskharbor.web.api.jobs import own_job
from taskharbor.web.batching import Batcher, one_by_one
from taskharbor.web.intake import concerns_all
from taskharbor.web.openapi import takes
from taskharbor.web.problems import documented
from taskharbor.web.registering import Registry, owner_of
from taskharbor.web.threads import Threads
from taskharbor.web.waiting import Doorbells

CHUNK: Final = 200
MOST_BYTES: Final = 16 * 1024 * 1024
"""Jobs reserved at once, and payloads after which a request for many is given what it has so far."""
POLICY: Final = Backoff()

router = APIRouter(prefix=API, tags=["leases"])
Worker = Annotated[Principal, Depends(allow(Permission.LEASE))]
_encode = JsonCodec().encode


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    driver: Driver = app.state.driver
    settle: Callable[[Sequence[Settlement]], Sequence[Any]] = one_by_one(driver.settle, concerns_all)
    extend: Callable[[Sequence[Extension]], Sequence[Any]] = one_by_one(driver.extend, concerns_all)
    app.state.settles = Batcher(settle, app.state.threads, parallel=2)
    app.state.extends = Batcher(extend, app.state.threads)
    app.state.doorbells = Doorbells(driver, app.state.threads, app.state.stopping)
    registry = app.state.registry = Registry(driver)
    clearing = asyncio.create_task(registry.clear_again_and_again(app.state.threads))
    try:
        yield
    finally:
        clearing.cancel()
        await asyncio.gather(clearing, return_exceptions=True)
        await app.state.doorbells.close()


@router.post(
    "/leases",
    response_model=given.LeasePage,
    responses=documented(400, 413, 415),
    openapi_extra=takes(taken.LeaseRequest),
)
async def reserve(
    request: Request, who: Worker, asked: Annotated[taken.LeaseRequest, Depends(body(taken.LeaseRequest))]
) -> Response:
    """Jobs leased to the caller alone, each with a token; an empty list when nothing is to be done. With `wait`, the
    answer comes as soon as there is a job."""
    state = request.app.state
    driver: Driver = state.driver
    threads: Threads = state.threads
    doorbells: Doorbells = state.doorbells
    has_waited = False
    async for _ in doorbells.rings(tuple(asked.queues), asked.wait):
        if has_waited:
            await state.access.again(request, Permission.LEASE)
        has_waited = True
        if asked.wait and await request.is_disconnected():
            break  # nobody would ever settle what is leased now
        leases = await threads.run(_reserved, driver, state.registry, who, asked)
        if leases:
            if asked.wait and await request.is_disconnected():
                await threads.run(_put_back, driver, leases)
                break
            return await threads.run(_told, driver, leases)
    return answer({"leases": []})


def _reserved(driver: Driver, registry: Registry, who: Principal, asked: taken.LeaseRequest) -> list[LeasedJob]:
    registry.asks(who.tenant_id, asked)
    owner = owner_of(asked.worker) or (f"token-{who.token_id}" if who.token_id else "rest")
    found: list[LeasedJob] = []
    size = 0
    while len(found) < asked.limit and size < MOST_BYTES:
        part = driver.reserve(
            asked.queues,
            lease_for=asked.lease_for,
            limit=min(CHUNK, asked.limit - len(found)),
            types=asked.types,
            owner=owner,
            tenant=who.tenant_id,
        )
        found.extend(part)
        size += sum(len(leased.job.payload) for leased in part)
        if len(part) < CHUNK:
            break
    return found


def _told(driver: Driver, leases: Sequence[LeasedJob]) -> Response:
    now = driver.now()
    return answer({"leases": [lease_data(leased, now) for leased in leases]})


def _put_back(driver: Driver, leases: Sequence[LeasedJob]) -> None:
    driver.settle([Settlement.release(job.id, lease.token) for job, lease in leases])


def _operation(name: str, model: type[taken.Body]) -> dict[str, Any]:
    return {
        "path": f"/leases/{{id:whole}}/{name}",
        "response_model": given.Settled,
        "responses": documented(400, 404, 409, 413, 415),
        "openapi_extra": takes(model),
    }


@router.post(**_operation("ack", taken.Ack))
async def ack(
    request: Request, id: str, who: Worker, asked: Annotated[taken.Ack, Depends(body(taken.Ack))]
) -> Response:
    """The job is done. Once more with the same token succeeds and changes nothing."""
    size = len(await request.body())
    result = None if asked.result is None else await aside(request, size, _encode, asked.result)
    await _check_tenant(request, id, who)
    return await _settled(request, Settlement.ack(id, asked.token, result=result))


@router.post(**_operation("retry", taken.Retry))
async def retry(
    request: Request, id: str, who: Worker, asked: Annotated[taken.Retry, Depends(body(taken.Retry))]
) -> Response:
    """The attempt failed: the job runs again after `delay` or at `run_at`, else by the usual backoff; or it goes to
    the DLQ, if that was its last attempt."""
    if asked.delay is not None and asked.run_at is not None:
        raise InvalidInput("run_at and delay say the same in two ways: give one of them")

    def decide(job: Job, now: datetime) -> Settlement:
        delay = None if asked.delay is None else timedelta(seconds=asked.delay)
        if asked.run_at is not None:
            delay = max(timedelta(0), asked.run_at - now)
        return settlement(Failed(asked.error, delay), job, asked.token, None, now, POLICY)

    return await _decided(request, id, who, decide)


@router.post(**_operation("fail", taken.Fail))
async def fail(
    request: Request, id: str, who: Worker, asked: Annotated[taken.Fail, Depends(body(taken.Fail))]
) -> Response:
    """The job goes to the DLQ at once."""
    await _check_tenant(request, id, who)
    return await _settled(request, Settlement.fail(id, asked.token, reason=clean_error(asked.reason), code=asked.code))


@router.post(**_operation("release", taken.Release))
async def release(
    request: Request, id: str, who: Worker, asked: Annotated[taken.Release, Depends(body(taken.Release))]
) -> Response:
    """The job goes back, and nothing is held against it; with `delay`, it waits so long."""
    if asked.delay is None:
        await _check_tenant(request, id, who)
        return await _settled(request, Settlement.release(id, asked.token))
    delay = timedelta(seconds=asked.delay)

    def decide(job: Job, now: datetime) -> Settlement:
        return settlement(Snoozed(delay), job, asked.token, None, now, POLICY)

    return await _decided(request, id, who, decide)


@router.post(
    "/leases/{id:whole}/extend",
    response_model=given.Extended,
    responses=documented(400, 404, 409, 413, 415),
    openapi_extra=takes(taken.Extend),
)
async def extend(
    request: Request, id: str, who: Worker, asked: Annotated[taken.Extend, Depends(body(taken.Extend))]
) -> Response:
    """The lease goes on from now. The answer tells whether somebody wants the job stopped."""
    state = request.app.state
    started_at = await state.threads.run(_started, state.driver, state.registry, id, who, asked.token)
    told = asked.progress
    progress = None if told is None else Progress(told.done, told.total, clean_error(told.note))
    extends: Batcher[Extension, Lease] = state.extends
    lease = await extends.submit(Extension(id, asked.token, asked.lease_for, started_at, progress))
    return answer(
        {
            "id": id,
            "token": lease.token,
            "expires_at": iso(lease.expires_at),
            "cancel_requested": lease.cancel_requested,
        }
    )


def _started(driver: Driver, registry: Registry, id: str, who: Principal, token: str) -> datetime | None:
    """Since when the job runs. Whoever extends is at work, and began when it was given the lease."""
    job = own_job(driver, id, who)
    if job.lease_token != token:
        return None  # the extension is going to be refused
    registry.extends(who.tenant_id, job.lease_owner or "")
    return job.started_at or job.claimed_at


async def _check_tenant(request: Request, id: str, who: Principal) -> None:
    """A token for all tenants needs no look: the lease token alone decides."""
    if who.tenant_id is not None:
        await request.app.state.threads.run(own_job, request.app.state.driver, id, who)


async def _decided(
    request: Request, id: str, who: Principal, decide: Callable[[Job, datetime], Settlement]
) -> Response:
    """Settle with what is decided from the job, as a worker decides. The lease token fences it: if the job has
    changed since it was read, the lease is lost and nothing is written."""
    driver: Driver = request.app.state.driver

    def look() -> Settlement:
        job = own_job(driver, id, who)
        return decide(job, driver.now())

    threads: Threads = request.app.state.threads
    return await _settled(request, await threads.run(look))


async def _settled(request: Request, item: Settlement) -> Response:
    settles: Batcher[Settlement, Status | TaskHarborError] = request.app.state.settles
    status = await settles.submit(item)
    run_at = item.run_at if item.update is None else item.update.run_at
    told = iso(run_at) if status is Status.READY else None
    return answer({"id": item.id, "status": str(status), "run_at": told})
