"""The attempt log: one row per attempt, written together with the settle."""

from __future__ import annotations

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import JobNotFound, LeaseLost
from taskharbor.core.limits import MAX_ERROR_CHARACTERS
from taskharbor.core.model import Attempt, Extension, Outcome, Reason, Settlement, Status
from taskharbor.testing.helpers import (
    add,
    failure,
    leased_job,
    new_job,
    nothing_runnable,
    settle_one,
    settlement,
    take,
    take_all,
)
from taskharbor.testing.times import HOUR, MINUTE, NOON, SECOND

OUTCOMES = {
    "ack": Outcome.SUCCEEDED,
    "retry": Outcome.RETRIED,
    "fail": Outcome.DEAD,
    "snooze": Outcome.SNOOZED,
    "cancel": Outcome.CANCELLED,
}


class AttemptContract:
    """`attempts(id)`: what every execution of a job came to."""

    @pytest.mark.parametrize("kind", sorted(OUTCOMES))
    def test_every_way_to_settle_leaves_one_attempt_with_its_outcome(self, driver: Driver, kind: str) -> None:
        leased = leased_job(driver)
        settle_one(driver, settlement(kind, leased))
        assert [attempt.outcome for attempt in driver.attempts(leased.job.id)] == [OUTCOMES[kind]]

    def test_an_attempt_says_who_ran_what_and_when(self, driver: Driver) -> None:
        job_id = add(driver, now=NOON, run_at=NOON + SECOND)
        leased = take(driver, now=NOON + 2 * SECOND, owner="worker-7")
        item = Settlement.fail(
            job_id, leased.lease.token, reason="boom", code="bad_payload", started_at=NOON + 3 * SECOND
        )
        settle_one(driver, item, now=NOON + 4 * SECOND)
        assert list(driver.attempts(job_id)) == [
            Attempt(
                job_id=job_id,
                number=1,
                delivery=1,
                outcome=Outcome.DEAD,
                error="boom",
                code="bad_payload",
                worker="worker-7",
                lease_token=leased.lease.token,
                due_at=NOON + SECOND,
                claimed_at=NOON + 2 * SECOND,
                started_at=NOON + 3 * SECOND,
                finished_at=NOON + 4 * SECOND,
            )
        ]

    def test_a_job_that_was_never_run_has_no_attempts(self, driver: Driver) -> None:
        ready, cancelled = add(driver, run_at=NOON + HOUR), add(driver)
        driver.cancel(cancelled, now=NOON)
        assert [list(driver.attempts(job_id)) for job_id in (ready, cancelled)] == [[], []]

    def test_an_expired_job_has_no_attempt(self, driver: Driver) -> None:
        job_id = add(driver, expires_at=NOON + SECOND)
        assert nothing_runnable(driver, now=NOON + SECOND)
        assert list(driver.attempts(job_id)) == []

    def test_the_attempts_of_a_missing_job_are_an_error(self, driver: Driver) -> None:
        with pytest.raises(JobNotFound):
            driver.attempts("nobody")

    def test_attempts_come_oldest_first_and_count_up(self, driver: Driver) -> None:
        leased = leased_job(driver, max_attempts=3)
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=failure(1, error="first"))
        leased = take(driver, now=NOON + SECOND)
        driver.retry(leased.job.id, leased.lease.token, now=NOON + SECOND, update=failure(2, error="second"))
        leased = take(driver, now=NOON + MINUTE)
        driver.ack(leased.job.id, leased.lease.token, now=NOON + MINUTE)
        attempts = driver.attempts(leased.job.id)
        assert [(a.number, a.delivery, a.outcome, a.error) for a in attempts] == [
            (1, 1, Outcome.RETRIED, "first"),
            (2, 2, Outcome.RETRIED, "second"),
            (3, 3, Outcome.SUCCEEDED, ""),
        ]
        assert [a.finished_at for a in attempts] == [NOON, NOON + SECOND, NOON + MINUTE]

    def test_a_snooze_burns_no_attempt_so_the_next_one_has_the_same_number(self, driver: Driver) -> None:
        leased = leased_job(driver)
        settle_one(driver, settlement("snooze", leased))
        again = take(driver, now=NOON + MINUTE)
        driver.ack(again.job.id, again.lease.token, now=NOON + MINUTE)
        assert [(a.number, a.delivery) for a in driver.attempts(again.job.id)] == [(1, 1), (1, 2)]

    def test_a_release_before_the_handler_started_leaves_no_attempt(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.release(leased.job.id, leased.lease.token, now=NOON)
        assert list(driver.attempts(leased.job.id)) == []

    def test_a_release_after_the_handler_started_leaves_an_attempt(self, driver: Driver) -> None:
        leased = leased_job(driver)
        item = Settlement.release(leased.job.id, leased.lease.token, started_at=NOON + SECOND)
        settle_one(driver, item, now=NOON + 2 * SECOND)
        (attempt,) = driver.attempts(leased.job.id)
        assert (attempt.outcome, attempt.number) == (Outcome.RELEASED, 1)
        assert (attempt.started_at, attempt.finished_at) == (NOON + SECOND, NOON + 2 * SECOND)

    def test_a_lease_that_ended_unsettled_leaves_a_lapsed_attempt(self, driver: Driver) -> None:
        leased = leased_job(driver, lease_for=MINUTE)
        take(driver, now=NOON + MINUTE)
        (attempt,) = driver.attempts(leased.job.id)
        assert (attempt.outcome, attempt.lease_token) == (Outcome.LAPSED, leased.lease.token)
        assert (attempt.number, attempt.delivery, attempt.worker) == (1, 1, "worker-1")
        assert attempt.error != ""
        assert attempt.finished_at == NOON + MINUTE

    def test_a_crash_loop_leaves_one_attempt_for_every_delivery(self, driver: Driver) -> None:
        job_id = add(driver, max_attempts=1)
        deliveries = 0
        while driver.get(job_id).status is not Status.DLQ:
            take(driver, now=NOON + deliveries * MINUTE)
            deliveries += 1
            driver.recover(NOON + deliveries * MINUTE)
        attempts = driver.attempts(job_id)
        assert [a.delivery for a in attempts] == list(range(1, deliveries + 1))
        assert {a.outcome for a in attempts} == {Outcome.LAPSED}
        assert [a.code for a in attempts] == [None] * (deliveries - 1) + [Reason.CRASH_LOOP]

    def test_a_cancelled_attempt_keeps_the_reason(self, driver: Driver) -> None:
        leased = leased_job(driver)
        settle_one(driver, Settlement.cancel(leased.job.id, leased.lease.token, reason="not needed"))
        (attempt,) = driver.attempts(leased.job.id)
        assert (attempt.outcome, attempt.error) == (Outcome.CANCELLED, "not needed")

    def test_an_attempt_whose_start_nobody_told_began_when_it_was_claimed(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.ack(leased.job.id, leased.lease.token, now=NOON + SECOND)
        (attempt,) = driver.attempts(leased.job.id)
        assert (attempt.claimed_at, attempt.started_at) == (NOON, NOON)

    def test_an_attempt_knows_the_start_that_an_extension_told(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.extend(
            [Extension(leased.job.id, leased.lease.token, MINUTE, started_at=NOON + SECOND)], now=NOON + SECOND
        )
        driver.ack(leased.job.id, leased.lease.token, now=NOON + 2 * SECOND)
        assert driver.attempts(leased.job.id)[0].started_at == NOON + SECOND

    # --- Together with the settle ------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", [*sorted(OUTCOMES), "release"])
    def test_a_refused_settle_leaves_no_attempt(self, driver: Driver, kind: str) -> None:
        leased = leased_job(driver)
        with pytest.raises(LeaseLost):
            settle_one(driver, settlement(kind, leased, token="0" * 32))
        assert list(driver.attempts(leased.job.id)) == []

    @pytest.mark.parametrize("kind", ["ack", "fail"])
    def test_a_repeated_settle_leaves_no_second_attempt(self, driver: Driver, kind: str) -> None:
        leased = leased_job(driver)
        for _ in range(3):
            settle_one(driver, settlement(kind, leased))
        assert len(driver.attempts(leased.job.id)) == 1

    def test_a_batch_settle_leaves_one_attempt_for_each_job_it_settled_and_none_for_the_others(
        self, driver: Driver
    ) -> None:
        driver.enqueue([new_job() for _ in range(4)], NOON)
        first, stale, second, third = take_all(driver)
        items = [
            settlement("ack", first),
            settlement("ack", stale, token="0" * 32),
            settlement("retry", second),
            settlement("fail", third),
        ]
        driver.settle(items, now=NOON)
        outcomes = [[a.outcome for a in driver.attempts(item.job.id)] for item in (first, stale, second, third)]
        assert outcomes == [[Outcome.SUCCEEDED], [], [Outcome.RETRIED], [Outcome.DEAD]]

    def test_attempts_stay_with_a_job_that_was_redriven(self, driver: Driver) -> None:
        leased = leased_job(driver)
        settle_one(driver, settlement("fail", leased))
        driver.redrive(now=NOON)
        again = take(driver)
        driver.ack(again.job.id, again.lease.token, now=NOON)
        assert [(a.number, a.outcome) for a in driver.attempts(again.job.id)] == [
            (1, Outcome.DEAD),
            (2, Outcome.SUCCEEDED),
        ]

    # --- Error text --------------------------------------------------------------------------------------

    def test_nul_and_lone_surrogates_in_error_text_are_replaced(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=failure(error="a\x00b\ud800c"))
        again = take(driver)
        driver.fail(again.job.id, again.lease.token, now=NOON, reason="d\x00e\udfff")
        cleaned = [
            "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c",
            "d\N{REPLACEMENT CHARACTER}e\N{REPLACEMENT CHARACTER}",
        ]
        assert [a.error for a in driver.attempts(again.job.id)] == cleaned
        assert driver.get(again.job.id).dlq_reason == cleaned[1]

    def test_long_error_text_is_capped_and_keeps_both_ends(self, driver: Driver) -> None:
        leased = leased_job(driver)
        text = "began here " + "\N{SNOWMAN}" * 1_000_000 + " went wrong here"
        driver.fail(leased.job.id, leased.lease.token, now=NOON, reason=text)
        kept = driver.get(leased.job.id).dlq_reason or ""
        assert len(kept) <= MAX_ERROR_CHARACTERS
        assert kept.startswith("began here")
        assert kept.endswith("went wrong here")
        assert driver.attempts(leased.job.id)[0].error == kept

    def test_error_text_of_any_language_comes_back_as_it_was(self, driver: Driver) -> None:
        text = "naïve \N{SNOWMAN} \U0001f6a2 'quoted' \\back\\slash %s :name\n\ttab"
        leased = leased_job(driver)
        driver.fail(leased.job.id, leased.lease.token, now=NOON, reason=text)
        assert (driver.get(leased.job.id).dlq_reason, driver.attempts(leased.job.id)[0].error) == (text, text)
