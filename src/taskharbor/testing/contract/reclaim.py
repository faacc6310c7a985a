"""What happens when a worker falls silent: its jobs come back, in their turn, and not for ever."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import JobNotInflight, LeaseExpired, LeaseMismatch
from taskharbor.core.limits import SWEEP_BATCH, Limits
from taskharbor.core.model import Extension, LeasedJob, Outcome, Progress, Settlement, Status
from taskharbor.testing.helpers import (
    add,
    add_all,
    done_job,
    everything,
    failure,
    leased_job,
    new_job,
    nothing_runnable,
    settle_one,
    take,
    take_all,
    take_ids,
)
from taskharbor.testing.times import DAY, HOUR, MICROSECOND, MINUTE, NOON, SECOND

ALLOWANCE: Final = Limits().crash_allowance


class ReclaimContract:
    """Lapsed leases, and jobs that bring their workers down."""

    def test_a_job_is_reservable_from_the_very_end_of_its_lease(self, driver: Driver) -> None:
        leased = leased_job(driver, lease_for=MINUTE)
        assert nothing_runnable(driver, now=NOON + MINUTE - MICROSECOND)
        assert take(driver, now=NOON + MINUTE).job.id == leased.job.id

    def test_a_reclaimed_job_gets_a_new_token_and_its_new_owner(self, driver: Driver) -> None:
        old = leased_job(driver)
        new = take(driver, now=NOON + HOUR, lease_for=MINUTE, owner="worker-2")
        assert new.lease.token != old.lease.token
        job = driver.get(new.job.id)
        assert job == new.job
        assert (job.status, job.lease_token, job.lease_owner) == (Status.INFLIGHT, new.lease.token, "worker-2")
        assert (job.lease_expires_at, job.claimed_at, job.started_at) == (NOON + HOUR + MINUTE, NOON + HOUR, None)

    def test_a_reclaimed_job_has_no_run_at_any_more(self, driver: Driver) -> None:
        add(driver, run_at=NOON + SECOND)
        take(driver, now=NOON + SECOND, lease_for=MINUTE)
        assert take(driver, now=NOON + HOUR).job.run_at is None

    def test_a_reclaim_raises_the_deliveries_and_not_the_attempts(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=failure(1, error="boom"))
        take(driver)
        job = take(driver, now=NOON + HOUR).job
        assert (job.deliveries, job.attempts, job.forgiven) == (3, 1, 0)
        assert (job.last_error, job.failed_at) == ("boom", NOON)

    def test_a_reclaim_keeps_the_work_of_the_job_as_it_was(self, driver: Driver) -> None:
        fields: dict[str, Any] = {
            "meta": {"a": "ü"},
            "priority": 3,
            "max_attempts": 9,
            "timeout": MINUTE,
            "idempotency_key": "k",
        }
        old = leased_job(driver, payload=bytes(range(256)), expires_at=NOON + DAY, **fields).job
        new = take(driver, now=NOON + HOUR).job
        names = (
            "id type queue tenant_id payload meta priority expires_at timeout max_attempts idempotency_key created_at"
        )
        assert [getattr(new, name) for name in names.split()] == [getattr(old, name) for name in names.split()]

    def test_progress_of_a_lapsed_delivery_does_not_go_over_to_the_next(self, driver: Driver) -> None:
        leased = leased_job(driver)
        item = Extension(leased.job.id, leased.lease.token, MINUTE, NOON, Progress(5, 10))
        driver.extend([item], now=NOON)
        assert take(driver, now=NOON + HOUR).job.progress is None

    def test_a_lapsed_delivery_is_on_record_as_an_attempt_that_lapsed(self, driver: Driver) -> None:
        leased = leased_job(driver)
        take(driver, now=NOON + HOUR)
        [attempt] = driver.attempts(leased.job.id)
        assert (attempt.outcome, attempt.delivery, attempt.worker) == (Outcome.LAPSED, 1, "worker-1")
        assert (attempt.lease_token, attempt.claimed_at) == (leased.lease.token, NOON)
        assert attempt.error

    def test_the_old_owner_of_a_reclaimed_job_is_turned_away_and_the_new_one_is_not(self, driver: Driver) -> None:
        old = leased_job(driver)
        with pytest.raises(LeaseExpired):
            driver.ack(old.job.id, old.lease.token, now=NOON + HOUR)
        new = take(driver, now=NOON + HOUR)
        with pytest.raises(LeaseMismatch):
            driver.fail(old.job.id, old.lease.token, now=NOON + HOUR, reason="late")
        driver.ack(new.job.id, new.lease.token, now=NOON + HOUR, result=b"new")
        with pytest.raises(JobNotInflight):
            driver.ack(old.job.id, old.lease.token, now=NOON + HOUR, result=b"old")
        assert driver.get(new.job.id).result == b"new"

    def test_one_job_is_given_to_one_of_many_who_come_after_the_lease_ended(self, driver: Driver) -> None:
        leased = leased_job(driver)
        assert take(driver, now=NOON + HOUR).job.id == leased.job.id
        assert nothing_runnable(driver, now=NOON + HOUR)

    def test_jobs_of_other_types_come_back_too(self, driver: Driver) -> None:
        lost = leased_job(driver, type="rare")
        assert driver.reserve("default", now=NOON + HOUR, types=["common"]) == []
        [leased] = driver.reserve("default", now=NOON + HOUR, types=["rare"])
        assert leased.job.id == lost.job.id

    def test_leases_come_back_without_a_leader_or_any_recovery_from_any_queue_asked_for(self, driver: Driver) -> None:
        ids = {leased_job(driver, queue=queue).job.id for queue in ("a", "b", "c")}
        assert {item.job.id for item in take_all(driver, ["a", "b", "c"], now=NOON + HOUR)} == ids

    def test_a_lapsed_lease_in_one_queue_comes_back_although_another_queue_has_work(self, driver: Driver) -> None:
        lapsed = leased_job(driver, queue="quiet", lease_for=MINUTE)
        add_all(driver, [new_job(queue="busy") for _ in range(3)])
        found = driver.reserve(["busy", "quiet"], now=NOON + HOUR, limit=4)
        assert lapsed.job.id in [item.job.id for item in found]
        assert len(found) == 4

    def test_an_extended_lease_is_reclaimed_at_its_new_end_only(self, driver: Driver) -> None:
        leased = leased_job(driver, lease_for=MINUTE)
        driver.extend_lease(leased.job.id, leased.lease.token, now=NOON, lease_for=HOUR)
        assert nothing_runnable(driver, now=NOON + HOUR - MICROSECOND)
        assert take(driver, now=NOON + HOUR).job.id == leased.job.id

    # --- In turn -----------------------------------------------------------------------------------------

    def test_a_reclaimed_job_stands_where_its_lease_ended(self, driver: Driver) -> None:
        lost = leased_job(driver, lease_for=MINUTE)
        before = add(driver, now=NOON + MINUTE - SECOND)
        after = add(driver, now=NOON + MINUTE + SECOND)
        assert take_ids(driver, now=NOON + HOUR) == [before, lost.job.id, after]

    def test_steady_new_work_cannot_starve_a_reclaimed_job(self, driver: Driver) -> None:
        lost = leased_job(driver, lease_for=10 * SECOND)
        add(driver, now=NOON)
        handed_out = []
        for second in range(1, 15):
            add(driver, now=NOON + second * SECOND)
            handed_out.append(take(driver, now=NOON + second * SECOND).job.id)
        # One job stood before it when its lease ended, so it is the second from then on.
        assert handed_out.index(lost.job.id) == 10

    def test_priority_still_goes_first_for_reclaimed_jobs(self, driver: Driver) -> None:
        low, high = leased_job(driver, priority=-1), leased_job(driver, priority=1)
        middle = add(driver)
        assert take_ids(driver, now=NOON + HOUR) == [high.job.id, middle, low.job.id]

    def test_however_many_leases_end_at_once_all_jobs_come_back(self, driver: Driver) -> None:
        count = SWEEP_BATCH + 50
        ids = add_all(driver, [new_job() for _ in range(count)])
        assert len(driver.reserve("default", now=NOON, lease_for=MINUTE, limit=count)) == count
        back: list[str] = []
        for _ in range(4):
            leased = driver.reserve("default", now=NOON + HOUR, lease_for=HOUR, limit=count)
            back += [item.job.id for item in leased]
        assert sorted(back) == ids

    # --- Crash loops -------------------------------------------------------------------------------------

    @pytest.mark.parametrize("max_attempts", [1, 3])
    def test_a_job_that_always_brings_its_worker_down_ends_in_the_dlq(self, driver: Driver, max_attempts: int) -> None:
        job_id = add(driver, max_attempts=max_attempts)
        now = _crash(driver, max_attempts + ALLOWANCE)
        assert nothing_runnable(driver, now=now)
        job = driver.get(job_id)
        assert (job.status, job.dlq_code, job.dlq_failed_at) == (Status.DLQ, "crash_loop", now)
        assert (job.deliveries, job.attempts) == (max_attempts + ALLOWANCE, 0)
        assert (job.lease_token, job.lease_owner, job.lease_expires_at) == (None, None, None)
        assert job.dlq_reason
        assert job.last_error == job.dlq_reason

    def test_a_job_may_be_settled_on_its_very_last_delivery(self, driver: Driver) -> None:
        job_id = add(driver, max_attempts=1)
        now = _crash(driver, ALLOWANCE)
        leased = take(driver, now=now)
        driver.ack(job_id, leased.lease.token, now=now)
        assert driver.get(job_id).status is Status.DONE

    def test_the_worker_of_a_crash_loop_cannot_settle_it_any_more(self, driver: Driver) -> None:
        add(driver, max_attempts=1)
        now = _crash(driver, ALLOWANCE)
        last = take(driver, now=now, lease_for=MINUTE)
        assert nothing_runnable(driver, now=now + MINUTE)
        for settle in (Settlement.ack, Settlement.release):
            with pytest.raises(JobNotInflight):
                settle_one(driver, settle(last.job.id, last.lease.token), now=now + MINUTE)
        with pytest.raises(JobNotInflight):
            driver.fail(last.job.id, last.lease.token, now=now + MINUTE, reason="late")

    def test_recorded_failures_count_as_deliveries_towards_a_crash_loop(self, driver: Driver) -> None:
        leased = leased_job(driver, max_attempts=2)
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=failure(1))
        now = _crash(driver, 1 + ALLOWANCE)
        assert nothing_runnable(driver, now=now)
        assert driver.get(leased.job.id).dlq_code == "crash_loop"

    @pytest.mark.parametrize("kind", ["release", "snooze"])
    def test_deliveries_that_burned_nothing_are_forgiven(self, driver: Driver, kind: str) -> None:
        job_id = add(driver, max_attempts=1)
        for _ in range(10):
            _give_back(driver, take(driver), kind)
        job = driver.get(job_id)
        assert (job.deliveries, job.forgiven) == (10, 10)
        now = _crash(driver, 1 + ALLOWANCE)
        assert nothing_runnable(driver, now=now)
        assert (driver.get(job_id).dlq_code, driver.get(job_id).deliveries) == ("crash_loop", 11 + ALLOWANCE)

    def test_a_redriven_crash_loop_has_all_its_deliveries_before_it_again(self, driver: Driver) -> None:
        job_id = add(driver, max_attempts=1)
        now = _crash(driver, 1 + ALLOWANCE)
        assert nothing_runnable(driver, now=now)
        driver.redrive(now=now)
        job = driver.get(job_id)
        assert (job.status, job.deliveries, job.forgiven) == (Status.READY, 1 + ALLOWANCE, 1 + ALLOWANCE)
        now = _crash(driver, 1 + ALLOWANCE, start=now)
        assert nothing_runnable(driver, now=now)
        assert (driver.get(job_id).status, driver.get(job_id).deliveries) == (Status.DLQ, 2 * (1 + ALLOWANCE))

    def test_a_crash_loop_does_not_keep_its_neighbours_from_running(self, driver: Driver) -> None:
        add(driver, max_attempts=1, priority=9)
        now = _crash(driver, 1 + ALLOWANCE)
        neighbour = add(driver, now=now)
        assert take_ids(driver, now=now) == [neighbour]

    def test_taking_leases_back_changes_no_other_job(self, driver: Driver) -> None:
        ended = done_job(driver)
        scheduled = add(driver, run_at=NOON + DAY)
        running = leased_job(driver, lease_for=DAY).job.id
        leased_job(driver, lease_for=MINUTE)
        before = everything(driver)
        take(driver, now=NOON + HOUR)
        after = everything(driver)
        for job_id in (ended, scheduled, running):
            assert after[job_id] == before[job_id]


def _crash(driver: Driver, times: int, *, start: datetime = NOON) -> datetime:
    """Reserve the only job that often and never settle it; the moment at which the last lease ends."""
    now = start
    for _ in range(times):
        take(driver, now=now, lease_for=MINUTE)
        now += MINUTE
    return now


def _give_back(driver: Driver, leased: LeasedJob, kind: str) -> None:
    if kind == "release":
        driver.release(leased.job.id, leased.lease.token, now=NOON)
    else:
        settle_one(driver, Settlement.snooze(leased.job.id, leased.lease.token, run_at=NOON))
