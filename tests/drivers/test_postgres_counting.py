"""Claims under one limit on what runs of each key or tenant: the server does them alone while nobody has to wait."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from tests.drivers.postgres_stores import driver, url
from tests.waiting import until

from taskharbor.core.contract import Driver
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Job, Settlement
from taskharbor.drivers import open_driver
from taskharbor.drivers.governing import Ask
from taskharbor.drivers.postgres import counting
from taskharbor.testing.helpers import in_threads, new_job
from taskharbor.testing.times import HOUR, NOON, SECOND

__all__ = ["driver", "url"]

PER_KEY = Limit("queue", "default", per="key", concurrency=1)


@pytest.fixture
def alone(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each claim got that the server did alone; 0 for those that a desk had to see to."""
    taken: list[int] = []
    take = counting.Counting.take

    def counted(self: counting.Counting, *given: Any) -> Any:
        leased = take(self, *given)
        taken.append(len(leased))
        return leased

    monkeypatch.setattr(counting.Counting, "take", counted)
    return taken


def limited(driver: Driver, limit: Limit) -> Limit:
    """Set it, as if so long ago that what ran before it has been counted in."""
    driver.set_limit(limit, now=NOON)
    driver._rules()  # type: ignore[attr-defined]
    driver._learned = {limit.key: []}  # type: ignore[attr-defined]
    return limit


def keyed(key: str | None, **fields: Any) -> Any:
    return new_job(meta={} if key is None else {"limit_key": key}, **fields)


def buckets(url: str) -> list[tuple[str, str]]:
    with psycopg.connect(url) as connection:
        return sorted(connection.execute("SELECT bucket, job_id FROM th_running").fetchall())


@pytest.mark.parametrize(
    ("limit", "fields"),
    [
        (PER_KEY, {}),
        (Limit("queue", "default", per="tenant", concurrency=1), {}),
        (Limit("type", "other", per="key", concurrency=1), {"type": "other"}),
        (Limit("tenant", "acme", per="key", concurrency=1), {"tenant_id": "acme"}),
    ],
    ids=lambda value: f"{value.scope}-{value.per}" if isinstance(value, Limit) else "",
)
def test_what_it_leases_is_noted_under_the_names_that_a_desk_would_give(
    driver: Driver, url: str, alone: list[int], limit: Limit, fields: dict[str, Any]
) -> None:
    limited(driver, limit)
    keys = ["a", "b c", "]", "[x]", "~!#^{}", "k" * 60, None]
    tenants = [{"tenant_id": f"tenant {number}"} if limit.per == "tenant" else {} for number in range(len(keys))]
    driver.enqueue([keyed(key, **fields, **each) for key, each in zip(keys, tenants, strict=True)], NOON)
    leased = driver.reserve("default", now=NOON, limit=10)
    assert alone == [len(keys)]
    named = [(limit.bucket(each.job), each.job.id) for each in leased]
    assert buckets(url) == sorted((bucket, id) for bucket, id in named if bucket is not None)


@pytest.mark.parametrize("key", ['"', "\\", "é", "\t", "ключ", "\x7f", "k" * 170])
def test_a_key_that_is_not_plain_goes_to_the_desk(driver: Driver, url: str, alone: list[int], key: str) -> None:
    limited(driver, PER_KEY)
    driver.enqueue([keyed(key), keyed(key), keyed("plain")], NOON)
    leased = driver.reserve("default", now=NOON, limit=10)
    assert (alone, len(leased)) == ([0], 2)
    assert buckets(url) == sorted((PER_KEY.bucket(each.job) or "", each.job.id) for each in leased)


def test_whoever_has_to_wait_is_benched_by_the_desk_and_comes_when_the_other_has_ended(
    driver: Driver, alone: list[int]
) -> None:
    limited(driver, PER_KEY)
    driver.enqueue([keyed("a"), keyed("a"), keyed("b")], NOON)
    first = driver.reserve("default", now=NOON, limit=10)
    assert keys_of([each.job for each in first]) == ["a", "b"]
    ended = [Settlement.ack(each.job.id, each.lease.token) for each in first]
    _, second = driver.settle_and_reserve(ended, "default", now=NOON + SECOND, limit=10)
    assert keys_of([each.job for each in second]) == ["a"]
    assert not any(alone)


def test_a_limit_that_this_driver_has_not_heard_of_holds(driver: Driver, url: str, alone: list[int]) -> None:
    limited(driver, PER_KEY)
    driver.enqueue([keyed("a"), keyed("b"), keyed("c")], NOON)
    with open_driver(url) as operator:
        operator.set_limit(Limit("queue", "default", per="key", concurrency=2), now=NOON)
        assert operator.drop_limit("queue", "default", "key", now=NOON)
        operator.set_limit(Limit("type", "test", concurrency=1), now=NOON)
    assert driver.reserve("default", now=NOON, limit=10)
    assert alone == [0]


def test_after_a_failure_it_is_left_out_more_and_more_and_once_it_works_no_more(
    driver: Driver, alone: list[int]
) -> None:
    limited(driver, PER_KEY)
    tries: list[int] = []
    run_all = driver._counting._session.run_all  # type: ignore[attr-defined]

    def counted(calls: Sequence[Any]) -> Any:
        tries.append(len(alone))
        return run_all(calls)

    driver._counting._session.run_all = counted  # type: ignore[attr-defined]
    for _ in range(16):  # there is nothing
        driver.reserve("default", now=NOON, limit=10)
    assert sorted(set(tries)) == [0, 2, 6, 14]
    driver._counting._to_leave_out = 0  # type: ignore[attr-defined]
    for number in range(4):
        driver.enqueue([keyed(f"k{number}")], NOON)
        driver.reserve("default", now=NOON, limit=10)
    assert alone[-4:] == [1, 1, 1, 1]


def test_a_job_that_is_changed_while_the_statement_runs_is_neither_leased_nor_noted(driver: Driver, url: str) -> None:
    def job(payload: bytes) -> Any:
        return keyed("a", idempotency_key="one", on_duplicate="replace", payload=payload)

    limit = limited(driver, PER_KEY)
    driver.enqueue([job(b"1")], NOON)
    ask = Ask(("default",), NOON, HOUR, 10, None, "worker-1")
    with psycopg.connect(url, autocommit=True) as gate, open_driver(url) as other, ThreadPoolExecutor(1) as pool:
        other._rules()  # type: ignore[attr-defined]
        # The claim stops between its snapshot and the locks on its rows, as long as the gate is held.
        gate.execute("ALTER TABLE th_limits RENAME TO limits_behind")
        gate.execute(
            "CREATE VIEW th_limits AS "
            "SELECT l.* FROM (SELECT pg_advisory_xact_lock_shared(77)) AS held, limits_behind l"
        )
        gate.execute("SELECT pg_advisory_lock(77)")
        claim = pool.submit(driver._take_counted, limit, (), ask)  # type: ignore[attr-defined]
        waiting = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 77 AND NOT granted"
        until(lambda: gate.execute(waiting).fetchone() is not None)
        other.enqueue([job(b"2")], NOON)
        gate.execute("SELECT pg_advisory_unlock(77)")
        leased = claim.result(30)
        gate.execute("DROP VIEW th_limits")
        gate.execute("ALTER TABLE limits_behind RENAME TO th_limits")
    assert (leased, buckets(url)) == ([], [])
    assert len(driver.reserve("default", now=NOON, limit=10)) == 1


def test_two_drivers_never_let_two_of_a_key_run(url: str, driver: Driver) -> None:
    limited(driver, PER_KEY)
    driver.enqueue([keyed(f"k{number % 40}") for number in range(400)], NOON)
    most: list[int] = []

    def work(_: int) -> None:
        with open_driver(url) as own:
            limited(own, PER_KEY)
            ended: list[Settlement] = []
            while True:
                _, leased = own.settle_and_reserve(ended, "default", now=NOON, limit=7, lease_for=HOUR)
                with psycopg.connect(url) as connection:
                    row = connection.execute(
                        "SELECT max(size) FROM (SELECT count(*) AS size FROM th_jobs WHERE status = 'inflight' "
                        "GROUP BY meta) AS held"
                    ).fetchone()
                most.append((row and row[0]) or 0)
                ended = [Settlement.ack(each.job.id, each.lease.token) for each in leased]
                if not leased and driver.counts().get("done") == 400:
                    return

    in_threads(3, work)
    assert max(most) == 1
    assert driver.counts()["done"] == 400


def keys_of(jobs: Sequence[Job]) -> list[str]:
    return sorted(job.meta["limit_key"] for job in jobs)
