"""What docs/lake.md says of the tables is what they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from taskharbor.pipeline.lake_schemas import TABLES

LAKE = (Path(__file__).parents[2] / "docs" / "lake.md").read_text("utf-8")
WORDS = {
    "string": "text",
    "bigint": "long",
    "int": "int",
    "double": "real",
    "boolean": "flag",
    "timestamp": "time",
    "date": "date",
    "binary": "bytes",
    "array<string>": "array of texts",
    "array<struct<bin:int,count:bigint>>": "array of bins and counts",
}


@pytest.mark.parametrize("name", TABLES)
def test_the_document_has_every_column_of_a_table_and_its_type(name: str) -> None:
    part = LAKE.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
    documented = re.findall(r"^\| `(\w+)` \| ([a-z ]+?) \|", part, re.MULTILINE)
    assert documented == [(field.name, WORDS[field.dataType.simpleString()]) for field in TABLES[name].schema.fields]
    assert f"Partitioned by {' and '.join(f'`{column}`' for column in TABLES[name].partition_by)}." in part
