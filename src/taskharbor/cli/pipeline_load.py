"""`taskharbor pipeline load`: data that Spark can read becomes jobs, exactly once."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from taskharbor.cli.options import Verbs, add_verb
from taskharbor.cli.pipeline_options import add_master, need_spark
from taskharbor.cli.values import moment, pair, positive

if TYPE_CHECKING:
    from taskharbor.pipeline.sink import LoadReport

_DESCRIPTION: Final = """\
Make a job of each row of Parquet, CSV, JSON, ORC or Delta data, of a table, or of a query in SQL.

Columns called type, queue, tenant_id, priority, run_at, expires_at, max_attempts, timeout and meta say so of their
job, and flags say it for all. The arguments are the column payload (JSON text or bytes) or args (a struct or a map);
without one, all other columns. A row is known by its key, else by its content: running a load again, or after a
crash, adds nothing that is there. --run NAME sets rows apart from the same ones of another run.
Rows that cannot be jobs are kept in the rejects, with the reason; the counts add up.

examples:
  taskharbor --url postgresql://app@db/shop pipeline load orders.parquet --type order.ship --key order_id
  taskharbor pipeline load customers.csv --type mail.welcome --queue mail --map tenant_id=company
  taskharbor pipeline load "SELECT 1 AS n" --format sql --type count --dry-run
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "load", help="make jobs from data that Spark can read", description=_DESCRIPTION)
    add_master(parser)
    parser.add_argument("source", metavar="SOURCE", help="a path, the name of a table, or a query")
    parser.add_argument(
        "--format", metavar="NAME", help="parquet, csv, json, orc, delta, table or sql (default: guess)"
    )
    parser.add_argument("--type", metavar="NAME", help="which handler runs the jobs, unless there is a column")
    parser.add_argument("--queue", metavar="NAME", help="where they wait (default: default)")
    parser.add_argument("--tenant", metavar="NAME", help="on whose behalf (default: default)")
    parser.add_argument("--priority", type=int, metavar="N", help="higher runs first (default: 0)")
    parser.add_argument("--run-at", type=moment, metavar="TIME", help="run them then: ISO 8601 with an offset")
    parser.add_argument("--max-attempts", type=positive, metavar="N", help="failures until the DLQ (default: 5)")
    parser.add_argument("--key", metavar="COLUMN", help="what makes a row unique; several with commas")
    parser.add_argument("--run", metavar="NAME", help="rows without a key are unique within this run", dest="run_name")
    parser.add_argument(
        "--map", type=pair, action="append", metavar="NEW=OLD", help="the column OLD is to be NEW; may be repeated"
    )
    parser.add_argument(
        "--option",
        type=pair,
        action="append",
        metavar="NAME=VALUE",
        help="an option of Spark's reader; may be repeated",
    )
    parser.add_argument(
        "--rejects", metavar="DIR", help="where refused rows go (default: the lake's, else a directory)"
    )
    parser.add_argument("--lake", metavar="DIR", help="a lake, whose silver/rejects takes refused rows")
    parser.add_argument("--failfast", action="store_true", help="load nothing at all if a row is refused")
    parser.add_argument("--dry-run", action="store_true", help="check every row and load none")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    need_spark()
    from taskharbor.cli.store import store_address
    from taskharbor.pipeline import session
    from taskharbor.pipeline.loading import load

    url = store_address(arguments)
    report = load(
        arguments.source,
        url,
        spark=session(arguments.master),
        format=arguments.format,
        reading=dict(arguments.option or ()),
        mapping=dict(arguments.map or ()),
        rejects=arguments.rejects,
        lake=arguments.lake,
        failfast=arguments.failfast,
        dry_run=arguments.dry_run,
        type=arguments.type,
        queue=arguments.queue,
        tenant=arguments.tenant,
        priority=arguments.priority,
        run_at=arguments.run_at,
        max_attempts=arguments.max_attempts,
        key=arguments.key,
        run=arguments.run_name,
    )
    _show(report, as_json=arguments.json, dry_run=arguments.dry_run)
    return 0


def _show(report: LoadReport, *, as_json: bool, dry_run: bool) -> None:
    from dataclasses import asdict

    from taskharbor.cli.output import Table, print_json, show

    if as_json:
        print_json({**asdict(report), "dry_run": dry_run})
        return
    headings = ("rows", "would be jobs" if dry_run else "jobs", "there already", "rejected")
    counts = (report.rows_in, report.published, report.duplicates, report.rejected)
    show(Table(headings, [[f"{count:,}" for count in counts]]))
    if report.rejects:
        print(f"the rejected rows, with the reasons: {report.rejects}")
