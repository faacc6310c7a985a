"""A store with something in every table, and everything that can be asked of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from taskharbor.core.carrying import Part
from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import HistoryRow, NewJob, RetryUpdate, Schedule, Settlement
from taskharbor.core.tokens import Role, Token
from taskharbor.core.workflow import NewStep, NewWorkflow, Policy
from taskharbor.drivers.base import BaseDriver
from taskharbor.testing.helpers import add, add_all, everything, new_job, take, take_all
from taskharbor.testing.times import DAY, HOUR, MINUTE, NOON, SECOND

QUEUES = ("default", "mail", "narrow", "shared", "paused", "flows")


def fill(driver: Driver, more: int = 0) -> None:
    """Jobs in every state but inflight, with what became of them, and every kind of setting."""
    add(driver, id="plain", meta={"trace": "ünï", "a": "1"}, priority=3, timeout=1.5, max_attempts=2)
    add(driver, id="later", run_at=NOON + DAY, expires_at=NOON + 2 * DAY, payload=bytes(range(256)), tenant_id="acme")
    add(driver, id="gone-1", queue="mail")
    driver.cancel("gone-1", now=NOON + SECOND)
    add(driver, id="late", queue="mail", expires_at=NOON + SECOND)
    take_all(driver, "mail", now=NOON + MINUTE)
    for id, key in (("done-1", "k1"), ("done-2", None), ("dead-1", "k2"), ("dead-2", None), ("again-1", "k3")):
        driver.enqueue([new_job(id=id, queue="mail", idempotency_key=key)], NOON)
    for leased in take_all(driver, "mail", now=NOON):
        id, token = leased.job.id, leased.lease.token
        if id.startswith("done"):
            driver.settle([Settlement.ack(id, token, result=b'{"ok":1}', started_at=NOON)], now=NOON + SECOND)
        elif id.startswith("dead"):
            driver.fail(id, token, now=NOON + SECOND, reason="no ’such’ host", code="unrecoverable")
        else:
            update = RetryUpdate(run_at=NOON + HOUR, attempts=1, last_error="timed\nout", failed_at=NOON)
            driver.retry(id, token, now=NOON + SECOND, update=update)
    driver.redrive(now=NOON + MINUTE, limit=1, run_at=NOON + 2 * HOUR)
    add_all(driver, [new_job(queue="paused") for _ in range(2 + more)])
    driver.pause("paused")
    _schedules(driver)
    _governed(driver)
    _workflows(driver)
    if isinstance(driver, BaseDriver):
        driver.add_token(Token("0123456789ab", "dashboard", "acme", Role.VIEWER, "f" * 64, NOON, NOON + DAY))
        driver.carrier().bring([Part("loads", [("orders.csv", 3, 2, 1, 0, NOON)])], {})
    driver.elect("leader", "w1", NOON, 30.0)
    driver.heartbeat(Worker("w1", "host", 1, ("default",), 1, "0"), now=NOON)


def _schedules(driver: Driver) -> None:
    nightly = Schedule("nightly", "0 3 * * *", "report", b"{}", "Europe/Paris", "mail", meta={"x": "y"}, timeout=30.0)
    driver.put_schedule(replace(nightly, next_run_at=NOON + HOUR), now=NOON)
    driver.put_schedule(Schedule("hourly", "@every 1h", "sync", next_run_at=NOON + HOUR), now=NOON)
    driver.pause_schedule("hourly", paused=True, now=NOON)
    driver.advance_schedule(
        "nightly", expected=NOON + HOUR, next_run_at=NOON + DAY, last_run_at=NOON, last_job_id="plain", now=NOON
    )


def _governed(driver: Driver) -> None:
    """A bench with two, a bucket that is nearly empty, and a shared queue in the middle of its work."""
    driver.set_limit(Limit("queue", "narrow", concurrency=1), now=NOON)
    driver.set_limit(Limit("type", "rated", rate=0.3, burst=2), now=NOON)
    add_all(driver, [new_job(id=f"narrow-{n}", queue="narrow", type="rated", priority=n % 2) for n in range(4)])
    leased = take(driver, "narrow")
    assert take_all(driver, "narrow") == []
    driver.ack(leased.job.id, leased.lease.token, now=NOON)
    driver.set_fair("shared", True, {"acme": 2.0, "globex": 0.5}, now=NOON)
    tenants = ["acme"] * 5 + ["globex"] * 3 + ["initech"]
    add_all(driver, [new_job(id=f"shared-{n}", queue="shared", tenant_id=each) for n, each in enumerate(tenants)])
    for leased in driver.reserve("shared", now=NOON, limit=2, lease_for=MINUTE, owner="w"):
        driver.ack(leased.job.id, leased.lease.token, now=NOON)


def _workflows(driver: Driver) -> None:
    job = NewJob("step", b"{}", "flows")
    diamond = [NewStep("a", job), NewStep("b", job, (0,)), NewStep("c", job, (0,), "part"), NewStep("d", job, (1, 2))]
    driver.start_workflow(NewWorkflow("half-way", diamond, id="wf-1"), now=NOON)
    for _ in range(2):
        leased = take(driver, "flows")
        driver.ack(leased.job.id, leased.lease.token, now=NOON, result=b"7")
    driver.start_workflow(
        NewWorkflow("fails", diamond, id="wf-2", policy=Policy.COMPENSATE, compensation=NewJob("undo", b"{}", "flows")),
        now=NOON,
    )


def answers(driver: Driver) -> dict[str, Any]:
    """All that a driver tells of its store. Only the positions of the feed are its own."""
    jobs = [job for _, job in sorted(everything(driver).items())]
    flows = driver.list_workflows()
    rows: list[HistoryRow] = []
    cursor = None
    while page := driver.history(cursor, 50).rows:
        rows += page
        cursor = page[-1].position
    return {
        "jobs": jobs,
        "attempts": {job.id: list(driver.attempts(job.id)) for job in jobs},
        "history": [replace(row, position="") for row in rows],
        "counts": (driver.counts(), driver.counts().queues),
        "queues": list(driver.queues()),
        "schedules": list(driver.schedules()),
        "limits": list(driver.get_limits()),
        # Terms end with a move; epochs go on.
        "leaders": [(leader.name, leader.holder, leader.epoch) for leader in driver.leaders()],
        "tokens": list(driver.tokens()) if isinstance(driver, BaseDriver) else [],
        "workflows": flows,
        "steps": [list(driver.workflow_steps(flow.id)) for flow in flows],
        "edges": [sorted(driver.workflow_edges(flow.id)) for flow in flows],
        "results": [list(driver.step_results(flow.id)) for flow in flows],
    }


def run_all(driver: Driver) -> list[str]:
    """Run everything that is there, as far into the future as it goes, and return the ids in the order they ran."""
    ran = []
    driver.resume("paused")
    for round in range(40):
        now = NOON + 3 * DAY + round * MINUTE
        leases = driver.reserve(QUEUES, now=now, limit=1, lease_for=MINUTE, owner="w")
        leases += driver.reserve(QUEUES, now=now, limit=100, lease_for=MINUTE, owner="w")
        for leased in leases:
            ran.append(leased.job.id)
            driver.ack(leased.job.id, leased.lease.token, now=now)
    return ran
