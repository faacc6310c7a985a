"""What cancel promises: a waiting job never runs, and a running one ends cancelled unless it succeeds first."""

from __future__ import annotations

from typing import Final

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import JobNotFound, JobNotInflight, LeaseMismatch
from taskharbor.core.limits import Limits
from taskharbor.core.model import Lease, LeasedJob, Outcome, Status
from taskharbor.testing.helpers import (
    add,
    add_all,
    everything,
    failure,
    finished_job,
    leased_job,
    new_job,
    nothing_runnable,
    settle_one,
    settlement,
    take,
    take_all,
    take_ids,
)
from taskharbor.testing.times import DAY, HOUR, MINUTE, NOON, SECOND

LATER: Final = NOON + 10 * SECOND
ANOTHER: Final = "somebody else's"
STOPS: Final = ["retry", "fail", "release", "snooze", "cancel"]
"""Every way to settle but success."""


class CancelContract:
    """Cancel in every state."""

    def test_a_ready_job_is_cancelled_at_once(self, driver: Driver) -> None:
        job_id = add(driver)
        assert driver.cancel(job_id, now=LATER) is Status.CANCELLED
        job = driver.get(job_id)
        assert (job.status, job.completed_at, job.updated_at) == (Status.CANCELLED, LATER, LATER)
        assert (job.cancel_requested_at, job.attempts, job.deliveries, job.started_at) == (LATER, 0, 0, None)
        assert nothing_runnable(driver, now=NOON + 300 * DAY)

    def test_a_scheduled_job_is_cancelled_at_once(self, driver: Driver) -> None:
        job_id = add(driver, run_at=NOON + DAY)
        assert driver.cancel(job_id, now=NOON) is Status.CANCELLED
        assert nothing_runnable(driver, now=NOON + 2 * DAY)

    def test_a_job_that_waits_for_its_retry_is_cancelled_at_once(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=failure(2, error="boom", run_at=NOON + HOUR))
        assert driver.cancel(leased.job.id, now=LATER) is Status.CANCELLED
        job = driver.get(leased.job.id)
        assert (job.status, job.attempts, job.last_error, job.deliveries) == (Status.CANCELLED, 2, "boom", 1)
        assert nothing_runnable(driver, now=NOON + DAY)

    def test_a_cancel_of_a_waiting_job_is_no_attempt_of_it(self, driver: Driver) -> None:
        leased = leased_job(driver)
        settle_one(driver, settlement("retry", leased))
        driver.cancel(leased.job.id, now=LATER)
        assert [attempt.outcome for attempt in driver.attempts(leased.job.id)] == [Outcome.RETRIED]

    def test_cancelling_one_job_leaves_the_others_alone(self, driver: Driver) -> None:
        ids = add_all(driver, [new_job() for _ in range(3)])
        driver.cancel(ids[1], now=NOON)
        assert take_ids(driver) == [ids[0], ids[2]]

    @pytest.mark.parametrize("status", [Status.DONE, Status.DLQ, Status.CANCELLED, Status.EXPIRED])
    def test_a_job_that_has_ended_stays_as_it_is(self, driver: Driver, status: Status) -> None:
        job_id = finished_job(driver, status)
        before = everything(driver)
        assert driver.cancel(job_id, now=NOON + HOUR) is status
        assert everything(driver) == before

    def test_a_job_that_does_not_exist_cannot_be_cancelled(self, driver: Driver) -> None:
        add(driver, id="There")
        for absent in ("there", "There ", "nowhere"):
            with pytest.raises(JobNotFound):
                driver.cancel(absent, now=NOON)
        assert driver.get("There").status is Status.READY

    # --- While it runs -----------------------------------------------------------------------------------

    def test_an_inflight_job_is_asked_to_stop_and_keeps_its_lease(self, driver: Driver) -> None:
        leased = leased_job(driver)
        assert driver.cancel(leased.job.id, now=LATER) is Status.INFLIGHT
        job = driver.get(leased.job.id)
        assert (job.status, job.cancel_requested_at, job.completed_at) == (Status.INFLIGHT, LATER, None)
        assert (job.lease_token, job.lease_expires_at) == (leased.lease.token, leased.lease.expires_at)
        assert nothing_runnable(driver, now=LATER)

    def test_the_worker_hears_of_the_cancel_when_it_extends(self, driver: Driver) -> None:
        leased = leased_job(driver)
        id, token = leased.job.id, leased.lease.token
        assert driver.extend_lease(id, token, now=NOON).cancel_requested is False
        driver.cancel(id, now=NOON)
        assert driver.extend_lease(id, token, now=LATER, lease_for=MINUTE) == Lease(
            token, LATER + MINUTE, "worker-1", cancel_requested=True
        )

    def test_asking_again_keeps_the_first_moment(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.cancel(leased.job.id, now=NOON)
        assert driver.cancel(leased.job.id, now=LATER) is Status.INFLIGHT
        assert driver.get(leased.job.id).cancel_requested_at == NOON

    def test_a_job_that_succeeds_in_spite_of_the_cancel_is_done(self, driver: Driver) -> None:
        leased = _asked_to_stop(driver)
        driver.ack(leased.job.id, leased.lease.token, now=LATER, result=b"made it")
        job = driver.get(leased.job.id)
        assert (job.status, job.result) == (Status.DONE, b"made it")

    @pytest.mark.parametrize("kind", STOPS)
    def test_a_job_that_was_asked_to_stop_ends_cancelled_however_it_stops(self, driver: Driver, kind: str) -> None:
        leased = _asked_to_stop(driver)
        assert settle_one(driver, settlement(kind, leased), now=LATER) is Status.CANCELLED
        job = driver.get(leased.job.id)
        assert (job.status, job.completed_at, job.cancel_requested_at) == (Status.CANCELLED, LATER, NOON)
        assert (job.lease_token, job.lease_owner, job.lease_expires_at) == (None, None, None)
        assert nothing_runnable(driver, now=NOON + 300 * DAY)

    @pytest.mark.parametrize("kind", ["retry", "fail"])
    def test_a_failure_after_a_cancel_was_asked_for_is_no_recorded_failure(self, driver: Driver, kind: str) -> None:
        leased = _asked_to_stop(driver)
        settle_one(driver, settlement(kind, leased), now=LATER)
        job = driver.get(leased.job.id)
        assert (job.attempts, job.last_error, job.failed_at) == (0, "", None)
        assert (job.dlq_reason, job.dlq_code, job.dlq_failed_at) == (None, None, None)
        [attempt] = driver.attempts(leased.job.id)
        # What went wrong is still told, in the record of the attempt.
        assert (attempt.outcome, attempt.error) == (
            Outcome.CANCELLED,
            {"retry": "boom", "fail": "broken for good"}[kind],
        )

    def test_the_methods_named_after_the_settles_cancel_too(self, driver: Driver) -> None:
        retried, failed, released = (_asked_to_stop(driver) for _ in range(3))
        driver.retry(retried.job.id, retried.lease.token, now=LATER, update=failure())
        driver.fail(failed.job.id, failed.lease.token, now=LATER, reason="boom")
        driver.release(released.job.id, released.lease.token, now=LATER)
        assert {driver.get(x.job.id).status for x in (retried, failed, released)} == {Status.CANCELLED}

    def test_a_lease_that_ends_after_a_cancel_was_asked_for_ends_the_job(self, driver: Driver) -> None:
        leased = _asked_to_stop(driver)
        assert nothing_runnable(driver, now=NOON + MINUTE)
        job = driver.get(leased.job.id)
        assert (job.status, job.completed_at) == (Status.CANCELLED, NOON + MINUTE)
        assert (job.lease_token, job.lease_owner, job.lease_expires_at) == (None, None, None)

    def test_a_cancel_after_the_lease_has_ended_still_counts(self, driver: Driver) -> None:
        leased = leased_job(driver, lease_for=MINUTE)
        driver.cancel(leased.job.id, now=NOON + HOUR)
        assert nothing_runnable(driver, now=NOON + HOUR)
        assert driver.get(leased.job.id).status is Status.CANCELLED

    def test_recovery_cancels_what_was_asked_to_stop_and_fell_silent(self, driver: Driver) -> None:
        leased = _asked_to_stop(driver)
        driver.recover(NOON + MINUTE)
        assert driver.get(leased.job.id).status is Status.CANCELLED

    def test_a_cancel_goes_before_a_crash_loop(self, driver: Driver) -> None:
        job_id = add(driver, max_attempts=1)
        now = NOON
        for _ in range(1 + Limits().crash_allowance):
            take(driver, now=now, lease_for=MINUTE)
            now += MINUTE
        driver.cancel(job_id, now=now)
        assert nothing_runnable(driver, now=now)
        assert driver.get(job_id).status is Status.CANCELLED

    # --- Fencing and batches -----------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", [*STOPS, "ack"])
    def test_another_token_cannot_end_a_job_that_was_asked_to_stop(self, driver: Driver, kind: str) -> None:
        leased = _asked_to_stop(driver)
        before = everything(driver)
        with pytest.raises(LeaseMismatch):
            settle_one(driver, settlement(kind, leased, token=ANOTHER), now=LATER)
        assert everything(driver) == before

    @pytest.mark.parametrize("kind", ["fail", "cancel"])
    def test_the_same_end_told_again_after_a_cancel_succeeds_and_changes_nothing(
        self, driver: Driver, kind: str
    ) -> None:
        leased = _asked_to_stop(driver)
        settle_one(driver, settlement(kind, leased), now=LATER)
        before = everything(driver)
        assert settle_one(driver, settlement(kind, leased), now=NOON + DAY) is Status.CANCELLED
        with pytest.raises(JobNotInflight):
            settle_one(driver, settlement(kind, leased, token=ANOTHER), now=LATER)
        assert everything(driver) == before

    def test_in_one_batch_each_job_follows_its_own_cancel(self, driver: Driver) -> None:
        add_all(driver, [new_job() for _ in range(12)])
        leases = take_all(driver)
        kinds = ["ack", *STOPS]
        for leased in leases[:6]:
            driver.cancel(leased.job.id, now=NOON)
        order = [item for pair in zip(leases[:6], leases[6:], strict=True) for item in pair]
        items = [settlement(kinds[number // 2], leased) for number, leased in enumerate(order)]
        results = driver.settle(items, now=LATER)
        ready, cancelled = Status.READY, Status.CANCELLED
        assert results[::2] == [Status.DONE, *[cancelled] * 5]
        assert results[1::2] == [Status.DONE, ready, Status.DLQ, ready, ready, cancelled]

    def test_a_cancelled_job_is_not_reserved_in_the_call_that_gave_it_back(self, driver: Driver) -> None:
        leased = _asked_to_stop(driver)
        other = add(driver)
        results, following = driver.settle_and_reserve([settlement("release", leased)], "default", now=LATER, limit=9)
        assert results == [Status.CANCELLED]
        assert [item.job.id for item in following] == [other]


def _asked_to_stop(driver: Driver) -> LeasedJob:
    """A job leased for a minute from NOON whose cancel was asked for at NOON."""
    leased = leased_job(driver, lease_for=MINUTE)
    assert driver.cancel(leased.job.id, now=NOON) is Status.INFLIGHT
    return leased
