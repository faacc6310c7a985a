"""`taskharbor pipeline`: history to a lake and back, with Spark. Each verb is a module `pipeline_<verb>`."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from taskharbor.cli.options import Verbs, add_group, add_verb
from taskharbor.cli.pipeline_options import add_verbose, plainly

_DESCRIPTION: Final = """\
The data of the queue in a lake of Delta tables, which Spark, DuckDB, Polars and pandas read, and back again.
Needs an extra: pip install 'taskharbor[spark]'. Java is found on the machine, or comes with the extra.

examples:
  taskharbor --url postgresql://app@db/shop pipeline run --lake ./lake
  taskharbor pipeline run --lake ./lake --follow
  taskharbor pipeline status --lake ./lake
"""
_VERBS: Final = {
    "run": "bring what has ended since the last run into the lake",
    "status": "how far the lake is behind, and how large it is",
    "report": "one HTML page about what the lake knows",
    "triage": "dead jobs in clusters by what went wrong",
    "archive": "prune from the store what the lake has for sure",
    "load": "make jobs from data that Spark can read",
    "import": "take over the jobs of another system",
    "work": "run jobs on Spark's executors",
}
_WITHOUT_SPARK: Final = ("status", "report", "import")


def add_to(verbs: Verbs) -> None:
    group = add_group(verbs, "pipeline", help="history to a lake and back, with Spark", description=_DESCRIPTION)
    for name, help in _VERBS.items():
        module = f"{__package__}.pipeline_{name}"
        if find_spec(module) is not None:
            import_module(module).add_to(group)
            if name not in _WITHOUT_SPARK:
                parser = group.choices[name]
                add_verbose(parser)
                parser.set_defaults(run=plainly(parser.get_default("run")))
        else:
            _add_later(group, name, help)


def _add_later(group: Verbs, name: str, help: str) -> None:
    description = f"{help[0].upper()}{help[1:]}. Not in this release.\n\nexamples:\n  taskharbor pipeline {name}\n"
    parser = add_verb(group, name, help=f"{help} (not in this release)", description=description)
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(run=run_later, name=name)


def run_later(arguments: argparse.Namespace) -> int:
    print(f"taskharbor: pipeline {arguments.name} is not in this release", file=sys.stderr)
    return 1
