"""Workers over REST, registered so that they are seen beside those in Python. No lease hangs on it.

Recovery frees the leases of a registered worker that has been silent for half a minute, and one over REST may well be:
it extends as seldom as it likes. So the id under which it is registered is never the owner of a lease, and all that
its silence does is that it is no longer listed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from taskharbor.core.contract import Driver
from taskharbor.core.errors import TaskHarborError
from taskharbor.core.fleet import ANY_TYPE, OVER_REST, Worker
from taskharbor.core.limits import MAX_NAME
from taskharbor.web.api.schemas import LeaseRequest
from taskharbor.web.threads import Threads

PREFIX: Final = "rest:"
BEAT_S: Final = 10.0
CLEAR_S: Final = 30.0
SILENT_S: Final = 60.0
"""Who has been silent for so long is taken off the list by any server: there may be no worker in Python to do it."""
MOST_KNOWN: Final = 1_000
MOST_LETTERS: Final = 4_000
"""Of the types that a worker handles; if there are more, it says none, and may handle anything."""

log = logging.getLogger("taskharbor.web")


def owner_of(name: str) -> str:
    """The owner of leases that a worker of this name takes; never the id of a registered one."""
    return f"rest-{name.removeprefix(PREFIX)}" if name.startswith(PREFIX) else name


def worker_id(tenant_id: str | None, owner: str) -> str:
    return f"{PREFIX}{owner}" if tenant_id is None else f"{PREFIX}{tenant_id}/{owner}"


class Registry:
    """Heartbeats on behalf of workers, when they are heard of, each at most every ten seconds. For threads."""

    def __init__(self, driver: Driver, clock: Callable[[], float] = time.monotonic) -> None:
        self._driver = driver
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Worker, float]] = {}
        """By id: as it describes itself, and when the next heartbeat is due."""

    def asks(self, tenant_id: str | None, asked: LeaseRequest) -> None:
        """A worker asks for jobs."""
        id = worker_id(tenant_id, owner_of(asked.worker))
        if not asked.worker or len(id) > MAX_NAME:
            return
        with self._lock:
            before, due = self._known.get(id, (None, 0.0))
            if self._clock() < due or (before is None and len(self._known) >= MOST_KNOWN):
                return
            types = ",".join(asked.types or (ANY_TYPE,))
            worker = Worker(
                id,
                queues=tuple(asked.queues),
                # It asks for as many as it has room for, which is all of its room only when it is idle.
                slots=asked.limit if before is None else max(before.slots, asked.limit),
                version=OVER_REST,
                started_at=self._driver.now() if before is None else before.started_at,
                meta={"types": types if len(types) <= MOST_LETTERS else ANY_TYPE},
            )
            self._known[id] = worker, self._clock() + BEAT_S
        self._beat(worker)

    def extends(self, tenant_id: str | None, owner: str) -> None:
        """A worker keeps a job."""
        id = worker_id(tenant_id, owner)
        with self._lock:
            worker, due = self._known.get(id, (None, 0.0))
            if worker is None or self._clock() < due:
                return
            self._known[id] = worker, self._clock() + BEAT_S
        self._beat(worker)

    def _beat(self, worker: Worker) -> None:
        with suppress(TaskHarborError):  # to be seen is not worth a failed request
            self._driver.heartbeat(worker)

    def clear(self) -> None:
        """Forget the silent ones, here and in the store."""
        with self._lock:
            now = self._clock()
            self._known = {id: each for id, each in self._known.items() if now < each[1] - BEAT_S + SILENT_S}
        before = self._driver.now() - timedelta(seconds=SILENT_S)
        for worker in self._driver.workers():
            heard = worker.last_heartbeat
            if worker.version == OVER_REST and worker.id.startswith(PREFIX) and (heard is None or heard < before):
                self._driver.deregister(worker.id)

    async def clear_again_and_again(self, threads: Threads) -> None:
        while True:
            await asyncio.sleep(CLEAR_S)
            try:
                await threads.run(self.clear)
            except TaskHarborError as error:
                log.warning("silent workers stay listed for now, and are looked at again: %s", error)
            except Exception:
                # Nothing of the kind is expected; without this nobody would ever be taken off the list again.
                log.exception("the list of workers could not be cleared, and is looked at again")
