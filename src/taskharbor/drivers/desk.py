"""The desk of the in-process engine: what a governed claim asks for, on a `State` that is held for one change."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Final

from taskharbor.core.contract import Leased
from taskharbor.core.fairness import HEAD_OF_LINE, Newcomer
from taskharbor.core.limiting import Limit, Standing
from taskharbor.core.model import Job, Status
from taskharbor.drivers.flowdesk import EngineFlows
from taskharbor.drivers.governing import AT_ONCE, Ask, Benched, Running, Woken
from taskharbor.drivers.lines import BucketRecord, RunningRecord
from taskharbor.drivers.state import State
from taskharbor.drivers.tidying import Resting

NOTES_AT_ONCE: Final = 500
Before = dict[str, tuple[Job, int | None]]
"""The jobs that were leased, as they were, and their tags."""
Lease = Callable[[State, Ask, Before], Leased]
Sweep = Callable[[State, Sequence[str], datetime], object]


class EngineDesk(EngineFlows):
    """Whoever has the state has it alone, so there is nothing to hold."""

    def __init__(self, state: State, lease: Lease, sweep: Sweep) -> None:
        self._state = state
        self._lease = lease
        self._sweep = sweep
        self._before: dict[str, tuple[Job, int | None]] = {}

    def hold(self, limits: Sequence[Limit]) -> Sequence[Limit]:
        known = self._state.limits
        return [known[limit.key] for limit in limits if limit.key in known]

    # --- What runs -----------------------------------------------------------------------------------------

    def ended(self, ids: Sequence[str]) -> None:
        for id in ids:
            for bucket in sorted(self._state.notes_of.get(id, ())):
                if not self._counts(bucket, id):
                    self._strike(bucket, id)

    def lapsed(self, now: datetime) -> None:
        untils = self._state.untils
        for _ in range(NOTES_AT_ONCE):
            if not untils or untils[0][0] > now:
                return
            until, bucket, id = heapq.heappop(untils)
            note = self._state.running.get((bucket, id))
            if note is None or note.until != until:
                continue
            job = self._state.jobs.get(id)
            if job is None or not self._counts(bucket, id) or (job.lease_expires_at or now) <= now:
                self._strike(bucket, id)
            elif job.lease_expires_at is not None:
                self._state.put("running", (bucket, id), replace(note, until=job.lease_expires_at))

    def doubt(self, ids: Sequence[str] | None = None) -> None:
        known = self._state.running
        chosen = list(known) if ids is None else [(b, id) for id in ids for b in self._state.notes_of.get(id, ())]
        for bucket, id in chosen:
            note = known[bucket, id]
            job = self._state.jobs.get(id)
            ends = None if job is None or not self._counts(bucket, id) else job.lease_expires_at
            if note.until != AT_ONCE and (ends is None or ends < note.until):
                self._state.put("running", (bucket, id), replace(note, until=AT_ONCE))

    def leased(self, now: datetime) -> Sequence[Job]:
        return [
            job
            for job in self._state.jobs.values()
            if job.status is Status.INFLIGHT and job.lease_expires_at is not None and job.lease_expires_at > now
        ]

    def note(self, running: Sequence[Running]) -> None:
        for bucket, id, token, until in running:
            self._state.put("running", (bucket, id), RunningRecord(token, until))

    def _counts(self, bucket: str, id: str) -> bool:
        """Whether the job of this note is still leased as it says."""
        job = self._state.jobs.get(id)
        return (
            job is not None
            and job.status is Status.INFLIGHT
            and job.lease_token == self._state.running[bucket, id].token
        )

    def _strike(self, bucket: str, id: str) -> None:
        self._state.drop("running", (bucket, id))
        kept = self._state.buckets.get(bucket)
        if kept is not None and self._state.has_bench(bucket) and kept.wake_at != AT_ONCE:
            self._state.put("buckets", bucket, replace(kept, wake_at=AT_ONCE))

    # --- Buckets -------------------------------------------------------------------------------------------

    def woken(self, ask: Ask, most: int) -> Sequence[Woken]:
        found: dict[str, Woken] = {}
        passed: set[tuple[datetime, str]] = set()
        wakes = self._state.wakes
        while wakes and wakes[0][0] <= ask.now and len(found) < most:
            wake_at, bucket = heapq.heappop(wakes)
            kept = self._state.buckets.get(bucket)
            if kept is None or kept.wake_at != wake_at:
                continue
            if self._holds_wanted(bucket, kept.limit, ask):
                found[bucket] = Woken(bucket, kept.limit)
            else:
                passed.add((wake_at, bucket))
        for each in passed:
            heapq.heappush(wakes, each)
        return list(found.values())

    def _holds_wanted(self, bucket: str, limit: tuple[str, str, str], ask: Ask) -> bool:
        scope, name, _ = limit
        if scope == "queue" and (name not in ask.queues or not ask.chooses):
            return name in ask.queues
        state = self._state
        bench = state.waiting.get(bucket, ())
        return any(state.sits(bucket, entry) and ask.wants(state.jobs[entry[2]]) for entry in bench)

    def standings(self, buckets: Sequence[str]) -> Mapping[str, Standing]:
        found = {}
        for bucket in buckets:
            running = sum(1 for id in self._state.notes_in.get(bucket, ()) if self._counts(bucket, id))
            kept = self._state.buckets.get(bucket)
            found[bucket] = Standing(running)
            if kept is not None and kept.tokens is not None:
                found[bucket] = Standing(running, kept.tokens, kept.counted_at)
        return found

    def spend(self, tokens: Mapping[str, tuple[Limit, float, datetime]]) -> None:
        for bucket, (limit, left, counted_at) in tokens.items():
            kept = self._state.buckets.get(bucket) or BucketRecord(limit.key)
            self._state.put("buckets", bucket, replace(kept, limit=limit.key, tokens=left, counted_at=counted_at))

    def rest(self, until: Mapping[str, datetime]) -> None:
        for bucket, moment in until.items():
            kept = self._state.buckets[bucket]
            if self._state.has_bench(bucket):
                self._state.put("buckets", bucket, replace(kept, wake_at=moment))
            elif kept.tokens is None:
                self._state.drop("buckets", bucket)
            else:
                self._state.put("buckets", bucket, replace(kept, wake_at=None))

    # --- The line and the benches --------------------------------------------------------------------------

    def claim(self, ask: Ask) -> Leased:
        return self._lease(self._state, ask, self._before)

    def bench(self, jobs: Sequence[Benched], limits: Mapping[str, Limit], wake: Mapping[str, datetime]) -> None:
        for (job, _), bucket in jobs:
            before, tag = self._before.pop(job.id)
            self._state.restore(before)
            if tag is not None:
                self._state.put("tags", job.id, tag)
            if bucket:
                self._state.put("bench", job.id, bucket)
        for bucket, moment in wake.items():
            kept = self._state.buckets.get(bucket) or BucketRecord(limits[bucket].key)
            self._state.put("buckets", bucket, replace(kept, wake_at=moment))

    def unbench(self, counts: Mapping[str, int], ask: Ask) -> Mapping[str, int]:
        return {bucket: self._unbench_one(bucket, count, ask) for bucket, count in counts.items()}

    def _unbench_one(self, bucket: str, count: int, ask: Ask) -> int:
        state = self._state
        back, passed = 0, set[tuple[int, datetime, str]]()
        while back < count and state.has_bench(bucket):
            entry = heapq.heappop(state.waiting[bucket])
            if ask.wants(state.jobs[entry[2]]):
                state.drop("bench", entry[2])
                back += 1
            else:
                passed.add(entry)
        for entry in passed:
            heapq.heappush(state.waiting[bucket], entry)
        return back

    # --- Fair shares ---------------------------------------------------------------------------------------

    def newcomers(
        self, queue: str, now: datetime, most: int, ids: Sequence[str] | None
    ) -> Mapping[int, list[Newcomer]]:
        state = self._state
        found: dict[int, list[Newcomer]] = {}
        if ids is not None:
            jobs = [state.jobs[id] for id in ids if id in state.jobs]
            jobs = [job for job in jobs if job.queue == queue and self._is_newcomer(job, now)][:most]
            for job in sorted(jobs, key=lambda job: (-job.priority, job.due_at, job.id)):
                found.setdefault(job.priority, []).append(Newcomer(job.id, job.tenant_id))
            return found
        self._sweep(state, [queue], now)  # what comes back by that is new in line, too
        seen: set[str] = set()
        for priority in sorted(state.ready[queue], reverse=True):
            if len(seen) >= most:
                break
            for job in state.in_line(state.ready, queue, priority, now):
                if job.id not in seen:
                    seen.add(job.id)
                    found.setdefault(priority, []).append(Newcomer(job.id, job.tenant_id))
                if len(seen) >= most:
                    break
        return found

    def _is_newcomer(self, job: Job, now: datetime) -> bool:
        waits = job.status is Status.READY and job.id not in self._state.bench
        return waits and job.due_at <= now and job.id not in self._state.tags

    def tags(self, queue: str, priority: int, tenants: Sequence[str]) -> tuple[Mapping[str, int], int]:
        known = self._state.fair
        last = {tenant: known[place] for tenant in tenants if (place := (queue, priority, tenant)) in known}
        first = self._state.first_tag(queue, priority)
        return last, known.get((queue, priority, ""), 0) if first is None else first

    def give(self, queue: str, priority: int, tags: Sequence[tuple[str, int]], last: Mapping[str, int]) -> None:
        for id, tag in tags:
            self._state.put("tags", id, tag)
        highest = max((self._state.fair.get((queue, priority, ""), 0), *last.values()))
        for tenant, tag in {**last, "": highest}.items():
            self._state.put("fair", (queue, priority, tenant), tag)

    def highest_tag(self, ids: Sequence[str]) -> int | None:
        return max((tag for id in ids if (tag := self._before[id][1]) is not None), default=None)

    def advance_line(self, queue: str, priority: int, tag: int) -> None:
        line = (queue, priority, HEAD_OF_LINE)
        if tag > self._state.fair.get(line, 0):
            self._state.put("fair", line, tag)

    def untag(self, queue: str, priority: int, most: int) -> int:
        state = self._state
        line = (id for id in state.tags if id not in state.bench and self._is_in(state.jobs[id], queue, priority))
        ids = list(islice(line, most))
        for id in ids:
            state.drop("tags", id)
        return len(ids)

    @staticmethod
    def _is_in(job: Job, queue: str, priority: int) -> bool:
        return job.queue == queue and job.priority == priority

    def untag_bench(self, queue: str) -> None:
        state = self._state
        for id in [id for id in state.tags if id in state.bench and state.jobs[id].queue == queue]:
            state.drop("tags", id)

    # --- Tidying -------------------------------------------------------------------------------------------

    def resting(self, after: str, most: int) -> Sequence[Resting]:
        found = {
            bucket: kept for bucket, kept in self._state.buckets.items() if bucket > after and kept.wake_at is None
        }
        chosen = heapq.nsmallest(most, found)
        return [Resting(each, found[each].limit, found[each].tokens, found[each].counted_at) for each in chosen]

    def hurry(self, key: tuple[str, str, str], beyond: datetime, now: datetime) -> None:
        for bucket, kept in list(self._state.buckets.items()):
            if kept.limit == key and kept.wake_at is not None and kept.wake_at > beyond:
                self._state.put("buckets", bucket, replace(kept, wake_at=now))

    def forget(self, buckets: Sequence[str]) -> None:
        for bucket in buckets:
            self._state.drop("buckets", bucket)

    def next_line(self, queue: str, after: int | None) -> int | None:
        lines = {priority for name, priority, _ in self._state.fair if name == queue}
        return min((priority for priority in lines if after is None or priority > after), default=None)

    def tenants(self, queue: str, priority: int, after: str, most: int) -> Sequence[tuple[str, int]]:
        tags = {place[2]: tag for place, tag in self._state.fair.items() if place[:2] == (queue, priority)}
        return [(tenant, tags[tenant]) for tenant in heapq.nsmallest(most, (each for each in tags if each > after))]

    def fade(self, queue: str, priority: int, tenants: Sequence[str]) -> None:
        for tenant in tenants:
            self._state.drop("fair", (queue, priority, tenant))
