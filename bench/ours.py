"""The workloads on our side. Everything counts at durable completion, with the history of every attempt kept."""

from __future__ import annotations

import time

from bench.child import address, tell, told_to_go
from bench.children import python, together
from taskharbor import NewJob, Settlement, Status
from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver

PAYLOAD = b"x" * 100
CHUNK = 10_000
BATCH = 500

# --- What stands beside our peers: `work` and `latency`, and nothing else, change when the worker is plugged in ------

WORK_IS = "the driver's reserve and settle in a loop, without a worker runtime: there is none yet"


def work(url: str, processes: int) -> float:
    """Jobs a second that so many processes of ours finish, until the queue is empty.

    They have connected before the clock starts, at the word go."""
    count, seconds = together(python(__name__), url, processes)
    return count / seconds


def latency(url: str, samples: int) -> list[float] | None:
    """Milliseconds from commit to handler start on an idle queue, for P5 and P8; None: it cannot be measured yet.

    A driver alone runs no handler and is not woken up, so there is nothing honest to measure before the worker. Then:
    `children.latencies(command of a child that works and tells number and time, url, enqueue, samples)`; and for P8
    also what that child uses of a core while it idles."""
    return None


def _work_in_child() -> None:
    driver = open_driver(address())
    driver.now()
    told_to_go()
    started = time.time()
    count = drain(driver, BATCH)
    tell(count=count, started=started, ended=time.time())
    driver.close()


# --- What stands beside plain SQL: the driver alone -----------------------------------------------------------


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


if __name__ == "__main__":
    _work_in_child()
