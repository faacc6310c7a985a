"""Carrying a whole store to another one: what its tables hold, in a form that belongs to no store.

A row is a tuple of plain values: text, numbers, bytes, and times in UTC. Rows of `jobs` are a live job, its tag in a
fair queue and the bucket it waits for; rows of `history` are a fact. `digest` makes the same number of the same row
whatever store it came from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

from taskharbor.core.clock import to_micros

Row = tuple[Any, ...]
Place = Sequence[str | int]
"""Where a row stands in its table: what it is known by, or the cursor of a fact."""

MOVING: Final = "\x01moving"
"""The name, which no queue can have, under which a store is shut among the settings of queues: those are what every
process reads again within a second."""
GONE: Final = "\x01gone"
"""The same for a store that was moved: nobody will find work here again."""
FILLING: Final = "\x01filling"
"""The same for a store that is in use while another one is drained into it: the other one still has the schedules,
and what has come from there is yet to be compared."""
DRAINING: Final = "\x01draining"
"""The same for a store that is in use while its jobs are taken to another one."""
MARKS: Final = (MOVING, GONE, FILLING, DRAINING)

NOTE: Final = "move"
"""In the store that is filled: how far the move has come. In the one that is left: where everything went."""
ORIGIN: Final = "moved_from"
"""In a store that was filled by a move: the identity of the one that it came from, and of those before that."""


class Departure(NamedTuple):
    """That a store was moved to another one, or is being moved."""

    said: str
    """In words: where to, and what to do."""
    shut: bool
    """Nobody takes jobs in here or gives any out."""
    gone: bool
    """The move has ended, and nobody will."""


def departure_of(driver: object) -> Departure | None:
    """None for a store that is in use, and for one of a kind that cannot be moved. Asks the store."""
    ask: Callable[[], Departure | None] | None = getattr(driver, "departure", None)
    return None if ask is None else ask()


class Table(NamedTuple):
    """The columns with their kinds (text, number, real, flag, time, bytes, json), and how many of them are the key."""

    columns: Mapping[str, str]
    keys: int = 1


def _columns(text: str) -> dict[str, str]:
    words = (word.partition(":") for word in text.split())
    return {name: kind or "text" for name, _, kind in words}


JOBS: Final = "jobs"
HISTORY: Final = "history"
TABLES: Final[Mapping[str, Table]] = {
    "queues": Table(_columns("name paused:flag fair:flag weights:json")),
    "limits": Table(_columns("scope name per concurrency:number rate:real burst:number"), 3),
    "schedules": Table(
        _columns(
            "name spec timezone type payload:bytes queue tenant_id priority:number max_attempts:number "
            "timeout_nanos:number meta:json overlap paused:flag next_run_at:time last_run_at:time last_job_id "
            "updated_at:time"
        )
    ),
    HISTORY: Table({}),
    "keys": Table(_columns("dedupe_scope idempotency_key job_id payload_hash expires_at:time"), 2),
    JOBS: Table({}),
    "buckets": Table(_columns("bucket scope name per tokens:real counted_at:time wake_at:time")),
    "fair": Table(_columns("queue priority:number tenant_id tag:number"), 3),
    "workflows": Table(
        _columns(
            "id name tenant_id policy state total:number done:number failed:number created_at:time ended_at:time "
            "compensation"
        )
    ),
    "steps": Table(_columns("workflow_id number:number name part job_id waiting:number state"), 2),
    "edges": Table(_columns("workflow_id cause:number effect:number"), 3),
    "leaders": Table(_columns("name holder epoch:number until:time")),
    "tokens": Table(_columns("id name tenant_id role secret_hash created_at:time expires_at:time revoked_at:time")),
    "loads": Table(
        _columns("run_id rows_in:number published:number duplicates:number rejected:number published_at:time")
    ),
}
"""In the order in which they are carried."""

Clash = Literal["refuse", "leave", "replace"]
"""What becomes of a row whose key is there: nothing is written at all, the one there stays, or the new one does."""


class Part(NamedTuple):
    """Rows for a table."""

    table: str
    rows: Sequence[Row]
    clash: Clash = "refuse"


class Lifted(NamedTuple):
    """Jobs that were taken out of a store, and the last id that was looked at; None if there are no more."""

    rows: Sequence[Row]
    last: str | None


Flows = Literal["none", "held", "all"]
"""Which jobs to lift: those of no workflow, those of workflows that are held, or all."""
Pack = Callable[[Sequence[Row]], Mapping[str, str | None]]


@runtime_checkable
class Carrier(Protocol):
    """Takes the rows of a store out and brings them in, a portion at a time. Each call is one transaction."""

    @property
    def identity(self) -> str:
        """What tells this store from every other."""
        ...

    def take(self, table: str, after: Place | None, limit: int) -> Sequence[Row]:
        """The next rows of the table, in order of their keys; facts in the order of the feed."""
        ...

    def find(self, table: str, places: Sequence[Place]) -> Sequence[Row]:
        """The rows with these keys, in any order. Not for facts."""
        ...

    def known(self, ids: Sequence[str]) -> set[str]:
        """Which of these are ids of live or finished jobs."""
        ...

    def count(self, table: str) -> int:
        """How many rows the table has."""
        ...

    def bring(self, parts: Sequence[Part], notes: Mapping[str, str | None]) -> None:
        """Keep rows, and the notes with them: all of it or nothing. Jobs are read again before they count: if the
        store would not give back what it was given, nothing is kept and `MoveFailed` is raised."""
        ...

    def lift(self, after: str, limit: int, pack: Pack, flows: Flows) -> Lifted:
        """Take live jobs that are not leased out of the store, in order of id, and keep the notes that `pack` makes of
        them in the same moment: from then on nobody can begin, change or end them. Jobs that somebody else has locked
        are left for the next time. Keys stay. Rows have neither tag nor bucket."""
        ...

    def clear(self, table: str, notes: Mapping[str, str | None]) -> None:
        """Empty the table, and keep the notes with it: both or neither."""
        ...

    def writers_ended(self, wait_s: float) -> bool:
        """Whether all transactions that had written to the jobs when this was called end within this time. Others that
        begin meanwhile may have to wait as long."""
        ...

    def note(self, name: str) -> str | None:
        """What a note says; None if there is none."""
        ...

    def write_notes(self, notes: Mapping[str, str | None]) -> None:
        """Set notes, and strike those that are given as None."""
        ...


def place_of(table: str, row: Row) -> list[str | int]:
    if table == JOBS:
        return [row[0].id]
    if table == HISTORY:
        return [row[0].position]
    return list(row[: TABLES[table].keys])


def digest(values: Sequence[Any]) -> int:
    """A number that stands for a row. Sums of them stand for tables, in whatever order the rows come."""
    return int.from_bytes(sha256(repr([_plain(value) for value in values]).encode()).digest()[:16], "big")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_micros(value)
    if isinstance(value, bool):
        return int(value)
    return str(value) if isinstance(value, str) else value


def json_text(text: str | None) -> str | None:
    """JSON in one way of writing, whoever wrote it; nothing for what is empty."""
    found = json.loads(text) if text else None
    return json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":")) if found else None
