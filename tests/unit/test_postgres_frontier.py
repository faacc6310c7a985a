"""When a claim may start where the last one stopped."""

from __future__ import annotations

from taskharbor.drivers.postgres.frontier import MANY_BLOCKS, SHARE, SLOW_IN_A_ROW, SLOW_S, Frontier, Point
from taskharbor.testing.times import NOON, SECOND, FakeClock

FIRST = Point(0, NOON, "a")
SECOND_JOB = Point(0, NOON + SECOND, "b")
SLOW = 2 * SLOW_S


def slow_frontier(clock: FakeClock) -> Frontier:
    """A frontier behind which whole walks have become slow."""
    frontier = Frontier(clock.monotonic)
    for _ in range(SLOW_IN_A_ROW):
        frontier.walked(SLOW, 1, lambda: FIRST)
    frontier.judged(MANY_BLOCKS + 1)
    return frontier


def test_a_new_frontier_lets_every_claim_walk_the_whole_way() -> None:
    assert Frontier().floor() is None


def test_quick_walks_keep_it_that_way() -> None:
    frontier = Frontier()
    for _ in range(100):
        frontier.walked(SLOW_S / 2, 1, lambda: FIRST)
    assert frontier.floor() is None


def test_one_hiccup_between_quick_walks_changes_nothing() -> None:
    frontier = Frontier()
    for _ in range(SLOW_IN_A_ROW):
        frontier.walked(SLOW, 1, lambda: FIRST)
        frontier.walked(0.0, 1, lambda: FIRST)
    assert frontier.floor() is None


def test_a_walk_that_brings_many_jobs_may_take_longer() -> None:
    frontier = Frontier()
    for _ in range(SLOW_IN_A_ROW):
        frontier.walked(SLOW, 2_000, lambda: FIRST)
    assert frontier.floor() is None


def test_after_slow_walks_in_a_row_claims_start_behind_the_last_job() -> None:
    assert slow_frontier(FakeClock()).floor() == FIRST


def test_a_claim_from_the_floor_moves_the_floor_on() -> None:
    frontier = slow_frontier(FakeClock())
    frontier.continued(SECOND_JOB)
    assert frontier.floor() == SECOND_JOB


def test_a_claim_from_the_floor_that_found_nothing_leaves_the_floor() -> None:
    frontier = slow_frontier(FakeClock())
    frontier.continued(None)
    assert frontier.floor() == FIRST


def test_whole_walks_come_back_now_and_then_and_take_only_their_share_of_the_time() -> None:
    clock = FakeClock()
    frontier = slow_frontier(clock)
    clock.advance(SLOW / SHARE - 0.001)
    assert frontier.floor() == FIRST
    clock.advance(0.002)
    assert frontier.floor() is None


def test_a_head_that_is_no_longer_buried_ends_the_detour() -> None:
    clock = FakeClock()
    frontier = slow_frontier(clock)
    clock.advance(SLOW / SHARE)
    assert frontier.walked(0.0, 1, lambda: SECOND_JOB)
    frontier.judged(MANY_BLOCKS)
    assert frontier.floor() is None


def test_a_slow_walk_that_found_nothing_keeps_the_floor_it_had() -> None:
    frontier = slow_frontier(FakeClock())
    frontier.walked(SLOW, 0, lambda: None)
    assert frontier.floor() == FIRST


def test_a_slow_machine_is_told_from_dead_entries() -> None:
    frontier = Frontier(FakeClock().monotonic)
    told = [frontier.walked(SLOW, 1, lambda: FIRST) for _ in range(SLOW_IN_A_ROW)]
    assert told == [False] * (SLOW_IN_A_ROW - 1) + [True]
    frontier.judged(10)
    assert frontier.floor() is None
    assert frontier.walked(SLOW, 1, lambda: FIRST) is False
