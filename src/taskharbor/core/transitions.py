"""The life of a job: which moves are legal, and what each one changes.

`LEGAL` is the whole state machine as one table. The functions below it are the moves as pure functions from a
job to the job after it, and to the fact that history keeps of it. The memory and JSON drivers run them as they
are; the SQL drivers say the same in SQL and fall back on them for the rare cases. The contract suite holds
them all to the same results.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from taskharbor.core.errors import JobNotInflight, LeaseExpired, LeaseMismatch
from taskharbor.core.limits import Limits
from taskharbor.core.model import Attempt, Extension, HistoryRow, Job, Outcome, Reason, Settle, Settlement, Status

TERMINAL: Final = frozenset({Status.DONE, Status.DLQ, Status.EXPIRED, Status.CANCELLED})

LEGAL: Final[Mapping[tuple[Status, str], frozenset[Status]]] = MappingProxyType(
    {
        (Status.READY, "reserve"): frozenset({Status.INFLIGHT}),
        (Status.READY, "expire"): frozenset({Status.EXPIRED}),
        (Status.READY, "cancel"): frozenset({Status.CANCELLED}),
        (Status.INFLIGHT, "extend"): frozenset({Status.INFLIGHT}),
        (Status.INFLIGHT, "ack"): frozenset({Status.DONE}),
        # Once a cancel was asked for, every way to stop but success ends the job.
        (Status.INFLIGHT, "retry"): frozenset({Status.READY, Status.CANCELLED}),
        (Status.INFLIGHT, "release"): frozenset({Status.READY, Status.CANCELLED}),
        (Status.INFLIGHT, "snooze"): frozenset({Status.READY, Status.CANCELLED}),
        (Status.INFLIGHT, "fail"): frozenset({Status.DLQ, Status.CANCELLED}),
        (Status.INFLIGHT, "cancel"): frozenset({Status.CANCELLED}),
        (Status.INFLIGHT, "lapse"): frozenset({Status.READY, Status.DLQ, Status.CANCELLED}),
        (Status.INFLIGHT, "request_cancel"): frozenset({Status.INFLIGHT}),
        (Status.DLQ, "redrive"): frozenset({Status.READY}),
    }
)


class Moved(NamedTuple):
    """A job after a move, and the fact for history (None when the move leaves none)."""

    job: Job
    fact: HistoryRow | None


def check_lease(job: Job, token: str, now: datetime) -> None:
    """Raise unless `token` is the valid lease of `job` at `now`. Expired goes before mismatch."""
    if job.status is not Status.INFLIGHT or job.lease_expires_at is None:
        raise JobNotInflight(f"job {job.id} is {job.status}, not inflight: its lease was settled or taken back")
    if now >= job.lease_expires_at:
        raise LeaseExpired(f"the lease of job {job.id} ended at {job.lease_expires_at.isoformat()}: drop the work")
    if token != job.lease_token:
        raise LeaseMismatch(f"job {job.id} is leased with another token: drop the work, somebody else has it now")


def reserve(job: Job, *, token: str, owner: str, now: datetime, lease_for: timedelta) -> Job:
    return job._replace(
        status=Status.INFLIGHT,
        lease_token=token,
        lease_owner=owner,
        lease_expires_at=now + lease_for,
        deliveries=job.deliveries + 1,
        claimed_at=now,
        started_at=None,
        progress=None,
        updated_at=now,
    )


def extend(job: Job, extension: Extension, now: datetime) -> Job:
    """Keep the lease of `job` alive. The caller has checked it with `check_lease` and the duration before that."""
    assert isinstance(extension.lease_for, timedelta)
    return job._replace(
        lease_expires_at=now + extension.lease_for,
        started_at=extension.started_at or job.started_at,
        progress=extension.progress or job.progress,
        updated_at=now,
    )


_REPEATABLE: Final = {
    Settle.ACK: (Outcome.SUCCEEDED,),
    Settle.FAIL: (Outcome.DEAD, Outcome.CANCELLED),
    Settle.CANCEL: (Outcome.CANCELLED,),
}


def repeats(settlement: Settlement, status: Status, last: Attempt | None) -> bool:
    """Whether `settlement` is what already ended the job: then it succeeds again and changes nothing.

    `status` is where the job stands, `last` the latest row that history has of it.
    """
    return (
        status in TERMINAL
        and last is not None
        and last.lease_token == settlement.token
        and last.outcome in _REPEATABLE.get(settlement.kind, ())
    )


def settle(job: Job, settlement: Settlement, now: datetime) -> Moved:
    """End the lease of `job`. The caller has checked it with `check_lease`."""
    kind = settlement.kind
    if job.cancel_requested_at is not None and kind is not Settle.ACK:
        kind = Settle.CANCEL
    known_start = settlement.started_at or job.started_at
    started_at = known_start or job.claimed_at
    if kind is Settle.ACK:
        after = _ended(job, Status.DONE, now, started_at=started_at, result=settlement.result)
        return Moved(after, _fact(job, after, Outcome.SUCCEEDED, now, started_at))
    if kind is Settle.CANCEL:
        error = settlement.reason or (settlement.update.last_error if settlement.update else "")
        after = _ended(job, Status.CANCELLED, now, started_at=started_at)
        return Moved(after, _fact(job, after, Outcome.CANCELLED, now, started_at, error=error))
    if kind is Settle.FAIL:
        after = _ended(job, Status.DLQ, now, started_at=started_at)._replace(
            dlq_reason=settlement.reason,
            dlq_code=settlement.code,
            dlq_failed_at=now,
            last_error=settlement.reason,
            failed_at=now,
            attempts=job.attempts + 1,
        )
        return Moved(after, _fact(job, after, Outcome.DEAD, now, started_at, settlement.reason, settlement.code))
    if kind is Settle.RETRY:
        update = settlement.update
        assert update is not None
        after = _back(job, now)._replace(
            run_at=update.run_at,
            due_at=update.run_at or now,
            attempts=update.attempts,
            last_error=update.last_error,
            failed_at=update.failed_at,
        )
        return Moved(after, _fact(job, after, Outcome.RETRIED, now, started_at, update.last_error))
    after = _back(job, now)._replace(forgiven=job.forgiven + 1)
    if kind is Settle.SNOOZE:
        assert settlement.run_at is not None
        after = after._replace(run_at=settlement.run_at, due_at=settlement.run_at)
        return Moved(after, _fact(job, after, Outcome.SNOOZED, now, started_at))
    # A released job that never started was not attempted: history has nothing to say of it.
    fact = _fact(job, after, Outcome.RELEASED, now, started_at) if known_start is not None else None
    return Moved(after, fact)


def lapse(job: Job, now: datetime, limits: Limits, why: str) -> Moved:
    """The lease of `job` ended without a settle, or its worker is dead: back to ready at once, unless the job was
    to be cancelled or has brought its workers down too often."""
    started_at = job.started_at or job.claimed_at
    if job.cancel_requested_at is not None:
        after = _ended(job, Status.CANCELLED, now, started_at=started_at)
        return Moved(after, _fact(job, after, Outcome.LAPSED, now, started_at, why))
    if job.deliveries - job.forgiven >= job.max_attempts + limits.crash_allowance:
        after = _ended(job, Status.DLQ, now, started_at=started_at)._replace(
            dlq_reason=CRASH_LOOP_TEXT,
            dlq_code=Reason.CRASH_LOOP.value,
            dlq_failed_at=now,
            last_error=CRASH_LOOP_TEXT,
            failed_at=now,
        )
        fact = _fact(job, after, Outcome.LAPSED, now, started_at, CRASH_LOOP_TEXT, Reason.CRASH_LOOP.value)
        return Moved(after, fact)
    # The job became due when its lease ended, or now if the lease was taken back before that.
    due_at = min(job.lease_expires_at or now, now)
    after = _back(job, now)._replace(run_at=None, due_at=due_at)
    return Moved(after, _fact(job, after, Outcome.LAPSED, now, started_at, why))


LAPSED_TEXT: Final = "the lease ended before the worker settled it"
ORPHANED_TEXT: Final = "the worker stopped sending heartbeats"
CRASH_LOOP_TEXT: Final = "delivered too often without being settled: it seems to bring its workers down"


def expire(job: Job, now: datetime) -> Moved:
    after = _ended(job, Status.EXPIRED, now, started_at=None)
    return Moved(after, _fact(job, after, Outcome.EXPIRED, now, None, attempted=False))


def cancel(job: Job, now: datetime) -> Moved:
    """Cancel a ready job at once; ask the worker of an inflight one to stop."""
    if job.status is Status.INFLIGHT:
        return Moved(job._replace(cancel_requested_at=job.cancel_requested_at or now, updated_at=now), None)
    after = _ended(job._replace(cancel_requested_at=now), Status.CANCELLED, now, started_at=None)
    return Moved(after, _fact(job, after, Outcome.CANCELLED, now, None, attempted=False))


def redrive(job: Job, now: datetime, *, run_at: datetime | None, reset_attempts: bool) -> Job:
    """A DLQ job goes back to ready. Its deliveries go on rising (they fence), but none is held against it."""
    return job._replace(
        status=Status.READY,
        run_at=run_at,
        due_at=run_at or now,
        attempts=0 if reset_attempts else job.attempts,
        forgiven=job.deliveries,
        dlq_reason=None,
        dlq_code=None,
        dlq_failed_at=None,
        completed_at=None,
        claimed_at=None,
        started_at=None,
        updated_at=now,
    )


def clone(job: Job, now: datetime, *, id: str, run_at: datetime | None) -> Job:
    """A new job with the work of `job` and nothing of its past. It takes no idempotency key: the old job has it."""
    return redrive(job, now, run_at=run_at, reset_attempts=True)._replace(
        id=id,
        deliveries=0,
        forgiven=0,
        last_error="",
        failed_at=None,
        idempotency_key=None,
        dedupe_scope=None,
        progress=None,
        created_at=now,
    )


def _back(job: Job, now: datetime) -> Job:
    return job._replace(
        status=Status.READY,
        lease_token=None,
        lease_owner=None,
        lease_expires_at=None,
        claimed_at=None,
        started_at=None,
        updated_at=now,
    )


def _ended(job: Job, status: Status, now: datetime, *, started_at: datetime | None, result: bytes | None = None) -> Job:
    return job._replace(
        status=status,
        lease_token=None,
        lease_owner=None,
        lease_expires_at=None,
        started_at=started_at,
        result=result,
        completed_at=now,
        updated_at=now,
    )


def _fact(
    before: Job,
    after: Job,
    outcome: Outcome,
    now: datetime,
    started_at: datetime | None,
    error: str = "",
    code: str | None = None,
    *,
    attempted: bool = True,
) -> HistoryRow:
    attempt = None
    if attempted:
        claimed_at = before.claimed_at or now
        attempt = Attempt(
            job_id=before.id,
            number=before.attempts + 1,
            delivery=before.deliveries,
            outcome=outcome,
            error=error,
            code=code,
            worker=before.lease_owner or "",
            lease_token=before.lease_token or "",
            due_at=before.due_at,
            claimed_at=claimed_at,
            started_at=started_at or claimed_at,
            finished_at=now,
        )
    return HistoryRow(
        position="",
        job_id=before.id,
        type=before.type,
        queue=before.queue,
        tenant_id=before.tenant_id,
        priority=before.priority,
        outcome=outcome,
        status=after.status,
        at=now,
        attempt=attempt,
        job=after if after.status in TERMINAL else None,
    )
