"""What limits promise: exact counts of what runs, whoever claims, and no harm to those behind."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Extension, LeasedJob, NewJob, Settlement, Status
from taskharbor.testing.helpers import (
    add,
    add_all,
    everything,
    failure,
    in_threads,
    new_job,
    nothing_runnable,
    settle_one,
    settlement,
    take,
    take_all,
    take_ids,
)
from taskharbor.testing.times import DAY, HOUR, MICROSECOND, MINUTE, NOON, SECOND

CLAIMERS = 8
PATIENCE_S = 60.0


def keyed(key: str | None, **fields: object) -> NewJob:
    """A job with a key of its caller's choice."""
    return new_job(meta={} if key is None else {"limit_key": key}, **fields)


def ids_of(leases: list[LeasedJob]) -> list[str]:
    return [leased.job.id for leased in leases]


class LimitContract:
    """How many run at once, and what becomes of those that must wait."""

    # --- How many run at once ------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("limit", "held", "free"),
        [
            (Limit("queue", "default", concurrency=2), {}, {"queue": "other"}),
            (Limit("type", "email.send", concurrency=2), {"queue": "other"}, {"type": "report"}),
            (Limit("tenant", "acme", concurrency=2), {"tenant_id": "acme"}, {"tenant_id": "other"}),
        ],
        ids=["queue", "type", "tenant"],
    )
    def test_no_more_run_at_once_than_a_limit_allows_and_others_are_free(
        self, driver: Driver, limit: Limit, held: dict[str, str], free: dict[str, str]
    ) -> None:
        driver.set_limit(limit, now=NOON)
        held_ids = add_all(driver, [new_job(**held) for _ in range(5)])
        free_ids = add_all(driver, [new_job(**free) for _ in range(5)])
        queues = ["default", "other"]
        taken = take_all(driver, queues)
        assert sorted(ids_of(taken)) == sorted([*held_ids[:2], *free_ids])
        assert nothing_runnable(driver, queues)
        mine = next(leased for leased in taken if leased.job.id == held_ids[1])
        driver.ack(mine.job.id, mine.lease.token, now=NOON)
        assert ids_of(take_all(driver, queues)) == [held_ids[2]]
        assert nothing_runnable(driver, queues)

    def test_a_limit_per_key_counts_each_key_for_itself_and_leaves_jobs_without_one_alone(self, driver: Driver) -> None:
        driver.set_limit(Limit("queue", "default", per="key", concurrency=1), now=NOON)
        a1, a2, b1, none1, none2, b2 = add_all(driver, [keyed(key) for key in ("a", "a", "b", None, None, "b")])
        taken = {leased.job.id: leased for leased in take_all(driver)}
        assert list(taken) == [a1, b1, none1, none2]
        assert nothing_runnable(driver)
        driver.ack(b1, taken[b1].lease.token, now=NOON)
        assert take_ids(driver) == [b2]
        driver.ack(a1, taken[a1].lease.token, now=NOON)
        assert take_ids(driver) == [a2]

    def test_a_limit_per_tenant_counts_each_tenant_for_itself(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "email.send", per="tenant", concurrency=1), now=NOON)
        ids = add_all(driver, [new_job(tenant_id=name) for name in ("a", "a", "b", "c", "b")])
        assert take_ids(driver) == [ids[0], ids[2], ids[3]]

    def test_several_limits_hold_together(self, driver: Driver) -> None:
        driver.set_limit(Limit("queue", "default", concurrency=3), now=NOON)
        driver.set_limit(Limit("queue", "default", per="key", concurrency=1), now=NOON)
        driver.set_limit(Limit("tenant", "acme", concurrency=1), now=NOON)
        jobs = [keyed(key, tenant_id=tenant) for key, tenant in [("a", "x"), ("a", "x"), ("b", "acme"), ("c", "acme")]]
        a1, a2, b, c = add_all(driver, jobs)
        d, e, f = add_all(driver, [keyed(key) for key in "def"])
        taken = {leased.job.id: leased for leased in take_all(driver)}
        assert list(taken) == [a1, b, d], "a2 waits for its key, c for its tenant, e and f for the queue"
        driver.ack(b, taken[b].lease.token, now=NOON)
        assert take_ids(driver) == [c]
        driver.ack(d, taken[d].lease.token, now=NOON)
        assert take_ids(driver) == [e]
        driver.ack(a1, taken[a1].lease.token, now=NOON)
        assert take_ids(driver) == [a2]
        assert everything(driver)[f].status is Status.READY

    @pytest.mark.parametrize("kind", ["ack", "retry", "fail", "release", "snooze", "cancel"])
    def test_every_way_to_end_a_lease_gives_its_place_back(self, driver: Driver, kind: str) -> None:
        driver.set_limit(Limit("type", "email.send", concurrency=1), now=NOON)
        first, second = add_all(driver, [new_job(priority=9), new_job()])
        leased = take(driver)
        assert leased.job.id == first and nothing_runnable(driver)
        settle_one(driver, settlement(kind, leased))
        back = first if kind in ("release", "retry") else second
        assert take(driver).job.id == back
        assert nothing_runnable(driver)

    def test_a_dead_workers_share_comes_back_with_its_lease(self, driver: Driver) -> None:
        driver.set_limit(Limit("queue", "default", per="key", concurrency=1), now=NOON)
        first, second = add_all(driver, [keyed("a"), keyed("a")])
        take(driver, lease_for=MINUTE)
        assert nothing_runnable(driver, now=NOON + MINUTE - MICROSECOND)
        other = take(driver, now=NOON + MINUTE)
        assert other.job.id == second, "the first one is due again since its lease ended, and the second since before"
        assert nothing_runnable(driver, now=NOON + MINUTE)
        driver.ack(second, other.lease.token, now=NOON + MINUTE)
        assert take(driver, now=NOON + MINUTE).job.id == first

    def test_recovery_gives_a_dead_workers_share_back_before_its_lease_ends(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "email.send", concurrency=1), now=NOON)
        first, second = add_all(driver, [new_job(), new_job()])
        driver.heartbeat(Worker("w1", "host", 1, ("default",), 1, "1.0"), now=NOON)
        assert ids_of(list(driver.reserve("default", now=NOON, lease_for=600, limit=2, owner="w1"))) == [first]
        driver.recover(NOON + MINUTE)
        later = NOON + MINUTE
        assert take_ids(driver, now=later) in ([first], [second]), "one of them, and no more"

    def test_what_ended_while_a_limit_counted_only_starts_does_not_run(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "email.send", concurrency=1), now=NOON)
        first, second = add_all(driver, [new_job(), new_job()])
        leased = take(driver)
        driver.set_limit(Limit("type", "email.send", rate=0.01, burst=1), now=NOON)
        driver.drop_limit("type", "email.send", now=NOON)
        assert take_ids(driver) == [second]
        driver.ack(first, leased.lease.token, now=NOON)
        driver.retry(second, everything(driver)[second].lease_token or "", now=NOON, update=failure(run_at=None))
        driver.set_limit(Limit("type", "email.send", concurrency=1), now=NOON)
        assert take_ids(driver) == [second]

    def test_a_lease_that_is_extended_keeps_its_place(self, driver: Driver) -> None:
        driver.set_limit(Limit("queue", "default", concurrency=1), now=NOON)
        _, waiting = add_all(driver, [new_job(), new_job()])
        leased = take(driver, lease_for=MINUTE)
        driver.extend_lease(leased.job.id, leased.lease.token, now=NOON + SECOND, lease_for=HOUR)
        assert nothing_runnable(driver, now=NOON + 2 * MINUTE)
        assert nothing_runnable(driver, now=NOON + 3 * MINUTE)
        assert take(driver, now=NOON + 2 * HOUR).job.id == waiting

    @pytest.mark.parametrize("per", ["", "key"])
    def test_a_lease_that_is_made_shorter_gives_its_place_back_when_it_ends(self, driver: Driver, per: str) -> None:
        driver.set_limit(Limit("queue", "default", per=per, concurrency=1), now=NOON)
        first, second = add_all(driver, [keyed("a"), keyed("a")])
        leased = take(driver, lease_for=HOUR)
        driver.extend([Extension(first, leased.lease.token, 5 * SECOND)], now=NOON)
        assert take_ids(driver, now=NOON + 4 * SECOND) == []
        [again] = take_all(driver, now=NOON + 6 * SECOND)
        settle_one(driver, settlement("ack", again), now=NOON + 7 * SECOND)
        [other] = take_all(driver, now=NOON + 8 * SECOND)
        assert {again.job.id, other.job.id} == {first, second}

    def test_what_runs_when_a_limit_is_set_is_counted(self, driver: Driver) -> None:
        ids = add_all(driver, [new_job() for _ in range(5)])
        running = take_all(driver, limit=2)
        driver.set_limit(Limit("queue", "default", concurrency=2), now=NOON)
        assert nothing_runnable(driver)
        driver.ack(running[0].job.id, running[0].lease.token, now=NOON)
        assert take_ids(driver) == [ids[2]]

    @pytest.mark.parametrize(
        "limit",
        [
            Limit("queue", "default", concurrency=3),
            Limit("type", "email.send", concurrency=3),
            Limit("tenant", "default", concurrency=3),
            Limit("queue", "default", per="key", concurrency=1),
        ],
        ids=["queue", "type", "tenant", "key"],
    )
    def test_many_claimers_never_run_more_than_a_limit_allows_and_finish_all(
        self, driver: Driver, limit: Limit
    ) -> None:
        seed = random.randrange(2**32)
        print(f"seed {seed}")  # noqa: T201
        dice = random.Random(seed)
        jobs = 60
        driver.set_limit(limit, now=NOON)
        assert limit.concurrency is not None
        ids = add_all(driver, [keyed(f"key-{dice.randrange(5)}") for _ in range(jobs)])
        lock = threading.Condition()
        running: Counter[str | None] = Counter()
        highest: Counter[str | None] = Counter()
        ended: Counter[str] = Counter()
        deadline = time.monotonic() + PATIENCE_S

        def claim(number: int) -> None:
            own = random.Random(seed + number)
            mine: list[LeasedJob] = []
            while len(ended) < jobs and time.monotonic() < deadline:
                done = [mine.pop(own.randrange(len(mine))) for _ in range(own.randint(0, len(mine)))]
                with lock:  # no later than the store, which learns of it below
                    for leased in done:
                        running[limit.bucket(leased.job)] -= 1
                items = []
                for leased in done:
                    if own.random() < 0.2:
                        items.append(Settlement.release(leased.job.id, leased.lease.token))
                    else:
                        items.append(Settlement.ack(leased.job.id, leased.lease.token))
                        ended[leased.job.id] += 1
                if own.random() < 0.3:
                    assert all(isinstance(result, Status) for result in driver.settle(items, now=NOON))
                    items = []
                _, taken = driver.settle_and_reserve(
                    items, "default", now=NOON, lease_for=HOUR, limit=own.randint(1, 5), owner=f"worker-{number}"
                )
                with lock:
                    for leased in taken:
                        bucket = limit.bucket(leased.job)
                        running[bucket] += 1
                        highest[bucket] = max(highest[bucket], running[bucket])
                    if done:
                        lock.notify_all()
                    elif not taken:  # the rest is in other hands: until one of them lets something go
                        lock.wait(0.1)
                mine += taken
            driver.settle([Settlement.release(leased.job.id, leased.lease.token) for leased in mine], now=NOON)

        in_threads(CLAIMERS, claim)
        assert ended == Counter(ids), "every job ends once"
        assert max(highest.values()) <= limit.concurrency, highest
        assert driver.counts()["done"] == jobs

    # --- Those behind --------------------------------------------------------------------------------------

    def test_a_blocked_key_never_blocks_the_others_behind_it(self, driver: Driver) -> None:
        driver.set_limit(Limit("queue", "default", per="key", concurrency=1), now=NOON)
        add_all(driver, [keyed("busy", priority=5) for _ in range(500)])
        others = add_all(driver, [keyed(f"key-{number}") for number in range(3)])
        take(driver)
        assert [take(driver).job.id for _ in others] == others
        assert nothing_runnable(driver)

    @pytest.mark.parametrize("slow_first", [True, False])
    @pytest.mark.parametrize("size", [{"concurrency": 1}, {"rate": 1.0, "burst": 1}], ids=["concurrency", "rate"])
    def test_those_that_wait_for_another_limit_do_not_keep_others_from_the_room_there_is(
        self, driver: Driver, size: dict[str, Any], slow_first: bool
    ) -> None:
        limits = [Limit("type", "slow", rate=0.01, burst=1), Limit("tenant", "acme", **size)]
        for limit in limits if slow_first else reversed(limits):
            driver.set_limit(limit, now=NOON)
        add(driver, type="slow", priority=9)
        first = add(driver, tenant_id="acme", priority=8)
        slow = add_all(driver, [new_job(type="slow", tenant_id="acme", priority=5) for _ in range(40)])
        behind = add(driver, tenant_id="acme")
        leased = {item.job.id: item.lease.token for item in take_all(driver)}
        assert len(leased) == 2
        driver.ack(first, leased[first], now=NOON + SECOND)
        assert take_ids(driver, now=NOON + SECOND) == [behind], "the slow ones wait for their type"
        assert all(everything(driver)[id].status is Status.READY for id in slow)

    def test_a_job_that_waited_takes_the_place_in_line_that_it_had(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "slow", concurrency=1), now=NOON)
        running = add(driver, type="slow", priority=1)
        leased = take(driver)
        first = add(driver, type="slow")
        second = add(driver, type="slow", now=NOON - MINUTE)
        assert nothing_runnable(driver)
        later = add(driver, now=NOON)
        driver.ack(running, leased.lease.token, now=NOON)
        assert take_ids(driver) == [second, later], "before what came later, and only one of its type"
        assert everything(driver)[first].status is Status.READY

    def test_a_job_that_is_held_back_looks_as_it_was(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "slow", concurrency=1), now=NOON)
        add(driver, type="slow", priority=1)
        take(driver)
        held = add(driver, type="slow", now=NOON - MINUTE, expires_at=NOON + HOUR)
        before = driver.get(held)
        assert nothing_runnable(driver)
        after = driver.get(held)
        assert after == before
        assert (after.status, after.due_at, after.deliveries) == (Status.READY, NOON - MINUTE, 0)
        assert driver.list().jobs[0] == before
        counts = driver.counts()
        assert (counts["ready"], counts.scheduled) == (1, 0)

    def test_a_job_that_is_held_back_can_be_cancelled(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "slow", concurrency=1), now=NOON)
        add(driver, type="slow", priority=1)
        leased = take(driver)
        held, last = add_all(driver, [new_job(type="slow"), new_job(type="slow")])
        assert nothing_runnable(driver)
        assert driver.cancel(held, now=NOON + SECOND) is Status.CANCELLED
        assert driver.get(held).due_at == NOON
        driver.ack(leased.job.id, leased.lease.token, now=NOON)
        assert take_ids(driver) == [last]

    def test_a_job_that_is_held_back_expires_in_time(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "slow", concurrency=1), now=NOON)
        add(driver, type="slow", priority=1)
        leased = take(driver, lease_for=HOUR)
        held = add(driver, type="slow", expires_at=NOON + MINUTE)
        last = add(driver, type="slow")
        assert nothing_runnable(driver)
        assert nothing_runnable(driver, now=NOON + MINUTE)
        assert driver.get(held).status is Status.EXPIRED
        assert driver.get(held).due_at == NOON
        driver.ack(leased.job.id, leased.lease.token, now=NOON + MINUTE)
        assert take_ids(driver, now=NOON + MINUTE) == [last]

    def test_claims_with_a_filter_of_types_pass_by_what_is_held_back(self, driver: Driver) -> None:
        driver.set_limit(Limit("queue", "default", per="key", concurrency=1), now=NOON)
        add_all(driver, [keyed("a", type="x"), keyed("a", type="y"), keyed("b", type="y")])
        first = driver.reserve("default", now=NOON, types=["x"], limit=5)
        second = driver.reserve("default", now=NOON, types=["y"], limit=5)
        assert [leased.job.meta["limit_key"] for leased in first + second] == ["a", "b"]

    def test_paused_queues_and_jobs_of_the_future_stay_where_they_are(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "email.send", concurrency=1), now=NOON)
        future = add(driver, run_at=NOON + HOUR)
        add(driver, queue="mail")
        driver.pause("mail")
        assert nothing_runnable(driver, ["default", "mail"])
        driver.resume("mail")
        assert take(driver, ["default", "mail"], lease_for=MINUTE).job.queue == "mail"
        assert driver.get(future).due_at == NOON + HOUR

    def test_priorities_hold_over_queues_of_which_one_is_limited(self, driver: Driver) -> None:
        driver.set_limit(Limit("queue", "small", concurrency=2), now=NOON)
        small = add_all(driver, [new_job(queue="small", priority=priority) for priority in (9, 7, 5)])
        large = add_all(driver, [new_job(queue="large", priority=priority) for priority in (8, 6, 4)])
        assert take_ids(driver, ["small", "large"]) == [small[0], large[0], small[1], large[1], large[2]]

    # --- Changes -------------------------------------------------------------------------------------------

    def test_a_higher_limit_lets_those_in_that_wait(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "email.send", concurrency=1), now=NOON)
        ids = add_all(driver, [new_job() for _ in range(6)])
        assert take_ids(driver) == ids[:1]
        driver.set_limit(Limit("type", "email.send", concurrency=3), now=NOON)
        assert take_ids(driver) == ids[1:3]
        assert driver.get_limits() == [Limit("type", "email.send", concurrency=3)]

    def test_a_lower_limit_lets_running_jobs_go_on_and_starts_no_others(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "email.send", concurrency=3), now=NOON)
        ids = add_all(driver, [new_job() for _ in range(6)])
        running = take_all(driver)
        driver.set_limit(Limit("type", "email.send", concurrency=1), now=NOON)
        for leased in running[:2]:
            driver.ack(leased.job.id, leased.lease.token, now=NOON)
            assert nothing_runnable(driver)
        driver.ack(running[2].job.id, running[2].lease.token, now=NOON)
        assert take_ids(driver) == [ids[3]]

    def test_lifting_a_limit_frees_everything_that_it_held_back(self, driver: Driver) -> None:
        driver.set_limit(Limit("queue", "default", per="key", concurrency=1), now=NOON)
        ids = add_all(driver, [keyed("a") for _ in range(20)])
        assert take_ids(driver) == ids[:1]
        assert driver.drop_limit("queue", "default", "key", now=NOON) is True
        assert driver.drop_limit("queue", "default", "key", now=NOON) is False
        assert take_ids(driver) == ids[1:]
        assert driver.get_limits() == []

    def test_limits_are_listed_by_scope_name_and_part(self, driver: Driver) -> None:
        limits = [
            Limit("queue", "a", concurrency=4),
            Limit("queue", "a", "key", concurrency=1),
            Limit("queue", "b", rate=12.5, burst=3),
            Limit("tenant", "a", concurrency=7, rate=0.5),
            Limit("type", "a", "tenant", rate=100.0),
        ]
        for limit in reversed(limits):
            driver.set_limit(limit, now=NOON)
        assert driver.get_limits() == limits

    def test_retries_and_redriven_jobs_keep_to_the_limits_too(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "email.send", concurrency=1), now=NOON)
        first, second = add_all(driver, [new_job(), new_job()])
        leased = take(driver)
        driver.fail(first, leased.lease.token, now=NOON, reason="boom")
        leased = take(driver)
        assert leased.job.id == second
        driver.redrive(now=NOON)
        assert nothing_runnable(driver)
        driver.retry(second, leased.lease.token, now=NOON, update=failure(run_at=NOON + DAY))
        assert take_ids(driver) == [first]
