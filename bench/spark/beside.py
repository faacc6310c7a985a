"""Draining while a run goes on. What a run may cost the queue is the processor time that Spark needs anyway; so the
same drain runs beside processes that burn just as much of it and do not touch the store."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from bench import ours
from bench.harness import Result, Turns, say
from bench.spark.bed import Bed, Size, filled
from bench.spark.lake import FILL
from taskharbor.drivers import open_driver

BURN = """
import sys, time
share, began = float(sys.argv[1]), time.monotonic()
while True:
    while time.process_time() < share * (time.monotonic() - began):
        pass
    time.sleep(0.002)
"""
"""Catches up with its share of processor time, however often others were before it, as Spark's threads do."""
BURNERS = 4
"""For each core: a process that always wants to run gets no more than its part of what all want, and Spark has many."""


def beside(bed: Bed, size: Size) -> list[Result]:
    """The queue's speed while a run goes on."""
    turns = Turns()
    url = bed.fresh_url()
    filled(url, FILL, 1, size.attempts)
    say(
        f"Spark: draining {size.jobs // 2:,} jobs while {size.attempts:,} attempts go into a lake, and beside a control"
    )
    for turn in range(size.rounds + 1):
        _fill(url, size.jobs // 2)
        with _Runs(url) as runs:
            before, began = runs.spent(), time.monotonic()
            rate = ours.work(url, 1)
            share = (runs.spent() - before) / (time.monotonic() - began)
        _fill(url, size.jobs // 2)
        with _burning(share) as burned:
            control = ours.work(url, 1)
            burned_share = burned()
        if turn:  # the first one is to warm up
            turns.add("beside", rate)
            turns.add("control", control)
            say(
                f"Spark: {rate:,.0f}/s beside a run that used {share:.2f} cores, "
                f"{control:,.0f}/s beside a control that used {burned_share:.2f}"
            )
    name = "drain, 1 process, beside a run"
    against = "beside as much use of the processor"
    return [Result("lake", name, turns.median("beside"), turns.median("control"), "jobs/s", against, 0.9)]


def _fill(url: str, jobs: int) -> None:
    with open_driver(url) as driver:
        ours.fill(driver, jobs)


class _Runs:
    """`taskharbor pipeline run` into new lakes, one after the other, until the block ends."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._place = Path(tempfile.mkdtemp(prefix="taskharbor-bench-beside-"))
        self._begun, self._enough = threading.Event(), threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._spent_before = 0.0
        self._failed: str | None = None
        self._thread = threading.Thread(target=self._go)

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._enough.set()
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
        self._thread.join()
        shutil.rmtree(self._place)
        if self._failed is not None:
            raise RuntimeError(f"the run beside the drain has failed: {self._failed}")

    def spent(self) -> float:
        """Seconds of processor time of all runs until now."""
        assert self._process is not None
        return self._spent_before + _below(self._process.pid)

    def _go(self) -> None:
        number = 0
        while not self._enough.is_set() and self._failed is None:
            self._one(self._place / str(number))
            number += 1
        self._begun.set()

    def _one(self, lake: Path) -> None:
        command = [sys.executable, "-m", "taskharbor", "pipeline", "run", "--lake", str(lake)]
        self._process = process = subprocess.Popen(
            command, env={**os.environ, "TASKHARBOR_URL": self._url}, stderr=subprocess.PIPE, text=True
        )
        said = []
        for line in process.stderr or ():
            said.append(line)
            if len(said) > 1:  # the first one says that Spark starts
                self._begun.set()
        spent = _below(process.pid)
        if process.wait() and not self._enough.is_set():
            self._failed = "".join(said[-3:])
        self._spent_before += spent


@contextmanager
def _burning(cores: float) -> Iterator[Callable[[], float]]:
    """Processes which use so many cores together. Gives what tells how many it has been until now."""
    count = BURNERS * (os.cpu_count() or 1)
    burners = [subprocess.Popen([sys.executable, "-c", BURN, str(cores / count)]) for _ in range(count)]
    began = time.monotonic()
    try:
        yield lambda: sum(map(_below, (burner.pid for burner in burners))) / (time.monotonic() - began)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def _below(pid: int) -> float:
    """Seconds of processor time of a process and of all below it."""
    processes: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            processes[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    wanted, total = [pid], 0
    while wanted:
        parent = wanted.pop()
        total += processes.get(parent, (0, 0))[1]
        wanted += [child for child, (of, _) in processes.items() if of == parent]
    return total / os.sysconf("SC_CLK_TCK")
