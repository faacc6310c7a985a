"""SIGKILL among the claims of a fair queue: every job still runs, and tenants share what is left by their weights."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from tests.hard.crew import STORES, Child, new_store

from taskharbor.core.model import NewJob, Settlement
from taskharbor.drivers import open_driver
from taskharbor.testing.contract.fairness import unfairness

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROUNDS = 4
WEIGHTS = {"a": 2.0, "b": 1.0, "c": 0.5}
BACKLOG = 120

CHILD = """
driver = open_driver(url)
settlements = []
while True:
    # Some come in while others are claimed, so that kills meet tags that are being given out.
    driver.enqueue([NewJob("t", tenant_id=random.choice("abc"))])
    _, leased = driver.settle_and_reserve(settlements, "default", limit=random.randint(1, 5), lease_for=600)
    say("leased", len(leased))
    settlements = [Settlement.ack(item.job.id, item.lease.token) for item in leased]
"""


@pytest.mark.parametrize("kind", STORES)
def test_killed_claims_of_a_fair_queue_favour_nobody_and_lose_no_job(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, seed: str
) -> None:
    url = new_store(request, kind, tmp_path)
    rng = random.Random(seed)
    with open_driver(url) as driver:
        driver.migrate()
        driver.set_fair("default", True, WEIGHTS)
        for tenant in WEIGHTS:
            driver.enqueue([NewJob("t", tenant_id=tenant) for _ in range(BACKLOG)])
        for number in range(ROUNDS):
            Child(CHILD, url, number, seed).kill_after(rng.uniform(0.02, 0.15))
            driver.recover()
        later = driver.now() + timedelta(hours=1)
        total = sum(driver.counts()[state] for state in ("ready", "inflight", "done"))
        driver.reserve("default", now=later, types=["nothing of the kind"])  # takes back what the dead had
        left = Counter(job.tenant_id for job in driver.list(limit=10_000).jobs if job.status == "ready")
        order: list[str] = []
        while leased := driver.reserve("default", now=later, limit=1):
            driver.settle([Settlement.ack(leased[0].job.id, leased[0].lease.token)], now=later)
            order.append(leased[0].job.tenant_id)
        assert Counter(order) == left
        assert driver.counts()["done"] == total
        # As long as all of them have jobs waiting, none gets ahead of another by more than the bound.
        shared = _until_one_is_through(order)
        for one, other in (("a", "b"), ("b", "c"), ("a", "c")):
            bound = 1 / WEIGHTS[one] + 1 / WEIGHTS[other]
            assert unfairness(shared, WEIGHTS, one, other) <= bound + 1e-9


def _until_one_is_through(order: list[str]) -> list[str]:
    """What came while all had jobs waiting: nothing, if the workers that were killed had been through with one."""
    ends = [len(order) - order[::-1].index(tenant) if tenant in order else 0 for tenant in WEIGHTS]
    return order[: min(ends)]
