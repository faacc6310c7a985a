"""What is wrong with a load is said in one sentence, and before Spark starts where that can be."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from taskharbor.cli import command
from taskharbor.core.contract import Driver
from taskharbor.pipeline import loading, sessions, spark_log
from taskharbor.pipeline.loading import LoadProgress, load
from taskharbor.pipeline.sink import LoadReport


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(sessions, "start", refuse)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["absent.csv", "--type", "t"], 1, "there is no file or directory absent.csv"),
        (["none/*.parquet", "--type", "t"], 1, "there is no file or directory"),
        (["people.csv"], 2, "or --type"),
        (["people.parquet"], 2, "or --type"),
        (["people.csv", "--type", "t", "--key", "whom"], 2, "no column 'whom' to take the key from (--key …): did you"),
        (["people.csv", "--type", "t", "--map", "tenant_id=firm"], 2, "no column 'firm' to map: the source has n, who"),
        (["people.csv", "--type", "t", "--columns", "n,x"], 2, "no column 'x' to take"),
        (["people.csv", "--type", "t", "--format", "xml"], 2, "unknown format 'xml'"),
        (["people.what", "--type", "t"], 2, "give the format"),
        (["empty", "--type", "t", "--format", "csv"], 1, "empty is empty"),
    ],
)
def test_the_command_says_so_before_spark_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("n,who\n1,ada\n")
    Path("empty").mkdir()
    pq.write_table(pa.table({"n": [1], "who": ["ada"]}), "people.parquet")
    assert command.run(["--url", "sqlite:///jobs.db", "pipeline", "load", *words]) == code
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not Path("jobs.db").exists()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"n": 1}\n\n{"n": \n', "a.jsonl, line 3: is no JSON at character"),
        ("b.json", '[\n  {"n": 1},\n  {"n": 2}\n]\n', "multiLine=true"),
        ("c.csv", "n,who\n1,ada\n2\n", "c.csv, line 3: has 1 fields, and the first line has 2"),
    ],
)
def test_a_malformed_line_is_named_with_its_file_and_a_cure(
    spark: SparkSession,
    sqlite_url: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    name: str,
    text: str,
    said: str,
) -> None:
    (tmp_path / name).write_text(text)
    assert command.run(["--url", sqlite_url, "pipeline", "load", str(tmp_path / name), "--type", "t"]) == 1
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("taskharbor: ")]
    assert len(lines) == 1
    assert said in lines[0]
    assert "DROPMALFORMED" in lines[0]


def test_an_error_of_spark_is_one_sentence_in_every_verb(
    spark: SparkSession,
    sqlite_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> LoadReport:
        spark.sql("SELECT raise_error('the disk is gone')").collect()
        raise AssertionError

    monkeypatch.setattr(loading, "load", fail)
    (tmp_path / "a.csv").write_text("n\n1\n")
    assert command.run(["--url", sqlite_url, "pipeline", "load", str(tmp_path / "a.csv"), "--type", "t"]) == 1
    told = capsys.readouterr().err
    assert "the disk is gone" in told
    assert told.count("\n") == 1
    assert "org.apache" not in told


def test_what_spark_said_is_kept_where_the_message_says_and_else_removed() -> None:
    with spark_log.into_a_file() as path:
        assert spark_log.hint() == ""
    assert not path.exists()
    with spark_log.into_a_file() as path:
        path.write_text("ERROR Executor: …\n")
        assert str(path) in spark_log.hint()
    assert path.exists()
    path.unlink()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted\n\tat x",
            "Job aborted",
        ),
        ("[X] first\nCaused by: java.io.IOException: No space left on device\n\tat y", "No space left on device"),
        ("plain", "plain"),
        ("", "RuntimeError"),
    ],
)
def test_pages_of_java_become_a_sentence(text: str, said: str) -> None:
    assert spark_log.in_one_sentence(RuntimeError(text)) == said


def test_a_cast_is_advised_as_it_has_to_be_written(
    spark: SparkSession, sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("n,priority\n1,5\n")
    words = ["--url", sqlite_url, "pipeline", "load", str(tmp_path / "a.csv"), "--type", "t", "--json"]
    assert command.run(words) == 2
    assert "cast it with --map 'priority=CAST(priority AS INT)'" in capsys.readouterr().err
    assert command.run([*words, "--map", "priority=CAST(priority AS INT)"]) == 0
    assert command.run([*words, "--map", "priority=CAST(what AS INT)"]) == 2
    assert "cannot be made of" in capsys.readouterr().err


def test_a_load_may_run_in_any_thread_and_tells_how_far_it_is(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskharbor.pipeline.loading_progress.LOOK_S", 0.02)
    spark.range(0, 3000, 1, 3).selectExpr("id AS n").write.parquet(str(tmp_path / "n.parquet"))
    seen: list[LoadProgress] = []
    reports: list[LoadReport] = []

    def run() -> None:
        reports.append(load(str(tmp_path / "n.parquet"), sqlite_url, spark=spark, type="t", progress=seen.append))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert [report.published for report in reports] == [3000]
    assert seen
    assert {each.total for each in seen} == {3000}
    assert max(each.rows for each in seen) == 3000
    assert seen[-1].staged
    assert len(sqlite_driver.list().jobs) > 0


def test_spark_leaves_nothing_in_the_directory_that_one_stands_in(
    spark: SparkSession, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = sessions._places({})
    assert "-Dlog4j2.configurationFile=file:" in settings["spark.driver.extraJavaOptions"]
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    assert Path(sessions._places({})["spark.sql.warehouse.dir"]).name.startswith("taskharbor-warehouse-")
    assert json.dumps(settings)
