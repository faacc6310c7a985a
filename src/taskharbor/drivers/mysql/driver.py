"""`mysql://` and `mariadb://`: the driver, put together from its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pymysql

from taskharbor.core.answers import CensusRow, Counts, Glances, HistoryPage, Page
from taskharbor.core.carrying import MARKS, Carrier
from taskharbor.core.contract import Answers, Extended, Leased, Settled
from taskharbor.core.fleet import Leadership, Recovery, Worker
from taskharbor.core.intake import Batch
from taskharbor.core.limiting import Limit
from taskharbor.core.limits import SWEEP_BATCH, Limits
from taskharbor.core.model import Attempt, Extension, Job, JobFilter, QueueSettings, Schedule, Settlement, Status
from taskharbor.core.tokens import Token
from taskharbor.drivers.base import BaseDriver
from taskharbor.drivers.governing import Desk, Rules
from taskharbor.drivers.joining import Joiner, StoreMark, missing_in_the_callers_database, same_store
from taskharbor.drivers.mysql import (
    access,
    claiming,
    enqueueing,
    fleet,
    governing,
    inspection,
    scheduling,
    schema,
    settling,
)
from taskharbor.drivers.mysql.address import Address
from taskharbor.drivers.mysql.carrying import MysqlCarrier
from taskharbor.drivers.mysql.claiming import Claim, Look
from taskharbor.drivers.mysql.errors import translate
from taskharbor.drivers.mysql.moves import LeaseDoubt
from taskharbor.drivers.mysql.store import Session, Store
from taskharbor.drivers.opening import DEFAULT_PREFIX, check_prefix
from taskharbor.drivers.operations import RedrivePlan
from taskharbor.drivers.sqlfiles import Statements

T = TypeVar("T")


class MysqlDriver(BaseDriver):
    """Jobs in MySQL 8.0.17+ or MariaDB 10.6+.

    Every call borrows a connection from a small pool. A transaction that ran into a deadlock is run again, and a
    connection that the server dropped is replaced, without the caller noticing.
    """

    writes_in_parallel = True

    def __init__(self, url: str, *, prefix: str = DEFAULT_PREFIX, limits: Limits | None = None) -> None:
        super().__init__(limits=limits)
        self._prefix = check_prefix(prefix)
        self._store = Store(Address(url), self._prefix)
        self._joiner = Joiner(
            ["pymysql"],
            ["mysql", "mariadb"],
            Statements(schema.PACKAGE, prefix, "pyformat"),
            Statements(schema.PACKAGE, prefix, "named"),
        )
        self._mark = StoreMark(self._store.read_identity)

    def carrier(self) -> Carrier:
        return MysqlCarrier(self._store, self._prefix)

    def migrate(self) -> None:
        self._check_open()
        self._store.migrate()

    def _measure_clock(self) -> datetime:
        moment: datetime = self._store.raw_clock()
        return moment

    def _close(self) -> None:
        self._store.close()

    # --- Queueing ----------------------------------------------------------------------------------------

    def _enqueue(self, batch: Batch) -> Answers:
        return self._store.write(lambda session: enqueueing.enqueue(session, batch))

    def _enqueue_with(self, connection: Any, batch: Batch) -> Answers:
        self._mark.know()
        with _of_caller():
            self._joiner.run(connection, same_store(self._mark))
            return self._joiner.run(connection, enqueueing.enqueue_steps(batch, self._is_shut))

    async def _aenqueue_with(self, connection: Any, batch: Batch) -> Answers:
        self._mark.know()
        with _of_caller():
            await self._joiner.arun(connection, same_store(self._mark))
            return await self._joiner.arun(connection, enqueueing.enqueue_steps(batch, self._is_shut))

    def _is_shut(self) -> bool:
        return bool(self._store.read(lambda session: session.rows("is_shut")))

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
        asked = Claim(queues, now, lease_for, limit, types, owner, tenant)
        seen = self._look(asked)
        if seen.lapsed or seen.expired:
            self._store.write(lambda session: claiming.sweep(session, seen, now, self.limits))
            seen = self._look(asked)
        if not seen.first_ranks:
            return []
        return self._store.write(lambda session: claiming.claim(session, asked, seen.first_ranks))

    def _look(self, asked: Claim) -> Look:
        """One read without a transaction; when there is nothing to do, this is all that a reserve costs."""
        return self._store.read(lambda session: claiming.look(session, asked.queues, asked.now))

    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        if settling.are_plain_acks(settlements):
            with suppress(LeaseDoubt):
                return self._store.write(lambda session: settling.ack_all(session, settlements, now))
        return self._store.write(lambda session: settling.settle(session, settlements, now))

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
        """Successes and the next claim share a transaction. Anything else goes one after the other: other ways to
        settle can make a job ready, and a sweep can take a lease that the settlement must find expired."""
        asked = Claim(queues, now, lease_for, limit, types, owner, tenant)
        seen = self._look(asked) if settling.are_plain_acks(settlements) else None
        if seen is not None and not seen.lapsed and not seen.expired:

            def work(session: Session) -> tuple[Settled, Leased]:
                # The claim first: from the first success on, nobody else can add history until the commit.
                leased = claiming.claim(session, asked, seen.first_ranks)
                return settling.ack_all(session, settlements, now), leased

            with suppress(LeaseDoubt):
                return self._store.write(work)
        return super()._settle_and_reserve(settlements, queues, now, lease_for, limit, types, owner, tenant)

    def _extend(self, extensions: Sequence[Extension], now: datetime) -> Extended:
        return self._store.write(lambda session: settling.extend(session, extensions, now))

    # --- Inspection --------------------------------------------------------------------------------------

    def _get(self, id: str) -> Job:
        return self._store.read(lambda session: inspection.get(session, id))

    def _list(self, filter: JobFilter, cursor: str | None, limit: int) -> Page:
        return self._store.read(lambda session: inspection.list_jobs(session, filter, cursor, limit))

    def _counts(self, now: datetime) -> Counts:
        return self._store.snapshot(lambda session: inspection.counts(session, now))

    def _census(self, now: datetime) -> Sequence[CensusRow]:
        return self._store.read(lambda session: inspection.census(session, now))

    def _count(self, filter: JobFilter, limit: int) -> int:
        return self._store.snapshot(lambda session: inspection.count(session, filter, limit))

    def _attempts(self, id: str) -> Sequence[Attempt]:
        return self._store.read(lambda session: inspection.attempts(session, id))

    def _history(self, cursor: str | None, limit: int) -> HistoryPage:
        return inspection.history(self._store, cursor, limit)

    def _latest(self, after: str | None, limit: int) -> Glances:
        return inspection.latest(self._store, after, limit)

    def _cancel(self, id: str, now: datetime) -> Status:
        return self._store.change(lambda session: inspection.cancel(session, id, now))

    def _redrive(
        self, filter: JobFilter, after: str | None, limit: int, plan: RedrivePlan
    ) -> tuple[Sequence[str], Sequence[str]]:
        return self._store.change(lambda session: inspection.redrive(session, filter, after, limit, plan))

    def _purge(self, filter: JobFilter, limit: int) -> int:
        return self._store.change(lambda session: inspection.purge(session, filter, limit))

    def _set_paused(self, queue: str, paused: bool) -> None:
        keep = self._store.write if queue in MARKS else self._store.change
        keep(lambda session: inspection.set_paused(session, queue, paused))

    def _queues(self) -> Sequence[QueueSettings]:
        return self._store.read(inspection.queues)

    def _read_rules(self) -> Rules:
        return self._store.read(governing.read_rules)

    def _at_desk(self, work: Callable[[Desk], T]) -> T:
        return self._store.write(lambda session: work(governing.MysqlDesk(session, self.limits)))

    def _set_limit(self, limit: Limit, now: datetime) -> None:
        self._store.change(lambda session: governing.set_limit(session, limit, now))

    def _drop_limit(self, key: tuple[str, str, str], now: datetime) -> bool:
        return self._store.change(lambda session: governing.drop_limit(session, key, now))

    def _set_fair(self, queue: str, fair: bool, weights: Mapping[str, float]) -> None:
        self._store.change(lambda session: governing.set_fair(session, queue, fair, weights))

    # --- Fleet -------------------------------------------------------------------------------------------

    def _heartbeat(self, worker: Worker, now: datetime) -> None:
        self._store.write(lambda session: fleet.heartbeat(session, worker, now))

    def _workers(self) -> Sequence[Worker]:
        return self._store.read(fleet.workers)

    def _deregister(self, worker_id: str) -> None:
        self._store.write(lambda session: fleet.deregister(session, worker_id))

    def _elect(self, name: str, holder: str, now: datetime, term: timedelta, epoch: int | None) -> Leadership | None:
        return self._store.write(lambda session: fleet.elect(session, name, holder, now, term, epoch))

    def _resign(self, name: str, holder: str, epoch: int) -> None:
        self._store.write(lambda session: fleet.resign(session, name, holder, epoch))

    def _leaders(self) -> Sequence[Leadership]:
        return self._store.read(fleet.leaders)

    def _recover(self, now: datetime, dead_after: timedelta) -> Recovery:
        return fleet.recover(self._store, now, dead_after, self.limits)

    def _prune(self, before: datetime, limit: int, upto: str | None) -> int:
        """In short transactions, so that workers can settle in between."""
        last = None if upto is None else inspection.sequence_of(self._store, upto)
        removed = 0
        while removed < limit:
            room = min(SWEEP_BATCH, limit - removed)

            def bite(session: Session, room: int = room) -> int:
                return fleet.prune(session, before, room, last)

            gone = self._store.change(bite)
            removed += gone
            if gone < room:
                break
        return removed

    def _prune_chosen(self, ids: Sequence[str], before: datetime, limit: int, upto: str | None) -> int:
        last = None if upto is None else inspection.sequence_of(self._store, upto)
        removed = 0
        for at in range(0, len(ids), SWEEP_BATCH):

            def work(session: Session, part: Sequence[str] = ids[at : at + SWEEP_BATCH], gone: int = removed) -> int:
                return fleet.prune_chosen(session, part, before, limit - gone, last)

            removed += self._store.change(work)
            if removed == limit:
                break
        return removed

    # --- Schedules ---------------------------------------------------------------------------------------

    def _put_schedule(self, schedule: Schedule) -> Schedule:
        return self._store.change(lambda session: scheduling.put(session, schedule))

    def _schedules(self) -> Sequence[Schedule]:
        return self._store.read(scheduling.schedules)

    def _get_schedule(self, name: str) -> Schedule:
        return self._store.read(lambda session: scheduling.get(session, name))

    def _pause_schedule(self, name: str, paused: bool, now: datetime) -> bool:
        return self._store.change(lambda session: scheduling.pause(session, name, paused, now))

    def _remove_schedule(self, name: str) -> bool:
        return self._store.change(lambda session: scheduling.remove(session, name))

    def _advance_schedule(
        self,
        name: str,
        expected: datetime | None,
        next_run_at: datetime | None,
        last_run_at: datetime | None,
        last_job_id: str | None,
        now: datetime,
    ) -> bool:
        return self._store.write(
            lambda session: scheduling.advance(session, name, expected, next_run_at, last_run_at, last_job_id, now)
        )

    # --- Tokens ------------------------------------------------------------------------------------------

    def _add_token(self, token: Token) -> bool:
        return self._store.change(lambda session: access.add(session, token))

    def _tokens(self) -> Sequence[Token]:
        return self._store.read(access.tokens)

    def _get_tokens(self, ids: Sequence[str]) -> Sequence[Token]:
        return self._store.read(lambda session: access.get(session, ids))

    def _revoke_token(self, id: str, now: datetime) -> bool:
        return self._store.change(lambda session: access.revoke(session, id, now))


@contextmanager
def _of_caller() -> Iterator[None]:
    """What went wrong on the caller's connection: SQLAlchemy wraps PyMySQL's error, and ours goes as it is."""
    with missing_in_the_callers_database():
        try:
            yield
        except Exception as error:
            cause = getattr(error, "orig", error)
            if isinstance(cause, pymysql.err.MySQLError):
                raise translate(cause) from error
            raise
