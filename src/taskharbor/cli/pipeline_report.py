"""`taskharbor pipeline report`: what the lake knows, as one HTML page, or as JSON."""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from taskharbor.cli.options import Verbs, add_verb
from taskharbor.cli.pipeline_options import add_lake, need_spark
from taskharbor.cli.values import moment, positive_duration

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_OUT: Final = "taskharbor-report.html"
_DESCRIPTION: Final = """\
Make one HTML page of what the lake knows: whether workers keep up, what is slow, what fails, which tenants are noisy,
how busy workers are and when more are needed, whether objectives are kept, and what was checked. The page needs no
network and no other file. Starts no Spark, and takes about a second.
With a store (--url, -A, or the environment) the page also says how far the lake is behind it.
With --json the same numbers are printed, and a page is written only where --out or --open asks for one.

examples:
  taskharbor pipeline report --lake ./lake
  taskharbor pipeline report --lake ./lake --since 30d --out month.html --open
  taskharbor pipeline report --lake ./lake --since 2031-05-01T00:00:00Z
  taskharbor pipeline report --lake ./lake --since all --json
"""


def since(text: str) -> timedelta | datetime | None:
    """7d and the like, a time, or `all`."""
    plain = text.strip()
    if plain.lower() == "all":
        return None
    if not any(letter.isdigit() for letter in plain):
        raise argparse.ArgumentTypeError(f"{text!r} says no time: write 12h, 30d, 2031-05-01T09:00:00Z, or all")
    return moment(plain) if "-" in plain.lstrip("-") else positive_duration(plain)


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "report", help="one HTML page about what the lake knows", description=_DESCRIPTION)
    add_lake(parser)
    parser.add_argument("--out", metavar="FILE", help=f"the page to write (default: {DEFAULT_OUT})")
    parser.add_argument(
        "--since",
        type=since,
        metavar="TIME",
        default=timedelta(days=7),
        help="how far back: 12h, 30d, a time such as 2031-05-01T00:00:00Z, or all (default: 7d)",
    )
    parser.add_argument("--open", action="store_true", help="show the page in the browser")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    need_spark()
    from taskharbor.cli.output import print_json, show
    from taskharbor.cli.store import store_address
    from taskharbor.pipeline import report
    from taskharbor.pipeline.report_html import page
    from taskharbor.pipeline.report_words import size
    from taskharbor.pipeline.reports import check_place, write_page

    out = DEFAULT_OUT if arguments.out is None else arguments.out
    wants_page = not arguments.json or arguments.out is not None or arguments.open
    if wants_page:
        check_place(out)  # heard before anything is read
    # The default store is no store that anybody named: a report needs none.
    url = store_address(arguments) if arguments.url or arguments.app else None
    found = report(arguments.lake, since=arguments.since, url=url)
    path = write_page(page(found), out) if wants_page else None
    if arguments.json:
        print_json(found.data())
    elif path is not None:
        show(f"{path} ({size(path.stat().st_size)})")
        if found.empty:
            show(f"it is empty: {found.empty}")
    if path is not None and arguments.open:
        _open(path)
    return 0


def _open(path: Path) -> None:
    import sys
    import webbrowser

    if not webbrowser.open(path.as_uri()):
        print(f"taskharbor: no browser could be started: open {path} yourself", file=sys.stderr)
