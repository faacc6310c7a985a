"""What keeps a group of workers together: heartbeats, elections, recovery, and forgetting."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from taskharbor.core import transitions
from taskharbor.core.fleet import Leadership, Recovery, Worker
from taskharbor.core.limits import SWEEP_BATCH, Limits
from taskharbor.drivers.lapsing import lapse
from taskharbor.drivers.mysql.claiming import expire, move, take_back
from taskharbor.drivers.mysql.store import Session, Store
from taskharbor.drivers.mysql.values import optional_time, sql_time

PRUNE_WINDOW: Final = 1_000
ENDLESS: Final = 2**63 - 1


def heartbeat(session: Session, worker: Worker, now: datetime) -> None:
    session.run(
        "heartbeat",
        id=worker.id,
        hostname=worker.hostname,
        pid=worker.pid,
        queues=json.dumps(worker.queues),
        slots=worker.slots,
        version=worker.version,
        meta=json.dumps(dict(worker.meta)),
        started_at=optional_time(worker.started_at),
        now=sql_time(now),
    )


def workers(session: Session) -> Sequence[Worker]:
    return [
        Worker(id, hostname, pid, tuple(json.loads(queues)), slots, version, started_at, heartbeat, json.loads(meta))
        for id, hostname, pid, queues, slots, version, meta, started_at, heartbeat in session.rows("workers")
    ]


def deregister(session: Session, worker_id: str) -> None:
    session.run("deregister", ids=[worker_id])


def elect(
    session: Session, name: str, holder: str, now: datetime, term: timedelta, epoch: int | None
) -> Leadership | None:
    """One row per election, locked while a bid is decided."""
    rows = session.rows("lock_election", name=name)
    if not rows:
        if epoch is not None:
            return None
        session.run("open_election", name=name)
        rows = session.rows("lock_election", name=name)
    current_holder, current_epoch, until = rows[0]
    held = until > now
    if held or epoch is not None:
        if not held or current_holder != holder or epoch not in (None, current_epoch):
            return None
    else:
        current_epoch += 1
    won = Leadership(name, holder, current_epoch, now + term)
    session.run("elect", name=name, holder=holder, epoch=won.epoch, until=sql_time(won.until))
    return won


def resign(session: Session, name: str, holder: str, epoch: int) -> None:
    session.run("resign", name=name, holder=holder, epoch=epoch)


def leaders(session: Session) -> Sequence[Leadership]:
    return [Leadership(*row) for row in session.rows("leaders")]


def recover(store: Store, now: datetime, dead_after: timedelta, limits: Limits) -> Recovery:
    """Each part is a transaction of its own: they have nothing to do with each other, and short ones disturb less."""
    found = store.write(lambda session: _remove_dead_workers(session, now, dead_after, limits))
    queues = store.read(_queues_in_use)
    freed = store.write(lambda session: take_back(session, queues, now, limits))
    expired = store.write(lambda session: expire(session, queues, now))
    return found + Recovery(leases_freed=freed, jobs_expired=expired)


def _remove_dead_workers(session: Session, now: datetime, dead_after: timedelta, limits: Limits) -> Recovery:
    ids = [row[0] for row in session.rows("dead_workers", before=sql_time(now - dead_after))]
    if not ids:
        return Recovery()
    freed = 0
    while orphans := [row[0] for row in session.rows("select_orphans", owners=ids, limit=SWEEP_BATCH)]:
        freed += move(session, orphans, now, lambda job: lapse(job, now, limits, transitions.ORPHANED_TEXT))
    session.run_by_id("deregister", ids)
    return Recovery(workers_removed=len(ids), leases_freed=freed)


def _queues_in_use(session: Session) -> list[str]:
    queues: list[str] = []
    while found := session.rows("next_queue", after=queues[-1] if queues else ""):
        queues.append(found[0][0])
    return queues


def prune(session: Session, before: datetime, limit: int, upto: int | None) -> int:
    """Forget at most `limit` jobs. History is read in its own order, a window at a time, until nothing old is left or
    enough was found."""
    ended: dict[str, None] = {}
    old = {"before": sql_time(before), "upto": ENDLESS if upto is None else upto}
    after = 0
    while len(ended) < limit:
        window = session.rows("prune_window", **old, after=after, limit=PRUNE_WINDOW)
        if not any(is_old for _, _, is_old, _ in window):
            break
        after = window[-1][0]
        ended.update((job_id, None) for _, job_id, _, is_over in window if is_over)
    return _forget(session, list(ended)[:limit], after)


def prune_chosen(session: Session, ids: Sequence[str], before: datetime, limit: int, upto: int | None) -> int:
    """The same for chosen jobs."""
    last = ENDLESS if upto is None else upto
    ended = session.rows_by_id("prune_chosen", ids, before=sql_time(before), upto=last)[:limit]
    return _forget(session, [row[0] for row in ended], max((row[1] for row in ended), default=0))


def _forget(session: Session, ids: Sequence[str], last: int) -> int:
    """Their rows up to the last that was looked at: the id of a purged job may be in use again, and what that one has
    recorded since stays."""
    if ids:
        session.run_by_id("prune_keys", ids)
        session.run_ids("prune_history", ids, last=last)
    return len(ids)
