"""What the three SQL stores have in common: how tables become columns, and reads in short chunks along a key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import Outcome, Status
from taskharbor.pipeline import schemas
from taskharbor.pipeline.store import CHUNK_ROWS, PipelineStore, Range, Selection, numbers_of

if TYPE_CHECKING:
    import pyarrow as pa

Value = int | str
KeyValue = tuple[Value, ...]

FIRST_WIDE_ROWS: Final = 500
"""Of the first read with payloads: they may be a mebibyte each. Later reads are as large as these turn out to allow."""
CHUNK_BYTES: Final = 32 * 1024 * 1024
_WIDE: Final = frozenset({"payload", "result"})
_SAMPLES: Final = 400


@dataclass(frozen=True, slots=True)
class Key:
    """What a table is read along. `select` are its parts as columns, `parts` as they stand in conditions.

    As columns they get names of their own: ORDER BY xid would else mean the column that a cast of xid makes, and sort
    where an index has the order already.
    """

    select: tuple[str, ...]
    parts: tuple[str, ...]
    is_text: bool = False

    @property
    def order(self) -> str:
        return ", ".join(self.parts)

    @property
    def backwards(self) -> str:
        return ", ".join(f"{part} DESC" for part in self.parts)

    @property
    def listed(self) -> list[str]:
        return [f"{column} AS {name}" for column, name in zip(self.select, self.names, strict=True)]

    @property
    def names(self) -> list[str]:
        return [f"key_{number}" for number in range(len(self.parts))]


@dataclass(frozen=True, slots=True)
class View:
    """A table of the data source: where its rows are, which of them, along what they are read, what the options of a
    selection are called there."""

    source: str
    key: Key | None
    columns: Mapping[str, str]
    only: str = ""
    filters: Mapping[str, str] = field(default_factory=dict)
    time: str = ""


class SqlStore(PipelineStore):
    """A store in a database. A dialect says how values are written and how rows are fetched."""

    cursor_numbers = 1

    def __init__(self, url: Any) -> None:
        super().__init__(url)
        self._known_identity: str | None = None
        self._views = self._make_views()

    # --- What a dialect says -----------------------------------------------------------------------------------

    @abstractmethod
    def _make_views(self) -> dict[str, View]: ...

    @abstractmethod
    def _read_identity(self) -> str:
        """What cursors of this store begin with."""

    @abstractmethod
    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        """A small answer."""

    @abstractmethod
    def _fetch(self, sql: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """A large answer, with the columns of `schema`."""

    @abstractmethod
    def _text(self, text: str) -> str:
        """A text as SQL."""

    @abstractmethod
    def _moment(self, moment: datetime) -> str:
        """A time as SQL."""

    def _compared(self, key: Key, sign: str, values: KeyValue) -> str:
        written = [self._text(value) if isinstance(value, str) else str(value) for value in values]
        if len(written) == 1:
            return f"{key.parts[0]} {sign} {written[0]}"
        return f"({key.order}) {sign} ({', '.join(written)})"

    def _settled(self) -> str:
        """Which rows of history the feed may already show, as a condition."""
        return ""

    # --- The feed ----------------------------------------------------------------------------------------------

    @property
    def identity(self) -> str:
        if self._known_identity is None:
            self._known_identity = self._read_identity()
        return self._known_identity

    @property
    def store_id(self) -> str:
        return self.identity.rpartition(":")[2]

    def order_of(self, cursor: str | None) -> tuple[int, ...]:
        return numbers_of(cursor, self.identity, self.cursor_numbers)

    def frontier(self) -> str:
        return self._cursor(self._last(self._views["history"], self._settled()) or (0,) * self.cursor_numbers)

    def ahead(self, after: str | None, upto: str, rows: int) -> str:
        found = self._ahead(self._views["history"], self.order_of(after), self.order_of(upto), rows)
        return upto if found is None else self._cursor(found)

    def split(self, after: str | None, upto: str, parts: int) -> list[Range]:
        start, end = self.order_of(after), self.order_of(upto)
        bounds = self._bounds(self._views["history"], start, end, parts)
        cursors = [self._cursor(bound) for bound in bounds]
        return list(zip([after, *cursors[:-1]], cursors, strict=True)) if cursors else []

    def read_history(
        self, after: str | None, upto: str, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        yield from self._chunks("history", self.order_of(after), self.order_of(upto), (), columns)

    def _cursor(self, numbers: KeyValue) -> str:
        return ":".join([self.identity, *map(str, numbers)])

    def _bounds(self, view: View, start: KeyValue, end: KeyValue, parts: int) -> list[KeyValue]:
        """Where each part ends; the last one at `end`. Positions rise by one from row to row, pruned ones apart, so
        an even cut of them is an even cut of the rows."""
        first = self._first(view, start, end)
        if first is None:
            return []
        low, high = int(first[0]), int(end[0])
        parts = max(1, min(parts, high - low + 1))
        return [*((low + (high - low + 1) * number // parts - 1,) for number in range(1, parts)), end]

    def _first(self, view: View, start: KeyValue, end: KeyValue) -> KeyValue | None:
        """The first key behind `start` that is not behind `end`."""
        return self._probe(view, [self._above(view, start), self._upto(view, end)], 0)

    def _ahead(self, view: View, start: KeyValue | None, end: KeyValue, rows: int) -> KeyValue | None:
        """The key of the row that is `rows` behind `start`; None where there are fewer."""
        conditions = [self._upto(view, end)]
        if start is not None:
            conditions.append(self._above(view, start))
        return self._probe(view, conditions, rows - 1)

    def _probe(self, view: View, conditions: list[str], offset: int) -> KeyValue | None:
        key = _key_of(view)
        found = self._rows(
            f"SELECT {', '.join(key.listed)} FROM {view.source}{_where([view.only, *conditions])} "
            f"ORDER BY {key.order} LIMIT 1 OFFSET {offset}"
        )
        return tuple(found[0]) if found else None

    def _last(self, view: View, condition: str = "") -> KeyValue | None:
        key = _key_of(view)
        found = self._rows(
            f"SELECT {', '.join(key.listed)} FROM {view.source}{_where([view.only, condition])} "
            f"ORDER BY {key.backwards} LIMIT 1"
        )
        return tuple(found[0]) if found else None

    def _above(self, view: View, values: KeyValue) -> str:
        return self._compared(_key_of(view), ">", values)

    def _upto(self, view: View, values: KeyValue) -> str:
        return self._compared(_key_of(view), "<=", values)

    # --- Tables ------------------------------------------------------------------------------------------------

    def plan_table(self, table: str, selection: Selection, parts: int) -> list[Any]:
        view = self._views[table]
        self._conditions(table, selection)  # what is wrong with the options is best said before any work
        if view.key is None:
            return [(None, None)]
        end = self._last(view)
        if end is None:
            return []
        if view.key.is_text:
            bounds = [*(bound for bound in self._cuts(table, view, parts) if bound < end), end]
        else:
            bounds = self._bounds(view, (0,) * len(view.key.parts), end, parts)
        return list(zip([None, *bounds[:-1]], bounds, strict=True))

    def read_part(
        self, table: str, selection: Selection, part: Any, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        start, end = part
        yield from self._chunks(table, start, end, self._conditions(table, selection), columns)

    def _cuts(self, table: str, view: View, parts: int) -> list[KeyValue]:
        """Ids that cut a table into parts of about the same size."""
        if parts < 2:
            return []
        ids = sorted(self._sample_ids(table, view))
        return [(ids[len(ids) * number // parts],) for number in range(1, parts)] if len(ids) >= parts else []

    def _sample_ids(self, table: str, view: View) -> list[str]:
        """Ids spread evenly over the table: every so many of the live jobs, and as many of the finished ones."""
        live = f"{self._prefix}jobs"
        only = _where([view.only])
        count = int(self._rows(f"SELECT COUNT(*) FROM {live}{only}")[0][0])
        low, high = 0, 0
        if table == "jobs":
            low, high = self._rows(f"SELECT COALESCE(MIN(seq), 0), COALESCE(MAX(seq), 0) FROM {self._prefix}history")[0]
        step = max(1, (count + high - low) // _SAMPLES)
        numbered = f"SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS place FROM {live}{only}"
        found = self._rows(f"SELECT id FROM ({numbered}) AS numbered WHERE place % {step} = 0")
        if high:
            places = ", ".join(str(place) for place in range(low, high + 1, step))
            found += self._rows(f"SELECT job_id FROM {self._prefix}history WHERE seq IN ({places})")
        return [row[0] for row in found]

    def _conditions(self, table: str, selection: Selection) -> tuple[str, ...]:
        view = self._views[table]
        wanted = {name: value for name in ("queue", "type", "tenant", "status") if (value := getattr(selection, name))}
        conditions = []
        for name, value in wanted.items():
            check_option(table, name, value)
            conditions.append(f"{view.filters[name]} = {self._text(value)}")
        if selection.since is not None:
            conditions.append(f"{view.time} >= {self._moment(selection.since)}")
        if selection.until is not None:
            conditions.append(f"{view.time} < {self._moment(selection.until)}")
        return tuple(conditions)

    @property
    def _prefix(self) -> str:
        return self._parsed.prefix

    # --- Reading along a key -----------------------------------------------------------------------------------

    def _chunks(
        self,
        table: str,
        start: KeyValue | None,
        end: KeyValue | None,
        conditions: Sequence[str],
        columns: Sequence[str] | None,
    ) -> Iterator[pa.RecordBatch]:
        view = self._views[table]
        wanted = wanted_columns(table, columns)
        if view.key is None or end is None:
            yield from self._finished(view, wanted, self._fetch(*self._select(view, wanted, [*conditions], 0)))
            return
        yield from self._along(view, wanted, start, end, conditions)

    def _along(
        self, view: View, wanted: pa.Schema, start: KeyValue | None, end: KeyValue, conditions: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """One short read after the other, each behind the last row of the one before."""
        key = _key_of(view)
        limit = FIRST_WIDE_ROWS if _WIDE & set(wanted.names) else CHUNK_ROWS
        while start is None or start < end:
            stop = end
            if conditions:
                # Few rows may match: the read is bounded by what it looks at, not by what it finds.
                stop = self._ahead(view, start, end, CHUNK_ROWS) or end
            along = [*([self._above(view, start)] if start is not None else []), self._upto(view, stop)]
            rows = size = 0
            last = None
            query = self._select(view, wanted, [*along, *conditions], 0 if conditions else limit)
            for batch in self._fetch(*query):
                if batch.num_rows:
                    rows += batch.num_rows
                    size += batch.nbytes
                    last = tuple(batch.column(name)[batch.num_rows - 1].as_py() for name in key.names)
                    yield from self._finished(view, wanted, iter([batch]))
            if conditions:
                start = stop
            elif rows < limit or last is None:
                return
            else:
                start = last
                limit = max(1, min(CHUNK_ROWS, 10 * limit, CHUNK_BYTES * rows // max(1, size)))

    def _select(
        self, view: View, wanted: pa.Schema, conditions: list[str], limit: int, *, with_key: bool = True
    ) -> tuple[str, pa.Schema]:
        """The statement for the wanted columns, which begin with those of the key, and their schema."""
        import pyarrow as pa

        key = view.key if with_key else None
        kind = pa.string() if key and key.is_text else pa.int64()
        fields = [pa.field(name, kind) for name in (key.names if key else [])]
        expressions = key.listed if key else []
        for column in wanted:
            if column.name in view.columns:
                fields.append(column)
                expressions.append(view.columns[column.name])
        listed = ", ".join(expressions)
        sql = f"SELECT {listed} FROM {view.source}{_where([view.only, *conditions])}"
        if view.key is not None:
            sql += f" ORDER BY {view.key.order}"
        return sql + (f" LIMIT {limit}" if limit else ""), pa.schema(fields)

    def _finished(self, view: View, wanted: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches with the wanted columns. What is the same for all rows, or follows from others, need not travel
        and is made here."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            arrays = []
            for column in wanted:
                if column.name in view.columns:
                    arrays.append(batch.column(column.name))
                elif column.name == "store_id":
                    arrays.append(pa.repeat(pa.scalar(self.store_id), batch.num_rows))
                elif column.name == "success":
                    arrays.append(pc.equal(batch.column("outcome"), "succeeded"))
                else:  # position
                    parts = [pc.cast(batch.column(name), pa.string()) for name in _key_of(view).names]
                    arrays.append(pc.binary_join_element_wise(self.identity, *parts, ":"))
            yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


def wanted_columns(table: str, columns: Sequence[str] | None) -> pa.Schema:
    """Those that are asked for, else all of them."""
    return schemas.arrow(schemas.pick(schemas.SOURCE_TABLES[table], columns or view_columns(table)))


def chunk_rows() -> int:
    """Asked for at each read, so that tests can make it small."""
    return CHUNK_ROWS


def view_columns(table: str) -> list[str]:
    names: list[str] = schemas.SOURCE_TABLES[table].fieldNames()
    return names


_TAKES: Final[dict[str, tuple[str, ...]]] = {
    "jobs": ("queue", "type", "tenant", "status"),
    "attempts": ("queue", "type", "tenant", "status"),
    "dlq": ("queue", "type", "tenant"),
    "workers": (),
    "history": (),
}


def check_option(table: str, name: str, value: str) -> None:
    """InvalidInput unless the table can be selected by this option."""
    if name not in _TAKES[table]:
        known = ", ".join((*_TAKES[table], "since", "until"))
        raise InvalidInput(f"the table {table} cannot be selected by {name}: it takes {known}")
    if name == "status":
        values = [str(item) for item in (Status if table == "jobs" else Outcome)]
        if value not in values:
            raise InvalidInput(f"status of {table} must be one of {', '.join(values)}, got {value!r}")


def _key_of(view: View) -> Key:
    assert view.key is not None
    return view.key


def _where(conditions: Sequence[str]) -> str:
    given = [condition for condition in conditions if condition]
    return f" WHERE {' AND '.join(given)}" if given else ""
