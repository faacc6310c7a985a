"""The queue inside one process, shared by the memory and the JSON driver.

`EngineDriver` runs the pure moves of `core.transitions` on a `State`. A subclass decides where the state lives by
overriding `_reading` and `_writing`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from taskharbor.core import transitions
from taskharbor.core.clock import EPOCH
from taskharbor.core.contract import Answers, Extended, Leased, Settled
from taskharbor.core.errors import TaskHarborError
from taskharbor.core.fleet import Leadership, Recovery, Worker
from taskharbor.core.ids import new_ids, new_tokens
from taskharbor.core.intake import Admitted, Batch, check_duplicate, id_taken
from taskharbor.core.limits import SWEEP_BATCH
from taskharbor.core.model import (
    Extension,
    JobFilter,
    Lease,
    LeasedJob,
    Schedule,
    Settlement,
    Status,
)
from taskharbor.core.unique import Verdict
from taskharbor.drivers.desk import Before
from taskharbor.drivers.engine_reading import EngineReading
from taskharbor.drivers.governing import Ask
from taskharbor.drivers.lapsing import lapse
from taskharbor.drivers.operations import RedrivePlan
from taskharbor.drivers.rows import job_from_admitted, merge_answers, replaced_by
from taskharbor.drivers.scheduling import advanced, no_schedule, put_over
from taskharbor.drivers.state import KeyRecord, State, claimable, dead, forget_jobs, forget_key


class EngineDriver(EngineReading):
    """Every operation of the contract on a `State`."""

    # --- Queueing ----------------------------------------------------------------------------------------

    def _enqueue(self, batch: Batch) -> Answers:
        with self._changing() as state:
            answers = {job.id: self._existing(state, job) for job in batch.fresh}
            fresh_ids = {job.id for job in batch.fresh if answers[job.id] is None}
            if len(answers) != len(batch.fresh):
                ids = [job.id for job in batch.fresh]
                raise id_taken(next(id for id in ids if ids.count(id) > 1))
            for job in batch.fresh:
                if job.id in fresh_ids and (job.id in state.jobs or job.id in state.finished):
                    raise id_taken(job.id)
            for job in batch.fresh:
                if job.id not in fresh_ids:
                    continue
                if job.idempotency_key is not None:
                    record = KeyRecord(job.id, job.payload_hash, job.key_expires_at)
                    state.put("keys", (job.dedupe_scope, job.idempotency_key), record)
                state.put("jobs", job.id, job_from_admitted(job))
            existing = {job_id: kept for job_id, kept in answers.items() if kept is not None}
            for job in batch.fresh:
                if job.id in existing and job.duplicates.replaces:
                    self._replace(state, job, existing[job.id])
        return merge_answers(batch, existing)

    @staticmethod
    def _replace(state: State, job: Admitted, holder_id: str) -> None:
        """A holder that has not begun becomes what `job` is."""
        holder = state.find(holder_id)
        if holder.status is Status.READY:
            state.leave_places(holder.id)  # it is another job now
            state.put("jobs", holder.id, replaced_by(holder, job.in_place_of(holder.id)))
            record = KeyRecord(holder.id, job.payload_hash, job.key_expires_at)
            state.put("keys", (job.dedupe_scope, job.idempotency_key), record)

    @staticmethod
    def _existing(state: State, job: Admitted) -> str | None:
        """The id of the job that holds the key of `job`, if one does."""
        if job.idempotency_key is None or job.dedupe_scope is None:
            return None
        record = state.keys.get((job.dedupe_scope, job.idempotency_key))
        if record is None or (record.expires_at is not None and record.expires_at <= job.created_at):
            return None
        if job.duplicates.while_in is not None:
            holder = state.jobs.get(record.job_id) or state.finished.get(record.job_id)
            if job.duplicates.verdict(holder.status if holder else None) is Verdict.INSERT:
                return None
        check_duplicate(job, record.job_id, record.payload_hash)
        return record.job_id

    def _reserve(
        self,
        queues: tuple[str, ...],
        now: datetime,
        lease_for: timedelta,
        limit: int,
        types: tuple[str, ...] | None,
        owner: str,
        tenant: str | None = None,
    ) -> Leased:
        with self._writing() as state:
            return self._lease(state, Ask(queues, now, lease_for, limit, types, owner, tenant), {})

    def _lease(self, state: State, ask: Ask, before: Before) -> Leased:
        queues, now, lease_for, limit, types, owner, tenant = ask
        if state.is_shut:
            return []
        self._sweep(state, queues, now)
        open_queues = [name for name in queues if name not in state.queues or not state.queues[name].paused]
        chosen = claimable(state, open_queues, now, limit, types, tenant)
        leased = []
        for job, token in zip(chosen, new_tokens(len(chosen)), strict=True):
            before[job.id] = job, state.tags.get(job.id)
            held = transitions.reserve(job, token=token, owner=owner, now=now, lease_for=lease_for)
            state.put("jobs", held.id, held)
            leased.append(LeasedJob(held, Lease(token, now + lease_for, owner, False)))
        return leased

    def _sweep(self, state: State, queues: Sequence[str], now: datetime) -> None:
        self._take_back(state, queues, now)
        self._expire(state, queues, now)

    def _take_back(self, state: State, queues: Sequence[str], now: datetime) -> int:
        freed = 0
        for queue in queues:
            heap = state.leases[queue]
            while heap and heap[0][0] <= now and freed < SWEEP_BATCH:
                ended_at, job_id = heapq.heappop(heap)
                job = state.jobs.get(job_id)
                if job and job.status is Status.INFLIGHT and job.lease_expires_at == ended_at:
                    state.apply(lapse(job, now, self.limits, transitions.LAPSED_TEXT))
                    freed += 1
        return freed

    @staticmethod
    def _expire(state: State, queues: Sequence[str], now: datetime) -> int:
        expired = 0
        for queue in queues:
            heap = state.expiries[queue]
            while heap and heap[0][0] <= now and expired < SWEEP_BATCH:
                _, job_id = heapq.heappop(heap)
                job = state.jobs.get(job_id)
                if job is None or job.status is not Status.READY or job.queue != queue:
                    continue
                if job.expires_at is not None and job.expires_at <= now:
                    state.apply(transitions.expire(job, now))
                    expired += 1
        return expired

    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        with self._writing() as state:
            return [self._settle_item(state, item, now) for item in settlements]

    @staticmethod
    def _settle_item(state: State, item: Settlement, now: datetime) -> Status | TaskHarborError:
        try:
            job = state.find(item.id)
            last = state.history.get(state.sequences_of.get(item.id, [0])[-1])
            if transitions.repeats(item, job.status, last.attempt if last else None):
                return job.status
            transitions.check_lease(job, item.token, now)
        except TaskHarborError as error:
            return error
        return state.apply(transitions.settle(job, item, now)).status

    def _extend(self, extensions: Sequence[Extension], now: datetime) -> Extended:
        results: Extended = []
        with self._writing() as state:
            for item in extensions:
                try:
                    job = state.find(item.id)
                    transitions.check_lease(job, item.token, now)
                except TaskHarborError as error:
                    results.append(error)
                    continue
                held = transitions.extend(job, item, now)
                state.put("jobs", held.id, held)
                assert held.lease_expires_at is not None
                cancelled = held.cancel_requested_at is not None
                results.append(Lease(item.token, held.lease_expires_at, held.lease_owner or "", cancelled))
        return results

    # --- By hand -----------------------------------------------------------------------------------------

    def _cancel(self, id: str, now: datetime) -> Status:
        with self._changing() as state:
            job = state.find(id)
            if job.status not in (Status.READY, Status.INFLIGHT):
                return job.status
            return state.apply(transitions.cancel(job, now)).status

    def _redrive(
        self, filter: JobFilter, after: str | None, limit: int, plan: RedrivePlan
    ) -> tuple[Sequence[str], Sequence[str]]:
        with self._changing() as state:
            jobs = dead(state, filter, after)[:limit]
            ids = new_ids(len(jobs)) if plan.clone else [job.id for job in jobs]
            for number, (job, new) in enumerate(zip(jobs, ids, strict=True)):
                run_at = plan.run_at(number)
                if plan.clone:
                    moved = transitions.clone(job, plan.now, id=new, run_at=run_at)
                else:
                    moved = transitions.redrive(job, plan.now, run_at=run_at, reset_attempts=plan.reset_attempts)
                state.put("jobs", moved.id, moved)
            return [job.id for job in jobs], ids

    def _purge(self, filter: JobFilter, limit: int) -> int:
        with self._changing() as state:
            jobs = dead(state, filter, None)[:limit]
            for job in jobs:
                state.drop("jobs", job.id)
                forget_key(state, job)
            return len(jobs)

    # --- Fleet -------------------------------------------------------------------------------------------

    def _heartbeat(self, worker: Worker, now: datetime) -> None:
        with self._writing() as state:
            known = state.workers.get(worker.id)
            started_at = worker.started_at or (known.started_at if known else now)
            state.put("workers", worker.id, replace(worker, started_at=started_at, last_heartbeat=now))

    def _workers(self) -> Sequence[Worker]:
        with self._reading() as state:
            return [state.workers[id] for id in sorted(state.workers)]

    def _deregister(self, worker_id: str) -> None:
        with self._writing() as state:
            if worker_id in state.workers:
                state.drop("workers", worker_id)

    def _elect(self, name: str, holder: str, now: datetime, term: timedelta, epoch: int | None) -> Leadership | None:
        with self._writing() as state:
            current = state.leaders.get(name)
            held = current is not None and current.until > now
            if held or epoch is not None:
                if current is None or not held or current.holder != holder or epoch not in (None, current.epoch):
                    return None
                won = replace(current, until=now + term)
            else:
                won = Leadership(name, holder, current.epoch + 1 if current else 1, now + term)
            state.put("leaders", name, won)
            return won

    def _resign(self, name: str, holder: str, epoch: int) -> None:
        with self._writing() as state:
            current = state.leaders.get(name)
            if current and current.holder == holder and current.epoch == epoch:
                state.put("leaders", name, replace(current, until=EPOCH))

    def _leaders(self) -> Sequence[Leadership]:
        with self._reading() as state:
            return [state.leaders[name] for name in sorted(state.leaders)]

    def _recover(self, now: datetime, dead_after: timedelta) -> Recovery:
        with self._writing() as state:
            silent = [w for w in state.workers.values() if w.last_heartbeat and w.last_heartbeat <= now - dead_after]
            for worker in silent:
                state.drop("workers", worker.id)
            owners = {worker.id for worker in silent}
            orphans = [j for j in state.jobs.values() if j.status is Status.INFLIGHT and j.lease_owner in owners]
            for job in orphans:
                state.apply(lapse(job, now, self.limits, transitions.ORPHANED_TEXT))
            names = sorted({job.queue for job in state.jobs.values()})
            freed = self._take_back(state, names, now)
            return Recovery(len(silent), len(orphans) + freed, self._expire(state, names, now))

    def _prune(self, before: datetime, limit: int, upto: str | None) -> int:
        with self._changing() as state:
            last = state.last_sequence if upto is None else self._sequence_of(state, upto)
            ended: dict[str, None] = {}
            for sequence, row in state.in_order().items():
                if sequence > last:
                    break
                if state.sequences_of[row.job_id][-1] == sequence and state.ended_before(row.job_id, before):
                    ended[row.job_id] = None
                    if len(ended) == limit:
                        break
            return forget_jobs(state, ended)

    def _prune_chosen(self, ids: Sequence[str], before: datetime, limit: int, upto: str | None) -> int:
        with self._changing() as state:
            last = state.last_sequence if upto is None else self._sequence_of(state, upto)
            ended = [id for id in ids if state.ended_before(id, before) and state.sequences_of[id][-1] <= last]
            return forget_jobs(state, ended[:limit])

    # --- Schedules ---------------------------------------------------------------------------------------

    def _put_schedule(self, schedule: Schedule) -> Schedule:
        with self._changing() as state:
            kept = put_over(state.schedules.get(schedule.name), schedule)
            state.put("schedules", kept.name, kept)
            return kept

    def _schedules(self) -> Sequence[Schedule]:
        with self._reading() as state:
            return [state.schedules[name] for name in sorted(state.schedules)]

    def _get_schedule(self, name: str) -> Schedule:
        with self._reading() as state:
            if name not in state.schedules:
                raise no_schedule(name)
            return state.schedules[name]

    def _pause_schedule(self, name: str, paused: bool, now: datetime) -> bool:
        with self._changing() as state:
            kept = state.schedules.get(name)
            if kept is not None:
                state.put("schedules", name, replace(kept, paused=paused, updated_at=now))
            return kept is not None

    def _remove_schedule(self, name: str) -> bool:
        with self._changing() as state:
            known = name in state.schedules
            if known:
                state.drop("schedules", name)
            return known

    def _advance_schedule(
        self,
        name: str,
        expected: datetime | None,
        next_run_at: datetime | None,
        last_run_at: datetime | None,
        last_job_id: str | None,
        now: datetime,
    ) -> bool:
        with self._writing() as state:
            kept = state.schedules.get(name)
            if kept is None or kept.next_run_at != expected:
                return False
            state.put("schedules", name, advanced(kept, next_run_at, last_run_at, last_job_id, now))
            return True
