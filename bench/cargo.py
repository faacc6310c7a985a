"""What goes beyond single jobs, beside the same jobs without it: workflows, unique jobs, batch tasks, encryption."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from bench import ours
from bench.harness import Result, Turns, rate, say
from bench.stores import Scale, Store, fresh
from taskharbor import Batch, Harbor, Keyring, NewJob, Settlement, Unique
from taskharbor.core.contract import Driver
from taskharbor.core.workflow import NewStep, NewWorkflow

CHORD = 10
"""Children of one finalizer."""
AT_ONCE = 1_000
"""Jobs of one call of a batch task."""


def workflows(store: Store, scale: Scale) -> list[Result]:
    """Steps of many chords, and of one with very many children, beside as many jobs that know nothing of each other."""
    turns = Turns()
    for turn in range(scale.rounds):
        say(f"{store.name}: workflows of {scale.drain:,} steps, round {turn + 1} of {scale.rounds}")
        ways: dict[str, Callable[[Driver], int]] = {
            "plain": lambda driver: ours.fill(driver, scale.drain),
            "many": lambda driver: _chords(driver, scale.drain),
            "one": lambda driver: _chord(driver, scale.drain),
        }
        for name, start in ways.items():
            with fresh(store) as (driver, url):
                turns.add(f"start {name}", rate(partial(start, driver)))
                store.settle_down(url)
                turns.add(name, rate(partial(_drain, driver)))
    results = []
    for way, what in (("many", f"chords of {CHORD}"), ("one", "one chord")):
        for verb, unit in (("start ", "start"), ("", "drain")):
            mine, plain = turns.median(verb + way), turns.median(f"{verb}plain")
            results.append(Result("own", f"{unit}, {what}, {store.name}", mine, plain, "steps/s", "plain jobs"))
    return results


def unique_jobs(store: Store, scale: Scale) -> list[Result]:
    """Jobs that are unique by their arguments: all different, and all the same again."""
    turns = Turns()
    count = scale.drain // 2
    for turn in range(scale.rounds):
        say(f"{store.name}: {count:,} unique jobs, round {turn + 1} of {scale.rounds}")
        for name, rule in (("plain", None), ("unique", Unique(by=("n",)))):
            with fresh(store) as (driver, url), Harbor(url, driver=driver) as harbor:
                enqueue = partial(_enqueue, _task(harbor, rule), count)
                turns.add(name, rate(enqueue))
                if rule is not None:
                    turns.add("again", rate(enqueue))
    plain = turns.median("plain")
    return [
        Result("own", f"enqueue, unique, {store.name}", turns.median("unique"), plain, "jobs/s", "plain jobs"),
        Result("own", f"enqueue, duplicates, {store.name}", turns.median("again"), plain, "jobs/s", "plain jobs"),
    ]


def batch_tasks(store: Store, scale: Scale) -> list[Result]:
    """A worker whose handler takes many jobs at once, beside one whose handler takes each by itself."""
    turns = Turns()
    for turn in range(scale.rounds):
        say(f"{store.name}: {scale.drain:,} jobs in batches, round {turn + 1} of {scale.rounds}")
        for name, batch in (("plain", None), ("batch", AT_ONCE)):
            turns.add(name, _work(store, scale, batch=batch, ring=None))
    mine, plain = turns.median("batch"), turns.median("plain")
    return [Result("own", f"a worker with batch={AT_ONCE:,}, {store.name}", mine, plain, "jobs/s", "one by one")]


def encryption(store: Store, scale: Scale) -> list[Result]:
    """Sealed payloads and results, enqueued and run, beside plain ones."""
    ring = Keyring({"bench": os.urandom(32)})
    bulk, work = Turns(), Turns()
    for turn in range(scale.rounds):
        say(f"{store.name}: {scale.drain:,} encrypted jobs, round {turn + 1} of {scale.rounds}")
        for name, keys in (("plain", None), ("sealed", ring)):
            work.add(name, _work(store, scale, batch=None, ring=keys, bulk=partial(bulk.add, name)))
    return [
        Result(
            "own", f"{what}, encrypted, {store.name}", turns.median("sealed"), turns.median("plain"), "jobs/s", "plain"
        )
        for what, turns in (("enqueue", bulk), ("worker", work))
    ]


def _work(
    store: Store,
    scale: Scale,
    *,
    batch: int | None,
    ring: Keyring | None,
    bulk: Callable[[float], None] = lambda _: None,
) -> float:
    """Jobs a second that a worker runs, each of which returns its number."""
    with fresh(store) as (driver, url), Harbor(url, driver=driver, encryption=ring) as harbor:
        if batch is None:

            @harbor.task(name="bench")
            def one(n: int) -> int:
                return n

            task: Any = one
        else:

            @harbor.task(name="bench", batch=batch)
            def many(batch: Batch[dict[str, int]]) -> list[int]:
                return [item.arguments["n"] for item in batch]

            task = many
        bulk(rate(partial(_enqueue, task, scale.drain)))
        store.settle_down(url)
        return rate(lambda: harbor.worker(fleet=False, batch=ours.BATCH).drain().done)


def _task(harbor: Harbor, rule: Unique | None) -> Any:
    if rule is None:

        @harbor.task(name="bench")
        def plain(n: int) -> None: ...

        return plain

    @harbor.task(name="bench", unique=rule)
    def unique(n: int) -> None: ...

    return unique


def _enqueue(task: Any, count: int) -> int:
    return len(task.enqueue_many({"n": number} for number in range(count)))


def _drain(driver: Driver) -> int:
    """Like `ours.drain`, but steps come as others end: there may be nothing for a moment."""
    done = 0
    settlements: list[Settlement] = []
    while True:
        _, leased = driver.settle_and_reserve(settlements, "default", limit=ours.BATCH)
        done += len(settlements)
        if not leased and not settlements:
            return done
        settlements = [Settlement.ack(each.job.id, each.lease.token) for each in leased]


def _chords(driver: Driver, steps: int) -> int:
    count = steps // (CHORD + 1)
    for _ in range(count):
        _chord(driver, CHORD + 1)
    return count * (CHORD + 1)


def _chord(driver: Driver, steps: int) -> int:
    job = NewJob("bench", ours.PAYLOAD)
    children = [NewStep(f"child {number}", job, (), "children") for number in range(steps - 1)]
    final = NewStep("final", job, tuple(range(steps - 1)))
    driver.start_workflow(NewWorkflow("chord", [*children, final]))
    return steps
