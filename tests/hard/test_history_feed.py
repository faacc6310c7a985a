"""The history feed beside writers that are slow, that fail at the last moment, and that are many."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.hard.crew import Child, new_store

from taskharbor.core.contract import Driver
from taskharbor.core.model import HistoryRow, NewJob
from taskharbor.drivers import open_driver
from taskharbor.testing.emptying import connect
from taskharbor.testing.helpers import in_threads

pytestmark = [pytest.mark.process, pytest.mark.slow]

JOBS = 400
WRITERS = 4
LONGEST_S = 60.0

# Commits that take their time, and commits that fail when everything has been written already. The store itself does
# both, behind the driver's back: so it happens at the worst moment, and to any driver alike.
POSTGRESQL_TROUBLE = """
CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF random() < 0.03 THEN RAISE EXCEPTION 'rolled back by the test'; END IF;
  IF random() < 0.05 THEN PERFORM pg_sleep(0.05 * random()); END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER trouble AFTER INSERT ON th_history DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION trouble();
"""
MYSQL_TROUBLE = """
CREATE TRIGGER trouble AFTER INSERT ON th_history FOR EACH ROW
BEGIN
  IF RAND() < 0.03 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'rolled back by the test'; END IF;
  IF RAND() < 0.05 THEN DO SLEEP(0.05 * RAND()); END IF;
END
"""
SQLITE_TROUBLE = """
CREATE TRIGGER trouble AFTER INSERT ON th_history WHEN abs(random()) % 100 < 3
BEGIN SELECT RAISE(ABORT, 'rolled back by the test'); END
"""

WRITER = """
from taskharbor import StoreError
driver = open_driver(url)
failures = 0
while True:
    leased = driver.reserve("default", limit=random.choice([1, 2, 5]), lease_for=600)
    if not leased:
        break
    settlements = [
        Settlement.retry(item.job.id, item.lease.token, update=RetryUpdate(None, item.job.attempts + 1, "again"))
        if item.job.attempts < 2 and random.random() < 0.3 else Settlement.ack(item.job.id, item.lease.token)
        for item in leased
    ]
    for turn in range(100):
        try:
            results = driver.settle(settlements)
            break
        except StoreError as error:
            if "rolled back by the test" not in str(error):
                raise
            failures += 1
    else:
        raise AssertionError("never came through")
    for item, result in zip(settlements, results):
        assert isinstance(result, str), result
        say("wrote", item.id, item.kind.value)
say("failures", failures)
"""


def plant(url: str, kind: str, directory: Path, trouble: str) -> None:
    if kind == "sqlite":
        connection: Any = sqlite3.connect(directory / "store")
    else:
        connection = connect(url)
    connection.cursor().execute(trouble)
    connection.commit()
    connection.close()


def read_all(driver: Driver) -> list[HistoryRow]:
    rows: list[HistoryRow] = []
    cursor = None
    while True:
        page = driver.history(cursor, 1_000)
        if not page.rows:
            return rows
        rows.extend(page.rows)
        cursor = page.cursor


@pytest.mark.parametrize(
    ("kind", "trouble"),
    [
        ("sqlite", SQLITE_TROUBLE),
        pytest.param("postgresql", POSTGRESQL_TROUBLE, marks=pytest.mark.server),
        pytest.param("mysql", MYSQL_TROUBLE, marks=pytest.mark.server),
    ],
    ids=["sqlite", "postgresql", "mysql"],
)
def test_the_feed_misses_nothing_and_repeats_nothing_beside_slow_and_failing_writers(
    kind: str, trouble: str, request: pytest.FixtureRequest, tmp_path: Path, seed: str
) -> None:
    url = new_store(request, kind, tmp_path)
    with open_driver(url) as driver:
        driver.migrate()
        driver.enqueue([NewJob("t", id=f"job-{number}") for number in range(JOBS)])
        plant(url, kind, tmp_path, trouble)
        writers = [Child(WRITER, url, number, seed) for number in range(WRITERS)]
        try:
            for writer in writers:
                writer.go()
            read: list[HistoryRow] = []
            cursor: str | None = None
            lines: list[list[str]] | None = None
            deadline = time.monotonic() + LONGEST_S
            pages = 0
            while time.monotonic() < deadline:
                if lines is None and not any(writer.running for writer in writers):
                    lines = [line.split() for writer in writers for line in writer.finish()]
                page = driver.history(cursor, 17)
                cursor = page.cursor
                read.extend(page.rows)
                pages += bool(page.rows)
                # An empty page is not the end: a transaction of another test, in the same cluster, may hold rows back.
                if lines is not None and not page.rows and len(read) >= sum(line[0] == "wrote" for line in lines):
                    break
            assert lines is not None, "the writers did not come to an end"
        finally:
            for writer in writers:
                writer.stop()
        outcomes = {"ack": "succeeded", "retry": "retried"}
        written = Counter((line[1], outcomes[line[2]]) for line in lines if line[0] == "wrote")
        assert sum(int(line[1]) for line in lines if line[0] == "failures") > 0, "no transaction was rolled back"
        assert pages > 20, "the reader was not reading while the writers wrote"
        assert Counter((row.job_id, row.outcome.value) for row in read) == written
        assert [row.position for row in read] == [row.position for row in read_all(driver)]
        assert driver.counts()["done"] == JOBS


POSTGRESQL_SLOW_TYPE = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.type = 'slow' THEN PERFORM pg_sleep(1); END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON th_history DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION slow();
"""
MYSQL_SLOW_TYPE = """
CREATE TRIGGER slow AFTER INSERT ON th_history FOR EACH ROW
BEGIN IF NEW.type = 'slow' THEN DO SLEEP(1); END IF; END
"""


@pytest.mark.parametrize(
    ("kind", "trouble"),
    [
        pytest.param("postgresql", POSTGRESQL_SLOW_TYPE, marks=pytest.mark.server),
        pytest.param("mysql", MYSQL_SLOW_TYPE, marks=pytest.mark.server),
    ],
    ids=["postgresql", "mysql"],
)
def test_a_transaction_that_commits_after_later_ones_were_read_is_not_skipped(
    kind: str, trouble: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = new_store(request, kind, tmp_path)
    with open_driver(url) as driver:
        driver.migrate()
        driver.enqueue([NewJob("slow", id="slow"), *(NewJob("quick", id=f"quick-{n}") for n in range(3))])
        plant(url, kind, tmp_path, trouble)
        tokens = {item.job.id: item.lease.token for item in driver.reserve("default", limit=4)}
        read: list[str] = []

        def settle_slowly_or_quickly_or_read(role: int) -> None:
            if role == 0:
                driver.ack("slow", tokens["slow"])
            elif role == 1:
                time.sleep(0.2)
                for number in range(3):
                    driver.ack(f"quick-{number}", tokens[f"quick-{number}"])
            else:
                cursor: str | None = None
                deadline = time.monotonic() + 10
                while len(read) < 4 and time.monotonic() < deadline:
                    page = driver.history(cursor, 1)
                    cursor = page.cursor
                    read.extend(row.job_id for row in page.rows)

        in_threads(3, settle_slowly_or_quickly_or_read)
        assert sorted(read) == ["quick-0", "quick-1", "quick-2", "slow"]
