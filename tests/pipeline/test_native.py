"""No Python function per row on the way from bronze to gold, in the plans that a run really executes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.lives import live
from tests.pipeline.pasts import Pasts

from taskharbor.core.contract import Driver
from taskharbor.pipeline import bronze, delta, gold, run, runs, silver_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What Spark calls the steps in which it hands rows to Python: udf, pandas_udf, mapInArrow, applyInPandas, …
PYTHON = re.compile(r"\w*(?:Python|Pandas|InArrow|PythonUDF)\w*")


class ForeignStep(AssertionError):
    pass


def assert_native(frame: DataFrame) -> None:
    found = set(PYTHON.findall(frame._jdf.queryExecution().toString()))
    if found:
        raise ForeignStep(f"rows are handed to Python: {', '.join(sorted(found))}")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that a run writes, each looked at before."""
    tables: list[str] = []
    write = delta.write

    def looked_at(frame: DataFrame, lake: Any, spec: Any, tag: str) -> Any:
        assert_native(frame)
        tables.append(spec.name)
        return write(frame, lake, spec, tag)

    lay_out = silver_files.write

    def laid_out(facts: DataFrame, layout: Any) -> Any:
        assert_native(facts)
        tables.extend(("silver/attempts", "silver/jobs"))
        return lay_out(facts, layout)

    monkeypatch.setattr(delta, "write", looked_at)
    monkeypatch.setattr(silver_files, "write", laid_out)
    return tables


EVERY_TABLE = {"silver/attempts", "silver/jobs", *(table.spec.name for table in gold.gold_tables())}


def test_every_table_that_a_run_writes_comes_from_native_expressions(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, written: list[str]
) -> None:
    for number in range(2):  # the second time there is something to add to
        written.clear()
        live(sqlite_driver, first=number)
        run(sqlite_url, tmp_path / "lake", spark=spark)
        assert set(written) == EVERY_TABLE


def test_every_table_that_a_large_run_writes_comes_from_native_expressions(
    spark: SparkSession, past: Pasts, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, url, lake = past(live)
    monkeypatch.setattr(bronze, "SMALL_ROWS", 5)
    monkeypatch.setattr(runs, "SMALL_ROWS", 5)
    written.clear()
    live(driver, first=1)
    run(url, lake, spark=spark)
    assert set(written) == EVERY_TABLE


@pytest.mark.parametrize("kind", ["udf", "arrow udf", "mapInArrow"])
def test_a_python_function_that_enters_the_gold_path_is_found(
    spark: SparkSession,
    sqlite_driver: Driver,
    sqlite_url: str,
    tmp_path: Path,
    written: list[str],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyspark.sql.functions import udf

    def planted(table: Any, news: Any, old: Any) -> DataFrame:
        rows = well(table, news, old)
        if table.spec.name != "gold/tenants":
            return rows
        if kind == "mapInArrow":
            return rows.mapInArrow(lambda batches: batches, rows.schema)
        same = udf(lambda text: text, "string", useArrow=kind == "arrow udf")
        return rows.withColumn("tenant_id", same("tenant_id"))

    from taskharbor.pipeline import steps

    well = steps.merged
    monkeypatch.setattr(steps, "merged", planted)
    live(sqlite_driver)
    with pytest.raises(ForeignStep):
        run(sqlite_url, tmp_path / "lake", spark=spark)
