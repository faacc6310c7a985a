"""Migrations: applied in order, under a lock, each in a transaction with its own record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.errors import HOW_TO_MIGRATE, SchemaMissing, SchemaTooNew
from taskharbor.drivers.sqlfiles import Migration, later, migrations, outdated

if TYPE_CHECKING:
    # Not at run time: whoever prints the SQL connects to nothing and needs no client library.
    from psycopg import Connection

PACKAGE: Final = "taskharbor.drivers.postgres"
# Any constant will do, as long as every version of the driver uses the same one.
LOCK_CLASS: Final = 1_413_829_452


def migration_sql(prefix: str, after: int = 0) -> str:
    """What `migrate` would run on tables of version `after`, 0 for none, to read or to run by other means."""
    parts = [] if after else [_LEDGER.format(prefix=prefix)]
    for migration in later(PACKAGE, prefix, after):
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
        if not _has_ledger(connection, prefix):  # asked, because IF NOT EXISTS wants the right to create all the same
            connection.execute(_LEDGER.format(prefix=prefix).encode(), prepare=False)
        applied = _applied(connection, prefix)
        check_not_newer(applied, prefix)
        for migration in migrations(PACKAGE, prefix):
            if migration.version > applied:
                _apply(connection, prefix, migration)
        if _is_from_another_cluster(connection, prefix):
            _settle_in(connection, prefix)


def check_version(connection: Connection[Any], prefix: str) -> None:
    """SchemaMissing or SchemaTooNew unless the tables are what this version needs."""
    applied = _applied(connection, prefix) if _has_ledger(connection, prefix) else 0
    check_not_newer(applied, prefix)
    if applied < latest_version(prefix):
        raise outdated(applied, latest_version(prefix), prefix)
    if _is_from_another_cluster(connection, prefix):
        raise SchemaMissing(f"the tables were restored from another database cluster: {HOW_TO_MIGRATE}")


def check_not_newer(applied: int, prefix: str) -> None:
    if applied > latest_version(prefix):
        raise SchemaTooNew(
            f"the tables are at version {applied}, this TaskHarbor knows {latest_version(prefix)}: upgrade taskharbor"
        )


def _has_ledger(connection: Connection[Any], prefix: str) -> bool:
    row = connection.execute("SELECT to_regclass(%s)", (f"{prefix}migrations",)).fetchone()
    return row is not None and row[0] is not None


def _applied(connection: Connection[Any], prefix: str) -> int:
    row = connection.execute(f"SELECT COALESCE(max(version), 0) FROM {prefix}migrations".encode()).fetchone()
    return int(row[0]) if row else 0


def _is_from_another_cluster(connection: Connection[Any], prefix: str) -> bool:
    row = connection.execute(
        f"SELECT value <> (SELECT system_identifier FROM pg_control_system())::text "
        f"FROM {prefix}meta WHERE key = 'cluster'".encode()
    ).fetchone()
    return row is not None and bool(row[0])


def _settle_in(connection: Connection[Any], prefix: str) -> None:
    """The transaction ids of a dump mean nothing here, and most are yet to come. All those rows are in, so they go
    before everything that this cluster writes, in the order they had."""
    connection.execute(f"UPDATE {prefix}history SET xid = '3'".encode())
    connection.execute(
        f"UPDATE {prefix}meta SET value = (SELECT system_identifier FROM pg_control_system())::text "
        f"WHERE key = 'cluster'".encode()
    )


def _apply(connection: Connection[Any], prefix: str, migration: Migration) -> None:
    connection.execute(migration.sql.encode(), prepare=False)
    record = f"INSERT INTO {prefix}migrations (version, name) VALUES (%s, %s)"
    connection.execute(record.encode(), (migration.version, migration.name))


_LEDGER: Final = """\
CREATE TABLE IF NOT EXISTS {prefix}migrations (
  version    INT PRIMARY KEY,
  name       TEXT NOT NULL,
  applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
"""
