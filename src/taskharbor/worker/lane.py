"""One queue in one worker: the jobs that wait here for a slot, those that are done, and how many more may come.

A lane has slots of two kinds, threads and coroutines, which share its permits: at most `slots` handlers run at once.
A slot keeps its permit from job to job while there are jobs for its kind, so a permit costs a burst and not a job.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.model import LeasedJob
from taskharbor.core.outcome import CANCELLED_WAITING, Cancelled, Done, Released
from taskharbor.worker.batching import BatchRun, Member
from taskharbor.worker.collector import collector
from taskharbor.worker.held import Held
from taskharbor.worker.news import News

if TYPE_CHECKING:
    from taskharbor.app.task import Task
    from taskharbor.worker.gathering import Gatherer

HORIZON_S: Final = 0.2
"""As many jobs are fetched ahead as the slots are thought to finish in this time."""
AHEAD_BYTES: Final = 256 * 1024 * 1024
"""And no more than have payloads of this size together."""
RESULT_BYTES: Final = 32 * 1024 * 1024
WINDOW_S: Final = 0.5
HOARD: Final = 5
"""Jobs go back when so many times more wait here than the slots will soon have done."""
STUCK_S: Final = 2.0
"""When no slot has begun a job for so long, those that wait behind them go back, for other workers to take."""
TURN_S: Final = 0.05
"""How long a slot keeps its permit while slots of the other kind wait for one."""


class Pace:
    """Jobs done a second, lately."""

    def __init__(self) -> None:
        self._began = self._before = time.monotonic()
        self._count = self._count_before = 0

    def note(self, count: int) -> None:
        now = time.monotonic()
        if now - self._began > WINDOW_S:
            self._before, self._count_before = self._began, self._count
            self._began, self._count = now, 0
        self._count += count

    def rate(self) -> float:
        elapsed = time.monotonic() - self._before
        return (self._count + self._count_before) / max(elapsed, 0.005)


class Lane:
    def __init__(self, queue: str, slots: int, batch: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.queue = queue
        self.slots = slots
        self.batch = batch
        self.ready: deque[Held | BatchRun] = deque()
        """For threads: plain functions and process pools."""
        self.ready_async: deque[Held | BatchRun] = deque()
        self.done: deque[Held] = deque()
        self.running: set[Held | BatchRun] = set()
        self.gatherer: Gatherer | None = None
        """Where batches are filled, if the application has any task for them."""
        self.begun = monotonic()
        """When a slot last began a job."""
        self.loop_is_silent = False
        """The event loop does not answer: what waits for it goes back."""
        self.asked = 0
        """Jobs that claimers are asking the store for just now."""
        self.pace = Pace()
        self._free = slots
        self._idle = 0
        self._size = 1.0
        """Bytes of a payload, as they were lately."""
        self._wanted = 0
        self.lock = threading.Lock()
        self.work = threading.Condition(self.lock)
        """Thread slots wait here for a job and a permit."""
        self.news = News()
        """The claimer waits here: something is done, or may have come in."""
        self.rush = threading.Event()
        """So much is done that a second claimer is of use."""
        self.start_async: Callable[[], None] = lambda: None
        """Tells the event loop that there are jobs or permits for it."""
        self.start_thread: Callable[[], None] = lambda: None
        """Adds a thread, unless there is one for each slot already."""
        self.work_here: Callable[[], None] = lambda: None
        """Lets the calling thread use the permit that it has."""

    # --- The claimer's side ------------------------------------------------------------------------------

    def room(self, *, ahead: bool = True) -> int:
        """How many more jobs to fetch. Fetches ahead no more than the slots will soon have done; not at all without
        `ahead`, where a job that waits here takes a place from one that another worker could run."""
        if self._blocked():
            return 0
        more = min(3 * self.batch, int(self.pace.rate() * HORIZON_S), int(AHEAD_BYTES / self._size)) if ahead else 0
        room = self.slots + more - self.held() - self.asked
        if self.gatherer is not None:
            room += self.gatherer.wants()
        return 0 if room <= 0 else min(self.batch, room)

    def held(self) -> int:
        """Jobs here that are not done yet."""
        return len(self.ready) + len(self.ready_async) + len(self.running)

    def owed(self) -> int:
        """Those of them that are still ours: not the handlers that were left behind, whose threads nobody can end."""
        running = sum(not held.lost for held in list(self.running))
        return len(self.ready) + len(self.ready_async) + running

    def is_lost(self) -> bool:
        """Whether every slot is taken by a handler that was left behind."""
        return len(self.running) >= self.slots and not self.owed()

    def stuck(self) -> bool:
        """Whether jobs wait here that other workers should have: every slot is busy with something long,
        or the event loop is."""
        if self.loop_is_silent and self.ready_async:
            return True
        return bool(self.ready or self.ready_async) and self._blocked()

    def _blocked(self) -> bool:
        return not self._free and self._monotonic() - self.begun > STUCK_S

    def starving(self) -> bool:
        """Whether slots are, or soon will be, without work."""
        return len(self.ready) + len(self.ready_async) < self.slots / 2

    def hold(
        self, leased: Sequence[LeasedJob], tasks: Mapping[str, Task[..., Any]], claimed: float, lease_s: float
    ) -> list[Held]:
        """What was claimed, as this process holds it."""
        count = sum(len(item.job.payload) for item in leased)
        self._size = max(1.0, count / max(1, len(leased)))
        collector.note_bytes(count)
        if self.gatherer is not None:
            return self.gatherer.hold(leased, claimed, lease_s)
        return [Held(item, tasks.get(item.job.type), claimed, lease_s) for item in leased]

    def add(self, items: Sequence[Held | BatchRun]) -> bool:
        """True if there was nothing here before."""
        idle = not self.held()
        coroutines = [held for held in items if held.is_async]
        plain = items if not coroutines else [held for held in items if not held.is_async]
        if coroutines:
            self.ready_async.extend(coroutines)
            self.start_async()
        if plain:
            with self.work:
                self.ready.extend(plain)
                self._wake_one()
        return idle

    def takes_at_once(self, item: Held | BatchRun) -> bool:
        """Whether a thread that comes along with it could run it."""
        return isinstance(item, Held) and (item.task is None or item.task.pool == "thread")

    def enter(self, held: Held | BatchRun) -> bool:
        """A thread comes along with a job to run it, and gets a permit, unless others are at work here."""
        with self.lock:
            if not self._free or self.held():
                return False
            self._free -= 1
            self.ready.append(held)
        return True

    def put(self, held: Held | BatchRun) -> None:
        if isinstance(held, Member):  # for itself: a batch of one, which nobody joins
            assert held.task is not None
            held = BatchRun(self, held.task, [held])
        self.add([held])

    def ask(self, count: int) -> None:
        with self.lock:
            self.asked += count

    def worth_keeping(self) -> int:
        """How many jobs may wait here. Far more than the slots will soon have done come to wait when handlers become
        slower all at once; other workers should have those, and what is more urgent should not stand behind them."""
        soon = self.slots + int(self.pace.rate() * HORIZON_S)
        return soon if len(self.ready) + len(self.ready_async) > HOARD * soon else 4 * self.batch

    def take_back(self, keep: int = 0) -> list[Held]:
        """The jobs that no slot has begun, except the first so many."""
        unbegun: list[Held] = []
        while len(self.ready) + len(self.ready_async) > keep:
            waiting = max(self.ready, self.ready_async, key=len)
            try:
                last = waiting.pop()
            except IndexError:  # a slot was quicker
                continue
            if isinstance(last, BatchRun):
                unbegun.extend(last.close())
            else:
                unbegun.append(last)
        return unbegun

    def finished(self, most: int) -> list[Held]:
        """What is to be told next: so many, or fewer with large results, which all take their time to be written."""
        done: list[Held] = []
        size = 0
        while len(done) < most and size < RESULT_BYTES:
            try:
                held = self.done.popleft()
            except IndexError:
                break
            done.append(held)
            ending = held.ending
            if isinstance(ending, Done) and ending.result is not None:
                size += len(ending.result)
        if self.gatherer is None:
            self.pace.note(len(done))
        else:  # the pace of batches says nothing of how many plain jobs to fetch ahead
            self.pace.note(sum(not isinstance(held, Member) for held in done))
        return done

    # --- The slots' side ---------------------------------------------------------------------------------

    def begin(self, held: Held) -> bool:
        """False if there is nothing to begin: the job was cancelled or its lease has ended while it waited here."""
        self.begun = moment = self._monotonic()
        if held.cancelled or moment >= held.deadline:
            held.ending = Cancelled(CANCELLED_WAITING) if held.asked_to_cancel else Released()
            self.end(held)
            return False
        held.started = moment
        self.running.add(held)
        return True

    def end(self, held: Held) -> None:
        self.running.discard(held)
        self.done.append(held)
        done = len(self.done)
        if done == 1 or len(self.ready) + len(self.ready_async) == 0:
            self.news.set()
        if done == self.batch // 2:
            self.rush.set()

    def note_begin(self, run: BatchRun) -> float:
        """`begin` for a batch, which looks after its members itself."""
        self.begun = moment = self._monotonic()
        self.running.add(run)
        return moment

    def note_end(self, run: BatchRun) -> None:
        self.running.discard(run)
        self.news.set()

    def tell(self, member: Member) -> None:
        """One of a batch has ended; the others may go on."""
        self.done.append(member)
        done = len(self.done)
        if done == 1:
            self.news.set()
        if done == self.batch // 2:
            self.rush.set()

    def wait_for_turn(self, stopped: Callable[[], bool]) -> bool:
        """A thread slot waits for a job and a permit. False when it is to end."""
        with self.work:
            while True:
                if stopped():
                    return False
                if self.ready and self._free:
                    self._free -= 1
                    if len(self.ready) > 1 and self._free:
                        self._wake_one()
                    return True
                self._idle += 1
                try:
                    self.work.wait()
                finally:  # something may be thrown in, and whoever is idle no more must not be counted on
                    self._idle -= 1

    def _wake_one(self) -> None:
        """With the lock held. Who starts on a job wakes the next, so that one wake-up is enough for quick jobs."""
        if self._idle:
            self.work.notify()
        else:
            self.start_thread()

    def try_turn(self) -> bool:
        """The same for a coroutine slot, which does not wait: it is told through `start_async`."""
        with self.lock:
            if not self._free:
                self._wanted = 1
                return False
            self._free -= 1
            return True

    def end_turn(self) -> None:
        with self.work:
            self._free += 1
            if self.ready:
                self._wake_one()
            wanted, self._wanted = self._wanted, 0
        if wanted or self.ready_async:
            self.start_async()

    def others_wait(self, *, threads: bool, since: float) -> bool:
        """Whether a slot that has had its permit since then should give it to the other kind."""
        others = self.ready_async if threads else self.ready
        return bool(others) and not self._free and time.monotonic() - since > TURN_S

    def stop(self) -> None:
        with self.work:
            self.work.notify_all()
        self.news.set()
