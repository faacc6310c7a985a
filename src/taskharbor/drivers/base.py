"""What all drivers do alike: check the arguments, ask the clock, refuse after close.

A driver subclasses `BaseDriver` and fills in the operations of `StoreOperations`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Self, TypeVar
from weakref import WeakSet

from taskharbor.core import limits as bounds
from taskharbor.core.clock import StoreClock, checked, checked_start
from taskharbor.core.contract import Answers, Duration, Extended, Leased, Listener, Settled
from taskharbor.core.errors import DriverClosed, InvalidInput, JobNotFound, TaskHarborError
from taskharbor.core.fleet import Leadership, Recovery, Worker
from taskharbor.core.forking import renew_locks
from taskharbor.core.intake import admit
from taskharbor.core.limits import Limits, check_duration, check_lease, check_name
from taskharbor.core.model import Extension, JobFilter, Lease, NewJob, RetryUpdate, Settlement, Status
from taskharbor.drivers.access import AccessCalls
from taskharbor.drivers.checks import (
    check_claim,
    check_count,
    check_cursor,
    check_epoch,
    check_filter,
    check_leases,
    check_names,
    check_progress,
    check_rate,
    check_settlement,
    check_worker,
    sought,
)
from taskharbor.drivers.fence import FenceShut
from taskharbor.drivers.flows import FlowCalls
from taskharbor.drivers.governed import GoverningCalls
from taskharbor.drivers.governing import Ask
from taskharbor.drivers.operations import RedrivePlan
from taskharbor.drivers.promises import with_promises
from taskharbor.drivers.reading import ReadingCalls
from taskharbor.drivers.scheduling import SchedulingCalls

T = TypeVar("T")
Names = list[str]


@with_promises
class BaseDriver(SchedulingCalls, GoverningCalls, ReadingCalls, FlowCalls, AccessCalls):
    """The public contract over a few private operations."""

    writes_in_parallel = False
    """Whether several writers are quicker than one: a worker then keeps two batches on their way."""

    def __init__(self, *, limits: Limits | None = None) -> None:
        super().__init__()
        self.limits = limits or Limits()
        self._clock = StoreClock(self._measure_clock)
        self._closed = False
        self._close_lock = threading.Lock()
        renew_locks(self, "_close_lock")
        self._listeners: WeakSet[Listener] = WeakSet()

    # --- Queueing ----------------------------------------------------------------------------------------

    def enqueue(self, jobs: Iterable[NewJob], now: datetime | None = None, *, connection: Any = None) -> Answers:
        batch = self._let_in(admit(jobs, self._moment(now), self.limits))
        if not batch.fresh:
            return batch.answers
        if connection is not None:
            with self._told_where():
                return self._enqueue_with(connection, batch)
        try:
            answers = self._enqueue(batch)
        except FenceShut:
            raise self._moved() from None
        self._tag(batch)
        return answers

    async def aenqueue(self, jobs: Iterable[NewJob], now: datetime | None = None, *, connection: Any) -> Answers:
        """`enqueue` inside the transaction of an asynchronous connection."""
        batch = self._let_in(admit(jobs, self._moment(now), self.limits))
        if not batch.fresh:
            return batch.answers
        with self._told_where():
            return await self._aenqueue_with(connection, batch)

    def reserve(
        self,
        queues: str | Sequence[str],
        *,
        now: datetime | None = None,
        lease_for: Duration | None = None,
        limit: int = 1,
        types: Sequence[str] | None = None,
        owner: str = "",
        tenant: str | None = None,
    ) -> Leased:
        return self.settle_and_reserve(
            (), queues, now=now, lease_for=lease_for, limit=limit, types=types, owner=owner, tenant=tenant
        )[1]

    def settle_and_reserve(
        self,
        settlements: Sequence[Settlement],
        queues: str | Sequence[str],
        *,
        now: datetime | None = None,
        lease_for: Duration | None = None,
        limit: int = 1,
        types: Sequence[str] | None = None,
        owner: str = "",
        tenant: str | None = None,
    ) -> tuple[Settled, Leased]:
        duration, names, handled = check_claim(queues, types, limit, owner, tenant, lease_for)
        moment = self._moment(now)
        try:
            checked_settlements = [check_settlement(item, self.limits) for item in settlements]
            checked_settlements = check_leases(checked_settlements)
        except (AttributeError, TypeError):  # found out by trying, because batches are large and nearly all are right
            raise InvalidInput("settle takes a list of Settlement: settle([Settlement.ack(id, token)])") from None
        if len(checked_settlements) > bounds.MAX_BATCH:
            raise InvalidInput(f"one settle takes at most {bounds.MAX_BATCH:,} items: split the batch")
        rules = self._rules()
        if not names or handled == () or rules.shut:
            results = self._settle(checked_settlements, moment) if checked_settlements else []
            self._strike(rules, checked_settlements)
            self._advance_after(rules, checked_settlements, moment)
            if rules.gone and names and not checked_settlements:
                raise self._moved()
            return results, []
        if rules.govern(names):
            ask = Ask(names, moment, duration, limit, handled, owner, tenant)
            answer = self._settle_and_ask(rules, checked_settlements, ask)
        else:
            answer = self._settle_and_reserve(
                checked_settlements, names, moment, duration, limit, handled, owner, tenant
            )
            self._strike(rules, checked_settlements)
        self._advance_after(rules, checked_settlements, moment)
        self._notice_steps(rules, answer[1])
        return answer

    def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> Settled:
        return self.settle_and_reserve(settlements, (), now=now)[0]

    def ack(
        self,
        id: str,
        token: str,
        *,
        now: datetime | None = None,
        result: bytes | None = None,
        started_at: datetime | None = None,
    ) -> None:
        self._settle_one(Settlement.ack(id, token, result=result, started_at=started_at), now)

    def retry(
        self,
        id: str,
        token: str,
        *,
        now: datetime | None = None,
        update: RetryUpdate,
        started_at: datetime | None = None,
    ) -> None:
        self._settle_one(Settlement.retry(id, token, update=update, started_at=started_at), now)

    def fail(
        self,
        id: str,
        token: str,
        *,
        now: datetime | None = None,
        reason: str,
        code: str = "unrecoverable",
        started_at: datetime | None = None,
    ) -> None:
        self._settle_one(Settlement.fail(id, token, reason=reason, code=code, started_at=started_at), now)

    def release(self, id: str, token: str, *, now: datetime | None = None) -> None:
        self._settle_one(Settlement.release(id, token), now)

    def extend_lease(
        self, id: str, token: str, *, now: datetime | None = None, lease_for: Duration | None = None
    ) -> Lease:
        return _value(self.extend([Extension(id, token, lease_for)], now=now)[0])

    def extend(self, extensions: Sequence[Extension], *, now: datetime | None = None) -> Extended:
        moment = self._moment(now)
        try:
            extensions = check_leases(list(extensions))
        except (AttributeError, TypeError):
            raise InvalidInput("extend takes a list of Extension: extend([Extension(id, token)])") from None
        if len(extensions) > bounds.MAX_BATCH:
            raise InvalidInput(f"one extend takes at most {bounds.MAX_BATCH:,} items: split the batch")
        items = [
            Extension(
                item.id,
                item.token,
                check_lease(item.lease_for),
                None if item.started_at is None else checked(item.started_at, "started_at"),
                check_progress(item.progress),
            )
            for item in extensions
        ]
        if not items:
            return []
        extended = self._extend(items, moment)
        self._keep_notes_true([item.id for item in items])
        return extended

    def listen(self, queues: str | Sequence[str]) -> Listener:
        self._check_open()
        listener = self._listen(check_names(queues, "queue"))
        self._listeners.add(listener)
        return listener

    def now(self) -> datetime:
        self._check_open()
        return self._clock.now()

    def close(self) -> None:
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        for listener in list(self._listeners):
            listener.close()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # --- What people do to jobs by hand ------------------------------------------------------------------

    def cancel(self, id: str, *, now: datetime | None = None) -> Status:
        moment = self._moment(now)
        id = sought(id, "id")
        try:
            with self._told_where():
                status = self._cancel(id, moment)
        except JobNotFound as error:
            raise self._absent(error) from None
        self._advance_cancelled(id, moment)
        return status

    def redrive(
        self,
        filter: JobFilter | None = None,
        *,
        now: datetime | None = None,
        limit: int | None = None,
        run_at: datetime | None = None,
        rate: float | None = None,
        reset_attempts: bool = False,
        clone: bool = False,
    ) -> Sequence[str]:
        moment = self._moment(now)
        start = None if run_at is None else checked_start(run_at, "run_at")
        check_rate(rate)
        if limit is not None:
            check_count(limit, "limit", None)
        chosen = check_filter(filter)
        if chosen.status not in (None, Status.DLQ):
            raise InvalidInput(f"only DLQ jobs can be redriven, not {chosen.status}")
        moved: Names = []
        after: str | None = None
        while limit is None or len(moved) < limit:
            room = bounds.SWEEP_BATCH if limit is None else min(bounds.SWEEP_BATCH, limit - len(moved))
            plan = RedrivePlan(
                now=moment,
                start=start,
                rate=rate,
                offset=len(moved),
                reset_attempts=reset_attempts,
                clone=clone,
            )
            with self._told_where():
                seen, ids = self._redrive(chosen, after, room, plan)
            moved.extend(ids)
            if not seen:
                break
            after = seen[-1]
        if not clone:
            self._advance_ids(self._rules(), moved, moment)
        return moved

    def purge(self, filter: JobFilter | None = None, *, limit: int | None = None) -> int:
        self._check_open()
        chosen = check_filter(filter)
        if chosen.status not in (None, Status.DLQ):
            raise InvalidInput(f"only DLQ jobs can be purged, not {chosen.status}")
        if limit is not None:
            check_count(limit, "limit", None)
        removed = 0
        while limit is None or removed < limit:
            room = bounds.SWEEP_BATCH if limit is None else min(bounds.SWEEP_BATCH, limit - removed)
            with self._told_where():
                gone = self._purge(chosen, room)
            removed += gone
            if gone < room:
                break
        return removed

    # --- Fleet -------------------------------------------------------------------------------------------

    def heartbeat(self, worker: Worker, *, now: datetime | None = None) -> None:
        self._heartbeat(check_worker(worker), self._moment(now))

    def workers(self) -> Sequence[Worker]:
        self._check_open()
        return self._workers()

    def deregister(self, worker_id: str) -> None:
        self._check_open()
        self._deregister(sought(worker_id, "worker id"))

    def elect(
        self, name: str, holder: str, now: datetime | None = None, term: Duration = 30.0, *, epoch: int | None = None
    ) -> Leadership | None:
        check_name(name, "name", bounds.MAX_NAME)
        check_name(holder, "holder", bounds.MAX_NAME)
        duration = check_duration(term, "term")
        if not duration:
            raise InvalidInput("term must be above zero")
        if epoch is not None:
            check_epoch(epoch)
        return self._elect(name, holder, self._moment(now), duration, epoch)

    def resign(self, name: str, holder: str, epoch: int) -> None:
        self._check_open()
        check_epoch(epoch)
        self._resign(sought(name, "name"), sought(holder, "holder"), epoch)

    def leaders(self) -> Sequence[Leadership]:
        self._check_open()
        return self._leaders()

    def recover(self, now: datetime | None = None, *, dead_after: Duration = 30.0) -> Recovery:
        moment = self._moment(now)
        recovery = self._recover(moment, check_duration(dead_after, "dead_after"))
        self._tidy(moment)
        if not self._rules().shut:  # what is missing then is on its way to another store, not lost
            self.mend_workflows(now=moment)
        return recovery

    def prune(
        self, before: datetime, *, limit: int = 10_000, ids: Sequence[str] | None = None, upto: str | None = None
    ) -> int:
        self._check_open()
        check_count(limit, "limit", None)
        limit = min(limit, bounds.MAX_COUNT)
        check_cursor(upto)
        moment = checked(before, "before")
        if self._rules().filling:  # what has come from another store is compared first
            return 0
        chosen = None if ids is None else tuple(dict.fromkeys(check_filter(JobFilter(ids=ids)).ids or ()))
        with self._told_where():
            if chosen is not None:
                return self._prune_chosen(chosen, moment, limit, upto) if chosen else 0
            self._prune_workflows(moment, limit)
            return self._prune(moment, limit, upto)

    # --- Shared helpers ----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise DriverClosed("this driver was closed: open another one with open_driver(url)")

    def _moment(self, now: datetime | None) -> datetime:
        self._check_open()
        return self._clock.now() if now is None else checked(now, "now")

    def _settle_one(self, settlement: Settlement, now: datetime | None) -> None:
        _value(self.settle([settlement], now=now)[0])


def _value(outcome: T | TaskHarborError) -> T:
    if isinstance(outcome, TaskHarborError):
        raise outcome
    return outcome
