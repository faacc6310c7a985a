"""`taskharbor jobs`: look at jobs, and act on single ones."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Final

from taskharbor.cli.filters import PHASES, STATUSES, add_filters, add_paging, filter_of
from taskharbor.cli.keys import add_decrypt, decrypted
from taskharbor.cli.options import Verbs, add_group, add_verb
from taskharbor.cli.values import duration
from taskharbor.core.errors import JobNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from taskharbor.cli.output import Table
    from taskharbor.core.answers import Page
    from taskharbor.core.contract import Driver
    from taskharbor.core.model import Job

_FIRST_LOOK_S: Final = 0.02
_LAST_LOOK_S: Final = 0.5
_PHASE_PAGE: Final = 1000

_DESCRIPTION: Final = """\
Look at jobs, and act on single ones.

examples:
  taskharbor jobs list --status dlq --queue mail
  taskharbor jobs show 0198c7a2-6f0e-7d5b-9a51-3f4de1c4e6aa
  taskharbor jobs wait 0198c7a2-6f0e-7d5b-9a51-3f4de1c4e6aa --timeout 1m
"""
_LIST: Final = """\
List jobs, the newest first: those that were enqueued last, whatever became of them since. With --json, `attempts` of
a job is the number of its failures so far: 0 for one that was done at its first attempt.

examples:
  taskharbor jobs list
  taskharbor jobs list --status ready --type email.send --tenant acme --limit 10
  taskharbor jobs list --error 'connection refused' --json
"""
_SHOW: Final = """\
Show everything about one job: payload, result, progress, and each attempt with its wait, its run and its error.
What is encrypted is shown with the id of its key, and in plain with --decrypt where the key is.
With --json, `attempts` inside `job` is the number of failures so far, and `attempts` beside it lists every attempt.

examples:
  taskharbor jobs show ID
  taskharbor --encryption-keys keys.txt jobs show ID --decrypt
  taskharbor jobs show ID --json
"""
_RETRY: Final = """\
Send jobs back from the DLQ to run again at once. Jobs that ended otherwise stay as they are: enqueue them anew.

examples:
  taskharbor jobs retry ID
  taskharbor jobs retry ID ID ID --reset-attempts
"""
_CANCEL: Final = """\
Cancel jobs. A waiting job is cancelled at once; a running one is told to stop, and is cancelled when it does.

examples:
  taskharbor jobs cancel ID
"""
_WAIT: Final = """\
Wait until a job has ended, and print its result. Exit code 0 if it is done, 1 if it ended otherwise or not in time.

examples:
  taskharbor jobs wait ID
  taskharbor jobs wait ID --timeout 30s --json
"""


def add_to(verbs: Verbs) -> None:
    group = add_group(verbs, "jobs", help="look at jobs, and act on single ones", description=_DESCRIPTION)
    parser = add_verb(group, "list", help="list jobs, the newest first", description=_LIST)
    parser.add_argument(
        "--status",
        choices=STATUSES,
        help="only jobs in this state; ready has the scheduled ones too, inflight the claimed and the running",
    )
    add_filters(parser)
    add_paging(parser)
    parser.set_defaults(run=run_list)

    parser = add_verb(group, "show", help="show everything about one job", description=_SHOW)
    parser.add_argument("id", metavar="ID")
    add_decrypt(parser)
    parser.set_defaults(run=run_show)

    parser = add_verb(group, "retry", help="send jobs back from the DLQ", description=_RETRY)
    parser.add_argument("ids", metavar="ID", nargs="+")
    parser.add_argument("--reset-attempts", action="store_true", help="forget the failures so far")
    parser.set_defaults(run=run_retry)

    parser = add_verb(group, "cancel", help="cancel jobs", description=_CANCEL)
    parser.add_argument("ids", metavar="ID", nargs="+")
    parser.set_defaults(run=run_cancel)

    parser = add_verb(group, "wait", help="wait until a job has ended", description=_WAIT)
    parser.add_argument("id", metavar="ID")
    parser.add_argument("--timeout", type=duration, metavar="TIME", help="wait at most this long (default: for ever)")
    add_decrypt(parser)
    parser.set_defaults(run=run_wait)


def run_list(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.form import dead_table, job_data, job_table
    from taskharbor.cli.output import print_json
    from taskharbor.cli.store import opened

    with opened(arguments) as driver:
        now = driver.now()
        page = _page(driver, arguments, arguments.status, now)
    if arguments.json:
        print_json({"jobs": [job_data(job, now) for job in page.jobs], "cursor": page.cursor})
        return 0
    show_page(arguments, page, now, dead_table if arguments.status == "dlq" else job_table)
    return 0


def show_page(
    arguments: argparse.Namespace, page: Page, now: datetime, table: Callable[[Sequence[Job], datetime, str], Table]
) -> None:
    from taskharbor.cli.output import in_one_line, show

    show(table(page.jobs, now, "no jobs" if arguments.cursor is None else "no more jobs"))
    if page.cursor is not None:
        show(in_one_line(f"there are more: --cursor '{page.cursor}'"))


def _page(driver: Driver, arguments: argparse.Namespace, status: str | None, now: datetime) -> Page:
    """A page of the store; of a phase, which the store knows nothing of, as many of its pages as it takes."""
    limit: int = arguments.limit
    if status not in PHASES:
        return driver.list(filter_of(arguments, status), arguments.cursor, limit)
    from taskharbor.core.answers import Page
    from taskharbor.drivers.checks import with_cursor

    chosen = filter_of(arguments, PHASES[status])
    found: list[Job] = []
    cursor = arguments.cursor
    while True:
        page = driver.list(chosen, cursor, _PHASE_PAGE)
        found += [job for job in page.jobs if job.phase(now) == status]
        if len(found) > limit:
            return with_cursor(Page(found[:limit], found[limit - 1].id))
        cursor = page.cursor
        if cursor is None:
            return Page(found, None)


def run_show(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.form import job_data
    from taskharbor.cli.output import print_json, show
    from taskharbor.cli.store import opened
    from taskharbor.cli.waiting import reasons
    from taskharbor.core.forms import attempt_data

    with opened(arguments) as driver:
        now = driver.now()
        job = driver.get(arguments.id)
        attempts = driver.attempts(arguments.id)
        waits_for = reasons(driver, job, now)
    if arguments.decrypt:
        job = decrypted(job, arguments)
    if arguments.json:
        listed = [attempt_data(attempt) for attempt in attempts]
        print_json({"job": job_data(job, now), "attempts": listed, "waits_for": waits_for})
        return 0
    from taskharbor.cli.form import attempt_table

    show(_facts(job, now, waits_for), *_bodies(job), attempt_table(attempts, now))
    return 0


def _facts(job: Job, now: datetime, waits_for: Sequence[str]) -> Table:
    from taskharbor.cli.form import ago, span
    from taskharbor.cli.output import Table
    from taskharbor.core.forms import iso

    def at(moment: datetime | None) -> str | None:
        return None if moment is None else f"{iso(moment)} ({ago(moment, now)})"

    progress = job.progress
    facts: list[tuple[str, object]] = [
        ("id", job.id),
        ("type", job.type),
        ("queue", job.queue),
        ("tenant", job.tenant_id),
        ("status", job.phase(now)),
        ("waits for", "; ".join(waits_for) or None),
        ("priority", job.priority or None),
        ("failures", _failures(job)),
        ("deliveries", job.deliveries),
        ("created", at(job.created_at)),
        ("due", at(job.due_at) if job.completed_at is None and job.phase(now) != "waiting" else None),
        ("expires", at(job.expires_at)),
        ("timeout", None if job.timeout is None else span(job.timeout)),
        ("key", job.idempotency_key),
        ("held by", job.lease_owner),
        ("lease ends", at(job.lease_expires_at)),
        ("started", at(job.started_at) if job.completed_at is None else None),
        ("cancel asked for", at(job.cancel_requested_at)),
        ("ended", at(job.completed_at)),
        ("DLQ code", job.dlq_code),
        ("meta", ", ".join(f"{key}={value}" for key, value in job.meta.items()) or None),
    ]
    if progress is not None:
        of = "" if progress.total is None else f" of {progress.total:g}"
        facts.append(("progress", f"{progress.done:g}{of} {progress.note}".rstrip()))
    return Table(("job", ""), [(name, str(value)) for name, value in facts if value is not None])


def _failures(job: Job) -> str:
    if job.attempts <= job.max_attempts:
        return f"{job.attempts} of {job.max_attempts}"
    return f"{job.attempts}: sent back from the DLQ after {job.max_attempts} had used up its attempts"


def _bodies(job: Job) -> Sequence[str]:
    """What may be long: payload, result, and the whole of the last error."""
    from taskharbor.cli.form import text_of
    from taskharbor.cli.output import cleaned

    error = (job.dlq_reason or "") if job.dlq_reason else job.last_error
    bodies = [("payload", text_of(job.payload)), ("result", text_of(job.result)), ("last error", error)]
    return [f"{name}\n{cleaned(text)}" for name, text in bodies if text]


def run_retry(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.store import opened
    from taskharbor.core.model import JobFilter

    with opened(arguments, writes=True) as driver:
        wanted = list(dict.fromkeys(arguments.ids))
        moved = driver.redrive(JobFilter(ids=wanted), reset_attempts=arguments.reset_attempts)
        back = set(moved)
        left = {id: _status_of(driver, id) for id in wanted if id not in back}
    answers = [{"id": id, "retried": id in back, "status": left.get(id, "ready")} for id in wanted]
    return _report(
        arguments,
        answers,
        done="is ready again",
        problem="is {status}, and only jobs in the DLQ can be retried: enqueue a new one",
        ok="retried",
    )


def run_cancel(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.store import opened

    answers: list[dict[str, object]] = []
    with opened(arguments, writes=True) as driver:
        for id in dict.fromkeys(arguments.ids):
            try:
                status = driver.cancel(id).value
            except JobNotFound:
                status = "unknown"
            answers.append({"id": id, "cancelled": status in ("cancelled", "inflight"), "status": status})
    return _report(
        arguments,
        answers,
        done="is cancelled",
        problem="is {status} and stays so: only waiting and running jobs can be cancelled",
        ok="cancelled",
    )


def _report(
    arguments: argparse.Namespace, answers: list[dict[str, object]], *, done: str, problem: str, ok: str
) -> int:
    from taskharbor.cli.output import in_one_line, print_json

    if arguments.json:
        print_json({"jobs": answers})
    for answer in answers:
        id = in_one_line(str(answer["id"]))
        if not answer[ok]:
            unknown = answer["status"] == "unknown"
            said = "does not exist" if unknown else problem.format(status=answer["status"])
            print(f"taskharbor: {id} {said}", file=sys.stderr)
        elif not arguments.json:
            told = answer["status"] == "inflight"
            print(f"{id} {'was told to stop, and will be cancelled when it does' if told else done}")
    return 0 if all(answer[ok] for answer in answers) else 1


def _status_of(driver: Driver, id: str) -> str:
    try:
        return driver.get(id).status.value
    except JobNotFound:
        return "unknown"


def run_wait(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.store import opened
    from taskharbor.core.endings import why

    with opened(arguments, waits=True) as driver:
        limit = None if arguments.timeout is None else time.monotonic() + arguments.timeout.total_seconds()
        pause = _FIRST_LOOK_S
        while True:
            job = driver.get(arguments.id)
            left = None if limit is None else limit - time.monotonic()
            if job.completed_at is not None or (left is not None and left <= 0):
                break
            time.sleep(pause if left is None else min(pause, left))
            pause = min(pause * 1.5, _LAST_LOOK_S)
        now = driver.now()
        reason = why(driver, job)
    return _outcome(arguments, decrypted(job, arguments) if arguments.decrypt else job, now, reason)


def _outcome(arguments: argparse.Namespace, job: Job, now: datetime, reason: str) -> int:
    from taskharbor.cli.form import job_data, text_of
    from taskharbor.cli.output import cleaned, in_one_line, print_json

    id = in_one_line(job.id)
    ended = job.completed_at is not None
    code = 0 if job.status.value == "done" else 1
    if arguments.json:
        print_json({"job": job_data(job, now), "ended": ended})
    elif not ended:
        print(f"{id} is still {job.phase(now)}: it did not end in time")
    elif code:
        print(f"{id} is {job.status.value}" + (f": {cleaned(reason)}" if reason else ""))
    else:
        print(f"{id} is done")
        if job.result is not None:
            print(cleaned(text_of(job.result)))
    return code
