"""`taskharbor pipeline archive`: what the lake has for sure leaves the store, and comes back when asked."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self

from taskharbor.cli.options import Verbs, add_verb
from taskharbor.cli.pipeline_options import add_lake, add_master, need_spark
from taskharbor.cli.values import positive, positive_duration
from taskharbor.core.errors import InvalidInput

if TYPE_CHECKING:
    from taskharbor.pipeline.archive import ArchiveReport
    from taskharbor.pipeline.restore import RestoreReport

_DESCRIPTION: Final = """\
Prune finished jobs from the store once the lake has every row of theirs: compared day by day, by count and checksum,
and written down in a manifest in the lake before the first job goes. Where a row is missing or differs it says which
day, and prunes nothing. It may be killed at any moment and run again. Jobs in the DLQ are not over, and stay.

With --restore, bring finished jobs back from the lake, with all their attempts: those named, those that ended in a
range of time or belong to a queue, type or tenant, or --all. What is in the store is left as it is. Idempotency keys
stay free. A worker with --retention prunes what it finds too old, so let it keep longer before you restore.

examples:
  taskharbor --url postgresql://app@db/shop pipeline archive --older-than 30d --lake ./lake --dry-run
  taskharbor pipeline archive --older-than 30d --lake ./lake
  taskharbor pipeline archive --restore 019d3f2a-7c1e-7b45-9a70-5be0c1a4d2f3
  taskharbor pipeline archive --restore --since 2031-05-01T00:00:00Z --until 2031-06-01T00:00:00Z --queue mail
"""
_SELECTING: Final = ("since", "until", "queue", "type", "tenant")


def add_to(verbs: Verbs) -> None:
    parser = add_verb(
        verbs, "archive", help="prune from the store what the lake has for sure", description=_DESCRIPTION
    )
    add_lake(parser)
    add_master(parser)
    parser.add_argument("ids", metavar="ID", nargs="*", help="with --restore: the jobs to bring back")
    parser.add_argument("--older-than", type=positive_duration, metavar="TIME", help="jobs that ended longer ago: 30d")
    parser.add_argument("--batch", type=positive, metavar="N", default=1_000, help="jobs to prune at a time (1000)")
    parser.add_argument("--restore", action="store_true", help="bring jobs back from the lake")
    parser.add_argument("--since", metavar="TIME", help="with --restore: that ended at or after this time, or 7d ago")
    parser.add_argument("--until", metavar="TIME", help="with --restore: that ended before this time")
    parser.add_argument("--queue", metavar="NAME", help="with --restore: only jobs of this queue")
    parser.add_argument("--type", metavar="NAME", help="with --restore: only jobs of this type")
    parser.add_argument("--tenant", metavar="NAME", help="with --restore: only jobs of this tenant")
    parser.add_argument("--all", action="store_true", help="with --restore: everything that the lake has")
    parser.add_argument("--dry-run", action="store_true", help="compare and count, and change nothing")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.restore:
        return _restore(arguments)
    typed = ["ids"] if arguments.ids else [f"--{name}" for name in (*_SELECTING, "all") if name in arguments.given]
    if typed:
        raise InvalidInput(f"{typed[0]} only with --restore: an archive takes all that is old enough")
    if arguments.older_than is None:
        raise InvalidInput("say what to archive, such as --older-than 30d, or what to bring back with --restore")
    need_spark()
    from taskharbor.cli.output import ProgressBar
    from taskharbor.cli.store import store_address
    from taskharbor.pipeline import session
    from taskharbor.pipeline.archive import archive
    from taskharbor.pipeline.lake import Lake

    url = store_address(arguments)
    Lake(arguments.lake).check()  # said before Spark takes its time to start
    _say("starting Spark")
    spark = session(arguments.master)
    with _Bar(ProgressBar, "pruned") as bar:
        report = archive(
            url,
            arguments.lake,
            older_than=arguments.older_than,
            spark=spark,
            dry_run=arguments.dry_run,
            batch=arguments.batch,
            progress=_say,
            on_pruned=bar.advance,
        )
    _show_archive(report, as_json=arguments.json)
    return 0


def _restore(arguments: argparse.Namespace) -> int:
    if "older_than" in arguments.given:
        raise InvalidInput("--older-than is for archiving: to restore by time use --since and --until")
    if bool(arguments.ids) + arguments.all + any(name in arguments.given for name in _SELECTING) > 1:
        raise InvalidInput("name the jobs, select them with flags, or say --all: only one of these")
    if not arguments.ids and not arguments.all and not any(getattr(arguments, name) for name in _SELECTING):
        raise InvalidInput("say what to restore: ids, flags such as --since and --queue, or --all")
    need_spark()
    from taskharbor.cli.output import ProgressBar
    from taskharbor.cli.store import store_address
    from taskharbor.pipeline import session
    from taskharbor.pipeline.lake import Lake
    from taskharbor.pipeline.restore import restore
    from taskharbor.pipeline.store import Selection

    selection = None
    if not arguments.ids and not arguments.all:
        selection = Selection(
            queue=arguments.queue,
            type=arguments.type,
            tenant=arguments.tenant,
            since=_moment("--since", arguments.since),
            until=_moment("--until", arguments.until),
        )
    url = store_address(arguments)
    Lake(arguments.lake).check()
    _say("starting Spark")
    spark = session(arguments.master)
    with _Bar(ProgressBar, "restored") as bar:
        report = restore(
            url,
            arguments.lake,
            ids=arguments.ids,
            selection=selection,
            everything=arguments.all,
            spark=spark,
            dry_run=arguments.dry_run,
            progress=_say,
            on_restored=bar.advance,
        )
    return _show_restore(report, as_json=arguments.json)


def _moment(name: str, text: str | None) -> datetime | None:
    from taskharbor.pipeline.options import _moment as moment

    return moment(name, text)


class _Bar:
    """A progress bar that learns how much there is with the first piece of it."""

    def __init__(self, bar: Any, what: str) -> None:
        self._bar = bar
        self._what = what
        self._drawn: Any = None

    def advance(self, count: int, total: int) -> None:
        if self._drawn is None:
            _clear()
            self._drawn = self._bar(self._what, total)
        self._drawn.advance(count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._drawn is not None:
            self._drawn.__exit__(*exc_info)
        _clear()


def _say(stage: str) -> None:
    """Progress is for whoever looks, so it stays off the output."""
    sys.stderr.write(f"\r{stage}\x1b[K" if sys.stderr.isatty() else f"{stage}\n")
    sys.stderr.flush()


def _clear() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _show_archive(report: ArchiveReport, *, as_json: bool) -> None:
    from taskharbor.cli.output import Table, print_json, show

    if as_json:
        print_json(report.data())
        return
    for id in report.finished:
        print(f"finished {id}, which was interrupted")
    if not report.jobs:
        show(f"nothing ended before {report.before} that is still in the store")
        return
    days = [
        (day["day"], f"{day['store']['rows']:,}", f"{day['lake']['rows']:,}", "ok", day["store"]["checksum"][-12:])
        for day in report.days
    ]
    statuses = [(name, f"{count:,}") for name, count in report.by_status.items()]
    gone = f"{report.jobs:,} jobs would be pruned" if report.dry_run else f"pruned {report.pruned:,} jobs"
    show(
        f"{gone} that ended before {report.before}, {report.rows:,} rows of history: the lake has them all",
        Table(("ended as", "jobs"), statuses),
        Table(("day", "in the store", "in the lake", "compared", "checksum"), days),
    )
    if report.left:
        print(f"{report.left:,} jobs stayed: they were not over any more when their turn came")
    for id in report.manifests:
        print(f"manifest: {report.lake}/_taskharbor/manifests/{id}.json")


def _show_restore(report: RestoreReport, *, as_json: bool) -> int:
    from taskharbor.cli.output import Table, in_one_line, print_json, show

    if as_json:
        print_json(report.data())
    else:
        rows = "rows that would come" if report.dry_run else "rows"
        headings = ("in the lake", "would come back" if report.dry_run else "restored", "there already", rows)
        counts = (report.selected, report.restored, report.known, report.rows)
        show(
            Table(headings, [[f"{count:,}" for count in counts]]),
            Table(("ended as", "jobs"), [(name, f"{count:,}") for name, count in sorted(report.by_status.items())]),
        )
        if report.earlier:
            print(f"{report.earlier:,} jobs stay in the lake: their ids were used again since, and name other jobs now")
    for id in report.missing:
        print(f"taskharbor: the lake has no finished job {in_one_line(id)}", file=sys.stderr)
    return 1 if report.missing else 0
