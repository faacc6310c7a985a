"""What keys promise that are taken only while their holder stands somewhere, and holders that can be replaced."""

from __future__ import annotations

import random
import sys
import threading
from typing import Any

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import DuplicateJob, InvalidInput, InvalidPayload, PayloadTooLarge
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Enqueued, Extension, Progress, Settlement, Status
from taskharbor.core.unique import MADE_OF_ARGUMENTS
from taskharbor.testing.helpers import (
    TERMINAL,
    add_keyed,
    everything,
    finished_job,
    in_threads,
    new_job,
    take,
    take_ids,
)
from taskharbor.testing.times import HOUR, MINUTE, NOON, SECOND

ROUNDS = 200


def debounced(payload: bytes, **fields: Any) -> dict[str, Any]:
    return {"payload": payload, "on_duplicate": "replace", **fields}


class UniqueContract:
    """Unique while in given states, keep or replace."""

    def test_a_key_is_free_again_when_its_holder_has_left_the_given_states(self, driver: Driver) -> None:
        first = add_keyed(driver, "k", payload=b"1", while_in=("ready", "inflight"))
        assert add_keyed(driver, "k", payload=b"2", while_in=("ready", "inflight")) == Enqueued(first.id, True)
        leased = take(driver)
        assert add_keyed(driver, "k", payload=b"3", while_in=("ready", "inflight")) == Enqueued(first.id, True)
        driver.ack(first.id, leased.lease.token, now=NOON)
        second = add_keyed(driver, "k", payload=b"4", while_in=("ready", "inflight"))
        assert not second.existed
        assert driver.get(second.id).payload == b"4"
        assert add_keyed(driver, "k", payload=b"5", while_in=("ready", "inflight")) == Enqueued(second.id, True)

    @pytest.mark.parametrize("status", TERMINAL)
    def test_a_holder_that_ended_counts_exactly_if_its_state_is_given(self, driver: Driver, status: Status) -> None:
        first = finished_job(driver, status, idempotency_key="k", payload=b"1")
        later = NOON + HOUR
        kept = add_keyed(driver, "k", payload=b"2", now=later, while_in=("ready", status.value))
        assert kept == Enqueued(first, True)
        fresh = add_keyed(driver, "k", payload=b"3", now=later, while_in=("ready", "inflight"))
        assert not fresh.existed

    def test_a_job_that_is_already_running_does_not_count_while_only_waiting_does(self, driver: Driver) -> None:
        first = add_keyed(driver, "k", payload=b"1", while_in=("ready",))
        take(driver)
        second = add_keyed(driver, "k", payload=b"2", while_in=("ready",))
        assert second.id != first.id
        assert not second.existed
        assert take_ids(driver) == [second.id]

    def test_the_last_of_several_replaces_what_waits_and_keeps_its_id(self, driver: Driver) -> None:
        first = add_keyed(driver, "k", **debounced(b"1", run_at=NOON + MINUTE, meta={"a": "1"}))
        for number in (2, 3):
            now = NOON + number * SECOND
            again = add_keyed(
                driver, "k", now=now, **debounced(b"%d" % number, run_at=now + MINUTE, priority=number, max_attempts=7)
            )
            assert again == Enqueued(first.id, True)
        job = driver.get(first.id)
        assert (job.payload, job.priority, job.max_attempts, job.meta) == (b"3", 3, 7, {})
        assert job.run_at == job.due_at == NOON + 3 * SECOND + MINUTE
        assert job.created_at == NOON
        assert len(everything(driver)) == 1
        assert driver.reserve("default", now=NOON + MINUTE + 2 * SECOND) == []
        assert take_ids(driver, now=NOON + MINUTE + 3 * SECOND) == [first.id]

    def test_what_is_replaced_has_made_no_progress_yet(self, driver: Driver) -> None:
        first = add_keyed(driver, "k", payload=b"1", while_in=("ready",))
        held = take(driver)
        driver.extend([Extension(first.id, held.lease.token, MINUTE, progress=Progress(99, 100, "old"))], now=NOON)
        driver.release(first.id, held.lease.token, now=NOON)
        assert driver.get(first.id).progress == Progress(99, 100, "old")
        assert add_keyed(driver, "k", **debounced(b"2")) == Enqueued(first.id, True)
        job = driver.get(first.id)
        assert (job.payload, job.progress, job.deliveries) == (b"2", None, 1)

    def test_a_payload_that_depends_on_its_job_is_made_for_the_one_that_is_replaced(self, driver: Driver) -> None:
        def made_for(id: str) -> bytes:
            return b"for " + id.encode()

        fields = debounced(b"its own", payload_for=made_for, idempotency_key="k")
        first, second, third = driver.enqueue([new_job(**fields) for _ in range(3)], NOON)
        assert (second, third) == (Enqueued(first.id, True), Enqueued(first.id, True))
        assert driver.get(first.id).payload == made_for(first.id)
        alone = add_keyed(driver, "a", **debounced(b"its own", payload_for=made_for))
        assert driver.get(alone.id).payload == b"its own"
        assert add_keyed(driver, "a", **debounced(b"another", payload_for=made_for)) == Enqueued(alone.id, True)
        assert driver.get(alone.id).payload == made_for(alone.id)
        take(driver)
        take(driver)
        fresh = add_keyed(driver, "a", **debounced(b"its own", payload_for=made_for))
        assert driver.get(fresh.id).payload == b"its own"

    def test_a_payload_made_for_what_is_replaced_is_checked_like_any_other(self, driver: Driver) -> None:
        first = add_keyed(driver, "k", **debounced(b"1"))
        for made, error in (("text", InvalidPayload), (b"x" * 1_048_577, PayloadTooLarge), (None, InvalidPayload)):
            fields = debounced(b"2", payload_for=lambda _, made=made: made)
            with pytest.raises(error):
                add_keyed(driver, "k", **fields)
            with pytest.raises(error):
                driver.enqueue([new_job(idempotency_key="b", **fields) for _ in range(2)], NOON)
        assert {id: job.payload for id, job in everything(driver).items()} == {first.id: b"1"}

    def test_what_is_replaced_by_a_job_for_another_queue_waits_there_and_nowhere_else(self, driver: Driver) -> None:
        first = add_keyed(driver, "k", **debounced(b"1"), queue="default", priority=5, unique=("tenant",))
        add_keyed(driver, "k", **debounced(b"2"), queue="other", unique=("tenant",))
        other = add_keyed(driver, "o", queue="default")
        assert take_ids(driver) == [other.id]
        assert take_ids(driver, "other") == [first.id]

    def test_a_job_that_waits_for_a_limit_and_is_replaced_waits_for_nothing_but_its_own_limits(
        self, driver: Driver
    ) -> None:
        driver.set_limit(Limit("type", "rare", concurrency=1), now=NOON)
        fields: dict[str, Any] = {"unique": ("tenant",)}
        running = add_keyed(driver, "r", type="rare", **fields)
        waiting = add_keyed(driver, "w", **debounced(b"1"), type="rare", **fields)
        assert take_ids(driver) == [running.id]
        add_keyed(driver, "w", **debounced(b"2"), type="common", **fields)
        assert take_ids(driver) == [waiting.id]

    def test_what_runs_is_not_replaced_and_the_last_one_is_not_lost(self, driver: Driver) -> None:
        first = add_keyed(driver, "k", **debounced(b"1"))
        leased = take(driver)
        second = add_keyed(driver, "k", **debounced(b"2"))
        third = add_keyed(driver, "k", **debounced(b"3"))
        assert not second.existed
        assert third == Enqueued(second.id, True)
        driver.ack(first.id, leased.lease.token, now=NOON)
        assert driver.get(first.id).payload == b"1"
        assert take(driver).job.payload == b"3"

    def test_with_running_among_the_states_replace_keeps_what_runs(self, driver: Driver) -> None:
        first = add_keyed(driver, "k", **debounced(b"1", while_in=("ready", "inflight")))
        take(driver)
        assert add_keyed(driver, "k", **debounced(b"2", while_in=("ready", "inflight"))) == Enqueued(first.id, True)
        assert driver.get(first.id).payload == b"1"

    def test_a_key_with_a_time_is_free_after_it_whatever_the_state(self, driver: Driver) -> None:
        every = tuple(status.value for status in Status)
        first = add_keyed(driver, "k", payload=b"1", while_in=every, key_ttl=60)
        assert add_keyed(driver, "k", payload=b"2", now=NOON + 59 * SECOND, while_in=every, key_ttl=60).existed
        second = add_keyed(driver, "k", payload=b"3", now=NOON + MINUTE, while_in=every, key_ttl=60)
        assert not second.existed
        assert second.id != first.id

    def test_in_one_batch_the_last_replaces_and_the_first_is_kept(self, driver: Driver) -> None:
        jobs = [new_job(idempotency_key="a", **debounced(b"%d" % number)) for number in range(3)]
        jobs += [new_job(idempotency_key="b", payload=b"%d" % number, while_in=("ready",)) for number in range(3)]
        answers = driver.enqueue(jobs, NOON)
        assert [answer.existed for answer in answers] == [False, True, True, False, True, True]
        assert len({answer.id for answer in answers}) == 2
        assert driver.get(answers[0].id).payload == b"2"
        assert driver.get(answers[3].id).payload == b"0"

    def test_in_one_batch_held_keys_are_replaced_kept_or_taken_over(self, driver: Driver) -> None:
        replaced = add_keyed(driver, "r", **debounced(b"1"), queue="other")
        running = add_keyed(driver, "t", payload=b"1", while_in=("ready",))
        take(driver)
        kept = add_keyed(driver, "s", payload=b"1", while_in=("ready",))
        answers = driver.enqueue(
            [
                new_job(idempotency_key="t", payload=b"2", while_in=("ready",)),
                new_job(idempotency_key="s", payload=b"2", while_in=("ready",)),
                new_job(idempotency_key="r", **debounced(b"2"), queue="other"),
                new_job(payload=b"plain"),
            ],
            NOON,
        )
        assert [answer.existed for answer in answers] == [False, True, True, False]
        assert answers[0].id != running.id
        assert (answers[1].id, answers[2].id) == (kept.id, replaced.id)
        assert (driver.get(kept.id).payload, driver.get(replaced.id).payload) == (b"1", b"2")

    def test_a_duplicate_is_an_error_when_asked_for(self, driver: Driver) -> None:
        add_keyed(driver, "k", payload=b"1", while_in=("ready",))
        before = everything(driver)
        with pytest.raises(DuplicateJob):
            add_keyed(driver, "k", payload=b"2", while_in=("ready",), on_duplicate="raise")
        assert everything(driver) == before

    def test_the_error_about_a_key_that_nobody_gave_names_the_job_and_not_the_key(self, driver: Driver) -> None:
        first = add_keyed(driver, MADE_OF_ARGUMENTS + "abc", while_in=("ready",))
        with pytest.raises(DuplicateJob, match=f"job {first.id} of type 'email.send' counts as the same") as refused:
            add_keyed(driver, MADE_OF_ARGUMENTS + "abc", while_in=("ready",), on_duplicate="raise")
        assert "key" not in str(refused.value)
        assert refused.value.existing_id == first.id

    @pytest.mark.parametrize(
        "fields",
        [
            {"idempotency_key": None, "on_duplicate": "replace"},
            {"idempotency_key": None, "while_in": ("ready",)},
            {"idempotency_key": "k", "while_in": ("running",)},
            {"idempotency_key": "k", "while_in": "ready"},
            {"idempotency_key": "k", "while_in": ("inflight",)},
            {"idempotency_key": "k", "while_in": ()},
            {"idempotency_key": "k", "on_duplicate": "overwrite"},
        ],
    )
    def test_what_makes_no_sense_is_refused_and_changes_nothing(self, driver: Driver, fields: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            driver.enqueue([new_job(**fields)], NOON)
        assert everything(driver) == {}

    def test_no_event_is_lost_when_the_holder_finishes_at_the_same_moment(self, driver: Driver) -> None:
        """Each event is enqueued while a worker takes and finishes: the last event is always seen by a run that began
        after it came."""
        seed = random.randrange(2**32)
        sys.stdout.write(f"seed {seed}\n")
        chance = random.Random(seed)
        pauses = [chance.random() * 0.002 for _ in range(ROUNDS)]
        seen: list[int] = []
        done = threading.Event()

        def work(number: int) -> None:
            if number == 0:
                for event in range(ROUNDS):
                    driver.enqueue([new_job(idempotency_key="k", **debounced(b"%d" % event))])
                    done.wait(pauses[event])
                done.set()
                return
            while True:
                last = done.is_set()
                leased = driver.reserve("default", lease_for=MINUTE, limit=10)
                seen.extend(int(item.job.payload) for item in leased)
                driver.settle([Settlement.ack(item.job.id, item.lease.token) for item in leased])
                if last and not leased:
                    return

        in_threads(2, work)
        assert seen[-1] == ROUNDS - 1
        assert seen == sorted(set(seen)), "none runs twice, and none after a later one"
        assert driver.counts()["done"] == len(seen)
