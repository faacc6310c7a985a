"""Parquet files below a table, one for each partition, written as the rows come; on executors and in the driver.

Whoever writes gets the files described, and nobody reads them before a commit names them. So a task of Spark that is
retried or speculated writes other files, and only those of the attempt that Spark took count.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

GROUP_ROWS: Final = 100_000
GROUP_BYTES: Final = 64 * 1024 * 1024
"""What comes for a partition is held until it makes a row group of this size: small ones cost readers and writers."""
HELD_BYTES: Final = 2 * GROUP_BYTES
"""Of all partitions together."""
REPEATING: Final = frozenset(
    {
        "store_id", "type", "queue", "tenant_id", "outcome", "status", "error_class", "fingerprint", "code", "worker",
        "grain", "objective", "check", "dedupe_scope", "reason", "source", "run_id", "meta", "progress",
    }
)  # fmt: skip
"""Texts that come again and again, for which a dictionary pays. For the others it is built and thrown away."""

Partition = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file below a table; `path` is relative to it."""

    path: str
    size: int
    rows: int
    partition: Partition
    statistics: str = ""

    @property
    def values(self) -> dict[str, str | None]:
        return dict(self.partition)

    def data(self) -> dict[str, Any]:
        """For a way through JSON."""
        return {"path": self.path, "size": self.size, "rows": self.rows, "partition": self.partition}

    @classmethod
    def of(cls, data: dict[str, Any]) -> DataFile:
        partition = tuple((name, value) for name, value in data["partition"])
        return cls(data["path"], data["size"], data["rows"], partition, statistics(data["rows"]))


def statistics(rows: int) -> str:
    """The count alone. delta-rs takes a column for which a file names no least and greatest as one that no filter
    fits, as soon as it names them for another; and not every column has them."""
    return json.dumps({"numRecords": rows})


class PartFiles:
    """The files of one writer in the directory `tag` of a table. Rows come without the columns of their partition."""

    def __init__(self, root: str | Path, tag: str) -> None:
        self._home = Path(root)
        self._tag = tag
        self._open: dict[Partition, _PartFile] = {}

    def add(self, partition: Partition, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        if partition not in self._open:
            directories = [f"{name}={quote(str(value))}" for name, value in partition]
            relative = "/".join([self._tag, *directories, f"part-{uuid.uuid4().hex[:12]}.parquet"])
            self._open[partition] = _PartFile(self._home / relative, relative)
        self._open[partition].add(rows)
        if sum(each.held_bytes for each in self._open.values()) >= HELD_BYTES:
            for each in self._open.values():
                each.flush()

    def add_all(self, rows: pa.Table, columns: Sequence[str]) -> None:
        """Rows of any partitions, told apart by these columns."""
        for partition, part in by_partition(rows, columns):
            self.add(partition, part)

    def close(self) -> list[DataFile]:
        for each in self._open.values():
            each.close()
        return [
            DataFile(each.relative, each.path.stat().st_size, each.rows, partition, statistics(each.rows))
            for partition, each in self._open.items()
        ]

    def abandon(self) -> None:
        """Something went wrong: close what is open, and leave it to those who clean up."""
        for each in self._open.values():
            each.abandon()


class _PartFile:
    def __init__(self, path: Path, relative: str) -> None:
        self.path, self.relative = path, relative
        self.rows = 0
        self._held: list[pa.Table] = []
        self._held_rows = self.held_bytes = 0
        self._writer: Any = None

    def add(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._held_rows += rows.num_rows
        self.held_bytes += rows.nbytes
        if self._held_rows >= GROUP_ROWS or self.held_bytes >= GROUP_BYTES:
            self.flush()

    def close(self) -> None:
        self.flush()
        self._writer.close()

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._held:
            return
        rows = pa.concat_tables(self._held)
        self._held, self._held_rows, self.held_bytes = [], 0, 0
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            repeating = [name for name in rows.column_names if name in REPEATING]
            self._writer = pq.ParquetWriter(self.path, rows.schema, compression="zstd", use_dictionary=repeating)
        self._writer.write_table(rows)
        self.rows += rows.num_rows


def by_partition(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Partition, pa.Table]]:
    """Rows that belong together, without the columns that say so."""
    import pyarrow as pa
    import pyarrow.compute as pc

    inner = [name for name in rows.column_names if name not in columns]
    keys = rows.select(list(columns)).group_by(list(columns)).aggregate([]).to_pylist()
    for key in keys:
        partition = tuple((name, text_of(key[name])) for name in columns)
        if len(keys) == 1:
            yield partition, rows.select(inner)
            return
        mask = None
        for name in columns:
            column = rows[name]
            same = pc.is_null(column) if key[name] is None else pc.equal(column, pa.scalar(key[name], column.type))
            mask = same if mask is None else pc.and_(mask, same)
        yield partition, rows.select(inner).filter(mask)


def text_of(value: object) -> str | None:
    return value.isoformat() if isinstance(value, date) else None if value is None else str(value)


def write_by_executors(rows: DataFrame, root: str | Path, tag: str, columns: Sequence[str]) -> list[DataFile]:
    """Rows that Spark has worked out, written where they are. Arrow needs half of what Spark's own writer does."""
    place, parted = str(root), tuple(columns)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs on executors."""
        yield told([each.data() for each in written(batches, place, tag, parted)])

    return [DataFile.of(each) for each in heard(rows.mapInArrow(write, TOLD).collect())]


def written(batches: Iterable[pa.RecordBatch], root: str, tag: str, columns: Sequence[str]) -> list[DataFile]:
    import pyarrow as pa

    files = PartFiles(root, tag)
    try:
        for batch in batches:
            files.add_all(pa.Table.from_batches([batch]), columns)
    except BaseException:
        files.abandon()
        raise
    return files.close()


TOLD: Final = "told string"


def told(answers: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    """What a task tells the driver."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([json.dumps(each) for each in answers], pa.string())], ["told"])


def heard(rows: Iterable[Any]) -> list[dict[str, Any]]:
    return [json.loads(row["told"]) for row in rows]
