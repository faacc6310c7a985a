"""The lake as a directory: what is one and what is not, versions, migration, who may write."""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.pipeline.exact import assert_exact, feed, rows_of
from tests.pipeline.lives import live
from tests.pipeline.pasts import Pasts

from taskharbor.cli import main
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.pipeline import bronze, delta, few_rows, run
from taskharbor.pipeline.lake import Lake, LakeCorrupt, LakeTooNew, NotALake, migrate
from taskharbor.pipeline.lake_schemas import GOLD_LATENCY, GOLD_THROUGHPUT, SILVER_JOBS, TABLES, TableSpec
from taskharbor.pipeline.lock import LakeLock, LakeLocked, LakeLockLost
from taskharbor.pipeline.schemas import LAKE_VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_directory_of_something_else_is_refused_and_left_alone(
    sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "photos"
    place.mkdir()
    (place / "cat.jpg").write_text("cat")
    with pytest.raises(NotALake, match=r"cat\.jpg"):
        run(sqlite_url, place)
    assert main(["--url", sqlite_url, "pipeline", "run", "--lake", str(place)]) == 1
    assert "is not a lake" in capsys.readouterr().err
    assert [each.name for each in place.iterdir()] == ["cat.jpg"]


@pytest.mark.parametrize(("place", "error"), [("", "empty"), ("s3://bucket/lake", "mount")])
def test_a_place_that_cannot_be_a_lake_is_wrong_usage(place: str, error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        Lake(place)


def test_a_lake_of_a_newer_version_is_refused(sqlite_driver: Driver, sqlite_url: str, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create()
    lake.write_json("lake.json", {"version": LAKE_VERSION + 1})
    with pytest.raises(LakeTooNew, match="upgrade taskharbor"):
        run(sqlite_url, lake.root)


def test_a_torn_lake_file_is_an_error_and_not_a_new_lake(
    sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create()
    (lake.home / "lake.json").write_text('{"vers')
    with pytest.raises(LakeCorrupt, match="torn"):
        run(sqlite_url, lake.root)


def test_an_older_lake_is_migrated_and_keeps_its_rows(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create()
    # Version 0, made by hand: silver/jobs without two of its columns, and a row in it.
    for path in sorted(lake.path(SILVER_JOBS).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    old = pa.table(
        {"store_id": ["old"], "job_id": ["j"], "attempts": [1], "deliveries": pa.array([1], pa.int32())}
        | {"state": ["final"], "day": pa.array(["2020-01-01"]).cast(pa.date32())}
    )
    write_deltalake(str(lake.path(SILVER_JOBS)), old, partition_by=["state", "day"])
    lake.write_json("lake.json", {"version": 0})
    live(sqlite_driver)
    run(sqlite_url, lake.root, spark=spark)
    assert lake.version() == LAKE_VERSION
    jobs = rows_of(lake.root, "silver/jobs")
    assert [row["ran_s"] for row in jobs if row["store_id"] == "old"] == [None]
    assert len(jobs) == len({row.job_id for row in feed(sqlite_driver)}) + 1
    assert delta.read_table(spark, lake, SILVER_JOBS).count() == len(jobs)


def test_a_lake_of_version_1_whose_gold_lies_by_the_day_alone_is_migrated(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, parted = Lake(tmp_path / "lake"), (GOLD_THROUGHPUT, GOLD_LATENCY)
    live(sqlite_driver)
    run(sqlite_url, lake.root, spark=spark)
    for spec in parted:
        rows = DeltaTable(str(lake.path(spec))).to_pyarrow_table().drop_columns(["part"])
        place = str(lake.path(spec))
        write_deltalake(place, rows, mode="overwrite", schema_mode="overwrite", partition_by=["day"])
    lake.write_json("lake.json", {"version": 1})
    before = {spec.name: _without_part(lake, spec) for spec in parted}
    [store_id] = bronze.stores_of(lake)

    first_alone = delta.part_days

    def dies(lake: Lake, spec: TableSpec, finest: str) -> None:
        if spec is GOLD_LATENCY:
            raise KeyboardInterrupt
        first_alone(lake, spec, finest)

    with monkeypatch.context() as patch:
        patch.setattr(delta, "part_days", dies)
        with pytest.raises(KeyboardInterrupt):
            run(sqlite_url, lake.root, spark=spark)
    assert lake.version() == 1
    assert migrate(lake) == [1]
    assert {spec.name: _without_part(lake, spec) for spec in parted} == before
    assert [delta.batch_of(lake, spec, store_id) for spec in parted] == [1, 1]
    live(sqlite_driver, first=1)
    run(sqlite_url, lake.root, spark=spark)
    assert_exact(sqlite_driver, lake.root)


def _without_part(lake: Lake, spec: TableSpec) -> list[str]:
    return sorted(str({**row, "part": None}) for row in rows_of(lake.root, spec.name))


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    gone = {
        "token": "t",
        "host": socket.gethostname(),
        "pid": 2**22 + 1,
        "since": "?",
        "beat": "2099-01-01T00:00+00:00",
    }
    lake.write_json("lock", gone)
    with LakeLock(lake) as lock:
        assert lock.taken_over_from
        with pytest.raises(LakeLocked):
            LakeLock(lake).__enter__()
    assert not (lake.home / "lock").exists()


def test_a_lock_without_a_heartbeat_is_taken_over_and_its_holder_notices(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    with LakeLock(lake, heartbeat_s=3600) as slow, LakeLock(lake, stale_after=timedelta(0)) as quick:
        quick.check()
        with pytest.raises(LakeLockLost):
            slow.check()


def test_duckdb_and_polars_read_what_spark_wrote(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    live(sqlite_driver, rounds=3)
    run(sqlite_url, tmp_path / "lake", spark=spark, max_rows=20)
    lake = Lake(tmp_path / "lake")
    for name, spec in TABLES.items():
        ours = delta.read_table(spark, lake, spec).count()
        assert pl.read_delta(str(lake.path(spec))).height == ours, name
        dataset = DeltaTable(str(lake.path(spec))).to_pyarrow_dataset()
        assert duckdb.from_arrow(dataset).count("*").fetchall() == [(ours,)], name
    latency = DeltaTable(str(lake.path("gold/latency"))).to_pyarrow_dataset()
    where = "grain = 'day' and type = 'done'"
    by_spark = (
        delta.read(spark, lake.path("gold/latency")).where(where).select("attempts", "run_p95_s", "day").collect()
    )
    by_duckdb = duckdb.from_arrow(latency).filter(where).project("attempts, run_p95_s, day").fetchall()
    by_polars = (
        pl.read_delta(str(lake.path("gold/latency")))
        .filter((pl.col("grain") == "day") & (pl.col("type") == "done"))
        .select("attempts", "run_p95_s", "day")
        .rows()
    )
    assert [tuple(row) for row in by_spark] == by_duckdb == by_polars
    assert by_polars[0][0] == 3


def test_few_rows_come_to_spark_as_it_would_read_them(spark: SparkSession, past: Pasts) -> None:
    lake = Lake(past(live).lake)
    for name, spec in TABLES.items():
        files = delta.files_of(delta.open_table(lake, spec), spec)
        assert few_rows.are_few(files)
        names = spec.schema.names
        ours, theirs = (
            frame(spark, lake, spec, files).select(*names).collect() for frame in (few_rows.frame, delta.frame)
        )
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), name


def test_a_filter_loses_no_row_whoever_reads(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    live(sqlite_driver, rounds=2)
    run(sqlite_url, tmp_path / "lake", spark=spark, max_rows=10)
    rows = rows_of(tmp_path / "lake", "bronze/history")
    middle = sorted(row["at"] for row in rows)[len(rows) // 2]
    found = pl.scan_delta(str(tmp_path / "lake" / "bronze" / "history")).filter(pl.col("at") >= middle).collect()
    assert found.height == sum(row["at"] >= middle for row in rows)
