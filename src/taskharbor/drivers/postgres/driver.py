"""`postgresql://`: the driver, put together from its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from taskharbor.core.answers import CensusRow, Counts, Glances, HistoryPage, Page
from taskharbor.core.carrying import Carrier
from taskharbor.core.contract import Answers, Extended, Leased, Listener, Settled
from taskharbor.core.fleet import Leadership, Recovery, Worker
from taskharbor.core.intake import Batch
from taskharbor.core.limiting import Limit
from taskharbor.core.limits import Limits
from taskharbor.core.model import (
    Attempt,
    Extension,
    Job,
    JobFilter,
    NewJob,
    QueueSettings,
    Schedule,
    Settlement,
    Status,
)
from taskharbor.core.tokens import Token
from taskharbor.drivers.base import BaseDriver
from taskharbor.drivers.fence import FenceShut
from taskharbor.drivers.governing import Ask, Desk, Rules
from taskharbor.drivers.operations import RedrivePlan
from taskharbor.drivers.postgres import schema
from taskharbor.drivers.postgres.access import Access
from taskharbor.drivers.postgres.carrying import PostgresCarrier
from taskharbor.drivers.postgres.counting import Counting
from taskharbor.drivers.postgres.desk import Governing
from taskharbor.drivers.postgres.enqueueing import Enqueueing
from taskharbor.drivers.postgres.errors import translated_for_migration
from taskharbor.drivers.postgres.fleet import Fleet
from taskharbor.drivers.postgres.inspection import Inspection
from taskharbor.drivers.postgres.listening import PostgresListener
from taskharbor.drivers.postgres.queueing import Queueing
from taskharbor.drivers.postgres.scheduling import Scheduling
from taskharbor.drivers.postgres.session import Session, store_time
from taskharbor.drivers.postgres.target import split_options
from taskharbor.drivers.sqlfiles import Statements

T = TypeVar("T")

STREAM_FROM: Final = 2_000


class PostgresDriver(BaseDriver):
    """Jobs in PostgreSQL 14 or newer. `?max_size=10` in the URL bounds the connection pool."""

    writes_in_parallel = True

    def __init__(self, url: str, *, prefix: str, limits: Limits | None = None) -> None:
        super().__init__(limits=limits)
        url, max_size = split_options(url)
        named = Statements(schema.PACKAGE, prefix, "named")
        self._prefix = prefix
        self._session = Session(
            url, named, max_size=max_size, check=lambda connection: schema.check_version(connection, prefix)
        )
        self._enqueueing = Enqueueing(self._session, prefix, Statements(schema.PACKAGE, prefix, "pyformat"), named)
        self._queueing = Queueing(self._session, self.limits)
        self._inspection = Inspection(self._session, self._queueing)
        self._fleet = Fleet(self._session, self._queueing)
        self._governing = Governing(self._session, self._queueing, self._enqueueing)
        self._counting = Counting(self._session)
        self._scheduling = Scheduling(self._session)
        self._access = Access(self._session)

    def enqueue(self, jobs: Iterable[NewJob], now: datetime | None = None, *, connection: Any = None) -> Answers:
        # Jobs of a fair queue take their places in it as they come in; the quick ways know nothing of that.
        if connection is None and isinstance(jobs, list | tuple) and not self._shares():
            try:
                if len(jobs) == 1 and type(jobs[0]) is NewJob:
                    answers = self._enqueueing.enqueue_plain(jobs[0], self._moment(now), self.limits)
                    if answers is not None:
                        return answers
                elif len(jobs) >= STREAM_FROM and _are_plain(jobs):
                    return self._enqueueing.stream(jobs, self._moment(now), self.limits)
            except FenceShut:
                raise self._moved() from None
        return super().enqueue(jobs, now, connection=connection)

    def _shares(self) -> bool:
        self._check_open()
        rules = self._rules()
        return rules.shut or any(settings.fair for settings in rules.queues.values())

    def carrier(self) -> Carrier:
        return PostgresCarrier(self._session, self._inspection, self._prefix)

    def migrate(self) -> None:
        self._check_open()
        with self._session.dedicated() as connection, translated_for_migration():
            schema.migrate(connection, self._prefix)

    def _measure_clock(self) -> datetime:
        return self._session.transact(store_time)

    def _listen(self, queues: tuple[str, ...]) -> Listener:
        self._enqueueing.somebody_listens()
        return PostgresListener(self._session.connect_alone, f"{self._prefix}jobs", queues)

    def _close(self) -> None:
        self._session.close()

    def _enqueue(self, batch: Batch) -> Answers:
        return self._enqueueing.enqueue(batch)

    def _enqueue_with(self, connection: Any, batch: Batch) -> Answers:
        return self._enqueueing.join(connection, batch)

    async def _aenqueue_with(self, connection: Any, batch: Batch) -> Answers:
        return await self._enqueueing.ajoin(connection, batch)

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
        return self._queueing.settle_and_reserve((), queues, now, lease_for, limit, types, owner, tenant)[1]

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
        return self._queueing.settle_and_reserve(settlements, queues, now, lease_for, limit, types, owner, tenant)

    def _settle_and_take_tagged(self, settlements: Sequence[Settlement], ask: Ask) -> tuple[Settled, Leased]:
        if len(ask.queues) > 1:
            return super()._settle_and_take_tagged(settlements, ask)
        return self._queueing.settle_and_take_tagged(settlements, ask)

    def _take_counted(self, limit: Limit, ended: Sequence[Settlement], ask: Ask) -> Leased:
        return self._counting.take(limit, ended, ask) if len(ask.queues) == 1 else []

    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        return self._queueing.settle(settlements, now)

    def _extend(self, extensions: Sequence[Extension], now: datetime) -> Extended:
        return self._queueing.extend(extensions, now)

    def _get(self, id: str) -> Job:
        return self._inspection.get(id)

    def _list(self, filter: JobFilter, cursor: str | None, limit: int) -> Page:
        return self._inspection.list(filter, cursor, limit)

    def _counts(self, now: datetime) -> Counts:
        return self._inspection.counts(now)

    def _census(self, now: datetime) -> Sequence[CensusRow]:
        return self._inspection.census(now)

    def _count(self, filter: JobFilter, limit: int) -> int:
        return self._inspection.count(filter, limit)

    def _attempts(self, id: str) -> Sequence[Attempt]:
        return self._inspection.attempts(id)

    def _history(self, cursor: str | None, limit: int) -> HistoryPage:
        return self._inspection.history(cursor, limit)

    def _latest(self, after: str | None, limit: int) -> Glances:
        return self._inspection.latest(after, limit)

    def _cancel(self, id: str, now: datetime) -> Status:
        return self._inspection.cancel(id, now)

    def _redrive(
        self, filter: JobFilter, after: str | None, limit: int, plan: RedrivePlan
    ) -> tuple[Sequence[str], Sequence[str]]:
        return self._inspection.redrive(filter, after, limit, plan)

    def _purge(self, filter: JobFilter, limit: int) -> int:
        return self._inspection.purge(filter, limit)

    def _set_paused(self, queue: str, paused: bool) -> None:
        self._inspection.set_paused(queue, paused)

    def _queues(self) -> Sequence[QueueSettings]:
        return self._inspection.queues()

    def _read_rules(self) -> Rules:
        return self._governing.read_rules()

    def forget_all(self) -> None:
        super().forget_all()
        self._queueing.forget_frontiers()

    def _at_desk(self, work: Callable[[Desk], T]) -> T:
        return self._governing.at_desk(work)

    def _may_count(self, ids: Sequence[str]) -> bool:
        return self._governing.may_count(ids)

    def _set_limit(self, limit: Limit, now: datetime) -> None:
        self._governing.set_limit(limit, now)

    def _drop_limit(self, key: tuple[str, str, str], now: datetime) -> bool:
        return self._governing.drop_limit(key, now)

    def _set_fair(self, queue: str, fair: bool, weights: Mapping[str, float]) -> None:
        self._governing.set_fair(queue, fair, weights)

    def _heartbeat(self, worker: Worker, now: datetime) -> None:
        self._fleet.heartbeat(worker, now)
        self._enqueueing.somebody_listens()

    def _workers(self) -> Sequence[Worker]:
        return self._fleet.workers()

    def _deregister(self, worker_id: str) -> None:
        self._fleet.deregister(worker_id)

    def _elect(self, name: str, holder: str, now: datetime, term: timedelta, epoch: int | None) -> Leadership | None:
        return self._fleet.elect(name, holder, now, term, epoch)

    def _resign(self, name: str, holder: str, epoch: int) -> None:
        self._fleet.resign(name, holder, epoch)

    def _leaders(self) -> Sequence[Leadership]:
        return self._fleet.leaders()

    def _recover(self, now: datetime, dead_after: timedelta) -> Recovery:
        return self._fleet.recover(now, dead_after)

    def _prune(self, before: datetime, limit: int, upto: str | None) -> int:
        return self._fleet.prune(before, limit, self._inspection.place_of(upto))

    def _prune_chosen(self, ids: Sequence[str], before: datetime, limit: int, upto: str | None) -> int:
        return self._fleet.prune_chosen(ids, before, limit, self._inspection.place_of(upto))

    def _put_schedule(self, schedule: Schedule) -> Schedule:
        return self._scheduling.put(schedule)

    def _schedules(self) -> Sequence[Schedule]:
        return self._scheduling.schedules()

    def _get_schedule(self, name: str) -> Schedule:
        return self._scheduling.get(name)

    def _pause_schedule(self, name: str, paused: bool, now: datetime) -> bool:
        return self._scheduling.pause(name, paused, now)

    def _remove_schedule(self, name: str) -> bool:
        return self._scheduling.remove(name)

    def _advance_schedule(
        self,
        name: str,
        expected: datetime | None,
        next_run_at: datetime | None,
        last_run_at: datetime | None,
        last_job_id: str | None,
        now: datetime,
    ) -> bool:
        return self._scheduling.advance(name, expected, next_run_at, last_run_at, last_job_id, now)

    def _add_token(self, token: Token) -> bool:
        return self._access.add(token)

    def _tokens(self) -> Sequence[Token]:
        return self._access.tokens()

    def _get_tokens(self, ids: Sequence[str]) -> Sequence[Token]:
        return self._access.get(ids)

    def _revoke_token(self, id: str, now: datetime) -> bool:
        return self._access.revoke(id, now)


def _are_plain(jobs: Sequence[NewJob]) -> bool:
    """Whether none of them has a key or an id of its own, so that each can be written without a look at the rest."""
    return all(type(job) is NewJob and job.idempotency_key is None and job.id is None for job in jobs)
