"""The loop of one lane: settle what is done and fetch what there is room for, in one round trip."""

from __future__ import annotations

import heapq
import logging
import math
import random
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from taskharbor.core.contract import Listener
from taskharbor.core.errors import InvalidInput, JobNotInflight, LeaseLost, StoreError, TaskHarborError
from taskharbor.core.model import Extension, LeasedJob, Settlement, Status
from taskharbor.core.outcome import Ending, Released, Snoozed, settlement
from taskharbor.core.retry import Backoff
from taskharbor.core.words import many
from taskharbor.worker.batching import BatchRun
from taskharbor.worker.crew import Crew
from taskharbor.worker.ended import say_end
from taskharbor.worker.held import Held
from taskharbor.worker.lane import Lane
from taskharbor.worker.logs import job_fields, note_unbegun
from taskharbor.worker.patience import Patience
from taskharbor.worker.quarantine import PUT_OFF
from taskharbor.worker.turns import Turns

LINGER_S: Final = 0.005
"""While the slots have work, what is done waits this long for company."""
HANDOVER_S: Final = 0.00002
"""An idle slot gets the interpreter this long: else it would wait until the claimer has written everything down."""
SLOWEST_STEP_S: Final = 0.2
LAST_TRIES_S: Final = 0.05
"""Between the tries of a worker that has to end while its store is away."""
MOST_SOON: Final = 1_000
GIVEN_BACK: Final = Released()
CLOCK_SLACK_S: Final = 0.005

log = logging.getLogger("taskharbor.worker")


class Claimer:
    def __init__(self, crew: Crew, lane: Lane) -> None:
        self._crew = crew
        self._lane = lane
        self._turns = Turns(f"taskharbor-claim-{lane.queue}", self._serve, lane.work_here)
        self._mine = False
        """What was claimed last is for the thread that claimed it."""
        self._telling: list[Held] = []
        """Taken from those that are done, and not told yet."""
        self._told: list[Held] = []
        """Told, and not let go yet."""
        self._closing = False
        self._ended = threading.Event()
        self._hinted = True
        self._look_at = 0.0
        self._soon: list[float] = []
        """When jobs that were put off are due, of those for which the next look would be late."""
        self._give_up_at = math.inf
        self._held_back = False
        """A limit on starts lets more through before long."""
        self.dry = False
        """The last look found nothing, and nothing is held."""
        self.looks = 0
        self.finds = 0
        """Looks that found something."""

    def start(self) -> None:
        self._turns.start()

    def hint(self) -> None:
        """Something may have come in."""
        self._hinted = True
        self._lane.news.set()

    def attend(self, listener: Listener | None) -> None:
        self._lane.news.attend(listener)

    def close(self) -> None:
        """No new jobs. Those that wait go back, those that run are settled when they end."""
        self._closing = True
        self._lane.news.set()

    def end(self, patience: Patience) -> None:
        """Tell the store the rest, and stop, at the latest when the time is up."""
        self._closing = True
        self._give_up_at = time.monotonic() + patience.left()
        self._ended.set()
        self._lane.news.set()
        self._turns.end(patience)

    # --- The loop ----------------------------------------------------------------------------------------

    def _serve(self) -> bool:
        """Until there is a job for this very thread, or nothing to do any more."""
        while not self._mine:
            if self._finished():
                self.dry = True
                return False
            try:
                self._step()
            except BaseException:  # thrown in from outside, too: this thread may have run a handler
                # Nothing of the kind is expected; a worker that goes on is worth more than one that is gone.
                log.exception("the claimer of queue %s failed and goes on", self._lane.queue)
                time.sleep(SLOWEST_STEP_S)
                self._tidy()
        self._mine = False
        return True

    def _keeps(self, run: Sequence[Held | BatchRun]) -> bool:
        """Whether this thread runs the one job that came in, because nobody else has anything to do."""
        lane = self._lane
        if len(run) == 1 and not self._closing and lane.takes_at_once(run[0]) and self._turns.may_leave():
            self._mine = lane.enter(run[0])
        return self._mine

    def _finished(self) -> bool:
        lane = self._lane
        told_all = not (lane.done or lane.ready or lane.ready_async or lane.asked)
        if lane.gatherer is not None:
            told_all = told_all and not lane.gatherer.is_filling
        return self._ended.is_set() and (told_all or time.monotonic() >= self._give_up_at)

    def _step(self) -> None:
        lane = self._lane
        lane.news.clear()
        if self._closing or self._crew.quarantine.active or lane.stuck():
            self._give_back()
        else:
            if lane.ready or lane.ready_async:
                for held in lane.take_back(lane.worth_keeping()):
                    self._return(held)
            if lane.gatherer is not None:
                lane.gatherer.send(no_more=self._crew.allowance.used_up)
        self._telling = done = lane.finished(lane.batch)
        room = self._room()
        look = room > 0 and (self._hinted or bool(done) or time.monotonic() >= self._look_at)
        if not done and not look:
            self._idle(room)
            return
        if done and len(done) < lane.batch // 4 and not self._closing and not lane.starving():
            time.sleep(LINGER_S)
            done += lane.finished(lane.batch - len(done))
        hinted, self._hinted = self._hinted, False
        self._talk(room if look else 0)
        if hinted and self.dry:
            # Our clock may be a moment behind that of whoever enqueued: then the job is not due for us yet.
            self._look_at = min(self._look_at, time.monotonic() + CLOCK_SLACK_S)

    def _room(self) -> int:
        if self._closing or self._crew.quarantine.active or self._types() == []:
            return 0
        room = self._lane.room(ahead=not self._crew.driver.is_scarce(self._lane.queue))
        return self._crew.quarantine.bounded(min(room, self._crew.allowance.left))

    def _types(self) -> Sequence[str] | None:
        """What to claim: no coroutines while the event loop is blocked."""
        crew = self._crew
        if not self._lane.loop_is_silent:
            return crew.types
        names = crew.tasks if crew.types is None else crew.types
        return [name for name in names if crew.tasks[name].pool != "async"]

    def _idle(self, room: int) -> None:
        lane = self._lane
        self.dry = not lane.owed() and not lane.done and (room > 0 or self._closing) and not self._hinted
        self.dry = self.dry and not self._held_back
        self._crew.quarantine.serve(lane, len(self._crew.registry))
        wait = self._look_at - time.monotonic() if room > 0 else SLOWEST_STEP_S
        if lane.gatherer is not None:
            wait = min(wait, lane.gatherer.wait_s())
        if lane.news.wait(max(0.001, min(wait, SLOWEST_STEP_S if self._crew.quarantine.active else wait))):
            self._hinted = True

    def _give_back(self) -> None:
        """What no slot has begun. A suspect that has its turn stays, if it can have it."""
        quarantine, lane = self._crew.quarantine, self._lane
        stuck = lane.stuck()
        unbegun = lane.take_back()
        if lane.gatherer is not None and not stuck:
            unbegun += lane.gatherer.give_up()
        for held in quarantine.give_up() if self._closing else quarantine.put_off():
            self._return(held, GIVEN_BACK if self._closing else Snoozed(PUT_OFF))
        if stuck and unbegun:
            go = "goes" if len(unbegun) == 1 else "go"
            log.info("%s of queue %s %s back: its slots are busy", many(len(unbegun), "job"), lane.queue, go)
        for held in unbegun:
            if held is quarantine.chosen and not self._closing and not stuck:
                lane.put(held)
            else:
                self._return(held)

    def _return(self, held: Held, ending: Ending = GIVEN_BACK) -> None:
        held.ending = ending
        self._lane.done.append(held)
        if not held.lost:  # then the heartbeat has done so
            self._crew.allowance.give_back(1)

    # --- Talking to the store ----------------------------------------------------------------------------

    def _talk(self, room: int) -> None:
        """Tell what is to be told, and ask for so many jobs."""
        crew, lane, done = self._crew, self._lane, self._telling
        before = time.monotonic()
        types = self._types()
        room = crew.allowance.ask(0 if types == [] else room)
        lane.ask(room)
        leased: list[LeasedJob] = []
        try:
            now = crew.driver.now()
            told = [held for held in done if not held.lost]
            words = [self._word(held, now) for held in told]
            self._tell_progress(told)
            results, leased = self._settle_and_reserve(words, room, types)
            self._told, self._telling = done, []
            if leased:
                self.finds += 1
                self._accept(leased, before)
        except StoreError as error:
            lane.done.extendleft(reversed(self._worth_keeping(done)))
            self._telling = []
            crew.outage.wait(error, self._ended)
            if self._ended.is_set():
                time.sleep(LAST_TRIES_S)
            return
        finally:
            lane.ask(-room)
            crew.allowance.took(room, len(leased))
        crew.outage.over()
        if done:
            self._note(told, words, results, now)  # first: a worker that has done enough ends with the last of them
        self._let_go()
        if room:
            if lane.gatherer is not None:
                lane.gatherer.looked(leased, room)
            again = crew.driver.look_again_at(lane.queue)
            self._held_back = again is not None
            self._look_again(at_once=len(leased) >= min(room, lane.slots))
            if again is not None:  # a limit on starts lets others through then
                self._look_at = min(self._look_at, time.monotonic() + max(0.001, (again - now).total_seconds()))
            if types is crew.types:  # else it looked for some only, and what it found says nothing of the rest
                self.dry = not leased and not lane.owed() and not lane.done and not self._held_back
                self.looks += 1

    def _let_go(self) -> None:
        """What has been told is held no more. To do so twice does no harm."""
        told = self._told
        if told:
            self._crew.registry.remove(told)
        self._crew.quarantine.ended(told)
        self._told = []

    def _tidy(self) -> None:
        """Behind an error, which may have come at any point: what has not been told is told another time. If the store
        has heard it all the same, it takes that for the repeat it is."""
        self._lane.done.extendleft(reversed(self._telling))
        self._telling = []
        self._let_go()

    def _look_again(self, *, at_once: bool) -> None:
        moment = time.monotonic()
        self._look_at = 0.0 if at_once else moment + self._crew.poll_interval_s * random.uniform(0.9, 1.1)
        while self._soon and self._soon[0] <= moment:
            heapq.heappop(self._soon)
        if self._soon:
            self._look_at = min(self._look_at, self._soon[0])

    def _due_in(self, wait_s: float) -> None:
        """A job that was put off is due again in so many seconds: look then, if not before."""
        if wait_s < self._crew.poll_interval_s and len(self._soon) < MOST_SOON:
            heapq.heappush(self._soon, time.monotonic() + wait_s + CLOCK_SLACK_S)

    def _word(self, held: Held, now: datetime) -> Settlement:
        ending = held.ending or Released()
        try:
            return settlement(ending, held.job, held.token, held.started_at, now, self._policy(held))
        except Exception as error:  # of one job, which must not keep the others from being told
            reason = f"what the handler ended with cannot be kept: {error!r}"
            return Settlement.fail(held.job.id, held.token, reason=reason, started_at=held.started_at)

    def _tell_progress(self, told: list[Held]) -> None:
        """What handlers reported last, which no heartbeat has taken along, would be lost with the end of the lease."""
        late = [held for held in told if held.reported is not None]
        if not late:
            return
        lease_s = self._crew.lease_s
        reports = [Extension(held.job.id, held.token, lease_s, held.started_at, held.reported) for held in late]
        for held in late:
            held.reported = None
        try:
            self._crew.driver.extend(reports)
        except InvalidInput as error:
            log.warning("progress is left out, for what a handler reported cannot be kept: %s", error)

    def _settle_and_reserve(
        self, words: list[Settlement], room: int, types: Sequence[str] | None
    ) -> tuple[list[Status | TaskHarborError], list[LeasedJob]]:
        driver, crew = self._crew.driver, self._crew
        try:
            if not room:
                return driver.settle(words), []
            return driver.settle_and_reserve(
                words,
                self._lane.queue,
                lease_for=crew.lease_s,
                limit=room,
                types=types,
                owner=crew.worker_id,
            )
        except InvalidInput:
            # One of them is at fault, and must not keep the others from being told.
            return [self._settle_alone(word) for word in words], []

    def _settle_alone(self, word: Settlement) -> Status | TaskHarborError:
        driver = self._crew.driver
        try:
            return driver.settle([word])[0]
        except InvalidInput as error:
            reason = f"what the handler ended with cannot be kept: {error}"
            return driver.settle([Settlement.fail(word.id, word.token, reason=reason)])[0]

    def _accept(self, leased: list[LeasedJob], claimed: float) -> None:
        crew = self._crew
        gatherer = self._lane.gatherer
        items = self._lane.hold(leased, crew.tasks, claimed, crew.lease_s)
        crew.registry.add(items)
        if self._closing:  # these came in answer to a question from before
            for held in items:
                self._return(held)
            return
        run, back = crew.quarantine.admit(self._lane, items)
        for held, ending in back:
            self._return(held, ending)
        if len(run) < len(items):
            # Everybody else stands back while a job that may bring the process down has its turn.
            self._lane.news.set()
        if gatherer is not None:
            run = gatherer.take(run)
            self._lane.news.set()  # there may be a batch to put into line, or to wait for
        if not self._keeps(run) and self._lane.add(run):
            time.sleep(HANDOVER_S)

    def _worth_keeping(self, done: list[Held]) -> list[Held]:
        """Those whose lease may still be ours when the store is back."""
        moment = time.monotonic()
        kept = [held for held in done if not held.lost and held.deadline > moment]
        if len(kept) < len(done):
            gone = [held for held in done if held not in kept]
            self._crew.registry.remove(gone)
            self._crew.quarantine.ended(gone)
            fresh = [held for held in gone if not held.lost]  # of the others the heartbeat has told
            begun = sum(map(self._crew.tally.count_lost, fresh))
            if begun:
                jobs = many(begun, "finished job")
                log.warning("the leases of %s ran out while the store was away: what has run will run again", jobs)
            note_unbegun(len(fresh) - begun)
        return kept

    def _policy(self, held: Held) -> Backoff:
        return (held.task.retry if held.task is not None else None) or self._crew.retry

    def _note(
        self, told: list[Held], words: list[Settlement], results: Sequence[Status | TaskHarborError], now: datetime
    ) -> None:
        tally = self._crew.tally
        done = results.count(Status.DONE)
        tally.done += done
        unbegun = 0
        for held, word, result in zip(told, words, results, strict=True) if done < len(told) else ():
            if result is Status.DONE:
                continue
            if held.started_at is None and isinstance(held.ending, Released) and held.ending is not GIVEN_BACK:
                self._crew.allowance.give_back(1)  # a slot had it, and found that it was too late to begin
            if isinstance(result, JobNotInflight | LeaseLost):
                if not tally.count_lost(held):
                    unbegun += 1
                    continue
                log.warning("the lease was lost before the end could be told: %s", result, extra=job_fields(held.job))
            elif isinstance(result, TaskHarborError):
                log.error("could not be settled: %s", result, extra=job_fields(held.job))
            else:
                tally.count(result, held.ending)
                wait_s = say_end(held, word, result, now)
                if wait_s is not None:
                    self._due_in(wait_s)
        note_unbegun(unbegun)
        if log.isEnabledFor(logging.DEBUG):
            for held in told:
                log.debug("%s ended: %s", held.job.type, type(held.ending).__name__, extra=job_fields(held.job))
