"""Everything that can be refused is refused before any store is touched."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from taskharbor import NewJob
from taskharbor.core import limits as bounds
from taskharbor.core.errors import (
    AlreadyExpired,
    DuplicateJob,
    IdempotencyConflict,
    InvalidInput,
    InvalidPayload,
    InvalidTime,
    PayloadTooLarge,
)
from taskharbor.core.intake import LONGEST_SCOPE, Admitted, admit, dedupe_scope
from taskharbor.core.limits import Limits
from taskharbor.testing.times import HOUR, MICROSECOND, NOON, SECOND

NAIVE = datetime(2026, 6, 1)  # noqa: DTZ001


def admit_one(limits: Limits | None = None, **fields: Any) -> Admitted:
    batch = admit([NewJob(**{"type": "t", **fields})], NOON, limits or Limits())
    return batch.fresh[0]


def test_a_job_with_nothing_but_a_type_gets_every_default() -> None:
    job = admit_one()
    assert (job.queue, job.tenant_id, job.priority, job.payload) == ("default", "default", 0, b"")
    assert (job.run_at, job.expires_at, job.timeout_nanos, job.max_attempts) == (None, None, 0, 5)
    assert (job.due_at, job.created_at) == (NOON, NOON)
    assert (job.meta, job.idempotency_key, job.dedupe_scope, job.payload_hash) == (None, None, None, None)


def test_a_scheduled_job_is_due_when_it_is_to_run() -> None:
    assert admit_one(run_at=NOON + HOUR).due_at == NOON + HOUR


@pytest.mark.parametrize("unset", [None, 0])
def test_an_unset_limit_of_attempts_becomes_the_default(unset: int | None) -> None:
    assert admit_one(Limits(default_max_attempts=7), max_attempts=unset).max_attempts == 7


def test_max_retries_and_key_are_other_names_for_the_same_values() -> None:
    job = admit_one(max_retries=3, key="k")
    assert (job.max_attempts, job.idempotency_key) == (3, "k")


def test_a_timeout_is_kept_in_whole_nanoseconds() -> None:
    assert admit_one(timeout=1.5).timeout_nanos == 1_500_000_000
    assert admit_one(timeout=timedelta(days=1, microseconds=1)).timeout_nanos == 86_400_000_001_000


def test_meta_is_kept_as_json_with_sorted_keys() -> None:
    assert admit_one(meta={"b": "2", "a": "1"}).meta == '{"a":"1","b":"2"}'


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"payload": "text"}, InvalidPayload),
        ({"payload": {"a": 1}}, InvalidPayload),
        ({"payload": bytes(2**20 + 1)}, PayloadTooLarge),
        ({"type": ""}, InvalidInput),
        ({"type": "a\x00b"}, InvalidInput),
        ({"type": None}, InvalidInput),
        ({"queue": ""}, InvalidInput),
        ({"queue": "x" * 256}, InvalidInput),
        ({"queue": "\ud800"}, InvalidInput),
        ({"tenant_id": "x" * 65}, InvalidInput),
        ({"tenant_id": ""}, InvalidInput),
        ({"id": ""}, InvalidInput),
        ({"id": "x" * 65}, InvalidInput),
        ({"priority": 2**31}, InvalidInput),
        ({"priority": -(2**31)}, InvalidInput),
        ({"priority": 1.0}, InvalidInput),
        ({"priority": True}, InvalidInput),
        ({"max_attempts": -1}, InvalidInput),
        ({"max_attempts": 2.5}, InvalidInput),
        ({"max_attempts": bounds.MAX_ATTEMPTS + 1}, InvalidInput),
        ({"run_at": NAIVE}, InvalidTime),
        ({"expires_at": NAIVE}, InvalidTime),
        ({"run_at": NOON.replace(year=9500)}, InvalidTime),
        ({"expires_at": NOON}, AlreadyExpired),
        ({"expires_at": NOON - SECOND}, AlreadyExpired),
        ({"timeout": -1}, InvalidInput),
        ({"timeout": float("nan")}, InvalidInput),
        ({"idempotency_key": ""}, InvalidInput),
        ({"idempotency_key": "x" * 256}, InvalidInput),
        ({"idempotency_key": "k\x00"}, InvalidInput),
        ({"idempotency_key": "k", "unique": ("tenant", "planet")}, InvalidInput),
        ({"idempotency_key": "k", "key_ttl": -1}, InvalidInput),
        ({"on_duplicate": "ignore"}, InvalidInput),
        ({"idempotency_key": "k", "unique": None}, InvalidInput),
        ({"idempotency_key": "k", "unique": "tenant"}, InvalidInput),
        ({"meta": ["k"]}, InvalidInput),
        ({"meta": {"k": 1}}, InvalidInput),
        ({"meta": {"k": "\x00"}}, InvalidInput),
        ({"meta": {"k": "x" * bounds.MAX_META_BYTES}}, InvalidInput),
    ],
)
def test_bad_input_gets_one_clear_error(fields: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        admit_one(**fields)
    assert type(caught.value) is error
    assert len(str(caught.value)) > 10


def test_a_job_that_expires_one_microsecond_from_now_is_taken() -> None:
    assert admit_one(expires_at=NOON + MICROSECOND).expires_at == NOON + MICROSECOND


def test_one_bad_job_refuses_the_whole_batch() -> None:
    with pytest.raises(InvalidInput):
        admit([NewJob("good"), NewJob("")], NOON, Limits())


def test_an_iterable_that_can_be_read_only_once_is_enough() -> None:
    batch = admit((NewJob("t") for _ in range(3)), NOON, Limits())
    assert len(batch.fresh) == len(batch.answers) == 3


def test_ids_rise_in_the_order_of_the_batch() -> None:
    made = [answer.id for answer in admit([NewJob("t")] * 50, NOON, Limits()).answers]
    assert made == sorted(set(made))


def test_the_same_key_twice_in_one_batch_is_one_job() -> None:
    batch = admit([NewJob("t", b"1", key="k"), NewJob("t", b"1", key="k")], NOON, Limits())
    assert len(batch.fresh) == 1
    assert [answer.existed for answer in batch.answers] == [False, True]
    assert batch.answers[0].id == batch.answers[1].id


def test_the_same_key_with_another_payload_in_one_batch_is_a_conflict() -> None:
    with pytest.raises(IdempotencyConflict) as caught:
        admit([NewJob("t", b"1", key="k", id="first"), NewJob("t", b"2", key="k")], NOON, Limits())
    assert caught.value.existing_id == "first"


def test_a_duplicate_is_an_error_when_the_caller_says_so() -> None:
    with pytest.raises(DuplicateJob):
        admit([NewJob("t", key="k"), NewJob("t", key="k", on_duplicate="raise")], NOON, Limits())


@pytest.mark.parametrize("other", ["K", "k ", " k", "ｋ", "k\u0301"])
def test_keys_that_differ_in_any_byte_are_different_keys(other: str) -> None:
    assert len(admit([NewJob("t", key="k"), NewJob("t", key=other)], NOON, Limits()).fresh) == 2


def test_a_key_is_never_shared_between_tenants_whatever_makes_up_the_scope() -> None:
    for unique in ((), ("type",), ("queue",), ("tenant", "queue", "type")):
        jobs = [NewJob("t", tenant_id=tenant, key="k", unique=unique) for tenant in ("a", "b")]
        assert len(admit(jobs, NOON, Limits()).fresh) == 2


def test_the_scope_is_tenant_and_type_unless_chosen() -> None:
    assert dedupe_scope("a", "q1", "t", NewJob("t").unique) == dedupe_scope("a", "q2", "t", NewJob("t").unique)
    assert dedupe_scope("a", "q", "t1", NewJob("t").unique) != dedupe_scope("a", "q", "t2", NewJob("t").unique)


def test_the_scope_cannot_be_forged_by_names_that_hold_its_punctuation() -> None:
    everything = ("tenant", "queue", "type")
    assert dedupe_scope('a","b', "c", "d", everything) != dedupe_scope("a", 'b","c', "d", everything)
    assert dedupe_scope("a", "null", "t", ("queue",)) != dedupe_scope("a", "q", "t", ("type",))


def test_the_scope_has_a_bounded_length_and_still_tells_long_names_apart() -> None:
    long = "x" * 254
    one, other = (dedupe_scope("tenant", long + end, long, ("queue", "type")) for end in "ab")
    assert one != other
    assert max(len(one), len(other)) <= LONGEST_SCOPE


@pytest.mark.parametrize(
    "fields", [{"key": "q", "idempotency_key": "r"}, {"max_retries": 3, "max_attempts": 4}], ids=["key", "attempts"]
)
def test_one_thing_under_two_names_must_not_have_two_values(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="give one of them"):
        NewJob("t", **fields)
    assert NewJob("t", key="q", idempotency_key="q") == NewJob("t", key="q")


def test_a_duplicate_that_is_an_error_says_what_to_do() -> None:
    job = NewJob("t", key="k", on_duplicate="raise")
    with pytest.raises(DuplicateJob, match=r'another key .* or leave out on_duplicate="raise"'):
        admit([job, job], NOON, Limits())


def test_no_attempts_means_the_default() -> None:
    assert admit_one(max_attempts=0).max_attempts == admit_one().max_attempts == Limits().default_max_attempts


def test_a_key_with_a_time_to_live_ends_then() -> None:
    assert admit_one(key="k", key_ttl=60).key_expires_at == NOON + 60 * SECOND
    assert admit_one(key="k").key_expires_at is None


def test_meta_that_was_taken_is_json_that_reads_back_the_same() -> None:
    meta = {"trace": "00-abc", "quote": 'say "hi"\n', "unicode": "⚓"}
    text = admit_one(meta=meta).meta
    assert text is not None
    assert json.loads(text) == meta
