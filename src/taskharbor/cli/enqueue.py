"""`taskharbor enqueue`: one job from the words of the command, or a file full of them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from taskharbor.cli.options import Verbs, add_verb
from taskharbor.cli.streams import standard_input
from taskharbor.cli.values import duration, moment, names, pair, positive, whole
from taskharbor.core.errors import DuplicateJob, InvalidInput, TaskHarborError

if TYPE_CHECKING:
    from taskharbor.app import Harbor
    from taskharbor.cli.template import Template
    from taskharbor.core.contract import Driver

_DESCRIPTION: Final = """\
Enqueue one job, or with --many one for each line of a file.

The payload is a JSON object of the handler's arguments; - reads it from standard input, and without one it is {}.
With an application (-A, TASKHARBOR_APP, or app in taskharbor.toml) the task gives queue, priority and so on where no
flag does, and the payload is checked against its function.

Each line of --many is a payload. With --envelope it is {"payload": {…}} and may have, beside the payload, its own
type, queue, priority, delay, run_at, expires_at, tenant, key, max_attempts, timeout and meta. Lines are enqueued a
thousand at a time; a line that cannot be is reported with its number, and nothing of its thousand is enqueued.

examples:
  taskharbor enqueue email.send '{"to": "ada@example.com"}' --queue mail
  taskharbor enqueue report.build '{"month": "2031-05"}' --run-at 2031-06-01T06:00:00+02:00 --key report-2031-05
  echo '{"to": "ada@example.com"}' | taskharbor enqueue email.send - --delay 1h30m
  taskharbor enqueue customer.sync '{"customer": "acme"}' --unique customer --unique-for 1h
  taskharbor -A shop.jobs:harbor enqueue email.send --many addresses.jsonl
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "enqueue", help="enqueue one job, or a file of them", description=_DESCRIPTION)
    parser.add_argument("type", metavar="TYPE", help="which handler runs it")
    parser.add_argument("payload", metavar="JSON", nargs="?", help="the handler's arguments; - reads standard input")
    parser.add_argument("--queue", metavar="NAME", help="where it waits (default: default)")
    parser.add_argument("--priority", type=whole, metavar="N", help="higher runs first (default: 0)")
    parser.add_argument("--delay", type=duration, metavar="TIME", help="run it this long from now: 90, 5m, 1h30m, 2d")
    parser.add_argument("--run-at", type=moment, metavar="TIME", help="run it then: ISO 8601 with an offset")
    parser.add_argument("--expires-at", type=moment, metavar="TIME", help="never start it after this time")
    parser.add_argument("--tenant", metavar="NAME", help="on whose behalf (default: default)")
    parser.add_argument("--key", metavar="TEXT", help="idempotency key: the same key gives the same job")
    parser.add_argument(
        "--unique",
        type=names,
        metavar="NAMES",
        help="drop it if one with equal arguments waits or runs: args for all of them, or their names, by commas",
    )
    parser.add_argument(
        "--while",
        type=names,
        dest="while_in",
        metavar="STATES",
        help="with --unique or --key: where the other one must stand to count (default with --unique: ready,inflight)",
    )
    parser.add_argument(
        "--unique-for", type=duration, metavar="TIME", help="with --unique or --key: count the other one for so long"
    )
    parser.add_argument(
        "--on-duplicate",
        choices=("return", "raise", "replace"),
        help="with --unique or --key: name the other one (default), fail, or replace one that has not begun",
    )
    parser.add_argument("--debounce", type=duration, metavar="TIME", help="run so long after the last of equal calls")
    parser.add_argument("--throttle", type=duration, metavar="TIME", help="drop equal calls for so long")
    parser.add_argument("--limit-key", metavar="TEXT", help="what limits per key count it by; {name} is an argument")
    parser.add_argument("--max-attempts", type=positive, metavar="N", help="failures until the DLQ (default: 5)")
    parser.add_argument(
        "--timeout",
        type=duration,
        metavar="TIME",
        help="end the handler after this long; 0 for no limit, whatever the task says",
    )
    parser.add_argument(
        "--meta", type=pair, action="append", metavar="NAME=VALUE", help="a note on the job; may be repeated"
    )
    parser.add_argument("--many", metavar="FILE", help="one job for each line of this file of JSON lines; - for stdin")
    parser.add_argument("--envelope", action="store_true", help="each line of --many also says where its job goes")
    parser.add_argument(
        "--no-check", action="store_true", help="with -A: take a type that the application has no task for"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.keys import ring_of
    from taskharbor.cli.store import opened
    from taskharbor.cli.template import Template

    _check_words(arguments)
    with opened(arguments, create=True) as driver:
        harbor = _harbor(arguments)
        template = Template(arguments, harbor, ring_of(arguments, harbor))
        if arguments.many is not None:
            from taskharbor.cli.bulk import enqueue_many

            return enqueue_many(driver, template, arguments)
        return _enqueue_one(driver, template, arguments)


def _check_words(arguments: argparse.Namespace) -> None:
    if arguments.delay is not None and arguments.run_at is not None:
        raise InvalidInput("--delay and --run-at both say when: give one of them")
    _check_unique(arguments)
    if arguments.many is None:
        if arguments.envelope:
            raise InvalidInput("--envelope is about the lines of --many: give the file")
        return
    if arguments.payload is not None:
        raise InvalidInput("with --many the payloads are in the file: leave the JSON out")
    if arguments.key is not None:
        raise InvalidInput("with --many one key would make all lines one job: use --envelope, and a key in each line")


def _check_unique(arguments: argparse.Namespace) -> None:
    given = {name: getattr(arguments, name) is not None for name in ("debounce", "throttle", "unique", "key")}
    if given["debounce"] and (given["throttle"] or arguments.delay is not None or arguments.run_at is not None):
        raise InvalidInput("--debounce says when by itself: leave out --throttle, --delay and --run-at")
    waits = given["debounce"] or given["throttle"]
    for name, flag in (("while_in", "--while"), ("unique_for", "--unique-for"), ("on_duplicate", "--on-duplicate")):
        if getattr(arguments, name) is None:
            continue
        if waits and name != "on_duplicate":
            raise InvalidInput(f"--debounce and --throttle say what {flag} would: leave that out")
        if not (waits or given["unique"] or given["key"] or arguments.envelope):
            raise InvalidInput(f"{flag} is about jobs that count as one: give --unique or --key as well")


def _harbor(arguments: argparse.Namespace) -> Harbor | None:
    """The application, whose tasks know where their jobs go and what they take; None without one."""
    if not arguments.app:
        return None
    from taskharbor.cli.app import announce_keys, find_harbor

    announce_keys(arguments)
    return find_harbor(arguments.app, arguments.app_directory)


def is_there(error: DuplicateJob) -> str:
    """The same in words of the command line."""
    return (
        f"job {error.existing_id} counts as the same as this one, so nothing was enqueued: give --on-duplicate return "
        "to be given its id"
    )


def _enqueue_one(driver: Driver, template: Template, arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import in_one_line, print_json

    text = arguments.payload
    if text == "-":
        text = standard_input().read()
    job = template.job(b"{}" if text is None else text, driver.now())
    try:
        answer = driver.enqueue([job])[0]
    except DuplicateJob as error:
        raise TaskHarborError(is_there(error)) from None
    if arguments.json:
        print_json({"id": answer.id, "existed": answer.existed})
    else:
        replaced = ", and is what this one says now unless it had begun" if job.on_duplicate == "replace" else ""
        there = f"{answer.id} was there already{replaced}"
        print(in_one_line(there if answer.existed else f"{answer.id} enqueued in {job.queue}"))
    return 0
