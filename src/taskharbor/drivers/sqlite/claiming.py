"""Reserve: take back what lapsed, expire what is late, then claim in order."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from taskharbor.core import transitions
from taskharbor.core.carrying import MOVING
from taskharbor.core.clock import from_micros, to_micros
from taskharbor.core.contract import Leased
from taskharbor.core.ids import new_tokens
from taskharbor.core.limits import PRIORITY_RANGE, SWEEP_BATCH
from taskharbor.core.model import Job, Lease, LeasedJob, Status
from taskharbor.drivers.lapsing import lapse
from taskharbor.drivers.rows import meta_from_text, timeout_from_nanos
from taskharbor.drivers.sqlite.records import Row
from taskharbor.drivers.sqlite.store import Connection, SqliteStore

_ID: Final = 1
"""The column of select_due.sql."""

Move = Callable[[Job], transitions.Moved]


class Claim(NamedTuple):
    """What a reserve asks for."""

    queues: tuple[str, ...]
    now: datetime
    lease_for: timedelta
    limit: int
    types: tuple[str, ...] | None
    owner: str
    tenant: str | None = None


class Claiming(SqliteStore):
    """Leases are given out."""

    def _reserve(
        self,
        queues: tuple[str, ...],
        now: datetime,
        lease_for: timedelta,
        limit: int,
        types: tuple[str, ...] | None,
        owner: str,
        tenant: str | None = None,
    ) -> Leased:
        with self._writing() as connection:
            return self._reserve_in(connection, Claim(queues, now, lease_for, limit, types, owner, tenant))

    def _reserve_in(self, connection: Connection, claim: Claim) -> Leased:
        self._take_back(connection, claim.queues, claim.now)
        self._expire(connection, claim.queues, claim.now)
        return self._lease(connection, self._due(connection, claim), claim)

    def _lease(self, connection: Connection, rows: Sequence[Row], claim: Claim) -> Leased:
        """Lease the jobs of these rows, which select_due.sql gave."""
        if not rows:
            return []
        tokens = new_tokens(len(rows))
        params = {
            "tokens": json.dumps({row[0]: token for row, token in zip(rows, tokens, strict=True)}),
            "owner": claim.owner,
            "now": to_micros(claim.now),
            "lease_expires_at": to_micros(claim.now + claim.lease_for),
        }
        connection.execute(self._sql["claim"], params)
        return _leased(rows, tokens, claim)

    # --- Sweeping ----------------------------------------------------------------------------------------------

    def _take_back(self, connection: Connection, queues: Sequence[str], now: datetime) -> int:
        """Free the ended leases of these queues, as many as one pass may. Nothing to free costs one probe each."""
        return self._sweep(
            connection,
            "select_lapsed",
            queues,
            now,
            lambda job: lapse(job, now, self.limits, transitions.LAPSED_TEXT),
        )

    def _expire(self, connection: Connection, queues: Sequence[str], now: datetime) -> int:
        """Expire the jobs of these queues whose time is over, as many as one pass may."""
        return self._sweep(connection, "select_expired", queues, now, lambda job: transitions.expire(job, now))

    def _sweep(self, connection: Connection, statement: str, queues: Sequence[str], now: datetime, move: Move) -> int:
        done = 0
        for queue in queues:
            params = {"queue": queue, "now": to_micros(now), "limit": SWEEP_BATCH - done}
            for job in self._jobs(connection, statement, params):
                self._apply(connection, move(job))
                done += 1
        return done

    # --- Choosing ----------------------------------------------------------------------------------------------

    def _due(self, connection: Connection, claim: Claim, statement: str = "select_due") -> list[Row]:
        """The first due jobs over all the queues, highest priority first, with the columns of the statement.

        Level by level: inside a level the index is in the order of due_at, so jobs that are not due yet, however
        many and however important, are never walked over.
        """
        params: dict[str, Any] = {
            "now": to_micros(claim.now),
            "types": None if claim.types is None else json.dumps(claim.types, ensure_ascii=False),
        }
        select, rank = self._sql[statement], self._sql["rank_due"]
        if claim.tenant is not None:
            params["tenant"] = claim.tenant
            select, rank = self._sql[f"{statement}+tenant"], self._sql["rank_due+tenant"]
        chosen: list[Row] = []
        for priority, queues in self._levels(connection, self._open_queues(connection, claim.queues)):
            level = {**params, "priority": priority, "limit": claim.limit - len(chosen)}
            chosen.extend(self._of_level(connection, queues, level, select, rank))
            if len(chosen) == claim.limit:
                break
        return chosen

    def _open_queues(self, connection: Connection, queues: Sequence[str]) -> list[str]:
        paused = {name for (name,) in connection.execute(self._sql["paused_queues"])}
        if MOVING in paused:
            return []
        return [queue for queue in queues if queue not in paused]

    def _levels(self, connection: Connection, queues: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        """Each priority that has ready jobs, from the highest, with the queues that have them."""

        def below(queue: str, priority: int) -> int | None:
            params = {"queue": queue, "below": priority}
            found: int | None = connection.execute(self._sql["next_priority"], params).fetchone()[0]
            return found

        heads = {queue: level for queue in queues if (level := below(queue, PRIORITY_RANGE.stop)) is not None}
        while heads:
            highest = max(heads.values())
            at_level = [queue for queue, level in heads.items() if level == highest]
            yield highest, at_level
            for queue in at_level:
                following = below(queue, highest)
                if following is None:
                    del heads[queue]
                else:
                    heads[queue] = following

    def _of_level(
        self, connection: Connection, queues: Sequence[str], params: dict[str, Any], select: str, rank: str
    ) -> list[Row]:
        if len(queues) == 1:
            return connection.execute(select, {**params, "queue": queues[0]}).fetchall()
        # Rank them by the index alone, then read from each queue just the jobs that it wins.
        streams = [connection.execute(rank, {**params, "queue": queue}).fetchall() for queue in queues]
        first = list(heapq.merge(*streams))[: params["limit"]]
        rows: dict[str, Row] = {}
        for queue, share in Counter(queue for _, _, queue in first).items():
            chosen = connection.execute(select, {**params, "queue": queue, "limit": share})
            rows.update((row[_ID], row) for row in chosen)
        return [rows[id] for _, id, _ in first]


def _leased(rows: Sequence[Row], tokens: Sequence[str], claim: Claim) -> Leased:
    """The claimed jobs. What every job of the claim has in common was not read, and times repeat within a batch.

    This runs for every job there is, so it makes the tuples by hand.
    """
    now, owner, until = claim.now, claim.owner, claim.now + claim.lease_for
    make = tuple.__new__
    times: dict[int, datetime] = {}
    leased = []
    for row, token in zip(rows, tokens, strict=True):
        (
            _, id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos,
            max_attempts, attempts, deliveries, forgiven, last_error, failed_at, key, scope, created_at,
        ) = row  # fmt: skip
        due = times.get(due_at) or times.setdefault(due_at, from_micros(due_at))
        created = times.get(created_at) or times.setdefault(created_at, from_micros(created_at))
        job = (
            id, type, queue, tenant_id, payload, meta_from_text(meta) if meta else {}, priority,
            None if run_at is None else from_micros(run_at), due,
            None if expires_at is None else from_micros(expires_at),
            timeout_from_nanos(timeout_nanos) if timeout_nanos else None, max_attempts, attempts, deliveries + 1,
            forgiven, last_error, None if failed_at is None else from_micros(failed_at), Status.INFLIGHT, token, owner,
            until, None, None, None, None, key, scope, None, None, created, now, now, None, None,
        )  # fmt: skip
        leased.append(make(LeasedJob, (make(Job, job), make(Lease, (token, until, owner, False)))))
    return leased
