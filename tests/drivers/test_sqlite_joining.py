"""Enqueue inside the caller's own SQLite transaction: the job exists exactly if the caller commits."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from taskharbor.core.contract import Answers
from taskharbor.core.errors import IdempotencyConflict, InvalidInput, SchemaMissing, StoreMoved
from taskharbor.core.model import Enqueued, NewJob
from taskharbor.drivers.sqlite.driver import SqliteDriver
from taskharbor.testing.contract.moving import opened, shut_unnoticed
from taskharbor.testing.helpers import add, add_keyed, done_job, everything, new_job
from taskharbor.testing.times import NOON


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def driver(path: Path) -> Iterator[SqliteDriver]:
    with SqliteDriver(str(path)) as driver:
        driver.migrate()
        yield driver


@pytest.fixture
def engine(path: Path) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    yield engine
    engine.dispose()


ONE = [new_job(id="one")]
SEVERAL = [new_job(id="one"), new_job(id="two", key="k"), new_job(id="three", meta={"a": "b"}, expires_at=None)]
BATCHES = pytest.mark.parametrize("jobs", [ONE, SEVERAL], ids=["one", "several"])
ENDINGS = pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])


def check(driver: SqliteDriver, jobs: list[NewJob], answers: Answers, *, commits: bool) -> None:
    ids = [job.id or "" for job in jobs]
    assert answers == [Enqueued(id) for id in ids]
    assert everything(driver).keys() == (set(ids) if commits else set())
    # The key went the way of its job.
    assert add_keyed(driver, "k").existed is (commits and len(jobs) > 1)


# --- Synchronous -----------------------------------------------------------------------------------------------


@BATCHES
@ENDINGS
def test_a_job_shares_the_fate_of_a_sqlite3_transaction(
    driver: SqliteDriver, path: Path, jobs: list[NewJob], commits: bool
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        answers = driver.enqueue(jobs, NOON, connection=connection)
        assert connection.in_transaction
        assert everything(driver) == {}, "not there before the caller commits"
        connection.commit() if commits else connection.rollback()
    check(driver, jobs, answers, commits=commits)


@BATCHES
@ENDINGS
def test_a_job_shares_the_fate_of_a_sqlalchemy_connection(
    driver: SqliteDriver, engine: sqlalchemy.Engine, jobs: list[NewJob], commits: bool
) -> None:
    with engine.connect() as connection:
        answers = driver.enqueue(jobs, NOON, connection=connection)
        connection.commit() if commits else connection.rollback()
    check(driver, jobs, answers, commits=commits)


@BATCHES
@ENDINGS
def test_a_job_shares_the_fate_of_a_sqlalchemy_session(
    driver: SqliteDriver, engine: sqlalchemy.Engine, jobs: list[NewJob], commits: bool
) -> None:
    with Session(engine) as session:
        session.execute(sqlalchemy.text("SELECT 1"))
        answers = driver.enqueue(jobs, NOON, connection=session)
        session.commit() if commits else session.rollback()
    check(driver, jobs, answers, commits=commits)


@BATCHES
def test_a_caller_gets_nothing_into_a_store_that_was_shut_meanwhile(
    driver: SqliteDriver, path: Path, jobs: list[NewJob]
) -> None:
    moved = shut_unnoticed(driver)
    with closing(sqlite3.connect(path)) as connection:
        with pytest.raises(StoreMoved, match="elsewhere"):
            driver.enqueue(jobs, NOON, connection=connection)
        connection.commit()

    async def work() -> Answers:
        async with aiosqlite.connect(path) as connection:
            with pytest.raises(StoreMoved, match="elsewhere"):
                await driver.aenqueue(jobs, NOON, connection=connection)
            await connection.commit()
        return []

    in_loop(work)
    opened(moved)
    assert everything(driver) == {}
    assert not add_keyed(driver, "k").existed


def test_a_job_and_the_callers_own_rows_are_one(driver: SqliteDriver, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (id TEXT)")
        for order, commits in (("kept", True), ("dropped", False)):
            connection.execute("INSERT INTO orders VALUES (?)", (order,))
            driver.enqueue([new_job(id=order)], NOON, connection=connection)
            connection.commit() if commits else connection.rollback()
        assert connection.execute("SELECT id FROM orders").fetchall() == [("kept",)]
    assert everything(driver).keys() == {"kept"}


def test_without_a_transaction_the_jobs_exist_at_once(driver: SqliteDriver, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        driver.enqueue(SEVERAL, NOON, connection=connection)
        assert not connection.in_transaction
        assert len(everything(driver)) == 3


def test_a_refused_batch_leaves_nothing_behind_when_the_caller_commits_all_the_same(
    driver: SqliteDriver, path: Path
) -> None:
    add_keyed(driver, "taken", payload=b"1")
    done = done_job(driver, id="done", queue="other")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (id TEXT)")
        connection.execute("INSERT INTO orders VALUES ('kept')")
        with pytest.raises(IdempotencyConflict):
            driver.enqueue([new_job(key="new"), new_job(key="taken", payload=b"2")], NOON, connection=connection)
        for id in ("done", "twice"):
            with pytest.raises(InvalidInput, match="exists"):
                driver.enqueue([new_job(key="new"), new_job(id=id), new_job(id="twice")], NOON, connection=connection)
        connection.commit()
        assert connection.execute("SELECT id FROM orders").fetchall() == [("kept",)]
    assert driver.get(done).status == "done"
    assert len(everything(driver)) == 2
    assert not add_keyed(driver, "new").existed


def test_a_duplicate_finds_the_job_that_holds_the_key(driver: SqliteDriver, path: Path) -> None:
    first = add_keyed(driver, "k")
    with closing(sqlite3.connect(path)) as connection:
        answers = driver.enqueue([new_job(key="k"), new_job(id="x")], NOON, connection=connection)
        connection.commit()
    assert answers == [Enqueued(first.id, existed=True), Enqueued("x")]


ROWS: dict[str, Callable[[sqlite3.Cursor, Any], Any]] = {
    "values": lambda _, row: row[0],
    "objects": lambda *_: object(),
    "dictionaries": lambda _, row: dict(enumerate(row)),
}


@pytest.mark.parametrize("rows", ROWS)
def test_the_caller_may_have_rows_of_any_shape_and_bytes_for_text(driver: SqliteDriver, path: Path, rows: str) -> None:
    first = add_keyed(driver, "k")
    again = [new_job(idempotency_key="k"), new_job(id="other")]
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory, connection.text_factory = ROWS[rows], bytes
        answers = driver.enqueue(again, NOON, connection=connection)
        connection.commit()
    assert answers == [Enqueued(first.id, True), Enqueued("other")]

    async def work() -> None:
        async with aiosqlite.connect(path) as connection:
            connection.row_factory = ROWS[rows]  # type: ignore[assignment]
            connection.text_factory = bytes  # type: ignore[assignment]
            assert await driver.aenqueue(again[:1], NOON, connection=connection) == answers[:1]

    asyncio.run(work())


def test_a_database_without_our_tables_is_named(driver: SqliteDriver, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection, pytest.raises(SchemaMissing):
        driver.enqueue(ONE, NOON, connection=connection)
    other = sqlalchemy.create_engine("sqlite://")
    with other.connect() as connection, pytest.raises(SchemaMissing):
        driver.enqueue(SEVERAL, NOON, connection=connection)
    other.dispose()


def test_a_connection_of_another_kind_is_refused_with_what_would_do(driver: SqliteDriver) -> None:
    for odd in (object(), "connection"):
        with pytest.raises(InvalidInput, match="sqlite3, aiosqlite, SQLAlchemy"):
            driver.enqueue(ONE, NOON, connection=odd)


# --- Asynchronous ----------------------------------------------------------------------------------------------


def in_loop(work: Callable[[], Awaitable[Answers]]) -> Answers:
    async def run() -> Answers:
        return await work()

    return asyncio.run(run())


@BATCHES
@ENDINGS
def test_a_job_shares_the_fate_of_an_aiosqlite_transaction(
    driver: SqliteDriver, path: Path, jobs: list[NewJob], commits: bool
) -> None:
    async def work() -> Answers:
        async with aiosqlite.connect(path) as connection:
            answers = await driver.aenqueue(jobs, NOON, connection=connection)
            assert everything(driver) == {}
            await (connection.commit() if commits else connection.rollback())
            return answers

    check(driver, jobs, in_loop(work), commits=commits)


@BATCHES
@ENDINGS
@pytest.mark.parametrize("kind", ["connection", "session"])
def test_a_job_shares_the_fate_of_an_asynchronous_sqlalchemy_transaction(
    driver: SqliteDriver, path: Path, jobs: list[NewJob], commits: bool, kind: str
) -> None:
    async def work() -> Answers:
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        joined: Any = engine.connect() if kind == "connection" else AsyncSession(engine)
        async with joined as connection:
            answers = await driver.aenqueue(jobs, NOON, connection=connection)
            assert everything(driver) == {}
            await (connection.commit() if commits else connection.rollback())
        await engine.dispose()
        return answers

    check(driver, jobs, in_loop(work), commits=commits)


def test_an_asynchronous_refusal_leaves_nothing_behind(driver: SqliteDriver, path: Path) -> None:
    add_keyed(driver, "taken", payload=b"1")

    async def work() -> Answers:
        async with aiosqlite.connect(path) as connection:
            with pytest.raises(IdempotencyConflict):
                await driver.aenqueue([new_job(), new_job(key="taken")], NOON, connection=connection)
            await connection.commit()
        return []

    in_loop(work)
    assert len(everything(driver)) == 1


def test_an_asynchronous_connection_is_not_taken_by_the_synchronous_call(driver: SqliteDriver, path: Path) -> None:
    async def work() -> Answers:
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        async with engine.connect() as connection:
            with pytest.raises(InvalidInput, match="await aenqueue"):
                driver.enqueue(ONE, NOON, connection=connection)
        await engine.dispose()
        async with aiosqlite.connect(path) as plain:
            with pytest.raises(InvalidInput, match="await aenqueue"):
                driver.enqueue(ONE, NOON, connection=plain)
        return []

    in_loop(work)
    assert add(driver) in everything(driver)
