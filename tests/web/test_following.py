from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.web.feeding import happen, happen_at_random

from taskharbor import NewJob
from taskharbor.core.contract import Driver
from taskharbor.core.model import Outcome
from taskharbor.drivers import open_driver
from taskharbor.web import following, totals, windows
from taskharbor.web.following import Feed
from taskharbor.web.tallies import BOUNDS_US, RUN, WAIT, Percentiles, Tally, quantile

QUEUES = ("mail", "reports", "images")
TENANTS = ("acme", "other", "third")


@pytest.fixture
def driver() -> Driver:
    return open_driver("memory://")


def started(driver: Driver, start: str | None = None, page: int = 1000) -> Feed:
    feed = Feed(driver, start, page=page)
    feed.step()
    return feed


# --- Counters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_every_process_comes_to_the_same_counters_however_it_reads(driver: Driver, seed: int) -> None:
    dice = random.Random(seed)
    happen_at_random(driver, dice, 5, QUEUES, TENANTS)
    start = driver.latest(None, 1).cursor
    early = started(driver, start, page=dice.randint(1, 7))
    for _ in range(5):
        happen_at_random(driver, dice, 8, QUEUES, TENANTS)
        early.step()
    late = started(driver, start, page=dice.randint(1, 50))
    early.catch_up()
    late.catch_up()
    for tenant in (None, *TENANTS):
        assert early.totals(tenant) == late.totals(tenant)
        assert list(early.totals(tenant)) == list(late.totals(tenant))
    ended = sum(tally.attempts for tally in early.totals().values())
    assert ended == len(driver.history(start, 10_000).rows)


def test_counters_are_the_same_when_there_are_more_queues_than_labels(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "MOST_QUEUES", 3)
    monkeypatch.setattr(totals, "MOST_PAIRS", 6)
    monkeypatch.setattr(totals, "MOST_CODES", 2)
    start = driver.latest(None, 1).cursor
    dice = random.Random(7)
    for number in range(60):
        queue, tenant = f"q{dice.randint(0, 9)}", dice.choice(TENANTS)
        happen(driver, "fail", queue=queue, tenant=tenant, code=f"code-{number % 5}")
    one, other = started(driver, start, page=1), started(driver, start, page=13)
    one.catch_up()
    other.catch_up()
    assert one.totals() == other.totals()
    assert len(one.totals()) == 4
    assert sum(tally[Outcome.DEAD] for tally in one.totals().values()) == 60
    for tenant in TENANTS:
        assert one.totals(tenant) == other.totals(tenant)
        assert sum(tally[Outcome.DEAD] for tally in one.totals(tenant).values()) == 20 or len(one.totals(tenant)) <= 4
    codes = {code for tally in one.totals().values() for code in tally.codes()}
    assert codes == {"code-0", "code-1", "other"}


@pytest.mark.concurrency
def test_counters_never_go_back_whichever_process_answers(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    drivers = [open_driver(url) for _ in range(3)]
    drivers[0].migrate()
    start = drivers[0].latest(None, 1).cursor
    feeds = [Feed(driver, start) for driver in drivers[:2]]
    done = threading.Event()

    def work() -> None:
        for _ in range(60):
            happen(drivers[2], count=3)
        done.set()

    writer = threading.Thread(target=work)
    writer.start()
    seen, dice = [0], random.Random(3)
    while not done.is_set() or seen[-1] < 180:
        feed = dice.choice(feeds)
        assert feed.catch_up(10)
        seen.append(sum(tally.attempts for tally in feed.totals().values()))
    writer.join()
    for driver in drivers:
        driver.close()
    assert seen == sorted(seen)


def test_what_happened_before_the_start_is_in_no_counter(driver: Driver) -> None:
    happen(driver, count=5)
    feed = started(driver)
    assert feed.totals() == {}
    happen(driver, count=2)
    feed.step()
    assert feed.totals()["default"][Outcome.SUCCEEDED] == 2


def test_a_sum_of_seconds_is_exact(driver: Driver) -> None:
    feed = started(driver)
    for _ in range(10):
        happen(driver, wait_s=0.1, run_s=0.3)
    feed.step()
    assert feed.totals()["default"]["wait_us"] == 1_000_000
    assert feed.totals()["default"]["run_us"] == 3_000_000


def test_jobs_that_expire_or_are_cancelled_while_they_wait_are_no_attempts(driver: Driver) -> None:
    feed = started(driver)
    now = driver.now()
    driver.enqueue([NewJob("t", expires_at=now + timedelta(seconds=1)), NewJob("t", id="stop")], now)
    driver.cancel("stop", now=now)
    driver.recover(now + timedelta(seconds=2))
    feed.step()
    assert feed.totals() == {"default": {Outcome.EXPIRED: 1}}
    assert feed.recent().attempts == 0


# --- The last minutes ------------------------------------------------------------------------------------------


def test_a_server_that_was_just_started_knows_the_last_hour(driver: Driver) -> None:
    now = driver.now()
    happen(driver, count=3, now=now - timedelta(minutes=2))
    happen(driver, count=4, now=now - timedelta(minutes=30))
    happen(driver, count=5, now=now - timedelta(hours=2))
    start = driver.latest(None, 1).cursor
    happen(driver, count=2, now=now - timedelta(minutes=1))
    feed = started(driver, start)
    assert feed.recent(window_s=300).attempts == 5
    assert feed.recent(window_s=3_600).attempts == 9
    assert feed.totals()["default"].attempts == 2


def test_a_window_is_as_long_as_what_is_known(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "SEED", 10)
    now = driver.now()
    happen(driver, count=50, now=now - timedelta(seconds=100))
    happen(driver, count=10, now=now - timedelta(seconds=50))
    recent = started(driver).recent(window_s=300)
    assert recent.attempts == 10
    assert 49 <= recent.window_s <= 60
    assert recent.per_second == pytest.approx(10 / recent.window_s, rel=0.01)


def test_failures_and_their_rate_are_those_of_attempts(driver: Driver) -> None:
    feed = started(driver)
    happen(driver, count=6)
    happen(driver, "fail", count=1)
    happen(driver, "retry", count=1)
    feed.step()
    recent = feed.recent()
    assert (recent.attempts, recent.failed, recent.failure_rate) == (8, 2, 0.25)


def test_percentiles_are_near_the_truth(driver: Driver) -> None:
    feed = started(driver)
    dice = random.Random(11)
    waits = [dice.lognormvariate(0, 2) for _ in range(400)]
    runs = [dice.uniform(0.001, 2) for _ in range(400)]
    for wait_s, run_s in zip(waits, runs, strict=True):
        happen(driver, wait_s=wait_s, run_s=run_s)
    feed.step()
    wait, run = feed.percentiles()
    for found, truth in ((wait, sorted(waits)), (run, sorted(runs))):
        for value, part in zip(found, (0.5, 0.95, 0.99), strict=True):
            assert value == pytest.approx(truth[int(400 * part) - 1], rel=0.2)


def test_each_tenant_and_each_queue_has_numbers_of_its_own(driver: Driver) -> None:
    feed = started(driver)
    happen(driver, count=3, queue="mail", tenant="acme")
    happen(driver, "fail", count=2, queue="mail", tenant="other")
    happen(driver, count=1, queue="images", tenant="acme")
    feed.step()
    assert feed.recent("acme").attempts == 4
    assert feed.recent("acme", "mail").attempts == 3
    assert feed.recent(None, "mail").attempts == 5
    assert feed.recent("other").failed == 2
    assert feed.recent("other", "images").attempts == 0
    assert feed.recent("nobody").attempts == 0
    assert feed.active_queues("other") == ["mail"]
    assert feed.active_queues() == ["images", "mail"]
    assert list(feed.totals("acme")) == ["mail", "images"]


def test_charts_have_complete_slots_of_equal_length(driver: Driver) -> None:
    now = driver.now()
    for seconds in (20, 20, 25, 50, 200):
        happen(driver, now=now - timedelta(seconds=seconds), run_s=0.5)
    feed = started(driver)
    for tenant, step in ((None, 1), (None, 5), ("default", 5), ("default", 10)):
        series = feed.series(tenant, 240, step)
        assert series.step_s == step
        assert len(series.at) == len(series.succeeded) == len(series.run_p95) == 240 // step
        assert {after - before for before, after in zip(series.at, series.at[1:], strict=False)} == {step}
        assert sum(series.succeeded) == 5
        assert series.at[-1] + step <= driver.now().timestamp()
        filled = [number for number, count in enumerate(series.succeeded) if count]
        assert [number for number, value in enumerate(series.run_p50) if value is not None] == filled
    by_minute = feed.series(None, 3_600, 60)
    assert by_minute.step_s == 60
    assert sum(by_minute.succeeded) >= 1


def test_a_part_is_not_kept_by_the_second_and_says_so(driver: Driver) -> None:
    assert started(driver).series("acme", 300, 1).step_s == 5


def test_many_tenants_and_queues_take_bounded_room(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MOST_SERIES", 10)
    feed = started(driver)
    for number in range(30):
        happen(driver, queue=f"q{number}", tenant=f"t{number}")
    feed.step()
    assert {kind: len(lines) for kind, lines in feed._windows._parts.items()} == {
        "queue": 10, "tenant": 10, "both": 10,
    }  # fmt: skip
    assert feed.recent().attempts == 30


def test_series_that_nobody_uses_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MOST_SERIES", 2)
    kept = windows.Windows()
    kept.add("old", "q", 1_000, Tally(succeeded=1))
    kept.add("t", "q", 9_000, Tally(succeeded=1))
    kept.add("new", "q", 9_000, Tally(succeeded=1))
    assert kept.total("old", None, 9_000, 60) == {}
    assert kept.total("new", None, 9_000, 60) == {"succeeded": 1}


def test_quantiles_of_nothing_are_nothing() -> None:
    assert quantile([0, 0], 0.5) is None
    assert Tally().percentiles(WAIT) == Percentiles()


def test_a_wait_of_years_is_in_the_last_bucket(driver: Driver) -> None:
    feed = started(driver)
    happen(driver, wait_s=3e7, run_s=0)
    feed.step()
    tally = feed.totals()["default"]
    assert tally.buckets(WAIT)[-1] == 1
    assert tally.percentiles(WAIT).p50 == BOUNDS_US[-1] / 1e6
    assert tally.buckets(RUN)[0] == 1


# --- Streams ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_a_reader_from_elsewhere_joins_the_pages_in_memory_and_misses_nothing(driver: Driver, seed: int) -> None:
    dice = random.Random(seed)
    happen_at_random(driver, dice, 5, QUEUES, TENANTS)
    origin = driver.latest(None, 1).cursor
    feed = Feed(driver, origin, page=dice.randint(2, 9))
    happen_at_random(driver, dice, 10, QUEUES, TENANTS)
    # As another process would have left it: somewhere between two pages of ours.
    cursor = driver.latest(origin, dice.randint(1, 12)).cursor
    expected = [row.job_id for row in driver.history(cursor, 10_000).rows]
    seen: list[str] = []

    def read_on(times: int) -> None:
        nonlocal cursor
        for _ in range(times):
            if dice.random() < 0.3:
                feed.step(0)
            page = feed.after(cursor)
            seen.extend(row.job_id for row in page.rows)
            cursor = page.cursor

    read_on(20)
    assert seen == expected[: len(seen)]
    feed.catch_up()
    read_on(30)
    assert seen == expected
    more = happen(driver, count=3)
    feed.step()
    read_on(10)
    assert sorted(seen[len(expected) :]) == sorted(more)
    assert feed.at_hand(cursor) is not None, "by now it reads what is in memory"


def test_only_the_last_pages_are_kept(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "KEPT_ROWS", 10)
    feed = started(driver, page=4)
    begin = feed.cursor()
    for _ in range(10):
        happen(driver, count=4)
        feed.step()
    assert feed.at_hand(begin) is None
    assert len(feed._pages) == len(feed._ends) <= 3
    assert len(feed.after(begin).rows) == 4


def test_a_store_that_was_replaced_is_followed_from_its_end(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    feed = Feed(driver, "another-store:17")
    happen(driver, count=3)
    feed.step()
    assert "another one" in caplog.text
    happen(driver, count=2)
    feed.step()
    assert feed.totals()["default"].attempts == 2


def test_the_thread_follows_by_itself_and_can_be_stopped_twice_and_before_it_was_started() -> None:
    driver = open_driver("memory://")
    never = Feed(driver)
    never.stop()
    never.start()
    feed = Feed(driver, look_s=0.01)
    feed.start()
    assert feed.catch_up()
    happen(driver)
    ends = datetime.now(UTC) + timedelta(seconds=20)
    while not feed.totals():
        assert datetime.now(UTC) < ends
    feed.stop()
    feed.stop()
    assert never._loop._thread is None
    assert feed._loop._thread is not None
    assert not feed._loop._thread.is_alive()
