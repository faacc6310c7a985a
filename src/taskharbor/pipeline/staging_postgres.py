"""Staging in PostgreSQL: COPY into an unlogged table by executors, one transaction by the driver."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import psycopg

from taskharbor.drivers.fence import FenceShut
from taskharbor.drivers.opening import open_driver, parse_url
from taskharbor.drivers.postgres import schema
from taskharbor.drivers.postgres.errors import RETRYABLE, translated
from taskharbor.drivers.postgres.target import split_options
from taskharbor.drivers.sqlfiles import Statements
from taskharbor.pipeline.sink_options import Plan
from taskharbor.pipeline.sink_rows import AUTO_KEY, Checked, defaults
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

TRIES: Final = 5
SLICED_FROM: Final = 50_000
"""Loads of fewer jobs are published in one transaction."""
SLICES: Final = min(4, os.cpu_count() or 2)
_BEHIND: Final = AUTO_KEY[:-1] + chr(ord(AUTO_KEY[-1]) + 1)
"""Behind every id that stands for content."""
_TEXTS: Final = ("id", "type", "queue", "tenant_id", "meta", "idempotency_key", "dedupe_scope")


class PostgresStaging(Staging):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        parsed = parse_url(plan.url)
        self._address = parsed.rest
        self._target, _ = split_options(parsed.rest)
        self._prefix = parsed.prefix
        self._sql = Statements(schema.PACKAGE, parsed.prefix, "pyformat")

    # --- On executors --------------------------------------------------------------------------------------

    @contextmanager
    def attempt(self, run_id: str) -> Iterator[_Attempt]:
        from taskharbor.pipeline import adbc

        with adbc.in_our_words():
            connection = adbc.connected(self._address)
            committed = False
            try:
                with connection.cursor() as cursor:
                    yield _Attempt(cursor, f"{self._prefix}staged", run_number(run_id))
                    connection.commit()
                committed = True
            finally:
                adbc.give_back(self._address, connection, keep=committed)

    # --- On the driver -------------------------------------------------------------------------------------

    def publish(
        self, run_id: str, attempts: Sequence[int], accepted: int, rejected: int, keep: KeepRejects
    ) -> Published:
        with translated():
            for number in range(1, TRIES + 1):
                try:
                    return self._publish(run_id, attempts, accepted, rejected, keep)
                except RETRYABLE:
                    if number == TRIES:
                        raise
                except FenceShut:
                    from taskharbor.drivers.base import BaseDriver

                    with closing(open_driver(self.plan.url)) as driver:
                        assert isinstance(driver, BaseDriver)
                        raise driver._moved() from None
        raise AssertionError("not reached")

    def _publish(
        self, run_id: str, attempts: Sequence[int], accepted: int, rejected: int, keep: KeepRejects
    ) -> Published:
        with psycopg.connect(self._target) as connection:
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # each statement is to see what is new
            cursor = connection.cursor()
            _prepare(cursor)
            cursor.execute("SELECT clock_timestamp()")
            now = cursor.fetchone()[0]  # type: ignore[index]
            params = {**defaults(self.plan, now), "run": run_number(run_id), "attempts": list(attempts)}
            cursor.execute(self._sql["open_load"], {"run_id": run_id, "now": now})
            if not cursor.rowcount:
                cursor.execute(self._sql["get_load"], {"run_id": run_id})
                row = cursor.fetchone()
                assert row is not None
                done = Published(row[1], row[2], row[3], already=True)
            else:
                done = self._move(cursor, params, accepted, rejected, keep)
                counts = {"rows_in": accepted + rejected, **done._asdict(), "run_id": run_id}
                cursor.execute(self._sql["close_load"], counts)
            connection.commit()
            self._clear(connection, params["run"])
        return done

    def _move(
        self, cursor: psycopg.Cursor[Any], params: dict[str, Any], accepted: int, rejected: int, keep: KeepRejects
    ) -> Published:
        """Staged rows become jobs. When all are new, and of one kind, two statements are all it takes."""
        found = self._one(cursor, "count_staged", params)
        rows, keyed, refused, soonest = found
        if rows != accepted or refused != rejected:
            raise gone(rows, accepted)
        taken = 0
        if keyed:
            cursor.execute(self._sql["publish_keys"], params)
            taken = cursor.rowcount
        late = [] if soonest is None or soonest > params["now"] else self._rows(cursor, "staged_late", params)
        bad: list[tuple[str, str]] = [(row_json(_shown(row[0], row[1], row[3])), expired(row[2])) for row in late]
        if keyed and taken < keyed:
            self._rows(cursor, "retake_keys", params)
            conflicts = self._rows(cursor, "staged_conflicts", params)
            bad += [(row_json(_shown(*row[:3])), conflict(row[2], row[3])) for row in conflicts]
        if rejected:
            bad += [(text, reason) for text, reason in self._rows(cursor, "staged_rejects", params)]
        if bad:
            keep(bad)
        known = 0
        if keyed < accepted:
            self._rows(cursor, "load_lock", {})
            known = self._known(cursor, params)
        if known or taken < keyed:
            published = self._add(cursor, "publish_own_jobs", params)
        elif not keyed and not bad and accepted >= SLICED_FROM:
            published = self._insert_in_slices(params)
        else:
            published = self._insert(cursor, params)
        if published:
            params["channel"] = f"{self._prefix}jobs"
            several = "queue" in self.plan.columns or self.plan.varies
            params["queues"] = (
                [row[0] for row in self._rows(cursor, "staged_queues", params)] if several else [params["queue"]]
            )
            cursor.execute(self._sql["notify"], params)
        refused_now = len(bad) - rejected
        return Published(published, accepted - published - refused_now, len(bad))

    def _known(self, cursor: psycopg.Cursor[Any], params: dict[str, Any]) -> int:
        """How many of the staged jobs without a key are there already. Where nothing was loaded before, one look at
        the ids of that kind tells."""
        if not self._one(cursor, "any_between", {"first": AUTO_KEY, "behind": _BEHIND})[0]:
            return 0
        return int(self._one(cursor, "staged_known", params)[0])

    def _insert(self, cursor: psycopg.Cursor[Any], params: dict[str, Any], part: str = "") -> int:
        """None of the jobs was there a moment ago. Only when somebody else adds the same ones at the same time must
        the insert look out for that row by row, which takes longer."""
        try:
            with cursor.connection.transaction():
                return self._add(cursor, "publish_jobs" + part, params)
        except psycopg.errors.UniqueViolation:
            return self._add(cursor, "publish_own_jobs" + part, params)

    def _add(self, cursor: psycopg.Cursor[Any], statement: str, params: dict[str, Any]) -> int:
        """How many jobs the statement has added. Whether the store is shut is asked when they are written: whoever
        shuts it later waits for this transaction."""
        cursor.execute(self._sql[statement], params)
        added = cursor.rowcount
        if self._rows(cursor, "is_shut", {}):
            raise FenceShut
        return added

    def _insert_in_slices(self, params: dict[str, Any]) -> int:
        """A large load without keys of its own, over several connections, each with a range of ids: so they do not
        meet in the same pages. Each slice is a transaction; the ids stand for the content, so that after a crash in
        between the rest is added by running the load again."""
        bounds = [AUTO_KEY + f"{16 * number // SLICES:x}" for number in range(SLICES)] + [_BEHIND]

        def insert(part: tuple[str, str]) -> int:
            with psycopg.connect(self._target) as connection:
                _prepare(connection.cursor())
                return self._insert(connection.cursor(), {**params, "low": part[0], "high": part[1]}, "+range")

        with ThreadPoolExecutor(SLICES) as pool:
            return sum(pool.map(insert, pairwise(bounds)))

    def discard(self, run_id: str) -> None:
        with translated(), psycopg.connect(self._target) as connection:
            self._clear(connection, run_number(run_id))

    def sweep(self, before: datetime) -> int:
        with translated(), psycopg.connect(self._target) as connection:
            return connection.execute(self._sql["sweep_staged"], {"before": before}).rowcount

    def _clear(self, connection: psycopg.Connection[Any], run: int) -> None:
        """Empty the staging table at once if it holds nothing else; deleting row by row leaves work for vacuum. That
        it fails does no harm: what stays behind is never published, and swept later."""
        with suppress(psycopg.Error):
            try:
                with connection.transaction():
                    connection.execute(f"LOCK TABLE {self._prefix}staged IN ACCESS EXCLUSIVE MODE NOWAIT")
                    others = connection.execute(self._sql["staged_others"], {"run": run}).fetchone()
                    if others is None:
                        connection.execute(f"TRUNCATE {self._prefix}staged")
                        return
            except (psycopg.errors.LockNotAvailable, psycopg.errors.InsufficientPrivilege):
                pass
            connection.execute(self._sql["discard_staged"], {"run": run})
            connection.commit()

    def _one(self, cursor: psycopg.Cursor[Any], name: str, params: dict[str, Any]) -> Any:
        return self._rows(cursor, name, params)[0]

    def _rows(self, cursor: psycopg.Cursor[Any], name: str, params: dict[str, Any]) -> list[Any]:
        cursor.execute(self._sql[name], params)
        return cursor.fetchall() if cursor.description else []


class _Attempt:
    def __init__(self, cursor: Any, table: str, run: int) -> None:
        self.number = new_attempt()
        self._cursor = cursor
        self._table = table
        self._run = run

    def add(self, checked: Checked) -> None:
        import pyarrow as pa

        if checked.rows:
            self._ingest(checked.columns, checked.rows)
        if checked.rejects:
            rows = [row.encode() for row, _ in checked.rejects]
            reasons = pa.array([reason.replace("\x00", "?") for _, reason in checked.rejects], pa.string())
            self._ingest({"payload": rows, "reject_reason": reasons}, len(rows))

    def _ingest(self, columns: dict[str, Any], count: int) -> None:
        import pyarrow as pa

        moment = pa.timestamp("us", tz="UTC")
        kinds = {
            "payload": pa.binary(),
            "priority": pa.int32(),
            "max_attempts": pa.int32(),
            "timeout_nanos": pa.int64(),
        }
        kinds |= {"run_at": moment, "expires_at": moment, **dict.fromkeys(_TEXTS, pa.string())}
        filled = {name: values for name, values in columns.items() if values is not None}
        arrays = [v if isinstance(v, pa.Array) else pa.array(v, kinds[name]) for name, v in filled.items()]
        same = [pa.repeat(pa.scalar(number, pa.int64()), count) for number in (self._run, self.number)]
        batch = pa.record_batch([*same, *arrays], names=["run", "attempt", *filled])
        self._cursor.adbc_ingest(self._table, batch, mode="append")


def _prepare(cursor: psycopg.Cursor[Any]) -> None:
    # Jobs are looked up by their ids, whatever the statistics of tables say that were empty a moment ago.
    cursor.execute(
        "SELECT set_config('jit', 'off', true), set_config('work_mem', '128MB', true), "
        "set_config('enable_seqscan', 'off', true)"
    )


def _shown(id: Any, payload: Any, key: Any) -> dict[str, Any]:
    """A staged job that cannot be published, as its reject shows it: the same each time that it is tried."""
    shown = {"key": key} if key else {"id": id}
    return {**shown, "payload": bytes(payload).decode("utf-8", "replace")}
