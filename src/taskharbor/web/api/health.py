"""`GET /healthz` and `GET /readyz`: for whoever starts, stops and balances processes. No token is needed."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response

from taskharbor.core.carrying import departure_of
from taskharbor.core.contract import Driver
from taskharbor.core.errors import StoreError, StoreMoved, TaskHarborError
from taskharbor.web.api.bodies import answer
from taskharbor.web.api.shapes import Shape
from taskharbor.web.problems import Problem, Troubles, documented
from taskharbor.web.threads import Threads

router = APIRouter(tags=["watching"])

LONGEST_S: Final = 3.0
GOOD_FOR_S: Final = 0.5
"""Anybody may ask, so the store is not asked each time."""
_NOBODY: Final = "0" * 12


class HealthShape(Shape):
    status: str


class Readiness:
    """Whether the store answers, has the tables of this version, and was not moved away."""

    def __init__(self, driver: Driver, threads: Threads, troubles: Troubles) -> None:
        self._driver = driver
        self._threads = threads
        self._troubles = troubles
        self._under_way: asyncio.Task[None] | None = None
        self._good_until = 0.0

    async def check(self) -> None:
        """A problem if the store cannot be used. All who ask at once share one question."""
        if time.monotonic() < self._good_until:
            return
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._threads.run(self._ask))
            self._under_way.add_done_callback(self._asked)
        try:
            await asyncio.wait_for(asyncio.shield(self._under_way), LONGEST_S)
        except (TaskHarborError, TimeoutError) as error:
            if isinstance(error, StoreError):
                self._troubles.say(error)
            raise Problem("store-moved" if isinstance(error, StoreMoved) else "store-unavailable") from None

    def _ask(self) -> None:
        self._driver.get_tokens([_NOBODY])  # the newest table
        self._driver.queues()
        departure = departure_of(self._driver)
        if departure is not None and departure.shut:
            raise StoreMoved(departure.said)

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._under_way = None
        if not task.cancelled() and task.exception() is None:
            self._good_until = time.monotonic() + GOOD_FOR_S


def install(app: FastAPI) -> None:
    app.state.readiness = Readiness(app.state.driver, app.state.threads, app.state.troubles)


@router.get("/healthz", response_model=HealthShape, openapi_extra={"security": []})
async def healthz() -> Response:
    """The process is up."""
    return answer({"status": "ok"})


@router.get(
    "/readyz",
    response_model=HealthShape,
    responses={503: documented()[503]},
    openapi_extra={"security": []},
)
async def readyz(request: Request) -> Response:
    """The store answers and has its tables, and the server is not stopping."""
    if request.app.state.stopping.is_set():
        raise Problem("busy", "the server is stopping")
    readiness: Readiness = request.app.state.readiness
    await readiness.check()
    return answer({"status": "ready"})
