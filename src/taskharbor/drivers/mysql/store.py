"""Running statements: sessions set up our way, transactions that are tried again, errors in our own words."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeVar

import pymysql

from taskharbor.core.errors import PayloadTooLarge, StoreUnavailable, TaskHarborError
from taskharbor.core.intake import Admitted
from taskharbor.drivers.fence import FenceShut
from taskharbor.drivers.joining import Query
from taskharbor.drivers.mysql import schema
from taskharbor.drivers.mysql.address import Address
from taskharbor.drivers.mysql.connecting import connect
from taskharbor.drivers.mysql.errors import is_deadlock, is_lost, number_of, translate
from taskharbor.drivers.mysql.pool import Connection, Pool
from taskharbor.drivers.mysql.rows import job_params
from taskharbor.drivers.mysql.values import (
    BulkInsert,
    chunks,
    ids_text,
    items_text,
    list_literal,
    literal,
    sql_in_parts,
    text_literal,
)
from taskharbor.drivers.sqlfiles import Statements

T = TypeVar("T")
Row = tuple[Any, ...]

TRIES: Final = 10
MOST_WRITTEN: Final = 1_000
_NO_VALUE: Final = 1048


class Session:
    """One connection at work: runs the statements of our files by name."""

    def __init__(self, connection: Connection, statements: Statements, bulk: Mapping[str, BulkInsert]) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._statements = statements
        self._bulk = bulk

    def rows(self, statement: str, **params: Any) -> Sequence[Row]:
        self._execute(self._cursor.mogrify(self._statements[statement], params))
        rows: Sequence[Row] = self._cursor.fetchall()
        return rows

    def rows_of_each(self, statement: str, each: Sequence[Mapping[str, Any]]) -> Sequence[Row]:
        """One answer put together from the same SELECT with several sets of values, in one round trip."""
        parts = [self._cursor.mogrify(self._statements[statement], params) for params in each]
        self._execute(parts[0] if len(parts) == 1 else " UNION ALL ".join(f"({part})" for part in parts))
        rows: Sequence[Row] = self._cursor.fetchall()
        return rows

    def run(self, statement: str, **params: Any) -> int:
        """Run a statement and return how many rows it changed."""
        return self._execute(self._cursor.mogrify(self._statements[statement], params))

    def query(self, sql: str, values: Sequence[Any]) -> Sequence[Row]:
        """The rows of a statement that is in no file."""
        self._execute(self._cursor.mogrify(sql, values))
        rows: Sequence[Row] = self._cursor.fetchall()
        return rows

    def query_many(self, sql: str, each: Sequence[Sequence[Any]]) -> None:
        """A statement that is in no file with any number of sets of values; an INSERT takes many at a time."""
        head, inserts, row = sql.partition(" VALUES ")
        row, clash, else_what = row.partition(" ON DUPLICATE KEY ")
        texts: list[str] = [self._cursor.mogrify(row if inserts else sql, values) for values in each]
        whole = sql_in_parts(f"{head} VALUES ", texts) if inserts else texts
        for text in whole:
            self._execute(f"{text}{clash}{else_what}")

    def answer(self, query: Query) -> Sequence[Row]:
        """The rows of a query with one set of values."""
        assert isinstance(query.params, Mapping)
        return self.rows(query.name, **query.params)

    def rows_by_id(self, statement: str, ids: Sequence[str], **params: Any) -> list[Row]:
        """Rows for any number of ids."""
        found: list[Row] = []
        for part in chunks(ids):
            found.extend(self.rows(statement, ids=list_literal(part), **params))
        return found

    def run_by_id(self, statement: str, ids: Sequence[str], **params: Any) -> int:
        return sum(self.run(statement, ids=list_literal(part), **params) for part in chunks(ids))

    def run_items(self, statement: str, items: Sequence[Mapping[str, Any]], **params: Any) -> int:
        """A set-based statement over items given as JSON."""
        return sum(self.run(statement, items=text_literal(text), **params) for text in items_text(items))

    def run_ids(self, statement: str, ids: Sequence[str], **params: Any) -> int:
        """A set-based statement over ids given as JSON."""
        return sum(self.run(statement, items=text_literal(text), **params) for text in ids_text(ids))

    def insert(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Any number of rows with one of our single-row INSERTs."""
        names, escape = self._bulk[statement].names, self._connection.escape
        self.insert_texts(statement, (",".join([literal(row[name], escape) for name in names]) for row in rows))

    def refuse_shut(self) -> None:
        if self.rows("is_shut"):
            raise FenceShut

    def insert_jobs(self, jobs: Iterable[Admitted], *, fenced: bool) -> None:
        """The same for jobs, which come in such numbers that what they have in common is written out once. `fenced`,
        the first has no id in a store that is shut, which the server refuses: by then this transaction holds the
        table, so that whoever shuts the store later waits for it."""
        names, escape = self._bulk["insert_job"].names[2:], self._connection.escape
        written: dict[tuple[Any, ...], str] = {}
        shut = f"IF(EXISTS ({self._statements['is_shut']}), NULL, " if fenced else ""

        def texts() -> Iterator[str]:
            nonlocal shut
            for job in jobs:
                common = job[1:4] + job[5:15]
                text = written.get(common)
                if text is None:
                    params = job_params(job)
                    text = ",".join([literal(params[name], escape) for name in names])
                    if len(written) < MOST_WRITTEN:
                        written[common] = text
                id, shut = f"{shut}{escape(job.id)}{')' if shut else ''}", ""
                yield f"{id},x'{job.payload.hex()}',{text}"

        try:
            self.insert_texts("insert_job", texts())
        except pymysql.err.MySQLError as error:
            if fenced and number_of(error) == _NO_VALUE:
                raise FenceShut from None
            raise

    def insert_texts(self, statement: str, rows: Iterable[str]) -> None:
        for sql in self._bulk[statement].statements(rows):
            self._execute(sql)

    @property
    def last_id(self) -> int:
        """What the last statement passed to LAST_INSERT_ID()."""
        return int(self._cursor.lastrowid)

    def _execute(self, sql: str) -> int:
        most = self._connection.taskharbor_max_packet
        # The server would answer by hanging up.
        if 4 * len(sql) > most and len(sql.encode("utf-8", "surrogateescape")) >= most:
            raise PayloadTooLarge(
                f"the server takes at most {most:,} bytes in one statement: raise its max_allowed_packet, "
                "or store the data elsewhere and enqueue a reference to it"
            )
        changed: int = self._cursor.execute(sql)
        return changed


class Store:
    """The server behind a pool. `read` runs single statements, `write` a transaction."""

    def __init__(self, address: Address, prefix: str) -> None:
        self._prefix = prefix
        self._statements = Statements(schema.PACKAGE, prefix, "pyformat")
        many = ("insert_job", "take_key", "import_job", "import_fact")
        self._bulk = {name: BulkInsert(self._statements[name]) for name in many}
        self._pool = Pool(lambda: connect(address), address.pool_size)
        self._checked = False

    def read(self, work: Callable[[Session], T]) -> T:
        """Run `work` without a transaction: every statement sees what is committed by then."""
        return self._attempt(lambda connection: work(self._session(connection)))

    def write(self, work: Callable[[Session], T]) -> T:
        """Run `work` in a transaction. It may run several times, but takes effect once or not at all."""

        def transaction(connection: Connection) -> T:
            session = self._session(connection)
            connection.begin()
            result = work(session)
            try:
                connection.commit()
            except Exception as error:
                if is_lost(error):
                    raise StoreUnavailable(
                        "the connection was lost during the commit: the change may or may not have been kept"
                    ) from error
                raise
            return result

        return self._attempt(transaction)

    def change(self, work: Callable[[Session], T]) -> T:
        """`write` for what is refused in a store that is shut. The lock comes first, and only then the look: whoever
        shuts the store after it waits until this has ended."""

        def fenced(session: Session) -> T:
            session.run("hold_fence")
            session.refuse_shut()
            return work(session)

        return self.write(fenced)

    def snapshot(self, work: Callable[[Session], T]) -> T:
        """Run `work` so that all its statements see the store at the same moment."""

        def transaction(connection: Connection) -> T:
            session = self._session(connection)
            connection.query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            result = work(session)
            connection.commit()
            return result

        return self._attempt(transaction)

    def migrate(self) -> None:
        self._checked = False
        self._attempt(lambda connection: schema.migrate(connection, self._prefix))

    def close(self) -> None:
        self._pool.close()

    @cached_property
    def identity(self) -> str:
        """What tells this store from every other."""
        return self.read_identity()

    def read_identity(self) -> str:
        return str(self.read(lambda session: session.rows("store_id"))[0][0])

    def raw_clock(self) -> Any:
        """The server's time, also before there are tables."""
        return self._attempt(lambda connection: self._bare_session(connection).rows("clock")[0][0])

    def _bare_session(self, connection: Connection) -> Session:
        return Session(connection, self._statements, self._bulk)

    def _session(self, connection: Connection) -> Session:
        if not self._checked:
            schema.check_version(connection, self._prefix)
            self._checked = True
        return self._bare_session(connection)

    def _attempt(self, work: Callable[[Connection], T]) -> T:
        failure: Exception
        for number in range(1, TRIES + 1):
            try:
                with self._pool.connection() as connection:
                    try:
                        return work(connection)
                    except TaskHarborError as error:
                        # This is the answer; all that is open is whether the connection is still good.
                        if not _rolled_back(connection):
                            raise
                        failure = error
                    except pymysql.err.MySQLError as error:
                        if is_lost(error):
                            raise
                        connection.rollback()
                        failure = error
            except pymysql.err.MySQLError as error:
                failure = error
            if isinstance(failure, TaskHarborError):
                raise failure
            if number == TRIES or not self._worth_another_try(failure, number):
                break
        raise translate(failure) from failure

    def _worth_another_try(self, failure: Exception, number: int) -> bool:
        if is_deadlock(failure):
            time.sleep(random.uniform(0, min(0.2, 0.005 * 2**number)))
            return True
        if is_lost(failure) and number <= 2:
            # Nothing was committed. Most likely the server was restarted and every resting connection is dead.
            self._pool.drop_idle()
            return True
        return False


def _rolled_back(connection: Connection) -> bool:
    try:
        connection.rollback()
    except pymysql.err.MySQLError:
        return False
    return True
