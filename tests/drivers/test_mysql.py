"""What is particular to the MySQL and MariaDB driver. What it shares with the others is in the conformance suite."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pymysql
import pytest
import sqlalchemy
from sqlalchemy.orm import Session as OrmSession

from taskharbor.core.errors import (
    DuplicateJob,
    IdempotencyConflict,
    InvalidInput,
    InvalidURL,
    JobNotFound,
    LeaseExpired,
    PayloadTooLarge,
    SchemaMissing,
    SchemaTooNew,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    TaskHarborError,
)
from taskharbor.core.model import NewJob, RetryUpdate, Settlement, Status
from taskharbor.drivers import open_driver
from taskharbor.drivers.mysql import schema, store
from taskharbor.drivers.mysql.address import Address
from taskharbor.drivers.mysql.driver import MysqlDriver
from taskharbor.drivers.mysql.moves import apply_moves
from taskharbor.drivers.mysql.store import Session
from taskharbor.drivers.mysql.values import CHUNK_ROWS
from taskharbor.drivers.sqlfiles import Statements, migrations
from taskharbor.testing.emptying import empty_store
from taskharbor.testing.helpers import add, add_all, in_threads, leased_job, new_job, take, take_all
from taskharbor.testing.times import HOUR, MINUTE, NOON, SECOND

ODD_TEXT = 'it\'s "quoted" \\ 50% \n\t\x01 é 漢 😀 '


@pytest.fixture
def driver(mysql_url: str) -> Iterator[MysqlDriver]:
    with MysqlDriver(mysql_url) as driver:
        driver.migrate()
        empty_store(mysql_url)
        yield driver


@pytest.fixture
def empty_url(mysql: Any) -> Iterator[str]:
    """A database without tables, of this test alone."""
    url = mysql.create_database()
    yield url
    mysql.drop_database(url)


def connect(url: str, **options: Any) -> Any:
    return pymysql.connect(**{**Address(url).arguments, "charset": "utf8mb4", **options})


def run(connection: Any, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor(pymysql.cursors.Cursor) as cursor:
        cursor.execute(sql, values or None)
        return list(cursor.fetchall())


def changed(url: str, **parts: Any) -> str:
    """The URL with another login or place: `user`, `password`, `host`, `port` or `database`."""
    split = urlsplit(url)
    user, password = parts.get("user", split.username), parts.get("password", split.password)
    host, port = parts.get("host", split.hostname), parts.get("port", split.port)
    path = f"/{parts['database']}" if "database" in parts else split.path
    return urlunsplit(split._replace(netloc=f"{user}:{password}@{host}:{port}", path=path))


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


def test_a_claim_walks_its_index_in_order_and_stops_at_now(driver: MysqlDriver) -> None:
    add_all(driver, [new_job(run_at=NOON + number * SECOND) for number in range(300)])
    (step,) = plan(driver, "select_due", **CLAIM)
    assert step["key"] == "th_jobs_claim"
    # All four columns: status, queue and rank are fixed, and the scan ends where jobs are not due yet.
    assert step["type"] == "range"
    assert int(step["key_len"]) == 66 + 1022 + 5 + 9
    assert "filesort" not in (step["Extra"] or "")


@pytest.mark.parametrize("statement", ["select_lapsed", "select_expired", "next_rank", "rank_due"])
def test_a_probe_before_the_claim_reads_an_index_in_order(driver: MysqlDriver, statement: str) -> None:
    (step,) = plan(driver, statement, **CLAIM, from_rank=0)
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
    (step,) = plan(driver, statement, ids=[f"id-{number}" for number in range(CHUNK_ROWS)], **values)
    assert (step["type"], step["key"]) == ("range", "PRIMARY")


def test_a_claim_reads_no_job_that_waits_for_later(mysql_url: str, driver: MysqlDriver) -> None:
    waiting = [new_job(priority=priority, run_at=NOON + HOUR) for priority in (9, 5) for _ in range(500)]
    add_all(driver, [*waiting, new_job(priority=1)])
    with MysqlDriver(f"{mysql_url}?pool_size=1") as single:
        single.reserve("elsewhere", now=NOON)
        before = rows_read(single)
        assert take(single).job.priority == 1
        assert rows_read(single) - before < 60


def rows_read(driver: MysqlDriver) -> int:
    """How many rows this driver's only connection has read so far."""

    def count(session: Session) -> int:
        rows = run(session._connection, "SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for _, value in rows)

    return driver._store.read(count)


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


# --- The schema --------------------------------------------------------------------------------------------


def test_a_migration_that_broke_off_can_be_run_again(empty_url: str) -> None:
    steps = list(schema.statements(migrations(schema.PACKAGE, "th_")[0].sql))
    for half in (1, len(steps) // 2, len(steps)):
        with closing(connect(empty_url, autocommit=True)) as connection:
            for step in steps[:half]:
                run(connection, step)
        with open_driver(empty_url) as driver:
            driver.migrate()
            add(driver)
        with closing(connect(empty_url, autocommit=True)) as connection:
            run(connection, "DELETE FROM th_migrations")


def test_the_printed_migration_makes_a_working_store(empty_url: str) -> None:
    with closing(connect(empty_url, autocommit=True)) as connection:
        for statement in schema.statements(schema.migration_sql("my_")):
            run(connection, statement)
    with open_driver(f"{empty_url}?prefix=my_") as driver:
        leased = leased_job(driver)
        driver.ack(leased.job.id, leased.lease.token, now=NOON)
        assert [row.job_id for row in driver.history().rows] == [leased.job.id]


def test_the_views_show_attempts_and_dead_letters_in_the_words_of_the_seeds(
    driver: MysqlDriver, mysql_url: str
) -> None:
    leased = leased_job(driver, tenant_id="acme")
    driver.fail(leased.job.id, leased.lease.token, now=NOON, reason="broken")
    with closing(connect(mysql_url)) as connection:
        dead = run(connection, "SELECT job_id, topic, tenant_id, payload, retries, reason FROM th_dlq")
        tries = run(connection, "SELECT job_id, attempt_no, reason, success FROM th_attempts")
    assert dead == [(leased.job.id, "default", "acme", b"{}", 1, "broken")]
    assert tries == [(leased.job.id, 1, "broken", 0)]


def test_a_store_without_tables_says_to_migrate(empty_url: str) -> None:
    with open_driver(empty_url) as driver, pytest.raises(SchemaMissing, match="taskharbor --url … migrate"):
        add(driver)


def test_tables_of_a_newer_version_are_left_alone(empty_url: str) -> None:
    with open_driver(empty_url) as driver:
        driver.migrate()
    with closing(connect(empty_url, autocommit=True)) as connection:
        run(connection, "INSERT INTO th_migrations (version, name) VALUES (999, 'later')")
    with open_driver(empty_url) as driver:
        with pytest.raises(SchemaTooNew, match="upgrade"):
            add(driver)
        with pytest.raises(SchemaTooNew, match="upgrade"):
            driver.migrate()


@pytest.mark.concurrency
def test_twenty_processes_may_migrate_at_once(empty_url: str) -> None:
    def migrate(number: int) -> None:
        with open_driver(empty_url) as driver:
            driver.migrate()
            add(driver)

    in_threads(20, migrate)
    with open_driver(empty_url) as driver:
        assert driver.counts()["ready"] == 20


# --- Refusals ----------------------------------------------------------------------------------------------


def test_a_wrong_password_is_a_clear_refusal_that_does_not_repeat_it(mysql_url: str) -> None:
    with open_driver(changed(mysql_url, password="s3cret-guess")) as driver:
        with pytest.raises(StoreUnavailable, match="password") as refused:
            add(driver)
        assert "s3cret-guess" not in str(refused.value)


def test_a_server_that_is_not_there_is_a_clear_refusal(mysql_url: str) -> None:
    with open_driver(changed(mysql_url, port=1)) as driver, pytest.raises(StoreUnavailable, match="running"):
        add(driver)


def test_a_database_that_is_not_there_is_a_clear_refusal(mysql_url: str) -> None:
    with open_driver(changed(mysql_url, database="nowhere")) as driver, pytest.raises(StoreUnavailable, match="create"):
        add(driver)


def test_a_user_who_may_only_read_is_told_so(driver: MysqlDriver, mysql_url: str) -> None:
    database = urlsplit(mysql_url).path[1:]
    with closing(connect(mysql_url, autocommit=True)) as admin:
        run(admin, "CREATE USER IF NOT EXISTS th_reader IDENTIFIED BY 'reader'")
        run(admin, f"GRANT SELECT ON {database}.* TO th_reader")
        try:
            with open_driver(changed(mysql_url, user="th_reader", password="reader")) as reader:
                assert reader.counts()["ready"] == 0
                with pytest.raises(StoreReadOnly, match="grant"):
                    add(reader)
        finally:
            run(admin, "DROP USER th_reader")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://user@host",
        "mysql://user@host/",
        "mysql://user@host/a/b",
        "mysql://user:secret@host:port/db",
        "mysql://user:secret@host/db?pool_size=none",
        "mariadb://user:secret@host/db?autocommit=yes",
    ],
)
def test_a_url_that_does_not_fit_is_refused_before_anything_is_opened(url: str) -> None:
    with pytest.raises(InvalidURL) as refused:
        open_driver(url)
    assert "secret" not in str(refused.value)


def test_every_part_of_the_url_reaches_the_client() -> None:
    address = Address("mysql://me%40x:p%3Ass@[::1]:3307/my%20db?unix_socket=/run/s&ssl_ca=/ca.pem&connect_timeout=3")
    expected = {
        "host": "::1",
        "port": 3307,
        "user": "me@x",
        "password": "p:ss",
        "database": "my db",
        "unix_socket": "/run/s",
        "ssl_ca": "/ca.pem",
        "connect_timeout": 3,
    }
    assert expected.items() <= address.arguments.items()
    assert "p:ss" not in str(address)
    assert "p%3Ass" not in str(address)


@pytest.mark.parametrize(
    ("version", "collation"),
    [
        ("10.6.0-MariaDB", "utf8mb4_nopad_bin"),
        ("5.5.5-10.11.6-MariaDB-log", "utf8mb4_nopad_bin"),
        ("11.4.2-MariaDB", "utf8mb4_nopad_bin"),
        ("8.0.17", "utf8mb4_0900_bin"),
        ("9.1.0-commercial", "utf8mb4_0900_bin"),
    ],
)
def test_text_compares_as_bytes_on_both_kinds_of_server(version: str, collation: str) -> None:
    assert store._collation(version) == collation


@pytest.mark.parametrize("version", ["10.5.20-MariaDB", "5.7.44-log", "8.0.16", "unknown"])
def test_a_server_that_is_too_old_is_refused(version: str) -> None:
    with pytest.raises(StoreError, match="needs MySQL"):
        store._collation(version)


# --- Enqueue in the caller's transaction -------------------------------------------------------------------


@pytest.fixture
def connection(mysql_url: str, driver: MysqlDriver) -> Iterator[Any]:
    with closing(connect(mysql_url)) as connection:
        yield connection


def test_the_job_exists_exactly_if_the_caller_commits(driver: MysqlDriver, connection: Any) -> None:
    driver.enqueue([new_job(id="kept", key="k", payload=b"\x00'\\\xff")], NOON, connection=connection)
    assert driver.counts()["ready"] == 0
    connection.commit()
    driver.enqueue([new_job(id="gone")], NOON, connection=connection)
    connection.rollback()
    assert take(driver).job.payload == b"\x00'\\\xff"
    with pytest.raises(JobNotFound):
        driver.get("gone")


def test_a_caller_who_reads_dictionaries_may_enqueue(driver: MysqlDriver, mysql_url: str) -> None:
    with closing(connect(mysql_url, cursorclass=pymysql.cursors.DictCursor)) as connection:
        for existed in (False, True):
            answers = driver.enqueue([new_job(key="k")], NOON, connection=connection)
            assert [answer.existed for answer in answers] == [existed]
        connection.commit()


def test_a_refused_batch_leaves_the_callers_transaction_usable_and_nothing_behind(
    driver: MysqlDriver, connection: Any
) -> None:
    first = driver.enqueue([new_job(key="taken")], NOON)[0].id
    driver.enqueue([new_job(id="before")], NOON, connection=connection)
    with pytest.raises(IdempotencyConflict):
        driver.enqueue(
            [new_job(id="a"), new_job(key="free"), new_job(key="taken", payload=b"other")], NOON, connection=connection
        )
    with pytest.raises(DuplicateJob):
        driver.enqueue([new_job(key="taken", on_duplicate="raise")], NOON, connection=connection)
    with pytest.raises(InvalidInput, match="exists"):
        driver.enqueue([new_job(id=first)], NOON, connection=connection)
    connection.commit()
    assert {leased.job.id for leased in take_all(driver)} == {first, "before"}
    assert driver.enqueue([new_job(key="free")], NOON)[0].existed is False


def test_a_connection_without_a_transaction_is_refused_where_all_or_nothing_needs_one(
    driver: MysqlDriver, mysql_url: str
) -> None:
    with closing(connect(mysql_url, autocommit=True)) as connection:
        with pytest.raises(InvalidInput, match="transaction"):
            driver.enqueue([new_job(), new_job()], NOON, connection=connection)
        assert driver.counts()["ready"] == 0
        connection.begin()
        driver.enqueue([new_job(), new_job()], NOON, connection=connection)
        connection.commit()
    assert driver.counts()["ready"] == 2


def test_an_id_of_a_finished_job_is_refused_in_the_callers_transaction_too(
    driver: MysqlDriver, connection: Any
) -> None:
    leased = leased_job(driver, id="once")
    driver.ack("once", leased.lease.token, now=NOON)
    with pytest.raises(InvalidInput, match="exists"):
        driver.enqueue([new_job(id="once")], NOON, connection=connection)
    connection.rollback()


def test_a_key_taken_after_the_callers_snapshot_is_seen(driver: MysqlDriver, connection: Any) -> None:
    # The server's default is REPEATABLE READ: plain reads of the caller are frozen from here on.
    run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    run(connection, "SELECT COUNT(*) FROM th_keys")
    holder = driver.enqueue([new_job(key="k")], NOON)[0].id
    answers = driver.enqueue([new_job(key="k"), new_job()], NOON, connection=connection)
    connection.commit()
    assert (answers[0].id, answers[0].existed) == (holder, True)
    assert driver.counts()["ready"] == 2


@pytest.fixture
def engine(mysql_url: str, driver: MysqlDriver) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(mysql_url.replace("mysql://", "mysql+pymysql://", 1))
    yield engine
    engine.dispose()


@pytest.mark.parametrize("open_transaction", [sqlalchemy.Engine.connect, OrmSession], ids=["connection", "session"])
def test_a_sqlalchemy_transaction_takes_jobs_along(
    driver: MysqlDriver, engine: sqlalchemy.Engine, open_transaction: Callable[[sqlalchemy.Engine], Any]
) -> None:
    with open_transaction(engine) as transaction:
        jobs = [new_job(id="kept", key="k", meta={"text": ODD_TEXT}), new_job(payload=b"\x00:x%'")]
        driver.enqueue(jobs, NOON, connection=transaction)
        assert driver.counts()["ready"] == 0
        transaction.commit()
        assert driver.enqueue([new_job(key="k")], NOON, connection=transaction)[0].existed
        driver.enqueue([new_job(id="gone")], NOON, connection=transaction)
        transaction.rollback()
        with pytest.raises(InvalidInput, match="exists"):
            driver.enqueue([new_job(id="kept")], NOON, connection=transaction)
    assert driver.get("kept").meta == {"text": ODD_TEXT}
    assert driver.counts()["ready"] == 2


def test_a_connection_of_another_database_is_refused(driver: MysqlDriver) -> None:
    with sqlalchemy.create_engine("sqlite://").connect() as connection, pytest.raises(InvalidInput, match="pymysql"):
        driver.enqueue([new_job()], NOON + MINUTE, connection=connection)
