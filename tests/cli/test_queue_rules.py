"""`queues limit` and `queues fair`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import NewJob

Run = Callable[..., Any]
Say = Callable[..., str]


def test_a_limit_is_set_shown_and_lifted(driver: Driver, run: Run, say: Say) -> None:
    assert run("queues", "limit", "reports", "--concurrency", "4")["concurrency"] == 4
    say("queues", "limit", "mail", "--rate", "60/m", "--burst", "3", "--per", "key")
    say("queues", "limit", "acme", "--tenant", "--concurrency", "2")
    say("queues", "limit", "email.send", "--type", "--rate", "0.5")
    assert driver.get_limits() == [
        Limit("queue", "mail", "key", rate=1.0, burst=3),
        Limit("queue", "reports", concurrency=4),
        Limit("tenant", "acme", concurrency=2),
        Limit("type", "email.send", rate=0.5),
    ]
    listed = run("queues", "list")
    assert [(queue["name"], len(queue["limits"])) for queue in listed["queues"]] == [("mail", 1), ("reports", 1)]
    assert [limit["name"] for limit in listed["limits"]] == ["acme", "email.send"]
    shown = say("queues", "list")
    assert "4 at once" in shown and "1/s (burst 3) per key" in shown and "email.send" in shown
    assert "lifted" in say("queues", "limit", "reports", "--lift")
    assert "had no limit" in say("queues", "limit", "reports", "--lift")
    assert run("queues", "limit", "acme", "--tenant", "--lift")["lifted"] is True


def test_a_queue_is_made_fair_and_plain_again(driver: Driver, run: Run, say: Say) -> None:
    say("queues", "fair", "mail", "--weight", "acme=3", "--weight", "a=b=0.5")
    [queue] = driver.queues()
    assert (queue.fair, queue.weights) == (True, {"acme": 3.0, "a=b": 0.5})
    assert run("queues", "list")["queues"][0]["weights"] == {"acme": 3.0, "a=b": 0.5}
    assert "fair (a=b=0.5, acme=3)" in say("queues", "list")
    assert run("queues", "fair", "mail", "--off")["fair"] is False
    assert not driver.queues()[0].fair


@pytest.mark.parametrize(
    "words",
    [
        ("limit", "mail"),
        ("limit", "mail", "--rate", "-1"),
        ("limit", "mail", "--rate", "fast"),
        ("limit", "mail", "--lift", "--concurrency", "1"),
        ("limit", "acme", "--tenant", "--per", "tenant", "--concurrency", "1"),
        ("fair", "mail", "--weight", "acme"),
        ("fair", "mail", "--weight", "acme=0"),
        ("fair", "mail", "--weight", "=1"),
        ("fair", "mail", "--off", "--weight", "acme=1"),
        ("fair", "mail", "--weight", "acme=3", "--weight", "acme=4"),
        ("fair", "", "--off"),
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_one_line_and_changes_nothing(driver: Driver, say: Say, words: tuple[str, ...]) -> None:
    said = say("queues", *words, code=2)
    assert said.count("\n") <= 1
    assert driver.get_limits() == []
    assert driver.queues() == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("mail",), "a limit needs --concurrency, --rate or both; --lift removes one"),
        (("mail", "--concurrency", "0"), "to stop a queue altogether, pause it"),
        (("mail", "--concurrency", "9" * 23), "from 1 to 1,000,000,000"),
        (("mail", "--concurrency", "9" * 5_000), "is not a whole number"),
        (("mail", "--concurrency", "many"), "'many' is not a whole number"),
        (("mail", "--rate", "-5/s"), "from 0.000001 to 1,000,000,000 jobs a second, got -5"),
        (("mail", "--rate", "-.5/s"), "from 0.000001 to 1,000,000,000 jobs a second, got -0.5"),
        (("mail", "--rate", "1e-9"), "from 0.000001 to 1,000,000,000 jobs a second"),
        (("acme", "--tenant", "--per", "tenant", "--concurrency", "1"), "as a whole or per 'key', got 'tenant'"),
    ],
)
def test_a_limit_that_is_refused_is_told_the_true_reason(
    driver: Driver, say: Say, words: tuple[str, ...], told: str
) -> None:
    assert told in say("queues", "limit", *words, code=2)
    assert driver.get_limits() == []


def test_a_name_that_nothing_uses_is_ruled_with_a_doubt(driver: Driver, run: Run, say: Say) -> None:
    driver.enqueue([NewJob("email.send", queue="mail", tenant_id="acme")])
    driver.heartbeat(Worker("ada", queues=("slow",), meta={"types": "report.build"}))
    one = ("--concurrency", "1")
    assert "nothing uses a queue mial yet: did you mean mail?" in say("queues", "limit", "mial", *one)
    assert "nothing uses a type email.sned yet: did you mean email.send?" in say(
        *("queues", "limit", "email.sned", "--type", *one)
    )
    assert "nothing uses a type report.biuld yet: did you mean report.build?" in say(
        *("queues", "limit", "report.biuld", "--type", *one)
    )
    assert "nothing uses a tenant acem yet: did you mean acme?" in say("queues", "limit", "acem", "--tenant", *one)
    assert "nothing uses a queue slwo yet: did you mean slow?" in say("queues", "fair", "slwo")
    assert "nothing uses a tenant acne yet: did you mean acme?" in say("queues", "fair", "mail", "--weight", "acne=2")
    for words in (
        *(("limit", "mail"), ("limit", "email.send", "--type"), ("limit", "acme", "--tenant")),
        *(("limit", "report.build", "--type"), ("limit", "mial")),
    ):
        assert "nothing uses" not in say("queues", *words, *one)
    assert "nothing uses" not in say("queues", "fair", "mail", "--weight", "acme=2", "--weight", "globex=1")
    assert len(driver.get_limits()) == 8


def test_a_type_and_a_tenant_of_old_jobs_are_known_too(driver: Driver, say: Say) -> None:
    driver.enqueue([NewJob("old", tenant_id="elder"), *(NewJob("new") for _ in range(150))])
    assert "nothing uses" not in say("queues", "limit", "old", "--type", "--rate", "1")
    assert "nothing uses" not in say("queues", "limit", "elder", "--tenant", "--rate", "1")


def test_to_end_the_shares_of_a_queue_that_has_none_makes_no_queue_of_it(driver: Driver, say: Say) -> None:
    said = say("queues", "fair", "nosuch", "--off")
    assert "nothing uses a queue nosuch yet" in said and "first come, first served" in said
    assert driver.queues() == []


def test_to_lift_a_limit_that_there_is_not_names_those_there_are(driver: Driver, run: Run, say: Say) -> None:
    say("queues", "limit", "sync", "--per", "key", "--concurrency", "1")
    say("queues", "limit", "sync", "--type", "--rate", "2/m")
    said = say("queues", "limit", "sync", "--lift")
    assert "queue sync had no limit" in said
    assert "there is one for queue sync per key (1 at once per key): to lift that, give --per key --lift" in said
    assert "there is one for type sync (2/m): to lift that, give --type --lift" in said
    assert "nothing uses a queue snyc yet: did you mean sync?" in say("queues", "limit", "snyc", "--lift")
    assert len(driver.get_limits()) == 2
    assert run("queues", "limit", "sync", "--lift")["lifted"] is False


@pytest.mark.parametrize("name", ["TYPE", "TENANT"])
@pytest.mark.parametrize("value", ["acme", "true"])
def test_the_environment_does_not_say_what_a_limit_is_for(
    driver: Driver, say: Say, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"TASKHARBOR_{name}", value)
    said = say("queues", "limit", "mail", "--concurrency", "1")
    assert f"TASKHARBOR_{name} in the environment means nothing: type --{name.lower()}" in said
    assert driver.get_limits() == [Limit("queue", "mail", concurrency=1)]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("100/s", "100/s"),
        ("2.5", "2.5/s"),
        ("60/m", "1/s"),
        ("100/m", "100/m"),
        ("1000/h", "1000/h"),
        ("1/m", "1/m"),
        ("1/h", "1/h"),
        ("1/d", "1/d"),
        ("7/d", "7/d"),
        ("0.3333333", "0.333333/s"),
        ("1000000", "1000000/s"),
    ],
)
def test_a_rate_is_shown_as_somebody_would_write_it(driver: Driver, say: Say, given: str, shown: str) -> None:
    assert f"queue mail: {shown}\n" in say("queues", "limit", "mail", "--rate", given)
