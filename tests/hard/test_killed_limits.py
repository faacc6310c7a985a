"""SIGKILL among claims under limits: no permit is lost, none is given twice, and every job still runs."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from tests.hard.crew import STORES, Child, new_store

from taskharbor.core.limiting import Limit
from taskharbor.core.model import NewJob, Settlement, Status
from taskharbor.drivers import open_driver
from taskharbor.testing.helpers import everything

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROUNDS = 4
JOBS = 1_500
KEYS = 40

CHILD = """
driver = open_driver(url)
settlements = []
while True:
    _, leased = driver.settle_and_reserve(settlements, "default", limit=random.randint(1, 30), lease_for=600)
    say("leased", len(leased))
    settlements = [Settlement.ack(item.job.id, item.lease.token) for item in leased]
    if random.random() < 0.3:
        driver.settle(settlements)
        settlements = []
"""


RATE, BURST = 300, 20


@pytest.mark.parametrize("kind", STORES)
def test_killed_claims_neither_start_more_than_the_rate_nor_lose_it_for_good(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, seed: str
) -> None:
    url = new_store(request, kind, tmp_path)
    rng = random.Random(seed)
    with open_driver(url) as driver:
        driver.migrate()
        driver.set_limit(Limit("queue", "default", rate=RATE, burst=BURST))
        driver.set_limit(Limit("queue", "default", per="key", rate=RATE / 10, burst=2))
        driver.enqueue([NewJob("t", meta={"limit_key": f"key-{rng.randrange(KEYS)}"}) for _ in range(JOBS // 3)])
        begun = driver.now()
        for number in range(ROUNDS):
            Child(CHILD, url, number, seed).kill_after(rng.uniform(0.02, 0.3))
            started = [job for job in everything(driver).values() if job.deliveries]
            passed = (driver.now() - begun).total_seconds()
            assert len(started) <= BURST + RATE * passed
            keys = Counter(job.meta["limit_key"] for job in started)
            assert max(keys.values(), default=0) <= 2 + RATE / 10 * passed
        # Behind the leases of the dead: second by second, no more than the rate, and never nothing for long.
        now = driver.now() + timedelta(hours=1)
        allowed, ran = float(BURST), 0
        for _ in range(20):
            while leased := driver.reserve("default", now=now, limit=100):
                ran += len(leased)
                driver.settle([Settlement.ack(each.job.id, each.lease.token) for each in leased], now=now)
            assert ran <= allowed
            now += timedelta(seconds=1)
            allowed += RATE
            driver.recover(now)
        assert driver.counts()["done"] == JOBS // 3


@pytest.mark.parametrize("kind", STORES)
def test_killed_claims_leak_no_permit_and_hold_back_no_job_for_ever(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, seed: str
) -> None:
    url = new_store(request, kind, tmp_path)
    rng = random.Random(seed)
    with open_driver(url) as driver:
        driver.migrate()
        driver.set_limit(Limit("queue", "default", per="key", concurrency=1))
        driver.set_limit(Limit("type", "t", concurrency=25))
        driver.set_fair("default")
        jobs = [
            NewJob("t", meta={"limit_key": f"key-{rng.randrange(KEYS)}"}, tenant_id=f"tenant-{rng.randrange(7)}")
            for _ in range(JOBS)
        ]
        driver.enqueue(jobs)
        for number in range(ROUNDS):
            Child(CHILD, url, number, seed).kill_after(rng.uniform(0.02, 0.3))
            running = [job for job in everything(driver).values() if job.status is Status.INFLIGHT]
            keys = Counter(job.meta["limit_key"] for job in running)
            assert len(running) <= 25 and max(keys.values(), default=0) <= 1, keys
        # The leases of the dead end, and their places with them: everything is worked off under the same limits.
        later = driver.now() + timedelta(hours=1)
        settlements: list[Settlement] = []
        while True:
            _, leased = driver.settle_and_reserve(settlements, "default", now=later, limit=30)
            if not leased:
                break
            assert len(leased) <= 25 and max(Counter(each.job.meta["limit_key"] for each in leased).values()) == 1
            settlements = [Settlement.ack(each.job.id, each.lease.token) for each in leased]
        assert driver.counts()["done"] == JOBS
        assert len(driver.reserve("default", now=later)) == 0
