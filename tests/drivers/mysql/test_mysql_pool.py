"""The pool of connections, without a server."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.drivers.interrupting import each_interrupt, in_time

from taskharbor.core.errors import StoreUnavailable
from taskharbor.drivers.mysql import pool as pools
from taskharbor.drivers.mysql.pool import Pool


class Line:
    """A connection to nowhere."""

    def close(self) -> None: ...

    def ping(self, *, reconnect: bool) -> None: ...


def use(pool: Pool) -> None:
    with pool.connection():
        pass


def use_two(pool: Pool) -> None:
    with pool.connection(), pool.connection():
        pass


@pytest.mark.parametrize("keeps", [False, True])
def test_no_interrupt_takes_a_place_away_or_keeps_others_waiting_for_good(
    monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    monkeypatch.setattr(pools, "WAIT_S", 0.0)
    pool, moments = Pool(Line, 2), 0
    for stopped in each_interrupt(lambda: lambda: use(pool)):
        kept: Any = stopped if keeps else None
        del stopped
        assert in_time(lambda: use(pool)), f"one is left beside what the traceback of moment {moments} keeps"
        del kept
        assert in_time(lambda: use_two(pool)), f"all are left behind moment {moments}"
        moments += 1
    assert moments > 20


def test_an_interrupted_wait_for_a_place_leaves_the_places_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "WAIT_S", 0.001)
    pool = Pool(Line, 1)

    def wait() -> None:
        with pytest.raises(StoreUnavailable, match="all 1 connections are in use"):
            use(pool)

    with pool.connection():
        for stopped in each_interrupt(lambda: wait):
            del stopped
    assert in_time(lambda: use(pool))


def test_whoever_waits_gets_the_place_that_is_given_back() -> None:
    pool, had, order = Pool(Line, 1), threading.Event(), list[int]()

    def follow(number: int) -> None:
        with pool.connection():
            order.append(number)
        had.set()

    with pool.connection():
        others = [threading.Thread(target=follow, args=(number,), daemon=True) for number in range(5)]
        for other in others:
            other.start()
        assert not had.wait(0.05)
    for other in others:
        other.join(10)
    assert sorted(order) == [0, 1, 2, 3, 4]
