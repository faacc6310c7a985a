"""How the Java of tests starts: most live for seconds, and half of what they do is to load Spark's classes.

Java keeps the classes of a program as it has parsed and checked them, if told to, and takes them from there the next
time: a Spark starts with half the processor time then. What is kept lies in `build`, for this Java and this Spark; it
is made once, beside the tests, and until it is there Java starts as ever. Run as `python -m` to make it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.pipeline.lives import live

from taskharbor.drivers import open_driver

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "java"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m -XX:+UseSerialGC"
"""To compile as for a long life takes twice the time of everything that a short one does."""
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Another Java, or another program, cannot use what is kept, and would say so."""
_VARIABLE = "SPARK_SUBMIT_OPTS"


@functools.cache
def _kept() -> Path:
    """Where the classes of this Java and this Spark are, or will be."""
    import pyspark

    from taskharbor.pipeline.java import ensure_java

    home, jars = ensure_java(dict(os.environ)).resolve(), Path(pyspark.__file__).parent / "jars"
    told = [str(home), str(jars), *(str(path.stat().st_mtime_ns) for path in (home / "bin" / "java", jars))]
    return PLACE / f"spark-{hashlib.sha256(' '.join(told).encode()).hexdigest()[:16]}.jsa"


def _refused(kept: Path) -> Path:
    """What is there instead, where Java does not keep classes: one without an archive of its own does not."""
    return kept.with_suffix(".refused")


def choose() -> None:
    """Tell every Java that is started from now on how to start."""
    from taskharbor.pipeline.java import JavaMissing

    os.environ[_VARIABLE] = SHORT_LIVED
    with suppress(JavaMissing):  # whoever needs one hears of it
        if (kept := _kept()).exists():
            os.environ[_VARIABLE] += f" {_SILENT} {shlex.quote(f'-XX:SharedArchiveFile={kept}')}"


def chosen() -> str:
    return os.environ.get(_VARIABLE, SHORT_LIVED)


def making() -> subprocess.Popen[bytes] | None:
    """Begin to make what is kept, unless it is there, or this Java keeps nothing."""
    kept = _kept()
    if kept.exists() or _refused(kept).exists():
        return None
    PLACE.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, _VARIABLE: SHORT_LIVED}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.quick_java"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def leave(process: subprocess.Popen[bytes]) -> None:
    """Wait for it, but not for ever: what is not ready now, another run of the tests makes."""
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the session that was started for it, with its Java
        process.wait()


def main() -> None:
    """Do a little of what tests do, so that its classes are known, and keep them."""
    import fcntl

    kept = _kept()
    with (PLACE / "lock").open("w") as lock, suppress(BlockingIOError):  # somebody else is at it
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in PLACE.glob("making-*"):  # by one that was killed
            shutil.rmtree(left)
        if not kept.exists():
            with tempfile.TemporaryDirectory(prefix="making-", dir=PLACE) as name:
                _make(Path(name), kept)


def _make(place: Path, kept: Path) -> None:
    from pyspark import SparkContext

    from taskharbor.pipeline import run, session
    from taskharbor.pipeline.loading import load

    url = f"sqlite:///{place / 'jobs.db'}"
    with open_driver(url) as driver:  # type: ignore[attr-defined]
        driver.migrate()
        live(driver)
    options = f"{SHORT_LIVED} {shlex.quote(f'-XX:ArchiveClassesAtExit={place}/classes')}"
    quick = {"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "512m"}
    spark = session("local[1]", **quick, **{"spark.driver.extraJavaOptions": options})
    run(url, place / "lake", spark=spark)
    load(spark.range(3).selectExpr("to_json(struct(id)) AS payload"), url, type="t")
    spark.stop()
    java = SparkContext._gateway.proc  # type: ignore[union-attr]
    java.stdin.close()
    java.wait()
    if (place / "classes").exists():
        (place / "classes").replace(kept)
    else:
        _refused(kept).touch()


if __name__ == "__main__":
    main()
