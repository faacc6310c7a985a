"""Plans fit what the tables hold, also when they grow within the minute in which the server has not looked at them
again. What counts is how much of an index is read, which the server says."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from tests.drivers.postgres_stores import driver, url  # noqa: F401 - fixtures

from taskharbor.core.contract import Driver
from taskharbor.core.model import Extension, LeasedJob, NewJob, Settlement, Status
from taskharbor.core.workflow import NewStep, NewWorkflow
from taskharbor.drivers import open_driver

MINUTE = timedelta(minutes=1)
HELD = 200
WAITING = 5_000
ENTRIES = """
SELECT COALESCE(sum(pg_stat_get_tuples_returned(i.indexrelid)), 0)
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relname ^@ 'th_'
"""


@pytest.fixture(autouse=True)
def _server_tells_its_counts(url: str) -> None:  # noqa: F811
    with psycopg.connect(url) as connection:
        if connection.info.server_version < 150_000:
            pytest.skip("before version 15, PostgreSQL tells what it has counted when it likes")


def read(url: str) -> int:  # noqa: F811
    """Entries of indexes that were read so far."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(ENTRIES).fetchone()
    assert row is not None
    return int(row[0])


def told(driver: Driver) -> None:  # noqa: F811
    """What the connection has counted is known to everybody."""
    driver._session.transact(lambda connection: connection.execute("SELECT pg_stat_force_next_flush()"))  # type: ignore[attr-defined]


def leased(driver: Driver, count: int, queue: str = "default") -> list[LeasedJob]:  # noqa: F811
    taken = driver.reserve(queue, limit=count, lease_for=MINUTE)
    assert len(taken) == count
    return taken


def tell(driver: Driver, way: str, taken: list[LeasedJob]) -> None:  # noqa: F811
    keys = [(item.job.id, item.lease.token) for item in taken]
    match way:
        case "extend":
            results = driver.extend([Extension(*key, MINUTE) for key in keys])
        case "release":
            results = driver.settle([Settlement.release(*key) for key in keys])
        case "fail":
            results = driver.settle([Settlement.fail(*key, reason="no") for key in keys])
        case _:
            results = driver.settle([Settlement.ack(*key) for key in keys])
    assert not any(isinstance(result, Exception) for result in results)


@pytest.mark.parametrize("before", [1, 2])
@pytest.mark.parametrize("way", ["ack", "ack what others claimed", "release", "fail", "extend"])
def test_a_batch_is_told_without_reading_what_else_waits(
    driver: Driver,  # noqa: F811
    url: str,  # noqa: F811
    before: int,
    way: str,
) -> None:
    driver.enqueue([NewJob("t") for _ in range(before)])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    with open_driver(url) as other:
        claimer = other if "others" in way else driver
        tell(driver, way, leased(claimer, 1))  # plans are made, by statistics of next to nothing
        driver.enqueue([NewJob("t") for _ in range(WAITING)])
        taken = leased(claimer, HELD)
    told(driver)
    earlier = read(url)
    tell(driver, way, taken)
    told(driver)
    assert read(url) - earlier < 10 * HELD


@pytest.mark.parametrize("before", [1, 2])
def test_workflows_move_on_without_reading_other_workflows(driver: Driver, url: str, before: int) -> None:  # noqa: F811
    def flow() -> NewWorkflow:
        return NewWorkflow("w", [NewStep("a", NewJob("t", queue="a")), NewStep("b", NewJob("t", queue="b"), (0,))])

    for _ in range(before):
        driver.start_workflow(flow())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        [first] = leased(driver, 1, "a")
        driver.settle([Settlement.ack(first.job.id, first.lease.token)])
        connection.execute(
            "INSERT INTO th_workflows SELECT 'old' || g, 'n', 'default', 'fail', 'done', 2, 2, 0, now() "
            "FROM generate_series(1, 5000) g"
        )
        connection.execute(
            "INSERT INTO th_steps SELECT 'old' || g / 2, g % 2, 's', '', 'j' || g, 0, 'done' "
            "FROM generate_series(2, 10001) g"
        )
        connection.execute("INSERT INTO th_edges SELECT 'old' || g, 0, 1 FROM generate_series(1, 5000) g")
    for _ in range(HELD):
        driver.start_workflow(flow())
    taken = leased(driver, HELD, "a")
    told(driver)
    earlier = read(url)
    results = driver.settle([Settlement.ack(item.job.id, item.lease.token) for item in taken])
    told(driver)
    assert results == [Status.DONE] * HELD
    assert len(leased(driver, HELD, "b")) == HELD
    assert read(url) - earlier < 100 * HELD
