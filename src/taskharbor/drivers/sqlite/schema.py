"""The tables: bringing them up to date, and refusing ones that do not fit."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import lru_cache
from typing import Final

from taskharbor.core.errors import SchemaTooNew, StoreCorrupt, StoreRefused
from taskharbor.drivers.sqlfiles import Migration, later, migrations
from taskharbor.drivers.sqlite.errors import no_tables, older_tables
from taskharbor.drivers.sqlite.locked import begin_writing, patiently

PACKAGE: Final = "taskharbor.drivers.sqlite"
OLDEST_SQLITE: Final = (3, 35, 0)
JSON_BUILT_IN: Final = (3, 38, 0)


def migration_sql(prefix: str, after: int = 0) -> str:
    """What `migrate` would run on a file whose tables are at version `after`, 0 for none, as a script."""
    parts = [f"{each.sql.rstrip()}\n{_record(each, prefix)};\n" for each in later(PACKAGE, prefix, after)]
    return "BEGIN IMMEDIATE;\n\n" + "\n".join(parts) + "\nCOMMIT;\n"


def check_library() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreRefused(
            f"SQLite 3.35 or newer is needed, this Python was built with {sqlite3.sqlite_version}: "
            "use a newer Python, or another store"
        )
    if sqlite3.sqlite_version_info < JSON_BUILT_IN:
        with closing(sqlite3.connect(":memory:")) as probe:
            try:
                probe.execute("SELECT value FROM json_each('[]')")
            except sqlite3.OperationalError:
                raise StoreRefused(
                    f"SQLite {sqlite3.sqlite_version} was built without its JSON functions: use 3.38 or newer"
                ) from None


def check_version(connection: sqlite3.Connection, prefix: str, path: str) -> None:
    """Refuse a file whose tables are missing, older or newer than this driver."""
    try:
        row = connection.execute(f"SELECT max(version) FROM {prefix}migrations").fetchone()
    except sqlite3.OperationalError as error:
        if "no such" in str(error):
            raise no_tables(path) from None
        raise
    newest = migrations(PACKAGE, prefix)[-1].version
    if row[0] is None:
        raise no_tables(path)
    if row[0] < newest:
        raise older_tables(path, row[0], newest)
    if row[0] > newest:
        raise too_new(path, row[0], newest)


def too_new(path: str, found: int, known: int) -> SchemaTooNew:
    return SchemaTooNew(f"{path} has tables of version {found}, this TaskHarbor knows {known}: upgrade it")


def migrate(connection: sqlite3.Connection, prefix: str, path: str, patience_s: float) -> None:
    """Apply what is missing, each migration in its own transaction. The file's write lock keeps others out."""
    _use_wal(connection, patience_s)
    known = migrations(PACKAGE, prefix)
    for migration in known:
        begin_writing(connection, patience_s)
        try:
            applied = _applied(connection, prefix)
            if max(applied, default=0) > known[-1].version:
                raise too_new(path, max(applied), known[-1].version)
            if migration.version not in applied:
                _apply(connection, migration, prefix, path)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _applied(connection: sqlite3.Connection, prefix: str) -> set[int]:
    table = f"{prefix}migrations"
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone():
        return set()
    return {version for (version,) in connection.execute(f"SELECT version FROM {table}")}


def _apply(connection: sqlite3.Connection, migration: Migration, prefix: str, path: str) -> None:
    for statement in _statements(migration.sql):
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if "already exists" not in str(error):
                raise
            raise StoreCorrupt(f"{path} holds something else under our names ({error}): set another ?prefix=") from None
    connection.execute(_record(migration, prefix))


def _record(migration: Migration, prefix: str) -> str:
    # Version and name come from our own file names.
    return (
        f"INSERT INTO {prefix}migrations (version, name, applied_at) "
        f"VALUES ({migration.version}, '{migration.name}', strftime('%s', 'now') * 1000000)"
    )


@lru_cache(maxsize=64)
def _statements(script: str) -> tuple[str, ...]:
    """The script cut into statements. `executescript` would commit, and a migration must be all or nothing."""
    found: list[str] = []
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            found.append(statement)
            statement = ""
    return tuple(found)


def _use_wal(connection: sqlite3.Connection, patience_s: float) -> None:
    """Changing the mode needs the file for itself, and SQLite does not always wait for that by itself."""
    patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"), patience_s)
