"""The data source `taskharbor` in a real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.pipeline.lives import live

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import NewJob, Settlement
from taskharbor.drivers import open_driver
from taskharbor.pipeline import schemas
from taskharbor.pipeline.options import read_options
from taskharbor.pipeline.source import TableReader, TaskHarborSource, checked_columns
from taskharbor.pipeline.source_stream import HistoryStreamReader
from taskharbor.pipeline.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(spark: SparkSession, url: str, name: str, **options: Any) -> DataFrame:
    return spark.read.format("taskharbor").options(url=url, table=name, **options).load()


def records(url: str, name: str) -> list[dict[str, Any]]:
    with open_store(url) as store:
        batches = store.read_history(None, store.frontier()) if name == "history" else store.read_table(name)
        return [record for batch in batches for record in batch.to_pylist()]


def plain(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Rows that can be sorted and compared; Spark gives times without their zone, which is that of this process."""
    return sorted((tuple(str(value) for value in row) for row in rows), key=str)


# --- Batch reads -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["jobs", "attempts", "dlq", "workers", "history"])
def test_each_table_of_each_store_arrives_whole(spark: SparkSession, driver: Driver, store_url: str, name: str) -> None:
    live(driver, rounds=2)
    found = table(spark, store_url, name, partitions=3)
    assert found.schema == schemas.SOURCE_TABLES[name]
    expected = records(store_url, name)
    times = [field.name for field in found.schema if field.dataType.typeName() == "timestamp"]
    as_text = found.selectExpr(
        *(f"date_format({c}, 'yyyy-MM-dd HH:mm:ss.SSSSSS') {c}" if c in times else c for c in found.columns)
    )
    wanted = [
        [value.strftime("%Y-%m-%d %H:%M:%S.%f") if c in times and value else value for c, value in row.items()]
        for row in expected
    ]
    got = [[bytes(value) if isinstance(value, bytearray) else value for value in row] for row in as_text.collect()]
    assert plain(got) == plain(wanted)
    assert len(got) == len(expected) > 0


def test_an_empty_store_is_an_empty_table(spark: SparkSession, sqlite_driver: Driver, sqlite_url: str) -> None:
    for name in ("jobs", "attempts", "dlq", "workers", "history"):
        assert table(spark, sqlite_url, name, partitions=4).count() == 0


def test_options_select_rows(spark: SparkSession, sqlite_driver: Driver, sqlite_url: str) -> None:
    live(sqlite_driver, rounds=2)
    assert table(spark, sqlite_url, "jobs", tenant="acme").count() == 2
    assert table(spark, sqlite_url, "jobs", type="done", status="done", queue="mail").count() == 2
    assert (
        table(spark, sqlite_url, "attempts", since="2031-05-01T12:30:00Z", until="2031-05-01T15:01:00+02:00").count()
        == 0
    )
    assert table(spark, sqlite_url, "attempts", since="2031-05-01T12:30:00Z").count() > 0


def test_a_union_of_two_selections_keeps_both_sides(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str
) -> None:
    live(sqlite_driver)
    dead = table(spark, sqlite_url, "attempts", status="dead")
    done = table(spark, sqlite_url, "attempts", status="succeeded")
    both = dead.union(done).groupBy("outcome").count().collect()
    assert {row["outcome"]: row["count"] for row in both} == {"dead": dead.count(), "succeeded": done.count()}
    whole = table(spark, sqlite_url, "attempts")
    both = whole.where("outcome = 'dead'").union(whole.where("outcome = 'retried'"))
    assert sorted(row["outcome"] for row in both.collect()) == ["dead", "retried"]


def test_no_filter_is_ever_pushed_into_the_source() -> None:
    from pyspark.sql.datasource import DataSourceReader

    assert TableReader.pushFilters is DataSourceReader.pushFilters


def test_a_given_schema_prunes_the_columns_in_the_store(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(sqlite_driver)
    reader = spark.read.format("taskharbor").options(url=sqlite_url, table="jobs")
    found = reader.schema("status string, id string").load()
    assert found.columns == ["status", "id"]
    assert found.where("status = 'dlq'").count() == 1
    asked: list[str] = []
    with open_store(sqlite_url) as store:
        rows = store._rows  # type: ignore[attr-defined]
        monkeypatch.setattr(store, "_rows", lambda sql: asked.append(sql) or rows(sql))
        list(store.read_table("jobs", columns=["status", "id"]))
    assert not [sql for sql in asked if "payload" in sql]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, '"url" is missing'),
        ({"url": "sqlite:///x.db"}, '"table" must be one of'),
        ({"url": "sqlite:///x.db", "table": "nothing"}, "must be one of jobs, attempts"),
        ({"url": "x", "table": "jobs"}, "not a store URL"),
        ({"url": "memory://", "table": "jobs", "colour": "red"}, "unknown option 'colour'"),
        ({"url": "sqlite:///x.db", "table": "jobs", "since": "2031-05-01T09:00:00"}, "has no offset"),
        ({"url": "sqlite:///x.db", "table": "jobs", "until": "soon"}, "must be a time"),
        ({"url": "sqlite:///x.db", "table": "jobs", "partitions": "0"}, "from 1 to"),
        ({"url": "sqlite:///x.db", "table": "history", "queue": "mail"}, "is read whole"),
    ],
)
def test_a_wrong_option_is_explained(options: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKHARBOR_URL", raising=False)
    with pytest.raises(InvalidInput, match=words):
        read_options(options)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (StructType([]), "a schema of no columns reads nothing"),
        (StructType([StructField("outcome", StringType())] * 2), "'outcome' of attempts is asked for twice"),
        (StructType([StructField("outcome", StringType(), nullable=False)]), "'outcome' of attempts may be null"),
    ],
    ids=["empty", "twice", "not null"],
)
def test_a_schema_that_cannot_be_read_is_explained(schema: StructType, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        checked_columns("attempts", schema)


def test_what_is_wrong_is_said_by_spark_too(spark: SparkSession, sqlite_driver: Driver, sqlite_url: str) -> None:
    reader = spark.read.format("taskharbor").options(url=sqlite_url, table="jobs")
    with pytest.raises(Exception, match="has no column 'colour'"):
        reader.schema("colour string").load().collect()
    with pytest.raises(Exception, match="is string, not bigint: cast it after reading"):
        reader.schema("id bigint").load().collect()
    with pytest.raises(Exception, match="executors cannot reach it"):
        table(spark, "memory://shared", "jobs").collect()
    with pytest.raises(Exception, match="cannot be selected by queue"):
        table(spark, sqlite_url, "workers", queue="mail").collect()


def test_a_password_shows_neither_in_plans_nor_in_what_we_print(spark: SparkSession, postgres: Any) -> None:
    url = postgres.create_database()
    driver = open_driver(url)
    driver.migrate()
    driver.close()
    password = url.split(":")[2].split("@")[0]
    found = table(spark, url, "jobs")
    found.count()
    plan = found._jdf.queryExecution()
    assert password not in plan.toString() + plan.simpleString() + repr(found)
    options = read_options({"url": url, "table": "jobs"})
    assert password not in repr(options) + repr(TableReader(options, ("id",))) + repr(TaskHarborSource({"url": url}))


def test_an_unreachable_store_is_named_without_its_password(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="cannot be reached") as caught:
        table(spark, "postgresql://harbor:opensesame@127.0.0.1:9/jobs", "jobs").collect()
    assert "opensesame" not in str(caught.value)


# --- Streams -----------------------------------------------------------------------------------------------------


class Stream:
    """The feed of a store, followed into a table of rows that Spark keeps in memory or in a file."""

    def __init__(self, spark: SparkSession, url: str, place: Path) -> None:
        self.spark, self.url, self.place = spark, url, place

    def run(self, **options: Any) -> Any:
        read = self.spark.readStream.format("taskharbor").options(url=self.url, table="history", **options).load()
        query = (
            read.writeStream.format("parquet")
            .option("checkpointLocation", str(self.place / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.place / "out"))
        )
        assert query.awaitTermination(120)
        return query

    def positions(self) -> list[str]:
        found = self.spark.read.schema(schemas.FEED).parquet(str(self.place / "out"))
        return [row["position"] for row in found.select("position").collect()]


@pytest.fixture
def stream(spark: SparkSession, driver: Driver, store_url: str, tmp_path: Path) -> Stream:
    return Stream(spark, store_url, tmp_path / "stream")


def test_a_stream_takes_each_fact_once_run_after_run(stream: Stream, driver: Driver) -> None:
    live(driver)
    stream.run()
    assert sorted(stream.positions()) == sorted(row["position"] for row in records(stream.url, "history"))
    stream.run()
    live(driver, first=1)
    query = stream.run(maxRowsPerBatch=5)
    expected = [row["position"] for row in records(stream.url, "history")]
    assert sorted(stream.positions()) == sorted(expected)
    assert max(progress.numInputRows for progress in query.recentProgress) <= 5
    assert len(query.recentProgress) >= 3


def reader(url: str, **options: str) -> HistoryStreamReader:
    return HistoryStreamReader(read_options({"url": url, **options}, stream=True), ("position",))


def test_a_stream_can_begin_now_or_at_a_cursor(sqlite_driver: Driver, sqlite_url: str) -> None:
    live(sqlite_driver)
    [first, *_] = records(sqlite_url, "history")
    now, there = reader(sqlite_url, startAt="now"), reader(sqlite_url, startAt=first["position"])
    assert reader(sqlite_url).initialOffset() == {"cursor": ""}
    assert now.initialOffset() == {"cursor": records(sqlite_url, "history")[-1]["position"]}
    assert there.initialOffset() == {"cursor": first["position"]}
    with pytest.raises(InvalidInput):
        reader(sqlite_url, startAt="elsewhere:7").initialOffset()
    for opened in (now, there):
        opened.stop()


def test_an_offset_never_goes_back(sqlite_driver: Driver, sqlite_url: str) -> None:
    sqlite_driver.enqueue([NewJob("a")])
    [leased] = sqlite_driver.reserve("default")
    sqlite_driver.settle([Settlement.ack(leased.job.id, leased.lease.token)])
    opened = reader(sqlite_url)
    offset = opened.latestOffset({"cursor": ""})
    assert sqlite_driver.prune(before=sqlite_driver.now().replace(year=2100)) == 1
    assert opened.latestOffset(offset) == offset
    assert opened.partitions(offset, offset) == []
    opened.stop()


def test_only_the_feed_can_be_followed() -> None:
    with pytest.raises(InvalidInput, match="only the table history can be read as a stream"):
        read_options({"url": "sqlite:///x.db", "table": "jobs"}, stream=True)
