"""`taskharbor move`: everything from one store to another."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from taskharbor.cli.options import Verbs, add_verb, typed_only
from taskharbor.cli.values import duration
from taskharbor.core.errors import HOW_TO_MIGRATE, InvalidInput, SchemaMissing

if TYPE_CHECKING:
    from taskharbor.drivers.moving import End, Report

_DESCRIPTION: Final = """\
Move every job (waiting, dead and finished), all history, keys, schedules, workflows, limits and settings of queues to
another store of any kind, which must be empty.

No worker may run on SRC, and no job be leased. Both stores are shut for the time of the move: enqueue is refused, and
workers get nothing. In the end both are read again and compared by count and checksum; then DST is opened, and SRC
stays as it is, shut, until you delete it.

With --live both stores are in use meanwhile. History goes ahead; then DST is opened, and jobs that wait in SRC, and
those that still come in, are taken over bit by bit, while workers of SRC run what they get hold of. When next to
nothing is left, or with --until-idle when nothing has come in or run for that time, SRC is shut, what runs there may
end, and the rest follows: schedules, workflows, settings.

Whatever ends the move, Ctrl-C too, the same command goes on where it stopped. After an error SRC is open again; after
a kill --give-up opens it.

examples:
  taskharbor move sqlite:///jobs.db postgresql://app@db/shop --dry-run
  taskharbor move sqlite:///jobs.db postgresql://app@db/shop
  taskharbor move sqlite:///jobs.db postgresql://app@db/shop --live
  taskharbor move sqlite:///jobs.db postgresql://app@db/shop --live --until-idle 10m
  taskharbor move sqlite:///jobs.db postgresql://app@db/shop --give-up
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "move", help="move everything to another store", description=_DESCRIPTION)
    parser.add_argument("source", metavar="SRC_URL", help="the store to leave")
    parser.add_argument("target", metavar="DST_URL", help="an empty store")
    parser.add_argument("--dry-run", action="store_true", help="check both stores and count, and write nothing")
    parser.add_argument("--live", action="store_true", help="drain SRC while both stores are in use")
    parser.add_argument(
        "--until-idle",
        type=duration,
        metavar="TIME",
        help="with --live: shut SRC when nothing has come in or run for so long",
    )
    parser.add_argument(
        "--wait",
        type=duration,
        metavar="TIME",
        help="with --live: how long jobs may take to end once SRC is shut (default: 5m)",
    )
    typed_only(
        parser.add_argument("--give-up", action="store_true", help="end a move that was killed: SRC is used again")
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import ProgressBar, print_json
    from taskharbor.drivers.moving import Move

    if arguments.until_idle is not None and not arguments.live:
        raise InvalidInput("--until-idle goes with --live: without it nothing comes in meanwhile")
    if arguments.wait is not None and not arguments.live:
        raise InvalidInput("--wait goes with --live: without it no job may be running, and nobody is waited for")
    if arguments.give_up and arguments.dry_run:
        raise InvalidInput("--give-up cannot be rehearsed: leave out --dry-run, or --give-up")
    absent = arguments.dry_run or arguments.give_up
    with _end(arguments.source, create=False) as source, _end(arguments.target, create=True, absent=absent) as target:
        urls = source.url, target.url
        if arguments.give_up:
            Move(source, target).give_up()
            report = None
        elif arguments.dry_run:
            planned = Move(source, target)
            planned.live = arguments.live
            report = planned.plan()
        else:
            carrier = source.driver.carrier()
            total = 3 * sum(map(carrier.count, _tables()))
            with ProgressBar("rows moved and compared", total) as bar:
                move = Move(source, target, bar.advance)
                move.live = arguments.live
                move.pace.told = _say
                if arguments.wait is not None:
                    move.pace.patience_s = arguments.wait.total_seconds()
                if arguments.until_idle is not None:
                    move.pace.idle_s = arguments.until_idle.total_seconds()
                try:
                    report = move.run()
                except KeyboardInterrupt:
                    _say(f"stopped: {urls[0]} is in use, and the same command goes on from here")
                    raise
    if arguments.json:
        print_json(_record(urls, report))
    else:
        _tell(urls, report)
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _tables() -> list[str]:
    from taskharbor.core.carrying import TABLES

    return list(TABLES)


@contextmanager
def _end(url: str, *, create: bool, absent: bool = False) -> Iterator[End]:
    """One of the two stores, open. With `absent`, one that is not there yet is not made: an empty one stands for it."""
    from taskharbor.cli.store import is_there, ready, refuse_absent
    from taskharbor.drivers.base import BaseDriver
    from taskharbor.drivers.moving import End
    from taskharbor.drivers.opening import absolute, open_driver, parse_url, redacted

    parsed = parse_url(url)
    if parsed.scheme == "memory":
        raise InvalidInput("memory:// lives and ends with its process: there is nothing to move from it or to it")
    if not create:
        refuse_absent(parsed)
    driver = open_driver("memory://" if absent and not is_there(parsed) else url)
    try:
        if not isinstance(driver, BaseDriver):
            raise InvalidInput(f"{parsed.scheme}:// cannot be moved: only the built-in stores can")
        ready(driver, parsed, create=create)
        driver.queues()
        yield End(driver, absolute(redacted(url)))
    except SchemaMissing as error:
        how = f"run `taskharbor --url {redacted(url)} migrate`"
        raise SchemaMissing(str(error).replace(HOW_TO_MIGRATE, how)) from None
    finally:
        driver.close()


def _record(urls: tuple[str, str], report: Report | None) -> dict[str, Any]:
    record: dict[str, Any] = {"source": urls[0], "target": urls[1]}
    if report is None:
        return {**record, "given_up": True}
    return {
        **record,
        "dry_run": report.dry_run,
        "resumed": report.resumed,
        "done_before": report.done_before,
        "moved_on": report.moved_on or None,
        "repeated": report.repeated,
        "rows": report.moved,
        "checksums": report.checksums,
    }


def _tell(urls: tuple[str, str], report: Report | None) -> None:
    source, target = urls
    if report is None:
        print(f"{source} is used again. What has come to {target} stays there: the same move may go on some day")
        return
    if report.done_before:
        if report.moved_on:
            print(f"everything from {source} was moved to {target}, and that has gone on to {report.moved_on}")
        else:
            print(f"everything from {source} is at {target} already: nothing to do")
        return
    for table, rows in report.moved.items():
        if rows:
            print(f"{table:<10} {rows:>14,}")
    if report.dry_run:
        print(f"nothing was moved: this is what {source} holds" + (" (a move was begun)" if report.resumed else ""))
    else:
        if report.repeated:
            print(f"{report.repeated:,} jobs were at {target} already, by their ids")
        print(f"moved to {target}, and compared row by row. {source} is shut: point everything at the new store")
