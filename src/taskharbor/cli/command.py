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
from taskharbor.core.errors import TaskHarborError

DONE: Final = 0
FAILED: Final = 1
_VERBS: Final = (migrate, demo)

_EPILOG: Final = """\
examples:
  taskharbor demo                                    see the life of a few jobs, on a throw-away SQLite file
  taskharbor --url sqlite:///jobs.db migrate         create or update the tables of a store
  taskharbor --url postgresql://app@db/shop migrate --sql    print the SQL instead of running it

The store is --url, else the environment's TASKHARBOR_URL, else sqlite:///taskharbor.db.
Exit codes: 0 done, 1 it failed, 2 wrong usage.
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = build_parser().parse_args(words)
    try:
        code: int = arguments.run(arguments)
        # A reader that went away (`| head`) is noticed here, and not in the interpreter's last breath.
        sys.stdout.flush()
    except TaskHarborError as error:
        print(f"taskharbor: {_one_line(error)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("taskharbor: interrupted", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return code


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
