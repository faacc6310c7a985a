"""Helpers that end a handler after some time throw something into its thread, and now and then they come too late."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.waiting import until
from tests.worker.conftest import Start
from tests.worker.crew import finished

from taskharbor import Harbor
from taskharbor.worker import claimer
from taskharbor.worker.runtime import Worker


class Late(BaseException):
    """Thrown into a thread when what it was meant for has ended."""


def throw_into(thread: threading.Thread) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Late))


def many(harbor: Harbor, task: Any, count: int) -> None:
    """Run so many jobs that come in together."""
    finished(harbor, *task.enqueue_many([{}] * count))


def test_what_comes_too_late_for_a_handler_costs_no_slot(harbor: Harbor, start: Start) -> None:
    ran: list[threading.Thread] = []

    @harbor.task
    def quick() -> None:
        ran.append(threading.current_thread())

    worker = start({"default": 1}, poll_interval_s=0.05)
    until(lambda: worker._claimers[0].dry)
    for _ in range(3):
        many(harbor, quick, 4)
        until(lambda: worker._lanes[0]._idle == 1)
        [struck] = {thread for thread in ran if "claim" not in thread.name}
        throw_into(struck)
    many(harbor, quick, 4)
    assert struck.is_alive()
    assert worker._lanes[0]._idle <= 1


def fails_once(real: Callable[..., Any], when: Callable[..., bool]) -> tuple[Callable[..., Any], threading.Event]:
    """The same function, which raises the first time that it is called with such arguments."""
    raised = threading.Event()

    def instead(*args: Any) -> Any:
        if when(*args) and not raised.is_set():
            raised.set()
            raise Late
        return real(*args)

    return instead, raised


def struck_worker(harbor: Harbor, start: Start, strike: Callable[[Worker], threading.Event]) -> Worker:
    """A worker that has run jobs, was struck in between, and has run more."""

    @harbor.task
    def quick() -> None: ...

    worker = start({"default": 2}, poll_interval_s=0.05)
    until(lambda: worker._claimers[0].dry)
    struck = strike(worker)
    many(harbor, quick, 5)
    assert struck.wait(10)
    many(harbor, quick, 5)
    until(lambda: not len(worker._crew.registry), "nothing is held any more")
    return worker


def test_what_comes_behind_a_settle_leaves_nothing_held(harbor: Harbor, start: Start) -> None:
    def strike(worker: Worker) -> threading.Event:
        registry = worker._crew.registry
        registry.remove, struck = fails_once(registry.remove, bool)  # type: ignore[method-assign]
        return struck

    assert struck_worker(harbor, start, strike).tally.done == 10


def test_what_comes_before_a_settle_leaves_nothing_untold(
    harbor: Harbor, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strike(worker: Worker) -> threading.Event:
        mine = worker._claimers[0]
        instead, struck = fails_once(mine._talk, lambda _: bool(mine._telling))
        monkeypatch.setattr(mine, "_talk", instead)
        return struck

    monkeypatch.setattr(claimer, "SLOWEST_STEP_S", 0.01)
    assert struck_worker(harbor, start, strike).tally.done == 10
