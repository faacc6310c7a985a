"""The tables of the lake behind bronze: their columns, and by what they are partitioned.

Every gold table is kept as parts that add up (counts, sums, histograms, first and last moments) next to what is
published from them (percentiles, shares, rates). A run adds its new rows to the parts of the days that they touch.
Every table has `store_id`: one lake may take in several stores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

from taskharbor.pipeline.schemas import HISTORY, table


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One Delta table of a lake."""

    name: str
    """Also its place below the lake's directory."""
    schema: StructType
    partition_by: tuple[str, ...] = ("day",)
    day_of: str | None = None
    """The time that `day` is the day of, where there is one: that is quicker than to ask for a row's directory."""


_HISTOGRAM: Final = ArrayType(StructType([StructField("bin", IntegerType()), StructField("count", LongType())]))
"""Log-spaced: bin 0 is below a millisecond, bin n ends at 1.05 ** n milliseconds. Empty bins are left out."""

ATTEMPTS: Final = table(
    store_id="text",
    batch="long",
    seq_no="long",
    job_id="text",
    type="text",
    queue="text",
    tenant_id="text",
    priority="int",
    attempt_no="int",
    delivery="int",
    outcome="text",
    status="text",  # of the job, after the attempt
    success="flag",
    burned="flag",  # it counts against the job: retried, dead or lapsed
    error="text",
    error_class="text",
    fingerprint="text",  # the same for errors that differ only in numbers, ids, quoted words, addresses and paths
    code="text",
    worker="text",
    due_at="time",
    claimed_at="time",
    started_at="time",
    finished_at="time",
    waited_s="real",
    ran_s="real",
    day="date",
)
JOBS: Final = table(
    store_id="text",
    batch="long",  # the last batch that changed this row
    known_batch="long",  # the batch that brought created_at
    job_id="text",
    type="text",
    queue="text",
    tenant_id="text",
    priority="int",
    status="text",
    attempts="long",  # that ended, as the lake has seen them
    failures="long",  # of these, the ones that burned
    deliveries="int",
    waited_s="real",  # of all attempts together
    ran_s="real",
    cost_s="real",  # seconds for which its attempts held a slot, from claim to end
    wasted_s="real",  # the part of ran_s that did not end in success
    code="text",
    last_error="text",
    fingerprint="text",
    created_at="time",  # null until the job has reached a terminal state
    first_started_at="time",
    last_at="time",
    ended_at="time",  # null while it is not over
    seq_no="long",  # of the latest fact
    state="text",  # live: may still change; dead: in the DLQ; final: over for good
    day="date",  # of the latest fact; 1970-01-01 for live ones, which are kept together
)
REJECTS: Final = table(
    store_id="text",
    batch="long",
    run_id="text",
    source="text",
    row="text",  # the row as JSON
    reason="text",
    rejected_at="time",
    day="date",
)

THROUGHPUT: Final = table(
    store_id="text",
    grain="text",  # minute, hour or day
    bucket="time",
    queue="text",
    type="text",
    tenant_id="text",
    enqueued="long",  # by created_at, which the lake learns when a job ends
    started="long",
    succeeded="long",
    retried="long",
    dead="long",
    lapsed="long",
    other="long",  # released, snoozed, cancelled
    day="date",
    part="text",  # of the day: the hour of a minute, 00 to 23; `day` for the rest
)
_SHARES: Final = ("p50", "p90", "p95", "p99", "max", "sum")
LATENCY: Final = StructType(
    [
        *table(store_id="text", grain="text", bucket="time", queue="text", type="text", attempts="long").fields,
        *table(**{f"wait_{name}_s": "real" for name in _SHARES}).fields,
        *table(**{f"run_{name}_s": "real" for name in _SHARES}).fields,
        StructField("wait_histogram", _HISTOGRAM),
        StructField("run_histogram", _HISTOGRAM),
        *table(day="date", part="text").fields,  # the part of the day: the hour, 00 to 23, or `day` for all of it
    ]
)
FAILURES: Final = StructType(
    [
        *table(
            store_id="text",
            fingerprint="text",
            error_class="text",
            sample="text",
            queue="text",
            type="text",
            failures="long",  # attempts burned
            dead="long",  # of these, the ones after which the job was dead
            burned_s="real",
            share="real",  # of all attempts that burned on this day
            first_seen="time",
            last_seen="time",
        ).fields,
        StructField("tenants", ArrayType(StringType())),  # some of those hit, at most 50
        *table(day="date").fields,
    ]
)
TENANTS: Final = table(
    store_id="text",
    tenant_id="text",
    jobs="long",  # that ended on this day
    attempts="long",
    failures="long",
    compute_s="real",
    share="real",  # of the day's compute seconds
    fair_share="real",  # one by the number of tenants
    noisy="flag",  # takes three times its fair share or more, and a tenth of the day at least
    day="date",
)
WORKERS: Final = table(
    store_id="text",
    worker="text",
    bucket="time",  # the hour
    attempts="long",
    succeeded="long",
    lapsed="long",
    busy_s="real",
    first_at="time",
    last_at="time",
    span_s="real",
    busy_slots="real",  # how many slots were busy on average
    busy_share="real",  # of the time between first and last, with one slot or as many as busy_slots needs
    throughput="real",  # succeeded a second
    crash_rate="real",
    day="date",
)
SLO: Final = table(
    store_id="text",
    bucket="time",  # the hour
    queue="text",
    type="text",
    objective="text",  # wait: started in time; success: did not burn
    threshold_s="real",
    target="real",
    good="long",
    total="long",
    attainment="real",
    burn_rate="real",  # 1 uses up the error budget exactly; more is too fast
    day="date",
)
ARRIVALS: Final = table(
    store_id="text",
    queue="text",
    type="text",
    hour_of_week="int",  # 0 is Monday, midnight to one, UTC
    weekday="int",  # 0 is Monday
    hour="int",
    arrivals="long",
    day="date",  # the Monday of the week: the profile is the mean over weeks
)
AUDIT: Final = table(
    store_id="text",
    batch="long",
    run_id="text",
    check="text",
    passed="flag",
    expected="long",
    found="long",
    detail="text",
    checked_at="time",
    day="date",
)

BY_PART: Final = ("day", "part")
"""What has very many rows for a day: only the parts that a batch touches are written again."""

BRONZE_HISTORY: Final = TableSpec("bronze/history", HISTORY, day_of="at")
SILVER_ATTEMPTS: Final = TableSpec("silver/attempts", ATTEMPTS, day_of="finished_at")
SILVER_JOBS: Final = TableSpec("silver/jobs", JOBS, ("state", "day"))
SILVER_REJECTS: Final = TableSpec("silver/rejects", REJECTS)
GOLD_THROUGHPUT: Final = TableSpec("gold/throughput", THROUGHPUT, BY_PART)
GOLD_LATENCY: Final = TableSpec("gold/latency", LATENCY, BY_PART)
GOLD_FAILURES: Final = TableSpec("gold/failures", FAILURES)
GOLD_TENANTS: Final = TableSpec("gold/tenants", TENANTS)
GOLD_WORKERS: Final = TableSpec("gold/workers", WORKERS)
GOLD_SLO: Final = TableSpec("gold/slo", SLO)
GOLD_ARRIVALS: Final = TableSpec("gold/arrivals", ARRIVALS)
GOLD_AUDIT: Final = TableSpec("gold/audit", AUDIT)

TABLES: Final[dict[str, TableSpec]] = {
    spec.name: spec
    for spec in (
        BRONZE_HISTORY,
        SILVER_ATTEMPTS,
        SILVER_JOBS,
        SILVER_REJECTS,
        GOLD_THROUGHPUT,
        GOLD_LATENCY,
        GOLD_FAILURES,
        GOLD_TENANTS,
        GOLD_WORKERS,
        GOLD_SLO,
        GOLD_ARRIVALS,
        GOLD_AUDIT,
    )
}
