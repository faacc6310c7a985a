"""What people and tools ask about jobs, and what they do to them by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taskharbor.core import transitions
from taskharbor.core.answers import CensusRow, Counts, Glances, HistoryPage, Page
from taskharbor.core.errors import InvalidCursor, JobNotFound
from taskharbor.core.ids import new_ids
from taskharbor.core.model import Attempt, Job, JobFilter, QueueSettings, Status
from taskharbor.drivers.mysql.moves import LIVE, apply_moves, lock_jobs, save_jobs
from taskharbor.drivers.mysql.rows import attempt_from_row, fact_from_row, filter_params, finished_job, job_from_row
from taskharbor.drivers.mysql.store import Session, Store
from taskharbor.drivers.mysql.values import optional_time, sql_time
from taskharbor.drivers.operations import RedrivePlan
from taskharbor.drivers.rows import glance_from_row
from taskharbor.drivers.sqldesk import settings_from
from taskharbor.drivers.sqlfiles import with_lines


def get(session: Session, id: str) -> Job:
    # Jobs go from live to finished and never back, so looking in this order misses none.
    if live := session.rows("get_job", id=id):
        return job_from_row(live[0])
    if finished := session.rows("get_finished", id=id):
        return finished_job(finished[0])
    raise JobNotFound(f"no job with the id {id!r}")


def list_jobs(session: Session, filter: JobFilter, cursor: str | None, limit: int) -> Page:
    params = {**filter_params(filter), "before": cursor, "status": filter.status and str(filter.status)}
    found: dict[str, Job] = {}
    if filter.status is None or filter.status in LIVE:
        rows = session.rows(_filtered("list_jobs", filter), limit=limit + 1, **params)
        found |= {row[0]: job_from_row(row) for row in rows}
    # A finished job has no DLQ code, so a filter on it leaves only live ones. One that finished since the query
    # above is seen by both, and then the later answer counts.
    if filter.code is None and (filter.status is None or filter.status not in LIVE):
        rows = session.rows(_filtered("list_finished", filter), limit=limit + 1, **params)
        found |= {row[1]: finished_job(row) for row in rows}
    ids = sorted(found, reverse=True)
    return Page([found[id] for id in ids[:limit]], ids[limit - 1] if len(ids) > limit else None)


def counts(session: Session, now: datetime) -> Counts:
    queues: dict[str, dict[str, int]] = {}
    scheduled = 0
    for queue, status, count, later in session.rows("counts_live", now=sql_time(now)):
        queues.setdefault(queue, {})[status] = count
        scheduled += int(later)
    for queue, status, count in session.rows("counts_finished"):
        queues.setdefault(queue, {})[status] = count
    return Counts(queues, scheduled)


def census(session: Session, now: datetime) -> Sequence[CensusRow]:
    rows = session.rows("census", now=sql_time(now))
    return [CensusRow(row[0], row[1], Status(row[2]), *row[3:]) for row in rows]


def count(session: Session, filter: JobFilter, limit: int) -> int:
    params = {**filter_params(filter), "status": filter.status and str(filter.status)}
    asked = {name for name, value in params.items() if value is not None} - {"any_id"}
    if filter.ids is None:
        asked.discard("ids")
    found = 0
    if filter.status is None or filter.status in LIVE:
        found = session.rows(with_lines("count_live", asked), limit=limit, **params)[0][0]
    # Only DLQ jobs have a code.
    if found < limit and filter.code is None and (filter.status is None or filter.status not in LIVE):
        found += session.rows(with_lines("count_finished", asked), limit=limit - found, **params)[0][0]
    return found


def attempts(session: Session, id: str) -> Sequence[Attempt]:
    get(session, id)
    found = [attempt_from_row(row) for row in session.rows("attempts", id=id)]
    return [attempt for attempt in found if attempt is not None]


def sequence_of(store: Store, cursor: str) -> int:
    store_id, _, sequence = cursor.partition(":")
    if store_id != store.identity or not sequence.isdecimal() or len(sequence) > 18:
        raise InvalidCursor(f"cursor {cursor!r} is not from this store: start without one")
    return int(sequence)


def history(store: Store, cursor: str | None, limit: int) -> HistoryPage:
    """Positions are given out and become visible in the same order, so what lies behind a cursor is all there is."""
    identity = store.identity
    after = 0 if cursor is None else sequence_of(store, cursor)
    rows = store.read(lambda session: session.rows("history", after=after, limit=limit))
    facts = [fact_from_row(row, identity) for row in rows]
    return HistoryPage(facts, facts[-1].position if facts else f"{identity}:{after}")


def latest(store: Store, after: str | None, limit: int) -> Glances:
    identity = store.identity
    start = 0 if after is None else sequence_of(store, after)
    name = "latest" if after is None else "latest_behind"
    rows = list(store.read(lambda session: session.rows(name, after=start, limit=limit)))
    if after is None:
        rows.reverse()
    # Without any row there is none behind the beginning either.
    return Glances([glance_from_row(row[1:]) for row in rows], f"{identity}:{rows[-1][0] if rows else start}")


def cancel(session: Session, id: str, now: datetime) -> Status:
    job = lock_jobs(session, [id]).get(id)
    if job is None:
        return get(session, id).status
    if job.status not in (Status.READY, Status.INFLIGHT):
        return job.status
    moved = transitions.cancel(job, now)
    apply_moves(session, [moved], now)
    return moved.job.status


def redrive(
    session: Session, filter: JobFilter, after: str | None, limit: int, plan: RedrivePlan
) -> tuple[Sequence[str], Sequence[str]]:
    jobs = _lock_dead(session, filter, after, limit)
    ids = [job.id for job in jobs]
    if not jobs:
        return [], []
    if plan.clone:
        copies = new_ids(len(jobs))
        items = [
            {"id": id, "new_id": new, "run_at": optional_time(run_at), "due_at": sql_time(run_at or plan.now)}
            for id, new, run_at in zip(ids, copies, map(plan.run_at, range(len(ids))), strict=True)
        ]
        session.run_items("clone", items, now=sql_time(plan.now))
        return ids, copies
    moved = [
        transitions.redrive(job, plan.now, run_at=plan.run_at(number), reset_attempts=plan.reset_attempts)
        for number, job in enumerate(jobs)
    ]
    save_jobs(session, moved)
    return ids, ids


def purge(session: Session, filter: JobFilter, limit: int) -> int:
    ids = [job.id for job in _lock_dead(session, filter, None, limit)]
    if ids:
        session.run_by_id("forget_keys", ids)
        session.run_ids("delete_jobs", ids)
    return len(ids)


def set_paused(session: Session, queue: str, paused: bool) -> None:
    session.run("set_paused", queue=queue, paused=paused)


def queues(session: Session) -> Sequence[QueueSettings]:
    return [settings_from(row) for row in session.rows("queues")]


def _filtered(statement: str, filter: JobFilter) -> str:
    """A statement whose filters all are always there, but for the one that has to read payloads."""
    return statement if filter.text is None else f"{statement}+text"


def _lock_dead(session: Session, filter: JobFilter, after: str | None, limit: int) -> list[Job]:
    """The first DLQ jobs that match, in order of id. They are found without locks, then locked and looked at again."""
    while True:
        found = session.rows(_filtered("dead", filter), after=after, limit=limit, **filter_params(filter))
        ids = [row[0] for row in found]
        jobs = lock_jobs(session, ids)
        dead = [jobs[id] for id in ids if id in jobs and jobs[id].status is Status.DLQ]
        # If somebody else took them all, there may be more behind; an empty answer must mean that there is none.
        if dead or not ids:
            return dead
        after = ids[-1]
