"""What Prometheus is told. Counters and histograms come from the feed, gauges from the census.

Labels are bounded: the first 200 queues have their own, the rest is "other".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from taskharbor import __version__
from taskharbor.core.contract import Driver
from taskharbor.core.forms import is_alive
from taskharbor.core.model import Outcome, Status
from taskharbor.web.following import Feed
from taskharbor.web.tallies import BOUNDS_US, RUN, STEPS_OF_DOUBLING, SUMS, WAIT, Tally
from taskharbor.web.totals import MOST_QUEUES, OTHER
from taskharbor.web.watching import Census, QueueStanding

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LONGEST_BUCKET_S: Final = 20_000
MOST_LEADERS: Final = 20

_SHOWN: Final = [
    (bound, micros)
    for bound, micros in enumerate(BOUNDS_US)
    if bound % STEPS_OF_DOUBLING == 0 and micros <= LONGEST_BUCKET_S * 1e6
]
"""Every doubling from a millisecond to four and a half hours. A bound of ours is a bound there, so nothing is moved
between buckets."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """One answer, for one tenant or (None) for all. Collects when it is written, which asks the store."""

    driver: Driver
    census: Census
    feed: Feed
    tenant: str | None = None
    fleet: bool = True
    """With workers and leaders, which are no tenant's."""

    def write(self, *, openmetrics: bool = False) -> bytes:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        if openmetrics:
            text: bytes = generate_openmetrics(registry)  # type: ignore[no-untyped-call]
            return text
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        now = self.driver.now()
        yield InfoMetricFamily("taskharbor_build", "The version of the server.", value={"version": __version__})
        yield from self._standing(now)
        yield from _happened(self.feed.totals(self.tenant))
        if self.fleet:
            yield from self._fleet(now)

    def _standing(self, now: datetime) -> Iterator[Metric]:
        stands = self.census.read(self.tenant)
        paused = {queue.name for queue in self.driver.queues() if queue.paused}
        depth = GaugeMetricFamily(
            "taskharbor_queue_depth", "Jobs in a queue by status; ready has the scheduled ones too.",
            labels=("queue", "status"),
        )  # fmt: skip
        scheduled = GaugeMetricFamily(
            "taskharbor_queue_scheduled", "Ready jobs that are not due yet.", labels=("queue",)
        )
        oldest = GaugeMetricFamily(
            "taskharbor_queue_oldest_seconds", "How long the first of the due jobs has been waiting; 0 if none is.",
            labels=("queue",),
        )  # fmt: skip
        tap = GaugeMetricFamily("taskharbor_queue_paused", "1 while the queue is paused.", labels=("queue",))
        for name, queue in _merged(stands.queues, set(self.feed.totals(self.tenant))).items():
            for status in Status:
                depth.add_metric((name, status.value), queue.counts[status.value])
            scheduled.add_metric((name,), queue.scheduled)
            oldest.add_metric((name,), queue.oldest_s(now) or 0.0)
            tap.add_metric((name,), float(name in paused))
        inflight = stands.counts[Status.INFLIGHT.value]
        age = max(0.0, (now - stands.as_of).total_seconds())
        yield from (depth, scheduled, oldest, tap)
        yield GaugeMetricFamily("taskharbor_inflight", "Jobs that are leased to a worker.", value=inflight)
        yield GaugeMetricFamily("taskharbor_census_age_seconds", "How long ago the jobs were counted.", value=age)

    def _fleet(self, now: datetime) -> Iterator[Metric]:
        workers = self.driver.workers()
        alive = [each for each in workers if is_alive(each, now)]
        slots = sum(each.slots for each in alive)
        silent = len(workers) - len(alive)
        yield GaugeMetricFamily("taskharbor_workers", "Workers that are alive.", value=len(alive))
        yield GaugeMetricFamily("taskharbor_workers_silent", "Workers whose heartbeat is missing.", value=silent)
        yield GaugeMetricFamily("taskharbor_worker_slots", "Jobs that all living workers can run at once.", value=slots)
        leader = GaugeMetricFamily("taskharbor_leader", "1 while somebody leads.", labels=("name",))
        epoch = GaugeMetricFamily("taskharbor_leader_epoch", "Rises with every change of leader.", labels=("name",))
        for each in self.driver.leaders()[:MOST_LEADERS]:
            leader.add_metric((each.name,), float(each.until > now))
            epoch.add_metric((each.name,), each.epoch)
        yield from (leader, epoch)


def _happened(totals: Mapping[str, Tally]) -> Iterator[Metric]:
    attempts = CounterMetricFamily(
        "taskharbor_attempts", "Attempts that ended, and jobs that expired, since the server was started.",
        labels=("queue", "outcome"),
    )  # fmt: skip
    retries = CounterMetricFamily("taskharbor_retries", "Attempts that failed and run again.", labels=("queue",))
    dead = CounterMetricFamily("taskharbor_dead", "Jobs that went to the DLQ, by reason.", labels=("queue", "code"))
    waits = HistogramMetricFamily("taskharbor_wait_seconds", "From due to started.", labels=("queue",))
    runs = HistogramMetricFamily("taskharbor_run_seconds", "From started to ended.", labels=("queue",))
    for queue, tally in totals.items():
        for outcome in Outcome:
            if outcome in tally:
                attempts.add_metric((queue, outcome.value), tally[outcome])
        retries.add_metric((queue,), tally.get(Outcome.RETRIED, 0))
        for code, count in tally.codes().items():
            dead.add_metric((queue, code), count)
        for family, kind in ((waits, WAIT), (runs, RUN)):
            family.add_metric((queue,), _cumulative(tally, kind), tally.get(SUMS[kind], 0) / 1e6)
    yield from (attempts, retries, dead, waits, runs)


def _cumulative(tally: Tally, kind: str) -> list[tuple[str, float]]:
    counts = tally.buckets(kind)
    shown: list[tuple[str, float]] = []
    sum_so_far, reached = 0, 0
    for bound, micros in _SHOWN:
        sum_so_far += sum(counts[reached : bound + 1])
        reached = bound + 1
        shown.append((f"{micros / 1e6:.12g}", sum_so_far))
    return [*shown, ("+Inf", sum_so_far + sum(counts[reached:]))]


def _merged(queues: Mapping[str, QueueStanding], known: set[str]) -> dict[str, QueueStanding]:
    """At most so many queues: those that have counters first, then by name, and the sum of the rest."""
    names = sorted(queues, key=lambda name: (name not in known, name))
    found = {name: queues[name] for name in names[:MOST_QUEUES]}
    rest = [queues[name] for name in names[MOST_QUEUES:]]
    if rest:
        rest.extend([found[OTHER]] if OTHER in found else [])
        due = [queue.oldest_due for queue in rest if queue.oldest_due is not None]
        found[OTHER] = QueueStanding(
            OTHER,
            {status.value: sum(queue.counts[status.value] for queue in rest) for status in Status},
            sum(queue.scheduled for queue in rest),
            min(due, default=None),
        )
    return found
