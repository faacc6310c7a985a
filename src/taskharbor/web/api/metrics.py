"""`GET /metrics`: for Prometheus."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from taskharbor.web.access import Permission, Principal, allow
from taskharbor.web.metrics import OPENMETRICS, TEXT, Scrape
from taskharbor.web.problems import Problem, documented
from taskharbor.web.threads import Threads

router = APIRouter(tags=["watching"])

CATCH_UP_S: Final = 2.0


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Metrics as text, in the format of Prometheus or, if it is accepted, of OpenMetrics",
            "content": {each.partition(";")[0]: {"schema": {"type": "string"}} for each in (TEXT, OPENMETRICS)},
        },
        **documented(),
    },
)
async def metrics(request: Request, principal: Annotated[Principal, Depends(allow(Permission.READ))]) -> Response:
    """Queues, attempts, waits and runs of the token's tenant, or of all with workers and leaders."""
    openmetrics = OPENMETRICS.partition(";")[0] in request.headers.get("accept", "")
    state = request.app.state
    scrape = Scrape(state.driver, state.census, state.feed, principal.tenant_id, principal.tenant_id is None)
    threads: Threads = state.threads
    text = await threads.run(_written, scrape, openmetrics)
    return Response(text, headers={"content-type": OPENMETRICS if openmetrics else TEXT})


def _written(scrape: Scrape, openmetrics: bool) -> bytes:
    # A process that has not read all that another one may have told of already says nothing, rather than let the
    # counters go back.
    if not scrape.feed.catch_up(CATCH_UP_S):
        raise Problem("busy", "this process is still reading what happened since the server was started")
    return scrape.write(openmetrics=openmetrics)
