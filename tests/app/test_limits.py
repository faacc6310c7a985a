"""Limits and fair queues as an application declares them."""

from __future__ import annotations

from typing import Any

import pytest

from taskharbor import Harbor, InvalidInput
from taskharbor.core.limiting import Limit, rate_a_second


@pytest.fixture
def harbor() -> Any:
    with Harbor("memory://") as harbor:
        yield harbor


def test_what_is_declared_reaches_the_store_with_the_first_worker_and_not_before(harbor: Harbor) -> None:
    @harbor.task
    def send() -> None: ...

    harbor.limit(type=send, concurrency=2)
    harbor.limit(queue="mail", per="key", rate="60/m", burst=3)
    harbor.queue("mail", weights={"acme": 2})
    assert harbor.driver.get_limits() == []
    harbor.worker("mail").drain()
    assert harbor.driver.get_limits() == [
        Limit("queue", "mail", "key", rate=1.0, burst=3),
        Limit("type", "send", concurrency=2),
    ]
    [queue] = harbor.driver.queues()
    assert (queue.name, queue.fair, queue.weights) == ("mail", True, {"acme": 2.0})


def test_a_key_is_text_or_made_of_the_arguments(harbor: Harbor) -> None:
    @harbor.task(limit_key="acct-{account}", meta={"trace": "1"})
    def sync(account: int, note: str = "") -> None: ...

    def key_of(call: Any, **arguments: Any) -> Any:
        return harbor.driver.get(call.enqueue(**arguments).id).meta

    assert key_of(sync, account=7) == {"trace": "1", "limit_key": "acct-7"}
    assert key_of(sync.using(limit_key="fixed"), account=7)["limit_key"] == "fixed"
    assert key_of(sync.using(limit_key=lambda account, **_: str(account % 4)), account=7)["limit_key"] == "3"
    assert "limit_key" not in key_of(sync.using(limit_key=None), account=7)
    assert "limit_key" not in key_of(sync.using(limit_key=lambda **_: None), account=7)
    [many] = sync.enqueue_many([{"account": 9}])
    assert harbor.driver.get(many.id).meta["limit_key"] == "acct-9"
    by_name = harbor.enqueue("sync", {"account": 5}, limit_key="{account}")
    assert harbor.driver.get(by_name.id).meta["limit_key"] == "5"


@pytest.mark.parametrize("key", ["{nothing}", "", 7, lambda: "x", lambda **_: 7])
def test_a_key_that_cannot_be_made_is_refused_before_anything_is_stored(harbor: Harbor, key: Any) -> None:
    @harbor.task
    def sync(account: int) -> None: ...

    with pytest.raises(InvalidInput):
        sync.using(limit_key=key).enqueue(account=7)
    assert harbor.driver.counts()["ready"] == 0


def test_limits_are_set_and_lifted_at_run_time(harbor: Harbor) -> None:
    harbor.set_limit(tenant="acme", concurrency=3, rate=0.5)
    assert harbor.driver.get_limits() == [Limit("tenant", "acme", concurrency=3, rate=0.5)]
    assert harbor.lift_limit(tenant="acme") is True
    assert harbor.lift_limit(tenant="acme") is False
    harbor.set_fair("mail")
    assert [queue.fair for queue in harbor.driver.queues()] == [True]


@pytest.mark.parametrize(
    "sizes",
    [
        {"queue": "a"},
        {"queue": "a", "type": "b", "concurrency": 1},
        {"concurrency": 1},
        {"queue": "a", "concurrency": 0},
        {"queue": "a", "rate": -1},
        {"queue": "a", "rate": "fast"},
        {"queue": "a", "rate": "5/y"},
        {"queue": "a", "per": "type", "concurrency": 1},
    ],
    ids=str,
)
def test_a_declaration_that_makes_no_sense_is_refused_where_it_stands(harbor: Harbor, sizes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        harbor.limit(**sizes)
    with pytest.raises(InvalidInput):
        harbor.set_limit(**sizes)
    assert not harbor.limits
    assert harbor.driver.get_limits() == []


def test_rates_are_numbers_or_so_many_in_a_span() -> None:
    given = [5, 0.5, "5", "100/s", "60/m", " 36 / h ", "86400/d"]
    assert [rate_a_second(rate) for rate in given] == [5, 0.5, 5, 100, 1, 0.01, 1]
