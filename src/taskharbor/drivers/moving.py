"""Moving everything from one store to another, whatever the two are.

Both stores are shut while rows are on their way; live, history goes ahead while the source still works, and only the
rest has to wait. Each portion of rows is written in one transaction with a note of how
far the move has come, so that a move that was killed goes on behind the last portion that arrived. In the end both
stores are read again and compared, table by table; only then is the new one opened. The old one stays as it is, and
shut.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple

from taskharbor.core.carrying import HISTORY, JOBS, NOTE, ORIGIN, TABLES, Carrier, Place, Row, digest, place_of
from taskharbor.core.errors import InvalidInput, MoveFailed, StoreError
from taskharbor.core.ids import new_id
from taskharbor.drivers.base import BaseDriver
from taskharbor.drivers.governed import ALL_KNOW_S
from taskharbor.drivers.rows import fact_params, live_params

ROWS_AT_ONCE: Final = 1_000
BYTES_AT_ONCE: Final = 4_000_000
ALIVE: Final = timedelta(seconds=60)
"""A worker that was heard of within this time counts as running."""
LOOK_S: Final = 0.1
_UNCOUNTED: Final = frozenset({"leaders"})
"""An empty store may have had workers, which elected a leader."""

Progress = Callable[[int], None]
"""Told how many more rows were copied or compared; each is copied once and compared on both sides."""


class End(NamedTuple):
    """A store and the name that people know it by."""

    driver: BaseDriver
    url: str


class Sum(NamedTuple):
    """The rows of a table: how many, and a number that stands for them."""

    rows: int
    checksum: int


@dataclass
class Report:
    """What a move did, or would do."""

    moved: dict[str, int]
    checksums: dict[str, str] = field(default_factory=dict)
    resumed: bool = False
    done_before: bool = False
    dry_run: bool = False


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

    def notes(self) -> dict[str, str]:
        return {NOTE: json.dumps({"from": self.source, **vars(self)})}


def _silent(rows: int) -> None:
    pass


class Move:
    def __init__(self, source: End, target: End, progress: Progress = _silent) -> None:
        self._from, self._to = source, target
        self._source: Carrier = source.driver.carrier()
        self._target: Carrier = target.driver.carrier()
        self._progress = progress
        self.settle_s = ALL_KNOW_S
        """How long it takes until every process knows that the source is shut."""
        self.live = False
        """Whether workers and producers may use the source until it is shut."""
        self.patience_s = 300.0
        """How long to wait, live, until the jobs that run when the source is shut have ended."""

    # --- What may be moved -------------------------------------------------------------------------------------

    def check(self) -> Mark | None:
        """Refuse what cannot be moved, before anything is written. The mark of a move that was begun before."""
        source, target = self._source.identity, self._target.identity
        if source == target:
            raise InvalidInput("SRC and DST are the same store: name two")
        found = json.loads(self._target.note(NOTE) or "{}")
        if "from" not in found:  # of an earlier move away from there
            found = {}
        if found and found["from"] != source:
            raise InvalidInput(
                f"{self._to.url} is in the middle of another move: finish that one, or use another store"
            )
        known = json.loads(self._source.note(NOTE) or "{}")
        if known.get("from"):
            raise InvalidInput(f"{self._from.url} is itself being filled by a move: finish that one first")
        if known and known["to"] != target and self._from.driver.is_shut():
            raise InvalidInput(
                f"{self._from.url} was moved to {known['to_url']}, or is being moved there: finish that move, "
                "or give it up with --give-up"
            )
        if not found:
            self._refuse_used()
            return None
        found.pop("from")
        return Mark(**found)

    def _refuse_used(self) -> None:
        used = [table for table in TABLES if table not in _UNCOUNTED and self._target.take(table, None, 1)]
        if used:
            raise InvalidInput(
                f"{self._to.url} is not empty: it has {', '.join(used)}. A store is moved to one that holds nothing"
            )

    def _refuse_busy(self) -> None:
        driver = self._from.driver
        now = driver.now()
        alive = [each for each in driver.workers() if each.last_heartbeat and each.last_heartbeat > now - ALIVE]
        if alive:
            raise MoveFailed(f"{len(alive):,} workers run on {self._from.url}: stop them first")
        inflight = driver.counts()["inflight"]
        if inflight:
            raise MoveFailed(
                f"{inflight:,} jobs of {self._from.url} are running: let them end first "
                "(those of a dead worker do when their leases end and a worker looks at the queue)"
            )

    def was_done(self) -> bool:
        """Whether this very move has come to its end before."""
        return bool(json.loads(self._target.note(ORIGIN) or "{}").get("store_id") == self._source.identity)

    # --- The move ----------------------------------------------------------------------------------------------

    def plan(self) -> Report:
        """What would be moved. Writes nothing."""
        mark = self.check()
        if not self.live:
            self._refuse_busy()
        counts = {table: self._source.count(table) for table in TABLES}
        return Report(counts, resumed=mark is not None, dry_run=True)

    def run(self) -> Report:
        if self.was_done():
            self._to.driver.shut(False)
            return Report({}, done_before=True)
        mark = self.check()
        resumed = mark is not None
        mark = mark or Mark(self._source.identity)
        if self.live:
            self._copy_ahead(mark)
        else:
            self._refuse_busy()
        mark = self._shut(mark)
        try:
            if self.live:
                self._wait_for_ends()
            else:
                self._refuse_busy()
            self._copy(mark)
            sums = self._verify(mark)
        except BaseException:
            with suppress(StoreError):  # then it stays shut, and the same move goes on where it was
                self._open_again()
            raise
        earlier = json.loads(self._source.note(ORIGIN) or "{}")
        before = [earlier["store_id"], *earlier["before"]] if earlier else []
        origin = {"store_id": self._source.identity, "url": self._from.url, "before": before}
        self._target.write_notes({NOTE: None, ORIGIN: json.dumps(origin)})
        self._to.driver.shut(False)
        moved = {table: found.rows for table, found in sums.items()}
        return Report(moved, {table: f"{found.checksum:032x}" for table, found in sums.items()}, resumed)

    def give_up(self) -> None:
        """Let the source work again. What has come to the target stays there, unused."""
        if self.was_done():
            raise InvalidInput(f"everything is at {self._to.url} already: there is nothing to give up")
        self._open_again()

    def _copy_ahead(self, mark: Mark) -> None:
        """The facts that are there, while more come in. The feed says which of them no other can come before."""
        if self._from.driver.is_shut() or HISTORY in mark.stale:
            return
        self._target.write_notes(mark.notes())
        self._to.driver.shut(True)
        limit = ROWS_AT_ONCE // 10
        while facts := self._from.driver.history(str(mark.facts[0]) if mark.facts else None, limit).rows:
            mark.facts = [facts[-1].position]
            rows = [(fact,) for fact in facts]
            self._target.bring(HISTORY, rows, mark.notes())
            self._progress(len(rows))
            if len(facts) < limit:
                break  # what has come in meanwhile is little
            limit = _next_limit(limit, rows)

    def _wait_for_ends(self) -> None:
        """Nothing new begins any more; what runs may end."""
        deadline = time.monotonic() + self.patience_s
        while inflight := self._from.driver.counts()["inflight"]:
            if time.monotonic() > deadline:
                raise MoveFailed(
                    f"{inflight:,} jobs of {self._from.url} still ran after {self.patience_s:g} s: it is open again, "
                    "and the same move goes on where it stopped"
                )
            self._from.driver.recover()  # for those of workers that have died
            time.sleep(LOOK_S)

    def _shut(self, mark: Mark) -> Mark:
        """Both stores, for as long as it takes. A source that is still shut from before has not changed since."""
        note = json.loads(self._source.note(NOTE) or "{}")
        closing = note.get("closing")
        if not (closing and closing == mark.closing and self._from.driver.is_shut()):
            closing = new_id()
            known = {"to": self._target.identity, "to_url": self._to.url, "closing": closing}
            self._source.write_notes({NOTE: json.dumps(known)})
            self._from.driver.shut(True)
            time.sleep(self.settle_s)
            stale = {*mark.stale, *({*mark.done, mark.table} - {HISTORY, ""})}
            mark = Mark(mark.source, closing, stale=sorted(stale), facts=mark.facts)
        self._target.write_notes(mark.notes())
        self._to.driver.shut(True)
        return mark

    def _open_again(self) -> None:
        self._from.driver.shut(False)
        self._source.write_notes({NOTE: None})

    def _copy(self, mark: Mark) -> None:
        for table in TABLES:
            if table in mark.done:
                continue
            if table in mark.stale or table in _UNCOUNTED:
                mark.stale = [each for each in mark.stale if each != table]
                if mark.table == table:
                    mark.table, mark.after = "", ()
                if table == HISTORY:
                    mark.facts = ()
                self._target.clear(table, mark.notes())
            self._copy_table(table, mark)
            mark.done.append(table)
            mark.table, mark.after = "", ()
            self._target.write_notes(mark.notes())

    def _copy_table(self, table: str, mark: Mark) -> None:
        after = (mark.facts or None) if table == HISTORY else mark.after if mark.table == table else None
        limit = ROWS_AT_ONCE // 10
        while rows := self._source.take(table, after, limit):
            after = place_of(table, rows[-1])
            mark.table, mark.after = table, after
            if table == HISTORY:
                mark.facts = after
            self._target.bring(table, rows, mark.notes())
            self._progress(len(rows))
            limit = _next_limit(limit, rows)

    # --- Verification ------------------------------------------------------------------------------------------

    def _verify(self, mark: Mark) -> dict[str, Sum]:
        """Both stores, read again from beginning to end."""
        sums = {table: self._sum(self._source, table) for table in TABLES}
        arrived = {table: self._sum(self._target, table) for table in TABLES}
        # Workers that wait for work may still elect a leader; the next store's leaders only have to come later.
        wrong = [table for table in TABLES if table not in _UNCOUNTED and sums[table] != arrived[table]]
        if not wrong:
            return sums
        mark.stale = sorted({*mark.stale, *wrong})
        mark.done = [table for table in mark.done if table not in wrong]
        self._target.write_notes(mark.notes())
        told = ", ".join(f"{table} ({sums[table].rows:,} rows became {arrived[table].rows:,})" for table in wrong)
        raise MoveFailed(
            f"the two stores differ: {told}. The source is as it was and is open again; "
            "if somebody wrote to it meanwhile, stop them and run the same move again"
        )

    def _sum(self, carrier: Carrier, table: str) -> Sum:
        after: Place | None = None
        count = total = 0
        limit = ROWS_AT_ONCE // 10
        while rows := carrier.take(table, after, limit):
            for row in rows:
                count += 1
                # The order of facts is part of what they say.
                total += digest((count, *_values(table, row)) if table == HISTORY else _values(table, row))
            after = place_of(table, rows[-1])
            self._progress(len(rows))
            limit = _next_limit(limit, rows)
        return Sum(count, total % 2**128)


def _values(table: str, row: Row) -> tuple[Any, ...]:
    if table == HISTORY:
        return tuple(fact_params(row[0]).values())
    if table == JOBS:
        return (*live_params(row[0]).values(), *row[1:])
    return row


def _next_limit(limit: int, rows: Any) -> int:
    """So many rows that a portion has a few megabytes."""
    size = sum(len(value) for row in rows for value in _large(row)) + 500 * len(rows)
    return max(1, min(ROWS_AT_ONCE, 2 * limit, limit * BYTES_AT_ONCE // size))


def _large(row: Row) -> list[bytes]:
    first = row[0]
    job = getattr(first, "job", first)
    return [value for name in ("payload", "result") if isinstance(value := getattr(job, name, None), bytes)]
