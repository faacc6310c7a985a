"""Streams of history in and of jobs out, killed and started again from their checkpoints: each fact once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.pipeline.exact import feed
from tests.pipeline.lives import live

from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver
from taskharbor.pipeline import schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parents[2]
PATIENCE_S = 120.0


def eventually(look: Callable[[], Any], what: str) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < ends, f"{what} did not happen in {PATIENCE_S:.0f} s"
        time.sleep(0.02)


def finish(spark: SparkSession, source: str, place: Path, target: str | None = None) -> None:
    """Take in what is there now, from where the checkpoint says that the last one ended."""
    read = spark.readStream.format("taskharbor").options(url=source, table="history", maxRowsPerBatch=200).load()
    if target is None:
        writing = read.writeStream.format("parquet").option("path", str(place / "out"))
        writing = writing.option("checkpointLocation", str(place / "out-checkpoint"))
    else:
        jobs = read.selectExpr("to_json(struct(position)) AS payload")
        writing = jobs.writeStream.format("taskharbor").options(url=target, type="t", queue="s")
        writing = writing.option("checkpointLocation", str(place / "checkpoint"))
    query = writing.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)


def positions_in_files(spark: SparkSession, place: Path) -> list[str]:
    found = spark.read.schema(schemas.FEED).parquet(str(place / "out"))
    return sorted(row["position"] for row in found.select("position").collect())


def positions_in_jobs(driver: Driver) -> list[str]:
    found, cursor = [], None
    while True:
        page = driver.list(cursor=cursor, limit=500)
        found += [json.loads(job.payload)["position"] for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            return sorted(found)


def positions(driver: Driver) -> list[str]:
    return sorted(row.position for row in feed(driver))


@pytest.mark.process
@pytest.mark.slow
def test_streams_that_are_killed_go_on_from_their_checkpoints(
    spark: SparkSession, postgres: Any, tmp_path: Path
) -> None:
    source, target = postgres.create_database(), postgres.create_database()
    path = os.pathsep.join([str(HERE), str(HERE / "src"), os.environ.get("PYTHONPATH", "")])
    with open_driver(source) as origin, open_driver(target) as goal:
        for driver in (origin, goal):
            driver.migrate()
        live(origin, rounds=8)
        names = ("checkpoint", "out", "out-checkpoint")
        places = [str(tmp_path / name) for name in names]
        errors = tmp_path / "errors.txt"
        with errors.open("w") as told:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.following", source, target, *places],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": path},
                stderr=told,
                start_new_session=True,
            )
        try:
            begun = [tmp_path / name / "commits" / "1" for name in ("checkpoint", "out-checkpoint")]
            eventually(
                lambda: process.poll() is not None or all(each.exists() for each in begun), "two batches of each stream"
            )
            assert process.poll() is None, errors.read_text()[-3000:]
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the session that was started for it: the driver and its Java
            process.wait()
        assert len(positions_in_jobs(goal)) < len(positions(origin))
        live(origin, rounds=2, first=8)
        finish(spark, source, tmp_path, target)
        finish(spark, source, tmp_path)
        assert positions_in_jobs(goal) == positions(origin)
        assert positions_in_files(spark, tmp_path) == positions(origin)
        # And once more, with nothing new.
        finish(spark, source, tmp_path, target)
        assert positions_in_jobs(goal) == positions(origin)


def test_a_fact_that_is_committed_late_comes_with_a_later_batch_of_the_stream(
    spark: SparkSession, postgres: Any, tmp_path: Path
) -> None:
    url = postgres.create_database()
    with open_driver(url) as driver:
        driver.migrate()
        live(driver)
        columns = "at, due_at, claimed_at, started_at, created_at, priority, attempt_no, delivery, max_attempts, final"
        more = "type, queue, tenant_id, outcome, status, lease_owner, payload"
        with psycopg.connect(url) as late:
            late.execute(
                f"INSERT INTO th_history ({columns}, {more}, job_id, lease_token) "
                f"SELECT {columns}, {more}, 'late', '\\x00ff' FROM th_history "
                "WHERE final AND attempt_no = 1 AND delivery = 1 LIMIT 1"
            )
            live(driver, first=1)
            finish(spark, url, tmp_path)
            seen = len(positions_in_files(spark, tmp_path))
            late.commit()

        def all_there() -> bool:
            finish(spark, url, tmp_path)
            return len(positions_in_files(spark, tmp_path)) == len(feed(driver))

        eventually(all_there, "the rest of the feed")
        assert seen < len(feed(driver))
        assert positions_in_files(spark, tmp_path) == positions(driver)
        assert "late" in {row.job_id for row in feed(driver)}
