"""The dead letters, by what killed them, and their way back."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from taskharbor.core.contract import Driver
from taskharbor.core.model import Job, JobFilter, Status
from taskharbor.web.access import Permission
from taskharbor.web.pages import changes
from taskharbor.web.pages.choosing import choice_of
from taskharbor.web.pages.groups import MOST_SCANNED, Groups
from taskharbor.web.pages.routes import page_router
from taskharbor.web.pages.visits import Acting, Looking
from taskharbor.web.pages.words import many
from taskharbor.web.problems import not_found

router = page_router()
SHOWN_GROUPS: Final = 100
SHOWN_JOBS: Final = 50


@router.get("/dlq")
async def dlq(visit: Looking) -> Response:
    groups: Groups = visit.request.app.state.groups
    choice = choice_of(visit.request.query_params)
    found = await visit.run(groups.read, visit.tenant, choice.queue, choice.type)
    now = await visit.run(visit.driver.now)
    return visit.show("dlq.html", "/dlq", found=found, choice=choice, now=now, shown=SHOWN_GROUPS, most=MOST_SCANNED)


@router.get("/dlq/{fingerprint}")
async def group(fingerprint: str, visit: Looking) -> Response:
    groups: Groups = visit.request.app.state.groups
    choice = choice_of(visit.request.query_params)
    found = await visit.run(groups.read, visit.tenant, choice.queue, choice.type)
    here = found.get(fingerprint)
    if here is None:
        raise not_found()
    jobs, now = await visit.run(_jobs, visit.driver, here.ids[:SHOWN_JOBS])
    return visit.show("group.html", "/dlq", group=here, jobs=jobs, now=now, choice=choice)


def _jobs(driver: Driver, ids: list[str]) -> tuple[list[Job], datetime]:
    jobs: list[Job] = list(driver.list(JobFilter(ids=ids, status=Status.DLQ), None, len(ids)).jobs)
    return jobs, driver.now()


@router.post("/dlq/redrive")
async def redrive(visit: Acting) -> Response:
    """A group as it is now: what has joined it since the page was made goes along."""
    visit.principal.require(Permission.RETRY)
    groups: Groups = visit.request.app.state.groups
    assert visit.form is not None
    choice = choice_of(visit.form, from_form=True)
    rate = changes.rate_of(visit.text("rate"))
    found = await visit.run(groups.read, visit.tenant, choice.queue, choice.type, fresh=True)
    here = found.get(visit.text("fingerprint"))
    query = urlencode({name: value for name, value in (("queue", choice.queue), ("type", choice.type)) if value})
    address = f"/dlq?{query}" if query else "/dlq"
    if here is None:
        return visit.back(address, "Nothing of this group is left: nothing was changed.", "watch")
    reset = visit.text("reset") == "yes"
    moved = await visit.run(changes.redrive, visit.driver, here.ids[::-1], visit.tenant, rate, reset_attempts=reset)
    groups.forget()
    spread = "" if rate is None else f", {rate:g} a second"
    return visit.back(address, f"{many(moved, 'job')} sent back to run again{spread}.", "good" if moved else "watch")
