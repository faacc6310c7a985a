"""The DLQ: why a job is there, and the ways out of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput, JobNotFound, JobNotInflight
from taskharbor.core.limits import SWEEP_BATCH
from taskharbor.core.model import JobFilter, Outcome, Reason, Settlement, Status
from taskharbor.testing.helpers import (
    add,
    add_all,
    add_keyed,
    dead_job,
    done_job,
    everything,
    facts,
    failure,
    leased_job,
    new_job,
    nothing_runnable,
    take,
    take_all,
    take_ids,
)
from taskharbor.testing.times import DAY, HOUR, MICROSECOND, MINUTE, NOON, SECOND


class DeadLetterContract:
    """Jobs in state `dlq`, redrive and purge."""

    # --- Into the DLQ ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("code", [reason.value for reason in Reason])
    def test_a_failed_job_is_in_the_dlq_with_its_code_text_and_time(self, driver: Driver, code: str) -> None:
        leased = leased_job(driver)
        driver.fail(leased.job.id, leased.lease.token, now=NOON + SECOND, reason="no such user", code=code)
        job = driver.get(leased.job.id)
        assert job.status is Status.DLQ
        assert (job.dlq_code, job.dlq_reason, job.dlq_failed_at) == (code, "no such user", NOON + SECOND)
        assert (job.last_error, job.failed_at, job.completed_at) == ("no such user", NOON + SECOND, NOON + SECOND)

    def test_a_job_that_fails_without_a_code_is_unrecoverable(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.fail(leased.job.id, leased.lease.token, now=NOON, reason="boom")
        assert driver.get(leased.job.id).dlq_code == Reason.UNRECOVERABLE

    def test_going_to_the_dlq_counts_as_a_failure(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=failure(1))
        again = take(driver)
        driver.fail(again.job.id, again.lease.token, now=NOON, reason="boom", code="max_attempts")
        assert driver.get(again.job.id).attempts == 2

    def test_a_job_in_the_dlq_has_no_lease(self, driver: Driver) -> None:
        job = driver.get(dead_job(driver))
        assert (job.lease_token, job.lease_owner, job.lease_expires_at) == (None, None, None)

    def test_a_job_in_the_dlq_is_never_reserved(self, driver: Driver) -> None:
        dead_job(driver)
        assert nothing_runnable(driver, now=NOON + 365 * DAY)

    # --- Redrive -----------------------------------------------------------------------------------------

    def test_a_redriven_job_runs_again_under_the_same_id(self, driver: Driver) -> None:
        job_id = dead_job(driver, payload=b"work", meta={"trace": "1"}, priority=3)
        assert driver.redrive(JobFilter(ids=(job_id,)), now=NOON + HOUR) == [job_id]
        job = driver.get(job_id)
        assert (job.status, job.run_at, job.due_at) == (Status.READY, None, NOON + HOUR)
        leased = take(driver, now=NOON + HOUR)
        assert (leased.job.id, leased.job.payload, dict(leased.job.meta)) == (job_id, b"work", {"trace": "1"})

    def test_the_dlq_record_goes_away_with_a_redrive(self, driver: Driver) -> None:
        job_id = dead_job(driver)
        driver.redrive(now=NOON)
        job = driver.get(job_id)
        assert (job.dlq_reason, job.dlq_code, job.dlq_failed_at, job.completed_at) == (None, None, None, None)
        assert list(driver.list(JobFilter(status=Status.DLQ)).jobs) == []
        assert driver.redrive(now=NOON) == []

    def test_a_redriven_job_remembers_its_failures_unless_they_are_reset(self, driver: Driver) -> None:
        kept = dead_job(driver)
        driver.redrive(JobFilter(ids=(kept,)), now=NOON)
        assert (driver.get(kept).attempts, driver.get(kept).last_error) == (1, "boom")
        take(driver)
        reset = dead_job(driver)
        driver.redrive(JobFilter(ids=(reset,)), now=NOON, reset_attempts=True)
        assert driver.get(reset).attempts == 0

    def test_redrive_without_a_filter_sends_back_every_dead_job_oldest_id_first(self, driver: Driver) -> None:
        for job_id in ("c", "a", "b"):
            dead_job(driver, id=job_id)
        assert driver.redrive(now=NOON) == ["a", "b", "c"]
        assert take_ids(driver) == ["a", "b", "c"]

    def test_redrive_takes_only_what_matches_its_filter(self, driver: Driver) -> None:
        plain = dead_job(driver)
        chosen = {
            "queue": dead_job(driver, queue="mail"),
            "type": dead_job(driver, type="sms.send"),
            "tenant": dead_job(driver, tenant_id="acme"),
            "error": dead_job(driver, reason="timeout after 30 s"),
            "code": dead_job(driver, code="bad_payload"),
        }
        assert driver.redrive(JobFilter(queue="mail"), now=NOON) == [chosen["queue"]]
        assert driver.redrive(JobFilter(type="sms.send"), now=NOON) == [chosen["type"]]
        assert driver.redrive(JobFilter(tenant_id="acme"), now=NOON) == [chosen["tenant"]]
        assert driver.redrive(JobFilter(error="timeout"), now=NOON) == [chosen["error"]]
        assert driver.redrive(JobFilter(code="bad_payload"), now=NOON) == [chosen["code"]]
        assert driver.redrive(JobFilter(queue="default", error="timeout"), now=NOON) == []
        assert driver.get(plain).status is Status.DLQ

    def test_redrive_passes_over_jobs_that_are_not_dead(self, driver: Driver) -> None:
        done = done_job(driver)
        ready = add(driver, run_at=NOON + HOUR)
        before = everything(driver)
        assert driver.redrive(JobFilter(ids=(done, ready, "nobody")), now=NOON) == []
        assert everything(driver) == before

    def test_redrive_of_jobs_in_another_state_is_refused(self, driver: Driver) -> None:
        with pytest.raises(InvalidInput):
            driver.redrive(JobFilter(status=Status.DONE), now=NOON)

    def test_redrive_moves_at_most_limit_jobs_the_oldest_first(self, driver: Driver) -> None:
        ids = [dead_job(driver) for _ in range(3)]
        assert driver.redrive(now=NOON, limit=2) == ids[:2]
        assert driver.get(ids[2]).status is Status.DLQ

    def test_redrive_runs_the_jobs_at_the_time_it_is_given(self, driver: Driver) -> None:
        job_id = dead_job(driver)
        driver.redrive(now=NOON, run_at=NOON + HOUR)
        assert (driver.get(job_id).run_at, driver.get(job_id).due_at) == (NOON + HOUR, NOON + HOUR)
        assert nothing_runnable(driver, now=NOON + HOUR - MICROSECOND)
        assert take_ids(driver, now=NOON + HOUR) == [job_id]

    def test_a_rate_spreads_redriven_jobs_over_time(self, driver: Driver) -> None:
        ids = [dead_job(driver) for _ in range(4)]
        assert driver.redrive(now=NOON, rate=2) == ids
        due = [driver.get(job_id).due_at - NOON for job_id in ids]
        assert due == [timedelta(seconds=half / 2) for half in range(4)]
        assert take_ids(driver) == ids[:1]

    def test_a_rate_counts_from_the_run_at_it_comes_with(self, driver: Driver) -> None:
        ids = [dead_job(driver) for _ in range(2)]
        driver.redrive(now=NOON, run_at=NOON + HOUR, rate=1)
        assert [driver.get(job_id).run_at for job_id in ids] == [NOON + HOUR, NOON + HOUR + SECOND]

    def test_redrive_of_more_jobs_than_one_sweep_moves_them_all_and_keeps_the_rate(self, driver: Driver) -> None:
        ids = add_all(driver, [new_job() for _ in range(SWEEP_BATCH + 1)])
        leased = take_all(driver, limit=SWEEP_BATCH + 1)
        driver.settle([Settlement.fail(item.job.id, item.lease.token, reason="boom") for item in leased], now=NOON)
        assert driver.redrive(now=NOON, rate=1) == ids
        assert driver.get(ids[-1]).run_at == NOON + SWEEP_BATCH * SECOND

    def test_deliveries_rise_on_after_a_redrive_but_are_not_held_against_the_job(self, driver: Driver) -> None:
        job_id = dead_job(driver, max_attempts=1)
        driver.redrive(now=NOON)
        lapses = 0
        while driver.get(job_id).status is not Status.DLQ:
            moment = NOON + lapses * MINUTE
            leased = take(driver, now=moment)
            assert leased.job.deliveries == lapses + 2
            lapses += 1
            driver.recover(moment + MINUTE)
        fresh = leased_job(driver, max_attempts=1)
        fresh_lapses = 1
        driver.recover(NOON + MINUTE)
        while driver.get(fresh.job.id).status is not Status.DLQ:
            take(driver, now=NOON + fresh_lapses * MINUTE)
            fresh_lapses += 1
            driver.recover(NOON + fresh_lapses * MINUTE)
        assert lapses == fresh_lapses

    def test_a_redriven_job_is_not_settled_by_the_lease_that_failed_it(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.fail(leased.job.id, leased.lease.token, now=NOON, reason="boom")
        driver.redrive(now=NOON)
        with pytest.raises(JobNotInflight):
            driver.fail(leased.job.id, leased.lease.token, now=NOON, reason="boom")
        assert driver.get(leased.job.id).status is Status.READY

    def test_a_redriven_job_waits_behind_the_jobs_that_were_due_before_the_redrive(self, driver: Driver) -> None:
        dead = dead_job(driver)
        waiting = add(driver, now=NOON + MINUTE)
        driver.redrive(now=NOON + HOUR)
        assert take_ids(driver, now=NOON + HOUR) == [waiting, dead]

    def test_a_redriven_job_keeps_its_idempotency_key(self, driver: Driver) -> None:
        job_id = dead_job(driver, idempotency_key="once")
        driver.redrive(now=NOON)
        answer = add_keyed(driver, "once")
        assert (answer.id, answer.existed) == (job_id, True)

    def test_a_redriven_job_past_its_time_expires_and_does_not_run(self, driver: Driver) -> None:
        job_id = dead_job(driver, expires_at=NOON + MINUTE)
        driver.redrive(now=NOON + HOUR)
        assert nothing_runnable(driver, now=NOON + HOUR)
        assert driver.get(job_id).status is Status.EXPIRED

    # --- Clone -------------------------------------------------------------------------------------------

    def test_a_clone_is_a_new_job_with_the_same_work_and_no_past(self, driver: Driver) -> None:
        job_id = dead_job(driver, payload=b"work", meta={"a": "b"}, priority=7, tenant_id="acme", max_attempts=3)
        (new_id,) = driver.redrive(now=NOON + HOUR, clone=True)
        old, new = driver.get(job_id), driver.get(new_id)
        assert new_id != job_id
        assert [(j.type, j.payload, dict(j.meta), j.priority, j.tenant_id, j.max_attempts) for j in (old, new)] == [
            ("email.send", b"work", {"a": "b"}, 7, "acme", 3)
        ] * 2
        assert (new.status, new.attempts, new.deliveries, new.last_error) == (Status.READY, 0, 0, "")
        assert (new.failed_at, new.dlq_reason, new.created_at) == (None, None, NOON + HOUR)
        assert take_ids(driver, now=NOON + HOUR) == [new_id]

    def test_the_job_that_was_cloned_stays_in_the_dlq_as_it_was(self, driver: Driver) -> None:
        before = driver.get(dead_job(driver, idempotency_key="once"))
        (new_id,) = driver.redrive(now=NOON + HOUR, clone=True)
        assert driver.get(before.id) == before
        assert driver.get(new_id).idempotency_key is None
        assert add_keyed(driver, "once").id == before.id

    def test_clones_keep_to_limit_run_at_and_rate(self, driver: Driver) -> None:
        for _ in range(3):
            dead_job(driver)
        made = driver.redrive(now=NOON, limit=2, run_at=NOON + HOUR, rate=1, clone=True)
        assert [driver.get(job_id).run_at for job_id in made] == [NOON + HOUR, NOON + HOUR + SECOND]

    # --- Purge -------------------------------------------------------------------------------------------

    def test_a_purged_job_is_gone_and_only_its_history_stays(self, driver: Driver) -> None:
        job_id = dead_job(driver)
        assert driver.purge() == 1
        with pytest.raises(JobNotFound):
            driver.get(job_id)
        with pytest.raises(JobNotFound):
            driver.attempts(job_id)
        assert [(row.job_id, row.outcome) for row in facts(driver, 1)] == [(job_id, Outcome.DEAD)]

    def test_purge_frees_the_idempotency_key(self, driver: Driver) -> None:
        dead_job(driver, idempotency_key="once")
        driver.purge()
        assert not add_keyed(driver, "once").existed

    def test_purge_removes_only_dead_jobs_that_match(self, driver: Driver) -> None:
        done, ready = done_job(driver), add(driver, run_at=NOON + HOUR)
        dead = [dead_job(driver, queue="mail"), dead_job(driver, queue="sms")]
        assert driver.purge(JobFilter(queue="mail")) == 1
        assert set(everything(driver)) == {done, ready, dead[1]}

    def test_purge_removes_at_most_limit_jobs_the_oldest_first(self, driver: Driver) -> None:
        ids = [dead_job(driver) for _ in range(3)]
        assert driver.purge(limit=2) == 2
        assert set(everything(driver)) == {ids[2]}

    def test_purge_of_jobs_in_another_state_is_refused(self, driver: Driver) -> None:
        ready = add(driver)
        with pytest.raises(InvalidInput):
            driver.purge(JobFilter(status=Status.READY))
        assert set(everything(driver)) == {ready}
