"""Whatever fails on the way, and wherever, a load makes each job once."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.faulty import orders

from taskharbor.core.clock import utc_now
from taskharbor.drivers import open_driver
from taskharbor.pipeline.loading import load, sweep

COUNT = 300
HERE = Path(__file__).parents[2]
PATIENCE_S = 400
"""A run takes some ten seconds, on a machine that has nothing else to do."""

pytestmark = [pytest.mark.process, pytest.mark.slow]


def run(master: str, fault: str, marks: Path, key: str, *urls: str) -> subprocess.CompletedProcess[str]:
    for url in urls:
        with open_driver(url) as driver:  # type: ignore[attr-defined]
            driver.migrate()
    words = [sys.executable, "-m", "tests.pipeline.faulty", master, str(COUNT), fault, str(marks), key, *urls]
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


def total(url: str) -> int:
    with open_driver(url) as driver:  # type: ignore[attr-defined]
        return sum(sum(statuses.values()) for statuses in driver.counts().queues.values())


def again(spark: SparkSession, url: str, key: str = "-") -> tuple[int, int]:
    """Run the whole batch once more: how many jobs that made, and how many were there."""
    frame = orders(spark, COUNT)
    report = load(frame.select("payload"), url, type="t") if key == "-" else load(frame, url, type="t", key=key)
    assert report.rejected == 0
    return report.published, report.duplicates


def test_a_task_that_failed_after_its_insert_is_retried_and_counts_once(
    spark: SparkSession, postgres: Any, mysql: Any, tmp_path: Path
) -> None:
    files = [f"json:///{tmp_path / 'store'}", f"sqlite:///{tmp_path / 'jobs.db'}"]
    urls = [postgres.create_database(), mysql.create_database(), *files]
    done = run("local[2,3]", "task fails", tmp_path, "-", *urls)
    assert done.returncode == 0, done.stderr[-2000:]
    for number, url in enumerate(urls):
        assert (tmp_path / str(number) / "task fails-1").exists()
        assert total(url) == COUNT
        assert again(spark, url) == (0, COUNT)
        assert total(url) == COUNT


def test_a_killed_driver_loses_nothing_and_doubles_nothing(spark: SparkSession, postgres: Any, tmp_path: Path) -> None:
    """Killed for real, before its publish; `test_load_faults_points` has every other point."""
    url = postgres.create_database()
    done = run("local[2]", "killed before publish", tmp_path, "order", url)
    assert done.returncode != 0
    assert (tmp_path / "0" / "killed").exists()
    assert total(url) == 0
    assert again(spark, url, "order") == (COUNT, 0)
    assert total(url) == COUNT
    assert sweep(url, utc_now() + timedelta(hours=1)) == COUNT
    assert total(url) == COUNT
