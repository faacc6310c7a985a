"""Jobs that may be what brings workers down run alone, so that they take no innocent job with them.

A store knows only that a job was delivered and never heard of again. If its process died, so it looks for every job
that the process held, and each such delivery counts towards a crash loop. A job with two of them behind it is kept
apart: nothing else is held while it runs, other suspects neither, so a third one can only be its own doing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

from taskharbor.core.model import Job
from taskharbor.core.outcome import Ending, Released, Snoozed
from taskharbor.worker.held import Held
from taskharbor.worker.lane import Lane
from taskharbor.worker.logs import job_fields

UNEXPLAINED: Final = 3
PATIENCE_S: Final = 5.0
"""How long a suspect waits for handlers that were running before it."""
LONGEST_S: Final = 30.0
"""How long everybody else stands back at most."""
CAUTION_S: Final = 2.0
FEW: Final = 4
"""Jobs that are claimed at once while suspects have been about lately: all but one of those go back each time."""
PUT_OFF: Final = timedelta(seconds=10)
"""For suspects that could not have their turn within the time that everybody else stands back."""

log = logging.getLogger("taskharbor.worker")


def is_suspect(job: Job) -> bool:
    """Whether this delivery follows at least two that neither ended nor were given back."""
    return job.deliveries - job.forgiven - job.attempts >= UNEXPLAINED


class Admitted(NamedTuple):
    run: list[Held]
    back: list[tuple[Held, Ending]]
    """Those that the store gets back, each with how."""


class Quarantine:
    """One for all the lanes of a process."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Lane, Held]] = deque()
        self._monotonic = monotonic
        self._since = 0.0
        self._seen = -CAUTION_S
        self.chosen: Held | None = None
        self.active = False

    def admit(self, lane: Lane, items: list[Held]) -> Admitted:
        """What is to become of jobs that were claimed. The first suspect stays here until it has its turn; everything
        else goes back meanwhile, and other suspects wait for later."""
        # Looked at here first, because nearly every job is a first delivery.
        suspects = [held for held in items if held.job.deliveries >= UNEXPLAINED and is_suspect(held.job)]
        if not suspects and not self.active:
            return Admitted(items, [])
        with self._lock:
            if suspects:
                self._seen = self._monotonic()
            if suspects and not self.active and self.chosen is not None:
                # One that everybody stood back for still runs, and has had its time alone.
                late = set(suspects)
                return Admitted(
                    [held for held in items if held not in late], [(held, Snoozed(PUT_OFF)) for held in suspects]
                )
            kept = None
            if suspects and not self._waiting and self.chosen is None:
                kept = suspects[0]
                self._waiting.append((lane, kept))
                self._since = self._seen
                self.active = True
        if kept is not None:
            log.warning("%s may have brought workers down: it runs alone", kept.job.type, extra=job_fields(kept.job))
        return Admitted([], [(held, Released()) for held in items if held is not kept])

    def bounded(self, room: int) -> int:
        """How many of so many jobs to claim now."""
        return min(room, FEW) if self._monotonic() - self._seen < CAUTION_S else room

    def serve(self, lane: Lane, held_in_all: int) -> None:
        """Start the next suspect of this lane when nothing but suspects is left in the process, or when what else runs
        takes so long that waiting for it would harm more than it helps."""
        if not self.active:
            return
        with self._lock:
            if self.chosen is not None or not self._waiting:
                return
            if held_in_all > len(self._waiting) and self._monotonic() - self._since < PATIENCE_S:
                return
            owner, held = self._waiting[0]
            if owner is not lane:
                return
            self._waiting.popleft()
            self.chosen = held
        lane.put(held)

    def ended(self, done: list[Held]) -> None:
        if not self.active and self.chosen is None:
            return
        with self._lock:
            if self.chosen is not None and any(held is self.chosen for held in done):
                self.chosen = None
            if self.chosen is None and not self._waiting:
                self.active = False

    def put_off(self) -> list[Held]:
        """Those that are still waiting when everybody else has stood back for long enough."""
        if not self.active or self._monotonic() - self._since < LONGEST_S:
            return []
        waiting = self.give_up()
        self.active = False
        return waiting

    def give_up(self) -> list[Held]:
        """Those that have not had their turn, for a worker that stops."""
        with self._lock:
            waiting = [held for _, held in self._waiting]
            self._waiting.clear()
            self.active = self.chosen is not None
        return waiting
