"""Claims under limits and fair shares. Desks take the lock of limits first, and rows in sorted order after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from taskharbor.core.contract import Leased
from taskharbor.core.fairness import Newcomer
from taskharbor.core.intake import Batch
from taskharbor.core.limiting import Limit
from taskharbor.core.limits import PRIORITY_RANGE, Limits
from taskharbor.core.model import Job
from taskharbor.drivers.governing import AT_ONCE, Ask, Rules
from taskharbor.drivers.mysql import claiming
from taskharbor.drivers.mysql.claiming import Claim, Due
from taskharbor.drivers.mysql.enqueueing import enqueue
from taskharbor.drivers.mysql.rows import job_from_row
from taskharbor.drivers.mysql.store import Session
from taskharbor.drivers.mysql.values import items_text, sql_time, text_literal
from taskharbor.drivers.sqldesk import (
    LAPSED_AT_ONCE,
    Columns,
    Place,
    Row,
    SqlDesk,
    Values,
    key_values,
    limit_values,
    rules_from,
    weights_text,
)

_ONE_OF: Final = {
    "ids": "id",
    "buckets": "bucket",
    "positions": "position",
    "progresses": "progress",
    "updates": "updated_at",
    "priorities": "priority",
    "scopes": "scope",
    "names": "name",
    "pers": "per",
    "wakes": "wake_at",
    "tokens": "token",
    "counted": "counted_at",
    "untils": "until",
    "tenants": "tenant_id",
    "tags": "tag",
    "numbers": "number",
    "workflow_ids": "workflow_id",
    "counts": "done",
    "failures": "failed",
    "ends": "ended_at",
    "parts": "part",
    "waitings": "waiting",
    "states": "state",
    "causes": "cause",
    "effects": "effect",
}
"""What a value is called that stands in a column of this name."""


class MysqlDesk(SqlDesk):
    def __init__(self, session: Session, limits: Limits) -> None:
        super().__init__()
        self._session = session
        self._limits = limits

    def _rows(self, statement: str, values: Values, columns: Columns | None = None) -> Sequence[Row]:
        if columns is None:
            return self._session.rows(statement, **_values(values))
        found: list[Row] = []
        for text in items_text(_items(columns)):
            found.extend(self._session.rows(statement, items=text_literal(text), **_values(values)))
        return found

    def _run(self, statement: str, values: Values, columns: Columns | None = None) -> None:
        if columns is None:
            self._session.run(statement, **_values(values))
        else:
            self._session.run_items(statement, _items(columns), **_values(values))

    def _lock(self) -> None:
        self._session.rows("desk_lock")

    def _sweep(self, queues: Sequence[str], now: datetime) -> None:
        seen = claiming.look(self._session, queues, now)
        if seen.lapsed or seen.expired:
            claiming.sweep(self._session, seen, now, self._limits)

    def ended(self, ids: Sequence[str]) -> None:
        if self._may_strike(ids):
            self._strike(self._rows("desk_over", {}, {"ids": ids}))

    def lapsed(self, now: datetime) -> None:
        over = self._rows("desk_lapsed", {"now": now, "most": LAPSED_AT_ONCE})
        kept = [{"bucket": bucket, "id": id, "until": sql_time(ends)} for bucket, id, ends in over if ends is not None]
        if kept:
            self._session.run_items("desk_prolong", kept)
        self._strike([row for row in over if row[2] is None])

    def doubt(self, ids: Sequence[str] | None = None) -> None:
        found = (
            self._rows("desk_doubtful", {}) if ids is None else self._session.rows("desk_doubtful+some", ids=list(ids))
        )
        rows = sorted((bucket, id) for bucket, id in found)
        notes = [{"bucket": bucket, "id": id, "until": sql_time(AT_ONCE)} for bucket, id in rows]
        if notes:
            self._session.run_items("desk_prolong", notes)

    def _strike(self, notes: Sequence[Row]) -> None:
        if notes:
            struck = [{"bucket": row[0], "id": row[1]} for row in sorted(notes, key=lambda row: (row[0], row[1]))]
            self._session.run_items("desk_strike", struck)
            buckets = [{"bucket": bucket} for bucket in sorted({row[0] for row in notes})]
            self._session.run_items("desk_wake_now", buckets)

    def _choice(self, ask: Ask) -> Values:
        # An empty IN list is not SQL, so there is always something in it.
        types = {"any_type": ask.types is None, "types": ask.types or [None]}
        return {"queues": ask.queues, **types, "any_tenant": ask.tenant is None, "tenant": ask.tenant}

    def unbench(self, counts: Mapping[str, int], ask: Ask) -> Mapping[str, int]:
        back = dict.fromkeys(counts, 0)
        left = dict(counts)
        while left:
            first = self._first_benched(left, ask)
            ids = sorted(row[0] for row in first)
            if ids:
                self._session.run_ids("leave_bench", ids)
            came = self._back(first)
            seen: dict[str, int] = {}
            for id, _, bucket in first:
                seen[bucket] = seen.get(bucket, 0) + 1
                back[bucket] += id in came
            # Only where some of them were not ready any more is there more to bring back.
            left = {
                bucket: counts[bucket] - back[bucket]
                for bucket, count in left.items()
                if seen.get(bucket) == count and back[bucket] < counts[bucket]
            }
        return back

    def _first_benched(self, counts: Mapping[str, int], ask: Ask) -> Sequence[Row]:
        choice = self._choice(ask)
        each = [{"bucket": bucket, "most": count, **choice} for bucket, count in counts.items()]
        found: list[Row] = []
        for start in range(0, len(each), 100):
            found.extend(self._session.rows_of_each("desk_first_benched", each[start : start + 100]))
        return found

    def _back(self, first: Sequence[Row]) -> set[str]:
        """Those of the benched jobs that are ready, now back in line."""
        ids = sorted(row[0] for row in first)
        positions = {id: position for id, position, _ in first}
        ready = {row[0] for row in self._session.rows_by_id("desk_benched", ids)}
        items = [{"id": id, "position": sql_time(positions[id])} for id in ids if id in ready]
        if items:
            self._session.run_items("desk_back", items)
        return ready

    def newcomers(
        self, queue: str, now: datetime, most: int, ids: Sequence[str] | None
    ) -> Mapping[int, list[Newcomer]]:
        found: dict[int, list[Newcomer]] = {}
        if ids is not None:
            rows = self._session.rows_by_id("desk_newcomers_of", ids, queue=queue, now=sql_time(now))
            for priority, id, tenant_id, _ in sorted(rows, key=lambda row: (-row[0], row[3], row[1]))[:most]:
                found.setdefault(priority, []).append(Newcomer(id, tenant_id))
            return found
        self._sweep_once([queue], now)
        left = most
        rank: int | None = 1 - PRIORITY_RANGE.stop
        while left:
            rank = self._session.rows("desk_next_rank", queue=queue, from_rank=rank)[0][0]
            if rank is None:
                break
            here = self._session.rows("desk_newcomers", queue=queue, rank=rank, now=sql_time(now), most=left)
            if here:
                found[-rank] = [Newcomer(id, tenant_id) for _, id, tenant_id in here]
                left -= len(here)
            rank += 1
        return found

    def _leave_bench(self, job_ids: Sequence[str]) -> None:
        self._session.run_ids("leave_bench", job_ids)

    def insert_jobs(self, batch: Batch, *, fenced: bool = False) -> None:
        enqueue(self._session, batch, fenced=fenced)

    def leased(self, now: datetime) -> Sequence[Job]:
        return [job_from_row(row) for row in self._rows("desk_leased", {"now": now})]

    def claim(self, ask: Ask) -> Leased:
        self._sweep_once(ask.queues, ask.now)
        seen = claiming.look(self._session, ask.queues, ask.now)
        return claiming.claim(self._session, Claim(*ask), seen.first_ranks, self._keep) if seen.first_ranks else []

    def _keep(self, found: Sequence[Due]) -> None:
        """Remember what the claim is about to change."""
        for id, due_at, progress, updated_at in self._session.rows_by_id("desk_before", [due.row[0] for due in found]):
            self._places[id] = Place(due_at, progress, updated_at)


def read_rules(session: Session) -> Rules:
    return rules_from(
        session.rows("limits"), session.rows("queues"), session.rows("any_bench"), session.rows("any_flow")
    )


def set_limit(session: Session, limit: Limit, now: datetime) -> None:
    session.rows("desk_lock")
    session.run("set_limit", **limit_values(limit))
    session.run("wake_limit", **key_values(limit.key), now=sql_time(now))


def drop_limit(session: Session, key: tuple[str, str, str], now: datetime) -> bool:
    session.rows("desk_lock")
    dropped = session.run("drop_limit", **key_values(key))
    session.run("clear_tokens", **key_values(key))
    session.run("drop_tokens", **key_values(key))
    session.run("wake_limit", **key_values(key), now=sql_time(now))
    return bool(dropped)


def set_fair(session: Session, queue: str, fair: bool, weights: Mapping[str, float]) -> None:
    session.run("set_fair", queue=queue, fair=fair, weights=weights_text(weights))


def _values(values: Values) -> dict[str, Any]:
    stored = {name: _stored(value) for name, value in values.items()}
    if "priority" in stored:
        stored["rank"] = -stored["priority"]
    return stored


def _items(columns: Columns) -> list[dict[str, Any]]:
    names = [_ONE_OF[name] for name in columns]
    given = [[_stored(value) for value in column] for column in columns.values()]
    return [dict(zip(names, row, strict=True)) for row in zip(*given, strict=True)]


def _stored(value: Any) -> Any:
    return sql_time(value) if isinstance(value, datetime) else value
