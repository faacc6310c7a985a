"""Spark executors as workers: `work("shop.jobs:harbor", "mail", slots=16)`.

Each Spark task is a worker of the product: it leases, beats, fences and settles like any other, under a name that
shows run, executor and partition. Spark only gives it a place to run. When a task or a whole executor is lost, Spark
starts the task again, and the leases that it held end by themselves and are taken by whoever works on. What was done
is read from the store.
"""

from __future__ import annotations

import math
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

from taskharbor.core.errors import InvalidInput, StoreError, StoreUnavailable
from taskharbor.core.ids import new_id
from taskharbor.pipeline.work_app import WorkFailed, check_harbor, check_queues, check_store, find_harbor, ship
from taskharbor.pipeline.work_channel import HURRY, STOP, Caller
from taskharbor.pipeline.work_counts import Ledger, leases_of, waiting
from taskharbor.pipeline.work_report import Seen, WorkReport
from taskharbor.pipeline.work_round import CANCEL_S, Round
from taskharbor.pipeline.work_task import Order, shares

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from taskharbor.core.contract import Driver

T = TypeVar("T")

LEASE_S: Final = 30.0
GRACE_S: Final = 25.0
LOOK_S: Final = 0.05
TICK_S: Final = 1.0
"""How often the store is asked what has happened, at most."""
AWAY_S: Final = 60.0
"""How long a store may be away at the end of a round before the run is given up."""
QUIET_S: Final = 15.0
"""After so long without a single worker, whoever waits is told why that may be."""
FRUITLESS: Final = 3
"""Rounds in a row that may fail without any job having moved."""
SETTINGS: Final[dict[str, str]] = {
    "spark.task.maxFailures": "20",  # a handler may end its process; the queue itself sorts out jobs that do so always
    "spark.speculation": "false",  # a second copy of a worker is one more worker, which Spark then ends in mid-job
}


def work(
    app: str,
    queues: str | Sequence[str],
    *,
    slots: int,
    for_s: float | None = None,
    url: str | None = None,
    spark: SparkSession | None = None,
    master: str = "local[*]",
    tasks: int | None = None,
    py_files: Sequence[str] = (),
    lease_s: float = LEASE_S,
    grace_s: float = GRACE_S,
    log_level: str = "warning",
    log_format: str = "text",
    stop: threading.Event | None = None,
    progress: Callable[[Seen], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> WorkReport:
    """Run the jobs of some queues on Spark's executors until nothing is left that is due, or for `for_s` seconds.

    `app` names the application's Harbor, `module:harbor`; its code is shipped to the executors, with `py_files`.
    `slots` jobs of each queue run at once, spread over `tasks` Spark tasks (as many as Spark has cores). The store is
    that of the application unless `url` is given. SIGTERM, Ctrl-C or `stop` end it: handlers have `grace_s` to finish,
    and what does not goes back; a second signal cuts that short. `progress` is called with what the store says.
    Executors log on their standard error, each line with its job and worker.
    """
    names = [queues] if isinstance(queues, str) else list(dict.fromkeys(queues))
    for what, number in (("slots", slots), ("tasks", tasks), ("for_s", for_s), ("lease_s", lease_s)):
        if number is not None and (isinstance(number, bool) or number <= 0):
            raise InvalidInput(f"{what} must be above zero, got {number!r}")
    place = master if spark is None else _master(spark)
    if place.startswith("sc://"):
        raise InvalidInput(
            "workers need a Spark that this process drives itself: give the master of the cluster, such as "
            "spark://host:7077, instead of Spark Connect"
        )
    harbor = find_harbor(app)
    check_harbor(harbor, app)
    store_url = check_store(url or harbor.url, place)
    with closing(_opened(store_url)) as driver:
        check_queues(names, harbor, driver)
        if spark is None:
            from taskharbor.pipeline import session

            (say or _silent)("starting Spark")
            spark = session(patient(master), **SETTINGS)
        with tempfile.TemporaryDirectory(prefix="taskharbor-") as temporary:
            ship(spark, app, py_files, Path(temporary))
            crew = _Crew(spark, driver, store_url, app, names, lease_s, grace_s, progress or _silent, say or _silent)
            crew.log = (log_level, log_format)
            with crew:
                return crew.run(shares(slots, tasks or cores(spark)), for_s, stop or threading.Event())


def _silent(_: object) -> None:
    pass


def _opened(url: str) -> Driver:
    from taskharbor.drivers.opening import open_driver, parse_url

    driver = open_driver(url)
    try:
        if parse_url(url).scheme == "sqlite":
            driver.migrate()
        driver.queues()  # what is wrong with the store is best said before Spark starts
    except BaseException:
        driver.close()
        raise
    return driver


def _master(spark: SparkSession) -> str:
    try:
        master: str = spark.sparkContext.master
    except (AttributeError, NotImplementedError):  # a session of Spark Connect has none
        return "sc://"
    return master


def patient(master: str) -> str:
    """On one machine Spark gives a job up with its first failed task, unless the master says otherwise."""
    if master == "local":
        return "local[1,20]"
    if master.startswith("local[") and master.endswith("]") and "," not in master:
        return f"{master[:-1]},20]"
    return master


def cores(spark: SparkSession) -> int:
    return max(1, int(spark.sparkContext.defaultParallelism))


class _Crew:
    """The workers of one run, seen from the driver."""

    def __init__(
        self,
        spark: SparkSession,
        driver: Driver,
        url: str,
        app: str,
        queues: Sequence[str],
        lease_s: float,
        grace_s: float,
        progress: Callable[[Seen], None],
        say: Callable[[str], None],
    ) -> None:
        self.run_name = f"spark-{new_id()[-10:].lower()}"
        self._context = spark.sparkContext
        self._driver, self._url, self._app, self._queues = driver, url, app, tuple(queues)
        self._lease_s, self._grace_s = lease_s, grace_s
        self._progress, self._say = progress, say
        host = self._context.getConf().get("spark.driver.host") or "127.0.0.1"
        self._caller = Caller(host, self._context.getConf().get("spark.driver.bindAddress") or host)
        self._ledger = Ledger(url, self.run_name)
        self.log = ("warning", "text")
        self._signals = 0
        self._told = 0
        self._ticked = 0.0
        self._total = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._caller.close()
        self._ledger.close()

    # --- The run -----------------------------------------------------------------------------------------------

    def run(self, slots: tuple[int, ...], for_s: float | None, stop: threading.Event) -> WorkReport:
        began = time.monotonic()
        report = WorkReport(self.run_name, list(self._queues), sum(slots), len(slots))
        self._total = waiting(self._driver, self._queues)
        ends_at = None if for_s is None else self._driver.now() + timedelta(seconds=for_s)
        order = Order(
            self.run_name,
            self._app,
            self._url,
            self._queues,
            slots,
            self._lease_s,
            self._grace_s,
            ends_at,
            self._caller.address,
            *self.log,
        )
        with self._listening(stop):
            report.ended = self._rounds(order, report, stop)
        report.seconds = round(time.monotonic() - began, 3)
        self._patiently(lambda: self._fill_in(report))
        return report

    def _rounds(self, order: Order, report: WorkReport, stop: threading.Event) -> str:
        fruitless = 0
        while True:
            before = self._patiently(self._ledger.read)
            report.rounds += 1
            round_ = Round(self._context, order, f"{self.run_name}-{report.rounds}")
            self._attend(round_, order, stop)
            if self._signals:
                stop.set()
            self._note(round_, report)
            moved = self._patiently(self._ledger.read) > before
            if stop.is_set():
                return "stopped"
            if order.ends_at is not None and self._patiently(self._driver.now) >= order.ends_at:
                return "time"
            fruitless = 0 if moved or not round_.problem else fruitless + 1
            if round_.refused or fruitless == FRUITLESS:
                raise WorkFailed(round_.problem)
            lost = self._patiently(lambda: self._await_leases(stop))
            if stop.is_set():
                return "stopped"
            if not lost and not round_.failed and order.ends_at is None:
                return "drained"

    def _patiently(self, ask: Callable[[], T]) -> T:
        """A store that is being restarted answers soon; workers wait for it as well."""
        ends = time.monotonic() + AWAY_S
        while True:
            try:
                return ask()
            except StoreUnavailable:
                if time.monotonic() >= ends or self._signals > 1:
                    raise
                time.sleep(TICK_S / 2)

    def _note(self, round_: Round, report: WorkReport) -> None:
        report.short = bool(round_.problem)
        if round_.problem and round_.problem not in report.problems:
            report.problems.append(round_.problem)
            self._say(round_.problem)

    def _attend(self, round_: Round, order: Order, stop: threading.Event) -> None:
        """Watch one job of Spark to its end: tell what happens, and stop it when that is asked for."""
        round_.start()
        began = time.monotonic()
        warned = False
        latest = math.inf if order.ends_at is None else self._latest(order.ends_at)
        while not round_.ended.wait(LOOK_S):
            now = time.monotonic()
            if self._signals or stop.is_set():
                stop.set()
                latest = min(latest, self._tell(now, latest))
            if now >= latest:
                self._say("Spark is told to end the workers that are left")
                round_.cancel()
                return
            self._tick(now)
            if not warned and now - began > QUIET_S and self._caller.address:
                warned = True
                if not self._caller.listeners:
                    self._say("no executor has begun yet: has the cluster cores and memory to spare?")
        self._tick(math.inf)

    def _latest(self, ends_at: datetime) -> float:
        """When workers that end by themselves ought to have ended."""
        left_s = (ends_at - self._driver.now()).total_seconds()
        return time.monotonic() + max(0.0, left_s) + self._grace_s + CANCEL_S

    def _tell(self, now: float, latest: float) -> float:
        """Pass on what was asked for. Returns until when workers may take their time."""
        wanted = min(2, max(1, self._signals))
        if self._told < 1:
            self._caller.say(STOP)
            self._told = 1
            listening = self._caller.listeners
            latest = now + (self._grace_s + CANCEL_S if listening else 1.0)
            self._say(f"stopping: {listening} workers have {self._grace_s:g} s for what they are at")
        if wanted > self._told:
            self._caller.say(HURRY)
            self._told = 2
            latest = now + CANCEL_S
        return latest

    def _tick(self, now: float) -> None:
        if now - self._ticked < TICK_S:
            return
        try:
            attempts = self._ledger.read()
        except StoreError as error:
            self._say(f"the store does not answer, workers wait for it: {error}")
        else:
            self._progress(Seen(self._ledger.ended.total(), attempts, self._total))
        self._ticked = time.monotonic()

    def _await_leases(self, stop: threading.Event) -> bool:
        """Wait for leases that lost workers of this run have left. True if there were any: then somebody has to take
        their jobs up."""
        ends = time.monotonic() + self._lease_s + CANCEL_S
        found = False
        while leases := leases_of(self._driver, self._queues, self.run_name):
            last = max(leases)
            now = self._driver.now()
            if not found:
                left_s = max(0.0, (last - now).total_seconds())
                self._say(f"{len(leases)} jobs of lost workers run again when their leases end, in {left_s:.0f} s")
            found = True
            if last <= now or stop.is_set() or self._signals or time.monotonic() > ends:
                break
            stop.wait(min(0.5, max(LOOK_S, (last - now).total_seconds())))
        if self._signals:
            stop.set()
        return found and not stop.is_set()

    def _fill_in(self, report: WorkReport) -> None:
        report.uncounted = self._ledger.close_books()
        outcomes = self._ledger.outcomes
        report.attempts = outcomes.total()
        for name in ("succeeded", "retried", "dead", "snoozed", "released", "cancelled", "lapsed"):
            setattr(report, name, outcomes[name])
        report.workers = sorted(self._ledger.workers)
        report.left = waiting(self._driver, self._queues)
        report.leased = len(leases_of(self._driver, self._queues, self.run_name))
        if not report.leased:
            for worker in self._driver.workers():
                if worker.id.startswith(f"{self.run_name}-"):
                    self._driver.deregister(worker.id)  # one that was killed could not do it itself

    @contextmanager
    def _listening(self, stop: threading.Event) -> Iterator[None]:
        """The first SIGTERM or Ctrl-C stops in good order, the second at once. Only the main thread gets signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def count(number: int, frame: object) -> None:
            self._signals += 1

        before = {name: signal.signal(name, count) for name in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)
