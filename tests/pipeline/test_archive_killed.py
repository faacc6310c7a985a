"""An archive whose process is gone at once, for real: nothing is lost, and the next one finishes it."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.archiving import LATER, finished, grow, lives_of, manifests_of
from tests.pipeline.exact import feed, rows_of

from taskharbor.drivers import open_driver
from taskharbor.pipeline import run
from taskharbor.pipeline.archive import archive
from taskharbor.pipeline.audit import audit_lake
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.restore import restore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MONTH = timedelta(days=30)
SCRIPT = """
import os, signal, sys
from datetime import datetime, timedelta
from taskharbor.pipeline import archive as module, session
from taskharbor.pipeline.archive import archive
url, lake, now, point = sys.argv[1:]
def die(name):
    if name == point:
        os.kill(os.getpid(), signal.SIGKILL)
module.archive_point = die
spark = session("local[1]", **{"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "512m"})
archive(url, lake, older_than=timedelta(days=30), spark=spark, now=datetime.fromisoformat(now), batch=3)
"""


@pytest.mark.process
@pytest.mark.timeout(300)
def test_an_archive_that_is_killed_loses_nothing(spark: SparkSession, postgres: object, tmp_path: Path) -> None:
    url = postgres.create_database()  # type: ignore[attr-defined]
    driver = open_driver(url)
    driver.migrate()
    grow(driver)
    lake = tmp_path / "lake"
    run(url, lake, spark=spark)
    old = {id for id, job in finished(driver).items() if job.completed_at and job.completed_at < LATER - MONTH}
    before, facts = lives_of(driver, list(old)), len(feed(driver))
    words = [sys.executable, "-c", SCRIPT, url, str(lake), LATER.isoformat(), "pruned"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left = old & set(finished(driver))
    assert len(old - left) == 3
    assert [each["state"] for each in manifests_of(lake)] == ["pruning"]
    report = archive(url, lake, older_than=MONTH, spark=spark, now=LATER)
    assert (len(report.finished), report.pruned) == (1, len(left))
    assert not old & set(finished(driver))
    assert [each["state"] for each in manifests_of(lake)] == ["done"]
    restore(url, lake, ids=sorted(old), spark=spark)
    assert lives_of(driver, list(old)) == before
    assert len(feed(driver)) == facts == len(rows_of(lake, "bronze/history"))
    assert all(check.passed for check in audit_lake(spark, Lake(lake)))
    driver.close()
