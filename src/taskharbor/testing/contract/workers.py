"""Workers: who is alive."""

from __future__ import annotations

from dataclasses import replace

from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Worker
from taskharbor.core.model import Status
from taskharbor.testing.helpers import leased_job
from taskharbor.testing.times import MINUTE, NOON, SECOND


class WorkerContract:
    """`heartbeat`, `workers` and `deregister`."""

    def test_the_first_heartbeat_registers_a_worker(self, driver: Driver) -> None:
        assert list(driver.workers()) == []
        driver.heartbeat(Worker("worker-1"), now=NOON)
        assert [worker.id for worker in driver.workers()] == ["worker-1"]

    def test_a_worker_is_shown_as_it_described_itself(self, driver: Driver) -> None:
        worker = Worker(
            id="worker-\N{SNOWMAN}",
            hostname="harbor.example",
            pid=4_194_304,
            queues=("mail", "Mail", "sms"),
            slots=16,
            version="1.2.3",
            started_at=NOON,
            meta={"zone": "é", "a": ""},
        )
        driver.heartbeat(worker, now=NOON + SECOND)
        assert list(driver.workers()) == [replace(worker, last_heartbeat=NOON + SECOND)]

    def test_a_later_heartbeat_moves_the_time_and_takes_the_new_description(self, driver: Driver) -> None:
        driver.heartbeat(Worker("worker-1", slots=1), now=NOON)
        driver.heartbeat(Worker("worker-1", slots=8, queues=("mail",)), now=NOON + 10 * SECOND)
        (worker,) = driver.workers()
        assert (worker.slots, worker.queues, worker.last_heartbeat) == (8, ("mail",), NOON + 10 * SECOND)

    def test_a_worker_started_at_its_first_heartbeat_unless_it_says_when(self, driver: Driver) -> None:
        for moment in (NOON, NOON + 10 * SECOND):
            driver.heartbeat(Worker("silent"), now=moment)
            driver.heartbeat(Worker("telling", started_at=NOON - MINUTE), now=moment)
        assert {worker.id: worker.started_at for worker in driver.workers()} == {
            "silent": NOON,
            "telling": NOON - MINUTE,
        }

    def test_workers_are_shown_in_order_of_id(self, driver: Driver) -> None:
        for name in ("b", "a", "B"):
            driver.heartbeat(Worker(name), now=NOON)
        assert [worker.id for worker in driver.workers()] == ["B", "a", "b"]

    def test_a_deregistered_worker_is_gone(self, driver: Driver) -> None:
        for name in ("worker-1", "worker-2"):
            driver.heartbeat(Worker(name), now=NOON)
        driver.deregister("worker-1")
        assert [worker.id for worker in driver.workers()] == ["worker-2"]

    def test_deregistering_an_unknown_worker_is_fine(self, driver: Driver) -> None:
        driver.deregister("nobody")
        driver.heartbeat(Worker("worker-1"), now=NOON)
        driver.deregister("WORKER-1")
        assert len(driver.workers()) == 1

    def test_a_worker_that_deregistered_can_come_back(self, driver: Driver) -> None:
        driver.heartbeat(Worker("worker-1"), now=NOON)
        driver.deregister("worker-1")
        driver.heartbeat(Worker("worker-1"), now=NOON + MINUTE)
        (worker,) = driver.workers()
        assert (worker.started_at, worker.last_heartbeat) == (NOON + MINUTE, NOON + MINUTE)

    def test_a_worker_that_never_sent_a_heartbeat_can_still_work(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.ack(leased.job.id, leased.lease.token, now=NOON)
        assert driver.get(leased.job.id).status is Status.DONE
        assert list(driver.workers()) == []
