"""Settle and extend: leases end, or live on.

Settlements of one kind are run as a set: one statement records the attempts, one changes the jobs, both fenced by
token and time. Only if some did not match are they run one by one, and only those that still do not match are
looked at in Python to say why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from taskharbor.core import transitions
from taskharbor.core.clock import to_micros
from taskharbor.core.contract import Extended, Leased, Settled
from taskharbor.core.errors import TaskHarborError
from taskharbor.core.model import Extension, Lease, Outcome, RetryUpdate, Settle, Settlement, Status
from taskharbor.drivers.rows import progress_to_text
from taskharbor.drivers.sqlite.claiming import Claim, Claiming
from taskharbor.drivers.sqlite.ordered import Inserter, ordered
from taskharbor.drivers.sqlite.records import micros
from taskharbor.drivers.sqlite.store import Connection

Values = tuple[Any, ...]
ValuesOf = Callable[[Settlement, int], Values]


class _UnmatchedError(Exception):
    """Some settlement of a set found no lease to end."""


class Way(NamedTuple):
    """One way to send jobs back or to the DLQ: what records it, what does it, and the values of both for one
    settlement at a time in microseconds."""

    status: Status
    record: str
    record_values: ValuesOf
    change: str
    change_values: ValuesOf


_ENDING: Final = ("id", "token", "started_at", "error", "result")
_FENCE: Final = ("id", "token", "now")
_DEAD: Final = ("now", "reason", "code", "started_at", "reason", "now", *_FENCE)
_FAIL: Final = ("reason", "code", "now", "reason", "now", "started_at", "now", *_FENCE)
_ATTEMPT: Final = ("outcome", "now", "error", "started_at", *_FENCE, "always", "started_at")
_RETRY: Final = ("run_at", "run_at", "now", "attempts", "error", "failed_at", "now", *_FENCE)
_BACK: Final = ("run_at", "run_at", "now", *_FENCE)

_ENDS: Final = {Settle.ACK: (Outcome.SUCCEEDED, Status.DONE), Settle.CANCEL: (Outcome.CANCELLED, Status.CANCELLED)}


class Settling(Claiming):
    """Leases end, or live on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ending_inserter = Inserter(self._sql["insert_ending"], *_ENDING)
        attempt = ordered(self._sql["record_attempt"], *_ATTEMPT)
        back = ordered(self._sql["settle_back"], *_BACK)
        dead, fail = ordered(self._sql["record_dead"], *_DEAD), ordered(self._sql["settle_fail"], *_FAIL)
        retry = ordered(self._sql["settle_retry"], *_RETRY)
        self._ways: Final = {
            Settle.FAIL: Way(Status.DLQ, dead, _dead, fail, _fail),
            Settle.RETRY: Way(Status.READY, attempt, _retried, retry, _retry),
            Settle.RELEASE: Way(Status.READY, attempt, _released, back, _back),
            Settle.SNOOZE: Way(Status.READY, attempt, _snoozed, back, _back),
        }

    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        return self._settle_then(settlements, now, None)[0]

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
        """Both in one transaction: one wait for the disk instead of two."""
        return self._settle_then(settlements, now, Claim(queues, now, lease_for, limit, types, owner, tenant))

    def _settle_then(
        self, settlements: Sequence[Settlement], now: datetime, claim: Claim | None
    ) -> tuple[Settled, Leased]:
        """First as sets. If some do not match, the transaction is undone and run again, one by one.

        A savepoint would spare the second run, but it copies every page that is changed, and mismatches are rare.
        """
        try:
            with self._writing() as connection:
                return self._settle_sets(connection, settlements, now), self._claim(connection, claim)
        except _UnmatchedError:
            with self._writing() as connection:
                results = [self._settle_single(connection, item, now) for item in settlements]
                return results, self._claim(connection, claim)

    def _claim(self, connection: Connection, claim: Claim | None) -> Leased:
        return [] if claim is None else self._reserve_in(connection, claim)

    def _settle_sets(self, connection: Connection, settlements: Sequence[Settlement], now: datetime) -> Settled:
        results: Settled = []
        # Neighbours only, so that history tells them in the order they were given.
        for kind, group in groupby(settlements, attrgetter("kind")):
            items = list(group)
            status = self._settle_alike(connection, kind, items, to_micros(now))
            if status is None:
                raise _UnmatchedError
            results.extend([status] * len(items))
        return results

    def _settle_single(self, connection: Connection, item: Settlement, now: datetime) -> Status | TaskHarborError:
        # What records and what changes have the same fence, so a single one is settled whole or left alone.
        status = self._settle_alike(connection, item.kind, [item], to_micros(now))
        return self._settle_odd(connection, item, now) if status is None else status

    def _settle_alike(
        self, connection: Connection, kind: Settle, items: Sequence[Settlement], now: int
    ) -> Status | None:
        """Where the jobs stand if all of them were settled; None if not, though some may have been."""
        if kind in _ENDS:
            outcome, status = _ENDS[kind]
            changed = self._end(connection, items, outcome, status, now)
        else:
            way = self._ways[kind]
            status = way.status
            connection.executemany(way.record, [way.record_values(item, now) for item in items])
            changed = connection.executemany(way.change, [way.change_values(item, now) for item in items]).rowcount
        return status if changed == len(items) else None

    def _end(
        self, connection: Connection, items: Sequence[Settlement], outcome: Outcome, status: Status, now: int
    ) -> int:
        """Move jobs to history. Most settlements come this way, so a batch takes the fewest statements."""
        self._ending_inserter.insert(connection, [_ending(item) for item in items])
        params = {"outcome": outcome.value, "status": status.value, "now": now}
        connection.execute(self._sql["record_finished"], params)
        gone = connection.execute(self._sql["delete_finished"], params).rowcount
        connection.execute(self._sql["clear_ending"])
        return gone

    def _settle_odd(self, connection: Connection, item: Settlement, now: datetime) -> Status | TaskHarborError:
        """A settlement that the quick way did not match: a repeat, a cancelled job, or a lease that is lost."""
        try:
            job = self._find(connection, item.id)
            if transitions.repeats(item, job.status, self._last_attempt(connection, item.id)):
                return job.status
            transitions.check_lease(job, item.token, now)
        except TaskHarborError as error:
            return error
        return self._apply(connection, transitions.settle(job, item, now)).status

    def _extend(self, extensions: Sequence[Extension], now: datetime) -> Extended:
        with self._writing() as connection:
            return [self._extend_one(connection, item, now) for item in extensions]

    def _extend_one(self, connection: Connection, item: Extension, now: datetime) -> Lease | TaskHarborError:
        assert isinstance(item.lease_for, timedelta)
        until = now + item.lease_for
        params = {
            "id": item.id,
            "token": item.token,
            "now": to_micros(now),
            "lease_expires_at": to_micros(until),
            "started_at": micros(item.started_at),
            "progress": progress_to_text(item.progress),
        }
        row = connection.execute(self._sql["extend"], params).fetchone()
        if row is not None:
            return Lease(item.token, until, row[0] or "", row[1] is not None)
        try:
            transitions.check_lease(self._find(connection, item.id), item.token, now)
        except TaskHarborError as error:
            return error
        raise AssertionError(f"job {item.id} was not extended although its lease is valid")


# --- The values of each statement, in the order of the names above ----------------------------------------------


def _ending(item: Settlement) -> Values:
    started_at = None if item.started_at is None else to_micros(item.started_at)
    error = "" if item.kind is Settle.ACK else item.reason or (item.update.last_error if item.update else "")
    return (item.id, item.token, started_at, error, item.result if item.kind is Settle.ACK else None)


def _fence(item: Settlement, now: int) -> Values:
    return (item.id, item.token, now)


def _dead(item: Settlement, now: int) -> Values:
    return (now, item.reason, item.code, micros(item.started_at), item.reason, now, *_fence(item, now))


def _fail(item: Settlement, now: int) -> Values:
    return (item.reason, item.code, now, item.reason, now, micros(item.started_at), now, *_fence(item, now))


def _attempt(item: Settlement, now: int, outcome: Outcome, error: str, *, always: bool) -> Values:
    started_at = micros(item.started_at)
    return (outcome.value, now, error, started_at, *_fence(item, now), int(always), started_at)


def _retried(item: Settlement, now: int) -> Values:
    return _attempt(item, now, Outcome.RETRIED, _update(item).last_error, always=True)


def _released(item: Settlement, now: int) -> Values:
    # A released job that never started was not attempted: history has nothing to say of it.
    return _attempt(item, now, Outcome.RELEASED, "", always=False)


def _snoozed(item: Settlement, now: int) -> Values:
    return _attempt(item, now, Outcome.SNOOZED, "", always=True)


def _retry(item: Settlement, now: int) -> Values:
    update = _update(item)
    run_at = micros(update.run_at)
    failed_at = micros(update.failed_at)
    return (run_at, run_at, now, update.attempts, update.last_error, failed_at, now, *_fence(item, now))


def _back(item: Settlement, now: int) -> Values:
    run_at = micros(item.run_at) if item.kind is Settle.SNOOZE else None
    return (run_at, run_at, now, *_fence(item, now))


def _update(item: Settlement) -> RetryUpdate:
    assert item.update is not None
    return item.update
