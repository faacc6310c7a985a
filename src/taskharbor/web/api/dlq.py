"""Jobs that did not work: look at them, and send them back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from taskharbor.core.contract import Driver
from taskharbor.core.model import JobFilter, Status
from taskharbor.web.access import Permission, Principal, allow
from taskharbor.web.api import API
from taskharbor.web.api import schemas as taken
from taskharbor.web.api import shapes as given
from taskharbor.web.api.bodies import answer, body
from taskharbor.web.api.jobs import Reader, listed
from taskharbor.web.openapi import takes
from taskharbor.web.problems import documented
from taskharbor.web.threads import Threads

MOST_TOLD: Final = 1_000

router = APIRouter(prefix=API, tags=["dlq"])


@router.get("/dlq", response_model=given.JobPage, responses=documented())
async def list_dead(request: Request, who: Reader, query: Annotated[taken.DeadQuery, Query()]) -> Response:
    """Jobs in the DLQ that match, the newest first: by creation, not by death."""
    return await listed(request, who, query, Status.DLQ)


@router.post(
    "/dlq/redrive",
    response_model=given.Redriven,
    responses=documented(400, 413, 415),
    openapi_extra=takes(taken.Redrive),
)
async def redrive(
    request: Request,
    who: Annotated[Principal, Depends(allow(Permission.RETRY))],
    asked: Annotated[taken.Redrive, Depends(body(taken.Redrive))],
) -> Response:
    """Send jobs of the DLQ back to run, the oldest first; `rate` spreads them over time."""
    driver: Driver = request.app.state.driver
    chosen = JobFilter(
        ids=asked.ids,
        queue=asked.queue,
        type=asked.type,
        tenant_id=who.chosen(asked.tenant),
        error=asked.error or None,
        code=asked.code,
    )
    threads: Threads = request.app.state.threads
    moved: Sequence[str] = await threads.run(
        driver.redrive, chosen, limit=asked.limit, rate=asked.rate, reset_attempts=asked.reset_attempts
    )
    return answer({"redriven": len(moved), "ids": list(moved[:MOST_TOLD])})
