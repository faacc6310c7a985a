"""Claims for one tenant alone, and what claims that choose share with the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Settlement, Status
from taskharbor.testing.helpers import add, add_all, leased_job, new_job
from taskharbor.testing.times import HOUR, MINUTE, NOON


def claimed(driver: Driver, queues: str | list[str] = "default", *, tenant: str | None, limit: int = 10) -> list[str]:
    leased = driver.reserve(queues, now=NOON, lease_for=HOUR, limit=limit, tenant=tenant, owner="w")
    return [each.job.id for each in leased]


KEYED: Mapping[str, Any] = {"meta": {"limit_key": "k"}}
BY_TENANT: Mapping[str, Any] = {"tenant": "b"}
BY_TYPE: Mapping[str, Any] = {"types": ["y"]}
BEHIND_OTHERS: Mapping[str, tuple[Limit, Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]] = {
    # The limit, those that wait in front, those that are asked for, and how they are.
    "type": (Limit("type", "x", concurrency=1), {}, {"tenant_id": "b"}, BY_TENANT),
    "queue": (Limit("queue", "default", concurrency=1), {}, {"tenant_id": "b"}, BY_TENANT),
    "queue-key": (Limit("queue", "default", "key", concurrency=1), KEYED, {**KEYED, "tenant_id": "b"}, BY_TENANT),
    "type-key": (Limit("type", "x", "key", concurrency=1), KEYED, {**KEYED, "tenant_id": "b"}, BY_TENANT),
    "tenant-elsewhere": (
        Limit("tenant", "b", concurrency=1), {"tenant_id": "b", "queue": "other"}, {"tenant_id": "b"}, BY_TENANT,
    ),
    "queue-elsewhere": (Limit("type", "x", concurrency=1), {"queue": "other"}, {}, {}),
    "queue-elsewhere-key": (Limit("type", "x", "key", concurrency=1), {**KEYED, "queue": "other"}, KEYED, {}),
    "queue-elsewhere-tenant": (Limit("tenant", "a", concurrency=1), {"queue": "other"}, {}, {}),
    "types-queue": (Limit("queue", "default", concurrency=1), {}, {"type": "y"}, BY_TYPE),
    "types-queue-key": (Limit("queue", "default", "key", concurrency=1), KEYED, {**KEYED, "type": "y"}, BY_TYPE),
    "types-queue-tenant": (Limit("queue", "default", "tenant", concurrency=1), {}, {"type": "y"}, BY_TYPE),
    "types-tenant": (Limit("tenant", "a", concurrency=1), {}, {"type": "y"}, BY_TYPE),
    "types-tenant-key": (Limit("tenant", "a", "key", concurrency=1), KEYED, {**KEYED, "type": "y"}, BY_TYPE),
}  # fmt: skip


class TenantContract:
    """`reserve` and `settle_and_reserve` with `tenant`."""

    def test_only_jobs_of_the_asked_tenant_are_handed_out(self, driver: Driver) -> None:
        ids = {tenant: add(driver, tenant_id=tenant) for tenant in ("a", "b", "A", "a ")}
        assert claimed(driver, tenant="nobody") == []
        for tenant, id in ids.items():
            assert claimed(driver, tenant=tenant) == [id]
            assert claimed(driver, tenant=tenant) == []

    def test_without_a_tenant_the_jobs_of_all_of_them_are_handed_out(self, driver: Driver) -> None:
        ids = add_all(driver, [new_job(tenant_id=tenant) for tenant in ("a", "b", "c")])
        assert claimed(driver, tenant=None) == ids

    def test_the_order_holds_among_the_jobs_of_a_tenant(self, driver: Driver) -> None:
        jobs = [(f"{tenant}{priority}", tenant, priority) for priority in (0, 5, 3) for tenant in ("a", "b")]
        add_all(driver, [new_job(id=id, tenant_id=tenant, priority=priority) for id, tenant, priority in jobs])
        assert claimed(driver, tenant="b", limit=2) == ["b5", "b3"]
        assert claimed(driver, tenant="b") == ["b0"]
        assert claimed(driver, tenant=None) == ["a5", "a3", "a0"]

    def test_a_tenant_is_found_behind_many_jobs_of_others_in_several_queues(self, driver: Driver) -> None:
        others = [new_job(queue=queue, tenant_id="big", priority=1) for queue in ("x", "y") for _ in range(300)]
        add_all(driver, others)
        small = add_all(driver, [new_job(queue=queue, tenant_id="small") for queue in ("y", "x", "y")])
        assert claimed(driver, ["x", "y"], tenant="small", limit=2) == small[:2]
        assert claimed(driver, ["x", "y"], tenant="small") == small[2:]
        assert len(claimed(driver, ["x", "y"], tenant="big", limit=1_000)) == len(others)

    def test_a_tenant_and_types_must_both_match(self, driver: Driver) -> None:
        add_all(driver, [new_job(tenant_id="a", type="x"), new_job(tenant_id="b", type="y")])
        both = add(driver, tenant_id="a", type="y")
        leased = driver.reserve("default", now=NOON, limit=10, types=["y"], tenant="a")
        assert [each.job.id for each in leased] == [both]

    def test_a_tenant_gets_its_jobs_back_when_their_leases_have_ended(self, driver: Driver) -> None:
        mine, _ = leased_job(driver, tenant_id="a").job, leased_job(driver, tenant_id="b").job
        (again,) = driver.reserve("default", now=NOON + MINUTE, limit=10, tenant="a")
        assert (again.job.id, again.job.deliveries) == (mine.id, 2)

    def test_settle_and_reserve_takes_only_jobs_of_the_asked_tenant(self, driver: Driver) -> None:
        first = leased_job(driver, tenant_id="a")
        add_all(driver, [new_job(tenant_id="b"), new_job(tenant_id="a", id="next")])
        acks = [Settlement.ack(first.job.id, first.lease.token)]
        results, leased = driver.settle_and_reserve(acks, "default", now=NOON, limit=10, tenant="a")
        assert (results, [each.job.id for each in leased]) == ([Status.DONE], ["next"])

    def test_a_fair_queue_and_a_limit_hold_for_claims_of_one_tenant_too(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        driver.set_limit(Limit("type", "email.send", per="tenant", concurrency=2), now=NOON)
        add_all(driver, [new_job(tenant_id=tenant) for tenant in ("a", "a", "a", "b", "b", "b")])
        add(driver, tenant_id="b", queue="other")
        assert len(claimed(driver, ["default", "other"], tenant="b")) == 2
        assert claimed(driver, ["default", "other"], tenant="b") == []
        rest = driver.reserve(["default", "other"], now=NOON, limit=10)
        assert [each.job.tenant_id for each in rest] == ["a", "a"]

    # --- Claims that choose, under limits ------------------------------------------------------------------

    @pytest.mark.parametrize("case", BEHIND_OTHERS)
    def test_a_claim_that_chooses_gets_a_free_place_under_a_limit_behind_others_that_wait_for_it(
        self, driver: Driver, case: str
    ) -> None:
        limit, in_front, behind, choice = BEHIND_OTHERS[case]
        both = ["default", "other"]
        driver.set_limit(limit, now=NOON)
        others = add_all(driver, [new_job(**{"type": "x", "tenant_id": "a", **in_front}) for _ in range(30)])
        (running,) = driver.reserve(both, now=NOON, lease_for=HOUR, limit=40)
        mine = add_all(driver, [new_job(**{"type": "x", "tenant_id": "a", **behind}) for _ in range(3)])
        assert running.job.id == others[0]
        assert driver.reserve(both, now=NOON, limit=40) == [], "all of them wait"
        assert driver.reserve("default", now=NOON, limit=40, **choice) == []
        driver.ack(running.job.id, running.lease.token, now=NOON)
        assert driver.reserve(both, now=NOON, limit=40, tenant="nobody") == []
        assert driver.reserve(both, now=NOON, limit=40, types=["nothing"]) == []
        for id in mine[:2]:
            (leased,) = driver.reserve("default", now=NOON, lease_for=HOUR, limit=40, **choice)
            assert leased.job.id == id, "the first of those that are asked for"
            assert driver.reserve(both, now=NOON, limit=40) == [], "the place is taken"
            assert driver.reserve("default", now=NOON, limit=40, **choice) == []
            driver.ack(leased.job.id, leased.lease.token, now=NOON)
        assert driver.reserve(both, now=NOON, limit=40, tenant="nobody") == []
        for id in [*others[1:], mine[2]]:
            (leased,) = driver.reserve(both, now=NOON, lease_for=HOUR, limit=40)
            assert leased.job.id == id, "the others kept their places in line"
            driver.ack(leased.job.id, leased.lease.token, now=NOON)
        assert driver.counts()["done"] == len(others) + len(mine)

    def test_a_tenant_of_a_fair_queue_gets_a_free_place_under_a_limit_behind_others(self, driver: Driver) -> None:
        driver.set_fair("default", weights={"a": 100}, now=NOON)
        driver.set_limit(Limit("type", "email.send", concurrency=2), now=NOON)
        add_all(driver, [new_job(tenant_id="a") for _ in range(50)])
        running = driver.reserve("default", now=NOON, lease_for=HOUR, limit=60)
        assert [leased.job.tenant_id for leased in running] == ["a", "a"]
        mine = add_all(driver, [new_job(tenant_id="b", priority=priority) for priority in (-1, 0, 0)])
        assert driver.reserve("default", now=NOON, limit=60) == []
        for leased in running:
            driver.ack(leased.job.id, leased.lease.token, now=NOON)
        assert claimed(driver, tenant="c") == []
        assert claimed(driver, tenant="b", limit=1) == mine[1:2]
        assert claimed(driver, tenant="b") == mine[2:], "one more place was free"
        assert claimed(driver, tenant="b") == claimed(driver, tenant="a") == []

    def test_places_that_one_claim_leaves_free_are_free_for_all_at_once(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "email.send", concurrency=3), now=NOON)
        theirs = add_all(driver, [new_job(tenant_id="a") for _ in range(8)])
        running = driver.reserve("default", now=NOON, lease_for=HOUR, limit=9)
        mine = add(driver, tenant_id="b")
        assert claimed(driver, tenant="a") == claimed(driver, tenant="b") == []
        acks = [Settlement.ack(leased.job.id, leased.lease.token) for leased in running]
        driver.settle(acks, now=NOON)
        assert claimed(driver, tenant="b") == [mine]
        assert claimed(driver, tenant="c") == []
        assert claimed(driver, tenant="a") == theirs[3:5], "two of three places"
        assert claimed(driver, tenant=None) == []
