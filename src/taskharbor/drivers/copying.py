"""What a live move copies and the source keeps: history, keys, settings, schedules, tokens, rows of workflows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from taskharbor.core.carrying import HISTORY, JOBS, Carrier, Part, Row
from taskharbor.core.errors import MoveFailed
from taskharbor.core.model import Job
from taskharbor.drivers.comparing import Portions, Progress, portions
from taskharbor.drivers.movement import LOOK_S, End, Mark, taken_over

FEED_S: Final = 30.0
"""How long jobs on their way wait for the history feed to get to what is known of them."""


class Copying:
    def __init__(self, source: End, target: End, mark: Mark, progress: Progress) -> None:
        self._from, self._to = source, target
        self._source: Carrier = source.driver.carrier()
        self._target: Carrier = target.driver.carrier()
        self._mark = mark
        self._progress = progress

    def _keys_of(self, jobs: Sequence[Job]) -> list[Row]:
        """The keys that go with these jobs. A job of the new store that is not over keeps a key that it has."""
        places = {(job.dedupe_scope, job.idempotency_key): job.id for job in jobs if job.idempotency_key is not None}
        if not places:
            return []
        wanted = [[str(part) for part in place] for place in places]
        own = [row for row in self._source.find("keys", wanted) if places.get(row[:2]) == row[2]]
        holders = {row[:2]: row[2] for row in self._target.find("keys", wanted)}
        others = [[holder] for place, holder in holders.items() if holder != places.get(place)]
        live = {row[0].id for row in self._target.find(JOBS, others)} if others else set()
        return [row for row in own if holders.get(row[:2]) not in live]

    # --- Rows that stay in the source --------------------------------------------------------------------------

    def _copy(self, table: str) -> None:
        """What the new store has not. What it has is its own by now."""
        for rows in portions(self._source, table, None, self._progress):
            self._target.bring([Part(table, taken_over(table, rows), "leave")], {})

    def _copy_tokens(self) -> None:
        """A token that was revoked in either store is good in neither, and one that is new in the source in both."""
        for rows in portions(self._source, "tokens", None, silent):
            there = {row[0]: row for row in self._target.find("tokens", [[row[0]] for row in rows])}
            new = [row for row in rows if row[0] not in there]
            here = [row for row in rows if row[0] in there and row[-1] is not None and there[row[0]][-1] is None]
            back = [there[row[0]] for row in rows if row[0] in there and row[-1] is None and there[row[0]][-1]]
            if new or here:
                self._target.bring([Part("tokens", new, "leave"), Part("tokens", here, "replace")], {})
            if back:
                self._source.bring([Part("tokens", back, "replace")], {})

    def _copy_schedules(self) -> None:
        """Where the new store has a schedule by its definition already, the life of the old one goes on in it."""
        for rows in portions(self._source, "schedules", None, self._progress):
            there = {row[0]: row for row in self._target.find("schedules", [[row[0]] for row in rows])}
            merged = [_merged(there.get(row[0]), row) for row in rows]
            self._target.bring([Part("schedules", merged, "replace")], {})

    def _copy_keys_of_finished(self) -> None:
        """The keys of jobs that are not over go with them."""
        for rows in portions(self._source, "keys", None, self._progress):
            live = {row[0].id for row in self._source.find(JOBS, [[row[2]] for row in rows])}
            ended = [row for row in rows if row[2] not in live]
            self._copy_facts_of_now()
            self._target.bring([Part("keys", ended, "leave")], {})

    # --- History -----------------------------------------------------------------------------------------------

    def _copy_facts(self) -> None:
        """As far as the feed goes; it says which facts no other can come before."""
        size = Portions()
        while True:
            after = str(self._mark.facts[0]) if self._mark.facts else None
            facts = self._from.driver.history(after, size.limit).rows
            rows: list[Row] = [(fact,) for fact in facts]
            if rows:
                self._mark.facts = [facts[-1].position]
                self._target.bring([Part(HISTORY, rows)], self._mark.notes())
                self._progress(len(rows))
            if len(rows) < size.limit:
                return
            size.had(rows)

    def _copy_facts_of_now(self) -> None:
        """All that were there when this began. A feed may be a little behind its store."""
        last: str | None = None
        for rows in portions(self._source, HISTORY, self._mark.facts or None, silent):
            last = rows[-1][0].position
        deadline = time.monotonic() + FEED_S
        while last is not None:
            self._copy_facts()
            left = portions(self._source, HISTORY, self._mark.facts or None, silent)
            if not any(row[0].position == last for rows in left for row in rows):
                return
            if time.monotonic() > deadline:
                raise MoveFailed(
                    f"a transaction that is open at {self._from.url} holds up its history: end it, and run the same "
                    "move again"
                )
            time.sleep(LOOK_S)


def _merged(there: Row | None, row: Row) -> Row:
    """The schedule of the new store, with the next tick, the last one and the pause of the old one."""
    if there is None or there[1:3] != row[1:3]:
        return row if there is None else there
    return (*there[:12], *row[12:])


def silent(rows: int) -> None:
    pass
