"""Short names for what almost every test of a driver does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from taskharbor.core.contract import Driver
from taskharbor.core.errors import TaskHarborError
from taskharbor.core.model import (
    Enqueued,
    HistoryRow,
    Job,
    LeasedJob,
    NewJob,
    RetryUpdate,
    Settlement,
    Status,
)
from taskharbor.drivers.base import BaseDriver
from taskharbor.testing.times import MINUTE, NOON

T = TypeVar("T")

TERMINAL: Final = (Status.DONE, Status.DLQ, Status.CANCELLED, Status.EXPIRED)
"""In an order that stays, unlike that of the rules' own set: tests are named after them."""
FEED_PATIENCE_S: Final = 10.0
"""How long a test waits for rows of the history feed: a store may hold them back while others are writing."""
FEED_PATIENCE_LOST_S: Final = 0.2
"""The same for a driver that has let a test wait in vain: the feed is broken, and every other test says so soon."""

_waited_in_vain: Final[set[type]] = set()


def new_job(**fields: Any) -> NewJob:
    """A job to enqueue; whatever the test does not care about is filled in."""
    return NewJob(**{"type": "email.send", "payload": b"{}", **fields})


def add(driver: Driver, *, now: datetime = NOON, **fields: Any) -> str:
    """Enqueue one job and return its id."""
    return add_all(driver, [new_job(**fields)], now=now)[0]


def add_all(driver: Driver, jobs: Sequence[NewJob], *, now: datetime = NOON) -> list[str]:
    return [answer.id for answer in driver.enqueue(jobs, now)]


def add_keyed(driver: Driver, key: str, *, now: datetime = NOON, **fields: Any) -> Enqueued:
    """Enqueue one job under an idempotency key and return the whole answer."""
    return driver.enqueue([new_job(idempotency_key=key, **fields)], now)[0]


def kept_rows(driver: Driver, table: str) -> int | None:
    """How many rows the store has in one of its own tables; None if the driver does not tell."""
    return driver.carrier().count(table) if isinstance(driver, BaseDriver) else None


def take(
    driver: Driver,
    queues: str | Sequence[str] = "default",
    *,
    now: datetime = NOON,
    lease_for: timedelta = MINUTE,
    owner: str = "worker-1",
) -> LeasedJob:
    """Reserve the job that is next; the test fails if there is none."""
    leased = driver.reserve(queues, now=now, lease_for=lease_for, owner=owner)
    assert len(leased) == 1, f"expected one runnable job in {queues!r} at {now}, got {len(leased)}"
    return leased[0]


def take_all(
    driver: Driver,
    queues: str | Sequence[str] = "default",
    *,
    now: datetime = NOON,
    lease_for: timedelta = MINUTE,
    owner: str = "worker-1",
    limit: int = 1_000,
    types: Sequence[str] | None = None,
    tenant: str | None = None,
) -> list[LeasedJob]:
    return driver.reserve(queues, now=now, lease_for=lease_for, owner=owner, limit=limit, types=types, tenant=tenant)


def take_ids(driver: Driver, queues: str | Sequence[str] = "default", *, now: datetime = NOON) -> list[str]:
    """The ids of everything runnable, in the order in which reserve hands them out."""
    return [leased.job.id for leased in take_all(driver, queues, now=now)]


def nothing_runnable(driver: Driver, queues: str | Sequence[str] = "default", *, now: datetime = NOON) -> bool:
    return driver.reserve(queues, now=now) == []


def leased_job(driver: Driver, *, now: datetime = NOON, lease_for: timedelta = MINUTE, **fields: Any) -> LeasedJob:
    """A new job, already reserved until `now + lease_for`."""
    job_id = add(driver, now=now, **fields)
    leased = take(driver, fields.get("queue", "default"), now=now, lease_for=lease_for)
    assert leased.job.id == job_id
    return leased


def leased_jobs(driver: Driver, count: int, *, queue: str = "default") -> list[LeasedJob]:
    """That many new jobs of an otherwise empty queue, reserved in one batch until a minute past NOON."""
    add_all(driver, [new_job(queue=queue) for _ in range(count)])
    leases = take_all(driver, queue)
    assert len(leases) == count
    return leases


def failure(
    attempts: int = 1, *, run_at: datetime | None = None, error: str = "boom", failed_at: datetime = NOON
) -> RetryUpdate:
    """What core writes about a failed attempt."""
    return RetryUpdate(run_at, attempts, error, failed_at)


def settlement(kind: str, leased: LeasedJob, *, token: str | None = None, now: datetime = NOON) -> Settlement:
    """The settlement of that kind for this lease, or for another token on the same job."""
    id, token = leased.job.id, token if token is not None else leased.lease.token
    match kind:
        case "ack":
            return Settlement.ack(id, token)
        case "retry":
            return Settlement.retry(id, token, update=failure(failed_at=now))
        case "fail":
            return Settlement.fail(id, token, reason="broken for good")
        case "release":
            return Settlement.release(id, token)
        case "snooze":
            return Settlement.snooze(id, token, run_at=now + MINUTE)
        case "cancel":
            return Settlement.cancel(id, token, reason="not needed")
    raise ValueError(f"no settlement is called {kind!r}")


def shown(results: Sequence[Status | TaskHarborError]) -> list[object]:
    """The results of a batch settle to compare with: statuses as they are, errors by their class."""
    return [type(result) if isinstance(result, TaskHarborError) else result for result in results]


def settle_one(driver: Driver, item: Settlement, *, now: datetime = NOON) -> Status:
    """Settle, and raise what went wrong."""
    result = driver.settle([item], now=now)[0]
    if isinstance(result, Exception):
        raise result
    return result


def dead_job(
    driver: Driver, *, now: datetime = NOON, reason: str = "boom", code: str = "unrecoverable", **fields: Any
) -> str:
    """A job in the DLQ."""
    leased = leased_job(driver, now=now, **fields)
    driver.fail(leased.job.id, leased.lease.token, now=now, reason=reason, code=code)
    return leased.job.id


def done_job(driver: Driver, *, now: datetime = NOON, **fields: Any) -> str:
    leased = leased_job(driver, now=now, **fields)
    driver.ack(leased.job.id, leased.lease.token, now=now)
    return leased.job.id


def finished_job(driver: Driver, status: Status, *, now: datetime = NOON, **fields: Any) -> str:
    """A job that reached the terminal status by the usual way at `now`."""
    match status:
        case Status.DONE:
            return done_job(driver, now=now, **fields)
        case Status.DLQ:
            return dead_job(driver, now=now, **fields)
        case Status.CANCELLED:
            job_id = add(driver, now=now, **fields)
            driver.cancel(job_id, now=now)
            return job_id
        case Status.EXPIRED:
            job_id = add(driver, now=now - MINUTE, expires_at=now, **fields)
            driver.recover(now)
            return job_id
    raise ValueError(f"{status} is not terminal")


def everything(driver: Driver) -> dict[str, Job]:
    """Every job of the store by id: two of these are equal exactly if nothing has changed in between."""
    page = driver.list(limit=10_000)
    jobs = {job.id: job for job in page.jobs}
    while page.cursor is not None:
        page = driver.list(cursor=page.cursor, limit=10_000)
        jobs.update((job.id, job) for job in page.jobs)
    return jobs


def facts(driver: Driver, count: int, *, cursor: str | None = None) -> list[HistoryRow]:
    """The next `count` rows of the history feed and not one more, waiting while the store holds some back."""
    patience = FEED_PATIENCE_LOST_S if type(driver) in _waited_in_vain else FEED_PATIENCE_S
    deadline = time.monotonic() + patience
    rows: list[HistoryRow] = []
    while True:
        page = driver.history(cursor, 10_000)
        rows.extend(page.rows)
        cursor = page.cursor
        if len(rows) >= count:
            break
        if time.monotonic() > deadline:
            _waited_in_vain.add(type(driver))
            break
        time.sleep(0.01)
    assert len(rows) == count, f"expected {count} rows of history, got {[(r.job_id, r.outcome.value) for r in rows]}"
    return rows


def in_threads(count: int, work: Callable[[int], T]) -> list[T]:
    """Run `work(0)` … `work(count - 1)` at the same moment; their results in order, or the first error of any."""
    barrier = threading.Barrier(count)
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait()
            results[number] = work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[number] for number in range(count)]
