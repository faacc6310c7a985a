"""Runs: everything of the feed in every layer, once, whatever the store and however it is cut into batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.exact import assert_exact, feed, rows_of, versions
from tests.pipeline.lives import MINUTE, NOON, live
from tests.pipeline.pasts import Pasts

from taskharbor.cli import main
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import JobFilter, Settlement
from taskharbor.pipeline import follow, run
from taskharbor.pipeline.audit import audit_lake
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lock import LakeLock, LakeLocked
from taskharbor.pipeline.runs import RunReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_everything_arrives_once_in_every_layer_and_again_with_the_next_run(
    spark: SparkSession, driver: Driver, store_url: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    live(driver, rounds=2)
    first = run(store_url, lake, spark=spark)
    assert first.rows == len(feed(driver))
    assert_exact(driver, lake)
    live(driver, rounds=2, first=2)
    second = run(store_url, lake, spark=spark)
    assert (second.last_batch, first.rows + second.rows) == (2, len(feed(driver)))
    assert_exact(driver, lake)
    assert all(check.passed for check in audit_lake(spark, Lake(lake)))


def test_a_run_with_nothing_new_changes_nothing(spark: SparkSession, past: Pasts) -> None:
    _driver, url, lake = past(live)
    before = versions(lake)
    assert run(url, lake, spark=spark).batches == 0
    assert versions(lake) == before


def test_an_empty_store_makes_an_empty_lake(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    assert run(sqlite_url, tmp_path / "lake", spark=spark).batches == 0
    assert rows_of(tmp_path / "lake", "gold/throughput") == []


def test_small_batches_add_up_to_the_same(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    live(sqlite_driver, rounds=2)
    report = run(sqlite_url, tmp_path / "lake", spark=spark, max_rows=7)
    assert report.batches == -(-len(feed(sqlite_driver)) // 7)
    assert_exact(sqlite_driver, tmp_path / "lake")


def test_a_dead_job_that_is_redriven_and_succeeds_stays_one_row(spark: SparkSession, past: Pasts) -> None:
    driver, url, lake = past(live)
    dead = [row for row in rows_of(lake, "silver/jobs") if row["state"] == "dead"]
    assert len(dead) == 1
    driver.redrive(JobFilter(status="dlq"), now=NOON + 60 * MINUTE)
    for item in driver.reserve("mail", now=NOON + 90 * MINUTE, lease_for=600, limit=20, owner="w-3"):
        driver.settle([Settlement.ack(item.job.id, item.lease.token)], now=NOON + 91 * MINUTE)
    run(url, lake, spark=spark)
    assert_exact(driver, lake)
    (row,) = [row for row in rows_of(lake, "silver/jobs") if row["job_id"] == dead[0]["job_id"]]
    assert (row["state"], row["status"], row["attempts"]) == ("final", "done", 2)


def test_two_stores_share_a_lake_and_stay_apart(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    from taskharbor.drivers import open_driver

    other_url = f"sqlite:///{tmp_path / 'other.db'}"
    with open_driver(other_url) as other:  # type: ignore[attr-defined]
        other.migrate()
        live(other, rounds=2)
        live(sqlite_driver)
        for url in (sqlite_url, other_url, sqlite_url):
            run(url, tmp_path / "lake", spark=spark)
        assert len(rows_of(tmp_path / "lake", "bronze/history")) == len(feed(other)) + len(feed(sqlite_driver))
        assert len({row["store_id"] for row in rows_of(tmp_path / "lake", "gold/tenants")}) == 2


def test_two_runs_at_once_refuse_each_other(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    with LakeLock(Lake(tmp_path / "lake")), pytest.raises(LakeLocked, match="is being written by process"):
        run(sqlite_url, tmp_path / "lake", spark=spark)
    run(sqlite_url, tmp_path / "lake", spark=spark)


def test_following_takes_in_what_comes_until_it_is_told_to_stop(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    live(sqlite_driver)
    heard: list[RunReport] = []

    def on_report(report: RunReport) -> bool:
        heard.append(report)
        if len(heard) == 1:
            live(sqlite_driver, first=1)
        return len(heard) == 2

    follow(sqlite_url, tmp_path / "lake", spark=spark, every_s=0.01, on_report=on_report)
    assert [report.last_batch for report in heard] == [1, 2]
    assert_exact(sqlite_driver, tmp_path / "lake")


def test_a_batch_of_no_rows_is_refused(sqlite_driver: Driver, sqlite_url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="max_rows"):
        run(sqlite_url, tmp_path / "lake", max_rows=0)


def test_status_tells_the_lag_and_the_last_run(
    spark: SparkSession, past: Pasts, capsys: pytest.CaptureFixture[str]
) -> None:
    driver, url, lake = past(live)
    live(driver, first=1)
    words = ["--url", url, "pipeline", "status", "--lake", str(lake)]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lag"]["rows"] == len(feed(driver)) - found["last_run"]["rows"]
    assert found["lag"]["last_batch"] == 1
    assert {each["name"]: each["rows"] for each in found["tables"]}["bronze/history"] == found["last_run"]["rows"]
    assert all(check["passed"] for check in found["last_run"]["checks"])
    assert main(words) == 0
    assert "one settle per lease" in capsys.readouterr().out


def test_status_of_a_store_that_does_not_answer_fails_and_shows_the_lake(
    past: Pasts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, lake = past(live)
    words = ["--url", f"sqlite:///{tmp_path}/none.db", "pipeline", "status", "--lake", str(lake)]
    assert main(words) == 1
    assert "bronze/history" in capsys.readouterr().out
    assert main([*words, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["lag"] is None
    assert "none.db" in found["lag_problem"]


@pytest.mark.parametrize(
    ("master", "asked", "niceness"), [("local[2]", 10, 10), ("local", 0, 0), ("local[*]", 19, 19), ("yarn", 10, 0)]
)
def test_spark_on_this_machine_gives_way_as_far_as_asked(master: str, asked: int, niceness: int) -> None:
    """In a process of its own, which does not come back from where it went."""
    code = f"""if True:
        import argparse, os
        from taskharbor.cli.pipeline_options import give_way
        give_way(argparse.Namespace(master={master!r}, nice={asked}))
        print(os.nice(0))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == max(niceness, os.nice(0))


@pytest.mark.parametrize("text", ["20", "-1", "a lot"])
def test_other_niceness_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run", f"--nice={text}"]) == 2
    assert "from 0" in capsys.readouterr().err


def test_status_of_no_lake_is_a_clear_error(
    sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--url", sqlite_url, "pipeline", "status", "--lake", str(tmp_path / "none")]) == 1
    assert "there is no lake at" in capsys.readouterr().err


def test_the_command_runs_with_the_lake_of_the_environment(
    spark: SparkSession,
    sqlite_driver: Driver,
    sqlite_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live(sqlite_driver)
    monkeypatch.setenv("TASKHARBOR_LAKE", str(tmp_path / "lake"))
    given_away: list[int] = []  # this process does not come back from where it went
    monkeypatch.setattr(os, "nice", lambda more: given_away.append(more) or 3)
    assert main(["--url", sqlite_url, "pipeline", "run", "--json", "--master", "local[1]"]) == 0
    assert given_away == [0, 7], "from 3, where it was, to 10"
    said = capsys.readouterr()
    assert json.loads(said.out)["rows"] == len(feed(sqlite_driver))
    assert "batch 1" in said.err
    assert_exact(sqlite_driver, tmp_path / "lake")
