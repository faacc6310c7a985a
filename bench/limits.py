"""Limits and fair shares: what they cost where they are used, where they are not, and how well a rate is kept."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from bench import ours
from bench.child import address, tell, told_to_go
from bench.children import python, started
from bench.harness import Result, Turns, rate, say
from bench.stores import Scale, Store, fresh
from taskharbor import Harbor, NewJob
from taskharbor.core.contract import Driver
from taskharbor.core.limiting import Limit

KEYS = 10_000
TENANTS = 1_000
RATE = 1_000.0
WORKERS = 4

Rule = Callable[[Driver], None]


def limits(store: Store, scale: Scale) -> list[Result]:
    """The same jobs, with keys and tenants, drained under different rules; and a rate kept by several workers."""
    ways: dict[str, Rule] = {
        "plain": lambda _: None,
        "elsewhere": lambda driver: driver.set_limit(Limit("queue", "other", concurrency=1)),
        "keys": lambda driver: driver.set_limit(Limit("queue", "default", per="key", concurrency=1)),
        "fair": lambda driver: driver.set_fair("default"),
    }
    drain = Turns()
    for turn in range(scale.rounds):
        say(f"{store.name}: drain of {scale.drain:,} jobs under limits, round {turn + 1} of {scale.rounds}")
        for name, rule in ways.items():
            with fresh(store) as (driver, url):
                ours.fill(driver, 1_000)
                ours.drain(driver, ours.BATCH)
                rule(driver)
                _fill(driver, scale.drain)
                store.settle_down(url)
                drain.add(name, _drain_rate(driver))
    plain = drain.median("plain")

    def beside(name: str, way: str, goal: float) -> Result:
        return Result(
            "own", f"{name}, {store.name}", drain.median(way), plain, "jobs/s", "the same jobs, no rules", goal
        )

    return [
        beside("drain, limits elsewhere", "elsewhere", 0.97),
        beside(f"drain, {KEYS:,} keys one by one", "keys", 0.5),
        beside(f"drain, fair to {TENANTS:,} tenants", "fair", 0.8),
        *_rate_kept(store, 60.0 if scale.rounds > 1 else 5.0),
    ]


def _drain_rate(driver: Driver) -> float:
    return rate(lambda: ours.drain(driver, ours.BATCH))


def _fill(driver: Driver, count: int) -> None:
    for start in range(0, count, ours.CHUNK):
        driver.enqueue(
            [
                NewJob(
                    "bench",
                    ours.PAYLOAD,
                    tenant_id=f"tenant-{number % TENANTS}",
                    meta={"limit_key": f"k{number % KEYS}"},
                )
                for number in range(start, min(count, start + ours.CHUNK))
            ]
        )


def _rate_kept(store: Store, seconds: float) -> list[Result]:
    """Starts in a second, counted from when the first burst is over: the rate is to be met from both sides."""
    say(f"{store.name}: a rate of {RATE:g} a second with {WORKERS} workers for {seconds:g} s")
    limit = Limit("queue", "default", rate=RATE)
    with fresh(store) as (driver, url):
        driver.set_limit(limit)
        ours.fill(driver, int(RATE * (seconds + 5)))
        with started(python(__name__, str(seconds)), url, WORKERS) as children:
            for child in children:
                child.go()
            answers = [child.answer() for child in children]
    took = max(answer["ended"] for answer in answers) - min(answer["started"] for answer in answers)
    kept = (sum(answer["count"] for answer in answers) - limit.depth) / took
    name = f"a rate limit, {WORKERS} workers, {store.name}"
    return [
        Result("own", name, kept, RATE, "starts/s", "the limit", 1.02, at_most=True),
        Result("own", name, kept, RATE, "starts/s", "the limit", 0.98),
    ]


def _work_in_child(seconds: float) -> None:
    harbor = Harbor(address())
    starts: list[float] = []
    lock = threading.Lock()

    @harbor.task(name="bench")
    def noted(text: str) -> None:
        with lock:
            starts.append(time.time())

    harbor.driver.now()
    worker = harbor.worker()
    told_to_go()
    worker.start()
    time.sleep(seconds)
    worker.stop()
    tell(count=len(starts), started=min(starts), ended=max(starts))
    harbor.close()


if __name__ == "__main__":
    _work_in_child(float(sys.argv[1]))
