"""What a settle told again promises: the same end with the same token is no error, and anything else is one."""

from __future__ import annotations

from typing import Final

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import JobNotInflight
from taskharbor.core.model import Status
from taskharbor.testing.helpers import everything, failure, leased_job, settle_one, settlement, take
from taskharbor.testing.times import DAY, NOON, SECOND

LATER: Final = NOON + 10 * SECOND
ENDS: Final = {"ack": Status.DONE, "fail": Status.DLQ, "cancel": Status.CANCELLED}
WAYS_BACK: Final = ["retry", "release", "snooze"]
KINDS: Final = [*ENDS, *WAYS_BACK]
# A fail that follows a cancel may be the repeat of a fail that a request to cancel turned into one.
TWO_WAYS: Final = [(one, two) for one in KINDS for two in KINDS if one != two and (one, two) != ("cancel", "fail")]


class RepeatContract:
    """A worker that did not hear the answer may ask again."""

    @pytest.mark.parametrize("kind", ENDS)
    def test_a_settle_repeated_with_its_token_succeeds_and_changes_nothing(self, driver: Driver, kind: str) -> None:
        leased = leased_job(driver)
        settle_one(driver, settlement(kind, leased), now=NOON)
        before, attempts = everything(driver), list(driver.attempts(leased.job.id))
        # Also long after the lease would have ended.
        for later in (NOON, LATER, NOON + DAY):
            assert settle_one(driver, settlement(kind, leased), now=later) is ENDS[kind]
        assert everything(driver) == before
        assert list(driver.attempts(leased.job.id)) == attempts

    def test_a_repeated_ack_does_not_replace_the_result(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.ack(leased.job.id, leased.lease.token, now=NOON, result=b"first")
        driver.ack(leased.job.id, leased.lease.token, now=LATER, result=b"second")
        job = driver.get(leased.job.id)
        assert (job.result, job.completed_at) == (b"first", NOON)

    @pytest.mark.parametrize("kind", ENDS)
    def test_a_settle_repeated_with_another_token_fails(self, driver: Driver, kind: str) -> None:
        leased = leased_job(driver)
        settle_one(driver, settlement(kind, leased))
        for wrong in ("", "another", leased.lease.token + " "):
            with pytest.raises(JobNotInflight):
                settle_one(driver, settlement(kind, leased, token=wrong))

    @pytest.mark.parametrize(("first", "second"), TWO_WAYS)
    def test_a_settled_lease_cannot_be_settled_in_another_way(self, driver: Driver, first: str, second: str) -> None:
        leased = leased_job(driver)
        settle_one(driver, settlement(first, leased))
        before = everything(driver)
        with pytest.raises(JobNotInflight):
            settle_one(driver, settlement(second, leased))
        assert everything(driver) == before

    @pytest.mark.parametrize("kind", WAYS_BACK)
    def test_a_way_back_to_ready_is_not_repeated(self, driver: Driver, kind: str) -> None:
        leased = leased_job(driver)
        settle_one(driver, settlement(kind, leased))
        before = everything(driver)
        with pytest.raises(JobNotInflight):
            settle_one(driver, settlement(kind, leased))
        assert everything(driver) == before

    def test_the_token_of_an_earlier_delivery_cannot_repeat_the_last_ones_settle(self, driver: Driver) -> None:
        old = leased_job(driver)
        driver.retry(old.job.id, old.lease.token, now=NOON, update=failure())
        new = take(driver)
        driver.ack(new.job.id, new.lease.token, now=NOON)
        with pytest.raises(JobNotInflight):
            driver.ack(old.job.id, old.lease.token, now=NOON)

    def test_a_fail_is_not_repeated_once_the_job_was_redriven(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.fail(leased.job.id, leased.lease.token, now=NOON, reason="boom")
        driver.redrive(now=NOON)
        with pytest.raises(JobNotInflight):
            driver.fail(leased.job.id, leased.lease.token, now=NOON, reason="boom")
        assert driver.get(leased.job.id).status is Status.READY
