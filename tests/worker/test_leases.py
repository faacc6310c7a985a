"""Leases are kept alive while handlers run, cancels reach them, timeouts end them, and a lost lease settles nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from datetime import timedelta

import pytest
from tests.waiting import until
from tests.worker.conftest import Start
from tests.worker.crew import apause, finished, outcomes, pause, wrapped_harbor

from taskharbor import Context, Harbor, LeaseLost, StoreUnavailable
from taskharbor.core.model import Progress, Settlement
from taskharbor.testing.times import HOUR
from taskharbor.worker import heartbeat
from taskharbor.worker.held import Held

LEASE_S = 0.6


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_job_longer_than_its_lease_keeps_it(harbor: Harbor, start: Start, kind: str) -> None:
    door, begun = threading.Event(), threading.Event()

    def long() -> str:
        begun.set()
        pause(door)
        return "kept"

    async def along() -> str:
        begun.set()
        await apause(door)
        return "kept"

    job = harbor.task(long if kind == "sync" else along).enqueue()
    lease_s = 2 * LEASE_S  # a machine may stand still for half a second
    start(lease_s=lease_s)
    start(lease_s=lease_s)
    assert begun.wait(10)
    first_end = harbor.job(job).record.lease_expires_at
    assert first_end is not None
    until(lambda: harbor.driver.now() > first_end + timedelta(seconds=lease_s))
    record = harbor.job(job).record
    assert (record.deliveries, harbor.job(job).state) == (1, "running")
    door.set()
    [view] = finished(harbor, job)
    assert (view.result, outcomes(view), view.record.deliveries) == ("kept", ["succeeded"], 1)


def test_progress_is_readable_while_the_handler_runs_and_afterwards(harbor: Harbor, start: Start) -> None:
    door = threading.Event()

    @harbor.task
    def steps(context: Context) -> None:
        context.progress(1, 3, "one")
        pause(door)
        context.progress(3, 3, "all")

    job = steps.enqueue()
    start(lease_s=30)
    until(lambda: harbor.job(job).progress == Progress(1, 3, "one"), "the progress is seen")
    assert harbor.job(job).state == "running"
    door.set()
    [view] = finished(harbor, job)
    assert view.progress == Progress(3, 3, "all")


def test_the_last_progress_of_a_quick_or_failed_handler_is_kept(harbor: Harbor) -> None:
    @harbor.task(max_attempts=1)
    def quick(fail: bool, context: Context) -> None:
        context.progress(2, note="so far")
        if fail:
            raise ValueError

    jobs = [quick.enqueue(fail) for fail in (True, False)]
    harbor.worker(fleet=False).drain()
    assert [harbor.job(job).progress for job in jobs] == [Progress(2, None, "so far")] * 2


def test_extend_keeps_the_job_for_as_long_as_the_handler_asks(harbor: Harbor, start: Start) -> None:
    door = threading.Event()

    @harbor.task
    def long(context: Context) -> None:
        context.extend(3600)
        pause(door)

    job = long.enqueue()
    start(lease_s=LEASE_S)

    def is_extended() -> bool:
        ends = harbor.job(job).record.lease_expires_at
        return ends is not None and ends > harbor.driver.now() + timedelta(minutes=50)

    until(is_extended)
    door.set()
    [view] = finished(harbor, job)
    assert view.state == "done"


def test_what_one_handler_asks_for_costs_no_other_its_lease(
    harbor: Harbor, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    door = threading.Event()

    @harbor.task
    def long(mischief: str, context: Context) -> str:
        if mischief == "extend":
            context.extend(1e300)
        if mischief == "progress":
            context.progress(1, note="\x00\udcff" + "x" * 100_000)
        pause(door)
        return mischief

    jobs = [long.enqueue(mischief) for mischief in ("none", "extend", "progress")]
    start(lease_s=LEASE_S)
    until(lambda: all(harbor.job(job).state == "running" for job in jobs))
    ends = harbor.driver.now() + timedelta(seconds=2 * LEASE_S)
    until(lambda: harbor.driver.now() > ends)
    door.set()
    assert [view.state for view in finished(harbor, *jobs)] == ["done"] * 3
    assert [harbor.job(job).record.deliveries for job in jobs] == [1, 1, 1]
    assert "failed and goes on" not in caplog.text


# --- Cancels -----------------------------------------------------------------------------------------------


def test_cancelling_a_coroutine_ends_it(harbor: Harbor, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "CANCEL_LOOK_S", 3600.0)  # the word comes with the extension of the lease
    ended = []

    @harbor.task
    async def long() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            ended.append("cleaned up")

    @harbor.task
    async def after() -> str:
        await asyncio.sleep(0.001)
        return "fine"

    job = long.enqueue()
    start(lease_s=LEASE_S, concurrency=1)
    until(lambda: harbor.job(job).state == "running")
    harbor.cancel(job)
    [view] = finished(harbor, job)
    assert (view.state, outcomes(view), ended) == ("cancelled", ["cancelled"], ["cleaned up"])
    assert finished(harbor, after.enqueue())[0].result == "fine", "the slot goes on"


def test_a_running_job_is_seen_to_run_and_hears_of_a_cancel_long_before_its_lease_is_extended(
    harbor: Harbor, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "TELL_START_S", 0.01)
    monkeypatch.setattr(heartbeat, "CANCEL_LOOK_S", 0.01)

    @harbor.task
    async def long() -> None:
        await asyncio.sleep(600)

    job = long.enqueue()
    start(lease_s=3600.0)
    until(lambda: harbor.job(job).state == "running")
    harbor.cancel(job)
    assert finished(harbor, job)[0].state == "cancelled"


def test_a_thread_is_told_of_a_cancel_through_its_context(harbor: Harbor, start: Start) -> None:
    @harbor.task
    def long(context: Context) -> None:
        until(lambda: context.cancelled)
        raise RuntimeError("stopped half way")

    job = long.enqueue()
    start(lease_s=LEASE_S)
    until(lambda: harbor.job(job).state == "running")
    harbor.cancel(job)
    [view] = finished(harbor, job)
    assert (view.state, outcomes(view)) == ("cancelled", ["cancelled"])


def test_a_handler_that_sees_a_cancel_and_returns_has_stopped(harbor: Harbor, start: Start) -> None:
    @harbor.task
    def long(context: Context) -> str:
        until(lambda: context.cancelled)
        return "as far as I got"

    job = long.enqueue()
    start(lease_s=LEASE_S)
    until(lambda: harbor.job(job).state == "running")
    harbor.cancel(job)
    [view] = finished(harbor, job)
    assert (view.state, view.result, outcomes(view)) == ("cancelled", None, ["cancelled"])


def test_a_handler_that_finishes_without_a_look_at_the_cancel_is_done(harbor: Harbor, start: Start) -> None:
    told = threading.Event()

    @harbor.task
    def long() -> str:
        pause(told)
        return "done all the same"

    job = long.enqueue()
    worker = start(lease_s=LEASE_S)
    until(lambda: harbor.job(job).state == "running")
    harbor.cancel(job)
    until(lambda: all(held.cancelled for held in worker._crew.registry.snapshot()))
    told.set()
    [view] = finished(harbor, job)
    assert (view.state, view.result) == ("done", "done all the same")


@pytest.mark.parametrize("heeds", [True, False])
def test_the_log_says_that_a_job_was_cancelled_when_it_ended_so(
    heeds: bool, harbor: Harbor, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    begun, door = threading.Event(), threading.Event()

    @harbor.task
    def work(context: Context) -> None:
        begun.set()
        if heeds:
            until(lambda: context.cancelled)
        else:
            pause(door)

    caplog.set_level(logging.INFO, "taskharbor.worker")
    job = work.enqueue()
    worker = start()
    assert begun.wait(10)
    harbor.cancel(job)
    until(lambda: "work was told to stop, and will be cancelled when it does" in caplog.messages)
    door.set()
    [view] = finished(harbor, job)
    worker.stop()  # a line is written when the store has been told
    assert view.state == ("cancelled" if heeds else "done")
    assert ("work was cancelled while it ran" in caplog.messages) == heeds
    assert not any("failed" in said for said in caplog.messages if "worker stopped" not in said)


def test_a_job_that_is_cancelled_while_it_waits_for_a_slot_is_not_begun(
    harbor: Harbor, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "CANCEL_LOOK_S", 0.01)
    door = threading.Event()
    ran: list[str] = []

    @harbor.task
    def work(name: str) -> None:
        ran.append(name)
        pause(door)

    first = work.enqueue("first")
    worker = start(concurrency=1, lease_s=3600.0)
    until(lambda: ran)
    second = work.enqueue("second")
    # As if it had been fetched ahead.
    [leased] = harbor.driver.reserve("default", lease_for=HOUR)
    held = Held(leased, work, time.monotonic(), 3600.0)
    worker._crew.registry.add([held])
    worker._lanes[0].put(held)
    harbor.cancel(second)
    until(lambda: held.cancelled, "it is told")
    door.set()
    assert [view.state for view in finished(harbor, first, second)] == ["done", "cancelled"]
    assert ran == ["first"]


def test_a_coroutine_that_swallows_its_cancel_has_stopped_all_the_same(harbor: Harbor, start: Start) -> None:
    @harbor.task
    async def long() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
        return "never mind"

    job = long.enqueue()
    start(lease_s=LEASE_S)
    until(lambda: harbor.job(job).state == "running")
    harbor.cancel(job)
    assert finished(harbor, job)[0].state == "cancelled"


# --- Lost leases -------------------------------------------------------------------------------------------


def steal(harbor: Harbor, job_id: str) -> str:
    """Somebody else has the job from now on: the token of their lease."""
    driver = harbor.driver
    later = driver.now() + HOUR
    [leased] = driver.reserve("default", now=later, lease_for=HOUR, owner="thief")
    assert leased.job.id == job_id
    return leased.lease.token


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_lost_lease_stops_the_handler_and_settles_nothing(
    harbor: Harbor, start: Start, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    seen: list[str] = []

    @harbor.task
    def long(context: Context) -> str:
        until(lambda: context.cancelled)
        with pytest.raises(LeaseLost):
            context.extend(10)
        seen.append("stopped")
        return "mine"

    @harbor.task
    async def along() -> str:
        try:
            await asyncio.sleep(600)
        finally:
            seen.append("stopped")
        return "mine"

    job = (long if kind == "sync" else along).enqueue()
    worker = start(lease_s=LEASE_S)
    until(lambda: harbor.job(job).state == "running")
    token = steal(harbor, job.id)
    until(lambda: seen, "the handler is stopped")
    worker.stop()
    record = harbor.job(job).record
    assert (record.lease_owner, record.lease_token, record.status) == ("thief", token, "inflight")
    assert (worker.tally.lost, worker.tally.done) == (1, 0)
    assert "the lease is lost" in caplog.text
    harbor.driver.settle([Settlement.ack(job.id, token, result=b'"theirs"')])
    assert harbor.job(job).result == "theirs"
    assert outcomes(harbor.job(job)) == ["lapsed", "succeeded"]


# --- Timeouts ----------------------------------------------------------------------------------------------


def test_a_coroutine_past_its_timeout_is_really_cancelled(harbor: Harbor, start: Start) -> None:
    ended = []

    @harbor.task(timeout=0.05, max_attempts=2)
    async def long() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(1)

    job = long.enqueue()
    start()
    [view] = finished(harbor, job)
    assert (view.state, outcomes(view), len(ended)) == ("dlq", ["retried", "dead"], 2)
    assert view.attempts[0].error == "timed out after 0.05 s"


def test_a_timeout_of_the_handlers_own_is_an_error_like_any_other(harbor: Harbor) -> None:
    @harbor.task(timeout=60, max_attempts=1)
    async def inner() -> None:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(60)

    job = inner.enqueue()
    harbor.worker(fleet=False).drain()
    assert harbor.job(job).attempts[0].error.endswith("TimeoutError")


def test_a_thread_past_its_timeout_is_reported_and_its_attempt_has_failed_before_its_lease_ends(
    harbor: Harbor, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    door, told = threading.Event(), threading.Event()

    @harbor.task(timeout=0.1)
    def long(context: Context) -> str:
        if context.fence > 1:
            return "second try"
        until(lambda: context.cancelled)
        told.set()
        pause(door)
        return "first try"

    job = long.enqueue()
    worker = start(lease_s=LEASE_S, concurrency=2, poll_interval_s=0.05)
    assert told.wait(10), "the handler is told"
    [view] = finished(harbor, job)
    assert (view.result, outcomes(view)) == ("second try", ["retried", "succeeded"])
    assert view.attempts[0].error == "timed out after 0.1 s, and its thread cannot be ended"
    assert (view.record.deliveries, view.record.attempts) == (2, 1), "every delivery is explained"
    door.set()
    until(lambda: not worker._lanes[0].running, "the first handler ends, too late")
    worker.stop()
    assert (harbor.job(job).result, outcomes(harbor.job(job))) == ("second try", ["retried", "succeeded"])
    assert (worker.tally.retried, worker.tally.done, worker.tally.lost) == (1, 1, 0)
    [line] = [record for record in caplog.records if "past its timeout" in record.getMessage()]
    assert (line.levelno, line.__dict__["job"], line.__dict__["attempt"]) == (logging.ERROR, job.id, 1)


def test_a_thread_that_always_runs_into_its_timeout_ends_by_its_attempts_and_not_as_a_crash_loop(
    harbor: Harbor, start: Start
) -> None:
    door = threading.Event()

    @harbor.task(timeout=0.05, max_attempts=2)
    def long() -> None:
        pause(door)

    job = long.enqueue()
    worker = start(lease_s=LEASE_S, concurrency=4, poll_interval_s=0.05)
    [view] = finished(harbor, job)
    until(lambda: (worker.tally.retried, worker.tally.dead) == (1, 1))
    door.set()
    assert (view.state, view.reason, outcomes(view)) == ("dlq", "max_attempts", ["retried", "dead"])


def test_a_lease_that_a_handler_made_long_does_not_hide_its_timeout(harbor: Harbor, start: Start) -> None:
    door = threading.Event()

    @harbor.task(timeout=0.2, max_attempts=1)
    def long(context: Context) -> None:
        context.extend(3600)
        pause(door)

    job = long.enqueue()
    start(lease_s=LEASE_S)
    [view] = finished(harbor, job)
    door.set()
    assert (view.state, view.reason) == ("dlq", "max_attempts")


def test_a_thread_past_its_timeout_whose_store_is_away_loses_its_lease(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    harbor, wrapped = wrapped_harbor(url)
    door = threading.Event()

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("connection refused")

    @harbor.task(timeout=0.1)
    def long() -> None:
        pause(door)

    long.enqueue()
    worker = harbor.worker(fleet=False, lease_s=LEASE_S)
    worker.start()
    until(lambda: any(held.overdue for held in worker._crew.registry.snapshot()))
    wrapped.instead = {"settle": away}
    until(lambda: worker.tally.lost == 1)
    wrapped.instead = {}
    door.set()
    worker.stop()
    wrapped.driver.close()
    assert "the lease ran out" in caplog.text


def test_a_thread_that_ends_soon_after_its_timeout_is_still_heard(harbor: Harbor, start: Start) -> None:
    door = threading.Event()

    @harbor.task(timeout=0.1)
    def long() -> str:
        pause(door)
        return "late"

    job = long.enqueue()
    worker = start(lease_s=30)
    until(lambda: any(held.overdue for held in worker._crew.registry.snapshot()))
    door.set()
    [view] = finished(harbor, job)
    assert (view.result, outcomes(view)) == ("late", ["succeeded"])


def test_a_coroutine_that_swallows_its_timeout_and_returns_has_failed(harbor: Harbor) -> None:
    @harbor.task(timeout=0.05, max_attempts=1)
    async def long() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
        return "never mind"

    job = long.enqueue()
    harbor.worker(fleet=False).drain()
    view = harbor.job(job)
    assert (view.state, view.attempts[-1].error) == ("dlq", "timed out after 0.05 s")


@pytest.mark.parametrize("how", ["swallows", "blocks"])
def test_a_coroutine_that_cannot_be_ended_is_reported_and_its_attempt_has_failed(
    harbor: Harbor, start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(heartbeat, "TO_STOP_S", 0.1)
    door = threading.Event()

    @harbor.task(timeout=0.1)
    async def long(context: Context) -> str:
        if context.fence > 1:
            return "second try"
        if how == "blocks":
            pause(door)
        while not door.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await apause(door)
        return "first try"

    job = long.enqueue()
    worker = start(lease_s=LEASE_S, concurrency=1)
    until(lambda: worker.tally.retried == 1, "the attempt has failed")
    second = start(lease_s=LEASE_S, poll_interval_s=0.05)
    [view] = finished(harbor, job)
    assert (view.result, outcomes(view)) == ("second try", ["retried", "succeeded"])
    assert view.attempts[0].error == "timed out after 0.1 s, and it blocks the event loop or heeds no cancel"
    door.set()
    until(lambda: not worker._lanes[0].running, "the handler ends")
    worker.stop()
    second.stop()
    assert harbor.job(job).result == "second try"
    [line] = [record for record in caplog.records if "past its timeout" in record.getMessage()]
    assert (line.levelno, line.__dict__["job"], line.__dict__["attempt"]) == (logging.ERROR, job.id, 1)
