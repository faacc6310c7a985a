"""Spark's Java as a process of ours. A script stands for it, so that these tests start none."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from taskharbor.pipeline.java_process import pass_on

CHATTER = """\
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
"""
HUNG_UP = """\
PySpark daemon failed to flush the output to the worker process:
Traceback (most recent call last):
  File "/lib/python3.11/site-packages/pyspark/daemon.py", line 95, in worker
    outfile.flush()
BrokenPipeError: [Errno 32] Broken pipe

"""
OF_A_HANDLER = """\
Traceback (most recent call last):
  File "/lib/python3.11/site-packages/pyspark/worker.py", line 95, in main
    process()
  File "/srv/shop/jobs.py", line 7, in send
    pipe.write(b"x")
BrokenPipeError: [Errno 32] Broken pipe
"""
OTHER = """\
12:00:00.000 ERROR mail failed for good job=1
Traceback (most recent call last):
  File "/lib/python3.11/site-packages/pyspark/daemon.py", line 95, in worker
    outfile.flush()
OSError: [Errno 28] No space left on device

WARNING: sun.reflect.Reflection.getCallerClass is not supported
"""


def heard(text: str) -> str:
    parts: list[bytes] = []
    pass_on(io.BytesIO(text.encode()), parts.append)
    return b"".join(parts).decode()


def test_what_spark_says_at_every_start_is_left_out() -> None:
    assert heard(CHATTER + "so\n" + HUNG_UP + "it goes\n" + HUNG_UP) == "so\nit goes\n"


@pytest.mark.parametrize("text", [OF_A_HANDLER, OTHER, "no end", "\n\n", "Traceback (most recent call last):\n  cut"])
def test_everything_else_comes_through_as_it_was(text: str) -> None:
    assert heard(text) == text


def test_a_line_waits_for_no_later_one() -> None:
    ours, theirs = os.pipe()
    parts: list[bytes] = []
    import threading

    thread = threading.Thread(target=pass_on, args=(os.fdopen(ours, "rb"), parts.append))
    thread.start()
    os.write(theirs, OF_A_HANDLER.encode())
    end = time.monotonic() + 10
    while not parts and time.monotonic() < end:
        time.sleep(0.01)
    assert b"".join(parts).decode() == OF_A_HANDLER
    os.close(theirs)
    thread.join()


SCRIPT = """\
#!/bin/sh
echo $$ > {pid}
echo 'WARNING: Using incubator modules: jdk.incubator.vector' >&2
{then}
"""
START = """\
from taskharbor.pipeline import session
try:
    session("local[1]")
except BaseException as error:
    print(type(error).__name__, error)
"""


def begin(tmp_path: Path, then: str) -> subprocess.Popen[str]:
    (tmp_path / "bin").mkdir()
    submit = tmp_path / "bin" / "spark-submit"
    submit.write_text(SCRIPT.format(pid=tmp_path / "pid", then=then))
    submit.chmod(0o755)
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(START)],
        env={**os.environ, "SPARK_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_interrupt_while_spark_starts_leaves_no_java_behind(tmp_path: Path) -> None:
    process = begin(tmp_path, "exec sleep 300")
    end = time.monotonic() + 60
    while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()) and time.monotonic() < end:
        time.sleep(0.02)
    java = int((tmp_path / "pid").read_text())
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out.startswith("KeyboardInterrupt")
    with pytest.raises(ProcessLookupError):
        os.kill(java, 0)


def test_what_java_said_of_its_end_comes_before_what_we_say(tmp_path: Path) -> None:
    process = begin(tmp_path, "echo 'no memory for the heap' >&2; exit 3")
    out, said = process.communicate(timeout=60)
    assert "SparkUnavailable" in out
    assert "JAVA_HOME" in out
    assert said == "no memory for the heap\n"
