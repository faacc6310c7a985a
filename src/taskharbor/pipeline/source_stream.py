"""The history feed as a stream. Offsets are cursors of the feed, so nothing is skipped and nothing comes twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from taskharbor.core.errors import InvalidInput
from taskharbor.pipeline.options import ReadOptions
from taskharbor.pipeline.store import PipelineStore, open_store

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, where every batch takes all there is
    ReadAllAvailable = ReadLimit = ReadMaxRows = None

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Not in this Spark."""


Offset = dict[str, str]


@dataclass
class FeedPart(InputPartition):
    after: str | None
    upto: str


class HistoryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The feed from its beginning, or from `startAt`: `beginning`, `now` or a cursor."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._target: str | None = None
        self._opened: PipelineStore | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The connection stays where it is; executors open their own."""
        return {**self.__dict__, "_opened": None}

    # --- Beside the driver -------------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        match self._options.start_at:
            case "beginning":
                return {"cursor": ""}
            case "now":
                return {"cursor": self._store().frontier()}
            case cursor:
                self._store().order_of(cursor)  # refuses one of another store
                return {"cursor": cursor}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._store().frontier()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        rows = self._options.max_rows_per_batch
        if rows is None:
            return ReadAllAvailable()
        return ReadMaxRows(rows)

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        store = self._store()
        end = self._target or store.frontier()
        after = _cursor(start)
        # What was pruned behind us may leave the feed shorter than it was.
        if store.order_of(end) <= store.order_of(after):
            return start if start is not None else {"cursor": end}
        if ReadMaxRows is not None and isinstance(limit, ReadMaxRows):
            end = store.ahead(after, end, limit.max_rows)
        return {"cursor": end}

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        return {"cursor": self._store().frontier()}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        upto = _cursor(end)
        if upto is None:
            return []
        return [FeedPart(*found) for found in self._store().split(_cursor(start), upto, self._options.partitions)]

    def commit(self, end: Offset) -> None:
        """Nothing to do: the checkpoint has the cursor, and the store keeps its history until it is pruned."""

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _store(self) -> PipelineStore:
        if self._opened is None:
            self._opened = open_store(self._options.url, reuse=True)
        return self._opened

    # --- In an executor ----------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FeedPart):
            raise InvalidInput(f"not a part of the feed: {partition!r}")
        with open_store(self._options.url, reuse=True) as store:
            yield from store.read_history(partition.after, partition.upto, self._columns)


def _cursor(offset: Offset | None) -> str | None:
    """The cursor of an offset; the beginning has none."""
    return (offset or {}).get("cursor") or None
