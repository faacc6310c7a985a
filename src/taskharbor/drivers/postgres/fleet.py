"""Workers, leadership, and the housekeeping a leader does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from psycopg import Connection

from taskharbor.core.clock import EPOCH
from taskharbor.core.fleet import Leadership, Recovery, Worker
from taskharbor.core.limits import SWEEP_BATCH
from taskharbor.drivers.postgres.queueing import Queueing
from taskharbor.drivers.postgres.rows import worker_from_row
from taskharbor.drivers.postgres.session import Row, Session

PRUNE_WINDOW: Final = 5_000


class Fleet:
    def __init__(self, session: Session, queueing: Queueing) -> None:
        self._session = session
        self._queueing = queueing

    def heartbeat(self, worker: Worker, now: datetime) -> None:
        params = {
            "id": worker.id,
            "hostname": worker.hostname,
            "pid": worker.pid,
            "queues": json.dumps(worker.queues),
            "slots": worker.slots,
            "version": worker.version,
            "meta": json.dumps(dict(worker.meta)),
            "started_at": worker.started_at,
            "now": now,
        }
        self._session.run("heartbeat", params)

    def workers(self) -> Sequence[Worker]:
        return [worker_from_row(row) for row in self._session.run("workers", {})]

    def deregister(self, worker_id: str) -> None:
        self._session.run("deregister", {"id": worker_id})

    def elect(self, name: str, holder: str, now: datetime, term: timedelta, epoch: int | None) -> Leadership | None:
        bid = {"name": name, "holder": holder, "now": now, "until": now + term, "epoch": epoch}
        rows = self._session.run("elect" if epoch is None else "renew", bid)
        return Leadership(name, holder, rows[0][0], now + term) if rows else None

    def resign(self, name: str, holder: str, epoch: int) -> None:
        self._session.run("resign", {"name": name, "holder": holder, "epoch": epoch, "until": EPOCH})

    def leaders(self) -> Sequence[Leadership]:
        return [Leadership(*row) for row in self._session.run("leaders", {})]

    def recover(self, now: datetime, dead_after: timedelta) -> Recovery:
        """In short transactions, so that neither claims nor the feed wait for a large one."""

        def end_dead_workers(connection: Connection[Row]) -> list[str]:
            silent = {"silent_since": now - dead_after}
            dead = [row[0] for row in self._session.on(connection, "remove_dead_workers", silent)]
            if dead:
                self._session.on(connection, "end_leases", {"owners": dead, "now": now})
            return dead

        dead = self._session.in_transaction(end_dead_workers)
        queues = [row[0] for row in self._session.run("queues_to_sweep", {"now": now})]
        if not queues:
            return Recovery(len(dead))
        freed = 0
        if dead:
            orphans = self._queueing.sweep_params(queues, now, dead)
            found = SWEEP_BATCH
            while found == SWEEP_BATCH:
                found = self._queueing.take_back(orphans)
                freed += found
        sweep = self._queueing.sweep_params(queues, now)
        freed += self._queueing.take_back(sweep)
        return Recovery(len(dead), freed, len(self._session.run("expire", sweep)))

    def prune(self, before: datetime, limit: int, upto: tuple[int, int]) -> int:
        """History is read in its own order, a window at a time, until nothing old is left or enough was found."""
        ended: dict[str, None] = {}
        xid, sequence = 0, 0
        old = {"before": before, "last_xid": upto[0], "last_seq": upto[1]}
        while len(ended) < limit:
            window = self._session.run("prune_window", {**old, "xid": xid, "seq": sequence, "limit": PRUNE_WINDOW})
            if not any(old for _, _, _, old, _ in window):
                break
            xid, sequence = window[-1][0], window[-1][1]
            ended.update((job_id, None) for _, _, job_id, _, is_over in window if is_over)
        return self.prune_chosen(list(ended)[:limit], before, limit, upto) if ended else 0

    def prune_chosen(self, ids: Sequence[str], before: datetime, limit: int, upto: tuple[int, int]) -> int:
        """In one statement, which sees one moment: none goes that is not over when it goes."""
        old = {"before": before, "last_xid": upto[0], "last_seq": upto[1]}
        chosen = {**old, "ids": list(ids), "limit": min(limit, len(ids))}
        return int(self._session.change_all(("prune", chosen))[0][0][0])
