"""Loads of the same rows at once, while workers take what is published: each row becomes one job and runs once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from taskharbor.core.ids import new_id
from taskharbor.core.model import Settlement
from taskharbor.drivers import open_driver
from taskharbor.pipeline import sink
from taskharbor.pipeline.sink_options import plan

ROWS = 10_000
LOADS = 3
SCHEMA = StructType([StructField("payload", StringType())])

pytestmark = [pytest.mark.concurrency, pytest.mark.slow]


@pytest.mark.parametrize("sliced_from", [1, 2 * ROWS], ids=["in slices", "as one"])
def test_rows_without_keys_that_several_load_at_once_run_once_each(
    postgres: Any, monkeypatch: pytest.MonkeyPatch, sliced_from: int
) -> None:
    monkeypatch.setattr("taskharbor.pipeline.staging_postgres.SLICED_FROM", sliced_from)
    url = postgres.create_database()
    with open_driver(url) as driver:
        driver.migrate()
    rows = pa.record_batch([pa.array([json.dumps({"n": number}) for number in range(ROWS)])], names=["payload"])
    plans = [plan({"url": url, "type": "t", "source": "rows.json"}, SCHEMA, new_id()) for _ in range(LOADS)]
    staged = [sink.stage(each, iter([rows]), each.run_id, each.identity) for each in plans]
    ran: Counter[str] = Counter()
    published = threading.Event()

    def work() -> None:
        with open_driver(url) as own:
            while True:
                over = published.is_set()
                leased = own.reserve("default", limit=200)
                own.settle([Settlement.ack(each.job.id, each.lease.token) for each in leased])
                ran.update(each.job.id for each in leased)
                if over and not leased:
                    return

    with ThreadPoolExecutor(LOADS + 1) as pool:
        worker = pool.submit(work)
        loads = [pool.submit(sink.publish, each, each.run_id, [told]) for each, told in zip(plans, staged, strict=True)]
        reports = [load.result(120) for load in loads]
        published.set()
        worker.result(120)
    assert sorted(report.published for report in reports) == [0, 0, ROWS]
    assert [report.published + report.duplicates for report in reports] == [ROWS] * LOADS
    assert (len(ran), set(ran.values())) == (ROWS, {1})
