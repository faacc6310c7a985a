"""Where the value of a flag comes from: words, environment, file, default; and how it is read."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor.cli import main, values
from taskharbor.cli.command import build_parser
from taskharbor.cli.options import environment_name, every_parser, options_of, resolve
from taskharbor.core.errors import InvalidInput


def resolved(*words: str) -> Any:
    parser = build_parser()
    return resolve(parser.parse_args(words), parser)


def test_flags_win_over_the_environment_and_that_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolved("jobs", "list").limit == 50
    Path("taskharbor.toml").write_text("limit = 7\n")
    assert resolved("jobs", "list").limit == 7
    monkeypatch.setenv("TASKHARBOR_LIMIT", "8")
    assert resolved("jobs", "list").limit == 8
    assert resolved("jobs", "list", "--limit", "9").limit == 9


@pytest.mark.parametrize("flag", ["yes", "all"])
def test_what_confirms_must_be_typed(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert getattr(resolved("dlq", "purge", f"--{flag}"), flag) is True
    monkeypatch.setenv(f"TASKHARBOR_{flag.upper()}", "1")
    assert getattr(resolved("dlq", "purge"), flag) is False
    assert capsys.readouterr().err == (
        f"taskharbor: TASKHARBOR_{flag.upper()} in the environment means nothing: type --{flag}\n"
    )
    resolved("jobs", "list")
    assert capsys.readouterr().err == "", "where there is no such flag, nothing is said of it"
    Path("taskharbor.toml").write_text(f"{flag} = true\n")
    with pytest.raises(InvalidInput, match=f"type --{flag}"):
        resolved("dlq", "purge")


def test_the_file_is_found_in_the_directories_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("taskharbor.toml").write_text('[taskharbor]\nurl = "sqlite:///above.db"\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert resolved("jobs", "list").url == f"sqlite:///{tmp_path}/above.db", "as seen from where it is written"


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("json:///store", "json:///{}/store"),
        ("sqlite:///data/jobs.db?prefix=x_", "sqlite:///{}/data/jobs.db?prefix=x_"),
        ("sqlite:////var/jobs.db", "sqlite:////var/jobs.db"),
        ("postgresql://app@db/shop", "postgresql://app@db/shop"),
        ("memory://", "memory://"),
    ],
)
def test_a_store_in_the_file_is_relative_to_the_file(
    url: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("taskharbor.toml").write_text(f'url = "{url}"\n')
    assert resolved("stats").url == url
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert resolved("stats").url == seen.format(tmp_path)


def test_a_variable_that_looks_like_ours_misspelled_is_doubted(
    say: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKHARBOR_LOG_LEVL", "debug")
    monkeypatch.setenv("TASKHARBOR_COLOUR_OF_OUR_SHOP", "blue")
    monkeypatch.setenv("TASKHARBOR_LAKE", "/lake")
    said = say("queues", "list", "--url", "memory://")
    assert "TASKHARBOR_LOG_LEVL in the environment means nothing: did you mean TASKHARBOR_LOG_LEVEL?" in said
    assert "COLOUR" not in said
    assert "LAKE" not in said


@pytest.mark.parametrize(
    "text",
    ["queues = { default = 10, mail = 2 }", 'queues = "default:10,mail:2"', "[taskharbor.queues]\ndefault=10\nmail=2"],
)
def test_the_file_may_say_queues_in_its_own_way(text: str) -> None:
    Path("taskharbor.toml").write_text(text)
    assert resolved("worker").queues == {"default": 10, "mail": 2}


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ('ulr = "x"', "did you mean url?"),
        ("log_levle = 1", "did you mean log-level?"),
        ("[taskharbor]\nzzzzzzzz = 1", "names of flags"),
        ("limit = [", "not TOML"),
        ("taskharbor = 1", "must be a table"),
        ("limit = 1\n[taskharbor]\nlimit = 2", "twice"),
    ],
)
def test_a_file_with_a_mistake_is_wrong_usage_with_the_cure(text: str, cure: str, say: Callable[..., str]) -> None:
    Path("taskharbor.toml").write_text(text)
    said = say("jobs", "list", code=2)
    assert cure in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "value"), [("TASKHARBOR_LIMIT", "many"), ("TASKHARBOR_STATUS", "odd"), ("TASKHARBOR_JSON", "perhaps")]
)
def test_a_value_of_the_environment_that_makes_no_sense_is_named(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput, match=name):
        resolved("jobs", "list")


def test_every_flag_of_every_verb_has_a_name_in_the_environment() -> None:
    for _, parser in every_parser(build_parser()):
        for action in options_of(parser):
            assert environment_name(action).startswith("TASKHARBOR_")


def test_switches_and_lists_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKHARBOR_JSON", "yes")
    monkeypatch.setenv("TASKHARBOR_META", "a=1,b=2")
    found = resolved("enqueue", "x")
    assert found.json is True
    assert found.meta == [("a", "1"), ("b", "2")]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172_800), ("0.5", 0.5), ("250ms", 0.25)],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert values.duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "soon", "5 m", "m5", "-5", "1h30", "99999d", "5mm"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        values.duration(text)


def test_times_need_an_offset() -> None:
    assert values.moment("2031-05-01T09:00:00+02:00") == datetime(2031, 5, 1, 7, tzinfo=UTC)
    assert values.moment("2031-05-01T09:00:00Z") == datetime(2031, 5, 1, 9, tzinfo=UTC)
    with pytest.raises(ArgumentTypeError, match="no offset"):
        values.moment("2031-05-01T09:00:00")
    with pytest.raises(ArgumentTypeError, match="not a time"):
        values.moment("tomorrow")


def test_queues_have_slots_or_not() -> None:
    assert values.queues("default:10, mail") == {"default": 10, "mail": None}
    assert values.queues("a:b:2") == {"a:b": 2}
    for wrong in ("", "a:0", "a:x", "a,a", ":3"):
        with pytest.raises(ArgumentTypeError):
            values.queues(wrong)


def test_rates_have_a_unit_or_not() -> None:
    assert values.rate("5") == values.rate("5/s") == values.rate("300/m") == 5
    for wrong in ("0", "fast", "5/x", "-1"):
        with pytest.raises(ArgumentTypeError):
            values.rate(wrong)


def test_a_lake_in_the_file_is_known_to_workers_and_lies_beside_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("taskharbor.toml").write_text('lake = "lake"\nurl = "sqlite:///jobs.db"\n')
    Path("shop_jobs.py").write_text(
        "from taskharbor import Harbor\nharbor = Harbor()\n@harbor.task\ndef work() -> None: ...\n"
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))
    monkeypatch.setenv("TASKHARBOR_LAKE", "")
    monkeypatch.delenv("TASKHARBOR_LAKE")
    assert main(["-A", "shop_jobs:harbor", "worker", "--drain"]) == 0
    assert os.environ["TASKHARBOR_LAKE"] == str(Path.cwd() / "lake")
