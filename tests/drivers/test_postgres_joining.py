"""Enqueue inside the caller's own PostgreSQL transaction: the job exists exactly if the caller commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row, namedtuple_row, scalar_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from taskharbor.core.contract import Driver
from taskharbor.core.errors import DuplicateJob, IdempotencyConflict, InvalidInput, StoreMoved, StoreUnavailable
from taskharbor.core.model import NewJob
from taskharbor.testing.contract.moving import opened, shut_unnoticed
from taskharbor.testing.emptying import SharedStore
from taskharbor.testing.helpers import add, add_keyed, done_job, everything, new_job, take_ids
from taskharbor.testing.times import HOUR, NOON

OWN_TABLE = "CREATE TABLE IF NOT EXISTS orders (name text PRIMARY KEY)"
OWN_ROW = "INSERT INTO orders (name) VALUES ('mine')"

# Each entry opens a connection of the caller's; the caller's own SQL goes through `run`.
Opened = tuple[Any, Callable[[str], Any]]


@contextmanager
def psycopg_connection(url: str) -> Iterator[Opened]:
    with psycopg.connect(url) as connection:
        yield connection, connection.execute
        connection.rollback()  # leaving the block would commit


def sqlalchemy_url(url: str, library: str) -> str:
    return url.replace("postgresql://", f"postgresql+{library}://", 1)


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Opened]:
    engine = create_engine(sqlalchemy_url(url, "psycopg"))
    with engine.connect() as connection:
        yield connection, lambda sql: connection.execute(text(sql))
    engine.dispose()


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Opened]:
    engine = create_engine(sqlalchemy_url(url, "psycopg"))
    with Session(engine) as session:
        yield session, lambda sql: session.execute(text(sql))
    engine.dispose()


SYNC: dict[str, Callable[[str], AbstractContextManager[Opened]]] = {
    "psycopg": psycopg_connection,
    "sqlalchemy connection": sqlalchemy_connection,
    "sqlalchemy session": sqlalchemy_session,
}


def async_psycopg(url: str) -> AbstractAsyncContextManager[Opened]:
    @asynccontextmanager
    async def opened() -> Any:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            yield connection, connection.execute
            await connection.rollback()

    return opened()


def async_sqlalchemy(library: str, kind: str) -> Callable[[str], AbstractAsyncContextManager[Opened]]:
    @asynccontextmanager
    async def opened(url: str) -> Any:
        engine = create_async_engine(sqlalchemy_url(url, library))
        async with engine.connect() if kind == "connection" else AsyncSession(engine) as connection:
            yield connection, lambda sql: connection.execute(text(sql))
        await engine.dispose()

    return opened


ASYNC: dict[str, Callable[[str], AbstractAsyncContextManager[Opened]]] = {
    "psycopg": async_psycopg,
    **{
        f"sqlalchemy {library} {kind}": async_sqlalchemy(library, kind)
        for library in ("psycopg", "asyncpg")
        for kind in ("connection", "session")
    },
}
BATCHES: dict[str, list[NewJob]] = {
    "one job": [new_job(meta={"a": "é"}, run_at=NOON - HOUR, expires_at=NOON + HOUR, timeout=3)],
    "one job with a key": [new_job(idempotency_key="once")],
    "many jobs": [new_job(priority=number) for number in range(3)],
    "many jobs, some with keys": [new_job(), new_job(idempotency_key="a"), new_job(idempotency_key="b")],
}


@pytest.fixture(scope="module")
def store(postgres_url: str) -> Iterator[SharedStore]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(OWN_TABLE)
    with SharedStore(postgres_url) as store:
        yield store


@pytest.fixture
def driver(store: SharedStore, postgres_url: str) -> Driver:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DELETE FROM orders")
    return store.driver()


def own_rows(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM orders").fetchone()
    return int(row[0]) if row else 0


def in_loop(work: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await work()

    asyncio.run(run())


# --- Synchronous -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("kind", SYNC)
def test_the_jobs_exist_exactly_if_the_caller_commits(driver: Driver, postgres_url: str, kind: str, batch: str) -> None:
    with SYNC[kind](postgres_url) as (connection, run):
        run(OWN_ROW)
        driver.enqueue(BATCHES[batch], NOON, connection=connection)
        assert everything(driver) == {}
        connection.rollback()
    assert (everything(driver), own_rows(postgres_url)) == ({}, 0)
    with SYNC[kind](postgres_url) as (connection, run):
        run(OWN_ROW)
        answers = driver.enqueue(BATCHES[batch], NOON, connection=connection)
        connection.commit()
    assert [answer.existed for answer in answers] == [False] * len(answers)
    assert (set(everything(driver)), own_rows(postgres_url)) == ({answer.id for answer in answers}, 1)
    assert len(take_ids(driver)) == len(answers)


@pytest.mark.parametrize("kind", SYNC)
def test_a_key_that_is_taken_gives_the_first_job_inside_a_transaction_too(
    driver: Driver, postgres_url: str, kind: str
) -> None:
    first = add_keyed(driver, "once")
    with SYNC[kind](postgres_url) as (connection, _):
        jobs = [new_job(idempotency_key="once"), new_job(idempotency_key="other")]
        same, other = driver.enqueue(jobs, NOON, connection=connection)
        connection.commit()
    assert (same.id, same.existed, other.existed) == (first.id, True, False)
    assert set(everything(driver)) == {first.id, other.id}


@pytest.mark.parametrize("kind", SYNC)
def test_a_conflict_leaves_nothing_behind_and_the_transaction_usable(
    driver: Driver, postgres_url: str, kind: str
) -> None:
    first = add_keyed(driver, "once")
    with SYNC[kind](postgres_url) as (connection, run):
        run(OWN_ROW)
        jobs = [new_job(), new_job(idempotency_key="a"), new_job(idempotency_key="once", payload=b"other")]
        with pytest.raises(IdempotencyConflict):
            driver.enqueue(jobs, NOON, connection=connection)
        with pytest.raises(DuplicateJob):
            driver.enqueue([new_job(idempotency_key="once", on_duplicate="raise")], NOON, connection=connection)
        connection.commit()
    assert (set(everything(driver)), own_rows(postgres_url)) == ({first.id}, 1)
    assert not add_keyed(driver, "a").existed


def test_a_transaction_that_is_rolled_back_frees_its_keys(driver: Driver, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        driver.enqueue([new_job(idempotency_key="once")], NOON, connection=connection)
        connection.rollback()
    assert not add_keyed(driver, "once").existed


@pytest.mark.parametrize("row_factory", [dict_row, namedtuple_row, scalar_row])
def test_the_caller_may_have_rows_of_any_shape(driver: Any, postgres_url: str, row_factory: Any) -> None:
    first = add_keyed(driver, "once")
    with psycopg.connect(postgres_url, row_factory=row_factory) as connection:
        (answer,) = driver.enqueue([new_job(idempotency_key="once")], NOON, connection=connection)
    assert (answer.id, answer.existed) == (first.id, True)

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url, row_factory=row_factory) as connection:
            (answer,) = await driver.aenqueue([new_job(idempotency_key="once")], NOON, connection=connection)
        assert (answer.id, answer.existed) == (first.id, True)

    in_loop(work)


@pytest.mark.parametrize("raw", [False, True])
def test_the_caller_may_have_cursors_of_any_kind(driver: Any, postgres_url: str, raw: bool) -> None:
    kind, akind = (psycopg.RawCursor, psycopg.AsyncRawCursor) if raw else (psycopg.ClientCursor, None)
    with psycopg.connect(postgres_url, cursor_factory=kind) as connection:
        answers = driver.enqueue([new_job(idempotency_key="once"), new_job()], NOON, connection=connection)
    assert [driver.get(answer.id).id for answer in answers] == [answer.id for answer in answers]

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url, cursor_factory=akind) as connection:
            (answer,) = await driver.aenqueue([new_job(idempotency_key="once")], NOON, connection=connection)
        assert (answer.id, answer.existed) == (answers[0].id, True)

    in_loop(work)


def test_the_caller_may_be_given_bytes_for_text(driver: Any, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, options="-c client_encoding=sql_ascii") as connection:
        first, second = (
            driver.enqueue([new_job(idempotency_key="é", queue="é")], NOON, connection=connection)[0] for _ in range(2)
        )
    assert (second.id, second.existed) == (first.id, True)
    assert driver.get(first.id).queue == "é"


def test_a_connection_that_cannot_take_the_jobs_now_is_refused_with_what_to_do(driver: Any, postgres_url: str) -> None:
    several = [new_job(), new_job()]
    with psycopg.connect(postgres_url) as connection:
        with connection.pipeline(), pytest.raises(InvalidInput, match="pipeline mode"):
            driver.enqueue([new_job()], NOON, connection=connection)
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        with pytest.raises(InvalidInput, match="roll it back, and try again"):
            driver.enqueue([new_job()], NOON, connection=connection)
        connection.rollback()
    with (
        psycopg.connect(postgres_url, autocommit=True) as connection,
        pytest.raises(InvalidInput, match="not in a transaction: begin one, or leave connection out"),
    ):
        driver.enqueue(several, NOON, connection=connection)
    with psycopg.connect(postgres_url, options="-c client_encoding=latin1") as connection:
        with pytest.raises(InvalidInput, match="connect with UTF-8"):
            driver.enqueue([new_job(queue="\N{GRINNING FACE}")], NOON, connection=connection)
        connection.rollback()
    assert everything(driver) == {}


def test_a_transaction_that_came_too_late_is_told_to_begin_again(driver: Any, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        connection.execute("SELECT 1")
        first = add_keyed(driver, "once")
        with pytest.raises(StoreUnavailable, match="roll back, and try again"):
            driver.enqueue([new_job(idempotency_key="once")], NOON, connection=connection)
        connection.rollback()
        (answer,) = driver.enqueue([new_job(idempotency_key="once")], NOON, connection=connection)
    assert (answer.id, answer.existed) == (first.id, True)


@pytest.mark.parametrize("kind", SYNC)
def test_an_id_that_is_taken_is_refused_and_the_transaction_stays_usable(
    driver: Driver, postgres_url: str, kind: str
) -> None:
    done, live = done_job(driver, id="done"), add(driver, id="live")
    with SYNC[kind](postgres_url) as (connection, run):
        for ids in (["done"], ["live"], ["new", "live"], ["twin", "twin"]):
            with pytest.raises(InvalidInput):
                driver.enqueue([new_job(id=job_id) for job_id in ids], NOON, connection=connection)
        run(OWN_ROW)
        connection.commit()
    assert (set(everything(driver)), own_rows(postgres_url)) == ({done, live}, 1)


def test_a_connection_of_another_kind_is_refused(driver: Driver) -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(InvalidInput, match="postgresql"):
        driver.enqueue([new_job()], NOON, connection=connection)
    with pytest.raises(InvalidInput, match="psycopg"):
        driver.enqueue([new_job()], NOON, connection=object())
    engine.dispose()
    assert everything(driver) == {}


# --- Asynchronous ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("kind", ASYNC)
def test_the_jobs_exist_exactly_if_the_asynchronous_caller_commits(
    driver: Any, postgres_url: str, kind: str, batch: str
) -> None:
    async def work() -> None:
        async with ASYNC[kind](postgres_url) as (connection, run):
            await run(OWN_ROW)
            await driver.aenqueue(BATCHES[batch], NOON, connection=connection)
            await connection.rollback()
        assert (everything(driver), own_rows(postgres_url)) == ({}, 0)
        async with ASYNC[kind](postgres_url) as (connection, run):
            await run(OWN_ROW)
            answers = await driver.aenqueue(BATCHES[batch], NOON, connection=connection)
            await connection.commit()
        assert (set(everything(driver)), own_rows(postgres_url)) == ({answer.id for answer in answers}, 1)

    in_loop(work)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("kind", ASYNC)
def test_an_asynchronous_caller_gets_nothing_into_a_store_that_was_shut_meanwhile(
    driver: Any, postgres_url: str, kind: str, batch: str
) -> None:
    moved = shut_unnoticed(driver)

    async def work() -> None:
        async with ASYNC[kind](postgres_url) as (connection, run):
            await run(OWN_ROW)
            with pytest.raises(StoreMoved, match="elsewhere"):
                await driver.aenqueue(BATCHES[batch], NOON, connection=connection)
            await connection.commit()

    in_loop(work)
    opened(moved)
    assert (everything(driver), own_rows(postgres_url)) == ({}, 1)


@pytest.mark.parametrize("kind", ASYNC)
def test_an_asynchronous_conflict_leaves_nothing_behind_and_the_transaction_usable(
    driver: Any, postgres_url: str, kind: str
) -> None:
    first = add_keyed(driver, "once")

    async def work() -> None:
        async with ASYNC[kind](postgres_url) as (connection, run):
            await run(OWN_ROW)
            jobs = [new_job(), new_job(idempotency_key="a"), new_job(idempotency_key="once", payload=b"other")]
            with pytest.raises(IdempotencyConflict):
                await driver.aenqueue(jobs, NOON, connection=connection)
            await connection.commit()

    in_loop(work)
    assert (set(everything(driver)), own_rows(postgres_url)) == ({first.id}, 1)


@pytest.mark.parametrize("kind", ASYNC)
def test_an_asynchronous_connection_is_refused_where_nobody_awaits(
    driver: Driver, postgres_url: str, kind: str
) -> None:
    async def work() -> None:
        async with ASYNC[kind](postgres_url) as (connection, _):
            with pytest.raises(InvalidInput, match="await aenqueue"):
                driver.enqueue([new_job()], NOON, connection=connection)

    in_loop(work)
    assert everything(driver) == {}
