"""Closing a driver, and the clock of the store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import DriverClosed
from taskharbor.core.fleet import Worker
from taskharbor.core.model import Extension, RetryUpdate, Schedule, Settlement
from taskharbor.core.tokens import new_token
from taskharbor.testing.helpers import add, leased_job, new_job
from taskharbor.testing.times import NOON

OPERATIONS: dict[str, Callable[[Driver], Any]] = {
    "enqueue": lambda driver: driver.enqueue([new_job()], NOON),
    "enqueue nothing": lambda driver: driver.enqueue([], NOON),
    "reserve": lambda driver: driver.reserve("default", now=NOON),
    "reserve from nowhere": lambda driver: driver.reserve([], now=NOON),
    "extend_lease": lambda driver: driver.extend_lease("a", "b", now=NOON),
    "extend": lambda driver: driver.extend([Extension("a", "b")], now=NOON),
    "ack": lambda driver: driver.ack("a", "b", now=NOON),
    "retry": lambda driver: driver.retry("a", "b", now=NOON, update=RetryUpdate()),
    "fail": lambda driver: driver.fail("a", "b", now=NOON, reason="boom"),
    "release": lambda driver: driver.release("a", "b", now=NOON),
    "settle": lambda driver: driver.settle([Settlement.ack("a", "b")], now=NOON),
    "settle nothing": lambda driver: driver.settle([], now=NOON),
    "settle_and_reserve": lambda driver: driver.settle_and_reserve([], "default", now=NOON),
    "listen": lambda driver: driver.listen("default"),
    "now": lambda driver: driver.now(),
    "migrate": lambda driver: driver.migrate(),
    "get": lambda driver: driver.get("a"),
    "list": lambda driver: driver.list(),
    "counts": lambda driver: driver.counts(),
    "census": lambda driver: driver.census(NOON),
    "count": lambda driver: driver.count(),
    "attempts": lambda driver: driver.attempts("a"),
    "history": lambda driver: driver.history(),
    "latest": lambda driver: driver.latest(),
    "cancel": lambda driver: driver.cancel("a", now=NOON),
    "redrive": lambda driver: driver.redrive(now=NOON),
    "purge": lambda driver: driver.purge(),
    "pause": lambda driver: driver.pause("default"),
    "resume": lambda driver: driver.resume("default"),
    "queues": lambda driver: driver.queues(),
    "heartbeat": lambda driver: driver.heartbeat(Worker("w"), now=NOON),
    "workers": lambda driver: driver.workers(),
    "deregister": lambda driver: driver.deregister("w"),
    "elect": lambda driver: driver.elect("leader", "ann", NOON),
    "resign": lambda driver: driver.resign("leader", "ann", 1),
    "leaders": lambda driver: driver.leaders(),
    "recover": lambda driver: driver.recover(NOON),
    "prune": lambda driver: driver.prune(NOON),
    "put_schedule": lambda driver: driver.put_schedule(Schedule("s", "@daily", "t"), now=NOON),
    "schedules": lambda driver: driver.schedules(),
    "get_schedule": lambda driver: driver.get_schedule("s"),
    "pause_schedule": lambda driver: driver.pause_schedule("s", paused=True, now=NOON),
    "remove_schedule": lambda driver: driver.remove_schedule("s"),
    "advance_schedule": lambda driver: driver.advance_schedule("s", expected=None, next_run_at=None, now=NOON),
    "add_token": lambda driver: driver.add_token(new_token("ci", "acme", "viewer", NOON)[0]),
    "tokens": lambda driver: driver.tokens(),
    "get_tokens": lambda driver: driver.get_tokens(["a"]),
    "revoke_token": lambda driver: driver.revoke_token("a", now=NOON),
}


class ClosingContract:
    """`close`, `migrate` and `now`."""

    @pytest.mark.parametrize("operation", sorted(OPERATIONS))
    def test_every_operation_of_a_closed_driver_is_refused(self, driver: Driver, operation: str) -> None:
        driver.close()
        with pytest.raises(DriverClosed):
            OPERATIONS[operation](driver)

    def test_a_driver_that_was_in_use_is_refused_after_close_too(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.close()
        with pytest.raises(DriverClosed):
            driver.ack(leased.job.id, leased.lease.token, now=NOON)

    def test_closing_twice_is_fine(self, driver: Driver) -> None:
        driver.close()
        driver.close()

    def test_migrating_again_keeps_everything(self, driver: Driver) -> None:
        job = driver.get(add(driver))
        driver.migrate()
        driver.migrate()
        assert driver.get(job.id) == job

    def test_the_clock_of_the_store_is_in_utc_and_does_not_run_backwards(self, driver: Driver) -> None:
        moments = [driver.now() for _ in range(10)]
        assert {moment.utcoffset() for moment in moments} == {timedelta(0)}
        assert moments == sorted(moments)

    def test_a_call_without_now_goes_by_the_clock_of_the_store(self, driver: Driver) -> None:
        before = driver.now()
        (answer,) = driver.enqueue([new_job()])
        (leased,) = driver.reserve("default")
        after = driver.now()
        job = driver.get(answer.id)
        assert job.claimed_at is not None
        assert before <= job.created_at <= job.claimed_at <= after
        assert leased.lease.expires_at == job.claimed_at + timedelta(seconds=30)
