"""Ending and extending leases. A batch of successes is checked and moved as a set; everything else, and every batch
with a lost lease in it, is decided by core, item by item under lock, and then written as a set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from taskharbor.core import transitions
from taskharbor.core.contract import Extended, Settled
from taskharbor.core.errors import JobNotFound, TaskHarborError
from taskharbor.core.model import Attempt, Extension, Job, Lease, Settle, Settlement, Status
from taskharbor.drivers.mysql.moves import apply_moves, lock_jobs
from taskharbor.drivers.mysql.rows import attempt_from_row, finished_job
from taskharbor.drivers.mysql.store import Row, Session
from taskharbor.drivers.mysql.values import optional_time, sql_time
from taskharbor.drivers.rows import progress_to_text

Item = TypeVar("Item", Settlement, Extension)


@dataclass(slots=True)
class Decision:
    """What a batch of settlements comes to, with every lock it needs held but nothing written yet."""

    now: datetime
    results: dict[int, Status | TaskHarborError] = field(default_factory=dict)
    acks: list[Settlement] = field(default_factory=list)
    moves: list[transitions.Moved] = field(default_factory=list)

    def write(self, session: Session) -> None:
        if self.acks or self.moves:
            apply_moves(session, self.moves, self.now, self.acks)


def are_plain_acks(settlements: Sequence[Settlement]) -> bool:
    """Whether all are successes of different jobs: then nothing about them needs to be read first."""
    return (
        all(item.kind is Settle.ACK for item in settlements)
        and len({item.id for item in settlements}) == len(settlements) > 0
    )


def ack_all(session: Session, acks: Sequence[Settlement], now: datetime) -> Settled:
    """All succeed, or LeaseDoubt."""
    apply_moves(session, [], now, acks)
    return [Status.DONE] * len(acks)


def settle(session: Session, settlements: Sequence[Settlement], now: datetime) -> Settled:
    results: dict[int, Status | TaskHarborError] = {}
    for numbered in rounds(settlements):
        decision = decide(session, numbered, now)
        decision.write(session)
        results |= decision.results
    return [results[number] for number in range(len(settlements))]


def rounds(items: Sequence[Item]) -> Iterator[list[tuple[int, Item]]]:
    """The items with their numbers, in rounds that name no job twice: the second word about a job must find what the
    first one did. Nearly always there is one round."""
    rest = list(enumerate(items))
    while rest:
        named: set[str] = set()
        now: list[tuple[int, Item]] = []
        later: list[tuple[int, Item]] = []
        for number, item in rest:
            (later if item.id in named else now).append((number, item))
            named.add(item.id)
        yield now
        rest = later


def decide(session: Session, numbered: Sequence[tuple[int, Settlement]], now: datetime) -> Decision:
    """Lock the jobs and decide each settlement. Jobs named here are named once."""
    decision = Decision(now)
    leases = _lock_leases(session, [item.id for _, item in numbered if item.kind is Settle.ACK], now)
    unclear: list[tuple[int, Settlement]] = []
    for number, item in numbered:
        lease = leases.get(item.id)
        if lease is not None and lease[2] and lease[1] == item.token:
            decision.acks.append(item)
            decision.results[number] = Status.DONE
        else:
            unclear.append((number, item))
    if unclear:
        _decide_one_by_one(session, unclear, decision)
    return decision


def _decide_one_by_one(session: Session, unclear: Sequence[tuple[int, Settlement]], decision: Decision) -> None:
    past = Past(session, [item.id for _, item in unclear])
    for number, item in unclear:
        try:
            job, last = past.find(item.id)
            if transitions.repeats(item, job.status, last):
                decision.results[number] = job.status
                continue
            transitions.check_lease(job, item.token, decision.now)
        except TaskHarborError as error:
            decision.results[number] = error
            continue
        moved = transitions.settle(job, item, decision.now)
        decision.moves.append(moved)
        decision.results[number] = moved.job.status


class Past:
    """Jobs by id, live ones locked, and the last that history has of those that are not running."""

    def __init__(self, session: Session, ids: Sequence[str]) -> None:
        self._live = lock_jobs(session, ids)
        ended = [id for id in ids if id not in self._live or self._live[id].status is Status.DLQ]
        self._facts = {row[1]: row for row in session.rows_by_id("last_facts", ended)}

    def find(self, id: str) -> tuple[Job, Attempt | None]:
        """The job and its last attempt (only for jobs that are over); JobNotFound if there is none."""
        fact = self._facts.get(id)
        last = attempt_from_row(fact) if fact is not None else None
        if id in self._live:
            return self._live[id], last
        # A row that is not final belongs to a job that was purged from the DLQ.
        if fact is None or not fact[9]:
            raise JobNotFound(f"no job with the id {id!r}")
        return finished_job(fact), last


def extend(session: Session, extensions: Sequence[Extension], now: datetime) -> Extended:
    results: dict[int, Lease | TaskHarborError] = {}
    for numbered in rounds(extensions):
        _extend_round(session, numbered, now, results)
    return [results[number] for number in range(len(extensions))]


def _extend_round(
    session: Session,
    numbered: Sequence[tuple[int, Extension]],
    now: datetime,
    results: dict[int, Lease | TaskHarborError],
) -> None:
    leases = _lock_leases(session, [item.id for _, item in numbered], now)
    held: list[dict[str, str | None]] = []
    lost: list[tuple[int, Extension]] = []
    for number, item in numbered:
        lease = leases.get(item.id)
        if lease is None or not lease[2] or lease[1] != item.token:
            lost.append((number, item))
            continue
        assert isinstance(item.lease_for, timedelta)
        expires_at = now + item.lease_for
        results[number] = Lease(item.token, expires_at, lease[3] or "", bool(lease[4]))
        held.append(
            {
                "id": item.id,
                "lease_expires_at": sql_time(expires_at),
                "started_at": optional_time(item.started_at),
                "progress": progress_to_text(item.progress),
            }
        )
    if held:
        session.run_items("extend", held, now=sql_time(now))
    if lost:
        past = Past(session, [item.id for _, item in lost])
        for number, extension in lost:
            results[number] = _refusal(past, extension, now)


def _refusal(past: Past, extension: Extension, now: datetime) -> TaskHarborError:
    try:
        job, _ = past.find(extension.id)
        transitions.check_lease(job, extension.token, now)
    except TaskHarborError as error:
        return error
    raise AssertionError(f"the lease of job {job.id} was refused for no reason")


def _lock_leases(session: Session, ids: Sequence[str], now: datetime) -> dict[str, Row]:
    """By id: the token, whether the lease is valid at `now`, the owner, and whether a cancel was asked for."""
    return {row[0]: row for row in session.rows_by_id("lock_leases", ids, now=sql_time(now))}
