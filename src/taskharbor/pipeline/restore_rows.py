"""A fact of the lake as a store keeps it, so that reading it there gives the same fact again.

The lease token is the one thing that the lake does not have: it keeps the token's hash. A restored fact has the hash in
its place, twice as long as any token, and the pipeline shows such a one as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from taskharbor.core.model import Attempt, HistoryRow, Job, Outcome, Status
from taskharbor.drivers.rows import meta_from_text, progress_from_text

Record = Mapping[str, Any]
"""A fact with the columns of `schemas.FEED`; times as datetimes."""

_SAME: Final = (
    "job_id", "type", "queue", "tenant_id", "priority", "outcome", "status", "at", "final", "attempt_no", "delivery",
    "error", "code", "lease_token", "due_at", "claimed_at", "started_at", "payload", "result", "meta", "run_at",
    "expires_at", "max_attempts", "attempts", "forgiven", "last_error", "failed_at", "cancel_requested_at",
    "idempotency_key", "dedupe_scope", "progress", "created_at",
)  # fmt: skip


class Restored(NamedTuple):
    """A finished job: its facts, in their order; the last one is final."""

    job_id: str
    facts: list[Record]


def numbers_of(record: Record) -> tuple[int, int]:
    """The transaction (0 where a store has none in its cursors) and the sequence that a fact had in the feed."""
    *_, before, sequence = str(record["position"]).split(":")
    return (int(before) if before.isdecimal() else 0), int(sequence)


def fact_columns(record: Record) -> dict[str, Any]:
    """The columns of history by name, as `drivers.rows.fact_params` has them, with `xid` and `seq`."""
    xid, sequence = numbers_of(record)
    timeout = _timeout(record)
    terminal = record["status"] != Status.READY
    return {
        **{name: record[name] for name in _SAME},
        "xid": xid,
        "seq": sequence,
        "lease_owner": record["worker"],
        "timeout_nanos": (0 if timeout is None else timeout // timedelta(microseconds=1) * 1_000) if terminal else None,
    }


def fact_of(record: Record) -> HistoryRow:
    """The fact as a value of the model, for stores that keep those."""
    at: datetime = record["at"]
    outcome, status = Outcome(record["outcome"]), Status(record["status"])
    attempt = None
    if record["attempt_no"] is not None:
        attempt = Attempt(
            record["job_id"], record["attempt_no"], record["delivery"], outcome, record["error"] or "", record["code"],
            record["worker"] or "", record["lease_token"] or "", record["due_at"], record["claimed_at"],
            record["started_at"], at,
        )  # fmt: skip
    return HistoryRow(
        record["position"], record["job_id"], record["type"], record["queue"], record["tenant_id"], record["priority"],
        outcome, status, at, attempt, None if status is Status.READY else _job(record, status),
    )  # fmt: skip


def _job(record: Record, status: Status) -> Job:
    dead = status is Status.DLQ
    at = record["at"]
    return Job(
        id=record["job_id"],
        type=record["type"],
        queue=record["queue"],
        tenant_id=record["tenant_id"],
        payload=record["payload"] or b"",
        meta=meta_from_text(record["meta"]),
        priority=record["priority"],
        run_at=record["run_at"],
        due_at=record["due_at"],
        expires_at=record["expires_at"],
        timeout=_timeout(record),
        max_attempts=record["max_attempts"],
        attempts=record["attempts"] or 0,
        deliveries=record["delivery"],
        forgiven=record["forgiven"] or 0,
        last_error=record["last_error"] or "",
        failed_at=record["failed_at"],
        status=status,
        lease_token=None,
        lease_owner=None,
        lease_expires_at=None,
        cancel_requested_at=record["cancel_requested_at"],
        dlq_reason=record["error"] if dead else None,
        dlq_code=record["code"] if dead else None,
        dlq_failed_at=at if dead else None,
        idempotency_key=record["idempotency_key"],
        dedupe_scope=record["dedupe_scope"],
        result=record["result"],
        progress=progress_from_text(record["progress"]),
        created_at=record["created_at"],
        updated_at=at,
        claimed_at=record["claimed_at"],
        started_at=record["started_at"],
        completed_at=at,
    )


def _timeout(record: Record) -> timedelta | None:
    seconds = record["timeout_s"]
    return None if seconds is None else timedelta(microseconds=round(seconds * 1e6))
