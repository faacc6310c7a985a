"""PostgreSQL behind a transaction pooler: no statement may lean on the connection that ran the one before."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from taskharbor import Backoff, Harbor, NewJob, Settlement, Unrecoverable
from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver

WORKERS = 12
"""More than the pooler has server connections, so that they change hands all the time."""
JOBS = 600


@pytest.fixture
def driver(pgbouncer_url: str) -> Iterator[Driver]:
    driver = open_driver(pgbouncer_url)
    driver.migrate()
    yield driver
    driver.close()


def test_the_whole_life_of_jobs_is_the_same_behind_a_transaction_pooler(driver: Driver) -> None:
    harbor = Harbor(driver=driver, retry=Backoff(base=0))
    tries: list[int] = []

    @harbor.task
    def fine(number: int) -> int:
        return number

    @harbor.task
    async def second_time() -> str:
        tries.append(len(tries))
        return "went well" if tries[-1] else str(1 / 0)

    @harbor.task
    def never() -> None:
        raise Unrecoverable("broken")

    fine.enqueue_many([{"number": number} for number in range(50)])
    twice, dead = second_time.using(key="k").enqueue(), never.enqueue()
    assert second_time.using(key="k").enqueue() == (twice.id, True)
    tally = harbor.worker(poll_interval_s=0.05).drain()
    assert (tally.done, tally.retried, tally.dead) == (51, 1, 1)
    assert harbor.wait(twice) == "went well"
    assert harbor.job(dead).state == "dlq"
    harbor.retry(dead)
    assert harbor.cancel(dead) == "cancelled"


@pytest.mark.concurrency
def test_many_workers_behind_a_transaction_pooler_take_every_job_once(driver: Driver) -> None:
    driver.enqueue([NewJob("t", queue="pooled") for _ in range(JOBS)])

    def work(number: int) -> list[str]:
        done: list[str] = []
        acks: list[Settlement] = []
        while True:
            results, taken = driver.settle_and_reserve(acks, "pooled", limit=7, owner=f"worker {number}")
            assert not [result for result in results if isinstance(result, Exception)]
            done += [ack.id for ack in acks]
            if not taken:
                return done
            acks = [Settlement.ack(item.job.id, item.lease.token) for item in taken]

    with ThreadPoolExecutor(WORKERS) as pool:
        finished = [id for ids in pool.map(work, range(WORKERS)) for id in ids]
    assert len(finished) == len(set(finished)) == JOBS
    assert driver.counts().queues["pooled"]["done"] == JOBS
