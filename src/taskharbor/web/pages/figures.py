"""The numbers of the overview, gathered from what is in memory: asking for them costs the store next to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from taskharbor.core.carrying import Departure, departure_of
from taskharbor.core.contract import Driver
from taskharbor.core.forms import is_alive
from taskharbor.web.following import Feed, Recent, Series
from taskharbor.web.watching import Census, Standing

SHOWN_QUEUES: Final = 40
WINDOW_S: Final = 300.0
QUEUE_S: Final = 60.0
RATE_S: Final = 10.0
"""What is called now: long enough to be calm, short enough to be seen changing."""
MANY_FAIL: Final = 0.05
LONG_WAIT_S: Final = 60.0


class QueueFigures(NamedTuple):
    name: str
    paused: bool
    ready: int
    scheduled: int
    inflight: int
    dead: int
    oldest_s: float | None
    per_second: float = 0.0
    failure_rate: float | None = None
    level: float = 0.0
    """What waits here, as a part of what waits in the fullest queue."""


class FleetFigures(NamedTuple):
    alive: int
    silent: int
    slots: int
    leader: str | None


class Figures(NamedTuple):
    now: datetime
    standing: Standing
    recent: Recent
    """The last five minutes."""
    per_second: float
    """The last seconds:"""
    rate_s: float
    queue_s: float
    """The window of what is said of each queue. Windows are shorter while less is known."""
    waiting: int
    oldest_s: float | None
    queues: Sequence[QueueFigures]
    more_queues: int
    fleet: FleetFigures | None
    """None for who may see one tenant only: workers are nobody's."""
    moved: Departure | None
    """That nobody should use this store any more. Where everything went is nothing for who may see one tenant only."""

    @property
    def failing(self) -> str:
        return "bad" if self.recent.attempts >= 20 and self.recent.failure_rate >= MANY_FAIL else ""

    @property
    def late(self) -> str:
        return "watch" if (self.oldest_s or 0) >= LONG_WAIT_S else ""


def figures(driver: Driver, census: Census, feed: Feed, tenant: str | None) -> Figures:
    now = driver.now()
    standing = census.read(tenant)
    paused = {queue.name for queue in driver.queues() if queue.paused}
    names = sorted(standing.queues.keys() | (paused if tenant is None else set()))
    queues = [_queue(name, standing, now, name in paused) for name in names]
    most = max((queue.ready for queue in queues), default=0) or 1
    # The fullest first, then those where most goes on; a name decides between equals, so that rows stay in place.
    queues.sort(key=lambda queue: (-queue.ready, -queue.inflight, -queue.dead, queue.name))
    shown = [
        _paced(queue, feed.recent(tenant, queue.name, QUEUE_S), queue.ready / most) for queue in queues[:SHOWN_QUEUES]
    ]
    oldest = [queue.oldest_s for queue in queues if queue.oldest_s is not None]
    recent = feed.recent(tenant, window_s=WINDOW_S)
    last = feed.recent(tenant, window_s=RATE_S)
    return Figures(
        now,
        standing,
        recent,
        last.per_second,
        round(last.window_s),
        round(min(QUEUE_S, recent.window_s)),
        standing.counts["ready"] - standing.scheduled,
        max(oldest, default=None),
        shown,
        len(queues) - len(shown),
        _fleet(driver, now) if tenant is None else None,
        departure_of(driver),
    )


def _queue(name: str, standing: Standing, now: datetime, paused: bool) -> QueueFigures:
    here = standing.queues.get(name)
    if here is None:
        return QueueFigures(name, paused, 0, 0, 0, 0, None)
    counts = here.counts
    ready = counts["ready"] - here.scheduled
    return QueueFigures(name, paused, ready, here.scheduled, counts["inflight"], counts["dlq"], here.oldest_s(now))


def _paced(queue: QueueFigures, recent: Recent, level: float) -> QueueFigures:
    failure_rate = recent.failure_rate if recent.attempts else None
    return queue._replace(per_second=recent.per_second, failure_rate=failure_rate, level=level)


def _fleet(driver: Driver, now: datetime) -> FleetFigures:
    workers = driver.workers()
    alive = [each for each in workers if is_alive(each, now)]
    leaders = [each.holder for each in driver.leaders() if each.until > now]
    slots = sum(worker.slots for worker in alive)
    return FleetFigures(len(alive), len(workers) - len(alive), slots, leaders[0] if leaders else None)


def charts(feed: Feed, tenant: str | None) -> dict[str, Any]:
    """Two plots of the last minutes, as columns for the browser."""
    found: Series = feed.series(tenant, 295.0, 5)
    step = found.step_s
    failed = [sum(each) / step for each in zip(found.retried, found.dead, found.lapsed, strict=True)]
    return {
        "at": found.at,
        "succeeded": [count / step for count in found.succeeded],
        "failed": failed,
        "wait": found.wait_p95,
        "run": found.run_p95,
    }
