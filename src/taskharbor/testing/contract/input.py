"""Bad input: one clear error of the same class on every store, before anything is written."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, Final

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import (
    AlreadyExpired,
    InvalidInput,
    InvalidLeaseDuration,
    InvalidTime,
    JobNotFound,
    JobNotInflight,
    PayloadTooLarge,
    ScheduleNotFound,
    WorkflowNotFound,
)
from taskharbor.core.model import Extension, Progress, Settlement, Status
from taskharbor.testing.contract.mistakes import (
    FAR_OFF,
    LOOKUPS,
    NAIVE,
    TEXTS,
    TIMED,
    UNSTORABLE,
    WRONG_CALLS,
    WRONG_JOBS,
    WRONG_SCHEDULES,
    put_schedule,
)
from taskharbor.testing.helpers import add, everything, finished_job, leased_job, new_job, take_ids
from taskharbor.testing.times import HOUR, MINUTE, NOON, SECOND

MIB: Final = 1_048_576
HUGE: Final = "x" * (30 * MIB)


class Finer(datetime):
    """A time of another library."""


class InputContract:
    """What is refused, and that nothing has changed then."""

    # --- Times -------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("call", sorted(TIMED))
    def test_a_naive_datetime_is_refused_everywhere(self, driver: Driver, call: str) -> None:
        with pytest.raises(InvalidTime):
            TIMED[call](driver, NAIVE)
        assert everything(driver) == {}

    @pytest.mark.parametrize("call", sorted(TIMED))
    def test_a_far_off_datetime_is_refused_everywhere(self, driver: Driver, call: str) -> None:
        for moment in FAR_OFF:
            with pytest.raises(InvalidTime):
                TIMED[call](driver, moment)
        assert everything(driver) == {}

    def test_a_time_of_any_zone_is_kept_as_that_moment(self, driver: Driver) -> None:
        kathmandu = timezone(timedelta(hours=5, minutes=45))
        job_id = add(driver, now=NOON.astimezone(kathmandu), run_at=(NOON + HOUR).astimezone(kathmandu))
        assert (driver.get(job_id).created_at, driver.get(job_id).run_at) == (NOON, NOON + HOUR)
        assert take_ids(driver, now=(NOON + HOUR).astimezone(kathmandu)) == [job_id]

    def test_a_time_of_a_class_of_its_own_is_kept_as_a_plain_one(self, driver: Driver) -> None:
        moment = Finer.fromisoformat((NOON + HOUR).isoformat())
        job = driver.get(add(driver, run_at=moment, expires_at=moment + HOUR))
        assert (job.run_at, job.due_at, job.expires_at) == (NOON + HOUR, NOON + HOUR, NOON + 2 * HOUR)
        assert {type(job.run_at), type(job.due_at), type(job.expires_at)} == {datetime}

    def test_a_progress_is_kept_as_plain_numbers(self, driver: Driver) -> None:
        class Share(float):
            """A number of another library."""

        leased = leased_job(driver)
        progress = Progress(Share(1.5), 2**70)
        driver.extend([Extension(leased.job.id, leased.lease.token, MINUTE, progress=progress)], now=NOON)
        kept = driver.get(leased.job.id).progress
        assert kept == progress
        assert kept is not None
        assert (type(kept.done), type(kept.total)) == (float, int)

    def test_a_job_that_has_already_expired_is_refused(self, driver: Driver) -> None:
        for moment in (NOON, NOON - SECOND):
            with pytest.raises(AlreadyExpired):
                add(driver, expires_at=moment)
        assert everything(driver) == {}

    @pytest.mark.parametrize("lease_for", [0, -1, -0.5, timedelta(0), -MINUTE, float("nan"), float("inf"), "soon"])
    def test_a_lease_must_last_longer_than_no_time(self, driver: Driver, lease_for: Any) -> None:
        add(driver)
        before = everything(driver)
        with pytest.raises(InvalidLeaseDuration):
            driver.reserve("default", now=NOON, lease_for=lease_for)
        assert everything(driver) == before
        leased = leased_job(driver, queue="mail")
        with pytest.raises(InvalidLeaseDuration):
            driver.extend_lease(leased.job.id, leased.lease.token, now=NOON, lease_for=lease_for)
        assert driver.get(leased.job.id) == leased.job

    # --- Sizes -------------------------------------------------------------------------------------------

    def test_a_payload_of_one_mebibyte_is_kept_whole_and_one_byte_more_is_refused(self, driver: Driver) -> None:
        largest = bytes(range(256)) * (MIB // 256)
        job_id = add(driver, payload=largest)
        assert driver.get(job_id).payload == largest
        with pytest.raises(PayloadTooLarge):
            driver.enqueue([new_job(), new_job(payload=largest + b"x")], NOON)
        assert set(everything(driver)) == {job_id}

    def test_an_oversize_result_is_refused_and_the_job_stays_with_its_worker(self, driver: Driver) -> None:
        leased = leased_job(driver)
        with pytest.raises(PayloadTooLarge):
            driver.ack(leased.job.id, leased.lease.token, now=NOON, result=b"x" * (MIB + 1))
        assert driver.get(leased.job.id) == leased.job
        largest = b"\xff" * MIB
        driver.ack(leased.job.id, leased.lease.token, now=NOON, result=largest)
        assert driver.get(leased.job.id).result == largest

    def test_an_empty_payload_and_an_empty_result_are_kept(self, driver: Driver) -> None:
        leased = leased_job(driver, payload=b"")
        driver.ack(leased.job.id, leased.lease.token, now=NOON, result=b"")
        assert (driver.get(leased.job.id).payload, driver.get(leased.job.id).result) == (b"", b"")

    # --- Text --------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("place", sorted(TEXTS))
    def test_nul_and_lone_surrogates_are_refused_in_names_keys_and_meta(self, driver: Driver, place: str) -> None:
        for text in UNSTORABLE:
            with pytest.raises(InvalidInput):
                TEXTS[place](driver, text)
        assert (everything(driver), list(driver.queues()), list(driver.workers())) == ({}, [], [])
        assert list(driver.schedules()) == []

    @pytest.mark.parametrize("place", sorted(LOOKUPS))
    def test_text_that_no_store_can_keep_finds_nothing_and_breaks_nothing(self, driver: Driver, place: str) -> None:
        job = driver.get(add(driver, id="a"))
        for text in UNSTORABLE:
            # Refused or not found, both are fine, as long as it is an error of ours and nothing is touched.
            try:
                answer = LOOKUPS[place](driver, text)
            except (InvalidInput, JobNotInflight, ScheduleNotFound):
                continue
            assert not getattr(answer, "jobs", answer)
        assert everything(driver) == {"a": job}

    @pytest.mark.parametrize("place", sorted(LOOKUPS))
    def test_text_longer_than_a_store_takes_finds_nothing_and_breaks_nothing(self, driver: Driver, place: str) -> None:
        job = driver.get(add(driver, id="a"))
        try:
            answer = LOOKUPS[place](driver, HUGE)
        except PayloadTooLarge:
            raise
        except (InvalidInput, JobNotFound, JobNotInflight, ScheduleNotFound, WorkflowNotFound) as error:
            assert len(str(error)) < 1_000
        else:
            assert not getattr(answer, "jobs", answer)
        assert everything(driver) == {"a": job}

    def test_names_may_hold_any_other_text(self, driver: Driver) -> None:
        odd = "Übung 'x' \"y\" %s :name \\ \N{SNOWMAN} \U0001f6a2"
        job_id = add(driver, type=odd, queue=odd, tenant_id=odd, id=odd, idempotency_key=odd, meta={odd: odd})
        job = driver.get(job_id)
        assert (job.id, job.type, job.queue, job.tenant_id, job.idempotency_key) == (odd,) * 5
        assert dict(job.meta) == {odd: odd}
        assert take_ids(driver, odd) == [odd]

    def test_names_that_begin_as_the_stores_own_do_are_refused(self, driver: Driver) -> None:
        for call in (driver.pause, driver.resume, driver.set_fair, lambda name: add(driver, queue=name)):
            with pytest.raises(InvalidInput, match="for itself"):
                call("\x01moving")
        with pytest.raises(InvalidInput, match="for itself"):
            add(driver, tenant_id="\x01")
        add(driver)
        assert len(everything(driver)) == 1

    # --- Everything else ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("mistake", sorted(WRONG_SCHEDULES))
    def test_a_schedule_that_cannot_be_kept_as_described_is_refused(self, driver: Driver, mistake: str) -> None:
        kept = put_schedule(driver)
        with pytest.raises(InvalidInput):
            put_schedule(driver, **WRONG_SCHEDULES[mistake])
        assert list(driver.schedules()) == [kept]

    @pytest.mark.parametrize("mistake", sorted(WRONG_JOBS))
    def test_a_job_that_cannot_be_kept_as_described_is_refused_with_its_whole_batch(
        self, driver: Driver, mistake: str
    ) -> None:
        with pytest.raises(InvalidInput):
            driver.enqueue([new_job(), WRONG_JOBS[mistake], new_job()], NOON)
        assert everything(driver) == {}

    @pytest.mark.parametrize("mistake", sorted(WRONG_CALLS))
    def test_a_call_that_makes_no_sense_is_refused_and_changes_nothing(self, driver: Driver, mistake: str) -> None:
        job_id = add(driver)
        before = everything(driver)
        with pytest.raises(InvalidInput):
            WRONG_CALLS[mistake](driver)
        assert everything(driver) == before
        assert driver.get(job_id).status is Status.READY

    def test_one_queue_and_one_type_may_be_given_without_a_list(self, driver: Driver) -> None:
        mail, _ = add(driver, type="mail"), add(driver, type="m")
        leased = driver.reserve("default", now=NOON, types="mail", limit=10)
        assert [item.job.id for item in leased] == [mail]

    def test_a_way_to_settle_may_be_given_as_its_text(self, driver: Driver) -> None:
        leased = leased_job(driver)
        with pytest.raises(InvalidInput):
            driver.settle([Settlement("explode", leased.job.id, leased.lease.token)], now=NOON)  # type: ignore[arg-type]
        done = Settlement("ack", leased.job.id, leased.lease.token)  # type: ignore[arg-type]
        assert driver.settle([done], now=NOON) == [Status.DONE]

    def test_a_batch_may_be_anything_that_can_be_gone_through(self, driver: Driver) -> None:
        driver.enqueue((new_job(id=f"{number}") for number in range(3)), NOON)
        leased = driver.reserve("default", now=NOON, limit=3)
        done = driver.settle((Settlement.ack(job.id, lease.token) for job, lease in leased), now=NOON)  # type: ignore[arg-type]
        assert done == [Status.DONE] * 3

    def test_an_id_that_is_taken_is_refused_even_if_that_job_has_finished(self, driver: Driver) -> None:
        leased = leased_job(driver, id="chosen")
        for _ in range(2):
            with pytest.raises(InvalidInput):
                driver.enqueue([new_job(), new_job(id="chosen")], NOON)
            assert set(everything(driver)) == {"chosen"}
            driver.ack(leased.job.id, leased.lease.token, now=NOON)

    def test_a_limit_beyond_all_numbers_of_a_store_means_all_there_are(self, driver: Driver) -> None:
        ids = [finished_job(driver, Status.DONE) for _ in range(2)]
        for limit in (2**63, 2**64):
            assert driver.prune(NOON + HOUR, limit=limit, ids=["nobody"]) == 0
            assert list(driver.redrive(now=NOON, limit=limit)) == []
            assert driver.purge(limit=limit) == 0
        assert driver.prune(NOON + HOUR, limit=2**63, ids=ids[:1]) == 1
        assert driver.prune(NOON + HOUR, limit=2**64) == 1
        assert driver.prune(NOON + HOUR, limit=2**63) == 0

    def test_one_bad_settlement_is_refused_before_any_of_its_batch_is_settled(self, driver: Driver) -> None:
        leased = leased_job(driver)
        good = Settlement.ack(leased.job.id, leased.lease.token)
        with pytest.raises(PayloadTooLarge):
            driver.settle([good, good._replace(result=b"x" * (MIB + 1))], now=NOON)
        assert driver.get(leased.job.id) == leased.job
