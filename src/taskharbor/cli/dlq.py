"""`taskharbor dlq`: the jobs that did not work out, and what to do with them."""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from taskharbor.cli.filters import add_filters, add_paging, filter_of, selects_something
from taskharbor.cli.jobs import run_show, show_page
from taskharbor.cli.keys import add_decrypt
from taskharbor.cli.options import Verbs, add_group, add_verb, typed_only
from taskharbor.cli.streams import has_input_terminal
from taskharbor.cli.values import moment, positive, rate
from taskharbor.core.errors import InvalidInput

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver
    from taskharbor.core.model import JobFilter

_CHUNK: Final = 500
_SAMPLE: Final = 10

_DESCRIPTION: Final = """\
The dead-letter queue: jobs that failed for good, kept with the reason until somebody decides.

examples:
  taskharbor dlq list --queue mail
  taskharbor dlq redrive --error 'connection refused' --dry-run
  taskharbor dlq redrive --type email.send --rate 10/s
"""
_LIST: Final = """\
List the jobs of the DLQ, those that died last first. Where more than 5,000 match, they come in the order in which
they were enqueued, the newest first, and it says so; with --json, `order` is `death` or `creation`.

examples:
  taskharbor dlq list --code max_attempts
  taskharbor dlq list --type email.send --error timeout --json
"""
_SHOW: Final = """\
Show one job of the DLQ with its attempts; the same as `jobs show`.

examples:
  taskharbor dlq show ID
"""
_REDRIVE: Final = """\
Send jobs of the DLQ back to be run again, the oldest first: those named, those that the flags select, or --all.
Jobs that come into the DLQ meanwhile are left alone, also when they come back into it.

examples:
  taskharbor dlq redrive ID ID
  taskharbor dlq redrive --error 'connection refused' --dry-run
  taskharbor dlq redrive --queue mail --rate 10/s --reset-attempts
  taskharbor dlq redrive --all --limit 1000
"""
_PURGE: Final = """\
Remove jobs of the DLQ for good: those named, those that the flags select, or --all. Their attempts stay in history.

examples:
  taskharbor dlq purge --type report.build --dry-run
  taskharbor dlq purge --type report.build --yes
"""


def add_to(verbs: Verbs) -> None:
    group = add_group(verbs, "dlq", help="the jobs that failed for good", description=_DESCRIPTION)
    parser = add_verb(group, "list", help="list them, those that died last first", description=_LIST)
    add_filters(parser)
    add_paging(parser)
    parser.set_defaults(run=run_list)

    parser = add_verb(group, "show", help="show everything about one of them", description=_SHOW)
    parser.add_argument("id", metavar="ID")
    add_decrypt(parser)
    parser.set_defaults(run=run_show)

    parser = add_verb(group, "redrive", help="send them back to be run again", description=_REDRIVE)
    _add_choice(parser)
    parser.add_argument("--rate", type=rate, metavar="N/s", help="spread them: at most so many a second become due")
    parser.add_argument("--run-at", type=moment, metavar="TIME", help="when the first becomes due (default: now)")
    parser.add_argument("--reset-attempts", action="store_true", help="forget the failures so far")
    parser.add_argument("--clone", action="store_true", help="leave them in the DLQ and run copies as new jobs")
    parser.set_defaults(run=run_redrive)

    parser = add_verb(group, "purge", help="remove them for good", description=_PURGE)
    _add_choice(parser)
    typed_only(parser.add_argument("--yes", action="store_true", help="do not ask; needed where nobody can answer"))
    parser.set_defaults(run=run_purge)


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", metavar="ID", nargs="*")
    add_filters(parser)
    parser.add_argument("--limit", type=positive, metavar="N", help="at most N jobs, the oldest first")
    typed_only(
        parser.add_argument("--all", action="store_true", help="the whole DLQ; needed when nothing else selects")
    )
    parser.add_argument("--dry-run", action="store_true", help="change nothing; say how many, and show some")


def run_list(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.deaths import MOST, page_of_dead
    from taskharbor.cli.form import dead_table, job_data
    from taskharbor.cli.output import print_json, show
    from taskharbor.cli.store import opened

    with opened(arguments) as driver:
        now = driver.now()
        page, by_death = page_of_dead(driver, filter_of(arguments, "dlq"), arguments.cursor, arguments.limit)
    if arguments.json:
        jobs = [job_data(job, now) for job in page.jobs]
        print_json({"jobs": jobs, "cursor": page.cursor, "order": "death" if by_death else "creation"})
        return 0
    if not by_death and arguments.cursor is None:
        show(f"more than {MOST:,} jobs match: the newest first, and not those that died last\n")
    show_page(arguments, page, now, dead_table)
    return 0


def run_redrive(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import ProgressBar, print_json
    from taskharbor.cli.store import opened
    from taskharbor.core.model import JobFilter

    _check_choice(arguments, "redrive")
    with opened(arguments, writes=True) as driver:
        chosen = _chosen(driver, arguments)
        if arguments.dry_run:
            return _rehearse(driver, arguments, chosen, "would be redriven")
        if arguments.clone:
            _refuse_sealed(driver, chosen)
        now = driver.now()
        moved: list[str] = []
        with ProgressBar("redriven", len(chosen)) as bar:
            for at in range(0, len(chosen), _CHUNK):
                part = chosen[at : at + _CHUNK]
                start = arguments.run_at
                if arguments.rate is not None:
                    start = (start or now) + timedelta(seconds=at / arguments.rate)
                moved += driver.redrive(
                    JobFilter(ids=part),
                    run_at=start,
                    rate=arguments.rate,
                    reset_attempts=arguments.reset_attempts,
                    clone=arguments.clone,
                )
                bar.advance(len(part))
    missing = [] if arguments.clone else _missing(arguments, moved)
    if arguments.json:
        print_json({"redriven": len(moved), "ids": moved, "not_in_the_dlq": missing})
    else:
        print(f"redriven: {len(moved):,} {_jobs(len(moved))}")
    return _complain(missing)


def run_purge(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import ProgressBar, print_json
    from taskharbor.cli.store import opened
    from taskharbor.core.model import JobFilter

    _check_choice(arguments, "purge")
    with opened(arguments, writes=True) as driver:
        chosen = _chosen(driver, arguments)
        if arguments.dry_run:
            return _rehearse(driver, arguments, chosen, "would be removed for good")
        if not arguments.yes and chosen and not _agreed(len(chosen)):
            return 1
        removed = 0
        with ProgressBar("removed", len(chosen)) as bar:
            for at in range(0, len(chosen), _CHUNK):
                part = chosen[at : at + _CHUNK]
                removed += driver.purge(JobFilter(ids=part))
                bar.advance(len(part))
    missing = _missing(arguments, chosen)
    if arguments.json:
        print_json({"removed": removed, "not_in_the_dlq": missing})
    else:
        print(f"removed for good: {removed:,} {_jobs(removed)}")
    return _complain(missing)


def _check_choice(arguments: argparse.Namespace, verb: str) -> None:
    selects = selects_something(arguments)
    if arguments.ids and (selects or arguments.all):
        raise InvalidInput("name the jobs, or select them with flags, not both")
    if not arguments.ids and not selects and not arguments.all:
        raise InvalidInput(f"say what to {verb}: ids, flags such as --type and --error, or --all for the whole DLQ")


def _chosen(driver: Driver, arguments: argparse.Namespace) -> Sequence[str]:
    """The ids, the oldest first. Fixed before anything moves, or a job that fails again would be taken again."""
    filter: JobFilter = filter_of(arguments, "dlq", arguments.ids)
    oldest: deque[str] = deque(maxlen=arguments.limit)
    cursor: str | None = None
    while True:
        page = driver.list(filter, cursor, 1000)
        oldest.extend(job.id for job in page.jobs)
        cursor = page.cursor
        if cursor is None:
            break
    return list(reversed(oldest))


def _refuse_sealed(driver: Driver, chosen: Sequence[str]) -> None:
    """A copy has an id of its own, and an encrypted payload opens for the job that it was written for only."""
    from taskharbor.core.envelope import is_sealed
    from taskharbor.core.model import JobFilter

    for at in range(0, len(chosen), _CHUNK):
        for job in driver.list(JobFilter(ids=chosen[at : at + _CHUNK]), None, _CHUNK).jobs:
            if is_sealed(job.payload):
                raise InvalidInput(
                    f"the payload of {job.id} is encrypted, and a store cannot copy it: redrive without --clone, or "
                    "call harbor.redrive(clone=True) in the application, which has the keys"
                )


def _rehearse(driver: Driver, arguments: argparse.Namespace, chosen: Sequence[str], what: str) -> int:
    from taskharbor.cli.form import job_data, job_table
    from taskharbor.cli.output import print_json, show
    from taskharbor.core.model import JobFilter

    now = driver.now()
    jobs = driver.list(JobFilter(ids=chosen[:_SAMPLE]), None, _SAMPLE).jobs if chosen else ()
    if arguments.json:
        print_json({"dry_run": True, "jobs": len(chosen), "sample": [job_data(job, now) for job in jobs]})
        return 0
    show(f"{len(chosen):,} {_jobs(len(chosen))} {what}")
    if jobs:
        show(job_table(jobs, now, empty=""))
    return 0


def _agreed(count: int) -> bool:
    if not has_input_terminal():
        raise InvalidInput(
            f"this removes {count:,} {_jobs(count)} for good: confirm with --yes, or look with --dry-run"
        )
    print(f"remove {count:,} {_jobs(count)} for good? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("nothing was removed", file=sys.stderr)
    return False


def _missing(arguments: argparse.Namespace, found: Sequence[str]) -> list[str]:
    there = set(found)
    return [id for id in dict.fromkeys(arguments.ids) if id not in there] if arguments.limit is None else []


def _complain(missing: Sequence[Any]) -> int:
    from taskharbor.cli.output import in_one_line

    for id in missing:
        print(f"taskharbor: {in_one_line(str(id))} is not in the DLQ", file=sys.stderr)
    return 1 if missing else 0


def _jobs(count: int) -> str:
    return "job" if count == 1 else "jobs"
