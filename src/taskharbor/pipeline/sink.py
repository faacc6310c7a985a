"""The sink: `df.write.format("taskharbor")` and `df.writeStream.format("taskharbor")`.

`write` runs on executors: it checks rows and stages them. `commit` runs on the driver, when every task has succeeded:
it publishes what the attempts staged that Spark committed, in one go. Until then no worker sees a job of the load.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from taskharbor.core.clock import EPOCH
from taskharbor.core.errors import InvalidInput, TaskHarborError
from taskharbor.core.ids import new_id
from taskharbor.pipeline.loading_progress import note
from taskharbor.pipeline.rejects import keeper, most_frequent
from taskharbor.pipeline.sink_options import Plan, plan
from taskharbor.pipeline.sink_rows import check_batch
from taskharbor.pipeline.staging import open_staging, ready

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_SHOWN: Final = 3


class RowsRefused(TaskHarborError):
    """Rows cannot become jobs, and the write was told to fail then, or not told where to keep them."""


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What one attempt of a task staged."""

    run_id: str
    attempt: int
    accepted: int
    rejected: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did. Every row that came in was published, was a job already, or was refused."""

    run_id: str
    rows_in: int
    published: int
    duplicates: int
    rejected: int
    rejects: str = ""
    """Where the refused rows are."""
    already: bool = False
    """The run had been published before; the counts are those of then."""
    reasons: Sequence[Mapping[str, Any]] = ()
    """Why rows were refused, the most frequent reasons first: `reason`, `rows`, and one of them as `example`."""

    def adds_up(self) -> bool:
        return self.rows_in == self.published + self.duplicates + self.rejected


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchSink:
    _refuse_overwrite(overwrite)
    checked = plan(options, schema, new_id())
    ready(checked.url)  # beside the driver, before there is a task
    return BatchSink(checked)


def stream_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> StreamSink:
    _refuse_overwrite(overwrite)
    checked = plan(options, schema, None)
    ready(checked.url)
    return StreamSink(checked)


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidInput('jobs are added, never replaced: write with .mode("append")')


class BatchSink(DataSourceArrowWriter):
    """Lives on the driver and, pickled, on executors."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        assert self.plan.run_id is not None
        return stage(self.plan, iterator, self.plan.run_id, self.plan.identity)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        assert self.plan.run_id is not None
        publish(self.plan, self.plan.run_id, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # Messages of failed tasks are None, so the run is what names the leftovers. A task that still runs may leave
        # more; those are swept by age.
        assert self.plan.run_id is not None
        open_staging(self.plan).discard(self.plan.run_id)


class StreamSink(DataSourceStreamArrowWriter):
    """The same for each micro-batch; query and batch number are its run, which is published once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        if query is None or batch is None:
            raise InvalidInput("Spark did not say which query and batch this is: the sink needs PySpark 4.1 or newer")
        run_id = f"{query}:{batch}"
        return stage(self.plan, iterator, run_id, self.plan.identity or run_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        if staged:
            publish(self.plan, staged[0].run_id, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staging = open_staging(self.plan)
        for run_id in {message.run_id for message in _staged(messages)}:
            staging.discard(run_id)


# --- On executors ------------------------------------------------------------------------------------------------


def stage(plan: Plan, batches: Iterator[pa.RecordBatch], run_id: str, identity: str) -> Staged:
    """Check the rows of one attempt of a task and stage them."""
    accepted = rejected = 0
    reasons: list[str] = []
    with open_staging(plan).attempt(run_id) as attempt:
        for batch in batches:
            # Whether a job has expired is for the store's clock to say, when the load is published.
            checked = check_batch(batch, plan, identity, EPOCH)
            if checked.rejects:
                reasons += [reason for _, reason in checked.rejects[: _SHOWN - len(reasons)]]
                if plan.failfast:
                    raise RowsRefused(f"a row was refused, so nothing is loaded (failfast): {reasons[0]}")
            attempt.add(checked)
            accepted += checked.rows
            rejected += len(checked.rejects)
            note(plan.progress, f"{attempt.number:x}", accepted + rejected)
        number = attempt.number
    return Staged(run_id, number, accepted, rejected, tuple(reasons))


# --- On the driver -----------------------------------------------------------------------------------------------


def publish(plan: Plan, run_id: str, messages: Sequence[WriterCommitMessage | None]) -> LoadReport:
    """Publish what was staged, keep what was refused, and say how many there were of each."""
    staged = _staged(messages)
    accepted = sum(message.accepted for message in staged)
    rejected = sum(message.rejected for message in staged)
    reasons = [reason for message in staged for reason in message.reasons][:_SHOWN]
    staging = open_staging(plan)
    keep = keeper(plan, run_id)
    if rejected and keep is None:
        staging.discard(run_id)
        raise refused(rejected, reasons)

    why: list[dict[str, Any]] = []

    def kept(rows: Any) -> None:
        listed = list(rows)
        why[:] = most_frequent(listed)
        if keep is None or plan.failfast:
            raise refused(len(listed), [reason for _, reason in listed[:_SHOWN]], failfast=plan.failfast)
        keep.write(listed)

    done = staging.publish(run_id, [message.attempt for message in staged], accepted, rejected, kept)
    where = keep.place if keep is not None and done.rejected else ""
    rows_in = done.published + done.duplicates + done.rejected if done.already else accepted + rejected
    report = LoadReport(run_id, rows_in, done.published, done.duplicates, done.rejected, where, done.already, why)
    if not report.adds_up():
        raise TaskHarborError(f"the counts of load {run_id} do not add up, which should not happen: {report}")
    if plan.report:
        Path(plan.report).write_text(json.dumps(asdict(report)), "utf-8")
    return report


def refused(count: int, reasons: Sequence[str], *, failfast: bool = False) -> RowsRefused:
    shown = "; ".join(reasons)
    what = "1 row was refused" if count == 1 else f"{count:,} rows were refused"
    cure = (
        "That is what failfast asks for: without it such rows are kept in the rejects, and the rest is loaded"
        if failfast
        else "Give rejects=DIRECTORY or lake=DIRECTORY to keep such rows there and load the rest"
    )
    return RowsRefused(f"{what}, and nothing was published: {shown}. {cure}")


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]
