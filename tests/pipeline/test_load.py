"""`load` and the commands `pipeline load` and `pipeline import`."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from taskharbor.cli import command
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput, SchemaMissing, TaskHarborError
from taskharbor.pipeline.loading import SourceUnreadable, load


@pytest.fixture
def files(tmp_path: Path, spark: SparkSession) -> dict[str, str]:
    rows = [(1, "ada"), (2, "bob"), (3, "eve")]
    frame = spark.createDataFrame(rows, "n int, who string")
    frame.write.parquet(str(tmp_path / "people.parquet"))
    frame.write.orc(str(tmp_path / "people.orc"))
    (tmp_path / "people.csv").write_text("n,who\n1,ada\n2,bob\n3,eve\n")
    (tmp_path / "people.jsonl").write_text("".join(json.dumps({"n": n, "who": who}) + "\n" for n, who in rows))
    frame.createOrReplaceTempView("people")
    return {name: str(tmp_path / f"people.{name}") for name in ("parquet", "orc", "csv", "jsonl")}


@pytest.mark.parametrize("kind", ["parquet", "orc", "csv", "jsonl"])
def test_files_are_read_by_what_their_names_say(
    spark: SparkSession, files: dict[str, str], sqlite_driver: Driver, sqlite_url: str, kind: str
) -> None:
    report = load(files[kind], sqlite_url, spark=spark, type="greet", key="n")
    assert (report.rows_in, report.published) == (3, 3)
    payloads = [json.loads(job.payload) for job in sqlite_driver.list().jobs]
    assert sorted(payload["who"] for payload in payloads) == ["ada", "bob", "eve"]


@pytest.mark.parametrize(("source", "format"), [("people", "table"), ("SELECT * FROM people WHERE n > 1", None)])
def test_tables_and_queries_are_sources_too(
    spark: SparkSession, files: dict[str, str], sqlite_url: str, source: str, format: str | None
) -> None:
    report = load(source, sqlite_url, spark=spark, format=format, type="greet")
    assert report.published == (3 if format else 2)


def test_columns_are_mapped_and_a_missing_one_is_named(
    spark: SparkSession, files: dict[str, str], sqlite_driver: Driver, sqlite_url: str
) -> None:
    load(files["csv"], sqlite_url, spark=spark, type="greet", mapping={"tenant_id": "who"})
    assert {job.tenant_id for job in sqlite_driver.list().jobs} == {"ada", "bob", "eve"}
    with pytest.raises(InvalidInput, match="no column 'whom'"):
        load(files["csv"], sqlite_url, spark=spark, type="greet", mapping={"tenant_id": "whom"})


def test_a_dry_run_counts_and_keeps_nothing(spark: SparkSession, sqlite_driver: Driver, sqlite_url: str) -> None:
    frame = spark.createDataFrame([("{}",), ("no",)], "payload string")
    report = load(frame, sqlite_url, type="t", dry_run=True)
    assert (report.rows_in, report.published, report.rejected) == (2, 1, 1)
    assert sqlite_driver.list().jobs == []


def test_what_cannot_be_read_is_said_and_nothing_is_loaded(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    (tmp_path / "torn.parquet").write_text("PAR1 not really")
    with pytest.raises(SourceUnreadable):
        load(str(tmp_path / "torn.parquet"), sqlite_url, spark=spark, type="t")
    with pytest.raises(SourceUnreadable, match="absent"):
        load(str(tmp_path / "absent.parquet"), sqlite_url, spark=spark, type="t")
    with pytest.raises(InvalidInput, match="give the format"):
        load(str(tmp_path / "what.is.it"), sqlite_url, spark=spark, type="t")
    assert sqlite_driver.list().jobs == []


def test_a_store_without_tables_is_noticed_before_spark_begins(spark: SparkSession, postgres: object) -> None:
    url = postgres.create_database()  # type: ignore[attr-defined]
    with pytest.raises(SchemaMissing):
        load(spark.range(1), url, type="t")


def test_the_command_loads_and_reports(
    spark: SparkSession, files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--url", f"sqlite:///{tmp_path / 'c.db'}", "--json", "pipeline", "load", files["csv"], "--type", "greet"]
    for published in (3, 0):
        assert command.run([*words, "--master", "local[1]", "--map", "tenant_id=who"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["rows_in"], told["published"], told["duplicates"]) == (3, published, 3 - published)
    assert command.run([*words[:-2], "--master", "local[1]"]) == 2
    assert "needs a type" in capsys.readouterr().err


@pytest.mark.parametrize("verbose", [False, True])
def test_a_mistake_in_an_expression_is_one_sentence_unless_all_is_asked_for(
    spark: SparkSession, files: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str], verbose: bool
) -> None:
    logging.getLogger("SQLQueryContextLogger").handlers.clear()
    logging.Logger.manager.loggerDict.pop("SQLQueryContextLogger", None)  # one that writes where this test looks
    words = ["--url", f"sqlite:///{tmp_path / 'c.db'}", "pipeline", "load", files["csv"], "--type", "greet"]
    words += ["--master", "local[1]", "--map", "n=CAST(m AS INT)", *(["--verbose"] if verbose else [])]
    assert command.run(words) == 2
    said = capfd.readouterr().err
    assert "the column n cannot be made of 'CAST(m AS INT)'" in said
    assert ("SQLQueryContextLogger" in said) is verbose
    assert verbose or len(said.strip().splitlines()) == 1


def test_the_command_says_why_rows_were_rejected(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"payload":"{}"}\n{"payload":"no"}\n{"payload":"12 no"}\n{"payload":"off"}\n')
    words = ["--url", f"sqlite:///{tmp_path / 'c.db'}", "pipeline", "load", str(tmp_path / "rows.jsonl")]
    words += ["--type", "greet", "--master", "local[1]", "--rejects", str(tmp_path / "rejects")]
    assert command.run(words) == 0
    assert "rejected 2: InvalidPayload: payload is not JSON" in capsys.readouterr().out
    assert command.run([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["rows"], each["example"]) for each in told["reasons"]] == [
        (2, '{"payload": "no"}'),
        (1, '{"payload": "12 no"}'),
    ]


def test_the_command_imports_and_lists_what_did_not_come_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.pipeline.seeds import jobs_file

    monkeypatch.chdir(tmp_path)
    words = ["--url", "sqlite:///jobs.db", "pipeline", "import", "--from", "jobs-json", jobs_file(tmp_path / "old")]
    assert command.run([*words, "--dry-run"]) == 0
    assert "would come over" in capsys.readouterr().out
    assert command.run([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["read"], told["imported"], told["rejected"]) == (7, 6, 1)
    assert told["notes"]
    assert Path(told["rejects"]).exists()


def test_refused_rows_of_a_command_do_not_hide_behind_a_trace(spark: SparkSession, sqlite_url: str) -> None:
    frame = spark.createDataFrame([("no",)], "payload string")
    with pytest.raises(TaskHarborError, match="InvalidPayload") as raised:
        load(frame, sqlite_url, type="t", failfast=True)
    assert "Traceback" not in str(raised.value)
