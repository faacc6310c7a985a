"""Settings of queues, limits and fair shares: the calls that all drivers share, and when a claim is governed.

What governs claims is read twice a second and kept in between, so that a store without limits and fair queues pays
nothing else for them.
"""

from __future__ import annotations

import json
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from taskharbor.core import limits as bounds
from taskharbor.core.carrying import GONE, MARKS, MOVING, NOTE, Carrier, Departure
from taskharbor.core.contract import Leased, Settled
from taskharbor.core.errors import InvalidInput, JobNotFound, StoreError, StoreMoved
from taskharbor.core.fairness import checked_weights
from taskharbor.core.forking import renew_locks
from taskharbor.core.intake import Batch
from taskharbor.core.limiting import PARTS, SCOPES, Limit, checked_limit, limits_for, lone_limit
from taskharbor.core.limits import check_name
from taskharbor.core.model import QueueSettings, Settlement
from taskharbor.drivers.checks import check_names
from taskharbor.drivers.governing import TAGS_AT_ONCE, Ask, Rules, governed_claim
from taskharbor.drivers.operations import StoreOperations
from taskharbor.drivers.shares import give_out_tags, take_tags_back
from taskharbor.drivers.tidying import MOST_LINES, tidy_buckets, tidy_line, tidy_notes

RULES_LAST_S: Final = 0.5
"""How old the rules may be that a claim goes by."""
ALL_KNOW_S: Final = 1.0
"""So long after this driver has learned of a limit, every other one has too, and claims without it are over."""
TAGS_IN_ONE: Final = 5_000
MOST_HINTS: Final = 1_000


class GoverningCalls(StoreOperations):
    """The governing part of the contract over the operations of a store."""

    writes_in_parallel: bool

    def __init__(self) -> None:
        self._rules_lock = threading.Lock()
        renew_locks(self, "_rules_lock")
        self._rules_kept = Rules()
        self._rules_until = 0.0
        self._learned: dict[tuple[str, str, str], list[float]] = {}
        """For each limit on what runs, the moments at which the jobs that run already are still to be counted in."""
        self._hints: dict[frozenset[str], datetime] = {}
        self._tidied: dict[str, str] = {}
        """Where tidying goes on: among the buckets under "", and in lines of fair queues that have many tenants."""

    @abstractmethod
    def _check_open(self) -> None: ...

    @abstractmethod
    def _moment(self, now: datetime | None) -> datetime: ...

    def pause(self, queue: str) -> None:
        self._check_open()
        with self._told_where():
            self._set_paused(check_name(queue, "queue", bounds.MAX_NAME), True)
        self._doubt_rules()

    def resume(self, queue: str) -> None:
        self._check_open()
        with self._told_where():
            self._set_paused(check_name(queue, "queue", bounds.MAX_NAME), False)
        self._doubt_rules()

    def queues(self) -> Sequence[QueueSettings]:
        self._check_open()
        return [queue for queue in self._queues() if queue.name not in MARKS]

    def shut(self, shut: bool) -> None:
        """Within a second no process takes jobs in or gives any out, until this is undone: for moving the store."""
        if not shut:
            self.set_mark(GONE, False)
        self.set_mark(MOVING, shut)

    def set_mark(self, mark: str, given: bool) -> None:
        """Tell every process within a second what becomes of the store: one of `core.carrying.MARKS`."""
        self._check_open()
        if self._read_rules().has(mark) != given:
            self._set_paused(mark, given)
        self.forget_rules()

    def is_shut(self) -> bool:
        self._check_open()
        return self._read_rules().shut

    def is_gone(self) -> bool:
        """Whether everything in this store was moved to another one."""
        self._check_open()
        return self._read_rules().gone

    def departure(self) -> Departure | None:
        """Whether everything in this store was moved to another one, or is being moved; None while it is in use as
        ever."""
        self._check_open()
        rules = self._read_rules()
        if not (rules.shut or rules.gone or rules.draining):
            return None
        return Departure(where_to(self.carrier().note(NOTE), gone=rules.gone), rules.shut, rules.gone)

    def is_filling(self) -> bool:
        """Whether another store, which has the schedules, is being drained into this one."""
        self._check_open()
        return self._rules().filling

    def carrier(self) -> Carrier:
        """What takes all rows of this store out, and brings those of another one in."""
        raise InvalidInput(f"{type(self).__name__} cannot be moved: only the built-in stores can")

    def set_limit(self, limit: Limit, *, now: datetime | None = None) -> None:
        moment = self._moment(now)
        if not isinstance(limit, Limit):
            raise InvalidInput(
                f"set_limit takes a Limit, got {type(limit).__name__}: "
                'set_limit(Limit("queue", "reports", concurrency=4))'
            )
        with self._told_where():
            self._set_limit(checked_limit(limit), moment)
        self.forget_rules()

    def drop_limit(self, scope: str, name: str, per: str = "", *, now: datetime | None = None) -> bool:
        moment = self._moment(now)
        if scope not in SCOPES or per not in PARTS:
            raise InvalidInput(f"there is no limit for {scope!r} and per {per!r}: get_limits() lists those there are")
        with self._told_where():
            dropped = self._drop_limit((scope, check_name(name, scope, bounds.MAX_NAME), per), moment)
        self.forget_rules()
        return dropped

    def get_limits(self) -> Sequence[Limit]:
        self._check_open()
        return sorted(self._read_rules().limits, key=lambda limit: limit.key)

    def set_fair(
        self,
        queue: str,
        fair: bool = True,
        weights: Mapping[str, float] | None = None,
        *,
        now: datetime | None = None,
    ) -> None:
        moment = self._moment(now)
        if not isinstance(fair, bool):
            raise InvalidInput(f"fair must be True or False, got {fair!r}")
        name = check_name(queue, "queue", bounds.MAX_NAME)
        shares = checked_weights(weights)
        if shares and not fair:
            raise InvalidInput("weights go with fair=True: a queue that is not fair has none")
        with self._told_where():
            self._set_fair(name, fair, shares)
        self.forget_rules()
        rules = self._rules()
        # What waits already takes its place too; whatever comes in meanwhile gets its tag at the claims.
        while rules.is_fair(name) and self._give_tags(rules, name, moment, None) == TAGS_IN_ONE:
            pass
        while not rules.is_fair(name) and self._take_tags(name) == TAGS_IN_ONE:
            pass

    def is_scarce(self, queues: str | Sequence[str]) -> bool:
        self._check_open()
        if not self._rules_kept.limits:
            return False
        held = limits_for(self._rules_kept.limits, check_names(queues, "queue"))
        return any(limit.concurrency is not None and limit.per != "key" for limit in held)

    def look_again_at(self, queues: str | Sequence[str]) -> datetime | None:
        self._check_open()
        if not self._hints:
            return None
        return self._hints.get(frozenset(check_names(queues, "queue")))

    # --- For the calls of a queue ------------------------------------------------------------------------

    def _rules(self) -> Rules:
        """What governs claims, at most half a second old."""
        if time.monotonic() < self._rules_until:
            return self._rules_kept
        with self._rules_lock:
            begun = time.monotonic()  # before the read: whoever is stopped behind it must not go by it any longer
            if begun >= self._rules_until:
                self._rules_kept = rules = self._read_rules()
                self._rules_until = begun + RULES_LAST_S
                self._learn(rules)
            return self._rules_kept

    def _let_in(self, batch: Batch) -> Batch:
        """The batch, unless the store takes in no jobs. The quick refusal; what counts is the one of the fence."""
        if self._rules().shut:
            raise self._moved()
        return batch

    def _moved(self) -> StoreMoved:
        # Not by the rules that are kept: who was stopped at the fence may not know how far the move has come.
        return StoreMoved(where_to(self.carrier().note(NOTE), gone=self._read_rules().gone))

    def _absent(self, error: JobNotFound) -> JobNotFound:
        """The error about a job that is not here: it may have been taken to another store."""
        rules = self._rules()
        if not (rules.draining or rules.gone):
            return error
        where = where_to(self.carrier().note(NOTE), gone=rules.gone)
        return JobNotFound(f"{error}, or it has gone already: {where}")

    def forget_rules(self) -> None:
        """Read what governs claims again before the next one, as if nothing had been known of it."""
        with self._rules_lock:  # a reading that goes on may be of before the change: it must not outlast this
            self._rules_until = 0.0
            self._learned.clear()
            self._hints.clear()

    def forget_all(self) -> None:
        """Know no more of the store than when it was opened: for tests, which change it behind the driver's back."""
        self.forget_rules()

    def _doubt_rules(self) -> None:
        """Read what governs claims again before it is asked for."""
        with self._rules_lock:  # as above
            self._rules_until = 0.0

    def _learn(self, rules: Rules) -> None:
        """Jobs that were claimed before everybody knew of a limit are counted in: at once, and once more when
        everybody knows."""
        now = time.monotonic()
        counting = {limit.key for limit in rules.limits if limit.concurrency is not None}
        self._learned = {key: self._learned.get(key, [now, now + ALL_KNOW_S]) for key in counting}

    def _settle_and_ask(self, rules: Rules, settlements: Sequence[Settlement], ask: Ask) -> tuple[Settled, Leased]:
        at = time.monotonic()
        learned = self._learned
        fresh = [limit for limit in rules.limits if any(moment <= at for moment in learned.get(limit.key, ()))]
        if not rules.judge:
            results, leased = self._settle_and_take_tagged(settlements, ask)
        else:
            results = self._settle(settlements, ask.now) if settlements else []
            lone = None if fresh or any(map(rules.is_fair, ask.queues)) else lone_limit(rules.limits, ask.queues)
            leased = [] if lone is None else self._take_counted(lone, settlements, ask)
        if leased:
            return results, leased
        ended = list({item.id: None for item in settlements})
        # Where several write at once, in a transaction of its own: whoever holds one line must not wait for another.
        apart = self.writes_in_parallel
        if apart:
            for queue in filter(rules.is_fair, ask.queues):
                self._give_tags(rules, queue, ask.now, None, TAGS_AT_ONCE)
        leased, again = self._at_desk(lambda desk: governed_claim(desk, rules, ask, ended, fresh, tagged=apart))
        for limit in fresh:
            learned[limit.key] = [moment for moment in learned[limit.key] if moment > at]
        self._hint(ask, again)
        return results, leased

    def _settle_and_take_tagged(self, settlements: Sequence[Settlement], ask: Ask) -> tuple[Settled, Leased]:
        """Settle, and where nothing but fair shares governs a claim, lease without a desk what is to come next: for
        stores to which that saves something. It yields nothing if there is more to do, such as giving out tags."""
        return self._settle(settlements, ask.now) if settlements else [], []

    def _take_counted(self, limit: Limit, ended: Sequence[Settlement], ask: Ask) -> Leased:
        """The same where a lone limit counts what runs, after these have ended. It yields nothing if a job would have
        to wait."""
        return []

    def _hint(self, ask: Ask, again: datetime | None) -> None:
        """A claim only tells of those whom it held back. What an earlier one was told holds until its time has come:
        that this claim passed by the benches says nothing of them."""
        chosen = frozenset(ask.queues)
        known = self._hints.pop(chosen, None)
        times = [at for at in (again, known) if at is not None and (at is again or at > ask.now)]
        if not times:
            return
        if len(self._hints) >= MOST_HINTS:
            self._hints.clear()
        self._hints[chosen] = min(times)

    def _strike(self, rules: Rules, settlements: Sequence[Settlement]) -> None:
        """What has ended gives its place back to whoever waits for it."""
        if not settlements or not rules.count:
            return
        ended = list({item.id: None for item in settlements})
        # The jobs are settled, and do not count any more. If this fails, who waits for them is looked at a bit later.
        with suppress(StoreError):
            if self._may_count(ended):
                self._at_desk(lambda desk: desk.ended(ended))

    def _keep_notes_true(self, ids: Sequence[str]) -> None:
        """A lease that was extended may end earlier than before: then its place is free earlier, too."""
        # The leases are extended: if this fails, their places come back when the notes of them end.
        if self._rules().count:
            with suppress(StoreError):
                self._at_desk(lambda desk: desk.doubt(ids))

    def _tag(self, batch: Batch) -> None:
        """Jobs that came into a fair queue and are due take their places in it."""
        # The jobs are stored: if this fails, they get their tags at the next claims.
        with suppress(StoreError):
            rules = self._rules()
            for name in [name for name, settings in rules.queues.items() if settings.fair]:
                ids = [job.id for job in batch.fresh if job.queue == name and job.due_at <= job.created_at]
                for start in range(0, len(ids), TAGS_IN_ONE):
                    part = ids[start : start + TAGS_IN_ONE]
                    self._give_tags(rules, name, batch.fresh[0].created_at, part)

    def _tidy(self, now: datetime) -> None:
        """Forget a bit of what limits and fair shares no longer need to know."""
        rules = self._rules()
        if rules.count:
            self._at_desk(lambda desk: tidy_notes(desk, rules.limits, now))
        if rules.limits:
            after = self._tidied.get("", "")
            self._tidied[""] = self._at_desk(lambda desk: tidy_buckets(desk, rules.limits, after, now))
        for queue in [name for name, settings in rules.queues.items() if settings.fair]:
            self._tidy_queue(queue)

    def _tidy_queue(self, queue: str) -> None:
        priority: int | None = None
        for _ in range(MOST_LINES):
            priority = self._at_desk(lambda desk, after=priority: desk.next_line(queue, after))  # type: ignore[misc]
            if priority is None:
                return
            place = f"{queue}\0{priority}"
            after, level = self._tidied.get(place, ""), priority
            self._tidied[place] = self._at_desk(
                lambda desk, level=level, after=after: tidy_line(desk, queue, level, after)  # type: ignore[misc]
            )
            if not self._tidied[place]:
                del self._tidied[place]

    def _give_tags(
        self, rules: Rules, queue: str, now: datetime, ids: Sequence[str] | None, most: int = TAGS_IN_ONE
    ) -> int:
        return self._at_desk(lambda desk: give_out_tags(desk, rules, queue, now, most, ids))

    def _take_tags(self, queue: str) -> int:
        return self._at_desk(lambda desk: take_tags_back(desk, queue, TAGS_IN_ONE))


def where_to(note: str | None, *, gone: bool) -> str:
    """What to do instead, from the note that a move leaves in both stores. It never has a password."""
    from taskharbor.drivers.opening import redacted  # which knows all drivers

    known = json.loads(note) if note else {}
    if "to_url" not in known:
        return "`taskharbor move` is filling this store, and has not ended: run the same move again to its end"
    to = redacted(known["to_url"])
    if gone:
        return f"this store was moved to {to}: use that one"
    # With both stores shut, the new one is shut to the end; a live move has opened it.
    return f"this store is being moved to {to}: use that one" + (
        "" if known.get("live") else " when the move has ended"
    )
