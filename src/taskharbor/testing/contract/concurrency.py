"""Many at once: what must hold whatever the interleaving."""

from __future__ import annotations

import threading
import time
from collections import Counter

from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Leadership
from taskharbor.core.model import HistoryRow, JobFilter, Outcome, Settlement, Status
from taskharbor.testing.helpers import FEED_PATIENCE_S, add_all, add_keyed, failure, in_threads, new_job
from taskharbor.testing.times import HOUR, MINUTE, NOON

RESERVERS = 32
JOBS = 2_000
RIVALS = 4
ELECTIONS = 1_000
WRITERS = 8
JOBS_PER_WRITER = 40
PATIENCE_S = 60.0


class ConcurrencyContract:
    """Threads that share one driver, each on connections of its own where the store has any."""

    def test_many_reservers_never_lease_one_job_twice_and_finish_all(self, driver: Driver) -> None:
        ids = add_all(driver, [new_job(priority=number % 3) for number in range(JOBS)])
        seen: Counter[str] = Counter()
        lock = threading.Lock()
        deadline = time.monotonic() + PATIENCE_S

        def drain(number: int) -> None:
            while sum(seen.values()) < JOBS and time.monotonic() < deadline:
                leased = driver.reserve(
                    "default", now=NOON, lease_for=HOUR, limit=1 + number % 10 * 3, owner=f"worker-{number}"
                )
                with lock:
                    seen.update(item.job.id for item in leased)
                if not leased:
                    time.sleep(0.005)  # the rest is in other hands: let them finish
                    continue
                items = [
                    Settlement.fail(item.job.id, item.lease.token, reason="boom")
                    if number % 4 == 0
                    else Settlement.ack(item.job.id, item.lease.token)
                    for item in leased
                ]
                results = driver.settle(items, now=NOON)
                assert set(results) <= {Status.DONE, Status.DLQ}, results

        in_threads(RESERVERS, drain)
        assert seen == Counter(ids), "every job is handed out exactly once"
        counts = driver.counts()
        assert counts["done"] + counts["dlq"] == JOBS

    def test_many_enqueues_of_one_key_make_one_job(self, driver: Driver) -> None:
        answers = in_threads(64, lambda _: add_keyed(driver, "once", queue="mail"))
        assert len({answer.id for answer in answers}) == 1
        assert [answer.existed for answer in answers].count(False) == 1
        assert len(driver.list(JobFilter(queue="mail")).jobs) == 1

    def test_batches_that_share_keys_in_any_order_agree_on_them(self, driver: Driver) -> None:
        def enqueue(number: int) -> list[str]:
            keys = [f"key-{key}" for key in range(20)]
            jobs = [new_job(idempotency_key=key) for key in (keys if number % 2 else reversed(keys))]
            made = [answer.id for answer in driver.enqueue(jobs, NOON)]
            return made if number % 2 else made[::-1]

        assert len({tuple(ids) for ids in in_threads(16, enqueue)}) == 1
        assert driver.counts()["ready"] == 20

    def test_every_contested_election_has_one_winner_and_a_higher_epoch(self, driver: Driver) -> None:
        barrier = threading.Barrier(RIVALS, timeout=PATIENCE_S)

        def bid(rival: int) -> list[Leadership | None]:
            results = []
            for number in range(ELECTIONS):
                barrier.wait()
                results.append(driver.elect("scheduler", f"rival-{rival}", NOON + number * MINUTE, MINUTE))
            return results

        rounds = list(zip(*in_threads(RIVALS, bid), strict=True))
        winners = [[leadership for leadership in bids if leadership is not None] for bids in rounds]
        assert {len(found) for found in winners} == {1}
        epochs = [found[0].epoch for found in winners]
        assert epochs == sorted(set(epochs))

    def test_one_lease_is_settled_by_one_of_many_rivals(self, driver: Driver) -> None:
        add_all(driver, [new_job()])
        (leased,) = driver.reserve("default", now=NOON, lease_for=HOUR)
        kinds = [
            Settlement.ack(leased.job.id, leased.lease.token),
            Settlement.retry(leased.job.id, leased.lease.token, update=failure(run_at=NOON + HOUR)),
            Settlement.fail(leased.job.id, leased.lease.token, reason="boom"),
        ]
        in_threads(12, lambda number: driver.settle([kinds[number % 3]], now=NOON))
        assert len(driver.attempts(leased.job.id)) == 1

    def test_a_feed_read_while_others_write_misses_nothing_and_repeats_nothing(self, driver: Driver) -> None:
        written: list[tuple[str, int]] = []
        lock = threading.Lock()
        writing = threading.Event()
        read: list[HistoryRow] = []

        def write(number: int) -> None:
            queue = f"queue-{number}"
            for _ in range(JOBS_PER_WRITER):
                add_all(driver, [new_job(queue=queue), new_job(queue=queue)])
                for outcome in (Outcome.RETRIED, Outcome.SUCCEEDED):
                    leased = driver.reserve(queue, now=NOON, lease_for=HOUR, limit=2)
                    items = [
                        Settlement.ack(item.job.id, item.lease.token)
                        if outcome is Outcome.SUCCEEDED
                        else Settlement.retry(item.job.id, item.lease.token, update=failure())
                        for item in leased
                    ]
                    driver.settle(items, now=NOON)
                    with lock:
                        written.extend((item.job.id, item.job.deliveries) for item in leased)

        def follow() -> None:
            cursor = None
            deadline = None
            while True:
                page = driver.history(cursor, 7)
                read.extend(page.rows)
                cursor = page.cursor
                if page.rows:
                    continue
                if writing.is_set():
                    # Rows may be held back a little longer than the writers take.
                    deadline = deadline or time.monotonic() + FEED_PATIENCE_S
                    if len(read) >= len(written) or time.monotonic() > deadline:
                        return
                time.sleep(0.002)

        reader = threading.Thread(target=follow, daemon=True)
        reader.start()
        try:
            in_threads(WRITERS, write)
        finally:
            writing.set()
            reader.join(PATIENCE_S)
        assert len(written) == WRITERS * JOBS_PER_WRITER * 4
        assert Counter((row.job_id, row.attempt.delivery) for row in read if row.attempt) == Counter(written)
