"""The second half of the demo: a data file becomes jobs through Spark, a fleet runs them, and their history becomes a
lake and a report."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from taskharbor.cli import demo_orders
from taskharbor.cli.output import shortened
from taskharbor.cli.story import Story

SEED: Final = 20310501
PROCESSES: Final = 2
LEASE_S: Final = 2.0
LONGEST_S: Final = 120.0
HEAVY_DELIVERIES: Final = 4
"""Two attempts, and two more deliveries that nobody could explain."""


class Harvest(NamedTuple):
    """What the second half leaves behind."""

    orders: Path
    lake: Path
    page: Path
    counts: dict[str, int]
    clusters: list[dict[str, Any]]
    tables: dict[str, int]


def tell(story: Story, place: Path) -> Harvest:
    from taskharbor.pipeline import session

    orders, lake, page = place / "orders.jsonl", place / "lake", place / "report.html"
    queue = f"{story.queue}-orders"
    demo_orders.write_orders(orders, SEED)
    story.tell(f"a file comes in: {demo_orders.ORDERS:,} orders, {_share()} % of them of one tenant")
    story.tell("starting Spark, which takes some seconds")
    # Java that lives for a minute: compiling as for a long life would take longer than all it does here.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    spark = session()
    try:
        _load(story, spark, orders, lake, queue)
        _ship(story, queue)
        counts = _settled(story, queue)
        tables = _bring_in(story, spark, lake)
        clusters = _dead(story, spark, lake, queue)
        _report(story, lake, page)
    finally:
        spark.stop()
    return Harvest(orders, lake, page, counts, clusters, tables)


def _share() -> int:
    return max(demo_orders.TENANTS.values())


def _load(story: Story, spark: Any, orders: Path, lake: Path, queue: str) -> None:
    from taskharbor.pipeline import load

    def once() -> Any:
        options = {"type": "order.ship", "queue": queue, "key": "order_id", "max_attempts": 2}
        return load(str(orders), story.harbor.url, spark=spark, lake=str(lake), **options)

    first, again = once(), once()
    story.check(first.adds_up() and first.rejected == demo_orders.BAD_ROWS, f"bad rows are kept apart: {first}")
    story.check(first.published == demo_orders.ORDERS - demo_orders.BAD_ROWS, f"every good row is a job: {first}")
    story.tell(
        f"Spark made {first.published:,} jobs of them; {first.rejected} rows whose time has no offset are kept apart"
    )
    story.check(again.published == 0 and again.duplicates == first.published, f"a load may run twice: {again}")
    story.tell("the same load once more, as after a crash: not one job more")


def _ship(story: Story, queue: str) -> None:
    began = time.monotonic()
    with _fleet(story, queue) as died:
        ends = began + LONGEST_S
        while _waiting(story, queue):
            story.check(died() is None, f"the fleet works, but it ended with {died()}")
            story.check(time.monotonic() < ends, f"all orders are done within {LONGEST_S:g} s")
            time.sleep(0.1)
    story.tell(f"{PROCESSES} worker processes have been through all orders, in {time.monotonic() - began:.0f} s")


@contextmanager
def _fleet(story: Story, queue: str) -> Iterator[Callable[[], int | None]]:
    """`taskharbor worker` as an operator runs it: it starts processes again that were brought down."""
    words = ["--processes", str(PROCESSES), "--queues", queue, "--concurrency", "16", "--lease", f"{LEASE_S:g}s"]
    command = [sys.executable, "-m", "taskharbor", "worker", "-A", "taskharbor.cli.demo_orders:harbor", *words]
    environment = {**os.environ, "TASKHARBOR_URL": story.harbor.url}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process.poll
        process.terminate()
        process.wait(timeout=15)
    finally:
        process.kill()
        process.wait()
        _sign_off(story, queue)


def _sign_off(story: Story, queue: str) -> None:
    """The processes that were brought down could not do it themselves, and no leader is left who would: `stats` and
    `doctor`, which the demo suggests, would tell of silent workers for ever, and of a leader that is gone."""
    driver = story.driver
    gone = {worker.id for worker in driver.workers() if queue in worker.queues}
    for leader in driver.leaders():
        if leader.holder in gone:
            driver.resign(leader.name, leader.holder, leader.epoch)
    for id in gone:
        driver.deregister(id)


def _waiting(story: Story, queue: str) -> int:
    found = story.driver.counts().queues.get(queue, {})
    return sum(found.get(status, 0) for status in ("ready", "inflight"))


def _settled(story: Story, queue: str) -> dict[str, int]:
    found = {str(status): count for status, count in story.driver.counts().queues[queue].items() if count}
    story.check(sum(found.values()) == demo_orders.ORDERS - demo_orders.BAD_ROWS, f"no order is lost: {found}")
    story.tell(
        f"{found['done']:,} orders are shipped; {found['dlq']} are dead letters, "
        f"{demo_orders.HEAVY_ORDERS} of them for bringing down {HEAVY_DELIVERIES} processes each"
    )
    return found


def _bring_in(story: Story, spark: Any, lake: Path) -> dict[str, int]:
    from taskharbor.pipeline import run
    from taskharbor.pipeline.status import status

    began = time.monotonic()
    report = run(story.harbor.url, lake, spark=spark)
    story.check(all(check.passed for check in report.checks), f"the checks of the lake hold: {report.checks}")
    story.tell(
        f"history became a lake in {time.monotonic() - began:.0f} s: {report.rows:,} facts, "
        f"{report.attempts:,} attempts; {len(report.checks)} checks hold"
    )
    second = run(story.harbor.url, lake, spark=spark)
    story.check(second.rows == 0, f"a second run brings nothing twice: {second.rows}")
    return {table["name"]: table["rows"] for table in status(story.harbor.url, lake)["tables"]}


def _dead(story: Story, spark: Any, lake: Path, queue: str) -> list[dict[str, Any]]:
    from taskharbor.pipeline.store import Selection
    from taskharbor.pipeline.triage import triage

    found = triage(story.harbor.url, selection=Selection(queue=queue), lake=lake, spark=spark)
    story.check(len(found.clusters) == 2, f"the dead letters have two causes, not {len(found.clusters)}")
    loops = sum(each.size for each in found.clusters if "crash_loop" in each.codes)
    story.check(loops == demo_orders.HEAVY_ORDERS, f"no order dies for another one, but {loops} did")
    largest = found.clusters[0]
    story.tell(
        f"triage finds {len(found.clusters)} causes; the largest has {largest.size} jobs: {shortened(largest.sample)}"
    )
    return [cluster.data() for cluster in found.clusters]


def _report(story: Story, lake: Path, page: Path) -> None:
    from taskharbor.pipeline import report
    from taskharbor.pipeline.report_html import page as page_of
    from taskharbor.pipeline.reports import write_page

    numbers = report(lake, url=story.harbor.url)
    write_page(page_of(numbers), page)
    story.tell(f"the report is written: {page}")
