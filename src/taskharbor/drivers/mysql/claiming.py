"""Reserve: look at the queues, sweep what has lapsed or expired, claim what is due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple

from taskharbor.core import transitions
from taskharbor.core.contract import Leased
from taskharbor.core.ids import new_tokens
from taskharbor.core.limits import SWEEP_BATCH, Limits
from taskharbor.core.model import Job, Lease, LeasedJob
from taskharbor.drivers.lapsing import lapse
from taskharbor.drivers.mysql.moves import apply_moves, lock_jobs
from taskharbor.drivers.mysql.rows import claimed_job, place_of
from taskharbor.drivers.mysql.store import Row, Session
from taskharbor.drivers.mysql.values import read_time, sql_time

Place = tuple[datetime, str]
"""Of a job in its level: when it became due, and its id."""

BEGINNING: Final = datetime.min.replace(tzinfo=UTC)
LARGEST_WINDOW: Final = 8_192
WINDOW_GROWTH: Final = 8


@dataclass(frozen=True, slots=True)
class Claim:
    """What a reserve asks for."""

    queues: tuple[str, ...]
    now: datetime
    lease_for: timedelta
    limit: int
    types: tuple[str, ...] | None
    owner: str
    tenant: str | None = None

    def filter(self) -> dict[str, Any]:
        # An empty IN list is not SQL, so there is always something in it.
        filter = {"now": sql_time(self.now), "any_type": self.types is None, "types": self.types or [None]}
        return filter if self.tenant is None else {**filter, "tenant": self.tenant}

    def named(self, statement: str) -> str:
        return statement if self.tenant is None else f"{statement}+tenant"


class Due(NamedTuple):
    """A job that is locked for this claim."""

    queue: str
    rank: int
    row: Row


@dataclass(slots=True)
class Line:
    """One of several queues at one level: the jobs locked so far by their place, and the places seen behind them."""

    locked: dict[Place, Row] = field(default_factory=dict)
    seen: list[Place] = field(default_factory=list)

    def places(self) -> list[Place]:
        return [*self.locked, *self.seen]

    def lock(self, rows: Sequence[Row], share: int) -> bool:
        """Note what was locked of the share asked for. Returns whether what waits behind it is known."""
        expected = self.places()
        self.locked = {(place_of(row), row[0]): row for row in rows}
        as_expected = [*self.locked] == expected[:share]
        # If there were not even as many as asked for, the others hold all that is left.
        self.seen = expected[share:] if as_expected else []
        return as_expected or len(rows) < share


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
    return move(session, ids, now, lambda job: lapse(job, now, limits, transitions.LAPSED_TEXT))


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


def claim(
    session: Session,
    asked: Claim,
    first_ranks: Mapping[str, int],
    before: Callable[[Sequence[Due]], None] | None = None,
) -> Leased:
    """Lease the first due jobs, going down level by level, so that jobs that wait for a later time at a high
    priority cost one probe for all of them. `before` sees them when they are locked and nothing is written yet."""
    found: list[Due] = []
    levels = dict(first_ranks)
    while levels and len(found) < asked.limit:
        rank = min(levels.values())
        here = [queue for queue in levels if levels[queue] == rank]
        found += _level(session, asked, here, rank, asked.limit - len(found))
        if len(found) < asked.limit:
            for queue in here:
                _descend(session, levels, queue, rank + 1, asked.now)
    if found and before is not None:
        before(found)
    return _lease(session, found, asked) if found else []


def _descend(session: Session, levels: dict[str, int], queue: str, rank: int, now: datetime) -> None:
    """Find the next level of the queue that has a job due, or none. The more levels there are in vain, the more jobs
    are looked at in one go; but never so many that a level with very many of them would matter."""
    del levels[queue]
    window = 1
    while True:
        ((due, last),) = session.rows("next_rank", queue=queue, from_rank=rank, now=sql_time(now), window=window)
        if due is not None:
            levels[queue] = due
            return
        if last is None:
            return
        rank = last + 1
        window = min(window * WINDOW_GROWTH, LARGEST_WINDOW)


def _level(session: Session, asked: Claim, queues: Sequence[str], rank: int, limit: int) -> list[Due]:
    """Lock the first `limit` due jobs of one level that nobody else holds, in order."""
    if len(queues) > 1:
        return _shared_level(session, asked, queues, rank, limit)
    rows = session.rows(asked.named("select_due"), queue=queues[0], rank=rank, limit=limit, **asked.filter())
    return [Due(queues[0], rank, row) for row in rows]


def _shared_level(session: Session, asked: Claim, queues: Sequence[str], rank: int, limit: int) -> list[Due]:
    """The same for several queues. Which of them have the first jobs is seen without locks, so that no more is locked
    than will be taken. Where others hold some of these, the queue offers later ones, and it is looked again whose are
    first now; what is locked and then not taken is free again at the commit."""
    filter = asked.filter()
    select, look_along = asked.named("select_due"), asked.named("rank_due")
    lines = {queue: Line() for queue in queues}
    unknown = list(queues)
    while True:
        _look_along(session, look_along, {queue: lines[queue] for queue in unknown}, limit, {"rank": rank, **filter})
        first = sorted((place, queue) for queue, line in lines.items() for place in line.places())[:limit]
        shares = Counter(queue for _, queue in first)
        unknown = []
        for queue, share in shares.items():
            line = lines[queue]
            if share > len(line.locked):
                rows = session.rows(select, queue=queue, rank=rank, limit=share, **filter)
                if not line.lock(rows, share):
                    unknown.append(queue)
        if all(place in lines[queue].locked for place, queue in first):
            return [Due(queue, rank, lines[queue].locked[place]) for place, queue in first]


def _look_along(
    session: Session, statement: str, lines: Mapping[str, Line], limit: int, params: Mapping[str, Any]
) -> None:
    """See who waits in each line behind those that are locked, as far as they could be among the first `limit`."""
    each = []
    for queue, line in lines.items():
        after, after_id = max(line.locked, default=(BEGINNING, ""))
        if len(line.locked) < limit:
            ahead = {"queue": queue, "limit": limit - len(line.locked), "after": sql_time(after), "after_id": after_id}
            each.append({**params, **ahead})
    if each:
        for queue, due_at, id in session.rows_of_each(statement, each):
            lines[queue].seen.append((due_at, id))


def _lease(session: Session, found: Sequence[Due], asked: Claim) -> Leased:
    secret = new_tokens(1)[0]
    expires_at = asked.now + asked.lease_for
    now, owner = asked.now, asked.owner
    changed = session.run_by_id(
        "claim",
        [due.row[0] for due in found],
        secret=secret,
        owner=owner,
        lease_expires_at=sql_time(expires_at),
        now=sql_time(now),
    )
    if not changed:
        return []
    leased = []
    for queue, rank, row in found:
        # The same that `claim` computes.
        token = sha256(f"{secret}{row[0]}".encode()).hexdigest()[:32]
        lease = Lease(token, expires_at, owner)
        leased.append(LeasedJob(claimed_job(row, queue, rank, lease, now), lease))
    return leased
