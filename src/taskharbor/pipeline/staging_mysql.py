"""Staging in MySQL and MariaDB: many rows to an INSERT by executors, one transaction by the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final

from taskharbor.core.ids import new_tokens
from taskharbor.drivers.mysql.driver import MysqlDriver
from taskharbor.drivers.mysql.store import Session
from taskharbor.drivers.mysql.values import BulkInsert, literal, optional_time, sql_time
from taskharbor.drivers.opening import parse_url
from taskharbor.pipeline.sink_options import Plan
from taskharbor.pipeline.sink_rows import STAGED, Checked, defaults
from taskharbor.pipeline.sink_values import row_json
from taskharbor.pipeline.staging import (
    KeepRejects,
    Published,
    Staging,
    conflict,
    expired,
    gone,
    new_attempt,
    run_number,
)

PORTION: Final = 5_000


class MysqlStaging(Staging):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._parsed = parse_url(plan.url)

    def _driver(self) -> MysqlDriver:
        return MysqlDriver(self._parsed.rest, prefix=self._parsed.prefix, limits=self._parsed.limits)

    @contextmanager
    def attempt(self, run_id: str) -> Iterator[_Attempt]:
        with self._driver() as driver:
            yield _Attempt(driver, run_number(run_id))

    def publish(
        self, run_id: str, attempts: Sequence[int], accepted: int, rejected: int, keep: KeepRejects
    ) -> Published:
        with self._driver() as driver, driver._told_where():
            values = defaults(self.plan, driver.now())
            for name in ("run_at", "expires_at", "now"):
                values[name] = optional_time(values[name])
            params = {**values, "run": run_number(run_id), "attempts": list(attempts) or [0]}
            done = driver._store.write(lambda session: self._publish(session, run_id, params, accepted, rejected, keep))
            driver._store.write(lambda session: session.run("discard_staged", run=params["run"]))
        return done

    def _publish(
        self,
        session: Session,
        run_id: str,
        params: dict[str, Any],
        accepted: int,
        rejected: int,
        keep: KeepRejects,
    ) -> Published:
        if not session.run("open_load", run_id=run_id, now=params["now"]):
            row = session.rows("get_load", run_id=run_id)[0]
            return Published(row[1], row[2], row[3], already=True)
        found, refused = session.rows("count_staged", **params)[0]
        if found != accepted or refused != rejected:
            raise gone(found, accepted)
        nonce = new_tokens(1)[0]
        params = {**params, "taken_by": nonce}
        session.run("publish_keys", **params)
        late, conflicts = session.rows("staged_late", **params), session.rows("staged_conflicts", **params)
        bad = [(row_json(_shown(row[0], row[1], row[3])), expired(row[2])) for row in late]
        bad += [(row_json(_shown(*row[:3])), conflict(row[2], row[3])) for row in conflicts]
        if rejected:
            bad += [(bytes(row[0]).decode(), row[1]) for row in session.rows("staged_rejects", **params)]
        if bad:
            keep(bad)
        published = session.run("publish_jobs", **params)
        session.refuse_shut()  # now that the jobs are written: whoever shuts the store later waits for this transaction
        done = Published(published, accepted - published - (len(bad) - rejected), len(bad))
        session.run("close_load", rows_in=accepted + rejected, **done._asdict(), run_id=run_id)
        return done

    def discard(self, run_id: str) -> None:
        with self._driver() as driver:
            driver._store.write(lambda session: session.run("discard_staged", run=run_number(run_id)))

    def sweep(self, before: datetime) -> int:
        with self._driver() as driver:
            return driver._store.write(lambda session: session.run("sweep_staged", before=sql_time(before)))


class _Attempt:
    def __init__(self, driver: MysqlDriver, run: int) -> None:
        self.number = new_attempt()
        self._driver = driver
        self._run = run

    def add(self, checked: Checked) -> None:
        if checked.rows:
            self._insert(checked.columns, checked.rows)
        if checked.rejects:
            rows = [row.encode() for row, _ in checked.rejects]
            self._insert({"payload": rows, "reject_reason": [reason for _, reason in checked.rejects]}, len(rows))

    def _insert(self, columns: dict[str, Any], count: int) -> None:
        names = (*STAGED, "reject_reason")
        lists = [_values(columns.get(name), count) for name in names]
        rows = list(zip(*lists, strict=True))
        for first in range(0, count, PORTION):
            self._driver._store.write(partial(self._send, names=names, rows=rows[first : first + PORTION]))

    def _send(self, session: Session, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        bulk = BulkInsert(session._statements["stage_row"])
        escape = session._connection.escape
        head = {"run": self._run, "attempt": self.number}
        order = [("", name) if name in head else ("row", names.index(name)) for name in bulk.names]
        texts = (
            ",".join(
                literal(head[place] if kind == "" else row[place], escape)  # type: ignore[index]
                for kind, place in order
            )
            for row in rows
        )
        for sql in bulk.statements(texts):
            session._execute(sql)


def _values(given: Any, count: int) -> list[Any]:
    if given is None:
        return [None] * count
    values = given if isinstance(given, list) else given.to_pylist()
    return [sql_time(value) if isinstance(value, datetime) else value for value in values]


def _shown(id: Any, payload: Any, key: Any) -> dict[str, Any]:
    """A staged job that cannot be published, as its reject shows it: the same each time that it is tried."""
    shown = {"key": key} if key else {"id": id}
    return {**shown, "payload": bytes(payload).decode("utf-8", "replace")}
