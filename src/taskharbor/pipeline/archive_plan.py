"""Which jobs are due for the archive: over, ended before the bound, and in the lake with every row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from taskharbor.pipeline import bronze, delta
from taskharbor.pipeline.archive_rows import cursor_at, order_of, place, store_rows
from taskharbor.pipeline.lake import Lake, LakeError
from taskharbor.pipeline.lake_schemas import GOLD_AUDIT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from taskharbor.pipeline.store import PipelineStore

MOST_JOBS: Final = 2_000_000
"""Of one manifest: their ids are held in memory."""
RUN_FIRST: Final = "run `taskharbor pipeline run` first; nothing was pruned"
_LIGHT: Final = ("position", "seq_no", "job_id", "at", "status", "final")


class ArchiveRefused(LakeError):
    """The lake does not have what is to be pruned, or not for sure. Nothing was pruned for it."""


@dataclass(frozen=True, slots=True)
class Due:
    """Jobs to archive, the oldest first, as one fixed set."""

    table: pa.Table
    """job_id, status, xid and seq_no of the last fact, first_xid and first_seq of the first."""
    complete: bool
    """Whether these are all, and not only as many as one manifest takes."""
    upto: str
    """The cursor that the lake has."""
    first: str
    last: str
    """The cursors of the first and the last row of these jobs; empty when there are none."""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def by_status(self) -> dict[str, int]:
        found = {row["values"]: row["counts"] for row in self.table["status"].value_counts().to_pylist()}
        return {("purged" if name == "dlq" else name): count for name, count in sorted(found.items())}

    def ids(self, size: int) -> Iterator[list[str]]:
        for at in range(0, len(self), size):
            yield self.table["job_id"].slice(at, size).to_pylist()


def lake_cursor(lake: Lake, store_id: str) -> str:
    """How far the lake has everything, through to gold."""
    last = bronze.last_batch(lake, store_id)
    if last is None:
        raise ArchiveRefused(f"the lake {lake.root} has nothing of this store yet: {RUN_FIRST}")
    if delta.batch_of(lake, GOLD_AUDIT, store_id) < last.number:
        raise ArchiveRefused(
            f"batch {last.number} is in bronze and has not passed its checks, or is not through: {RUN_FIRST}"
        )
    return last.upto


def due_jobs(
    spark: SparkSession,
    lake: Lake,
    store: PipelineStore,
    url: str,
    before: datetime,
    *,
    end: str | None = None,
    most: int = MOST_JOBS,
) -> Due:
    """The jobs that ended before the bound. Raises ArchiveRefused if the lake lacks a row that is older than it.

    With `end`, only those whose rows all lie at or before that cursor: what is left of an earlier archive.
    """
    from pyspark.sql import functions as F

    upto = lake_cursor(lake, store.store_id)
    if held := store.held_back(before):
        raise ArchiveRefused(
            f"the feed holds back {held:,} rows older than {before.isoformat()}, because a transaction is open in the "
            f"store: when it has ended, {RUN_FIRST}"
        )
    bound = F.lit(before).cast("timestamp")
    rows = place(store_rows(spark, store, url, _later(store, store.frontier(), upto), _LIGHT)).persist()
    try:
        _refuse_lag(rows, _behind(order_of(store, upto)) & (F.col("at") < bound), before)
        facts = F.struct("at", "status", "xid", "seq_no")
        first = F.min(F.struct(F.col("xid").alias("first_xid"), F.col("seq_no").alias("first_seq")))
        last = (
            rows.groupBy("job_id")
            .agg(F.max_by(facts, "seq_no").alias("last"), first.alias("first"))
            .select("job_id", "last.*", "first.*")
        )
        due = last.where((F.col("status") != "ready") & (F.col("at") < bound))
        if end is not None:
            due = due.where(~_behind(order_of(store, end)))
        chosen = due.orderBy("seq_no").limit(most + 1).drop("at").toArrow()
    finally:
        rows.unpersist()
    complete = chosen.num_rows <= most
    chosen = _without_dead(store, chosen.slice(0, most))
    ends = [
        _cursor(store, upto, chosen, names, order)
        for names, order in ((("first_xid", "first_seq"), "ascending"), (("xid", "seq_no"), "descending"))
    ]
    return Due(chosen, complete, upto, *ends)


def _later(store: PipelineStore, one: str, other: str) -> str:
    return max(one, other, key=store.order_of)


def _behind(order: tuple[int, int]) -> Any:
    from pyspark.sql import functions as F

    xid, sequence = order
    return (F.col("xid") > xid) | ((F.col("xid") == xid) & (F.col("seq_no") > sequence))


def _refuse_lag(rows: Any, missing: Any, before: datetime) -> None:
    from pyspark.sql import functions as F

    old = rows.where(missing).groupBy(F.to_date("at").cast("string").alias("day")).count().orderBy("day").collect()
    if old:
        days = ", ".join(f"{row['count']:,} of {row['day']}" for row in old[:5])
        more = f" and {len(old) - 5} more days" if len(old) > 5 else ""
        raise ArchiveRefused(
            f"the lake is behind: it has none of {sum(row['count'] for row in old):,} rows of the store that are older "
            f"than {before.isoformat()} ({days}{more}): {RUN_FIRST}"
        )


def _without_dead(store: PipelineStore, chosen: Any) -> Any:
    """Without the jobs that are in the DLQ now. A dead job is not over: somebody has yet to decide."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.any(pc.equal(chosen["status"], "dlq")).as_py():
        return chosen
    dead = pa.chunked_array(
        [batch.column(0) for batch in store.read_table("dlq", columns=["id"])] or [pa.array([], pa.string())]
    )
    return chosen.filter(pc.invert(pc.is_in(chosen["job_id"], value_set=dead)))


def _cursor(store: PipelineStore, like: str, chosen: Any, names: tuple[str, str], order: str) -> str:
    if not chosen.num_rows:
        return ""
    top = chosen.sort_by([(name, order) for name in names]).slice(0, 1).to_pylist()[0]
    return cursor_at(store, like, *(top[name] for name in names))
