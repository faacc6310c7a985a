"""Jobs of every fate, for tests that read them back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Worker
from taskharbor.core.model import Extension, NewJob, Progress, RetryUpdate, Settlement

NOON = datetime(2031, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def live(driver: Driver, rounds: int = 1, first: int = 0) -> None:
    """Each round, an hour after the one before: one job for each way a job or an attempt can end, and some that have
    not."""
    for number in range(first, first + rounds):
        _one_round(driver, NOON + number * 60 * MINUTE, number)


def _one_round(driver: Driver, now: datetime, number: int) -> None:
    def job(type: str, **more: object) -> NewJob:
        return NewJob(type, b'{"n": %d}' % number, queue="mail", **more)  # type: ignore[arg-type]

    driver.enqueue(
        [
            job("done", meta={"colour": "grün", "quote": 'it\'s \\ "so"'}, timeout=2.5, key=f"k{number}", priority=9),
            job("retried", tenant_id="acme", priority=8),
            job("dead", priority=7, max_attempts=1),
            job("snoozed", priority=6),
            job("released", priority=5),
            job("given up", priority=4),
            job("lapsed", priority=3),
            NewJob("empty", b"", queue="mail", priority=2),
        ],
        now,
    )
    leased = {item.job.type: item for item in driver.reserve("mail", now=now, limit=20, lease_for=600, owner="w-1")}

    def token(type: str) -> tuple[str, str]:
        return leased[type].job.id, leased[type].lease.token

    later = now + MINUTE
    driver.extend(
        [Extension(*token("done"), lease_for=600, started_at=now + MINUTE / 2, progress=Progress(3, 10, "half ✓"))],
        now=later,
    )
    driver.settle(
        [
            Settlement.ack(*token("done"), result=b'{"ok": true}', started_at=now + MINUTE / 2),
            Settlement.retry(
                *token("retried"),
                update=RetryUpdate(run_at=later, attempts=1, last_error="timed out\nafter 3 s", failed_at=later),
                started_at=now + MINUTE / 3,
            ),
            Settlement.fail(*token("dead"), reason="no such card", code="declined", started_at=now),
            Settlement.snooze(*token("snoozed"), run_at=later + 30 * MINUTE, started_at=now),
            Settlement.release(*token("released"), started_at=now),
            Settlement.cancel(*token("given up"), reason="not wanted", started_at=now),
            Settlement.ack(*token("empty")),
        ],
        now=later,
    )
    driver.enqueue([NewJob("too late", queue="once", expires_at=now + 2 * MINUTE)], now)
    driver.enqueue([NewJob("never ran", queue="twice"), NewJob("waits", queue="twice")], now)
    driver.reserve("once", now=now + 3 * MINUTE, owner="w-2")
    first = driver.list(cursor=None, limit=500).jobs
    driver.cancel(next(item.id for item in first if item.type == "never ran" and item.status == "ready"), now=later)
    # The lease of "lapsed" ends, and somebody else takes it, with what was released and what is to be tried again.
    again = driver.reserve("mail", now=now + 20 * MINUTE, lease_for=600, limit=3, owner="w-2")
    driver.settle([Settlement.ack(item.job.id, item.lease.token) for item in again], now=now + 21 * MINUTE)
    driver.heartbeat(Worker("w-1", hostname="host", pid=7, queues=("mail",), slots=2, started_at=now), now=now)
