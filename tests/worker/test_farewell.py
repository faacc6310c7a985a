"""A worker ends in time whatever its store does: what it cannot tell is left to the leases, and it says so."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until
from tests.worker.crew import Wrapped, outcomes, wrapped_harbor

from taskharbor import Context, Harbor, StoreUnavailable
from taskharbor.worker import farewell, runtime
from taskharbor.worker.runtime import Worker

TALKING = (
    "settle", "settle_and_reserve", "reserve", "extend", "heartbeat", "elect", "recover", "schedules", "list",
    "deregister", "resign",
)  # fmt: skip


class Hanging:
    """A store whose calls do not come back before it is let go."""

    def __init__(self, wrapped: Wrapped) -> None:
        self._wrapped = wrapped
        self._door = threading.Event()
        self.calls = 0

    def hang(self, *names: str) -> None:
        def never(name: str) -> Any:
            def call(*words: Any, **named: Any) -> Any:
                self.calls += 1
                self._door.wait(60)
                return getattr(self._wrapped.driver, name)(*words, **named)

            return call

        self._wrapped.instead = {name: never(name) for name in names or TALKING}

    def let_go(self) -> None:
        self._wrapped.instead = {}
        self._door.set()


@pytest.fixture
def store(url: str) -> Iterator[tuple[Harbor, Hanging]]:
    harbor, wrapped = wrapped_harbor(url)
    hanging = Hanging(wrapped)
    yield harbor, hanging
    hanging.let_go()
    until(lambda: not any(each.name.startswith("taskharbor-") for each in threading.enumerate()), "every thread ends")
    wrapped.driver.close()


def _at_work(harbor: Harbor, **options: Any) -> tuple[Worker, str]:
    begun = threading.Event()

    @harbor.task
    def work(context: Context) -> None:
        begun.set()
        until(lambda: context.cancelled)

    job = work.enqueue()
    worker = harbor.worker(**{"grace_s": 0, "lease_s": 30, **options})
    worker.start()
    assert begun.wait(10)
    return worker, job.id


def _impatient(monkeypatch: pytest.MonkeyPatch, last_words_s: float) -> None:
    for module in (farewell, runtime):
        monkeypatch.setattr(module, "LAST_WORDS_S", last_words_s)
    monkeypatch.setattr(farewell, "SIGN_OFF_S", 0.2)


def test_stop_returns_in_time_though_the_store_hangs_and_says_what_it_could_not_tell(
    store: tuple[Harbor, Hanging], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _impatient(monkeypatch, 0.5)
    harbor, hanging = store
    worker, job = _at_work(harbor)
    until(harbor.driver.leaders, "it leads")
    hanging.hang()
    until(lambda: hanging.calls, "a call hangs")
    began = time.monotonic()
    worker.stop()
    assert time.monotonic() - began < 10
    assert (worker.told_all, worker.is_stuck) == (False, True)
    assert harbor.driver.get(job).status == "inflight"
    [said] = [text for record in caplog.records if "ends without the store" in (text := record.getMessage())]
    assert "1 job could not be settled" in said
    assert "it is not signed off" in said
    assert "the store does not answer" in said
    worker.stop()


def test_one_that_is_hurried_hardly_waits_for_a_store_that_hangs(store: tuple[Harbor, Hanging]) -> None:
    harbor, hanging = store
    worker, _ = _at_work(harbor, grace_s=600)
    hanging.hang()
    until(lambda: hanging.calls, "a call hangs")
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    until(worker._stopping.is_set)
    worker.hurry()
    began = time.monotonic()
    stopping.join(30)
    assert time.monotonic() - began < farewell.LONGEST_HURRIED_S + 2
    assert not worker.told_all


def test_one_that_is_hurried_while_it_waits_for_the_store_waits_no_longer(
    store: tuple[Harbor, Hanging], monkeypatch: pytest.MonkeyPatch
) -> None:
    _impatient(monkeypatch, 600.0)
    harbor, hanging = store
    worker, _ = _at_work(harbor, fleet=False)
    hanging.hang()
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    until(lambda: hanging.calls and not worker._lanes[0].running, "its handler has ended, and nobody hears of it")
    worker.hurry()
    stopping.join(30)
    assert not stopping.is_alive()


def test_what_a_hanging_call_still_does_after_the_worker_has_ended_settles_nothing_twice(
    store: tuple[Harbor, Hanging], monkeypatch: pytest.MonkeyPatch
) -> None:
    _impatient(monkeypatch, 0.2)
    harbor, hanging = store
    worker, job = _at_work(harbor, fleet=False)
    hanging.hang("settle", "settle_and_reserve")
    worker.stop()
    hanging.let_go()
    until(lambda: harbor.driver.get(job).status == "ready", "the call comes through")
    assert outcomes(harbor.job(job)) == ["released"]


def test_stop_does_not_wait_for_a_start_that_hangs_and_that_worker_does_not_begin_later(
    store: tuple[Harbor, Hanging], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _impatient(monkeypatch, 0.2)
    harbor, hanging = store

    @harbor.task
    def nothing() -> None: ...

    job = nothing.enqueue()
    worker = harbor.worker()
    hanging.hang("heartbeat")
    starting = threading.Thread(target=worker.run)
    starting.start()
    until(lambda: hanging.calls, "it hangs")
    worker.stop()
    assert (worker.told_all, worker.is_stuck) == (False, True)
    assert "before it has begun" in caplog.text
    hanging.let_go()
    starting.join(30)
    assert not starting.is_alive()
    assert (harbor.job(job).state, list(harbor.driver.workers())) == ("ready", [])


@pytest.mark.parametrize("is_away", [False, True])
def test_a_worker_knows_whether_it_has_told_the_store_all(tmp_path: Path, is_away: bool) -> None:
    harbor, wrapped = wrapped_harbor(f"memory://{tmp_path.name}")
    worker, _ = _at_work(harbor)

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("connection refused")

    if is_away:
        wrapped.instead = {"deregister": away}
    worker.stop()
    assert (worker.told_all, worker.is_stuck) == (not is_away, False)
    wrapped.driver.close()


def test_only_a_signal_or_a_parent_sets_a_worker_the_time_at_which_its_process_ends(harbor: Harbor) -> None:
    worker = harbor.worker(take_all=True, grace_s=100)
    worker.stop()
    assert worker.ends_by() is None
    before = time.monotonic()
    worker._ask()
    patient = worker.ends_by()
    assert patient is not None
    assert 100 + farewell.LONGEST_S <= patient - before < 110 + farewell.LONGEST_S
    worker.hurry()
    hurried = worker.ends_by()
    assert hurried is not None
    assert hurried - before < 10


def test_a_line_about_what_was_not_told_names_the_reason_where_the_store_gave_one(
    store: tuple[Harbor, Hanging], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "taskharbor")
    harbor, _ = store
    worker, _ = _at_work(harbor)

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("connection refused")

    harbor.driver.instead = {"deregister": away}  # type: ignore[attr-defined]
    worker.stop()
    assert "it is not signed off, and will be taken for dead (connection refused)" in caplog.text
