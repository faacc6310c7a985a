"""What does not add up fails the run, says what and how many, and leaves gold as it was."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.exact import rows_of, versions
from tests.pipeline.lives import live
from tests.pipeline.pasts import Pasts

from taskharbor.core.contract import Driver
from taskharbor.pipeline import quality, run
from taskharbor.pipeline.bronze import Batch
from taskharbor.pipeline.quality import QualityFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _change(url: str, statement: str) -> None:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute(statement)
    connection.close()


def test_negative_waits_fail_the_run_and_gold_stays_until_they_are_rejected(spark: SparkSession, past: Pasts) -> None:
    driver, url, lake = past(live)
    live(driver, first=1)
    _change(url, "UPDATE th_history SET due_at = at WHERE seq > (SELECT max(seq) - 2 FROM th_history)")
    before = {name: version for name, version in versions(lake).items() if name not in ("bronze/history", "gold/audit")}
    for _ in range(2):
        with pytest.raises(QualityFailed, match=r"no negative wait: .* \(expected 0, found [12]\)"):
            run(url, lake, spark=spark)
        assert {name: version for name, version in versions(lake).items() if name in before} == before
    report = run(url, lake, spark=spark, reject_bad=True)
    assert report.rejected > 0
    rejects = rows_of(lake, "silver/rejects")
    assert [row["reason"] for row in rejects] == ["claimed before it was due"] * report.rejected
    assert report.rows == report.attempts + report.rejected + len(
        [row for row in rows_of(lake, "bronze/history") if row["attempt_no"] is None and row["at"].hour > 12]
    )


def test_a_fact_that_makes_no_sense_is_kept_as_a_reject(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from taskharbor.pipeline import silver

    live(sqlite_driver)
    monkeypatch.setattr(silver, "OUTCOMES", tuple(name for name in silver.OUTCOMES if name != "snoozed"))
    report = run(sqlite_url, tmp_path / "lake", spark=spark)
    (reject,) = rows_of(tmp_path / "lake", "silver/rejects")
    assert (report.rejected, reject["reason"]) == (1, "unknown outcome")
    assert '"outcome":"snoozed"' in reject["row"]
    assert reject["run_id"] == report.run_id


def test_one_lease_settled_twice_fails_the_run(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    live(sqlite_driver)
    _change(
        sqlite_url,
        "UPDATE th_history SET lease_token = (SELECT min(lease_token) FROM th_history) WHERE lease_token IS NOT NULL "
        "AND seq IN (SELECT seq FROM th_history WHERE lease_token IS NOT NULL LIMIT 3)",
    )
    with pytest.raises(QualityFailed, match="one settle per lease"):
        run(sqlite_url, tmp_path / "lake", spark=spark)
    assert rows_of(tmp_path / "lake", "gold/throughput") == []
    assert not all(row["passed"] for row in rows_of(tmp_path / "lake", "gold/audit"))


def test_a_store_with_more_rows_than_the_lake_fails_the_run(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(sqlite_driver)
    with monkeypatch.context() as patch:
        patch.setattr(quality, "store_rows", lambda _, batch: batch.rows + 1)
        with pytest.raises(QualityFailed, match="the store has no more"):
            run(sqlite_url, tmp_path / "lake", spark=spark)
    run(sqlite_url, tmp_path / "lake", spark=spark)
    gold = rows_of(tmp_path / "lake", "gold/throughput")
    assert gold


def test_rows_pruned_from_the_store_meanwhile_are_in_order() -> None:
    profile = {"rows": 5, "attempts": 5, "negative_waits": 0}
    batch = Batch("s", 1, None, "c", 5)
    found = quality.checks(batch, profile, 0, {"attempts": 5, "beyond": 0}, 3)
    assert all(check.passed for check in found)


def test_lost_attempts_and_doubled_ones_are_found() -> None:
    profile = {"rows": 4, "attempts": 5, "negative_waits": 0}
    found = quality.checks(Batch("s", 1, None, "c", 5), profile, 2, {"attempts": 4, "beyond": 1}, 5)
    assert [check.name for check in found if not check.passed] == [
        "one settle per lease",
        "every attempt has its job",
        "no attempt without a delivery",
        "bronze is complete",
    ]
