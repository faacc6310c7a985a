"""A DataFrame becomes jobs exactly once, on every store."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import StructType

from taskharbor import JobFilter, NewJob
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput, InvalidURL, SchemaMissing, StoreMoved
from taskharbor.drivers import open_driver
from taskharbor.pipeline.loading import load
from taskharbor.pipeline.sink import BatchSink, batch_writer, stream_writer
from taskharbor.testing.contract.moving import opened, shut_unnoticed

TWO_STORES = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
"""For what is settled before a store is asked: one that stages in files, and one that stages in a table."""


def orders(spark: SparkSession, count: int) -> DataFrame:
    text = functions.format_string('{"order":%d}', "id")
    return spark.range(0, count, 1, 2).select(
        text.alias("payload"), functions.format_string("order-%d", "id").alias("order")
    )


def write(frame: DataFrame, url: str, **options: Any) -> None:
    frame.write.format("taskharbor").mode("append").options(url=url, **options).save()


def total(driver: Driver) -> int:
    return sum(sum(statuses.values()) for statuses in driver.counts().queues.values())


def test_a_frame_becomes_jobs_that_a_worker_gets_as_they_were_described(
    spark: SparkSession, driver: Driver, store_url: str
) -> None:
    frame = spark.sql(
        "SELECT 'mail.send' AS type, 'mail' AS queue, 'acme' AS tenant_id, named_struct('to', 'ada', 'n', 3) AS args, "
        "7 AS priority, timestamp '2031-01-02 03:04:05' AS run_at, timestamp '2032-01-01 00:00:00' AS expires_at, "
        "9 AS max_attempts, 'k-1' AS key, map('a', 'b') AS meta"
    )
    write(frame, store_url)
    [job] = driver.list().jobs
    assert (job.type, job.queue, job.tenant_id, job.priority, job.max_attempts) == ("mail.send", "mail", "acme", 7, 9)
    assert json.loads(job.payload) == {"to": "ada", "n": 3}
    assert (job.idempotency_key, job.meta) == ("k-1", {"a": "b"})
    assert job.run_at is not None
    assert job.run_at.isoformat() == job.due_at.isoformat() == "2031-01-02T03:04:05+00:00"
    assert job.expires_at is not None
    assert job.expires_at.year == 2032


@TWO_STORES
def test_what_is_no_column_is_an_option_and_other_columns_are_the_arguments(
    spark: SparkSession, driver: Driver, store_url: str
) -> None:
    frame = spark.sql("SELECT 'ada' AS to, 3 AS n, 1.50BD AS price, date '2031-05-01' AS day")
    write(frame, store_url, type="mail.send", queue="mail", tenant="acme", priority=2, meta='{"by": "spark"}')
    [leased] = driver.reserve("mail")
    assert json.loads(leased.job.payload) == {"to": "ada", "n": 3, "price": "1.50", "day": "2031-05-01"}
    assert (leased.job.type, leased.job.tenant_id, leased.job.priority) == ("mail.send", "acme", 2)
    assert leased.job.meta == {"by": "spark"}


def test_a_batch_that_runs_twice_adds_nothing_with_keys_or_without(
    spark: SparkSession, driver: Driver, store_url: str
) -> None:
    for options in ({}, {"key": "order"}):
        frame = orders(spark, 50) if options else orders(spark, 50).select("payload")
        first = load(frame, store_url, type=f"t{len(options)}", **options)
        again = load(frame, store_url, type=f"t{len(options)}", **options)
        assert (first.rows_in, first.published, first.duplicates, first.rejected) == (50, 50, 0, 0)
        assert (again.rows_in, again.published, again.duplicates, again.rejected) == (50, 0, 50, 0)
    assert total(driver) == 100


def test_jobs_that_have_run_in_the_meantime_are_not_loaded_again(
    spark: SparkSession, driver: Driver, store_url: str
) -> None:
    frame = orders(spark, 4).select("payload")
    load(frame, store_url, type="t")
    for leased in driver.reserve("default", limit=3):
        driver.ack(leased.job.id, leased.lease.token)
    again = load(frame.union(orders(spark, 5).select("payload")), store_url, type="t")
    assert (again.rows_in, again.published, again.duplicates) == (9, 1, 8)
    assert total(driver) == 5


@TWO_STORES
def test_another_run_by_name_may_load_the_same_rows(spark: SparkSession, driver: Driver, store_url: str) -> None:
    frame = orders(spark, 3).select("payload")
    for run in ("monday", "tuesday", "tuesday"):
        load(frame, store_url, type="t", run=run)
    assert total(driver) == 6


def test_refused_rows_are_kept_with_row_and_reason_and_counts_add_up(
    spark: SparkSession, driver: Driver, store_url: str, tmp_path: Path
) -> None:
    driver.enqueue([NewJob("t", b'{"other":1}', key="taken")])
    rows = [
        ("t", '{"a":1}', "one", None),
        ("t", '{"a":1}', "one", None),
        ("t", "{no json", "two", None),
        ("", "{}", "three", None),
        ("t", "{}", "taken", None),
        ("t", "{}", "late", "2001-01-01T00:00:00+00:00"),
        ("t", "{}", "naive", "2040-01-01T00:00:00"),
        ("t", '"' + "x" * 1_100_000 + '"', "large", None),
    ]
    frame = spark.createDataFrame(rows, "type string, payload string, key string, expires_at string")
    report = load(frame, store_url, rejects=str(tmp_path / "rejects"))
    assert (report.rows_in, report.published, report.duplicates, report.rejected) == (8, 1, 1, 6)
    kept = pq.read_table(tmp_path / "rejects").to_pylist()
    reasons = sorted(row["reason"].partition(":")[0] for row in kept)
    assert reasons == [
        "AlreadyExpired", "IdempotencyConflict", "InvalidInput", "InvalidPayload", "InvalidTime", "PayloadTooLarge",
    ]  # fmt: skip
    assert {row["run_id"] for row in kept} == {report.run_id}
    assert any(json.loads(row["row"]).get("payload") == "{no json" for row in kept)
    assert total(driver) == 2


def test_failfast_loads_nothing_at_the_first_refused_row(spark: SparkSession, driver: Driver, store_url: str) -> None:
    frame = spark.createDataFrame([("{}",), ("no",)], "payload string")
    with pytest.raises(Exception, match="failfast"):
        load(frame, store_url, type="t", failfast=True)
    assert total(driver) == 0


@TWO_STORES
def test_without_a_place_for_rejects_nothing_is_published(spark: SparkSession, driver: Driver, store_url: str) -> None:
    frame = spark.createDataFrame([("{}",), ("no",)], "payload string")
    with pytest.raises(Exception, match="rejects=DIRECTORY"):
        write(frame, store_url, type="t")
    assert total(driver) == 0


def test_rejects_go_to_the_lake_once(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    from taskharbor.pipeline.rejects import LakeKeeper

    frame = spark.createDataFrame([("{}",), ("no",)], "payload string")
    report = load(frame, sqlite_url, type="t", lake=str(tmp_path / "lake"))
    LakeKeeper(str(tmp_path / "lake"), report.run_id, "").write([("{}", "again")])
    rows = DeltaTable(str(tmp_path / "lake" / "silver" / "rejects")).to_pyarrow_table().to_pylist()
    assert [(row["run_id"], row["row"]) for row in rows] == [(report.run_id, '{"payload": "no"}')]


def test_a_stream_publishes_each_micro_batch_once(
    spark: SparkSession, driver: Driver, store_url: str, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()

    def run() -> None:
        stream = spark.readStream.schema("payload string").json(str(source))
        writing = stream.writeStream.format("taskharbor").options(url=store_url, type="t", queue="s")
        query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    (source / "1.json").write_text('{"payload": "{\\"n\\": 1}"}\n{"payload": "{\\"n\\": 2}"}\n')
    run()
    (source / "2.json").write_text('{"payload": "{\\"n\\": 1}"}\n')
    run()
    assert total(driver) == 3  # the same content in another batch is another event
    # The driver was killed after the publish and before Spark noted it: the batch comes again.
    last = checkpoint / "commits" / "1"
    last.unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    run()
    assert total(driver) == 3


@pytest.mark.usefixtures("spark")  # without one, Spark does not read a schema from text
@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        ("payload string", {}, "needs a type"),
        ("type string, priority string", {}, "priority is string"),
        ("type string, run_at timestamp_ntz", {}, "time zone"),
        ("type string, args string", {}, "struct or a map"),
        ("type string, payload string", {"key": "order"}, "no column 'order'"),
        ("type string, payload string", {"colour": "red"}, "unknown option 'colour'"),
        ("type string, payload string", {"mode": "wild"}, "mode must be"),
        ("payload string", {"type": "t", "priority": "high"}, "whole number"),
        ("payload string", {"type": "t", "run_at": "2031-01-01T00:00:00"}, "naive"),
    ],
)
def test_a_write_that_cannot_work_says_so_before_it_begins(schema: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        batch_writer({"url": "sqlite:///x.db", **options}, StructType.fromDDL(schema), overwrite=False)


def test_memory_stores_are_refused_because_executors_cannot_reach_them() -> None:
    with pytest.raises(InvalidURL, match="one process"):
        batch_writer({"url": "memory://", "type": "t"}, StructType([]), overwrite=False)
    with pytest.raises(InvalidInput, match="append"):
        batch_writer({"url": "sqlite:///x", "type": "t"}, StructType([]), overwrite=True)


@pytest.mark.usefixtures("spark")  # without one, Spark does not read a schema from text
def test_what_an_abandoned_run_staged_is_swept_by_run_and_by_age(
    spark: SparkSession, driver: Driver, store_url: str
) -> None:
    from datetime import timedelta

    from taskharbor.core.clock import utc_now
    from taskharbor.pipeline.loading import sweep

    sink = batch_writer({"url": store_url, "type": "t"}, StructType.fromDDL("payload string"), overwrite=False)
    assert isinstance(sink, BatchSink)
    batch = pa.record_batch([pa.array(["{}", "[]"])], names=["payload"])
    sink.write(iter([batch]))
    assert sweep(store_url) == 0
    assert sweep(store_url, utc_now() + timedelta(minutes=1)) > 0
    message = sink.write(iter([batch]))
    sink.abort([None, None])
    with pytest.raises(Exception, match="Nothing was published"):
        sink.commit([message])
    assert total(driver) == 0
    assert driver.list(JobFilter()).jobs == []


@pytest.mark.usefixtures("spark")  # without one, Spark does not read a schema from text
def test_of_two_attempts_of_a_task_only_the_committed_one_is_published(driver: Driver, store_url: str) -> None:
    sink = batch_writer({"url": store_url, "type": "t"}, StructType.fromDDL("payload string"), overwrite=False)
    batch = pa.record_batch([pa.array(["{}", "[]"])], names=["payload"])
    sink.write(iter([batch]))
    second = sink.write(iter([batch]))
    sink.commit([second])
    assert total(driver) == 2
    if not store_url.startswith("json"):  # which keeps no list of loads, but all their keys
        sink.commit([second])
        assert total(driver) == 2


@pytest.mark.usefixtures("spark")  # without one, Spark does not read a schema from text
def test_a_store_that_is_shut_while_rows_are_staged_takes_none_of_them_in(driver: Driver, store_url: str) -> None:
    sink = batch_writer({"url": store_url, "type": "t"}, StructType.fromDDL("payload string"), overwrite=False)
    staged = sink.write(iter([pa.record_batch([pa.array(["{}", "[]"])], names=["payload"])]))
    moved = shut_unnoticed(driver)
    with pytest.raises(StoreMoved, match="elsewhere"):
        sink.commit([staged])
    assert total(driver) == 0
    opened(moved)
    sink.commit([staged])
    assert total(driver) == 2


@pytest.mark.parametrize("writer", [batch_writer, stream_writer])
def test_a_write_makes_the_tables_of_a_file_and_asks_for_those_of_a_server_before_it_begins(
    writer: Any, store_url: str
) -> None:
    schema = StructType().add("n", "integer")
    options = {"url": store_url, "type": "t"}
    if store_url.startswith(("sqlite:", "json:")):
        writer(options, schema, overwrite=False)
        with closing(open_driver(store_url)) as driver:
            assert total(driver) == 0
    else:
        with pytest.raises(SchemaMissing, match="migrate"):
            writer(options, schema, overwrite=False)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_frame_is_written_to_a_file_that_is_not_there_yet(spark: SparkSession, store_url: str) -> None:
    write(orders(spark, 3), store_url, type="t", key="order")
    with closing(open_driver(store_url)) as driver:
        assert total(driver) == 3


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_what_an_executor_cannot_stage_is_said_in_our_own_words(driver: Driver, store_url: str) -> None:
    sink = batch_writer({"url": store_url, "type": "t"}, StructType().add("n", "integer"), overwrite=False)
    missing = replace(sink.plan, url=f"{store_url}{'&' if '?' in store_url else '?'}prefix=other_")
    with pytest.raises(SchemaMissing, match="migrate"):
        BatchSink(missing).write(iter([pa.record_batch({"n": pa.array([1], pa.int32())})]))


@TWO_STORES
def test_a_report_is_all_that_a_write_leaves_beside_it(driver: Driver, store_url: str, tmp_path: Path) -> None:
    place = tmp_path / "reports"
    place.mkdir()
    options = {"url": store_url, "type": "t", "report": str(place / "report.json")}
    sink = batch_writer(options, StructType().add("n", "integer"), overwrite=False)
    sink.commit([sink.write(iter([pa.record_batch({"n": pa.array([1], pa.int32())})]))])
    assert json.loads((place / "report.json").read_text())["published"] == 1
    assert [path.name for path in place.iterdir()] == ["report.json"]
