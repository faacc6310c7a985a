"""The jobs of one cluster sent back to be run again, at a pace that whatever failed can bear.

Which jobs those are is fixed at the start: one that fails again meanwhile is not taken again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import JobFilter
from taskharbor.drivers.opening import open_driver
from taskharbor.pipeline.store import EVERYTHING, Selection, open_store
from taskharbor.pipeline.triage import (
    ID_DIGITS,
    Progress,
    Triage,
    clustered,
    clusters_of,
    dead_letters,
    ready_session,
    tell_nobody,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_JOBS: Final = 500
_LEAST_DIGITS: Final = 4
_LISTED: Final = 10
_SAMPLE: Final = 10


@dataclass
class Redriven:
    """What a redrive did."""

    cluster: str
    size: int = 0
    """Of the cluster, when it was looked at."""
    chosen: int = 0
    """Of these, the ones to redrive: all, or as many as the limit allows."""
    redriven: int = 0
    gone: int = 0
    """Jobs that were not in the DLQ any more when their turn came."""
    seconds: float = 0.0
    dry_run: bool = False
    sample: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        return asdict(self)


def redrive_cluster(
    url: str,
    cluster: str,
    *,
    selection: Selection = EVERYTHING,
    rate: float | None = None,
    limit: int | None = None,
    reset_attempts: bool = False,
    dry_run: bool = False,
    spark: SparkSession | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    on_moved: Callable[[int, int], None] | None = None,
    progress: Progress | None = None,
) -> Redriven:
    """Redrive the jobs that are in the cluster now, the oldest id first, at most `rate` a second.

    Raises InvalidInput for a cluster that is not there, with a list of those that are.
    """
    with open_store(url) as store:
        _ = store.store_id  # a store that cannot be reached is heard of before Spark starts
    say = progress or tell_nobody
    say("starting Spark")
    session = ready_session(spark)
    say("reading the DLQ")
    name, found = _members(clustered(dead_letters(session, url, selection)), cluster.strip().lower())
    ids = found.slice(0, limit)
    sample = ids.slice(0, _SAMPLE).to_pylist()
    report = Redriven(name[:ID_DIGITS], len(found), len(ids), dry_run=dry_run, sample=sample)
    if dry_run:
        return report
    with closing(open_driver(url)) as driver:
        _move(driver, ids, report, rate, reset_attempts, clock, sleep, on_moved)
    return report


def _move(
    driver: Driver,
    ids: Any,
    report: Redriven,
    rate: float | None,
    reset_attempts: bool,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    on_moved: Callable[[int, int], None] | None,
) -> None:
    # With a rate, what a second may bring at a time; within it the jobs become due one after the other.
    size = BATCH_JOBS if rate is None else max(1, min(BATCH_JOBS, int(rate)))
    began = clock()
    for at in range(0, len(ids), size):
        if rate is not None:
            wait_s = began + at / rate - clock()
            if wait_s > 0:
                sleep(wait_s)
        part: Sequence[str] = ids.slice(at, size).to_pylist()
        moved = driver.redrive(JobFilter(ids=part), rate=rate, reset_attempts=reset_attempts)
        report.redriven += len(moved)
        report.gone += len(part) - len(moved)
        if on_moved is not None:
            on_moved(len(part), len(ids))
    report.seconds = round(clock() - began, 3)


def _members(rows: DataFrame, name: str) -> tuple[str, Any]:
    """The cluster's whole name, and its ids as they are now: one Arrow array, however many there are."""
    from pyspark.sql import functions as F

    if len(name) < _LEAST_DIGITS or not set(name) <= set("0123456789abcdef"):
        raise _unknown(name, clusters_of(rows))
    wanted = rows.where(F.col("cluster").startswith(name)).select("id", "cluster").orderBy("id")
    found = wanted.toArrow()
    names = sorted(set(found["cluster"].unique().to_pylist()))
    if not names:
        raise _unknown(name, clusters_of(rows))
    if len(names) > 1:
        raise InvalidInput(f"{name} may be {' or '.join(names)}: write more of it")
    return names[0], found["id"]


def _unknown(name: str, found: Triage) -> InvalidInput:
    if not found.clusters:
        return InvalidInput(f"there is no cluster {name!r}: no dead job is left to look at")
    listed = ", ".join(f"{each.id} ({each.size:,} {each.error_class or 'jobs'})" for each in found.clusters[:_LISTED])
    more = f" and {found.clusters_in_all - _LISTED:,} more" if found.clusters_in_all > _LISTED else ""
    return InvalidInput(f"there is no cluster {name!r}: there is {listed}{more}")
