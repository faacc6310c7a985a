"""The Spark data source `taskharbor`: `spark.read.format("taskharbor").options(url=…, table="attempts").load()`.

Spark makes the DataSource and the reader, and asks for partitions, in a Python process beside the driver; `read` runs
in executors, to which the reader travels pickled. The URL travels with it, passwords and all, because executors have
to log in; it is starred out in everything printed here, and Spark stars options whose name holds `url` out of plans
(`spark.sql.redaction.options.regex`). Best keep passwords in PGPASSFILE or the like where executors have it.

No pushFilters: in Spark 4.3 pushed filters leak from one DataFrame into another and give wrong rows. Options select
rows, and `.schema(…)` selects columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from taskharbor.core.errors import InvalidInput
from taskharbor.pipeline import schemas
from taskharbor.pipeline.options import ReadOptions, read_options
from taskharbor.pipeline.store import open_store

if TYPE_CHECKING:
    import pyarrow as pa


class TaskHarborSource(DataSource):
    """Reads jobs, attempts, dead letters, workers and the history feed; writes jobs."""

    @classmethod
    def name(cls) -> str:
        return "taskharbor"

    def schema(self) -> StructType:
        return schemas.SOURCE_TABLES[read_options(self.options).table]

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        return TableReader(options, checked_columns(options.table, schema))

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        from taskharbor.pipeline.source_stream import HistoryStreamReader

        options = read_options(self.options, stream=True)
        return HistoryStreamReader(options, checked_columns(options.table, schema))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from taskharbor.pipeline.sink import batch_writer

        return batch_writer(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        from taskharbor.pipeline.sink import stream_writer

        return stream_writer(dict(self.options), schema, overwrite=overwrite)


def checked_columns(table: str, schema: StructType) -> tuple[str, ...]:
    """The names of the columns that are asked for. InvalidInput if the table has no such column, or another type."""
    known = schemas.SOURCE_TABLES[table]
    if not schema.fields:
        raise InvalidInput(f"a schema of no columns reads nothing: {table} has {', '.join(known.names)}")
    for number, field in enumerate(schema.fields):
        if field.name not in known.names:
            raise InvalidInput(f"the table {table} has no column {field.name!r}: it has {', '.join(known.names)}")
        if field.name in schema.names[:number]:
            raise InvalidInput(f"the column {field.name!r} of {table} is asked for twice: select it so after reading")
        if known[field.name].nullable and not field.nullable:
            raise InvalidInput(f"the column {field.name!r} of {table} may be null: leave NOT NULL out of the schema")
        if field.dataType != known[field.name].dataType:
            wanted, given = known[field.name].dataType.simpleString(), field.dataType.simpleString()
            raise InvalidInput(f"the column {field.name!r} of {table} is {wanted}, not {given}: cast it after reading")
    return tuple(schema.names)


@dataclass
class TablePart(InputPartition):
    """A part of a table, as its store planned it. None is a part with nothing in it."""

    part: Any
    empty: bool = False


class TableReader(DataSourceReader):
    """One batch read of a table."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """Beside the driver, once for each DataFrame: the bounds of this read are fixed here."""
        options = self._options
        with open_store(options.url, reuse=True) as store:
            if options.table == "history":
                planned: list[Any] = store.split(None, store.frontier(), options.partitions)
            else:
                planned = store.plan_table(options.table, options.selection, options.partitions)
        return [TablePart(part) for part in planned] or [TablePart(None, empty=True)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In an executor."""
        assert isinstance(partition, TablePart)
        if partition.empty:
            return
        options = self._options
        with open_store(options.url, reuse=True) as store:
            if options.table == "history":
                after, upto = partition.part
                yield from store.read_history(after, upto, self._columns)
            else:
                yield from store.read_part(options.table, options.selection, partition.part, self._columns)
