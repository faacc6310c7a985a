"""What reserve promises about who is next: priority, then the moment a job became due, then id."""

from __future__ import annotations

import random

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.model import Status
from taskharbor.testing.helpers import (
    add,
    add_all,
    everything,
    failure,
    finished_job,
    leased_job,
    new_job,
    nothing_runnable,
    take,
    take_all,
    take_ids,
)
from taskharbor.testing.times import DAY, HOUR, MICROSECOND, MINUTE, NOON, SECOND


class OrderingContract:
    """Which jobs are runnable, and in which order they are handed out."""

    def test_an_empty_queue_gives_an_empty_list(self, driver: Driver) -> None:
        assert driver.reserve("default", now=NOON) == []
        assert driver.reserve("never heard of", now=NOON, limit=10) == []

    def test_reserve_gives_one_job_unless_asked_for_more(self, driver: Driver) -> None:
        ids = add_all(driver, [new_job() for _ in range(5)])
        assert [leased.job.id for leased in driver.reserve("default", now=NOON)] == ids[:1]
        assert [leased.job.id for leased in driver.reserve("default", now=NOON, limit=3)] == ids[1:4]
        assert [leased.job.id for leased in driver.reserve("default", now=NOON, limit=3)] == ids[4:]
        assert driver.reserve("default", now=NOON, limit=3) == []

    def test_a_batch_is_never_larger_than_asked_for(self, driver: Driver) -> None:
        add_all(driver, [new_job(priority=n % 7, queue=f"q{n % 3}") for n in range(300)])
        sizes = [len(driver.reserve(["q0", "q1", "q2"], now=NOON, limit=90)) for _ in range(5)]
        assert sizes == [90, 90, 90, 30, 0]

    @pytest.mark.parametrize("status", [Status.DONE, Status.DLQ, Status.CANCELLED, Status.EXPIRED])
    def test_a_job_that_has_ended_is_never_handed_out(self, driver: Driver, status: Status) -> None:
        finished_job(driver, status)
        for later in (NOON, NOON + HOUR, NOON + 300 * DAY):
            assert nothing_runnable(driver, now=later)

    # --- Order -------------------------------------------------------------------------------------------

    def test_higher_priority_runs_first(self, driver: Driver) -> None:
        low, high, middle = add_all(driver, [new_job(priority=p) for p in (-5, 2**31 - 1, 0)])
        assert [take(driver).job.id for _ in range(3)] == [high, middle, low]

    def test_priority_holds_inside_a_batch(self, driver: Driver) -> None:
        priorities = [3, -1, 7, 0, 7, -9, 100, 2, 3]
        add_all(driver, [new_job(priority=priority) for priority in priorities])
        assert [leased.job.priority for leased in take_all(driver)] == sorted(priorities, reverse=True)

    def test_within_a_priority_the_longest_due_runs_first(self, driver: Driver) -> None:
        third = add(driver, now=NOON - MINUTE)
        first = add(driver, now=NOON - HOUR)
        second = add(driver, now=NOON - MINUTE - MICROSECOND)
        assert take_ids(driver) == [first, second, third]

    def test_due_order_goes_by_run_at_and_not_by_when_it_was_enqueued(self, driver: Driver) -> None:
        late = add(driver, now=NOON, run_at=NOON + 3 * SECOND)
        early = add(driver, now=NOON + SECOND, run_at=NOON + 2 * SECOND)
        plain = add(driver, now=NOON + SECOND)
        assert take_ids(driver, now=NOON + MINUTE) == [plain, early, late]

    def test_jobs_due_at_the_same_moment_run_in_order_of_id(self, driver: Driver) -> None:
        ids = ["b", "a-2", "Z", "é", "a", "B", "a-1", "1", "🚢", "\uffee", "_", "a_", "aB"]
        add_all(driver, [new_job(id=id) for id in ids])
        assert take_ids(driver) == sorted(ids)

    def test_the_whole_order_holds_inside_a_batch_and_across_batches(self, driver: Driver) -> None:
        rng = random.Random(7)
        jobs = [
            new_job(id=f"job-{number:03}", priority=rng.randint(-2, 2), run_at=NOON - rng.randint(0, 5) * SECOND)
            for number in rng.sample(range(200), 120)
        ]
        add_all(driver, jobs)
        expected = [job.id for job in sorted(everything(driver).values(), key=lambda j: (-j.priority, j.due_at, j.id))]
        handed_out: list[str] = []
        for limit in (1, 17, 2, 50, 100):
            handed_out += [leased.job.id for leased in driver.reserve("default", now=NOON, limit=limit)]
        assert handed_out == expected

    # --- Several queues ----------------------------------------------------------------------------------

    def test_a_queue_gives_only_its_own_jobs(self, driver: Driver) -> None:
        names = ["mail", "Mail", "mail ", "mai", "m%", "é", "e\u0301"]
        ids = {name: add(driver, queue=name) for name in names}
        for name in names:
            assert take_ids(driver, name) == [ids[name]]

    def test_the_order_holds_across_several_queues_in_one_batch(self, driver: Driver) -> None:
        low = add(driver, queue="a", priority=-1, now=NOON - HOUR)
        second = add(driver, queue="b", priority=5, now=NOON - SECOND)
        third = add(driver, queue="c", priority=5)
        first = add(driver, queue="a", priority=5, now=NOON - MINUTE)
        add(driver, queue="d", priority=9)
        assert take_ids(driver, ["a", "b", "c"]) == [first, second, third, low]

    def test_the_order_holds_across_several_queues_one_by_one(self, driver: Driver) -> None:
        ids = [add(driver, queue=queue, now=NOON + n * SECOND) for n, queue in enumerate("cabbac")]
        assert [take(driver, ["a", "b", "c"], now=NOON + MINUTE).job.id for _ in ids] == ids

    def test_a_limit_is_for_all_queues_together(self, driver: Driver) -> None:
        ids = [add(driver, queue=queue, now=NOON + n * SECOND) for n, queue in enumerate("aabb")]
        leased = driver.reserve(["b", "a"], now=NOON + MINUTE, limit=3)
        assert [item.job.id for item in leased] == ids[:3]

    def test_the_order_of_the_queue_names_and_repeats_do_not_matter(self, driver: Driver) -> None:
        ids = [add(driver, queue="a"), add(driver, queue="b")]
        assert take_ids(driver, ["b", "a", "b", "a"]) == ids

    def test_no_queues_give_no_jobs(self, driver: Driver) -> None:
        add(driver)
        assert driver.reserve([], now=NOON) == []

    # --- Scheduled jobs ----------------------------------------------------------------------------------

    def test_a_scheduled_job_runs_at_its_moment_and_not_before(self, driver: Driver) -> None:
        job_id = add(driver, run_at=NOON + HOUR)
        assert nothing_runnable(driver, now=NOON + HOUR - MICROSECOND)
        assert take(driver, now=NOON + HOUR).job.id == job_id

    def test_scheduled_jobs_of_higher_priority_do_not_hide_due_ones(self, driver: Driver) -> None:
        add_all(driver, [new_job(priority=100 + n % 3, run_at=NOON + HOUR) for n in range(50)])
        due = add(driver, priority=-3)
        assert [leased.job.id for leased in driver.reserve("default", now=NOON, limit=10)] == [due]

    def test_a_scheduled_job_takes_its_place_by_priority_once_it_is_due(self, driver: Driver) -> None:
        low = add(driver)
        high = add(driver, priority=1, run_at=NOON + MINUTE)
        assert take_ids(driver, now=NOON + MINUTE) == [high, low]

    def test_a_run_at_in_the_past_is_due_since_then(self, driver: Driver) -> None:
        plain = add(driver, now=NOON - MINUTE)
        overdue = add(driver, now=NOON, run_at=NOON - HOUR)
        assert take_ids(driver) == [overdue, plain]

    # --- Types -------------------------------------------------------------------------------------------

    def test_only_the_asked_types_are_handed_out(self, driver: Driver) -> None:
        ids = {name: add(driver, type=name) for name in ("send", "Send", "send ", "drop", "fax")}
        leased = driver.reserve("default", now=NOON, limit=10, types=["send", "fax", "unheard of"])
        assert [item.job.id for item in leased] == [ids["send"], ids["fax"]]
        assert take_ids(driver) == [ids["Send"], ids["send "], ids["drop"]]

    def test_the_order_holds_among_the_asked_types(self, driver: Driver) -> None:
        add_all(driver, [new_job(type="other", priority=9) for _ in range(30)])
        low = add(driver, type="a", now=NOON - HOUR)
        high = add(driver, type="b", priority=3)
        add(driver, type="other")
        leased = driver.reserve("default", now=NOON, limit=10, types=("a", "b"))
        assert [item.job.id for item in leased] == [high, low]

    def test_no_types_give_no_jobs(self, driver: Driver) -> None:
        add(driver)
        assert driver.reserve("default", now=NOON, types=[]) == []

    def test_jobs_passed_over_for_their_type_stay_where_they_were_in_line(self, driver: Driver) -> None:
        ids = add_all(driver, [new_job(type="a"), new_job(type="b"), new_job(type="a")])
        driver.reserve("default", now=NOON, types=["b"])
        assert take_ids(driver) == [ids[0], ids[2]]

    # --- Due order is fair -------------------------------------------------------------------------------

    def test_steady_new_work_cannot_starve_a_retry(self, driver: Driver) -> None:
        leased = leased_job(driver)
        update = failure(run_at=NOON + 10 * SECOND)
        driver.retry(leased.job.id, leased.lease.token, now=NOON, update=update)
        add(driver, now=NOON)
        handed_out = []
        for second in range(1, 15):
            add(driver, now=NOON + second * SECOND)
            handed_out.append(take(driver, now=NOON + second * SECOND).job.id)
        # One job stood before it when it became due, so it is the second from then on.
        assert handed_out.index(leased.job.id) == 10

    def test_a_retry_without_a_time_is_due_from_the_moment_it_failed(self, driver: Driver) -> None:
        leased = leased_job(driver)
        before = add(driver, now=NOON + 9 * SECOND)
        after = add(driver, now=NOON + 11 * SECOND)
        driver.retry(leased.job.id, leased.lease.token, now=NOON + 10 * SECOND, update=failure())
        assert take_ids(driver, now=NOON + 20 * SECOND) == [before, leased.job.id, after]

    def test_a_released_job_stands_where_it_was_in_line(self, driver: Driver) -> None:
        ids = [add(driver, now=NOON + n * SECOND) for n in range(3)]
        leased = take(driver, now=NOON + 10 * SECOND)
        driver.release(leased.job.id, leased.lease.token, now=NOON + 20 * SECOND)
        assert take_ids(driver, now=NOON + 30 * SECOND) == ids
