"""`taskharbor pipeline run`: what has ended goes into the lake, exactly once."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Final

from taskharbor.cli.options import Verbs, add_verb
from taskharbor.cli.pipeline_options import add_lake, add_master, add_nice, give_way, need_spark
from taskharbor.cli.values import positive, positive_duration

if TYPE_CHECKING:
    from taskharbor.pipeline.runs import RunReport

_DESCRIPTION: Final = """\
Bring every attempt and every job that has ended since the last run into the lake: as it was (bronze), as attempts and
jobs (silver), and as numbers to look at (gold). Each exactly once: it may be killed at any moment and run again.
Two runs at once refuse each other. A batch that does not pass its checks fails the run, and gold stays as it was.
With --follow again and again, until Ctrl-C; as JSON, one line for each round that brought something.
Spark on this machine gives way to workers and a database beside it; with --nice 0 it does not, and is done sooner.

examples:
  taskharbor --url sqlite:///jobs.db pipeline run
  taskharbor pipeline run --lake /data/lake --max-rows 500000
  taskharbor pipeline run --lake /data/lake --follow --every 10s
  TASKHARBOR_LAKE=/data/lake taskharbor pipeline run --json
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(
        verbs, "run", help="bring what has ended since the last run into the lake", description=_DESCRIPTION
    )
    add_lake(parser)
    add_master(parser)
    add_nice(parser)
    parser.add_argument("--follow", action="store_true", help="go on, in small batches, until Ctrl-C")
    parser.add_argument(
        "--every", type=positive_duration, metavar="TIME", default=None, help="with --follow: how often (default: 2s)"
    )
    parser.add_argument("--max-rows", type=positive, metavar="N", help="rows of one batch at most (default: 2000000)")
    parser.add_argument(
        "--slo", metavar="FILE", help="a TOML file with objectives for gold/slo (default: slo.toml in the lake)"
    )
    parser.add_argument(
        "--reject-bad",
        action="store_true",
        help="put rows that a check stumbles over into silver/rejects, and go on without them",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    need_spark()
    from taskharbor.cli.store import store_address
    from taskharbor.pipeline import follow, session
    from taskharbor.pipeline import run as run_pipeline
    from taskharbor.pipeline.lake import Lake
    from taskharbor.pipeline.store import open_store

    url = store_address(arguments)
    Lake(arguments.lake).exists()  # said before Spark takes its time to start
    with open_store(url) as store:
        _ = store.store_id  # as is what is wrong with the store
    give_way(arguments)
    _say("starting Spark")
    spark = session(arguments.master)
    if not arguments.follow:
        report = run_pipeline(
            url,
            arguments.lake,
            spark=spark,
            max_rows=arguments.max_rows,
            slo=arguments.slo,
            reject_bad=arguments.reject_bad,
            progress=_say,
        )
        _show(report, as_json=arguments.json)
        return 0
    every_s = arguments.every.total_seconds() if arguments.every else 2.0

    def shown(report: RunReport) -> None:
        if arguments.json:
            print(json.dumps(report.data()), flush=True)
        else:
            print(_line(report), flush=True)

    follow(
        url,
        arguments.lake,
        spark=spark,
        max_rows=arguments.max_rows,
        slo=arguments.slo,
        reject_bad=arguments.reject_bad,
        progress=_say,
        every_s=every_s,
        on_report=shown,
    )
    return 0


def _say(stage: str) -> None:
    """Progress is for whoever looks, so it stays off the output."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{stage}\x1b[K")
    else:
        sys.stderr.write(f"{stage}\n")
    sys.stderr.flush()


def _line(report: RunReport) -> str:
    joined = f"{_joined(report)}\n" if report.beside else ""
    return f"{joined}batch {report.last_batch}: {report.rows:,} rows in {report.seconds:.1f} s"


def _joined(report: RunReport) -> str:
    """Worth a look: with the wrong --url, the history of another store would come into the lake."""
    others = f"{len(report.beside)} other store{'s' if len(report.beside) > 1 else ''}"
    return f"this store is new to the lake, which has the history of {others}: all are in its tables, by store_id"


def _show(report: RunReport, *, as_json: bool) -> None:
    from taskharbor.cli.output import Table, print_json, show

    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
    if as_json:
        print_json(report.data())
        return
    if not report.batches:
        show(f"nothing new for {report.lake}")
        return
    counts = (
        ("rows of the feed", f"{report.rows:,}"),
        ("attempts", f"{report.attempts:,}"),
        ("finished jobs", f"{report.finished:,}"),
        ("rejected", f"{report.rejected:,}"),
        ("batches", f"{report.batches:,}"),
        ("seconds", f"{report.seconds:.1f}"),
    )
    checks = [("ok" if check.passed else "problem", check.name) for check in report.checks]
    if report.beside:
        show(_joined(report))
    show(f"the lake {report.lake} is up to date", Table(("brought in", ""), counts), Table(("check", "of"), checks))
