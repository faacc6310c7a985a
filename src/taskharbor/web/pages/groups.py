"""Dead letters by what killed them: those whose errors differ only in details are one group."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from taskharbor.core.contract import Driver
from taskharbor.core.fingerprints import error_class, fingerprint_of_dead
from taskharbor.core.model import Job, JobFilter, Reason, Status

MOST_SCANNED: Final = 20_000
"""Dead letters that are looked at, the newest."""
LONGEST_S: Final = 5.0
MOST_BYTES: Final = 256 * 1024 * 1024
"""Of payloads that come with them; and so much at once:"""
_PAGE_BYTES: Final = 16 * 1024 * 1024
_LEAST_PAGE, _MOST_PAGE = 20, 1_000
KEPT_S: Final = 4.0
MOST_KEPT: Final = 50


@dataclass(slots=True)
class Group:
    fingerprint: str
    error_class: str | None
    example: Job
    """The newest."""
    first_seen: datetime
    last_seen: datetime
    ids: list[str] = field(default_factory=list)
    """The newest first."""
    codes: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    queues: Counter[str] = field(default_factory=Counter)
    tenants: Counter[str] = field(default_factory=Counter)

    def add(self, job: Job) -> None:
        died = job.dlq_failed_at or job.updated_at
        self.first_seen, self.last_seen = min(self.first_seen, died), max(self.last_seen, died)
        self.ids.append(job.id)
        self.codes[job.dlq_code or ""] += 1
        self.types[job.type] += 1
        self.queues[job.queue] += 1
        self.tenants[job.tenant_id] += 1

    @property
    def count(self) -> int:
        return len(self.ids)

    @property
    def error(self) -> str:
        return self.example.dlq_reason or self.example.last_error


@dataclass(frozen=True, slots=True)
class Grouped:
    groups: Sequence[Group]
    """The largest first."""
    scanned: int
    complete: bool
    """Whether these are all there are."""

    def get(self, fingerprint: str) -> Group | None:
        return next((group for group in self.groups if group.fingerprint == fingerprint), None)


def grouped(driver: Driver, chosen: JobFilter, *, monotonic: Callable[[], float] = time.monotonic) -> Grouped:
    """The newest dead letters that match, as far as bounds of number, size and time allow."""
    deadline = monotonic() + LONGEST_S
    groups: dict[str, Group] = {}
    scanned = weight = 0
    cursor: str | None = None
    limit = 100
    while True:
        page = driver.list(chosen, cursor, min(limit, MOST_SCANNED - scanned))
        for job in page.jobs:
            _place(groups, job)
            weight += len(job.payload)
        scanned += len(page.jobs)
        cursor = page.cursor
        if cursor is None:
            break
        if scanned >= MOST_SCANNED or weight >= MOST_BYTES or monotonic() >= deadline:
            break
        limit = max(_LEAST_PAGE, min(_MOST_PAGE, _PAGE_BYTES * scanned // max(weight, 1)))
    ordered = sorted(groups.values(), key=lambda group: (-group.count, group.fingerprint))
    return Grouped(ordered, scanned, cursor is None)


def _place(groups: dict[str, Group], job: Job) -> None:
    error = job.dlq_reason or job.last_error
    key = fingerprint_of_dead(error, job.dlq_code)
    group = groups.get(key)
    if group is None:
        died = job.dlq_failed_at or job.updated_at
        kind = error_class(error, lapsed=job.dlq_code == Reason.CRASH_LOOP)
        group = groups[key] = Group(key, kind, job, died, died)
    group.add(job)


class Groups:
    """Remembers the last answers for a few seconds, and makes each once at a time."""

    def __init__(self, driver: Driver, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._driver = driver
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[tuple[str | None, str, str], tuple[float, Grouped]] = {}

    def read(self, tenant: str | None, queue: str = "", type: str = "", *, fresh: bool = False) -> Grouped:
        key = (tenant, queue, type)
        with self._lock:
            known = self._known.get(key)
            if known is not None and not fresh and self._monotonic() - known[0] < KEPT_S:
                return known[1]
            chosen = JobFilter(status=Status.DLQ, tenant_id=tenant, queue=queue or None, type=type or None)
            found = grouped(self._driver, chosen, monotonic=self._monotonic)
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[key] = self._monotonic(), found
            return found

    def forget(self) -> None:
        """Something was sent back: what is known is no longer true."""
        with self._lock:
            self._known.clear()
