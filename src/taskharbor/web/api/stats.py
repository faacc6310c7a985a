"""`GET /api/v1/stats`: what is going on, from memory where the store is large."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from taskharbor.core.contract import Driver
from taskharbor.core.forms import is_alive, iso
from taskharbor.web.access import Permission, Principal, allow
from taskharbor.web.api import API
from taskharbor.web.api.bodies import answer
from taskharbor.web.api.schemas import Name
from taskharbor.web.api.shapes import Shape
from taskharbor.web.following import Feed, Recent
from taskharbor.web.problems import documented
from taskharbor.web.tallies import Percentiles
from taskharbor.web.threads import Threads
from taskharbor.web.watching import Census, QueueStanding, standing

router = APIRouter(prefix=API, tags=["watching"])

WINDOW_S: Final = 300.0
LOOK_S: Final = 0.02
"""How long a question may read on in the feed before it is answered with what is known."""
MOST_QUEUES: Final = 500


class PercentilesShape(Shape):
    p50: float | None
    p95: float | None
    p99: float | None


class RecentShape(Shape):
    window_s: float = Field(description="Seconds that the numbers are of: 300, or less after a start.")
    attempts: int
    failed: int
    per_second: float
    failure_rate: float
    wait: PercentilesShape = Field(description="Seconds from due to started.")
    run: PercentilesShape = Field(description="Seconds from started to ended.")


class QueueStatsShape(Shape):
    name: str
    paused: bool
    counts: dict[str, int] = Field(description="By status.")
    scheduled: int = Field(description="The part of ready that is not due yet.")
    oldest_ready_s: float | None = Field(description="Seconds that the first of the due jobs has been waiting.")
    recent: RecentShape


class WorkersShape(Shape):
    alive: int
    silent: int
    slots: int


class LeaderNameShape(Shape):
    name: str
    holder: str
    epoch: int


class StatsShape(Shape):
    at: datetime
    as_of: datetime = Field(description="When the jobs were counted; a large store is not counted at every question.")
    counts: dict[str, int] = Field(description="By status, and the part of ready that is scheduled.")
    queues: list[QueueStatsShape] = Field(description=f"By name, at most {MOST_QUEUES}.")
    recent: RecentShape
    workers: WorkersShape | None = Field(description="For tokens of all tenants.")
    leaders: list[LeaderNameShape] | None = Field(description="For tokens of all tenants.")


class StatsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tenant: Name | None = Field(None, description="For tokens of all tenants: only this one's jobs.")


@router.get("/stats", response_model=StatsShape, responses=documented())
async def stats(
    request: Request,
    principal: Annotated[Principal, Depends(allow(Permission.READ))],
    query: Annotated[StatsQuery, Query()],
) -> Response:
    """Jobs by queue and state, what was run in the last minutes and how it went, the workers and their leader."""
    threads: Threads = request.app.state.threads
    return answer(await threads.run(collect, request.app, principal, principal.chosen(query.tenant)))


def collect(app: FastAPI, principal: Principal, tenant: str | None) -> dict[str, Any]:
    """Everything at one time. Asks the store, so it belongs into a thread."""
    driver: Driver = app.state.driver
    census: Census = app.state.census
    feed: Feed = app.state.feed
    feed.glance(LOOK_S)
    now = driver.now()
    stands = census.read(tenant)
    paused = {queue.name for queue in driver.queues() if queue.paused}
    names = stands.queues.keys() if tenant is not None else stands.queues.keys() | paused
    active = set(feed.active_queues(tenant))
    nothing = standing((), stands.as_of)
    idle = _recent(feed.recent(tenant, "", WINDOW_S))
    return {
        "at": iso(now),
        "as_of": iso(stands.as_of),
        "counts": {**stands.counts, "scheduled": stands.scheduled},
        "queues": [
            {
                "name": queue.name,
                "paused": queue.name in paused,
                "counts": dict(queue.counts),
                "scheduled": queue.scheduled,
                "oldest_ready_s": queue.oldest_s(now),
                "recent": _recent(feed.recent(tenant, queue.name, WINDOW_S)) if queue.name in active else idle,
            }
            for queue in (
                stands.queues.get(name) or QueueStanding(name, nothing.counts, 0, None)
                for name in sorted(names)[:MOST_QUEUES]
            )
        ],
        "recent": _recent(feed.recent(tenant, None, WINDOW_S)),
        "workers": _workers(driver, now) if principal.tenant_id is None else None,
        "leaders": _leaders(driver, now) if principal.tenant_id is None else None,
    }


def _recent(recent: Recent) -> dict[str, Any]:
    return {**recent._asdict(), "wait": _percentiles(recent.wait), "run": _percentiles(recent.run)}


def _percentiles(percentiles: Percentiles) -> dict[str, Any]:
    return percentiles._asdict()


def _workers(driver: Driver, now: datetime) -> dict[str, int]:
    workers = driver.workers()
    alive = [each for each in workers if is_alive(each, now)]
    return {"alive": len(alive), "silent": len(workers) - len(alive), "slots": sum(each.slots for each in alive)}


def _leaders(driver: Driver, now: datetime) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "holder": each.holder, "epoch": each.epoch} for each in driver.leaders() if each.until > now
    ]
