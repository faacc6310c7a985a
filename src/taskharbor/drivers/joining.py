"""Enqueue inside the caller's own transaction: the job exists exactly if the caller commits.

What to run is written once, as a generator that yields queries and is sent their rows; whether the connection is
synchronous or not, and whose library it is, is the business of the runner. A driver says which kinds of
connection it can join and gives its statements in both parameter styles.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

from taskharbor.core.contract import Answers
from taskharbor.core.errors import InvalidInput, SchemaMissing, StoreUnavailable
from taskharbor.core.intake import Admitted, Batch, check_duplicate, id_taken
from taskharbor.core.model import Status
from taskharbor.core.unique import Verdict
from taskharbor.drivers.fence import FenceShut
from taskharbor.drivers.rows import merge_answers
from taskharbor.drivers.sqlfiles import Statements

Row = Sequence[Any]
Params = Mapping[str, Any]
T = TypeVar("T")


class Query(NamedTuple):
    """A statement by name, or `raw` SQL without values, and what to run it with: once, or once per item."""

    name: str
    params: Params | Sequence[Params] = {}
    raw: bool = False


Steps = Generator[Query, Sequence[Row], Answers]
FenceSteps = Generator[Query, Sequence[Row], bool]
Fence = Callable[[Sequence[Admitted]], FenceSteps]
"""Whether the store is shut, asked when the jobs that are new have been written."""
RowOf = Callable[[Admitted], Params]

_SAVEPOINT: Final = "taskharbor_enqueue"
TRIES: Final = 5


def enqueue_steps(
    batch: Batch, job_params: RowOf, key_params: RowOf, fence: Fence, *, id_check: str | None = None
) -> Steps:
    """Take the keys, then insert the jobs whose key was free. Needs four statements from the driver:

    `take_key` returns a row exactly if the key now belongs to `:id`; `get_key` returns the holder's id and payload
    hash; `insert_job` inserts one job, and `delete_job` takes it back. `id_check` may name a fifth that returns a row
    if `:id` is taken; it is asked for the ids that the caller chose.
    """
    ids = [job.id for job in batch.fresh]
    if len(set(ids)) < len(ids):
        raise id_taken(next(id for id in ids if ids.count(id) > 1))
    guarded = len(batch.fresh) > 1 or batch.fresh[0].idempotency_key is not None
    if guarded:
        # If the batch is refused, the caller may still go on and commit: then none of it may stay behind.
        yield Query(f"SAVEPOINT {_SAVEPOINT}", raw=True)
    try:
        existing: dict[str, str] = {}
        keyed = [job for job in batch.fresh if job.idempotency_key is not None]
        # Everybody takes keys in the same order, so that two batches cannot wait for each other in a circle.
        for job in sorted(keyed, key=lambda job: (job.dedupe_scope, job.idempotency_key)):
            params = key_params(job)
            for _ in range(TRIES):
                if (yield Query("take_key", params)):
                    break
                holder = yield Query("get_key" if job.duplicates.while_in is None else "lock_key", params)
                if holder:  # otherwise it was forgotten in between, and the key is free again
                    verdict = yield from judge_holder(job, holder[0][0], params, job_params)
                    if verdict is not Verdict.INSERT:
                        check_duplicate(job, *holder[0])
                        existing[job.id] = holder[0][0]
                    break
            else:
                raise StoreUnavailable(f"idempotency key {job.idempotency_key!r} keeps changing hands: try again")
        fresh = [job for job in batch.fresh if job.id not in existing]
        new = [job_params(job) for job in fresh]
        if id_check is not None:
            for job_id in set(ids).intersection(batch.chosen_ids).difference(existing):
                if (yield Query(id_check, {"id": job_id})):
                    raise id_taken(job_id)
        if new:
            yield Query("insert_job", new if len(new) > 1 else new[0])
        # Nothing else has written anything.
        writes = bool(fresh) or any(job.duplicates.replaces for job in batch.fresh)
        if writes and (yield from fence(fresh)):
            if not guarded:
                yield Query("delete_job", {"id": ids[0]})
            raise FenceShut
    except Exception:
        if guarded:
            yield Query(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}", raw=True)
            yield Query(f"RELEASE SAVEPOINT {_SAVEPOINT}", raw=True)
        raise
    if guarded:
        yield Query(f"RELEASE SAVEPOINT {_SAVEPOINT}", raw=True)
    return merge_answers(batch, existing)


def judge_holder(
    job: Admitted, holder: str, key_params: Params, job_params: RowOf
) -> Generator[Query, Sequence[Row], Verdict]:
    """What becomes of a job whose key is held and locked; the key is moved, or the holder replaced, as it needs.
    Needs `lock_holder` and `finished_status`, which return where a job stands, `move_key` and `replace_job`."""
    if job.duplicates.while_in is None:
        return Verdict.KEEP
    found = (yield Query("lock_holder", {"id": holder})) or (yield Query("finished_status", {"id": holder}))
    verdict = job.duplicates.verdict(Status(found[0][0]) if found else None)
    if verdict is Verdict.INSERT:
        yield Query("move_key", key_params)
    elif verdict is Verdict.REPLACE and not job.duplicates.raises:
        yield Query("replace_job", {**job_params(job.in_place_of(holder)), "holder": holder})
        yield Query("move_key", {**key_params, "id": holder})
    return verdict


class StoreMark:
    """Tells this store from every other one: `read` fetches the store's id through the driver's own connections."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read
        self._known: str | None = None

    def know(self) -> None:
        """Read it now, while whatever goes wrong is about the driver's own store."""
        if self._known is None:
            self._known = self._read()

    def is_mine(self, found: str) -> bool:
        if found == self._known:
            return True
        self._known = self._read()  # the tables may have been made anew since
        return found == self._known


def same_store(mark: StoreMark) -> Steps:
    """Refuse a connection to another store. Needs a statement `store_id`. To be run before anything is written."""
    rows = yield Query("store_id")
    if not rows or not mark.is_mine(str(rows[0][0])):
        raise another_store()
    return []


def another_store() -> InvalidInput:
    return InvalidInput(
        "the connection is to another store: pass a connection to the database of this driver, "
        "or open a driver for that one"
    )


@contextmanager
def missing_in_the_callers_database() -> Iterator[None]:
    """Tables that are missing are missing where the caller's connection leads, not where the driver does."""
    try:
        yield
    except SchemaMissing as error:
        raise missing_there() from error
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"the connection uses {error.encoding}, which has not every character of this job: connect with UTF-8"
        ) from error


def missing_there() -> SchemaMissing:
    return SchemaMissing(
        "the database of the connection has no TaskHarbor tables, or older ones: pass a connection to the database "
        "of this driver"
    )


class Joiner:
    """Runs steps on connections of one dialect. `libraries` are the modules whose connections it takes,
    `dialects` the SQLAlchemy dialect names."""

    def __init__(self, libraries: Sequence[str], dialects: Sequence[str], plain: Statements, named: Statements) -> None:
        self._libraries = tuple(libraries)
        self._dialects = tuple(dialects)
        self._plain = plain
        self._named = named

    def run(self, connection: Any, steps: Steps) -> Answers:
        kind = _library_of(connection)
        _refuse_unusable(connection)
        if kind == "sqlalchemy":
            connection = self._sqlalchemy_connection(connection)
            return drive(steps, lambda query: self._run_sqlalchemy(connection, query))
        if kind in self._libraries and _makes_cursors(connection):
            if _is_async(connection):
                raise _asynchronous()
            return drive(steps, lambda query: self._run_dbapi(connection, query))
        raise self._refusal(connection)

    async def arun(self, connection: Any, steps: Steps) -> Answers:
        kind = _library_of(connection)
        _refuse_unusable(connection)
        if kind == "sqlalchemy" and hasattr(connection, "run_sync"):
            result: Answers = await connection.run_sync(lambda inner: self.run(inner, steps))
            return result
        if kind in self._libraries and _is_async(connection) and _makes_cursors(connection):
            return await self._arun_dbapi(connection, steps)
        return self.run(connection, steps)

    async def _arun_dbapi(self, connection: Any, steps: Steps) -> Answers:
        rows: Sequence[Row] | None = None
        error: BaseException | None = None
        while True:
            try:
                query = steps.throw(error) if error is not None else steps.send(rows)  # type: ignore[arg-type]
            except StopIteration as done:
                answers: Answers = done.value
                return answers
            rows, error = None, None
            try:
                async with _cursor(connection) as cursor:
                    _make_plain(cursor)
                    sql, params, many = self._prepared(query, self._plain)
                    await (cursor.executemany(sql, params) if many else cursor.execute(sql, params))
                    rows = _plain(await cursor.fetchall()) if cursor.description and not many else []
            except Exception as failure:
                error = failure

    def _run_dbapi(self, connection: Any, query: Query) -> Sequence[Row]:
        sql, params, many = self._prepared(query, self._plain)
        cursor = _cursor(connection)
        _make_plain(cursor)
        try:
            if many:
                cursor.executemany(sql, params)
                return []
            cursor.execute(sql, params)
            return _plain(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()

    def _run_sqlalchemy(self, connection: Any, query: Query) -> Sequence[Row]:
        from sqlalchemy import text

        sql, params, many = self._prepared(query, self._named)
        result = connection.execute(text(sql), params)
        return _plain(list(result)) if not many and result.returns_rows else []

    def _sqlalchemy_connection(self, given: Any) -> Any:
        if hasattr(given, "run_sync"):
            raise _asynchronous()
        # A Session hands out the connection of its transaction; a Connection is one.
        connection = given.connection() if callable(getattr(given, "connection", None)) else given
        name = getattr(getattr(connection, "dialect", None), "name", None)
        if name not in self._dialects or not hasattr(connection, "execute"):
            raise self._refusal(given)
        return connection

    @staticmethod
    def _prepared(query: Query, statements: Statements) -> tuple[str, Any, bool]:
        sql = query.name if query.raw else statements[query.name]
        many = not isinstance(query.params, Mapping)
        return sql, query.params, many

    def _refusal(self, connection: Any) -> InvalidInput:
        takes = ", ".join((*self._libraries, *(f"SQLAlchemy ({name})" for name in self._dialects)))
        return InvalidInput(
            f"cannot enqueue through a {type(connection).__module__}.{type(connection).__name__}: "
            f"this store takes connections (not cursors or engines) of {takes}"
        )


def drive(steps: Generator[Query, Sequence[Row], T], run: Callable[[Query], Sequence[Row]]) -> T:
    """Run the steps to their end with `run`, which answers each query with its rows."""
    rows: Sequence[Row] | None = None
    error: BaseException | None = None
    while True:
        try:
            query = steps.throw(error) if error is not None else steps.send(rows)  # type: ignore[arg-type]
        except StopIteration as done:
            result: T = done.value
            return result
        rows, error = None, None
        try:
            rows = run(query)
        except Exception as failure:
            error = failure


def _asynchronous() -> InvalidInput:
    return InvalidInput("this connection is asynchronous: await aenqueue(…, connection=…) instead")


def _cursor(connection: Any) -> Any:
    """A cursor. With psycopg one of our own: the caller's may read statements in another way."""
    if _library_of(connection) != "psycopg":
        return connection.cursor()
    psycopg = sys.modules["psycopg"]  # it made the connection
    return psycopg.AsyncCursor(connection) if _is_async(connection) else psycopg.Cursor(connection)


def _make_plain(cursor: Any) -> None:
    """Have the library make tuples of rows: the caller's own choice may be anything, even one value of each row."""
    library = _library_of(cursor)
    if library == "psycopg":
        cursor.row_factory = lambda _: tuple
    elif library in ("sqlite3", "aiosqlite"):
        cursor.row_factory = None


def _plain(rows: Sequence[Any]) -> Sequence[Row]:
    """The rows as tuples of text and numbers, whatever the caller has its connection make of them."""
    plain = [tuple(row.values()) if isinstance(row, Mapping) else tuple(row) for row in rows]
    return [tuple(_as_text(value) for value in row) for row in plain]


def _as_text(value: Any) -> Any:
    """Some connections give bytes for text, and none of our questions here is for bytes."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _library_of(connection: Any) -> str:
    """The top-level module that the connection's class, or a class it extends, comes from."""
    for parent in type(connection).__mro__:
        root = parent.__module__.partition(".")[0]
        if root in ("sqlalchemy", "psycopg", "sqlite3", "pymysql"):
            return root
    return type(connection).__module__.partition(".")[0]


def _refuse_unusable(connection: Any) -> None:
    """Psycopg and SQLAlchemy have `closed`, PyMySQL has `open`; sqlite3 says it when it is used."""
    if getattr(connection, "closed", False) is True or getattr(connection, "open", True) is False:
        raise InvalidInput("the connection is closed: pass one that is open")
    if getattr(getattr(connection, "pgconn", None), "pipeline_status", False):  # psycopg
        raise InvalidInput(
            "the connection is in pipeline mode, where answers come late: enqueue before or behind that block, in the "
            "same transaction"
        )


def _makes_cursors(connection: Any) -> bool:
    """A cursor does not, and neither does whatever else a library may have."""
    return callable(getattr(connection, "cursor", None))


def _is_async(connection: Any) -> bool:
    return hasattr(connection, "__aenter__")
