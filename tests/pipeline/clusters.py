"""Clusters of Spark on this machine, for tests in which parts of them are lost."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.pipeline import quick_java

LOCAL = "local-cluster[2,1,1024]"
"""Two executors of one core each, in processes of their own below the driver's."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def two_hosts(place: Path) -> Iterator[str]:
    """The master of a cluster with two workers that pass for two hosts: Spark never speculates on the same one."""
    import pyspark

    from taskharbor.pipeline.java import ensure_java

    ensure_java()
    home = Path(pyspark.__file__).parent
    start = str(home / "bin" / "spark-class")
    master = f"spark://127.0.0.1:{(port := _free_port())}"
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_JAVA_OPTS": quick_java.chosen()}
    shared = {"cwd": place, "env": environment, "stderr": subprocess.DEVNULL}
    deploy = "org.apache.spark.deploy"
    words = [[start, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for host in ("127.0.0.1", "localhost"):
        work = ["--host", host, "--webui-port", "0", "--work-dir", str(place / f"work-{host}")]
        words.append([start, f"{deploy}.worker.Worker", *work, "--cores", "1", "--memory", "700M", master])
    running = [subprocess.Popen(line, **shared) for line in words]  # type: ignore[call-overload]
    try:
        yield master
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(30)
