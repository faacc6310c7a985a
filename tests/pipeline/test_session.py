"""What a session of ours is like, and what it says when it cannot start."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import taskharbor.pipeline
from taskharbor.core.errors import MissingExtra
from taskharbor.pipeline import sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_knows_the_source_and_speaks_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"
    with pytest.raises(Exception, match='option "table" must be one of'):
        spark.read.format("taskharbor").option("url", "sqlite:///x.db").load()


def test_importing_the_room_leaves_its_functions_in_place(spark: SparkSession) -> None:
    assert callable(taskharbor.pipeline.session)
    assert taskharbor.pipeline.register(spark) is spark


def test_keywords_become_settings_of_spark() -> None:
    assert sessions._named({"driver_memory": "4g", "spark.ui.enabled": True, "sql.ansi.enabled": False}) == {
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "true",
        "spark.sql.ansi.enabled": "false",
    }


def test_a_collector_that_somebody_chose_stays_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in sessions._JAVA_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    assert sessions._collector({}) == "-XX:+UseParallelGC "
    assert sessions._collector({"spark.driver.defaultJavaOptions": "-XX:+UseZGC"}) == ""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xmx1g -XX:+UseG1GC")
    assert sessions._collector({}) == ""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited", "try another one than .* through JAVA_HOME"),
        ("Could not parse Master URL: 'nonsense'", r"this is no master: use local\[\*\]"),
        ("All masters are unresponsive! Giving up.", "is its master running"),
        ("something else\nat line 2", "^something else$"),
    ],
)
def test_what_went_wrong_is_said_in_one_sentence(said: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(sessions._explain(RuntimeError(said)))


def test_without_the_extra_its_name_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtra, match=r"pip install 'taskharbor\[spark\]'"):
        sessions.start()


def test_neither_taskharbor_nor_its_pipeline_imports_spark() -> None:
    code = (
        "import sys, taskharbor, taskharbor.pipeline, taskharbor.cli\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
