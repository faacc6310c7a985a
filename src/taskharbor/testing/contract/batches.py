"""What a batch promises: one answer for each item, in order, and no item harms its neighbours."""

from __future__ import annotations

from typing import Final

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import (
    InvalidInput,
    InvalidLeaseDuration,
    JobNotFound,
    JobNotInflight,
    LeaseExpired,
    LeaseMismatch,
)
from taskharbor.core.model import Extension, Lease, LeasedJob, Progress, Settlement, Status
from taskharbor.testing.helpers import (
    add_all,
    everything,
    failure,
    leased_job,
    leased_jobs,
    new_job,
    settlement,
    shown,
    take,
    take_all,
)
from taskharbor.testing.times import HOUR, MINUTE, NOON, SECOND

KINDS: Final = ["ack", "retry", "fail", "release", "snooze", "cancel"]
AFTER: Final = [Status.DONE, Status.READY, Status.DLQ, Status.READY, Status.READY, Status.CANCELLED]
LATER: Final = NOON + 10 * SECOND
ANOTHER: Final = "somebody else's"
# A fail that follows a cancel may be the repeat of a fail that a request to cancel turned into one.
TWO_WAYS: Final = [(one, two) for one in KINDS for two in KINDS if one != two and (one, two) != ("cancel", "fail")]


class BatchContract:
    """Batch settle and batch extend."""

    # --- settle ------------------------------------------------------------------------------------------

    def test_an_empty_settle_is_fine(self, driver: Driver) -> None:
        assert driver.settle([], now=NOON) == []

    def test_one_batch_may_settle_in_every_way(self, driver: Driver) -> None:
        leases = leased_jobs(driver, 12)
        items = [settlement(kind, leased) for kind, leased in zip(KINDS * 2, leases, strict=True)]
        assert driver.settle(items, now=LATER) == AFTER * 2
        assert [driver.get(leased.job.id).status for leased in leases] == AFTER * 2

    def test_a_batch_settles_each_job_as_it_would_be_settled_alone(self, driver: Driver) -> None:
        batch, alone = leased_jobs(driver, 6), leased_jobs(driver, 6, queue="alone")
        driver.settle([settlement(kind, leased) for kind, leased in zip(KINDS, batch, strict=True)], now=LATER)
        for kind, leased in zip(KINDS, alone, strict=True):
            driver.settle([settlement(kind, leased)], now=LATER)
        for one, other in zip(batch, alone, strict=True):
            assert _facts(driver, one.job.id) == _facts(driver, other.job.id)

    def test_each_item_of_a_batch_keeps_what_it_alone_was_given(self, driver: Driver) -> None:
        leases = leased_jobs(driver, 40)
        acks = [Settlement.ack(x.job.id, x.lease.token, result=f"r{n}".encode()) for n, x in enumerate(leases[:20])]
        retries = [
            Settlement.retry(x.job.id, x.lease.token, update=failure(n, run_at=NOON + n * HOUR, error=f"e{n}"))
            for n, x in enumerate(leases[20:])
        ]
        mixed = [item for pair in zip(acks, retries, strict=True) for item in pair]
        driver.settle(mixed[::-1], now=LATER)
        assert [driver.get(item.id).result for item in acks] == [f"r{n}".encode() for n in range(20)]
        after = [driver.get(item.id) for item in retries]
        assert [(job.attempts, job.run_at, job.last_error) for job in after] == [
            (n, NOON + n * HOUR, f"e{n}") for n in range(20)
        ]

    @pytest.mark.parametrize("kind", KINDS)
    def test_one_stale_lease_does_not_fail_its_neighbours(self, driver: Driver, kind: str) -> None:
        good = leased_jobs(driver, 2)
        expired = leased_job(driver, queue="b", now=NOON - MINUTE)
        stale = leased_job(driver, queue="c", now=NOON - MINUTE)
        renewed = take(driver, "c")
        settled = leased_job(driver, queue="d")
        driver.release(settled.job.id, settled.lease.token, now=NOON)
        gone = LeasedJob(settled.job, settled.lease)
        items = [settlement(kind, leased) for leased in (expired, good[0], stale, gone, good[1])]
        items.insert(2, Settlement.ack("no such job", "token"))
        results = driver.settle(items, now=NOON)
        status = AFTER[KINDS.index(kind)]
        assert shown(results) == [LeaseExpired, status, JobNotFound, LeaseMismatch, JobNotInflight, status]
        assert driver.get(renewed.job.id) == renewed.job

    def test_a_batch_that_cannot_be_carried_out_as_written_changes_nothing(self, driver: Driver) -> None:
        one, other = leased_jobs(driver, 2)
        before = everything(driver)
        with pytest.raises(InvalidInput):
            driver.settle(
                [settlement("ack", one), Settlement.fail(other.job.id, other.lease.token, reason="", code="")], now=NOON
            )
        assert everything(driver) == before

    def test_a_large_batch_settles_every_item(self, driver: Driver) -> None:
        add_all(driver, [new_job() for _ in range(1_000)])
        leases = take_all(driver)
        assert driver.settle([settlement("ack", leased) for leased in leases], now=LATER) == [Status.DONE] * 1_000
        assert driver.counts()["done"] == 1_000

    # --- The same job twice in one settle ----------------------------------------------------------------

    @pytest.mark.parametrize("kind", ["ack", "fail", "cancel"])
    def test_the_same_ending_twice_in_one_batch_counts_once(self, driver: Driver, kind: str) -> None:
        [leased] = leased_jobs(driver, 1)
        status = AFTER[KINDS.index(kind)]
        assert driver.settle([settlement(kind, leased)] * 3, now=LATER) == [status] * 3
        assert len(driver.attempts(leased.job.id)) == 1

    @pytest.mark.parametrize("kind", ["retry", "release", "snooze"])
    def test_the_same_way_back_twice_in_one_batch_counts_once(self, driver: Driver, kind: str) -> None:
        [leased] = leased_jobs(driver, 1)
        results = driver.settle([settlement(kind, leased)] * 2, now=LATER)
        assert shown(results) == [Status.READY, JobNotInflight]
        job = driver.get(leased.job.id)
        assert job.forgiven == (0 if kind == "retry" else 1)

    @pytest.mark.parametrize(("first", "second"), TWO_WAYS)
    def test_of_two_ways_to_settle_in_one_batch_the_first_counts(self, driver: Driver, first: str, second: str) -> None:
        [leased] = leased_jobs(driver, 1)
        results = driver.settle([settlement(first, leased), settlement(second, leased)], now=LATER)
        assert shown(results) == [AFTER[KINDS.index(first)], JobNotInflight]
        assert driver.get(leased.job.id).status is AFTER[KINDS.index(first)]

    def test_a_wrong_token_beside_the_right_one_in_a_batch_does_no_harm(self, driver: Driver) -> None:
        [one, other] = leased_jobs(driver, 2)
        wrong_first = [settlement("ack", one, token=ANOTHER), settlement("ack", one)]
        right_first = [settlement("ack", other), settlement("ack", other, token=ANOTHER)]
        results = driver.settle(wrong_first + right_first, now=LATER)
        assert shown(results) == [LeaseMismatch, Status.DONE, Status.DONE, JobNotInflight]

    # --- extend ------------------------------------------------------------------------------------------

    def test_an_empty_extend_is_fine(self, driver: Driver) -> None:
        assert driver.extend([], now=NOON) == []

    def test_a_batch_extends_each_lease_as_asked_for(self, driver: Driver) -> None:
        leases = leased_jobs(driver, 5)
        items = [
            Extension(x.job.id, x.lease.token, n * MINUTE, NOON + n * SECOND, Progress(n, 9, f"n{n}"))
            for n, x in enumerate(leases, 1)
        ]
        results = driver.extend(items[::-1], now=LATER)
        assert results == [Lease(item.token, LATER + item.lease_for, "worker-1") for item in items[::-1]]  # type: ignore[operator]
        for item in items:
            job = driver.get(item.id)
            assert (job.lease_expires_at, job.started_at) == (LATER + item.lease_for, item.started_at)  # type: ignore[operator]
            assert job.progress == item.progress

    def test_one_lost_lease_does_not_disturb_the_others_that_are_extended(self, driver: Driver) -> None:
        good = leased_jobs(driver, 2)
        expired = leased_job(driver, queue="b", now=NOON - MINUTE)
        settled = leased_job(driver, queue="c")
        driver.ack(settled.job.id, settled.lease.token, now=NOON)
        items = [Extension(x.job.id, x.lease.token, MINUTE) for x in (good[0], expired, settled, good[1])]
        items += [Extension("no such job", "token"), Extension(good[0].job.id, "wrong", HOUR)]
        results = driver.extend(items, now=NOON + SECOND)
        held, lost, ended, also_held, missing, wrong = results
        assert held == Lease(good[0].lease.token, NOON + SECOND + MINUTE, "worker-1")
        assert also_held == Lease(good[1].lease.token, NOON + SECOND + MINUTE, "worker-1")
        assert [type(error) for error in (lost, ended, missing, wrong)] == [
            LeaseExpired,
            JobNotInflight,
            JobNotFound,
            LeaseMismatch,
        ]

    def test_of_two_extensions_of_one_lease_in_a_batch_the_last_counts(self, driver: Driver) -> None:
        [leased] = leased_jobs(driver, 1)
        items = [Extension(leased.job.id, leased.lease.token, length) for length in (HOUR, MINUTE)]
        results = driver.extend(items, now=NOON)
        assert [r.expires_at for r in results if isinstance(r, Lease)] == [NOON + HOUR, NOON + MINUTE]
        assert driver.get(leased.job.id).lease_expires_at == NOON + MINUTE

    def test_one_extension_of_no_length_refuses_the_whole_batch(self, driver: Driver) -> None:
        one, other = leased_jobs(driver, 2)
        with pytest.raises(InvalidLeaseDuration):
            driver.extend(
                [Extension(one.job.id, one.lease.token, HOUR), Extension(other.job.id, other.lease.token, 0)], now=NOON
            )
        assert driver.get(one.job.id) == one.job


def _facts(driver: Driver, job_id: str) -> list[object]:
    job = driver.get(job_id)
    names = "status run_at attempts deliveries forgiven last_error failed_at dlq_reason dlq_code dlq_failed_at due_at"
    more = "lease_token lease_owner lease_expires_at result created_at updated_at claimed_at started_at completed_at"
    return [getattr(job, name) for name in f"{names} {more}".split()]
