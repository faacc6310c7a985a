"""Schedules: what comes when, and what came last."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from starlette.responses import Response

from taskharbor.app import ticks
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import Schedule
from taskharbor.core.schedule import Cron
from taskharbor.web.access import Permission
from taskharbor.web.pages.bodies import Body, body_of
from taskharbor.web.pages.routes import page_router
from taskharbor.web.pages.visits import Acting, Looking, Visit
from taskharbor.web.problems import not_found

router = page_router()
TICKS: Final = 4


class Row(NamedTuple):
    schedule: Schedule
    coming: Sequence[datetime]
    payload: Body | None


def coming_ticks(schedule: Schedule) -> Sequence[datetime]:
    """The next few; none for one that is paused, or whose times this version cannot read."""
    found: list[datetime] = []
    at = None if schedule.paused else schedule.next_run_at
    try:
        cron = Cron.parse(schedule.spec, schedule.timezone)
        while at is not None and len(found) < TICKS:
            found.append(at)
            at = cron.next_after(at)
    except InvalidInput:
        pass
    return found


def _look(driver: Driver, tenant: str | None) -> tuple[list[Row], datetime]:
    rows = [
        Row(each, coming_ticks(each), body_of(each.payload or None))
        for each in driver.schedules()
        if tenant is None or each.tenant_id == tenant
    ]
    return rows, driver.now()


@router.get("/schedules")
async def schedules(visit: Looking) -> Response:
    rows, now = await visit.run(_look, visit.driver, visit.tenant)
    return visit.show("schedules.html", "/schedules", rows=rows, now=now)


async def _named(visit: Visit) -> str:
    """The schedule of the form; one of another tenant is not there."""
    visit.principal.require(Permission.GOVERN)
    name = visit.raw("name")
    known = {each.name: each for each in await visit.run(visit.driver.schedules)}
    if name not in known or not visit.principal.sees(known[name].tenant_id):
        raise not_found()
    return name


@router.post("/schedules/pause")
async def pause(visit: Acting) -> Response:
    name = await _named(visit)
    await visit.run(visit.driver.pause_schedule, name, paused=True)
    return visit.back("/schedules", f"{name} is paused: its ticks pass without a job.")


@router.post("/schedules/resume")
async def resume(visit: Acting) -> Response:
    name = await _named(visit)
    await visit.run(ticks.resume, visit.driver, name, await visit.run(visit.driver.now))
    return visit.back("/schedules", f"{name} is on again. Ticks that passed meanwhile are not made up for.")


@router.post("/schedules/run")
async def run(visit: Acting) -> Response:
    name = await _named(visit)
    id = await visit.run(ticks.run_now, visit.driver, name, await visit.run(visit.driver.now))
    return visit.back("/schedules", f"Enqueued a job of {name}: {id}.")
