"""From the job a caller describes to the row a store keeps. Everything that can be refused is refused here,
before any store is touched, so that bad input fails alike everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache, partial
from hashlib import sha256
from typing import Final, NamedTuple

from taskharbor.core import limits as bounds
from taskharbor.core.clock import FIRST_START, checked
from taskharbor.core.envelope import payload_hash
from taskharbor.core.errors import AlreadyExpired, DuplicateJob, IdempotencyConflict, InvalidInput, InvalidPayload
from taskharbor.core.ids import new_ids
from taskharbor.core.limits import Limits
from taskharbor.core.model import Enqueued, NewJob
from taskharbor.core.unique import MADE_OF_ARGUMENTS, Duplicates, checked_duplicates

LONGEST_SCOPE: Final = 128


class Admitted(NamedTuple):
    """A checked job, ready to be written. The first fifteen fields are columns of the jobs table."""

    id: str
    type: str
    queue: str
    tenant_id: str
    payload: bytes
    meta: str | None
    """JSON text, None when empty."""
    priority: int
    run_at: datetime | None
    due_at: datetime
    expires_at: datetime | None
    timeout_nanos: int
    max_attempts: int
    created_at: datetime
    idempotency_key: str | None
    dedupe_scope: str | None
    payload_hash: str | None
    """Only with a key: what a later job with that key is compared to."""
    key_expires_at: datetime | None
    duplicates: Duplicates
    payload_for: Callable[[str], bytes] | None = None

    def in_place_of(self, holder: str) -> Admitted:
        """What the job that holds the key becomes when this one replaces it: the same under its id, with the payload
        made for that id. To be called once nobody else can replace it."""
        payload = self.payload if self.payload_for is None else self.payload_for(holder)
        return self._replace(id=holder, payload=payload)


class Batch(NamedTuple):
    """An admitted batch: the jobs to write, and for each job of the call its id and whether it stands in `fresh`."""

    fresh: list[Admitted]
    answers: list[Enqueued]
    chosen_ids: list[str]
    """Ids of the fresh jobs that the caller chose itself: those can collide with a finished job."""


def admit(jobs: Iterable[NewJob], now: datetime, limits: Limits) -> Batch:
    """Check a whole batch. Raises for the first job that cannot be taken; then nothing was written."""
    now = checked(now, "now")
    if isinstance(jobs, NewJob):  # which is a tuple too
        raise _no_jobs(jobs)
    try:
        iterator = iter(jobs)
    except TypeError:
        raise _no_jobs(jobs) from None
    given = list(iterator)
    made_ids = new_ids(len(given))
    fresh: list[Admitted] = []
    answers: list[Enqueued] = []
    by_key: dict[tuple[str, str], Admitted] = {}
    for job, made_id in zip(given, made_ids, strict=True):
        if not isinstance(job, NewJob):
            raise _no_jobs(job)
        admitted = _admit_one(job, job.id, made_id, now, limits)
        if admitted.idempotency_key is not None:
            assert admitted.dedupe_scope is not None
            first = by_key.setdefault((admitted.dedupe_scope, admitted.idempotency_key), admitted)
            if first is not admitted:
                answers.append(_again(admitted, first, fresh, by_key))
                continue
        fresh.append(admitted)
        answers.append(Enqueued(admitted.id))
    chosen = [job.id for job in given if job.id is not None]
    return Batch(fresh, answers, chosen)


def _again(job: Admitted, first: Admitted, fresh: list[Admitted], by_key: dict[tuple[str, str], Admitted]) -> Enqueued:
    """The answer to a job whose key an earlier one of the same batch has."""
    check_duplicate(job, first.id, first.payload_hash)
    if job.duplicates.replaces:
        assert job.dedupe_scope is not None and job.idempotency_key is not None
        instead = job.in_place_of(first.id)
        fresh[fresh.index(first)] = by_key[job.dedupe_scope, job.idempotency_key] = instead
    return Enqueued(first.id, existed=True)


def check_duplicate(job: Admitted, existing_id: str, existing_hash: str | None) -> None:
    """The key of `job` is taken by `existing_id`: fine, unless the payload differs or duplicates are errors."""
    if job.duplicates.while_in is None and job.payload_hash != existing_hash:
        raise IdempotencyConflict(
            f"idempotency key {job.idempotency_key!r} already belongs to job {existing_id} with a different "
            "payload: use another key, or send the same payload",
            existing_id=existing_id,
        )
    if job.duplicates.raises:
        if job.idempotency_key is not None and job.idempotency_key.startswith(MADE_OF_ARGUMENTS):
            raise DuplicateJob(
                f"job {existing_id} of type {job.type!r} counts as the same as this one, by the arguments that make it "
                'unique: leave out on_duplicate="raise" to be given its id',
                existing_id=existing_id,
            )
        raise DuplicateJob(
            f"idempotency key {job.idempotency_key!r} already belongs to job {existing_id}: use another key for "
            'another job, or leave out on_duplicate="raise" to be given the id of that one',
            existing_id=existing_id,
        )


def id_taken(job_id: str) -> InvalidInput:
    return InvalidInput(
        f"a job with the id {job_id!r} exists: leave the id out. To enqueue a job once only, give it a key='…'"
    )


class Shape(NamedTuple):
    """The checked fields that repeat from job to job."""

    type: str
    queue: str
    tenant_id: str
    priority: int
    timeout_nanos: int
    max_attempts: int


def plain_shape(job: NewJob, limits: Limits) -> Shape | None:
    """The shape of a job that has nothing else but its payload, checked like any other; None if it has more to it
    and must go through `admit`."""
    payload = job.payload
    if (
        job.idempotency_key is not None
        or job.id is not None
        or job.run_at is not None
        or job.expires_at is not None
        or job.meta
        or job.on_duplicate != "return"
        or job.while_in is not None
        or not isinstance(payload, bytes)
        or len(payload) > limits.max_payload_bytes
    ):
        return None
    return _shape_of(job, limits)


def _shape_of(job: NewJob, limits: Limits) -> Shape:
    try:
        return _shape(job.type, job.queue, job.tenant_id, job.priority, job.timeout, job.max_attempts, limits)
    except TypeError:  # something unhashable: the same checks without the memory will say what
        return _shape.__wrapped__(
            job.type, job.queue, job.tenant_id, job.priority, job.timeout, job.max_attempts, limits
        )


def _admit_one(job: NewJob, job_id: str | None, made_id: str, now: datetime, limits: Limits) -> Admitted:
    payload = _check_payload(job.payload, limits)
    if job_id is not None:
        made_id = bounds.check_name(job_id, "id", bounds.MAX_ID)
    type_, queue, tenant_id, priority, timeout_nanos, max_attempts = _shape_of(job, limits)
    run_at = None if job.run_at is None else checked(job.run_at, "run_at")
    expires_at = None if job.expires_at is None else checked(job.expires_at, "expires_at")
    if expires_at is not None and expires_at <= now:
        raise AlreadyExpired(f"expires_at {expires_at.isoformat()} is not after now {now.isoformat()}")
    key = job.idempotency_key
    duplicates = checked_duplicates(job.on_duplicate, job.while_in, key)
    key_expires_at = None
    if key is not None:
        bounds.check_name(key, "idempotency_key", bounds.MAX_KEY)
        if job.key_ttl is not None:
            key_expires_at = now + bounds.check_duration(job.key_ttl, "key_ttl")
    return Admitted(
        made_id,
        type_,
        queue,
        tenant_id,
        payload,
        _meta_text(job.meta) if job.meta else None,
        priority,
        run_at,
        now if run_at is None else max(run_at, min(FIRST_START, now)),
        expires_at,
        timeout_nanos,
        max_attempts,
        now,
        key,
        None if key is None else dedupe_scope(tenant_id, queue, type_, _unique(job.unique)),
        None if key is None else payload_hash(payload),
        key_expires_at,
        duplicates,
        None if job.payload_for is None else partial(_payload_for, job.payload_for, limits),
    )


def _check_payload(payload: object, limits: Limits) -> bytes:
    if not isinstance(payload, bytes):
        raise InvalidPayload.about(
            f"payload must be bytes, got {type(payload).__name__}: encode it with a codec first, for example "
            "JsonCodec().encode(value) of taskharbor.core.codec"
        )
    if len(payload) > limits.max_payload_bytes:
        limits.check_size(payload, "payload")
    return payload


def _payload_for(make: Callable[[str], bytes], limits: Limits, holder: str) -> bytes:
    if not callable(make):
        raise InvalidInput(f"payload_for is a function that makes a payload for an id, got {type(make).__name__}")
    return _check_payload(make(holder), limits)


@lru_cache(maxsize=4096, typed=True)
def _shape(
    type: str, queue: str, tenant_id: str, priority: int, timeout: object, max_attempts: int | None, limits: Limits
) -> Shape:
    """The fields that repeat from job to job, checked; remembered, because enqueueing in bulk lives from it."""
    return Shape(
        bounds.check_name(type, "type", bounds.MAX_NAME),
        bounds.check_name(queue, "queue", bounds.MAX_NAME),
        bounds.check_name(tenant_id, "tenant_id", bounds.MAX_TENANT),
        _check_priority(priority),
        0 if timeout is None else _nanos(timeout),
        _check_max_attempts(max_attempts, limits),
    )


@lru_cache(maxsize=4096)
def dedupe_scope(tenant_id: str, queue: str, type: str, unique: tuple[str, ...]) -> str:
    """The text that, with the key, must be unique. Always holds the tenant; never ambiguous; of bounded length."""
    unknown = set(unique) - {"tenant", "queue", "type"}
    if unknown:
        raise InvalidInput(f"unique takes 'tenant', 'queue' and 'type', got {sorted(unknown)}")
    parts = [tenant_id, queue if "queue" in unique else None, type if "type" in unique else None]
    scope = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    return scope if len(scope) <= LONGEST_SCOPE else "sha256:" + sha256(scope.encode()).hexdigest()


def _no_jobs(given: object) -> InvalidInput:
    return InvalidInput(f"enqueue takes a list of NewJob, got {type(given).__name__}: enqueue([NewJob(type=…)])")


def _unique(fields: object) -> tuple[str, ...]:
    if not isinstance(fields, tuple | list | set | frozenset) or not all(isinstance(name, str) for name in fields):
        raise InvalidInput(f"unique takes names of fields, for example ('tenant', 'type'), got {fields!r}")
    return tuple(fields)


def _meta_text(meta: Mapping[str, str]) -> str:
    if not isinstance(meta, Mapping):
        raise InvalidInput(f"meta must map text to text, got {type(meta).__name__}")
    for key, value in meta.items():
        bounds.check_text(key, "a meta key", bounds.MAX_NAME)
        bounds.check_text(value, f"meta[{key!r}]", bounds.MAX_META_BYTES)
    text = json.dumps(dict(meta), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    if len(text.encode()) > bounds.MAX_META_BYTES:
        raise InvalidInput(f"meta is over {bounds.MAX_META_BYTES:,} bytes: put large values in the payload")
    return text


def _check_priority(priority: int) -> int:
    if type(priority) is not int or priority not in bounds.PRIORITY_RANGE:
        raise InvalidInput(f"priority must be a whole number of 32 bits, got {priority!r}")
    return priority


def _check_max_attempts(max_attempts: int | None, limits: Limits) -> int:
    if max_attempts is None or max_attempts == 0:  # seed 003: zero means unset
        return limits.default_max_attempts
    if type(max_attempts) is not int or not 1 <= max_attempts <= bounds.MAX_ATTEMPTS:
        raise InvalidInput(f"max_attempts must be a whole number from 1 to {bounds.MAX_ATTEMPTS}, got {max_attempts!r}")
    return max_attempts


def _nanos(timeout: object) -> int:
    duration = bounds.check_duration(timeout, "timeout")  # type: ignore[arg-type]
    return (duration.days * 86_400 + duration.seconds) * 1_000_000_000 + duration.microseconds * 1_000
