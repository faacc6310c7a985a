"""Workers, who leads them, and schedules."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from taskharbor.core.contract import Driver
from taskharbor.core.errors import ScheduleNotFound
from taskharbor.core.forms import leader_data, schedule_data, worker_data
from taskharbor.web.access import Permission, Principal, allow
from taskharbor.web.api import API
from taskharbor.web.api import shapes as given
from taskharbor.web.api.bodies import answer
from taskharbor.web.api.jobs import Reader
from taskharbor.web.problems import documented, not_found
from taskharbor.web.threads import Threads

router = APIRouter(prefix=API, tags=["fleet"])
Governor = Annotated[Principal, Depends(allow(Permission.GOVERN))]


@router.get("/workers", response_model=given.WorkerPage, responses=documented())
async def list_workers(
    request: Request, who: Annotated[Principal, Depends(allow(Permission.READ, every_tenant=True))]
) -> Response:
    """Every worker with its last sign of life, and who leads. Workers are no tenant's: only for tokens of all."""
    driver: Driver = request.app.state.driver

    def look() -> dict[str, Any]:
        now = driver.now()
        return {
            "workers": [worker_data(worker, now) for worker in driver.workers()],
            "leaders": [leader_data(leader, now) for leader in driver.leaders()],
        }

    threads: Threads = request.app.state.threads
    return answer(await threads.run(look))


@router.get("/schedules", response_model=given.SchedulePage, responses=documented())
async def list_schedules(request: Request, who: Reader) -> Response:
    """What is enqueued again and again; with a token of one tenant, for this tenant."""
    threads: Threads = request.app.state.threads
    schedules = await threads.run(request.app.state.driver.schedules)
    return answer({"schedules": [schedule_data(each) for each in schedules if who.sees(each.tenant_id)]})


@router.post("/schedules/{name:whole}/pause", response_model=given.QueueTap, responses=documented(404))
async def pause_schedule(request: Request, name: str, who: Governor) -> Response:
    """Let its ticks pass without a job."""
    return await _tap(request, name, who, paused=True)


@router.post("/schedules/{name:whole}/resume", response_model=given.QueueTap, responses=documented(404))
async def resume_schedule(request: Request, name: str, who: Governor) -> Response:
    """Let it run again. Ticks that passed meanwhile are not made up for."""
    return await _tap(request, name, who, paused=False)


async def _tap(request: Request, name: str, who: Principal, *, paused: bool) -> Response:
    driver: Driver = request.app.state.driver

    def turn() -> None:
        try:
            if not who.sees(driver.get_schedule(name).tenant_id):
                raise not_found()
            driver.pause_schedule(name, paused=paused)
        except ScheduleNotFound:
            raise not_found() from None

    threads: Threads = request.app.state.threads
    await threads.run(turn)
    return answer({"name": name, "paused": paused})
