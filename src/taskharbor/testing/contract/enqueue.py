"""What enqueue promises: every field is kept as given, and a batch is stored as a whole or not at all."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta, timezone
from typing import Any, Final

import pytest

from taskharbor.core.clock import FIRST_START
from taskharbor.core.contract import Driver
from taskharbor.core.errors import IdempotencyConflict, InvalidInput, JobNotFound, PayloadTooLarge
from taskharbor.core.limits import Limits
from taskharbor.core.model import Enqueued, NewJob, Status
from taskharbor.testing.helpers import (
    TERMINAL,
    add,
    add_all,
    add_keyed,
    everything,
    finished_job,
    new_job,
    take,
    take_ids,
)
from taskharbor.testing.times import DAY, HOUR, MICROSECOND, MINUTE, NOON, SECOND

EVERY_BYTE: Final = bytes(range(256))
HARD_TEXT: Final = "Grüße, 世界 🚢\N{ZERO WIDTH JOINER}🏴‍☠️ 'quoted' \"twice\" \\ %s :name ? {} \t\n;--"


class EnqueueContract:
    """Fields, ids and batches."""

    def test_a_new_job_is_ready_and_has_no_past(self, driver: Driver) -> None:
        job = driver.get(add(driver))
        assert (job.status, job.attempts, job.deliveries, job.forgiven, job.last_error) == (Status.READY, 0, 0, 0, "")
        assert (job.created_at, job.updated_at, job.due_at) == (NOON, NOON, NOON)
        assert (job.lease_token, job.lease_owner, job.lease_expires_at, job.cancel_requested_at) == (None,) * 4
        assert (job.dlq_reason, job.dlq_code, job.dlq_failed_at, job.failed_at) == (None,) * 4
        assert (job.claimed_at, job.started_at, job.completed_at, job.result, job.progress) == (None,) * 5

    def test_what_is_left_out_gets_its_default(self, driver: Driver) -> None:
        [answer] = driver.enqueue([NewJob(type="email.send")], NOON)
        job = driver.get(answer.id)
        assert answer.existed is False
        assert (job.type, job.queue, job.tenant_id, job.payload, job.meta) == (
            "email.send",
            "default",
            "default",
            b"",
            {},
        )
        assert (job.priority, job.run_at, job.expires_at, job.timeout, job.max_attempts) == (0, None, None, None, 5)
        assert (job.idempotency_key, job.dedupe_scope) == (None, None)

    def test_every_field_comes_back_as_it_was_given(self, driver: Driver) -> None:
        fields = _odd_fields()
        job_id = add(driver, **fields)
        _check_fields(driver.get(job_id), fields)
        leased = take(driver, fields["queue"], now=NOON + HOUR)
        _check_fields(leased.job, fields)

    @pytest.mark.parametrize("status", TERMINAL)
    def test_every_field_is_still_there_when_the_job_has_ended(self, driver: Driver, status: Status) -> None:
        fields = _odd_fields()
        del fields["run_at"], fields["expires_at"]
        job = driver.get(finished_job(driver, status, **fields))
        assert job.status is status
        _check_fields(job, fields)

    @pytest.mark.parametrize("payload", [b"", b"\x00", EVERY_BYTE, EVERY_BYTE[::-1] * 40, '{"é": "🚢"}'.encode()])
    def test_a_payload_is_kept_byte_for_byte(self, driver: Driver, payload: bytes) -> None:
        job_id = add(driver, payload=payload)
        assert driver.get(job_id).payload == payload
        leased = take(driver)
        assert leased.job.payload == payload
        driver.ack(job_id, leased.lease.token, now=NOON)
        assert driver.get(job_id).payload == payload

    def test_a_payload_of_exactly_the_limit_is_kept_whole(self, driver: Driver) -> None:
        payload = EVERY_BYTE * (Limits().max_payload_bytes // 256)
        assert driver.get(add(driver, payload=payload)).payload == payload

    @pytest.mark.parametrize("priority", [-(2**31) + 1, -1, 0, 1, 2**31 - 1])
    def test_priorities_from_end_to_end_of_the_range_are_kept(self, driver: Driver, priority: int) -> None:
        assert driver.get(add(driver, priority=priority)).priority == priority
        assert take(driver).job.priority == priority

    def test_times_are_kept_to_the_microsecond(self, driver: Driver) -> None:
        now = NOON + MICROSECOND
        run_at, expires_at = NOON + 999_999 * MICROSECOND, NOON + DAY + 123_457 * MICROSECOND
        job = driver.get(add(driver, now=now, run_at=run_at, expires_at=expires_at))
        assert (job.created_at, job.run_at, job.due_at, job.expires_at) == (now, run_at, run_at, expires_at)

    def test_times_of_any_zone_are_the_same_moments_in_utc(self, driver: Driver) -> None:
        kathmandu = timezone(timedelta(hours=5, minutes=45))
        job = driver.get(add(driver, run_at=(NOON + HOUR).astimezone(kathmandu), now=NOON.astimezone(kathmandu)))
        assert (job.run_at, job.created_at) == (NOON + HOUR, NOON)
        for moment in (job.run_at, job.created_at):
            assert moment is not None and moment.utcoffset() == timedelta(0)

    @pytest.mark.parametrize(
        "moment", [datetime(1971, 1, 1, tzinfo=NOON.tzinfo), datetime(8999, 1, 1, tzinfo=NOON.tzinfo)]
    )
    def test_times_centuries_away_are_kept(self, driver: Driver, moment: datetime) -> None:
        job = driver.get(add(driver, run_at=moment))
        assert (job.run_at, job.due_at) == (moment, max(moment, FIRST_START)), "before 2000 are no due times"

    @pytest.mark.parametrize(
        ("given", "kept"), [(1.5, 1.5 * SECOND), (90, 90 * SECOND), (2 * DAY, 2 * DAY), (0, None), (None, None)]
    )
    def test_a_timeout_is_a_duration_or_seconds_and_zero_is_none(
        self, driver: Driver, given: Any, kept: timedelta | None
    ) -> None:
        assert driver.get(add(driver, timeout=given)).timeout == kept

    def test_max_attempts_counts_all_executions_and_max_retries_is_the_same(self, driver: Driver) -> None:
        ids = add_all(driver, [new_job(max_attempts=3), new_job(max_retries=3), new_job(max_attempts=1), new_job()])
        assert [driver.get(id).max_attempts for id in ids] == [3, 3, 1, 5]

    def test_without_now_the_stores_clock_is_used(self, driver: Driver) -> None:
        before = driver.now()
        [answer] = driver.enqueue([new_job()])
        job = driver.get(answer.id)
        assert before - SECOND <= job.created_at <= driver.now() + SECOND
        assert job.due_at == job.created_at

    # --- Ids ---------------------------------------------------------------------------------------------

    def test_made_ids_are_uuids_of_version_seven_that_sort_in_the_order_of_enqueue(self, driver: Driver) -> None:
        ids = add_all(driver, [new_job() for _ in range(20)])
        ids += [add(driver) for _ in range(5)]
        ids += add_all(driver, [new_job() for _ in range(20)])
        assert ids == sorted(ids)
        assert len(set(ids)) == 45
        assert {uuid.UUID(id).version for id in ids} == {7}
        assert take_ids(driver) == ids

    @pytest.mark.parametrize("own_id", ["1", "order-7", "x" * 64, "é🚢 with spaces", "0", "'; --"])
    def test_an_id_of_ones_own_is_kept(self, driver: Driver, own_id: str) -> None:
        assert driver.enqueue([new_job(id=own_id)], NOON) == [Enqueued(own_id, existed=False)]
        leased = take(driver)
        assert leased.job.id == own_id
        driver.ack(own_id, leased.lease.token, now=NOON)
        assert driver.get(own_id).status is Status.DONE

    def test_ids_are_compared_byte_by_byte(self, driver: Driver) -> None:
        ids = ["k", "K", "k ", " k", "\u00e9", "e\u0301"]
        add_all(driver, [new_job(id=id, payload=id.encode()) for id in ids])
        assert [driver.get(id).payload for id in ids] == [id.encode() for id in ids]
        for stranger in ("k  ", "\u00c9", "E\u0301"):
            with pytest.raises(JobNotFound):
                driver.get(stranger)

    @pytest.mark.parametrize("status", [Status.READY, Status.INFLIGHT, *TERMINAL])
    def test_an_id_that_is_taken_in_any_state_is_refused_and_nothing_is_written(
        self, driver: Driver, status: Status
    ) -> None:
        if status in TERMINAL:
            taken = finished_job(driver, status, payload=b"first")
        else:
            taken = add(driver, payload=b"first")
            if status is Status.INFLIGHT:
                take(driver)
        before = everything(driver)
        with pytest.raises(InvalidInput):
            driver.enqueue([new_job(payload=b"neighbour"), new_job(id=taken, payload=b"second")], NOON)
        assert everything(driver) == before

    def test_an_id_twice_in_one_batch_is_refused_and_nothing_is_written(self, driver: Driver) -> None:
        with pytest.raises(InvalidInput):
            driver.enqueue([new_job(id="a"), new_job(id="b"), new_job(id="a")], NOON)
        assert everything(driver) == {}

    def test_an_id_sent_again_with_its_key_is_a_duplicate_and_no_collision(self, driver: Driver) -> None:
        job = new_job(id="order-7", idempotency_key="order-7")
        assert driver.enqueue([job], NOON) == [Enqueued("order-7", existed=False)]
        assert driver.enqueue([job], NOON + MINUTE) == [Enqueued("order-7", existed=True)]

    # --- Batches -----------------------------------------------------------------------------------------

    def test_a_batch_answers_in_the_order_it_was_given(self, driver: Driver) -> None:
        jobs = [new_job(payload=str(n).encode(), priority=n % 3, queue=f"q{n % 2}") for n in range(50)]
        answers = driver.enqueue(iter(jobs), NOON)
        assert [driver.get(answer.id).payload for answer in answers] == [job.payload for job in jobs]
        assert {answer.existed for answer in answers} == {False}

    def test_an_empty_batch_is_fine(self, driver: Driver) -> None:
        assert driver.enqueue([], NOON) == []
        assert everything(driver) == {}

    def test_a_batch_of_many_thousands_is_stored_whole(self, driver: Driver) -> None:
        ids = add_all(driver, [new_job() for _ in range(5_000)])
        assert len(set(ids)) == 5_000
        assert driver.counts()["ready"] == 5_000
        assert take_ids(driver) == ids[:1_000]

    def test_one_bad_job_keeps_its_whole_batch_out(self, driver: Driver) -> None:
        too_large = new_job(payload=bytes(Limits().max_payload_bytes + 1))
        with pytest.raises(PayloadTooLarge):
            driver.enqueue([new_job(), new_job(idempotency_key="k"), too_large], NOON)
        assert everything(driver) == {}
        assert add_keyed(driver, "k").existed is False

    def test_one_conflict_keeps_its_whole_batch_out_and_takes_no_key(self, driver: Driver) -> None:
        add_keyed(driver, "taken", payload=b"first")
        before = everything(driver)
        with pytest.raises(IdempotencyConflict):
            driver.enqueue(
                [new_job(), new_job(idempotency_key="free"), new_job(idempotency_key="taken", payload=b"second")], NOON
            )
        assert everything(driver) == before
        assert add_keyed(driver, "free").existed is False

    def test_an_id_collision_takes_no_key(self, driver: Driver) -> None:
        add(driver, id="a")
        with pytest.raises(InvalidInput):
            driver.enqueue([new_job(id="b", idempotency_key="free"), new_job(id="a")], NOON)
        assert add_keyed(driver, "free").existed is False


def _odd_fields() -> dict[str, Any]:
    return {
        "id": "id-🚢-'\"\\%s",
        "type": f"type {HARD_TEXT}",
        "queue": f"queue {HARD_TEXT}",
        "tenant_id": f"t {HARD_TEXT}"[:64],
        "payload": EVERY_BYTE,
        "meta": {"trace": HARD_TEXT, "": "empty key", "empty value": "", "ключ": "значение", "number": "1e999"},
        "priority": -7,
        "run_at": NOON + MINUTE + MICROSECOND,
        "expires_at": NOON + DAY + 3 * MICROSECOND,
        "timeout": 90 * SECOND + 7 * MICROSECOND,
        "max_attempts": 1_000_000,
        "idempotency_key": f"key {HARD_TEXT}",
    }


def _check_fields(job: Any, fields: dict[str, Any]) -> None:
    assert {name: getattr(job, name) for name in fields} == fields
    assert job.dedupe_scope
