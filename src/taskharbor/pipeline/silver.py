"""Silver: attempts and jobs, from the facts of a batch. Pure functions from DataFrames to DataFrames.

Most jobs are over with their first delivery, and the one fact says all about them. Only the others are put together
from several facts, with what is known of them from earlier batches: that is kept in the partitions `live` and `dead`
of silver/jobs, so that no run reads the finished jobs again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from taskharbor.pipeline.fingerprint import error_class, fingerprint
from taskharbor.pipeline.lake_schemas import ATTEMPTS, JOBS, REJECTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OUTCOMES: Final = ("succeeded", "retried", "dead", "released", "snoozed", "cancelled", "lapsed", "expired")
BURNED: Final = ("retried", "dead", "lapsed")
STATUSES: Final = ("ready", "inflight", "done", "dlq", "expired", "cancelled")
FINAL: Final = ("done", "expired", "cancelled")
NEGATIVE_WAIT: Final = "claimed before it was due"
LIVE_DAY: Final = "1970-01-01"
_KEY: Final = ["store_id", "job_id"]
_UNUSED: Final = ("started_at", "payload", "result", "meta", "progress", "day")
"""Columns of bronze that silver has no use for, or has its own of."""


def fault(reject_bad: bool = False) -> Column:
    """Why a fact cannot be used; null for one that can. With `reject_bad`, also what a check would stumble over."""
    from pyspark.sql import functions as F

    attempt = F.col("attempt_no").isNotNull()
    found = (
        F.when(F.col("job_id").isNull() | (F.col("job_id") == ""), "no job id")
        .when(F.col("seq_no").isNull() | F.col("at").isNull(), "no position or no time")
        .when(~F.coalesce(F.col("outcome").isin(*OUTCOMES), F.lit(False)), "unknown outcome")
        .when(~F.coalesce(F.col("status").isin(*STATUSES), F.lit(False)), "unknown status")
        .when(attempt & (F.col("claimed_at").isNull() | F.col("due_at").isNull()), "an attempt without its times")
    )
    return found.when(attempt & (F.col("claimed_at") < F.col("due_at")), NEGATIVE_WAIT) if reject_bad else found


def rejects(bronze: DataFrame, batch: int, run_id: str, reject_bad: bool = False) -> DataFrame:
    from pyspark.sql import functions as F

    kept = [name for name in bronze.columns if name not in ("payload", "result", "day")]
    return (
        bronze.withColumn("reason", fault(reject_bad))
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


def seconds(later: Column, earlier: Column) -> Column:
    from pyspark.sql import functions as F

    return (F.unix_micros(later) - F.unix_micros(earlier)) / 1e6


def waits_from() -> Column:
    """When the wait of an attempt began: when its job was due, and never before the job was made.

    A backfill may be due long before it is made. Only the fact with which a job ends says when that was; for others
    that could matter, an id that holds a time (as ours do) tells.
    """
    from pyspark.sql import functions as F

    digits = F.concat(F.substring("job_id", 1, 8), F.substring("job_id", 10, 4))
    dated = (F.col("delivery") == 1) & F.col("job_id").rlike("^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-")
    from_id = F.when(dated, F.timestamp_millis(F.conv(digits, 16, 10).cast("long")))
    made = F.coalesce("created_at", from_id)
    return F.greatest("due_at", F.when(made <= F.col("claimed_at"), made))  # which passes over nulls


def never_began() -> Column:
    """Whether a lease ended before anybody said that the attempt had begun: it lay in a worker that was lost."""
    from pyspark.sql import functions as F

    return (F.col("outcome") == "lapsed") & (F.col("started_at") <= F.col("claimed_at"))


def facts(bronze: DataFrame, reject_bad: bool = False) -> DataFrame:
    """The usable facts, with the start of each attempt put right.

    It comes from the worker, whose clock may be off: it lies between the claim and the end, which the store timed.
    """
    from pyspark.sql import functions as F

    attempt = F.col("attempt_no").isNotNull()
    started = F.least(F.greatest(F.coalesce("started_at", "claimed_at"), F.col("claimed_at")), F.col("at"))
    timed = bronze.where(fault(reject_bad).isNull()).select(
        *(name for name in bronze.columns if name not in _UNUSED),
        F.when(attempt, started).alias("started_at"),
        (attempt & F.col("outcome").isin(*BURNED)).alias("burned"),
        error_class(F.col("error"), F.col("outcome")).alias("error_class"),
    )
    return timed.select(
        "*",
        F.when(attempt, seconds(F.col("started_at"), waits_from())).alias("waited_s"),
        F.when(attempt, F.when(never_began(), 0.0).otherwise(seconds(F.col("at"), F.col("started_at")))).alias("ran_s"),
        F.when(attempt, seconds(F.col("at"), F.col("claimed_at"))).alias("held_s"),
        fingerprint(F.col("error"), F.col("error_class")).alias("fingerprint"),
    )


def attempts(facts: DataFrame, batch: int) -> DataFrame:
    """One row for each attempt that ended."""
    from pyspark.sql import functions as F

    made = {
        "batch": F.lit(batch).cast("long"),
        "success": F.col("outcome") == "succeeded",
        "finished_at": F.col("at"),
        "day": F.to_date("at"),
    }
    columns = [made[name].alias(name) if name in made else F.col(name) for name in ATTEMPTS.fieldNames()]
    return facts.where("attempt_no is not null").select(*columns)


# --- Jobs --------------------------------------------------------------------------------------------------------


def alone() -> Column:
    """Whether a fact is the only one that its job ever had."""
    from pyspark.sql import functions as F

    first = F.when(F.col("attempt_no").isNotNull(), F.col("delivery") == 1).otherwise(F.col("delivery") == 0)
    return F.col("final") & first


def simple_jobs(facts: DataFrame, batch: int, not_alone: DataFrame | None = None) -> DataFrame:
    """The jobs that are over with their only fact; without those of `not_alone`, whose ids were in use before."""
    only = facts.where(alone())
    return _placed(_parts(only if not_alone is None else only.join(not_alone, "job_id", "left_anti"), batch))


def _others(facts: DataFrame, not_alone: DataFrame | None) -> DataFrame:
    others = facts.where(~alone())
    if not_alone is None:
        return others
    return others.unionByName(facts.where(alone()).join(not_alone, "job_id", "left_semi").select(*facts.columns))


def _parts(facts: DataFrame, batch: int) -> DataFrame:
    """What one fact says about its job, in the columns that add up over facts."""
    from pyspark.sql import functions as F

    attempt = F.col("attempt_no").isNotNull()
    zero = F.lit(0.0)
    return facts.select(
        "store_id",
        F.lit(batch).cast("long").alias("batch"),
        F.when(F.col("created_at").isNotNull(), F.lit(batch).cast("long")).alias("known_batch"),
        "job_id",
        "type",
        "queue",
        "tenant_id",
        "priority",
        "status",
        attempt.cast("long").alias("attempts"),
        F.col("burned").cast("long").alias("failures"),
        F.col("delivery").alias("deliveries"),
        F.coalesce("waited_s", zero).alias("waited_s"),
        F.coalesce("ran_s", zero).alias("ran_s"),
        F.coalesce("held_s", zero).alias("cost_s"),
        F.when(F.col("outcome") == "succeeded", zero).otherwise(F.coalesce("ran_s", zero)).alias("wasted_s"),
        "code",
        F.coalesce("error", "last_error").alias("last_error"),
        "fingerprint",
        "created_at",
        F.col("started_at").alias("first_started_at"),
        F.col("at").alias("last_at"),
        F.when(F.col("status").isin("ready", "inflight"), F.lit(None)).otherwise(F.col("at")).alias("ended_at"),
        "seq_no",
    )


def _placed(jobs: DataFrame) -> DataFrame:
    """With the partition that each job belongs to."""
    from pyspark.sql import functions as F

    live, status = F.col("status").isin("ready", "inflight"), F.col("status")
    state = F.when(live, "live").when(status == "dlq", "dead").otherwise("final").alias("state")
    day = F.when(live, F.lit(LIVE_DAY).cast("date")).otherwise(F.to_date("last_at")).alias("day")
    return jobs.select(*JOBS.fieldNames()[:-2], state, day)


def together(first: DataFrame, second: DataFrame) -> DataFrame:
    """Both, in one partition if each is in one: what is grouped then need not be moved."""
    both = first.unionByName(second, allowMissingColumns=True)
    return both.coalesce(1) if is_small(first.sparkSession) else both


def is_small(spark: SparkSession) -> bool:
    """Whether the session was set up for a small batch."""
    return spark.conf.get("spark.sql.shuffle.partitions") == "1"


def _pieces(facts: DataFrame, known: DataFrame, batch: int, not_alone: DataFrame | None) -> DataFrame:
    return together(known.select(*JOBS.fieldNames()[:-2]), _parts(_others(facts, not_alone), batch))


def merged_jobs(
    facts: DataFrame, known: DataFrame, batch: int, not_alone: DataFrame | None = None, *, lives: bool = False
) -> DataFrame:
    """The other jobs: their facts of this batch, added to what is known of them; and those known that nothing new is
    said of, as they are. With `lives`, some ids may have been used again: their latest job counts."""
    from pyspark.sql import functions as F

    pieces = _pieces(facts, known, batch, not_alone)
    pieces = latest_life(pieces) if lives else pieces
    latest = [
        "type", "queue", "tenant_id", "priority", "status", "code", "last_error", "fingerprint", "last_at", "ended_at",
    ]  # fmt: skip
    sums = ["attempts", "failures", "waited_s", "ran_s", "cost_s", "wasted_s"]
    merged = pieces.groupBy(*_KEY).agg(
        F.max("batch").alias("batch"),
        F.min("known_batch").alias("known_batch"),
        *(F.max_by(name, "seq_no").alias(name) for name in latest),
        *(F.sum(name).alias(name) for name in sums),
        F.max("deliveries").alias("deliveries"),
        F.min("created_at").alias("created_at"),
        F.min("first_started_at").alias("first_started_at"),
        F.max("seq_no").alias("seq_no"),
    )
    return _placed(merged)


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


def superseded(facts: DataFrame, known: DataFrame, batch: int, not_alone: DataFrame | None) -> int:
    """The attempts of earlier lives, which the jobs do not count any more. They are in silver/attempts as before."""
    from pyspark.sql import functions as F

    early = _lives(_pieces(facts, known, batch, not_alone)).where(F.col("seq_no") < F.col(_BORN))
    [row] = early.agg(F.coalesce(F.sum("attempts"), F.lit(0)).alias("attempts")).collect()
    return int(row["attempts"])


def _hour(time: str) -> Column:
    """Hours since 1970."""
    from pyspark.sql import functions as F

    return F.floor(F.unix_seconds(time) / 3600)


def profile(bronze: DataFrame, reject_bad: bool = False) -> dict[str, Any]:
    """Everything the later steps and the checks must know about a batch beforehand, in one pass over it."""
    from pyspark.sql import functions as F

    # Judged once for each row; what is counted then only looks at the judgement.
    judged = bronze.select(
        "at", "created_at", "claimed_at", "due_at", F.col("final").alias("is_final"),
        fault(reject_bad).isNull().alias("usable"),
        F.col("attempt_no").isNotNull().alias("attempt"),
        (~alone()).alias("other"),
    )  # fmt: skip
    usable = F.col("usable")
    attempt, other = usable & F.col("attempt"), usable & F.col("other")
    row = judged.agg(
        F.count("*").alias("rows"),
        F.count_if(~usable).alias("rejected"),
        F.count_if(attempt).alias("attempts"),
        F.count_if(usable & F.col("is_final")).alias("final"),
        F.count_if(other).alias("other"),
        F.collect_set(F.when(usable, _hour("at"))).alias("ended"),
        F.collect_set(F.when(usable, _hour("created_at"))).alias("created"),
        F.count_if(attempt & (F.col("claimed_at") < F.col("due_at"))).alias("negative_waits"),
    ).first()
    assert row is not None
    return row.asDict()
