"""Bulk enqueue on PostgreSQL, which writes COPY's text format by itself."""

from __future__ import annotations

import pytest

from taskharbor.core.errors import PayloadTooLarge
from taskharbor.core.model import JobFilter, NewJob
from taskharbor.drivers import open_driver
from taskharbor.drivers.postgres.driver import STREAM_FROM
from taskharbor.testing.helpers import add_all, new_job
from taskharbor.testing.servers import PostgresServer
from taskharbor.testing.times import HOUR, NOON

ODD = "tab\t line\n return\r back\\ null\\N dot\\. quote'\" %s \N{SHIP}"


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> str:
    url = postgres.create_database()
    with open_driver(url) as driver:
        driver.migrate()
    return url


def plain(number: int, queue: str) -> NewJob:
    return new_job(queue=queue, type=ODD, tenant_id=ODD, payload=bytes(range(256)) + b"%d" % number, timeout=1.5)


@pytest.mark.parametrize("odd_one", [False, True], ids=["all plain", "one with more to it"])
def test_what_goes_in_by_the_thousand_comes_out_as_it_was(url: str, odd_one: bool) -> None:
    queue = f"{ODD} {odd_one}"
    jobs = [plain(number, queue) for number in range(STREAM_FROM)]
    if odd_one:
        jobs[-2] = jobs[-2]._replace(meta={ODD: ODD}, expires_at=NOON + HOUR)
    with open_driver(url) as driver:
        ids = add_all(driver, jobs)
        found = [item.job for item in driver.reserve(queue, now=NOON, limit=STREAM_FROM)]
        assert [job.id for job in found] == ids
        for job, asked in zip(found, jobs, strict=True):
            assert (job.type, job.tenant_id, job.payload) == (asked.type, asked.tenant_id, asked.payload)
            assert (job.priority, job.max_attempts, job.due_at, job.created_at) == (0, 5, NOON, NOON)
            assert job.timeout is not None
            assert job.timeout.total_seconds() == 1.5
        assert [job.meta for job in found if job.meta] == ([{ODD: ODD}] if odd_one else [])


def test_a_bulk_that_is_refused_at_its_very_last_job_leaves_nothing(url: str) -> None:
    jobs = [new_job(queue="refused") for _ in range(STREAM_FROM)]
    jobs[-1] = new_job(queue="refused", payload=b"x" * 2_000_000)
    with open_driver(url) as driver:
        with pytest.raises(PayloadTooLarge):
            driver.enqueue(jobs, NOON)
        assert driver.list(JobFilter(queue="refused")).jobs == []
