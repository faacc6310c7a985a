"""Runs and loads of which tasks and executors are lost, or run twice: the counts are exact all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.clusters import LOCAL, two_hosts
from tests.pipeline.exact import assert_exact, feed, rows_of
from tests.pipeline.lives import live

from taskharbor.drivers import open_driver
from taskharbor.pipeline import run
from taskharbor.pipeline.audit import audit_lake
from taskharbor.pipeline.lake import Lake

HERE = Path(__file__).parents[2]
PATIENCE_S = 400
LOADED = 300

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    place = tmp_path / "marks"
    place.mkdir()
    return place


@pytest.fixture
def stores(postgres: Any) -> Iterator[tuple[Any, str, Any, str]]:
    """One store with a history, and an empty one."""
    urls = postgres.create_database(), postgres.create_database()
    with open_driver(urls[0]) as full, open_driver(urls[1]) as empty:
        for driver in (full, empty):
            driver.migrate()
        live(full, rounds=5)
        yield full, urls[0], empty, urls[1]


def program(master: str, fault: str, marks: Path, *places: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tests.pipeline.faulty_lake", master, fault, str(marks), *places]
    path = os.pathsep.join([str(HERE), str(HERE / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        words,
        cwd=marks,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("fault", ["task fails", "executor dies", "task is slow"])
def test_what_is_lost_on_executors_is_neither_missing_nor_double_in_lake_and_store(
    spark: Any, stores: tuple[Any, str, Any, str], tmp_path: Path, marks: Path, fault: str
) -> None:
    full, url, empty, empty_url = stores
    lake = tmp_path / "lake"
    cluster = {
        "task fails": nullcontext("local[2,3]"),
        "executor dies": nullcontext(LOCAL),
        "task is slow": two_hosts(tmp_path),  # which is run twice, because speculation is on
    }[fault]
    with cluster as master:
        done = program(master, fault, marks, url, str(lake), empty_url)
    assert done.returncode == 0, done.stderr[-3000:]
    # Not by the number of the attempt: where a lost executor takes its shuffle along, the stage begins anew, at 0.
    assert len(list((marks / "run").glob("p0-*"))) >= 2
    assert (marks / "load" / "0" / "attempt-1").exists()
    assert (marks / "run" / "struck again").exists() == (fault == "executor dies")
    assert_exact(full, lake)
    # Files that an attempt wrote in vain lie there still, and belong to no table.
    written = list((lake / "bronze" / "history").rglob("*.parquet"))
    assert len(rows_of(lake, "bronze/history")) == len(feed(full))
    assert len(written) >= 4
    assert empty.counts()["ready"] == LOADED
    assert len({job.payload for job in _all_jobs(empty)}) == LOADED
    live(full, rounds=1, first=5)
    run(url, lake, spark=spark)
    assert_exact(full, lake)
    assert all(check.passed for check in audit_lake(spark, Lake(lake)))


def _all_jobs(driver: Any) -> list[Any]:
    return list(driver.list(limit=500).jobs)
