"""What stays true over time: speed beside a large backlog, weight, speed under a snapshot that somebody holds."""

from __future__ import annotations

import time
from datetime import timedelta

import psycopg

from bench import ours
from bench.harness import Result, Turns, rate, say
from bench.stores import Scale, Store, fresh
from taskharbor.core.clock import utc_now
from taskharbor.core.contract import Driver


def backlog(store: Store, scale: Scale) -> list[Result]:
    """P6: the same drain beside a large backlog and as much history, and beside next to none, in turns."""
    sample = max(scale.drain // 5, 5_000)
    turns = Turns()
    with fresh(store) as (small, small_url), fresh(store) as (large, large_url):
        say(f"{store.name}: filling up with {scale.backlog:,} finished and {scale.backlog:,} waiting jobs")
        ours.fill(large, scale.backlog)
        ours.drain(large, 2_000)
        ours.fill(large, scale.backlog)
        ours.fill(small, 10_000)
        store.settle_down(large_url)
        store.settle_down(small_url)
        for turn in range(scale.rounds + 3):
            ours.fill(small, sample)
            much = rate(lambda: ours.drain(large, ours.BATCH, sample))
            little = rate(lambda: ours.drain(small, ours.BATCH, sample))
            if turn:  # The first is to warm up.
                turns.add("much", much)
                turns.add("little", little)
    goal = store.backlog_goal
    name = f"drain at {_short(scale.backlog)} + {_short(scale.backlog)}, {store.name}"
    return [
        Result(
            goal.number, name, turns.median("much"), turns.median("little"), "jobs/s", "ours at 10k waiting", goal.ratio
        )
    ]


def size(store: Store, scale: Scale) -> list[Result]:
    """P7: what the tables weigh after many jobs, and whether pruned space is used again.

    After each load VACUUM runs twice: pages of an index that one run empties can be used again only after the next, as
    with autovacuum over a few minutes."""
    with fresh(store) as (driver, url), psycopg.connect(url, autocommit=True) as connection:
        say(
            f"{store.name}: weight after {scale.size:,} jobs, and after pruning and {5 * scale.size:,} more, "
            "with VACUUM run twice after each load and each pruning, as autovacuum would within minutes"
        )

        def vacuum() -> None:
            for _ in range(2):
                connection.execute("VACUUM th_jobs")
                connection.execute("VACUUM th_history")

        def weight() -> float:
            row = connection.execute(
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relname LIKE 'th\\_%' AND relkind = 'r'"
            ).fetchone()
            assert row is not None
            return float(row[0]) / 1e6

        def work() -> None:
            ours.fill(driver, scale.size)
            ours.drain(driver, ours.BATCH)
            vacuum()

        work()
        first = weight()
        for _ in range(5):
            while driver.prune(utc_now() + timedelta(days=1)):
                pass
            vacuum()
            work()
        last = weight()
    budget = 120.0 * scale.size / 200_000
    name = f"size after {_short(scale.size)} jobs, {store.name}"
    return [
        Result("P7", name, first, budget, "MB", "budget", 1, at_most=True),
        Result(
            "P7", f"size, pruned, {_short(5 * scale.size)} more, {store.name}", last, first, "MB",
            "the first size; 5 % is noise", 1.05, at_most=True,
        ),
    ]  # fmt: skip


def held_snapshot(store: Store, scale: Scale) -> list[Result]:
    """P10: a steady load while somebody holds a snapshot open, beside the same load without. The last third counts."""
    say(f"{store.name}: {scale.hold_s:.0f} s of load with a held snapshot, and a third of it without")

    def load(seconds: float, driver: Driver) -> float:
        started = time.perf_counter()
        work = 0
        while time.perf_counter() < started + seconds:
            ours.fill(driver, ours.CHUNK)
            work += ours.drain(driver, ours.BATCH, ours.CHUNK)
        return work / (time.perf_counter() - started)

    with fresh(store) as (driver, _):
        free = load(scale.hold_s / 3, driver)
    with fresh(store) as (driver, url), psycopg.connect(url) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("SELECT count(*) FROM th_jobs").fetchone()
        load(scale.hold_s * 2 / 3, driver)
        held = load(scale.hold_s / 3, driver)
    name = f"load, snapshot held {scale.hold_s:.0f} s, {store.name}"
    return [Result("P10", name, held, free, "jobs/s", "ours without it", 0.6)]


def _short(count: int) -> str:
    return f"{count // 1_000_000}M" if count % 1_000_000 == 0 else f"{count // 1_000}k"
