"""Claims on MySQL and MariaDB: which indexes are walked, how far, and what is first when others hold some jobs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymysql
import pytest
from tests.drivers.mysql.stores import connect, run

from taskharbor.drivers.mysql import schema
from taskharbor.drivers.mysql.driver import MysqlDriver
from taskharbor.drivers.mysql.store import Session
from taskharbor.drivers.mysql.values import CHUNK_ROWS
from taskharbor.drivers.sqlfiles import Statements
from taskharbor.testing.helpers import add, add_all, new_job, take
from taskharbor.testing.times import HOUR, MINUTE, NOON, SECOND

# --- Plans -------------------------------------------------------------------------------------------------


def plan(driver: MysqlDriver, statement: str, **values: Any) -> list[dict[str, Any]]:
    """What the server says it will do for one of our statements."""

    def explain(session: Session) -> list[dict[str, Any]]:
        sql = Statements(schema.PACKAGE, "th_", "pyformat")[statement]
        cursor = session._connection.cursor(pymysql.cursors.DictCursor)
        cursor.execute(f"EXPLAIN {sql}", values)
        return list(cursor.fetchall())

    return driver._store.read(explain)


CLAIM = {"queue": "default", "rank": 0, "now": "2026-06-01 12:00:00", "any_type": True, "types": [None], "limit": 500}


@pytest.mark.parametrize("statement", ["select_due", "select_due+tenant"])
def test_a_claim_walks_its_index_in_order_and_stops_at_now(driver: MysqlDriver, statement: str) -> None:
    add_all(driver, [new_job(run_at=NOON + number * SECOND) for number in range(300)])
    (step,) = plan(driver, statement, tenant="default", **CLAIM)
    assert step["key"] == "th_jobs_claim"
    # All four columns: status, queue and rank are fixed, and the scan ends where jobs are not due yet.
    assert step["type"] == "range"
    assert int(step["key_len"]) == 66 + 1022 + 5 + 9
    assert "filesort" not in (step["Extra"] or "")


@pytest.mark.parametrize("statement", ["select_lapsed", "select_expired", "next_rank", "rank_due"])
def test_a_probe_before_the_claim_reads_an_index_in_order(driver: MysqlDriver, statement: str) -> None:
    ahead = {"from_rank": 0, "window": 8, "after": "2026-06-01 00:00:00", "after_id": ""}
    (step,) = (step for step in plan(driver, statement, **CLAIM, **ahead) if step["table"] == "th_jobs")
    assert step["key"] in ("th_jobs_claim", "th_jobs_expiry")
    assert "filesort" not in (step["Extra"] or "")


@pytest.mark.parametrize("statement", ["record_acks", "record_facts", "save_jobs", "extend", "clone", "delete_jobs"])
def test_a_batch_reaches_its_jobs_by_id_even_when_there_are_few(driver: MysqlDriver, statement: str) -> None:
    # A small table invites a full scan, and that would lock, and wait for, the jobs of everybody else.
    add_all(driver, [new_job() for _ in range(3)])
    steps = plan(driver, statement, items='[{"id":"a"}]', now="2026-06-01 12:00:00")
    assert [(step["type"], step["key"]) for step in steps if step["table"] == "job"] == [("eq_ref", "PRIMARY")]


@pytest.mark.parametrize("statement", ["claim", "lock_leases", "lock_jobs"])
def test_a_list_of_ids_does_not_become_a_scan_of_a_small_table(driver: MysqlDriver, statement: str) -> None:
    add_all(driver, [new_job() for _ in range(3)])
    values = {"secret": "", "owner": "", "lease_expires_at": "2026-06-01 12:00:00", "now": "2026-06-01 12:00:00"}
    steps = plan(driver, statement, ids=[f"id-{number}" for number in range(CHUNK_ROWS)], **values)
    (step,) = (step for step in steps if step["table"] == "th_jobs")  # beside the look whether the store is shut
    assert (step["type"], step["key"]) == ("range", "PRIMARY")


def test_a_claim_reads_no_job_that_waits_for_later(mysql_url: str, driver: MysqlDriver) -> None:
    waiting = [new_job(priority=priority, run_at=NOON + HOUR) for priority in (9, 5) for _ in range(500)]
    add_all(driver, [*waiting, new_job(priority=1)])
    with MysqlDriver(f"{mysql_url}?pool_size=1") as single:
        single.reserve("elsewhere", now=NOON)
        before = rows_read(single)
        assert take(single).job.priority == 1
        assert rows_read(single) - before < 60


def test_the_look_for_the_next_level_goes_straight_there_whatever_the_statistics_say(
    mysql_url: str, driver: MysqlDriver
) -> None:
    add_all(driver, [new_job(priority=priority, run_at=NOON + HOUR) for priority in (9, 5) for _ in range(50)])
    steps = []
    with closing(connect(mysql_url)) as connection:
        for _ in range(20):  # each looks at other pages
            run(connection, "ANALYZE TABLE th_jobs")
            steps += plan(driver, "next_rank", queue="default", from_rank=-8, window=1, now="2026-06-01 12:00:00")
    found = {(step["type"], step["key_len"], step["Extra"]) for step in steps if step["table"] == "th_jobs"}
    assert found == {("range", "1093", "Using where; Using index")}


def rows_read(driver: MysqlDriver) -> int:
    """How many rows this driver's only connection has read so far."""

    def count(session: Session) -> int:
        rows = run(session._connection, "SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for _, value in rows)

    return driver._store.read(count)


# --- Levels of priority ------------------------------------------------------------------------------------


def test_a_claim_passes_thousands_of_levels_that_wait_for_later_in_a_few_statements(
    driver: MysqlDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_all(driver, [new_job(priority=level, run_at=NOON + HOUR) for level in range(1, 3_001)])
    add_all(driver, [new_job(priority=priority) for priority in (0, -5)])
    statements = []
    execute = Session._execute

    def counting(session: Session, sql: str) -> int:
        statements.append(sql)
        return execute(session, sql)

    monkeypatch.setattr(Session, "_execute", counting)
    assert [leased.job.priority for leased in driver.reserve("default", now=NOON, limit=2)] == [0, -5]
    assert len(statements) < 15


@pytest.mark.parametrize("levels", [1, 2, 8, 9, 10, 72, 73, 74, 75])
def test_the_next_level_is_found_however_many_are_in_between(driver: MysqlDriver, levels: int) -> None:
    add_all(driver, [new_job(priority=3 * level, run_at=NOON + HOUR) for level in range(1, levels + 1)])
    add_all(driver, [new_job(priority=1) for _ in range(20)] + [new_job(priority=0)])
    taken = driver.reserve(["default", "other"], now=NOON, limit=30, lease_for=2 * HOUR)
    assert [leased.job.priority for leased in taken] == [1] * 20 + [0]
    assert len(driver.reserve("default", now=NOON + HOUR, limit=100)) == levels


# --- Jobs that others hold ---------------------------------------------------------------------------------


@contextmanager
def held(url: str, *ids: str) -> Iterator[None]:
    """Another transaction has these jobs locked."""
    with closing(connect(url)) as connection:
        connection.begin()
        for id in ids:  # one by one: for several, the server would rather scan, and lock, the whole of a small table
            run(connection, "SELECT id FROM th_jobs WHERE id = %s FOR UPDATE", id)
        yield
        connection.rollback()


def test_no_queue_is_passed_over_because_the_first_job_of_another_is_held(mysql_url: str, driver: MysqlDriver) -> None:
    add(driver, id="held", queue="a", priority=5)
    for priority in (5, 1):
        driver.enqueue([new_job(queue="b", priority=priority) for _ in range(3)], NOON + SECOND)
    with held(mysql_url, "held"):
        taken = [driver.reserve(["a", "b"], now=NOON + MINUTE)[0].job for _ in range(6)]
    assert [(job.queue, job.priority) for job in taken] == [("b", 5)] * 3 + [("b", 1)] * 3
    assert take(driver, "a").job.id == "held"


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 20])
@pytest.mark.parametrize("seed", range(4))
def test_a_claim_from_several_queues_takes_the_first_of_what_nobody_holds(
    mysql_url: str, driver: MysqlDriver, limit: int, seed: int
) -> None:
    rng = random.Random(seed)
    order = []
    for number in range(24):
        id, priority = f"job-{number:02}", rng.choice([1, 1, 2])
        run_at = NOON + rng.randrange(6) * SECOND
        add(driver, id=id, queue=rng.choice("abc"), priority=priority, run_at=run_at)
        order.append((-priority, run_at, id))
    ids = [id for _, _, id in sorted(order)]
    locked = rng.sample(ids, 10) if seed else ids[:10]
    with held(mysql_url, *locked):
        taken = driver.reserve(["a", "b", "c"], now=NOON + MINUTE, limit=limit)
    assert [leased.job.id for leased in taken] == [id for id in ids if id not in locked][:limit]
