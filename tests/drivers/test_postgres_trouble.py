"""PostgreSQL when something is in the way: locks of others, a restore, a newer schema, a restart."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from taskharbor.core.errors import SchemaMissing, SchemaTooNew, StoreReadOnly, StoreUnavailable
from taskharbor.drivers import open_driver
from taskharbor.drivers.postgres import session as sessions
from taskharbor.pipeline.adbc import connected
from taskharbor.testing.helpers import add, add_all, new_job, take
from taskharbor.testing.servers import PostgresServer, postgres_server
from taskharbor.testing.times import NOON, SECOND


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    url = postgres.create_database()
    with open_driver(url) as driver:
        driver.migrate()
    return url


def test_a_claim_over_several_queues_finds_a_job_although_others_hold_the_first(url: str) -> None:
    with open_driver(url) as driver, psycopg.connect(url) as rival:
        first = add(driver, queue="a", priority=9)
        second = add(driver, queue="b", priority=1)
        rival.execute("SELECT 1 FROM th_jobs WHERE id = %s FOR UPDATE", (first,))
        assert [item.job.id for item in driver.reserve(["a", "b"], now=NOON)] == [second]


def test_tables_of_a_newer_version_are_refused(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO th_migrations (version, name) VALUES (99, 'from_the_future')")
    with open_driver(url) as driver:
        with pytest.raises(SchemaTooNew, match="upgrade"):
            driver.reserve("default")
        with pytest.raises(SchemaTooNew, match="upgrade"):
            driver.migrate()


def test_a_store_restored_from_another_cluster_is_noticed_and_its_feed_goes_on_after_a_migrate(url: str) -> None:
    with open_driver(url) as driver:
        jobs = add_all(driver, [new_job() for _ in range(3)])
        for _ in jobs:
            leased = take(driver)
            driver.ack(leased.job.id, leased.lease.token, now=NOON)
    with psycopg.connect(url) as connection:  # what a dump brings: ids of transactions that are yet to come here
        connection.execute("UPDATE th_meta SET value = '1' WHERE key = 'cluster'")
        connection.execute("UPDATE th_history SET xid = (xid::text::bigint + 1000000000)::text::xid8")
    with open_driver(url) as driver:
        with pytest.raises(SchemaMissing, match="another database cluster"):
            driver.history()
        driver.migrate()
        assert [row.job_id for row in driver.history().rows] == jobs


def test_a_plan_is_never_compiled_however_large_the_tables_are(url: str) -> None:
    with open_driver(url) as driver, psycopg.connect(url, autocommit=True) as connection:
        for queue in ("a", "b"):
            add_all(driver, [new_job(queue=queue) for _ in range(5_000)])
        connection.execute("ANALYZE")
        leased = driver.reserve(["a", "b"], now=NOON + SECOND, limit=100)
        assert len(leased) == 100
        settings = driver._session.transact(  # type: ignore[attr-defined]
            lambda mine: mine.execute("SELECT current_setting('jit'), current_setting('plan_cache_mode')").fetchone()
        )
        assert settings == ("off", "force_generic_plan")


def _one_holds_the_only_connection(session: Any, pool: ThreadPoolExecutor) -> threading.Event:
    """Somebody works with it until the event is set."""
    begun, over = threading.Event(), threading.Event()
    pool.submit(session.transact, lambda _: (begun.set(), over.wait(30)))
    assert begun.wait(30)
    return over


def test_whoever_waits_for_a_connection_outlives_a_pool_that_another_one_dropped(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_driver(f"{url}?max_size=1") as driver, ThreadPoolExecutor(2) as others:
        session: Any = driver._session  # type: ignore[attr-defined]
        over = _one_holds_the_only_connection(session, others)
        pool, asked = session._pool, threading.Event()
        getconn = pool.getconn
        monkeypatch.setattr(pool, "getconn", lambda: (asked.set(), getconn())[1])
        waiting = others.submit(driver.counts)
        assert asked.wait(30)
        session._drop(pool)  # before or while the other one waits there: both are the same to it
        assert waiting.result(30)["ready"] == 0
        over.set()


def test_a_time_out_in_a_busy_pool_is_of_the_one_who_waited_and_of_nobody_else(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "CONNECT_TIMEOUT_S", 0.05)
    with open_driver(f"{url}?max_size=1") as driver, ThreadPoolExecutor(1) as others:
        session: Any = driver._session  # type: ignore[attr-defined]
        over = _one_holds_the_only_connection(session, others)
        pool = session._pool
        with pytest.raises(StoreUnavailable, match="in time"):
            driver.counts()
        assert session._pool is pool
        over.set()
        others.shutdown()
        add(driver)


@pytest.mark.process
def test_a_server_is_reached_through_its_unix_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    # The server looks for the directory of its socket from that of its data.
    with postgres_server(fast=True, settings={"unix_socket_directories": "."}) as server:
        if not isinstance(server, PostgresServer):
            pytest.skip("the server is not ours, and may have no socket here")
        monkeypatch.setenv("PGUSER", server.user)
        monkeypatch.setenv("PGPASSWORD", server.password)
        monkeypatch.setenv("PGPORT", str(server.port))
        place = str(server.directory / "data")
        database = urlsplit(server.create_database()).path
        with open_driver(f"postgresql://{database}?host={place}&max_size=2") as driver:
            driver.migrate()
            add(driver)
        with closing(connected(f"postgresql://{database}?host={place}")) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM th_jobs")
            assert cursor.fetchall() == [(1,)]
        monkeypatch.setenv("PGHOST", place)
        monkeypatch.setenv("PGDATABASE", database.removeprefix("/"))
        for url in (f"postgresql://{database}", "postgresql://", "postgresql://?prefix=th_"):
            with open_driver(url) as driver:
                assert driver.counts()["ready"] == 1


@pytest.mark.process
def test_a_driver_goes_on_by_itself_soon_after_its_server_came_back() -> None:
    with postgres_server(fast=True) as server:
        if not isinstance(server, PostgresServer):
            pytest.skip("the server is not ours to restart")
        with open_driver(server.create_database()) as driver:
            driver.migrate()
            waiting = add(driver)
            server.stop()
            with pytest.raises(StoreUnavailable):
                take(driver)
            server.start()
            came_back = time.monotonic()
            while True:
                try:
                    leased = take(driver)
                    break
                except StoreUnavailable:
                    assert time.monotonic() - came_back < 5
            assert leased.job.id == waiting


def test_an_interrupt_is_not_taken_for_a_server_that_is_gone(url: str) -> None:
    def interrupted(connection: Any) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise psycopg.OperationalError("cannot exit pipeline mode while busy")  # as psycopg does then

    with open_driver(url) as driver:
        with pytest.raises(KeyboardInterrupt):
            driver._session.transact(interrupted)  # type: ignore[attr-defined]
        assert driver.counts()["ready"] == 0


def test_an_error_behind_an_interrupt_of_the_callers_is_reported_as_what_it_is(url: str) -> None:
    def failing(connection: psycopg.Connection[object]) -> None:
        raise psycopg.OperationalError("gone")

    with open_driver(url) as driver, pytest.raises(KeyboardInterrupt):
        try:
            raise KeyboardInterrupt
        finally:
            with pytest.raises(StoreUnavailable):
                driver._session.transact(failing)  # type: ignore[attr-defined]


def test_a_refusal_within_a_pipeline_is_raised_and_psycopg_logs_nothing_of_it(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("psycopg"), "filters", [])  # as in a program that knows nothing of it
    parts = urlsplit(url)
    role = f"r{parts.path[-20:]}"
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}".encode())
    with open_driver(parts._replace(netloc=f"{role}:x@{parts.hostname}:{parts.port}").geturl()) as driver:
        for call in (lambda: driver.pause("z"), lambda: driver.cancel("x"), lambda: add_all(driver, [new_job()] * 2)):
            with pytest.raises(StoreReadOnly, match="permission denied for table"):
                call()
        assert driver.counts()["ready"] == 0
    assert caplog.messages == []
