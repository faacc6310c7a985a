"""A job that brings its workers down ends without any handler: whoever finds its last lease ended says so, once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from tests.hard.crew import STORES, new_store

from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Worker
from taskharbor.core.model import Status
from taskharbor.drivers import open_driver
from taskharbor.testing.helpers import add, take
from taskharbor.testing.times import HOUR, MINUTE, NOON, SECOND


@pytest.fixture(params=["memory", *STORES])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    is_memory = request.param == "memory"
    url = f"memory://{tmp_path.name}" if is_memory else new_store(request, request.param, tmp_path)
    with open_driver(url) as opened:
        opened.migrate()
        yield opened


def never_settled(driver: Driver, job: str, deliveries: int, now: datetime = NOON) -> datetime:
    """The job is delivered so often, and nobody hears of it again. Returns when its last lease ends."""
    for _ in range(deliveries):
        assert take(driver, "mail", now=now, owner="victim").job.id == job
        now += MINUTE
    return now


@pytest.mark.parametrize("who", ["a worker", "the leader", "the leader, of a dead worker"])
def test_the_end_of_a_crash_loop_is_logged_once_with_its_job(
    driver: Driver, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = add(driver, type="killer", queue="mail", tenant_id="acme", max_attempts=2)
    with caplog.at_level(logging.DEBUG, "taskharbor"):
        if who == "the leader, of a dead worker":
            now = never_settled(driver, job, 3)
            driver.heartbeat(Worker("victim"), now=now)
            take(driver, "mail", now=now, lease_for=HOUR, owner="victim")
            now += MINUTE
        else:
            now = never_settled(driver, job, 4)
        assert caplog.records == [], "until then nothing is certain"
        for moment in (now, now + SECOND, now + MINUTE):
            if who == "a worker":
                assert driver.reserve("mail", now=moment) == []
            else:
                driver.recover(moment)
    dead = driver.get(job)
    assert (dead.status, dead.dlq_code) == (Status.DLQ, "crash_loop")
    [line] = caplog.records
    assert line.levelno == logging.ERROR
    assert line.getMessage() == "killer failed for good (crash_loop): 4 deliveries and no end was told"
    said = {name: line.__dict__[name] for name in ("job", "type", "queue", "tenant", "attempt")}
    assert said == {"job": job, "type": "killer", "queue": "mail", "tenant": "acme", "attempt": 1}


def test_a_lease_that_lapses_before_that_is_no_end(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    job = add(driver, queue="mail", max_attempts=2)
    with caplog.at_level(logging.ERROR, "taskharbor"):
        now = never_settled(driver, job, 3)
        driver.cancel(take(driver, "mail", now=now).job.id, now=now)
        driver.recover(now + MINUTE)
    assert driver.get(job).status is Status.CANCELLED
    assert caplog.records == []
