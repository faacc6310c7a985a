"""The duties that one worker of the fleet does for all: recovery, schedules, pruning.

Leading is a convenience, not a lock: every duty is safe when two believe they lead, and jobs go on without any.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from taskharbor.core.carrying import departure_of
from taskharbor.core.clock import EPOCH
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.fleet import Recovery
from taskharbor.core.words import many
from taskharbor.worker.keeping import Vouched
from taskharbor.worker.patience import Patience
from taskharbor.worker.scheduler import Scheduler

log = logging.getLogger("taskharbor.worker")

TERM_S: Final = 30.0
RENEW_S: Final = 10.0
BID_S: Final = 5.0
"""How often a worker that does not lead tries to."""
LOOK_S: Final = 1.0
"""The longest a leader sleeps, so that a schedule added or resumed meanwhile is noticed, and a trouble tried again."""
SHORTEST_SLEEP_S: Final = 0.001
TRUSTED_PART: Final = 0.9
"""The part of a term during which the leader acts: the rest is for clocks that do not run quite alike."""
RECOVER_S: Final = 5.0
RECOVER_PASSES: Final = 20
"""Most passes of recovery in a row; whatever is left then waits until the other duties had their turn."""
PRUNE_S: Final = 60.0
PRUNE_BITE: Final = 1_000
PRUNE_PAUSE_S: Final = 0.1
JOIN_S: Final = 10.0


class Leader:
    """Bids for the leadership of the fleet, and does its duties while it has it.

    `retention`: jobs that ended longer ago are forgotten; None keeps them for ever. `vouched` tells, when there is an
    archive, what that has for sure: nothing else is pruned, and nothing at all while it says None.

    `step` is one turn without threads or sleep; `start` runs it in a thread until `stop`, which gives up the
    leadership. Both work twice, and `stop` before `start`.
    """

    def __init__(
        self,
        driver: Driver,
        holder: str,
        *,
        name: str = "fleet",
        term_s: float = TERM_S,
        renew_s: float = RENEW_S,
        retention: timedelta | None = None,
        vouched: Callable[[], Vouched | None] | None = None,
        dead_after_s: float = 30.0,
        prune_bite: int = PRUNE_BITE,
        stop: threading.Event | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 < renew_s < term_s * TRUSTED_PART:
            raise InvalidInput(f"a term of {term_s} s must be renewed well before it ends, got {renew_s} s")
        if retention is not None and retention < timedelta(0):
            raise InvalidInput(f"retention must not be negative, got {retention}: use None to keep jobs for ever")
        self._driver = driver
        self._holder = holder
        self._name = name
        self._term_s = term_s
        self._renew_s = renew_s
        self._retention = retention
        self._vouched = vouched
        self._dead_after_s = dead_after_s
        self._prune_bite = prune_bite
        self._stop = stop or threading.Event()
        self._monotonic = monotonic
        self._scheduler = Scheduler(driver, permitted=self._may_act)
        self._thread: threading.Thread | None = None
        self._epoch: int | None = None
        self._trusted_until = 0.0
        self._bid_at = float("-inf")
        self._recover_at = self._prune_at = float("-inf")
        self._failing: set[str] = set()

    # --- Life cycle --------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._loop, name="taskharbor-leader", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """No new turn; the one that is going on ends with its duty, and resigns."""
        self._stop.set()

    def end(self, patience: Patience) -> bool:
        """`stop` for whoever cannot wait for ever: whether it has resigned, as far as it could."""
        self._stop.set()
        return self._thread is None or patience.join(self._thread)

    def stop(self) -> None:
        """Sets the event, waits for the turn that is going on, and resigns."""
        self._stop.set()
        if self._thread is None:
            self._resign()
        elif self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)

    def _loop(self) -> None:
        while not self._stop.is_set():
            begun = self._monotonic()
            try:
                sleep_s = self.step()
            except Exception:
                # Nothing of the kind is expected; a worker that goes on is worth more than one that is gone.
                log.exception("the leader loop failed and goes on")
                sleep_s = LOOK_S
            self._stop.wait(max(SHORTEST_SLEEP_S, sleep_s - (self._monotonic() - begun)))
        self._resign()

    # --- One turn ----------------------------------------------------------------------------------------

    @property
    def leading(self) -> bool:
        """Whether this worker has won a term that has not run out by its own clock."""
        return self._epoch is not None and self._monotonic() < self._trusted_until

    def step(self, now: datetime | None = None) -> float:
        """Bid or renew if it is time to, then do the duties that are due; how many seconds later to come back.

        `now` of None asks the store's clock.
        """
        begun = self._monotonic()
        if self._stop.is_set():
            return LOOK_S
        if begun >= self._bid_at or (self._epoch is not None and not self.leading):
            moment = self._bid(begun, now)
        else:
            moment = self._moment(now) if self.leading else None
        if moment is None or not self.leading:
            return max(0.0, self._bid_at - self._monotonic())
        sleep_s = self._run_schedules(moment)
        return min(sleep_s, self._recover(moment), self._prune(moment), self._bid_at - begun, LOOK_S)

    def _bid(self, begun: float, now: datetime | None) -> datetime | None:
        """Win or renew a term. A bid that fails is a term that may be lost, so the leader steps down."""
        epoch = self._epoch if self.leading else None
        try:
            # The local reading of the clock is the earlier one, so the term ends here first and then in the store.
            moment = self._driver.now() if now is None else now
            departure = departure_of(self._driver)
            if departure is not None and departure.gone:  # there is nobody left to lead
                self._resign()
                self._bid_at = begun + BID_S
                return None
            won = self._driver.elect(self._name, self._holder, moment, self._term_s, epoch=epoch)
        except Exception as error:
            self._failed("election", error)
            self._step_down()
            self._bid_at = begun + LOOK_S
            return None
        self._worked("election")
        if won is None:
            self._step_down()
            # Whoever has just lost a term may find that nobody else has it.
            self._bid_at = begun + (LOOK_S if epoch is not None else BID_S)
            return None
        if self._epoch != won.epoch:
            log.info("worker %s leads the fleet, epoch %d", self._holder, won.epoch)
        self._epoch = won.epoch
        self._trusted_until = begun + self._term_s * TRUSTED_PART
        self._bid_at = begun + self._renew_s
        return moment

    def _moment(self, now: datetime | None) -> datetime | None:
        try:
            moment = self._driver.now() if now is None else now
        except Exception as error:
            self._failed("clock", error)
            return None
        self._worked("clock")
        return moment

    def _step_down(self) -> None:
        if self._epoch is not None:
            log.info("worker %s no longer leads the fleet", self._holder)
        self._epoch = None

    def _resign(self) -> None:
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            try:
                self._driver.resign(self._name, self._holder, epoch)
            except Exception as error:
                log.warning("could not resign, so the next leader waits for the term to end: %s", error)

    def _may_act(self) -> bool:
        return self.leading and not self._stop.is_set()

    # --- Duties: each returns the seconds until it wants its next turn -----------------------------------

    def _run_schedules(self, now: datetime) -> float:
        if not self._may_act():
            return LOOK_S
        try:
            self._scheduler.tick(now)
        except Exception as error:
            self._failed("schedules", error)
            return LOOK_S
        self._worked("schedules")
        due = self._scheduler.next_due
        return LOOK_S if due is None else max(0.0, (due - now).total_seconds())

    def _recover(self, now: datetime) -> float:
        begun = self._monotonic()
        if begun < self._recover_at:
            return self._recover_at - begun
        self._recover_at = begun + RECOVER_S
        total = found = Recovery()
        try:
            for _ in range(RECOVER_PASSES):
                if not self._may_act():
                    break
                found = self._driver.recover(now, dead_after=self._dead_after_s)
                total += found
                if found == Recovery():
                    break
        except Exception as error:
            self._failed("recovery", error)
            return RECOVER_S
        self._worked("recovery")
        if total.workers_removed:
            removed, freed = many(total.workers_removed, "dead worker"), many(total.leases_freed, "lease")
            log.warning("%s removed, %s freed", removed, freed)
        if found != Recovery():  # there was more than one turn should take
            self._recover_at = begun
            return 0.0
        return RECOVER_S

    def _prune(self, now: datetime) -> float:
        begun = self._monotonic()
        if self._retention is None or not self._may_act():
            return LOOK_S
        if begun < self._prune_at:
            return self._prune_at - begun
        self._prune_at = begun + PRUNE_S
        try:
            gone = self._prune_bite_of(now)
        except Exception as error:
            self._failed("pruning", error)
            return PRUNE_S
        self._worked("pruning")
        if gone < self._prune_bite:
            return PRUNE_S
        self._prune_at = begun + PRUNE_PAUSE_S
        return PRUNE_PAUSE_S

    def _prune_bite_of(self, now: datetime) -> int:
        assert self._retention is not None
        if self._retention >= now - EPOCH:
            return 0
        before = now - self._retention
        if self._vouched is None:
            return self._driver.prune(before, limit=self._prune_bite)
        vouched = self._vouched()
        if vouched is None:
            return 0
        return self._driver.prune(min(before, vouched.before), limit=self._prune_bite, upto=vouched.upto)

    # --- Saying it once ----------------------------------------------------------------------------------

    def _failed(self, duty: str, error: Exception) -> None:
        if duty not in self._failing:
            self._failing.add(duty)
            log.warning("the %s of the fleet failed and will be tried again: %s", duty, error)

    def _worked(self, duty: str) -> None:
        if duty in self._failing:
            self._failing.discard(duty)
            log.info("working again: the %s of the fleet", duty)
