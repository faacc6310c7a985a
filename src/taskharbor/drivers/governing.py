"""Claims under limits and fair shares, written once for every store.

A store offers a `Desk`: the few things that such a claim asks of it, inside one transaction that keeps other governed
claims out. A claim first lets jobs back in whose bucket has room again, then leases as any claim does, and puts what
the limits do not let through on the bench of the bucket that stopped it. A benched job is ready, but no claim walks
over it; it is looked at again when its bucket has room, not before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

from taskharbor.core.carrying import DRAINING, FILLING, GONE, MOVING
from taskharbor.core.clock import EPOCH
from taskharbor.core.contract import Leased
from taskharbor.core.fairness import Newcomer
from taskharbor.core.limiting import Judge, Limit, Standing, limits_for
from taskharbor.core.model import Job, LeasedJob, QueueSettings
from taskharbor.drivers.shares import advance_lines, give_out_tags
from taskharbor.drivers.tidying import LOOK_AGAIN, TidyDesk
from taskharbor.drivers.waking import by_parts

MOST_WOKEN: Final = 1_000
"""Buckets, and jobs of theirs, that one claim brings back."""
MOST_BENCHED: Final = 10_000
"""Jobs that one claim goes past because they are held back; the next one goes on behind them."""
AT_ONCE: Final = EPOCH
"""When to look at a bucket at the very next claim, whatever its clock says."""
TAGS_AT_ONCE: Final = 1_000


class Ask(NamedTuple):
    """What a reserve asks for."""

    queues: tuple[str, ...]
    now: datetime
    lease_for: timedelta
    limit: int
    types: tuple[str, ...] | None
    owner: str
    tenant: str | None = None

    @property
    def chooses(self) -> bool:
        """Whether it passes some jobs of its queues by."""
        return self.types is not None or self.tenant is not None

    def wants(self, job: Job) -> bool:
        return (
            job.queue in self.queues
            and (self.types is None or job.type in self.types)
            and self.tenant in (None, job.tenant_id)
        )


class Running(NamedTuple):
    """A note that a leased job counts in a bucket."""

    bucket: str
    job_id: str
    token: str
    until: datetime


class Benched(NamedTuple):
    """A leased job that is to go back, and the bucket that it waits for; if that is empty, it goes back to its place in
    line."""

    leased: LeasedJob
    bucket: str


class Woken(NamedTuple):
    """A bucket whose time has come, and the key of its limit."""

    bucket: str
    limit: tuple[str, str, str]


@dataclass(frozen=True)
class Rules:
    """Everything that governs claims of a store, as it was read last."""

    limits: tuple[Limit, ...] = ()
    queues: Mapping[str, QueueSettings] = field(default_factory=dict)
    """Those with settings."""
    benches: bool = False
    """Whether any job is on a bench: then claims are governed even if the limits are gone."""
    flows: bool = False
    """Whether any workflow may still move on."""

    def govern(self, queues: Sequence[str]) -> bool:
        return self.benches or bool(limits_for(self.limits, queues)) or any(self.is_fair(name) for name in queues)

    @property
    def judge(self) -> bool:
        """Whether any job may have to wait for room."""
        return self.benches or bool(self.limits)

    @property
    def count(self) -> bool:
        """Whether anybody may wait for a job to end."""
        return self.benches or any(limit.concurrency is not None for limit in self.limits)

    @property
    def shut(self) -> bool:
        """Whether the store is being moved to another one, or was."""
        return self.has(MOVING)

    @property
    def gone(self) -> bool:
        """Whether it was."""
        return self.has(GONE)

    @property
    def draining(self) -> bool:
        """Whether its jobs are being taken to another store while it is in use."""
        return self.has(DRAINING)

    @property
    def filling(self) -> bool:
        """Whether it is in use while another store is drained into it."""
        return self.has(FILLING)

    def has(self, mark: str) -> bool:
        return self.is_paused(mark)

    def is_paused(self, queue: str) -> bool:
        return queue in self.queues and self.queues[queue].paused

    def is_fair(self, queue: str) -> bool:
        found = self.queues.get(queue)
        return found is not None and found.fair


class Desk(TidyDesk, Protocol):
    """What a governed claim asks of a store. Everything happens in one transaction, and as long as it is open no other
    desk of the store gets past `hold`."""

    def hold(self, limits: Sequence[Limit]) -> Sequence[Limit]:
        """Wait until no other desk is judging by one of these limits. Returns those that are still there, as they
        stand now: the rules of the caller may be a little old."""
        ...

    def ended(self, ids: Sequence[str]) -> None:
        """Strike the notes of those jobs that are not leased with the noted token any more, and wake their buckets
        (`AT_ONCE`) if they have a bench."""
        ...

    def woken(self, ask: Ask, most: int) -> Sequence[Woken]:
        """Buckets whose time to be looked at has come, with a job on the bench that the ask `wants`; the others stay
        as they are."""
        ...

    def standings(self, buckets: Sequence[str]) -> Mapping[str, Standing]:
        """How many notes each bucket has, and its tokens; buckets of which nothing is known may be left out."""
        ...

    def unbench(self, counts: Mapping[str, int], ask: Ask) -> Mapping[str, int]:
        """Bring the first so many that the ask `wants` of each bucket's bench back to the places in line that they
        had; those that are not ready any more are struck and do not count. Returns how many came back of each."""
        ...

    def rest(self, until: Mapping[str, datetime]) -> None:
        """Look at each bucket again then; at one with an empty bench, never."""
        ...

    def leased(self, now: datetime) -> Sequence[Job]:
        """Every job with a lease that has not ended."""
        ...

    def claim(self, ask: Ask) -> Leased:
        """Lease as a claim without rules does, in order; paused queues give nothing."""
        ...

    def bench(self, jobs: Sequence[Benched], limits: Mapping[str, Limit], wake: Mapping[str, datetime]) -> None:
        """Undo these leases, which this transaction made, as if they had not been (also the delivery), and bench the
        jobs at the places in line that they had; those without a bucket just stay in line. `limits` and `wake` have
        each bucket's limit and next look."""
        ...

    def note(self, running: Sequence[Running]) -> None:
        """Remember that these jobs count in these buckets. A note of before for the same job and bucket goes."""
        ...

    def spend(self, tokens: Mapping[str, tuple[Limit, float, datetime]]) -> None:
        """What is left in these buckets, and when that was counted."""
        ...

    def newcomers(
        self, queue: str, now: datetime, most: int, ids: Sequence[str] | None
    ) -> Mapping[int, list[Newcomer]]:
        """Due, ready jobs of the queue that have no tag, by priority, each in order of due time and id, at most `most`
        in all; with `ids`, only these. They stay locked; those that another holds are left out."""
        ...

    def tags(self, queue: str, priority: int, tenants: Sequence[str]) -> tuple[Mapping[str, int], int]:
        """What was remembered for these tenants, held for this transaction, and the tag of the first ready job of the
        line; if none waits, the highest that was ever remembered there, 0 at first."""
        ...

    def give(self, queue: str, priority: int, tags: Sequence[tuple[str, int]], last: Mapping[str, int]) -> None:
        """Put the tags in place of the jobs' due times (which are kept beside them until they are leased), and
        remember what is in `last`, and the highest of it."""
        ...

    def highest_tag(self, ids: Sequence[str]) -> int | None:
        """The highest tag that one of these jobs had, which this transaction has leased; None if none had one."""
        ...

    def advance_line(self, queue: str, priority: int, tag: int) -> None:
        """Remember that the line has come so far, unless it was further already."""
        ...

    def untag(self, queue: str, priority: int, most: int) -> int:
        """Put the due times of ready jobs in this line back in place of their tags, of at most so many; how many.
        Those that another holds are left out."""
        ...

    def untag_bench(self, queue: str) -> None:
        """The same for all jobs of the queue that are on a bench: the places that they will come back to."""
        ...


def governed_claim(
    desk: Desk,
    rules: Rules,
    ask: Ask,
    ended: Sequence[str],
    fresh: Sequence[Limit] = (),
    *,
    tagged: bool = False,
) -> tuple[Leased, datetime | None]:
    """Lease what the rules let through. Also returns when more may be let through by the passing of time alone.

    `fresh` are limits of which the caller has only just learned: what runs already is counted in for them. With
    `tagged`, the newcomers of fair queues have got their tags already.
    """
    asked = limits_for(rules.limits, ask.queues)
    limits = desk.hold(asked)
    known = {limit.key: limit for limit in rules.limits if limit not in asked}
    known.update((limit.key, limit) for limit in limits)
    judges = rules.judge
    if ended and judges:
        desk.ended(ended)
    if fresh:
        desk.doubt()  # before there was a limit on what runs, ends were not told
    if judges:
        desk.lapsed(ask.now)
    if fresh:
        desk.note([note for job in desk.leased(ask.now) for note in _notes(job, Judge(fresh, ask.now).buckets_of(job))])
    for queue in ask.queues:
        if rules.is_fair(queue) and not tagged:
            give_out_tags(desk, rules, queue, ask.now, TAGS_AT_ONCE)
    judge = Judge(limits, ask.now)
    # Whatever comes back of a queue that gives nothing would only take the place of others.
    open_to = ask._replace(queues=tuple(queue for queue in ask.queues if not rules.is_paused(queue)))
    woken = _wake(desk, judge, known, open_to) if judges and open_to.queues else _Woken()
    taken = _Taken()
    _claim_through(desk, judge, limits, ask, taken)
    while taken.moved and _bring_back(desk, judge, woken, open_to, taken):
        _claim_through(desk, judge, limits, ask, taken)
    # Where there is still room, whoever asks for others may find it at once.
    at_once = [bucket for bucket in woken.buckets if bucket not in woken.limited or judge.room(bucket)]
    looked_at = [bucket for bucket in woken.buckets if bucket not in at_once]
    if taken.notes:
        desk.note(taken.notes)
    if spent := judge.spent():
        desk.spend(spent)
    advance_lines(desk, rules, ask, taken.jobs)
    times = {bucket: judge.next_token_at(bucket, ask.limit) for bucket in {*looked_at, *taken.stopped_by}}
    if looked_at or at_once:
        soon = {bucket: times[bucket] or ask.now + LOOK_AGAIN for bucket in looked_at}
        desk.rest({**soon, **dict.fromkeys(at_once, ask.now)})
    later = [at for at in times.values() if at is not None]
    return taken.jobs, ask.now if taken.more else min(later, default=None)


@dataclass
class _Taken:
    jobs: list[LeasedJob] = field(default_factory=list)
    notes: list[Running] = field(default_factory=list)
    stopped_by: set[str] = field(default_factory=set)
    """The buckets that held back a job or a queue."""
    more: bool = False
    """Whether there may be runnable jobs behind those that were held back."""
    benched: int = 0
    moved: bool = False
    """Whether any job was benched since some were last brought back: those behind it may have room."""


@dataclass
class _Woken:
    buckets: list[str] = field(default_factory=list)
    limited: set[str] = field(default_factory=set)
    """Those whose limit is still there."""
    deep: list[str] = field(default_factory=list)
    """Those of which as many came back as were asked for, so that more may wait."""


def _notes(job: Job, buckets: Iterable[tuple[str, Limit]]) -> list[Running]:
    token, until = job.lease_token, job.lease_expires_at
    assert token is not None and until is not None
    return [Running(bucket, job.id, token, until) for bucket, limit in buckets if limit.concurrency is not None]


def _wake(desk: Desk, judge: Judge, known: Mapping[tuple[str, str, str], Limit], ask: Ask) -> _Woken:
    """Bring benched jobs back as far as their buckets have room."""
    found = desk.woken(ask, MOST_WOKEN)
    if not found:
        return _Woken()
    standings = desk.standings([each.bucket for each in found])
    wanted, limited = dict[str, int](), set[str]()
    for bucket, key in found:
        limit = known.get(key)
        wanted[bucket] = MOST_WOKEN
        if limit is not None:
            limited.add(bucket)
            judge.learn(limit, bucket, standings.get(bucket))
            # No more than this claim can take: what is brought back without need is only put back again.
            wanted[bucket] = min(judge.room(bucket), ask.limit)
    return _Woken(list(wanted), limited, _unbench(desk, wanted, ask))


def _bring_back(desk: Desk, judge: Judge, woken: _Woken, ask: Ask, taken: _Taken) -> bool:
    """Those that came back may have gone to the bench of another bucket. Whoever waits behind them is not to wait for
    that: bring more back where there is room. Returns whether to claim once more."""
    left = ask.limit - len(taken.jobs)
    if not left or taken.more:
        return False
    most = max(left, min(2 * taken.benched, MOST_WOKEN))
    counts = {bucket: most for bucket in woken.deep if bucket in woken.limited and judge.room(bucket)}
    woken.deep = _unbench(desk, counts, ask)
    taken.moved = False
    return bool(counts)


def _unbench(desk: Desk, wanted: Mapping[str, int], ask: Ask) -> list[str]:
    """Bring so many back, at most `MOST_WOKEN` in all; of which buckets as many came as were asked for."""
    return by_parts(lambda counts: desk.unbench(counts, ask), wanted, MOST_WOKEN)


def _claim_through(desk: Desk, judge: Judge, limits: Sequence[Limit], ask: Ask, result: _Taken) -> None:
    """Claim, bench what is held back, and claim again for the places that became free.

    A queue that is limited as a whole is left out once it may give nothing, and what was taken of it beyond that goes
    back to its place: so none of its jobs is ever benched for that.
    """
    whole = {limit.whole: limit for limit in limits if limit.scope == "queue" and limit.per == ""}
    _learn(desk, judge, judge.strangers(whole.items()))
    while len(result.jobs) < ask.limit:
        full = {limit.name: bucket for bucket, limit in whole.items() if not judge.room(bucket)}
        result.stopped_by.update(full.values())
        queues = tuple(queue for queue in ask.queues if queue not in full)
        if not queues:
            break
        if result.benched >= MOST_BENCHED:
            result.more = True
            break
        rooms = [judge.room(bucket) for bucket, limit in whole.items() if limit.name in queues]
        wanted = ask.limit - len(result.jobs)
        if len(rooms) == len(queues):
            wanted = min(wanted, sum(rooms))
        # Behind many that are held back there may be many more: the steps become larger and larger.
        wanted = max(wanted, min(2 * result.benched, MOST_WOKEN))
        leased = desk.claim(ask._replace(queues=queues, limit=wanted))
        counted = [judge.buckets_of(each.job) for each in leased]
        _learn(desk, judge, judge.strangers(pair for pairs in counted for pair in pairs))
        held: list[Benched] = []
        for each, pairs in zip(leased, counted, strict=True):
            bucket = judge.admit(pairs) if len(result.jobs) < ask.limit else ""
            if bucket is None:
                result.jobs.append(each)
                result.notes += _notes(each.job, pairs)
            else:
                held.append(Benched(each, "" if bucket in whole else bucket))
        buckets = {each.bucket for each in held if each.bucket}
        result.stopped_by |= buckets
        result.benched += sum(1 for each in held if each.bucket)
        result.moved = result.moved or bool(buckets)
        if held:
            kinds = {bucket: limit for each in held for bucket, limit in judge.buckets_of(each.leased.job)}
            wake = {bucket: judge.next_token_at(bucket, ask.limit) or ask.now + LOOK_AGAIN for bucket in buckets}
            desk.bench(held, kinds, wake)
        if len(leased) < wanted and all(each.bucket for each in held):
            break  # there is no more


def _learn(desk: Desk, judge: Judge, buckets: Mapping[str, Limit]) -> None:
    if buckets:
        standings = desk.standings(list(buckets))
        for bucket, limit in buckets.items():
            judge.learn(limit, bucket, standings.get(bucket))
