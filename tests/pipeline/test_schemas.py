"""Schemas in Spark's words and in Arrow's say the same."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from taskharbor.pipeline import schemas


@pytest.mark.parametrize("name", [*schemas.SOURCE_TABLES, "bronze"])
def test_the_arrow_schema_is_the_one_that_spark_wants(name: str) -> None:
    schema = schemas.HISTORY if name == "bronze" else schemas.SOURCE_TABLES[name]
    assert schemas.arrow(schema).equals(to_arrow_schema(schema, timezone="UTC"))


def test_bronze_is_the_feed_with_when_it_came_and_its_day() -> None:
    assert schemas.HISTORY.names == [*schemas.FEED.names, "ingested_at", "day"]
    assert schemas.pick(schemas.FEED, ["at", "type"]).simpleString() == "struct<at:timestamp,type:string>"
