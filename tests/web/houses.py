"""A house with two tenants in it, and something of every kind for each: for the tests of who sees and may do what."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute

from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import NewJob, Schedule
from taskharbor.core.workflow import NewStep, NewWorkflow

MAY: dict[str, set[str]] = {
    "viewer": {"read"},
    "producer": {"read", "enqueue", "cancel"},
    "worker": {"read", "lease"},
    "operator": {"read", "enqueue", "cancel", "retry", "govern"},
    "admin": {"read", "enqueue", "cancel", "retry", "govern", "lease"},
}
_numbers = count(1)


def routes(app: Any) -> dict[str, str]:
    """Every "METHOD /address" of an application, with slots for names, and the pattern behind each."""
    found = {"GET /openapi.json": "/openapi.json", "HEAD /openapi.json": "/openapi.json"}

    def walk(each: Any) -> Iterator[APIRoute]:
        for route in each.routes:
            if isinstance(route, APIRoute):
                yield route
            elif isinstance(inside := getattr(route, "original_router", None), APIRouter):
                yield from walk(inside)
            else:
                assert getattr(route, "path", None) == "/openapi.json", f"{route} is of a kind that no test knows"

    for route in walk(app):
        for method in route.methods:
            found[f"{method} {route.path_format}"] = route.path_regex.pattern
    return found


def job(driver: Driver, state: str, tenant: str) -> tuple[str, str]:
    """A new job of this tenant, and its lease token, or one that was never a lease's."""
    number = next(_numbers)
    name, queue = f"{tenant}-{number:04}", f"{tenant}-{state}"
    driver.enqueue([NewJob(f"{tenant}.type", f'"{tenant} payload"'.encode(), queue, tenant, id=name, meta={"m": name})])
    if state == "ready":
        return name, "0" * 32
    leased = {each.job.id: each.lease for each in driver.reserve(queue, limit=10_000, lease_for=3600, tenant=tenant)}
    token = leased[name].token
    if state == "dead":
        driver.fail(name, token, reason=f"{tenant} was wrong")
    elif state == "done":
        driver.ack(name, token, result=b"1")
    return name, token


def furnish(driver: Driver, tenant: str) -> None:
    """Something of everything that a tenant can have, with the tenant's name in it."""
    for state in ("ready", "inflight", "dead", "done"):
        job(driver, state, tenant)
    driver.put_schedule(
        Schedule(f"{tenant}-nightly", "@daily", f"{tenant}.type", queue=f"{tenant}-ready", tenant_id=tenant)
    )
    driver.set_limit(Limit("tenant", tenant, concurrency=100))
    driver.set_fair(f"{tenant}-ready", True, {tenant: 2.0})
    driver.heartbeat(Worker(f"{tenant}-worker", f"{tenant}-host", 1, (f"{tenant}-ready",), 1, "1", driver.now()))
    flow(driver, tenant)


def flow(driver: Driver, tenant: str) -> str:
    steps = [NewStep("first", NewJob(f"{tenant}.type", queue=f"{tenant}-flow", tenant_id=tenant))]
    return driver.start_workflow(NewWorkflow(f"{tenant}-flow", steps, tenant_id=tenant))


def later(driver: Driver) -> str:
    return (driver.now() + timedelta(days=1)).isoformat()
