"""A store that was moved to another one: a worker ends there, or waits, and leaves no trace."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.waiting import until
from tests.worker.crew import pause

from taskharbor import Harbor, StoreMoved
from taskharbor.core.carrying import GONE, NOTE
from taskharbor.core.contract import Driver
from taskharbor.drivers.base import BaseDriver
from taskharbor.worker import heartbeat
from taskharbor.worker.leader import Leader

Opener = Callable[[], Driver]


def move_away(store: Driver, *, ended: bool = True) -> BaseDriver:
    """As a move does it, by another process."""
    assert isinstance(store, BaseDriver)
    store.carrier().write_notes({NOTE: '{"to": "1", "to_url": "elsewhere"}'})
    store.shut(True)
    store.set_mark(GONE, ended)
    return store


def traces(store: Driver) -> tuple[int, int, int]:
    return len(store.workers()), len(store.leaders()), len(store.schedules())


@pytest.mark.parametrize("ended", [True, False], ids=["moved", "being moved"])
@pytest.mark.parametrize("way", ["drain", "start"])
def test_a_worker_that_is_started_on_a_store_that_was_moved_is_told_at_once_and_leaves_no_trace(
    harbor: Harbor, driver: Driver, way: str, ended: bool
) -> None:
    @harbor.periodic("@hourly")
    @harbor.task
    def work() -> None: ...

    work.enqueue()
    move_away(driver, ended=ended)
    said = "was moved to elsewhere" if ended else "is being moved to elsewhere"
    with pytest.raises(StoreMoved, match=said):
        getattr(harbor.worker(), way)()
    assert traces(driver) == (0, 0, 0)


def test_a_worker_waits_for_a_move_that_goes_on_and_ends_with_it(harbor: Harbor, driver: Driver) -> None:
    @harbor.task
    def work() -> None: ...

    store = move_away(driver, ended=False)
    worker = harbor.worker()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except StoreMoved as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: worker._outage.moved, "the worker was told")
    assert thread.is_alive() and traces(driver) == (0, 0, 0)
    store.set_mark(GONE, True)
    thread.join(30)
    assert "was moved to elsewhere" in str(raised[0])


@pytest.mark.parametrize("ended", [True, False], ids=["moved", "being moved"])
def test_a_drain_whose_store_is_moved_meanwhile_ends_what_runs_and_says_so(
    harbor: Harbor, driver: Driver, ended: bool
) -> None:
    running, door = threading.Event(), threading.Event()

    @harbor.task
    def work() -> None:
        running.set()
        pause(door)

    jobs = [work.enqueue() for _ in range(3)]
    worker = harbor.worker(concurrency=1, batch=1, poll_interval_s=0.05)

    def move() -> None:
        running.wait(30)
        move_away(driver, ended=ended)
        until(lambda: harbor.driver._rules().shut, "the worker's driver has heard of it")  # type: ignore[attr-defined]
        door.set()

    thread = threading.Thread(target=move)
    thread.start()
    with pytest.raises(StoreMoved, match="elsewhere"):
        worker.drain()
    thread.join()
    assert worker.tally.done >= 1, "what ran has ended"
    assert worker.tally.done < len(jobs)
    assert driver.workers() == []


def test_a_worker_whose_store_was_moved_signs_off_and_nobody_leads_there(
    harbor: Harbor, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    @harbor.task
    def work() -> None: ...

    monkeypatch.setattr(heartbeat, "WORKER_BEAT_S", 0.05)
    worker = harbor.worker(poll_interval_s=0.05)
    worker.start()
    try:
        until(lambda: traces(driver)[:2] == (1, 1), "it has registered and leads")
        move_away(driver)
        until(lambda: driver.workers() == [], "it has signed off")
        assert worker._leader is not None
        worker._leader._bid_at = 0.0
        until(lambda: not driver.leaders() or not worker._leader.leading, "it does not lead")
    finally:
        worker.stop()
    late = Leader(driver, "late")
    late.step()
    assert not late.leading
