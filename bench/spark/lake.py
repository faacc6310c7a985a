"""The lake: attempts from PostgreSQL through bronze, silver and gold, beside one JDBC read of them into Parquet; a run
with a few more rows beside the first; and the same few rows when the lake is several times as large."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.harness import Result, Turns, say
from bench.spark.bed import Bed, Size, filled, jdbc, jdbc_parts

# Nine of ten attempts succeed at once; the tenth is retried with an error, and its job then succeeds. Each type has its
# queue, and of forty tenants the first have most of the jobs.
FILL = """
INSERT INTO th_history (at, due_at, claimed_at, started_at, created_at, priority, attempt_no, delivery, max_attempts,
  final, job_id, type, queue, tenant_id, outcome, status, lease_token, lease_owner, error, payload)
SELECT moment + interval '2 s', moment, moment + interval '1 s', moment + interval '1 s',
  CASE WHEN retried THEN NULL ELSE moment - interval '1 s' END, 0,
  CASE WHEN again THEN 2 ELSE 1 END, CASE WHEN again THEN 2 ELSE 1 END, CASE WHEN retried THEN NULL ELSE 5 END,
  NOT retried, 'job-' || CASE WHEN again THEN n - 1 ELSE n END, 'type-' || n %% 7, 'queue-' || n %% 7 %% 3,
  'tenant-' || floor(40 * power((n * 0.6180339887) %% 1, 3)), CASE WHEN retried THEN 'retried' ELSE 'succeeded' END,
  CASE WHEN retried THEN 'ready' ELSE 'done' END, decode(md5(n::text), 'hex'), 'worker-' || n %% 8,
  CASE WHEN retried THEN 'ValueError: order ' || n || ' has no item ''' || n || '''' END,
  CASE WHEN retried THEN NULL ELSE convert_to('{"order": ' || n || '}', 'UTF8') END
FROM (SELECT n, n %% 10 = 0 AS retried, n %% 10 = 1 AND n > 1 AS again,
        timestamptz '2031-05-01' + n * interval '80 ms' AS moment
      FROM generate_series(%(low)s::bigint, %(high)s::bigint) AS n) AS made
"""
# The columns that the lake takes in, so that both read the same rows.
QUERY = """(
  SELECT seq, at, due_at, claimed_at, started_at, created_at, priority, attempt_no, delivery, max_attempts, final,
  job_id, type, queue, tenant_id, outcome, status, encode(lease_token, 'hex') AS lease_token, lease_owner, error,
  code, payload, result, meta, progress, run_at, expires_at, timeout_nanos, attempts, forgiven, last_error, failed_at,
  cancel_requested_at, idempotency_key, dedupe_scope FROM th_history) AS h"""

WARM_UP = 3
"""Small runs that are not counted: what they spend their time on, Java first has to compile."""


def lake(bed: Bed, size: Size) -> list[Result]:
    """The design's end-to-end goals: a first run, and later ones."""
    from taskharbor.pipeline import run

    url, rows, spark = bed.fresh_url(), size.attempts, bed.spark
    place = Path(tempfile.mkdtemp(prefix="taskharbor-bench-lake-"))
    turns = Turns()

    def jdbc_to_parquet() -> None:
        options = jdbc(url, dbtable=QUERY, **jdbc_parts("seq", rows))
        spark.read.format("jdbc").options(**options).load().write.mode("overwrite").parquet(str(place / "jdbc"))

    say(f"Spark: {rows:,} attempts into a lake")
    try:
        filled(url, FILL, 1, rows)
        for turn in range(3):
            wall = _seconds(jdbc_to_parquet)
            first = _seconds(lambda turn=turn: run(url, place / f"lake-{turn}", spark=spark))  # type: ignore[misc]
            if turn:  # the first one is to warm up
                turns.add("jdbc", wall)
                turns.add("first", first)
        known = rows
        for name, more in (("second", 0), ("large", rows)):
            if more:  # the lake grows, and then gets as many rows as before
                filled(url, FILL, known + 1, known + more)
                run(url, place / "lake-2", spark=spark)
                known += more
            for turn in range(size.rounds + WARM_UP):
                filled(url, FILL, known + 1, known + size.new_rows)
                known += size.new_rows
                seconds = _seconds(lambda: run(url, place / "lake-2", spark=spark))
                if turn >= WARM_UP:
                    turns.add(name, seconds)
    finally:
        shutil.rmtree(place)
    all_of_them, few = f"{rows:,} attempts to gold", f"{size.new_rows:,} more attempts to gold"
    first_s, second_s, large_s = turns.median("first"), turns.median("second"), turns.median("large")
    return [
        Result("lake", all_of_them, first_s, turns.median("jdbc"), "s", "JDBC read into Parquet", 4, at_most=True),
        Result("lake", few, second_s, first_s, "s", "the first run", 0.1, at_most=True),
        Result("lake", f"{few}, twice the lake", large_s, second_s, "s", "with the lake as it was", 1.25, at_most=True),
    ]


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
