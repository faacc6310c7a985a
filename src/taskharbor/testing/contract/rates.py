"""What limits on starts promise: tokens are counted exactly, whoever claims; and what no limit may be."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Status
from taskharbor.testing.contract.limits import CLAIMERS, ids_of, keyed
from taskharbor.testing.helpers import (
    add_all,
    everything,
    in_threads,
    kept_rows,
    new_job,
    nothing_runnable,
    take_all,
    take_ids,
)
from taskharbor.testing.times import HOUR, MICROSECOND, MINUTE, NOON, SECOND


class RateContract:
    """How many start in a second, after a rest and in the long run."""

    @pytest.mark.parametrize(
        "limit",
        [
            Limit("queue", "default", rate=10, burst=5),
            Limit("type", "email.send", rate=10, burst=5),
            Limit("tenant", "default", rate=10, burst=5),
        ],
        ids=["queue", "type", "tenant"],
    )
    def test_a_rate_lets_through_its_burst_and_then_exactly_so_many_a_second(
        self, driver: Driver, limit: Limit
    ) -> None:
        driver.set_limit(limit, now=NOON)
        ids = add_all(driver, [new_job() for _ in range(40)])
        taken = take_ids(driver)
        assert taken == ids[:5]
        for step in range(1, 11):
            taken += take_ids(driver, now=NOON + step * SECOND / 10)
        assert taken == ids[:15], "ten more in the second behind the burst"
        taken += take_ids(driver, now=NOON + HOUR)
        assert taken == ids[:20], "after a rest no more than the burst"
        assert take_ids(driver, now=NOON + HOUR + timedelta(milliseconds=99)) == []
        assert take_ids(driver, now=NOON + HOUR + timedelta(milliseconds=100)) == [ids[20]]

    def test_a_rate_per_key_counts_each_key_for_itself(self, driver: Driver) -> None:
        driver.set_limit(Limit("queue", "default", per="key", rate=1, burst=1), now=NOON)
        a1, a2, a3, b1 = add_all(driver, [keyed(key) for key in ("a", "a", "a", "b")])
        assert take_ids(driver) == [a1, b1]
        assert take_ids(driver, now=NOON + SECOND) == [a2]
        assert take_ids(driver, now=NOON + 5 * SECOND) == [a3]

    def test_a_rate_of_the_whole_and_one_per_key_hold_together(self, driver: Driver) -> None:
        driver.set_limit(Limit("queue", "default", rate=2, burst=3), now=NOON)
        driver.set_limit(Limit("queue", "default", per="key", rate=0.5, burst=1), now=NOON)
        ids = add_all(driver, [keyed(key) for key in ("a", "a", "b", "c", "d")])
        assert take_ids(driver) == [ids[0], ids[2], ids[3]]
        assert take_ids(driver, now=NOON + SECOND) == [ids[4]]
        assert take_ids(driver, now=NOON + 2 * SECOND) == [ids[1]]

    def test_recovery_forgets_keys_whose_tokens_have_all_come_back_and_no_others(self, driver: Driver) -> None:
        driver.set_limit(Limit("queue", "default", per="key", rate=0.1, burst=2), now=NOON)
        add_all(driver, [keyed(f"old-{number}") for number in range(20)])
        assert len(take_all(driver, limit=50)) == 20
        half = NOON + 10 * SECOND
        ids = add_all(driver, [keyed(key) for key in ("new", "new", "new", "old-1")], now=half)
        assert take_ids(driver, now=half) == [ids[0], ids[1], ids[3]]
        assert kept_rows(driver, "buckets") in (None, 21)
        driver.recover(half)
        # old-1 has one token of its two, and new none: those are known still.
        assert kept_rows(driver, "buckets") in (None, 2)
        assert take_ids(driver, now=half + 9 * SECOND) == []
        assert take_ids(driver, now=half + 10 * SECOND) == [ids[2]]

    def test_a_rate_that_was_lifted_begins_anew_when_it_is_set_again(self, driver: Driver) -> None:
        limit = Limit("type", "email.send", rate=0.01, burst=1)
        driver.set_limit(limit, now=NOON)
        first, second, third = add_all(driver, [new_job() for _ in range(3)])
        assert take_ids(driver) == [first]
        driver.set_limit(limit, now=NOON)
        assert nothing_runnable(driver), "the same limit again brings no tokens"
        assert driver.drop_limit("type", "email.send", now=NOON)
        driver.set_limit(limit, now=NOON)
        assert take_ids(driver) == [second]
        assert everything(driver)[third].status is Status.READY

    def test_a_claim_whose_clock_is_behind_brings_no_tokens(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "email.send", rate=1, burst=2), now=NOON)
        ids = add_all(driver, [new_job() for _ in range(4)])
        later = NOON + 10 * SECOND
        assert ids_of(list(driver.reserve("default", now=later))) == ids[:1]
        assert take_ids(driver, now=NOON) == ids[1:2]
        assert nothing_runnable(driver, now=later), "these seconds were counted before"
        assert take_ids(driver, now=later + SECOND) == ids[2:3]

    @pytest.mark.parametrize(
        "limit",
        [
            Limit("queue", "default", rate=10, burst=2),
            Limit("type", "email.send", rate=10, burst=2),
            Limit("queue", "default", per="key", rate=10, burst=2),
        ],
        ids=["queue", "type", "key"],
    )
    def test_a_clock_that_was_far_ahead_for_a_moment_stops_nobody(self, driver: Driver, limit: Limit) -> None:
        driver.set_limit(limit, now=NOON)
        add_all(driver, [keyed("a") for _ in range(40)])
        assert len(take_ids(driver)) == 2
        assert len(take_ids(driver, now=NOON + HOUR)) == 2
        right = NOON + SECOND
        driver.recover(right)
        # Nobody knows how much of this time was used: it counts from now on, and the tokens are those that were left.
        taken = [len(take_ids(driver, now=right + step * SECOND / 10)) for step in range(21)]
        assert sum(taken) == 20 and max(taken) == 1

    @pytest.mark.parametrize(("rate", "burst", "ahead"), [(10, 2, MINUTE), (0.01, 3, 5 * MINUTE)])
    def test_time_that_clocks_differ_by_is_never_counted_twice(
        self, driver: Driver, rate: float, burst: int, ahead: timedelta
    ) -> None:
        driver.set_limit(Limit("queue", "default", rate=rate, burst=burst), now=NOON)
        add_all(driver, [new_job() for _ in range(20)])
        assert len(take_ids(driver, now=NOON + ahead)) == burst
        for step in range(5):
            assert nothing_runnable(driver, now=NOON + step * SECOND)
            assert nothing_runnable(driver, now=NOON + ahead)
        assert len(take_ids(driver, now=NOON + ahead + SECOND / rate)) == 1

    def test_ends_do_not_bring_tokens_back(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "email.send", rate=1, burst=2), now=NOON)
        add_all(driver, [new_job() for _ in range(5)])
        for leased in take_all(driver):
            driver.ack(leased.job.id, leased.lease.token, now=NOON)
        assert nothing_runnable(driver)

    def test_a_rate_and_a_concurrency_hold_together(self, driver: Driver) -> None:
        driver.set_limit(Limit("queue", "default", concurrency=2, rate=1, burst=3), now=NOON)
        ids = add_all(driver, [new_job() for _ in range(9)])
        running = take_all(driver)
        assert ids_of(running) == ids[:2], "no more at once"
        for leased in running:
            driver.ack(leased.job.id, leased.lease.token, now=NOON)
        assert take_ids(driver) == [ids[2]], "one token was left"
        assert take_ids(driver, now=NOON + 10 * SECOND) == [ids[3]], "and one runs still"

    def test_a_claim_that_a_rate_held_back_tells_when_to_look_again(self, driver: Driver) -> None:
        assert driver.look_again_at("default") is None
        driver.set_limit(Limit("queue", "default", rate=2, burst=1), now=NOON)
        add_all(driver, [new_job() for _ in range(3)])
        assert len(take_all(driver)) == 1
        again = driver.look_again_at(["default"])
        assert again == NOON + SECOND / 2
        assert take_ids(driver, now=again - MICROSECOND) == []
        assert len(take_ids(driver, now=again)) == 1
        assert len(take_ids(driver, now=NOON + 10 * SECOND)) == 1
        assert nothing_runnable(driver, now=NOON + 20 * SECOND)
        assert driver.look_again_at("default") is None, "nothing is held back any more"
        assert driver.look_again_at("other") is None

    def test_a_benched_job_starts_when_its_token_comes_and_the_hint_says_when(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "slow", rate=1, burst=1), now=NOON)
        first, second = add_all(driver, [new_job(type="slow"), new_job(type="slow")])
        assert take_ids(driver) == [first]
        assert driver.look_again_at("default") == NOON + SECOND
        assert take_ids(driver, now=NOON + SECOND) == [second]

    def test_a_claim_that_goes_by_a_bench_leaves_the_hint_as_it_was(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "email.send", rate=10, burst=1), now=NOON)
        ids = add_all(driver, [new_job() for _ in range(3)])
        assert take_ids(driver) == ids[:1]
        due = NOON + SECOND / 10
        assert driver.look_again_at("default") == due
        assert take_ids(driver, now=NOON + SECOND / 100) == []
        assert driver.look_again_at("default") == due
        assert take_ids(driver, now=due) == ids[1:2]
        assert driver.look_again_at("default") == due + SECOND / 10

    def test_many_claimers_start_exactly_as_many_as_the_tokens(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "email.send", rate=5, burst=20), now=NOON)
        add_all(driver, [new_job() for _ in range(200)])
        for second, allowed in ((0, 20), (1, 5), (3, 10), (60, 20)):
            moment = NOON + second * SECOND

            def claim(_: int, now: datetime = moment) -> int:
                return sum(len(driver.reserve("default", now=now, limit=3)) for _ in range(5))

            assert sum(in_threads(CLAIMERS, claim)) == allowed, f"at second {second}"

    # --- Bad input -----------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "limit",
        [
            Limit("queue", "default"),
            Limit("queue", "default", concurrency=0),
            Limit("queue", "default", concurrency=-1),
            Limit("queue", "default", concurrency=1.5),  # type: ignore[arg-type]
            Limit("queue", "default", concurrency=True),
            Limit("queue", "default", rate=0),
            Limit("queue", "default", rate=-1.0),
            Limit("queue", "default", rate=float("nan")),
            Limit("queue", "default", rate=float("inf")),
            Limit("queue", "default", rate="5"),  # type: ignore[arg-type]
            Limit("queue", "default", rate=5, burst=0),
            Limit("queue", "default", concurrency=5, burst=1),
            Limit("queue", "", concurrency=1),
            Limit("worker", "w1", concurrency=1),
            Limit("queue", "default", per="type", concurrency=1),
            Limit("tenant", "acme", per="tenant", concurrency=1),
            ("queue", "default", 1),
        ],
        ids=str,
    )
    def test_a_limit_that_makes_no_sense_is_refused_and_changes_nothing(self, driver: Driver, limit: Limit) -> None:
        kept = Limit("queue", "default", concurrency=1)
        driver.set_limit(kept, now=NOON)
        with pytest.raises(InvalidInput):
            driver.set_limit(limit, now=NOON)
        assert driver.get_limits() == [kept]

    def test_lifting_a_limit_of_an_unknown_kind_is_refused(self, driver: Driver) -> None:
        for scope, per in (("worker", ""), ("queue", "type"), ("queue", "no")):
            with pytest.raises(InvalidInput):
                driver.drop_limit(scope, "default", per, now=NOON)
