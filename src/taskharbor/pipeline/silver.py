"""Silver: attempts and jobs, from the facts of a batch. Pure functions from DataFrames to DataFrames.

Most jobs are over with their first delivery, and the one fact says all about them. Only the others are put together
from several facts, with what is known of them from earlier batches: that is kept in the partitions `live` and `dead`
of silver/jobs, so that no run reads the finished jobs again.

Expressions are written as SQL: each is one call to Java then, where columns made in Python are dozens.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from taskharbor.pipeline.delta import is_small
from taskharbor.pipeline.fingerprint import error_class, fingerprint
from taskharbor.pipeline.lake_schemas import ATTEMPTS, JOBS, REJECTS

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame

OUTCOMES: Final = ("succeeded", "retried", "dead", "released", "snoozed", "cancelled", "lapsed", "expired")
BURNED: Final = ("retried", "dead", "lapsed")
STATUSES: Final = ("ready", "inflight", "done", "dlq", "expired", "cancelled")
LIVE: Final = ("ready", "inflight")
FINAL: Final = ("done", "expired", "cancelled")
NEGATIVE_WAIT: Final = "claimed before it was due"
LIVE_DAY: Final = "1970-01-01"
_KEY: Final = ["store_id", "job_id"]


def listed(names: Sequence[str]) -> str:
    """Words of ours as a list of SQL."""
    return "(" + ", ".join(f"'{name}'" for name in names) + ")"


def fault(reject_bad: bool = False) -> str:
    """Why a fact cannot be used; null for one that can. With `reject_bad`, also what a check would stumble over."""
    negative = f"WHEN attempt_no IS NOT NULL AND claimed_at < due_at THEN '{NEGATIVE_WAIT}'" if reject_bad else ""
    return f"""CASE
        WHEN job_id IS NULL OR job_id = '' THEN 'no job id'
        WHEN seq_no IS NULL OR `at` IS NULL THEN 'no position or no time'
        WHEN NOT coalesce(outcome IN {listed(OUTCOMES)}, false) THEN 'unknown outcome'
        WHEN NOT coalesce(status IN {listed(STATUSES)}, false) THEN 'unknown status'
        WHEN attempt_no IS NOT NULL AND (claimed_at IS NULL OR due_at IS NULL) THEN 'an attempt without its times'
        {negative} END"""


def rejects(bronze: DataFrame, batch: int, run_id: str, reject_bad: bool = False) -> DataFrame:
    from pyspark.sql import functions as F

    kept = [name for name in bronze.columns if name not in ("payload", "result", "day")]
    return (
        bronze.withColumn("reason", F.expr(fault(reject_bad)))
        .where("reason is not null")
        .select(
            "store_id",
            F.lit(batch).cast("long").alias("batch"),
            F.lit(run_id).alias("run_id"),
            F.lit("history").alias("source"),
            F.to_json(F.struct(*kept)).alias("row"),
            "reason",
            F.current_timestamp().alias("rejected_at"),
            F.current_date().alias("day"),
        )
        .select(*REJECTS.fieldNames())
    )


# When the wait of an attempt began: when its job was due, and never before the job was made. A backfill may be due long
# before it is made. Only the fact with which a job ends says when that was; for others that could matter, an id that
# holds a time (as ours do) tells. `greatest` passes over nulls.
_MADE: Final = (
    "coalesce(created_at, CASE WHEN delivery = 1 AND job_id RLIKE '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-' THEN "
    "timestamp_millis(CAST(conv(concat(substring(job_id, 1, 8), substring(job_id, 10, 4)), 16, 10) AS bigint)) END)"
)
_WAITS_FROM: Final = "greatest(due_at, CASE WHEN made <= claimed_at THEN made END)"
# A lease ended before anybody said that the attempt had begun: it lay in a worker that was lost.
_NEVER_BEGAN: Final = "outcome = 'lapsed' AND started_at <= claimed_at"


def _seconds(later: str, earlier: str) -> str:
    return f"(unix_micros({later}) - unix_micros({earlier})) / 1e6"


def judged(bronze: DataFrame, reject_bad: bool = False) -> DataFrame:
    """All facts, with `reason` where one cannot be used, and the start of each attempt put right.

    That comes from the worker, whose clock may be off: it lies between the claim and the end, which the store timed.
    `alone` is a fact that is the only one that its job ever had, and says that the job is over.
    """
    attempt = "attempt_no IS NOT NULL"
    same = [
        "seq_no", "job_id", "type", "queue", "tenant_id", "priority", "attempt_no", "delivery", "outcome", "status",
        "error", "code", "worker", "due_at", "claimed_at", "created_at",
    ]  # fmt: skip
    known = bronze.selectExpr(
        *same,
        "`at` AS finished_at",
        f"CASE WHEN {attempt} THEN "
        "least(greatest(coalesce(started_at, claimed_at), claimed_at), `at`) END AS started_at",
        f"{_MADE} AS made",
        "coalesce(error, last_error) AS last_error",
        f"{attempt} AND outcome IN {listed(BURNED)} AS burned",
        "coalesce(final, false) AS final",
        f"coalesce(final AND status IN {listed(FINAL)} AND delivery = if({attempt}, 1, 0), false) AS alone",
        f"{fault(reject_bad)} AS reason",
    )
    kind, print_of = _errors_told_apart(bronze.sparkSession.sparkContext)
    timed = known.select("*", kind).selectExpr(
        "*",
        f"CASE WHEN {attempt} THEN {_seconds('started_at', _WAITS_FROM)} END AS waited_s",
        f"CASE WHEN {attempt} THEN CASE WHEN {_NEVER_BEGAN} THEN 0.0D "
        f"ELSE {_seconds('finished_at', 'started_at')} END END AS ran_s",
        f"CASE WHEN {attempt} THEN {_seconds('finished_at', 'claimed_at')} END AS cost_s",
        "outcome = 'succeeded' AS success",
        "to_date(finished_at) AS day",
    )
    printed = timed.select("*", print_of)
    return printed.selectExpr(
        *(name for name in ATTEMPTS.fieldNames() if name not in ("store_id", "batch")),
        "cost_s",
        "CASE WHEN success THEN 0.0D ELSE ran_s END AS wasted_s",
        "last_error",
        "created_at",
        "final",
        "alone",
        "reason",
    )


@functools.lru_cache(maxsize=1)
def _errors_told_apart(context: SparkContext) -> tuple[Column, Column]:
    """The class and the fingerprint of an error. Made once for each Spark: they take hundreds of calls."""
    from pyspark.sql import functions as F

    kind = error_class(F.col("error"), F.col("outcome")).alias("error_class")
    return kind, fingerprint(F.col("error"), F.col("error_class")).alias("fingerprint")


# --- Jobs --------------------------------------------------------------------------------------------------------

PARTS: Final = StructType([field for field in JOBS.fields if field.name not in ("ended_at", "state", "day")])
"""What one fact says about its job, or is known of one, in columns that add up over facts."""


def _placed(jobs: DataFrame) -> DataFrame:
    """With what follows from the status: when the job ended, and the partition that it belongs to."""
    live = f"status IN {listed(LIVE)}"
    follows = {
        "ended_at": f"CASE WHEN {live} THEN NULL ELSE last_at END AS ended_at",
        "state": f"CASE WHEN {live} THEN 'live' WHEN status = 'dlq' THEN 'dead' ELSE 'final' END AS state",
        "day": f"CASE WHEN {live} THEN DATE'{LIVE_DAY}' ELSE to_date(last_at) END AS day",
    }
    return jobs.selectExpr(*(follows.get(name, name) for name in JOBS.fieldNames()))


def together(first: DataFrame, second: DataFrame) -> DataFrame:
    """Both, in one partition if each is in one: what is grouped then need not be moved."""
    both = first.unionByName(second, allowMissingColumns=True)
    return both.coalesce(1) if is_small(first.sparkSession) else both


def pieces_of(others: DataFrame, known: DataFrame) -> DataFrame:
    """Facts of jobs, and what is known of jobs, together."""
    return together(known.drop("ended_at", "state", "day"), others)


def merged_jobs(pieces: DataFrame, *, lives: bool = False) -> DataFrame:
    """The jobs that have several pieces, or are not over: their facts of this batch, added to what is known of them;
    and those known that nothing new is said of, as they are. With `lives`, some ids may have been used again: their
    latest job counts."""
    pieces = latest_life(pieces) if lives else pieces
    latest = ("type", "queue", "tenant_id", "priority", "status", "code", "last_error", "fingerprint", "last_at")
    sums = ("attempts", "failures", "waited_s", "ran_s", "cost_s", "wasted_s")
    columns = [
        *_KEY,
        "max(batch) AS batch",
        "min(known_batch) AS known_batch",
        *(f"max_by({name}, seq_no) AS {name}" for name in latest),
        *(f"sum({name}) AS {name}" for name in sums),
        "max(deliveries) AS deliveries",
        "min(created_at) AS created_at",
        "min(first_started_at) AS first_started_at",
        "max(seq_no) AS seq_no",
    ]
    sql = f"SELECT {', '.join(columns)} FROM {{pieces}} GROUP BY {', '.join(_KEY)}"
    return _placed(pieces.sparkSession.sql(sql, pieces=pieces))


_BORN: Final = "born_at"


def _lives(pieces: DataFrame) -> DataFrame:
    """With the place at which the latest life of each id began, 0 for the first.

    An id may be used again once its job was pruned or purged. Then something is said behind the end of a job, or its
    deliveries begin anew, or it ends with another time at which it was made.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    lane = Window.partitionBy(*_KEY).orderBy("seq_no")
    ahead = lane.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    everything = lane.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    last = {name: F.lag(name).over(lane) for name in ("status", "deliveries", "attempts", "created_at")}
    delivered, attempt = F.col("deliveries"), F.col("attempts") > 0
    again = (delivered < last["deliveries"]) | ((delivered == last["deliveries"]) & attempt & (last["attempts"] > 0))
    made = F.first("created_at", ignorenulls=True).over(ahead)
    born = last["status"].isin(*FINAL) | again | (made != last["created_at"])
    begun = pieces.withColumn(_BORN, F.when(born, F.col("seq_no")))
    return begun.withColumn(_BORN, F.coalesce(F.max(_BORN).over(everything), F.lit(0).cast("long")))


def latest_life(pieces: DataFrame) -> DataFrame:
    """What belongs to the latest job of each id, from rows with the columns of silver/jobs, whole jobs or facts."""
    from pyspark.sql import functions as F

    return _lives(pieces).where(F.col("seq_no") >= F.col(_BORN)).drop(_BORN)


def superseded(pieces: DataFrame) -> int:
    """The attempts of earlier lives, which the jobs do not count any more. They are in silver/attempts as before."""
    from pyspark.sql import functions as F

    early = _lives(pieces).where(F.col("seq_no") < F.col(_BORN))
    [row] = early.agg(F.coalesce(F.sum("attempts"), F.lit(0)).alias("attempts")).collect()
    return int(row["attempts"])
