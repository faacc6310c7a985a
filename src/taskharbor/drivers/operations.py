"""What a store has to be able to do, below the checks. One abstract method per operation.

All of them receive checked values only: times in UTC, durations as timedeltas, names as tuples, never None for
`now`. All of them may be called from many threads at once.

In a store that is shut (`core.carrying.MOVING`), whatever takes jobs in or changes something by hand raises
`fence.FenceShut` and changes nothing, and claims get nothing, however long ago the driver looked: the mark is read in
the transaction of the change itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from taskharbor.core.answers import CensusRow, Counts, Glances, HistoryPage, Page
from taskharbor.core.clock import utc_now
from taskharbor.core.contract import Answers, Extended, Leased, Listener, Settled
from taskharbor.core.errors import InvalidInput, StoreMoved
from taskharbor.core.fleet import Leadership, Recovery, Worker
from taskharbor.core.intake import Batch
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Attempt, Extension, Job, JobFilter, QueueSettings, Schedule, Settlement, Status
from taskharbor.core.tokens import Token
from taskharbor.drivers.fence import FenceShut
from taskharbor.drivers.governing import Desk, Rules
from taskharbor.drivers.listening import PollingListener

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RedrivePlan:
    """How a redrive treats the jobs it meets; `offset` is how many it has moved before this batch."""

    now: datetime
    start: datetime | None
    rate: float | None
    offset: int
    reset_attempts: bool
    clone: bool

    def run_at(self, number: int) -> datetime | None:
        """When job `number` of this batch (from 0) runs: all at once, or spread to keep to the rate."""
        if self.rate is None:
            return self.start
        wait = timedelta(seconds=(self.offset + number) / self.rate)
        return (self.start or self.now) + wait if wait or self.start else None


class StoreOperations(ABC):
    """The operations of a store, and the few that have a sensible default."""

    @abstractmethod
    def migrate(self) -> None: ...

    @abstractmethod
    def _enqueue(self, batch: Batch) -> Answers: ...

    @abstractmethod
    def _reserve(
        self,
        queues: tuple[str, ...],
        now: datetime,
        lease_for: timedelta,
        limit: int,
        types: tuple[str, ...] | None,
        owner: str,
        tenant: str | None = None,
    ) -> Leased: ...

    @abstractmethod
    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled: ...

    @abstractmethod
    def _extend(self, extensions: Sequence[Extension], now: datetime) -> Extended: ...

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _get(self, id: str) -> Job: ...

    @abstractmethod
    def _list(self, filter: JobFilter, cursor: str | None, limit: int) -> Page: ...

    @abstractmethod
    def _counts(self, now: datetime) -> Counts: ...

    @abstractmethod
    def _census(self, now: datetime) -> Sequence[CensusRow]:
        """In any order."""

    @abstractmethod
    def _count(self, filter: JobFilter, limit: int) -> int: ...

    @abstractmethod
    def _attempts(self, id: str) -> Sequence[Attempt]: ...

    @abstractmethod
    def _history(self, cursor: str | None, limit: int) -> HistoryPage: ...

    @abstractmethod
    def _latest(self, after: str | None, limit: int) -> Glances: ...

    @abstractmethod
    def _cancel(self, id: str, now: datetime) -> Status: ...

    @abstractmethod
    def _redrive(
        self, filter: JobFilter, after: str | None, limit: int, plan: RedrivePlan
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Move at most `limit` matching DLQ jobs with an id above `after`, in order of id, in one transaction.
        Returns the ids met and the ids that will run (new ones when cloning)."""

    @abstractmethod
    def _purge(self, filter: JobFilter, limit: int) -> int: ...

    @abstractmethod
    def _set_paused(self, queue: str, paused: bool) -> None:
        """Of a queue, unless the store is shut; or one of the marks of a move, always."""

    @abstractmethod
    def _queues(self) -> Sequence[QueueSettings]: ...

    @abstractmethod
    def _heartbeat(self, worker: Worker, now: datetime) -> None: ...

    @abstractmethod
    def _workers(self) -> Sequence[Worker]: ...

    @abstractmethod
    def _deregister(self, worker_id: str) -> None: ...

    @abstractmethod
    def _elect(
        self, name: str, holder: str, now: datetime, term: timedelta, epoch: int | None
    ) -> Leadership | None: ...

    @abstractmethod
    def _resign(self, name: str, holder: str, epoch: int) -> None: ...

    @abstractmethod
    def _leaders(self) -> Sequence[Leadership]: ...

    @abstractmethod
    def _recover(self, now: datetime, dead_after: timedelta) -> Recovery: ...

    @abstractmethod
    def _prune(self, before: datetime, limit: int, upto: str | None) -> int:
        """None of which any row lies behind `upto`, a cursor, if it is given."""

    @abstractmethod
    def _prune_chosen(self, ids: Sequence[str], before: datetime, limit: int, upto: str | None) -> int:
        """The same, but none beside these; each id is there once."""

    @abstractmethod
    def _put_schedule(self, schedule: Schedule) -> Schedule:
        """Keep it, updated when it says, with what survives of the one before (`scheduling.put_over`)."""

    @abstractmethod
    def _schedules(self) -> Sequence[Schedule]: ...

    @abstractmethod
    def _get_schedule(self, name: str) -> Schedule: ...

    @abstractmethod
    def _pause_schedule(self, name: str, paused: bool, now: datetime) -> bool:
        """Whether there is such a schedule."""

    @abstractmethod
    def _remove_schedule(self, name: str) -> bool: ...

    @abstractmethod
    def _advance_schedule(
        self,
        name: str,
        expected: datetime | None,
        next_run_at: datetime | None,
        last_run_at: datetime | None,
        last_job_id: str | None,
        now: datetime,
    ) -> bool: ...

    @abstractmethod
    def _add_token(self, token: Token) -> bool:
        """Whether there was none with its id; if there was, that one stays."""

    @abstractmethod
    def _tokens(self) -> Sequence[Token]: ...

    @abstractmethod
    def _get_tokens(self, ids: Sequence[str]) -> Sequence[Token]:
        """Each id is there once, and there is at least one."""

    @abstractmethod
    def _revoke_token(self, id: str, now: datetime) -> bool: ...

    # --- With a default --------------------------------------------------------------------------------------

    def _moved(self) -> StoreMoved:
        """What to tell whoever comes to a store that is shut."""
        return FenceShut()

    @contextmanager
    def _told_where(self) -> Iterator[None]:
        """A store that turns out to be shut says where everything goes."""
        try:
            yield
        except FenceShut:
            raise self._moved() from None

    def _measure_clock(self) -> datetime:
        """The store's time now. Stores on this machine share its clock."""
        return utc_now()

    def _listen(self, queues: tuple[str, ...]) -> Listener:
        """What cannot tell of new work is looked at from time to time."""
        return PollingListener()

    def _settle_and_reserve(
        self,
        settlements: Sequence[Settlement],
        queues: tuple[str, ...],
        now: datetime,
        lease_for: timedelta,
        limit: int,
        types: tuple[str, ...] | None,
        owner: str,
        tenant: str | None = None,
    ) -> tuple[Settled, Leased]:
        """Two calls; a driver that can do it in one round trip overrides this."""
        results = self._settle(settlements, now) if settlements else []
        return results, self._reserve(queues, now, lease_for, limit, types, owner, tenant)

    # A store that keeps no limits has none of these; then nothing is governed, and setting a limit is refused.

    def _read_rules(self) -> Rules:
        """Every limit, every queue with settings, and whether any job is on a bench. Cheap: asked twice a second."""
        return Rules()

    def _at_desk(self, work: Callable[[Desk], T]) -> T:
        """Do the work in one transaction of this store. It may be done again from the start, after a rollback."""
        raise self._keeps_no_limits()

    def _may_count(self, ids: Sequence[str]) -> bool:
        """Whether any of these jobs may have a note that it counts for a limit. Asked after every settle where there
        are limits, so that those whom none concerns need no desk."""
        return True

    def _set_limit(self, limit: Limit, now: datetime) -> None:
        """Keep it in place of the one with its key; buckets of that key with a bench are looked at from `now`."""
        raise self._keeps_no_limits()

    def _drop_limit(self, key: tuple[str, str, str], now: datetime) -> bool:
        """Whether there was one; its buckets with a bench are looked at from `now`."""
        raise self._keeps_no_limits()

    def _set_fair(self, queue: str, fair: bool, weights: Mapping[str, float]) -> None:
        """Whether the queue is paused stays as it is."""
        raise self._keeps_no_limits()

    def _keeps_no_limits(self) -> InvalidInput:
        return InvalidInput(f"{type(self).__name__} keeps no limits and no fair shares: use a store that does")

    def _enqueue_with(self, connection: Any, batch: Batch) -> Answers:
        raise InvalidInput(
            f"{type(self).__name__} cannot take part in the transaction of a {type(connection).__name__}: "
            "leave connection out, or use a store with SQL transactions"
        )

    async def _aenqueue_with(self, connection: Any, batch: Batch) -> Answers:
        return self._enqueue_with(connection, batch)
