"""The feed in outline: the newest rows first asked for, and whatever comes behind them."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from taskharbor.core.answers import Glance, Glances
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidCursor
from taskharbor.core.model import HistoryRow, Outcome, Settlement, Status
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.testing.helpers import (
    FEED_PATIENCE_S,
    add_all,
    dead_job,
    done_job,
    facts,
    failure,
    finished_job,
    in_threads,
    leased_job,
    new_job,
    take,
)
from taskharbor.testing.times import HOUR, MINUTE, NOON, SECOND

WRITERS = 4
JOBS_PER_WRITER = 20


def outline(row: HistoryRow) -> Glance:
    """What `latest` has to say of a row of `history`."""
    attempt, job = row.attempt, row.job
    due_at = attempt.due_at if attempt else job.due_at if job else row.at
    return Glance(
        row.job_id, row.type, row.queue, row.tenant_id, row.outcome, row.status, row.at, due_at,
        attempt.started_at if attempt else None, attempt.number if attempt else None,
        (attempt.worker or None) if attempt else None, attempt.code if attempt else None,
    )  # fmt: skip


class LatestContract:
    """`latest`."""

    def test_the_newest_rows_come_in_the_order_of_the_feed(self, driver: Driver) -> None:
        ids = [done_job(driver, now=NOON - number * HOUR) for number in range(5)]
        facts(driver, 5)
        assert [row.job_id for row in driver.latest(limit=2).rows] == ids[-2:]
        assert [row.job_id for row in driver.latest(limit=9).rows] == ids

    def test_an_outline_says_what_its_row_says(self, driver: Driver) -> None:
        leased = leased_job(driver, type="report", queue="slow", tenant_id="acme")
        started = Settlement.retry(leased.job.id, leased.lease.token, update=failure(), started_at=NOON + SECOND)
        driver.settle([started], now=NOON + MINUTE / 2)
        dead_job(driver, reason="no such user", code="no_handler")
        for status in (Status.DONE, Status.CANCELLED, Status.EXPIRED):
            finished_job(driver, status)
        leased_job(driver, queue="lapse")
        take(driver, "lapse", now=NOON + MINUTE)
        rows = facts(driver, 6)
        assert list(driver.latest().rows) == [outline(row) for row in rows]
        first, second, _, cancelled, *_ = driver.latest().rows
        assert first == Glance(
            leased.job.id, "report", "slow", "acme", Outcome.RETRIED, Status.READY, NOON + MINUTE / 2, NOON,
            NOON + SECOND, 1, "worker-1", None,
        )  # fmt: skip
        assert (second.outcome, second.status, second.code) == (Outcome.DEAD, Status.DLQ, "no_handler")
        assert (cancelled.started_at, cancelled.attempt_no, cancelled.worker) == (None, None, None)

    def test_the_cursor_of_the_newest_rows_is_the_end_of_the_feed(self, driver: Driver) -> None:
        for _ in range(3):
            done_job(driver)
        facts(driver, 3)
        page = driver.latest(limit=1)
        assert list(driver.latest(page.cursor).rows) == []
        following = done_job(driver)
        (row,) = facts(driver, 1, cursor=page.cursor)
        assert row.job_id == following
        assert [row.job_id for row in driver.latest(page.cursor).rows] == [following]

    def test_an_empty_feed_gives_a_cursor_that_misses_nothing(self, driver: Driver) -> None:
        start = driver.latest()
        assert list(start.rows) == []
        ids = [done_job(driver) for _ in range(2)]
        facts(driver, 2, cursor=start.cursor)
        assert [row.job_id for row in driver.latest(start.cursor).rows] == ids

    def test_latest_and_history_go_on_where_the_other_has_come_to(self, driver: Driver) -> None:
        ids = [done_job(driver) for _ in range(5)]
        rows = facts(driver, 5)
        first = driver.latest(rows[0].position, limit=2)
        second = driver.history(first.cursor, limit=1)
        third = driver.latest(second.cursor)
        met = [row.job_id for row in first.rows] + [row.job_id for row in second.rows]
        assert met + [row.job_id for row in third.rows] == ids[1:]
        assert third.cursor == driver.latest().cursor

    def test_the_feed_goes_on_when_everything_in_it_was_pruned(self, driver: Driver) -> None:
        done_job(driver)
        facts(driver, 1)
        cursor = driver.latest().cursor
        driver.prune(NOON + HOUR)
        assert list(driver.latest().rows) == list(driver.latest(cursor).rows) == []
        end = driver.latest().cursor
        later = done_job(driver, now=NOON + 2 * HOUR)
        facts(driver, 1)
        for start in (cursor, end):
            assert [row.job_id for row in driver.latest(start).rows] == [later]

    @pytest.mark.parametrize("cursor", ["", "nonsense", "7", ":", "a:b:c:d", "-1", "\N{SNOWMAN}"])
    def test_latest_refuses_a_cursor_that_no_store_gave_out(self, driver: Driver, cursor: str) -> None:
        with pytest.raises(InvalidCursor):
            driver.latest(cursor)

    def test_latest_refuses_the_cursor_of_another_store(self, driver: Driver) -> None:
        with MemoryDriver() as other:
            foreign = other.latest().cursor
        with pytest.raises(InvalidCursor):
            driver.latest(foreign)

    def test_following_the_latest_while_others_write_misses_nothing_and_repeats_nothing(self, driver: Driver) -> None:
        start = driver.latest().cursor
        read: list[Glance] = []
        writing = threading.Event()

        def write(number: int) -> list[str]:
            queue = f"queue-{number}"
            ids = add_all(driver, [new_job(queue=queue) for _ in range(JOBS_PER_WRITER)])
            for _ in ids:
                (leased,) = driver.reserve(queue, now=NOON, lease_for=HOUR)
                driver.ack(leased.job.id, leased.lease.token, now=NOON)
            return ids

        def follow() -> None:
            page = Glances((), start)
            deadline = None
            while len(read) < WRITERS * JOBS_PER_WRITER:
                page = driver.latest(page.cursor, 7)
                read.extend(page.rows)
                if not page.rows:
                    if writing.is_set():
                        deadline = deadline or time.monotonic() + FEED_PATIENCE_S
                        if time.monotonic() > deadline:
                            return
                    time.sleep(0.002)

        reader = threading.Thread(target=follow, daemon=True)
        reader.start()
        try:
            written = in_threads(WRITERS, write)
        finally:
            writing.set()
            reader.join(2 * FEED_PATIENCE_S)
        assert Counter(row.job_id for row in read) == Counter(id for ids in written for id in ids)
