"""The command itself: reads the words, hands them to a verb, and turns errors into one line and an exit code.

Each verb is a module with `add_to(verbs)`, which describes its words, and `run(arguments)`, which does the work.
Nothing that takes time is imported before a verb needs it: the help must be there at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from taskharbor import __version__
from taskharbor.cli import (
    bench,
    completion,
    demo,
    dlq,
    doctor,
    enqueue,
    jobs,
    keys,
    migrate,
    move,
    pipeline,
    queues,
    schedules,
    serve,
    stats,
    token,
    worker,
    workers,
    workflows,
)
from taskharbor.cli.options import hold_back_defaults, resolve, shared_options
from taskharbor.cli.parser import Parser, read
from taskharbor.cli.streams import make_ready
from taskharbor.core.errors import InvalidInput, TaskHarborError

DONE: Final = 0
FAILED: Final = 1
WRONG_USAGE: Final = 2
_VERBS: Final = (
    worker,
    enqueue,
    jobs,
    dlq,
    queues,
    workers,
    workflows,
    schedules,
    stats,
    migrate,
    move,
    doctor,
    keys,
    bench,
    demo,
    pipeline,
    serve,
    token,
    completion,
)

_EPILOG: Final = """\
examples:
  taskharbor demo                                    see the life of a few jobs, on a throw-away SQLite file
  taskharbor -A shop.jobs:harbor worker -q default:10,mail:2       run jobs
  taskharbor enqueue email.send '{"to": "ada@example.com"}' --queue mail --delay 5m
  taskharbor jobs list --status dlq                  what did not work
  taskharbor dlq redrive --type email.send --rate 10/s             and once more
  taskharbor stats --watch                           what is going on
  taskharbor doctor                                  whether the store is in order
  taskharbor serve                                   the REST API and the dashboard
  taskharbor --url sqlite:///jobs.db migrate         create or update the tables of a store

The store is --url, else that of the application (-A), else the environment's TASKHARBOR_URL, else url in
taskharbor.toml, else sqlite:///taskharbor.db; the demo looks at --url only.
Every flag has a name in the environment (--log-level is TASKHARBOR_LOG_LEVEL) and in taskharbor.toml (log-level),
looked for here and in the directories above; --yes, --all, --decrypt, --give-up, --from of `migrate`, and --type and
--tenant of `queues limit` must be typed.
Flags win over the environment, the environment over the file.
Exit codes: 0 done, 1 it failed, 2 wrong usage, 130 interrupted.
Errors are one plain line on standard error, with --json too.
"""


def run(words: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Only an interrupt goes on to the caller."""
    if words is None:
        make_ready()
    try:
        code = _code(words)
        # A reader that went away (`| head`) or a full disk is noticed here, and not in the interpreter's last breath.
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return DONE
    except OSError as error:
        _drop_output()
        what = "cannot write the output" if error.filename is None else error.filename
        print(f"taskharbor: {what}: {error.strerror or error}", file=sys.stderr)
        return FAILED
    return code


def _code(words: Sequence[str] | None) -> int:
    try:
        parser = build_parser()
        arguments = read(parser, sys.argv[1:] if words is None else words)
        arguments.is_whole_process = words is None
        code: int = _run_verb(arguments, parser)
    except SystemExit as exit:
        # How argparse ends after --help and --version.
        return exit.code if isinstance(exit.code, int) else DONE
    except TaskHarborError as error:
        print(f"taskharbor: {_one_line(error)}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, InvalidInput) else FAILED
    return code


def _run_verb(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if not hasattr(arguments, "run"):  # `taskharbor` alone, or `taskharbor jobs`
        getattr(arguments, "leaf", parser).print_help(sys.stderr)
        return WRONG_USAGE
    from taskharbor.core.logged import hush_outages

    hush_outages()  # a verb says what went wrong in one line of its own
    code: int = arguments.run(resolve(arguments, parser))
    return code


def _drop_output() -> None:
    """What could not be written would be tried again, and complained about, when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="taskharbor",
        description="A durable task queue whose guarantees are the same on every store.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared_options()],
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"taskharbor {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    for verb in _VERBS:
        verb.add_to(verbs)
    hold_back_defaults(parser)
    return parser


def _one_line(error: TaskHarborError) -> str:
    from taskharbor.cli.output import in_one_line

    return in_one_line(" ".join(str(error).split())) or type(error).__name__
