"""The order of `dlq list`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.cli.conftest import enqueued, killed

from taskharbor.cli import deaths
from taskharbor.core.contract import Driver
from taskharbor.core.model import NewJob

Run = Callable[..., Any]
Say = Callable[..., str]


def died_in_this_order(driver: Driver, places: list[int]) -> list[str]:
    """As many jobs as places, each dead a second after the one before; the ids in the order of death."""
    ids = enqueued(driver, *(NewJob("x") for _ in places))
    leased = {each.job.id: each.lease.token for each in driver.reserve("default", limit=len(ids))}
    noon = driver.now()
    dead = [ids[place] for place in places]
    for second, id in enumerate(dead):
        driver.fail(id, leased[id], now=noon + timedelta(seconds=second), reason="no")
    return dead


def test_the_job_that_died_last_stands_first_however_old_it_is(driver: Driver, run: Run) -> None:
    dead = died_in_this_order(driver, [2, 1, 3, 0])
    found = run("dlq", "list")
    assert [job["id"] for job in found["jobs"]] == dead[::-1]
    assert (found["order"], found["cursor"]) == ("death", None)


def test_the_cursor_goes_on_in_the_order_of_death_whatever_dies_meanwhile(driver: Driver, run: Run) -> None:
    dead = died_in_this_order(driver, [2, 1, 3, 0, 4])
    first = run("dlq", "list", "--limit", "2")
    enqueued(driver, NewJob("x"))
    (leased,) = driver.reserve("default")
    driver.fail(leased.job.id, leased.lease.token, now=driver.now() + timedelta(seconds=8), reason="no")
    second = run("dlq", "list", "--limit", "2", "--cursor", first["cursor"])
    third = run("dlq", "list", "--limit", "2", "--cursor", second["cursor"])
    pages = [[job["id"] for job in page["jobs"]] for page in (first, second, third)]
    assert pages == [dead[:2:-1], dead[2:0:-1], dead[:1]]
    assert third["cursor"] is None


def test_a_dlq_too_large_to_sort_comes_by_creation_and_says_so(
    driver: Driver, run: Run, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "MOST", 3)
    dead = died_in_this_order(driver, [3, 2, 1, 0])
    first = run("dlq", "list", "--limit", "2")
    assert [job["id"] for job in first["jobs"]] == dead[:2]
    assert first["order"] == "creation"
    second = run("dlq", "list", "--cursor", first["cursor"])
    assert [job["id"] for job in second["jobs"]] == dead[2:]
    assert "more than 3 jobs match: the newest first, and not those that died last" in say("dlq", "list")


@pytest.mark.parametrize("cursor", ["died:", "died:x:y", "died:5", "died:5:", f"died:{'9' * 40}:y", "after:", "\x1b"])
def test_a_cursor_that_no_page_ended_with_is_refused(driver: Driver, say: Say, cursor: str) -> None:
    killed(driver, 1)
    assert "start without one" in say("dlq", "list", "--cursor", cursor, code=2)
