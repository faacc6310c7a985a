"""Rows of PostgreSQL as values of the model. Times come back in UTC already."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from struct import Struct
from typing import Any, ClassVar, Final

from psycopg import Connection
from psycopg.adapt import Dumper
from psycopg.pq import Format

from taskharbor.core.clock import EPOCH, MICROSECOND
from taskharbor.core.fleet import Worker
from taskharbor.core.model import Attempt, HistoryRow, Job, Lease, LeasedJob, Outcome, Status
from taskharbor.drivers.postgres.copying import EPOCH_2000
from taskharbor.drivers.rows import meta_from_text, progress_from_text, timeout_from_nanos


def job_from_row(row: Sequence[Any]) -> Job:
    """A row of the view of all jobs, whose columns stand in the order of the fields."""
    values = list(row)
    values[5] = meta_from_text(row[5])
    values[10] = timeout_from_nanos(row[10])
    values[17] = Status(row[17])
    values[28] = progress_from_text(row[28])
    return Job(*values)


def leased_from_rows(rows: Sequence[Sequence[Any]], owner: str, now: datetime, until: datetime) -> list[LeasedJob]:
    """Rows that `claim` returned. What every job of the claim has in common is not sent.

    This runs for every job there is, so it makes the tuples by hand.
    """
    make = tuple.__new__
    leased = []
    for (
        id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos, max_attempts,
        attempts, deliveries, forgiven, last_error, failed_at, token, idempotency_key, dedupe_scope, created_at, *_,
    ) in rows:  # fmt: skip
        job = (
            id, type, queue, tenant_id, payload, json.loads(meta) if meta else {}, priority, run_at, due_at,
            expires_at, timeout_from_nanos(timeout_nanos) if timeout_nanos else None, max_attempts, attempts,
            deliveries, forgiven, last_error, failed_at, Status.INFLIGHT, token, owner, until, None, None, None, None,
            idempotency_key, dedupe_scope, None, None, created_at, now, now, None, None,
        )  # fmt: skip
        leased.append(make(LeasedJob, (make(Job, job), make(Lease, (token, until, owner, False)))))
    return leased


def attempt_from_row(row: Sequence[Any]) -> Attempt:
    job_id, number, delivery, outcome, error, code, owner, token, due_at, claimed_at, started_at, at = row
    return Attempt(
        job_id, number, delivery, Outcome(outcome), error or "", code, owner or "", token or "", due_at,
        claimed_at, started_at, at,
    )  # fmt: skip


def fact_from_row(row: Sequence[Any], position: str) -> HistoryRow:
    """A row of history behind its two ordering columns."""
    (
        job_id, type, queue, tenant_id, priority, outcome, status, at, attempt_no, delivery, error, code, token, owner,
        due_at, claimed_at, started_at, payload, meta, run_at, expires_at, timeout_nanos, max_attempts, attempts,
        forgiven, last_error, failed_at, cancel_requested_at, idempotency_key, dedupe_scope, result, progress,
        created_at,
    ) = row  # fmt: skip
    attempt = None
    if attempt_no is not None:
        attempt = Attempt(
            job_id, attempt_no, delivery, Outcome(outcome), error or "", code, owner or "", token or "", due_at,
            claimed_at, started_at, at,
        )  # fmt: skip
    job = None
    if status != Status.READY:
        dead = status == Status.DLQ
        job = Job(
            job_id, type, queue, tenant_id, payload, meta_from_text(meta), priority, run_at, due_at, expires_at,
            timeout_from_nanos(timeout_nanos or 0), max_attempts, attempts or 0, delivery, forgiven or 0,
            last_error or "", failed_at, Status(status), None, None, None, cancel_requested_at,
            (error or "") if dead else None, code if dead else None,
            at if dead else None, idempotency_key, dedupe_scope, result, progress_from_text(progress), created_at, at,
            claimed_at, started_at, at,
        )  # fmt: skip
    return HistoryRow(
        position, job_id, type, queue, tenant_id, priority, Outcome(outcome), Status(status), at, attempt, job
    )


def worker_from_row(row: Sequence[Any]) -> Worker:
    id, hostname, pid, queues, slots, version, started_at, last_heartbeat, meta = row
    return Worker(
        id, hostname, pid, tuple(json.loads(queues)), slots, version, started_at, last_heartbeat, json.loads(meta)
    )


def text_array(values: Sequence[str]) -> str | Sequence[str]:
    """The values as PostgreSQL writes an array: psycopg escapes a list item by item."""
    if not values:
        return "{}"
    joined = "\0".join(values)
    if joined.count("\0") != len(values) - 1:
        return values  # no text there has a NUL: psycopg will say so
    joined = joined.replace("\\", "\\\\").replace('"', '\\"')
    return '{"' + joined.replace("\0", '","') + '"}'


@lru_cache(maxsize=256)
def names_array(names: tuple[str, ...]) -> str | Sequence[str]:
    """`text_array` of what is asked for again and again."""
    return text_array(names)


class BinaryArray(bytes):
    """An array as PostgreSQL sends and takes it, which is quicker to write and to read than its text."""

    oid: ClassVar[int]


class TimeArray(BinaryArray):
    oid = 1185  # timestamptz[]


class BytesArray(BinaryArray):
    oid = 1001  # bytea[]; as text each byte would be two


class PlaceArray(BinaryArray):
    oid = 1010  # tid[]


class _AsItIs(Dumper):
    format = Format.BINARY

    def dump(self, obj: BinaryArray) -> BinaryArray:
        return obj


class _TimeDumper(_AsItIs):
    oid = TimeArray.oid


class _BytesDumper(_AsItIs):
    oid = BytesArray.oid


class _PlaceDumper(_AsItIs):
    oid = PlaceArray.oid


def take_arrays(connection: Connection[Any]) -> None:
    """Lets psycopg send such arrays as they are."""
    connection.adapters.register_dumper(TimeArray, _TimeDumper)
    connection.adapters.register_dumper(BytesArray, _BytesDumper)
    connection.adapters.register_dumper(PlaceArray, _PlaceDumper)


def time_array(values: Sequence[datetime | None]) -> TimeArray:
    """Nothing but nulls is an empty array, which `unnest` fills up."""
    if not any(values):
        return TimeArray(_EMPTY(0, 0, _TIMESTAMPTZ))
    parts = [
        _NULL if value is None else _ITEM(8, (value - EPOCH) // MICROSECOND - EPOCH_2000)  # as to_micros, for every job
        for value in values
    ]
    return TimeArray(_HEADER(1, 1, _TIMESTAMPTZ, len(values), 1) + b"".join(parts))


def bytes_array(values: Sequence[bytes | None]) -> BytesArray:
    """The same for bytes."""
    if all(value is None for value in values):
        return BytesArray(_EMPTY(0, 0, _BYTEA))
    parts = [_HEADER(1, 1, _BYTEA, len(values), 1)]
    for value in values:
        parts += (_NULL,) if value is None else (_LENGTH(len(value)), value)
    return BytesArray(b"".join(parts))


def place_array(values: Sequence[bytes]) -> PlaceArray:
    """The same for places of rows, which are bytes as PostgreSQL sent them."""
    if not values:
        return PlaceArray(_EMPTY(0, 0, _TID))
    return PlaceArray(_HEADER(1, 0, _TID, len(values), 1) + _SIX + _SIX.join(values))


_TID: Final = 27
_SIX: Final = b"\0\0\0\6"
_TIMESTAMPTZ: Final = 1184
_BYTEA: Final = 17
_HEADER: Final = Struct(">5i").pack
"""Dimensions, whether there are nulls, the type, and of the one dimension its length and its first index."""
_EMPTY: Final = Struct(">3i").pack
_ITEM: Final = Struct(">iq").pack
_LENGTH: Final = Struct(">i").pack
_NULL: Final = b"\xff\xff\xff\xff"
