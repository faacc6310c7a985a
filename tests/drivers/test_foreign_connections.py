"""Enqueue through a connection that leads elsewhere, or nowhere: refused alike on every SQL store."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
import sqlalchemy

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput, SchemaMissing, StoreUnavailable
from taskharbor.drivers import open_driver
from taskharbor.testing.emptying import connect as connect_to_server
from taskharbor.testing.helpers import add, dead_job, done_job, everything, leased_job, new_job
from taskharbor.testing.times import NOON

SERVERS = {"postgresql": "postgres", "mysql": "mysql"}
LIBRARIES = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
KINDS = ["sqlite", *[pytest.param(kind, marks=pytest.mark.server) for kind in SERVERS]]


def connect(url: str) -> Any:
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"))
    return connect_to_server(url)


@pytest.fixture(params=KINDS)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Two databases of one kind, both empty."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/one.db", f"sqlite:///{tmp_path}/two.db"
    server = request.getfixturevalue(SERVERS[request.param])
    return server.create_database(), server.create_database()


@pytest.fixture
def driver(urls: tuple[str, str]) -> Iterator[Driver]:
    with open_driver(urls[0]) as driver:
        driver.migrate()
        yield driver


def test_a_connection_to_another_store_is_refused_and_nothing_is_kept_anywhere(
    driver: Driver, urls: tuple[str, str]
) -> None:
    with open_driver(urls[1]) as other, closing(connect(urls[1])) as connection:
        other.migrate()
        for jobs in ([new_job()], [new_job(), new_job(key="k")]):
            with pytest.raises(InvalidInput, match="the connection is to another store"):
                driver.enqueue(jobs, NOON, connection=connection)
        assert not getattr(connection, "in_transaction", False), "a transaction would lock what is none of ours"
        connection.commit()
        assert (everything(driver), everything(other)) == ({}, {})
        other.enqueue([new_job(id="a")], NOON, connection=connection)
        connection.commit()
        assert set(everything(other)) == {"a"}


def test_another_store_is_recognized_through_sqlalchemy_too(driver: Driver, urls: tuple[str, str]) -> None:
    with open_driver(urls[1]) as other:
        other.migrate()
        scheme, _, rest = urls[1].partition("://")
        engine = sqlalchemy.create_engine(f"{LIBRARIES[scheme]}://{rest}")
        with engine.connect() as connection, pytest.raises(InvalidInput, match="another store"):
            driver.enqueue([new_job()], NOON, connection=connection)
        with pytest.raises(InvalidInput, match="not cursors or engines"):
            driver.enqueue([new_job()], NOON, connection=engine)
        engine.dispose()
        assert everything(other) == {}


def test_a_database_without_tables_is_that_of_the_connection(driver: Driver, urls: tuple[str, str]) -> None:
    with closing(connect(urls[1])) as connection, pytest.raises(SchemaMissing, match="the database of the connection"):
        driver.enqueue([new_job()], NOON, connection=connection)
    scheme, _, rest = urls[1].partition("://")
    engine = sqlalchemy.create_engine(f"{LIBRARIES[scheme]}://{rest}")
    with engine.connect() as joined, pytest.raises(SchemaMissing, match="the database of the connection"):
        driver.enqueue([new_job()], NOON, connection=joined)
    engine.dispose()


def test_a_store_that_was_made_anew_is_still_its_own(urls: tuple[str, str], driver: Driver) -> None:
    with closing(connect(urls[0])) as connection:
        driver.enqueue([new_job()], NOON, connection=connection)
        connection.commit()
        column = "name" if urls[0].startswith("mysql") else "key"
        connection.cursor().execute(f"UPDATE th_meta SET value = 'another' WHERE {column} = 'store_id'")
        connection.commit()
        driver.enqueue([new_job()], NOON, connection=connection)
        connection.commit()
    assert len(everything(driver)) == 2


def test_a_cursor_is_refused_with_what_would_do(driver: Driver, urls: tuple[str, str]) -> None:
    with closing(connect(urls[0])) as connection, pytest.raises(InvalidInput, match=r"takes connections \(not cursors"):
        driver.enqueue([new_job()], NOON, connection=connection.cursor())


def test_a_closed_connection_is_called_closed(driver: Driver, urls: tuple[str, str]) -> None:
    connection = connect(urls[0])
    connection.close()
    with pytest.raises(InvalidInput, match="closed"):
        driver.enqueue([new_job()], NOON, connection=connection)
    assert everything(driver) == {}


def test_all_jobs_live_and_finished_can_be_read_as_one_table(driver: Driver, urls: tuple[str, str]) -> None:
    made = {add(driver, queue="later"): "ready", done_job(driver): "done", dead_job(driver): "dlq"}
    made[leased_job(driver, queue="held", payload=b"x").job.id] = "inflight"
    with closing(connect(urls[0])) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT id, status, type, completed_at IS NOT NULL, last_error FROM th_all_jobs")
        rows = {row[0]: tuple(row[1:]) for row in cursor.fetchall()}
        cursor.execute("SELECT * FROM th_all_jobs")
        columns = [column[0] for column in cursor.description]
    jobs = everything(driver)
    assert {id: row[0] for id, row in rows.items()} == made
    for id, (_, type_, completed, error) in rows.items():
        assert (type_, bool(completed), error) == (
            jobs[id].type,
            jobs[id].completed_at is not None,
            jobs[id].last_error,
        )
    assert {"id", "payload", "result", "dlq_reason", "deliveries", "completed_at"} <= set(columns)


# --- SQLite alone ----------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def local(path: Path) -> Iterator[Driver]:
    with open_driver(f"sqlite:///{path}") as driver:
        driver.migrate()
        yield driver


def test_a_copy_of_the_file_is_another_store_and_another_name_of_it_is_not(local: Driver, path: Path) -> None:
    local.close()
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("link.db").symlink_to(path)
    with open_driver(f"sqlite:///{path}") as driver:
        with (
            closing(sqlite3.connect(path.with_name("copy.db"))) as copy,
            pytest.raises(InvalidInput, match="another store"),
        ):
            driver.enqueue([new_job()], NOON, connection=copy)
        with closing(sqlite3.connect(path.with_name("link.db"))) as link:
            driver.enqueue([new_job(id="a")], NOON, connection=link)
            link.commit()
        assert set(everything(driver)) == {"a"}


def test_a_connection_that_waited_in_vain_is_told_how_to_wait_longer(local: Driver, path: Path) -> None:
    with closing(sqlite3.connect(path)) as rival, closing(sqlite3.connect(path, timeout=0.01)) as connection:
        rival.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"sqlite3\.connect\(…, timeout=60\)") as caught:
            local.enqueue([new_job()], NOON, connection=connection)
        assert "busy_timeout" not in f"{caught.value}"


def test_asynchronous_connections_that_lead_elsewhere_are_refused_too(local: Any, path: Path) -> None:
    async def work() -> None:
        other = path.with_name("other.db")
        async with aiosqlite.connect(other) as connection:
            with pytest.raises(SchemaMissing, match="the database of the connection"):
                await local.aenqueue([new_job()], NOON, connection=connection)
            with open_driver(f"sqlite:///{other}") as made:
                made.migrate()
            with pytest.raises(InvalidInput, match="another store"):
                await local.aenqueue([new_job()], NOON, connection=connection)
            with pytest.raises(InvalidInput, match="not cursors"):
                await local.aenqueue([new_job()], NOON, connection=await connection.cursor())
        with pytest.raises(InvalidInput, match="closed"):
            await local.aenqueue([new_job()], NOON, connection=connection)

    asyncio.run(work())
    assert everything(local) == {}
