"""Batches on the stores that the other tests of them leave out, and with payloads that are sealed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.worker.crew import final_rows

from taskharbor import Batch, Harbor, Keyring, Unrecoverable
from taskharbor.app import task as tasks
from taskharbor.core.model import Job
from taskharbor.drivers import open_driver
from taskharbor.testing.emptying import empty_store

Numbers = Batch[dict[str, int]]


@pytest.fixture(params=["json", pytest.param("mysql", marks=pytest.mark.server)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "json":
        yield f"json:///{tmp_path}/store"
        return
    made: str = request.getfixturevalue("mysql_url")
    with open_driver(made) as driver:
        driver.migrate()
    empty_store(made)
    yield made


def test_jobs_of_a_batch_end_one_by_one_or_together_and_each_once(harbor: Harbor) -> None:
    sizes: list[int] = []

    @harbor.task(batch=40, max_attempts=2)
    def index(batch: Numbers) -> list[int | Exception]:
        sizes.append(len(batch))
        ends: list[int | Exception] = []
        for item in batch:
            number = item.arguments["n"]
            if number % 10 == 1:
                ends.append(Unrecoverable("one too many"))
            elif number % 10 == 2 and item.job.attempts == 0:
                ends.append(ValueError("not yet"))
            else:
                ends.append(number)
        return ends

    jobs = list(index.enqueue_many({"n": number} for number in range(100)))
    harbor.worker(fleet=False, batch=100).drain()
    views = [harbor.job(job) for job in jobs]
    assert Counter(view.state for view in views) == {"done": 90, "dlq": 10}
    assert [view.result for view in views if view.state == "done"] == [n for n in range(100) if n % 10 != 1]
    assert [len(view.attempts) for view in views] == [2 if n % 10 == 2 else 1 for n in range(100)]
    assert max(sizes) == 40
    assert final_rows(harbor.driver) == {job.id: 1 for job in jobs}


def test_the_payloads_of_a_batch_are_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Counter[str] = Counter()
    open_one = tasks.payload_of

    def counted(job: Job, ring: Keyring | None) -> bytes:
        opened[job.id] += 1
        return open_one(job, ring)

    monkeypatch.setattr(tasks, "payload_of", counted)
    with Harbor("memory://", encryption=Keyring({"k1": os.urandom(32)})) as harbor:

        @harbor.task(batch=10)
        def index(batch: Numbers) -> list[str]:
            return [item.job.payload.decode() for item in batch]

        jobs = list(index.enqueue_many({"n": number} for number in range(20)))
        opened.clear()
        harbor.worker(fleet=False).drain()
        assert opened == {job.id: 1 for job in jobs}
        assert harbor.wait(jobs[3]) == '{"n":3}'
