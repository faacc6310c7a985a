"""All jobs, by what is known of them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from starlette.responses import Response

from taskharbor.core.answers import Page
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidCursor
from taskharbor.core.model import Status
from taskharbor.web.pages.choosing import Choice, choice_of, found_by
from taskharbor.web.pages.routes import page_router
from taskharbor.web.pages.visits import Looking

router = page_router()
SHOWN: Final = 50
STATES: Final = tuple(status.value for status in Status)


@router.get("/jobs")
async def jobs(visit: Looking) -> Response:
    asked = visit.request.query_params
    choice = choice_of(asked)
    cursor = asked.get("cursor") or None
    no_state = choice.state if choice.state not in ("", *STATES) else ""
    if no_state:
        page, now = Page((), None), await visit.run(visit.driver.now)
    else:
        page, now = await visit.run(_read, visit.driver, choice, visit.tenant, cursor)
    return visit.show(
        "jobs.html",
        "/jobs",
        choice=choice,
        states=STATES,
        no_state=no_state,
        page=page,
        now=now,
        cursor=cursor,
        some_dead=any(job.status is Status.DLQ for job in page.jobs),
        some_live=any(job.status in (Status.READY, Status.INFLIGHT) for job in page.jobs),
    )


def _read(driver: Driver, choice: Choice, tenant: str | None, cursor: str | None) -> tuple[Page, datetime]:
    chosen = found_by(driver, choice, tenant)
    try:
        return driver.list(chosen, cursor, SHOWN), driver.now()
    except InvalidCursor:
        return driver.list(chosen, None, SHOWN), driver.now()  # from an old address: begin at the beginning
