"""Refused rows are kept once, whatever happens at the same time or again."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from taskharbor import NewJob
from taskharbor.core.contract import Driver
from taskharbor.pipeline.loading import load
from taskharbor.pipeline.rejects import FileKeeper
from taskharbor.pipeline.sink_values import row_json


@pytest.mark.parametrize("name", ["rejects.jsonl", "rejects"])
def test_loads_that_reject_into_one_place_at_once_lose_nothing(tmp_path: Path, name: str) -> None:
    place = str(tmp_path / name)

    def keep(number: int) -> None:
        FileKeeper(place, f"run-{number}", f"source-{number}").write([(f'{{"n": {number}}}', "bad")])

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(rows_in(place)) == sorted(f'{{"n": {number}}}' for number in range(20))


def rows_in(place: str) -> list[str]:
    if place.endswith(".jsonl"):
        return [json.loads(line)["row"] for line in Path(place).read_text().splitlines()]
    return [row["row"] for row in pq.read_table(place).to_pylist()]


@pytest.mark.parametrize("name", ["rejects.jsonl", "rejects"])
def test_the_same_rows_refused_again_are_kept_once(tmp_path: Path, name: str) -> None:
    place = str(tmp_path / name)
    alike = [("{}", "bad"), ("{}", "bad")]
    FileKeeper(place, "one", "s").write(alike)
    FileKeeper(place, "two", "s").write(alike)
    FileKeeper(place, "two", "s").write([*alike, ("[]", "bad")])
    FileKeeper(place, "two", "s").write([*alike, ("[]", "bad")])
    assert sorted(rows_in(place)) == ["[]", "{}", "{}"]
    FileKeeper(place, "three", "other").write(alike)
    assert len(rows_in(place)) == 5


def test_lines_of_somebody_else_stay_as_they_are(tmp_path: Path) -> None:
    place = tmp_path / "rejects.jsonl"
    place.write_text('not ours\n{"mine": 1}')
    FileKeeper(str(place), "one", "s").write([("{}", "bad")])
    lines = place.read_text().splitlines()
    assert lines[:2] == ["not ours", '{"mine": 1}']
    assert json.loads(lines[2])["row"] == "{}"


def test_rejects_are_strict_json_whatever_the_row_holds() -> None:
    row = {"a": float("nan"), "b": [float("inf"), {"c": float("-inf")}], "d": 1.5}

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(row_json(row), parse_constant=refuse) == {
        "a": "NaN",
        "b": ["Infinity", {"c": "-Infinity"}],
        "d": 1.5,
    }


def test_a_load_that_runs_again_does_not_double_its_rejects_on_any_store(
    spark: SparkSession, driver: Driver, store_url: str, tmp_path: Path
) -> None:
    driver.enqueue([NewJob("t", b'{"other":1}', key="taken")])
    rows = [("{}", "taken", None), ("no", "k", None), ("{}", "late", "2001-01-01T00:00:00+00:00"), ("{}", "new", None)]
    frame = spark.createDataFrame(rows, "payload string, key string, expires_at string")
    place = str(tmp_path / "rejects.jsonl")
    for published in (1, 0):
        report = load(frame, store_url, type="t", rejects=place)
        assert (report.published, report.rejected) == (published, 3)
        assert len(rows_in(place)) == 3


def test_a_key_conflict_with_failfast_publishes_nothing_on_any_store(
    spark: SparkSession, driver: Driver, store_url: str
) -> None:
    driver.enqueue([NewJob("t", b'{"other":1}', key="k-6999")])
    frame = spark.range(0, 7000).selectExpr("'{}' AS payload", "concat('k-', id) AS key")
    with pytest.raises(Exception, match="nothing was published"):
        load(frame, store_url, type="t", failfast=True)
    assert sum(sum(statuses.values()) for statuses in driver.counts().queues.values()) == 1
