"""A load that knows its application: what its tasks take is checked, and what they say counts."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.pipeline.loading_app import harbor

from taskharbor.app.errors import InvalidArguments
from taskharbor.cli import command
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.pipeline.loading import load


@pytest.fixture
def orders(tmp_path: Path) -> str:
    path = tmp_path / "orders.jsonl"
    rows = [{"order": 1, "to": "ada", "express": False}, {"order": 2, "to": "bob"}, {"order": 3, "to": None}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_the_task_says_what_no_option_does_and_its_defaults_count_where_a_field_is_absent(
    spark: SparkSession, driver: Driver, store_url: str, orders: str, tmp_path: Path
) -> None:
    place = str(tmp_path / "rejects")
    report = load(orders, store_url, spark=spark, harbor=harbor, type="order.ship", priority=1, rejects=place)
    assert (report.rows_in, report.published, report.rejected) == (3, 2, 1)
    jobs = sorted(driver.list().jobs, key=lambda job: job.payload)
    assert [json.loads(job.payload) for job in jobs] == [
        {"express": False, "order": 1, "to": "ada"},
        {"order": 2, "to": "bob"},
    ]
    assert {(job.queue, job.max_attempts, job.priority, job.timeout) for job in jobs} == {
        ("ship", 9, 1, timedelta(seconds=60))
    }
    assert all(job.expires_at is not None and job.expires_at > driver.now() for job in jobs)
    [reject] = pq.read_table(place).to_pylist()
    assert "'to' is null" in reject["reason"]
    # An hour from now is another time at each load, and the rows are the same all the same.
    again = load(orders, store_url, spark=spark, harbor=harbor, type="order.ship", priority=1, rejects=place)
    assert (again.published, again.duplicates, again.rejected) == (0, 2, 1)
    assert len(pq.read_table(place).to_pylist()) == 1


def test_a_column_of_types_gives_each_row_what_its_own_task_says(
    spark: SparkSession, driver: Driver, store_url: str, tmp_path: Path
) -> None:
    frame = spark.sql(
        "SELECT 'order.ship' AS type, named_struct('order', 1, 'to', 'ada', 'note', null) AS args, 'a' AS key "
        "UNION ALL SELECT 'order.bill', named_struct('order', 2, 'to', null, 'note', null), 'b' "
        "UNION ALL SELECT 'order.eat', named_struct('order', 3, 'to', 'x', 'note', 'y'), 'c'"
    )
    report = load(frame, store_url, harbor=harbor, rejects=str(tmp_path / "rejects"))
    assert (report.published, report.rejected) == (1, 2)
    [job] = driver.list().jobs
    assert (job.type, job.queue, job.max_attempts, json.loads(job.payload)) == (
        *("order.ship", "ship", 9),
        {"order": 1, "to": "ada"},
    )
    reasons = sorted(row["reason"] for row in pq.read_table(tmp_path / "rejects").to_pylist())
    assert "'amount' is null" in reasons[1]
    assert "no task 'order.eat'" in reasons[0]


@pytest.mark.parametrize(
    ("query", "type", "said"),
    [
        ("SELECT 1 AS order, 'x' AS to", "order.shop", r"no task 'order.shop': did you mean 'order.ship'\?"),
        ("SELECT 1 AS order", "order.ship", "needs the argument 'to', and there is no such column"),
        ("SELECT 1 AS order, 'x' AS to, 3 AS kg", "order.ship", "'kg' is no argument of order.ship, which takes order"),
        ("SELECT 1 AS order, 'x' AS to, 'n' AS notes", "order.ship", r"meant for 'note', .withColumn\(\"note\""),
        ("SELECT '1' AS order, 'x' AS to", "order.ship", r"whole number as 'order'.*CAST\(order AS BIGINT\)"),
        ("SELECT 1 AS order, '2.5' AS amount", "order.bill", r"takes a number as 'amount'.*CAST\(amount AS DOUBLE\)"),
        ("SELECT '1' AS order, 2 AS amount", "order.bill", "One cell that cannot be cast ends the load.*TRY_CAST"),
        ("SELECT named_struct('order', 1) AS args", "order.ship", "needs the argument 'to'"),
        ("SELECT 1 AS order, 2 AS to", "order.ship", r"text as 'to', and the column is int"),
    ],
)
def test_columns_that_the_task_does_not_take_are_said_before_anything_is_written(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, query: str, type: str, said: str
) -> None:
    with pytest.raises((InvalidArguments, InvalidInput), match=said):
        load(query, sqlite_url, spark=spark, harbor=harbor, type=type)
    assert sqlite_driver.list().jobs == []


def test_decimals_are_taken_for_floats_whole_and_with_their_fractions(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str
) -> None:
    query = "SELECT 1 AS order, CAST(2.75 AS DECIMAL(10, 2)) AS amount"
    load(query, sqlite_url, spark=spark, harbor=harbor, type="order.bill")
    [job] = sqlite_driver.list().jobs
    assert json.loads(job.payload) == {"order": 1, "amount": 2.75}
    with pytest.raises(InvalidArguments, match=r"CAST\(amount AS DOUBLE\)"):
        load(query, sqlite_url, spark=spark, harbor=harbor, type="order.bill", key="amount")


def test_a_key_column_that_is_no_argument_is_only_the_key(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str
) -> None:
    load("SELECT 1 AS order, 2.5D AS amount, 'r7' AS row", sqlite_url, harbor=harbor, type="order.bill", key="row")
    [job] = sqlite_driver.list().jobs
    assert (job.idempotency_key, json.loads(job.payload)) == ("r7", {"order": 1, "amount": 2.5})
    assert job.queue == "common"


def test_without_an_application_nulls_are_arguments_unless_they_are_to_be_left_out(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str
) -> None:
    query = "SELECT 1 AS n, CAST(null AS string) AS who"
    load(query, sqlite_url, spark=spark, type="a")
    load(query, sqlite_url, spark=spark, type="b", omit_nulls=True)
    payloads = {job.type: json.loads(job.payload) for job in sqlite_driver.list().jobs}
    assert payloads == {"a": {"n": 1, "who": None}, "b": {"n": 1}}


def test_the_command_checks_against_the_application_and_speaks_of_its_flags(
    spark: SparkSession, orders: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["--url", f"sqlite:///{tmp_path / 'c.db'}", "-A", "tests.pipeline.loading_app:harbor", "pipeline", "load"]
    csv = tmp_path / "orders.csv"
    csv.write_text("order,to,kg\n1,ada,3\n2,bob,4\n")
    words = [*base, str(csv), "--type", "order.ship", "--json"]
    assert command.run(words) == 2
    assert "with --columns" in capsys.readouterr().err
    assert command.run([*words, "--columns", "order,to"]) == 2
    assert "--map 'order=CAST(order AS BIGINT)'" in capsys.readouterr().err
    assert not (tmp_path / "c.db").exists()
    words += ["--columns", "order,to", "--map", "order=CAST(order AS BIGINT)"]
    assert command.run(words) == 0
    assert json.loads(capsys.readouterr().out)["published"] == 2
