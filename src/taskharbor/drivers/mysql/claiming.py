"""Reserve: look at the queues, sweep what has lapsed or expired, claim what is due."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from taskharbor.core import transitions
from taskharbor.core.contract import Leased
from taskharbor.core.ids import new_tokens
from taskharbor.core.limits import SWEEP_BATCH, Limits
from taskharbor.core.model import Job, Lease, LeasedJob
from taskharbor.drivers.mysql.moves import apply_moves, lock_jobs
from taskharbor.drivers.mysql.rows import claimed_job, common_part
from taskharbor.drivers.mysql.store import Row, Session
from taskharbor.drivers.mysql.values import read_time, sql_time


@dataclass(frozen=True, slots=True)
class Claim:
    """What a reserve asks for."""

    queues: tuple[str, ...]
    now: datetime
    lease_for: timedelta
    limit: int
    types: tuple[str, ...] | None
    owner: str

    def filter(self) -> Mapping[str, Any]:
        # An empty IN list is not SQL, so there is always something in it.
        return {"now": sql_time(self.now), "any_type": self.types is None, "types": self.types or [None]}


class Due(NamedTuple):
    """A job that is locked for this claim."""

    queue: str
    rank: int
    row: Row


@dataclass(frozen=True, slots=True)
class Look:
    """What the queues hold: which must be swept first, and the highest level with a job due in those not paused."""

    lapsed: list[str]
    expired: list[str]
    first_ranks: dict[str, int]


def look(session: Session, queues: Sequence[str], now: datetime) -> Look:
    seen = Look([], [], {})
    rows = session.rows_of_each("look", [{"queue": queue} for queue in queues])
    for queue, paused, first_lease_end, first_expiry, first_ready in rows:
        if first_lease_end is not None and first_lease_end <= now:
            seen.lapsed.append(queue)
        if first_expiry is not None and first_expiry <= now:
            seen.expired.append(queue)
        if first_ready is not None and not paused:
            rank, _, due_at = first_ready.partition(" ")
            seen.first_ranks[queue] = int(rank)
            if read_time(due_at) > now:
                _descend(session, seen.first_ranks, queue, int(rank) + 1, now)
    return seen


def sweep(session: Session, seen: Look, now: datetime, limits: Limits) -> int:
    """Take back ended leases and expire jobs past their time, each at most SWEEP_BATCH. Returns how many moved."""
    taken_back = take_back(session, seen.lapsed, now, limits)
    # What was taken back may be past its time as well.
    return taken_back + expire(session, list(dict.fromkeys((*seen.expired, *seen.lapsed))), now)


def take_back(session: Session, queues: Sequence[str], now: datetime, limits: Limits) -> int:
    ids = _sweepable(session, "select_lapsed", queues, now)
    return move(session, ids, now, lambda job: transitions.lapse(job, now, limits, transitions.LAPSED_TEXT))


def expire(session: Session, queues: Sequence[str], now: datetime) -> int:
    ids = _sweepable(session, "select_expired", queues, now)
    return move(session, ids, now, lambda job: transitions.expire(job, now))


def move(session: Session, ids: Sequence[str], now: datetime, how: Callable[[Job], transitions.Moved]) -> int:
    """Move locked jobs, in the order of `ids`."""
    if ids:
        jobs = lock_jobs(session, ids)
        apply_moves(session, [how(jobs[id]) for id in ids], now)
    return len(ids)


def _sweepable(session: Session, statement: str, queues: Sequence[str], now: datetime) -> list[str]:
    ids: list[str] = []
    for queue in queues:
        if len(ids) < SWEEP_BATCH:
            rows = session.rows(statement, queue=queue, now=sql_time(now), limit=SWEEP_BATCH - len(ids))
            ids.extend(row[0] for row in rows)
    return ids


def claim(session: Session, asked: Claim, first_ranks: Mapping[str, int]) -> Leased:
    """Lease the first due jobs, going down level by level, so that jobs that wait for a later time at a high
    priority cost one probe for all of them."""
    found: list[Due] = []
    levels = dict(first_ranks)
    while levels and len(found) < asked.limit:
        rank = min(levels.values())
        here = [queue for queue in levels if levels[queue] == rank]
        found += _level(session, asked, here, rank, asked.limit - len(found))
        if len(found) < asked.limit:
            for queue in here:
                _descend(session, levels, queue, rank + 1, asked.now)
    return _lease(session, found, asked) if found else []


def _descend(session: Session, levels: dict[str, int], queue: str, rank: int, now: datetime) -> None:
    """Find the next level of the queue that has a job due, or none."""
    del levels[queue]
    while found := session.rows("next_rank", queue=queue, from_rank=rank):
        if found[0][1] <= now:
            levels[queue] = found[0][0]
            return
        rank = found[0][0] + 1


def _level(session: Session, asked: Claim, queues: Sequence[str], rank: int, limit: int) -> list[Due]:
    """Lock at most `limit` due jobs of one level, in order."""
    filter = asked.filter()
    shares = {queues[0]: limit}
    if len(queues) > 1:
        # Which queue's jobs are first is seen without locks, so that no more is locked than will be taken.
        heads = [
            (due_at, id, queue)
            for queue in queues
            for due_at, id in session.rows("rank_due", queue=queue, rank=rank, limit=limit, **filter)
        ]
        shares = {}
        for _, _, queue in sorted(heads)[:limit]:
            shares[queue] = shares.get(queue, 0) + 1
    found = [
        Due(queue, rank, row)
        for queue, share in shares.items()
        for row in session.rows("select_due", queue=queue, rank=rank, limit=share, **filter)
    ]
    if len(shares) > 1:
        found.sort(key=lambda due: (common_part(due.row[2]).due_at, due.row[0]))
    return found


def _lease(session: Session, found: Sequence[Due], asked: Claim) -> Leased:
    secret = new_tokens(1)[0]
    expires_at = asked.now + asked.lease_for
    now, owner = asked.now, asked.owner
    session.run_by_id(
        "claim",
        [due.row[0] for due in found],
        secret=secret,
        owner=owner,
        lease_expires_at=sql_time(expires_at),
        now=sql_time(now),
    )
    leased = []
    for queue, rank, row in found:
        # The same that `claim` computes.
        token = sha256(f"{secret}{row[0]}".encode()).hexdigest()[:32]
        lease = Lease(token, expires_at, owner)
        leased.append(LeasedJob(claimed_job(row, queue, rank, lease, now), lease))
    return leased
