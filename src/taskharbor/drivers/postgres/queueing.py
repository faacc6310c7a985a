"""Reserve, settle and extend: each one round trip for a whole batch."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Final

from psycopg import Connection

from taskharbor.core import transitions
from taskharbor.core.contract import Extended, Leased, Settled
from taskharbor.core.errors import JobNotFound, JobNotInflight, LeaseLost, TaskHarborError
from taskharbor.core.ids import new_tokens
from taskharbor.core.limits import SWEEP_BATCH, Limits
from taskharbor.core.model import Extension, Job, Lease, Settlement, Status
from taskharbor.drivers.governing import Ask
from taskharbor.drivers.lapsing import say_crash_loops
from taskharbor.drivers.postgres.frontier import Frontier, Point
from taskharbor.drivers.postgres.rows import attempt_from_row, job_from_row, leased_from_rows, names_array
from taskharbor.drivers.postgres.session import Row, Session
from taskharbor.drivers.postgres.settling import Batch, Places, batches_of, by_ids, has_repeats
from taskharbor.drivers.rows import fact_params, job_params, progress_to_text
from taskharbor.drivers.sqlfiles import with_lines

MOST_FRONTIERS: Final = 1_000
ODD_BATCH: Final = 200
_PRIORITY: Final = itemgetter(6)
_DUE_ORDER: Final = itemgetter(8, 0)
"""Of the rows that a claim returns: due time and id."""
POSITION: Final = 21
"""Of the rows that a claim at the desk returns; behind it, the progress and the last change."""
_PLACE_ORDER: Final = itemgetter(POSITION, 0)
ALL: Final[list[Row]] = [(None, None)]
"""What a statement returns that settled everything it was given."""


class Queueing:
    def __init__(self, session: Session, limits: Limits) -> None:
        self._session = session
        self._limits = limits
        self._places = Places()
        self._frontiers: dict[tuple[tuple[str, ...], str | None, str | None], Frontier] = {}

    # --- Settle and reserve ------------------------------------------------------------------------------

    def settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        batches = batches_of(settlements, self._places, now)
        rows = self._session.run_all([batch.call for batch in batches]) if batches else []
        return self._results(settlements, batches, rows, now)

    def settle_and_reserve(
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
        ask = Ask(queues, now, lease_for, limit, types, owner, tenant)
        if has_repeats(settlements):
            # What its statements leave over is settled after the claim, which would not see what that gives back.
            settled = self.settle(settlements, now)
            return settled, self.settle_and_reserve((), queues, now, lease_for, limit, types, owner, tenant)[1]
        results, claimed = self._settle_and_claim(settlements, queues, claim_params(ask))
        self._places.note(claimed)
        claimed.sort(key=_DUE_ORDER)
        claimed.sort(key=_PRIORITY, reverse=True)
        return results, leased_from_rows(claimed, owner, now, now + lease_for)

    def settle_and_take_tagged(self, settlements: Sequence[Settlement], ask: Ask) -> tuple[Settled, Leased]:
        """Settle and claim in one round trip, in a fair queue in which every due job has its tag."""
        if has_repeats(settlements):
            return self.settle(settlements, ask.now), self.settle_and_take_tagged((), ask)[1]
        batches = batches_of(settlements, self._places, ask.now)
        claim = claim_params(ask)
        name = with_lines("desk_claim", ["fair"] if ask.tenant is None else ["fair", "tenant"])
        *settled, claimed = self._session.run_all([*[batch.call for batch in batches], (name, claim)])
        results = self._results(settlements, batches, settled, ask.now, {row[0] for row in claimed})
        return results, leased_from_desk(claimed, ask)

    def _settle_and_claim(
        self, settlements: Sequence[Settlement], queues: tuple[str, ...], claim: dict[str, Any]
    ) -> tuple[Settled, list[Row]]:
        """Settle and claim in one round trip: the results, and the rows of the claimed jobs."""
        batches = batches_of(settlements, self._places, claim["now"])
        if len(self._frontiers) > MOST_FRONTIERS:
            self.forget_frontiers()
        key = (queues, claim["types"], claim["tenant"])
        frontier = self._frontiers.get(key) or self._frontiers.setdefault(key, Frontier())
        floor = frontier.floor()
        behind = floor is not None and len(queues) == 1
        if floor is not None and behind:
            start = {"floor_priority": floor.priority, "floor_due_at": floor.due_at, "floor_id": floor.id}
            name, params = _named("claim_behind", claim), {**claim, **start}
        else:
            name, params = _named("claim" if len(queues) == 1 else "claim_many", claim), claim
        started = time.monotonic()
        *settled, claimed = self._session.run_all([*[batch.call for batch in batches], (name, params)])
        walk = time.monotonic() - started
        # Before anything is swept: a lease that has ended is to be called expired, not somebody else's.
        results = self._results(settlements, batches, settled, claim["now"], {row[0] for row in claimed})
        if behind and claimed:
            frontier.continued(_last(claimed))
            return results, claimed
        if not claimed:
            name = _named("claim" if len(queues) == 1 else "claim_many", claim)
            # Either there is nothing, or there are lapsed leases and late jobs to clear away first.
            sweep = self.sweep_params(queues, claim["now"])
            again = (name, {**claim, "sweep_first": False})
            started = time.monotonic()
            taken_back, _, claimed = self._session.run_all([("take_back", sweep), ("expire", sweep), again])
            say_crash_loops(taken_back)
            walk = time.monotonic() - started
            if len(queues) > 1 and not claimed:
                claimed = self._claim_one_by_one(queues, claim)
        if frontier.walked(walk, len(claimed) + len(settlements), lambda: _last(claimed)):
            frontier.judged(self._blocks_to_head(queues[0]))
        return results, claimed

    def forget_frontiers(self) -> None:
        self._frontiers.clear()

    def _claim_one_by_one(self, queues: tuple[str, ...], claim: Mapping[str, Any]) -> list[Row]:
        """A claim over several queues shares its places out by a look without locks. Where others hold all the jobs it
        chose, it comes back empty although there are more: then each queue is asked for itself."""
        for queue in queues:
            claimed = self._session.run(_named("claim", claim), {**claim, "queue": queue, "sweep_first": False})
            if claimed:
                return claimed
        return []

    def _blocks_to_head(self, queue: str) -> int:
        """How much finding the head of the queue reads: what is read tells more than how long it takes."""
        plan = self._session.run("explain_head", {"queue": queue})[0][0][0]["Plan"]
        return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])

    def take_back(self, sweep: Mapping[str, Any]) -> int:
        """Free leases that have ended; how many."""
        rows = self._session.run("take_back", sweep)
        say_crash_loops(rows)
        return len(rows)

    def sweep_params(self, queues: Sequence[str], now: datetime, owners: Sequence[str] | None = None) -> dict[str, Any]:
        return {
            "queues": list(queues),
            "now": now,
            "owners": None if owners is None else list(owners),
            "allowance": self._limits.crash_allowance,
            "sweep": SWEEP_BATCH,
            "crash_loop_text": transitions.CRASH_LOOP_TEXT,
            "why": transitions.LAPSED_TEXT if owners is None else transitions.ORPHANED_TEXT,
        }

    def _results(
        self,
        settlements: Sequence[Settlement],
        batches: Sequence[Batch],
        rows: Sequence[Sequence[Row]],
        now: datetime,
        claimed: Collection[str] = (),
    ) -> Settled:
        """What became of each settlement. `claimed` are the jobs that the same round trip leased afterwards: what it
        did not settle of those was not inflight before."""
        if not settlements:
            return []
        if len(batches) == 1 and rows[0] == ALL and len(batches[0].items) == len(settlements):  # the usual case
            return [batches[0].status] * len(settlements)
        done: dict[tuple[str, str], Status] = {}
        for batch, settled in zip(batches, rows, strict=True):
            keys = [(item.id, item.token) for item in batch.items] if settled == ALL else settled
            done.update(dict.fromkeys(keys, batch.status))
        results: Settled = []
        odd: list[tuple[int, Settlement]] = []
        for item in settlements:
            # Popped, so that the second of two equal items is judged as the repeat it is.
            status = done.pop((item.id, item.token), None)
            if status is None and item.id in claimed:
                results.append(
                    JobNotInflight(f"job {item.id} was ready, not inflight: its lease was settled or taken back")
                )
                continue
            if status is None:
                odd.append((len(results), item))
            results.append(status or Status.INFLIGHT)
        for start in range(0, len(odd), ODD_BATCH):
            some = odd[start : start + ODD_BATCH]
            judged = self._settle_slowly([item for _, item in some], now)
            for (place, _), outcome in zip(some, judged, strict=True):
                results[place] = outcome
        return results

    def _settle_slowly(self, items: Sequence[Settlement], now: datetime) -> Settled:
        """Settlements that the set-based statements passed over: stale, repeated, or a cancel. In order."""

        def judge(connection: Connection[Row], item: Settlement) -> Status | TaskHarborError:
            try:
                job = self.locked_job(connection, item.id)
                last = self._session.on(connection, "last_attempt", {"id": item.id})
                if transitions.repeats(item, job.status, attempt_from_row(last[0]) if last else None):
                    return job.status
                transitions.check_lease(job, item.token, now)
            except TaskHarborError as error:
                return error
            return self.apply(connection, transitions.settle(job, item, now))

        return self._session.in_transaction(lambda connection: [judge(connection, item) for item in items])

    # --- Single jobs -------------------------------------------------------------------------------------

    def locked_job(self, connection: Connection[Row], id: str) -> Job:
        """The job, with its row held until the transaction ends if it is live."""
        self._session.on(connection, "lock_job", {"id": id})
        rows = self._session.on(connection, "get_job", {"id": id})
        if not rows:
            raise JobNotFound(f"no job with the id {id!r}")
        return job_from_row(rows[0])

    def apply(self, connection: Connection[Row], moved: transitions.Moved) -> Status:
        """Store what a pure move made of a job."""
        job = moved.job
        if job.status in (Status.DONE, Status.EXPIRED, Status.CANCELLED):
            self._session.on(connection, "delete_job", {"id": job.id})
        else:
            self._session.on(connection, "save_job", job_params(job))
        if moved.fact is not None:
            self._session.on(connection, "insert_fact", fact_params(moved.fact))
        return job.status

    # --- Extend ------------------------------------------------------------------------------------------

    def extend(self, extensions: Sequence[Extension], now: datetime) -> Extended:
        # Of several for one job, the last is to count: they go one after the other.
        results: dict[int, Lease | TaskHarborError] = {}
        waiting = list(enumerate(extensions))
        while waiting:
            turn = {item.id: (number, item) for number, item in reversed(waiting)}
            waiting = [(number, item) for number, item in waiting if turn[item.id][0] != number]
            results.update(self._extend_each(list(turn.values()), now))
        return [results[number] for number in range(len(extensions))]

    def _extend_each(
        self, numbered: Sequence[tuple[int, Extension]], now: datetime
    ) -> Iterator[tuple[int, Lease | TaskHarborError]]:
        """Extensions of different jobs, each with its number in the batch, in one round trip."""
        extensions = [item for _, item in numbered]
        self._places.forget(item.id for item in extensions)
        params = {
            "ids": [item.id for item in extensions],
            "tokens": [item.token for item in extensions],
            "untils": [now + item.lease_for for item in extensions],  # type: ignore[operator]
            "starts": [item.started_at for item in extensions],
            "progresses": [progress_to_text(item.progress) for item in extensions],
            "now": now,
        }
        rows = self._session.run(by_ids("extend", len(extensions)), params)
        leases = {(id, token): Lease(token, until, owner or "", asked) for id, token, until, owner, asked in rows}
        for number, item in numbered:
            yield number, leases.get((item.id, item.token)) or self._refusal(item, now)

    def _refusal(self, item: Extension, now: datetime) -> TaskHarborError:
        rows = self._session.run("get_job", {"id": item.id})
        if not rows:
            return JobNotFound(f"no job with the id {item.id!r}")
        try:
            transitions.check_lease(job_from_row(rows[0]), item.token, now)
        except TaskHarborError as error:
            return error
        return LeaseLost(f"the lease of job {item.id} changed while it was being extended: try again")


def claim_params(ask: Ask) -> dict[str, Any]:
    return {
        "queue": ask.queues[0],
        "queues": list(ask.queues),
        "now": ask.now,
        "until": ask.now + ask.lease_for,
        "limit": ask.limit,
        "types": None if ask.types is None else names_array(ask.types),
        "secret": new_tokens(1)[0],
        "owner": ask.owner,
        "tenant": ask.tenant,
        "sweep_first": True,
    }


def leased_from_desk(claimed: list[Row], ask: Ask) -> Leased:
    """What `desk_claim` leased, by the places in line, which in a fair queue are not the due times."""
    claimed.sort(key=_PLACE_ORDER)
    claimed.sort(key=_PRIORITY, reverse=True)
    return leased_from_rows(claimed, ask.owner, ask.now, ask.now + ask.lease_for)


def _named(statement: str, claim: Mapping[str, Any]) -> str:
    return statement if claim["tenant"] is None else f"{statement}+tenant"


def _last(claimed: Sequence[Row]) -> Point | None:
    """The job that comes last in the order of claims."""
    if not claimed:
        return None
    lowest = min(map(_PRIORITY, claimed))
    due_at, job_id = max(_DUE_ORDER(row) for row in claimed if row[6] == lowest)
    return Point(lowest, due_at, job_id)
