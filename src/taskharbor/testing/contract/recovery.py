"""Housekeeping: dead workers, lapsed leases, late jobs, and forgetting what is old."""

from __future__ import annotations

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidCursor, JobNotFound, JobNotInflight
from taskharbor.core.fleet import Recovery, Worker
from taskharbor.core.model import JobFilter, Outcome, Reason, Status
from taskharbor.testing.helpers import (
    add,
    add_keyed,
    dead_job,
    done_job,
    everything,
    facts,
    failure,
    finished_job,
    leased_job,
    nothing_runnable,
    take,
    take_ids,
)
from taskharbor.testing.times import DAY, HOUR, MICROSECOND, MINUTE, NOON, SECOND

DEAD_AFTER = 30 * SECOND


class RecoveryContract:
    """`recover` and `prune`."""

    # --- Dead workers ------------------------------------------------------------------------------------

    def test_a_worker_is_dead_after_thirty_seconds_of_silence(self, driver: Driver) -> None:
        driver.heartbeat(Worker("worker-1"), now=NOON)
        assert driver.recover(NOON + DEAD_AFTER - MICROSECOND) == Recovery()
        assert len(driver.workers()) == 1
        assert driver.recover(NOON + DEAD_AFTER) == Recovery(workers_removed=1)
        assert list(driver.workers()) == []

    def test_a_heartbeat_keeps_a_worker_alive(self, driver: Driver) -> None:
        for beat in range(6):
            driver.heartbeat(Worker("worker-1"), now=NOON + beat * 10 * SECOND)
            assert driver.recover(NOON + beat * 10 * SECOND) == Recovery()

    def test_how_long_a_worker_may_be_silent_can_be_chosen(self, driver: Driver) -> None:
        driver.heartbeat(Worker("worker-1"), now=NOON)
        assert driver.recover(NOON + 5 * SECOND, dead_after=5.0) == Recovery(workers_removed=1)

    def test_the_jobs_of_a_dead_worker_run_again_before_their_leases_end(self, driver: Driver) -> None:
        driver.heartbeat(Worker("worker-1"), now=NOON)
        leased = leased_job(driver, lease_for=HOUR)
        moment = NOON + DEAD_AFTER
        assert driver.recover(moment) == Recovery(workers_removed=1, leases_freed=1)
        job = driver.get(leased.job.id)
        assert (job.status, job.lease_token, job.run_at, job.due_at) == (Status.READY, None, None, moment)
        again = take(driver, now=moment)
        assert again.job.id == leased.job.id
        assert again.lease.token != leased.lease.token

    def test_a_dead_worker_records_no_failure_but_an_attempt(self, driver: Driver) -> None:
        driver.heartbeat(Worker("worker-1"), now=NOON)
        leased = leased_job(driver, lease_for=HOUR)
        driver.recover(NOON + DEAD_AFTER)
        assert driver.get(leased.job.id).attempts == 0
        (attempt,) = driver.attempts(leased.job.id)
        assert (attempt.outcome, attempt.worker, attempt.finished_at) == (Outcome.LAPSED, "worker-1", NOON + DEAD_AFTER)
        assert "heartbeat" in attempt.error

    def test_a_worker_that_was_only_slow_cannot_settle_what_was_taken_from_it(self, driver: Driver) -> None:
        driver.heartbeat(Worker("worker-1"), now=NOON)
        leased = leased_job(driver, lease_for=HOUR)
        driver.recover(NOON + DEAD_AFTER)
        with pytest.raises(JobNotInflight):
            driver.ack(leased.job.id, leased.lease.token, now=NOON + DEAD_AFTER)

    def test_the_leases_of_other_workers_are_left_alone(self, driver: Driver) -> None:
        driver.heartbeat(Worker("worker-1"), now=NOON)
        driver.heartbeat(Worker("worker-2"), now=NOON + DEAD_AFTER)
        for owner in ("worker-2", "never-heard-of", "", "Worker-1"):
            add(driver)
            take(driver, lease_for=HOUR, owner=owner)
        before = everything(driver)
        assert driver.recover(NOON + DEAD_AFTER) == Recovery(workers_removed=1)
        assert everything(driver) == before

    def test_a_job_to_be_cancelled_ends_when_its_worker_dies(self, driver: Driver) -> None:
        driver.heartbeat(Worker("worker-1"), now=NOON)
        leased = leased_job(driver, lease_for=HOUR)
        driver.cancel(leased.job.id, now=NOON)
        driver.recover(NOON + DEAD_AFTER)
        assert driver.get(leased.job.id).status is Status.CANCELLED

    def test_a_job_whose_workers_keep_dying_ends_in_the_dlq(self, driver: Driver) -> None:
        job_id = add(driver, max_attempts=1)
        for number in range(20):
            moment = NOON + number * MINUTE
            driver.heartbeat(Worker("worker-1"), now=moment)
            take(driver, now=moment, lease_for=HOUR)
            driver.recover(moment + DEAD_AFTER)
            if driver.get(job_id).status is Status.DLQ:
                break
        assert (driver.get(job_id).dlq_code, driver.get(job_id).attempts) == (Reason.CRASH_LOOP, 0)

    # --- Lapsed leases and late jobs ---------------------------------------------------------------------

    def test_leases_that_ended_are_taken_back_in_every_queue(self, driver: Driver) -> None:
        ids = [leased_job(driver, queue=queue, lease_for=MINUTE).job.id for queue in ("mail", "sms")]
        assert driver.recover(NOON + MINUTE - MICROSECOND) == Recovery()
        assert driver.recover(NOON + MINUTE) == Recovery(leases_freed=2)
        assert [driver.get(job_id).status for job_id in ids] == [Status.READY, Status.READY]

    def test_a_job_taken_back_is_due_from_the_moment_its_lease_ended(self, driver: Driver) -> None:
        leased = leased_job(driver, lease_for=MINUTE)
        driver.recover(NOON + HOUR)
        job = driver.get(leased.job.id)
        assert (job.run_at, job.due_at) == (None, NOON + MINUTE)

    def test_jobs_past_their_time_are_expired_in_every_queue(self, driver: Driver) -> None:
        ids = [add(driver, queue=queue, expires_at=NOON + MINUTE) for queue in ("mail", "sms")]
        assert driver.recover(NOON + MINUTE - MICROSECOND) == Recovery()
        assert driver.recover(NOON + MINUTE) == Recovery(jobs_expired=2)
        assert [driver.get(job_id).status for job_id in ids] == [Status.EXPIRED, Status.EXPIRED]

    def test_a_running_job_is_not_expired(self, driver: Driver) -> None:
        leased = leased_job(driver, expires_at=NOON + SECOND, lease_for=MINUTE)
        assert driver.recover(NOON + 2 * SECOND) == Recovery()
        driver.ack(leased.job.id, leased.lease.token, now=NOON + 2 * SECOND)
        assert driver.get(leased.job.id).status is Status.DONE

    def test_a_second_pass_finds_nothing_left_to_do(self, driver: Driver) -> None:
        driver.heartbeat(Worker("worker-1"), now=NOON)
        leased_job(driver)
        add(driver, expires_at=NOON + SECOND)
        assert driver.recover(NOON + HOUR) == Recovery(workers_removed=1, leases_freed=1, jobs_expired=1)
        assert driver.recover(NOON + HOUR) == Recovery()

    def test_recovery_leaves_healthy_jobs_as_they_are(self, driver: Driver) -> None:
        add(driver, run_at=NOON + DAY)
        dead_job(driver, queue="mail")
        leased_job(driver, queue="sms", lease_for=DAY)
        before = everything(driver)
        driver.recover(NOON + HOUR)
        assert everything(driver) == before

    def test_leases_alone_bring_jobs_back_when_nobody_recovers(self, driver: Driver) -> None:
        driver.heartbeat(Worker("worker-1"), now=NOON)
        leased = leased_job(driver, lease_for=MINUTE)
        assert nothing_runnable(driver, now=NOON + MINUTE - MICROSECOND)
        assert take_ids(driver, now=NOON + MINUTE) == [leased.job.id]

    # --- Prune -------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("status", [Status.DONE, Status.CANCELLED, Status.EXPIRED])
    def test_prune_forgets_jobs_that_ended_before_the_given_time(self, driver: Driver, status: Status) -> None:
        old, young = finished_job(driver, status, now=NOON - MICROSECOND), finished_job(driver, status, now=NOON)
        assert driver.prune(NOON) == 1
        with pytest.raises(JobNotFound):
            driver.get(old)
        assert driver.get(young).status is status

    def test_prune_forgets_the_whole_history_of_a_job(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=failure())
        again = take(driver)
        driver.ack(again.job.id, again.lease.token, now=NOON)
        facts(driver, 2)
        assert driver.prune(NOON + SECOND) == 1
        with pytest.raises(JobNotFound):
            driver.attempts(leased.job.id)
        assert list(driver.history().rows) == []

    def test_prune_keeps_the_old_attempts_of_a_job_that_ended_later(self, driver: Driver) -> None:
        leased = leased_job(driver, now=NOON - HOUR)
        driver.retry(leased.job.id, leased.lease.token, now=NOON - HOUR, update=failure())
        assert driver.prune(NOON) == 0
        again = take(driver)
        driver.ack(again.job.id, again.lease.token, now=NOON)
        assert driver.prune(NOON) == 0
        assert len(driver.attempts(leased.job.id)) == 2

    def test_prune_frees_the_idempotency_key(self, driver: Driver) -> None:
        first = done_job(driver, idempotency_key="once")
        assert add_keyed(driver, "once").id == first
        driver.prune(NOON + SECOND)
        assert not add_keyed(driver, "once", now=NOON + SECOND).existed

    def test_prune_leaves_a_key_that_another_job_has_taken_since(self, driver: Driver) -> None:
        done_job(driver, idempotency_key="once", key_ttl=10)
        successor = add_keyed(driver, "once", now=NOON + MINUTE)
        driver.prune(NOON + MINUTE)
        assert add_keyed(driver, "once", now=NOON + MINUTE).id == successor.id

    def test_prune_leaves_the_dlq_and_its_history_alone(self, driver: Driver) -> None:
        job_id = dead_job(driver)
        assert driver.prune(NOON + DAY) == 0
        assert driver.get(job_id).status is Status.DLQ
        assert len(driver.attempts(job_id)) == 1

    def test_prune_leaves_live_jobs_alone(self, driver: Driver) -> None:
        ready, running = add(driver, queue="mail"), leased_job(driver).job.id
        redriven = dead_job(driver, queue="sms")
        driver.redrive(now=NOON)
        assert driver.prune(NOON + DAY) == 0
        assert set(everything(driver)) == {ready, running, redriven}
        assert len(driver.attempts(redriven)) == 1

    def test_prune_forgets_the_history_of_a_purged_job(self, driver: Driver) -> None:
        dead_job(driver)
        driver.purge()
        facts(driver, 1)
        assert driver.prune(NOON + SECOND) == 1
        assert list(driver.history().rows) == []

    def test_prune_forgets_at_most_limit_jobs_the_oldest_first(self, driver: Driver) -> None:
        ids = [done_job(driver, now=NOON + number * SECOND) for number in range(3)]
        assert driver.prune(NOON + HOUR, limit=2) == 2
        assert set(everything(driver)) == {ids[2]}
        assert driver.prune(NOON + HOUR, limit=2) == 1
        assert driver.prune(NOON + HOUR, limit=2) == 0

    def test_prune_up_to_a_cursor_leaves_every_job_with_a_row_behind_it(self, driver: Driver) -> None:
        known = done_job(driver, now=NOON)
        purged, again = dead_job(driver, now=NOON), dead_job(driver, now=NOON)
        cursor = facts(driver, 3)[-1].position
        driver.redrive(JobFilter(ids=[again]), now=NOON)
        leased = take(driver, now=NOON)
        driver.ack(leased.job.id, leased.lease.token, now=NOON)
        late = done_job(driver, now=NOON - HOUR)
        driver.purge(JobFilter(ids=[purged]))
        assert driver.prune(NOON + HOUR, ids=[late, again], upto=cursor) == 0
        assert driver.prune(NOON + HOUR, upto=cursor) == 2
        assert set(everything(driver)) == {late, again}
        with pytest.raises(JobNotFound):
            driver.get(known)
        end = facts(driver, 3)[-1].position
        assert driver.prune(NOON + HOUR, ids=[known, late], upto=end) == 1
        assert driver.prune(NOON + HOUR, upto=end) == 1
        with pytest.raises(InvalidCursor):
            driver.prune(NOON + HOUR, upto="another:1:1")

    def test_prune_of_chosen_jobs_leaves_all_others(self, driver: Driver) -> None:
        first, second, third = (done_job(driver, now=NOON) for _ in range(3))
        assert driver.prune(NOON + HOUR, ids=[third, first, first]) == 2
        assert set(everything(driver)) == {second}
        assert driver.prune(NOON + HOUR, ids=[third, first, "nobody"]) == 0
        assert driver.prune(NOON + HOUR, ids=[]) == 0
        assert set(everything(driver)) == {second}
        assert driver.prune(NOON + HOUR, ids=second) == 1
        assert list(driver.history().rows) == []

    def test_prune_of_chosen_jobs_takes_none_that_is_live_or_ended_later(self, driver: Driver) -> None:
        young, old = done_job(driver, now=NOON), done_job(driver, now=NOON - MICROSECOND)
        waiting, dead = add(driver, queue="mail"), dead_job(driver, queue="sms", now=NOON - HOUR)
        purged = dead_job(driver, queue="fax", now=NOON - HOUR)
        driver.purge(JobFilter(ids=[purged]))
        assert driver.prune(NOON, ids=[young, waiting, dead, old, purged]) == 2
        assert set(everything(driver)) == {young, waiting, dead}
        assert len(driver.attempts(dead)) == 1

    def test_prune_of_chosen_jobs_keeps_to_the_limit(self, driver: Driver) -> None:
        waiting = add(driver, queue="mail")
        ids = [waiting, *(done_job(driver, now=NOON) for _ in range(3))]
        assert driver.prune(NOON + HOUR, ids=ids, limit=1) == 1
        assert driver.prune(NOON + HOUR, ids=ids, limit=10) == 2
        assert set(everything(driver)) == {waiting}

    def test_prune_of_a_chosen_job_takes_its_history_and_frees_its_key(self, driver: Driver) -> None:
        leased = leased_job(driver, idempotency_key="once")
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=failure())
        again = take(driver)
        driver.ack(again.job.id, again.lease.token, now=NOON)
        assert driver.prune(NOON + SECOND, ids=[leased.job.id]) == 1
        assert list(driver.history().rows) == []
        assert not add_keyed(driver, "once", now=NOON + SECOND).existed
