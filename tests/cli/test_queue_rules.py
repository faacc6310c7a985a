"""`queues limit` and `queues fair`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.limiting import Limit

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
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_one_line_and_changes_nothing(driver: Driver, say: Say, words: tuple[str, ...]) -> None:
    said = say("queues", *words, code=2)
    assert said.count("\n") <= 1
    assert driver.get_limits() == []
    assert driver.queues() == []
