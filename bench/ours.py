"""The workloads on a driver. Everything counts at durable completion, with the history of every attempt kept."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable

from taskharbor import NewJob, Settlement, Status
from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver

PAYLOAD = b"x" * 100
CHUNK = 10_000


def jobs(count: int) -> list[NewJob]:
    return [NewJob(type="bench", payload=PAYLOAD) for _ in range(count)]


def fill(driver: Driver, count: int) -> int:
    """Enqueue in batches of CHUNK."""
    for start in range(0, count, CHUNK):
        driver.enqueue(jobs(min(CHUNK, count - start)))
    return count


def enqueue_one_by_one(driver: Driver, count: int) -> int:
    for _ in range(count):
        driver.enqueue([NewJob(type="bench", payload=PAYLOAD)])
    return count


def drain(driver: Driver, batch: int, most: int | None = None) -> int:
    """Reserve and acknowledge until nothing is left, or `most` jobs are done."""
    done = 0
    settlements: list[Settlement] = []
    while True:
        results, leased = driver.settle_and_reserve(settlements, "default", limit=batch, lease_for=300)
        if any(result is not Status.DONE for result in results):
            raise AssertionError(f"a settle failed: {results}")
        done += len(results)
        settlements = [Settlement.ack(item.job.id, item.lease.token) for item in leased]
        if not leased:
            return done
        if most is not None and done + len(leased) >= most:
            driver.settle(settlements)
            return done + len(leased)


def drain_in_processes(url: str, batch: int, processes: int) -> Callable[[], int]:
    """A drain by several processes. They are started, and have connected, before the clock runs."""
    context = multiprocessing.get_context("spawn")
    pool = context.Pool(processes, initializer=_connect, initargs=(url,))

    def work() -> int:
        counts = pool.map(_drain_mine, [batch] * processes, chunksize=1)
        pool.terminate()
        return sum(counts)

    pool.map(_drain_mine, [0] * processes, chunksize=1)
    return work


_mine: list[Driver] = []
"""The one driver of a pool process."""


def _connect(url: str) -> None:
    _mine.append(open_driver(url))
    _mine[0].now()


def _drain_mine(batch: int) -> int:
    return drain(_mine[0], batch) if batch else 0
