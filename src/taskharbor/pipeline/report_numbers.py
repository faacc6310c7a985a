"""The numbers of a report, as the page shows them and as `--json` prints them. Keys stay; new ones may come.

Times are UTC, seconds end in `_s`, shares lie between 0 and 1. Lists that a large installation could make very long
have at most `MOST` entries, the weightiest first; `Counted` says how many there were.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from typing import Any, Final

FORMAT: Final = 1
"""Of the JSON document."""
MOST: Final = 200
OUTCOMES: Final = ("succeeded", "retried", "lapsed", "dead", "other")


@dataclass(frozen=True, slots=True)
class Window:
    since: datetime | None
    """What was asked for; None is everything."""
    first: datetime | None
    last: datetime | None
    """The first and the last bucket of the lake that lie in it. Days count as a whole in failures and tenants."""
    grain: str
    """minute, hour or day: the width of the buckets of `throughput`. Those of `latency` are an hour at least."""


@dataclass(frozen=True, slots=True)
class Lag:
    newest_at: datetime | None
    """The last thing that gold knows of."""
    newest_age_s: float | None
    last_run_at: datetime | None
    last_run_rows: int | None
    last_run_problem: str | None
    """Why the last run failed."""
    under_way: bool
    """Whether a run was changing the tables when they were read: some may be a batch ahead of others."""
    store_rows: int | None = None
    """Rows of the store's history that the lake lacks, and the age of the first; None where no store was asked."""
    store_s: float | None = None
    store_problem: str | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """How long something took. A percentile is at most two and a half per cent off; the greatest is exact."""

    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    max_s: float
    mean_s: float


@dataclass(frozen=True, slots=True)
class Counts:
    """Jobs made, and attempts by how they ended. A job that is not over yet is not among those made.

    `dead` counts deaths: attempts after which their job was in the DLQ, for whatever reason, a crash loop too. A job
    that was sent back and died again has died twice. `lapsed` are leases of lost workers whose job lived on.
    """

    enqueued: int = 0
    started: int = 0
    succeeded: int = 0
    retried: int = 0
    lapsed: int = 0
    dead: int = 0
    other: int = 0

    @property
    def burned(self) -> int:
        return self.retried + self.lapsed + self.dead


@dataclass(frozen=True, slots=True)
class Totals:
    counts: Counts
    burned: int
    burned_share: float
    compute_s: float
    wait: Spread | None
    run: Spread | None
    deaths: int
    still_dead: int
    """Jobs that died in the window and, as far as the lake has heard, are dead. Each is one, however often it died."""


@dataclass(frozen=True, slots=True)
class Bucket:
    at: datetime
    counts: Counts


@dataclass(frozen=True, slots=True)
class LatencyBucket:
    at: datetime
    attempts: int
    wait: Spread
    run: Spread


@dataclass(frozen=True, slots=True)
class QueueNumbers:
    queue: str
    counts: Counts
    wait: Spread | None
    run: Spread | None


@dataclass(frozen=True, slots=True)
class TypeNumbers:
    queue: str
    type: str
    attempts: int
    compute_s: float
    compute_share: float
    wait: Spread
    run: Spread


@dataclass(frozen=True, slots=True)
class Fingerprint:
    fingerprint: str
    error_class: str
    sample: str
    failures: int
    dead: int
    """Of these, the ones after which the job was dead: deaths, not jobs."""
    share: float
    """Of all attempts that burned."""
    burned_s: float
    first_seen: datetime
    """In the whole lake, not only in the window."""
    last_seen: datetime
    is_new: bool
    """First seen within the last day of the window, by a lake that is older than that."""
    queues: list[str]
    types: list[str]
    tenants: list[str]
    by_day: list[int]
    """For each of `Failures.days`."""


@dataclass(frozen=True, slots=True)
class ErrorClass:
    error_class: str
    failures: int
    by_day: list[int]


@dataclass(frozen=True, slots=True)
class Failures:
    burned: int
    """All attempts that burned, with an error text or without."""
    attempts: int
    days: list[date]
    classes: list[ErrorClass]
    fingerprints: list[Fingerprint]
    fingerprints_in_all: int


@dataclass(frozen=True, slots=True)
class Tenant:
    tenant_id: str
    jobs: int
    attempts: int
    failures: int
    compute_s: float
    share: float
    """Of all compute seconds."""
    noisy: bool
    noisy_days: int


@dataclass(frozen=True, slots=True)
class Tenants:
    fair_share: float
    tenants: list[Tenant]
    tenants_in_all: int


@dataclass(frozen=True, slots=True)
class WorkerNumbers:
    worker: str
    attempts: int
    succeeded: int
    lapsed: int
    crash_rate: float
    busy_s: float
    """From start to end, of attempts that ended. An end is the moment at which the store was told."""
    busy_share: float | None
    busy_slots: float | None
    """None where attempts were so short that most of their time went by until the store was told: busy for that long
    no slot was."""
    span_s: float
    """For how long it was seen: from its first start to its last end in each hour."""
    throughput: float
    """Succeeded a second, while it was seen."""
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class CapacityBucket:
    """Slots that were busy on average over the hour, on how many workers."""

    at: datetime
    busy_slots: float
    workers: int
    at_most: bool
    """Whether attempts were so short that this counts mostly the time until the store was told of their end."""


@dataclass(frozen=True, slots=True)
class Workers:
    workers: list[WorkerNumbers]
    workers_in_all: int
    capacity: list[CapacityBucket]


@dataclass(frozen=True, slots=True)
class Promise:
    """One objective of a queue and type. A burn rate of 1 uses the error budget up exactly."""

    queue: str
    type: str
    objective: str
    threshold_s: float
    target: float
    good: int
    total: int
    attainment: float
    burn_rate: float
    burn_rate_last_day: float | None
    kept: bool
    enough: bool
    """Whether there were attempts enough to say so. With too few, nothing is judged."""
    burning: bool
    """Kept, but over the last day the budget went too fast."""
    current: bool
    """Whether the last run judged by it; False for one that was changed since."""
    by_time: list[float | None]
    """Attainment in each of `Promises.times`; None where nothing ran."""
    enough_by_time: list[bool]


@dataclass(frozen=True, slots=True)
class Promises:
    source: str
    """Where the objectives are written, or that there are none but the defaults."""
    times: list[datetime]
    promises: list[Promise]
    promises_in_all: int


@dataclass(frozen=True, slots=True)
class Cell:
    weekday: int
    """0 is Monday."""
    hour: int
    arrivals: int
    weeks: int
    """How many weeks of the lake have this hour."""
    mean: float


@dataclass(frozen=True, slots=True)
class Arrivals:
    weeks: int
    cells: list[Cell]
    mean: float
    """Jobs an hour, over all hours that the lake has."""
    busiest: Cell | None


@dataclass(frozen=True, slots=True)
class CheckState:
    store_id: str
    check: str
    passed: bool
    expected: int
    found: int
    detail: str
    checked_at: datetime
    times_failed: int


@dataclass(frozen=True, slots=True)
class TableSize:
    name: str
    version: int | None
    rows: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Audit:
    passed: bool | None
    """What the last run's checks said; None if there were none."""
    batches: int
    checks: list[CheckState]
    rejects: int
    """All rows that were kept apart."""
    rejected_facts: int
    """Of these, facts of the store: only they are missing from the numbers."""
    tables: list[TableSize]


@dataclass(frozen=True, slots=True)
class Finding:
    """An answer to one of the questions that people open a report with."""

    key: str
    question: str
    verdict: str
    """good, watch, bad, or none where there is nothing to judge."""
    figure: str
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    lake: str
    lake_version: int
    stores: list[str]
    generated_at: datetime
    window: Window
    lag: Lag
    empty: str | None
    """Why there is nothing to show, if so."""
    rows: dict[str, int]
    """Of the lake as a whole: facts, attempts, jobs."""
    totals: Totals
    throughput: list[Bucket]
    latency: list[LatencyBucket]
    queues: list[QueueNumbers]
    types: list[TypeNumbers]
    types_in_all: int
    failures: Failures
    tenants: Tenants
    workers: Workers
    slo: Promises
    arrivals: Arrivals
    audit: Audit
    findings: list[Finding] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """As JSON has it."""
        found: dict[str, Any] = {"format": FORMAT, **_plain(asdict(self))}
        return found


def _plain(value: Any) -> Any:
    """Times as text; numbers without digits that mean nothing."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, date):  # a datetime is one too
        return value.isoformat()
    return round(value, 6) if isinstance(value, float) else value
