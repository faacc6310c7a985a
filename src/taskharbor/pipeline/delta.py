"""Delta tables: executors write Parquet below the table, and one commit of delta-rs makes the files part of it.

A commit carries the application transaction `taskharbor:<store id>` with the number of the batch, so what a table has
taken in is part of the table, and taking in the same batch again changes nothing. Files that a killed run left behind
belong to no commit; nobody reads them, and `upkeep` removes them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from taskharbor.pipeline import part_files
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import TableSpec
from taskharbor.pipeline.part_files import DataFile, text_of

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NOTE: Final = "taskharbor"
"""The key of a commit's metadata below which we keep ours, as JSON."""


def app_id(store_id: str) -> str:
    return f"taskharbor:{store_id}"


def commit_point(when: str, table: str, batch: int) -> None:
    """Called right before and right after each commit. Tests put a death in its place."""


# --- The table ---------------------------------------------------------------------------------------------------


def ensure_table(lake: Lake, spec: TableSpec) -> None:
    from deltalake import DeltaTable

    path = lake.path(spec)
    if (path / "_delta_log").exists() and DeltaTable.is_deltatable(str(path)):
        return
    DeltaTable.create(
        str(path),
        schema=_schema(spec),
        partition_by=list(spec.partition_by),
        mode="ignore",
        name=spec.name,
        configuration={"delta.checkpointInterval": "20"},
    )


def open_table(lake: Lake, spec: TableSpec) -> DeltaTable:
    """The table as it is now. Of one that was opened before, only what came since is read."""
    from deltalake import DeltaTable

    table: DeltaTable | None = lake.opened.get(spec.name)
    if table is None:
        table = lake.opened[spec.name] = DeltaTable(str(lake.path(spec)))
    else:
        table.update_incremental()
    return table


def add_missing_columns(lake: Lake, spec: TableSpec) -> list[str]:
    """Bring an older table's columns up to date; returns the names of what it lacked."""
    from deltalake import Field, Schema

    if not (lake.path(spec) / "_delta_log").exists():
        return []
    table = open_table(lake, spec)
    known = {field.name for field in table.schema().fields}
    wanted = Schema.from_json(spec.schema.json()).fields
    missing: list[Field] = [field for field in wanted if field.name not in known]
    if missing:
        table.alter.add_columns(missing)
    return [field.name for field in missing]


def part_days(lake: Lake, spec: TableSpec, finest: str) -> None:
    """Bring a table whose rows lay together by day to one whose rows of the finest grain lie apart by their hours. In
    one commit, which leaves the batches that the table has taken in as they are."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake import write_deltalake

    if not (lake.path(spec) / "_delta_log").exists():
        return
    table = open_table(lake, spec)
    if tuple(table.metadata().partition_columns) == spec.partition_by:
        return
    rows = table.to_pyarrow_table()
    hours = pc.strftime(rows["bucket"], format="%H")
    part = pc.if_else(pc.equal(rows["grain"], finest), hours, pa.scalar("day"))
    columns = {name: part if name == "part" else rows[name] for name in spec.schema.fieldNames()}
    write_deltalake(
        table,
        pa.table(columns),
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=list(spec.partition_by),
    )


def _schema(spec: TableSpec) -> Any:
    from deltalake import Schema

    return Schema.from_json(spec.schema.json())


def batch_of(lake: Lake, spec: TableSpec, store_id: str) -> int:
    """The last batch of the store that the table has taken in; 0 for none."""
    return open_table(lake, spec).transaction_version(app_id(store_id)) or 0


def keep_note(lake: Lake, spec: TableSpec, store_id: str, batch: int, note: Mapping[str, Any]) -> None:
    """What the commit of a batch is going to say, where it is found however many commits come behind it. The one
    before stays, in case that this commit never comes."""
    lake.write_json(_note_name(spec, store_id, batch), {"store_id": store_id, "batch": batch, **note})
    (lake.home / _note_name(spec, store_id, batch - 2)).unlink(missing_ok=True)


def _note_name(spec: TableSpec, store_id: str, batch: int) -> str:
    store = uuid.uuid5(uuid.NAMESPACE_OID, store_id).hex[:16]
    return f"notes/{spec.name.replace('/', '-')}-{store}-{batch:09d}.json"


def last_note(lake: Lake, spec: TableSpec, store_id: str, batch: int) -> dict[str, Any] | None:
    """What the commit of that batch says of it: as it was kept, else, in lakes from before that, from the log."""
    kept = lake.read_json(_note_name(spec, store_id, batch))
    if kept:
        return kept
    for entry in open_table(lake, spec).history():
        note = entry.get(NOTE)
        if note is None:
            continue
        found: dict[str, Any] = json.loads(note)
        if found.get("store_id") == store_id and found.get("batch") == batch:
            return found
    return None


def files_of(table: DeltaTable, spec: TableSpec) -> list[DataFile]:
    """The files that the table consists of."""
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=True))
    names = actions.column_names
    paths = actions["path"].to_pylist()
    sizes = actions["size_bytes"].to_pylist()
    rows = actions["num_records"].to_pylist() if "num_records" in names else [None] * len(paths)
    columns = {
        name: actions[f"partition.{name}"].to_pylist() if f"partition.{name}" in names else [None] * len(paths)
        for name in spec.partition_by
    }
    return [
        DataFile(
            unquote(path),
            size,
            count or 0,
            tuple((name, text_of(columns[name][at])) for name in spec.partition_by),
        )
        for at, (path, size, count) in enumerate(zip(paths, sizes, rows, strict=True))
    ]


# --- Reading -----------------------------------------------------------------------------------------------------


FILE: Final = "_file"


def frame(
    spark: SparkSession, lake: Lake, spec: TableSpec, files: Sequence[DataFile], *, with_file: bool = False
) -> DataFrame:
    """Files of a table as Spark sees them. Partition columns come from the files' directories; `with_file` adds the
    name of the file as `_file`."""
    from pyspark.sql.types import StructType

    if not files:
        return spark.createDataFrame([], spec.schema)
    inner = StructType([field for field in spec.schema.fields if field.name not in spec.partition_by])
    found = parquet(spark, inner, [lake.path(spec) / each.path for each in files])
    columns = ["*"]
    utc = spark.conf.get("spark.sql.session.timeZone") == "UTC"
    for name in spec.partition_by:
        if name == "day" and spec.day_of and utc:
            columns.append(f"to_date({spec.day_of}) AS day")
        else:
            text = f"regexp_extract(_metadata.file_path, '/{name}=([^/]+)/', 1)"
            columns.append(f"CAST({text} AS {spec.schema[name].dataType.simpleString()}) AS {name}")
    if with_file:
        columns.append(f"_metadata.file_path AS {FILE}")
    # As text, and not as columns of Python, each of which is several calls to Java.
    rows = found.selectExpr(*columns)
    return rows.coalesce(1) if is_small(spark) else rows


def parquet(spark: SparkSession, schema: StructType, paths: Iterable[Path]) -> DataFrame:
    """Parquet files by their names. Looking them up recursively keeps Spark from taking a directory for a partition."""
    return spark.read.schema(schema).option("recursiveFileLookup", "true").parquet(*map(str, paths))


def is_small(spark: SparkSession) -> bool:
    """Whether the session was set up for a small batch, whose rows are all in one partition: there they are grouped
    without being moved."""
    return spark.conf.get("spark.sql.shuffle.partitions") == "1"


def read(spark: SparkSession, path: str | Path, where: Mapping[str, Iterable[str]] | None = None) -> DataFrame:
    """Any Delta table whose partitions lie in directories named after them, or those of its partitions whose columns
    have one of the values."""
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

    table = DeltaTable(str(path))
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    place = Path(path).absolute()
    spec = TableSpec(place.name, schema, tuple(table.metadata().partition_columns))
    return frame(spark, Lake(place.parent), spec, chosen(files_of(table, spec), where))


def read_table(
    spark: SparkSession, lake: Lake, spec: TableSpec, where: Mapping[str, Iterable[str]] | None = None
) -> DataFrame:
    """A table of the lake, or those of its partitions whose columns have one of the values."""
    return frame(spark, lake, spec, chosen(files_of(open_table(lake, spec), spec), where))


def chosen(files: Iterable[DataFile], where: Mapping[str, Iterable[str]] | None) -> list[DataFile]:
    wanted = {name: set(values) for name, values in (where or {}).items()}
    return [each for each in files if all(each.values[name] in values for name, values in wanted.items())]


# --- Writing -----------------------------------------------------------------------------------------------------


def write(frame: DataFrame, lake: Lake, spec: TableSpec, tag: str) -> list[DataFile]:
    """Write the rows below the table, in a directory of their own. No reader sees them yet."""
    assert sorted(frame.schema.names) == sorted(spec.schema.names), "the columns of the table"
    if is_small(frame.sparkSession):
        return write_arrow(frame.toArrow(), lake, spec, tag)
    return part_files.write_by_executors(frame, lake.path(spec), tag, spec.partition_by)


def write_arrow(rows: Any, lake: Lake, spec: TableSpec, tag: str) -> list[DataFile]:
    """The same for an Arrow table that is small and here already."""
    return part_files.written(rows.to_batches(), str(lake.path(spec)), tag, spec.partition_by)


def commit(
    lake: Lake,
    spec: TableSpec,
    add: Sequence[DataFile],
    *,
    store_id: str,
    batch: int,
    remove: Sequence[DataFile] = (),
    note: Mapping[str, Any] | None = None,
    taken_in: bool = True,
) -> int:
    """One commit: files in, files out, the number of the batch, and what is to be known of it. Returns the version.

    Without `taken_in` the table does not count the batch as one that it has.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction, RemoveAction

    now_ms = time.time_ns() // 1_000_000
    actions: list[Any] = [
        AddAction(quote(each.path, safe="/=-._"), each.size, each.values, now_ms, True, each.statistics) for each in add
    ]
    actions += [RemoveAction(quote(each.path, safe="/=-._"), True, now_ms, each.size, each.values) for each in remove]
    table = open_table(lake, spec)
    kept = {"store_id": store_id, "batch": batch, **(note or {})}
    transactions = [Transaction(app_id(store_id), batch)] if taken_in else None
    commit_point("before", spec.name, batch)
    table.create_write_transaction(
        actions,
        "append",
        _schema(spec),
        partition_by=list(spec.partition_by),
        commit_properties=CommitProperties(custom_metadata={NOTE: json.dumps(kept)}, app_transactions=transactions),
    )
    commit_point("after", spec.name, batch)
    return table.version()
