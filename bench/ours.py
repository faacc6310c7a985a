"""The workloads on our side. Everything counts at durable completion, with the history of every attempt kept."""

from __future__ import annotations

import asyncio
import sys
import time

from bench.child import address, tell, told_to_go, until_end_of_input
from bench.children import latencies, python, started, together
from taskharbor import Harbor, NewJob, Settlement, Status
from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver

PAYLOAD = b'{"text":"%s"}' % (b"x" * 89)
CHUNK = 10_000
BATCH = 500

# --- What stands beside our peers: the worker -----------------------------------------------------------------

WORK_IS = "a worker with 10 slots and a handler that does nothing, in one process or two"


def work(url: str, processes: int) -> float:
    """Jobs a second that so many workers finish, until the queue is empty.

    They have connected before the clock starts, at the word go."""
    count, seconds = together(python(__name__, "drain"), url, processes)
    return count / seconds


def latency(url: str, samples: int) -> list[float]:
    """Milliseconds from commit to handler start on an idle queue."""
    driver = open_driver(url)
    try:
        return latencies(
            python(__name__, "listen"),
            url,
            lambda number: driver.enqueue([NewJob(type="numbered", payload=b'{"number":%d}' % number)]),
            samples,
        )
    finally:
        driver.close()


def coroutines(url: str, at_once: int) -> float:
    """Jobs a second with coroutine handlers, so many at once."""
    count, seconds = together(python(__name__, "coroutines", str(at_once)), url)
    return count / seconds


def idle_share(url: str, seconds: float) -> float:
    """The part of a core that a worker uses while it has nothing to do."""
    with started(python(__name__, "idle", str(seconds)), url) as (child,):
        child.go()
        return float(child.answer()["share"])


def _drain_in_child() -> None:
    """From the start of the first handler, as with our peers, until the worker has told the store everything."""
    begun: list[float] = []
    harbor = _harbor(begun)
    told_to_go()
    tally = harbor.worker().drain()
    tell(count=tally.done, started=begun[0] if begun else time.time(), ended=time.time())
    harbor.close()


def _coroutines_in_child(at_once: int) -> None:
    harbor = _harbor()
    told_to_go()
    began = time.time()
    tally = harbor.worker(concurrency=at_once).drain()
    if tally.lost:
        raise AssertionError(f"{tally.lost} leases were lost")
    tell(count=tally.done, started=began, ended=time.time())
    harbor.close()


def _listen_in_child() -> None:
    harbor = _harbor()
    worker = harbor.worker()
    worker.start()
    told_to_go()
    until_end_of_input()
    worker.stop()
    harbor.close()


def _idle_in_child(seconds: float) -> None:
    harbor = _harbor()
    worker = harbor.worker()
    worker.start()
    told_to_go()
    time.sleep(2)  # past what starting costs
    before, began = time.process_time(), time.monotonic()
    time.sleep(seconds)
    tell(share=(time.process_time() - before) / (time.monotonic() - began))
    worker.stop()
    harbor.close()


def _harbor(begun: list[float] | None = None) -> Harbor:
    """With `begun`, the first handler to start notes when it did."""
    harbor = Harbor(address())
    first = [] if begun is None else begun

    @harbor.task(name="bench")
    def nothing(text: str) -> None:
        if not first:
            first.append(time.time())

    @harbor.task(name="quick")
    async def quick(text: str) -> None:
        pass

    @harbor.task(name="sleeping")
    async def sleeping(text: str) -> None:
        await asyncio.sleep(0.01)

    @harbor.task(name="numbered")
    def numbered(number: int) -> None:
        tell(number=number, at=time.time())

    harbor.driver.now()
    return harbor


# --- What stands beside plain SQL: the driver alone -----------------------------------------------------------


def jobs(count: int, type: str = "bench") -> list[NewJob]:
    return [NewJob(type=type, payload=PAYLOAD) for _ in range(count)]


def fill(driver: Driver, count: int, type: str = "bench") -> int:
    """Enqueue in batches of CHUNK."""
    for start in range(0, count, CHUNK):
        driver.enqueue(jobs(min(CHUNK, count - start), type))
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
    match sys.argv[1:]:
        case ["drain"]:
            _drain_in_child()
        case ["coroutines", at_once]:
            _coroutines_in_child(int(at_once))
        case ["listen"]:
            _listen_in_child()
        case ["idle", seconds]:
            _idle_in_child(float(seconds))
