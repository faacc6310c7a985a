"""Claims under limits and fair shares. The file has one writer at a time, so a desk needs no locks."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from taskharbor.core.clock import from_micros, to_micros
from taskharbor.core.contract import Answers, Leased
from taskharbor.core.fairness import Newcomer
from taskharbor.core.intake import Batch
from taskharbor.core.limiting import Limit
from taskharbor.core.limits import PRIORITY_RANGE
from taskharbor.core.model import Job
from taskharbor.drivers.governing import Ask, Desk, Rules
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
from taskharbor.drivers.sqlite.claiming import Claim, Claiming
from taskharbor.drivers.sqlite.records import in_micros
from taskharbor.drivers.sqlite.store import Connection

T = TypeVar("T")

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
_TIMES: Final = {"desk_standings": 3, "desk_head": 0, "tidy_buckets": 5}
"""Statements with a time in their rows, and where."""


class SqliteDesk(SqlDesk):
    def __init__(self, store: Governing, connection: Connection) -> None:
        super().__init__()
        self._store = store
        self._connection = connection

    def _rows(self, statement: str, values: Values, columns: Columns | None = None) -> Sequence[Row]:
        params = {**in_micros(values), **{name: json.dumps(list(column)) for name, column in (columns or {}).items()}}
        rows = self._connection.execute(self._store.statement(statement), params).fetchall()
        at = _TIMES.get(statement)
        if at is None:
            return rows
        return [(*row[:at], None if row[at] is None else from_micros(row[at]), *row[at + 1 :]) for row in rows]

    def _run(self, statement: str, values: Values, columns: Columns | None = None) -> None:
        sql, common = self._store.statement(statement), in_micros(values)
        if columns is None:
            self._connection.execute(sql, common)
            return
        names = [_ONE_OF[name] for name in columns]
        given = [[_stored(value) for value in column] for column in columns.values()]
        rows = [{**common, **dict(zip(names, row, strict=True))} for row in zip(*given, strict=True)]
        self._connection.executemany(sql, rows)

    def _lock(self) -> None:
        pass

    def _sweep(self, queues: Sequence[str], now: datetime) -> None:
        self._store.sweep_in(self._connection, queues, now)

    # --- Where a set in one statement would leave SQLite to guess the order of a join ------------------------------

    def ended(self, ids: Sequence[str]) -> None:
        if self._may_strike(ids):
            self._strike(self._rows("desk_over", {}, {"ids": ids}))

    def lapsed(self, now: datetime) -> None:
        over = self._rows("desk_lapsed", {"now": now, "most": LAPSED_AT_ONCE})
        kept = [
            {"bucket": bucket, "job_id": job_id, "until": ends} for bucket, job_id, ends in over if ends is not None
        ]
        self._connection.executemany(self._store.statement("desk_prolong"), kept)
        self._strike([(bucket, job_id) for bucket, job_id, ends in over if ends is None])

    def doubt(self, ids: Sequence[str] | None = None) -> None:
        rows = self._rows("desk_doubtful", {}) if ids is None else self._rows("desk_doubtful+some", {}, {"ids": ids})
        notes = [{"bucket": bucket, "job_id": job_id, "until": 0} for bucket, job_id in rows]
        self._connection.executemany(self._store.statement("desk_prolong"), notes)

    def _strike(self, notes: Sequence[Row]) -> None:
        struck = [{"bucket": bucket, "job_id": job_id} for bucket, job_id in notes]
        self._connection.executemany(self._store.statement("desk_strike"), struck)
        self._connection.executemany(self._store.statement("desk_wake_now"), struck)

    def _choice(self, ask: Ask) -> Values:
        types = None if ask.types is None else json.dumps(ask.types, ensure_ascii=False)
        return {"queues": json.dumps(ask.queues, ensure_ascii=False), "types": types, "tenant": ask.tenant}

    def unbench(self, counts: Mapping[str, int], ask: Ask) -> Mapping[str, int]:
        return {bucket: self._unbench_one(bucket, count, ask) for bucket, count in counts.items()}

    def _unbench_one(self, bucket: str, count: int, ask: Ask) -> int:
        back = 0
        choice = self._choice(ask)
        while back < count:
            first = self._rows("desk_first_benched", {"bucket": bucket, "most": count - back, **choice})
            if not first:
                break
            places = [{"id": id, "position": position} for id, position in first]
            self._connection.executemany(self._store.statement("leave_bench"), places)
            back += self._connection.executemany(self._store.statement("desk_back"), places).rowcount
        return back

    def newcomers(
        self, queue: str, now: datetime, most: int, ids: Sequence[str] | None
    ) -> Mapping[int, list[Newcomer]]:
        if ids is not None:
            return super().newcomers(queue, now, most, ids)
        self._sweep_once([queue], now)
        found: dict[int, list[Newcomer]] = {}
        left = most
        level = PRIORITY_RANGE.stop
        while left:
            below = {"queue": queue, "below": level}
            level = self._connection.execute(self._store.statement("next_priority"), below).fetchone()[0]
            if level is None:
                break
            rows = self._rows("desk_newcomers", {"queue": queue, "now": now, "priority": level, "most": left})
            if rows:
                found[level] = [Newcomer(id, tenant_id) for _, id, tenant_id in rows]
                left -= len(rows)
        return found

    # --- Workflows -------------------------------------------------------------------------------------------------

    def _read_time(self, value: Any) -> datetime | None:
        return None if value is None else from_micros(value)

    def insert_jobs(self, batch: Batch, *, fenced: bool = False) -> None:
        if fenced:
            self.refuse_shut()
        self._store.insert_in(self._connection, batch)

    def refuse_shut(self) -> None:
        self._store.refuse_shut_in(self._connection)

    # --- Claiming --------------------------------------------------------------------------------------------------

    def leased(self, now: datetime) -> Sequence[Job]:
        return self._store.leased_in(self._connection, now)

    def claim(self, ask: Ask) -> Leased:
        self._sweep_once(ask.queues, ask.now)
        leased, places = self._store.claim_in(self._connection, Claim(*ask))
        self._places.update(places)
        return leased


class Governing(Claiming):
    """Limits and fair queues: reading and changing them, and the desk."""

    def statement(self, name: str) -> str:
        return self._sql[name]

    @abstractmethod
    def insert_in(self, connection: Connection, batch: Batch) -> Answers:
        """Enqueue as a part of this transaction."""

    def _read_rules(self) -> Rules:
        with self._reading() as connection:
            limits, queues, benched, flowing = (
                connection.execute(self._sql[name]).fetchall() for name in ("limits", "queues", "any_bench", "any_flow")
            )
        return rules_from(limits, queues, benched, flowing)

    def _at_desk(self, work: Callable[[Desk], T]) -> T:
        with self._writing() as connection:
            return work(SqliteDesk(self, connection))

    def _set_limit(self, limit: Limit, now: datetime) -> None:
        with self._changing() as connection:
            connection.execute(self._sql["set_limit"], limit_values(limit))
            connection.execute(self._sql["wake_limit"], {**key_values(limit.key), "now": to_micros(now)})

    def _drop_limit(self, key: tuple[str, str, str], now: datetime) -> bool:
        values = key_values(key)
        with self._changing() as connection:
            dropped = connection.execute(self._sql["drop_limit"], values).rowcount
            connection.execute(self._sql["clear_tokens"], values)
            connection.execute(self._sql["drop_tokens"], values)
            connection.execute(self._sql["wake_limit"], {**values, "now": to_micros(now)})
        return bool(dropped)

    def _set_fair(self, queue: str, fair: bool, weights: Mapping[str, float]) -> None:
        with self._changing() as connection:
            params = {"name": queue, "fair": int(fair), "weights": weights_text(weights)}
            connection.execute(self._sql["set_fair"], params)

    # --- For the desk ----------------------------------------------------------------------------------------------

    def refuse_shut_in(self, connection: Connection) -> None:
        self._refuse_shut(connection)

    def sweep_in(self, connection: Connection, queues: Sequence[str], now: datetime) -> None:
        self._take_back(connection, queues, now)
        self._expire(connection, queues, now)

    def claim_in(self, connection: Connection, claim: Claim) -> tuple[Leased, dict[str, Place]]:
        """The claimed jobs, and what each of them had before."""
        rows = self._due(connection, claim, "desk_select_due")
        places = {row[1]: Place(from_micros(row[-3]), row[-2], from_micros(row[-1])) for row in rows}
        return self._lease(connection, [row[:-3] for row in rows], claim), places

    def leased_in(self, connection: Connection, now: datetime) -> Sequence[Job]:
        return self._jobs(connection, "desk_leased", {"now": to_micros(now)})


def _stored(value: Any) -> Any:
    return to_micros(value) if isinstance(value, datetime) else value
