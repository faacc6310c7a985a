"""Pausing queues."""

from __future__ import annotations

from taskharbor.core.contract import Driver
from taskharbor.core.model import QueueSettings, Status
from taskharbor.testing.helpers import (
    add,
    leased_job,
    nothing_runnable,
    take,
    take_ids,
)
from taskharbor.testing.times import HOUR, MINUTE, NOON, SECOND


class QueueContract:
    """`pause`, `resume` and `queues`."""

    def test_a_paused_queue_gives_no_jobs(self, driver: Driver) -> None:
        add(driver, queue="mail")
        driver.pause("mail")
        assert nothing_runnable(driver, "mail")

    def test_a_resumed_queue_gives_its_jobs_again(self, driver: Driver) -> None:
        job_id = add(driver, queue="mail")
        driver.pause("mail")
        driver.resume("mail")
        assert take_ids(driver, "mail") == [job_id]

    def test_a_pause_holds_for_its_own_queue_only(self, driver: Driver) -> None:
        add(driver, queue="mail", priority=9)
        others = [add(driver, queue="Mail"), add(driver, queue="sms")]
        driver.pause("mail")
        assert take_ids(driver, ["mail", "Mail", "sms"]) == others

    def test_jobs_can_be_enqueued_while_the_queue_is_paused(self, driver: Driver) -> None:
        driver.pause("mail")
        job_id = add(driver, queue="mail")
        assert driver.get(job_id).status is Status.READY
        driver.resume("mail")
        assert take_ids(driver, "mail") == [job_id]

    def test_a_running_job_goes_on_while_its_queue_is_paused(self, driver: Driver) -> None:
        leased = leased_job(driver, queue="mail")
        driver.pause("mail")
        driver.extend_lease(leased.job.id, leased.lease.token, now=NOON + SECOND, lease_for=MINUTE)
        driver.ack(leased.job.id, leased.lease.token, now=NOON + MINUTE)
        assert driver.get(leased.job.id).status is Status.DONE

    def test_a_lapsed_job_of_a_paused_queue_waits_for_the_resume(self, driver: Driver) -> None:
        leased = leased_job(driver, queue="mail", lease_for=MINUTE)
        driver.pause("mail")
        assert nothing_runnable(driver, "mail", now=NOON + HOUR)
        driver.resume("mail")
        assert take(driver, "mail", now=NOON + HOUR).job.id == leased.job.id

    def test_pausing_and_resuming_twice_is_fine(self, driver: Driver) -> None:
        job_id = add(driver)
        for _ in range(2):
            driver.pause("default")
        assert nothing_runnable(driver)
        for _ in range(2):
            driver.resume("default")
        assert take_ids(driver) == [job_id]

    def test_a_queue_that_nobody_paused_can_be_resumed(self, driver: Driver) -> None:
        job_id = add(driver)
        driver.resume("default")
        assert take_ids(driver) == [job_id]

    def test_queues_shows_what_was_set_by_name(self, driver: Driver) -> None:
        assert list(driver.queues()) == []
        driver.pause("sms")
        driver.pause("mail")
        driver.resume("sms")
        assert list(driver.queues()) == [QueueSettings("mail", paused=True), QueueSettings("sms", paused=False)]
