"""SIGKILL in the middle of batches: each batch is there as a whole or not at all, and nothing runs twice."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from tests.hard.crew import STORES, Child, new_store

from taskharbor.core.model import Settlement
from taskharbor.drivers import open_driver
from taskharbor.testing.helpers import everything

pytestmark = [pytest.mark.process, pytest.mark.slow]

BATCH = 40
ROUNDS = 5

CHILD = """
driver = open_driver(url)
for turn in range(10_000):
    name = f"{number}-{turn}"
    driver.enqueue([NewJob("t", b"x" * 200, id=f"{name}-{n}") for n in range(40)])
    say("enqueued", name)
    leased = driver.reserve("default", limit=40, lease_for=600)
    say("leased", *(item.job.id for item in leased))
    driver.settle([
        Settlement.ack(item.job.id, item.lease.token) if n % 3
        else Settlement.fail(item.job.id, item.lease.token, reason="broken")
        for n, item in enumerate(leased)
    ])
    say("settled")
"""


@pytest.mark.parametrize("kind", STORES)
def test_a_killed_process_leaves_whole_batches_and_loses_and_repeats_nothing(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, seed: str
) -> None:
    url = new_store(request, kind, tmp_path)
    rng = random.Random(seed)
    told: set[str] = set()
    with open_driver(url) as driver:
        driver.migrate()
        for number in range(ROUNDS):
            lines = Child(CHILD, url, number, seed).kill_after(rng.uniform(0.02, 0.4))
            told.update(line.split()[1] for line in lines if line.startswith("enqueued"))
            jobs = everything(driver)
            sizes = Counter(id.rpartition("-")[0] for id in jobs)
            assert set(sizes.values()) == {BATCH}, "a batch was enqueued in part"
            assert told <= sizes.keys(), "a batch that was reported as kept is gone"
            for place, line in enumerate(lines):
                if line.startswith("leased"):
                    ended = {jobs[id].completed_at is not None for id in line.split()[1:]}
                    assert len(ended) == 1, "a batch was settled in part"
                    assert ended == {True} or place == len(lines) - 1, "a settle that was reported as kept is gone"
        # What the dead left behind is taken over by the living, once.
        later = driver.now() + timedelta(hours=1)
        while leased := driver.reserve("default", now=later, limit=1_000):
            results = driver.settle([Settlement.ack(item.job.id, item.lease.token) for item in leased], now=later)
            assert set(results) == {"done"}
        counts = driver.counts()
        assert counts["done"] + counts["dlq"] == sum(sizes.values())
        ends: Counter[str] = Counter()
        cursor, rows = None, True
        while rows:
            page = driver.history(cursor)
            ends.update(row.job_id for row in page.rows if row.job is not None)
            cursor, rows = page.cursor, bool(page.rows)
        assert ends == dict.fromkeys(jobs, 1), "a job ended twice, or without a trace"
