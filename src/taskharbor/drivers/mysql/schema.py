"""Migrations: applied in order, under a lock. DDL commits by itself here, so each can run again from the start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from taskharbor.core.errors import SchemaTooNew, StoreUnavailable
from taskharbor.drivers.mysql.pool import Connection
from taskharbor.drivers.sqlfiles import later, migrations, outdated

PACKAGE: Final = "taskharbor.drivers.mysql"
LOCK_ROUNDS: Final = 12
LOCK_WAIT_S: Final = 10
_NO_SUCH_TABLE: Final = 1146
_COMMENT: Final = re.compile(r"^\s*--.*$", re.MULTILINE)
_END: Final = re.compile(r";\s*$", re.MULTILINE)


def migration_sql(prefix: str, after: int = 0) -> str:
    """What `migrate` would run on tables of version `after`, 0 for none, to read or to run by other means."""
    parts = [] if after else [f"{_LEDGER.format(prefix=prefix)};\n"]
    for migration in later(PACKAGE, prefix, after):
        parts.append(f"-- {migration.version:03} {migration.name}\n\n{migration.sql.strip()}\n")
        record = _RECORD.format(prefix=prefix) % (migration.version, f"'{migration.name}'")
        parts.append(f"{record};\n")
    return "\n".join(parts)


def latest_version(prefix: str) -> int:
    return migrations(PACKAGE, prefix)[-1].version


def migrate(connection: Connection, prefix: str) -> None:
    """Bring the tables up to date. Whoever comes second waits for the lock and then finds nothing to do."""
    if _applied(connection, prefix) == latest_version(prefix):
        return
    with connection.cursor() as cursor:
        _lock(cursor, prefix)
        try:
            cursor.execute(_LEDGER.format(prefix=prefix))
            applied = _applied(connection, prefix)
            _check_not_newer(applied, prefix)
            for migration in migrations(PACKAGE, prefix):
                if migration.version > applied:
                    for statement in statements(migration.sql):
                        cursor.execute(statement)
                    cursor.execute(_RECORD.format(prefix=prefix), (migration.version, migration.name))
        finally:
            cursor.execute("SELECT RELEASE_LOCK(CONCAT(LEFT(SHA2(DATABASE(), 256), 24), %s))", (_lock_name(prefix),))


def check_version(connection: Connection, prefix: str) -> None:
    """SchemaMissing or SchemaTooNew unless the tables are what this version needs."""
    applied = _applied(connection, prefix)
    _check_not_newer(applied, prefix)
    if applied < latest_version(prefix):
        raise outdated(applied, latest_version(prefix), prefix)


def statements(sql: str) -> Iterator[str]:
    """The single statements of a migration. In the files a statement ends with a `;` at the end of a line."""
    for part in _END.split(_COMMENT.sub("", sql)):
        if part.strip():
            yield part.strip()


def _lock(cursor: Any, prefix: str) -> None:
    # Lock names belong to the whole server: the database's name keeps neighbours apart.
    for _ in range(LOCK_ROUNDS):
        name = _lock_name(prefix)
        cursor.execute("SELECT GET_LOCK(CONCAT(LEFT(SHA2(DATABASE(), 256), 24), %s), %s)", (name, LOCK_WAIT_S))
        if cursor.fetchone()[0] == 1:
            return
    raise StoreUnavailable("another migration holds the lock: wait until it has ended, then try again")


def _lock_name(prefix: str) -> str:
    return f":taskharbor:{prefix}"


def _applied(connection: Connection, prefix: str) -> int:
    # Here and not above: whoever prints the SQL connects to nothing and needs no client library.
    from taskharbor.drivers.mysql.errors import number_of

    with connection.cursor() as cursor:
        try:
            cursor.execute(f"SELECT COALESCE(MAX(version), 0) FROM {prefix}migrations")
        except Exception as error:
            if number_of(error) == _NO_SUCH_TABLE:
                return 0
            raise
        return int(cursor.fetchone()[0])


def _check_not_newer(applied: int, prefix: str) -> None:
    if applied > latest_version(prefix):
        raise SchemaTooNew(
            f"the tables are at version {applied}, this TaskHarbor knows {latest_version(prefix)}: upgrade taskharbor"
        )


_LEDGER: Final = """\
CREATE TABLE IF NOT EXISTS {prefix}migrations (
  version    INT NOT NULL PRIMARY KEY,
  name       VARCHAR(255) NOT NULL,
  applied_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
) ENGINE = InnoDB"""
_RECORD: Final = "INSERT INTO {prefix}migrations (version, name) VALUES (%s, %s)"
