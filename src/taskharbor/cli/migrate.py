"""`taskharbor migrate`: bring the tables of a store up to date, or print the SQL that would."""

from __future__ import annotations

import argparse
import importlib
import json
from typing import Any, Final

from taskharbor.cli.options import Verbs, add_verb, store_url
from taskharbor.core.errors import InvalidInput, MissingExtra

_DIALECTS: Final = {
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
}

_DESCRIPTION: Final = """\
Create the tables of a store, or bring them to the version this TaskHarbor needs.
Safe to run always, and by many processes at once.

examples:
  taskharbor --url sqlite:///jobs.db migrate
  taskharbor --url postgresql://app@db/shop migrate --sql > schema.sql
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "migrate", help="create or update the tables of a store", description=_DESCRIPTION)
    parser.add_argument("--sql", action="store_true", help="print the SQL and connect to nothing")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from taskharbor.drivers.opening import open_driver, parse_url, redacted

    url = parse_url(store_url(arguments))
    if arguments.sql:
        sql = _migration_sql(url.scheme, url.prefix)
        print(json.dumps({"sql": sql}) if arguments.json else sql.rstrip("\n"))
        return 0
    driver = open_driver(store_url(arguments))
    try:
        driver.migrate()
    finally:
        driver.close()
    shown = redacted(store_url(arguments))
    print(json.dumps({"url": shown, "migrated": True}) if arguments.json else f"{shown} is up to date")
    return 0


def _migration_sql(scheme: str, prefix: str) -> str:
    dialect = _DIALECTS.get(scheme)
    if dialect is None:
        known = ", ".join(f"{name}://" for name in _DIALECTS)
        raise InvalidInput(f"{scheme}:// has no SQL to print: --sql is for {known}")
    try:
        schema: Any = importlib.import_module(f"taskharbor.drivers.{dialect}.schema")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("taskharbor"):
            raise
        raise MissingExtra(f"{scheme}:// needs an extra: pip install 'taskharbor[{dialect}]'") from None
    sql: str = schema.migration_sql(prefix)
    return sql
