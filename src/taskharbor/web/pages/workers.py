"""Workers: who runs jobs, whether they are heard of, and who leads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from starlette.responses import Response

from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Leadership, Worker
from taskharbor.core.forms import is_alive
from taskharbor.web.access import Permission
from taskharbor.web.pages.routes import page_router
from taskharbor.web.pages.visits import Looking

router = page_router()


class Row(NamedTuple):
    worker: Worker
    alive: bool
    leads: Sequence[str]
    """Its offices."""
    types: Sequence[str]


@router.get("/workers")
async def workers(visit: Looking) -> Response:
    visit.principal.require(Permission.READ, every_tenant=True)
    found, leaders, now = await visit.run(_look, visit.driver)
    return visit.show("workers.html", "/workers", workers=found, leaders=leaders, now=now)


def _look(driver: Driver) -> tuple[list[Row], list[Leadership], datetime]:
    now = driver.now()
    leaders = [each for each in driver.leaders() if each.until > now]
    rows = [
        Row(
            worker,
            is_alive(worker, now),
            [each.name for each in leaders if each.holder == worker.id],
            [each for each in worker.meta.get("types", "").split(",") if each],
        )
        for worker in driver.workers()
    ]
    rows.sort(key=lambda row: not row.alive)
    return rows, leaders, now
