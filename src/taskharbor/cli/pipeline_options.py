"""What the verbs of `taskharbor pipeline` share."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from importlib.util import find_spec
from typing import Final

from taskharbor.core.errors import MissingExtra

DEFAULT_LAKE: Final = "taskharbor-lake"
DEFAULT_NICE: Final = 10
_NEEDED: Final = ("pyspark", "pyarrow", "deltalake")


def add_lake(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lake",
        metavar="DIR",
        default=DEFAULT_LAKE,
        help=f"the lake's directory (default: the environment's TASKHARBOR_LAKE, else {DEFAULT_LAKE})",
    )


def add_master(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master",
        metavar="URL",
        default="local[*]",
        help="where Spark runs: local[*], spark://host:7077, yarn, k8s://… (default: all cores of this machine)",
    )


def add_nice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nice",
        type=_niceness,
        metavar="N",
        default=DEFAULT_NICE,
        help="how far Spark on this machine gives way to workers and a database beside it, from 0 to 19 "
        f"(default: {DEFAULT_NICE})",
    )


def _niceness(text: str) -> int:
    if not text.isdecimal() or int(text) > 19:
        raise argparse.ArgumentTypeError(f"not a whole number from 0 (as important as the rest) to 19: {text!r}")
    return int(text)


def give_way(arguments: argparse.Namespace) -> None:
    """Before Spark starts: this process, and with it all that it starts, gets the processor when others leave it."""
    if hasattr(os, "nice") and arguments.master.startswith("local"):
        os.nice(max(0, arguments.nice - os.nice(0)))


def need_spark() -> None:
    """Raises MissingExtra where the libraries of the pipeline are not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"the pipeline needs {' and '.join(missing)}: pip install 'taskharbor[spark]'")


def add_verbose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show on standard error what Spark says of itself, in full"
    )


def plainly(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """The verb, whose errors are one sentence each, whatever Spark makes of them. The rest goes to a file that the
    message names, or with --verbose to standard error."""

    @wraps(run)
    def told_plainly(arguments: argparse.Namespace) -> int:
        from taskharbor.pipeline import spark_log

        root = logging.getLogger()
        root.addFilter(_not_of_py4j)
        with nullcontext() if getattr(arguments, "verbose", False) else spark_log.into_a_file():
            try:
                return run(arguments)
            except Exception as error:
                if spark_log.is_of_spark(error):
                    raise spark_log.failed(error) from error
                raise
            finally:
                root.removeFilter(_not_of_py4j)

    return told_plainly


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """Py4j logs the trace of each interrupt, and of each call to a Java that has gone, in nobody's name."""
    return "py4j" not in record.pathname
