"""Single statements that go past psycopg's cursors: what cursors would have looked after holds here, too."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import Connection, errors
from tests.drivers.postgres_stores import url  # noqa: F401 - a fixture

from taskharbor.drivers.postgres import shortcut
from taskharbor.drivers.postgres.shortcut import Shortcut

KEPT = b"SELECT count(*) FROM pg_prepared_statements WHERE name ^@ 'th_'"


@pytest.fixture
def connection(url: str) -> Iterator[Connection[tuple[object, ...]]]:  # noqa: F811
    with psycopg.connect(url, autocommit=True) as connection:
        connection.prepare_threshold = 0
        yield connection


def test_a_statement_is_prepared_once_and_again_when_psycopg_has_dropped_all_of_them(
    connection: Connection[tuple[object, ...]],
) -> None:
    short = Shortcut(connection)
    assert [short.rows(b"SELECT $1::int + 1", [number]) for number in range(3)] == [[(1,)], [(2,)], [(3,)]]
    assert short.rows(KEPT, []) == [(2,)]
    with connection.transaction(force_rollback=True):
        connection.execute("SELECT 1")
    assert connection.execute(KEPT).fetchone() == (0,)
    assert short.rows(b"SELECT $1::int + 1", [3]) == [(4,)]


def test_a_statement_whose_table_has_changed_is_prepared_anew(connection: Connection[tuple[object, ...]]) -> None:
    short = Shortcut(connection)
    connection.execute("CREATE TABLE changing (a int)")
    assert short.count(b"INSERT INTO changing VALUES ($1)", [1]) == 1
    assert short.rows(b"SELECT * FROM changing", []) == [(1,)]
    connection.execute("ALTER TABLE changing ADD COLUMN b text DEFAULT 'x'")
    assert short.rows(b"SELECT * FROM changing", []) == [(1, "x")]


def test_values_of_other_types_and_nulls_make_statements_of_their_own_and_no_more_than_so_many_are_kept(
    connection: Connection[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortcut, "MOST", 3)
    short = Shortcut(connection)
    for value in (1, None, "2", b"3", 4.5, 1, None, "2"):
        assert short.rows(b"SELECT $1::text IS NULL", [value]) == [(value is None,)]
        assert connection.execute(KEPT).fetchone()[0] <= 3  # type: ignore[index, operator]


def test_an_error_of_the_server_is_the_one_that_a_cursor_raises_and_the_next_statement_works(
    connection: Connection[tuple[object, ...]],
) -> None:
    short = Shortcut(connection)
    connection.execute("CREATE TABLE once (id int PRIMARY KEY)")
    insert = b"INSERT INTO once VALUES ($1)"
    assert short.count(insert, [1]) == 1
    with pytest.raises(errors.UniqueViolation, match="once_pkey") as caught:
        short.count(insert, [1])
    assert caught.value.diag.constraint_name == "once_pkey"
    with pytest.raises(errors.UndefinedTable):
        short.rows(b"SELECT * FROM nowhere", [])
    with pytest.raises(psycopg.DataError, match="NUL"):
        short.rows(b"SELECT $1::text", ["a\0b"])
    assert short.count(insert, [2]) == 1


def test_a_statement_whose_commit_fails_has_failed(connection: Connection[tuple[object, ...]]) -> None:
    connection.execute("CREATE TABLE twins (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    connection.execute("INSERT INTO twins VALUES (1)")
    short = Shortcut(connection)
    for statement in (short.count, short.rows):
        with pytest.raises(errors.UniqueViolation):
            statement(b"INSERT INTO twins VALUES ($1) RETURNING a", [1])
    assert short.rows(b"SELECT count(*) FROM twins", []) == [(1,)]


def test_a_connection_that_the_server_has_ended_is_told_from_a_statement_that_failed(
    connection: Connection[tuple[object, ...]],
    url: str,  # noqa: F811
) -> None:
    short = Shortcut(connection)
    assert short.rows(b"SELECT $1::int", [1]) == [(1,)]
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        short.rows(b"SELECT $1::int", [2])
    assert connection.broken


def test_without_prepared_statements_nothing_is_left_on_the_server(
    connection: Connection[tuple[object, ...]],
) -> None:
    connection.prepare_threshold = None
    short = Shortcut(connection)
    assert short.rows(b"SELECT $1::int + 1", [1]) == [(2,)]
    assert short.rows(b"SELECT count(*) FROM pg_prepared_statements", []) == [(0,)]


def test_statements_that_psycopg_has_dropped_make_room_for_others(
    connection: Connection[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortcut, "MOST", 3)
    short = Shortcut(connection)
    for number in range(3):
        short.rows(b"SELECT %d" % number, [])
    with connection.transaction(force_rollback=True):
        connection.execute("SELECT 1")
    for number in range(10, 20):
        assert short.rows(b"SELECT %d" % number, []) == [(number,)]


def test_a_plan_for_once_leaves_no_statement_behind(connection: Connection[tuple[object, ...]]) -> None:
    short = Shortcut(connection)
    assert short.rows(b"SELECT $1::int", [5], kept=False) == [(5,)]
    assert connection.execute(KEPT).fetchone() == (0,)
