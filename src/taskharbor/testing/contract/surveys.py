"""Questions about everything: the census, counting, and looking for text."""

from __future__ import annotations

import pytest

from taskharbor.core.answers import CensusRow
from taskharbor.core.contract import Driver
from taskharbor.core.limiting import Limit
from taskharbor.core.model import JobFilter, Status
from taskharbor.core.workflow import NewStep, NewWorkflow
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
    take_all,
)
from taskharbor.testing.times import HOUR, MINUTE, NOON


def found(driver: Driver, **fields: object) -> list[str]:
    """The ids that match, newest first; `count` must agree."""
    filter = JobFilter(**fields)  # type: ignore[arg-type]
    ids = [job.id for job in driver.list(filter).jobs]
    assert driver.count(filter) == len(ids)
    return ids


class SurveyContract:
    """`census`, `count`, and `JobFilter.text`."""

    # --- Census ------------------------------------------------------------------------------------------

    def test_the_census_of_an_empty_store_is_empty(self, driver: Driver) -> None:
        assert list(driver.census(NOON)) == []

    def test_the_census_counts_by_tenant_queue_and_status_over_live_and_finished_jobs(self, driver: Driver) -> None:
        for tenant in ("b", "a"):
            for status in TERMINAL:
                finished_job(driver, status, queue="mail", tenant_id=tenant)
            leased_job(driver, queue="mail", tenant_id=tenant)
        add_all(driver, [new_job(queue="sms", tenant_id="b") for _ in range(3)])
        states = sorted([*TERMINAL, Status.INFLIGHT])
        expected = [CensusRow(tenant, "mail", status, 1) for tenant in ("a", "b") for status in states]
        assert list(driver.census(NOON)) == [*expected, CensusRow("b", "sms", Status.READY, 3, 0, NOON)]

    def test_the_census_tells_what_is_not_due_yet_and_when_the_first_of_the_others_became_due(
        self, driver: Driver
    ) -> None:
        add(driver, run_at=NOON + HOUR)
        assert list(driver.census(NOON)) == [CensusRow("default", "default", Status.READY, 1, 1, None)]
        add(driver, now=NOON - MINUTE)
        add(driver, run_at=NOON)
        assert list(driver.census(NOON)) == [CensusRow("default", "default", Status.READY, 3, 1, NOON - MINUTE)]
        take(driver)
        assert driver.census(NOON)[1] == CensusRow("default", "default", Status.READY, 2, 1, NOON)
        assert driver.census(NOON + HOUR)[1] == CensusRow("default", "default", Status.READY, 2, 0, NOON)

    def test_a_job_that_a_limit_holds_back_or_a_fair_queue_lines_up_is_due_in_the_census(self, driver: Driver) -> None:
        driver.set_limit(Limit("type", "email.send", concurrency=1), now=NOON)
        driver.set_fair("fair", now=NOON)
        add_all(driver, [new_job(), new_job()], now=NOON - HOUR)
        add_all(driver, [new_job(queue="fair", tenant_id="a", type="fax")], now=NOON - MINUTE)
        assert len(take_all(driver, ["default"], lease_for=HOUR)) == 1
        ready = [row for row in driver.census(NOON) if row.status is Status.READY]
        assert ready == [
            CensusRow("a", "fair", Status.READY, 1, 0, NOON - MINUTE),
            CensusRow("default", "default", Status.READY, 1, 0, NOON - HOUR),
        ]

    def test_a_step_that_waits_for_others_is_not_due(self, driver: Driver) -> None:
        steps = [NewStep("first", new_job()), NewStep("second", new_job(), after=(0,))]
        driver.start_workflow(NewWorkflow("two", steps), now=NOON)
        assert list(driver.census(NOON)) == [CensusRow("default", "default", Status.READY, 2, 1, NOON)]
        assert driver.counts().scheduled == 1
        first = take(driver, lease_for=HOUR)
        driver.ack(first.job.id, first.lease.token, now=NOON + MINUTE)
        assert driver.census(NOON + MINUTE)[-1] == CensusRow("default", "default", Status.READY, 1, 0, NOON + MINUTE)
        assert driver.counts().scheduled == 0

    def test_the_census_agrees_with_the_counts(self, driver: Driver) -> None:
        for tenant in ("a", "b"):
            done_job(driver, tenant_id=tenant)
            dead_job(driver, tenant_id=tenant)
            add(driver, queue="mail", tenant_id=tenant)
        counts, census = driver.counts(), driver.census()
        for queue, by_status in counts.queues.items():
            for status, count in by_status.items():
                assert sum(row.count for row in census if (row.queue, row.status) == (queue, status)) == count

    # --- Count -------------------------------------------------------------------------------------------

    def test_count_takes_every_filter_that_list_takes(self, driver: Driver) -> None:
        ids = {status: finished_job(driver, status, tenant_id="acme") for status in TERMINAL}
        ids[Status.INFLIGHT] = leased_job(driver, queue="mail").job.id
        ids[Status.READY] = add(driver, type="sms")
        assert driver.count() == len(ids)
        for status, id in ids.items():
            assert found(driver, status=status) == [id]
            assert found(driver, ids=[id, "nobody"]) == [id]
            assert found(driver, ids=id, status=status) == [id]
        assert len(found(driver, tenant_id="acme")) == 4
        assert found(driver, tenant_id="acme", status="dlq") == [ids[Status.DLQ]]
        assert found(driver, tenant_id="acme", status="done", queue="default") == [ids[Status.DONE]]
        assert found(driver, queue="mail", status="inflight", type="email.send") == [ids[Status.INFLIGHT]]
        assert found(driver, type="sms", status="ready", queue="default") == [ids[Status.READY]]
        assert found(driver, error="boom") == found(driver, code="unrecoverable") == [ids[Status.DLQ]]
        assert found(driver, code="unrecoverable", status="done") == found(driver, ids=[]) == []
        assert found(driver, queue="MAIL") == []

    def test_the_empty_text_is_in_every_job(self, driver: Driver) -> None:
        ids = {done_job(driver), dead_job(driver, reason="boom"), add(driver)}
        for fields in ({"error": ""}, {"text": ""}, {"error": "", "text": ""}):
            assert set(found(driver, **fields)) == ids
        assert len(found(driver, status="done", error="")) == len(found(driver, status="done", text="")) == 1
        assert found(driver, queue="") == []

    def test_counting_stops_at_the_limit(self, driver: Driver) -> None:
        for _ in range(3):
            done_job(driver)
        add_all(driver, [new_job() for _ in range(3)])
        assert [driver.count(limit=limit) for limit in (1, 3, 4, 6, 7)] == [1, 3, 4, 6, 6]
        assert driver.count(JobFilter(status="done"), limit=2) == 2
        assert driver.count(JobFilter(ids=[job.id for job in driver.list().jobs]), limit=2) == 2

    # --- Text --------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("finish", [False, True])
    def test_text_is_found_in_ids_types_and_payloads(self, driver: Driver, finish: bool) -> None:
        make = done_job if finish else add
        make(driver)
        id, type_ = make(driver, id="order-xyz1"), make(driver, type="order.send")
        payload = make(driver, payload='{"to": "Zoë", "order": "xyz2"}'.encode(), queue="other")
        assert found(driver, text="order") == sorted([id, type_, payload], reverse=True)
        assert found(driver, text="xyz") == sorted([id, payload], reverse=True)
        assert found(driver, text='"Zoë"') == [payload]
        assert found(driver, text="order", queue="other") == [payload]
        assert found(driver, text="Order") == []

    def test_text_is_found_in_errors_and_reasons(self, driver: Driver) -> None:
        first, second = dead_job(driver, reason="disk 100% full_"), dead_job(driver, reason="disk 1000 fullX \\")
        assert found(driver, text="100%") == found(driver, text="full_") == [first]
        assert found(driver, text="disk", status="dlq") == [second, first]
        assert found(driver, text="\\", ids=[first, second]) == [second]
        assert list(driver.redrive(JobFilter(text="100%"), now=NOON)) == [first]
        assert driver.purge(JobFilter(text="fullX")) == 1

    def test_text_is_compared_byte_by_byte_in_payloads_of_any_bytes(self, driver: Driver) -> None:
        binary = add(driver, payload=bytes(range(256)) + "Ä".encode())
        add(driver, payload="ä A\N{COMBINING DIAERESIS}".encode())
        add(driver, payload="Ä".encode("latin-1"))
        assert found(driver, text="Ä") == [binary]
        assert found(driver, text="xyz{|}~") == [binary]
