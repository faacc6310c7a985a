"""Dead jobs in clusters: those whose errors differ only in details are one, whatever their types, queues and tenants.

Spark reads the DLQ of the store as it is now, and of it only what is needed: no payload ever travels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.clock import from_micros
from taskharbor.core.model import Reason
from taskharbor.pipeline import delta
from taskharbor.pipeline.fingerprint import error_class, fingerprint
from taskharbor.pipeline.lake_schemas import GOLD_FAILURES
from taskharbor.pipeline.schemas import DLQ, arrow, pick
from taskharbor.pipeline.sessions import teach
from taskharbor.pipeline.store import EVERYTHING, Selection, open_store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MOST_CLUSTERS: Final = 200
"""That are told of in detail, the largest first."""
ID_DIGITS: Final = 8
FEW_ROWS: Final = 20_000
FEW_BYTES: Final = 64 * 1024 * 1024
"""Up to here the driver reads the DLQ by itself."""
_COLUMNS: Final = ("id", "type", "queue", "tenant_id", "code", "reason", "last_error", "failed_at")
_SAMPLE_TEXT: Final = 2_000
_TOP: Final = 5
_RADIUS: Final = ("type", "queue", "tenant_id")

Progress = Callable[[str], None]
"""Hears what is being done."""


def tell_nobody(stage: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Radius:
    """How far a cluster reaches in one direction: how many there are, and the most affected with their jobs."""

    count: int = 0
    top: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cluster:
    id: str
    """The beginning of the fingerprint: the same for the same kind of error, today and next week."""
    fingerprint: str
    size: int
    error_class: str | None
    sample: str
    codes: tuple[str, ...]
    first_seen: datetime
    last_seen: datetime
    types: Radius
    queues: Radius
    tenants: Radius
    jobs: tuple[str, ...]
    """Some of them, the oldest."""
    in_lake: dict[str, Any] | None = None
    """What the lake knows of such errors: since when, how many attempts they burned, how many jobs they killed."""

    def data(self) -> dict[str, Any]:
        found = asdict(self)
        for name in ("first_seen", "last_seen"):
            found[name] = found[name].isoformat()
        return found


@dataclass(frozen=True, slots=True)
class Triage:
    dead: int
    clusters: tuple[Cluster, ...]
    """The largest first; at most MOST_CLUSTERS."""
    clusters_in_all: int = 0

    def data(self) -> dict[str, Any]:
        return {
            "dead": self.dead,
            "clusters_in_all": self.clusters_in_all,
            "clusters": [cluster.data() for cluster in self.clusters],
        }


def triage(
    url: str,
    *,
    selection: Selection = EVERYTHING,
    lake: str | Path | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Triage:
    """The dead jobs of a store in clusters. With a lake, also what it knows of each."""
    say = progress or tell_nobody
    with open_store(url) as store:
        store_id = store.store_id  # a store that cannot be reached is heard of before Spark starts
    checked = None
    if lake is not None:
        from taskharbor.pipeline.lake import Lake

        checked = Lake(lake)
        checked.check()
    say("starting Spark")
    session = ready_session(spark)
    say("reading the DLQ")
    rows = clustered(dead_letters(session, url, selection)).persist()
    try:
        found = clusters_of(rows, say)
    finally:
        rows.unpersist()
    if checked is None or not found.clusters:
        return found
    say("asking the lake")
    known = _known_failures(session, checked, store_id, [each.fingerprint for each in found.clusters])
    told = tuple(_with(cluster, known.get(cluster.fingerprint)) for cluster in found.clusters)
    return Triage(found.dead, told, found.clusters_in_all)


def ready_session(spark: SparkSession | None) -> SparkSession:
    """The one given, or a new one, that knows the data source. No session of our own here: Spark (4.3.0) finds no
    Python source in a session made from another."""
    if spark is None:
        from taskharbor.pipeline import session

        return session()
    return teach(spark)


# --- From rows to clusters ------------------------------------------------------------------------------------------


def dead_letters(spark: SparkSession, url: str, selection: Selection = EVERYTHING) -> DataFrame:
    """The DLQ as it is now. Read where Spark runs, unless it is small."""
    few = _few(url, selection)
    if few is not None:
        return spark.createDataFrame(few, pick(DLQ, _COLUMNS))
    options = {"url": url, "table": "dlq"}
    for name in ("queue", "type", "tenant"):
        if value := getattr(selection, name):
            options[name] = value
    for name in ("since", "until"):
        if moment := getattr(selection, name):
            options[name] = moment.isoformat()
    return spark.read.format("taskharbor").options(**options).schema(pick(DLQ, _COLUMNS)).load()


def _few(url: str, selection: Selection) -> pa.Table | None:
    """The rows, if they are no more than the driver reads in the time in which an executor would begin to."""
    import pyarrow as pa

    batches: list[pa.RecordBatch] = []
    with open_store(url) as store:
        for batch in store.read_table("dlq", selection, _COLUMNS):
            batches.append(batch)
            if sum(each.num_rows for each in batches) > FEW_ROWS or sum(each.nbytes for each in batches) > FEW_BYTES:
                return None
    return pa.Table.from_batches(batches, schema=arrow(pick(DLQ, _COLUMNS)))


def clustered(rows: DataFrame) -> DataFrame:
    """Each dead job with its cluster. The fingerprint is that of gold/failures; jobs that died without a word are told
    apart by the code."""
    from pyspark.sql import functions as F

    error = F.coalesce("reason", "last_error")
    outcome = F.when(F.col("code") == Reason.CRASH_LOOP.value, F.lit("lapsed")).otherwise(F.lit("dead"))
    kind = error_class(error, outcome)
    silent = F.substring(F.sha2(F.concat(F.lit("code "), F.coalesce("code", F.lit(""))), 256), 1, 16)
    return rows.select(
        "id",
        "type",
        "queue",
        "tenant_id",
        "code",
        F.unix_micros("failed_at").alias("failed"),
        kind.alias("error_class"),
        F.substring(F.coalesce(error, F.lit("")), -_SAMPLE_TEXT, _SAMPLE_TEXT).alias("tail"),
        F.substring(F.coalesce(error, F.lit("")), 1, _SAMPLE_TEXT).alias("head"),
        F.coalesce(fingerprint(error, kind), silent).alias("cluster"),
    ).select(
        "*",
        # The end of a traceback says what happened; of anything else, the beginning.
        F.when(F.col("head").startswith("Traceback"), F.col("tail")).otherwise(F.col("head")).alias("sample"),
    ).drop("head", "tail")  # fmt: skip


def clusters_of(rows: DataFrame, say: Progress = tell_nobody) -> Triage:
    """The clusters of rows that `clustered` made."""
    from pyspark.sql import functions as F

    summary = rows.groupBy("cluster").agg(
        F.count("*").alias("size"),
        F.max("error_class").alias("error_class"),
        F.min_by("sample", F.struct("failed", "id")).alias("sample"),
        F.sort_array(F.collect_set("code")).alias("codes"),
        F.min("failed").alias("first"),
        F.max("failed").alias("last"),
    )
    total = summary.agg(F.count("*"), F.coalesce(F.sum("size"), F.lit(0))).collect()[0]
    top = summary.orderBy(F.desc("size"), "cluster").limit(MOST_CLUSTERS).collect()
    if not top:
        return Triage(0, ())
    say(f"looking at {total[1]:,} dead jobs in {total[0]:,} clusters")
    told = rows.where(F.col("cluster").isin([row["cluster"] for row in top]))
    radius, samples = _radius(told), _samples(told)
    clusters = tuple(
        Cluster(
            row["cluster"][:ID_DIGITS],
            row["cluster"],
            row["size"],
            row["error_class"],
            row["sample"],
            tuple(row["codes"]),
            from_micros(row["first"]),
            from_micros(row["last"]),
            radius[row["cluster"], "type"],
            radius[row["cluster"], "queue"],
            radius[row["cluster"], "tenant_id"],
            samples[row["cluster"]],
        )
        for row in top
    )
    return Triage(int(total[1]), clusters, int(total[0]))


def _radius(rows: DataFrame) -> dict[tuple[str, str], Radius]:
    """How many types, queues and tenants each cluster touches, and which most."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    pairs = F.explode(F.array(*(F.struct(F.lit(name).alias("name"), F.col(name).alias("value")) for name in _RADIUS)))
    counts = rows.select("cluster", pairs.alias("pair")).groupBy("cluster", "pair.name", "pair.value").count()
    each = Window.partitionBy("cluster", "name")
    ranked = counts.select(
        "*",
        F.row_number().over(each.orderBy(F.desc("count"), "value")).alias("rank"),
        F.count("*").over(each).alias("in_all"),
    ).where(F.col("rank") <= _TOP)
    found: dict[tuple[str, str], Radius] = {}
    for row in ranked.orderBy("cluster", "name", "rank").collect():
        key = row["cluster"], row["name"]
        known = found.setdefault(key, Radius(row["in_all"]))
        known.top[row["value"]] = row["count"]
    return found


def _samples(rows: DataFrame) -> dict[str, tuple[str, ...]]:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rank = F.row_number().over(Window.partitionBy("cluster").orderBy("id")).alias("rank")
    found: dict[str, tuple[str, ...]] = {}
    ranked = rows.select("cluster", "id", rank).where(F.col("rank") <= _TOP).orderBy("cluster", "rank")
    for row in ranked.collect():
        found[row["cluster"]] = (*found.get(row["cluster"], ()), row["id"])
    return found


# --- What the lake knows --------------------------------------------------------------------------------------------


def _known_failures(
    spark: SparkSession, lake: Any, store_id: str, fingerprints: Sequence[str]
) -> dict[str, dict[str, Any]]:
    from pyspark.sql import functions as F

    rows = delta.read_table(spark, lake, GOLD_FAILURES).where(
        (F.col("store_id") == store_id) & F.col("fingerprint").isin(list(fingerprints))
    )
    found = rows.groupBy("fingerprint").agg(
        F.unix_micros(F.min("first_seen")).alias("first"),
        F.unix_micros(F.max("last_seen")).alias("last"),
        F.sum("failures").alias("failures"),
        F.sum("dead").alias("dead"),
        F.sum("burned_s").alias("burned_s"),
    )
    return {
        row["fingerprint"]: {
            "first_seen": from_micros(row["first"]).isoformat(),
            "last_seen": from_micros(row["last"]).isoformat(),
            "failures": row["failures"],
            "dead": row["dead"],
            "burned_s": round(row["burned_s"], 3),
        }
        for row in found.collect()
    }


def _with(cluster: Cluster, known: dict[str, Any] | None) -> Cluster:
    from dataclasses import replace

    return replace(cluster, in_lake=known)
