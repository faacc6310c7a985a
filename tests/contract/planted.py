"""The memory driver with one bug each: what the conformance suite has to find."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from tests.contract.nesting import NestingDriver

from taskharbor.core.contract import Answers, Extended, Leased, Settled
from taskharbor.core.errors import JobNotInflight, LeaseMismatch, TaskHarborError
from taskharbor.core.intake import Batch
from taskharbor.core.limits import Limits
from taskharbor.core.model import (
    Extension,
    Outcome,
    Settle,
    Settlement,
    Status,
)
from taskharbor.drivers.state import State

TICK: Final = timedelta(microseconds=1)
ONE_TOKEN: Final = "f" * 32


# --- Leases ------------------------------------------------------------------------------------------------


class TokenCheckDropped(NestingDriver):
    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        with self._writing() as state:
            held = {item.id: state.jobs[item.id].lease_token for item in settlements if item.id in state.jobs}
        return super()._settle([item._replace(token=held.get(item.id) or item.token) for item in settlements], now)


class LeaseLastsAMomentTooLong(NestingDriver):
    """`>` in place of `>=` where the end of a lease is checked."""

    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        return super()._settle(settlements, now - TICK)


class ExtendAfterTheEnd(NestingDriver):
    def _extend(self, extensions: Sequence[Extension], now: datetime) -> Extended:
        return super()._extend(extensions, now - TICK)


class MismatchBeforeExpired(NestingDriver):
    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        with self._writing() as state:
            tokens = {item.id: state.jobs[item.id].lease_token for item in settlements if item.id in state.jobs}
        wrong = [tokens.get(item.id) not in (None, item.token) for item in settlements]
        results = super()._settle(settlements, now)
        return [LeaseMismatch("wrong") if bad else result for bad, result in zip(wrong, results, strict=True)]


class OneTokenForAll(NestingDriver):
    def _reserve(self, *args: Any) -> Leased:
        leased = super()._reserve(*args)
        with self._writing() as state:
            for item in leased:
                state.put("jobs", item.job.id, item.job._replace(lease_token=ONE_TOKEN))
        return [
            x._replace(job=x.job._replace(lease_token=ONE_TOKEN), lease=x.lease._replace(token=ONE_TOKEN))
            for x in leased
        ]


# --- Reclaim -----------------------------------------------------------------------------------------------


class ReclaimMissing(NestingDriver):
    def _take_back(self, state: State, queues: Sequence[str], now: datetime) -> int:
        return 0


class ReclaimAMomentTooLate(NestingDriver):
    def _take_back(self, state: State, queues: Sequence[str], now: datetime) -> int:
        return super()._take_back(state, queues, now - TICK)


class RunAtKeptOnReclaim(NestingDriver):
    def _take_back(self, state: State, queues: Sequence[str], now: datetime) -> int:
        before = {job.id: job.run_at for job in state.jobs.values() if job.status is Status.INFLIGHT}
        freed = super()._take_back(state, queues, now)
        for job_id, run_at in before.items():
            if job_id in state.jobs and state.jobs[job_id].status is Status.READY:
                state.put("jobs", job_id, state.jobs[job_id]._replace(run_at=run_at))
        return freed


class DeliveriesNotRaised(NestingDriver):
    def _reserve(self, *args: Any) -> Leased:
        leased = [
            x._replace(job=x.job._replace(deliveries=max(1, x.job.deliveries - 1))) for x in super()._reserve(*args)
        ]
        with self._writing() as state:
            for item in leased:
                state.put("jobs", item.job.id, item.job)
        return leased


class CrashLoopNeverEnds(NestingDriver):
    def __init__(self) -> None:
        super().__init__(limits=Limits(crash_allowance=1_000_000))


# --- Settling ----------------------------------------------------------------------------------------------


class ReleaseBurnsAnAttempt(NestingDriver):
    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        results = super()._settle(settlements, now)
        with self._writing() as state:
            for item, result in zip(settlements, results, strict=True):
                if item.kind is Settle.RELEASE and result is Status.READY:
                    job = state.jobs[item.id]
                    state.put("jobs", item.id, job._replace(attempts=job.attempts + 1))
        return results


class RepeatedAckFails(NestingDriver):
    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        with self._writing() as state:
            finished = {item.id for item in settlements if item.id in state.finished}
        results = super()._settle(settlements, now)
        return [
            JobNotInflight("over") if item.id in finished else r for item, r in zip(settlements, results, strict=True)
        ]


class RepeatedAckOfAnybody(NestingDriver):
    """Takes any token for a repeat."""

    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        with self._writing() as state:
            over = {item.id: state.finished[item.id].status for item in settlements if item.id in state.finished}
        results = super()._settle(settlements, now)
        return [over.get(item.id, result) for item, result in zip(settlements, results, strict=True)]


class BatchFailsItsNeighbours(NestingDriver):
    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        results = super()._settle(settlements, now)
        broken = next((result for result in results if isinstance(result, TaskHarborError)), None)
        return [broken or result for result in results]


class BatchWithoutAttempts(NestingDriver):
    """Writes the attempt of the first job of a batch only."""

    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        with self._writing() as state:
            results = []
            for number, item in enumerate(settlements):
                results += super()._settle([item], now)
                rows = state.sequences_of.get(item.id)
                if number and rows:
                    state.drop("history", rows[-1])
            return results


class RetryLeavesNoHistory(NestingDriver):
    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        results = super()._settle(settlements, now)
        with self._writing() as state:
            for number in [n for n, row in state.history.items() if row.outcome is Outcome.RETRIED]:
                state.drop("history", number)
        return results


class ErrorTextStoredAsItComes(NestingDriver):
    def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> Settled:
        return self._settle(settlements, self._moment(now))


# --- Enqueue and order -------------------------------------------------------------------------------------


class DoubleInsertOnDuplicateKey(NestingDriver):
    @staticmethod
    def _existing(state: State, job: Any) -> str | None:  # noqa: ARG004
        return None


class _OtherKeys(NestingDriver):
    """Changes what makes up a key."""

    def _key(self, job: Any) -> Any:
        raise NotImplementedError

    def _enqueue(self, batch: Batch) -> Answers:
        return super()._enqueue(batch._replace(fresh=[self._key(job) for job in batch.fresh]))


class KeySharedAcrossTenants(_OtherKeys):
    def _key(self, job: Any) -> Any:
        return job if job.dedupe_scope is None else job._replace(dedupe_scope="everybody")


class KeyIgnoresCase(_OtherKeys):
    def _key(self, job: Any) -> Any:
        return job if job.idempotency_key is None else job._replace(idempotency_key=job.idempotency_key.lower())


class ReplacedWithThePayloadOfAnotherId(NestingDriver):
    def _enqueue(self, batch: Batch) -> Answers:
        return super()._enqueue(batch._replace(fresh=[job._replace(payload_for=None) for job in batch.fresh]))


class BatchHalfStored(NestingDriver):
    def _enqueue(self, batch: Batch) -> Answers:
        return [answer for job in batch.fresh for answer in super(BatchHalfStored, self)._enqueue(_alone(batch, job))]


def _alone(batch: Batch, job: Any) -> Batch:
    return batch._replace(fresh=[job], answers=[answer for answer in batch.answers if answer.id == job.id])


class PayloadCutShort(NestingDriver):
    def _enqueue(self, batch: Batch) -> Answers:
        return super()._enqueue(
            batch._replace(fresh=[job._replace(payload=job.payload[:65_535]) for job in batch.fresh])
        )


class PriorityLostInsideABatch(NestingDriver):
    def _reserve(self, *args: Any) -> Leased:
        return sorted(super()._reserve(*args), key=lambda item: item.job.id)


class LowerPriorityFirst(NestingDriver):
    def _reserve(self, queues: Any, now: Any, lease_for: Any, limit: int, *rest: Any) -> Leased:
        with self._writing() as state:
            for job in list(state.jobs.values()):
                state.jobs[job.id] = job._replace(priority=-job.priority)
            state.ready.clear()
            for job in list(state.jobs.values()):
                state._index(job)
            return super()._reserve(queues, now, lease_for, limit, *rest)


class ScheduledJobsRunEarly(NestingDriver):
    def _reserve(self, queues: Any, now: datetime, *rest: Any) -> Leased:
        return super()._reserve(queues, now + TICK, *rest)


class TypesIgnored(NestingDriver):
    def _reserve(self, queues: Any, now: Any, lease_for: Any, limit: int, types: Any, *rest: Any) -> Leased:
        return super()._reserve(queues, now, lease_for, limit, None, *rest)


class PauseIgnored(NestingDriver):
    def _reserve(self, *args: Any) -> Leased:
        with self._writing() as state:
            paused = dict(state.queues)
            state.queues.clear()
            leased = super()._reserve(*args)
            state.queues.update(paused)
            return leased
