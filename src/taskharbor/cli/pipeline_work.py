"""`taskharbor pipeline work`: run jobs on Spark's executors."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from taskharbor.cli.options import Verbs, add_verb, given_url
from taskharbor.cli.pipeline_options import add_master, need_spark
from taskharbor.cli.values import positive, positive_duration, queues
from taskharbor.core.errors import InvalidInput

if TYPE_CHECKING:
    from taskharbor.cli.output import ProgressBar
    from taskharbor.pipeline.work_report import Seen, WorkReport

_DESCRIPTION: Final = """\
Run the jobs of a queue on Spark's executors until nothing is left that is due, or for a time. Each Spark task is a
worker like any other: with leases, heartbeats and fencing, under a name that shows executor and partition. Of an
executor that is lost, the jobs run again on the others when their leases have ended. All counts come from the store.

The application's code goes to the executors by itself; they need Python with taskharbor and the store's extra.
Ctrl-C or SIGTERM lets running handlers finish within the grace time and puts back what did not; a second one stops
at once. SQLite is for a master on this machine; on a cluster the jobs are in PostgreSQL or MySQL.

examples:
  taskharbor -A shop.jobs:harbor pipeline work -q mail --slots 8
  taskharbor -A shop.jobs:harbor pipeline work -q mail --slots 64 --master spark://head:7077 --for 1h
  taskharbor -A shop.jobs:harbor pipeline work -q default,mail --slots 4 --py-files helpers.zip --json
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "work", help="run jobs on Spark's executors", description=_DESCRIPTION)
    add_master(parser)
    parser.add_argument("-q", "--queues", type=queues, metavar="NAME,…", help="the queues to work on")
    parser.add_argument("--slots", type=positive, metavar="N", help="jobs of each queue at once, over all executors")
    parser.add_argument("--for", type=positive_duration, metavar="TIME", help="go on for so long (default: drain)")
    parser.add_argument(
        "--tasks", type=positive, metavar="N", help="Spark tasks that share the slots (default: one for each core)"
    )
    parser.add_argument(
        "--py-files", metavar="FILES", help="more code for the executors: .py and .zip files, with commas"
    )
    parser.add_argument(
        "--grace", type=positive_duration, metavar="TIME", help="time for running handlers to finish (default: 25s)"
    )
    parser.add_argument(
        "--lease", type=positive_duration, metavar="TIME", help="how long a silent worker keeps its jobs (default: 30s)"
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="what executors log, each line with job and worker (default: warning)",
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="(default: text)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    need_spark()
    from taskharbor.cli.app import required_app
    from taskharbor.pipeline.work_run import work

    harbor = required_app(arguments)
    app = _full_name(arguments.app, harbor)
    for_time = getattr(arguments, "for")
    settings = {
        name: value.total_seconds()
        for name, value in (("lease_s", arguments.lease), ("grace_s", arguments.grace), ("for_s", for_time))
        if value is not None
    }
    names = list(arguments.queues)
    bar = _Bar(drains=for_time is None)
    try:
        report = work(
            app,
            names,
            slots=arguments.slots,
            url=given_url(arguments),
            master=arguments.master,
            tasks=arguments.tasks,
            py_files=[name for name in (arguments.py_files or "").split(",") if name],
            log_level=arguments.log_level,
            log_format=arguments.log_format,
            progress=bar.show,
            say=bar.say,
            **settings,
        )
    finally:
        bar.end()
        harbor.close()
    _show(report, as_json=arguments.json)
    return 1 if report.short and report.ended != "stopped" else 0


def _check(arguments: argparse.Namespace) -> None:
    """Both have no good default: what runs, and how much of it at once, is for the operator to say."""
    if not arguments.queues:
        raise InvalidInput("name the queue to work on: -q mail")
    numbered = [name for name, slots in arguments.queues.items() if slots is not None]
    if numbered and "queues" in arguments.given:
        raise InvalidInput(f"--slots is for all queues: write -q {numbered[0]} without a number")
    if arguments.slots is None:
        raise InvalidInput("say how many jobs may run at once, over all executors: --slots 8")


def _full_name(app: str, harbor: object) -> str:
    """`-A` may leave out the name of the Harbor, where a module has one; executors are told it."""
    if ":" in app:
        return app
    module = sys.modules[app]
    return f"{app}:{next(name for name, value in vars(module).items() if value is harbor)}"


class _Bar:
    """What happens, for whoever looks."""

    def __init__(self, *, drains: bool) -> None:
        self._drains = drains
        self._bar: ProgressBar | None = None
        self._ended = 0

    def show(self, seen: Seen) -> None:
        from taskharbor.cli.output import ProgressBar

        if self._bar is None:
            self._bar = ProgressBar("ended", seen.total if self._drains and seen.total else None)
        self._bar.advance(seen.ended - self._ended)
        self._ended = seen.ended

    def say(self, text: str) -> None:
        clear = "\r\x1b[K" if sys.stderr.isatty() else ""
        print(f"{clear}taskharbor: {text}", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.__exit__()


def _show(report: WorkReport, *, as_json: bool) -> None:
    from taskharbor.cli.output import Table, print_json, show

    if as_json:
        print_json(report.data())
        return
    headings = ("succeeded", "retried", "dead", "snoozed", "released", "cancelled", "lapsed", "left")
    counts = [f"{getattr(report, name):,}" for name in headings]
    why = {"drained": "nothing is left that is due", "time": "the time is up", "stopped": "stopped"}[report.ended]
    word = "worker" if len(report.workers) == 1 else "workers"
    show(
        f"{why}: {len(report.workers)} {word} of Spark, {report.slots} slots, {report.seconds:.1f} s",
        Table(headings, [counts]),
    )
    if report.leased:
        print(f"{report.leased:,} jobs were cut short: they run again when their leases end")
    if report.uncounted:
        print(f"{report.uncounted:,} more ends are in the store, behind a transaction of somebody else that is open")
    for problem in report.problems:
        print(f"on the way: {problem}")
