"""What the verbs of `taskharbor pipeline` share."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import Final

from taskharbor.core.errors import MissingExtra

DEFAULT_LAKE: Final = "taskharbor-lake"
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


def need_spark() -> None:
    """Raises MissingExtra where the libraries of the pipeline are not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"the pipeline needs {' and '.join(missing)}: pip install 'taskharbor[spark]'")
