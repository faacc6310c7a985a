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
from taskharbor.cli import demo, migrate
from taskharbor.cli.options import shared_options
from taskharbor.core.errors import InvalidInput, TaskHarborError

DONE: Final = 0
FAILED: Final = 1
WRONG_USAGE: Final = 2
_VERBS: Final = (migrate, demo)

_EPILOG: Final = """\
examples:
  taskharbor demo                                    see the life of a few jobs, on a throw-away SQLite file
  taskharbor --url sqlite:///jobs.db migrate         create or update the tables of a store
  taskharbor --url postgresql://app@db/shop migrate --sql    print the SQL instead of running it

The store is --url, else the environment's TASKHARBOR_URL, else sqlite:///taskharbor.db; the demo looks at --url only.
Exit codes: 0 done, 1 it failed, 2 wrong usage. Errors are one plain line on standard error, with --json too.
"""


def run(words: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Only an interrupt goes on to the caller."""
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
        arguments = build_parser().parse_args(words)
        code: int = arguments.run(arguments)
    except SystemExit as exit:
        # How argparse ends after --help, --version and wrong usage.
        return exit.code if isinstance(exit.code, int) else DONE
    except TaskHarborError as error:
        print(f"taskharbor: {_one_line(error)}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, InvalidInput) else FAILED
    return code


def _drop_output() -> None:
    """What could not be written would be tried again, and complained about, when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="taskharbor",
        description="A durable task queue whose guarantees are the same on every store.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared_options(defaults=True)],
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"taskharbor {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in _VERBS:
        verb.add_to(verbs)
    return parser


def _one_line(error: TaskHarborError) -> str:
    return " ".join(str(error).split()) or type(error).__name__
