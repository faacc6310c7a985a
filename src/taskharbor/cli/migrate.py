"""`taskharbor migrate`: bring the tables of a store up to date, or print the SQL that would."""

from __future__ import annotations

import argparse
import importlib
import json
from typing import TYPE_CHECKING, Any, Final

from taskharbor.cli.options import Verbs, add_verb, typed_only
from taskharbor.cli.values import positive
from taskharbor.core.errors import InvalidInput, TaskHarborError

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver

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
  taskharbor --url postgresql://app@db/shop migrate --sql --from 3 > upgrade.sql
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "migrate", help="create or update the tables of a store", description=_DESCRIPTION)
    parser.add_argument("--sql", action="store_true", help="print the SQL and connect to nothing")
    typed_only(
        parser.add_argument(
            "--from",
            dest="after",
            type=positive,
            metavar="N",
            help="with --sql: only what tables of version N lack; `doctor` says which version they are",
        )
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.store import store_address
    from taskharbor.drivers.opening import open_driver, parse_url, redacted

    if arguments.after is not None and not arguments.sql:
        raise InvalidInput("--from is for --sql: without it, migrate looks for itself which version the tables are")
    address = store_address(arguments)
    if arguments.sql:
        url = parse_url(address)
        sql = _migration_sql(url.scheme, url.prefix, arguments.after or 0)
        print(json.dumps({"sql": sql}) if arguments.json else sql.rstrip("\n"))
        return 0
    driver = open_driver(address)
    try:
        migrated = not _is_current(driver)
        driver.migrate()
    finally:
        driver.close()
    shown = redacted(address)
    if arguments.json:
        print(json.dumps({"url": shown, "migrated": migrated}))
    else:
        print(f"{shown} was migrated, and is ready for use" if migrated else f"{shown} is up to date: nothing to do")
    return 0


def _is_current(driver: Driver) -> bool:
    """Whether the store works as it is. Whatever keeps it from working, `migrate` mends it or says so."""
    try:
        driver.queues()
    except TaskHarborError:
        return False
    return True


def _migration_sql(scheme: str, prefix: str, after: int) -> str:
    from taskharbor.drivers.sqlfiles import migrations

    dialect = _DIALECTS.get(scheme)
    if dialect is None:
        known = ", ".join(f"{name}://" for name in _DIALECTS)
        raise InvalidInput(f"{scheme}:// has no SQL to print: --sql is for {known}")
    # These modules need no client library: the SQL can be printed where none is installed.
    schema: Any = importlib.import_module(f"taskharbor.drivers.{dialect}.schema")
    if after == migrations(schema.PACKAGE, prefix)[-1].version:
        return f"-- tables of version {after} are up to date: nothing to do\n"
    sql: str = schema.migration_sql(prefix, after)
    return sql
