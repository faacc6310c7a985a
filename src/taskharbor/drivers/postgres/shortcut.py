"""Single statements by the shortest way there is: libpq's own calls, and psycopg for the values and the waiting. A job
that is enqueued or claimed alone waits for every step between a cursor and the wire, and most of what a cursor decides
is always the same here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from psycopg import Connection, errors
from psycopg.adapt import PyFormat, Transformer
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

MOST: Final = 100
"""Statements that one connection keeps. One that is asked with values of other types, as with a null, is another."""
_DONE: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
_STALE: Final = (errors.InvalidSqlStatementName, errors.FeatureNotSupported)
"""psycopg has dropped all statements, as it does behind a rollback, or the tables have changed since. The server says
so before it runs anything."""
_Key = tuple[bytes, tuple[int, ...]]


class Shortcut:
    """For a connection in autocommit that one thread has for itself: each statement is a transaction."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection
        self._transformer = Transformer.from_context(connection)
        self._prepares = connection.prepare_threshold is not None
        self._names: dict[_Key, bytes] = {}
        self._made = 0

    def rows(self, sql: bytes, values: Sequence[Any], *, kept: bool = True) -> list[tuple[Any, ...]]:
        """What the statement returns. Its plan is kept, or made for this once."""
        result = self._run(sql, values, kept=kept)
        if not result.nfields:
            return []
        transformer = self._transformer
        transformer.set_pgresult(result, format=Format.BINARY)
        try:
            return transformer.load_rows(0, result.ntuples, tuple)
        finally:
            transformer.set_pgresult(None)  # it is large at times, and the connection rests now

    def count(self, sql: bytes, values: Sequence[Any]) -> int:
        """How many rows the statement has changed."""
        return self._run(sql, values, kept=True).command_tuples or 0

    def _run(self, sql: bytes, values: Sequence[Any], *, kept: bool) -> PGresult:
        transformer, pgconn = self._transformer, self._connection.pgconn
        given = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
        types, formats = transformer.types or (), transformer.formats
        if not (kept and self._prepares):
            pgconn.send_query_params(sql, given, types, formats, Format.BINARY)
            return self._answer()
        key = sql, types
        name = self._names.get(key) or self._prepare(key)
        try:
            pgconn.send_query_prepared(name, given, formats, Format.BINARY)
            return self._answer()
        except _STALE:
            self._drop(key)
            pgconn.send_query_prepared(self._prepare(key), given, formats, Format.BINARY)
            return self._answer()

    def _prepare(self, key: _Key) -> bytes:
        pgconn = self._connection.pgconn
        if len(self._names) >= MOST:
            self._drop(next(iter(self._names)))
        name = b"th_%d" % self._made
        self._made += 1
        pgconn.send_prepare(name, *key)
        self._answer()
        self._names[key] = name
        return name

    def _drop(self, key: _Key) -> None:
        self._connection.pgconn.send_query(b"DEALLOCATE " + self._names.pop(key))
        with suppress(errors.InvalidSqlStatementName):  # psycopg has dropped it, with all the others
            self._answer()

    def _answer(self) -> PGresult:
        """What the server says to what was sent last."""
        results: list[PGresult] = self._connection.wait(execute(self._connection.pgconn))
        for result in results:
            # Behind what the statement returned comes the failure of its commit, if that failed.
            if result.status not in _DONE:
                raise errors.error_from_result(result, self._connection.info.encoding)
        return results[0]
