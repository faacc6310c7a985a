"""What stores give and bronze keeps: names and types, and the version of the lake's layout. The tables behind bronze
are in `lake_schemas`.

A schema is a Spark StructType; `arrow` gives the same for Arrow. Every column may be null as far as Spark is concerned,
because a batch from a store must match its schema to the letter. Times are TIMESTAMP: UTC, microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    import pyarrow as pa

LAKE_VERSION: Final = 2
"""Of the layout of the lake. An older lake is migrated, a newer one refused."""

_TYPES: Final[dict[str, DataType]] = {
    "text": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "real": DoubleType(),
    "flag": BooleanType(),
    "time": TimestampType(),
    "date": DateType(),
    "bytes": BinaryType(),
}


def table(**columns: str) -> StructType:
    """A schema from names and short words for types: text, int, long, real, flag, time, date, bytes."""
    return StructType([StructField(name, _TYPES[kind]) for name, kind in columns.items()])


def pick(schema: StructType, names: Iterable[str]) -> StructType:
    """The columns of `names`, in that order."""
    return StructType([schema[name] for name in names])


def arrow(schema: StructType) -> pa.Schema:
    """The same columns for Arrow, as Spark wants batches to be: times in UTC with microseconds."""
    import pyarrow as pa

    types = {
        StringType: pa.string(),
        IntegerType: pa.int32(),
        LongType: pa.int64(),
        DoubleType: pa.float64(),
        BooleanType: pa.bool_(),
        TimestampType: pa.timestamp("us", tz="UTC"),
        DateType: pa.date32(),
        BinaryType: pa.binary(),
    }
    return pa.schema([pa.field(field.name, types[type(field.dataType)]) for field in schema.fields])


# --- What stores give ------------------------------------------------------------------------------------------

FEED: Final = table(
    store_id="text",
    position="text",  # the cursor that continues behind this row
    seq_no="long",  # rises with the facts of a job; unique in its store
    job_id="text",
    type="text",
    queue="text",
    tenant_id="text",
    priority="int",
    outcome="text",
    status="text",  # after the fact
    at="time",
    final="flag",  # this row is the finished job
    attempt_no="int",  # null when the fact is no attempt
    delivery="int",
    error="text",  # null when there is none, as all texts here
    code="text",
    lease_token="text",  # noqa: S106 - the SHA-256 of the token in hexadecimal digits: it tells leases apart and opens nothing
    worker="text",
    due_at="time",
    claimed_at="time",
    started_at="time",
    # From here on only when the status is terminal.
    payload="bytes",
    result="bytes",
    meta="text",  # JSON: an object of texts
    run_at="time",
    expires_at="time",
    timeout_s="real",
    max_attempts="int",
    attempts="int",
    forgiven="int",
    last_error="text",
    failed_at="time",
    cancel_requested_at="time",
    idempotency_key="text",
    dedupe_scope="text",
    progress="text",  # JSON: [done, total, note]
    created_at="time",
)
"""The history feed: one row for each attempt that ended and each job that reached a terminal state."""

JOBS: Final = table(
    id="text",
    type="text",
    queue="text",
    tenant_id="text",
    status="text",
    priority="int",
    payload="bytes",
    result="bytes",
    meta="text",
    run_at="time",
    due_at="time",
    expires_at="time",
    timeout_s="real",
    max_attempts="int",
    attempts="int",
    deliveries="int",
    forgiven="int",
    last_error="text",
    failed_at="time",
    lease_owner="text",
    lease_expires_at="time",
    cancel_requested_at="time",
    dlq_reason="text",
    dlq_code="text",
    dlq_failed_at="time",
    idempotency_key="text",
    dedupe_scope="text",
    progress="text",
    created_at="time",
    updated_at="time",
    claimed_at="time",
    started_at="time",
    completed_at="time",
)
"""Every job, live or finished."""

ATTEMPTS: Final = table(
    seq_no="long",
    job_id="text",
    type="text",
    queue="text",
    tenant_id="text",
    priority="int",
    attempt_no="int",
    delivery="int",
    outcome="text",
    success="flag",
    error="text",
    code="text",
    worker="text",
    due_at="time",
    claimed_at="time",
    started_at="time",
    finished_at="time",
)
"""Every attempt that ended."""

DLQ: Final = table(
    id="text",
    type="text",
    queue="text",
    tenant_id="text",
    priority="int",
    payload="bytes",
    meta="text",
    attempts="int",
    max_attempts="int",
    deliveries="int",
    code="text",
    reason="text",
    last_error="text",
    failed_at="time",
    created_at="time",
    idempotency_key="text",
    dedupe_scope="text",
)
"""The dead letters."""

WORKERS: Final = table(
    id="text",
    hostname="text",
    pid="long",
    queues="text",  # JSON: an array
    slots="int",
    version="text",
    meta="text",
    started_at="time",
    last_heartbeat="time",
)
"""Who was alive lately."""

SOURCE_TABLES: Final[dict[str, StructType]] = {
    "jobs": JOBS,
    "attempts": ATTEMPTS,
    "dlq": DLQ,
    "workers": WORKERS,
    "history": FEED,
}

# --- The lake: bronze ------------------------------------------------------------------------------------------

HISTORY: Final = StructType([*FEED.fields, *table(ingested_at="time", day="date").fields])
"""Bronze: the feed as it came, when it came, and the day of `at`, by which it is partitioned."""
