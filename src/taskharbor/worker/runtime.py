"""The worker: lanes, slots and loops put together, from the first claim to the last settle."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from taskharbor import __version__
from taskharbor.core.carrying import departure_of
from taskharbor.core.errors import InvalidInput, StoreError, StoreMoved, StoreRefused, StoreUnavailable
from taskharbor.core.fleet import Worker as WorkerRow
from taskharbor.core.ids import new_id
from taskharbor.core.limits import MAX_BATCH, MAX_NAME, Limits, check_name
from taskharbor.core.words import many
from taskharbor.worker.allowance import Allowance
from taskharbor.worker.claimer import Claimer
from taskharbor.worker.collector import collector, patient_collector
from taskharbor.worker.crew import Crew
from taskharbor.worker.executor import Executor
from taskharbor.worker.farewell import HURRIED_WORDS_S, LAST_WORDS_S, LONGEST_HURRIED_S, LONGEST_S, Farewell
from taskharbor.worker.flag import Flag
from taskharbor.worker.forked import not_in_children
from taskharbor.worker.gathering import Gatherer
from taskharbor.worker.heartbeat import Heartbeat
from taskharbor.worker.held import Registry
from taskharbor.worker.keeping import kept_by_lake
from taskharbor.worker.lane import Lane
from taskharbor.worker.leader import Leader
from taskharbor.worker.outage import Outage
from taskharbor.worker.patience import Patience
from taskharbor.worker.processes import Processes
from taskharbor.worker.quarantine import Quarantine
from taskharbor.worker.relief import Relief
from taskharbor.worker.settings import (
    Queues,
    check_count,
    check_retention,
    check_seconds,
    chosen_slots,
    chosen_types,
    handled_types,
)
from taskharbor.worker.slots import CoroutineSlots, ThreadSlots
from taskharbor.worker.supervisor import heed_parent
from taskharbor.worker.tally import Tally

if TYPE_CHECKING:
    from taskharbor.app.harbor import Harbor

DEFAULT_SLOTS: Final = 10
DEFAULT_BATCH: Final = 1_000
STEP_S: Final = 0.02
LOOK_S: Final = 0.05
SMALLEST_FOR_TWO: Final = 4
"""The smallest batch for which a second claimer is worth its while."""

log = logging.getLogger("taskharbor.worker")


class Worker:
    """Runs the jobs of some queues in this process.

    `run` works until it is told to stop (SIGTERM, Ctrl-C or `stop`), `drain` until nothing is runnable. `queues` is
    a name, several, or a mapping to the number of slots of each; left out, every queue that a task of the harbor
    names. A worker is used once.
    """

    def __init__(
        self,
        harbor: Harbor,
        queues: Queues = None,
        *,
        concurrency: int = DEFAULT_SLOTS,
        types: Sequence[str] | None = None,
        take_all: bool = False,
        lease_s: float = 30.0,
        grace_s: float = 25.0,
        batch: int = DEFAULT_BATCH,
        poll_interval_s: float = 1.0,
        max_jobs: int | None = None,
        name: str | None = None,
        retention: timedelta | None = None,
        fleet: bool = True,
    ) -> None:
        check_count("concurrency", concurrency)
        check_count("batch", batch)
        if max_jobs is not None:
            check_count("max_jobs", max_jobs)
        check_seconds("lease_s", lease_s)
        check_seconds("grace_s", grace_s, zero=True)
        check_seconds("poll_interval_s", poll_interval_s)
        check_retention(retention)
        self.id = check_name(name, "name", MAX_NAME) if name else _worker_name()
        self.tally = Tally()
        self._harbor = harbor
        self._slots = chosen_slots(queues, harbor, concurrency)
        self._types = chosen_types(types, take_all, harbor)
        self._lease_s = lease_s
        self._grace_s = grace_s
        self._batch = min(batch, MAX_BATCH)
        self._poll_interval_s = poll_interval_s
        self._allowance = Allowance(max_jobs)
        self._outage = Outage()
        self._retention = retention
        self._fleet = fleet
        self.told_all = True
        """When it has ended: whether the store knows all that it has to. What it does not know is left to leases."""
        self.is_stuck = False
        """And whether a thread of it has not come back from the store, which would keep waiting who closes that."""
        self.has_ended = False
        self._asked = Flag()
        self._stopping = Flag()
        self._hurry = Flag()
        self._stopped = threading.Event()
        self._started = False
        self._parts_lock = threading.Lock()

    # --- What people call --------------------------------------------------------------------------------

    def run(self) -> Tally:
        """Work until told to stop, then finish in good order. A store that is away at the start is waited for, unless
        everything in it was moved to another one."""
        with self._at_work():
            self._start_patiently()
            while not self._stopping.is_set() and not self._has_done_enough():
                time.sleep(LOOK_S)
                collector.note_time()
            self.stop()
        return self.tally

    def drain(self) -> Tally:
        """Work until nothing is runnable any more. Jobs that are due later are left for later. If the store is moved
        meanwhile, `StoreMoved` when what runs has ended."""
        with self._at_work():
            self.start()
            while not self._is_cut_short() and not self._is_dry():
                time.sleep(STEP_S if len(self._crew.registry) > self._batch else STEP_S / 4)
                collector.note_time()
            moved = None if self._stopping.is_set() or self._has_done_enough() else self._found_moved()
            self.stop()
            if moved is not None:
                raise moved
        return self.tally

    def start(self) -> None:
        """Begin to work in the background. One that was told to stop before does not begin."""
        with self._parts_lock:
            if self._started:
                raise InvalidInput("this worker was started already: make another one")
            if self._stopping.is_set():
                return
            self._prepare()
            self._started = self._begin()

    def _start_patiently(self) -> None:
        """Wait for a store that is away, as in the midst of work. What waiting cannot cure goes to the caller."""
        while not (self._started or self._stopping.is_set()):
            try:
                self.start()
            except (StoreMoved, StoreUnavailable) as error:
                left = departure_of(self._harbor.driver) if isinstance(error, StoreMoved) else None
                if isinstance(error, StoreRefused) or (left is not None and left.gone):
                    raise
                self._outage.wait(error, self._stopping)  # a move, too: one that fails opens the store again

    def _prepare(self) -> None:
        driver = self._harbor.driver
        driver.now()  # the first look at the store: what is wrong with it is said here, to the caller
        self._refuse_moved()
        self._crew = crew = Crew(
            driver=driver,
            worker_id=self.id,
            tasks=self._harbor.tasks,
            types=self._types,
            retry=self._harbor.backoff,
            lease_s=self._lease_s,
            poll_interval_s=self._poll_interval_s,
            registry=Registry(),
            quarantine=Quarantine(),
            outage=self._outage,
            tally=self.tally,
            allowance=self._allowance,
        )
        limits = getattr(driver, "limits", None) or Limits()
        self._processes = Processes(limits, self._stopping.is_set)
        executor = Executor(limits, self._processes)
        self._lanes = [Lane(queue, slots, self._batch) for queue, slots in self._slots.items()]
        for lane in self._lanes:
            lane.gatherer = Gatherer.for_lane(lane, self._harbor.tasks)
        self._threads = [ThreadSlots(lane, executor, driver.now) for lane in self._lanes]
        self._coroutines = CoroutineSlots(executor, driver.now)
        self._claimers = [Claimer(crew, lane) for lane in self._lanes]
        in_parallel = getattr(driver, "writes_in_parallel", False) and self._batch >= SMALLEST_FOR_TWO
        self._reliefs = [Relief(crew, lane) for lane in self._lanes] if in_parallel else []
        self._heartbeat = Heartbeat(crew, self._row() if self._fleet else None)
        vouched = kept_by_lake(driver)
        self._leader = Leader(driver, self.id, retention=self._retention, vouched=vouched) if self._fleet else None

    def _refuse_moved(self) -> None:
        """Nothing is done in a store that was moved: it would register, declare and lead where nobody looks."""
        departure = departure_of(self._harbor.driver)
        if departure is not None and departure.shut:
            raise StoreMoved(departure.said)

    def _found_moved(self) -> StoreMoved | None:
        """A store that is shut gives nothing out, which looks as if nothing were left."""
        try:
            self._refuse_moved()
        except StoreMoved as error:
            return error
        except StoreError:  # it is away now; what it said before that counts
            pass
        return self._outage.moved

    def stop(self) -> None:
        """Claim nothing more, let handlers end within the grace time, give back the rest. Safe to call twice.

        Returns a few seconds after the grace time whatever the store does: `told_all` says whether it answered."""
        self._stopping.set()
        patience = Patience(LAST_WORDS_S, self._hurry, HURRIED_WORDS_S)
        if not patience.acquire(self._parts_lock):
            # It hangs where it starts, and has no job yet. When it comes back from there it does not begin.
            self.told_all, self.is_stuck = False, True
            log.warning("the worker ends before it has begun, for the store does not answer", extra=self._fields())
            return
        try:
            is_over, is_at_work = self._stopped.is_set(), self._started
            self._stopped.set()
        finally:
            self._parts_lock.release()
        if is_at_work and not is_over:
            self._farewell.say()
            self.told_all, self.is_stuck = self._farewell.told_all, self._farewell.is_stuck
            done, dead = self.tally.done, self.tally.dead
            log.info("worker stopped: %d done, %d failed for good", done, dead, extra=self._fields())
        self.has_ended = self.has_ended or not is_over

    def hurry(self) -> None:
        """Do not wait for handlers any longer, and for the store hardly any more."""
        self._hurry.set()
        self._ask()

    def _ask(self) -> None:
        self._asked.set()
        self._stopping.set()

    def ends_by(self) -> float | None:
        """When, by the monotonic clock, one that a signal has told to stop has ended whatever the store does. None for
        one that was not told."""
        asked, hurried = self._asked.since, self._hurry.since
        if asked is None:
            return None
        ends = asked + self._grace_s + LONGEST_S
        return ends if hurried is None else min(ends, hurried + LONGEST_HURRIED_S)

    # --- Starting ----------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """False for one that was told to stop while the store kept it waiting."""
        from taskharbor.worker.listening import Listening
        from taskharbor.worker.scheduler import register

        self._harbor.put_rules()
        if self._fleet:
            register(self._crew.driver, self._harbor.schedules, self._crew.driver.now())
            self._crew.driver.heartbeat(self._row())
        if self._stopping.is_set():
            self._heartbeat.deregister()
            return False
        self._coroutines.start()
        for lane, threads in zip(self._lanes, self._threads, strict=True):
            self._coroutines.serve(lane)
            threads.start()
        listening = Listening(self._crew, list(self._slots), self._claimers)
        listening.start()
        self._heartbeat.start()
        for claimer in (*self._claimers, *self._reliefs):
            claimer.start()
        if self._leader is not None:
            self._leader.start()
        queues = ", ".join(f"{queue}:{slots}" for queue, slots in self._slots.items())
        self._farewell = Farewell(
            self._crew, self._grace_s, self._hurry, self._reliefs, self._claimers, self._leader,
            self._threads, self._coroutines, self._processes, self._heartbeat, listening,
        )  # fmt: skip
        log.info("worker started on %s with %s", queues, many(len(self._harbor.tasks), "handler"), extra=self._fields())
        return True

    def _row(self) -> WorkerRow:
        return WorkerRow(
            self.id,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            queues=tuple(self._slots),
            slots=sum(self._slots.values()),
            version=__version__,
            started_at=self._crew.driver.now(),
            meta=handled_types(self._types),
        )

    def _fields(self) -> dict[str, Any]:
        return {"worker": self.id}

    # --- While it runs -----------------------------------------------------------------------------------

    def _has_done_enough(self) -> bool:
        return self._allowance.used_up and not len(self._crew.registry)

    def _is_cut_short(self) -> bool:
        """Whether a drain ends though there may be something to do: told to, done enough, no store or slot is left."""
        if self._stopping.is_set() or self._has_done_enough():
            return True
        gone = self._outage.moved is not None or all(lane.is_lost() for lane in self._lanes)
        return gone and not len(self._crew.registry)

    def _is_dry(self) -> bool:
        """Whether there is nothing to do: nothing is held, and since then every lane has looked and found nothing.

        A handler may have enqueued into any lane until it ended, so what a lane found before that does not count.
        """
        finds = self._finds()
        claimers = [each for each, lane in zip(self._claimers, self._lanes, strict=True) if not lane.is_lost()]
        if len(self._crew.registry) or not all(claimer.dry for claimer in claimers):
            return False
        for _ in range(2):  # the first look may have begun before
            looks = [claimer.looks for claimer in claimers]
            for claimer in claimers:
                claimer.hint()
            while any(claimer.looks == seen for claimer, seen in zip(claimers, looks, strict=True)):
                if self._is_cut_short():
                    return True
                if self._finds() != finds:
                    return False
                time.sleep(STEP_S / 10)
        return self._finds() == finds and not len(self._crew.registry)

    def _finds(self) -> int:
        return sum(claimer.finds for claimer in self._claimers) + sum(relief.finds for relief in self._reliefs)

    # --- Signals -----------------------------------------------------------------------------------------

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        restore = self._listen()
        try:
            with patient_collector():
                yield
        finally:
            restore()

    def _listen(self) -> Callable[[], None]:
        """The first SIGTERM or Ctrl-C stops in good order, the second at once. Only the main thread gets signals.

        A process of several hears from its parent how urgent it is: it may get the signals of the parent as well.
        """
        supervised = heed_parent(self._ask, self.hurry)
        if threading.current_thread() is not threading.main_thread():
            return lambda: None

        def stop(number: int, frame: FrameType | None) -> None:
            if self._stopping.is_set() and not supervised:
                self._hurry.set()
            self._ask()

        before = {name: signal.signal(name, not_in_children(stop)) for name in (signal.SIGTERM, signal.SIGINT)}

        def restore() -> None:
            for name, handler in before.items():
                signal.signal(name, handler)

        return restore


def _worker_name() -> str:
    return f"{socket.gethostname()[:64]}-{os.getpid()}-{new_id()[-6:]}"
