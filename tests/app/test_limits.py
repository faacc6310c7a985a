"""Limits and fair queues as an application declares them."""

from __future__ import annotations

import re
from typing import Any

import pydantic
import pytest

from taskharbor import Batch, Context, Harbor, InvalidInput
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


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("{acount}", "limit_key names 'acount', but it has no such argument; it has account, note"),
        ("a-{account:>{width}}", "names 'width'"),
        ("{owner.id}-{account}", "names 'owner'"),
        ("{parts[0]}", "names 'parts'"),
        ("{context}", "names 'context'"),
        ("{}", "has no name in its braces: write '{account}'"),
        ("{0}", "has no name in its braces"),
        ("{account", "cannot be read"),
    ],
)
def test_a_key_of_what_a_task_does_not_have_is_refused_where_it_is_written(harbor: Harbor, key: str, told: str) -> None:
    def sync(account: int, note: str = "", *, context: Context) -> None: ...

    with pytest.raises(InvalidInput, match=re.escape(told)):
        harbor.task(limit_key=key)(sync)
    assert "sync" not in harbor.tasks
    with pytest.raises(InvalidInput, match=re.escape(told)):
        harbor.task(sync).using(limit_key=key)


def test_a_key_may_be_made_of_whatever_a_task_takes(harbor: Harbor) -> None:
    class Account(pydantic.BaseModel):
        number: int = pydantic.Field(alias="account-number")
        owner: str = pydantic.Field(alias="theOwner", default="ada")

    @harbor.task(limit_key="{any}")
    def note(**arguments: Any) -> None: ...

    @harbor.task(batch=10, limit_key="{any}")
    def index(batch: Batch) -> None: ...

    def check(batch: Any) -> None: ...

    check.__annotations__["batch"] = Batch[Account]  # type: ignore[valid-type]
    checked = harbor.task(batch=10, limit_key="{account-number}-{theOwner}")(check)
    jobs = [note.enqueue(any=1), index.enqueue(any=1), checked.enqueue(**{"account-number": 1, "theOwner": "bob"})]
    assert [harbor.driver.get(job.id).meta["limit_key"] for job in jobs] == ["1", "1", "1-bob"]


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


def test_a_key_is_made_of_the_defaults_too_and_of_numbers_as_the_annotation_has_them(harbor: Harbor) -> None:
    @harbor.task(limit_key="{account}-{share}")
    def sync(account: str = "all", share: float = 1, note: str = "") -> None: ...

    def key_of(call: Any, **arguments: Any) -> Any:
        return harbor.driver.get(call.enqueue(**arguments).id).meta["limit_key"]

    assert key_of(sync) == key_of(sync, account="all") == key_of(sync, share=1) == key_of(sync, share=1.0) == "all-1.0"
    assert key_of(sync.using(limit_key=lambda account: account)) == "all"
    assert key_of(sync.using(limit_key=lambda **all: ",".join(all))) == "account,share,note"
    harbor.periodic("@every 1h", name="hourly")(sync)
    assert harbor.schedules["hourly"].meta["limit_key"] == "all-1.0"


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"concurrency": 0}, "from 1 to 1,000,000,000, got 0: to stop a queue altogether, pause it"),
        ({"concurrency": 10**23}, "from 1 to 1,000,000,000, got 1" + 23 * "0" + "$"),
        ({"concurrency": True}, "got True$"),
        ({"rate": 1e-9}, "from 0.000001 to 1,000,000,000 jobs a second, got 1e-09"),
        ({"rate": 10**400}, "from 0.000001 to 1,000,000,000 jobs a second"),
        ({"rate": 1, "burst": 10**10}, "burst must be a whole number from 1 to 1,000,000,000"),
        ({}, "to have none, lift the one there is"),
        ({"per": "tenant", "concurrency": 1}, "a limit for a tenant is counted as a whole or per 'key', got 'tenant'"),
    ],
    ids=str,
)
def test_a_limit_that_is_refused_is_told_the_true_reason(harbor: Harbor, sizes: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        harbor.limit(tenant="acme", **sizes)


@pytest.mark.parametrize("fair", ["no", 0, None, "true"])
def test_fair_is_a_yes_or_a_no(harbor: Harbor, fair: Any) -> None:
    with pytest.raises(InvalidInput, match="fair must be True or False"):
        harbor.queue("mail", fair=fair)
    with pytest.raises(InvalidInput, match="fair must be True or False"):
        harbor.set_fair("mail", fair)
    with pytest.raises(InvalidInput, match="must be from 0.01 to 100"):
        harbor.queue("mail", weights={"acme": 10**400})
    assert harbor.driver.queues() == []
