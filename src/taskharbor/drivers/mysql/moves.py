"""Writing what `core.transitions` decided: history first, then the jobs, in a few statements for any number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from taskharbor.core.errors import StoreCorrupt, TaskHarborError
from taskharbor.core.model import Job, Settlement, Status
from taskharbor.core.transitions import TERMINAL, Moved
from taskharbor.drivers.mysql.rows import job_from_row
from taskharbor.drivers.mysql.store import Session
from taskharbor.drivers.mysql.values import optional_time, sql_time

LIVE = frozenset({Status.READY, Status.INFLIGHT, Status.DLQ})


class LeaseDoubt(TaskHarborError):
    """Not all of a batch went as hoped: undo it, and look at each item. Never leaves the driver."""


def lock_jobs(session: Session, ids: Sequence[str]) -> dict[str, Job]:
    """The live jobs among `ids`, without their payloads, locked until the transaction ends."""
    return {row[0]: job_from_row(row) for row in session.rows_by_id("lock_jobs", ids)}


def apply_moves(session: Session, moves: Sequence[Moved], now: datetime, acks: Sequence[Settlement] = ()) -> None:
    """Store the moves of locked jobs, and successes. A success is checked as it is written; LeaseDoubt if one does not
    hold, and then the transaction must not be committed.

    Positions in the feed are taken as late as can be: from here until the commit nobody else adds history.
    """
    facts = [moved for moved in moves if moved.fact is not None]
    position = take_positions(session, len(facts) + len(acks))
    if acks:
        items = [_ack_item(ack, number) for number, ack in enumerate(acks, position)]
        if session.run_items("record_acks", items, now=sql_time(now)) != len(acks):
            raise LeaseDoubt("some of these leases are not valid")
        position += len(acks)
    if facts:
        items = [_fact_item(moved, number) for number, moved in enumerate(facts, position)]
        session.run_items("record_facts", items, now=sql_time(now))
    staying = [moved.job for moved in moves if moved.job.status in LIVE]
    if staying:
        save_jobs(session, staying)
    gone = [ack.id for ack in acks] + [moved.job.id for moved in moves if moved.job.status not in LIVE]
    if gone:
        session.run_ids("delete_jobs", gone)
    # Only a job that was ready can have been on a bench; it leaves without an attempt.
    if waited := sorted(
        moved.job.id
        for moved in moves
        if moved.job.status not in LIVE and (moved.fact is None or not moved.fact.attempt)
    ):
        session.run_ids("leave_bench", waited)


def take_positions(session: Session, count: int) -> int:
    """The first of `count` positions in the feed, ours if the transaction commits."""
    if count == 0:
        return 0
    if session.run("take_positions", count=count) != 1:
        raise StoreCorrupt("the feed has lost its counter: restore the row of the table 'feed' from a backup")
    return session.last_id - count + 1


def save_jobs(session: Session, jobs: Sequence[Job]) -> None:
    """Write what can change about a job that stays live."""
    session.run_items("save_jobs", [_job_item(job) for job in jobs])


def _ack_item(ack: Settlement, position: int) -> Mapping[str, Any]:
    return {
        "id": ack.id,
        "token": ack.token,
        "seq": position,
        "started_at": optional_time(ack.started_at),
        "result": None if ack.result is None else ack.result.hex(),
    }


def _fact_item(moved: Moved, position: int) -> Mapping[str, Any]:
    job, fact = moved
    assert fact is not None
    attempt = fact.attempt
    item: dict[str, Any] = {
        "id": job.id,
        "seq": position,
        "outcome": fact.outcome.value,
        "status": fact.status.value,
        "final": int(fact.status not in LIVE),
        "terminal": int(fact.status in TERMINAL),
        "claimed_at": optional_time(job.claimed_at),
        "started_at": optional_time(job.started_at),
    }
    if attempt is not None:
        item |= {
            "attempt_no": attempt.number,
            "error": attempt.error,
            "code": attempt.code,
            "lease_token": attempt.lease_token,
            "lease_owner": attempt.worker,
            "claimed_at": sql_time(attempt.claimed_at),
            "started_at": sql_time(attempt.started_at),
        }
    if fact.status in TERMINAL:
        item |= {
            "attempts": job.attempts,
            "forgiven": job.forgiven,
            "last_error": job.last_error,
            "failed_at": optional_time(job.failed_at),
            "cancel_requested_at": optional_time(job.cancel_requested_at),
            "result": None if job.result is None else job.result.hex(),
        }
    return item


def _job_item(job: Job) -> Mapping[str, Any]:
    return {
        "id": job.id,
        "status": job.status.value,
        "run_at": optional_time(job.run_at),
        "due_at": sql_time(job.due_at),
        "attempts": job.attempts,
        "forgiven": job.forgiven,
        "last_error": job.last_error,
        "failed_at": optional_time(job.failed_at),
        "lease_token": job.lease_token,
        "lease_owner": job.lease_owner,
        "lease_expires_at": optional_time(job.lease_expires_at),
        "cancel_requested_at": optional_time(job.cancel_requested_at),
        "dlq_reason": job.dlq_reason,
        "dlq_code": job.dlq_code,
        "dlq_failed_at": optional_time(job.dlq_failed_at),
        "claimed_at": optional_time(job.claimed_at),
        "started_at": optional_time(job.started_at),
        "updated_at": sql_time(job.updated_at),
    }
