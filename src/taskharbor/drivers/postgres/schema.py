"""Migrations: applied in order, under a lock, each in a transaction with its own record."""

from __future__ import annotations

from typing import Any, Final

from psycopg import Connection, sql

from taskharbor.core.errors import SchemaMissing, SchemaTooNew
from taskharbor.drivers.sqlfiles import Migration, migrations

PACKAGE: Final = "taskharbor.drivers.postgres"
# Any constant will do, as long as every version of the driver uses the same one.
LOCK_CLASS: Final = 1_413_829_452


def migration_sql(prefix: str) -> str:
    """Everything `migrate` would run on an empty database, to read or to run by other means."""
    parts = [_LEDGER.format(prefix=prefix)]
    for migration in migrations(PACKAGE, prefix):
        parts.append(f"-- {migration.version:03} {migration.name}\n\n{migration.sql.strip()}\n")
        parts.append(
            f"INSERT INTO {prefix}migrations (version, name) VALUES ({migration.version}, '{migration.name}');\n"
        )
    return "\n".join(["BEGIN;\n", *parts, "COMMIT;\n"])


def latest_version(prefix: str) -> int:
    return migrations(PACKAGE, prefix)[-1].version


def migrate(connection: Connection[Any], prefix: str) -> None:
    """Bring the tables up to date. Whoever comes second waits for the lock and then finds nothing to do."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (LOCK_CLASS, prefix))
        connection.execute(_LEDGER.format(prefix=prefix).encode(), prepare=False)
        applied = _applied(connection, prefix)
        check_not_newer(applied, prefix)
        for migration in migrations(PACKAGE, prefix):
            if migration.version > applied:
                _apply(connection, prefix, migration)


def check_version(connection: Connection[Any], prefix: str) -> None:
    """SchemaMissing or SchemaTooNew unless the tables are what this version needs."""
    row = connection.execute("SELECT to_regclass(%s)", (f"{prefix}migrations",)).fetchone()
    applied = _applied(connection, prefix) if row and row[0] is not None else 0
    check_not_newer(applied, prefix)
    if applied < latest_version(prefix):
        raise SchemaMissing(
            f"the tables are at version {applied}, this TaskHarbor needs {latest_version(prefix)}: "
            "run 'taskharbor migrate'"
        )


def check_not_newer(applied: int, prefix: str) -> None:
    if applied > latest_version(prefix):
        raise SchemaTooNew(
            f"the tables are at version {applied}, this TaskHarbor knows {latest_version(prefix)}: upgrade taskharbor"
        )


def _applied(connection: Connection[Any], prefix: str) -> int:
    query = sql.SQL("SELECT COALESCE(max(version), 0) FROM {}").format(sql.Identifier(f"{prefix}migrations"))
    row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0


def _apply(connection: Connection[Any], prefix: str, migration: Migration) -> None:
    connection.execute(migration.sql.encode(), prepare=False)
    record = sql.SQL("INSERT INTO {} (version, name) VALUES (%s, %s)").format(sql.Identifier(f"{prefix}migrations"))
    connection.execute(record, (migration.version, migration.name))


_LEDGER: Final = """\
CREATE TABLE IF NOT EXISTS {prefix}migrations (
  version    INT PRIMARY KEY,
  name       TEXT NOT NULL,
  applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
"""
