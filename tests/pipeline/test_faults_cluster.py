"""Runs and loads of which tasks and executors are lost, or run twice: the counts are exact all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.clusters import two_hosts
from tests.pipeline.exact import assert_exact, feed, rows_of
from tests.pipeline.faulty_lake import FAULTS
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
def stores(postgres: Any) -> Iterator[list[tuple[Any, str, Any, str]]]:
    """For each fault one store with a history, and an empty one."""
    with ExitStack() as opened:
        found = []
        for _ in FAULTS:
            urls = postgres.create_database(), postgres.create_database()
            full, empty = (opened.enter_context(open_driver(url)) for url in urls)  # type: ignore[attr-defined]
            for driver in (full, empty):
                driver.migrate()
            live(full, rounds=5)
            found.append((full, urls[0], empty, urls[1]))
        yield found


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
    spark: Any, stores: list[tuple[Any, str, Any, str]], tmp_path: Path
) -> None:
    lakes = [tmp_path / f"lake of {fault}" for fault in FAULTS]
    places = [
        place
        for (_, url, _, empty_url), lake in zip(stores, lakes, strict=True)
        for place in (url, str(lake), empty_url)
    ]
    with two_hosts(tmp_path) as master:
        done = program(master, tmp_path, *places)
    assert done.returncode == 0, done.stderr[-3000:]
    for fault, lake, (full, url, empty, _) in zip(FAULTS, lakes, stores, strict=True):
        marks = tmp_path / fault
        # Not by the number of the attempt: where a lost executor takes its shuffle along, the stage begins anew, at 0.
        assert len(list((marks / "run").glob("p0-*"))) >= 2, fault
        assert (marks / "load" / "0" / "attempt-1").exists(), fault
        assert (marks / "run" / "struck again").exists() == (fault == "executor dies")
        assert_exact(full, lake)
        # Files that an attempt wrote in vain lie there still, and belong to no table.
        written = list((lake / "bronze" / "history").rglob("*.parquet"))
        assert len(rows_of(lake, "bronze/history")) == len(feed(full))
        assert len(written) >= 4
        assert empty.counts()["ready"] == LOADED
        assert len({job.payload for job in empty.list(limit=500).jobs}) == LOADED
        live(full, rounds=1, first=5)
        run(url, lake, spark=spark)
        assert_exact(full, lake)
        assert all(check.passed for check in audit_lake(spark, Lake(lake)))
