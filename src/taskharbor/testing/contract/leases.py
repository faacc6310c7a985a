"""What a lease promises: one owner at a time, and nobody else can end or prolong what it holds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import (
    InvalidLeaseDuration,
    JobNotFound,
    JobNotInflight,
    LeaseExpired,
    LeaseLost,
    LeaseMismatch,
)
from taskharbor.core.model import Extension, Lease, LeasedJob, Progress, Status
from taskharbor.testing.helpers import (
    add,
    add_all,
    everything,
    finished_job,
    leased_job,
    new_job,
    nothing_runnable,
    settle_one,
    settlement,
    take,
    take_all,
)
from taskharbor.testing.times import DAY, HOUR, MICROSECOND, MINUTE, NOON, SECOND

KINDS: Final = ["ack", "retry", "fail", "release", "snooze", "cancel"]
NO_DURATION: Final[list[Any]] = [0, 0.0, -1, timedelta(0), -MICROSECOND, timedelta(days=-1), 1e12, float("nan")]

Touch = Callable[[Driver, LeasedJob, str, datetime], object]


def _settles(kind: str) -> Touch:
    return lambda driver, leased, token, now: settle_one(driver, settlement(kind, leased, token=token), now=now)


def _extends(driver: Driver, leased: LeasedJob, token: str, now: datetime) -> object:
    return driver.extend_lease(leased.job.id, token, now=now)


TOUCHES: Final = [*(pytest.param(_settles(kind), id=kind) for kind in KINDS), pytest.param(_extends, id="extend")]
"""Everything that a lease allows, as a function of driver, lease, token and now."""


class LeaseContract:
    """Tokens, expiry and extension."""

    def test_a_stale_lease_cannot_complete_the_next_attempt(self, driver: Driver) -> None:
        old = leased_job(driver, lease_for=MINUTE)
        new = take(driver, now=NOON + MINUTE)
        with pytest.raises(LeaseMismatch):
            driver.ack(old.job.id, old.lease.token, now=NOON + MINUTE)
        assert driver.get(new.job.id).lease_token == new.lease.token
        driver.ack(new.job.id, new.lease.token, now=NOON + MINUTE)

    def test_a_reserved_job_is_inflight_and_claimed_but_not_running(self, driver: Driver) -> None:
        job_id = add(driver, now=NOON - HOUR)
        leased = take(driver, owner="worker-é🚢", lease_for=MINUTE)
        assert leased.lease == Lease(leased.lease.token, NOON + MINUTE, "worker-é🚢", cancel_requested=False)
        job = driver.get(job_id)
        assert job == leased.job
        assert (job.status, job.claimed_at, job.started_at, job.updated_at) == (Status.INFLIGHT, NOON, None, NOON)
        assert (job.lease_token, job.lease_owner) == (leased.lease.token, "worker-é🚢")
        assert (job.lease_expires_at, job.due_at) == (NOON + MINUTE, NOON - HOUR)
        assert job.phase(NOON) == "claimed"

    def test_a_leased_job_is_given_to_nobody_else(self, driver: Driver) -> None:
        leased_job(driver, lease_for=MINUTE)
        assert nothing_runnable(driver)
        assert nothing_runnable(driver, now=NOON + MINUTE - MICROSECOND)

    def test_a_lease_is_thirty_seconds_unless_asked_otherwise(self, driver: Driver) -> None:
        add(driver)
        [leased] = driver.reserve("default", now=NOON)
        assert leased.lease.expires_at == NOON + 30 * SECOND
        assert (
            driver.extend_lease(leased.job.id, leased.lease.token, now=NOON + SECOND).expires_at == NOON + 31 * SECOND
        )

    @pytest.mark.parametrize(
        ("lease_for", "length"), [(0.5, SECOND / 2), (90, 90 * SECOND), (MICROSECOND, MICROSECOND), (9 * DAY, 9 * DAY)]
    )
    def test_a_lease_lasts_as_long_as_asked_for(self, driver: Driver, lease_for: Any, length: timedelta) -> None:
        job_id = add(driver)
        [leased] = driver.reserve("default", now=NOON, lease_for=lease_for)
        assert leased.lease.expires_at == NOON + length
        assert driver.get(job_id).lease_expires_at == NOON + length

    @pytest.mark.parametrize("lease_for", NO_DURATION)
    def test_a_lease_of_no_length_is_refused_and_takes_nothing(self, driver: Driver, lease_for: Any) -> None:
        job_id = add(driver)
        with pytest.raises(InvalidLeaseDuration):
            driver.reserve("default", now=NOON, lease_for=lease_for)
        assert (driver.get(job_id).status, driver.get(job_id).deliveries) == (Status.READY, 0)

    # --- Tokens ------------------------------------------------------------------------------------------

    def test_every_reserve_gives_a_fresh_random_token_of_128_bits(self, driver: Driver) -> None:
        add_all(driver, [new_job() for _ in range(40)])
        tokens = []
        for hour in range(3):
            tokens += [leased.lease.token for leased in take_all(driver, now=NOON + hour * HOUR)]
        assert len(tokens) == len(set(tokens)) == 120
        # 128 bits take 22 characters even in base 64, and random ones differ from the first character on.
        assert min(map(len, tokens)) >= 22
        assert len({token[0] for token in tokens}) > 1

    @pytest.mark.parametrize("touch", TOUCHES)
    def test_another_token_is_a_mismatch_and_changes_nothing(self, driver: Driver, touch: Touch) -> None:
        leased = leased_job(driver)
        before = everything(driver)
        token = leased.lease.token
        wrongs = {"", token[:-1], f"{token} ", f" {token}", token.swapcase(), "0" * len(token), token * 2, "é🚢"}
        for wrong in wrongs - {token}:
            with pytest.raises(LeaseMismatch) as caught:
                touch(driver, leased, wrong, NOON)
            assert isinstance(caught.value, LeaseLost)
        assert everything(driver) == before
        assert list(driver.attempts(leased.job.id)) == []

    @pytest.mark.parametrize("touch", TOUCHES)
    def test_the_token_of_another_job_is_a_mismatch(self, driver: Driver, touch: Touch) -> None:
        one, other = leased_job(driver), leased_job(driver)
        with pytest.raises(LeaseMismatch):
            touch(driver, one, other.lease.token, NOON)
        assert driver.get(one.job.id) == one.job
        assert driver.get(other.job.id) == other.job

    # --- Expiry ------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("touch", TOUCHES)
    def test_a_lease_holds_until_just_before_its_end(self, driver: Driver, touch: Touch) -> None:
        leased = leased_job(driver, lease_for=MINUTE)
        touch(driver, leased, leased.lease.token, NOON + MINUTE - MICROSECOND)

    @pytest.mark.parametrize("touch", TOUCHES)
    @pytest.mark.parametrize("late", [timedelta(0), MICROSECOND, DAY])
    def test_a_lease_has_expired_from_its_very_end(self, driver: Driver, touch: Touch, late: timedelta) -> None:
        leased = leased_job(driver, lease_for=MINUTE)
        before = everything(driver)
        with pytest.raises(LeaseExpired) as caught:
            touch(driver, leased, leased.lease.token, NOON + MINUTE + late)
        assert isinstance(caught.value, LeaseLost)
        assert everything(driver) == before

    @pytest.mark.parametrize("touch", TOUCHES)
    def test_expired_goes_before_mismatch(self, driver: Driver, touch: Touch) -> None:
        leased = leased_job(driver, lease_for=MINUTE)
        with pytest.raises(LeaseExpired):
            touch(driver, leased, "somebody else's", NOON + MINUTE)

    @pytest.mark.parametrize("touch", TOUCHES)
    def test_a_stale_lease_can_do_nothing_to_the_next_one(self, driver: Driver, touch: Touch) -> None:
        old = leased_job(driver, lease_for=MINUTE)
        new = take(driver, now=NOON + MINUTE)
        with pytest.raises(LeaseMismatch):
            touch(driver, old, old.lease.token, NOON + MINUTE)
        assert driver.get(new.job.id) == new.job

    # --- No lease at all ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("touch", TOUCHES)
    def test_a_ready_job_is_not_inflight(self, driver: Driver, touch: Touch) -> None:
        leased = leased_job(driver)
        driver.release(leased.job.id, leased.lease.token, now=NOON)
        before = everything(driver)
        with pytest.raises(JobNotInflight) as caught:
            touch(driver, leased, leased.lease.token, NOON)
        assert not isinstance(caught.value, JobNotFound)
        assert everything(driver) == before

    @pytest.mark.parametrize("touch", TOUCHES)
    @pytest.mark.parametrize("status", [Status.DONE, Status.DLQ, Status.CANCELLED, Status.EXPIRED])
    def test_a_job_that_has_ended_is_not_inflight(self, driver: Driver, touch: Touch, status: Status) -> None:
        stranger = leased_job(driver)
        driver.ack(stranger.job.id, stranger.lease.token, now=NOON)
        job = driver.get(finished_job(driver, status))
        before = everything(driver)
        with pytest.raises(JobNotInflight) as caught:
            touch(driver, LeasedJob(job, stranger.lease), stranger.lease.token, NOON)
        assert not isinstance(caught.value, JobNotFound)
        assert everything(driver) == before

    @pytest.mark.parametrize("touch", TOUCHES)
    def test_an_unknown_job_is_not_found_which_is_a_way_of_not_being_inflight(
        self, driver: Driver, touch: Touch
    ) -> None:
        job_id = add(driver, id="There")
        leased = take(driver)
        driver.ack(job_id, leased.lease.token, now=NOON)
        leased_job(driver, id="Here")
        for absent in ("there", "There ", "here", "", "x" * 300):
            stranger = LeasedJob(leased.job._replace(id=absent), leased.lease)
            with pytest.raises(JobNotFound) as caught:
                touch(driver, stranger, leased.lease.token, NOON)
            assert isinstance(caught.value, JobNotInflight)

    # --- Extending ---------------------------------------------------------------------------------------

    def test_an_extended_lease_ends_that_long_after_now_and_keeps_its_token(self, driver: Driver) -> None:
        leased = leased_job(driver, lease_for=MINUTE)
        lease = driver.extend_lease(leased.job.id, leased.lease.token, now=NOON + 50 * SECOND, lease_for=2 * MINUTE)
        assert lease == Lease(leased.lease.token, NOON + 170 * SECOND, "worker-1", cancel_requested=False)
        assert driver.get(leased.job.id).lease_expires_at == NOON + 170 * SECOND
        assert nothing_runnable(driver, now=NOON + 170 * SECOND - MICROSECOND)
        assert take(driver, now=NOON + 170 * SECOND).job.id == leased.job.id

    def test_an_extension_may_bring_the_end_nearer(self, driver: Driver) -> None:
        leased = leased_job(driver, lease_for=HOUR)
        driver.extend_lease(leased.job.id, leased.lease.token, now=NOON, lease_for=SECOND)
        assert take(driver, now=NOON + SECOND).job.id == leased.job.id

    @pytest.mark.parametrize("lease_for", NO_DURATION)
    def test_an_extension_of_no_length_is_refused_and_changes_nothing(self, driver: Driver, lease_for: Any) -> None:
        leased = leased_job(driver)
        with pytest.raises(InvalidLeaseDuration):
            driver.extend_lease(leased.job.id, leased.lease.token, now=NOON, lease_for=lease_for)
        assert driver.get(leased.job.id) == leased.job

    def test_an_extension_is_no_delivery_and_no_attempt(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.extend_lease(leased.job.id, leased.lease.token, now=NOON + SECOND)
        job = driver.get(leased.job.id)
        assert (job.deliveries, job.attempts, job.claimed_at) == (1, 0, NOON)
        assert list(driver.attempts(leased.job.id)) == []

    def test_an_extension_tells_the_store_that_the_job_runs_and_how_far_it_has_come(self, driver: Driver) -> None:
        leased = leased_job(driver)
        progress = Progress(3, 10, "Grüße 🚢")
        item = Extension(leased.job.id, leased.lease.token, MINUTE, NOON + MICROSECOND, progress)
        driver.extend([item], now=NOON + SECOND)
        job = driver.get(leased.job.id)
        assert (job.started_at, job.progress, job.phase(NOON)) == (NOON + MICROSECOND, progress, "running")
        driver.extend_lease(job.id, leased.lease.token, now=NOON + 2 * SECOND)
        job = driver.get(leased.job.id)
        assert (job.started_at, job.progress) == (NOON + MICROSECOND, progress)
