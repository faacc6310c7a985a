"""A few rows of the lake for Spark: read here, and given to it as they are. Spark's own way to a Parquet file, from
looking it up to planning and running the tasks that open it, takes many times as long as these rows do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import TableSpec
from taskharbor.pipeline.part_files import DataFile
from taskharbor.pipeline.schemas import pick

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MOST_ROWS: Final = 50_000
MOST_BYTES: Final = 8 * 1024 * 1024


def are_few(files: Sequence[DataFile]) -> bool:
    return sum(each.rows for each in files) <= MOST_ROWS and sum(each.size for each in files) <= MOST_BYTES


def frame(
    spark: SparkSession, lake: Lake, spec: TableSpec, files: Sequence[DataFile], *, without: Sequence[str] = ()
) -> DataFrame:
    """The rows of these files, in one partition, as `delta.frame` has them; `without` some of the columns."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = pick(spec.schema, [name for name in spec.schema.names if name not in without])
    if not files:
        return spark.createDataFrame([], wanted)
    schema = to_arrow_schema(wanted, timezone="UTC")
    rows = pa.concat_tables(_read(lake, spec, each, schema) for each in files)
    return spark.createDataFrame(rows, wanted).coalesce(1)


def _read(lake: Lake, spec: TableSpec, file: DataFile, schema: pa.Schema) -> pa.Table:
    """A column that an older file does not have is null in it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    there = pq.ParquetFile(lake.path(spec) / file.path)
    found = there.read([name for name in there.schema_arrow.names if name in schema.names])
    columns: list[Any] = []
    for field in schema:
        if field.name in spec.partition_by:
            value = file.values[field.name]
            given = date.fromisoformat(value) if value and pa.types.is_date(field.type) else value
            columns.append(pa.repeat(pa.scalar(given, field.type), found.num_rows))
        elif field.name in found.column_names:
            columns.append(found[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(found.num_rows, field.type))
    return pa.table(columns, schema=schema)
