"""What the tests of the archive share: a store with a past, and a look at everything it knows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from tests.pipeline.exact import feed
from tests.pipeline.lives import NOON, live

from taskharbor.core.contract import Driver
from taskharbor.core.model import Attempt, Job, Status
from taskharbor.pipeline import delta
from taskharbor.pipeline.archive import ArchiveReport, archive
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import BRONZE_HISTORY
from taskharbor.pipeline.store import open_store
from taskharbor.worker.keeping import Vouched, archived_until, identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = timedelta(days=1)
LATER = NOON + 40 * DAY
"""When the archive looks: what happened around NOON is forty days old."""
MONTH = 30 * DAY
FINAL = (Status.DONE, Status.EXPIRED, Status.CANCELLED)


def finished(driver: Driver) -> dict[str, Job]:
    """Every finished job by its id."""
    return {job.id: job for job in driver.list(limit=1000).jobs if job.status in FINAL}


def lives_of(driver: Driver, ids: list[str]) -> dict[str, tuple[Job, list[Attempt]]]:
    """Each job with its attempts, as `jobs show` has them, without the lease tokens: the lake does not keep those."""
    return {id: (driver.get(id), [replace(each, lease_token="") for each in driver.attempts(id)]) for id in ids}


def grow(driver: Driver, rounds: int = 2) -> None:
    """Jobs of every fate on the day of NOON, and some on the day before LATER."""
    live(driver, rounds=rounds)
    live(driver, rounds=1, first=24 * 39)


def archive_old(spark: SparkSession, driver: Driver, url: str, lake: Path) -> ArchiveReport:
    """Archive what is older than a month: exactly that goes, and what is said of it is true."""
    jobs = finished(driver)
    old = {id for id, job in jobs.items() if job.completed_at and job.completed_at < LATER - MONTH}
    rest = {job.id for job in driver.list(limit=1000).jobs} - old
    facts = [fact for fact in feed(driver) if fact.job_id in old]
    report = archive(url, lake, older_than=MONTH, spark=spark, now=LATER, batch=3)
    assert (report.jobs, report.pruned, report.rows, report.left) == (len(old), len(old), len(facts), 0)
    assert {job.id for job in driver.list(limit=1000).jobs} == rest
    assert not old & {fact.job_id for fact in feed(driver)}
    [manifest] = manifests_of(lake)
    assert (manifest["state"], manifest["jobs"], manifest["pruned"]) == ("done", len(old), len(old))
    assert sum(day["store"]["rows"] for day in manifest["slices"]) == len(facts) == manifest["rows"]
    assert all(day["store"] == day["lake"] for day in manifest["slices"])
    assert (manifest["first"], manifest["last"]) == (facts[0].position, facts[-1].position)
    with open_store(url) as store:
        upto = store.frontier()
        assert mark_of(lake) == {store.store_id: {"before": (LATER - MONTH).isoformat(), "upto": upto}}
    assert archived_until(str(lake), identity(driver)) == Vouched(LATER - MONTH, upto)  # as workers read it
    return report


def mark_of(lake: Path) -> dict[str, dict[str, str]]:
    path = lake / "_taskharbor" / "archived.json"
    found: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def manifests_of(lake: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((lake / "_taskharbor" / "manifests").glob("*.json"))]


def rewrite_bronze(place: Path, change: Any) -> None:
    """Change the rows of the first file of bronze behind the lake's back."""
    lake = Lake(place)
    files = delta.files_of(delta.open_table(lake, BRONZE_HISTORY), BRONZE_HISTORY)
    path = lake.path(BRONZE_HISTORY) / min(files, key=lambda each: each.path).path
    table = pq.ParquetFile(path).read()
    rows = change(table.to_pylist())
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)


def bronze_count(place: Path) -> int:
    return int(DeltaTable(str(place / "bronze/history")).to_pyarrow_table().num_rows)
