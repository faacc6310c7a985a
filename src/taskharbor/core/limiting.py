"""Limits on how many jobs run at once and how many start in a second. Pure rules; stores keep the numbers.

A limit covers a queue, a type or a tenant, as a whole or split by the jobs' own keys or tenants. Each part that is
counted for itself is a *bucket*. What runs is counted from leases, so that a worker that dies gives its share back
with them; starts are counted with tokens that come back with time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from json.encoder import encode_basestring_ascii
from typing import Final

from taskharbor.core.errors import InvalidInput
from taskharbor.core.limits import MAX_NAME, check_name
from taskharbor.core.model import Job

LIMIT_KEY: Final = "limit_key"
"""The name in a job's meta under which it carries the key of its caller's choice."""
SCOPES: Final = ("queue", "type", "tenant")
PARTS: Final = ("", "key", "tenant")
LONGEST_BUCKET: Final = 190
MOST: Final = 1_000_000_000
SLOWEST: Final = 1e-6
"""The least rate, about one job in twelve days."""
BURST_S: Final = 0.25
"""Without a burst of its own, a rate lets through at once what it lets through in this time."""

CLOCKS_DIFFER_S: Final = 60.0
"""Rates hold exactly while the clocks of all who claim differ by no more than this. A bucket that was counted further
ahead than that, and than it takes to fill, was counted by a clock that was wrong."""

_DUST: Final = 1e-9
"""Tokens are added up from fractions: what is a token but for the last digit is one."""

PATIENCE_S: Final = 0.1
"""How much later than for one token a claim may come back to take several at once."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How many jobs may run at once (`concurrency`), and how many may start in a second (`rate`), of those that
    `scope` and `name` choose: one of them or both. `per` counts each key or each tenant for itself; jobs without a key
    are not held by a limit per key. `burst` is how many may start at once after a rest."""

    scope: str
    name: str
    per: str = ""
    concurrency: int | None = None
    rate: float | None = None
    burst: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.scope, self.name, self.per

    @property
    def depth(self) -> float:
        """How many tokens a bucket holds at most."""
        if self.rate is None:
            return math.inf
        return self.burst if self.burst is not None else max(1, math.ceil(self.rate * BURST_S))

    @property
    def longest_wait(self) -> timedelta:
        """No bucket of this limit waits longer for its next token, whoever's clock says when."""
        return timedelta(seconds=CLOCKS_DIFFER_S + (0.0 if self.rate is None else 1 / self.rate))

    def covers(self, job: Job) -> bool:
        return bool(self.name == getattr(job, _FIELD[self.scope]))

    def bucket(self, job: Job) -> str | None:
        """Which bucket counts the job; None if this limit does not hold it."""
        if not self.covers(job):
            return None
        if self.per == "":
            return self.whole
        value = job.meta.get(LIMIT_KEY) if self.per == "key" else job.tenant_id
        return None if value is None else self._part(value)

    @property
    def whole(self) -> str:
        """The bucket of a limit that is not split."""
        return self._part("")

    @property
    def stem(self) -> str:
        """How the names of its buckets begin. With a value and a bracket they are JSON, or a hash of it."""
        return _stem(self.scope, self.name, self.per)

    def _part(self, value: str) -> str:
        text = f"{self.stem}{encode_basestring_ascii(value)}]"
        return text if len(text) <= LONGEST_BUCKET else "sha256:" + sha256(text.encode()).hexdigest()


_FIELD: Final = {"queue": "queue", "type": "type", "tenant": "tenant_id"}


@lru_cache(maxsize=1_000)
def _stem(*parts: str) -> str:
    return "[" + "".join(f"{encode_basestring_ascii(part)}," for part in parts)


SPANS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
"""The times that a rate may be for, in seconds."""


def rate_a_second(rate: float | str) -> float:
    """A rate as a number of jobs a second; text says so many in a second, a minute, an hour or a day: "60/m"."""
    if not isinstance(rate, str):
        return rate
    number, slash, span = (part.strip() for part in rate.partition("/"))
    try:
        if slash and span not in SPANS:
            raise ValueError(span)
        return float(number) / SPANS.get(span, 1)
    except ValueError:
        raise InvalidInput(
            f"a rate is a number of jobs a second, or like '100/s', '60/m', '5/h', got {rate!r}"
        ) from None


def rate_text(rate: float) -> str:
    """The rate as somebody would have written it: in the first span of time in which it is a plain number."""
    plain = f"{rate:.3f}".rstrip("0").rstrip(".")
    if math.isclose(float(plain), rate, rel_tol=1e-9):
        return f"{plain}/s"
    for span, seconds in SPANS.items():
        if round(rate * seconds) and math.isclose(round(rate * seconds), rate * seconds, rel_tol=1e-9):
            return f"{round(rate * seconds)}/{span}"
    return f"{rate:g}/s"


def checked_limit(limit: Limit) -> Limit:
    """The limit, if it makes sense."""
    if limit.scope not in SCOPES:
        raise InvalidInput(f"a limit is for a queue, a type or a tenant, got {limit.scope!r}")
    check_name(limit.name, limit.scope, MAX_NAME)
    if limit.per not in PARTS or limit.per == limit.scope:
        parts = "as a whole or per 'key'" if limit.scope == "tenant" else "as a whole, per 'key' or per 'tenant'"
        raise InvalidInput(f"a limit for a {limit.scope} is counted {parts}, got {limit.per!r}")
    if limit.concurrency is None and limit.rate is None:
        raise InvalidInput("a limit needs a concurrency, a rate, or both; to have none, lift the one there is")
    if limit.concurrency is not None:
        _check_count(limit.concurrency, "concurrency", "to stop a queue altogether, pause it")
    if limit.rate is not None and (
        isinstance(limit.rate, bool) or not isinstance(limit.rate, int | float) or not SLOWEST <= limit.rate <= MOST
    ):
        raise InvalidInput(f"rate must be from {SLOWEST:f} to {MOST:,} jobs a second, got {limit.rate!r}")
    if limit.burst is not None:
        if limit.rate is None:
            raise InvalidInput("burst goes with a rate")
        _check_count(limit.burst, "burst", "without one, a rate lets through what it allows in a quarter of a second")
    return limit


def _check_count(count: int, what: str, instead_of_zero: str) -> None:
    if type(count) is int and 1 <= count <= MOST:
        return
    cure = f": {instead_of_zero}" if type(count) is int and count < 1 else ""
    raise InvalidInput(f"{what} must be a whole number from 1 to {MOST:,}, got {count!r}{cure}")


@dataclass(slots=True)
class Standing:
    """Where a bucket stands: how many of its jobs run, and how many tokens it had when they were last counted."""

    running: int = 0
    tokens: float = math.inf
    counted_at: datetime | None = None


@dataclass(slots=True)
class _Bucket:
    limit: Limit
    running: int
    tokens: float
    counted_at: datetime
    used: bool = False


class Judge:
    """Lets jobs through in the order in which they come, as far as the buckets have room."""

    def __init__(self, limits: Iterable[Limit], now: datetime) -> None:
        # In one order everywhere: so a job that several hold back waits for the same one, whichever store it is in.
        self._limits = tuple(sorted(limits, key=lambda limit: limit.key))
        self._now = now
        self._buckets: dict[str, _Bucket] = {}
        self._found: dict[tuple[str, str, str, str | None], list[tuple[str, Limit]]] = {}

    def buckets_of(self, job: Job) -> list[tuple[str, Limit]]:
        # Many jobs are alike.
        alike = (job.type, job.queue, job.tenant_id, job.meta.get(LIMIT_KEY))
        found = self._found.get(alike)
        if found is None:
            named = ((limit.bucket(job), limit) for limit in self._limits)
            found = self._found[alike] = [(bucket, limit) for bucket, limit in named if bucket is not None]
        return found

    def strangers(self, buckets: Iterable[tuple[str, Limit]]) -> dict[str, Limit]:
        """Those of these buckets whose standing is still to be told."""
        return {name: limit for name, limit in buckets if name not in self._buckets}

    def learn(self, limit: Limit, bucket: str, standing: Standing | None) -> None:
        standing = standing or Standing()
        here = self._buckets[bucket] = _Bucket(limit, standing.running, limit.depth, self._now)
        if limit.rate is None or standing.counted_at is None:
            return
        passed = (self._now - standing.counted_at).total_seconds()
        here.tokens = min(limit.depth, standing.tokens + max(0.0, passed) * limit.rate)
        # Clocks differ a little: time that was counted once is never counted again. But whoever was far ahead for a
        # moment is not to stop the others until that time comes: for them, it was counted now.
        here.used = -passed > max(CLOCKS_DIFFER_S, limit.depth / limit.rate)
        if not here.used:
            here.counted_at = max(self._now, standing.counted_at)

    def room(self, bucket: str) -> int:
        """How many more jobs the bucket lets through now."""
        here = self._buckets[bucket]
        room: float = MOST if here.limit.concurrency is None else here.limit.concurrency - here.running
        return max(0, int(min(room, here.tokens + _DUST)))

    def admit(self, buckets: Sequence[tuple[str, Limit]]) -> str | None:
        """Count a job with these buckets in and return None, or return the bucket that has no room for it."""
        known = self._buckets
        for name, limit in buckets:
            here = known[name]
            if (limit.concurrency is not None and here.running >= limit.concurrency) or here.tokens + _DUST < 1:
                return name
        for name, _ in buckets:
            here = known[name]
            here.running += 1
            here.tokens -= 1
            here.used = True
        return None

    def next_token_at(self, bucket: str, wanted: int = 1) -> datetime | None:
        """When the bucket will have room again through the passing of time; None if only an end makes room."""
        here = self._buckets[bucket]
        limit = here.limit
        if limit.rate is None or (limit.concurrency is not None and here.running >= limit.concurrency):
            return None
        # To come back for each single token would be many ways for little: come for several, but not much later.
        aim = max(1.0, min(float(wanted), limit.depth / 2, limit.rate * PATIENCE_S))
        return self._now + timedelta(seconds=max(0.0, (aim - here.tokens) / limit.rate))

    def spent(self) -> Mapping[str, tuple[Limit, float, datetime]]:
        """The buckets whose tokens were used or counted anew, with what is left, and when that was counted."""
        return {
            name: (here.limit, here.tokens, here.counted_at)
            for name, here in self._buckets.items()
            if here.used and here.limit.rate is not None
        }


def limits_for(limits: Sequence[Limit], queues: Iterable[str]) -> tuple[Limit, ...]:
    """Those that may hold a job of these queues."""
    asked = frozenset(queues)
    return tuple(limit for limit in limits if limit.scope != "queue" or limit.name in asked)


def lone_limit(limits: Sequence[Limit], queues: Iterable[str]) -> Limit | None:
    """The limit, if just one may hold a job of these queues, and all that it does is to count what runs of each key or
    tenant."""
    held = limits_for(limits, queues)
    if len(held) != 1 or held[0].concurrency is None or held[0].rate is not None:
        return None
    return held[0] if held[0].per else None
