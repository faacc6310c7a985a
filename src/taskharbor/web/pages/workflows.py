"""Workflows: jobs that wait for jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import quote

from starlette.responses import Response

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidCursor, InvalidInput, WorkflowNotFound
from taskharbor.core.workflow import Step, StepCounts, Workflow, WorkflowState
from taskharbor.web.access import Permission
from taskharbor.web.pages.routes import page_router
from taskharbor.web.pages.visits import Acting, Looking, Visit
from taskharbor.web.problems import not_found

router = page_router()
SHOWN: Final = 50
STEPS: Final = 200
_MOST_READ: Final = 1_000
"""Workflows that are looked through for those of one tenant."""


class Seen(NamedTuple):
    flow: Workflow
    counts: Sequence[StepCounts]
    steps: Sequence[Step]
    edges: Sequence[tuple[int, int]]
    now: datetime


def _list(driver: Driver, cursor: str | None, tenant: str | None) -> tuple[list[Workflow], str | None, datetime]:
    found: list[Workflow] = []
    read = 0
    while read < _MOST_READ:
        try:
            page = driver.list_workflows(cursor, SHOWN)
        except InvalidCursor:
            page = driver.list_workflows(None, SHOWN)  # from an old address: begin at the beginning
        read += len(page)
        found += [flow for flow in page if tenant is None or flow.tenant_id == tenant]
        cursor = page[-1].id if len(page) == SHOWN else None
        if cursor is None or len(found) >= SHOWN:
            break
    return found, cursor, driver.now()


def _look(driver: Driver, id: str, tenant: str | None) -> Seen:
    try:
        flow = driver.get_workflow(id)
    except WorkflowNotFound:
        raise not_found() from None
    if tenant is not None and flow.tenant_id != tenant:
        raise not_found()
    steps = driver.workflow_steps(id, None, STEPS)
    return Seen(flow, driver.workflow_counts(id), steps, driver.workflow_edges(id, 2_000), driver.now())


@router.get("/workflows")
async def workflows(visit: Looking) -> Response:
    cursor = visit.request.query_params.get("cursor") or None
    found, following, now = await visit.run(_list, visit.driver, cursor, visit.tenant)
    return visit.show("workflows.html", "/workflows", flows=found, cursor=cursor, following=following, now=now)


@router.get("/workflows/{id:whole}")
async def workflow(id: str, visit: Looking) -> Response:
    seen = await visit.run(_look, visit.driver, id, visit.tenant)
    names = {step.number: step.name for step in seen.steps}
    after: dict[int, list[str]] = {}
    for before, step in seen.edges:
        after.setdefault(step, []).append(names.get(before, f"#{before}"))
    return visit.show("workflow.html", "/workflows", seen=seen, flow=seen.flow, after=after, now=seen.now, most=STEPS)


@router.post("/workflow/cancel")
async def cancel(visit: Acting) -> Response:
    visit.principal.require(Permission.CANCEL)
    id = visit.raw("id")
    await visit.run(_look, visit.driver, id, visit.tenant)
    flow = await visit.run(visit.driver.cancel_workflow, id)
    return _back(visit, flow, "Nothing of it begins any more, and what runs was asked to stop.")


@router.post("/workflow/redrive")
async def redrive(visit: Acting) -> Response:
    visit.principal.require(Permission.RETRY)
    id = visit.raw("id")
    seen = await visit.run(_look, visit.driver, id, visit.tenant)
    if seen.flow.state is not WorkflowState.FAILED:
        return _back(visit, seen.flow, "Only a workflow that has failed can be sent on: nothing was changed.", "watch")
    try:
        flow = await visit.run(visit.driver.redrive_workflow, id)
    except InvalidInput as error:
        return _back(visit, seen.flow, f"{error}.", "watch")
    return _back(visit, flow, "It goes on: its dead steps run again.")


def _back(visit: Visit, flow: Workflow, words: str, kind: str = "good") -> Response:
    return visit.back(f"/workflows/{quote(flow.id, safe='')}", words, kind)
