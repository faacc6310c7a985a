"""Small files are made into larger ones, and what nobody needs is removed; no row is lost by either."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.exact import assert_exact, feed
from tests.pipeline.lives import live
from tests.pipeline.pasts import Pasts

from taskharbor.drivers import open_driver
from taskharbor.pipeline import bronze, delta, run, steps
from taskharbor.pipeline.audit import audit_lake
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import BRONZE_HISTORY, SILVER_ATTEMPTS, SILVER_JOBS
from taskharbor.pipeline.store import open_store
from taskharbor.pipeline.upkeep import sweep, upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _files(lake: Lake) -> int:
    return len(delta.files_of(delta.open_table(lake, BRONZE_HISTORY), BRONZE_HISTORY))


def test_compaction_and_vacuum_keep_every_row_and_runs_go_on(spark: SparkSession, past: Pasts) -> None:
    driver, url, place = past(live, max_rows=8)
    lake = Lake(place)
    before = _files(lake)
    assert before > 1
    done = upkeep(lake, small_files=1, kept_hours=0)
    assert done.compacted["bronze/history"] == before
    assert done.removed["bronze/history"] >= before
    assert _files(lake) == 1
    assert_exact(driver, place)
    live(driver, first=1)
    run(url, place, spark=spark)
    assert_exact(driver, place)
    assert delta.read_table(spark, lake, BRONZE_HISTORY).count() == len(feed(driver))


def test_by_default_files_of_the_last_week_stay_for_readers_of_older_versions(past: Pasts) -> None:
    _driver, _url, lake = past(live, max_rows=8)
    assert upkeep(Lake(lake), small_files=1).removed == {}


def test_the_cursor_is_found_when_the_log_no_longer_has_the_commit(spark: SparkSession, past: Pasts) -> None:
    driver, url, place = past(live)
    lake = Lake(place)
    with open_store(url) as store:
        known = bronze.last_batch(lake, store.store_id)
        assert known is not None
        # Other commits push it out of sight.
        for number in range(60):
            delta.commit(lake, BRONZE_HISTORY, [], store_id="another", batch=number + 1)
        assert bronze.last_batch(lake, store.store_id) == known
    live(driver, first=1)
    run(url, place, spark=spark)
    assert_exact(driver, place)


def test_upkeep_leaves_the_tables_alone_while_a_batch_of_another_store_is_half_way(
    spark: SparkSession, past: Pasts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, url = Lake(past(live, max_rows=8).lake), f"sqlite:///{tmp_path / 'other.db'}"
    with open_driver(url) as other:
        other.migrate()
        live(other)
        with monkeypatch.context() as patch:
            patch.setattr(steps.Steps, "_gold", _killed)
            with pytest.raises(KeyboardInterrupt):
                run(url, lake.root, spark=spark)
        files = _files(lake)
        assert len(upkeep(lake, small_files=1, kept_hours=0).waits_for) == 1
        assert _files(lake) == files
        # Others go on meanwhile, for so long that no look at the last commits finds the batch.
        for number in range(60):
            delta.commit(lake, SILVER_JOBS, [], store_id="another", batch=number + 1)
        report = run(url, lake.root, spark=spark)
        assert (report.recovered, report.rows) == (True, len(feed(other)))
    assert all(check.passed for check in audit_lake(spark, lake))
    done = upkeep(lake, small_files=1, kept_hours=0)
    assert (done.waits_for, done.compacted["bronze/history"]) == ([], files)


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_what_a_killed_run_never_committed_is_swept_away(past: Pasts) -> None:
    driver, url, place = past(live)
    lake = Lake(place)
    with open_store(url) as store:
        store_id = store.store_id
    left = lake.path(SILVER_ATTEMPTS) / bronze.new_tag(store_id, 2)
    (left / "day=2031-05-01").mkdir(parents=True)
    assert sweep(lake, store_id, (2,)) == 1
    assert not left.exists()
    assert sweep(lake, store_id, (1,)) == 0
    assert_exact(driver, place)
