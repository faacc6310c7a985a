"""SQL in files: read once, with the prefix and the parameter style the driver needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskharbor.drivers import sqlfiles
from taskharbor.drivers.sqlfiles import Statements, migrations, with_lines


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An importable package with a few SQL files."""
    home = tmp_path / "sqlfiles_sample"
    (home / "sql").mkdir(parents=True)
    (home / "migrations").mkdir()
    (home / "__init__.py").touch()
    (home / "sql" / "take.sql").write_text(
        "-- Why this is here.\nSELECT id::text, '50%' FROM th_jobs\nWHERE id = :id AND queue = :queue_1;\n"
    )
    (home / "sql" / "tally.sql").write_text(
        "SELECT 1 FROM th_jobs\nWHERE true\n  -- ?queue  AND queue = :queue\n  -- ?both  AND (a = :a\n"
        "  -- ?both       OR b = '%')\nLIMIT 1;\n"
    )
    (home / "sql" / "notes.txt").write_text("not SQL")
    (home / "migrations" / "010_later.sql").write_text("ALTER TABLE th_jobs ADD COLUMN more int;")
    (home / "migrations" / "002_sooner.sql").write_text("CREATE INDEX th_jobs_idx ON th_jobs (id);")
    monkeypatch.syspath_prepend(str(tmp_path))
    sqlfiles._read.cache_clear()
    yield "sqlfiles_sample"
    sqlfiles._read.cache_clear()
    sys.modules.pop("sqlfiles_sample", None)


def test_a_statement_is_found_by_the_name_of_its_file(package: str) -> None:
    assert list(Statements(package, "th_", "named")) == ["take", "tally"]


def test_comments_and_the_last_semicolon_are_left_out(package: str) -> None:
    text = Statements(package, "th_", "named")["take"]
    assert text.startswith("SELECT")
    assert text.endswith(":queue_1")


def test_named_parameters_stay_as_they_are(package: str) -> None:
    assert ":id AND queue = :queue_1" in Statements(package, "th_", "named")["take"]


def test_pyformat_parameters_are_rewritten_and_casts_and_percent_signs_are_not_harmed(package: str) -> None:
    text = Statements(package, "th_", "pyformat")["take"]
    assert "%(id)s AND queue = %(queue_1)s" in text
    assert "id::text, '50%%'" in text


def test_the_prefix_replaces_the_default_one_in_every_name(package: str) -> None:
    assert "FROM harbor2_jobs" in Statements(package, "harbor2_", "named")["take"]
    assert migrations(package, "x_")[0].sql == "CREATE INDEX x_jobs_idx ON x_jobs (id);"


def test_a_word_that_only_contains_the_prefix_is_left_alone() -> None:
    assert sqlfiles._prefixed("month_jobs th_jobs path th_ (th_x)", "q_") == "month_jobs q_jobs path th_ (q_x)"


def test_migrations_come_in_the_order_of_their_numbers(package: str) -> None:
    assert [(step.version, step.name) for step in migrations(package, "th_")] == [(2, "sooner"), (10, "later")]


def test_an_optional_line_is_there_only_if_it_is_asked_for(package: str) -> None:
    statements = Statements(package, "x_", "named")
    assert " ".join(statements["tally"].split()) == "SELECT 1 FROM x_jobs WHERE true LIMIT 1"
    assert "true\n  AND queue = :queue\nLIMIT" in statements[with_lines("tally", ["queue"])]
    assert "OR" not in statements[with_lines("tally", {"queue", "type"})]
    both = Statements(package, "x_", "pyformat")[with_lines("tally", ["both", "queue"])]
    assert " ".join(both.split()).endswith("AND queue = %(queue)s AND (a = %(a)s OR b = '%%') LIMIT 1")


def test_an_unknown_statement_is_a_key_error(package: str) -> None:
    with pytest.raises(KeyError):
        Statements(package, "th_", "named")["absent"]
    with pytest.raises(KeyError):
        Statements(package, "th_", "named")["absent+queue"]
