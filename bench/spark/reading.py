"""Attempts into Spark: our source beside Spark's JDBC. Both read the same columns of the same rows with the same number
of partitions, in turns, and both hand every row to Spark (`noop` takes them)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.harness import Result, Turns, say
from bench.spark.bed import PARTITIONS, Bed, Size, filled, jdbc, jdbc_parts

# As workers leave them behind: one in fifty attempts failed.
FILL = """
INSERT INTO th_history (at, due_at, claimed_at, started_at, created_at, priority, attempt_no, delivery, max_attempts,
    final, job_id, type, queue, tenant_id, outcome, status, lease_token, lease_owner, error, code, payload, result)
SELECT moment, moment - interval '3 s', moment - interval '2 s', moment - interval '1 s', moment - interval '4 s',
    0, 1, 1, 5, not failed, CAST(lpad(to_hex(number), 12, '0') || substr(md5(number::text), 1, 20) AS uuid)::text,
    'mail.send.' || number %% 20, 'queue-' || number %% 5, 'tenant-' || number %% 100,
    CASE WHEN failed THEN 'retried' ELSE 'succeeded' END, CASE WHEN failed THEN 'ready' ELSE 'done' END,
    decode(md5(number::text), 'hex'), 'worker-' || number %% 8,
    CASE WHEN failed THEN 'TimeoutError: no answer from 10.0.0.' || number %% 250 || ' after 30 s' END, NULL,
    CASE WHEN NOT failed THEN convert_to('{"to": "user-' || number || '@example.com"}', 'UTF8') END,
    CASE WHEN NOT failed THEN convert_to('{"ok": true}', 'UTF8') END
FROM (SELECT number, number %% 50 = 0 AS failed,
             timestamptz '2031-05-01 00:00+00' + number * interval '50 ms' AS moment
      FROM generate_series(%(low)s::bigint, %(high)s::bigint) AS number) AS numbers
"""
QUERY = """(
SELECT seq AS seq_no, job_id, type, queue, tenant_id, priority, attempt_no, delivery, outcome,
outcome = 'succeeded' AS success, error, code, lease_owner AS worker, due_at, claimed_at, started_at,
at AS finished_at FROM th_history WHERE attempt_no IS NOT NULL) AS attempts"""


def reading(bed: Bed, size: Size) -> list[Result]:
    """P13: finished attempts from PostgreSQL into Spark."""
    rows, url = size.attempts, bed.fresh_url()
    say(f"Spark: reading {rows:,} attempts")
    filled(url, FILL, 1, rows)
    spark = bed.spark  # each read with a reader of its own: one keeps the options of the last
    ways: dict[str, Callable[[], Any]] = {
        "ours": lambda: (
            spark.read.format("taskharbor").options(url=url, table="attempts", partitions=PARTITIONS).load()
        ),
        "jdbc": lambda: (
            spark.read.format("jdbc").options(**jdbc(url, dbtable=QUERY, **jdbc_parts("seq_no", rows))).load()
        ),
    }
    counts = {name: way().count() for name, way in ways.items()}  # also warms both up
    if set(counts.values()) != {rows}:
        raise AssertionError(f"the two did not read the same rows: {counts}")
    turns = Turns()
    for turn in range(3 * size.rounds + 1):  # each is over in two seconds, and one differs much from the next
        for name, way in ways.items():
            started = time.perf_counter()
            way().write.format("noop").mode("overwrite").save()
            if turn:  # the first one is to warm up
                turns.add(name, rows / (time.perf_counter() - started))
    against = f"Spark's JDBC, {PARTITIONS} partitions each"
    return [Result("P13", "attempts into Spark", turns.median("ours"), turns.median("jdbc"), "rows/s", against, 1.15)]
