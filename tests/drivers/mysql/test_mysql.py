"""What is particular to the MySQL and MariaDB driver. What it shares with the others is in the conformance suite."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest
from tests.drivers.mysql.stores import ODD_TEXT, connect, run

from taskharbor.core.errors import (
    LeaseExpired,
    PayloadTooLarge,
    StoreUnavailable,
    TaskHarborError,
)
from taskharbor.core.model import NewJob, RetryUpdate, Settlement, Status
from taskharbor.drivers import open_driver
from taskharbor.drivers.mysql import fleet, store
from taskharbor.drivers.mysql.driver import MysqlDriver
from taskharbor.drivers.mysql.moves import apply_moves
from taskharbor.drivers.mysql.store import Session
from taskharbor.testing.helpers import (
    add,
    add_all,
    dead_job,
    done_job,
    facts,
    in_threads,
    leased_job,
    new_job,
    take,
    take_all,
)
from taskharbor.testing.times import DAY, HOUR, NOON, SECOND

# --- Sessions ----------------------------------------------------------------------------------------------


def test_sessions_are_set_up_our_way_whatever_the_server_prefers(driver: MysqlDriver) -> None:
    def look(session: Session) -> tuple[Any, ...]:
        return run(session._connection, "SELECT @@session.time_zone, @@session.sql_mode, @@collation_connection")[0]

    zone, mode, collation = driver._store.read(look)
    assert zone == "+00:00"
    assert "STRICT_ALL_TABLES" in mode
    assert collation in ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")


def test_the_clock_is_the_servers_in_utc(driver: MysqlDriver, mysql_url: str) -> None:
    with closing(connect(mysql_url)) as connection:
        ((server_time,),) = run(connection, "SELECT UTC_TIMESTAMP(6)")
    assert abs(driver.now().replace(tzinfo=None) - server_time) < timedelta(seconds=5)


def test_text_survives_in_a_database_of_another_character_set(mysql: Any, empty_url: str) -> None:
    with closing(connect(empty_url)) as connection:
        run(connection, f"ALTER DATABASE {urlsplit(empty_url).path[1:]} CHARACTER SET latin1")
    with open_driver(empty_url) as driver:
        driver.migrate()
        leased = leased_job(driver, id="😀", queue="漢", meta={"k": ODD_TEXT}, key=ODD_TEXT)
        driver.retry("😀", leased.lease.token, now=NOON, update=RetryUpdate(NOON, 1, ODD_TEXT, NOON))
        leased = take(driver, "漢")
        assert leased.job.last_error == ODD_TEXT
        assert leased.job.meta == {"k": ODD_TEXT}
        assert leased.job.idempotency_key == ODD_TEXT
        driver.fail("😀", leased.lease.token, now=NOON, reason=ODD_TEXT)
        assert driver.get("😀").dlq_reason == ODD_TEXT
        assert [attempt.error for attempt in driver.attempts("😀")] == [ODD_TEXT, ODD_TEXT]


def test_a_driver_goes_on_after_the_server_dropped_its_connections(driver: MysqlDriver, mysql_url: str) -> None:
    add(driver)
    database = urlsplit(mysql_url).path[1:]
    with closing(connect(mysql_url, autocommit=True)) as admin:
        for (id,) in run(
            admin, "SELECT id FROM information_schema.processlist WHERE db = %s AND id <> CONNECTION_ID()", database
        ):
            run(admin, f"KILL {id}")
    assert take(driver).job.status is Status.INFLIGHT


FORKING = """
import os, sys
from taskharbor.core.model import NewJob
from taskharbor.drivers import open_driver

driver = open_driver(sys.argv[1])
driver.enqueue([NewJob(type="parent")])
children = [os.fork() for _ in range(2)]
for _ in range(20):
    driver.enqueue([NewJob(type="both" if all(children) else "child")])
if not all(children):
    os._exit(0)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
driver.close()
"""


@pytest.mark.process
def test_a_forked_child_uses_connections_of_its_own(driver: MysqlDriver, mysql_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING, mysql_url], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    # The parent, its two children, and the child of the first child.
    assert driver.counts()["ready"] == 1 + 4 * 20


# --- Trying again ------------------------------------------------------------------------------------------


def test_a_transaction_that_met_a_deadlock_is_run_again_as_a_whole(driver: MysqlDriver) -> None:
    tries = []

    def work(session: Session) -> int:
        tries.append(session.run("set_paused", queue=f"try-{len(tries)}", paused=True))
        if len(tries) < 3:
            raise pymysql.err.OperationalError(1213, "Deadlock found when trying to get lock")
        return len(tries)

    assert driver._store.write(work) == 3
    assert [queue.name for queue in driver.queues()] == ["try-2"]


def test_a_deadlock_that_does_not_end_is_reported(driver: MysqlDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "TRIES", 2)

    def work(session: Session) -> None:
        raise pymysql.err.OperationalError(1205, "Lock wait timeout exceeded")

    with pytest.raises(StoreUnavailable, match="locks"):
        driver._store.write(work)


def test_a_change_is_not_made_twice_when_the_commit_goes_unanswered(
    driver: MysqlDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = pymysql.connections.Connection.commit

    def lost(connection: Any) -> None:
        commit(connection)
        connection._force_close()
        raise pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")

    with monkeypatch.context() as patched:
        patched.setattr(pymysql.connections.Connection, "commit", lost)
        with pytest.raises(StoreUnavailable, match="may or may not"):
            add(driver)
    assert driver.counts()["ready"] == 1


def test_real_deadlocks_between_batches_are_survived(driver: MysqlDriver) -> None:
    ids = add_all(driver, [new_job() for _ in range(200)])
    leases = {leased.job.id: leased.lease.token for leased in take_all(driver)}

    def settle(number: int) -> list[Any]:
        mine = ids if number % 2 else ids[::-1]
        return driver.settle([Settlement.release(id, leases[id]) for id in mine], now=NOON)

    outcomes = in_threads(4, settle)
    assert sum(result is Status.READY for results in outcomes for result in results) == 200
    assert driver.counts()["ready"] == 200


# --- Settling ----------------------------------------------------------------------------------------------


def test_one_lost_lease_among_many_successes_is_told_apart(driver: MysqlDriver) -> None:
    add_all(driver, [new_job() for _ in range(1_200)])
    late = driver.reserve("default", now=NOON, lease_for=SECOND, limit=1)[0]
    leases = [late, *driver.reserve("default", now=NOON, limit=1_199)]
    items = [Settlement.ack(leased.job.id, leased.lease.token) for leased in leases]
    results, leased = driver.settle_and_reserve(items, "default", now=NOON + SECOND)
    assert isinstance(results[0], LeaseExpired)
    assert results[1:] == [Status.DONE] * 1_199
    assert [again.job.id for again in leased] == [late.job.id]


def test_results_larger_than_a_statement_are_stored_whole(driver: MysqlDriver) -> None:
    add_all(driver, [new_job() for _ in range(5)])
    result = bytes(range(256)) * 3_000
    leases = take_all(driver)
    driver.settle([Settlement.ack(leased.job.id, leased.lease.token, result=result) for leased in leases], now=NOON)
    assert {driver.get(leased.job.id).result for leased in leases} == {result}


def test_long_errors_of_a_large_batch_are_stored_whole(driver: MysqlDriver) -> None:
    add_all(driver, [new_job() for _ in range(300)])
    errors = {leased.job.id: (ODD_TEXT * 150 + leased.job.id, leased.lease.token) for leased in take_all(driver)}
    retries = [
        Settlement.retry(id, token, update=RetryUpdate(NOON, 1, error, NOON)) for id, (error, token) in errors.items()
    ]
    assert driver.settle(retries, now=NOON) == [Status.READY] * 300
    assert {leased.job.id: leased.job.last_error for leased in take_all(driver)} == {
        id: error for id, (error, _) in errors.items()
    }


def test_what_the_server_could_not_take_at_once_is_refused_clearly(mysql_url: str, driver: MysqlDriver) -> None:
    with closing(connect(mysql_url)) as connection:
        ((most,),) = run(connection, "SELECT @@max_allowed_packet")
    with open_driver(f"{mysql_url}?max_payload={2**30}") as generous:
        with pytest.raises(PayloadTooLarge, match="max_allowed_packet"):
            generous.enqueue([NewJob(type="big", payload=bytes(most // 2))])
        assert generous.counts()["ready"] == 0


# --- The feed ----------------------------------------------------------------------------------------------


def test_the_feed_waits_for_a_slow_writer_and_forgets_one_that_rolled_back(driver: MysqlDriver) -> None:
    first, slow, quick = (leased_job(driver) for _ in range(3))
    driver.ack(first.job.id, first.lease.token, now=NOON)
    cursor = driver.history().cursor
    holding, go_on = threading.Event(), threading.Event()

    class Undone(TaskHarborError):
        pass

    def hold_a_position(then: Callable[[], None]) -> None:
        def work(session: Session) -> None:
            apply_moves(session, [], NOON, [Settlement.ack(slow.job.id, slow.lease.token)])
            holding.set()
            go_on.wait(30)
            then()

        driver._store.write(work)

    def undo() -> None:
        raise Undone

    def roll_back() -> None:
        with pytest.raises(Undone):
            hold_a_position(undo)

    def ack_quick() -> None:
        driver.ack(quick.job.id, quick.lease.token, now=NOON)

    for slow_writer, expected in ((roll_back, [quick]), (lambda: hold_a_position(lambda: None), [slow, first])):
        if expected[-1] is first:
            quick = leased_job(driver)
            expected = [slow, quick]  # noqa: PLW2901 - the second round acknowledges another job
        holding.clear()
        go_on.clear()
        threads = [threading.Thread(target=slow_writer), threading.Thread(target=ack_quick)]
        threads[0].start()
        assert holding.wait(30)
        threads[1].start()
        # Neither of the two may be seen while the one that has the earlier position can still change its mind.
        assert driver.history(cursor).rows == []
        go_on.set()
        for thread in threads:
            thread.join()
        page = driver.history(cursor)
        assert [row.job_id for row in page.rows] == [leased.job.id for leased in expected]
        cursor = page.cursor
    positions = [int(row.position.rpartition(":")[2]) for row in driver.history().rows]
    assert positions == list(range(positions[0], positions[0] + 4))


@pytest.mark.parametrize("ids", [None, ["x"]], ids=["any", "chosen"])
def test_what_a_purged_id_records_when_it_is_used_again_is_not_forgotten_with_its_past(
    driver: MysqlDriver, mysql_url: str, monkeypatch: pytest.MonkeyPatch, ids: list[str] | None
) -> None:
    dead_job(driver, id="x")
    driver.purge()
    forget = fleet._forget

    def interrupted(*given: Any) -> int:
        with open_driver(mysql_url) as other:
            done_job(other, id="x", now=NOON + DAY)
        return forget(*given)

    monkeypatch.setattr(fleet, "_forget", interrupted)
    assert driver.prune(NOON + HOUR, ids=ids, limit=1) == 1
    assert [fact.at for fact in facts(driver, 1)] == [NOON + DAY]
