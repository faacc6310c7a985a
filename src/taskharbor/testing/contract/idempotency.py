"""What an idempotency key promises: one job for one key in one scope, however often it is sent."""

from __future__ import annotations

from typing import Any, Final

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import DuplicateJob, IdempotencyConflict, InvalidInput
from taskharbor.core.model import Enqueued, Status
from taskharbor.testing.helpers import (
    TERMINAL,
    add_keyed,
    dead_job,
    done_job,
    everything,
    finished_job,
    new_job,
    take,
    take_ids,
)
from taskharbor.testing.times import DAY, HOUR, MICROSECOND, MINUTE, NOON, SECOND

LOOK_ALIKE: Final = ["k", "K", "k ", " k", "k\t", "\u00e9", "e\u0301", "\u00c9", "ss", "ß", "\uff4b", "🚢"]


class IdempotencyContract:
    """Keys, their scope and how long they last."""

    def test_the_same_key_again_answers_with_the_first_job_and_changes_nothing(self, driver: Driver) -> None:
        first = add_keyed(driver, "k")
        before = everything(driver)
        again = add_keyed(driver, "k", now=NOON + MINUTE, priority=9, queue="other", meta={"a": "b"}, max_attempts=1)
        assert first.existed is False
        assert again == Enqueued(first.id, existed=True)
        assert everything(driver) == before

    def test_a_duplicate_is_never_run(self, driver: Driver) -> None:
        first = add_keyed(driver, "k")
        add_keyed(driver, "k")
        assert take_ids(driver) == [first.id]

    def test_jobs_without_a_key_are_never_duplicates(self, driver: Driver) -> None:
        answers = driver.enqueue([new_job(), new_job(), new_job()], NOON) + driver.enqueue([new_job()], NOON)
        assert len({answer.id for answer in answers}) == 4
        assert {answer.existed for answer in answers} == {False}

    def test_key_is_a_short_name_for_idempotency_key(self, driver: Driver) -> None:
        [first] = driver.enqueue([new_job(key="k")], NOON)
        assert driver.get(first.id).idempotency_key == "k"
        assert add_keyed(driver, "k").id == first.id

    def test_keys_are_compared_byte_by_byte(self, driver: Driver) -> None:
        ids = [add_keyed(driver, key).id for key in LOOK_ALIKE]
        assert len(set(ids)) == len(LOOK_ALIKE)
        assert [add_keyed(driver, key) for key in LOOK_ALIKE] == [Enqueued(id, existed=True) for id in ids]
        assert [driver.get(id).idempotency_key for id in ids] == LOOK_ALIKE

    def test_keys_that_look_alike_differ_inside_one_batch_too(self, driver: Driver) -> None:
        answers = driver.enqueue([new_job(idempotency_key=key) for key in LOOK_ALIKE], NOON)
        assert [answer.existed for answer in answers] == [False] * len(LOOK_ALIKE)

    def test_keys_of_the_longest_length_differ_at_their_last_character(self, driver: Driver) -> None:
        assert add_keyed(driver, "🚢" * 254 + "a").id != add_keyed(driver, "🚢" * 254 + "b").id

    # --- Conflicts and errors on demand ------------------------------------------------------------------

    def test_the_same_key_with_another_payload_is_a_conflict_and_changes_nothing(self, driver: Driver) -> None:
        first = add_keyed(driver, "k", payload=b'{"to":"a"}')
        before = everything(driver)
        with pytest.raises(IdempotencyConflict) as caught:
            add_keyed(driver, "k", payload=b'{"to":"b"}', now=NOON + MINUTE)
        assert not isinstance(caught.value, DuplicateJob)
        assert caught.value.existing_id == first.id
        assert everything(driver) == before

    def test_payloads_that_differ_in_one_byte_are_in_conflict(self, driver: Driver) -> None:
        add_keyed(driver, "k", payload=b"a")
        for other in (b"A", b"a ", b"a\x00", b""):
            with pytest.raises(IdempotencyConflict):
                add_keyed(driver, "k", payload=other)

    def test_a_duplicate_is_an_error_for_those_who_ask_for_it(self, driver: Driver) -> None:
        first = add_keyed(driver, "k", on_duplicate="raise")
        assert first.existed is False
        before = everything(driver)
        with pytest.raises(DuplicateJob) as caught:
            add_keyed(driver, "k", on_duplicate="raise")
        assert caught.value.existing_id == first.id
        assert everything(driver) == before

    def test_one_duplicate_that_is_an_error_keeps_its_whole_batch_out(self, driver: Driver) -> None:
        add_keyed(driver, "k")
        before = everything(driver)
        with pytest.raises(DuplicateJob):
            driver.enqueue([new_job(), new_job(idempotency_key="k", on_duplicate="raise"), new_job()], NOON)
        assert everything(driver) == before

    # --- Scope -------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("unique", [(), ("tenant",), ("tenant", "type"), ("queue",), ("tenant", "queue", "type")])
    def test_a_key_is_never_shared_across_tenants(self, driver: Driver, unique: tuple[str, ...]) -> None:
        one = add_keyed(driver, "k", tenant_id="acme", unique=unique, payload=b"1")
        other = add_keyed(driver, "k", tenant_id="Acme", unique=unique, payload=b"2")
        assert (one.existed, other.existed) == (False, False)
        assert one.id != other.id

    @pytest.mark.parametrize(
        ("unique", "other_queue_is_other", "other_type_is_other"),
        [
            (("tenant",), False, False),
            (("tenant", "type"), False, True),
            (("tenant", "queue"), True, False),
            (("tenant", "queue", "type"), True, True),
            (("type",), False, True),
        ],
    )
    def test_the_chosen_fields_make_up_the_scope(
        self, driver: Driver, unique: tuple[str, ...], other_queue_is_other: bool, other_type_is_other: bool
    ) -> None:
        base: dict[str, Any] = {"unique": unique, "queue": "mail", "type": "send"}
        assert add_keyed(driver, "k", **base).existed is False
        assert add_keyed(driver, "k", **base).existed is True
        assert add_keyed(driver, "k", **{**base, "queue": "fax"}).existed is not other_queue_is_other
        assert add_keyed(driver, "k", **{**base, "type": "drop"}).existed is not other_type_is_other

    def test_the_scope_is_tenant_and_type_unless_chosen_otherwise(self, driver: Driver) -> None:
        first = add_keyed(driver, "k", queue="a", type="send")
        assert add_keyed(driver, "k", queue="b", type="send") == Enqueued(first.id, existed=True)
        assert add_keyed(driver, "k", queue="a", type="drop").existed is False
        assert add_keyed(driver, "k", queue="a", type="send", unique=("type", "tenant")).id == first.id

    def test_scopes_do_not_run_into_each_other(self, driver: Driver) -> None:
        pairs = [("a", "b,c"), ("a,b", "c"), ("a", 'b","c'), ('a","b', "c"), ("a", "null"), ("ab", "c"), ("a", "bc")]
        answers = [add_keyed(driver, "k", tenant_id=tenant, type=type) for tenant, type in pairs]
        answers.append(add_keyed(driver, "k", tenant_id="a", type="other", unique=("tenant",)))
        assert {answer.existed for answer in answers} == {False}

    def test_scopes_of_long_names_differ_at_their_last_character(self, driver: Driver) -> None:
        long: dict[str, Any] = {"unique": ("tenant", "queue", "type"), "type": "t" * 255}
        assert add_keyed(driver, "k", queue="q" * 254 + "a", **long).existed is False
        assert add_keyed(driver, "k", queue="q" * 254 + "b", **long).existed is False
        assert add_keyed(driver, "k", queue="q" * 254 + "a", **long).existed is True

    def test_a_scope_of_unknown_fields_is_refused(self, driver: Driver) -> None:
        with pytest.raises(InvalidInput):
            add_keyed(driver, "k", unique=("tenant", "payload"))
        assert everything(driver) == {}

    # --- How long a key lasts ----------------------------------------------------------------------------

    @pytest.mark.parametrize("status", TERMINAL)
    def test_a_key_lasts_when_its_job_has_ended(self, driver: Driver, status: Status) -> None:
        job_id = finished_job(driver, status, idempotency_key="k")
        assert add_keyed(driver, "k", now=NOON + 300 * DAY) == Enqueued(job_id, existed=True)
        with pytest.raises(IdempotencyConflict):
            add_keyed(driver, "k", now=NOON + 300 * DAY, payload=b"other")

    def test_a_key_lasts_while_its_job_runs_and_is_retried(self, driver: Driver) -> None:
        first = add_keyed(driver, "k")
        leased = take(driver)
        assert add_keyed(driver, "k").id == first.id
        driver.release(first.id, leased.lease.token, now=NOON)
        assert add_keyed(driver, "k").id == first.id

    def test_a_key_with_a_time_to_live_is_free_from_the_moment_it_ends(self, driver: Driver) -> None:
        first = add_keyed(driver, "k", key_ttl=HOUR)
        assert add_keyed(driver, "k", now=NOON + HOUR - MICROSECOND).id == first.id
        second = add_keyed(driver, "k", now=NOON + HOUR, payload=b"other")
        assert second.existed is False
        assert second.id != first.id
        assert take_ids(driver, now=NOON + HOUR) == [first.id, second.id]

    def test_a_duplicate_does_not_prolong_the_key(self, driver: Driver) -> None:
        first = add_keyed(driver, "k", key_ttl=10)
        assert add_keyed(driver, "k", key_ttl=HOUR, now=NOON + 9 * SECOND).id == first.id
        assert add_keyed(driver, "k", now=NOON + 10 * SECOND).existed is False

    def test_a_key_taken_again_after_its_time_belongs_to_the_new_job(self, driver: Driver) -> None:
        first = done_job(driver, idempotency_key="k", key_ttl=MINUTE)
        second = add_keyed(driver, "k", now=NOON + HOUR)
        assert driver.prune(NOON + MINUTE) == 1
        assert add_keyed(driver, "k", now=NOON + DAY) == Enqueued(second.id, existed=True)
        assert second.id != first

    def test_a_key_is_free_once_its_job_is_pruned_or_purged(self, driver: Driver) -> None:
        done_job(driver, idempotency_key="pruned")
        dead_job(driver, idempotency_key="purged")
        driver.prune(NOON + MINUTE)
        driver.purge()
        assert [add_keyed(driver, key, payload=b"new").existed for key in ("pruned", "purged")] == [False, False]

    # --- Inside one batch --------------------------------------------------------------------------------

    def test_a_key_twice_in_one_batch_makes_one_job(self, driver: Driver) -> None:
        jobs = [new_job(idempotency_key=key) for key in ("a", "b", "a", "a")]
        a, b, again, once_more = driver.enqueue(jobs, NOON)
        assert (a.existed, b.existed) == (False, False)
        assert again == once_more == Enqueued(a.id, existed=True)
        assert set(everything(driver)) == {a.id, b.id}

    def test_old_and_new_keys_mix_in_one_batch(self, driver: Driver) -> None:
        old = add_keyed(driver, "old")
        jobs = [
            new_job(idempotency_key="new"),
            new_job(idempotency_key="old"),
            new_job(),
            new_job(idempotency_key="old"),
        ]
        new, first, plain, second = driver.enqueue(jobs, NOON)
        assert first == second == Enqueued(old.id, existed=True)
        assert (new.existed, plain.existed) == (False, False)
        assert set(everything(driver)) == {old.id, new.id, plain.id}

    def test_a_key_twice_in_one_batch_with_two_payloads_is_a_conflict(self, driver: Driver) -> None:
        jobs = [new_job(), new_job(idempotency_key="k", payload=b"1"), new_job(idempotency_key="k", payload=b"2")]
        with pytest.raises(IdempotencyConflict):
            driver.enqueue(jobs, NOON)
        assert everything(driver) == {}

    def test_a_key_twice_in_one_batch_is_an_error_for_those_who_ask_for_it(self, driver: Driver) -> None:
        with pytest.raises(DuplicateJob):
            driver.enqueue([new_job(idempotency_key="k"), new_job(idempotency_key="k", on_duplicate="raise")], NOON)
        assert everything(driver) == {}
