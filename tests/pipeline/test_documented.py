"""What docs/lake.md says of the tables is what they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from taskharbor.pipeline import options, schemas, sink_options, slo
from taskharbor.pipeline.lake_schemas import TABLES

LAKE = (Path(__file__).parents[2] / "docs" / "lake.md").read_text("utf-8")
PIPELINE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text("utf-8")
SPARKS = {"path", "checkpointlocation"}
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


@pytest.mark.parametrize("name", ["jobs", "attempts", "dlq", "workers"])
def test_the_document_has_every_column_that_spark_reads(name: str) -> None:
    columns = ", ".join(f"`{column}`" for column in schemas.SOURCE_TABLES[name].names)
    assert f"| `{name}` | {columns} |" in PIPELINE


def test_the_document_has_every_option_of_reads_and_writes() -> None:
    first, second = (part.split("\n\n", 1)[0] for part in PIPELINE.split("| Option | Default | |\n")[1:])
    reads, writes = ({name.lower() for name in _first_cells(part)} for part in (first, second))
    assert reads == set(options._KNOWN)
    assert writes == {*sink_options.FIELDS, *sink_options._OTHERS} - SPARKS


def _first_cells(part: str) -> list[str]:
    return [name for line in part.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])]


def test_the_documented_objectives_are_read_and_name_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "slo.toml").write_text(PIPELINE.split("```toml\n", 1)[1].split("```", 1)[0], "utf-8")
    mail, default = slo.read_objectives(tmp_path / "slo.toml")
    assert default == slo.Objective()
    assert mail == slo.Objective(queue="mail", wait_s=5.0)
