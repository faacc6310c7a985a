"""What a move of a whole store knows of itself: its two ends, and the mark it leaves in the new store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from taskharbor.core.carrying import NOTE, ORIGIN, TABLES, Carrier, Place, Row
from taskharbor.core.clock import EPOCH
from taskharbor.core.errors import InvalidInput, MoveFailed
from taskharbor.core.workflow import WorkflowState
from taskharbor.drivers.base import BaseDriver
from taskharbor.drivers.comparing import portions
from taskharbor.drivers.governed import ALL_KNOW_S

LOOK_S: Final = 0.1
TRY_S: Final = 2.0
"""How long a look for open transactions may hold up whoever writes to the store."""
UNCOUNTED: Final = frozenset({"leaders"})
"""An empty store may have had workers, which elected a leader."""
_UNDONE_BY: Final = {
    "queues": "`queues resume NAME` and `queues fair NAME --off`",
    "limits": "`queues limit NAME --lift`",
    "schedules": "`schedules remove NAME`",
}
"""What a worker that was started too early leaves behind, and the verbs that take it back."""


class End(NamedTuple):
    """A store and the name that people know it by."""

    driver: BaseDriver
    url: str


@dataclass
class Report:
    """What a move did, or would do."""

    moved: dict[str, int]
    checksums: dict[str, str] = field(default_factory=dict)
    resumed: bool = False
    done_before: bool = False
    dry_run: bool = False
    repeated: int = 0
    """Jobs of a live move that the new store had already, by their ids."""
    moved_on: str = ""
    """Where the new store has been moved to since, or is being moved."""


def _unheard(_: str) -> None:
    pass


@dataclass
class Pace:
    """How long a move waits for what."""

    settle_s: float = ALL_KNOW_S
    """How long it takes until every process knows that the source is shut."""
    patience_s: float = 300.0
    """Live: until the jobs that run when the source is shut have ended."""
    idle_s: float | None = None
    """Live: how long nothing must have come in or run before the source is shut; None if it is to be shut as soon as
    nearly nothing is left."""
    told: Callable[[str], None] = _unheard
    """Told what the move is about to do."""


@dataclass
class Mark:
    """How far a move has come, as the note in the new store says it."""

    source: str
    closing: str = ""
    """Which closing of the source the copied rows belong to: once it was open again, they may have changed."""
    done: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    """Tables to be emptied and copied again."""
    table: str = ""
    after: Place = ()
    facts: Place = ()
    """The last fact that has come. Facts are only ever added: those are good however often the source was open."""
    opened: bool = False
    """Live: the new store is in use."""
    crossing: bool = False
    """Live: workflows are on their way, which must not move on in the source any more."""
    batch: int = 0
    """Live: the number of the last bundle of jobs that has come."""
    jobs: int = 0
    checksum: int = 0
    repeated: int = 0

    def notes(self) -> dict[str, str | None]:
        return {NOTE: json.dumps({"from": self.source, **vars(self)})}


def read_mark(carrier: Carrier) -> Mark | None:
    found = json.loads(carrier.note(NOTE) or "{}")
    if "from" not in found:  # there is none, or one of an earlier move away from there
        return None
    found.pop("from")
    try:
        return Mark(**found)
    except TypeError:
        raise InvalidInput("another version of TaskHarbor began this move: finish it with that one") from None


def used_tables(carrier: Carrier) -> list[str]:
    """The tables in which a store holds something. A queue that was paused or fair once has a row that says nothing."""
    used = [table for table in TABLES if table not in UNCOUNTED and carrier.take(table, None, 1)]
    if "queues" in used:
        told = (row for rows in portions(carrier, "queues", None, lambda _: None) for row in rows)
        if not any(paused or fair for _, paused, fair, _ in told):
            used.remove("queues")
    return used


def not_empty(end: End, used: list[str]) -> InvalidInput:
    """A store is moved to one that holds nothing: why this is none, and the way out."""
    said = f"{end.url} is not empty: it has {', '.join(used)}. A store is moved to one that holds nothing: "
    if set(used) <= _UNDONE_BY.keys():
        ways = ", ".join(_UNDONE_BY[table] for table in used)
        return InvalidInput(f"{said}stop the workers there and take it back with {ways}, or name another store")
    return InvalidInput(f"{said}name another store")


def starting(end: End, carrier: Carrier) -> str:
    """A workflow that somebody is still storing, in words: its first steps are there, and the others follow even when
    the store is shut."""
    for rows in portions(carrier, "workflows", None, lambda _: None):
        for row in rows:
            if row[4] == WorkflowState.STARTING:
                return f"workflow {row[0]} of {end.url} was still being started (or cancel it)"
    return ""


def await_writers(source: End, carrier: Carrier, patience_s: float) -> None:
    """Until transactions of applications that were open when the source was shut have ended: what they have enqueued
    is not to be seen before."""
    deadline = time.monotonic() + patience_s
    while not carrier.writers_ended(TRY_S):
        if time.monotonic() >= deadline:
            raise MoveFailed(
                f"a transaction that has written to {source.url} is still open: end it, and run the same move again. "
                "Until then that store is in use"
            )
        time.sleep(TRY_S)


def origin_of(source: End, carrier: Carrier) -> str:
    """Where everything came from: that store, and those before it."""
    earlier = json.loads(carrier.note(ORIGIN) or "{}")
    before = [earlier["store_id"], *earlier["before"]] if earlier else []
    return json.dumps({"store_id": carrier.identity, "url": source.url, "before": before})


def taken_over(table: str, rows: Sequence[Row]) -> Sequence[Row]:
    """The rows as the new store gets them. Epochs of leaders go on there, but their terms are over: nobody could renew
    them, and whoever comes would have to wait for their end."""
    return [(*row[:-1], EPOCH) for row in rows] if table == "leaders" else rows
