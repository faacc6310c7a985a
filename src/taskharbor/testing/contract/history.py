"""The history feed: every fact once, in an order that a reader can follow."""

from __future__ import annotations

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidCursor
from taskharbor.core.model import Outcome, Settlement, Status
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.testing.helpers import (
    TERMINAL,
    add,
    dead_job,
    done_job,
    facts,
    failure,
    finished_job,
    leased_job,
    settle_one,
    settlement,
    take,
)
from taskharbor.testing.times import HOUR, MINUTE, NOON, SECOND


class HistoryContract:
    """`history(cursor, limit)`: finished attempts and terminal jobs."""

    # --- What is in it -----------------------------------------------------------------------------------

    def test_a_job_that_has_not_run_is_not_in_history(self, driver: Driver) -> None:
        add(driver)
        leased_job(driver, queue="mail")
        assert facts(driver, 0) == []

    def test_every_finished_attempt_is_a_row(self, driver: Driver) -> None:
        leased = leased_job(driver, type="report", queue="slow", tenant_id="acme", priority=4)
        driver.retry(leased.job.id, leased.lease.token, now=NOON + SECOND, update=failure(error="boom"))
        (row,) = facts(driver, 1)
        assert (row.job_id, row.type, row.queue, row.tenant_id, row.priority) == (
            leased.job.id,
            "report",
            "slow",
            "acme",
            4,
        )
        assert (row.outcome, row.status, row.at) == (Outcome.RETRIED, Status.READY, NOON + SECOND)
        assert [row.attempt] == list(driver.attempts(leased.job.id))

    def test_a_row_of_a_job_that_goes_on_carries_no_snapshot(self, driver: Driver) -> None:
        for kind in ("retry", "snooze"):
            settle_one(driver, settlement(kind, leased_job(driver, queue=kind)))
        leased = leased_job(driver, queue="release")
        settle_one(driver, Settlement.release(leased.job.id, leased.lease.token, started_at=NOON))
        leased_job(driver, queue="lapse")
        take(driver, "lapse", now=NOON + MINUTE)
        rows = facts(driver, 4)
        assert [row.outcome for row in rows] == [Outcome.RETRIED, Outcome.SNOOZED, Outcome.RELEASED, Outcome.LAPSED]
        assert {(row.status, row.job) for row in rows} == {(Status.READY, None)}
        assert all(row.attempt is not None for row in rows)

    @pytest.mark.parametrize("status", TERMINAL)
    def test_the_snapshot_of_a_terminal_row_is_the_job_that_get_returns(self, driver: Driver, status: Status) -> None:
        job_id = finished_job(
            driver,
            status,
            payload=b"\x00\xff work",
            meta={"trace": "é"},
            tenant_id="acme",
            priority=-2,
            timeout=1.5,
            max_attempts=7,
            idempotency_key="once",
        )
        (row,) = facts(driver, 1)
        assert row.status is status
        assert row.job == driver.get(job_id)

    def test_the_snapshot_of_a_done_job_has_its_result(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.ack(leased.job.id, leased.lease.token, now=NOON, result=b'{"sent": true}')
        (row,) = facts(driver, 1)
        assert row.job is not None
        assert row.job.result == b'{"sent": true}'
        assert row.job == driver.get(leased.job.id)

    def test_a_job_that_failed_and_then_succeeded_has_a_row_for_each_and_one_snapshot(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=failure())
        again = take(driver)
        driver.ack(again.job.id, again.lease.token, now=NOON)
        rows = facts(driver, 2)
        assert [(row.outcome, row.job is not None) for row in rows] == [
            (Outcome.RETRIED, False),
            (Outcome.SUCCEEDED, True),
        ]
        assert [row.attempt for row in rows] == list(driver.attempts(leased.job.id))

    @pytest.mark.parametrize("status", [Status.CANCELLED, Status.EXPIRED])
    def test_a_job_that_ended_without_running_is_a_row_without_an_attempt(self, driver: Driver, status: Status) -> None:
        job_id = finished_job(driver, status)
        (row,) = facts(driver, 1)
        assert (row.job_id, row.status, row.outcome.value, row.attempt) == (job_id, status, status.value, None)

    def test_a_running_job_that_is_cancelled_is_a_row_with_its_attempt(self, driver: Driver) -> None:
        leased = leased_job(driver)
        driver.cancel(leased.job.id, now=NOON)
        driver.release(leased.job.id, leased.lease.token, now=NOON)
        (row,) = facts(driver, 1)
        assert (row.outcome, row.status) == (Outcome.CANCELLED, Status.CANCELLED)
        assert row.attempt is not None

    def test_a_repeated_settle_adds_no_row(self, driver: Driver) -> None:
        leased = leased_job(driver)
        for _ in range(3):
            driver.ack(leased.job.id, leased.lease.token, now=NOON)
        facts(driver, 1)

    def test_a_redrive_leaves_the_rows_that_were_there_and_adds_none(self, driver: Driver) -> None:
        dead_job(driver)
        before = facts(driver, 1)
        driver.redrive(now=NOON)
        assert facts(driver, 1) == before

    # --- Order and cursors -------------------------------------------------------------------------------

    def test_rows_come_in_the_order_in_which_they_were_written(self, driver: Driver) -> None:
        ids = [done_job(driver, now=NOON - number * HOUR) for number in range(5)]
        assert [row.job_id for row in facts(driver, 5)] == ids

    def test_following_the_cursor_meets_every_row_once(self, driver: Driver) -> None:
        ids = [done_job(driver) for _ in range(5)]
        facts(driver, 5)
        met: list[str] = []
        cursor = None
        for _ in range(5):
            page = driver.history(cursor, limit=2)
            assert len(page.rows) <= 2
            met.extend(row.job_id for row in page.rows)
            cursor = page.cursor
        assert met == ids

    def test_a_page_has_at_most_limit_rows(self, driver: Driver) -> None:
        ids = [done_job(driver) for _ in range(3)]
        facts(driver, 3)
        assert [row.job_id for row in driver.history(limit=1).rows] == ids[:1]
        assert [row.job_id for row in driver.history(limit=3).rows] == ids

    def test_the_position_of_a_row_is_a_cursor_that_goes_on_behind_it(self, driver: Driver) -> None:
        ids = [done_job(driver) for _ in range(3)]
        rows = facts(driver, 3)
        assert [row.job_id for row in driver.history(rows[0].position).rows] == ids[1:]
        assert [row.job_id for row in driver.history(rows[1].position).rows] == ids[2:]

    def test_the_positions_of_rows_are_all_different(self, driver: Driver) -> None:
        for _ in range(3):
            done_job(driver)
        assert len({row.position for row in facts(driver, 3)}) == 3

    def test_an_empty_page_gives_a_cursor_that_misses_nothing(self, driver: Driver) -> None:
        start = driver.history()
        assert list(start.rows) == []
        first = done_job(driver)
        (row,) = facts(driver, 1, cursor=start.cursor)
        assert row.job_id == first
        behind = driver.history(row.position)
        assert list(behind.rows) == []
        assert list(driver.history(behind.cursor).rows) == []
        second = done_job(driver)
        assert [row.job_id for row in facts(driver, 1, cursor=behind.cursor)] == [second]

    def test_the_same_cursor_gives_the_same_rows_again(self, driver: Driver) -> None:
        for _ in range(2):
            done_job(driver)
        rows = facts(driver, 2)
        assert facts(driver, 2) == rows

    @pytest.mark.parametrize("cursor", ["", "nonsense", "7", ":", "a:b:c:d", "-1", "\N{SNOWMAN}"])
    def test_a_cursor_that_no_store_gave_out_is_refused(self, driver: Driver, cursor: str) -> None:
        with pytest.raises(InvalidCursor):
            driver.history(cursor)

    def test_the_cursor_of_another_store_is_refused(self, driver: Driver) -> None:
        with MemoryDriver() as other:
            foreign = other.history().cursor
        with pytest.raises(InvalidCursor):
            driver.history(foreign)

    def test_a_mangled_cursor_is_refused(self, driver: Driver) -> None:
        done_job(driver)
        cursor = facts(driver, 1)[0].position
        for mangled in (cursor + "x", "x" + cursor, cursor + ":", cursor + " ", cursor.replace(":", "-")):
            with pytest.raises(InvalidCursor):
                driver.history(mangled)

    def test_a_cursor_outlives_the_rows_it_came_from(self, driver: Driver) -> None:
        done_job(driver)
        cursor = facts(driver, 1)[0].position
        driver.prune(NOON + HOUR)
        later = done_job(driver, now=NOON + 2 * HOUR)
        assert [row.job_id for row in facts(driver, 1, cursor=cursor)] == [later]
