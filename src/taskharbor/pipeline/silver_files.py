"""The facts of a batch as files: attempts, jobs that are over with their only fact, and the facts of all other jobs.

Spark has worked every column out (`silver.judged`). Here, on executors, rows are only sorted into the tables that they
belong to, counted, and written as they are, in one pass; the facts of the other jobs into files that are put together
next and then forgotten.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from taskharbor.pipeline.delta import is_small
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import ATTEMPTS, JOBS, SILVER_ATTEMPTS, SILVER_JOBS
from taskharbor.pipeline.part_files import TOLD, DataFile, PartFiles, heard, told
from taskharbor.pipeline.schemas import arrow, pick
from taskharbor.pipeline.silver import PARTS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_COUNTED: Final = ("rows", "rejected", "attempts", "final", "other", "negative_waits")
_HOURS: Final = ("ended", "created")
_MICROS_OF_AN_HOUR: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the rows of a batch go. A table without a tag has them already."""

    root: str
    store_id: str
    batch: int
    attempts: str | None
    jobs: str | None
    others: str
    not_alone: frozenset[str] = frozenset()
    """Ids whose fact looks like all there is about its job, and is not all there is about the id."""


@dataclass
class Laid:
    """What was written, and everything that the later steps and the checks must know about the batch beforehand."""

    attempts: list[DataFile] = field(default_factory=list)
    jobs: list[DataFile] = field(default_factory=list)
    others: list[DataFile] = field(default_factory=list)
    profile: dict[str, Any] = field(default_factory=lambda: {**dict.fromkeys(_COUNTED, 0), **{n: [] for n in _HOURS}})

    def data(self) -> dict[str, Any]:
        files = {name: [each.data() for each in getattr(self, name)] for name in ("attempts", "jobs", "others")}
        return {**files, "profile": self.profile}

    def add(self, data: dict[str, Any]) -> None:
        """What a task has done."""
        for name in ("attempts", "jobs", "others"):
            getattr(self, name).extend(DataFile.of(each) for each in data[name])
        for name in _COUNTED:
            self.profile[name] += data["profile"][name]
        for name in _HOURS:
            self.profile[name] = sorted({*self.profile[name], *data["profile"][name]})


def write(facts: DataFrame, layout: Layout) -> Laid:
    """Lay the facts out: where they are, or in the driver if they are few."""
    laid = Laid()
    if is_small(facts.sparkSession):
        laid.add(lay_out(facts.toArrow().to_batches(), layout).data())
        return laid

    def go(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs on executors."""
        yield told([lay_out(batches, layout).data()])

    for answer in heard(facts.mapInArrow(go, TOLD).collect()):
        laid.add(answer)
    return laid


def forget_others(lake: Lake, layout: Layout) -> None:
    shutil.rmtree(lake.path(SILVER_JOBS) / layout.others, ignore_errors=True)


def lay_out(batches: Iterable[pa.RecordBatch], layout: Layout) -> Laid:
    """One pass over facts with the columns of `silver.judged`."""
    import pyarrow as pa

    jobs = f"{layout.root}/{SILVER_JOBS.name}"
    files = {
        "attempts": PartFiles(f"{layout.root}/{SILVER_ATTEMPTS.name}", layout.attempts or ""),
        "jobs": PartFiles(jobs, layout.jobs or ""),
        "others": PartFiles(jobs, layout.others),
    }
    counts: Counter[str] = Counter()
    hours: dict[str, set[int]] = {name: set() for name in _HOURS}
    try:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            usable = _counted(rows, counts, hours)
            attempts, simple, others = parted(usable, layout)
            counts["other"] += others.num_rows
            if layout.attempts is not None:
                files["attempts"].add_all(attempts, SILVER_ATTEMPTS.partition_by)
            if layout.jobs is not None:
                files["jobs"].add_all(simple, SILVER_JOBS.partition_by)
                files["others"].add((), others)
    except BaseException:
        for each in files.values():
            each.abandon()
        raise
    profile = {**{name: counts[name] for name in _COUNTED}, **{name: sorted(hours[name]) for name in _HOURS}}
    return Laid(**{name: each.close() for name, each in files.items()}, profile=profile)


def _counted(rows: pa.Table, counts: Counter[str], hours: dict[str, set[int]]) -> pa.Table:
    """The rows that can be used; all are counted."""
    import pyarrow.compute as pc

    usable = rows
    if rows["reason"].null_count < rows.num_rows:
        usable = rows.filter(pc.is_null(rows["reason"]))
    attempt = pc.is_valid(usable["attempt_no"])
    early = pc.and_(attempt, pc.fill_null(pc.less(usable["claimed_at"], usable["due_at"]), False))
    counts["rows"] += rows.num_rows
    counts["rejected"] += rows.num_rows - usable.num_rows
    counts["attempts"] += pc.sum(attempt).as_py() or 0
    counts["final"] += pc.sum(usable["final"]).as_py() or 0
    counts["negative_waits"] += pc.sum(early).as_py() or 0
    for name, column in (("ended", "finished_at"), ("created", "created_at")):
        hours[name].update(_hours(usable[column]))
    return usable


def _hours(times: pa.ChunkedArray) -> list[int]:
    """The hours since 1970 that these times lie in."""
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = pc.floor_temporal(times, unit="hour").cast(pa.int64()).unique()
    return [each // _MICROS_OF_AN_HOUR for each in micros.to_pylist() if each is not None]


def parted(usable: pa.Table, layout: Layout) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Rows of silver/attempts, rows of silver/jobs that are whole, and parts of the other jobs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    alone = usable["alone"]
    if layout.not_alone:
        again = pc.is_in(usable["job_id"], value_set=pa.array(sorted(layout.not_alone), pa.string()))
        alone = pc.and_not(alone, again)
    attempts = usable if usable["attempt_no"].null_count == 0 else usable.filter(pc.is_valid(usable["attempt_no"]))
    return (
        _columns(attempts, layout, ATTEMPTS.fieldNames()),
        _columns(usable.filter(alone), layout, JOBS.fieldNames(), of_jobs=True),
        _columns(usable.filter(pc.invert(alone)), layout, PARTS.fieldNames(), of_jobs=True),
    )


_RENAMED: Final = {
    "deliveries": "delivery",
    "first_started_at": "started_at",
    "last_at": "finished_at",
    "ended_at": "finished_at",
}


def _columns(rows: pa.Table, layout: Layout, names: list[str], *, of_jobs: bool = False) -> pa.Table:
    """These columns of a table of silver, as a job has them or as an attempt has them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = rows.num_rows
    made: dict[str, Any] = {
        "store_id": pa.repeat(pa.scalar(layout.store_id), count),
        "batch": pa.repeat(pa.scalar(layout.batch, pa.int64()), count),
    }
    if of_jobs:
        known = pc.is_valid(rows["created_at"])
        made["known_batch"] = pc.if_else(known, pa.scalar(layout.batch, pa.int64()), pa.scalar(None, pa.int64()))
        made["attempts"] = pc.is_valid(rows["attempt_no"]).cast(pa.int64())
        made["failures"] = rows["burned"].cast(pa.int64())
        made["state"] = pa.repeat(pa.scalar("final"), count)
        for name in ("waited_s", "ran_s", "cost_s", "wasted_s"):
            made[name] = pc.fill_null(rows[name], 0.0)
    columns = [made[name] if name in made else rows[_RENAMED.get(name, name)] for name in names]
    return pa.table(columns, schema=arrow(pick(JOBS if of_jobs else ATTEMPTS, names)))
