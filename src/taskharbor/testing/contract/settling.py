"""What a settle promises: ack, retry, fail, release, snooze and cancel."""

from __future__ import annotations

from typing import Any, Final

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import PayloadTooLarge
from taskharbor.core.limits import Limits
from taskharbor.core.model import Extension, Job, Progress, Reason, RetryUpdate, Settlement, Status
from taskharbor.testing.helpers import (
    add,
    failure,
    leased_job,
    nothing_runnable,
    settle_one,
    settlement,
    take,
)
from taskharbor.testing.times import DAY, HOUR, MICROSECOND, MINUTE, NOON, SECOND

LATER: Final = NOON + 10 * SECOND
AFTER: Final = {
    "ack": Status.DONE,
    "retry": Status.READY,
    "fail": Status.DLQ,
    "release": Status.READY,
    "snooze": Status.READY,
    "cancel": Status.CANCELLED,
}


class SettlingContract:
    """The ways to end a lease."""

    @pytest.mark.parametrize("kind", AFTER)
    def test_a_settle_ends_the_lease_and_says_where_the_job_stands(self, driver: Driver, kind: str) -> None:
        leased = leased_job(driver)
        assert settle_one(driver, settlement(kind, leased), now=LATER) is AFTER[kind]
        job = driver.get(leased.job.id)
        assert (job.status, job.updated_at) == (AFTER[kind], LATER)
        assert (job.lease_token, job.lease_owner, job.lease_expires_at) == (None, None, None)

    @pytest.mark.parametrize("kind", AFTER)
    def test_a_settle_leaves_everything_else_of_the_job_alone(self, driver: Driver, kind: str) -> None:
        fields: dict[str, Any] = {
            "meta": {"a": "ü"},
            "priority": 3,
            "timeout": MINUTE,
            "max_attempts": 9,
            "idempotency_key": "k",
        }
        leased = leased_job(driver, payload=bytes(range(256)), expires_at=NOON + DAY, **fields)
        settle_one(driver, settlement(kind, leased), now=LATER)
        assert _unsettled(driver.get(leased.job.id)) == _unsettled(leased.job)

    @pytest.mark.parametrize("kind", AFTER)
    def test_a_settle_touches_no_other_job(self, driver: Driver, kind: str) -> None:
        leased = leased_job(driver)
        ready, other = add(driver), leased_job(driver, queue="other")
        settle_one(driver, settlement(kind, leased), now=LATER)
        assert driver.get(ready).status is Status.READY
        assert driver.get(other.job.id) == other.job

    # --- ack ---------------------------------------------------------------------------------------------

    def test_an_acked_job_is_done_for_good(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.ack(leased.job.id, leased.lease.token, now=LATER)
        job = driver.get(leased.job.id)
        assert (job.status, job.completed_at, job.result) == (Status.DONE, LATER, None)
        assert (job.attempts, job.deliveries, job.claimed_at, job.last_error) == (0, 1, NOON, "")
        assert nothing_runnable(driver, now=NOON + 300 * DAY)

    @pytest.mark.parametrize("result", [b"", b"{}", bytes(range(256)), b"\xff" * 100_000])
    def test_a_result_is_kept_byte_for_byte(self, driver: Driver, result: bytes) -> None:
        leased = leased_job(driver)
        driver.ack(leased.job.id, leased.lease.token, now=LATER, result=result)
        assert driver.get(leased.job.id).result == result

    def test_a_result_over_the_limit_is_refused_and_the_lease_goes_on(self, driver: Driver) -> None:
        leased = leased_job(driver)
        with pytest.raises(PayloadTooLarge):
            driver.ack(leased.job.id, leased.lease.token, now=LATER, result=bytes(Limits().max_payload_bytes + 1))
        assert driver.get(leased.job.id) == leased.job

    def test_a_settle_may_say_when_the_handler_started(self, driver: Driver) -> None:
        leased = leased_job(driver)
        settle_one(driver, Settlement.ack(leased.job.id, leased.lease.token, started_at=NOON + SECOND), now=LATER)
        assert driver.get(leased.job.id).started_at == NOON + SECOND

    def test_the_last_progress_stays_with_a_finished_job(self, driver: Driver) -> None:
        leased = leased_job(driver)
        progress = Progress(9.5, None, "almost")
        driver.extend([Extension(leased.job.id, leased.lease.token, progress=progress)], now=NOON)
        driver.ack(leased.job.id, leased.lease.token, now=LATER)
        assert driver.get(leased.job.id).progress == progress

    # --- retry -------------------------------------------------------------------------------------------

    def test_a_retried_job_is_ready_at_the_given_time_with_the_failure_on_record(self, driver: Driver) -> None:
        leased = leased_job(driver)
        failed_at, run_at = LATER - MICROSECOND, NOON + HOUR + MICROSECOND
        update = RetryUpdate(run_at, 3, "ValueError: 'ü' 🚢", failed_at)
        driver.retry(leased.job.id, leased.lease.token, now=LATER, update=update)
        job = driver.get(leased.job.id)
        assert (job.status, job.run_at, job.due_at) == (Status.READY, run_at, run_at)
        assert (job.attempts, job.last_error, job.failed_at) == (3, "ValueError: 'ü' 🚢", failed_at)
        assert (job.deliveries, job.forgiven) == (1, 0)
        assert (job.claimed_at, job.started_at, job.completed_at) == (None, None, None)
        assert nothing_runnable(driver, now=run_at - MICROSECOND)
        assert take(driver, now=run_at).job.id == leased.job.id

    def test_a_retry_without_a_time_is_runnable_at_once(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.retry(leased.job.id, leased.lease.token, now=LATER, update=failure(1))
        job = driver.get(leased.job.id)
        assert (job.run_at, job.due_at) == (None, LATER)
        assert take(driver, now=LATER).job.id == leased.job.id

    def test_the_next_delivery_of_a_retried_job_knows_what_happened(self, driver: Driver) -> None:
        first = leased_job(driver)
        driver.retry(first.job.id, first.lease.token, now=NOON, update=failure(1, error="boom"))
        second = take(driver, now=LATER)
        assert (second.job.attempts, second.job.deliveries, second.job.last_error) == (1, 2, "boom")
        assert second.lease.token != first.lease.token
        driver.ack(second.job.id, second.lease.token, now=LATER)
        job = driver.get(second.job.id)
        assert (job.attempts, job.last_error, job.failed_at) == (1, "boom", NOON)

    def test_the_driver_stores_the_count_of_attempts_and_does_not_judge_it(self, driver: Driver) -> None:
        leased = leased_job(driver, max_attempts=1)
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=failure(7))
        assert (driver.get(leased.job.id).attempts, driver.get(leased.job.id).status) == (7, Status.READY)

    def test_progress_begins_anew_with_the_next_delivery(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.extend([Extension(leased.job.id, leased.lease.token, progress=Progress(1, 2))], now=NOON)
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=failure())
        assert take(driver).job.progress is None

    # --- fail --------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("code", [*(reason.value for reason in Reason), "house_rule"])
    def test_a_failed_job_is_in_the_dlq_with_its_reason_and_code(self, driver: Driver, code: str) -> None:
        leased = leased_job(driver)
        driver.fail(leased.job.id, leased.lease.token, now=LATER, reason="no such ship 🚢", code=code)
        job = driver.get(leased.job.id)
        assert (job.status, job.dlq_reason, job.dlq_code) == (Status.DLQ, "no such ship 🚢", code)
        assert (job.dlq_failed_at, job.failed_at, job.completed_at) == (LATER, LATER, LATER)
        assert (job.last_error, job.attempts, job.deliveries) == ("no such ship 🚢", 1, 1)
        assert nothing_runnable(driver, now=NOON + 300 * DAY)

    def test_a_failure_is_unrecoverable_unless_said_otherwise(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.fail(leased.job.id, leased.lease.token, now=LATER, reason="x")
        assert driver.get(leased.job.id).dlq_code == "unrecoverable"

    def test_a_fail_after_retries_counts_on_from_them(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=failure(4))
        leased = take(driver)
        driver.fail(leased.job.id, leased.lease.token, now=NOON, reason="x", code="max_attempts")
        assert (driver.get(leased.job.id).attempts, driver.get(leased.job.id).deliveries) == (5, 2)

    # --- release, snooze, cancel -------------------------------------------------------------------------

    def test_a_released_job_is_runnable_at_once_and_burns_no_attempt(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.release(leased.job.id, leased.lease.token, now=LATER)
        job = driver.get(leased.job.id)
        assert (job.status, job.attempts, job.last_error, job.failed_at) == (Status.READY, 0, "", None)
        assert (job.deliveries, job.forgiven, job.due_at, job.claimed_at) == (1, 1, NOON, None)
        again = take(driver, now=LATER)
        assert (again.job.id, again.job.deliveries) == (leased.job.id, 2)
        assert again.lease.token != leased.lease.token

    def test_a_release_keeps_the_record_of_earlier_failures_and_the_time_of_the_schedule(self, driver: Driver) -> None:
        leased = leased_job(driver)
        update = failure(2, run_at=NOON + SECOND, error="boom")
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=update)
        leased = take(driver, now=LATER)
        driver.release(leased.job.id, leased.lease.token, now=LATER)
        job = driver.get(leased.job.id)
        assert (job.attempts, job.last_error, job.failed_at) == (2, "boom", NOON)
        assert (job.run_at, job.due_at) == (NOON + SECOND, NOON + SECOND)

    def test_a_snoozed_job_sleeps_until_its_time_and_burns_no_attempt(self, driver: Driver) -> None:
        leased = leased_job(driver)
        settle_one(driver, Settlement.snooze(leased.job.id, leased.lease.token, run_at=NOON + HOUR), now=LATER)
        job = driver.get(leased.job.id)
        assert (job.status, job.attempts, job.last_error, job.failed_at) == (Status.READY, 0, "", None)
        assert (job.run_at, job.due_at, job.deliveries, job.forgiven) == (NOON + HOUR, NOON + HOUR, 1, 1)
        assert nothing_runnable(driver, now=NOON + HOUR - MICROSECOND)
        assert take(driver, now=NOON + HOUR).job.id == leased.job.id

    def test_a_handler_that_cancels_ends_its_job_without_a_failure(self, driver: Driver) -> None:
        leased = leased_job(driver)
        settle_one(driver, Settlement.cancel(leased.job.id, leased.lease.token, reason="sold out"), now=LATER)
        job = driver.get(leased.job.id)
        assert (job.status, job.completed_at, job.attempts) == (Status.CANCELLED, LATER, 0)
        assert (job.dlq_reason, job.dlq_code, job.failed_at) == (None, None, None)
        assert [attempt.error for attempt in driver.attempts(job.id)] == ["sold out"]
        assert nothing_runnable(driver, now=NOON + 300 * DAY)


def _unsettled(job: Job) -> list[object]:
    """What no settle may change."""
    names = "id type queue tenant_id payload meta priority expires_at timeout max_attempts deliveries created_at"
    return [getattr(job, name) for name in (*names.split(), "idempotency_key", "dedupe_scope", "cancel_requested_at")]
