"""Narrow access to a store for the pipeline: the history feed between two cursors, and the tables, as Arrow batches.

    store = open_store(url)
    upto = store.frontier()                       # fixed for the run: all at or below it can no longer change
    for after, until in store.split(last, upto, 4):
        for batch in store.read_history(after, until): ...

A store object holds at most one connection, opened when first needed; it pickles as its URL, so that executors open
their own. Reads are short and keyset-chunked: no snapshot is held from one chunk to the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self

from taskharbor.core.errors import InvalidCursor, InvalidInput, InvalidURL
from taskharbor.drivers.opening import StoreURL, parse_url, redacted

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_ROWS: Final = 50_000
"""Rows of one short read. A read of this size takes a fraction of a second on every store."""

Range = tuple[str | None, str]
"""Of the feed: behind the first cursor (None: from the beginning), up to and with the second."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What `read_table` selects by; what is None matches all. Times: jobs by when they were made, attempts by when
    they ended, dead letters by when they died, workers by their last heartbeat; `since` is in, `until` is not."""

    queue: str | None = None
    type: str | None = None
    tenant: str | None = None
    status: str | None = None
    since: datetime | None = None
    until: datetime | None = None


EVERYTHING: Final = Selection()


class PipelineStore(ABC):
    """A store as the pipeline sees it."""

    kind: str
    """postgres, mysql, sqlite or json."""

    reuse = False
    """Whether the connection may be kept for the next store that this process opens."""

    def __init__(self, url: StoreURL) -> None:
        self._parsed = url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({redacted(self._parsed.rest)!r})"

    def __reduce__(self) -> Any:
        return type(self), (self._parsed,)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @abstractmethod
    def store_id(self) -> str:
        """What tells this store from every other; the first part of its cursors."""

    @abstractmethod
    def frontier(self) -> str:
        """A cursor for the end of a run: everything at or below it is committed, and nothing can appear there."""

    def held_back(self, before: datetime) -> int:
        """Rows that ended before then and that the feed cannot show yet, because a transaction is open."""
        return 0

    @abstractmethod
    def order_of(self, cursor: str | None) -> tuple[int, ...]:
        """A key by which cursors of this store sort. Raises InvalidCursor for one of another store."""

    @abstractmethod
    def split(self, after: str | None, upto: str, parts: int) -> list[Range]:
        """At most `parts` ranges of about the same size, which together are the given one. None when it is empty."""

    @abstractmethod
    def ahead(self, after: str | None, upto: str, rows: int) -> str:
        """The cursor `rows` rows behind `after`, or `upto` where there are fewer."""

    @abstractmethod
    def read_history(
        self, after: str | None, upto: str, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The facts of a range in order, with the columns of `schemas.FEED`, or those of them that are asked for."""

    @abstractmethod
    def plan_table(self, table: str, selection: Selection, parts: int) -> list[Any]:
        """Parts of a table for `read_part`: values that pickle. Each job and each attempt is in one of them."""

    @abstractmethod
    def read_part(
        self, table: str, selection: Selection, part: Any, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one part, with the columns of the table in `schemas`, or those of them that are asked for."""

    def read_table(
        self,
        table: str,
        selection: Selection = EVERYTHING,
        columns: Sequence[str] | None = None,
        part: int = 0,
        parts: int = 1,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a table here and now, in one process; `part` of `parts` if not all of them."""
        if not 0 <= part < parts:
            raise InvalidInput(f"part must be from 0 to {parts - 1}, got {part}")
        for planned in self.plan_table(table, selection, parts)[part::parts]:
            yield from self.read_part(table, selection, planned, columns)

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection. The store may be used again and then opens another."""


def open_store(url: str, *, reuse: bool = False) -> PipelineStore:
    """The store at `url` for the pipeline. Nothing is opened before it is needed.

    With `reuse`, closing it may keep its connection for the next store that this process opens: for Spark's Python
    processes, which live on from task to task.
    """
    store = _store(parse_url(url))
    store.reuse = reuse
    return store


def _store(parsed: StoreURL) -> PipelineStore:
    match parsed.scheme:
        case "postgresql" | "postgres":
            from taskharbor.pipeline.store_postgres import PostgresStore

            return PostgresStore(parsed)
        case "mysql" | "mariadb":
            from taskharbor.pipeline.store_mysql import MysqlStore

            return MysqlStore(parsed)
        case "sqlite":
            from taskharbor.pipeline.store_sqlite import SqliteStore

            return SqliteStore(parsed)
        case "json":
            from taskharbor.pipeline.store_json import JsonStore

            return JsonStore(parsed)
        case "memory":
            raise InvalidURL(
                "memory:// lives inside one process, where Spark's executors cannot reach it: use sqlite:///jobs.db"
            )
        case other:
            raise InvalidURL(f"the pipeline cannot read {other}:// stores: use postgresql, mysql, sqlite or json")


def numbers_of(cursor: str | None, identity: str, count: int) -> tuple[int, ...]:
    """The numbers that end a cursor, behind the identity of its store. None is where every feed begins."""
    if cursor is None:
        return (0,) * count
    mine, *numbers = cursor.rsplit(":", count) if isinstance(cursor, str) else ("",)
    if mine != identity or len(numbers) != count or not all(_is_number(text) for text in numbers):
        raise InvalidCursor(f"cursor {cursor!r} is not from this store: start without one, and skip the rows you have")
    return tuple(map(int, numbers))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 20
