"""The command line: what it prints, what it returns, and how it complains."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

import pytest

import taskharbor
from taskharbor.cli import main
from taskharbor.cli.command import build_parser
from taskharbor.cli.table import table


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TASKHARBOR_URL", raising=False)


def test_the_version_is_the_one_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"taskharbor {taskharbor.__version__}\n"


@pytest.mark.parametrize("words", [[], ["frobnicate"], ["migrate", "--nonsense"], ["--url"], ["demo", "extra"]])
def test_wrong_usage_is_exit_code_2_and_leaves_standard_output_empty(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "usage: taskharbor" in said.err


def test_the_help_shows_every_verb_and_examples() -> None:
    text = build_parser().format_help()
    for word in ("migrate", "demo", "examples:", "TASKHARBOR_URL", "Exit codes"):
        assert word in text


@pytest.mark.parametrize("verb", ["migrate", "demo"])
def test_the_help_of_every_verb_has_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert "examples:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["--url", "redis://x", "migrate"], "known are"),
        (["--url", "nonsense", "migrate"], "sqlite:///jobs.db"),
        (["--url", "sqlite:///jobs.db?prefix=1;DROP", "migrate"], "prefix=th_"),
        (["--url", "memory://", "migrate", "--sql"], "--sql is for"),
        (["--url", "", "migrate"], "--url is empty"),
        (["--url", " ", "demo"], "--url is empty"),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_url_that_makes_no_sense_is_wrong_usage_in_one_line_with_the_cure(
    words: list[str], form: list[str], cure: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*form, *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("taskharbor: ")
    assert said.err.count("\n") == 1
    assert cure in said.err


def test_an_empty_url_creates_nothing() -> None:
    for verb in ("migrate", "demo"):
        main(["--url", "", verb])
    assert not list(Path().iterdir())


def test_an_empty_variable_in_the_environment_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKHARBOR_URL", "")
    assert main(["migrate"]) == 0
    assert tables("taskharbor.db")


def test_an_interrupt_is_one_line_even_while_the_command_loads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "taskharbor.cli.command":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "taskharbor.cli.command")
    assert main(["--version"]) == 1
    assert capsys.readouterr() == ("", "taskharbor: interrupted\n")


def test_an_error_never_shows_a_password(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "postgresql://user:s3cr3t@127.0.0.1:1/x", "migrate"]) == 1
    assert "s3cr3t" not in capsys.readouterr().err


# --- migrate -----------------------------------------------------------------------------------------------


def tables(file: str) -> set[str]:
    connection = sqlite3.connect(file)
    try:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    finally:
        connection.close()


def test_migrate_creates_the_tables_and_may_be_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "sqlite:///jobs.db", "migrate"]) == 0
    assert main(["--url", "sqlite:///jobs.db", "migrate"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "sqlite:///jobs.db was migrated, and is ready for use",
        "sqlite:///jobs.db is up to date: nothing to do",
    ]
    assert {"th_jobs", "th_history"} <= tables("jobs.db")


def test_the_store_comes_from_the_flag_then_the_environment_then_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["migrate"]) == 0
    assert tables("taskharbor.db")
    monkeypatch.setenv("TASKHARBOR_URL", "sqlite:///environment.db")
    assert main(["migrate"]) == 0
    assert tables("environment.db")
    assert main(["migrate", "--url", "sqlite:///flag.db"]) == 0
    assert tables("flag.db")


def test_options_may_stand_before_or_behind_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--url", "sqlite:///jobs.db", "migrate"]) == 0
    assert main(["migrate", "--json", "--url", "sqlite:///jobs.db"]) == 0
    before, behind = capsys.readouterr().out.splitlines()
    assert json.loads(before) == {"url": "sqlite:///jobs.db", "migrated": True}
    assert json.loads(behind) == {"url": "sqlite:///jobs.db", "migrated": False}, "there was nothing left to do"


@pytest.mark.parametrize("url", ["sqlite:///never.db", "postgresql://user@nowhere/x", "mysql://user@nowhere/x"])
def test_migrate_sql_prints_the_statements_and_connects_to_nothing(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--url", f"{url}?prefix=harbor_", "migrate", "--sql"]) == 0
    sql = capsys.readouterr().out
    assert "harbor_jobs" in sql
    assert "th_jobs" not in sql
    assert not Path("never.db").exists()


def test_the_printed_sql_of_sqlite_makes_the_same_tables_as_migrate(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--url", "sqlite:///migrated.db", "migrate"])
    capsys.readouterr()
    main(["--url", "sqlite:///x.db", "migrate", "--sql"])
    connection = sqlite3.connect("printed.db")
    try:
        connection.executescript(capsys.readouterr().out)
    finally:
        connection.close()
    assert tables("printed.db") == tables("migrated.db")


# --- demo --------------------------------------------------------------------------------------------------


def test_the_demo_shows_a_life_of_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    text = capsys.readouterr().out
    for promise in (
        "the same job came back",
        "highest priority first: report.build",
        "late ack was refused: LeaseMismatch",
        "amount is negative",
        "the lease ended before the worker settled it",
        "Counts: 1 ready, 4 done, 1 dlq",
        "scheduled",
        "dead: to the dlq",
    ):
        assert promise in text
    assert not list(Path().iterdir()), "the demo left something behind"


def test_a_job_that_succeeded_in_the_end_does_not_look_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--url", "memory://"]) == 0
    jobs, attempts = capsys.readouterr().out.split("Attempts, each")
    assert "mail server busy" not in jobs.partition("Jobs\n")[2]
    assert "mail server busy" in attempts


@pytest.mark.parametrize("url", ["json:///store", "sqlite:///jobs.db"])
def test_the_demo_may_be_run_again_on_the_same_store(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["demo", "--url", url]) == 0
        text = capsys.readouterr().out
        assert "the same job came back" in text
        assert "Counts: 1 ready, 4 done, 1 dlq" in text


def test_the_help_of_the_demo_does_not_promise_the_store_of_the_environment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["demo", "--help"])
    said = capsys.readouterr().out
    assert "default: a throw-away SQLite file" in said
    assert "TASKHARBOR_URL does not count here" in said


def test_the_demo_does_not_touch_the_store_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKHARBOR_URL", "sqlite:///precious.db")
    assert main(["demo"]) == 0
    assert not Path("precious.db").exists()


@pytest.mark.parametrize("url", ["memory://", "json:///store", "sqlite:///jobs.db"])
def test_the_demo_as_json_is_the_same_on_every_store(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--json", "--url", url]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {job["type"]: job["status"] for job in data["jobs"]} == {
        "email.send": "done",
        "report.build": "done",
        "card.charge": "dlq",
        "image.resize": "done",
        "digest.send": "ready",
        "invoice.send": "done",
    }
    outcomes = [attempt["outcome"] for attempt in data["attempts"]]
    assert sorted(outcomes) == ["dead", "lapsed", "retried"] + ["succeeded"] * 4


# --- tables ------------------------------------------------------------------------------------------------


def test_a_table_is_as_wide_as_its_words_and_numbers_stand_to_the_right() -> None:
    assert table(["name", "n"], [("a", 1), ("longer", 100)]).splitlines() == [
        "name      n",
        "------  ---",
        "a         1",
        "longer  100",
    ]


def test_a_table_without_rows_still_has_its_headings() -> None:
    assert table(["name", "n"], []).splitlines() == ["name  n", "----  -"]
