"""Moving everything from one store to another, whatever the two are.

Both stores are shut while rows are on their way; how it goes while they are in use is in `draining`. Each portion of
rows is written in one transaction with a note of how far the move has come, so that a move that was killed goes on
behind the last portion that arrived. In the end both stores are read again and compared, table by table; only then is
the new one opened. The old one stays as it is, and shut.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from taskharbor.core.carrying import DRAINING, FILLING, GONE, HISTORY, NOTE, ORIGIN, TABLES, Carrier, Part, place_of
from taskharbor.core.errors import InvalidInput, MoveFailed, StoreError
from taskharbor.core.ids import new_id
from taskharbor.drivers.comparing import Progress, Sum, portions, sum_of
from taskharbor.drivers.draining import Drain
from taskharbor.drivers.movement import (
    UNCOUNTED,
    End,
    Mark,
    Pace,
    Report,
    await_writers,
    not_empty,
    origin_of,
    read_mark,
    starting,
    taken_over,
    used_tables,
)
from taskharbor.drivers.opening import absolute
from taskharbor.drivers.packing import HEAD

__all__ = ["End", "Move", "Pace", "Report"]

ALIVE: Final = timedelta(seconds=60)
"""A worker that was heard of within this time counts as running."""
OPEN_S: Final = 10.0
"""How long a move with both stores shut waits for transactions that were open before."""


def _silent(rows: int) -> None:
    pass


class Move:
    def __init__(self, source: End, target: End, progress: Progress = _silent) -> None:
        # The names stay in the two stores, for whoever stands in other directories.
        self._from, self._to = (End(end.driver, absolute(end.url)) for end in (source, target))
        self._source: Carrier = source.driver.carrier()
        self._target: Carrier = target.driver.carrier()
        self._progress = progress
        self.pace = Pace()
        self.live = False
        """Whether workers and producers may use both stores meanwhile."""

    # --- What may be moved -------------------------------------------------------------------------------------

    def check(self) -> Mark | None:
        """Refuse what cannot be moved, before anything is written. The mark of a move that was begun before."""
        source, target = self._identities()
        known = json.loads(self._source.note(NOTE) or "{}")
        if self._source.note(HEAD) is not None and not (self.live and known.get("to") == target):
            raise InvalidInput(
                f"jobs of {self._from.url} are on their way to {known.get('to_url', 'another store')}: go on with "
                "--live to there, or give that up with --give-up"
            )
        found = read_mark(self._target)
        if found and found.source != source:
            raise InvalidInput(
                f"{self._to.url} is in the middle of another move: finish that one, or use another store"
            )
        if read_mark(self._source):
            raise InvalidInput(f"{self._from.url} is itself being filled by a move: finish that one first")
        if known and known["to"] != target and self._from.driver.is_gone():
            raise InvalidInput(
                f"everything of {self._from.url} was moved to {known['to_url']}: move that one, if it is to go on"
            )
        if known and known["to"] != target and (known.get("live") or self._from.driver.is_shut()):
            raise InvalidInput(
                f"{self._from.url} was moved to {known['to_url']}, or is being moved there: finish that move, "
                "or give it up with --give-up"
            )
        if not found:
            self._refuse_used()
        elif found.opened and not self.live:
            raise InvalidInput(f"this move was begun live, and {self._to.url} is in use: go on with --live")
        return found

    def _identities(self) -> tuple[str, str]:
        source, target = self._source.identity, self._target.identity
        if source == target:
            raise InvalidInput("SRC and DST are the same store: name two")
        return source, target

    def _refuse_used(self) -> None:
        if used := used_tables(self._target):
            raise not_empty(self._to, used)

    def _refuse_busy(self) -> None:
        driver = self._from.driver
        now = driver.now()
        alive = [each for each in driver.workers() if each.last_heartbeat and each.last_heartbeat > now - ALIVE]
        if alive:
            raise MoveFailed(f"{len(alive):,} workers run on {self._from.url}: stop them first, or move with --live")
        inflight = driver.counts()["inflight"]
        if inflight:
            raise MoveFailed(
                f"{inflight:,} jobs of {self._from.url} are running: let them end first "
                "(those of a dead worker do when their leases end and a worker looks at the queue)"
            )
        if flow := starting(self._from, self._source):
            raise MoveFailed(f"{flow}: let that end first")

    def was_done(self) -> bool:
        """Whether this very move has come to its end before."""
        origin = json.loads(self._target.note(ORIGIN) or "{}")
        return origin.get("store_id") == self._source.identity and read_mark(self._target) is None

    def _moved_on(self) -> str:
        """Where the target, with all that it got from the source, has gone since or is going; "" if nowhere."""
        return str(json.loads(self._target.note(NOTE) or "{}").get("to_url", ""))

    # --- The move ----------------------------------------------------------------------------------------------

    def plan(self) -> Report:
        """What would be moved. Writes nothing."""
        if self.was_done():
            return Report({}, done_before=True, dry_run=True, moved_on=self._moved_on())
        mark = self.check()
        if not self.live:
            self._refuse_busy()
        counts = {table: self._source.count(table) for table in TABLES}
        return Report(counts, resumed=mark is not None, dry_run=True)

    def run(self) -> Report:
        if self.was_done():
            moved_on = self._moved_on()
            # A target that was moved on is none of ours any more: who opens it runs its jobs twice, and loses new ones.
            if not moved_on:
                self._open_target()
            self._shut_source()
            return Report({}, done_before=True, moved_on=moved_on)
        mark = self.check()
        resumed = mark is not None
        if not self.live:
            self._refuse_busy()
        mark = mark or self._take_target()
        sums = self._drain(mark).run() if self.live else self._run_shut(mark)
        self._target.write_notes({NOTE: None, ORIGIN: origin_of(self._from, self._source)})
        self._open_target()
        self._shut_source()
        moved = {table: found.rows for table, found in sums.items()}
        checksums = {table: f"{found.checksum:032x}" for table, found in sums.items()}
        return Report(moved, checksums, resumed, repeated=mark.repeated)

    def _take_target(self) -> Mark:
        """Before anybody is told to use the target, it is shut: what came in once it is ours would be overwritten. Only
        then is there a mark in it, so where one is found nobody else has written."""
        self._to.driver.shut(True)
        try:
            await_writers(self._to, self._target, OPEN_S)
            self._refuse_used()
        except (InvalidInput, MoveFailed):
            self._to.driver.shut(False)
            raise
        # An empty store may have rows of queues that say nothing: the source's come in their place.
        mark = Mark(self._source.identity, stale=["queues"])
        self._target.write_notes(mark.notes())
        return mark

    def _open_target(self) -> None:
        """Everything is in the new store."""
        self._to.driver.set_mark(FILLING, False)
        self._to.driver.shut(False)

    def _shut_source(self) -> None:
        """And the old one says so."""
        self._from.driver.shut(True)
        self._from.driver.set_mark(GONE, True)
        self._from.driver.set_mark(DRAINING, False)

    def give_up(self) -> None:
        """Let the source work again. What has come to the target stays there. A target that is not that of this move
        cannot say how far it has come: it is refused."""
        source, target = self._identities()
        if self.was_done():
            raise InvalidInput(f"everything is at {self._to.url} already: there is nothing to give up")
        if read_mark(self._source):
            raise InvalidInput(f"{self._from.url} is itself being filled by a move: finish that one, or give it up")
        known = json.loads(self._source.note(NOTE) or "{}")
        if self._from.driver.is_gone():
            raise InvalidInput(
                f"everything of {self._from.url} is at {known.get('to_url', 'another store')} already: there is "
                "nothing to give up"
            )
        mark = read_mark(self._target)
        ours = mark if mark and mark.source == source else None
        if known and known["to"] != target and not self._is_lost(known):
            raise InvalidInput(
                f"{self._from.url} is being moved to {known['to_url']}, not to {self._to.url}: name that one. "
                "Nothing was changed"
            )
        if not ours and (not known or known.get("live")):
            raise InvalidInput(
                f"{self._to.url} knows of no move from {self._from.url}: there is nothing to give up. "
                "Nothing was changed"
            )
        if ours and ours.crossing:
            raise InvalidInput("workflows are on their way already: finish the move, nobody has to wait for it")
        if ours and ours.opened:
            self._drain(ours).leave()
        self._from.driver.set_mark(DRAINING, False)
        self._open_again()

    def _is_lost(self, known: dict[str, Any]) -> bool:
        """Whether another store is where the target of a move was that has taken nothing from the source yet."""
        return absolute(known["to_url"]) == self._to.url and not known.get("live") and not known.get("whole")

    def _drain(self, mark: Mark) -> Drain:
        return Drain(self._from, self._to, mark, self.pace, self._progress)

    def _open_again(self) -> None:
        self._from.driver.shut(False)
        self._source.write_notes({NOTE: None})

    # --- With both stores shut ---------------------------------------------------------------------------------

    def _run_shut(self, mark: Mark) -> dict[str, Sum]:
        mark = self._shut(mark)
        try:
            await_writers(self._from, self._source, OPEN_S)
            self._refuse_busy()
            self._copy(mark)
            sums = self._verify(mark)
            # From here on the target may be in use before the source is told so.
            known = json.loads(self._source.note(NOTE) or "{}")
            self._source.write_notes({NOTE: json.dumps({**known, "whole": True})})
            return sums
        except BaseException:
            with suppress(StoreError):  # then it stays shut, and the same move goes on where it was
                self._open_again()
            raise

    def _shut(self, mark: Mark) -> Mark:
        """Both stores, for as long as it takes. A source that is still shut from before has not changed since."""
        self._to.driver.shut(True)
        note = json.loads(self._source.note(NOTE) or "{}")
        closing = note.get("closing")
        if not (closing and closing == mark.closing and self._from.driver.is_shut()):
            closing = new_id()
            known = {"to": self._target.identity, "to_url": self._to.url, "closing": closing}
            self._source.write_notes({NOTE: json.dumps(known)})
            self._from.driver.shut(True)
            time.sleep(self.pace.settle_s)
            stale = {*mark.stale, *({*mark.done, mark.table} - {HISTORY, ""})}
            mark = Mark(mark.source, closing, stale=sorted(stale), facts=mark.facts)
            self._target.write_notes(mark.notes())
        return mark

    def _copy(self, mark: Mark) -> None:
        for table in TABLES:
            if table in mark.done:
                continue
            if table in mark.stale or table in UNCOUNTED:
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
        for rows in portions(self._source, table, after, self._progress):
            mark.table, mark.after = table, place_of(table, rows[-1])
            if table == HISTORY:
                mark.facts = mark.after
            self._target.bring([Part(table, taken_over(table, rows))], mark.notes())

    def _verify(self, mark: Mark) -> dict[str, Sum]:
        """Both stores, read again from beginning to end."""
        sums = {table: sum_of(self._source, table, self._progress) for table in TABLES}
        arrived = {table: sum_of(self._target, table, self._progress) for table in TABLES}
        # Workers that wait for work may still elect a leader; the next store's leaders only have to come later.
        wrong = [table for table in TABLES if table not in UNCOUNTED and sums[table] != arrived[table]]
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
