"""Queues: what waits in them, what governs them, and their taps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from taskharbor.core.contract import Driver
from taskharbor.core.forms import iso, limit_data
from taskharbor.core.limiting import Limit
from taskharbor.core.model import QueueSettings, Status
from taskharbor.web.access import Permission, Principal, allow
from taskharbor.web.api import API
from taskharbor.web.api import shapes as given
from taskharbor.web.api.bodies import answer
from taskharbor.web.api.jobs import Reader
from taskharbor.web.problems import documented
from taskharbor.web.threads import Threads
from taskharbor.web.watching import Census, QueueStanding

router = APIRouter(prefix=API, tags=["queues"])
_NOTHING: Final = {status.value: 0 for status in Status}
Governor = Annotated[Principal, Depends(allow(Permission.GOVERN, every_tenant=True))]


@router.get("/queues", response_model=given.QueuePage, responses=documented())
async def list_queues(request: Request, who: Reader) -> Response:
    """Every queue with its jobs by state, its settings and its limits. A token of one tenant sees the queues that
    have jobs of this tenant, and counts of these jobs alone."""
    threads: Threads = request.app.state.threads
    return await threads.run(_queues, request.app.state.driver, request.app.state.census, who)


def _queues(driver: Driver, census: Census, who: Principal) -> Response:
    standing = census.read(who.tenant_id)
    settings = {queue.name: queue for queue in driver.queues()}
    limits = driver.get_limits()
    names = set(standing.queues)
    if who.tenant_id is None:
        names |= settings.keys() | {limit.name for limit in limits if limit.scope == "queue"}
    queues = [
        _queue(
            standing.queues.get(name) or QueueStanding(name, _NOTHING, 0, None),
            settings.get(name, QueueSettings(name)),
            limits,
            who,
        )
        for name in sorted(names)
    ]
    others = [limit_data(limit) for limit in limits if limit.scope != "queue" and _is_shown(limit, who)]
    return answer({"as_of": iso(standing.as_of), "queues": queues, "limits": others})


def _is_shown(limit: Limit, who: Principal) -> bool:
    return who.tenant_id is None or (limit.scope == "tenant" and limit.name == who.tenant_id)


def _queue(standing: QueueStanding, settings: QueueSettings, limits: Sequence[Limit], who: Principal) -> dict[str, Any]:
    name = standing.name
    return {
        "name": name,
        "paused": settings.paused,
        "fair": settings.fair,
        "weights": {tenant: weight for tenant, weight in settings.weights.items() if who.sees(tenant)},
        "limits": [limit_data(limit) for limit in limits if limit.scope == "queue" and limit.name == name],
        "counts": dict(standing.counts),
        "scheduled": standing.scheduled,
        "oldest_due": iso(standing.oldest_due),
    }


@router.post("/queues/{name:whole}/pause", response_model=given.QueueTap, responses=documented())
async def pause(request: Request, name: str, who: Governor) -> Response:
    """Hand out no more jobs of this queue, for any tenant. Running jobs go on."""
    threads: Threads = request.app.state.threads
    await threads.run(request.app.state.driver.pause, name)
    return answer({"name": name, "paused": True})


@router.post("/queues/{name:whole}/resume", response_model=given.QueueTap, responses=documented())
async def resume(request: Request, name: str, who: Governor) -> Response:
    """Hand them out again."""
    threads: Threads = request.app.state.threads
    await threads.run(request.app.state.driver.resume, name)
    return answer({"name": name, "paused": False})
