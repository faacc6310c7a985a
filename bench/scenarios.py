"""What is measured. Names begin with the number of the design's goal they answer to; those with "own mark" answer
to none of them, because the goal is against another queue, which this bench does not run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from bench import ours
from bench.harness import Result, in_turns, rate, say
from bench.raw_mysql import RawMysql
from bench.raw_postgres import RawPostgres
from bench.raw_sqlite import RawSqlite
from taskharbor.core.clock import utc_now
from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver

BATCH = 500


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work a run does."""

    drain: int
    single: int
    backlog: int
    size: int
    rounds: int
    hold_s: float


FULL = Scale(drain=100_000, single=3_000, backlog=1_000_000, size=200_000, rounds=3, hold_s=60)
QUICK = Scale(drain=10_000, single=500, backlog=50_000, size=20_000, rounds=1, hold_s=8)


@dataclass(frozen=True, slots=True)
class Store:
    """A place to run the scenarios: fresh stores of one kind, and the raw SQL for the same server."""

    name: str
    fresh_url: Callable[[], str]
    raw: Callable[[str], Any]
    raw_address: Callable[[], str]
    bulk_goal: float
    drain_goal: float
    backlog_goal: float
    settle_down: Callable[[str], None] = lambda _: None
    """Lets the server finish what a large load leaves it to do in the background."""


@contextlib.contextmanager
def fresh(store: Store) -> Iterator[tuple[Driver, str]]:
    url = store.fresh_url()
    driver = open_driver(url)
    driver.migrate()
    try:
        yield driver, url
    finally:
        driver.close()


@contextlib.contextmanager
def raw(store: Store) -> Iterator[Any]:
    yardstick = store.raw(store.raw_address())
    try:
        yield yardstick
    finally:
        yardstick.close()


def bulk_and_drain(store: Store, scale: Scale) -> list[Result]:
    """P2, P3, P9, and for SQLite a mark of our own: bulk enqueue and drain with one process, beside plain SQL."""
    rates: dict[str, list[float]] = {"bulk": [], "raw bulk": [], "drain": [], "raw drain": []}
    for turn in range(scale.rounds):
        say(f"{store.name}: bulk enqueue and drain of {scale.drain:,} jobs, round {turn + 1} of {scale.rounds}")
        with fresh(store) as (driver, _):
            ours.fill(driver, 1_000)
            ours.drain(driver, BATCH)
            rates["bulk"].append(rate(lambda: ours.fill(driver, scale.drain)))
            rates["drain"].append(rate(lambda: ours.drain(driver, BATCH)))
        with raw(store) as yardstick:
            yardstick.fill(1_000)
            yardstick.drain(BATCH)
            rates["raw bulk"].append(rate(lambda: yardstick.fill(scale.drain)))
            rates["raw drain"].append(rate(lambda: yardstick.drain(BATCH)))
    middle = {name: sorted(values)[len(values) // 2] for name, values in rates.items()}
    number = {"PostgreSQL": ("P2", "P3"), "SQLite": ("own mark:", "own mark:")}.get(store.name, ("P9", "P9"))
    return [
        Result(
            f"{number[0]} bulk enqueue, {store.name}", middle["bulk"], middle["raw bulk"], "jobs/s", "raw bulk insert",
            store.bulk_goal,
        ),
        Result(
            f"{number[1]} drain, 1 process, {store.name}", middle["drain"], middle["raw drain"], "jobs/s",
            "raw claim, then move to history", store.drain_goal,
        ),
    ]  # fmt: skip


def single_enqueue(store: Store, scale: Scale) -> list[Result]:
    """P1: jobs enqueued one by one."""
    say(f"{store.name}: {scale.single:,} single enqueues")
    with fresh(store) as (driver, _), raw(store) as yardstick:
        ours.enqueue_one_by_one(driver, 100)
        yardstick.insert_one_by_one(100)
        mine, theirs = in_turns(
            scale.rounds,
            lambda: rate(lambda: ours.enqueue_one_by_one(driver, scale.single)),
            lambda: rate(lambda: yardstick.insert_one_by_one(scale.single)),
        )
    return [Result(f"P1 one-by-one enqueue, {store.name}", mine, theirs, "jobs/s", "raw insert", 0.85)]


def two_processes(store: Store, scale: Scale) -> list[Result]:
    """What a second process adds. (P4 itself is against other queues.)"""
    say(f"{store.name}: drain of {scale.drain:,} jobs by one process and by two")
    rates = []
    for processes in (2, 1):
        with fresh(store) as (driver, url):
            ours.fill(driver, scale.drain)
            rates.append(rate(ours.drain_in_processes(url, BATCH, processes)))
    return [
        Result(f"own mark: drain, 2 processes, {store.name}", rates[0], rates[1], "jobs/s", "ours with 1 process", 1.0)
    ]


def backlog(store: Store, scale: Scale) -> list[Result]:
    """P6: the same drain beside a large backlog and as much history, and beside next to none, in turns."""
    sample = max(scale.drain // 5, 5_000)
    with fresh(store) as (small, small_url), fresh(store) as (large, large_url):
        say(f"{store.name}: filling up with {scale.backlog:,} finished and {scale.backlog:,} waiting jobs")
        ours.fill(large, scale.backlog)
        ours.drain(large, 2_000)
        ours.fill(large, scale.backlog)
        ours.fill(small, 10_000)
        store.settle_down(large_url)
        store.settle_down(small_url)

        def beside_little() -> float:
            ours.fill(small, sample)
            return rate(lambda: ours.drain(small, BATCH, sample))

        beside_little()
        ours.drain(large, BATCH, sample)
        rounds = max(scale.rounds, 1) + 2
        much, little = in_turns(rounds, lambda: rate(lambda: ours.drain(large, BATCH, sample)), beside_little)
    label = f"P6 drain at {scale.backlog:,} + {scale.backlog:,}, {store.name}"
    return [Result(label, much, little, "jobs/s", "at 10,000 waiting", store.backlog_goal)]


def size(store: Store, scale: Scale) -> list[Result]:
    """P7: what the tables weigh after many jobs, and whether pruned space is used again."""
    with fresh(store) as (driver, url), psycopg.connect(url, autocommit=True) as connection:
        say(f"{store.name}: weight after {scale.size:,} jobs, and after pruning and {5 * scale.size:,} more")

        def weight() -> float:
            row = connection.execute(
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relname LIKE 'th\\_%' AND relkind = 'r'"
            ).fetchone()
            assert row is not None
            return float(row[0]) / 1e6

        def work() -> None:
            ours.fill(driver, scale.size)
            ours.drain(driver, BATCH)
            # What autovacuum does within a minute, at once.
            connection.execute("VACUUM th_jobs")
            connection.execute("VACUUM th_history")

        work()
        first = weight()
        for _ in range(5):
            while driver.prune(utc_now() + timedelta(days=1)):
                pass
            connection.execute("VACUUM th_history")
            work()
        last = weight()
    budget = 120.0 * scale.size / 200_000
    return [
        Result(f"P7 size after {scale.size:,} jobs, {store.name}", first, budget, "MB", "budget", 1.0, at_most=True),
        Result("P7 the same after pruning and 5 x as many", last, first, "MB", "first size", 1.05, at_most=True),
    ]


def held_snapshot(store: Store, scale: Scale) -> list[Result]:
    """P10: a steady load while somebody holds a snapshot open, beside the same load without."""
    say(f"{store.name}: {scale.hold_s:.0f} s of load with and without a held snapshot")

    def load(seconds: float, driver: Driver) -> float:
        ends = time.perf_counter() + seconds
        work = 0
        started = time.perf_counter()
        while time.perf_counter() < ends:
            ours.fill(driver, ours.CHUNK)
            work += ours.drain(driver, BATCH, ours.CHUNK)
        return work / (time.perf_counter() - started)

    with fresh(store) as (driver, _):
        free = load(scale.hold_s / 3, driver)
    with fresh(store) as (driver, url), psycopg.connect(url) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("SELECT count(*) FROM th_jobs").fetchone()
        load(scale.hold_s * 2 / 3, driver)
        held = load(scale.hold_s / 3, driver)
    return [Result(f"P10 under a snapshot held for {scale.hold_s:.0f} s", held, free, "jobs/s", "without it", 0.6)]


def postgres(server: Any) -> Store:
    def settle_down(url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")

    return Store("PostgreSQL", server.create_database, RawPostgres, server.create_database, 0.6, 0.8, 0.95, settle_down)


def mysql(server: Any) -> Store:
    return Store("MariaDB", server.create_database, RawMysql, server.create_database, 0.5, 0.7, 0.9)


def sqlite(directory: Path) -> Store:
    numbers = iter(range(1_000_000))
    return Store(
        "SQLite",
        lambda: f"sqlite:///{directory}/ours-{next(numbers)}.db",
        RawSqlite,
        lambda: f"{directory}/raw-{next(numbers)}.db",
        0.4,
        0.7,
        0.95,
    )
