"""The command line: what it prints, what it returns, and how it complains."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

import taskharbor
from taskharbor.cli import main
from taskharbor.cli.command import build_parser
from taskharbor.cli.options import every_parser, options_of, subparsers_of
from taskharbor.cli.table import table
from taskharbor.drivers.sqlfiles import migrations


def test_the_version_is_the_one_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"taskharbor {taskharbor.__version__}\n"


@pytest.mark.parametrize("words", [[], ["jobs"], ["--json", "dlq"]])
def test_without_a_verb_there_is_the_help_and_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("usage: taskharbor")
    assert "examples:" in said.err


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["frobnicate"], "there are worker, enqueue"),
        (["enq"], "did you mean enqueue?"),
        (["jobs", "lst"], "did you mean list?"),
        (["migrate", "--nonsense"], "taskharbor migrate --help"),
        (["jobs", "list", "--limti", "3"], "jobs list has no flag --limti: did you mean --limit?"),
        (["jobs", "list", "--limti=3"], "did you mean --limit?"),
        (["--ulr", "sqlite:///jobs.db", "jobs", "list"], "did you mean --url?"),
        (["--url"], "--url needs a value"),
        (["jobs", "list", "--json=5"], "--json takes no value, got '5'"),
        (["queues", "limit", "mail", "--type", "--tenant"], "--tenant and --type exclude each other"),
        (["enqueue", "x", "--priority", "high"], "--priority: 'high' is not a whole number"),
        (["completion", "ksh"], "'ksh' is not a shell that is known here: there are bash, zsh, fish"),
        (["demo", "extra"], "one word too many"),
        (["stats", "--interval", "5s"], "--interval goes with --watch: without it"),
        (["jobs", "show"], "jobs show needs ID"),
        (["jobs", "list", "--status", "raedy"], "did you mean ready?"),
        (["jobs", "list", "--status", "dead"], "did you mean dlq?"),
        (["jobs", "list", "--status", "failed"], "did you mean dlq?"),
        (["jobs", "list", "--status", "completed"], "did you mean done?"),
        (["enqueue", "x", "--delay", "-5"], "'-5' is not a duration"),
        (["enqueue", "x", "--priority", "high"], "--priority"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_line_with_what_was_meant(
    words: list[str], cure: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("taskharbor: ")
    assert said.err.count("\n") == 1
    assert cure in said.err


def test_the_help_shows_every_verb_and_examples() -> None:
    text = build_parser().format_help()
    for word in (*subparsers_of(build_parser()), "examples:", "TASKHARBOR_URL", "Exit codes"):
        assert word in text


@pytest.mark.parametrize("path", [path for path, _ in every_parser(build_parser()) if path], ids=" ".join)
def test_the_help_of_every_verb_has_examples(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, "--help"]) == 0
    assert "examples:\n  " in capsys.readouterr().out


@pytest.mark.parametrize("path", [path for path, _ in every_parser(build_parser())], ids=" ".join)
def test_every_flag_has_a_help(path: tuple[str, ...]) -> None:
    parser = dict(every_parser(build_parser()))[path]
    assert [action.option_strings for action in options_of(parser) if not action.help] == []


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
    assert main(["--version"]) == 130
    assert capsys.readouterr() == ("", "taskharbor: interrupted\n")


@pytest.mark.parametrize("scheme", ["json", "sqlite"])
@pytest.mark.parametrize("line", ["enqueue x", "stats", "doctor", "migrate", "bench --jobs 5"])
def test_a_path_that_no_store_can_have_is_one_line(scheme: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = line.split()
    assert main(["--url", f"{scheme}:////tmp/a%00.db", *words]) == 2
    assert "has a %00 in its path" in capsys.readouterr().err
    Path("loop").symlink_to("loop")
    for path in ("n" * 300, "deep/" * 900 + "x", "loop", "loop/x"):
        code = main(["--url", f"{scheme}:///{path}", *words])
        said = capsys.readouterr()
        assert code == (0 if words[0] == "bench" else 1)
        assert said.err.count("\n") == (0 if words[0] in ("doctor", "bench") else 1)


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


def test_migrate_is_about_the_store_of_the_application(app: str) -> None:
    text = Path(f"{app}.py").read_text("utf-8")
    Path(f"{app}.py").write_text(text.replace("Harbor()", "Harbor('sqlite:///of_the_app.db')"))
    assert main(["-A", app, "migrate"]) == 0
    assert tables("of_the_app.db")
    assert not Path("taskharbor.db").exists()


@pytest.mark.parametrize(
    ("words", "command"),
    [(["stats"], "`taskharbor migrate`"), (["stats", "--url", "sqlite:///x.db"], "`taskharbor --url … migrate`")],
)
def test_a_file_that_is_not_there_is_named_before_anything_else(
    words: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    said = capsys.readouterr().err
    assert "does not exist" in said
    assert command in said
    assert not list(Path().iterdir())


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


def test_the_printed_sql_from_a_version_upgrades_a_store_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--url", "sqlite:///migrated.db", "migrate"])
    known = migrations("taskharbor.drivers.sqlite", "th_")
    with closing(sqlite3.connect("old.db")) as connection:
        for migration in known[:2]:
            connection.executescript(migration.sql)
            connection.execute("INSERT INTO th_migrations VALUES (?, ?, 0)", migration[:2])
            connection.commit()
        capsys.readouterr()
        assert main(["--url", "sqlite:///old.db", "doctor"]) == 1
        assert "has tables of version 2" in capsys.readouterr().out
        assert main(["--url", "sqlite:///old.db", "migrate", "--sql", "--from", "2"]) == 0
        connection.executescript(capsys.readouterr().out)
    assert tables("old.db") == tables("migrated.db")
    assert main(["--url", "sqlite:///old.db", "migrate"]) == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("scheme", ["sqlite:///x.db", "postgresql://h/d", "mysql://h/d"])
def test_printed_sql_from_a_version_has_only_what_came_after(scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", scheme, "migrate", "--sql", "--from", "3"]) == 0
    sql = capsys.readouterr().out
    assert re.search("CREATE TABLE.* th_tokens", sql)
    assert not re.search("CREATE TABLE.* th_(jobs|limits|workflows|migrations)", sql)
    newest = migrations("taskharbor.drivers.sqlite", "th_")[-1].version
    assert main(["--url", scheme, "migrate", "--sql", "--from", str(newest)]) == 0
    assert capsys.readouterr().out == f"-- tables of version {newest} are up to date: nothing to do\n"
    for words, cure in (
        (["--sql", "--from", "99"], "there is no version 99 of the tables: this TaskHarbor knows 1 to "),
        (["--sql", "--from", "0"], "--from"),
        (["--from", "3"], "--from is for --sql"),
    ):
        assert main(["--url", scheme, "migrate", *words]) == 2
        said = capsys.readouterr()
        assert cure in said.err
        assert said.out == ""


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
