"""`taskharbor pipeline status`: how a lake stands."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any, Final

from taskharbor.cli.options import Verbs, add_verb
from taskharbor.cli.pipeline_options import add_lake, need_spark

_DESCRIPTION: Final = """\
Show how far the lake is behind the store (rows that are not in it, and how long the first of them has waited), what
the last run did, whether its checks passed, and the size and version of each table. Starts no Spark.
When the store cannot be read, the rest is shown all the same, and the exit code is 1; as JSON, lag_problem says why.

examples:
  taskharbor --url sqlite:///jobs.db pipeline status --lake ./lake
  taskharbor pipeline status --json
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "status", help="how far the lake is behind, and how large it is", description=_DESCRIPTION)
    add_lake(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    need_spark()
    from taskharbor.cli.output import Table, print_json, show
    from taskharbor.cli.store import store_address
    from taskharbor.pipeline.status import status

    found = status(store_address(arguments), arguments.lake)
    code = 0 if found["lag_problem"] is None else 1
    if arguments.json:
        print_json(found)
        return code
    tables = [
        (each["name"], f"{each['rows']:,}", f"{each['files']:,}", _size(each["bytes"]), each["version"])
        for each in found["tables"]
    ]
    last = found["last_run"] or {}
    checks = [
        ("ok" if check["passed"] else "problem", check["name"], f"{check['expected']:,}", f"{check['found']:,}")
        for check in last.get("checks", [])
    ]
    show(
        Table(("lake", found["lake"]), [(name, value) for name, value in _facts(found) if value]),
        Table(("table", "rows", "files", "size", "version"), tables),
        Table(("check", "of", "expected", "found"), checks, empty="no checks yet"),
    )
    return code


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    from taskharbor.cli.form import ago, span

    now = datetime.now(UTC)
    lag, last, running = found["lag"], found["last_run"], found["running"]
    if lag is None:
        behind = f"unknown: {found['lag_problem']}"
    elif lag["rows"]:
        least = "at least " if lag["at_least"] else ""
        behind = f"{least}{lag['rows']:,} rows, the first {span(lag['seconds'])} old"
    else:
        behind = "nothing"
    if lag is not None and not lag["last_batch"]:
        behind += ": the lake has nothing of this store yet"
    ended = ago(datetime.fromisoformat(last["ended_at"]), now) if last else ""
    said = f"failed {ended}: {last['failed']}" if last and last["failed"] else ""
    done = f"{ended}: {last['rows']:,} rows in {last['seconds']:.1f} s" if last and not last["failed"] else "never"
    if last and found["store"] and last["store_id"] != found["store"]:
        said, done = (f"{text}, of another store" if text else "" for text in (said, done))
    half_way = f"batch {lag['pending_batch']}: the next run goes on with it" if lag and lag["pending_batch"] else ""
    return [
        ("version", str(found["version"])),
        ("behind", behind),
        ("last run", said or done),
        ("half-way", half_way),
        ("running now", f"process {running['pid']} on {running['host']}" if running else ""),
    ]


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
