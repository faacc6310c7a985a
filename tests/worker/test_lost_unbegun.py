"""A lease that ends before its handler has begun here: somebody else has the job, and nothing is done twice."""

from __future__ import annotations

import logging
import threading

import pytest
from tests.waiting import until
from tests.worker.conftest import Start
from tests.worker.crew import finished, pause

from taskharbor import Harbor
from taskharbor.core.contract import Driver
from taskharbor.core.model import Settlement


def test_what_others_have_done_before_it_began_here_is_one_quiet_line_and_counted_apart(
    harbor: Harbor, start: Start, driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """As for a worker that was frozen with jobs fetched ahead, and finds when it goes on that they are over."""
    caplog.set_level(logging.INFO, "taskharbor")
    door, blocked = threading.Event(), threading.Event()

    @harbor.task
    def quick(number: int) -> None: ...

    @harbor.task
    def block() -> None:
        blocked.set()
        pause(door)

    quick.enqueue_many({"number": number} for number in range(300))
    blocker = block.enqueue()
    behind = [quick.enqueue(number) for number in range(20)]
    worker = start(concurrency=1, lease_s=600)
    assert blocked.wait(20)
    lane = worker._lanes[0]
    waiting = list(lane.ready)
    assert waiting, "nothing was fetched ahead: the test proves nothing"
    driver.settle([Settlement.ack(held.job.id, held.token) for held in waiting])
    for held in waiting:
        held.deadline = 0.0  # the clock went on while nothing here did
    door.set()
    finished(harbor, blocker, *behind)
    until(lambda: worker.tally.unbegun == len(waiting), "all of them are noticed")
    worker.stop()
    assert worker.tally.lost == 0
    said = [record for record in caplog.records if "lease" in record.getMessage()]
    assert {record.levelno for record in said} == {logging.INFO}
    assert len(said) < len(waiting)
