"""A SparkSession that is ready for work: Java found, the data source known, settings that fit."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.errors import MissingExtra, TaskHarborError
from taskharbor.pipeline import spark_log
from taskharbor.pipeline.java import ensure_java
from taskharbor.pipeline.java_process import start_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE: Final = Path(__file__).parent
# Spark looks before it takes a value out of a batch; Arrow need not look again.
_JAVA_OPTIONS: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# Nobody waits for an answer within milliseconds here, and this one takes a quarter less of the processor for the same
# work than Java's usual one, which collects while the program runs.
_COLLECTOR: Final = "-XX:+UseParallelGC"
_JAVA_SETTINGS: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
SETTINGS: Final[dict[str, str]] = {
    "spark.app.name": "taskharbor",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Rows of the data source travel in batches; larger ones than Spark's default cost less for each row.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # Between Java and its Pythons: a sixth quicker than through the network's layers.
    **({"spark.python.unix.domain.socket.enabled": "true"} if hasattr(socket, "AF_UNIX") else {}),
    # What Spark compiles for a query is kept for the next one like it. A run of the lake has more of them than Spark
    # keeps by default, and would compile them all again, and Java the hot ones of them, each time.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
    # Whatever looks like a secret is starred out wherever Spark shows options and settings.
    "spark.redaction.regex": "(?i)secret|password|passwd|token|access[.]?key|url",
    "spark.sql.redaction.options.regex": "(?i)url|password|passwd|secret|token",
}
LOCAL_SETTINGS: Final[dict[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    "spark.driver.memory": "2g",
}
HOW_TO_INSTALL: Final = "this needs an extra: pip install 'taskharbor[spark]'"


class SparkUnavailable(TaskHarborError):
    """Spark could not be started. The message says why and what to do."""


def start(master: str = "local[*]", **config: Any) -> SparkSession:
    builder_class = _builder()
    ensure_java()
    # Executors on this machine run the same Python as we do, with the same packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    local = LOCAL_SETTINGS if master.startswith("local") else {}
    named = _named(config)
    settings = {**SETTINGS, **_places(named), **local, **named}
    spark_log.keep_python_quiet()
    builder = builder_class()
    # "remote" is how Spark Connect is asked for.
    builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        if not _is_remote(master):
            start_java({**settings, "spark.master": master})
        spark = builder.getOrCreate()
    except TaskHarborError:
        raise
    except Exception as error:
        raise SparkUnavailable(f"Spark did not start on {master}: {_explain(error)}") from error
    if not master.startswith("sc://"):
        spark.sparkContext.setLogLevel("ERROR")
    return teach(spark)


def _is_remote(master: str) -> bool:
    return master.startswith("sc://") or "SPARK_REMOTE" in os.environ or "SPARK_CONNECT_MODE_ENABLED" in os.environ


def _collector(named: dict[str, str]) -> str:
    """How Java is to collect its garbage; nothing where somebody has said that already, for two make Java refuse."""
    said = [os.environ.get(name, "") for name in _JAVA_SETTINGS] + [named.get("spark.driver.defaultJavaOptions", "")]
    return "" if any("-XX:" in each and "GC" in each for each in said) else f"{_COLLECTOR} "


def _places(named: dict[str, str]) -> dict[str, str]:
    """Where a Spark that starts now writes its log, and tables without a place of their own: never into the directory
    that somebody happens to stand in."""
    from pyspark import SparkContext

    log = spark_log.place()
    options = f"-Dlog4j2.configurationFile={(_HERE / 'log4j2.properties').as_uri()}"
    if log is not None:
        options = f"-Dlog4j2.configurationFile={(_HERE / 'log4j2-file.properties').as_uri()} "
        options += shlex.quote(f"-Dtaskharbor.log={log}")
    places = {"spark.driver.extraJavaOptions": f"{_collector(named)}{_JAVA_OPTIONS} {options}"}
    if SparkContext._active_spark_context is None:
        warehouse = tempfile.mkdtemp(prefix="taskharbor-warehouse-")
        atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
        places["spark.sql.warehouse.dir"] = warehouse
    return places


def teach(spark: SparkSession) -> SparkSession:
    from taskharbor.pipeline.source import TaskHarborSource

    spark.dataSource.register(TaskHarborSource)
    activate(spark)
    return spark


def activate(spark: SparkSession) -> None:
    """Make it the session of this thread. Spark finds formats that are written in Python through that one only, and
    a thread that did not start the session has none."""
    java = getattr(spark, "_jvm", None)  # a session of Spark Connect has none, and needs none
    if java is not None:
        java.SparkSession.setActiveSession(spark._jsparkSession)


def _builder() -> Any:
    try:
        import pyarrow as pa  # noqa: F401
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtra(f"Spark is not installed ({error.name}); {HOW_TO_INSTALL}") from None
    return SparkSession.Builder


def _named(config: dict[str, Any]) -> dict[str, str]:
    """Spark's names for the keywords: `driver_memory` is `spark.driver.memory`."""
    named = {}
    for name, value in config.items():
        key = name if "." in name else name.replace("_", ".")
        key = key if key.startswith("spark.") else f"spark.{key}"
        named[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return named


def _explain(error: Exception) -> str:
    """What went wrong, in one sentence with its cure."""
    text = str(error)
    if "JAVA_GATEWAY_EXITED" in text or "Java gateway" in text:
        home = os.environ.get("JAVA_HOME", "")
        return f"Java ended at once. What it said stands above; try another one than {home} through JAVA_HOME"
    if "Could not parse Master URL" in text:
        return "this is no master: use local[*], spark://host:7077, yarn, k8s://… or sc://host"
    if "All masters are unresponsive" in text or "UnknownHost" in text or "Connection refused" in text:
        return "the cluster does not answer: is its master running at that address?"
    if "BindException" in text or "Can't assign requested address" in text:
        return "it may not listen on this machine's address: give driver_bindAddress='127.0.0.1'"
    return spark_log.in_one_sentence(error)
