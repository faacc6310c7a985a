"""PostgreSQL for the pipeline: Arrow from the server's binary COPY, through ADBC.

Every read is a transaction of its own, which also keeps it on one server connection behind a pooler.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.errors import (
    HOW_TO_MIGRATE,
    InvalidInput,
    SchemaMissing,
)
from taskharbor.pipeline import adbc, store_sql
from taskharbor.pipeline.store import Selection
from taskharbor.pipeline.store_columns import Dialect, views
from taskharbor.pipeline.store_sql import Key, KeyValue, SqlStore, View, _key_of

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BLOCKS: Final = 1024
"""Of history, read at a time: 8 MiB, some 40,000 rows."""
HELD_BYTES: Final = 64 * 1024 * 1024
"""A chunk of up to this size is read to its end before any of it is handed on, so that its transaction is short."""
BATCH_BYTES: Final = 16 * 1024 * 1024
_BATCH_OPTION: Final = "adbc.postgresql.batch_size_hint_bytes"
_XID: Final = "CAST(CAST(xid AS text) AS bigint)"
_DIALECT: Final = Dialect(
    time=lambda name: name,
    # A restored fact has the hash already: twice as long as any token.
    hashed="CASE WHEN length(lease_token) = 32 THEN encode(lease_token, 'hex') "
    "ELSE encode(sha256(convert_to(encode(lease_token, 'hex'), 'UTF8')), 'hex') END",
    real=lambda sql: f"CAST({sql} AS double precision)",
    history_key=Key((_XID, "seq"), ("xid", "seq")),
)
_SAMPLED_PAGES: Final = 400
# For this transaction alone, because a pooler may hand the connection to somebody else: rows come in the order of an
# index, whatever the statistics of a young table say, and compiling or spreading a short read costs more than it.
_SETTINGS: Final = "SELECT " + ", ".join(
    f"set_config('{name}', '{value}', true)"
    for name, value in {
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "jit": "off",
        "max_parallel_workers_per_gather": "0",
    }.items()
)


class PostgresStore(SqlStore):
    kind = "postgres"
    cursor_numbers = 2

    def __init__(self, url: Any) -> None:
        super().__init__(url)
        self._connection: Any = None
        self._pid = 0
        self._broken = False

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            adbc.give_back(self._parsed.rest, connection, keep=self.reuse and not self._broken)

    def _make_views(self) -> dict[str, View]:
        return views(_DIALECT, self._parsed.prefix)

    def _read_identity(self) -> str:
        from taskharbor.drivers.postgres import schema

        prefix = self._prefix
        [(version, cluster, mine, store)] = self._rows(
            f"SELECT (SELECT COALESCE(max(version), 0) FROM {prefix}migrations), "
            "(SELECT CAST(system_identifier AS text) FROM pg_control_system()), "
            f"(SELECT value FROM {prefix}meta WHERE key = 'cluster'), "
            f"(SELECT value FROM {prefix}meta WHERE key = 'store_id')"
        )
        schema.check_not_newer(version, prefix)
        if version < schema.latest_version(prefix) or (mine is not None and mine != cluster):
            raise SchemaMissing(f"the tables are older than this version, or from another cluster: {HOW_TO_MIGRATE}")
        return f"{cluster}:{store}"

    def held_back(self, before: datetime) -> int:
        unsettled = "xid >= pg_snapshot_xmin(pg_current_snapshot())"
        query = f"SELECT COUNT(*) FROM {self._prefix}history WHERE {unsettled} AND at < {self._moment(before)}"
        return int(self._rows(query)[0][0])

    def _settled(self) -> str:
        return "xid < pg_snapshot_xmin(pg_current_snapshot())"

    def _compared(self, key: Key, sign: str, values: KeyValue) -> str:
        if key.is_text:
            return super()._compared(key, sign, values)
        xid, sequence = values
        return f"(xid, seq) {sign} (CAST('{int(xid)}' AS xid8), {int(sequence)})"

    def _bounds(self, view: View, start: KeyValue, end: KeyValue, parts: int) -> list[KeyValue]:
        """`seq` counts the rows and rises with the transaction id, nearly: so each cut is an even cut of `seq`, at the
        transaction that a few probes of the index find there. A cut need not be a row."""
        first = self._first(view, start, end)
        if first is None:
            return []
        low, high = int(first[1]), int(end[1])
        bounds: list[KeyValue] = []
        parts = max(1, min(parts, high - low + 1))
        for number in range(1, parts):
            cut = self._transaction_at(view, first, end, low + (high - low) * number // parts)
            if (bounds[-1] if bounds else start) < cut < end:
                bounds.append(cut)
        return [*bounds, end]

    def _transaction_at(self, view: View, first: KeyValue, end: KeyValue, sequence: int) -> KeyValue:
        """The last transaction whose first row is not behind `sequence`, with that sequence."""
        low, high = int(first[0]), int(end[0])
        while low < high:
            middle = (low + high + 1) // 2
            found = self._probe(view, [f"xid >= CAST('{middle}' AS xid8)", self._upto(view, end)], 0)
            if found is None or int(found[1]) > sequence:
                high = middle - 1
            else:
                low = int(found[0])
        return (low, sequence)

    def _along(
        self, view: View, wanted: pa.Schema, start: KeyValue | None, end: KeyValue, conditions: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """History is cut beforehand, so that no row has to bring its key along; a wide chunk is handed on in parts."""
        if _key_of(view).is_text:
            yield from super()._along(view, wanted, start, end, conditions)
            return
        start = start or (0, 0)
        first = self._first(view, start, end)
        if first is None:
            return
        with_key = "position" in wanted.names
        parts = (int(end[1]) - int(first[1])) // store_sql.chunk_rows() + 1
        for stop in self._bounds(view, start, end, parts):
            along = [self._above(view, start), self._upto(view, stop), *conditions]
            query = self._select(view, wanted, along, 0, with_key=with_key)
            yield from self._finished(view, wanted, self._fetch(*query))
            start = stop

    # --- Attempts, in the order in which they lie on disk ----------------------------------------------------------

    def plan_table(self, table: str, selection: Selection, parts: int) -> list[Any]:
        """Nobody waits for attempts in an order, and rows of history never move: so they are read block by block, at a
        fraction of what following an index costs the server. All that is committed now lies in these blocks."""
        if table != "attempts":
            return super().plan_table(table, selection, parts)
        self._conditions(table, selection)
        [(blocks,)] = self._rows(
            f"SELECT pg_relation_size('{self._prefix}history') / CAST(current_setting('block_size') AS bigint)"
        )
        parts = max(1, min(parts, blocks))
        cuts = [blocks * number // parts for number in range(parts + 1)]
        return list(pairwise(cuts)) if blocks else []

    def read_part(
        self, table: str, selection: Selection, part: Any, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        if table != "attempts":
            yield from super().read_part(table, selection, part, columns)
            return
        wanted = store_sql.wanted_columns(table, columns)
        view = self._views[table]
        made = {"success"} if "outcome" in wanted.names else set()
        travelling = {name: sql for name, sql in view.columns.items() if name not in made}
        view = replace(view, key=None, columns=travelling)
        conditions = self._conditions(table, selection)
        low, high = part
        for first in range(low, high, CHUNK_BLOCKS):
            stop = min(high, first + CHUNK_BLOCKS)
            blocks = [f"ctid >= CAST('({first},0)' AS tid)", f"ctid < CAST('({stop},0)' AS tid)"]
            query = self._select(view, wanted, [*blocks, *conditions], 0)
            yield from self._finished(view, wanted, self._fetch(*query))

    def _sample_ids(self, table: str, view: View) -> list[str]:
        if table != "jobs":
            return super()._sample_ids(table, view)
        live, history = f"{self._prefix}jobs", f"{self._prefix}history"
        size = f"pg_relation_size('{live}') + pg_relation_size('{history}')"
        [(pages,)] = self._rows(f"SELECT ({size}) / CAST(current_setting('block_size') AS bigint)")
        share = f"TABLESAMPLE SYSTEM ({min(100.0, 100.0 * _SAMPLED_PAGES / max(1, pages)):.6f})"
        rows = self._rows(f"SELECT job_id FROM {history} {share} WHERE final UNION ALL SELECT id FROM {live} {share}")
        return [row[0] for row in rows]

    # --- Talking to the server -----------------------------------------------------------------------------------

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self._reading() as cursor:
            cursor.execute(sql)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def _fetch(self, sql: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        held: list[Any] = []
        size = 0
        with self._reading() as cursor:
            cursor.adbc_statement.set_options(**{_BATCH_OPTION: str(BATCH_BYTES)})
            cursor.execute(sql)
            for batch in cursor.fetch_record_batch():
                held.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
                size += batch.nbytes
                if size > HELD_BYTES:
                    yield from held
                    held = []
        yield from held

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        """A cursor in a short transaction. Errors come in our own words, and with a new connection the next time."""
        try:
            connection = self._connected()
            cursor = connection.cursor()
            try:
                cursor.execute(_SETTINGS)
                cursor.fetchall()
                yield cursor
            finally:
                with suppress(Exception):  # whatever went wrong before says more
                    cursor.close()
                    connection.rollback()  # nothing was written
        except Exception as error:
            self._broken = True
            self.close()
            if type(error).__module__.startswith("adbc_driver_manager"):
                raise adbc.translated(error) from error
            raise

    def _connected(self) -> Any:
        if self._connection is None or self._pid != os.getpid():
            self._connection = adbc.connected(self._parsed.rest)
            self._pid = os.getpid()
            self._broken = False
        return self._connection

    def _text(self, text: str) -> str:
        if "\0" in text:
            raise InvalidInput("a text with a NUL character matches nothing in PostgreSQL: leave it out")
        quoted = text.replace("\\", "\\\\").replace("'", "''")
        return f"E'{quoted}'" if "\\" in text else f"'{quoted}'"

    def _moment(self, moment: datetime) -> str:
        return f"CAST('{moment.isoformat()}' AS timestamptz)"
