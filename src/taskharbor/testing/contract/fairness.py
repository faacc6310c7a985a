"""What a fair queue promises: tenants share it by weight, whoever came first and however many wait."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.limiting import Limit
from taskharbor.core.model import LeasedJob, QueueSettings, Settlement
from taskharbor.testing.helpers import (
    add,
    add_all,
    failure,
    in_threads,
    kept_rows,
    new_job,
    take,
    take_all,
    take_ids,
)
from taskharbor.testing.times import HOUR, MINUTE, NOON, SECOND


def backlog(driver: Driver, counts: Mapping[str, int], **fields: object) -> None:
    """So many jobs of each tenant, one tenant after the other."""
    for tenant, count in counts.items():
        add_all(driver, [new_job(tenant_id=tenant, **fields) for _ in range(count)])


def served(leases: Sequence[LeasedJob]) -> Counter[str]:
    return Counter(leased.job.tenant_id for leased in leases)


def unfairness(order: Sequence[str], weights: Mapping[str, float], one: str, other: str) -> float:
    """The most by which `served / weight` of the two differs over any part of the order."""
    difference = lowest = highest = 0.0
    for tenant in order:
        difference += (tenant == one) / weights[one] - (tenant == other) / weights[other]
        lowest, highest = min(lowest, difference), max(highest, difference)
    return highest - lowest


class FairnessContract:
    """Shares of tenants, inside one priority of one queue."""

    def test_a_single_job_behind_thousands_of_another_tenant_comes_in_the_next_claim(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        backlog(driver, {"a": 10_000})
        assert served(take_all(driver, limit=100)) == {"a": 100}
        mine = add(driver, tenant_id="b")
        assert mine in [leased.job.id for leased in take_all(driver, limit=3)]

    def test_without_fair_shares_the_first_come_goes_first(self, driver: Driver) -> None:
        backlog(driver, {"a": 5, "b": 5})
        assert served(take_all(driver, limit=5)) == {"a": 5}

    def test_tenants_take_turns_and_each_ones_jobs_keep_their_order(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        ids = {name: add_all(driver, [new_job(tenant_id=name) for _ in range(4)]) for name in "ab"}
        taken = take_all(driver, limit=8)
        assert [leased.job.tenant_id for leased in taken[:2]] in (["a", "b"], ["b", "a"])
        for start in range(0, 8, 2):
            assert served(taken[start : start + 2]) == {"a": 1, "b": 1}
        for name in "ab":
            assert [leased.job.id for leased in taken if leased.job.tenant_id == name] == ids[name]

    @pytest.mark.parametrize(
        "weights", [{"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 3.0, "b": 1.0, "c": 0.5}, {"a": 10.0, "b": 0.1, "c": 1.0}]
    )
    def test_no_tenant_gets_ahead_of_another_by_more_than_the_bound(
        self, driver: Driver, weights: dict[str, float]
    ) -> None:
        """Of tenants that have jobs waiting all the time, served / weight differs over any interval by at most
        one job each over its weight: 1 / weight of the one + 1 / weight of the other."""
        seed = random.randrange(2**32)
        print(f"seed {seed}")  # noqa: T201
        dice = random.Random(seed)
        driver.set_fair("default", weights=weights, now=NOON)
        waiting = Counter(dict.fromkeys(weights, 60))
        backlog(driver, waiting)
        order: list[str] = []
        for _ in range(60):
            taken = take_all(driver, limit=dice.randint(1, 9))
            order += [leased.job.tenant_id for leased in taken]
            waiting -= served(taken)
            for name in weights:  # nobody ever runs out, and they come back at different times
                if waiting[name] < 20:
                    more = dice.randint(10, 60)
                    backlog(driver, {name: more})
                    waiting[name] += more
        for one, other in (("a", "b"), ("b", "c"), ("a", "c")):
            bound = 1 / weights[one] + 1 / weights[other]
            assert unfairness(order, weights, one, other) <= bound + 1e-9, (one, other, order)

    def test_weights_share_a_queue_in_proportion(self, driver: Driver) -> None:
        driver.set_fair("default", weights={"a": 4, "b": 2}, now=NOON)
        backlog(driver, {"a": 400, "b": 400, "c": 400})
        assert served(take_all(driver, limit=700)) == {"a": 400, "b": 200, "c": 100}

    def test_a_tenant_that_comes_back_has_saved_nothing_up(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        backlog(driver, {"b": 1, "a": 200})
        take_all(driver, limit=100)
        backlog(driver, {"b": 50})
        taken = served(take_all(driver, limit=20))
        assert abs(taken["a"] - taken["b"]) <= 2, "the two go on side by side"

    def test_a_job_that_nobody_takes_does_not_stop_the_line(self, driver: Driver) -> None:
        """A tenant that comes anew gets no more than one job ahead of those who were there."""
        driver.set_fair("default", now=NOON)
        add(driver, type="nobody.knows", tenant_id="z")
        backlog(driver, {"a": 300})
        assert served(take_all(driver, limit=200, types=["email.send"])) == {"a": 200}
        backlog(driver, {"b": 300})
        taken = served(take_all(driver, limit=60, types=["email.send"]))
        assert abs(taken["a"] - taken["b"]) <= 3, taken
        backlog(driver, {"c": 1})
        assert served(take_all(driver, limit=2, types=["email.send"]))["c"] == 1

    def test_claims_for_one_tenant_leave_the_others_where_they_were(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        backlog(driver, {"a": 300, "b": 300})
        assert served(take_all(driver, limit=200, tenant="a")) == {"a": 200}
        backlog(driver, {"c": 30})
        taken = served(take_all(driver, limit=40))
        assert abs(taken["b"] - taken["c"]) <= 2, taken

    def test_recovery_forgets_tenants_that_the_line_has_passed_and_nobody_gains_by_it(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        backlog(driver, {f"gone-{number}": 1 for number in range(30)})
        assert len(take_all(driver, limit=30)) == 30
        driver.recover(NOON)
        assert kept_rows(driver, "fair") in (None, 2), "where the line stands, and nobody in it"
        backlog(driver, {"a": 20, "b": 20})
        assert served(take_all(driver, limit=10)) == {"a": 5, "b": 5}
        driver.recover(NOON)
        add(driver, tenant_id="gone-1")
        backlog(driver, {"a": 10})
        assert served(take_all(driver, limit=5)) == {"a": 2, "b": 2, "gone-1": 1}
        assert served(take_all(driver, limit=10)) == {"a": 5, "b": 5}

    def test_a_tenant_alone_is_not_held_back(self, driver: Driver) -> None:
        driver.set_fair("default", weights={"a": 0.01}, now=NOON)
        backlog(driver, {"a": 300})
        assert len(take_all(driver, limit=300)) == 300

    def test_priorities_come_before_shares(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        backlog(driver, {"a": 5, "b": 5})
        backlog(driver, {"a": 5}, priority=1)
        assert [leased.job.priority for leased in take_all(driver)] == [1] * 5 + [0] * 10

    def test_each_priority_has_shares_of_its_own(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        for priority in (0, 5):
            backlog(driver, {"a": 50, "b": 50}, priority=priority)
        taken = take_all(driver, limit=20)
        assert served(taken) == {"a": 10, "b": 10}
        assert {leased.job.priority for leased in taken} == {5}

    def test_scheduled_jobs_take_their_share_once_they_are_due(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        backlog(driver, {"a": 20})
        later = add_all(driver, [new_job(tenant_id="b", run_at=NOON + MINUTE) for _ in range(3)])
        assert served(take_all(driver, limit=5)) == {"a": 5}
        taken = take_all(driver, limit=7, now=NOON + MINUTE)
        assert set(later) <= {leased.job.id for leased in taken}
        assert all(leased.job.due_at == NOON + MINUTE for leased in taken if leased.job.id in later)

    def test_retries_and_lapsed_leases_take_their_share_again(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        backlog(driver, {"b": 2})
        retried, lapsed = (take(driver, lease_for=MINUTE) for _ in range(2))
        driver.retry(retried.job.id, retried.lease.token, now=NOON, update=failure(run_at=NOON + MINUTE))
        backlog(driver, {"a": 50})
        ids = {leased.job.id for leased in take_all(driver, limit=6, now=NOON + MINUTE)}
        assert {retried.job.id, lapsed.job.id} <= ids

    def test_jobs_of_a_fair_queue_look_as_they_were(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        id = add(driver, tenant_id="b", now=NOON - MINUTE)
        assert driver.get(id).due_at == NOON - MINUTE
        assert driver.list().jobs[0].due_at == NOON - MINUTE
        assert driver.counts().scheduled == 0
        leased = take(driver)
        assert leased.job.due_at == NOON - MINUTE
        driver.release(id, leased.lease.token, now=NOON + SECOND)
        assert driver.get(id).due_at == NOON - MINUTE
        again = take(driver, now=NOON + SECOND)
        driver.ack(id, again.lease.token, now=NOON + SECOND)
        assert driver.get(id).due_at == NOON - MINUTE
        assert [attempt.due_at for attempt in driver.attempts(id)] == [NOON - MINUTE] * len(driver.attempts(id))

    def test_a_waiting_job_of_a_fair_queue_that_is_cancelled_or_expires_keeps_its_due_time(
        self, driver: Driver
    ) -> None:
        driver.set_fair("default", now=NOON)
        cancelled, expired = add_all(driver, [new_job(), new_job(expires_at=NOON + MINUTE)], now=NOON - MINUTE)
        driver.cancel(cancelled, now=NOON)
        driver.recover(NOON + HOUR)
        assert [driver.get(id).due_at for id in (cancelled, expired)] == [NOON - MINUTE] * 2

    def test_a_backlog_of_before_takes_part_once_the_queue_is_fair(self, driver: Driver) -> None:
        backlog(driver, {"a": 100, "b": 100})
        driver.set_fair("default", now=NOON)
        assert served(take_all(driver, limit=20)) == {"a": 10, "b": 10}

    def test_a_queue_that_is_no_longer_fair_serves_the_first_come_first(self, driver: Driver) -> None:
        driver.set_fair("default", weights={"a": 2}, now=NOON)
        driver.pause("default")
        assert driver.queues() == [QueueSettings("default", True, True, {"a": 2.0})]
        driver.set_fair("default", False, now=NOON)
        driver.resume("default")
        assert driver.queues() == [QueueSettings("default", False, False, {})]
        backlog(driver, {"a": 5, "b": 5})
        assert served(take_all(driver, limit=5)) == {"a": 5}

    def test_a_backlog_goes_by_its_due_times_again_once_the_queue_is_fair_no_longer(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        early = add_all(driver, [new_job(tenant_id="a", run_at=NOON - HOUR + n * SECOND) for n in range(3)])
        late = add_all(driver, [new_job(tenant_id="b", run_at=NOON - MINUTE + n * SECOND) for n in range(3)])
        driver.set_limit(Limit("type", "rare", concurrency=1), now=NOON)
        rare = add_all(driver, [new_job(type="rare", run_at=NOON - n * HOUR) for n in (9, 8, 7)])
        first = driver.reserve("default", now=NOON, types=["rare"], limit=20)
        assert [each.job.id for each in first] == rare[:1]
        other = add(driver, queue="other", run_at=NOON - 2 * HOUR)
        driver.set_fair("default", False, now=NOON)
        assert take_ids(driver, ["default", "other"]) == [other, *early, *late]
        assert driver.get(early[0]).due_at == NOON - HOUR
        driver.drop_limit("type", "rare", now=NOON)
        more = add(driver, run_at=NOON - 10 * HOUR)
        assert take_ids(driver) == [more, *rare[1:]]

    def test_fair_shares_and_limits_hold_together(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        driver.set_limit(Limit("tenant", "a", concurrency=2), now=NOON)
        backlog(driver, {"a": 50, "b": 10, "c": 10})
        taken = take_all(driver, limit=20)
        assert served(taken) == {"a": 2, "b": 9, "c": 9}
        mine = [leased for leased in taken if leased.job.tenant_id == "a"]
        driver.settle([Settlement.ack(leased.job.id, leased.lease.token) for leased in mine], now=NOON)
        assert served(take_all(driver, limit=20)) == {"a": 2, "b": 1, "c": 1}

    def test_a_job_that_was_due_before_2000_does_not_end_fairness(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        for long_ago in (datetime(1970, 1, 1, tzinfo=UTC), datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)):
            backlog(driver, {"a": 3}, run_at=long_ago)
        assert served(take_all(driver, limit=6)) == {"a": 6}
        backlog(driver, {"a": 20, "b": 20}, run_at=datetime(1970, 1, 1, tzinfo=UTC))
        assert served(take_all(driver, limit=10)) == {"a": 5, "b": 5}

    def test_many_claimers_of_a_fair_queue_take_every_job_once(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)

        def work(number: int) -> list[str]:
            found: list[str] = []
            for _ in range(5):
                backlog(driver, {f"tenant-{number % 3}": 10})
                found += [leased.job.id for leased in driver.reserve("default", now=NOON, lease_for=HOUR, limit=7)]
            return found

        taken = [id for ids in in_threads(8, work) for id in ids]
        taken += take_ids(driver)
        assert len(taken) == len(set(taken)) == 400

    @pytest.mark.parametrize(
        "weights",
        [
            {"a": 0},
            {"a": -1},
            {"a": float("nan")},
            {"a": float("inf")},
            {"a": "2"},
            {"": 1},
            {"a": True},
            {"a": 1_000},
            [("a", 1)],
        ],
        ids=str,
    )
    def test_weights_that_make_no_sense_are_refused_and_change_nothing(
        self, driver: Driver, weights: dict[str, float]
    ) -> None:
        driver.set_fair("default", weights={"a": 2}, now=NOON)
        with pytest.raises(InvalidInput):
            driver.set_fair("default", weights=weights, now=NOON)
        assert driver.queues() == [QueueSettings("default", False, True, {"a": 2.0})]

    def test_weights_without_fair_shares_and_odd_names_are_refused(self, driver: Driver) -> None:
        with pytest.raises(InvalidInput):
            driver.set_fair("default", False, {"a": 2}, now=NOON)
        with pytest.raises(InvalidInput):
            driver.set_fair("", now=NOON)
        with pytest.raises(InvalidInput):
            driver.set_fair("default", "yes", now=NOON)  # type: ignore[arg-type]
        assert driver.queues() == []
