"""`taskharbor pipeline load`: data that Spark can read becomes jobs, exactly once."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from taskharbor.cli.options import Verbs, add_verb
from taskharbor.cli.pipeline_options import add_master, need_spark
from taskharbor.cli.values import duration, moment, pair, positive, whole

if TYPE_CHECKING:
    from taskharbor.app import Harbor
    from taskharbor.cli.output import ProgressBar
    from taskharbor.pipeline.loading_progress import LoadProgress
    from taskharbor.pipeline.sink import LoadReport

_DESCRIPTION: Final = """\
Make a job of each row of Parquet, CSV, JSON, ORC or Delta data, of a table, or of a query in SQL.

Columns called type, queue, tenant_id, priority, run_at, expires_at, max_attempts, timeout and meta say so of their
job, and flags say it for all. The arguments are the column payload (JSON text or bytes) or args (a struct or a map);
without one, all other columns. A row is known by its key, else by its content: running a load again, or after a
crash, adds nothing that is there. --run NAME sets rows apart from the same ones of another run.
Rows that cannot be jobs are kept in the rejects, with the reason; the counts add up.

With an application (-A, TASKHARBOR_APP, or app in taskharbor.toml) the task gives queue, priority and so on where no
flag does, its arguments must be there as columns of a fitting type, and a null for an argument that has a default is
left out, so that the default counts. A key column that is no argument is only the key.

examples:
  taskharbor --url postgresql://app@db/shop pipeline load orders.parquet --type order.ship --key order_id
  taskharbor -A shop.jobs:harbor pipeline load orders.csv --type order.ship --map 'weight=CAST(kg AS DOUBLE)'
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
    parser.add_argument("--priority", type=whole, metavar="N", help="higher runs first (default: 0)")
    parser.add_argument("--run-at", type=moment, metavar="TIME", help="run them then: ISO 8601 with an offset")
    parser.add_argument("--max-attempts", type=positive, metavar="N", help="failures until the DLQ (default: 5)")
    parser.add_argument("--timeout", type=duration, metavar="TIME", help="end a handler after this long")
    parser.add_argument("--key", metavar="COLUMN", help="what makes a row unique; several with commas")
    parser.add_argument("--run", metavar="NAME", help="rows without a key are unique within this run", dest="run_name")
    parser.add_argument(
        "--map",
        type=pair,
        action="append",
        metavar="NEW=OLD",
        help="the column OLD is to be NEW; OLD may be an expression in SQL; may be repeated",
    )
    parser.add_argument("--columns", metavar="NAME,…", help="take these columns only, by their new names")
    parser.add_argument("--omit-nulls", action="store_true", help="leave nulls out of the arguments")
    parser.add_argument(
        "--no-check", action="store_true", help="with -A: take a type without a task, and columns it does not know"
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
    from taskharbor.pipeline.loading import load
    from taskharbor.pipeline.sink_options import AS_FLAGS

    url = store_address(arguments)
    bar = _Bar()
    try:
        report = load(
            arguments.source,
            url,
            master=arguments.master,
            format=arguments.format,
            reading=dict(arguments.option or ()),
            mapping=dict(arguments.map or ()),
            columns=None if arguments.columns is None else [name.strip() for name in arguments.columns.split(",")],
            harbor=_harbor(arguments),
            check=not arguments.no_check,
            omit_nulls=arguments.omit_nulls,
            rejects=arguments.rejects,
            lake=arguments.lake,
            failfast=arguments.failfast,
            dry_run=arguments.dry_run,
            progress=bar.show,
            say=bar.say,
            words=AS_FLAGS,
            type=arguments.type,
            queue=arguments.queue,
            tenant=arguments.tenant,
            priority=arguments.priority,
            run_at=arguments.run_at,
            max_attempts=arguments.max_attempts,
            timeout=None if arguments.timeout is None else arguments.timeout.total_seconds(),
            key=arguments.key,
            run=arguments.run_name,
        )
    finally:
        bar.end()
    _show(report, as_json=arguments.json, dry_run=arguments.dry_run)
    return 0


def _harbor(arguments: argparse.Namespace) -> Harbor | None:
    """The application, whose tasks know where their jobs go and what they take; None without one."""
    if not arguments.app:
        return None
    from taskharbor.cli.app import find_harbor

    return find_harbor(arguments.app, arguments.app_directory)


class _Bar:
    """What happens, for whoever looks at a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._bar: ProgressBar | None = None
        self._rows = 0

    def say(self, stage: str) -> None:
        if self._shown:
            sys.stderr.write(f"\r{stage}\x1b[K")
            sys.stderr.flush()

    def show(self, seen: LoadProgress) -> None:
        from taskharbor.cli.output import ProgressBar

        if seen.staged:
            self.say(f"publishing {seen.rows:,} rows" if seen.rows else "publishing")
        elif not seen.rows:
            self.say(f"part {seen.parts + 1} of {seen.all_parts}")
        else:
            self._bar = self._bar or ProgressBar("staged", seen.total)
            self._bar.advance(max(0, seen.rows - self._rows))
            self._rows = max(self._rows, seen.rows)

    def end(self) -> None:
        self.say("")


def _show(report: LoadReport, *, as_json: bool, dry_run: bool) -> None:
    from dataclasses import asdict

    from taskharbor.cli.output import Table, print_json, show

    if as_json:
        print_json({**asdict(report), "dry_run": dry_run})
        return
    headings = ("rows", "would be jobs" if dry_run else "jobs", "there already", "rejected")
    counts = (report.rows_in, report.published, report.duplicates, report.rejected)
    show(Table(headings, [[f"{count:,}" for count in counts]]))
    for each in report.reasons:
        print(f"rejected {each['rows']:,}: {each['reason']}; such as {each['example']}")
    if report.rejects:
        print(f"the rejected rows, with the reasons: {report.rejects}")
