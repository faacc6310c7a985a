"""What `expires_at` promises: a job past it is never started; one that already runs may finish."""

from __future__ import annotations

from datetime import timedelta

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import AlreadyExpired, InvalidInput
from taskharbor.core.limits import SWEEP_BATCH
from taskharbor.core.model import Status
from taskharbor.testing.helpers import (
    add,
    add_all,
    add_keyed,
    everything,
    failure,
    leased_job,
    new_job,
    nothing_runnable,
    settle_one,
    settlement,
    take,
    take_all,
    take_ids,
)
from taskharbor.testing.times import DAY, HOUR, MICROSECOND, MINUTE, NOON, SECOND


class ExpiryContract:
    """Jobs that are worth nothing after a while."""

    @pytest.mark.parametrize("past", [timedelta(0), MICROSECOND, DAY])
    def test_an_already_expired_job_is_refused_and_its_batch_with_it(self, driver: Driver, past: timedelta) -> None:
        with pytest.raises(AlreadyExpired) as caught:
            driver.enqueue([new_job(idempotency_key="k"), new_job(expires_at=NOON - past)], NOON)
        assert isinstance(caught.value, InvalidInput)
        assert everything(driver) == {}
        assert add_keyed(driver, "k").existed is False

    def test_a_job_runs_until_just_before_it_expires(self, driver: Driver) -> None:
        job_id = add(driver, expires_at=NOON + HOUR)
        assert take(driver, now=NOON + HOUR - MICROSECOND).job.id == job_id

    @pytest.mark.parametrize("late", [timedelta(0), MICROSECOND, DAY])
    def test_a_job_is_never_started_from_the_moment_it_expires(self, driver: Driver, late: timedelta) -> None:
        job_id = add(driver, expires_at=NOON + HOUR)
        now = NOON + HOUR + late
        assert nothing_runnable(driver, now=now)
        job = driver.get(job_id)
        assert (job.status, job.completed_at, job.updated_at) == (Status.EXPIRED, now, now)
        assert (job.attempts, job.deliveries, job.started_at) == (0, 0, None)
        assert list(driver.attempts(job_id)) == []

    def test_an_expired_job_stays_expired(self, driver: Driver) -> None:
        add(driver, expires_at=NOON + SECOND)
        assert nothing_runnable(driver, now=NOON + SECOND)
        before = everything(driver)
        assert nothing_runnable(driver, now=NOON + DAY)
        driver.recover(NOON + DAY)
        # Not even for a caller whose clock is behind.
        assert nothing_runnable(driver, now=NOON)
        assert everything(driver) == before

    def test_a_scheduled_job_may_expire_before_its_time_comes(self, driver: Driver) -> None:
        job_id = add(driver, run_at=NOON + DAY, expires_at=NOON + HOUR)
        driver.recover(NOON + HOUR)
        assert driver.get(job_id).status is Status.EXPIRED
        assert nothing_runnable(driver, now=NOON + 2 * DAY)

    def test_recovery_expires_jobs_that_nobody_asks_for(self, driver: Driver) -> None:
        job_id = add(driver, queue="forgotten", expires_at=NOON + HOUR)
        assert driver.recover(NOON + HOUR - MICROSECOND).jobs_expired == 0
        assert driver.recover(NOON + HOUR).jobs_expired == 1
        assert driver.get(job_id).status is Status.EXPIRED
        assert driver.recover(NOON + HOUR).jobs_expired == 0

    # --- Neighbours --------------------------------------------------------------------------------------

    def test_expired_jobs_do_not_hide_the_live_ones_behind_them(self, driver: Driver) -> None:
        add_all(driver, [new_job(priority=9, expires_at=NOON + MINUTE) for _ in range(20)])
        live = add(driver, priority=-1)
        never, late = add(driver), add(driver, expires_at=NOON + DAY)
        assert take_ids(driver, now=NOON + HOUR) == [never, late, live]
        assert driver.counts()["expired"] == 20

    def test_however_many_jobs_expire_at_once_none_is_started(self, driver: Driver) -> None:
        expiring = SWEEP_BATCH + 50
        add_all(driver, [new_job(priority=9, expires_at=NOON + MINUTE) for _ in range(expiring)])
        live = add(driver)
        assert take_ids(driver, now=NOON + HOUR) == [live]
        assert nothing_runnable(driver, now=NOON + HOUR)
        assert driver.counts()["expired"] == expiring

    def test_jobs_of_other_types_expire_too(self, driver: Driver) -> None:
        job_id = add(driver, type="rare", expires_at=NOON + MINUTE)
        assert driver.reserve("default", now=NOON + HOUR, types=["common"]) == []
        assert driver.reserve("default", now=NOON + HOUR, types=["rare"]) == []
        assert driver.get(job_id).status is Status.EXPIRED

    # --- Jobs that have started --------------------------------------------------------------------------

    def test_a_job_that_runs_past_its_expiry_may_finish(self, driver: Driver) -> None:
        leased = leased_job(driver, lease_for=HOUR, expires_at=NOON + MINUTE)
        assert nothing_runnable(driver, now=NOON + 2 * MINUTE)
        driver.recover(NOON + 2 * MINUTE)
        driver.extend_lease(leased.job.id, leased.lease.token, now=NOON + 2 * MINUTE, lease_for=HOUR)
        driver.ack(leased.job.id, leased.lease.token, now=NOON + 3 * MINUTE)
        assert driver.get(leased.job.id).status is Status.DONE

    @pytest.mark.parametrize("kind", ["retry", "release", "snooze"])
    def test_a_job_that_goes_back_past_its_expiry_is_not_started_again(self, driver: Driver, kind: str) -> None:
        leased = leased_job(driver, lease_for=HOUR, expires_at=NOON + MINUTE)
        assert settle_one(driver, settlement(kind, leased), now=NOON + 2 * MINUTE) is Status.READY
        assert nothing_runnable(driver, now=NOON + 2 * MINUTE)
        job = driver.get(leased.job.id)
        assert (job.status, job.deliveries) == (Status.EXPIRED, 1)

    def test_a_job_given_back_in_a_fused_call_past_its_expiry_is_not_started_again(self, driver: Driver) -> None:
        leased = leased_job(driver, lease_for=HOUR, expires_at=NOON + MINUTE)
        items = [settlement("release", leased)]
        assert driver.settle_and_reserve(items, "default", now=NOON + 2 * MINUTE) == ([Status.READY], [])
        assert driver.get(leased.job.id).status is Status.EXPIRED

    def test_a_job_whose_worker_fell_silent_is_not_started_again_past_its_expiry(self, driver: Driver) -> None:
        leased = leased_job(driver, lease_for=MINUTE, expires_at=NOON + HOUR)
        assert nothing_runnable(driver, now=NOON + HOUR)
        job = driver.get(leased.job.id)
        assert (job.status, job.deliveries) == (Status.EXPIRED, 1)

    def test_an_expired_job_keeps_the_record_of_its_earlier_failures(self, driver: Driver) -> None:
        leased = leased_job(driver, expires_at=NOON + HOUR)
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=failure(2, error="boom"))
        assert nothing_runnable(driver, now=NOON + HOUR)
        job = driver.get(leased.job.id)
        assert (job.status, job.attempts, job.last_error, job.failed_at) == (Status.EXPIRED, 2, "boom", NOON)

    def test_a_job_in_the_dlq_does_not_expire_there(self, driver: Driver) -> None:
        leased = leased_job(driver, expires_at=NOON + MINUTE)
        driver.fail(leased.job.id, leased.lease.token, now=NOON, reason="boom")
        driver.recover(NOON + HOUR)
        assert nothing_runnable(driver, now=NOON + HOUR)
        assert driver.get(leased.job.id).status is Status.DLQ

    def test_a_job_redriven_past_its_expiry_is_not_started(self, driver: Driver) -> None:
        leased = leased_job(driver, expires_at=NOON + MINUTE)
        driver.fail(leased.job.id, leased.lease.token, now=NOON, reason="boom")
        driver.redrive(now=NOON + HOUR)
        assert take_all(driver, now=NOON + HOUR) == []
        assert driver.get(leased.job.id).status is Status.EXPIRED
