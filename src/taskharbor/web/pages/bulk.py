"""Retry and cancel of many jobs: first a page that says how many it would be, then the deed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

from starlette.responses import Response

from taskharbor.core.contract import Driver
from taskharbor.core.model import Job, JobFilter, Status
from taskharbor.web.access import Permission
from taskharbor.web.pages import changes
from taskharbor.web.pages.choosing import MOST_AT_ONCE, Choice, choice_of, found_by, ids_of
from taskharbor.web.pages.routes import page_router
from taskharbor.web.pages.visits import Acting, Visit
from taskharbor.web.pages.words import many
from taskharbor.web.problems import Problem

router = page_router()
MOST_BOXES: Final = 1_000
_ACTS: Final = {
    "retry": (Permission.RETRY, (Status.DLQ,), MOST_AT_ONCE),
    "cancel": (Permission.CANCEL, (Status.READY, Status.INFLIGHT), changes.MOST_CANCELLED),
}


class Wanted(NamedTuple):
    """What a form asks for: an act, and the jobs by their boxes or by the filter of the page."""

    act: str
    choice: Choice
    ids: Sequence[str] | None
    statuses: Sequence[Status]
    most: int

    def filters(self, driver: Driver, tenant: str | None) -> list[JobFilter]:
        """One for each state that the act is for."""
        if self.ids is not None:
            chosen = JobFilter(ids=self.ids, tenant_id=tenant)
        else:
            chosen = found_by(driver, self.choice, tenant)
        return [replace(chosen, status=each) for each in self.statuses if chosen.status in (None, each)]


def _wanted(visit: Visit) -> Wanted:
    act = visit.text("act")
    if act not in _ACTS:
        raise Problem("invalid", "jobs can be retried or cancelled here")
    permission, statuses, most = _ACTS[act]
    visit.principal.require(permission)
    assert visit.form is not None
    ids = None
    if visit.text("which") != "all":
        ids = list(dict.fromkeys(visit.texts("id")))[:MOST_BOXES]
    return Wanted(act, choice_of(visit.form, from_form=True), ids, statuses, most)


@router.post("/jobs/preview")
async def preview(visit: Acting) -> Response:
    wanted = _wanted(visit)
    if wanted.ids is not None and not wanted.ids:
        return visit.back(_jobs(wanted.choice), "Choose some jobs first: tick their boxes.", "watch")
    count, sample, now = await visit.run(_rehearse, visit.driver, wanted, visit.tenant)
    return visit.show("bulk.html", "/jobs", wanted=wanted, count=count, sample=sample, now=now)


def _rehearse(driver: Driver, wanted: Wanted, tenant: str | None) -> tuple[int, list[Job], datetime]:
    filters = wanted.filters(driver, tenant)
    count = sum(driver.count(each, MOST_AT_ONCE + 1) for each in filters)
    sample = [job for each in filters for job in driver.list(each, None, 10).jobs][:10]
    return count, sample, driver.now()


@router.post("/jobs/bulk")
async def bulk(visit: Acting) -> Response:
    wanted = _wanted(visit)
    rate = changes.rate_of(visit.text("rate"))
    said, kind = await visit.run(_do, visit.driver, wanted, visit.tenant, rate, visit.text("reset") == "yes")
    return visit.back(_jobs(wanted.choice), said, kind)


def _do(driver: Driver, wanted: Wanted, tenant: str | None, rate: float | None, reset: bool) -> tuple[str, str]:
    ids: list[str] = []
    for each in wanted.filters(driver, tenant):
        ids += ids_of(driver, each, wanted.most - len(ids))
    if wanted.act == "retry":
        moved = changes.redrive(driver, ids, tenant, rate, reset_attempts=reset)
        return f"{many(moved, 'job')} sent back to run again.", "good" if moved else "watch"
    found = changes.cancel(driver, ids)
    parts = [f"{many(found.at_once, 'job')} cancelled"]
    if found.asked:
        parts.append(f"{many(found.asked, 'running job')} asked to stop")
    if found.left:
        parts.append(f"{many(found.left, 'job')} had ended already")
    return ", ".join(parts) + ".", "good" if found.at_once + found.asked else "watch"


def _jobs(choice: Choice) -> str:
    return f"/jobs?{choice.query}" if choice.query else "/jobs"
