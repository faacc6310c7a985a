"""Every job of a batch keeps a lease, a cancel and a loss of its own; the batch has one slot and one time limit."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.waiting import until
from tests.worker.conftest import Start
from tests.worker.crew import PATIENCE_S, apause, finished, outcomes, pause
from tests.worker.test_batch_endings import Numbers, numbers, url  # noqa: F401 - the stores of these tests too
from tests.worker.test_quarantine import suspicious
from tests.worker.test_slots import Crowd

from taskharbor import Harbor
from taskharbor.core.contract import Driver

LEASE_S = 0.6


def defined(harbor: Harbor, kind: str, look: Callable[[Any], bool], **options: Any) -> Any:
    """A task that looks at its batch again and again until that says it is enough."""

    def index(batch: Numbers) -> None:
        ends = time.monotonic() + PATIENCE_S
        while not look(batch):
            assert time.monotonic() < ends, "the handler waited in vain"
            time.sleep(0.005)

    async def aindex(batch: Numbers) -> None:
        ends = time.monotonic() + PATIENCE_S
        while not look(batch):
            assert time.monotonic() < ends, "the handler waited in vain"
            await asyncio.sleep(0.005)

    return harbor.task(name="index", batch=10, **options)(index if kind == "sync" else aindex)


def lose(driver: Driver, job: Any) -> None:
    """Another worker has the job from now on."""
    held = driver.get(job.id)
    assert held.lease_token is not None
    driver.pause(held.queue)  # else it may be given out again, to the same worker, before it is cancelled
    driver.release(job.id, held.lease_token)
    driver.cancel(job.id)
    driver.resume(held.queue)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_every_lease_of_a_long_batch_is_kept(harbor: Harbor, start: Start, kind: str) -> None:
    door, begun = threading.Event(), threading.Event()

    def look(batch: Numbers) -> bool:
        begun.set()
        return door.is_set()

    jobs = numbers(defined(harbor, kind, look), 5)
    start(lease_s=LEASE_S)
    start(lease_s=LEASE_S)
    assert begun.wait(10)
    ends = [harbor.job(job).record.lease_expires_at for job in jobs]
    until(lambda: harbor.driver.now() > max(end for end in ends if end is not None))
    until(lambda: all(harbor.job(job).state == "running" for job in jobs), "the store knows that they run")
    door.set()
    views = finished(harbor, *jobs)
    assert [(outcomes(view), view.record.deliveries) for view in views] == [(["succeeded"], 1)] * 5


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_one_job_that_is_cancelled_stops_alone(harbor: Harbor, start: Start, kind: str) -> None:
    begun = threading.Event()

    def look(batch: Numbers) -> bool:
        begun.set()
        assert not batch.cancelled
        return any(item.cancelled for item in batch)

    jobs = numbers(defined(harbor, kind, look), 3)
    start(lease_s=30)
    assert begun.wait(10)
    harbor.cancel(jobs[1])
    views = finished(harbor, *jobs)
    assert [view.state for view in views] == ["done", "cancelled", "done"]
    assert [outcomes(view) for view in views] == [["succeeded"], ["cancelled"], ["succeeded"]]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_batch_of_which_every_job_is_cancelled_is_stopped(harbor: Harbor, start: Start, kind: str) -> None:
    begun = threading.Event()

    def look(batch: Numbers) -> bool:
        if not begun.is_set():
            batch[0].done()
        begun.set()
        return kind == "sync" and batch.cancelled

    jobs = numbers(defined(harbor, kind, look), 3)
    start(lease_s=30)
    assert begun.wait(10)
    for job in jobs[1:]:
        harbor.cancel(job)
    views = finished(harbor, *jobs)
    assert [view.state for view in views] == ["done", "cancelled", "cancelled"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_lost_lease_costs_its_own_job_only(harbor: Harbor, start: Start, driver: Driver, kind: str) -> None:
    begun = threading.Event()
    answers: list[bool] = []

    def look(batch: Numbers) -> bool:
        begun.set()
        if not batch[1].lost:
            return False
        answers.extend([batch[1].done("refused"), batch[2].done("kept")])
        with batch[1]:
            raise ValueError("of a job that is somebody else's")
        return True

    jobs = numbers(defined(harbor, kind, look), 3)
    worker = start(lease_s=LEASE_S)
    assert begun.wait(10)
    lose(driver, jobs[1])
    views = finished(harbor, *jobs)
    assert [(view.state, view.result) for view in views] == [("done", None), ("cancelled", None), ("done", "kept")]
    assert answers == [False, True]
    assert worker.tally.lost == 1


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_batch_that_has_lost_every_lease_is_stopped(harbor: Harbor, start: Start, driver: Driver, kind: str) -> None:
    begun, stopped = threading.Event(), threading.Event()

    def look(batch: Numbers) -> bool:
        begun.set()
        if batch.cancelled:
            stopped.set()
        return stopped.is_set()

    jobs = numbers(defined(harbor, kind, look), 3)
    worker = start(lease_s=LEASE_S)
    assert begun.wait(10)
    for job in jobs:
        lose(driver, job)
    until(lambda: worker.tally.lost == 3, "every loss is noticed")
    if kind == "sync":
        assert stopped.wait(10)
    until(lambda: not worker._lanes[0].running, "the slot is free")
    assert {harbor.job(job).state for job in jobs} == {"cancelled"}
    assert worker.tally.ran == 0


# --- Time --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_batch_has_the_shortest_time_of_its_jobs(harbor: Harbor, start: Start, kind: str) -> None:
    limits: list[float | None] = []

    def look(batch: Numbers) -> bool:
        if not limits:
            limits.append(0)
            batch[2].done("in time")
        return kind == "sync" and batch.cancelled

    task = defined(harbor, kind, look, max_attempts=1)
    jobs = [task.using(timeout=limit).enqueue(n=0) for limit in (60, 0.2, 60, None)]
    start(lease_s=LEASE_S)
    views = finished(harbor, *jobs)
    assert [view.state for view in views] == ["dlq", "dlq", "done", "dlq"]
    assert all("timed out after 0.2 s" in view.error for view in views if view.state == "dlq")


def test_a_thread_that_heeds_no_timeout_costs_each_of_its_jobs_one_attempt(harbor: Harbor, start: Start) -> None:
    door = threading.Event()
    task = defined(harbor, "sync", lambda _: door.is_set(), max_attempts=1, timeout=0.1)
    jobs = numbers(task, 3)
    start(lease_s=LEASE_S)
    try:
        views = finished(harbor, *jobs)
        assert [(view.state, outcomes(view)) for view in views] == [("dlq", ["dead"])] * 3
        assert all("its thread cannot be ended" in view.error for view in views)
    finally:
        door.set()


# --- Slots and company ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_batch_takes_one_slot(harbor: Harbor, start: Start, kind: str) -> None:
    crowd, door = Crowd(), threading.Event()

    def index(batch: Numbers) -> None:
        crowd.enter()
        pause(door)
        crowd.leave()

    async def aindex(batch: Numbers) -> None:
        crowd.enter()
        await apause(door)
        crowd.leave()

    task = harbor.task(batch=5, name="index")(index if kind == "sync" else aindex)
    jobs = numbers(task, 20)
    start(concurrency=2)
    until(lambda: crowd.inside == 2, "both slots are taken")
    door.set()
    finished(harbor, *jobs)
    assert crowd.most == 2


def test_a_batch_that_waits_takes_in_what_comes_and_goes_when_it_is_full(harbor: Harbor, start: Start) -> None:
    sizes: list[int] = []

    @harbor.task(batch=3, batch_wait=60)
    def index(batch: Numbers) -> None:
        sizes.append(len(batch))

    start(poll_interval_s=0.01)
    jobs = []
    for n in range(6):
        jobs.append(index.enqueue(n=n))
        until(lambda: harbor.job(jobs[-1]).state != "ready", "the worker has it")
    finished(harbor, *jobs)
    assert sizes == [3, 3]


def test_a_batch_that_has_waited_long_enough_goes_as_it_is(harbor: Harbor, start: Start) -> None:
    sizes: list[int] = []

    @harbor.task(batch=100, batch_wait=0.15)
    def index(batch: Numbers) -> None:
        sizes.append(len(batch))

    jobs = numbers(index, 4)
    started = time.monotonic()
    start()
    finished(harbor, *jobs)
    assert sizes == [4]
    assert time.monotonic() - started >= 0.15


def test_batches_by_tenant_mix_none(harbor: Harbor) -> None:
    seen: list[set[str]] = []

    @harbor.task(batch=10, batch_by="tenant")
    def index(batch: Numbers) -> None:
        seen.append({item.tenant for item in batch})

    harbor.enqueue_many(index.using(tenant=f"t{n % 3}").new_job(n=n) for n in range(60))
    assert harbor.worker(fleet=False).drain().done == 60
    assert all(len(tenants) == 1 for tenants in seen)
    assert set().union(*seen) == {"t0", "t1", "t2"}


def test_a_suspect_has_a_batch_of_its_own(harbor: Harbor, start: Start) -> None:
    sizes: dict[str, int] = {}

    @harbor.task(batch=50, name="index")
    def index(batch: Any) -> None:
        sizes.update((item.id, len(batch)) for item in batch)

    suspects = suspicious(harbor, "index", 2)
    innocent = [index.enqueue() for _ in range(20)]
    start()
    views = finished(harbor, *suspects, *innocent)
    assert [sizes[job.id] for job in suspects] == [1, 1]
    assert {view.state for view in views} == {"done"}


def test_a_worker_that_may_run_so_many_jobs_counts_those_of_batches_one_by_one(harbor: Harbor) -> None:
    sizes: list[int] = []

    @harbor.task(batch=4, batch_wait=60)
    def index(batch: Numbers) -> None:
        sizes.append(len(batch))

    numbers(index, 20)
    assert harbor.worker(fleet=False, max_jobs=10).run().done == 10
    assert sum(sizes) == 10
    assert harbor.driver.counts()["ready"] == 10


# --- Stopping ------------------------------------------------------------------------------------------------


def test_a_worker_that_stops_gives_back_what_was_only_being_gathered(harbor: Harbor, start: Start) -> None:
    @harbor.task(batch=100, batch_wait=60)
    def index(batch: Numbers) -> None: ...

    jobs = numbers(index, 5)
    worker = start()
    until(lambda: all(harbor.job(job).state == "claimed" for job in jobs), "they are gathered")
    worker.stop()
    views = [harbor.job(job) for job in jobs]
    assert [(view.state, view.attempts, view.failures) for view in views] == [("ready", (), 0)] * 5


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_worker_that_stops_gives_back_what_a_batch_has_not_settled(
    harbor: Harbor, start: Start, kind: str, request: pytest.FixtureRequest
) -> None:
    if kind == "sync":
        request.getfixturevalue("unheeded")
    begun, door = threading.Event(), threading.Event()

    def look(batch: Numbers) -> bool:
        if not begun.is_set():
            batch[0].done()
        begun.set()
        return door.is_set()

    jobs = numbers(defined(harbor, kind, look), 3)
    worker = start(grace_s=0)
    assert begun.wait(10)
    worker.stop()
    try:
        views = [harbor.job(job) for job in jobs]
        assert [view.state for view in views] == ["done", "ready", "ready"]
        assert [view.failures for view in views] == [0, 0, 0]
    finally:
        door.set()


def test_jobs_that_expire_or_are_cancelled_while_they_are_gathered_are_not_run(harbor: Harbor, start: Start) -> None:
    seen: list[int] = []

    @harbor.task(batch=3, batch_wait=60)
    def index(batch: Numbers) -> None:
        seen.extend(item.arguments["n"] for item in batch)

    jobs = [index.using(expires_in=0.3).enqueue(n=0), index.enqueue(n=1)]
    worker = start(poll_interval_s=0.02, lease_s=LEASE_S)
    until(lambda: all(harbor.job(job).state == "claimed" for job in jobs), "they are gathered")
    harbor.cancel(jobs[1])
    until(lambda: any(held.asked_to_cancel for held in worker._crew.registry.snapshot()), "the cancel is known")
    expires_at = harbor.job(jobs[0]).record.expires_at
    assert expires_at is not None
    until(lambda: harbor.driver.now() > expires_at)
    jobs.append(index.enqueue(n=2))
    views = finished(harbor, *jobs)
    assert [view.state for view in views] == ["expired", "cancelled", "done"]
    assert seen == [2]
