"""Questions about jobs and their history, in the in-process engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from itertools import chain, islice

from taskharbor.core.answers import CensusRow, Counts, Glances, HistoryPage, Page
from taskharbor.core.errors import InvalidCursor
from taskharbor.core.model import Attempt, HistoryRow, Job, JobFilter, Status
from taskharbor.drivers.rows import glance_of, matches
from taskharbor.drivers.settings import EngineSettings
from taskharbor.drivers.state import State


class EngineReading(EngineSettings):
    """The reads of the contract on a `State`."""

    def _get(self, id: str) -> Job:
        with self._reading() as state:
            return state.find(id)

    def _list(self, filter: JobFilter, cursor: str | None, limit: int) -> Page:
        with self._reading() as state:
            everything = {**state.jobs, **state.finished}
            ids = sorted((id for id in everything if cursor is None or id < cursor), reverse=True)
            found: list[Job] = []
            for id in ids:
                if matches(everything[id], filter):
                    found.append(everything[id])
                    if len(found) > limit:
                        break
        more = len(found) > limit
        return Page(found[:limit], found[limit - 1].id if more else None)

    def _counts(self, now: datetime) -> Counts:
        queues: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        scheduled = 0
        with self._reading() as state:
            for table in (state.jobs, state.finished):
                for job in table.values():
                    queues[job.queue][job.status.value] += 1
                    scheduled += job.status is Status.READY and job.due_at > now
        return Counts(queues, scheduled)

    def _census(self, now: datetime) -> Sequence[CensusRow]:
        found: dict[tuple[str, str, Status], tuple[int, int, datetime | None]] = {}
        with self._reading() as state:
            for job in chain(state.jobs.values(), state.finished.values()):
                place = (job.tenant_id, job.queue, job.status)
                count, scheduled, oldest = found.get(place, (0, 0, None))
                if job.status is Status.READY:
                    if job.due_at > now:
                        scheduled += 1
                    elif oldest is None or job.due_at < oldest:
                        oldest = job.due_at
                found[place] = count + 1, scheduled, oldest
        return [CensusRow(*place, *numbers) for place, numbers in found.items()]

    def _count(self, filter: JobFilter, limit: int) -> int:
        with self._reading() as state:
            jobs = chain(state.jobs.values(), state.finished.values())
            return sum(1 for _ in islice((job for job in jobs if matches(job, filter)), limit))

    def _attempts(self, id: str) -> Sequence[Attempt]:
        with self._reading() as state:
            state.find(id)
            rows = [state.history[sequence] for sequence in state.sequences_of.get(id, [])]
        return [row.attempt for row in rows if row.attempt is not None]

    def _history(self, cursor: str | None, limit: int) -> HistoryPage:
        with self._reading() as state:
            after = self._sequence_of(state, cursor)
            # Sequences rise by one from row to row; pruned ones are simply not there any more.
            first = next(iter(state.in_order()), state.last_sequence + 1)
            rows: list[HistoryRow] = []
            for sequence in range(max(after + 1, first), state.last_sequence + 1):
                row = state.history.get(sequence)
                if row is not None:
                    rows.append(row)
                    if len(rows) == limit:
                        break
            return HistoryPage(rows, rows[-1].position if rows else f"{state.store_id}:{after}")

    def _latest(self, after: str | None, limit: int) -> Glances:
        if after is not None:
            page = self._history(after, limit)
            return Glances([glance_of(row) for row in page.rows], page.cursor)
        with self._reading() as state:
            newest = list(islice(reversed(state.in_order().values()), limit))
            end = f"{state.store_id}:{state.last_sequence}"
        return Glances([glance_of(row) for row in reversed(newest)], end)

    @staticmethod
    def _sequence_of(state: State, cursor: str | None) -> int:
        if cursor is None:
            return 0
        store_id, _, sequence = cursor.partition(":")
        if store_id != state.store_id or not sequence.isdecimal():
            raise InvalidCursor(f"cursor {cursor!r} is not from this store: start without one")
        return int(sequence)
