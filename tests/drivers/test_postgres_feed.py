"""The history feed of PostgreSQL beside transactions that are slow, or never commit."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import psycopg
import pytest
from tests.drivers.postgres_stores import driver, url

from taskharbor.core.contract import Driver
from taskharbor.testing.helpers import done_job, facts, in_threads
from taskharbor.testing.times import NOON

__all__ = ["driver", "url"]

INSERT = """
INSERT INTO th_history (job_id, type, queue, tenant_id, priority, outcome, status, at, final, attempt_no, delivery,
                        lease_token, lease_owner, due_at, claimed_at, started_at)
VALUES (%(id)s, 'slow', 'slow', 'default', 0, 'retried', 'ready', %(now)s, FALSE, 1, 1, '\\x74', 'w',
        %(now)s, %(now)s, %(now)s)
"""


def test_an_open_write_transaction_delays_the_feed_and_loses_nothing(driver: Driver, url: str) -> None:
    with psycopg.connect(url) as slow:
        slow.execute(INSERT, {"id": "slow", "now": NOON})
        quick = done_job(driver)
        waiting = driver.history()
        assert list(waiting.rows) == []
        slow.commit()
    assert {row.job_id for row in facts(driver, 2, cursor=waiting.cursor)} == {"slow", quick}


def test_a_transaction_that_only_reads_does_not_delay_the_feed(driver: Driver, url: str) -> None:
    with psycopg.connect(url) as reader:
        reader.execute("SELECT count(*) FROM th_jobs")
        job_id = done_job(driver)
        assert [row.job_id for row in facts(driver, 1)] == [job_id]


def test_a_row_that_was_rolled_back_is_never_seen(driver: Driver, url: str) -> None:
    with psycopg.connect(url) as undecided:
        undecided.execute(INSERT, {"id": "never", "now": NOON})
        job_id = done_job(driver)
        undecided.rollback()
    assert [row.job_id for row in facts(driver, 1)] == [job_id]


@pytest.mark.concurrency
def test_a_reader_among_slow_quick_and_rolled_back_writers_meets_every_committed_row_once(
    driver: Driver, url: str, seed: str
) -> None:
    committed: list[str] = []
    met: Counter[str] = Counter()
    over = threading.Event()

    def write_slowly(number: int) -> list[str]:
        dice = random.Random(f"{seed}:{number}")
        kept = []
        with psycopg.connect(url) as connection:
            for turn in range(25):
                job_id = f"slow-{number}-{turn}"
                connection.execute(INSERT, {"id": job_id, "now": NOON})
                time.sleep(dice.random() * 0.02)  # real transactions take real time: no clock can stand in for it
                if dice.random() < 0.3:
                    connection.rollback()
                else:
                    connection.commit()
                    kept.append(job_id)
        return kept

    def write(number: int) -> list[str]:
        return write_slowly(number) if number < 6 else [done_job(driver, queue=f"q{number}") for _ in range(60)]

    def follow() -> None:
        cursor, deadline = None, time.monotonic() + 60
        while time.monotonic() < deadline:
            page = driver.history(cursor, 5)
            met.update(row.job_id for row in page.rows)
            cursor = page.cursor
            if over.is_set() and not page.rows and met.total() >= len(committed):
                return

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    committed.extend(job_id for kept in in_threads(8, write) for job_id in kept)
    over.set()
    reader.join()
    assert met == Counter(committed)
