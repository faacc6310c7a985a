"""Workers, leaders, recovery and pruning."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from taskharbor.core import transitions
from taskharbor.core.clock import from_micros, to_micros
from taskharbor.core.fleet import Leadership, Recovery, Worker
from taskharbor.core.model import Status
from taskharbor.drivers.lapsing import lapse
from taskharbor.drivers.sqlite.claiming import Claiming
from taskharbor.drivers.sqlite.records import micros, moment, sequence_of
from taskharbor.drivers.sqlite.store import Connection

# Jobs that left, and the last word on jobs that were in the DLQ: those may have been purged since.
_ENDED: Final = ((1, Status.DONE), (1, Status.EXPIRED), (1, Status.CANCELLED), (0, Status.DLQ))


class Fleet(Claiming):
    """What keeps a group of workers together."""

    def _heartbeat(self, worker: Worker, now: datetime) -> None:
        with self._writing() as connection:
            connection.execute(
                self._sql["heartbeat"],
                {
                    "id": worker.id,
                    "hostname": worker.hostname,
                    "pid": worker.pid,
                    "queues": json.dumps(worker.queues),
                    "slots": worker.slots,
                    "version": worker.version,
                    "started_at": micros(worker.started_at),
                    "now": to_micros(now),
                    "meta": json.dumps(dict(worker.meta)),
                },
            )

    def _workers(self) -> Sequence[Worker]:
        with self._reading() as connection:
            return [_worker(row) for row in connection.execute(self._sql["workers"])]

    def _deregister(self, worker_id: str) -> None:
        with self._writing() as connection:
            connection.execute(self._sql["deregister"], {"id": worker_id})

    def _elect(self, name: str, holder: str, now: datetime, term: timedelta, epoch: int | None) -> Leadership | None:
        until = to_micros(now + term)
        params = {"name": name, "holder": holder, "now": to_micros(now), "until": until, "epoch": epoch}
        with self._writing() as connection:
            row = connection.execute(self._sql["elect"], params).fetchone()
        return None if row is None else Leadership(name, holder, row[0], from_micros(until))

    def _resign(self, name: str, holder: str, epoch: int) -> None:
        with self._writing() as connection:
            connection.execute(self._sql["resign"], {"name": name, "holder": holder, "epoch": epoch})

    def _leaders(self) -> Sequence[Leadership]:
        with self._reading() as connection:
            rows = connection.execute(self._sql["leaders"]).fetchall()
        return [Leadership(name, holder, epoch, from_micros(until)) for name, holder, epoch, until in rows]

    def _recover(self, now: datetime, dead_after: timedelta) -> Recovery:
        with self._writing() as connection:
            silent_since = {"silent_since": to_micros(now - dead_after)}
            silent = [id for (id,) in connection.execute(self._sql["remove_dead_workers"], silent_since).fetchall()]
            freed = self._free_orphans(connection, silent, now) if silent else 0
            freed += self._take_back(connection, list(self._names(connection, "next_leased_queue")), now)
            expired = self._expire(connection, list(self._names(connection, "next_expiring_queue")), now)
            return Recovery(len(silent), freed, expired)

    def _free_orphans(self, connection: Connection, owners: Sequence[str], now: datetime) -> int:
        orphans = self._jobs(connection, "select_orphans", {"owners": json.dumps(owners)})
        for job in orphans:
            self._apply(connection, lapse(job, now, self.limits, transitions.ORPHANED_TEXT))
        return len(orphans)

    def _names(self, connection: Connection, statement: str, **group: object) -> Iterator[str]:
        """Every queue that a partial index knows, one probe each."""
        name = ""
        while (name := connection.execute(self._sql[statement], {**group, "above": name}).fetchone()[0]) is not None:
            yield name

    def _prune(self, before: datetime, limit: int, upto: str | None) -> int:
        with self._changing() as connection:
            old = {"before": to_micros(before), "upto": self._last_place(connection, upto)}
            most = {**old, "limit": min(limit, sys.maxsize)}
            ended: list[tuple[int, int, str]] = []
            for final, status in _ENDED:
                group = {"final": final, "status": status.value}
                for queue in self._names(connection, "next_ended_queue", **group):
                    ended.extend(connection.execute(self._sql["select_ended"], {**group, "queue": queue, **most}))
            return self._forget(connection, [id for _, _, id in sorted(ended)[:limit]])

    def _prune_chosen(self, ids: Sequence[str], before: datetime, limit: int, upto: str | None) -> int:
        with self._changing() as connection:
            old = {"before": to_micros(before), "upto": self._last_place(connection, upto)}
            ended = (id for id in ids if connection.execute(self._sql["prune_chosen"], {"id": id, **old}).fetchone())
            return self._forget(connection, list(islice(ended, min(limit, sys.maxsize))))

    def _last_place(self, connection: Connection, upto: str | None) -> int:
        if upto is None:
            return sys.maxsize
        return sequence_of(upto, connection.execute(self._sql["store_id"]).fetchone()[0])

    def _forget(self, connection: Connection, ids: Sequence[str]) -> int:
        gone = [{"id": id} for id in ids]
        connection.executemany(self._sql["prune_keys"], gone)
        connection.executemany(self._sql["prune_history"], gone)
        return len(gone)


def _worker(row: Sequence[Any]) -> Worker:
    id, hostname, pid, queues, slots, version, started_at, last_heartbeat, meta = row
    return Worker(
        id=id,
        hostname=hostname,
        pid=pid,
        queues=tuple(json.loads(queues)),
        slots=slots,
        version=version,
        started_at=moment(started_at),
        last_heartbeat=from_micros(last_heartbeat),
        meta=json.loads(meta),
    )
