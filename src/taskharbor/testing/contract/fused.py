"""What settle-and-reserve promises: the same as the two calls, one after the other, in one."""

from __future__ import annotations

from typing import Final

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidLeaseDuration, JobNotFound, LeaseExpired, LeaseMismatch
from taskharbor.core.model import Settlement, Status
from taskharbor.testing.helpers import (
    add,
    add_all,
    leased_jobs,
    new_job,
    nothing_runnable,
    settlement,
    shown,
)
from taskharbor.testing.times import HOUR, MICROSECOND, MINUTE, NOON, SECOND

LATER: Final = NOON + 10 * SECOND


class FusedContract:
    """Ending the last batch and claiming the next in one call."""

    def test_settle_and_reserve_ends_the_old_leases_and_gives_new_ones(self, driver: Driver) -> None:
        old = leased_jobs(driver, 3)
        waiting = add_all(driver, [new_job(priority=priority) for priority in (0, 5, 1)])
        results, leased = driver.settle_and_reserve(
            [settlement("ack", x) for x in old], "default", now=LATER, lease_for=MINUTE, limit=2, owner="w"
        )
        assert results == [Status.DONE] * 3
        assert [item.job.id for item in leased] == [waiting[1], waiting[2]]
        assert [(x.lease.expires_at, x.lease.owner) for x in leased] == [(LATER + MINUTE, "w")] * 2
        assert [driver.get(item.job.id) for item in leased] == [item.job for item in leased]

    @pytest.mark.parametrize("kind", ["retry", "release"])
    def test_a_job_that_goes_back_can_be_reserved_in_the_same_call(self, driver: Driver, kind: str) -> None:
        [old] = leased_jobs(driver, 1)
        results, leased = driver.settle_and_reserve([settlement(kind, old)], "default", now=LATER, limit=5)
        assert results == [Status.READY]
        assert [(x.job.id, x.job.deliveries) for x in leased] == [(old.job.id, 2)]
        assert leased[0].lease.token != old.lease.token

    @pytest.mark.parametrize("fair", [False, True])
    def test_all_that_a_call_says_of_a_job_counts_before_it_reserves(self, driver: Driver, fair: bool) -> None:
        if fair:
            driver.set_fair("default", now=NOON)
        [old] = leased_jobs(driver, 1)
        waiting = add(driver)
        items = [Settlement.release(old.job.id, "another"), Settlement.release(old.job.id, old.lease.token)]
        results, leased = driver.settle_and_reserve(items, "default", now=LATER, limit=5)
        assert shown(results) == [LeaseMismatch, Status.READY]
        assert {(x.job.id, x.job.deliveries) for x in leased} == {(old.job.id, 2), (waiting, 1)}

    def test_stale_settlements_do_not_keep_the_reserve_from_happening(self, driver: Driver) -> None:
        [old] = leased_jobs(driver, 1)
        waiting = add(driver)
        items = [Settlement.ack(old.job.id, "another"), Settlement.ack("no such job", "token")]
        results, leased = driver.settle_and_reserve(items, "default", now=LATER)
        assert shown(results) == [LeaseMismatch, JobNotFound]
        assert [item.job.id for item in leased] == [waiting]

    def test_a_lease_that_ended_is_not_settled_but_reserved_anew_in_the_same_call(self, driver: Driver) -> None:
        [old] = leased_jobs(driver, 1)
        results, leased = driver.settle_and_reserve([settlement("ack", old)], "default", now=NOON + MINUTE)
        assert shown(results) == [LeaseExpired]
        assert [item.job.id for item in leased] == [old.job.id]

    def test_settle_and_reserve_does_either_when_there_is_nothing_for_the_other(self, driver: Driver) -> None:
        old, other = leased_jobs(driver, 2)
        assert driver.settle_and_reserve([settlement("ack", old)], "default", now=LATER) == ([Status.DONE], [])
        assert driver.settle_and_reserve([settlement("ack", other)], [], now=LATER) == ([Status.DONE], [])
        waiting = add(driver)
        results, leased = driver.settle_and_reserve([], "default", now=LATER)
        assert (results, [item.job.id for item in leased]) == ([], [waiting])
        assert driver.settle_and_reserve([], "default", now=LATER) == ([], [])

    def test_settle_and_reserve_takes_only_the_asked_types_and_queues(self, driver: Driver) -> None:
        old = leased_jobs(driver, 2)
        add_all(driver, [new_job(type="other"), new_job(queue="other"), new_job(run_at=NOON + HOUR)])
        wanted = add(driver, type="wanted", queue="b")
        settle_first, settle_second = ([settlement("ack", x)] for x in old)
        results, leased = driver.settle_and_reserve(settle_first, ["a", "b"], now=LATER, limit=9, types=["wanted"])
        assert (results, [item.job.id for item in leased]) == ([Status.DONE], [wanted])
        assert driver.settle_and_reserve(settle_second, ["default"], now=LATER, types=[]) == ([Status.DONE], [])

    def test_a_bad_lease_length_refuses_the_settlements_of_the_same_call_too(self, driver: Driver) -> None:
        [old] = leased_jobs(driver, 1)
        add(driver)
        with pytest.raises(InvalidLeaseDuration):
            driver.settle_and_reserve([settlement("ack", old)], "default", now=LATER, lease_for=0)
        assert driver.get(old.job.id) == old.job
        assert not nothing_runnable(driver, now=NOON + MICROSECOND)
