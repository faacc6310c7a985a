"""Looking at jobs: get, list and counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidCursor, InvalidInput, JobNotFound
from taskharbor.core.model import JobFilter, NewJob, Status
from taskharbor.testing.helpers import (
    TERMINAL,
    add,
    add_all,
    dead_job,
    done_job,
    finished_job,
    leased_job,
    new_job,
    take,
)
from taskharbor.testing.times import HOUR, MINUTE, NOON


def listed(driver: Driver, **fields: object) -> list[str]:
    """The ids that match, newest first."""
    return [job.id for job in driver.list(JobFilter(**fields)).jobs]  # type: ignore[arg-type]


class InspectionContract:
    """What `get`, `list` and `counts` show."""

    # --- Get ---------------------------------------------------------------------------------------------

    def test_get_shows_every_field_as_it_was_enqueued(self, driver: Driver) -> None:
        moment = NOON + timedelta(microseconds=123_456)
        described = NewJob(
            type="Émail.send",
            payload=bytes(range(256)),
            queue="Mail box",
            tenant_id="acme",
            id="chosen-id",
            meta={"trace": "\N{SNOWMAN}", "": "empty key"},
            priority=-7,
            run_at=moment,
            expires_at=NOON + HOUR,
            timeout=1.5,
            max_attempts=9,
            idempotency_key="once",
        )
        driver.enqueue([described], NOON)
        job = driver.get("chosen-id")
        assert (job.type, job.payload, job.queue, job.tenant_id) == (
            "Émail.send",
            bytes(range(256)),
            "Mail box",
            "acme",
        )
        assert dict(job.meta) == {"trace": "\N{SNOWMAN}", "": "empty key"}
        assert (job.priority, job.run_at, job.due_at, job.expires_at) == (-7, moment, moment, NOON + HOUR)
        assert (job.timeout, job.max_attempts, job.idempotency_key) == (timedelta(seconds=1.5), 9, "once")
        assert (job.status, job.attempts, job.deliveries, job.last_error) == (Status.READY, 0, 0, "")
        assert (job.created_at, job.updated_at, job.completed_at) == (NOON, NOON, None)

    def test_the_times_that_get_shows_are_in_utc(self, driver: Driver) -> None:
        job = driver.get(done_job(driver, run_at=NOON, expires_at=NOON + HOUR))
        for moment in (job.run_at, job.due_at, job.expires_at, job.created_at, job.completed_at, job.claimed_at):
            assert moment is not None
            assert moment.utcoffset() == timedelta(0)

    def test_get_shows_the_job_that_reserve_handed_out(self, driver: Driver) -> None:
        leased = leased_job(driver, meta={"a": "b"}, timeout=3, expires_at=NOON + HOUR)
        assert driver.get(leased.job.id) == leased.job

    @pytest.mark.parametrize("status", TERMINAL)
    def test_get_finds_finished_jobs_too(self, driver: Driver, status: Status) -> None:
        job_id = finished_job(driver, status, payload=b"work")
        job = driver.get(job_id)
        assert (job.id, job.status, job.payload, job.completed_at) == (job_id, status, b"work", NOON)
        assert (job.lease_token, job.lease_owner, job.lease_expires_at) == (None, None, None)

    def test_get_of_a_missing_job_is_an_error(self, driver: Driver) -> None:
        add(driver, id="job-a")
        for missing in ("nobody", "JOB-A", "job-a ", ""):
            with pytest.raises(JobNotFound):
                driver.get(missing)

    def test_phase_tells_scheduled_from_ready_and_claimed_from_running(self, driver: Driver) -> None:
        job_id = add(driver, run_at=NOON + MINUTE)
        assert driver.get(job_id).phase(NOON) == "scheduled"
        assert driver.get(job_id).phase(NOON + MINUTE) == "ready"
        take(driver, now=NOON + MINUTE)
        assert driver.get(job_id).phase(NOON + MINUTE) == "claimed"

    # --- List --------------------------------------------------------------------------------------------

    def test_list_shows_live_and_finished_jobs_newest_id_first(self, driver: Driver) -> None:
        ids = [done_job(driver), dead_job(driver), leased_job(driver).job.id, add(driver)]
        page = driver.list()
        assert [job.id for job in page.jobs] == ids[::-1]
        assert page.cursor is None
        assert list(page.jobs) == [driver.get(job_id) for job_id in ids[::-1]]

    def test_an_empty_store_lists_nothing(self, driver: Driver) -> None:
        page = driver.list()
        assert (list(page.jobs), page.cursor) == ([], None)

    def test_list_filters_by_status(self, driver: Driver) -> None:
        ids = {status: finished_job(driver, status) for status in TERMINAL}
        ids[Status.INFLIGHT] = leased_job(driver).job.id
        ids[Status.READY] = add(driver)
        for status, job_id in ids.items():
            assert listed(driver, status=status) == [job_id]

    @pytest.mark.parametrize("finish", [False, True])
    def test_list_filters_by_queue_type_tenant_and_id(self, driver: Driver, finish: bool) -> None:
        make = done_job if finish else add
        plain = make(driver)
        queue, type_, tenant = make(driver, queue="mail"), make(driver, type="sms"), make(driver, tenant_id="acme")
        assert listed(driver, queue="mail") == [queue]
        assert listed(driver, type="sms") == [type_]
        assert listed(driver, tenant_id="acme") == [tenant]
        assert listed(driver, ids=(queue, plain, "nobody")) == [queue, plain]
        assert listed(driver, ids=()) == []
        assert listed(driver, queue="MAIL") == []

    def test_list_filters_by_error_text_and_code(self, driver: Driver) -> None:
        first = dead_job(driver, reason="timeout after 30 s", code="max_attempts")
        second = dead_job(driver, reason="no such user", code="unrecoverable")
        assert listed(driver, error="after") == [first]
        assert listed(driver, code="unrecoverable") == [second]
        assert listed(driver, error="user", code="max_attempts") == []

    def test_the_error_filter_is_plain_text_and_minds_the_case(self, driver: Driver) -> None:
        percent, _ = dead_job(driver, reason="disk 100% full_"), dead_job(driver, reason="disk 1000 fullX \\")
        assert listed(driver, error="100% f") == [percent]
        assert listed(driver, error="full_") == [percent]
        assert listed(driver, error="Disk") == []
        assert len(listed(driver, error="\\")) == 1

    def test_all_conditions_of_a_filter_must_hold(self, driver: Driver) -> None:
        both = add(driver, queue="mail", type="sms")
        add(driver, queue="mail")
        add(driver, type="sms")
        assert listed(driver, queue="mail", type="sms", status=Status.READY) == [both]

    def test_following_the_cursor_meets_every_job_once(self, driver: Driver) -> None:
        ids = [done_job(driver) if number % 2 else add(driver, queue="later") for number in range(7)]
        met: list[str] = []
        cursor = None
        for _ in range(4):
            page = driver.list(None, cursor, 2)
            assert len(page.jobs) <= 2
            met.extend(job.id for job in page.jobs)
            cursor = page.cursor
        assert cursor is None
        assert met == ids[::-1]

    def test_the_cursor_goes_on_within_the_same_filter(self, driver: Driver) -> None:
        mail = [add(driver, queue=queue) for queue in ("mail", "sms", "mail", "sms", "mail")][::2]
        first = driver.list(JobFilter(queue="mail"), None, 2)
        second = driver.list(JobFilter(queue="mail"), first.cursor, 2)
        assert [job.id for job in (*first.jobs, *second.jobs)] == mail[::-1]
        assert second.cursor is None

    def test_a_cursor_that_list_did_not_give_out_is_refused(self, driver: Driver) -> None:
        ids = add_all(driver, [new_job() for _ in range(3)])
        for odd in ("zz", "", ids[1], driver.history().cursor):
            with pytest.raises(InvalidCursor):
                driver.list(None, odd)

    def test_a_page_that_is_exactly_full_is_the_last_one(self, driver: Driver) -> None:
        add_all(driver, [new_job() for _ in range(3)])
        assert driver.list(limit=3).cursor is None

    def test_jobs_that_finish_between_two_pages_are_still_met_once(self, driver: Driver) -> None:
        ids = add_all(driver, [new_job() for _ in range(4)])
        first = driver.list(limit=2)
        for _ in range(4):
            leased = take(driver)
            driver.ack(leased.job.id, leased.lease.token, now=NOON)
        second = driver.list(cursor=first.cursor, limit=2)
        assert [job.id for job in (*first.jobs, *second.jobs)] == ids[::-1]

    # --- Easy slips --------------------------------------------------------------------------------------

    def test_a_status_may_be_given_as_its_text(self, driver: Driver) -> None:
        dead, waiting = dead_job(driver), add(driver)
        assert (listed(driver, status="dlq"), listed(driver, status="ready")) == ([dead], [waiting])
        assert listed(driver, status="done") == []
        with pytest.raises(InvalidInput):
            driver.list(JobFilter(status="dead"))
        with pytest.raises(InvalidInput):
            driver.redrive(JobFilter(status="ready"), now=NOON)
        assert list(driver.redrive(JobFilter(status="dlq"), now=NOON)) == [dead]

    def test_one_id_may_be_given_without_a_list(self, driver: Driver) -> None:
        dead, other, waiting = dead_job(driver), dead_job(driver), add(driver)
        assert listed(driver, ids=waiting) == [waiting]
        assert listed(driver, ids=[waiting, dead]) == [waiting, dead]
        assert list(driver.redrive(JobFilter(ids=dead), now=NOON)) == [dead]
        assert driver.purge(JobFilter(ids=other)) == 1

    # --- Counts ------------------------------------------------------------------------------------------

    def test_counts_of_an_empty_store_are_zero(self, driver: Driver) -> None:
        counts = driver.counts()
        assert dict(counts) == {status.value: 0 for status in Status}
        assert (counts.queues, counts.scheduled) == ({}, 0)

    def test_counts_say_how_many_jobs_stand_where(self, driver: Driver) -> None:
        for status in TERMINAL:
            finished_job(driver, status, queue="mail")
        leased_job(driver, queue="mail")
        add_all(driver, [new_job(queue="sms") for _ in range(3)])
        counts = driver.counts()
        assert dict(counts) == {"ready": 3, "inflight": 1, "done": 1, "dlq": 1, "expired": 1, "cancelled": 1}
        assert sorted(counts.queues) == ["mail", "sms"]
        assert counts.queues["sms"] == {**dict.fromkeys(counts, 0), "ready": 3}
        assert counts.queues["mail"] == {**dict.fromkeys(counts, 1), "ready": 0}

    def test_counts_tell_how_many_ready_jobs_are_not_due_yet(self, driver: Driver) -> None:
        past, future = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
        add_all(driver, [new_job(run_at=future), new_job(run_at=future), new_job(run_at=past)])
        counts = driver.counts()
        assert (counts["ready"], counts.scheduled) == (3, 2)
