"""Workers that are killed in the midst of batches: nothing is lost, each job is settled once, and what was settled
early is not done again."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hard.crew import new_store
from tests.hard.worker_crew import STORES, Site, site
from tests.waiting import until

from taskharbor.core.model import NewJob

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]


@pytest.fixture(params=STORES)
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with site(new_store(request, request.param, tmp_path), tmp_path) as made:
        yield made


def enqueue(here: Site, kind: str, count: int) -> list[str]:
    return [answer.id for answer in here.driver.enqueue([NewJob(kind, b'{"n": %d}' % n) for n in range(count)])]


def test_a_worker_killed_in_mid_batch_loses_nothing_and_repeats_no_early_end(here: Site) -> None:
    jobs = enqueue(here, "batched", 40)
    victim = here.worker("--concurrency", "2")
    early = jobs[::4]
    until(lambda: len(here.noted("begin")) == 40, "the victim is in mid-batch")
    until(lambda: all(here.get(job).result == b'"early"' for job in early), "the store knows of the early ends")
    victim.kill()
    victim.wait()
    here.worker("--concurrency", "2")
    here.wait_for_ends(jobs)
    here.check(jobs, done=40)
    begun = here.noted("begin")
    assert {job: begun.count(job) for job in jobs} == {job: 1 if job in early else 2 for job in jobs}
    for job in jobs:
        ends = ["succeeded"] if job in early else ["lapsed", "succeeded"]
        assert [str(attempt.outcome) for attempt in here.driver.attempts(job)] == ends


def test_batches_under_workers_that_are_killed_again_and_again_end_once_each(here: Site, rng: random.Random) -> None:
    jobs = enqueue(here, "brisk", 600) + enqueue(here, "abrisk", 600)
    for round in range(3):
        victims = [here.worker("--concurrency", "3") for _ in range(2)]
        enough = len(here.noted("brisk")) + rng.randrange(20, 120)
        until(lambda enough=enough: len(here.noted("brisk")) > enough, f"round {round} is at work")  # type: ignore[misc]
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.wait()
    for _ in range(2):
        here.worker("--concurrency", "3")
    here.wait_for_ends(jobs)
    here.check(jobs, done=len(jobs))
