"""The checks that every batch must pass before gold is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from taskharbor.pipeline.lake import Lake, LakeError
from taskharbor.pipeline.lake_schemas import BRONZE_HISTORY, SILVER_JOBS

if TYPE_CHECKING:
    from taskharbor.pipeline.bronze import Batch
    from taskharbor.pipeline.part_files import DataFile
    from taskharbor.pipeline.store import PipelineStore


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    passed: bool
    expected: int
    found: int
    detail: str

    def __str__(self) -> str:
        return f"{self.name}: {self.detail} (expected {self.expected:,}, found {self.found:,})"


class QualityFailed(LakeError):
    """A batch did not pass its checks. Gold is as it was before; the batch is tried again with the next run."""

    def __init__(self, checks: Sequence[Check], batch: int) -> None:
        self.checks = tuple(checks)
        failed = "; ".join(str(check) for check in checks if not check.passed)
        super().__init__(f"batch {batch} did not pass its checks, and gold stays as it was: {failed}")


def duplicates(lake: Lake, files: Sequence[DataFile]) -> int:
    """How many facts of a batch settle a lease that another one settles, or are there twice.

    Not by Spark: a batch is bounded, and to move a million keys between tasks costs many times what counting them here
    does."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    places = [lake.path(BRONZE_HISTORY) / each.path for each in files]
    if not places:
        return 0
    rows = pa.concat_tables(pq.ParquetFile(place).read(["lease_token", "seq_no"]) for place in places)
    without = rows.filter(pc.is_null(rows["lease_token"]))["seq_no"]
    settled = rows["lease_token"].drop_null()
    return sum(len(keys) - int(pc.count_distinct(keys).as_py()) for keys in (settled, without))


def job_totals(lake: Lake, added: Sequence[DataFile], removed: Sequence[DataFile]) -> dict[str, int]:
    """What a batch changed in silver/jobs: attempts that its jobs have more than before, and jobs that have more
    attempts than deliveries."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    def totals(files: Sequence[DataFile]) -> tuple[int, int]:
        attempts = beyond = 0
        for each in files:
            rows = pq.ParquetFile(lake.path(SILVER_JOBS) / each.path).read(["attempts", "deliveries"])
            attempts += pc.sum(rows["attempts"]).as_py() or 0
            beyond += pc.sum(pc.greater(rows["attempts"], rows["deliveries"])).as_py() or 0
        return attempts, beyond

    after, beyond = totals(added)
    before, _ = totals(removed)
    return {"attempts": after - before, "beyond": beyond}


def store_rows(store: PipelineStore, batch: Batch) -> int:
    """The rows of the batch's range, counted in the store."""
    return sum(len(each) for each in store.read_history(batch.after, batch.upto, ["seq_no"]))


def checks(
    batch: Batch, profile: Mapping[str, Any], doubled: int, totals: Mapping[str, int], in_store: int
) -> list[Check]:
    negative = int(profile["negative_waits"])
    counted = totals["attempts"] + totals.get("superseded", 0)  # of earlier jobs, whose ids were used again
    return [
        Check("one settle per lease", doubled == 0, 0, doubled, "facts that settle a lease again, or are there twice"),
        Check("no negative wait", negative == 0, 0, negative, "attempts that were claimed before they were due"),
        Check(
            "every attempt has its job",
            counted == profile["attempts"],
            profile["attempts"],
            counted,
            "attempts that the jobs of the batch have more than before",
        ),
        Check(
            "no attempt without a delivery",
            totals["beyond"] == 0,
            0,
            totals["beyond"],
            "jobs with more attempts than deliveries",
        ),
        Check(
            "bronze is complete",
            profile["rows"] == batch.rows,
            batch.rows,
            profile["rows"],
            "rows of the batch in bronze",
        ),
        # Rows that were pruned from the store meanwhile are in the lake alone, and that is in order.
        Check("the store has no more", in_store <= batch.rows, batch.rows, in_store, "rows of the batch in the store"),
    ]
