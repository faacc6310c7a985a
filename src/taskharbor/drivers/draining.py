"""Moving a store while it is in use: it is drained into the new one, which is in use too from early on.

1. History, settings, and the keys of finished jobs go ahead. Then the new store is opened.
2. Jobs at rest follow, a bundle at a time, in rounds. A bundle leaves the source in one transaction, which keeps it
   as notes there: nobody can begin, change or end those jobs any more. It is written to the new store in one
   transaction with its number; then the notes are struck. Whoever comes after a kill sees by the number whether the
   bundle has arrived, and strikes the notes or brings it over.
3. When a round finds next to nothing, the source is shut. What runs there may end; then the rest follows: schedules,
   workflows with their jobs, what has changed of the settings. Everything is compared.

Until workflows are on their way, the source can work on at any time: whatever stops this leaves both stores in use.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from taskharbor.core.carrying import (
    DRAINING,
    FILLING,
    HISTORY,
    JOBS,
    NOTE,
    ORIGIN,
    Carrier,
    Flows,
    Part,
    Row,
    digest,
    place_of,
)
from taskharbor.core.envelope import payload_hash
from taskharbor.core.errors import InvalidInput, MoveFailed, StoreError, StoreUnavailable
from taskharbor.core.model import Job
from taskharbor.drivers.comparing import Portions, Progress, Sum, missing_facts, missing_rows, values_of
from taskharbor.drivers.copying import Copying
from taskharbor.drivers.engine_carrying import FINAL
from taskharbor.drivers.movement import LOOK_S, End, Mark, Pace, await_writers, origin_of, read_mark, starting
from taskharbor.drivers.packing import Bundle, pack, pieces_of, struck, unpack

AHEAD: Final = ("queues", "limits", "leaders", "tokens")
LATE: Final = ("queues", "limits", "loads")
FEW: Final = 100
"""So many jobs in a round are next to nothing."""
IDLE_LOOK_S: Final = 0.5


class Drain(Copying):
    def __init__(self, source: End, target: End, mark: Mark, pace: Pace, progress: Progress) -> None:
        super().__init__(source, target, mark, progress)
        self._pace = pace

    def run(self) -> dict[str, Sum]:
        try:
            self._settle_bundle()
            if not self._mark.opened:
                self._go_ahead()
            self._open()
            if not self._mark.crossing:
                self._rounds()
                self._fence()
            return self._rest()
        except BaseException:
            with suppress(StoreError):  # then the next run does it
                self.leave()
            raise

    def leave(self) -> None:
        """Both stores in use, and no job on its way. Not once workflows are: those are only whole in the new store."""
        try:
            self._settle_bundle()
        finally:
            if not self._mark.crossing and self._from.driver.is_shut():
                self._from.driver.shut(False)

    # --- Before the new store is opened ------------------------------------------------------------------------

    def _go_ahead(self) -> None:
        mark = self._mark
        self._to.driver.shut(True)
        begun = {*mark.done, *mark.stale, mark.table} - {"", HISTORY}
        if HISTORY in mark.stale:
            begun.add(HISTORY)
            mark.facts = ()
        # A move without `live` that goes on from here begins these again; said before any of them is emptied.
        mark.done, mark.stale, mark.table, mark.after = [], sorted({*begun, *AHEAD, "keys"}), "", ()
        self._target.write_notes(mark.notes())
        for table in begun:
            self._target.clear(table, {})
        mark.stale = sorted({*AHEAD, "keys"})
        self._target.write_notes(mark.notes())
        self._pace.told("copying history and settings")
        self._copy_facts()
        for table in AHEAD:
            self._target.clear(table, {})
            self._copy(table)
        self._copy_keys_of_finished()

    def _open(self) -> None:
        """Both stores in use. Again after a kill: each of these may be missing."""
        known = {"to": self._target.identity, "to_url": self._to.url, "live": True}
        self._source.write_notes({NOTE: json.dumps(known)})
        self._from.driver.set_mark(DRAINING, True)
        if not self._mark.crossing and self._from.driver.is_shut():
            self._from.driver.shut(False)
        self._mark.opened = True
        self._target.write_notes({**self._mark.notes(), ORIGIN: origin_of(self._from, self._source)})
        self._to.driver.set_mark(FILLING, True)
        if self._to.driver.is_shut():
            self._to.driver.shut(False)

    # --- Rounds ------------------------------------------------------------------------------------------------

    def _rounds(self) -> None:
        self._pace.told("draining: both stores are in use")
        idle_since: float | None = None
        while True:
            moved = self._round("none")
            self._copy_facts()
            self._copy_tokens()
            if self._pace.idle_s is None:
                if moved <= FEW:
                    return
                continue
            if moved or self._from.driver.counts()["inflight"]:
                idle_since = None
            else:
                idle_since = idle_since or time.monotonic()
                if time.monotonic() - idle_since >= self._pace.idle_s:
                    return
            time.sleep(min(IDLE_LOOK_S, self._pace.idle_s / 4))

    def _round(self, flows: Flows) -> int:
        """One pass over the jobs at rest; how many have gone."""
        moved = 0
        after: str | None = ""
        size = Portions()
        while after is not None:
            number = self._mark.batch + 1
            notes: dict[str, str] = {}

            def packed(rows: Sequence[Row], number: int = number, notes: dict[str, str] = notes) -> dict[str, str]:
                notes.clear()  # a transaction may be tried several times
                notes.update(pack(number, rows))
                return notes

            rows, after = self._source.lift(after, size.limit, packed, flows)
            if rows:
                self._deliver(Bundle(number, rows, pieces_of(notes)))
                moved += len(rows)
            size.had(rows)
        return moved

    def _deliver(self, bundle: Bundle) -> None:
        rows = bundle.rows
        # What became of a job in the new store stands behind what became of it here.
        if any(row[0].deliveries for row in rows):
            self._copy_facts_of_now()

        def bring(fresh: Sequence[Row]) -> None:
            keys = self._keys_of([row[0] for row in fresh])
            arrived = replace(
                mark,
                batch=bundle.number,
                jobs=mark.jobs + len(fresh),
                repeated=mark.repeated + len(rows) - len(fresh),
                checksum=(mark.checksum + sum(digest(values_of(JOBS, row)) for row in fresh)) % 2**128,
            )
            self._target.bring([Part(JOBS, fresh), Part("keys", keys, "replace")], arrived.notes())
            vars(mark).update(vars(arrived))

        mark = self._mark
        self._bring_fresh(self._to, self._target, rows, bring)
        self._source.write_notes(struck(bundle.pieces))
        self._progress(len(rows))

    def _settle_bundle(self) -> None:
        """Jobs that an earlier life left on their way: struck if they have arrived, else put back."""
        bundle = unpack(self._source)
        if bundle is None:
            return
        arrived = read_mark(self._target)
        if arrived is not None and arrived.batch >= bundle.number:
            self._source.write_notes(struck(bundle.pieces))
        else:
            if arrived is not None:
                vars(self._mark).update(vars(arrived))
            notes = struck(bundle.pieces)
            fresh = self._bring_fresh(
                self._from, self._source, bundle.rows, lambda rows: self._source.bring([Part(JOBS, rows)], notes)
            )
            self._mark.repeated += len(bundle.rows) - len(fresh)

    def _bring_fresh(
        self, end: End, carrier: Carrier, rows: Sequence[Row], bring: Callable[[Sequence[Row]], None]
    ) -> Sequence[Row]:
        """Bring those rows whose ids are not there yet, though others may be enqueueing them at this moment."""
        ids = [row[0].id for row in rows]
        while True:
            known = carrier.known(ids)
            fresh = [row for row in rows if row[0].id not in known or not self._is_there(row[0], end)]
            try:
                bring(fresh)
            except StoreUnavailable:
                raise  # it may have been kept: the number of the bundle will tell
            except (StoreError, InvalidInput):
                if carrier.known(ids) <= known:
                    raise
            else:
                return fresh

    def _is_there(self, job: Job, end: End) -> bool:
        """A job whose id a store has is the same one, enqueued once more; or somebody uses ids twice."""
        kept = end.driver.get(job.id)
        if _looks(kept) == _looks(job):
            return True
        if end is self._from:
            if kept.status in FINAL:
                return False  # put back beside it, and named when it is its turn to move
            raise MoveFailed(
                f"job {job.id} is on its way from {end.url}, where another job has its id by now: cancel that one, "
                "and run the same command again"
            )
        raise MoveFailed(
            f"job {job.id} of {self._from.url} has the id of another job at {end.url}: cancel one of the two, or "
            "purge it, and run the same move again"
        )

    # --- The fence ---------------------------------------------------------------------------------------------

    def _fence(self) -> None:
        """Nothing new begins any more in the source; what runs may end."""
        self._pace.told("shutting the source: what runs there may end")
        self._from.driver.shut(True)
        time.sleep(self._pace.settle_s)
        deadline = time.monotonic() + self._pace.patience_s
        await_writers(self._from, self._source, self._pace.patience_s)
        while busy := self._busy():
            if time.monotonic() > deadline:
                raise MoveFailed(
                    f"{busy} after {self._pace.patience_s:g} s: it is open again, and the same move goes on where it "
                    "stopped"
                )
            self._from.driver.recover()  # for those of workers that have died
            self._round("none")
            time.sleep(LOOK_S)

    def _busy(self) -> str:
        """What still goes on in the source, in words."""
        inflight = self._from.driver.counts()["inflight"]
        if inflight:
            return f"{inflight:,} jobs of {self._from.url} still ran"
        return starting(self._from, self._source)

    def _rest(self) -> dict[str, Sum]:
        self._pace.told("moving what is left, and comparing")
        self._round("none")
        self._copy_facts_of_now()
        for table in LATE:
            self._copy(table)
        self._copy_tokens()
        self._copy_schedules()
        sums: dict[str, Sum] = {}
        if self._source.count("steps"):
            self._cross(sums)
        self._copy("keys")
        self._compare(sums)
        self._to.driver.mend_workflows()
        self._round("all")  # what a transaction that was open all along has let in meanwhile
        left = self._source.count(JOBS)
        if left:
            raise MoveFailed(f"somebody holds {left:,} jobs of {self._from.url} locked: run the same move again")
        sums[JOBS] = Sum(self._mark.jobs, self._mark.checksum)
        return sums

    def _cross(self, sums: dict[str, Sum]) -> None:
        """Workflows. A workflow moves on only where its own row is: that comes last, when all the others are there,
        and `mend_workflows` sees to what has ended meanwhile."""
        if not self._mark.crossing:
            self._mark.crossing = True
            self._target.write_notes(self._mark.notes())
        self._round("held")
        for table in ("steps", "edges"):
            self._copy(table)
            # Once the new store has worked on some of them, they are rightly different.
            whole = not self._target.find("workflows", [place_of("workflows", row) for row in self._some_flows()])
            sums[table] = self._complete(table, whole=whole)
        self._round("all")
        self._copy("workflows")
        self._to.driver.forget_rules()

    def _some_flows(self) -> Sequence[Row]:
        return self._source.take("workflows", None, 1)

    def _compare(self, sums: dict[str, Sum]) -> None:
        sums[HISTORY], missing = missing_facts(self._source, self._target, self._progress)
        if missing:
            raise self._differ(HISTORY, missing)
        for table in ("loads", "queues", "limits", "schedules", "keys", "workflows", "tokens"):
            sums[table] = self._complete(table, whole=table == "loads")

    def _complete(self, table: str, *, whole: bool) -> Sum:
        found, missing = missing_rows(self._source, self._target, table, whole, self._progress)
        if missing:
            raise self._differ(table, missing)
        return found

    def _differ(self, table: str, missing: int) -> MoveFailed:
        return MoveFailed(
            f"the two stores differ: {missing:,} rows of {table} are not at {self._to.url}. "
            f"Nothing is lost at {self._from.url}; the same command compares again"
        )


def _looks(job: Job) -> tuple[str, str, str, str]:
    """What two jobs of one id have in common if they are the same, sealed or not."""
    return job.type, job.queue, job.tenant_id, payload_hash(job.payload)
