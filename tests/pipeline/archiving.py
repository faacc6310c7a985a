"""What the tests of the archive share: a store with a past, and a look at everything it knows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from tests.pipeline.lives import NOON, live

from taskharbor.core.contract import Driver
from taskharbor.core.model import Attempt, Job, Status
from taskharbor.pipeline import delta
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import BRONZE_HISTORY

DAY = timedelta(days=1)
LATER = NOON + 40 * DAY
"""When the archive looks: what happened around NOON is forty days old."""
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
