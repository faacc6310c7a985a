"""`taskharbor pipeline triage`: dead jobs by what went wrong, and one kind of them sent back at a time."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self

from taskharbor.cli.options import Verbs, add_verb
from taskharbor.cli.pipeline_options import add_master, need_spark
from taskharbor.cli.values import positive, rate
from taskharbor.core.errors import InvalidInput

if TYPE_CHECKING:
    from taskharbor.pipeline.store import Selection
    from taskharbor.pipeline.triage import Cluster, Radius, Triage
    from taskharbor.pipeline.triage_redrive import Redriven

_DESCRIPTION: Final = """\
Group the jobs of the DLQ into clusters: those whose errors differ only in numbers, ids, quoted words, addresses and
paths are one. For each how many jobs, types, queues and tenants it hit, since when, and what the error says. A cluster
keeps its name from day to day. With --lake also what the lake knows of such errors: since when, and what they cost.

--redrive CLUSTER sends exactly the jobs that are in it now back to be run, the oldest first; with --rate as many a
second as given, for as long as that takes. Jobs that fail again meanwhile are not taken again, and Ctrl-C leaves the
rest in the DLQ.

examples:
  taskharbor --url postgresql://app@db/shop pipeline triage
  taskharbor pipeline triage --queue mail --since 7d --json
  taskharbor pipeline triage --redrive 3f9ac01e --dry-run
  taskharbor pipeline triage --redrive 3f9ac01e --rate 100/s --reset-attempts
"""
_ONLY_REDRIVING: Final = ("rate", "limit", "reset_attempts", "dry_run")


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "triage", help="dead jobs in clusters by what went wrong", description=_DESCRIPTION)
    add_master(parser)
    parser.add_argument(
        "--lake", metavar="DIR", help="a lake, for what it knows of these errors (default: TASKHARBOR_LAKE, if any)"
    )
    parser.add_argument("--queue", metavar="NAME", help="only jobs of this queue")
    parser.add_argument("--type", metavar="NAME", help="only jobs of this type")
    parser.add_argument("--tenant", metavar="NAME", help="only jobs of this tenant")
    parser.add_argument("--since", metavar="TIME", help="only jobs that died at or after this time, or 7d ago")
    parser.add_argument("--redrive", metavar="CLUSTER", help="send the jobs of this cluster back to be run again")
    parser.add_argument("--rate", type=rate, metavar="N/s", help="with --redrive: at most so many a second")
    parser.add_argument("--limit", type=positive, metavar="N", help="with --redrive: at most N jobs, the oldest first")
    parser.add_argument("--reset-attempts", action="store_true", help="with --redrive: forget the failures so far")
    parser.add_argument("--dry-run", action="store_true", help="with --redrive: say how many, and move none")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    typed = [name for name in _ONLY_REDRIVING if name in arguments.given]
    if arguments.redrive is None and typed:
        raise InvalidInput(f"--{typed[0].replace('_', '-')} only with --redrive CLUSTER")
    need_spark()
    from taskharbor.cli.store import store_address
    from taskharbor.pipeline import session

    url = store_address(arguments)
    selection = _selection(arguments)
    if arguments.redrive is not None:
        return _redrive(arguments, url, selection)
    from taskharbor.pipeline.triage import triage

    lake = _lake(arguments)
    with _Stages() as stages:
        stages.say("starting Spark")
        spark = session(arguments.master)
        found = triage(url, selection=selection, lake=lake, spark=spark, progress=stages.say)
    _show(found, as_json=arguments.json)
    return 0


def _redrive(arguments: argparse.Namespace, url: str, selection: Selection) -> int:
    from taskharbor.cli.output import ProgressBar
    from taskharbor.pipeline import session
    from taskharbor.pipeline.triage_redrive import redrive_cluster

    bars: list[ProgressBar] = []

    def moved(count: int, total: int) -> None:
        if not bars:
            stages.end()
            bars.append(ProgressBar("redriven", total))
        bars[0].advance(count)

    with _Stages() as stages:
        stages.say("starting Spark")
        spark = session(arguments.master)
        report = redrive_cluster(
            url,
            arguments.redrive,
            selection=selection,
            rate=arguments.rate,
            limit=arguments.limit,
            reset_attempts=arguments.reset_attempts,
            dry_run=arguments.dry_run,
            spark=spark,
            on_moved=moved,
            progress=stages.say,
        )
    _show_redriven(report, as_json=arguments.json)
    return 0


def _selection(arguments: argparse.Namespace) -> Selection:
    from taskharbor.pipeline.store import Selection

    return Selection(
        queue=arguments.queue, type=arguments.type, tenant=arguments.tenant, since=_moment(arguments.since)
    )


def _moment(text: str | None) -> datetime | None:
    from taskharbor.pipeline.options import _moment as moment

    return moment("--since", text)


def _lake(arguments: argparse.Namespace) -> str | None:
    """The lake, if there is one. One that the environment names may not have had its first run yet."""
    from taskharbor.pipeline.lake import Lake

    if arguments.lake and ("lake" in arguments.given or Lake(arguments.lake).exists()):
        return str(arguments.lake)
    return None


class _Stages:
    """What is being done, on standard error: on a terminal with the seconds that it takes, else a line for each."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._stage = ""
        self._began = 0.0
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._tick, name="taskharbor-progress", daemon=True)

    def say(self, stage: str) -> None:
        if stage == self._stage:
            return
        self._stage, self._began = stage, time.monotonic()
        if not self._shown:
            print(stage, file=sys.stderr, flush=True)

    def end(self) -> None:
        self._over.set()
        if self._shown and self._clock.is_alive():
            self._clock.join()
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _tick(self) -> None:
        while not self._over.wait(0.5):
            sys.stderr.write(f"\r{self._stage}, {time.monotonic() - self._began:.0f} s\x1b[K")
            sys.stderr.flush()

    def __enter__(self) -> Self:
        if self._shown:
            self._clock.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.end()


def _show(found: Triage, *, as_json: bool) -> None:
    from taskharbor.cli.output import Table, print_json, shortened, show

    if as_json:
        print_json(found.data())
        return
    if not found.clusters:
        show("no dead jobs")
        return
    rows = [
        (
            each.id,
            each.size,
            _reach(each.types),
            _reach(each.queues),
            _reach(each.tenants),
            _time(each.first_seen),
            _time(each.last_seen),
            shortened(each.sample, 80) or f"({', '.join(each.codes)})",
        )
        for each in found.clusters
    ]
    headings = ("cluster", "jobs", "types", "queues", "tenants", "first died", "last died", "error")
    jobs, clusters = _many(found.dead, "dead job"), _many(found.clusters_in_all, "cluster")
    told = f"{jobs} in {clusters}"
    if len(found.clusters) < found.clusters_in_all:
        told += f"; these are the {len(found.clusters):,} largest, with {sum(each.size for each in found.clusters):,}"
    parts: list[Any] = [told, Table(headings, rows)]
    known = [_in_lake(each) for each in found.clusters if each.in_lake]
    if known:
        parts.append(Table(("cluster", "in the lake since", "attempts burned", "deaths", "hours lost"), known))
    first = found.clusters[0]
    parts.append(
        f"Look at one: taskharbor dlq show {first.jobs[0]}\n"
        f"Once it is mended: taskharbor pipeline triage --redrive {first.id} --rate 100/s"
    )
    show(*parts)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _reach(radius: Radius) -> str:
    """The most affected, and how many more there are."""
    from taskharbor.cli.output import in_one_line

    names = list(radius.top)[:2]
    more = radius.count - len(names)
    return in_one_line(", ".join(names)) + (f" +{more:,}" if more else "")


def _in_lake(cluster: Cluster) -> tuple[str, str, str, str, str]:
    known = cluster.in_lake or {}
    since = _time(datetime.fromisoformat(known["first_seen"]))
    return cluster.id, since, f"{known['failures']:,}", f"{known['dead']:,}", f"{known['burned_s'] / 3600:.2f}"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"


def _show_redriven(report: Redriven, *, as_json: bool) -> None:
    from taskharbor.cli.output import print_json

    if as_json:
        print_json(report.data())
        return
    all_of_it = f"{_many(report.size, 'job')} of cluster {report.cluster}"
    if report.dry_run:
        print(f"{report.chosen:,} of {all_of_it} would be redriven, such as {report.sample[0]}")
        return
    gone = f"; {report.gone:,} were not in the DLQ any more" if report.gone else ""
    left = f"; {report.size - report.chosen:,} left for later" if report.size > report.chosen else ""
    print(f"redriven: {report.redriven:,} of {all_of_it}{gone}{left}")
