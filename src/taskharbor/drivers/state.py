"""The data of the in-process engine: plain tables, and a few heaps that make claims quick."""

from __future__ import annotations

import bisect
import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from taskharbor.core import transitions
from taskharbor.core.carrying import MOVING
from taskharbor.core.errors import JobNotFound
from taskharbor.core.fleet import Leadership, Worker
from taskharbor.core.ids import new_id
from taskharbor.core.model import HistoryRow, Job, JobFilter, QueueSettings, Schedule, Status
from taskharbor.core.tokens import Token
from taskharbor.drivers import lines, threads
from taskharbor.drivers.fence import FenceShut
from taskharbor.drivers.lines import Lines
from taskharbor.drivers.rows import matches
from taskharbor.drivers.threads import Threads

TABLES: Final = (
    "jobs",
    "finished",
    "history",
    "keys",
    "workers",
    "leaders",
    "queues",
    "schedules",
    "notes",
    "tokens",
    *lines.TABLES,
    *threads.TABLES,
)
Undo = list[tuple[str, Any, Any]]
"""Table, key, and what was there before (None: no row)."""


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """Who holds an idempotency key, and until when."""

    job_id: str
    payload_hash: str | None
    expires_at: datetime | None


class State(Lines, Threads):
    """The tables. Every change goes through `put` or `drop`, so that a subclass of the driver can journal it."""

    def __init__(self) -> None:
        Lines.__init__(self)
        Threads.__init__(self)
        self.store_id = new_id()
        self.jobs: dict[str, Job] = {}
        self.finished: dict[str, Job] = {}
        self.history: dict[int, HistoryRow] = {}
        self.keys: dict[tuple[str, str], KeyRecord] = {}
        self.workers: dict[str, Worker] = {}
        self.leaders: dict[str, Leadership] = {}
        self.queues: dict[str, QueueSettings] = {}
        self.schedules: dict[str, Schedule] = {}
        self.tokens: dict[str, Token] = {}
        self.notes: dict[str, str] = {}
        """What moves of the whole store remember."""
        self.last_sequence = 0
        self.on_change: Callable[[str, Any, Any], None] | None = None
        self.restoring = False
        """While a job is put back to what it was: then it is no news."""
        self.undo: Undo | None = None
        """While something is being changed that may have to be forgotten. Written down before each step."""
        # Derived. Heap entries may be stale; whoever pops one checks it against the job.
        self.leases: dict[str, list[tuple[datetime, str]]] = defaultdict(list)
        self.expiries: dict[str, list[tuple[datetime, str]]] = defaultdict(list)
        self.sequences_of: dict[str, list[int]] = defaultdict(list)
        self._in_order = True

    def put(self, table: str, key: Any, value: Any) -> None:
        rows = getattr(self, table)
        if self.undo is not None:
            self.undo.append((table, key, rows.get(key)))
            if table == "jobs" and (self.tags or self.bench):
                self._keep_places(key)
        rows[key] = value
        if table == "jobs":
            self._index(value)
        elif table == "history":
            if key < self.last_sequence:  # restored to where it was
                bisect.insort(self.sequences_of[value.job_id], key)
                self._in_order = False
            else:
                self.sequences_of[value.job_id].append(key)
                self.last_sequence = key
        elif table == "steps":
            self.step_was_put(key, value)
        else:
            self._was_put(table, key, value)
        if self.on_change is not None:
            self.on_change(table, key, value)

    def _keep_places(self, job_id: str) -> None:
        """They may go with the job's being ready."""
        assert self.undo is not None
        self.undo += (("tags", job_id, self.tags.get(job_id)), ("bench", job_id, self.bench.get(job_id)))

    def before(self) -> State:
        """Another state: this one without what is in `undo`. It goes by the tables alone, since an interrupt may have
        come between any two steps."""
        state = State()
        state.store_id, state.last_sequence = self.store_id, self.last_sequence
        for table in TABLES:
            setattr(state, table, getattr(self, table).copy())
        for table, key, value in reversed(self.undo or ()):
            if value is None:
                getattr(state, table).pop(key, None)
            else:
                getattr(state, table)[key] = value
        state._derive()
        return state

    def _derive(self) -> None:
        for job in self.jobs.values():
            self._index(job)
        self._in_order = False
        for sequence, row in self.in_order().items():
            self.sequences_of[row.job_id].append(sequence)
        for place, step in self.steps.items():
            self.step_was_put(place, step)
        for table in ("bench", "buckets", "running"):
            for key, value in getattr(self, table).items():
                self._was_put(table, key, value)

    def restore(self, job: Job) -> None:
        """Put the job back as it was before it was leased in the same change."""
        self.restoring = True
        try:
            self.put("jobs", job.id, job)
        finally:
            self.restoring = False

    def drop(self, table: str, key: Any) -> None:
        rows = getattr(self, table)
        if self.undo is not None:
            self.undo.append((table, key, rows.get(key)))
            if table == "jobs":
                self._keep_places(key)
        gone = rows.pop(key)
        if table == "jobs":
            self.no_longer_ready(key)
        elif table == "steps":
            self.step_was_dropped(key, gone)
        elif table != "history":
            self._was_dropped(table, key)
        else:
            sequences = self.sequences_of[gone.job_id]
            sequences.remove(key)
            if not sequences:
                del self.sequences_of[gone.job_id]
        if self.on_change is not None:
            self.on_change(table, key, None)

    def leave_places(self, job_id: str) -> None:
        """The job has no place in a fair queue or on a bench any more."""
        for table in ("tags", "bench"):
            if job_id in getattr(self, table):
                self.drop(table, job_id)

    def record(self, fact: HistoryRow | None) -> None:
        if fact is not None:
            sequence = self.last_sequence + 1
            self.put("history", sequence, replace(fact, position=f"{self.store_id}:{sequence}"))

    def in_order(self) -> dict[int, HistoryRow]:
        """History by its sequence, also when some of it was restored."""
        if not self._in_order:
            self.history = dict(sorted(self.history.items()))
            self._in_order = True
        return self.history

    def ended_before(self, id: str, moment: datetime) -> bool:
        """Whether this was a job, is over, and its last fact is older. A step of a workflow that is still known is not
        over: others may want its result."""
        sequences = self.sequences_of.get(id)
        if not sequences or id in self.jobs or id in self.step_of:
            return False
        last = self.history[sequences[-1]]
        return last.status is not Status.READY and last.at < moment

    def apply(self, moved: transitions.Moved) -> Job:
        """Store what a move made of a job. Only ready, inflight and DLQ jobs stay among the live ones."""
        job = moved.job
        if job.status in (Status.DONE, Status.EXPIRED, Status.CANCELLED):
            self.drop("jobs", job.id)
            self.put("finished", job.id, job)
        else:
            self.put("jobs", job.id, job)
        self.record(moved.fact)
        return job

    @property
    def is_shut(self) -> bool:
        mark = self.queues.get(MOVING)
        return mark is not None and mark.paused

    def refuse_shut(self) -> None:
        if self.is_shut:
            raise FenceShut

    def find(self, id: str) -> Job:
        job = self.jobs.get(id) or self.finished.get(id)
        if job is None:
            raise JobNotFound(f"no job with the id {id!r}")
        return job

    def _index(self, job: Job) -> None:
        if job.status is Status.READY:
            self.line_up(job)
            if job.expires_at is not None:
                heapq.heappush(self.expiries[job.queue], (job.expires_at, job.id))
            return
        if self.tags or self.bench:
            self.no_longer_ready(job.id)
        if job.status is Status.INFLIGHT and job.lease_expires_at is not None:
            heapq.heappush(self.leases[job.queue], (job.lease_expires_at, job.id))


def claimable(
    state: State,
    queues: Sequence[str],
    now: datetime,
    limit: int,
    types: tuple[str, ...] | None,
    tenant: str | None = None,
) -> list[Job]:
    """The first `limit` due jobs over all the queues, taken off the heaps."""
    wanted = None if types is None else frozenset(types)
    passed_over: list[Job] = []

    def due(queue: str) -> Iterator[Job]:
        levels = {**state.ready[queue], **state.tagged[queue]} if queue in state.tagged else state.ready[queue]
        for priority in sorted(levels, reverse=True):
            for line in (state.tagged, state.ready):
                if queue not in line:
                    continue
                for job in state.in_line(line, queue, priority, now):
                    # The sweep before this is bounded, so it may have left some expired jobs for the next one.
                    expired = job.expires_at is not None and job.expires_at <= now
                    asked_for = (wanted is None or job.type in wanted) and tenant in (None, job.tenant_id)
                    if asked_for and not expired:
                        yield job
                    else:
                        passed_over.append(job)

    # Each stream is in order, so the next job overall is the least of their heads.
    streams = [due(queue) for queue in queues]
    heads = [(_rank(state, job), number, job) for number, stream in enumerate(streams) if (job := next(stream, None))]
    heapq.heapify(heads)
    chosen: dict[str, Job] = {}
    while heads and len(chosen) < limit:
        _, number, job = heapq.heappop(heads)
        chosen[job.id] = job
        following = next(streams[number], None)
        if following is not None:
            heapq.heappush(heads, (_rank(state, following), number, following))
    for job in (*passed_over, *(job for _, _, job in heads)):
        state.line_up(job)
    return list(chosen.values())


def _rank(state: State, job: Job) -> tuple[int, datetime, str]:
    return (-job.priority, state.place_in_line(job), job.id)


def dead(state: State, filter: JobFilter, after: str | None) -> list[Job]:
    """The DLQ jobs that match, in order of id, behind `after`."""
    return sorted(
        (
            job
            for job in state.jobs.values()
            if job.status is Status.DLQ and (after is None or job.id > after) and matches(job, filter)
        ),
        key=lambda job: job.id,
    )


def forget_jobs(state: State, ids: Collection[str]) -> int:
    """Jobs that are over, with their history and their keys. Returns how many."""
    for id in ids:
        for sequence in list(state.sequences_of[id]):
            state.drop("history", sequence)
        if id in state.finished:
            forget_key(state, state.finished[id])
            state.drop("finished", id)
    return len(ids)


def forget_key(state: State, job: Job) -> None:
    if job.dedupe_scope is None or job.idempotency_key is None:
        return
    record = state.keys.get((job.dedupe_scope, job.idempotency_key))
    if record is not None and record.job_id == job.id:
        state.drop("keys", (job.dedupe_scope, job.idempotency_key))
