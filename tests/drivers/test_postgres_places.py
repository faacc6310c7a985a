"""Settling goes straight to where a claim left the row, which is a guess: whatever has moved is found all the same."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from tests.drivers.postgres_stores import driver, url  # noqa: F401 - fixtures

from taskharbor.core.contract import Driver
from taskharbor.core.model import LeasedJob, NewJob, Settlement, Status
from taskharbor.drivers import open_driver
from taskharbor.drivers.postgres import settling

MINUTE = timedelta(minutes=1)


def leased(driver: Driver, count: int) -> list[LeasedJob]:  # noqa: F811
    driver.enqueue([NewJob("t", b"%d" % number) for number in range(count)])
    taken = driver.reserve("default", limit=count, lease_for=MINUTE)
    assert len(taken) == count
    return taken


def acks(taken: list[LeasedJob]) -> list[Settlement]:
    return [Settlement.ack(item.job.id, item.lease.token, result=item.job.payload) for item in taken]


def test_jobs_whose_rows_have_moved_are_settled_with_their_own_results(
    driver: Driver,  # noqa: F811
    url: str,  # noqa: F811
) -> None:
    driver.enqueue([NewJob("t") for _ in range(50)])
    gone = driver.reserve("default", limit=50)
    taken = leased(driver, 20)
    driver.settle(acks(gone))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM FULL th_jobs")
    assert driver.settle(acks(taken)) == [Status.DONE] * 20
    assert [driver.get(item.job.id).result for item in taken] == [item.job.payload for item in taken]


def test_a_lease_that_another_process_has_extended_is_settled(
    driver: Driver,  # noqa: F811
    url: str,  # noqa: F811
) -> None:
    taken = leased(driver, 4)
    with open_driver(url) as other:
        for item in taken[::2]:
            other.extend_lease(item.job.id, item.lease.token, lease_for=MINUTE)
    assert driver.settle(acks(taken)) == [Status.DONE] * 4


def test_a_row_that_stands_where_another_one_stood_is_not_settled_in_its_place(
    driver: Driver,  # noqa: F811
    url: str,  # noqa: F811
) -> None:
    [first] = leased(driver, 1)
    with open_driver(url) as other, psycopg.connect(url, autocommit=True) as connection:
        place = connection.execute("SELECT ctid FROM th_jobs").fetchone()
        other.settle(acks([first]))
        for _ in range(20):
            connection.execute("VACUUM (DISABLE_PAGE_SKIPPING) th_jobs")
            [second] = leased(other, 1)
            if connection.execute("SELECT ctid FROM th_jobs").fetchone() == place:
                break
            other.settle(acks([second]))
        else:
            pytest.fail("no row came to stand where the first one stood")
        assert driver.settle(acks([first])) == [Status.DONE]  # a repeat, which changes nothing
        assert other.get(second.job.id).status is Status.INFLIGHT
        assert other.settle(acks([second])) == [Status.DONE]


def test_places_of_jobs_that_this_process_never_settles_do_not_pile_up(
    driver: Driver,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settling, "MOST_PLACES", 10)
    taken = [item for _ in range(10) for item in leased(driver, 3)]
    assert len(driver._queueing._places._known) <= 13  # type: ignore[attr-defined]
    assert driver.settle(acks(taken)) == [Status.DONE] * 30
    assert not driver._queueing._places._known  # type: ignore[attr-defined]
