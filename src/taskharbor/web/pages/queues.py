"""Queues: what they hold, whether they are open, and how much may run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from fastapi import FastAPI
from starlette.responses import Response

from taskharbor.core.errors import InvalidInput
from taskharbor.core.forms import is_as_any
from taskharbor.core.limiting import Limit, rate_a_second
from taskharbor.core.limits import MAX_NAME, check_name
from taskharbor.core.model import QueueSettings
from taskharbor.web.access import Permission
from taskharbor.web.pages.routes import page_router
from taskharbor.web.pages.visits import Acting, Looking, Visit
from taskharbor.web.watching import QueueStanding, Standing

router = page_router()
SHOWN: Final = 300


class QueueRow(NamedTuple):
    name: str
    settings: QueueSettings
    standing: QueueStanding | None
    limits: Sequence[Limit]


class Seen(NamedTuple):
    now: datetime
    as_of: datetime
    queues: Sequence[QueueRow]
    more: int
    """Queues that are not shown."""
    others: Sequence[Limit]
    """Limits of types and tenants."""


def _look(app: FastAPI, tenant: str | None) -> Seen:
    driver = app.state.driver
    standing: Standing = app.state.census.read(tenant)
    settings = {each.name: each for each in driver.queues() if not is_as_any(each)}
    limits = driver.get_limits()
    names = set(standing.queues)
    if tenant is None:
        names |= settings.keys() | {each.name for each in limits if each.scope == "queue"}
    rows = [
        QueueRow(
            name,
            settings.get(name, QueueSettings(name)),
            standing.queues.get(name),
            [each for each in limits if each.scope == "queue" and each.name == name],
        )
        for name in sorted(_fullest(standing, names))
    ]
    others = [each for each in limits if each.scope != "queue"] if tenant is None else []
    return Seen(driver.now(), standing.as_of, rows, len(names) - len(rows), others)


def _fullest(standing: Standing, names: set[str]) -> list[str]:
    def waiting(name: str) -> int:
        here = standing.queues.get(name)
        return 0 if here is None else here.counts["ready"] + here.counts["inflight"]

    return sorted(names, key=lambda name: (-waiting(name), name))[:SHOWN]


@router.get("/queues")
async def queues(visit: Looking) -> Response:
    seen = await visit.run(_look, visit.request.app, visit.tenant)
    return visit.show("queues.html", "/queues", seen=seen, now=seen.now)


def _named(visit: Visit) -> str:
    visit.principal.require(Permission.GOVERN, every_tenant=True)
    return check_name(visit.raw("queue"), "queue", MAX_NAME)


@router.post("/queues/pause")
async def pause(visit: Acting) -> Response:
    name = _named(visit)
    await visit.run(visit.driver.pause, name)
    return visit.back("/queues", f"{name} is paused: nothing of it starts, and what runs goes on.")


@router.post("/queues/resume")
async def resume(visit: Acting) -> Response:
    name = _named(visit)
    await visit.run(visit.driver.resume, name)
    return visit.back("/queues", f"{name} is open again.")


@router.post("/queues/limit")
async def limit(visit: Acting) -> Response:
    """A limit of the whole queue. What is left empty is not limited; all empty lifts the limit."""
    name = _named(visit)
    concurrency, rate, burst = visit.text("concurrency"), visit.text("rate"), visit.text("burst")
    if burst and not rate:
        raise InvalidInput("a burst goes with a rate: give both, or leave both empty")
    if not concurrency and not rate:
        lifted = await visit.run(visit.driver.drop_limit, "queue", name)
        return visit.back("/queues", f"{name} has no limit{' any more' if lifted else ''}.")
    wanted = Limit(
        "queue",
        name,
        concurrency=_whole(concurrency, "the number of jobs at once"),
        rate=rate_a_second(rate) if rate else None,
        burst=_whole(burst, "the burst"),
    )
    await visit.run(visit.driver.set_limit, wanted)
    return visit.back("/queues", f"{name} is limited.")


@router.post("/queues/lift")
async def lift(visit: Acting) -> Response:
    """Any limit, also one of a type or a tenant."""
    visit.principal.require(Permission.GOVERN, every_tenant=True)
    scope, name, per = visit.raw("scope"), visit.raw("name"), visit.raw("per")
    lifted = await visit.run(visit.driver.drop_limit, scope, name, per)
    return visit.back("/queues", "The limit is lifted." if lifted else "There was no such limit.")


def _whole(text: str, what: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise InvalidInput(f"{what} must be a whole number of at least 1, got {text[:20]!r}")
    return int(text)
