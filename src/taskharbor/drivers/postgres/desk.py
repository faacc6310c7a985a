"""Claims under limits and fair shares, in few round trips: what returns nothing goes out with what is asked next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from psycopg import Connection

from taskharbor.core.contract import Leased
from taskharbor.core.intake import Batch
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Job
from taskharbor.drivers.governing import Ask, Desk, Rules
from taskharbor.drivers.lapsing import say_crash_loops
from taskharbor.drivers.postgres.enqueueing import Enqueueing
from taskharbor.drivers.postgres.queueing import POSITION, Queueing, claim_params, leased_from_desk
from taskharbor.drivers.postgres.rows import job_from_row, text_array, time_array
from taskharbor.drivers.postgres.session import Anew, Call, Row, Session, keep_to_indexes
from taskharbor.drivers.sqldesk import (
    Columns,
    Place,
    SqlDesk,
    Values,
    key_values,
    limit_values,
    rules_from,
    weights_text,
)

T = TypeVar("T")

_TIMES: Final = frozenset({"untils", "positions", "updates", "wakes", "counted", "ends"})
_TEXTS: Final = frozenset(
    {"ids", "buckets", "tokens", "scopes", "names", "pers", "tenants", "parts", "states", "workflow_ids"}
)
_SETS: Final = {name: Anew(name) for name in ("flow_mark", "flow_count_down", "flow_count_up", "flow_save")}
"""They join tables with what may be a thousand values."""


class PostgresDesk(SqlDesk):
    def __init__(
        self, session: Session, queueing: Queueing, enqueueing: Enqueueing, connection: Connection[Row]
    ) -> None:
        super().__init__()
        self._enqueueing = enqueueing
        self._session = session
        self._queueing = queueing
        self._connection = connection
        self._waiting: list[Call] = []

    def flush(self) -> None:
        """Send what waits."""
        if self._waiting:
            self._send()

    def _send(self, *calls: Call) -> list[list[Row]]:
        """Run what waits and then `calls`, in one round trip; the rows of `calls`."""
        sent = [*self._waiting, *calls]
        self._waiting.clear()
        found = self._session.on_all(self._connection, sent)
        return found[len(sent) - len(calls) :]

    def _rows(self, statement: str, values: Values, columns: Columns | None = None) -> Sequence[Row]:
        return self._send((statement, _params(values, columns)))[0]

    def _run(self, statement: str, values: Values, columns: Columns | None = None) -> None:
        self._waiting.append((_SETS.get(statement, statement), _params(values, columns)))

    def insert_jobs(self, batch: Batch, *, fenced: bool = False) -> None:
        self.flush()
        self._enqueueing.enqueue_in(self._connection, batch, fenced=fenced)

    def let_go(self, job_ids: Sequence[str], now: datetime) -> None:
        queues = [row[0] for row in self._rows("flow_let_go", {"now": now}, {"ids": sorted(job_ids)})]
        if queues:
            self._enqueueing.notify(self._connection, queues)

    def _lock(self) -> None:
        self._waiting.append(("desk_lock", {}))

    def _sweep(self, queues: Sequence[str], now: datetime) -> None:
        sweep = self._queueing.sweep_params(queues, now)
        taken_back, _ = self._send(("take_back", sweep), ("expire", sweep))
        say_crash_loops(taken_back)

    def _choice(self, ask: Ask) -> Values:
        types = None if ask.types is None else list(ask.types)
        return {"queues": list(ask.queues), "types": types, "tenant": ask.tenant}

    def leased(self, now: datetime) -> Sequence[Job]:
        return [job_from_row(row) for row in self._rows("desk_leased", {"now": now})]

    def claim(self, ask: Ask) -> Leased:
        claim = claim_params(ask)
        suffix = "" if ask.tenant is None else "+tenant"
        name = ("desk_claim" if len(ask.queues) == 1 else "desk_claim_many") + suffix
        is_clean = self._swept.issuperset(ask.queues)
        claimed = self._send((name, {**claim, "sweep_first": not is_clean}))[0]
        if not claimed and not is_clean:
            # Either there is nothing, or there are lapsed leases and late jobs to clear away first.
            self._sweep_once(ask.queues, ask.now)
            claimed = self._send((name, {**claim, "sweep_first": False}))[0]
        if not claimed and len(ask.queues) > 1:
            claimed = self._claim_one_by_one("desk_claim" + suffix, ask.queues, claim)
        self._places.update((row[0], Place(*row[POSITION:])) for row in claimed)
        return leased_from_desk(claimed, ask)

    def _claim_one_by_one(self, name: str, queues: Sequence[str], claim: Mapping[str, Any]) -> list[Row]:
        """As `Queueing` does where others hold all the jobs that a claim over several queues chose."""
        for queue in queues:
            claimed = self._send((name, {**claim, "queue": queue, "sweep_first": False}))[0]
            if claimed:
                return claimed
        return []


class Governing:
    """Limits and fair queues: reading and changing them, and the desk."""

    def __init__(self, session: Session, queueing: Queueing, enqueueing: Enqueueing) -> None:
        self._session = session
        self._queueing = queueing
        self._enqueueing = enqueueing

    def read_rules(self) -> Rules:
        return rules_from(*self._session.run_all([("limits", {}), ("queues", {}), ("any_bench", {}), ("any_flow", {})]))

    def at_desk(self, work: Callable[[Desk], T]) -> T:
        def whole(connection: Connection[Row]) -> T:
            keep_to_indexes(connection)
            desk = PostgresDesk(self._session, self._queueing, self._enqueueing, connection)
            result = work(desk)
            desk.flush()
            return result

        return self._session.in_transaction(whole)

    def may_count(self, ids: Sequence[str]) -> bool:
        return bool(self._session.run("desk_noted", {"ids": text_array(ids)}))

    def set_limit(self, limit: Limit, now: datetime) -> None:
        wake = {**key_values(limit.key), "now": now}
        self._session.change_all(("desk_lock", {}), ("set_limit", limit_values(limit)), ("wake_limit", wake))

    def drop_limit(self, key: tuple[str, str, str], now: datetime) -> bool:
        values = key_values(key)
        wake = {**values, "now": now}
        calls: list[Call] = [("clear_tokens", values), ("drop_tokens", values), ("wake_limit", wake)]
        return bool(self._session.change_all(("desk_lock", {}), ("drop_limit", values), *calls)[1])

    def set_fair(self, queue: str, fair: bool, weights: Mapping[str, float]) -> None:
        self._session.change_all(("set_fair", {"name": queue, "fair": fair, "weights": weights_text(weights)}))


def _params(values: Values, columns: Columns | None) -> dict[str, Any]:
    params = dict(values)
    for name, column in (columns or {}).items():
        if name in _TIMES or (name == "tags" and column and isinstance(column[0], datetime)):
            params[name] = time_array(column)
        elif name in _TEXTS and (not column or isinstance(column[0], str)):
            params[name] = text_array(column)
        else:
            params[name] = list(column)
    return params
