"""Killed anywhere, a run is finished by the next one: nothing is lost and nothing doubled."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from tests.pipeline.exact import assert_exact, feed, rows_of, versions
from tests.pipeline.lives import live

from taskharbor.core.contract import Driver
from taskharbor.core.errors import StoreUnavailable
from taskharbor.drivers import open_driver
from taskharbor.pipeline import delta, run
from taskharbor.pipeline.lake_schemas import TABLES
from taskharbor.testing.servers import postgres_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = [(when, table) for table in TABLES for when in ("before", "after") if table != "silver/rejects"]


class Killed(BaseException):
    """As if the process had ended here: nothing catches it on its way."""


@pytest.mark.timeout(900)
def test_a_run_killed_at_any_commit_is_finished_by_the_next_one(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(sqlite_driver)
    run(sqlite_url, tmp_path / "start", spark=spark)
    live(sqlite_driver, first=1)
    for when, table in POINTS:
        lake = tmp_path / "lake"
        shutil.copytree(tmp_path / "start", lake)

        def die(now: str, name: str, batch: int, point: tuple[str, str] = (when, table)) -> None:
            if (now, name) == point:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(delta, "commit_point", die)
            with pytest.raises(Killed):
                run(sqlite_url, lake, spark=spark)
        run(sqlite_url, lake, spark=spark)
        assert_exact(sqlite_driver, lake)
        assert len({row["batch"] for row in rows_of(lake, "gold/audit")}) == 2, (when, table)
        shutil.rmtree(lake)


@pytest.mark.process
@pytest.mark.parametrize("point", [("after", "bronze/history"), ("before", "gold/latency")])
def test_a_driver_process_that_is_gone_at_once_leaves_a_lake_that_goes_on(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, point: tuple[str, str]
) -> None:
    live(sqlite_driver, rounds=2)
    script = f"""
import os
from taskharbor.pipeline import delta, run, session
def die(when, table, batch):
    if (when, table) == {point!r}:
        os._exit(9)
delta.commit_point = die
run({sqlite_url!r}, {str(tmp_path / "lake")!r}, spark=session("local[1]"))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 9, ended.stderr
    report = run(sqlite_url, tmp_path / "lake", spark=spark)
    assert report.recovered
    assert_exact(sqlite_driver, tmp_path / "lake")


def test_a_history_row_that_is_committed_late_is_not_lost(
    spark: SparkSession, postgres: object, tmp_path: Path
) -> None:
    url = postgres.create_database()  # type: ignore[attr-defined]
    driver = open_driver(url)
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
        run(url, tmp_path / "lake", spark=spark)
        assert "late" not in {row["job_id"] for row in rows_of(tmp_path / "lake", "bronze/history")}
        late.commit()
    # Whatever else runs on the server holds the feed back, but not for long.
    for _ in range(100):
        run(url, tmp_path / "lake", spark=spark)
        if len(rows_of(tmp_path / "lake", "bronze/history")) == len(feed(driver)):
            break
        time.sleep(0.1)
    assert "late" in {row["job_id"] for row in rows_of(tmp_path / "lake", "silver/jobs")}
    assert_exact(driver, tmp_path / "lake")
    driver.close()


@pytest.mark.server
def test_a_store_that_was_restarted_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    with postgres_server(fast=True) as server:
        url = server.create_database()
        driver = open_driver(url)
        driver.migrate()
        live(driver)
        run(url, tmp_path / "lake", spark=spark)
        before = versions(tmp_path / "lake")
        server.stop()
        with pytest.raises(StoreUnavailable):
            run(url, tmp_path / "lake", spark=spark)
        assert versions(tmp_path / "lake") == before
        server.start()
        driver.close()
        driver = open_driver(url)
        live(driver, first=1)
        run(url, tmp_path / "lake", spark=spark)
        assert_exact(driver, tmp_path / "lake")
        driver.close()
