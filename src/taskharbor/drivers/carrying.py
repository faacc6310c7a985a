"""What the carriers of the SQL stores share.

Tables with plain columns are read and written by statements made from `core.carrying.TABLES`: they are the same for
every table and, but for a few words, on every store. Jobs and facts have statements of their own in the `.sql` files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from taskharbor.core.carrying import (
    HISTORY,
    JOBS,
    MARKS,
    TABLES,
    Clash,
    Flows,
    Lifted,
    Pack,
    Part,
    Place,
    Row,
    digest,
    json_text,
)
from taskharbor.core.errors import MoveFailed
from taskharbor.core.fairness import TAGGED_BEFORE, tag_of, tag_time
from taskharbor.core.model import HELD, Job, Status
from taskharbor.drivers.rows import fact_params, live_params

T = TypeVar("T")
_NAMES: Final = {"leaders": "leader"}
_OVER: Final = "'done', 'expired', 'cancelled'"
_AT_ONCE: Final = 200
"""Keys in one question."""


class Hands(Protocol):
    """What a transaction of a dialect can do for a carrier."""

    def rows(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """The rows of a statement, times as they are kept."""
        ...

    def many(self, sql: str, each: Sequence[Sequence[Any]]) -> None:
        """A statement with any number of sets of values."""
        ...

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Live jobs, or facts."""
        ...

    def jobs(self, ids: Sequence[str]) -> Sequence[tuple[Job, Sequence[Any]]]:
        """These live jobs, each with where it stands in line, its true due time if that is another, and the bucket
        and the place of its bench."""
        ...

    def remove(self, ids: Sequence[str]) -> None:
        """Live jobs, with their benches."""
        ...


class SqlCarrier(ABC):
    """`core.carrying.Carrier` over a few things that a dialect can do. `mark` stands for a value in its SQL."""

    mark = "?"
    note_name = "key"
    bench_priority = "priority"
    lock = ""
    """How rows are locked, passing over those that are."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    # --- What a dialect fills in -------------------------------------------------------------------------------

    @abstractmethod
    def _read(self, work: Callable[[Hands], T]) -> T: ...

    @abstractmethod
    def _write(self, work: Callable[[Hands], T]) -> T: ...

    @abstractmethod
    def _jobs(self, after: str, limit: int) -> Sequence[tuple[Job, Sequence[Any]]]:
        """As `Hands.jobs`, those behind an id."""

    @abstractmethod
    def _facts(self, after: str | None, limit: int) -> Sequence[Any]: ...

    @abstractmethod
    def _time_in(self, moment: datetime) -> Any: ...

    @abstractmethod
    def _time_out(self, kept: Any) -> datetime: ...

    @abstractmethod
    def _clashing(self, clash: Clash, keys: Sequence[str], others: Sequence[str]) -> str:
        """What stands behind an INSERT."""

    def _more(self, table: str) -> dict[str, Any]:
        """Columns that this dialect alone has, and what they are to hold."""
        return {}

    def _behind(self, names: Sequence[str], after: Place) -> tuple[str, list[Any]]:
        marks = ", ".join([self.mark] * len(names))
        return f"({', '.join(names)}) > ({marks})", list(after)

    # --- Rows out ----------------------------------------------------------------------------------------------

    def take(self, table: str, after: Place | None, limit: int) -> Sequence[Row]:
        if table == HISTORY:
            return [(fact,) for fact in self._facts(str(after[0]) if after else None, limit)]
        if table == JOBS:
            found = self._jobs(str(after[0]) if after else "", limit)
            return [_job_row(job, *place) for job, place in found]
        columns, keys = TABLES[table]
        names = list(columns)
        condition, values = self._behind(names[:keys], after) if after else ("1 = 1", [])
        if table == "queues":
            condition = f"{condition} AND {self._no_marks()}"
        return self._select(table, f"{condition} ORDER BY {', '.join(names[:keys])} LIMIT {limit:d}", values)

    def find(self, table: str, places: Sequence[Place]) -> Sequence[Row]:
        if table == JOBS:
            ids = [str(place[0]) for place in places]
            return [_job_row(job, *place) for job, place in self._read(lambda hands: hands.jobs(ids))]
        columns, keys = TABLES[table]
        same = f"({' AND '.join(f'{name} = {self.mark}' for name in list(columns)[:keys])})"
        found: list[Row] = []
        for start in range(0, len(places), _AT_ONCE):
            part = places[start : start + _AT_ONCE]
            condition = " OR ".join([same] * len(part))
            found += self._select(table, condition, [value for place in part for value in place])
        return found

    def known(self, ids: Sequence[str]) -> set[str]:
        def look(hands: Hands) -> set[str]:
            found: set[str] = set()
            for part in _parts(ids):
                some = ", ".join([self.mark] * len(part))
                live = f"SELECT id FROM {self._prefix}jobs WHERE id IN ({some})"
                over = f"SELECT job_id FROM {self._prefix}history WHERE job_id IN ({some}) AND status IN ({_OVER})"
                found.update(str(row[0]) for sql in (live, over) for row in hands.rows(sql, part))
            return found

        return self._read(look)

    def count(self, table: str) -> int:
        condition = self._no_marks() if table == "queues" else "1 = 1"
        sql = f"SELECT count(*) FROM {self._name(table)} WHERE {condition}"
        return int(self._read(lambda hands: hands.rows(sql, []))[0][0])

    def lift(self, after: str, limit: int, pack: Pack, flows: Flows) -> Lifted:
        condition = f"id > {self.mark} AND status IN ('ready', 'dlq')"
        values: list[Any] = [after]
        if flows == "held":
            condition += f" AND due_was IS NULL AND due_at >= {self.mark}"
            values.append(self._time_in(HELD))
        sql = f"SELECT id FROM {self._prefix}jobs WHERE {condition} ORDER BY id LIMIT {limit:d} {self.lock}"

        def work(hands: Hands) -> Lifted:
            seen = [str(row[0]) for row in hands.rows(sql, values)]
            steps = set() if flows == "all" else self._steps(hands, seen)
            ids = [id for id in seen if flows == "all" or (id in steps) == (flows == "held")]
            rows = [(job, None, None) for job, _ in hands.jobs(ids)] if ids else []
            if rows:
                hands.remove(ids)
                self._put_notes(hands, pack(rows))
            return Lifted(rows, seen[-1] if len(seen) == limit else None)

        return self._write(work)

    def _steps(self, hands: Hands, ids: Sequence[str]) -> set[str]:
        """Which of these jobs belong to workflows."""
        found: set[str] = set()
        for part in _parts(ids):
            some = ", ".join([self.mark] * len(part))
            rows = hands.rows(f"SELECT job_id FROM {self._prefix}steps WHERE job_id IN ({some})", part)
            found.update(str(row[0]) for row in rows)
        return found

    # --- Rows in -----------------------------------------------------------------------------------------------

    def bring(self, parts: Sequence[Part], notes: Mapping[str, str | None]) -> None:
        def work(hands: Hands) -> None:
            for part in parts:
                if part.rows:
                    self._put(hands, part)
            self._put_notes(hands, notes)

        self._write(work)

    def _put(self, hands: Hands, part: Part) -> None:
        table, rows, clash = part
        if table == HISTORY:
            hands.insert(HISTORY, [fact_params(row[0]) for row in rows])
        elif table == JOBS:
            self._put_jobs(hands, rows)
        else:
            columns, keys = TABLES[table]
            more = self._more(table)
            kinds = list(columns.values())
            values = [
                [*(self._in(kind, value) for kind, value in zip(kinds, row, strict=True)), *more.values()]
                for row in rows
            ]
            names = (*columns, *more)
            ending = self._clashing(clash, names[:keys], names[keys:])
            hands.many(self._insert(self._name(table), names) + ending, values)

    def _put_jobs(self, hands: Hands, rows: Sequence[Row]) -> None:
        hands.insert(JOBS, [_job_params(*row) for row in rows])
        if benched := [self._bench_values(job, tag, bucket) for job, tag, bucket in rows if bucket is not None]:
            names = ("job_id", "bucket", self.bench_priority, "position")
            hands.many(self._insert(f"{self._prefix}bench", names), benched)
        kept = {job.id: job for job, _ in hands.jobs([row[0].id for row in rows])}
        for job, *_ in rows:
            if job.id not in kept or digest([*live_params(kept[job.id]).values()]) != digest(
                [*live_params(job).values()]
            ):
                raise MoveFailed(f"job {job.id} would not be the same in the new store: nothing of it was kept there")

    def clear(self, table: str, notes: Mapping[str, str | None]) -> None:
        condition = self._no_marks() if table == "queues" else "1 = 1"

        def work(hands: Hands) -> None:
            hands.many(f"DELETE FROM {self._name(table)} WHERE {condition}", [()])
            if table == JOBS:
                hands.many(f"DELETE FROM {self._prefix}bench", [()])
            self._put_notes(hands, notes)

        self._write(work)

    def writers_ended(self, wait_s: float) -> bool:
        return True

    # --- Notes -------------------------------------------------------------------------------------------------

    def note(self, name: str) -> str | None:
        sql = f"SELECT value FROM {self._prefix}meta WHERE {self.note_name} = {self.mark}"
        rows = self._read(lambda hands: hands.rows(sql, [name]))
        return str(rows[0][0]) if rows else None

    def write_notes(self, notes: Mapping[str, str | None]) -> None:
        self._write(lambda hands: self._put_notes(hands, notes))

    def _put_notes(self, hands: Hands, notes: Mapping[str, str | None]) -> None:
        if not notes:
            return
        meta = f"{self._prefix}meta"
        kept = [(name, text) for name, text in notes.items() if text is not None]
        hands.many(f"DELETE FROM {meta} WHERE {self.note_name} = {self.mark}", [(name,) for name in notes])
        if kept:
            hands.many(self._insert(meta, (self.note_name, "value")), kept)

    # --- Values ------------------------------------------------------------------------------------------------

    def _name(self, table: str) -> str:
        return self._prefix + _NAMES.get(table, table)

    def _no_marks(self) -> str:
        return " AND ".join(f"name <> '{name}'" for name in MARKS)

    def _select(self, table: str, condition: str, values: Sequence[Any]) -> list[Row]:
        columns = TABLES[table].columns
        sql = f"SELECT {', '.join(columns)} FROM {self._name(table)} WHERE {condition}"
        rows = self._read(lambda hands: hands.rows(sql, values))
        kinds = list(columns.values())
        return [tuple(self._out(kind, value) for kind, value in zip(kinds, row, strict=True)) for row in rows]

    def _insert(self, table: str, names: Sequence[str]) -> str:
        return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join([self.mark] * len(names))})"

    def _bench_values(self, job: Job, tag: int | None, bucket: str) -> list[Any]:
        place = job.due_at if tag is None else tag_time(tag)
        return [job.id, bucket, job.priority, self._time_in(place)]

    def _in(self, kind: str, value: Any) -> Any:
        if value is None:
            return None
        return self._time_in(value) if kind == "time" else self._flag_in(value) if kind == "flag" else value

    def _flag_in(self, value: bool) -> Any:
        return int(value)

    def _out(self, kind: str, value: Any) -> Any:
        if kind == "json":
            return json_text(value)
        if value is None:
            return None
        match kind:
            case "time":
                return self._time_out(value)
            case "flag":
                return bool(value)
            case "real":
                return float(value)
            case "bytes":
                return bytes(value)
        return value


def upsert(clash: Clash, keys: Sequence[str], others: Sequence[str]) -> str:
    """In the words of PostgreSQL and SQLite."""
    if clash == "refuse":
        return ""
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    done = f"UPDATE SET {changes}" if clash == "replace" else "NOTHING"
    return f" ON CONFLICT ({', '.join(keys)}) DO {done}"


def _parts(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE)]


def _job_row(job: Job, place: datetime, due_was: datetime | None, bucket: str | None, seat: datetime | None) -> Row:
    if job.status is not Status.READY or due_was is None:
        return (job, None, None)
    benched = bucket if place == HELD else None
    held = place if benched is None or seat is None else seat
    return (job, tag_of(held) if held < TAGGED_BEFORE and held != due_was else None, benched)


def _job_params(job: Job, tag: int | None, bucket: str | None) -> dict[str, Any]:
    """The columns of a live job; its place in line stands where claims look for it."""
    place = HELD if bucket is not None else job.due_at if tag is None else tag_time(tag)
    return {**live_params(job), "due_at": place, "due_was": None if place == job.due_at else job.due_at}
