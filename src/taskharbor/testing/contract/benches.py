"""What those that limits hold back are promised: as soon as there is room, whoever asks for them has them."""

from __future__ import annotations

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Status
from taskharbor.testing.contract.limits import keyed
from taskharbor.testing.helpers import add, add_all, everything, new_job, nothing_runnable, take_all, take_ids
from taskharbor.testing.times import NOON


class BenchContract:
    """Who comes back when there is room again."""

    @pytest.mark.parametrize("change", ["lifted", "raised"])
    @pytest.mark.parametrize("per", ["key", "tenant"])
    def test_a_limit_that_is_lifted_or_raised_frees_all_keys_and_tenants_at_once(
        self, driver: Driver, per: str, change: str
    ) -> None:
        driver.set_limit(Limit("queue", "default", per=per, concurrency=1), now=NOON)
        names = [f"name-{number}" for number in range(200)]
        ids = add_all(driver, [keyed(name, tenant_id=name) for name in [*names, *names, *names[:50]]])
        assert len(take_all(driver, limit=500)) == 200
        assert nothing_runnable(driver), "the others wait for the first of their names"
        if change == "lifted":
            driver.drop_limit("queue", "default", per, now=NOON)
        else:
            driver.set_limit(Limit("queue", "default", per=per, concurrency=1_000), now=NOON)
        freed = [len(take_all(driver, limit=100)) for _ in range(3)]
        assert freed == [100, 100, 50], "a claim takes all that it can"
        assert nothing_runnable(driver)
        assert all(job.status is Status.INFLIGHT for job in everything(driver).values()) and len(ids) == 450

    def test_one_claim_frees_the_long_bench_of_one_key_beside_the_short_ones_of_others(self, driver: Driver) -> None:
        driver.set_limit(Limit("queue", "default", per="key", concurrency=1), now=NOON)
        jobs = [keyed(f"key-{number}") for number in range(40) for _ in range(2)]
        add_all(driver, [*jobs, *(keyed("busy") for _ in range(101))])
        assert len(take_all(driver, limit=200)) == 41
        driver.set_limit(Limit("queue", "default", per="key", concurrency=500), now=NOON)
        assert len(take_all(driver, limit=200)) == 140

    def test_those_of_a_queue_that_nobody_works_on_keep_no_place_from_those_of_another(self, driver: Driver) -> None:
        driver.set_limit(Limit("tenant", "acme", concurrency=2), now=NOON)
        idle = add_all(driver, [new_job(queue="idle", tenant_id="acme", priority=9) for _ in range(50)])
        running = take_all(driver, "idle")
        mine = add_all(driver, [new_job(tenant_id="acme") for _ in range(3)])
        assert nothing_runnable(driver)
        for leased in running:
            driver.ack(leased.job.id, leased.lease.token, now=NOON)
        assert take_ids(driver) == mine[:2]
        driver.ack(mine[0], driver.get(mine[0]).lease_token or "", now=NOON)
        assert take_ids(driver, ["idle", "default"]) == [idle[2]], "and whoever asks for both has them in order"

    def test_those_of_a_paused_queue_keep_no_place_from_those_of_another(self, driver: Driver) -> None:
        driver.set_limit(Limit("tenant", "acme", concurrency=2), now=NOON)
        both = ["paused", "default"]
        paused = add_all(driver, [new_job(queue="paused", tenant_id="acme", priority=9) for _ in range(50)])
        running = take_all(driver, both)
        driver.pause("paused")
        mine = add(driver, tenant_id="acme")
        assert nothing_runnable(driver, both)
        for leased in running:
            driver.ack(leased.job.id, leased.lease.token, now=NOON)
        assert take_ids(driver, both) == [mine]
        assert nothing_runnable(driver, both)
        driver.resume("paused")
        assert take_ids(driver, both) == [paused[2]]
