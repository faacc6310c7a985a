"""Streams that run until they are killed. Run as `python -m`."""

from __future__ import annotations

import sys

from taskharbor.pipeline import session

QUICK = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
}


def main(source: str, target: str, checkpoint: str, out: str, out_checkpoint: str) -> None:
    """The feed of one store becomes jobs of another, and files, a few rows at a time."""
    spark = session("local[2]", **QUICK)
    feed = spark.readStream.format("taskharbor").options(url=source, table="history", maxRowsPerBatch=15).load()
    jobs = feed.selectExpr("to_json(struct(position)) AS payload")
    writing = jobs.writeStream.format("taskharbor").options(url=target, type="t", queue="s")
    writing.option("checkpointLocation", checkpoint).start()
    files = feed.writeStream.format("parquet").option("checkpointLocation", out_checkpoint)
    files.start(out)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
