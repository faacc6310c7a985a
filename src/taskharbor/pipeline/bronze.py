"""Bronze: the history feed as it came. A batch is a range of the feed, and its cursor is part of the batch's commit.

Executors read their part of the range from the store and write it as Parquet at once, as Arrow all the way; Spark
carries the names of the files. A task that is retried or speculated writes other files, and only those of the attempt
that Spark took are committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core import errors
from taskharbor.core.errors import TaskHarborError
from taskharbor.pipeline import delta
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import BRONZE_HISTORY
from taskharbor.pipeline.part_files import TOLD, DataFile, PartFiles, heard, told
from taskharbor.pipeline.schemas import FEED, arrow
from taskharbor.pipeline.store import PipelineStore, Range, open_store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SMALL_ROWS: Final = 20_000
"""Up to here, the driver reads the range by itself: that is quicker than to ask executors."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One step of the lake: the rows of the feed behind `after`, up to and with `upto`."""

    store_id: str
    number: int
    after: str | None
    upto: str
    rows: int = 0


def last_batch(lake: Lake, store_id: str) -> Batch | None:
    """The last batch that bronze has. Its cursor is in its plan, and in its commit as long as the log has that."""
    number = delta.batch_of(lake, BRONZE_HISTORY, store_id)
    if not number:
        return None
    plan = lake.read_json(_plan_name(store_id, number))
    note = plan or delta.last_note(lake, BRONZE_HISTORY, store_id, number)
    if not note:
        raise _lost(lake, store_id, number)
    return Batch(store_id, number, note["after"], note["upto"], note.get("rows", 0))


def stores_of(lake: Lake) -> list[str]:
    """The stores that the lake takes in: each has left the plans of its last batches."""
    latest = {path.stem.rpartition("-")[2]: path.name for path in sorted((lake.home / "plans").glob("b*.json"))}
    return sorted(str(lake.read_json(f"plans/{name}")["store_id"]) for name in latest.values())


def _lost(lake: Lake, store_id: str, number: int) -> Exception:
    from taskharbor.pipeline.lake import LakeCorrupt

    return LakeCorrupt(
        f"the lake {lake.root} has lost the cursor of batch {number} of store {store_id}: "
        "restore _taskharbor/plans from a backup"
    )


def tag_of(store_id: str, number: int) -> str:
    """How the directories of a batch begin, in every table."""
    return f"b{number:09d}-{uuid.uuid5(uuid.NAMESPACE_OID, store_id).hex[:8]}"


def new_tag(store_id: str, number: int) -> str:
    return f"{tag_of(store_id, number)}-{uuid.uuid4().hex[:12]}"


def files_of_batch(lake: Lake, spec: Any, store_id: str, number: int) -> list[DataFile]:
    """What a batch added to a table. Upkeep merges files only when no batch is under way, so they are still there."""
    start = tag_of(store_id, number) + "-"
    return [each for each in delta.files_of(delta.open_table(lake, spec), spec) if each.path.startswith(start)]


def _plan_name(store_id: str, number: int) -> str:
    return f"plans/{tag_of(store_id, number)}.json"


def plan(
    store: PipelineStore, last: Batch | None, max_rows: int, frontier: str | None = None
) -> tuple[Batch, str] | None:
    """The next batch and the frontier that it was planned with; None if nothing is there before that.

    The batch's end is fixed, however long reading it takes.
    """
    after = last.upto if last else None
    frontier = frontier or store.frontier()
    if store.order_of(frontier) <= store.order_of(after):
        return None
    upto = store.ahead(after, frontier, max_rows)
    return Batch(store.store_id, (last.number if last else 0) + 1, after, upto), frontier


def ingest(
    spark: SparkSession,
    lake: Lake,
    store: PipelineStore,
    url: str,
    batch: Batch,
    run_id: str,
    allowed: Callable[[], None] = lambda: None,
) -> Batch | None:
    """Bring the batch to bronze, in one commit with its cursor. None if there is no row: nothing changes then.

    `allowed` is asked before the commit, and raises if another run has taken over meanwhile.
    """
    tag = new_tag(batch.store_id, batch.number)
    small = store.kind == "json" or store.ahead(batch.after, batch.upto, SMALL_ROWS) == batch.upto
    root = str(lake.path(BRONZE_HISTORY))
    if small:
        files = write_ranges(store, [(batch.after, batch.upto)], root, tag)
    else:
        parts = max(2, spark.sparkContext.defaultParallelism) * 2
        files = _write_by_executors(spark, url, store.split(batch.after, batch.upto, parts), root, tag)
    rows = sum(each.rows for each in files)
    if not rows:
        return None
    done = Batch(batch.store_id, batch.number, batch.after, batch.upto, rows)
    note = {**asdict(done), "run_id": run_id}
    allowed()
    lake.write_json(_plan_name(batch.store_id, batch.number), note)
    delta.commit(lake, BRONZE_HISTORY, files, store_id=batch.store_id, batch=batch.number, note=note)
    return done


def forget_plans(lake: Lake, batch: Batch, kept: int = 100) -> None:
    """Plans of batches long past."""
    (lake.home / _plan_name(batch.store_id, batch.number - kept)).unlink(missing_ok=True)


def _write_by_executors(spark: SparkSession, url: str, ranges: Sequence[Range], root: str, tag: str) -> list[DataFile]:
    numbered = [(place, after, upto) for place, (after, upto) in enumerate(ranges)]
    if not numbered:
        return []

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs on executors."""
        ours = [(row["after"], row["upto"]) for batch in batches for row in batch.to_pylist()]
        with open_store(url) as store:
            files = write_ranges(store, ours, root, tag)
        yield told([each.data() for each in files])

    asked = spark.createDataFrame(numbered, "place int, after string, upto string")
    spread = asked.repartitionByRange(len(numbered), "place")
    try:
        answer = spread.mapInArrow(write, TOLD).collect()
    except Exception as error:
        if (ours := _of_an_executor(error)) is not None:
            raise ours from error
        raise
    return [DataFile.of(each) for each in heard(answer)]


def _of_an_executor(error: Exception) -> TaskHarborError | None:
    """What one of our own errors on an executor said; Spark wraps it in pages of traces."""
    for line in reversed(str(error).splitlines()):
        kind, colon, said = line.strip().partition(": ")
        if colon and kind.startswith("taskharbor."):
            found = getattr(errors, kind.rpartition(".")[2], None)
            return (found if isinstance(found, type) and issubclass(found, TaskHarborError) else TaskHarborError)(said)
    return None


def write_ranges(store: PipelineStore, ranges: Sequence[Range], root: str, tag: str) -> list[DataFile]:
    """Ranges of the feed as Parquet files, one for each day."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ingested_at = pa.scalar(datetime.now(UTC), pa.timestamp("us", tz="UTC"))
    columns = [field.name for field in FEED.fields]
    schema = arrow(FEED)
    files = PartFiles(root, tag)
    try:
        for after, upto in ranges:
            for batch in store.read_history(after, upto, columns):
                rows = pa.Table.from_batches([batch]).cast(schema)
                rows = rows.append_column("ingested_at", pa.repeat(ingested_at, len(batch)))
                day = pc.cast(pc.floor_temporal(rows["at"], unit="day"), pa.date32())
                files.add_all(rows.append_column("day", day), ["day"])
    except BaseException:
        files.abandon()
        raise
    return files.close()
