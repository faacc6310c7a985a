"""Short words for the tests of what a server watches: jobs that end in ways of our choosing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta

from taskharbor import NewJob, RetryUpdate, Settlement
from taskharbor.core.contract import Driver

SECOND = timedelta(seconds=1)


def happen(
    driver: Driver,
    how: str = "ack",
    *,
    queue: str = "default",
    tenant: str = "default",
    count: int = 1,
    now: datetime | None = None,
    wait_s: float = 0.0,
    run_s: float = 0.0,
    code: str = "unrecoverable",
) -> list[str]:
    """Jobs that waited and ran so long and ended so at `now`; their ids."""
    now = driver.now() if now is None else now
    started = now - timedelta(seconds=run_s)
    due = started - timedelta(seconds=wait_s)
    new = [NewJob("t", b"{}", queue=queue, tenant_id=tenant) for _ in range(count)]
    ids = [each.id for each in driver.enqueue(new, due)]
    leased = driver.reserve(queue, now=started, limit=count, lease_for=86_400)
    assert {each.job.id for each in leased} == set(ids), "the queue must be empty before"
    settled = driver.settle([_word(how, each.job.id, each.lease.token, started, now, code) for each in leased], now=now)
    assert not [each for each in settled if isinstance(each, Exception)], settled
    return ids


def _word(how: str, id: str, token: str, started: datetime, now: datetime, code: str) -> Settlement:
    if how == "ack":
        return Settlement.ack(id, token, started_at=started)
    if how == "fail":
        return Settlement.fail(id, token, reason="no", code=code, started_at=started)
    # It runs again long after the test.
    update = RetryUpdate(run_at=now + timedelta(days=1), attempts=1, last_error="once more", failed_at=now)
    return Settlement.retry(id, token, update=update, started_at=started)


def happen_at_random(
    driver: Driver, dice: random.Random, rounds: int, queues: Sequence[str], tenants: Sequence[str]
) -> None:
    for _ in range(rounds):
        happen(
            driver,
            dice.choice(("ack", "ack", "fail", "retry")),
            queue=f"{dice.choice(queues)}",
            tenant=dice.choice(tenants),
            count=dice.randint(1, 4),
            wait_s=dice.choice((0.0, 0.01, 3.0)),
            run_s=dice.choice((0.0, 0.2)),
            code=dice.choice(("max_attempts", "unrecoverable", "no_handler")),
        )
