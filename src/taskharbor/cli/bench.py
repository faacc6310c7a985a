"""`taskharbor bench`: how quick this store is, in a few seconds, without touching its tables."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from taskharbor.cli.options import Verbs, add_verb
from taskharbor.cli.values import positive
from taskharbor.core.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from taskharbor.core.contract import Driver
    from taskharbor.core.model import NewJob

SINGLES: Final = 100
_DESCRIPTION: Final = """\
Measure the store for a few seconds: enqueueing one by one, enqueueing in bulk, and draining in batches.

Your jobs are not touched. Embedded stores are measured in a new file beside theirs, servers in tables of their own
with a prefix of their own; both are removed afterwards. This is the driver alone, with no handlers: a checkout of
TaskHarbor has `make bench`, which also measures workers and compares.

examples:
  taskharbor bench
  taskharbor --url postgresql://app@db/shop bench --jobs 20000
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "bench", help="how quick this store is", description=_DESCRIPTION)
    parser.add_argument("--jobs", type=positive, default=5_000, metavar="N", help="so many in bulk (default: 5000)")
    parser.add_argument("--batch", type=positive, default=500, metavar="N", help="so many at a time (default: 500)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import Table, print_json, show
    from taskharbor.cli.store import store_address
    from taskharbor.core.model import NewJob
    from taskharbor.drivers.opening import redacted

    url = store_address(arguments)
    with _throw_away(url) as driver:
        payload = b'{"bench":"' + b"x" * 88 + b'"}'
        began = time.perf_counter()
        for _ in range(SINGLES):
            driver.enqueue([NewJob("bench.noop", payload, "bench-singles")])
        singles_s = time.perf_counter() - began
        bulk_s, drain_s = _bulk(driver, [NewJob("bench.noop", payload, "bench")] * arguments.jobs, arguments.batch)
    measured = {
        "one by one": (SINGLES, singles_s),
        "in bulk": (arguments.jobs, bulk_s),
        "drained": (arguments.jobs, drain_s),
    }
    if arguments.json:
        rates = {
            name.replace(" ", "_"): {"jobs": jobs, "seconds": seconds, "per_second": jobs / seconds}
            for name, (jobs, seconds) in measured.items()
        }
        print_json({"store": redacted(url), "batch": arguments.batch, "measured": rates})
        return 0
    rows = [(name, jobs, f"{seconds:.3f}", f"{jobs / seconds:,.0f}") for name, (jobs, seconds) in measured.items()]
    show(f"{redacted(url)}, batches of {arguments.batch}", Table(("", "jobs", "seconds", "a second"), rows))
    return 0


def _bulk(driver: Driver, jobs: list[NewJob], batch: int) -> tuple[float, float]:
    """Seconds to enqueue them all, and to drain them: settle a batch and reserve the next in one call."""
    from taskharbor.core.model import Settlement

    began = time.perf_counter()
    driver.enqueue(jobs)
    enqueued = time.perf_counter()
    taken = driver.reserve("bench", limit=batch, owner="bench")
    while taken:
        acks = [Settlement.ack(item.job.id, item.lease.token) for item in taken]
        taken = driver.settle_and_reserve(acks, "bench", limit=batch, owner="bench")[1]
    return enqueued - began, time.perf_counter() - enqueued


@contextmanager
def _throw_away(url: str) -> Iterator[Driver]:
    """A new store of the same kind at the same place, gone afterwards."""
    from taskharbor.cli.store import store_path
    from taskharbor.core.ids import new_id
    from taskharbor.drivers.opening import open_driver, parse_url

    parsed = parse_url(url)
    mark = new_id()[-10:].replace("-", "")
    path = store_path(parsed)
    if path is not None:
        yield from _beside(parsed.scheme, path, mark, parsed.options)
        return
    if parsed.scheme == "memory":
        driver = open_driver("memory://")
    else:
        if parsed.scheme not in ("postgresql", "postgres", "mysql", "mariadb"):
            raise InvalidInput(f"bench does not know how to clear up after itself on {parsed.scheme}://")
        sign = "&" if "?" in parsed.rest else "?"
        driver = open_driver(f"{parsed.rest}{sign}prefix=thbench_{mark}_")
    try:
        driver.migrate()
        yield driver
    finally:
        if parsed.scheme != "memory":
            from taskharbor.cli.dropping import drop_tables

            drop_tables(driver, f"thbench_{mark}_")
        driver.close()


def _beside(scheme: str, path: Path, mark: str, options: dict[str, str]) -> Iterator[Any]:
    from urllib.parse import quote, urlencode

    from taskharbor.drivers.opening import open_driver
    from taskharbor.drivers.paths import is_there

    # The same disk, or it would not be the same store; a directory of its own, because SQLite has several files.
    place = next((parent for parent in path.parents if is_there(parent)), path) / f".taskharbor-bench-{mark}"
    place.mkdir()
    try:
        kept = {name: value for name, value in options.items() if name != "mode"}
        query = f"?{urlencode(kept)}" if kept else ""
        driver = open_driver(f"{scheme}:///{quote(str(place / 'store'))}{query}")
        try:
            driver.migrate()
            yield driver
        finally:
            driver.close()
    finally:
        shutil.rmtree(place, ignore_errors=True)
