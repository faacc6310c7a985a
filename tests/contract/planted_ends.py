"""More planted bugs: in how jobs end, in the history feed, and in the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tests.contract.nesting import NestingDriver

from taskharbor.core.answers import HistoryPage
from taskharbor.core.fleet import Leadership, Recovery
from taskharbor.core.model import Status
from taskharbor.drivers.operations import RedrivePlan
from taskharbor.drivers.state import State, forget_key

# --- Ends of a job -----------------------------------------------------------------------------------------


class CancelledJobReservedAgain(NestingDriver):
    def _cancel(self, id: str, now: datetime) -> Status:
        with self._writing() as state:
            waiting = state.jobs.get(id)
            status = super()._cancel(id, now)
            if waiting is not None and status is Status.CANCELLED:
                state.put("jobs", id, waiting)
            return status


class CancelForgottenWhenTheLeaseEnds(NestingDriver):
    def _take_back(self, state: State, queues: Sequence[str], now: datetime) -> int:
        for job in list(state.jobs.values()):
            if job.cancel_requested_at is not None:
                state.put("jobs", job.id, job._replace(cancel_requested_at=None))
        return super()._take_back(state, queues, now)


class ExpiryForgotten(NestingDriver):
    @staticmethod
    def _expire(state: State, queues: Sequence[str], now: datetime) -> int:  # noqa: ARG004
        return 0


class RedriveMakesANewJob(NestingDriver):
    def _redrive(self, filter: Any, after: Any, limit: int, plan: RedrivePlan) -> tuple[Sequence[str], Sequence[str]]:
        return super()._redrive(filter, after, limit, replace(plan, clone=True))


class DlqRecordStays(NestingDriver):
    def _redrive(self, filter: Any, after: Any, limit: int, plan: RedrivePlan) -> tuple[Sequence[str], Sequence[str]]:
        with self._writing() as state:
            before = dict(state.jobs)
            met, moved = super()._redrive(filter, after, limit, plan)
            for job_id in met:
                state.put("jobs", job_id, state.jobs[job_id]._replace(dlq_reason=before[job_id].dlq_reason))
            return met, moved


class PurgeKeepsTheKey(NestingDriver):
    def _purge(self, filter: Any, limit: int) -> int:
        with self._writing() as state:
            keys = dict(state.keys)
            gone = super()._purge(filter, limit)
            state.keys.update(keys)
            return gone


class PruneRemovesTheDlq(NestingDriver):
    def _prune(self, before: datetime, limit: int, upto: str | None) -> int:
        with self._writing() as state:
            for job in [job for job in state.jobs.values() if job.status is Status.DLQ]:
                state.drop("jobs", job.id)
                forget_key(state, job)
            return super()._prune(before, limit, upto)


class FeedSkipsARow(NestingDriver):
    def _history(self, cursor: str | None, limit: int) -> HistoryPage:
        page = super()._history(cursor, limit + 1)
        return replace(page, rows=page.rows[:limit])


class FeedRepeatsARow(NestingDriver):
    def _history(self, cursor: str | None, limit: int) -> HistoryPage:
        page = super()._history(cursor, limit)
        return replace(page, cursor=page.rows[-2].position) if len(page.rows) > 1 else page


# --- Fleet -------------------------------------------------------------------------------------------------


class FenceLooksOnlyBefore(NestingDriver):
    """Whoever was let in before the store was shut comes in, however late."""

    def _changing(self) -> AbstractContextManager[State]:
        return self._writing()


class TwoLeaders(NestingDriver):
    def _elect(self, name: str, holder: str, now: datetime, term: timedelta, epoch: int | None) -> Leadership | None:
        with self._writing() as state:
            if epoch is None and name in state.leaders and state.leaders[name].holder != holder:
                state.put("leaders", name, replace(state.leaders[name], until=now))
            return super()._elect(name, holder, now, term, epoch)


class EpochNotRaised(NestingDriver):
    def _elect(self, name: str, holder: str, now: datetime, term: timedelta, epoch: int | None) -> Leadership | None:
        with self._writing() as state:
            won = super()._elect(name, holder, now, term, epoch)
            if won is not None:
                won = replace(won, epoch=1)
                state.put("leaders", name, won)
            return won


class EndedTermRenewed(NestingDriver):
    def _elect(self, name: str, holder: str, now: datetime, term: timedelta, epoch: int | None) -> Leadership | None:
        return super()._elect(name, holder, now, term, None)


class OrphansKeepTheirLeases(NestingDriver):
    def _recover(self, now: datetime, dead_after: timedelta) -> Recovery:
        with self._writing() as state:
            for worker in [
                w for w in state.workers.values() if w.last_heartbeat and w.last_heartbeat <= now - dead_after
            ]:
                state.drop("workers", worker.id)
            return super()._recover(now, dead_after)


class WorkersNeverDie(NestingDriver):
    def _recover(self, now: datetime, dead_after: timedelta) -> Recovery:
        return super()._recover(now, timedelta(days=3_000))


class WorksAfterClose(NestingDriver):
    def _check_open(self) -> None:
        pass
