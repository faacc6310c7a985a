"""Jobs on their way into the store. Requests that come at once go in together, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from taskharbor.core.codec import JsonCodec
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput, StoreError
from taskharbor.core.model import DEFAULT_TENANT, Enqueued, NewJob
from taskharbor.web.access import Principal
from taskharbor.web.api import schemas
from taskharbor.web.batching import Batcher, one_by_one
from taskharbor.web.threads import Threads

_encode = JsonCodec().encode


class Coming(NamedTuple):
    job: NewJob
    delay: float | None


class Intake:
    def __init__(self, driver: Driver, threads: Threads) -> None:
        self._driver = driver
        self._each = one_by_one(self._together, concerns_all)
        self._batches: Batcher[Coming, Enqueued] = Batcher(self._each, threads, parallel=2)

    async def put(self, coming: Coming) -> Enqueued:
        return await self._batches.submit(coming)

    def put_all(self, coming: Sequence[Coming], *, stop: bool = False) -> Sequence[Enqueued | Exception]:
        """For a thread: one answer for each; with `stop`, up to the first that is refused."""
        return (one_by_one(self._together, concerns_all, stop=True) if stop else self._each)(coming)

    def _together(self, coming: Sequence[Coming]) -> Sequence[Enqueued]:
        now = self._driver.now()
        jobs = [job if delay is None else job._replace(run_at=now + timedelta(seconds=delay)) for job, delay in coming]
        return self._driver.enqueue(jobs, now)


def concerns_all(error: Exception) -> bool:
    """The store is away, or full: no smaller batch would fare better."""
    return isinstance(error, StoreError)


def tenant_of(who: Principal) -> str:
    """The tenant that a token enqueues for. It comes from the token alone; one for all tenants has the default."""
    return DEFAULT_TENANT if who.tenant_id is None else who.tenant_id


def described(body: schemas.NewJob, tenant_id: str, header_key: str | None = None) -> Coming:
    """The job of a request; InvalidInput if its fields are at odds."""
    key = body.key
    if header_key is not None:
        if key is not None and key != header_key:
            raise InvalidInput("key and the header Idempotency-Key differ: give one of them")
        key = header_key
    if body.delay is not None and body.run_at is not None:
        raise InvalidInput("run_at and delay say the same in two ways: give one of them")
    if key is None and (body.unique is not None or "on_duplicate" in body.model_fields_set):
        raise InvalidInput(
            "unique and on_duplicate are about jobs with a key, and this one has none: give a key, or leave them out"
        )
    more: dict[str, Any] = {} if body.unique is None else {"unique": tuple(body.unique)}
    job = NewJob(
        body.type,
        _encode(body.payload),
        body.queue,
        tenant_id,
        meta=body.meta,
        priority=body.priority,
        run_at=body.run_at,
        expires_at=body.expires_at,
        timeout=body.timeout,
        max_attempts=body.max_attempts,
        idempotency_key=key,
        on_duplicate=body.on_duplicate,
        **more,
    )
    return Coming(job, body.delay)
