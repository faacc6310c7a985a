"""More planted bugs: in schedules and in listening."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.contract.nesting import NestingDriver

from taskharbor.core.contract import Listener
from taskharbor.core.model import Schedule
from taskharbor.drivers.listening import BaseListener
from taskharbor.drivers.memory import MemoryListener


class TickAdvancedWithoutComparing(NestingDriver):
    def _advance_schedule(self, name: str, expected: datetime | None, *rest: Any) -> bool:
        with self._writing() as state:
            kept = state.schedules.get(name)
            return super()._advance_schedule(name, kept.next_run_at if kept else expected, *rest)


class TickComparedOutsideTheLock(NestingDriver):
    """Reads, compares, and writes as if nobody could have come in between."""

    def _advance_schedule(self, name: str, expected: datetime | None, *rest: Any) -> bool:
        kept = self._get_schedule(name)
        if kept.next_run_at != expected:
            return False
        # The others get their chance here, as they would on a server.
        self._between()
        with self._writing() as state:
            return super()._advance_schedule(name, state.schedules[name].next_run_at, *rest)

    @staticmethod
    def _between() -> None:
        import time

        time.sleep(0.001)


class PauseLostByAPut(NestingDriver):
    def _put_schedule(self, schedule: Schedule) -> Schedule:
        with self._writing() as state:
            kept = super()._put_schedule(schedule)
            if kept.paused is not schedule.paused:
                kept = replace(kept, paused=schedule.paused)
                state.put("schedules", kept.name, kept)
            return kept


class LastTickLostByAPut(NestingDriver):
    def _put_schedule(self, schedule: Schedule) -> Schedule:
        with self._writing() as state:
            kept = replace(super()._put_schedule(schedule), last_job_id=schedule.last_job_id)
            state.put("schedules", kept.name, kept)
            return kept


class TickKeptWhenTheTimesChange(NestingDriver):
    def _put_schedule(self, schedule: Schedule) -> Schedule:
        with self._writing() as state:
            before = state.schedules.get(schedule.name)
            kept = super()._put_schedule(schedule)
            if before is not None:
                kept = replace(kept, next_run_at=before.next_run_at)
                state.put("schedules", kept.name, kept)
            return kept


class TickMovedByEveryPut(NestingDriver):
    """A deployment every half hour would keep an hourly schedule from ever running."""

    def _put_schedule(self, schedule: Schedule) -> Schedule:
        with self._writing() as state:
            kept = replace(super()._put_schedule(schedule), next_run_at=schedule.next_run_at)
            state.put("schedules", kept.name, kept)
            return kept


class DeafListener(NestingDriver):
    def _listen(self, queues: tuple[str, ...]) -> Listener:
        return BaseListener()


class WakeForgottenUnlessSomebodyWaits(NestingDriver):
    def _listen(self, queues: tuple[str, ...]) -> Listener:
        return _Forgetful(queues, self._shared)


class _Forgetful(MemoryListener):
    def _wait(self, timeout_s: float) -> bool:
        self._bell.acquire(blocking=False)
        return super()._wait(timeout_s)
