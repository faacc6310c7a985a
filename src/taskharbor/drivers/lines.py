"""The part of the in-process engine's data that limits and fair shares need: where jobs stand in line or on a bench,
what counts in which bucket, and a few heaps that make it quick to ask."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from taskharbor.core.fairness import tag_time
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Job, Status

Line = dict[str, dict[int, list[tuple[datetime, str]]]]
"""Heaps by queue and priority."""
TABLES: Final = ("limits", "buckets", "bench", "running", "fair", "tags")


@dataclass(frozen=True, slots=True)
class BucketRecord:
    """Of a bucket with a bench or with tokens: its limit's key, its tokens when they were counted, the next look."""

    limit: tuple[str, str, str]
    tokens: float | None = None
    counted_at: datetime | None = None
    wake_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunningRecord:
    """That a job counts in a bucket, as long as it is leased with this token."""

    token: str
    until: datetime


class Lines:
    """A job itself always has its true due time. `tags` has its place in a fair queue and `bench` the bucket that it
    waits for; both end with the job's being ready."""

    jobs: dict[str, Job]

    def __init__(self) -> None:
        self.limits: dict[tuple[str, str, str], Limit] = {}
        self.buckets: dict[str, BucketRecord] = {}
        self.bench: dict[str, str] = {}
        self.running: dict[tuple[str, str], RunningRecord] = {}
        self.fair: dict[tuple[str, int, str], int] = {}
        self.tags: dict[str, int] = {}
        # Derived. Heap entries may be stale; whoever pops one checks it against the tables.
        self.ready: Line = defaultdict(lambda: defaultdict(list))
        self.tagged: Line = defaultdict(lambda: defaultdict(list))
        self.waiting: dict[str, list[tuple[int, datetime, str]]] = defaultdict(list)
        self.wakes: list[tuple[datetime, str]] = []
        self.untils: list[tuple[datetime, str, str]] = []
        self.notes_in: dict[str, set[str]] = defaultdict(set)
        self.notes_of: dict[str, set[str]] = defaultdict(set)

    def place(self, job: Job) -> datetime | None:
        """What the job goes by in the order of claims; None on a bench."""
        if job.id in self.bench:
            return None
        return self.place_in_line(job)

    def place_in_line(self, job: Job) -> datetime:
        tag = self.tags.get(job.id)
        return job.due_at if tag is None else tag_time(tag)

    def line_up(self, job: Job) -> None:
        """Where claims find the job; nowhere while it is on a bench."""
        if job.id in self.bench:
            return
        line = self.tagged if job.id in self.tags else self.ready
        heapq.heappush(line[job.queue][job.priority], (self.place_in_line(job), job.id))

    def in_line(self, line: Line, queue: str, priority: int, until: datetime) -> Iterator[Job]:
        """The jobs of one heap of a line, taken off it in order, as far as `until`."""
        heap = line[queue][priority]
        while heap and heap[0][0] <= until:
            place, job_id = heapq.heappop(heap)
            if self._stands(job_id, queue, priority, place):
                yield self.jobs[job_id]

    def _stands(self, job_id: str, queue: str, priority: int, place: datetime) -> bool:
        """Whether the job is where an entry of a heap says; a unique job that was replaced may be in another queue."""
        job = self.jobs.get(job_id)
        if job is None or job.status is not Status.READY or (job.queue, job.priority) != (queue, priority):
            return False
        return self.place(job) == place

    def first_tag(self, queue: str, priority: int) -> int | None:
        """Of those that wait in line."""
        heap = self.tagged[queue][priority]
        while heap:
            place, job_id = heap[0]
            if self._stands(job_id, queue, priority, place):
                return self.tags[job_id]
            heapq.heappop(heap)
        return None

    def no_longer_ready(self, job_id: str) -> None:
        self.tags.pop(job_id, None)
        self.bench.pop(job_id, None)

    def has_bench(self, bucket: str) -> bool:
        heap = self.waiting.get(bucket)
        while heap and not self.sits(bucket, heap[0]):
            heapq.heappop(heap)
        return bool(heap)

    def sits(self, bucket: str, entry: tuple[int, datetime, str]) -> bool:
        """Whether the job is on the bucket's bench as an entry of its heap says."""
        _, place, id = entry
        return self.bench.get(id) == bucket and self.place_in_line(self.jobs[id]) == place

    def _was_put(self, table: str, key: Any, value: Any) -> None:
        if table == "bench":
            job = self.jobs[key]
            heapq.heappush(self.waiting[value], (-job.priority, self.place_in_line(job), key))
        elif table == "tags":
            self.line_up(self.jobs[key])
            if key in self.bench:  # as when a snapshot is read, which has the benches first
                self._was_put("bench", key, self.bench[key])
        elif table == "buckets":
            if value.wake_at is not None:
                heapq.heappush(self.wakes, (value.wake_at, key))
        elif table == "running":
            bucket, job_id = key
            self.notes_in[bucket].add(job_id)
            self.notes_of[job_id].add(bucket)
            heapq.heappush(self.untils, (value.until, bucket, job_id))

    def _was_dropped(self, table: str, key: Any) -> None:
        if table in ("bench", "tags") and key in self.jobs:
            self.line_up(self.jobs[key])
            if key in self.bench:  # without its tag it has another place there
                self._was_put("bench", key, self.bench[key])
        elif table == "running":
            bucket, job_id = key
            for notes, one, other in ((self.notes_in, bucket, job_id), (self.notes_of, job_id, bucket)):
                notes[one].discard(other)
                if not notes[one]:
                    del notes[one]
