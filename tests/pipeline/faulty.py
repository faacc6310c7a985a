"""A sink that breaks at the worst moments, and a program that loads through it. Run as `python -m`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import functions
from tests.pipeline import quick_java

from taskharbor.core.ids import new_id
from taskharbor.pipeline.sink import BatchSink, Staged
from taskharbor.pipeline.sink_options import plan
from taskharbor.pipeline.source import TaskHarborSource

FAULTS = ("task fails", "executor dies", "task is slow")
"""What the first attempts of the first tasks meet with, each with its own; the last is run twice, for speculation is
on."""
SLOW_S = 200.0


class FaultySource(TaskHarborSource):
    @classmethod
    def name(cls) -> str:
        return "faulty"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        options = dict(self.options)
        fault, marks, driver = (options.pop(name) for name in ("fault", "marks", "driver"))
        return FaultySink(plan(options, schema, new_id()), fault, marks, int(driver))


class FaultySink(BatchSink):
    def __init__(self, plan: Any, fault: str, marks: str, driver: int) -> None:
        super().__init__(plan)
        self.fault, self.marks, self.driver = fault, marks, driver

    def write(self, iterator: Iterator[Any]) -> Staged:
        message = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() < len(FAULTS):
            fault = FAULTS[context.partitionId()]
            first = self._mark(f"{fault}-{context.attemptNumber()}") and context.attemptNumber() == 0
            if first and self.fault in (fault, "all"):
                meet(fault, "insert")
        return message

    def commit(self, messages: list[Any]) -> None:
        if self.fault == "killed before publish":
            self._kill()
        super().commit(messages)

    def _mark(self, name: str) -> bool:
        path = Path(self.marks) / name
        known = path.exists()
        path.touch()
        return not known

    def _kill(self) -> None:
        self._mark("killed")
        children = Path(f"/proc/{self.driver}/task/{self.driver}/children").read_text().split()
        for pid in (*children, self.driver):
            os.kill(int(pid), signal.SIGKILL)
        os._exit(1)


def meet(fault: str, work: str) -> None:
    """In a Python process of Spark, when its work is done."""
    if fault == "task fails":
        raise RuntimeError(f"failed after its {work}")
    if fault == "executor dies":
        kill_executor()
    time.sleep(SLOW_S)  # Spark ends this process when another one has done the same


def kill_executor() -> None:
    """In a Python process of Spark: end the executor that it belongs to, its grandparent, as a machine that is gone."""
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
    executor = int(daemon.rpartition(")")[2].split()[1])
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    os.kill(executor, signal.SIGKILL)
    time.sleep(60)  # Spark ends this process, now that the executor is gone


def orders(spark: Any, count: int, parts: int = 2) -> Any:
    """The same rows on every call."""
    text = functions.format_string('{"order":%d}', "id")
    return spark.range(0, count, 1, parts).select(
        text.alias("payload"), functions.format_string("order-%d", "id").alias("order")
    )


def started(master: str) -> Any:
    """A Spark that speculates soon, and whose executors find the tests."""
    from taskharbor.pipeline import session

    quick = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.0",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.driver.extraJavaOptions": quick_java.chosen(),
        "spark.executor.extraJavaOptions": quick_java.chosen(),
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.driver.memory": "512m",
    }
    spark = session(master, **quick)
    spark.dataSource.register(FaultySource)
    return spark


def main(master: str, count: str, fault: str, marks: str, key: str, *urls: str) -> None:
    """Load the same rows into one store after the other; `key` is the name of a column, or -."""
    spark = started(master)
    load_all(spark, count, fault, marks, key, *urls)
    spark.stop()


def load_all(spark: Any, count: str, fault: str, marks: str, key: str, *urls: str, parts: int = 2) -> None:
    for number, url in enumerate(urls):
        place = Path(marks) / str(number)
        place.mkdir()
        options = {"url": url, "type": "t", "fault": fault, "marks": str(place), "driver": str(os.getpid())}
        if key != "-":
            options["key"] = key
        frame = orders(spark, int(count), parts)
        chosen = frame.select("payload") if key == "-" else frame
        chosen.write.format("faulty").mode("append").options(**options).save()


if __name__ == "__main__":
    main(*sys.argv[1:])
