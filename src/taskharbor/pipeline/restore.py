"""Archived jobs brought back from the lake: finished ones, as they were, with every attempt.

Each fact goes back to the place of the feed that it had, so a run that is past it takes it in no second time, and an
archive finds it in the lake as before. Keys do not come back: they were let go when the jobs were pruned, and others
may have relied on that since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from taskharbor.core.clock import from_micros
from taskharbor.core.errors import InvalidInput
from taskharbor.pipeline import audit, bronze, delta, silver
from taskharbor.pipeline.archive import Counted, Desk, Progress, opened, tell_nobody
from taskharbor.pipeline.lake import LakeError
from taskharbor.pipeline.lake_schemas import BRONZE_HISTORY
from taskharbor.pipeline.restore_rows import Restored
from taskharbor.pipeline.schemas import FEED
from taskharbor.pipeline.store import Selection

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PORTION_JOBS: Final = 500
PORTION_BYTES: Final = 8 * 1024 * 1024
"""Of one transaction: whichever comes first."""
_PART_ROWS: Final = 50_000
"""Rows that come to the driver at a time."""
_KNOWN_AT_ONCE: Final = 1_000
_TIMES: Final = tuple(field.name for field in FEED.fields if field.dataType.typeName() == "timestamp")


@dataclass
class RestoreReport:
    """What a restore did. Every job that was selected was brought back or was there."""

    store_id: str
    lake: str
    selected: int = 0
    restored: int = 0
    known: int = 0
    rows: int = 0
    """Of history, that came with the restored jobs."""
    by_status: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """Ids that were asked for and whose latest job the lake does not have as a finished one."""
    earlier: int = 0
    """Ids of which only an earlier job was selected. Their latest one is another, or did not end: they stay."""
    dry_run: bool = False

    def data(self) -> dict[str, Any]:
        return asdict(self)


def restore(
    url: str,
    lake: str | Path,
    *,
    ids: Sequence[str] = (),
    selection: Selection | None = None,
    everything: bool = False,
    spark: SparkSession | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    on_restored: Counted | None = None,
) -> RestoreReport:
    """Bring back finished jobs of this store from the lake: those named, those selected (by when they ended, queue,
    type, tenant, status), or everything. Jobs that are in the store are left as they are, so it can be run again.
    Where an id was used again, its latest job is meant: an earlier one is never put in its place."""
    if bool(ids) + (selection is not None) + everything != 1:
        raise InvalidInput("say what to restore: ids, a selection, or everything")
    with opened(url, lake, spark, progress) as desk:
        return _restored(desk, list(dict.fromkeys(ids)), selection, dry_run, on_restored or tell_nobody)


def _restored(
    desk: Desk, ids: list[str], selection: Selection | None, dry_run: bool, on_restored: Counted
) -> RestoreReport:
    report = RestoreReport(desk.store.store_id, str(desk.lake.root), dry_run=dry_run)
    if bronze.last_batch(desk.lake, report.store_id) is None:
        raise LakeError(f"the lake {desk.lake.root} has nothing of this store: check --url and --lake")
    desk.say("looking into the lake")
    finals = _finals(desk)
    selected = _last(_selected(finals, ids, selection)).persist()
    try:
        chosen = _latest(desk, selected).toArrow()
        report.earlier = selected.count() - chosen.num_rows
    finally:
        selected.unpersist()
    report.selected = chosen.num_rows
    report.missing = sorted(set(ids) - set(chosen["job_id"].to_pylist())) if ids else []
    wanted = _unknown(desk, chosen)
    report.known = chosen.num_rows - wanted.num_rows
    if not wanted.num_rows:
        return report
    jobs = desk.spark.createDataFrame(wanted.select(["job_id", "seq_no"])).withColumnRenamed("seq_no", "last_seq")
    facts = _facts(desk, jobs)
    if dry_run:
        report.restored, report.rows, report.by_status = wanted.num_rows, facts.count(), _by_status(wanted)
        return report
    for portion in _portions(_jobs(desk, facts)):
        desk.lock.check()
        passed = desk.door.restore(portion)
        report.known += len(passed)
        for item in portion:
            if item.job_id not in passed:
                report.restored += 1
                report.rows += len(item.facts)
                status = str(item.facts[-1]["status"])
                report.by_status[status] = report.by_status.get(status, 0) + 1
        on_restored(len(portion), wanted.num_rows)
    return report


# --- Which jobs -----------------------------------------------------------------------------------------------------


def _finals(desk: Desk) -> DataFrame:
    """The facts with which jobs of this store ended."""
    from pyspark.sql import functions as F

    rows = delta.read_table(desk.spark, desk.lake, BRONZE_HISTORY)
    return rows.where((F.col("store_id") == desk.store.store_id) & F.col("final"))


def _selected(finals: DataFrame, ids: list[str], selection: Selection | None) -> DataFrame:
    from pyspark.sql import functions as F

    if ids:
        return finals.where(F.col("job_id").isin(ids))
    if selection is None:
        return finals
    conditions: list[Column] = [
        F.col(column) == value
        for column, value in (
            ("queue", selection.queue),
            ("type", selection.type),
            ("tenant_id", selection.tenant),
            ("status", selection.status),
        )
        if value is not None
    ]
    if selection.since is not None:
        conditions.append(F.col("at") >= F.lit(selection.since).cast("timestamp"))
    if selection.until is not None:
        conditions.append(F.col("at") < F.lit(selection.until).cast("timestamp"))
    for condition in conditions:
        finals = finals.where(condition)
    return finals


def _last(finals: DataFrame) -> DataFrame:
    """One for each id: an id may have been used again once its first job was pruned."""
    from pyspark.sql import functions as F

    return finals.groupBy("job_id").agg(F.max("seq_no").alias("seq_no"), F.max_by("status", "seq_no").alias("status"))


def _latest(desk: Desk, selected: DataFrame) -> DataFrame:
    """Those behind whose end the lake knows nothing more of the id."""
    from pyspark.sql import functions as F

    rows = delta.read_table(desk.spark, desk.lake, BRONZE_HISTORY).where(F.col("store_id") == desk.store.store_id)
    ends = rows.select("job_id", F.col("seq_no").alias("end")).join(selected.select("job_id"), "job_id", "left_semi")
    last = ends.groupBy("job_id").agg(F.max("end").alias("end"))
    return selected.join(last, "job_id").where("seq_no = end").drop("end")


def _unknown(desk: Desk, chosen: Any) -> Any:
    """Those that the store does not have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = []
    for at in range(0, chosen.num_rows, _KNOWN_AT_ONCE):
        part = chosen.slice(at, _KNOWN_AT_ONCE)
        known = pa.array(sorted(desk.door.known(part["job_id"].to_pylist())), part["job_id"].type)
        parts.append(part.filter(pc.invert(pc.is_in(part["job_id"], value_set=known))))
    return pa.concat_tables(parts) if parts else chosen


def _by_status(chosen: Any) -> dict[str, int]:
    return {row["values"]: row["counts"] for row in chosen["status"].value_counts().to_pylist()}


# --- Their facts ----------------------------------------------------------------------------------------------------


def _facts(desk: Desk, jobs: DataFrame) -> DataFrame:
    """Every fact of these jobs up to the one they ended with, with times as microseconds."""
    from pyspark.sql import functions as F

    spark, lake = desk.spark, desk.lake
    files = delta.files_of(delta.open_table(lake, BRONZE_HISTORY), BRONZE_HISTORY)
    # First only where they are: few files hold the jobs of a few days.
    named = delta.frame(spark, lake, BRONZE_HISTORY, files, with_file=True).where(
        F.col("store_id") == desk.store.store_id
    )
    found = named.select("job_id", delta.FILE).join(jobs, "job_id", "left_semi").select(delta.FILE).distinct()
    root = f"{lake.path(BRONZE_HISTORY)}/"
    places = {unquote(row[0]).partition(root)[2] for row in found.collect()}
    chosen = [each for each in files if each.path in places]
    rows = delta.frame(spark, lake, BRONZE_HISTORY, chosen).where(F.col("store_id") == desk.store.store_id)
    rows = rows.join(jobs, "job_id").where("seq_no <= last_seq")
    own = silver.latest_life(audit.pieces(rows)).select("job_id", "seq_no")
    rows = rows.join(own, ["job_id", "seq_no"], "left_semi")
    columns = [F.unix_micros(name).alias(name) if name in _TIMES else F.col(name) for name in FEED.fieldNames()]
    return rows.select(*columns)


def _jobs(desk: Desk, facts: DataFrame) -> Iterator[Restored]:
    """Job by job, each with its facts in order."""
    from pyspark import StorageLevel

    facts = facts.persist(StorageLevel.DISK_ONLY)
    try:
        parts = facts.count() // _PART_ROWS + 1
        ordered = facts.repartitionByRange(parts, "job_id").sortWithinPartitions("job_id", "seq_no")
        numbers = len(desk.store.order_of(None))
        head = desk.store.frontier().rsplit(":", numbers)[0]
        held: list[dict[str, Any]] = []
        for row in ordered.toLocalIterator(prefetchPartitions=True):
            record = _record(row.asDict())
            if record["position"].rsplit(":", numbers)[0] != head:
                raise LakeError(
                    f"job {record['job_id']} was archived before the store was moved to another database cluster, "
                    "where its place in the feed means nothing: it can be read in the lake, and not be restored"
                )
            if held and held[0]["job_id"] != record["job_id"]:
                yield Restored(held[0]["job_id"], list(held))
                held = []
            held.append(record)
        if held:
            yield Restored(held[0]["job_id"], list(held))
    finally:
        facts.unpersist()


def _record(values: dict[str, Any]) -> dict[str, Any]:
    for name in _TIMES:
        if values[name] is not None:
            values[name] = from_micros(values[name])
    for name in ("payload", "result"):
        if values[name] is not None:
            values[name] = bytes(values[name])
    return values


def _portions(jobs: Iterator[Restored]) -> Iterator[list[Restored]]:
    portion: list[Restored] = []
    size = 0
    for job in jobs:
        portion.append(job)
        size += sum(500 + len(fact["payload"] or b"") + len(fact["result"] or b"") for fact in job.facts)
        if len(portion) == PORTION_JOBS or size >= PORTION_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
