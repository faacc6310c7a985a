"""Enqueue inside the caller's own MySQL transaction: the job exists exactly if the caller commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

import pymysql
import pytest
import sqlalchemy
from sqlalchemy.orm import Session as OrmSession
from tests.drivers.mysql.stores import ODD_TEXT, connect, run

from taskharbor.core.errors import (
    DuplicateJob,
    IdempotencyConflict,
    InvalidInput,
    JobNotFound,
    StoreUnavailable,
)
from taskharbor.core.intake import admit
from taskharbor.core.limits import Limits
from taskharbor.drivers.joining import Row, Steps
from taskharbor.drivers.mysql.driver import MysqlDriver
from taskharbor.drivers.mysql.enqueueing import enqueue_steps
from taskharbor.testing.helpers import leased_job, new_job, take, take_all
from taskharbor.testing.times import MINUTE, NOON


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


def answered(steps: Steps, get_key: Callable[[], Sequence[Row]]) -> list[str]:
    """Run the steps against a made-up store, and return which statements were asked for."""
    asked, rows = [], None
    with suppress(StopIteration):
        while True:
            query = steps.send(rows)  # type: ignore[arg-type]
            asked.append(query.name)
            rows = get_key() if query.name == "get_key" else []
    return asked


def test_a_key_that_is_forgotten_while_it_is_looked_at_is_taken_again() -> None:
    batch = admit([new_job(key="k")], NOON, Limits())
    answers: Iterator[Sequence[Row]] = iter([[], [], [("other", batch.fresh[0].payload_hash, "somebody")]])
    asked = answered(enqueue_steps(batch, lambda: False), lambda: next(answers))
    assert asked.count("take_key") == 3
    assert "insert_job" not in asked


def test_a_key_that_never_stays_is_an_error_and_leaves_nothing_behind() -> None:
    asked = []

    def forgotten() -> Sequence[Row]:
        asked.append("get_key")
        return []

    with pytest.raises(StoreUnavailable, match="'k'.*try again"):
        answered(enqueue_steps(admit([new_job(key="k")], NOON, Limits()), lambda: False), forgotten)
    assert 2 <= len(asked) <= 10
