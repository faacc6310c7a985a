"""Connections to PostgreSQL, and the few ways the driver uses them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from typing import Any, Final, TypeVar

import psycopg
from psycopg import Connection, RawCursor
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from taskharbor.core.errors import StoreError, StoreUnavailable
from taskharbor.core.forking import renew_locks
from taskharbor.drivers.fence import FenceShut
from taskharbor.drivers.postgres.errors import RETRYABLE, translate, translated
from taskharbor.drivers.postgres.pipelining import pipeline
from taskharbor.drivers.postgres.rows import take_arrays
from taskharbor.drivers.postgres.shortcut import Shortcut
from taskharbor.drivers.postgres.target import CONNECT_TIMEOUT_S
from taskharbor.drivers.sqlfiles import Statements, numbered

Row = tuple[Any, ...]
Call = tuple[str, Mapping[str, Any]]
T = TypeVar("T")

OLDEST_SERVER: Final = 140_000
TRIES: Final = 5
_KEEP_ALIVE: Final = {"keepalives_idle": "20", "keepalives_interval": "5", "keepalives_count": "3"}


class Anew(str):
    """The name of a statement that is planned each time it runs, for what its tables hold by then. A plan that was made
    while they were empty, and is kept, may walk over all of an index for each of a thousand values."""

    __slots__ = ()


class _Numbered(dict[str, tuple[bytes, tuple[str, ...]]]):
    """Each statement as the server takes it, and the names of its values; made when it is first needed."""

    def __init__(self, statements: Statements) -> None:
        super().__init__()
        self._statements = statements

    def __missing__(self, name: str) -> tuple[bytes, tuple[str, ...]]:
        text, names = numbered(self._statements[name])
        self[name] = made = text.encode(), names
        return made


class PooledConnection(Connection[Row]):
    """A connection of the pool, with what it needs for single statements."""

    @cached_property
    def shortcut(self) -> Shortcut:
        return Shortcut(self)


Pool = ConnectionPool[PooledConnection]


class Session:
    """A pool of connections that know the driver's statements.

    Connections are in autocommit: a single statement is its own transaction and one round trip. Several statements
    go out in one pipeline, which PostgreSQL treats as one transaction, and cost one round trip too.
    """

    def __init__(
        self, url: str, statements: Statements, *, max_size: int, check: Callable[[Connection[Any]], None]
    ) -> None:
        self._url = url
        self._check = check
        self._max_size = max_size
        self._sql = _Numbered(statements)
        self._lock = threading.Lock()
        renew_locks(self, "_lock")
        self._pool: Pool | None = None
        self._pool_pid = 0
        self._parked: PooledConnection | None = None
        self._waiting = 0
        self._in_use = 0
        """Connections that somebody works with: while there are any, the server is there, and the rest have to wait."""
        self._closed = False

    # --- Running statements ------------------------------------------------------------------------------

    def run(self, name: str, params: Mapping[str, Any]) -> list[Row]:
        """One statement, one transaction, one round trip."""
        sql, values = self._written(name, params)
        kept = not isinstance(name, Anew)
        return self.transact(lambda connection: connection.shortcut.rows(sql, values, kept=kept))

    def count(self, name: str, params: Mapping[str, Any]) -> int:
        """`run` for a statement that returns no rows: how many it has changed."""
        sql, values = self._written(name, params)
        return self.transact(lambda connection: connection.shortcut.count(sql, values))

    def run_all(self, calls: Sequence[Call]) -> list[list[Row]]:
        """Several statements in one transaction and one round trip; the rows of each."""
        if len(calls) == 1:
            return [self.run(*calls[0])]
        return self.transact(lambda connection: self._pipelined(connection, calls))

    def survey(self, calls: Sequence[Call]) -> list[list[Row]]:
        """`run_all` for questions about everything, which read whole tables where that is the quicker way."""
        return self.transact(lambda connection: self._pipelined(connection, calls, whole_tables=True))

    def on(self, connection: Connection[Row], name: str, params: Mapping[str, Any]) -> list[Row]:
        """One statement on a connection that the caller holds."""
        return _rows(self._start(connection, name, params))

    def on_all(self, connection: Connection[Row], calls: Sequence[Call]) -> list[list[Row]]:
        """Several statements inside the transaction of a connection that the caller holds, in one round trip."""
        if len(calls) == 1:
            return [self.on(connection, *calls[0])]
        with pipeline(connection):
            cursors = [self._start(connection, name, params) for name, params in calls]
        return [_rows(cursor) for cursor in cursors]

    def transact(self, work: Callable[[PooledConnection], T]) -> T:
        """Run `work` on a connection, again if PostgreSQL broke a deadlock at its expense. Whoever waits for a
        connection while somebody else drops the pool waits for one of the next pool."""
        tries = TRIES
        interrupted = sys.exception()  # the caller may be tidying up behind an interrupt: that one is not ours
        while True:
            pool = connection = None
            try:
                pool = self._connections()
                connection = self._take(pool)
                try:
                    return work(connection)
                except BaseException:
                    _end(connection)
                    raise
                finally:
                    self._give_back(pool, connection)
            except psycopg.Error as error:
                behind = error.__context__
                if isinstance(behind, KeyboardInterrupt) and behind is not interrupted:  # psycopg could not tidy up
                    raise behind from None
                tries -= 1
                if connection is None and isinstance(error, PoolClosed) and not self._closed:
                    if tries:
                        continue
                    raise StoreUnavailable("PostgreSQL was lost again and again: is it being restarted?") from error
                lost = isinstance(error, psycopg.OperationalError) and connection is not None and connection.broken
                if pool is not None and (lost or (isinstance(error, PoolTimeout) and not self._in_use)):
                    # It would wait ever longer before it tries again. A new one asks at once.
                    self._drop(pool)
                if not (tries and isinstance(error, RETRYABLE)):
                    raise translate(error) from error

    def in_transaction(self, work: Callable[[Connection[Row]], T]) -> T:
        """`transact` for work that needs several round trips in one transaction."""

        def wrapped(connection: Connection[Row]) -> T:
            with connection.transaction():
                return work(connection)

        return self.transact(wrapped)

    def change(self, work: Callable[[Connection[Row]], T]) -> T:
        """`in_transaction` for what is refused in a store that is shut. The lock comes first, and only then the look:
        whoever shuts the store after it waits until this has ended."""

        def wrapped(connection: Connection[Row]) -> T:
            keep_to_indexes(connection)
            if self.on_all(connection, [("hold_fence", {}), ("is_shut", {})])[1]:
                raise FenceShut
            return work(connection)

        return self.in_transaction(wrapped)

    def change_all(self, *calls: Call) -> list[list[Row]]:
        """Several statements as one such change; the rows of each."""
        return self.change(lambda connection: self.on_all(connection, calls))

    def _pipelined(
        self, connection: Connection[Row], calls: Sequence[Call], *, whole_tables: bool = False
    ) -> list[list[Row]]:
        # Without a COMMIT of its own the transaction ends when the pipeline does, and psycopg (3.3) cannot report an
        # error there: it raises an IndexError or "cannot exit pipeline mode" in place of what PostgreSQL said.
        with pipeline(connection):
            connection.execute(b"BEGIN ISOLATION LEVEL READ COMMITTED")
            if whole_tables:
                connection.execute(b"SET LOCAL enable_seqscan = on")
            else:
                keep_to_indexes(connection)
            cursors = [self._start(connection, name, params) for name, params in calls]
            connection.execute(b"COMMIT")
        return [_rows(cursor) for cursor in cursors]

    def _start(self, connection: Connection[Row], name: str, params: Mapping[str, Any]) -> RawCursor[Row]:
        sql, values = self._written(name, params)
        cursor = RawCursor(connection)
        return cursor.execute(sql, values, binary=True, prepare=False if isinstance(name, Anew) else None)

    def _written(self, name: str, params: Mapping[str, Any]) -> tuple[bytes, list[Any]]:
        """The statement as the server takes it, and its values in order."""
        sql, names = self._sql[name]
        return sql, [params[name] for name in names]

    # --- Connections -------------------------------------------------------------------------------------

    @contextmanager
    def dedicated(self) -> Iterator[Connection[Row]]:
        """A connection of its own, outside the pool: for migrations."""
        with translated(), psycopg.connect(self._url) as connection:
            _configure(connection)
            yield connection

    def connect_alone(self) -> Connection[Row] | None:
        """A connection outside the pool that its taker keeps and closes: for listening. None where notifications do
        not arrive, because the server's end is shared with others."""
        with translated():
            # The server may go away without a word, and nobody ever writes to this connection.
            target = make_conninfo("", **{**_KEEP_ALIVE, **conninfo_to_dict(self._url)})
            connection = psycopg.connect(target, autocommit=True, prepare_threshold=None)
        try:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
        except BaseException:
            connection.close()
            raise
        if row is None or row[0] != connection.info.backend_pid:
            connection.close()
            return None
        return connection

    def close(self) -> None:
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
            parked, self._parked = self._parked, None
        if pool is not None and self._pool_pid == os.getpid():
            if parked is not None:
                pool.putconn(parked)
            pool.close()

    def _drop(self, pool: Pool) -> None:
        with self._lock:
            if self._pool is pool:
                self._pool = None
                parked, self._parked = self._parked, None
            else:
                parked = None
        if parked is not None:
            parked.close()
        pool.close(timeout=0)

    def _take(self, pool: Pool) -> PooledConnection:
        """A connection of the pool. One that is free is kept at hand, because for a caller that makes one call after
        the other the pool's book-keeping is a good part of what a call costs."""
        with self._lock:
            parked = self._parked
            if parked is not None and pool is self._pool:
                self._parked = None
                self._in_use += 1
                return parked
            self._waiting += 1
        connection = None
        try:
            connection = pool.getconn()
            return connection
        finally:
            with self._lock:
                self._waiting -= 1
                self._in_use += connection is not None

    def _give_back(self, pool: Pool, connection: PooledConnection) -> None:
        idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        with self._lock:
            self._in_use -= 1
            # While anybody waits for the pool, everything goes back to it.
            if idle and self._parked is None and not self._waiting and pool is self._pool:
                self._parked = connection
                return
        pool.putconn(connection)

    def _connections(self) -> Pool:
        pool = self._pool
        if pool is not None and self._pool_pid == os.getpid():
            return pool
        with self._lock:
            if self._closed:
                raise PoolClosed("the driver was closed")
            if self._pool is None or self._pool_pid != os.getpid():
                if self._pool_pid != os.getpid():  # what the parent works with is not ours
                    self._parked, self._in_use, self._waiting = None, 0, 0
                self._pool = self._open_pool()
                self._pool_pid = os.getpid()
            return self._pool

    def _open_pool(self) -> Pool:
        # A pool connects in the background and would report a wrong password as a time-out: ask once ourselves.
        with psycopg.connect(self._url) as probe:
            if probe.info.server_version < OLDEST_SERVER:
                raise StoreError(f"PostgreSQL {probe.info.server_version // 10_000} is too old: 14 or newer is needed")
            self._check(probe)
        pool = ConnectionPool(
            self._url,
            connection_class=PooledConnection,
            min_size=0,
            max_size=self._max_size,
            configure=_configure,
            timeout=CONNECT_TIMEOUT_S,
            max_idle=600,
            open=False,
            name="taskharbor",
        )
        pool.open()
        return pool


def keep_to_indexes(connection: Connection[Row]) -> None:
    """In this transaction, for connections that keep no settings of ours."""
    if connection.prepare_threshold is None:
        connection.execute(b"SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)")


def _end(connection: Connection[Row]) -> None:
    """End what a failed piece of work left open, so that it holds no locks while others try."""
    if not connection.closed and connection.pgconn.transaction_status != TransactionStatus.IDLE:
        with suppress(psycopg.Error):
            connection.rollback()


def _rows(cursor: RawCursor[Row]) -> list[Row]:
    """What the statement returned; nothing if it returns no rows."""
    return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []


def _configure(connection: Connection[Any]) -> None:
    connection.autocommit = True
    take_arrays(connection)
    # Each statement is to see what was committed before it, whatever the database has for a default.
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    # Behind a pooler the server process is not the one that said hello. Two clients would then use each other's
    # prepared statements, so do without them, and leave no setting behind for whoever comes next.
    row = connection.execute("SELECT set_config('TimeZone', 'UTC', false), pg_backend_pid()").fetchone()
    pooled = row is None or row[1] != connection.info.backend_pid
    connection.prepare_threshold = None if pooled else 0
    if not pooled:
        # Every hot statement finds its rows through an index. Plans made while the tables were empty, or from
        # statistics of another hour, must not think otherwise. Compiling them costs more than running them.
        # A client that froze or whose machine vanished in the middle of a transaction keeps its rows locked, and no
        # worker can take them over: the server is to notice by itself.
        # Each statement is to see what was committed before it, whatever the database has for a default.
        connection.execute(
            "SELECT set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false), "
            "set_config('default_transaction_isolation', 'read committed', false), "
            "set_config('plan_cache_mode', 'force_generic_plan', false), "
            "set_config('idle_in_transaction_session_timeout', '60s', false), "
            "set_config('tcp_keepalives_idle', '60', false), set_config('tcp_keepalives_interval', '10', false), "
            "set_config('tcp_keepalives_count', '3', false)"
        )


def store_time(connection: Connection[Row]) -> datetime:
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    moment: datetime = row[0]
    return moment
