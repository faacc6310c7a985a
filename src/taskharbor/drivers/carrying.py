"""What the carriers of the SQL stores share.

Tables with plain columns are read and written by statements made from `core.carrying.TABLES`: they are the same for
every table and, but for a few words, on every store. Jobs and facts have statements of their own in the `.sql` files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from taskharbor.core.carrying import HISTORY, JOBS, MOVING, TABLES, Place, Row, json_text
from taskharbor.core.fairness import TAGGED_BEFORE, tag_of, tag_time
from taskharbor.core.model import HELD, Job, Status
from taskharbor.drivers.rows import fact_params, live_params

Step = tuple[str, Sequence[Sequence[Any]]]
"""A statement, and sets of values to run it with."""
_NAMES: Final = {"leaders": "leader"}


class SqlCarrier(ABC):
    """`core.carrying.Carrier` over a few things that a dialect can do. `mark` stands for a value in its SQL."""

    mark = "?"
    note_name = "key"
    bench_priority = "priority"

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    # --- What a dialect fills in -------------------------------------------------------------------------------

    @abstractmethod
    def _read(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """The rows of a statement, times as they are kept."""

    @abstractmethod
    def _write(self, steps: Sequence[Step], rows: Mapping[str, Sequence[Any]]) -> None:
        """In one transaction: jobs and facts with the statements that `rows` names, then each of `steps`, a statement
        with any number of sets of values."""

    @abstractmethod
    def _jobs(self, after: str, limit: int) -> Sequence[tuple[Job, Sequence[Any]]]:
        """Live jobs behind an id, each with where it stands in line, its true due time if that is another, and the
        bucket and the place of its bench."""

    @abstractmethod
    def _facts(self, after: str | None, limit: int) -> Sequence[Any]: ...

    @abstractmethod
    def _time_in(self, moment: datetime) -> Any: ...

    @abstractmethod
    def _time_out(self, kept: Any) -> datetime: ...

    def _more(self, table: str) -> dict[str, Any]:
        """Columns that this dialect alone has, and what they are to hold."""
        return {}

    def _behind(self, names: Sequence[str], after: Place) -> tuple[str, list[Any]]:
        marks = ", ".join([self.mark] * len(names))
        return f"({', '.join(names)}) > ({marks})", list(after)

    # --- Rows --------------------------------------------------------------------------------------------------

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
            condition, values = f"{condition} AND name <> {self.mark}", [*values, MOVING]
        rows = self._read(
            f"SELECT {', '.join(names)} FROM {self._name(table)} WHERE {condition} "
            f"ORDER BY {', '.join(names[:keys])} LIMIT {limit:d}",
            values,
        )
        kinds = list(columns.values())
        return [tuple(self._out(kind, value) for kind, value in zip(kinds, row, strict=True)) for row in rows]

    def count(self, table: str) -> int:
        condition = f"name <> '{MOVING}'" if table == "queues" else "1 = 1"
        return int(self._read(f"SELECT count(*) FROM {self._name(table)} WHERE {condition}", [])[0][0])

    def bring(self, table: str, rows: Sequence[Row], notes: Mapping[str, str]) -> None:
        steps: list[Step] = []
        given: dict[str, Sequence[Any]] = {}
        if table == HISTORY:
            given[HISTORY] = [fact_params(row[0]) for row in rows]
        elif table == JOBS:
            given[JOBS] = [_job_params(*row) for row in rows]
            if benched := [self._bench_values(job, tag, bucket) for job, tag, bucket in rows if bucket is not None]:
                names = ("job_id", "bucket", self.bench_priority, "position")
                steps.append((self._insert(f"{self._prefix}bench", names), benched))
        elif rows:
            columns = TABLES[table].columns
            more = self._more(table)
            kinds = list(columns.values())
            values = [
                [*(self._in(kind, value) for kind, value in zip(kinds, row, strict=True)), *more.values()]
                for row in rows
            ]
            steps.append((self._insert(self._name(table), (*columns, *more)), values))
        self._write([*steps, *self._note_steps(notes)], given)

    def clear(self, table: str, notes: Mapping[str, str]) -> None:
        condition = f"name <> '{MOVING}'" if table == "queues" else "1 = 1"
        steps: list[Step] = [(f"DELETE FROM {self._name(table)} WHERE {condition}", [()])]
        if table == JOBS:
            steps.append((f"DELETE FROM {self._prefix}bench", [()]))
        self._write([*steps, *self._note_steps(notes)], {})

    # --- Notes -------------------------------------------------------------------------------------------------

    def note(self, name: str) -> str | None:
        sql = f"SELECT value FROM {self._prefix}meta WHERE {self.note_name} = {self.mark}"
        rows = self._read(sql, [name])
        return str(rows[0][0]) if rows else None

    def write_notes(self, notes: Mapping[str, str | None]) -> None:
        self._write(self._note_steps(notes), {})

    def _note_steps(self, notes: Mapping[str, str | None]) -> list[Step]:
        if not notes:
            return []
        meta = f"{self._prefix}meta"
        kept = [(name, text) for name, text in notes.items() if text is not None]
        steps: list[Step] = [(f"DELETE FROM {meta} WHERE {self.note_name} = {self.mark}", [(name,) for name in notes])]
        return [*steps, (self._insert(meta, (self.note_name, "value")), kept)] if kept else steps

    # --- Values ------------------------------------------------------------------------------------------------

    def _name(self, table: str) -> str:
        return self._prefix + _NAMES.get(table, table)

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
