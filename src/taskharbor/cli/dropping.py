"""Removes the tables of a bench. Whatever does not begin with its prefix is out of reach."""

from __future__ import annotations

import re
from typing import Any, Final

from taskharbor.core.errors import InvalidInput

_OURS: Final = re.compile(r"thbench_[0-9a-f]{1,12}_")
_POSTGRES: Final = """
SELECT c.relname, c.relkind = 'v' FROM pg_class c
WHERE starts_with(c.relname, :prefix) AND c.relkind IN ('r', 'v') AND pg_table_is_visible(c.oid)
"""
_POSTGRES_FUNCTIONS: Final = """
SELECT p.oid::regprocedure::text FROM pg_proc p
WHERE starts_with(p.proname, :prefix) AND pg_function_is_visible(p.oid)
"""
_MYSQL: Final = """
SELECT table_name, table_type = 'VIEW' FROM information_schema.tables
WHERE table_schema = DATABASE() AND LEFT(table_name, CHAR_LENGTH(:prefix)) = :prefix
"""


def drop_tables(driver: Any, prefix: str) -> None:
    from taskharbor.cli.peek import kind_of, select

    if not _OURS.fullmatch(prefix):
        raise InvalidInput(f"{prefix!r} is no prefix of a bench")
    if kind_of(driver) == "postgres":
        found = select(driver, _POSTGRES, prefix=prefix)
        functions = [name for (name,) in select(driver, _POSTGRES_FUNCTIONS, prefix=prefix)]

        def run(sql: str) -> None:
            driver._session.transact(lambda connection: connection.execute(sql.encode()))
    else:
        found = select(driver, _MYSQL, prefix=prefix)
        functions = []

        def run(sql: str) -> None:
            driver._store.write(lambda session: session._execute(sql))

    for name, _ in sorted(found, key=lambda each: not each[1]):  # views first: they stand on the tables
        if name.startswith(prefix):
            run(f"DROP {'VIEW' if dict(found)[name] else 'TABLE'} IF EXISTS {name}")
    for name in functions:
        run(f"DROP FUNCTION IF EXISTS {name}")
