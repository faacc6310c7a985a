"""How a worker ends: its handlers first, then what the store has to know, and at last its threads.

A store may hang instead of refusing, and a call of it cannot be broken off. So nothing here waits for the store itself,
only for threads that speak to it, and for those not longer than their time: what could not be told is left to the
leases, as if the worker had been killed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from taskharbor.core.errors import StoreError
from taskharbor.core.model import Settlement
from taskharbor.core.words import many
from taskharbor.worker.claimer import Claimer
from taskharbor.worker.crew import Crew
from taskharbor.worker.flag import Flag
from taskharbor.worker.heartbeat import Heartbeat
from taskharbor.worker.held import Held
from taskharbor.worker.leader import Leader
from taskharbor.worker.listening import Listening
from taskharbor.worker.patience import Patience
from taskharbor.worker.processes import Processes
from taskharbor.worker.slots import CoroutineSlots, ThreadSlots

STEP_S: Final = 0.02
HEED_S: Final = 1.0
HURRIED_S: Final = 0.2
"""How long handlers may take to end once they are told to, in good order and in a hurry."""
LAST_WORDS_S: Final = 5.0
HURRIED_WORDS_S: Final = 1.5
"""And then how long the worker tries to tell the store how they ended and what it gives back."""
SIGN_OFF_S: Final = 1.0
"""For the sign-off there is at least so long, if the rest has taken all the time."""
LONGEST_S: Final = HEED_S + LAST_WORDS_S + SIGN_OFF_S
LONGEST_HURRIED_S: Final = HURRIED_S + HURRIED_WORDS_S
"""When a worker has ended, counted from the end of its grace time, and from the moment it is hurried."""

log = logging.getLogger("taskharbor.worker")


@dataclass(slots=True)
class Farewell:
    """The parts of a worker that has begun, until all of them have ended or are given up."""

    crew: Crew
    grace_s: float
    hurry: Flag
    reliefs: Sequence[Claimer]
    claimers: Sequence[Claimer]
    leader: Leader | None
    threads: Sequence[ThreadSlots]
    coroutines: CoroutineSlots
    processes: Processes
    heartbeat: Heartbeat
    listening: Listening
    told_all: bool = True
    """Whether the store knows all that it has to know."""
    is_stuck: bool = False
    """Whether a thread has not come back from the store."""
    _trouble: StoreError | None = None

    def say(self) -> None:
        for claimer in (*self.claimers, *self.reliefs):
            claimer.close()
        if self.leader is not None:
            self.leader.close()
        self._wait_for_handlers()
        left = self._end_handlers()
        patience = Patience(LAST_WORDS_S, self.hurry, HURRIED_WORDS_S)
        if left:
            patience.call(lambda: self._release(left))
        for claimer in (*self.reliefs, *self.claimers):
            claimer.end(patience)
        for threads in self.threads:
            threads.stop()
        self.coroutines.stop()
        self.processes.stop()
        self.heartbeat.stop(patience)
        self.listening.stop(patience)
        has_resigned = self.leader is None or self.leader.end(patience)
        patience.extend(SIGN_OFF_S)
        has_signed_off = self._sign_off(patience)
        self.is_stuck = patience.is_stuck
        self._note_untold(has_resigned=has_resigned, has_signed_off=has_signed_off)

    def _wait_for_handlers(self) -> None:
        running = len(self.crew.registry)
        if running and not self.hurry.is_set():
            log.info(
                "stopping: %d %s %g s to end; a second signal puts back the rest at once",
                running, "job has" if running == 1 else "jobs have", self.grace_s, extra=self._fields(),
            )  # fmt: skip
        ends = time.monotonic() + self.grace_s
        while len(self.crew.registry) and time.monotonic() < ends and not self.hurry.is_set():
            time.sleep(STEP_S)

    def _end_handlers(self) -> list[Held]:
        """Coroutines and processes are ended, threads are told to. Those that did not end, which are left behind."""
        unfinished = [held for held in self.crew.registry.snapshot() if held.ending is None]
        for held in unfinished:
            held.stop()
        began = time.monotonic()
        while any(held.ending is None for held in unfinished):
            if time.monotonic() - began >= (HURRIED_S if self.hurry.is_set() else HEED_S):
                break
            time.sleep(STEP_S / 4)
        left = [held for held in unfinished if held.ending is None]
        if left:
            jobs = "its job goes back" if len(left) == 1 else "their jobs go back"
            log.warning("%s did not stop in time: %s", many(len(left), "handler"), jobs, extra=self._fields())
            for held in left:
                held.lost = True  # whatever the thread still comes to, it is no longer its job
        return left

    def _release(self, left: list[Held]) -> None:
        words = [Settlement.release(held.job.id, held.token, started_at=held.started_at) for held in left]
        try:
            self.crew.driver.settle(words)
        except StoreError as error:
            self._trouble = error
        else:
            self.crew.registry.remove(left)

    def _sign_off(self, patience: Patience) -> bool:
        try:
            return patience.call(self.heartbeat.deregister)
        except StoreError as error:
            self._trouble = error
            return False

    def _note_untold(self, *, has_resigned: bool, has_signed_off: bool) -> None:
        untold = len(self.crew.registry)
        said = []
        if untold:
            said.append(f"{many(untold, 'job')} could not be settled and will be free when the leases end")
        if not has_resigned:
            said.append("it has not resigned, and another leads when its term ends")
        if not has_signed_off:
            said.append("it is not signed off, and will be taken for dead")
        if said:
            self.told_all = False
            why = "the store does not answer" if self._trouble is None else str(self._trouble)
            log.warning("the worker ends without the store: %s (%s)", "; ".join(said), why, extra=self._fields())

    def _fields(self) -> dict[str, Any]:
        return {"worker": self.crew.worker_id}
