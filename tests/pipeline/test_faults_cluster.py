"""Runs and loads of which tasks and executors are lost, or run twice: the counts are exact all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.clusters import two_hosts
from tests.pipeline.exact import assert_exact, feed, rows_of
from tests.pipeline.faulty import FAULTS
from tests.pipeline.lives import live

from taskharbor.drivers import open_driver
from taskharbor.pipeline import run
from taskharbor.pipeline.audit import audit_lake
from taskharbor.pipeline.lake import Lake

HERE = Path(__file__).parents[2]
PATIENCE_S = 400
LOADED = 300

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]


def program(master: str, marks: Path, *places: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tests.pipeline.faulty_lake", master, str(marks), *places]
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


def test_what_is_lost_on_executors_is_neither_missing_nor_double_in_lake_and_store(
    spark: Any, postgres: Any, tmp_path: Path
) -> None:
    """A task that fails, an executor that dies and a task that is run twice, all in one run and again in one load."""
    url, empty_url, lake = postgres.create_database(), postgres.create_database(), tmp_path / "lake"
    with open_driver(url) as full, open_driver(empty_url) as empty:
        for driver in (full, empty):
            driver.migrate()
        live(full, rounds=5)
        with two_hosts(tmp_path) as master:
            done = program(master, tmp_path, url, str(lake), empty_url)
        assert done.returncode == 0, done.stderr[-3000:]
        for fault in FAULTS:
            assert len(list((tmp_path / "run").glob(f"{fault}-*"))) >= 2, fault
            assert (tmp_path / "load" / "0" / f"{fault}-1").exists(), fault
        assert (tmp_path / "run" / "struck again").exists()
        assert_exact(full, lake)
        # Files that an attempt wrote in vain lie there still, and belong to no table.
        written = list((lake / "bronze" / "history").rglob("*.parquet"))
        assert len(rows_of(lake, "bronze/history")) == len(feed(full))
        assert len(written) >= 4 + len(FAULTS)
        assert empty.counts()["ready"] == LOADED
        assert len({job.payload for job in empty.list(limit=500).jobs}) == LOADED
        live(full, rounds=1, first=5)
        run(url, lake, spark=spark)
        assert_exact(full, lake)
        assert all(check.passed for check in audit_lake(spark, Lake(lake)))
